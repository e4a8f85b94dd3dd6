"""attn_res, attention residuals over the outputs of blocks, and Liger-Kernel's names of it."""

import ctypes

import torch

from tigon import _abi
from tigon._library import ENTRIES
from tigon.torch._arguments import strided
from tigon.torch._autograd import autograd_function, fitting
from tigon.torch._derived import derived
from tigon.torch._op import _fragment, context, write_layout
from tigon.torch.operators import Parameter, Reference

FUNCTIONS = ["attn_res"]
MODULES = ["AttnRes"]


def _ways(*args):
    """A rank has whole tokens: dimension i of v is dimension i - 1 of what has no blocks."""
    from torch.distributed.tensor import Partial, Replicate, Shard

    v = max(args[:2], key=lambda t: t.ndim)  # backward has dh before it
    vectors = {"q": Replicate(), "wn": Replicate(), "dq": Partial(), "dwn": Partial()}
    tokens = lambda dim: dict.fromkeys(("h", "dh", "a", "rstd"), Shard(dim - 1))
    return [(dim, vectors | tokens(dim)) for dim in range(1, v.ndim - 1)]


SHARDING = {"attn_res": _ways}


def _plain(v, q, wn):
    rstd = torch.rsqrt(v.square().mean(-1) + 1e-6)
    a = torch.softmax((q * wn * v).sum(-1) * rstd, 0)
    return (a.unsqueeze(-1) * v).sum(0)


# With 33 columns the weights are so far apart that PyTorch's own f32 differs from f64 by 150 units of the largest gradient.
REFERENCE = Reference(_plain, [(4, 2, 5, 17), Parameter((17,)), Parameter((17,))])

_AttnRes = derived("attn_res", parameters=2)

# ---- a list of blocks: the same entries, with an address a block ----

_fragment.define("attn_res_blocks_fwd(Tensor[] v, Tensor q, Tensor wn, float eps) -> (Tensor h, Tensor a, Tensor rstd)")
_fragment.define(
    "attn_res_blocks_bwd(Tensor dh, Tensor[] v, Tensor q, Tensor wn, Tensor a, Tensor rstd, bool need_dq,"
    " bool need_dwn) -> (Tensor[] dv, Tensor dq, Tensor dwn)"
)
_fwd, _bwd = (getattr(torch.ops.tigon, f"attn_res_blocks_{way}").default for way in ("fwd", "bwd"))


def _check_alike(blocks):
    first = blocks[0]
    for i, t in enumerate(blocks):
        for name, must in (("shape", first.shape), ("dtype", first.dtype), ("device", first.device)):
            found = getattr(t, name)
            if found != must:
                shown = [tuple(x) if name == "shape" else x for x in (found, must)]
                kind = TypeError if name == "dtype" else ValueError
                raise kind(f"attn_res: v[{i}].{name} is {shown[0]}, must be {shown[1]} (v[0].{name})")


def _one_layout(blocks):
    """Blocks whose strides are the first one's, copies where they are not."""
    made = [strided(t.resolve_neg()) for t in blocks]
    same = all(t.stride() == made[0].stride() for t in made)
    return made if same else [t.contiguous() for t in made]


def _call(entry, blocks, tensors, **numbers):
    """Calls the entry. A tensor is absent where it is None, `blocks` and `tensors` are by the names of its fields."""
    made = ENTRIES[entry]
    struct, device = made.struct(**numbers), tensors["q"].device
    lists = []
    for name, given in blocks.items():
        into = _abi.Tensor.from_buffer(struct, made.places[name][0])
        shape, strides = (len(given), *given[0].shape), (0, *given[0].stride())
        write_layout(entry, name, into, given[0].dtype, shape, strides)
        lists.append((ctypes.c_void_p * len(given))(*(t.data_ptr() for t in given)))
        setattr(struct, f"{name}_blocks", ctypes.addressof(lists[-1]))
    for name, t in tensors.items():
        if t is not None:
            into = _abi.Tensor.from_buffer(struct, made.places[name][0])
            write_layout(entry, name, into, t.dtype, t.shape, t.stride())
            into.data = t.data_ptr()
    needed = ctypes.c_size_t()
    context(device).run(f"{entry}_workspace", struct, needed)
    workspace = torch.empty(needed.value, dtype=torch.uint8, device=device)
    struct.workspace, struct.workspace_bytes = workspace.data_ptr(), needed.value
    context(device).run(entry, struct)


