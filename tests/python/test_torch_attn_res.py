"""attn_res beyond the case of op_cases.py: lists of blocks, many blocks, and what other implementations get wrong."""

import pytest
import torch

from tigon.torch import functional as T
from tigon.torch import nn
from tigon.torch.operators.attn_res import _plain, liger_attn_res

SHAPE = (2, 3, 33)


def inputs(count, dtype=torch.float32, shape=SHAPE, seed=0):
    generator = torch.Generator().manual_seed(seed)
    blocks = [torch.randn(shape, generator=generator).to(dtype) for _ in range(count)]
    vectors = [torch.randn(shape[-1], generator=generator).div(3).to(dtype) for _ in range(2)]
    return blocks, *vectors, torch.randn(shape, generator=generator).to(dtype)


def listed(f, blocks, q, wn, dh):
    """h and the gradients of each block and vector, of a function of a list."""
    leaves = [t.detach().requires_grad_() for t in (*blocks, q, wn)]
    h = f(leaves[:-2], *leaves[-2:])
    return [h.detach(), *torch.autograd.grad(h, leaves, dh)]


def wanted(blocks, q, wn, dh):
    doubles = [t.double() for t in blocks], q.double(), wn.double(), dh.double()
    return listed(lambda v, q, wn: _plain(torch.stack(v), q, wn), *doubles)


def close(found, must, units=64):
    for t, want in zip(found, must, strict=True):
        bound = (torch.finfo(t.dtype).eps + units * 2**-24) * want.abs().max()
        assert t.shape == want.shape and (t.double() - want).abs().max() <= bound


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("count", [1, 2, 8, 33, 70])
def test_a_list_of_blocks(count, dtype):
    """Liger-Kernel neither reads the blocks from the 33rd on nor gives them a gradient."""
    given = inputs(count, dtype)
    close(listed(T.attn_res, *given), wanted(*given))


@pytest.mark.parametrize("count", [1, 40])
def test_a_list_has_the_bits_of_one_tensor(count):
    given = inputs(count)
    found = listed(T.attn_res, *given)
    stacked = listed(lambda v, q, wn: T.attn_res(torch.stack(v), q, wn), *given)
    assert all(torch.equal(t, must) for t, must in zip(found, stacked, strict=True))


def test_nothing_is_stacked(monkeypatch):
    """Blocks are read and gradients written where they are."""
    blocks, q, wn, dh = inputs(4)
    read, run = [], T.attn_res.__globals__["_call"]

    def call(entry, lists, tensors, **numbers):
        read.append({t.data_ptr() for t in lists["v"]})
        return run(entry, lists, tensors, **numbers)

    monkeypatch.setitem(T.attn_res.__globals__, "_call", call)
    leaves = [t.requires_grad_() for t in blocks]
    T.attn_res(leaves, q, wn).backward(dh)
    assert read == [{t.data_ptr() for t in blocks}] * 2


def test_layouts():
    """Blocks of one pitch are read as they are, others are copied; the first dimensions may be turned."""
    blocks, q, wn, dh = inputs(3)
    wide = torch.zeros(3, 2, 3, 40)
    pitched = [wide[i, ..., :33].copy_(t) for i, t in enumerate(blocks)]
    mixed = [pitched[0], blocks[1], blocks[2].transpose(0, 1).contiguous().transpose(0, 1)]
    side_by_side = torch.stack(blocks, 2).unbind(2)
    must = listed(T.attn_res, blocks, q, wn, dh)
    for given in (pitched, mixed, side_by_side):
        found = T.attn_res(given, q, wn)
        assert torch.equal(found, must[0])
        leaves = [t.detach().requires_grad_() for t in given]
        gradients = torch.autograd.grad(T.attn_res(leaves, q, wn), leaves, dh)
        assert all(torch.equal(t, want) for t, want in zip(gradients, must[1:]))


def test_one_block_twice():
    """Both places' gradients are summed."""
    blocks, q, wn, dh = inputs(2)
    x, y = (t.double().requires_grad_() for t in blocks)
    must = torch.autograd.grad(_plain(torch.stack([x, y, x]), q.double(), wn.double()), (x, y), dh.double())
    x, y = (t.requires_grad_() for t in blocks)
    close(torch.autograd.grad(T.attn_res([x, y, x], q, wn), (x, y), dh), must)


def test_what_needs_no_gradient():
    blocks, q, wn, dh = inputs(3)
    blocks[1].requires_grad_()
    wn.requires_grad_()
    T.attn_res(blocks, q, wn).backward(dh)
    assert blocks[1].grad is not None and wn.grad is not None and blocks[0].grad is None and q.grad is None


@pytest.mark.parametrize("stacked", [False, True])
def test_module_and_compile(stacked):
    blocks, _, _, dh = inputs(5)
    module = nn.AttnRes(33)
    assert torch.allclose(module(blocks), torch.stack(blocks).mean(0), atol=1e-6)
    with torch.no_grad():
        module.query.normal_()
    given = torch.stack(blocks).requires_grad_() if stacked else [t.requires_grad_() for t in blocks]
    leaves = [given] if stacked else given
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    for leaf in leaves:
        leaf.grad = None
    must = torch.autograd.grad(module(given), [*leaves, module.query], dh)
    found = torch.autograd.grad(compiled(given), [*leaves, module.query], dh)
    assert all(torch.equal(t, want) for t, want in zip(found, must))


def test_opcheck():
    blocks, q, wn, dh = inputs(3)
    torch.library.opcheck(torch.ops.tigon.attn_res_blocks_fwd.default, (blocks, q, wn, 1e-6))
    _, a, rstd = torch.ops.tigon.attn_res_blocks_fwd(blocks, q, wn, 1e-6)
    for needed in (True, False):
        arguments = (dh, blocks, q, wn, a, rstd, needed, True)
        torch.library.opcheck(torch.ops.tigon.attn_res_blocks_bwd.default, arguments)


def test_refusals():
    blocks, q, wn, _ = inputs(3)
    with pytest.raises(ValueError, match=r"attn_res: v\[1\].shape is \(2, 33\), must be \(2, 3, 33\) \(v\[0\].shape\)"):
        T.attn_res([blocks[0], blocks[1][:, 0]], q, wn)
    with pytest.raises(TypeError, match=r"attn_res: v\[2\].dtype is torch.float64, must be torch.float32"):
        T.attn_res([*blocks[:2], blocks[2].double()], q, wn)
    with pytest.raises(ValueError, match=r"attn_res_fwd: q.shape\[0\] is 32, must be 33"):
        T.attn_res(blocks, q[:32], wn)


def test_liger():
    """bf16 blocks with f32 vectors, and a list."""
    blocks, q, wn, _ = inputs(4, torch.bfloat16)
    must = T.attn_res(torch.stack(blocks), q.float(), wn.float())
    assert torch.equal(liger_attn_res(blocks, q.float(), wn.float()), must)
    assert torch.equal(liger_attn_res(torch.stack(blocks), q.double(), wn.double()), must)


def test_a_nan_stays_in_its_token():
    blocks, q, wn, dh = inputs(3)
    blocks[1][1, 2, 4] = torch.nan
    h, *gradients = listed(T.attn_res, blocks, q, wn, dh)
    for t in (h, *gradients[:3]):
        assert t[1, 2].isnan().all() and t.isnan().sum() == 33
