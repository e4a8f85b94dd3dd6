"""TRL's trainers on a patched model: their losses and metrics, by Tigon's head."""

import re
from pathlib import Path

import datasets
import pytest
import torch
import transformers
from test_patch_trainers import options, tokenizer
from tiny_models import batch, model

import tigon
from tigon.huggingface import trl_head

trl = pytest.importorskip("trl")
from trl.trainer import utils  # noqa: E402

STOCK = utils._ChunkedLogProbFunction
STEPS = 2
TIMES = "time", "per_second", "tps", "mfu"
BOUND = 64 * 2**-24  # eight roundings of f32 numbers below 8, as log-probabilities and entropies of 131 words are
ALONE = dict.fromkeys(("embedding", "rms_norm", "mlp", "rope"), False)


def sentences(count=4, words=12):
    ids = batch(rows=2 * count, tokens=words)[0].tolist()
    return [" ".join(f"w{token}" for token in row) for row in ids]


def rows(kind):
    text = sentences()
    if kind == "SFT":
        return dict(text=text)
    prompts, chosen, rejected = (
        [" ".join(row.split()[a:b]) for row in text] for a, b in ((0, 4), (4, 9), (9, 12))
    )
    if kind == "DPO":
        return dict(prompt=prompts, chosen=chosen, rejected=rejected)
    if kind == "KTO":
        return dict(prompt=prompts, completion=chosen, label=[number % 2 == 0 for number in range(len(text))])
    return dict(prompt=prompts)


def reward(completions, **others):
    """By the words, so that a completion's tokens decide."""
    return [float(len(set(completion.split()))) for completion in completions]


OWN = {
    "SFT": dict(max_length=16),
    "DPO": dict(max_length=16, beta=0.2),
    "KTO": dict(max_length=16, per_device_train_batch_size=4),
    "GRPO": dict(num_generations=2, max_completion_length=8, beta=0.04, temperature=0.9, epsilon=0.2),
}


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A folder, from which trainers load the reference model, too."""
    folder = str(tmp_path_factory.mktemp("model"))
    model("Llama").save_pretrained(folder)
    return folder


def trainer(kind, trained, folder, **own):
    settings = options(folder) | dict(max_steps=STEPS, learning_rate=1e-2, bf16=False, optim="sgd") | OWN[kind] | own
    more = dict(reward_funcs=reward) if kind == "GRPO" else {}
    config = getattr(trl, f"{kind}Config")(**settings)
    data = datasets.Dataset.from_dict(rows(kind))
    more |= dict(args=config, train_dataset=data, processing_class=tokenizer())
    return getattr(trl, f"{kind}Trainer")(trained, **more)


def history(made):
    """The metrics of each step but for those of time."""
    made.train()
    steps = [entry for entry in made.state.log_history if "loss" in entry]
    numbers = lambda entry: {k: v for k, v in entry.items() if not any(word in k for word in TIMES)}
    return [numbers(entry) for entry in steps]


@pytest.fixture
def calls(monkeypatch):
    """A shape for each time that Tigon's head made log-probabilities for TRL."""
    counted = []

    def project(*args):
        counted.append(tuple(args[0].shape))
        return real(*args)

    assert trl_head.obstacle(STOCK) is None
    real = trl_head.project
    monkeypatch.setattr(trl_head, "project", project)
    yield counted
    assert utils._ChunkedLogProbFunction is STOCK


def load(saved):
    return transformers.AutoModelForCausalLM.from_pretrained(saved).train()


def within(ours, stock, bound=BOUND):
    assert len(ours) == len(stock) == STEPS
    for mine, theirs in zip(ours, stock):
        assert mine.keys() == theirs.keys()
        for name, value in theirs.items():
            if name == "rewards/accuracies" and abs(theirs["rewards/margins"]) <= bound:
                continue  # whose sign is rounding where both models are the same still
            assert mine[name] == pytest.approx(value, rel=bound, abs=bound), name


@pytest.mark.parametrize("kind", OWN)
def test_a_trainer_logs_what_it_logs_without_tigon(kind, saved, tmp_path, calls):
    stock = history(trainer(kind, load(saved), tmp_path))
    assert calls == [] and stock[0]["loss"] != stock[1]["loss"]
    trained = load(saved)
    assert tigon.patch(trained).counts()["loss"] == 1
    ours = history(trainer(kind, trained, tmp_path))
    assert len(calls) >= STEPS and all(width == 64 for _, width in calls)
    within(ours, stock)


def test_unpatch_restores_the_head_of_trl(saved, tmp_path, calls):
    trained = load(saved)
    tigon.patch(trained)
    made = trainer("SFT", trained, tmp_path)
    tigon.unpatch(trained)
    ours = history(made)
    assert calls == []
    stock = history(trainer("SFT", load(saved), tmp_path))
    assert ours == stock


