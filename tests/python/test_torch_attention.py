"""attention's options beyond the cases of op_cases.py, and Liger-Kernel's names of neighbourhood attention."""

import pytest
import torch
from attention_formulas import attention as plain

import tigon.torch.functional as T
from tigon.compat.liger.ops.fused_neighborhood_attention import LigerFusedNeighborhoodAttentionFunction
from tigon.compat.liger.transformers.functional import liger_fused_neighborhood_attention
from tigon.compat.liger.transformers import fused_neighborhood_attention as neighbourhoods
from tigon.compat.liger.transformers.fused_neighborhood_attention import LigerFusedNeighborhoodAttention


def heads(tokens, count, dim=16, batch=1, seed=0, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(batch, tokens, count, dim, generator=generator).to(dtype).transpose(1, 2)


def gradients(f, do, *tensors):
    """The output, and the gradient of each tensor."""
    leaves = [t.detach().requires_grad_() for t in tensors]
    o = f(*leaves)
    return [o.detach(), *torch.autograd.grad(o, leaves, do)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("index", [torch.int32, torch.int64])
def test_packed_sequences_are_calls_of_their_own(dtype, index):
    lengths = [3, 0, 70, 1, 129]
    q, k, v, do = (heads(210, n, seed=n + i, dtype=dtype) for i, n in enumerate((4, 2, 2, 4)))
    ends = torch.tensor(lengths).cumsum(0).tolist()  # the last 7 rows are in none
    cu = torch.tensor([0, *ends], dtype=index)
    found = gradients(lambda *qkv: T.attention(*qkv, window=40, cu_seqlens_q=cu), do, q, k, v)
    for end, length in zip(ends, lengths):
        rows = slice(end - length, end)
        alone = gradients(lambda *qkv: T.attention(*qkv, window=40), *(t[:, :, rows] for t in (do, q, k, v)))
        assert all(torch.equal(f[:, :, rows], a) for f, a in zip(found, alone))
    assert not any(f[:, :, ends[-1] :].any() for f in found)


def test_packed_sequences_are_refused():
    q = heads(5, 2)
    cu = torch.tensor([0, 4, 3])
    with pytest.raises(ValueError, match=r"cu_seqlens_q\[2\] is 3, must be 4 to 5 \(q.shape\[1\]\)"):
        T.attention(q, q, q, cu_seqlens_q=cu)
    with pytest.raises(ValueError, match=r"q.shape\[0\] is 2, must be 1 with cu_seqlens_q"):
        T.attention(*[heads(5, 2, batch=2)] * 3, cu_seqlens_q=cu)
    with pytest.raises(ValueError, match="dilation is 0"):
        T.attention(q, q, q, dilation=0)


@pytest.mark.parametrize("dtype, of_sinks", [(torch.float32, torch.bfloat16), (torch.bfloat16, torch.float32)])
def test_sinks_of_another_dtype(dtype, of_sinks):
    q, k, v, do = (heads(9, n, batch=2, seed=n, dtype=dtype) for n in (4, 2, 2, 4))
    sinks = torch.tensor([0.5, -1.0, 3.0, 0.0], dtype=of_sinks)
    found = gradients(lambda *all: T.attention(*all[:3], sinks=all[3]), do, q, k, v, sinks)
    wanted = gradients(plain, *(t.double() for t in (do, q, k, v, sinks)))
    eps = max(torch.finfo(kind).eps for kind in (dtype, of_sinks))  # dsinks has the roundings of o
    for f, w, t in zip(found, wanted, (q, q, k, v, sinks)):
        assert f.dtype == t.dtype
        assert (f - w).abs().max() <= 3 * eps * w.abs().max() + 2e-6


def test_frozen_sinks():
    q = heads(9, 4)
    sinks = torch.randn(4)
    leaf = q.detach().requires_grad_()
    T.attention(leaf, leaf, leaf, sinks=sinks).sum().backward()
    learnt = gradients(lambda q, s: T.attention(q, q, q, sinks=s), torch.ones_like(q), q, sinks)
    assert torch.equal(leaf.grad, learnt[1])


def test_under_autocast():
    q, sinks = heads(9, 4), torch.randn(4)
    with torch.autocast("cpu", torch.bfloat16):
        o = T.attention(q, q, q, sinks=sinks, softcap=5.0)
    assert o.dtype == torch.bfloat16 and torch.equal(o, T.attention(*[q.bfloat16()] * 3, sinks=sinks, softcap=5.0))


@pytest.mark.parametrize("kernel_size, dilation", [(7, 1), (3, 4), (1, 2), (99, 1), (5, 50)])
def test_neighbourhoods(kernel_size, dilation):
    q, k, v, do = (heads(40, 2, batch=2, seed=i) for i in range(4))
    found = gradients(lambda *qkv: liger_fused_neighborhood_attention(*qkv, kernel_size, dilation), do, q, k, v)
    window = kernel_size // 2 + 1
    wanted = gradients(
        lambda *qkv: plain(*qkv, causal=False, window=window, dilation=dilation), *(t.double() for t in (do, q, k, v))
    )
    for f, w in zip(found, wanted):
        assert (f - w).abs().max() <= 1e-5
    assert torch.equal(found[0], LigerFusedNeighborhoodAttentionFunction.apply(q, k, v, kernel_size, dilation))


def test_neighbourhoods_of_hidden_states():
    module = LigerFusedNeighborhoodAttention(32, 4, kernel_size=5, dilation=2)
    x = torch.randn(2, 11, 32, requires_grad=True)
    q, k, v = (p(x).unflatten(-1, (4, 8)).transpose(1, 2) for p in (module.q_proj, module.k_proj, module.v_proj))
    wanted = module.out_proj(plain(q, k, v, causal=False, window=3, dilation=2).transpose(1, 2).flatten(-2))
    assert (module(x) - wanted).abs().max() <= 1e-6
    module(x).sum().backward()
    assert all(p.grad is not None for p in module.parameters())
    with pytest.raises(ValueError, match="kernel_size is 4, must be odd and >= 1"):
        LigerFusedNeighborhoodAttention(32, 4, kernel_size=4)
    with pytest.raises(NotImplementedError):
        module(x, torch.ones(2, 11))


def test_neighbourhoods_at_the_ends():
    """As Liger-Kernel clips them: a query at an end has fewer keys, where NATTEN would give it others."""
    v = torch.eye(7).expand(1, 1, 7, 7).contiguous()
    o = liger_fused_neighborhood_attention(torch.zeros_like(v), torch.zeros_like(v), v, kernel_size=5, dilation=1)
    assert [int((row > 0).sum()) for row in o[0, 0]] == [3, 4, 5, 5, 5, 4, 3]
    apart = liger_fused_neighborhood_attention(torch.zeros_like(v), torch.zeros_like(v), v, kernel_size=3, dilation=3)
    assert [row.nonzero().flatten().tolist() for row in apart[0, 0]][:4] == [[0, 3], [1, 4], [2, 5], [0, 3, 6]]
    even = liger_fused_neighborhood_attention(torch.zeros_like(v), torch.zeros_like(v), v, kernel_size=4)
    assert torch.equal(even, o)  # its half is rounded down, and the query's own key comes besides


def test_a_layer_of_neighbourhoods():
    options = dict(hidden_size=32, num_heads=4, kernel_size=5, dilation=2)
    config = neighbourhoods.LigerFusedNeighborhoodAttentionConfig(**options)
    defaults = dict(bias=True, dropout=0.0, layer_norm_eps=1e-5, scale=None)
    assert config.to_dict() == options | defaults and config.kernel_size == 5
    layer = neighbourhoods.LigerFusedNeighborhoodAttentionLayer(**config.to_dict())
    names = [f"attention.{p}_proj.{kind}" for p in ("q", "k", "v", "out") for kind in ("weight", "bias")]
    assert sorted(layer.state_dict()) == sorted([*names, "layer_norm.bias", "layer_norm.weight"])
    torch.nn.init.normal_(layer.layer_norm.weight)
    x = torch.randn(2, 11, 32, requires_grad=True)
    norm = torch.nn.functional.layer_norm(x, (32,), layer.layer_norm.weight, layer.layer_norm.bias, 1e-5)
    assert (layer(x) - x - layer.attention(norm)).abs().max() <= 1e-5
    layer(x).sum().backward()
    assert x.grad is not None and all(p.grad is not None for p in layer.parameters())
    with pytest.raises(NotImplementedError):
        layer(x, torch.ones(2, 11))
    dropped = neighbourhoods.LigerFusedNeighborhoodAttentionLayer(32, 4, dropout=0.5)
    assert not torch.equal(dropped(x), dropped(x)) and torch.equal(dropped.eval()(x), dropped(x))
