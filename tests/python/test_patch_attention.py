"""tigon.patch(model, attention=True): transformers' models compute what their eager attention computes."""

import copy
import math
import warnings

import pytest
import torch
import transformers
from tiny_models import batch, model
from transformers import masking_utils as masks

import tigon
from tigon.huggingface.attention import Mask, _mask
from tigon.huggingface.attention_code import asks_for, makes_its_mask
from tigon.torch import functional as T

ALONE = dict.fromkeys(("embedding", "rms_norm", "mlp", "experts", "rope", "layer_norm", "group_norm", "loss"), False)
EAGER = {
    "Llama": {},
    "Mistral": {},
    "Gemma2": dict(attn_logit_softcapping=2.0),
    "gpt-oss": dict(output_router_logits=False),  # whose loss generate cannot make
}
LAYERS = 2


def made(family, dtype=torch.float32, **changes):
    """(the model, the model with Tigon's attention and nothing else of Tigon's)."""
    stock = model(family, dtype, **dict(attn_implementation="eager") | EAGER.get(family, {}) | changes)
    patched = copy.deepcopy(stock)
    report = tigon.patch(patched, attention=True, **ALONE)
    assert report.counts() == {"attention": 1} and not report.left and not report.unverified
    return stock, patched


@pytest.fixture(autouse=True)
def no_call_runs_as_before():
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="tigon.patch")
        yield


def step(model, **arguments):
    ids, labels = batch()
    model.zero_grad()
    outputs = model(input_ids=ids, labels=labels, use_cache=False, **arguments)
    outputs.loss.backward()
    return outputs.loss.double().item(), {name: p.grad.double() for name, p in model.named_parameters()}


def same_step(stock, patched, dtype=torch.float32, **arguments):
    """As tests/python/test_patch.py bounds a step. Eager attention rounds seven times from scores to outputs: the
    product, its scale, the cap's three, the weights, the sum."""
    in_double = copy.deepcopy(stock).double()
    in_double.set_experts_implementation("eager")
    _, exact = step(in_double, **arguments)
    wanted_loss, wanted = step(stock, **arguments)
    loss, found = step(patched, **arguments)
    n, tokens, u = 7 * LAYERS, batch()[0].numel(), torch.finfo(dtype).eps / 2
    assert abs(loss - wanted_loss) <= wanted_loss * (8 * 2**-24 + 6 * math.sqrt(n / tokens) * u)
    for name, w in wanted.items():
        own = (exact[name] - w).norm() if dtype == torch.float32 else 0  # a router's terms cancel
        bound = 6 * (math.sqrt(3 * n) * u + math.sqrt(tokens) * 2**-24) * w.norm() + 4 * own
        assert (found[name] - w).norm() <= bound + 1e-30, name


@pytest.mark.parametrize("family", EAGER)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])
def test_a_step(family, dtype):
    same_step(*made(family, dtype), dtype)


@pytest.mark.parametrize("family", EAGER)
def test_packed_sequences(family):
    stock, patched = made(family)
    lengths = [[5, 1, 18], [11, 13, 0]]
    ids = torch.stack([torch.cat([torch.arange(n) for n in row]) for row in lengths])
    same_step(stock, patched, position_ids=ids)
    whole = model_outputs(patched, None)
    assert not torch.equal(model_outputs(patched, ids), whole)


@torch.no_grad()
def model_outputs(model, position_ids):
    return model(batch()[0], position_ids=position_ids, use_cache=False).logits


@pytest.mark.parametrize("family", EAGER)
def test_evaluation_and_generate(family):
    stock, patched = (m.eval() for m in made(family))
    ids, _ = batch()
    with torch.no_grad():
        wanted, found = stock(ids).logits, patched(ids).logits
    assert (found - wanted).norm() <= 1e-5 * wanted.norm()
    settings = dict(max_new_tokens=6, do_sample=False, attention_mask=torch.ones_like(ids))
    assert torch.equal(stock.generate(ids, **settings), patched.generate(ids, **settings))


