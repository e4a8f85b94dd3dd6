"""tigon.patch on the families: what it finds, and that the model computes, saves and generates as before."""

import copy
import math
import pickle

import pytest
import torch
import transformers
from tiny_models import FAMILIES, batch, model

import tigon

families = pytest.mark.parametrize("family", FAMILIES)
some_families = pytest.mark.parametrize("family", ["Qwen2", "Gemma3", "Phi3", "Mixtral"])


def step(model, **arguments):
    """(loss, logits or None, gradients by name) of one training step."""
    ids, labels = batch()
    model.zero_grad()
    outputs = model(input_ids=ids, labels=labels, use_cache=False, **arguments)
    outputs.loss.backward()
    gradients = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    return outputs.loss.item(), outputs.logits, gradients


def bounds(report, loss, dtype):
    """(loss, gradient as a share of its norm): docs/train.md, "The losses", with n the values that a replaced module
    rounds on its way to the loss, and N tokens."""
    u = torch.finfo(dtype).eps / 2
    counts = report.counts()
    norms = counts.get("rms_norm", 0) + counts.get("layer_norm", 0)
    n = 4 * norms + 3 * counts.get("mlp", 0) + 8 * counts.get("experts", 0) + 3 * counts.get("rope", 0) + 2 * 2 + 8
    tokens = 2 * 23
    return loss * (8 * 2**-24 + 6 * math.sqrt(n / tokens) * u), 6 * (math.sqrt(3 * n) * u + math.sqrt(tokens) * 2**-24)


@families
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])
def test_computes_what_the_model_computed(family, dtype):
    patched = model(family, dtype)
    ids, _ = batch()
    in_double = copy.deepcopy(patched).double()
    in_double.set_experts_implementation("eager")  # the only one that takes f64
    _, _, exact = step(in_double)
    stock_loss, _, stock_gradients = step(patched)
    with torch.no_grad():
        stock_logits = patched(ids).logits
    report = tigon.patch(patched)

    assert report.counts() == FAMILIES[family][2]
    loss, logits, gradients = step(patched)
    assert logits is None
    loss_bound, gradient_bound = bounds(report, stock_loss, dtype)
    assert abs(loss - stock_loss) <= loss_bound
    assert gradients.keys() == stock_gradients.keys()
    for name, stock in stock_gradients.items():
        difference = (gradients[name].double() - stock.double()).norm()
        own = (exact[name] - stock.double()).norm() if dtype == torch.float32 else 0  # a router's terms cancel
        assert difference <= gradient_bound * stock.double().norm() + own, name
    with torch.no_grad():
        logits = patched(ids).logits
    assert (logits.double() - stock_logits.double()).norm() <= gradient_bound * stock_logits.double().norm()


@families
def test_unpatch_gives_the_stock_bits(family):
    patched = model(family)
    loss, logits, gradients = step(patched)
    before = {name: set(vars(module)) for name, module in patched.named_modules()}
    keys = list(patched.state_dict())
    tigon.patch(patched)
    assert list(patched.state_dict()) == keys
    assert step(patched)[1] is None
    assert tigon.unpatch(patched) is patched
    assert {name: set(vars(module)) for name, module in patched.named_modules()} == before
    loss_after, logits_after, gradients_after = step(patched)
    assert loss_after == loss and torch.equal(logits_after, logits)
    assert all(torch.equal(gradients_after[name], gradient) for name, gradient in gradients.items())


@some_families
def test_saves_and_loads(family, tmp_path):
    patched = model(family)
    tigon.patch(patched)
    patched.save_pretrained(tmp_path)
    stock = transformers.AutoModelForCausalLM.from_pretrained(tmp_path).train()
    again = tigon.AutoModelForCausalLM.from_pretrained(tmp_path).train()
    state = patched.state_dict()
    for loaded in (stock, again):
        assert type(loaded) is type(patched)
        assert all(torch.equal(tensor, state[name]) for name, tensor in loaded.state_dict().items())
    assert step(stock)[1] is not None
    assert step(again)[0] == step(patched)[0]


@some_families
def test_gradient_checkpointing(family):
    patched = model(family)
    tigon.patch(patched)
    loss, _, gradients = step(patched)
    patched.gradient_checkpointing_enable()
    loss_again, _, gradients_again = step(patched)
    assert loss_again == loss
    assert all(torch.equal(gradients_again[name], gradient) for name, gradient in gradients.items())


