"""fused_moe: what the cases of op_cases.py do not show."""

import pytest
import torch
from op_cases import EXPERTS, GPT_OSS, experts

import tigon.torch.nn as tnn
from tigon.torch import functional as T


def numbers(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def mixture(tokens=40, hidden=12, inner=7, count=6, choices=3):
    """(x, idx, w, gate_up, down), each expert's first choice among them."""
    idx = torch.arange(tokens * choices).view(tokens, choices) * 7 % count
    weights = numbers(count, 2 * inner, hidden, seed=2), numbers(count, hidden, inner, seed=3)
    return numbers(tokens, hidden), idx, numbers(tokens, choices, seed=1), *weights


def gradients(y, *leaves):
    return torch.autograd.grad(y, leaves, numbers(*y.shape, seed=9))


def test_recompute_changes_no_bit():
    x, idx, *leaves = (t.requires_grad_() if t.is_floating_point() else t for t in mixture())
    kept, again = (T.fused_moe(x, idx, *leaves, recompute=recompute) for recompute in (False, True))
    assert torch.equal(kept, again)
    for a, b in zip(gradients(kept, x, *leaves), gradients(again, x, *leaves)):
        assert torch.equal(a, b)


def test_recompute_keeps_nothing():
    def held(**options):
        sizes = []
        with torch.autograd.graph.saved_tensors_hooks(lambda t: sizes.append(t.numel()) or t, lambda t: t):
            x, idx, *leaves = (t.requires_grad_() if t.is_floating_point() else t for t in mixture())
            y = T.fused_moe(x, idx, *leaves, **options)
        return sizes, y

    inputs = {t.numel() for t in mixture()}
    assert {*held(recompute=True)[0]} <= inputs


def test_an_expert_that_nobody_chose_has_gradients_of_zero():
    x, idx, w, gate_up, down = mixture()
    gate_up, down = gate_up.requires_grad_(), down.requires_grad_()
    found = gradients(T.fused_moe(x, idx.where(idx != 2, 3), w, gate_up, down), gate_up, down)
    for gradient in found:
        assert not gradient[2].any() and all(gradient[e].any() for e in range(6) if e != 2)


def test_an_expert_elsewhere_adds_nothing():
    """As on a rank that has some of the experts: the sum over ranks is the whole."""
    x, idx, w, gate_up, down = mixture()
    w = w.requires_grad_()
    whole = T.fused_moe(x, idx, w, gate_up, down)
    parts = [T.fused_moe(x, idx - first, w, gate_up[first : first + 3], down[first : first + 3]) for first in (0, 3)]
    torch.testing.assert_close(sum(parts), whole)
    (dw,) = gradients(parts[0], w)
    assert not dw[idx >= 3].any()


def test_one_expert_is_a_gated_mlp():
    x, _, _, gate_up, down = mixture(count=1)
    found = T.fused_moe(x, torch.zeros(40, 1, dtype=torch.int32), torch.ones(40, 1), gate_up, down)
    gate, up = (x @ gate_up[0].T).chunk(2, -1)
    torch.testing.assert_close(found, T.swiglu(gate, up) @ down[0].T)


def test_more_rows_than_a_panel_and_a_token_that_chooses_twice():
    """An expert with thousands of rows has the gradients of all of them."""
    x, idx, w, gate_up, down = mixture(tokens=3000, choices=2)
    idx = torch.zeros_like(idx)  # expert 0, twice
    gate_up = gate_up.requires_grad_()
    found = gradients(T.fused_moe(x, idx, w, gate_up, down), gate_up)[0]
    gate, up = (x @ gate_up[0].T).chunk(2, -1)
    y = w.sum(1, keepdim=True) * (torch.nn.functional.silu(gate) * up @ down[0].T)
    torch.testing.assert_close(found[0], gradients(y, gate_up)[0][0], rtol=1e-3, atol=1e-3 * found.abs().max().item())


def test_no_tokens():
    x, idx, w, gate_up, down = mixture(tokens=0)
    gate_up = gate_up.requires_grad_()
    y = T.fused_moe(x, idx, w, gate_up, down)
    assert y.shape == (0, 12) and not torch.autograd.grad(y.sum(), gate_up)[0].any()


@pytest.mark.parametrize("autocast", [torch.bfloat16, torch.float16])
def test_autocast(autocast):
    x, idx, w, gate_up, down = mixture()
    with torch.autocast("cpu", dtype=autocast):
        y = T.fused_moe(x, idx, w, gate_up, down)
    assert y.dtype == autocast
    stock = T.fused_moe(x.to(autocast), idx, w, gate_up.to(autocast), down.to(autocast))
    assert torch.equal(y, stock)


def test_turned_weights_are_not_copied():
    """The gradient of the view has its strides, and so that of the weight is contiguous."""
    x, idx, w, gate_up, down = mixture()
    stored = gate_up.transpose(1, 2).contiguous().requires_grad_()
    turned = gradients(T.fused_moe(x, idx, w, stored.transpose(1, 2), down), stored)[0]
    straight = gradients(T.fused_moe(x, idx, w, gate_up.requires_grad_(), down), gate_up)[0]
    assert turned.is_contiguous() and torch.allclose(turned, straight.transpose(1, 2), rtol=1e-5, atol=1e-5)


def test_module():
    module = tnn.FusedMoE(4, 7, 6, bias=True, **GPT_OSS)
    x, w = numbers(2, 5, 7), numbers(2, 5, 2, seed=1)
    parameters = module.gate_up, module.down, module.gate_up_bias, module.down_bias
    found, wanted = module(x, EXPERTS, w), experts(x, w, *parameters, gpt_oss=True)
    torch.testing.assert_close(found, wanted)
    assert repr(module).startswith("FusedMoE(4, 7, 6, bias=True, interleaved=True, gate_multiplier=1.702")
    assert [*module.state_dict()] == ["gate_up", "down", "gate_up_bias", "down_bias"]


@pytest.mark.parametrize(
    "option, sentence",
    [
        (dict(activation="relu"), "tigon: activation is 'relu', must be 'silu' or 'gelu_tanh'"),
        (dict(limit=0.0), "fused_moe: limit is 0, must be another number"),
        (dict(gate_multiplier=0), "fused_moe: gate_multiplier is 0, must be another number"),
    ],
)
def test_refusals(option, sentence):
    with pytest.raises(ValueError) as refusal:
        T.fused_moe(*mixture(), **option)
    assert str(refusal.value) == sentence


def test_wrong_width():
    x, idx, w, gate_up, down = mixture()
    with pytest.raises(ValueError, match=r"gate_up.shape\[1\] is 14, must be 2 \* 6 \(down.shape\[2\]\)"):
        T.fused_moe(x, idx, w, gate_up, down[:, :, :6])


def test_liger():
    from types import SimpleNamespace

    from tigon.compat.liger.ops import LigerFusedMoEFunction
    from tigon.compat.liger.transformers.swiglu import LigerExperts

    x, idx, w, gate_up, down = mixture()
    config = SimpleNamespace(num_local_experts=6, intermediate_size=7, hidden_size=12, hidden_act="silu")
    module = LigerExperts(config)
    module.load_state_dict({"gate_up_proj": gate_up, "down_proj": down})
    wanted = T.fused_moe(x, idx, w, gate_up, down)
    assert torch.equal(module(x, idx, w), wanted)
    assert torch.equal(module(x.view(2, 20, 12), idx.view(2, 20, 3), w.view(2, 20, 3)), wanted.view(2, 20, 12))
    assert torch.equal(LigerFusedMoEFunction.apply(x, gate_up, down, idx, w), wanted)