def test_sdpa_is_what_is_behind_it():
    stock, patched = made("Llama", attn_implementation="sdpa")
    assert patched.config._attn_implementation == "tigon"
    same_step(stock, patched)
    checkpointed = copy.deepcopy(patched)
    checkpointed.gradient_checkpointing_enable()
    same_step(stock, checkpointed)


AS_BEFORE = {
    "padding": ({}, lambda ids: dict(attention_mask=(ids != ids[0, 0]).long()), "its mask is a tensor"),
    "dropout": (dict(attention_dropout=0.5), lambda ids: {}, "it has dropout"),
    "a mask of one's own": ({}, lambda ids: dict(attention_mask=torch.zeros(2, 1, 24, 24)), "its mask is a tensor"),
    "f64": ({}, lambda ids: {}, "its heads are torch.float64 on cpu"),
}


@pytest.mark.parametrize("changes, arguments, reason", AS_BEFORE.values(), ids=AS_BEFORE)
def test_what_runs_as_before(changes, arguments, reason):
    for behind in ("sdpa", "eager"):
        stock, patched = made("Llama", attn_implementation=behind, **changes)
        if "float64" in reason:
            stock, patched = stock.double(), patched.double()
        ids, _ = batch()
        outputs = []
        for m in (stock, patched):
            torch.manual_seed(0)
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                outputs.append(m(ids, **arguments(ids)).logits)
        assert any(f"an attention runs by {behind}, because {reason}" in str(w.message) for w in said)
        assert torch.equal(*outputs)


def test_compiled_it_runs_as_before():
    _, patched = made("Llama")
    ids, _ = batch()
    with torch.no_grad():
        compiled = torch.compile(patched, backend="eager", fullgraph=True)(ids).logits
        assert (compiled - patched(ids).logits).norm() <= 1e-5 * compiled.norm()


def left(patched):
    report = tigon.patch(patched, attention=True, **ALONE)
    (entry,) = report.left
    assert entry.kind == "attention" and not report.counts() and "tigon" not in patched.config._attn_implementation
    return entry.text


def test_what_is_left(monkeypatch):
    assert "its sdpa leaves out softcap or sinks" in left(model("Gemma2", attn_implementation="sdpa"))
    flex = model("Llama", attn_implementation="flex_attention")
    assert left(flex) == "its attention is flex_attention, must be sdpa or eager"
    llama = model("Llama", attn_implementation="eager")
    names = transformers.models.llama.modeling_llama.LlamaAttention.forward.__globals__
    own = names["eager_attention_forward"]

    def leaning(module, query, key, value, attention_mask, **options):
        return own(module, query, key, value, attention_mask + 0.1 * torch.arange(key.shape[2]), **options)

    monkeypatch.setitem(names, "eager_attention_forward", leaning)
    assert "its eager attention is another function: it is " in left(llama)
    monkeypatch.setattr(type(llama), "_supports_attention_backend", False)
    assert left(llama) == "its class says that it takes no attention of others"
    assert not tigon.patch(torch.nn.Linear(3, 4), attention=True).counts()


def test_it_is_taken_back():
    stock, patched = made("Gemma2")
    assert patched.config._attn_implementation == "tigon_eager" and stock.config._attn_implementation == "eager"
    assert "tigon" not in patched.config.to_json_string()
    assert copy.deepcopy(patched).config._attn_implementation == "tigon_eager"
    assert tigon.unpatch(patched).config._attn_implementation == "eager"
    tigon.patch(patched, **ALONE)
    assert patched.config._attn_implementation == "eager"
    assert tigon.patch(patched).counts().keys() >= {"rms_norm", "mlp", "loss"}