def test_a_trainer_that_is_there_already(saved, tmp_path, calls):
    made = trainer("DPO", load(saved), tmp_path)
    for part in (made.model, made.ref_model):
        report = tigon.patch(part, **ALONE)
        assert report.counts() == {"loss": 1} and "linear_logprob" in report.replaced[0].text
    calls.clear()  # those of the comparison
    ours = history(made)
    assert len(calls) == 2 * STEPS  # the reference's, too
    within(ours, history(trainer("DPO", load(saved), tmp_path)))


def test_autocast_goes_around_the_forward_of_trl(saved, tmp_path, calls):
    stock = history(trainer("DPO", load(saved), tmp_path, bf16=True))
    trained = load(saved)
    tigon.patch(trained, **ALONE)
    ours = history(trainer("DPO", trained, tmp_path, bf16=True))
    assert len(calls) == STEPS
    # Both round the logits, below 2 in size, to bf16, sum at most 5 of them, and round dlogits once.
    within(ours, stock, bound=5 * 2 * 2**-9)


@pytest.mark.parametrize("family, own", [("Gemma2", {}), ("Granite", {}), ("Cohere", {})])
def test_softcaps_and_scales(family, own, calls):
    """The loss, the outputs and all gradients of TRL's forward."""
    ids, labels = batch()
    everything = "log_probs", "entropy", "log_sum_sq_probs", "mean_logits", "is_top1"

    def run(patched):
        made = model(family, **own)
        if patched:
            tigon.patch(made, **ALONE, layer_norm=False)
        utils.add_fused_lm_head(made, temperature=0.7, outputs=everything)
        outputs = made(input_ids=ids, labels=labels, fused_lm_head=True)
        (outputs.loss + outputs.entropy.mean()).backward()
        gradients = {name: p.grad for name, p in made.named_parameters() if p.grad is not None}
        return {k: v for k, v in outputs.items() if v is not None} | gradients

    stock, ours = run(False), run(True)
    assert len(calls) == 1 and ours.keys() == stock.keys() and set(everything) < stock.keys()
    for name, value in stock.items():
        norm = value.float().norm().item()
        assert (ours[name].float() - value.float()).norm().item() <= BOUND * max(norm, 1), name


@pytest.mark.parametrize("frozen", [False, True], ids=["", "frozen"])
def test_a_head_that_is_cast_to_f32(frozen, calls):
    """GRPO's cast_lm_head_to_fp32: f32 hidden states and a bf16 weight, whose gradient is rounded once."""
    ids, labels = batch()

    def run(patched):
        made = model("Llama", torch.bfloat16)
        made.lm_head.weight.requires_grad_(not frozen)
        if patched:
            tigon.patch(made, **ALONE)
        utils.add_fused_lm_head(made, cast_lm_head_to_fp32=True)
        outputs = made(input_ids=ids, labels=labels, fused_lm_head=True)
        outputs.loss.backward()
        head, last = made.lm_head.weight.grad, made.model.norm.weight.grad
        return outputs.log_probs.detach(), None if frozen else head.float(), last.float()

    stock, ours = run(False), run(True)
    assert len(calls) == 1
    for mine, theirs, bound in zip(ours, stock, (BOUND, 2**-8, 2**-8)):
        assert theirs is None or (mine - theirs).norm() <= bound * theirs.norm()


def test_means_under_autocast_are_f32():
    numbers = torch.Generator().manual_seed(0)
    hidden, weight = (torch.randn(shape, generator=numbers) for shape in ((5, 32), (67, 32)))
    with torch.autocast("cpu", torch.bfloat16):
        mean = trl_head.mean_logits(hidden, weight, None, None)
    torch.testing.assert_close(mean, (hidden @ weight.T).mean(-1))


def test_another_model_of_the_process_keeps_the_head_of_trl(calls):
    ids, labels = batch()
    patched, other = model("Llama"), model("Llama")
    tigon.patch(patched)
    for each in (patched, other):
        utils.add_fused_lm_head(each)
    patched.get_output_embeddings()  # as when a model is saved: nothing is projected
    assert utils._ChunkedLogProbFunction is not STOCK
    other(input_ids=ids, labels=labels, fused_lm_head=True)
    assert calls == [] and utils._ChunkedLogProbFunction is STOCK
    patched(input_ids=ids, labels=labels, fused_lm_head=True)
    assert len(calls) == 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("rows", [0, 1, 37])
