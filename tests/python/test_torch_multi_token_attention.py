"""multi_token_attention beyond the cases of op_cases.py: the module, Liger-Kernel's names, and what other implementations get wrong."""

import pytest
import torch

from tigon.compat.liger.ops.multi_token_attention import LigerMultiTokenAttentionFunction
from tigon.compat.liger.transformers import LigerMultiTokenAttention, functional as liger
from tigon.torch import functional as T
from tigon.torch import nn
from tigon.torch.operators.multi_token_attention import plain
from tigon.torch.operators.sparsemax import _plain as sparsemax


def inputs(tokens, channels=2, out=2, taps=(3, 3), dtype=torch.float32, groups=1):
    generator = torch.Generator().manual_seed(0)
    random = lambda *shape: torch.randn(*shape, generator=generator).to(dtype)
    return random(2, channels, tokens, tokens), random(out, channels // groups, *taps), random(out)


def gradients(f, given, incoming):
    given = [t.detach().clone().requires_grad_() for t in given]
    o = f(*given)
    return o, torch.autograd.grad(o, given, incoming.to(o.dtype))


@pytest.mark.parametrize("tokens", [1, 2, 31, 200])  # Liger-Kernel has one tile of a power of two
@pytest.mark.parametrize("place", ["post", "pre"])
def test_any_length(tokens, place):
    given = inputs(tokens)[: 3 if place == "post" else 2]
    run = lambda *t: T.multi_token_attention(*t, place=place, padding=1)
    oracle = lambda *t: plain(*t, place=place, padding=1)
    o, found = gradients(run, given, torch.ones(2, 2, tokens, tokens).cumsum(-1) / tokens)
    wanted_o, wanted = gradients(oracle, [t.double() for t in given], torch.ones(2, 2, tokens, tokens).cumsum(-1) / tokens)
    torch.testing.assert_close(o.double(), wanted_o, rtol=1e-4, atol=1e-5)
    for a, b in zip(found, wanted, strict=True):
        torch.testing.assert_close(a.double(), b, rtol=1e-3, atol=1e-3)


def test_more_than_1024_tokens():
    s, weight, bias = inputs(1100, 1, 1)
    o = T.multi_token_attention(s[:1], weight, bias, padding=1)
    torch.testing.assert_close(o, plain(s[:1], weight, bias, padding=1), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_sparse_of_16_bits(dtype):
    """And masks are exact zeros in f16, in which -1e9 is -inf; softmax of the first row, of one key, is 1."""
    s, weight, bias = inputs(9, dtype=dtype)
    kernel = torch.zeros_like(weight)
    kernel[0, 0, 1, 1] = kernel[1, 1, 1, 1] = 1  # the identity
    o = T.multi_token_attention(s, kernel, sparse=True, padding=1)
    causal = torch.ones(9, 9, dtype=torch.bool).tril()
    wanted = sparsemax(s.float().masked_fill(~causal, -1e4)).to(dtype)
    torch.testing.assert_close(o, wanted)
    assert (o.masked_select(~causal) == 0).all()
    soft = T.multi_token_attention(s, kernel, padding=1)
    assert torch.equal(soft[..., 0, 0], torch.ones_like(soft[..., 0, 0])) and soft.isfinite().all()


def test_nan_reaches_the_rows_of_its_window():
    s, weight, bias = inputs(12)
    s[0, 1, 5, 2] = torch.nan
    s[1, 0, 3, 7] = torch.nan  # beyond the diagonal, where nobody reads
    o = T.multi_token_attention(s, weight, bias, padding=1)
    rows = o.isnan().any(-1)
    assert rows[0, :, 4:7].all() and not rows[0, :, :4].any() and not rows[0, :, 7:].any() and not rows[1].any()


def test_module_and_names():
    torch.manual_seed(1)
    s, weight, bias = inputs(10)
    for made in (nn.MultiTokenAttention(2, 2, 3, padding=1), LigerMultiTokenAttention(2, 2, 3, padding=1)):
        wanted = plain(s, made.weight, made.bias, padding=1)
        torch.testing.assert_close(made(s), wanted, rtol=1e-4, atol=1e-5)
        compiled = torch.compile(made, fullgraph=True, backend="aot_eager")
        torch.testing.assert_close(compiled(s), made(s))
    o = plain(s, weight, bias, padding=1)
    for f in (liger.liger_multi_token_attention, LigerMultiTokenAttentionFunction.apply):
        torch.testing.assert_close(f(s, weight, bias, 1, 1, 1, 1, False), o, rtol=1e-4, atol=1e-5)


def test_refusals():
    s, weight, bias = inputs(4)
    with pytest.raises(ValueError, match=r"padding_h is 3, must be 0 to 2 \(a window less one\)"):
        T.multi_token_attention(s, weight, padding=3)
    with pytest.raises(ValueError, match=r"bias is given, must be absent with place 1 \(PRE\)"):
        T.multi_token_attention(s, weight, bias, place="pre", padding=1)
    with pytest.raises(ValueError, match='place is "before", must be "post" or "pre"'):
        T.multi_token_attention(s, weight, place="before", padding=1)


def test_masked_scores_get_no_gradient():
    s, weight, bias = inputs(6)
    for place in ("post", "pre"):
        _, (ds, _) = gradients(lambda *t: T.multi_token_attention(*t, place=place, padding=1), (s, weight), torch.randn(2, 2, 6, 6))
        assert (ds[..., ~torch.ones(6, 6, dtype=torch.bool).tril()] == 0).all()