PACKED = torch.tensor([[0, 0, 0, 1, 1, 2, 2, 2, 2], [0, 1, 1, 1, 1, 1, 1, 1, 2]])
CAUSAL, ALL = masks.causal_mask_function, masks.bidirectional_mask_function
SEEN = {
    "causal": (CAUSAL, 9, 9, 0),
    "a cache": (CAUSAL, 3, 9, 0),
    "all": (ALL, 4, 9, 0),
    "window": (masks.sliding_window_causal_mask_function(3), 9, 9, 0),
    "window in a cache that slides": (masks.sliding_window_causal_mask_function(3), 2, 6, 3),
    "window to both sides": (masks.sliding_window_bidirectional_mask_function(2), 9, 9, 0),
    "packed": (masks.and_masks(CAUSAL, masks.packed_sequence_mask_function(PACKED)), 9, 9, 0),
    "packed in windows": (
        masks.and_masks(masks.sliding_window_causal_mask_function(2), masks.packed_sequence_mask_function(PACKED)),
        9,
        9,
        0,
    ),
    "packed to both sides": (masks.and_masks(ALL, masks.packed_sequence_mask_function(PACKED)), 9, 9, 0),
}


def asked(function, queries, keys, first_key, **changes):
    return _mask(
        "eager",
        **dict(batch_size=2, q_length=queries, kv_length=keys, q_offset=first_key + keys - queries, dtype=torch.float32)
        | dict(kv_offset=first_key, mask_function=function, attention_mask=None, config=None, use_vmap=False)
        | dict(allow_is_causal_skip=False, device=torch.device("cpu"))
        | changes,
    )


@pytest.mark.parametrize("function, queries, keys, first_key", SEEN.values(), ids=SEEN)
def test_masks(function, queries, keys, first_key):
    mask = asked(function, queries, keys, first_key)
    assert isinstance(mask, Mask)
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 2, n, 8) for n in (queries, keys, keys))
    wanted = torch.softmax(q @ k.mT / 8**0.5 + mask.whole, -1) @ v
    if mask.starts is not None:
        q, k, v = (t.transpose(1, 2).reshape(1, -1, 2, 8).transpose(1, 2) for t in (q, k, v))
    o = T.attention(q, k, v, causal=mask.causal, window=mask.window, cu_seqlens_q=mask.starts)
    assert (o.transpose(1, 2).reshape(2, queries, 2, 8).transpose(1, 2) - wanted).abs().max() <= 1e-5


def test_other_masks_are_tensors():
    chunks = masks.chunked_causal_mask_function(4, torch.zeros(2, dtype=int))
    window, bothways = masks.sliding_window_overlay(3), masks.sliding_window_bidirectional_overlay(2)
    others = [chunks, masks.or_masks(CAUSAL, ALL), masks.and_masks(ALL, window), lambda *at: CAUSAL(*at)]
    others += [masks.and_masks(CAUSAL, window, window), masks.and_masks(CAUSAL, window, bothways)]
    for function in others:
        assert isinstance(asked(function, 9, 9, 0), torch.Tensor)
    assert isinstance(asked(CAUSAL, 3, 9, 0, q_offset=2), torch.Tensor)
    assert isinstance(asked(CAUSAL, 3, 9, 0, q_offset=torch.tensor(6)), torch.Tensor)


def test_a_layer_that_is_not_causal():
    """PaliGemma's: without a mask sdpa goes by is_causal."""
    stock, patched = made("Llama", attn_implementation="sdpa")
    for m in (stock, patched):
        for layer in m.model.layers:
            layer.self_attn.is_causal = False
    ids, _ = batch()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        found = patched(ids, use_cache=False).logits
    assert any("it is not causal, and its mask is so" in str(w.message) for w in said)
    assert torch.equal(found, stock(ids, use_cache=False).logits)