def _fwd_outputs(v, q, wn, eps):
    stats = (*v[0].shape[:-1], len(v))
    return v[0].new_empty(v[0].shape), *(v[0].new_empty(stats, dtype=torch.float32) for _ in range(2))


def _run_fwd(v, q, wn, eps):
    _check_alike(v)
    h, a, rstd = _fwd_outputs(v, q, wn, eps)
    tensors = {"q": q.contiguous(), "wn": wn.contiguous(), "h": h, "a": a, "rstd": rstd}
    _call("attn_res_fwd", {"v": _one_layout(v)}, tensors, eps=eps)
    return h, a, rstd


def _bwd_outputs(dh, v, q, wn, a, rstd, need_dq, need_dwn):
    sums = [torch.empty_like(t) if needed else t.new_empty(0) for t, needed in ((q, need_dq), (wn, need_dwn))]
    return [t.new_empty(t.shape) for t in v], *sums


def _run_bwd(dh, v, q, wn, a, rstd, need_dq, need_dwn):
    dv, dq, dwn = _bwd_outputs(dh, v, q, wn, a, rstd, need_dq, need_dwn)
    tensors = {"dh": strided(dh.resolve_neg()), "q": q.contiguous(), "wn": wn.contiguous(), "a": a, "rstd": rstd}
    tensors |= {"dq": dq if need_dq else None, "dwn": dwn if need_dwn else None}
    _call("attn_res_bwd", {"v": _one_layout(v), "dv": dv}, tensors)
    return dv, dq, dwn


for _name, _run, _fake in (("fwd", _run_fwd, _fwd_outputs), ("bwd", _run_bwd, _bwd_outputs)):
    for _key in ("CPU", "CUDA", "PrivateUse1"):
        _fragment.impl(f"attn_res_blocks_{_name}", _run, _key)
    torch.library.register_fake(f"tigon::attn_res_blocks_{_name}", lib=_fragment)(_fake)


def _forward(ctx, first, q, wn, eps, *others):
    blocks = [first, *others]
    h, a, rstd = _fwd(blocks, q, wn, eps)
    if ctx is not None:
        ctx.save_for_backward(q, wn, a, rstd, *blocks)
    return h


def _backward(ctx, dh):
    q, wn, a, rstd, *blocks = ctx.saved_tensors
    needed = ctx.needs_input_grad
    dv, dq, dwn = _bwd(dh, blocks, q, wn, a, rstd, needed[1], needed[2])
    first, *others = dv
    return first, dq if needed[1] else None, dwn if needed[2] else None, None, *others


_AttnResBlocks = autograd_function("attn_res", _forward, _backward, parameters=2)


def attn_res(v, query, weight, eps=1e-6):
    """h = sum over blocks i of a_i * v_i, a = softmax over i of the sum of query * weight * v_i * rstd_i, rstd_i = 1 /
    sqrt(mean(v_i^2) + eps), for each token.

    v: one tensor [N, ..., D], or a sequence of N tensors [..., D], which are read where they are, without a
    torch.stack; where their strides differ, they are copied. f32, bf16 or f16. query, weight [D], f32 or as v. h has
    v's dtype.
    """
    if isinstance(v, torch.Tensor):
        return _AttnRes(v, query, weight, (eps,))
    first, *others = v
    return _AttnResBlocks(first, query, weight, float(eps), *others)


class AttnRes(torch.nn.Module):
    """functional.attn_res over blocks of `size` columns. The query starts at 0, so that h is the blocks' mean."""

    def __init__(self, size, eps=1e-6, device=None, dtype=None):
        super().__init__()
        self.eps = eps
        self.query = torch.nn.Parameter(torch.zeros(size, device=device, dtype=dtype))
        self.weight = torch.nn.Parameter(torch.ones(size, device=device, dtype=dtype))

    def forward(self, v):
        return attn_res(v, self.query, self.weight, self.eps)

    def extra_repr(self):
        return f"{len(self.query)}, eps={self.eps}"


def liger_attn_res(V, w_query, w_norm, eps=1e-06):
    first = V if isinstance(V, torch.Tensor) else V[0]
    return attn_res(V, *fitting(first, w_query, w_norm), eps)


class LigerAttnResFunction:
    @staticmethod
    def apply(V_stacked, w_query, w_norm, eps):
        return liger_attn_res(V_stacked, w_query, w_norm, eps)