@some_families
def test_generates_the_same_tokens(family):
    patched = model(family).eval()
    patched.config.output_router_logits = False  # which transformers' generate cannot
    prompt = batch()[0][:, :7]
    options = dict(max_new_tokens=12, do_sample=False, eos_token_id=None)
    stock = patched.generate(prompt, **options)
    tigon.patch(patched)
    assert torch.equal(patched.generate(prompt, **options), stock)


def test_report():
    patched = model("Mixtral")
    patched.model.layers[1].mlp.experts.act_fn = torch.nn.Tanh()
    report = tigon.patch(patched, rope=False)
    assert report.counts() == dict(rms_norm=5, experts=1, embedding=1, loss=1)
    assert [(entry.path, entry.kind) for entry in report.left] == [("model.layers.1.mlp.experts", "experts")]
    experts = next(entry for entry in report.replaced if entry.kind == "experts")
    assert (experts.module, experts.text) == ("MixtralExperts", "experts with SiLU")
    norm = next(entry for entry in report.replaced if entry.path == "model.norm")
    assert (norm.module, norm.text) == ("MixtralRMSNorm", "Llama, eps 1e-05")
    assert "left 1:" in str(report)


def test_verbose_prints_the_report(capsys):
    report = tigon.patch(model("Llama"), verbose=True)
    assert capsys.readouterr().out == f"{report}\n"


@pytest.mark.parametrize("kind", ["rms_norm", "mlp", "rope", "embedding", "loss"])
def test_each_kind_can_be_switched_off(kind):
    patched = model("Llama")
    assert tigon.patch(patched).counts() == FAMILIES["Llama"][2]
    left = {name: count for name, count in FAMILIES["Llama"][2].items() if name != kind}
    assert tigon.patch(patched, **{kind: False}).counts() == left


def test_other_models_of_the_family_stay_stock():
    patched, other = model("Llama"), model("Llama")
    loss, logits, _ = step(other)
    tigon.patch(patched)
    assert step(other)[0] == loss and torch.equal(step(other)[1], logits)
    assert all("forward" not in vars(module) for module in other.modules())


def test_deep_copy_is_patched_and_pickle_is_stock():
    patched = model("Llama")
    tigon.patch(patched)
    loss, _, gradients = step(patched)
    twin = copy.deepcopy(patched)
    with torch.no_grad():
        patched.lm_head.weight.zero_()
    assert step(twin)[0] == loss
    assert all(torch.equal(step(twin)[2][name], gradient) for name, gradient in gradients.items())
    thawed = pickle.loads(pickle.dumps(twin))
    assert step(thawed)[1] is not None
    assert tigon.patch(thawed).counts() == FAMILIES["Llama"][2]
    assert step(thawed)[0] == loss


class TestLoss:
    """The head takes what transformers' forward and ForCausalLMLoss take."""

    def both(self, **arguments):
        patched = model("Llama")
        stock = patched(**arguments)
        tigon.patch(patched)
        return stock, patched(**arguments), patched

    @pytest.mark.parametrize("items", [17, torch.tensor(17)], ids=["int", "tensor"])
    def test_items_in_batch(self, items):
        ids, labels = batch()
        stock, ours, _ = self.both(input_ids=ids, labels=labels, num_items_in_batch=items)
        torch.testing.assert_close(ours.loss, stock.loss, rtol=1e-6, atol=0)
        assert ours.logits is None

    def test_shift_labels(self):
        ids, labels = batch()
        shifted = labels.roll(-3, 1)
        stock, ours, _ = self.both(input_ids=ids, labels=labels, shift_labels=shifted)
        torch.testing.assert_close(ours.loss, stock.loss, rtol=1e-6, atol=0)
        assert abs(ours.loss - self.both(input_ids=ids, labels=labels)[1].loss) > 1e-3

    def test_ignore_index(self):
        ids, labels = batch()
        labels = labels.masked_fill(labels == -100, 7)
        stock, ours, _ = self.both(input_ids=ids, labels=labels, ignore_index=7)
        torch.testing.assert_close(ours.loss, stock.loss, rtol=1e-6, atol=0)

    def test_router_loss_is_added(self):
        patched = model("Mixtral", router_aux_loss_coef=0.5)
        ids, labels = batch()
        stock = patched(input_ids=ids, labels=labels)
        tigon.patch(patched)
        ours = patched(input_ids=ids, labels=labels)
        torch.testing.assert_close(ours.loss, stock.loss, rtol=1e-6, atol=0)
        torch.testing.assert_close(ours.aux_loss, stock.aux_loss, rtol=1e-6, atol=0)

    def test_tuple(self):
        ids, labels = batch()
        stock, ours, _ = self.both(input_ids=ids, labels=labels, return_dict=False, use_cache=False)
        assert len(ours) == len(stock) - 1
        torch.testing.assert_close(ours[0], stock[0], rtol=1e-6, atol=0)

    @pytest.mark.parametrize("asked", [dict(skip_logits=False), dict(logits_to_keep=24)], ids=str)
    def test_logits_when_asked_for(self, asked):
        patched = model("Llama")
        tigon.patch(patched)
        ids, labels = batch()
        outputs = patched(input_ids=ids, labels=labels, **asked)
        assert outputs.logits.shape == (2, 24, 131)

    def test_evaluation_has_logits(self):
        ids, labels = batch()
        patched = model("Llama").eval()
        tigon.patch(patched)
        outputs = patched(input_ids=ids, labels=labels)
        assert outputs.logits.shape == (2, 24, 131)
        skipped = patched(input_ids=ids, labels=labels, skip_logits=True)
        assert skipped.logits is None
        torch.testing.assert_close(skipped.loss, outputs.loss, rtol=1e-6, atol=0)

    def test_wrong_labels_raise_the_librarys_sentence_and_the_model_goes_on(self):
        patched = model("Llama")
        tigon.patch(patched)
        ids, labels = batch()
        with pytest.raises(ValueError, match=r"fused_linear_cross_entropy_fwd: labels\[.*131"):
            patched(input_ids=ids, labels=labels.masked_fill(labels == -100, 131))
        assert patched(input_ids=ids).logits.shape == (2, 24, 131)