class TestMaskAsATensor:
    """What code between the mask of a forward and its layers may do with it."""

    def mask(self, behind):
        found = _mask(
            behind,
            **dict(batch_size=2, q_length=4, kv_length=4, q_offset=0, kv_offset=0, mask_function=CAUSAL),
            **dict(attention_mask=None, dtype=torch.float32, device=torch.device("cpu"), allow_is_causal_skip=True),
        )
        return found, found.whole.clone()

    @pytest.mark.parametrize("behind", ["sdpa", "eager"])
    def test_is_read(self, behind):
        mask, tensor = self.mask(behind)
        assert (mask.shape, mask.dtype, mask.ndim, len(mask)) == (tensor.shape, tensor.dtype, 4, 2)
        for read in (lambda m: torch.cat([m, m], -1), lambda m: m[:, 0].sum(), lambda m: m.masked_fill(m == 0, 1)):
            got = read(mask)
            assert type(got) is torch.Tensor and torch.equal(got, read(tensor))
        assert repr(mask).startswith("Mask([[[[")

    @pytest.mark.parametrize("behind", ["sdpa", "eager"])
    def test_is_handed_on(self, behind):
        mask, _ = self.mask(behind)
        for handed_on in (mask.to("cpu"), mask.to("meta"), mask.detach(), mask.contiguous(), mask.read()):
            assert handed_on is mask
        assert type(mask.to(torch.bfloat16)) is torch.Tensor

    def test_is_written_to(self):
        for write in (lambda m: m[:, :, 3].fill_(False), lambda m: m.logical_not_()):
            mask, tensor = self.mask("sdpa")
            write(mask), write(tensor)
            assert type(mask.read()) is torch.Tensor and torch.equal(mask.read(), tensor)


@pytest.mark.parametrize("behind", ["sdpa", "eager"])
def test_a_layer_that_makes_its_own_mask(behind, monkeypatch):
    stock, patched = made("Llama", attn_implementation=behind)
    layer_class = type(stock.model.layers[0])
    own = layer_class.forward

    def forward(self, hidden_states, attention_mask=None, **options):
        if attention_mask is not None:  # None: causal by sdpa
            hidden = torch.arange(24) % 5 == 3
            banned = False if attention_mask.dtype == torch.bool else torch.finfo(attention_mask.dtype).min
            attention_mask = attention_mask.masked_fill(hidden, banned)
        return own(self, hidden_states, attention_mask=attention_mask, **options)

    ids, _ = batch()
    causal = stock(ids, use_cache=False).logits
    monkeypatch.setattr(layer_class, "forward", forward)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        found = patched(ids, use_cache=False).logits
    assert any("its mask is a tensor" in str(w.message) for w in said)
    stock.config._attn_implementation = "eager"
    assert (found - stock(ids, use_cache=False).logits).norm() <= 1e-5 * found.norm()
    assert (found - causal).norm() > 1e-2 * found.norm()


class TestCodeOfALayer:
    def test_of_transformers(self):
        """Doge makes its mask of the values, DeepSeek-V3.2 of an index, and asks for a name; GPT-2 asks for eager."""
        from transformers.models import deepseek_v32, doge, glm5_next, gpt2, llama, zaya

        known = {
            llama.modeling_llama.LlamaAttention: (False, False, False),
            zaya.modeling_zaya.ZayaAttention: (False, False, False),
            gpt2.modeling_gpt2.GPT2Attention: (False, True, False),
            doge.modeling_doge.DogeAttention: (True, False, False),
            deepseek_v32.modeling_deepseek_v32.DeepseekV32Attention: (True, True, True),
            glm5_next.modeling_glm5_next.Glm5NextTextAttention: (True, False, True),
        }
        for layer, wanted in known.items():
            assert (makes_its_mask(layer), asks_for(layer, "eager"), asks_for(layer, "sdpa")) == wanted, layer

    def test_it_is_left(self):
        small = dict(vocab_size=131, hidden_size=64, intermediate_size=96, num_hidden_layers=1, num_attention_heads=4)
        doge = transformers.DogeForCausalLM(transformers.DogeConfig(**small))
        assert left(doge) == "its DogeAttention makes a mask of its own"
        gpt2 = transformers.GPT2LMHeadModel(transformers.GPT2Config(n_embd=64, n_layer=1, n_head=4, vocab_size=131))
        assert tigon.patch(gpt2, attention=True, **ALONE).counts() == {"attention": 1}
        gpt2 = transformers.GPT2LMHeadModel._from_config(gpt2.config, attn_implementation="eager")
        assert left(gpt2) == "its GPT2Attention asks whether its attention is eager"

    def test_without_its_source(self):
        space = {}
        exec("class Layer:\n    def forward(self, x): pass", space)
        assert makes_its_mask(space["Layer"])