def test_project_against_f64(dtype, rows):
    numbers = torch.Generator().manual_seed(rows)
    hidden, weight, bias = (torch.randn(s, generator=numbers).to(dtype) for s in ((rows, 32), (67, 32), (67,)))
    targets = torch.randint(67, (rows,), generator=numbers)
    targets[::2] = (hidden @ weight.T + bias).argmax(-1)[::2]
    for softcap, scale, temperature in ((None, 1.0, 1.0), (None, 0.25, 0.9), (5.0, 2.0, 1.3)):
        found = trl_head.project(hidden, weight, bias, targets, temperature, 16, softcap, scale)
        x = (hidden.double() @ weight.double().T + bias.double()) * scale
        z = (x if softcap is None else softcap * torch.tanh(x / softcap)) / temperature
        logs = z.log_softmax(-1)
        each = logs.gather(-1, targets[:, None]).squeeze(-1)
        expected = each, -(logs.exp() * logs).sum(-1), (2 * logs).logsumexp(-1), z.mean(-1)
        if not rows:
            assert [got.numel() for got in found] == [0] * 5
            continue
        # A logit is rounded to the dtype and summed in f32; what follows is f32 of numbers below 64.
        largest = x.abs().max() / temperature
        e = (torch.finfo(dtype).eps / 2 + 32 * 2**-24) * largest + 64 * 2**-24
        for got, want, bound in zip(found, expected, (2 * e, 2 * e * logs.abs().max(), 4 * e, e)):
            assert (got.double() - want).abs().max() <= bound
        assert dtype != torch.float32 or torch.equal(found[4], logs.argmax(-1) == targets)


def test_a_projection_that_has_moved_is_left_with_a_sentence(monkeypatch):
    class Moved:
        @staticmethod
        def forward(ctx, hidden, weight, targets):
            pass

    class Doubled(STOCK):
        @classmethod
        def apply(cls, *args):
            first, *others = STOCK.apply(*args)
            return 2 * first, *others

    class Raising(STOCK):
        @classmethod
        def apply(cls, *args):
            raise OSError("no device")

    assert trl_head.obstacle(Raising) == "_ChunkedLogProbFunction raises OSError: no device"
    assert "takes ctx, hidden, weight, targets, must take ctx, hidden, weight, bias" in trl_head.obstacle(Moved)
    assert "computes something else" in trl_head.obstacle(Doubled)
    made = model("Llama")
    tigon.patch(made)
    utils.add_fused_lm_head(made)
    ids, labels = batch()
    monkeypatch.setattr(utils, "_ChunkedLogProbFunction", Doubled)
    trl_head._warn.cache_clear()
    with pytest.warns(UserWarning, match="TRL's head is left alone: .* computes something else"):
        left = made(input_ids=ids, labels=labels, fused_lm_head=True).loss
    monkeypatch.setattr(utils, "_ChunkedLogProbFunction", STOCK)
    torch.testing.assert_close(left, 2 * made(input_ids=ids, labels=labels, fused_lm_head=True).loss)
    monkeypatch.delattr(utils, "_ChunkedLogProbFunction")
    (entry,) = [entry for entry in tigon.patch(made).left if entry.kind == "loss"]
    assert "trl.trainer.utils has no _ChunkedLogProbFunction" in entry.text


@pytest.mark.parametrize("mark", ["ds_id", "float64", "negative"])
def test_what_tigon_does_not_take_goes_to_trl(mark, calls):
    made = model("Llama")
    tigon.patch(made)
    if mark == "ds_id":
        made.lm_head.weight.ds_id = 0  # DeepSpeed's ZeRO-3
    elif mark == "float64":
        made.double()
    else:
        made.config.logit_scale = -1.0
    utils.add_fused_lm_head(made)
    ids, labels = batch()
    assert made(input_ids=ids, labels=labels, fused_lm_head=True).loss > 0
    assert calls == []


def test_the_loss_in_the_docs():
    """Its block in docs/huggingface.md, against the logits in f64."""
    page = (Path(__file__).parents[2] / "docs" / "huggingface.md").read_text()
    (block,) = re.findall(r"```python\n(.*?)```", page.partition("## A loss that a trainer computes itself")[2], re.DOTALL)[:1]
    names = {}
    exec(block, names)
    made = model("Llama")
    ids, labels = batch()
    numbers = torch.Generator().manual_seed(2)
    mask, advantage = (labels != -100).int(), torch.tensor([0.5, -1.5])
    exact = model("Llama").double()
    logs = exact(input_ids=ids).logits[:, :-1].log_softmax(-1)
    l = logs.gather(-1, ids[:, 1:, None]).squeeze(-1)
    old = (l.detach() + torch.rand(l.shape, generator=numbers) - 0.5).float()
    loss = names["policy_loss"](made, ids, mask, old, advantage)
    loss.backward()

    ratio, a, entropy = (l - old).exp(), advantage[:, None], -(logs.exp() * logs).sum(-1)
    each = -torch.min(ratio * a, ratio.clamp(0.8, 1.2) * a) - 0.01 * entropy
    wanted = (each * mask[:, 1:]).sum() / mask[:, 1:].sum()
    wanted.backward()
    assert loss.item() == pytest.approx(wanted.item(), rel=1e-5)
    for ours, theirs in zip(made.parameters(), exact.parameters(), strict=True):
        assert (ours.grad - theirs.grad).norm() <= 1e-5 * theirs.grad.norm()