@pytest.mark.parametrize("family", ["Llama", "Gemma2", "Phi3"])
def test_autocast(family):
    patched = model(family)
    with torch.autocast("cpu", torch.bfloat16):
        stock_loss, _, stock_gradients = step(patched)
        report = tigon.patch(patched)
        loss, _, gradients = step(patched)
    loss_bound, gradient_bound = bounds(report, stock_loss, torch.bfloat16)
    assert abs(loss - stock_loss) <= loss_bound
    for name, stock in stock_gradients.items():
        assert gradients[name].dtype == torch.float32
        assert (gradients[name] - stock).norm() <= gradient_bound * stock.norm(), name


def test_adapters_train_on_frozen_embeddings():
    """What PEFT asks of a model whose layers are checkpointed: the embedding's output requires a gradient."""
    patched = model("Llama")
    patched.model.embed_tokens.requires_grad_(False)
    patched.enable_input_require_grads()
    stock_loss, _, stock_gradients = step(patched)
    patched.gradient_checkpointing_enable(gradient_checkpointing_kwargs=dict(use_reentrant=True))
    report = tigon.patch(patched)
    loss, _, gradients = step(patched)
    loss_bound, gradient_bound = bounds(report, stock_loss, torch.float32)
    assert abs(loss - stock_loss) <= loss_bound
    assert gradients.keys() == stock_gradients.keys() and "model.embed_tokens.weight" not in gradients
    for name, stock in stock_gradients.items():
        assert (gradients[name] - stock).norm() <= gradient_bound * stock.norm(), name


def test_vocabulary_grows_after_the_patch():
    patched = model("Gemma3")
    tigon.patch(patched)
    patched.resize_token_embeddings(140, mean_resizing=False)
    ids, labels = (t.masked_fill(t == 7, 139) for t in batch())
    ours = patched(ids, labels=labels).loss
    stock = tigon.unpatch(patched)(ids, labels=labels).loss
    torch.testing.assert_close(ours, stock, rtol=1e-6, atol=0)


def test_float64_runs_stock():
    patched = model("Llama", torch.float64)
    stock_loss, _, stock_gradients = step(patched)
    tigon.patch(patched)
    loss, logits, gradients = step(patched)
    assert loss == stock_loss and logits is not None
    assert all(torch.equal(gradients[name], stock) for name, stock in stock_gradients.items())


@pytest.mark.parametrize("family", ["Llama", "Gemma3"])
def test_compiles_without_a_graph_break(family):
    patched = model(family, num_hidden_layers=1)
    tigon.patch(patched)
    loss, _, gradients = step(patched)
    compiled = torch.compile(patched, backend="aot_eager", fullgraph=True)
    patched.zero_grad()
    ids, labels = batch()
    again = compiled(input_ids=ids, labels=labels, use_cache=False).loss
    again.backward()
    torch.testing.assert_close(again.item(), loss, rtol=1e-6, atol=0)
    for name, parameter in patched.named_parameters():
        torch.testing.assert_close(parameter.grad, gradients[name], rtol=1e-5, atol=1e-7)


def test_not_a_module():
    with pytest.raises(TypeError, match="patch: model is a dict, must be a torch.nn.Module"):
        tigon.patch({})
