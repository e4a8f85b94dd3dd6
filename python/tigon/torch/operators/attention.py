"""Positions and attention: rope, attention, softmax."""

import torch

from tigon.torch._autograd import lowered, nonzero, promoted
from tigon.torch._derived import derived
from tigon.torch._op import Op

FUNCTIONS = ["rope", "attention", "softmax"]


def _heads_inside(shape, strides):
    """[B, H, T, D] as the C entries have it, [B, T, H, D]."""
    if len(shape) != 4:
        return shape, strides
    return tuple(shape[i] for i in (0, 2, 1, 3)), tuple(strides[i] for i in (0, 2, 1, 3))


def _shared(shape, strides):
    """[1, T, R] of all sequences as [T, R]."""
    return (shape[1:], strides[1:]) if len(shape) == 3 and shape[0] == 1 else (shape, strides)


_ROPE = dict.fromkeys(("q", "k", "q_out", "k_out"), _heads_inside) | dict.fromkeys(("cos", "sin"), _shared)


def _rope_ways(q, k, cos, rows, batch=None, ids=None):
    """How ranks share out q, k [B, H, T, D]: their sequences, heads or tokens. Dimension `rows` of the tables is a
    position's, `batch` a sequence's; ids [.., B, T] or [.., 1, T]. A longer table has no part for a rank's tokens."""
    from torch.distributed.tensor import Replicate, Shard

    one = Replicate()
    own = one if batch is None else Shard(batch)
    if ids is None:
        places = [(0, own, one), (1, one, one)] + [(2, Shard(rows), one)] * (cos.shape[rows] == q.shape[2])
    else:
        sequences = Shard(ids.ndim - 2) if ids.shape[-2] == q.shape[0] > 1 else one
        places = [(0, own, sequences), (1, one, one), (2, one, Shard(ids.ndim - 1))]
    return [(dim, dict(cos=table, sin=table, positions=id)) for dim, table, id in places]


def _rope_rule(q, k, cos, *_):
    """cos, sin [T, R], [1, T, R] or [B, T, R]."""
    return _rope_ways(q, k, cos, cos.ndim - 2, 0 if cos.ndim == 3 and cos.shape[0] > 1 else None)


def _mrope_rule(q, k, cos, sin, positions, layout, rotary_dim, *sections):
    """Tables [P, ..] or [B, P, ..], with sections [P, ..], [3, P, ..] or [3, B, P, ..]."""
    rows = cos.ndim - (3 if sin is None else 2)
    return _rope_ways(q, k, cos, rows, rows - 1 if rows == 1 + any(sections) else None, positions)


SHARDING = {"rope": _rope_rule, "mrope": _mrope_rule}


_PAIR = dict(returned=("q_out", "k_out"), gradients={"q_out": 0, "k_out": 1}, incoming=("q", "k"))
_MULTIMODAL = ("section_t", "section_h", "section_w", "sections_interleaved")
_RoPE = derived(  # whose backward is the rotation back, of the gradients
    "rope", both={"views": _ROPE, "without": ("positions", *_MULTIMODAL), "required": ("k", "sin")}, **_PAIR
)
_EVERY_FORM = {"views": dict.fromkeys(("q", "k", "q_out", "k_out"), _heads_inside), "required": ("k",)}
_AnyRoPE = derived(
    "mrope", Op("mrope_fwd", "rope_fwd", **_EVERY_FORM), Op("mrope_bwd", "rope_bwd", **_EVERY_FORM), **_PAIR
)


def rope(
    q, k, cos, sin=None, interleaved=False, rotary_dim=None, positions=None, sections=None, sections_interleaved=False
):
    """Rotary position embedding of q [B, Hq, T, D] and k [B, Hk, T, D]; returns both, rotated.

    cos, sin [T, R], [1, T, R] or [B, T, R] f32 or as q, as Hugging Face has them: angles twice, of which the first R /
    2 columns are read; with rotary_dim given, also [.., rotary_dim / 2]. The first R elements of a head turn, the
    others pass through. Pair i is (x[i], x[i + R / 2]), interleaved (x[2 i], x[2 i + 1]). q and k f32, bf16 or f16 of
    one dtype (under autocast the wider one), read where they lie if the last stride is 1. cos and sin get no gradient.

    Without sin, cos is complex64 [.., R / 2], read where it lies. positions [B, T] or [1, T], int32 or int64, say
    which row of the tables a token takes, which then have any number of rows.
    sections (t, h, w), R / 2 pairs in all: each token has a position in time, height and width. Their angles turn the
    first t, the next h and the last w pairs (Qwen2-VL). With sections_interleaved pairs take turns (Qwen3-VL). Tables
    are then [3, .., T, R], or shared by the axes, and positions [3, B, T] or [3, 1, T].
    """
    q, k = promoted(q, k)
    if sin is None and getattr(cos, "is_complex", bool)():
        cos, rotary_dim = torch.view_as_real(cos), 2 * cos.shape[-1] if rotary_dim is None else rotary_dim
    rotary_dim = getattr(cos, "shape", (0,))[-1] if rotary_dim is None else rotary_dim
    if sin is not None and positions is None and sections is None and not sections_interleaved:
        return _RoPE(q, k, cos, sin, (int(interleaved), rotary_dim))
    cos, sin = (_squeezed(table, sections, 2 if sin is not None else 3) for table in (cos, sin))
    options = (int(interleaved), rotary_dim, *(sections or (0, 0, 0)), bool(sections_interleaved))
    return _AnyRoPE(q, k, cos, sin, positions, options)


def _squeezed(table, sections, last):
    """The table of all sequences where its batch is 1; `last` dimensions are rows and columns."""
    batch = 1 if sections else 0
    at = table.ndim - last - 1 if table is not None else -1
    return table.squeeze(at) if at == batch and table.shape[at] == 1 else table


_HEADS = dict.fromkeys(("q", "k", "v", "o", "d_o", "dq", "dk", "dv"), _heads_inside)
_Attention = derived("attention", both={"views": _HEADS})


def attention(
    q,
    k,
    v,
    scale=None,
    causal=True,
    window=None,
    softcap=None,
    sinks=None,
    cu_seqlens_q=None,
    cu_seqlens_k=None,
    dilation=1,
    exact=False,
):
    """softmax(scale * q k^T + mask) v in O(T * D) memory, with grouped heads.

    q [B, Hq, T, D]; k, v [B, Hk, S, D], Hk dividing Hq; all f32, bf16 or f16 (under autocast, autocast's own dtype),
    read where they lie if the last stride is 1. scale None is 1 / sqrt(D). causal: query t sees keys up to t + S - T;
    a window lets it see that many keys to its left, itself included, and without causal as many to its right. A query
    that sees no key gives 0.

    softcap c: scores are c * tanh(score / c) (Gemma 2). sinks [Hq]: each head's logit without a value, which joins the
    softmax (gpt-oss); it gets a gradient. dilation n: only every n-th key counts, and a window reaches n times as far:
    window r + 1 without causal is a neighbourhood of 2 r + 1 keys.
    cu_seqlens_q, cu_seqlens_k [N + 1], int32 or int64, are for a batch of one, in which N sequences lie end to end.
    Sequence i has the queries cu_seqlens_q[i] to cu_seqlens_q[i + 1] - 1. cu_seqlens_k says the same of its keys;
    without it keys are where queries are. No sequence sees another. On a GPU only the kernels read these numbers.

    In bf16 and f16 a device may round weights to the dtype before their products, as FlashAttention does; exact keeps
    the accuracy of f32. `tigon list` says what a device does without it.
    """
    q, k, v = lowered(q, k, v)
    scale = 0.0 if scale is None else nonzero("attention", "scale", scale)
    window = 0 if window is None else nonzero("attention", "window", window)
    softcap = 0.0 if softcap is None else nonzero("attention", "softcap", softcap)
    if sinks is not None and sinks.dtype != q.dtype:
        sinks = sinks.float()
    cu_seqlens_k = cu_seqlens_q if cu_seqlens_k is None else cu_seqlens_k
    options = scale, causal, bool(exact), window, softcap, nonzero("attention", "dilation", dilation)
    return _Attention(q, k, v, sinks, cu_seqlens_q, cu_seqlens_k, options)


_Softmax = derived("softmax")


def softmax(x, scale=1.0, mask=None, causal=False):
    """softmax(scale * x + mask) over the last dimension; a row whose every element is masked gives 0.

    x [..., T, C] f32, bf16 or f16; mask [C], [T, C] or x's shape (an expanded view will do), f32 or as
    x, gets no gradient. causal: column c of row t counts when c <= t + C - T. y has x's dtype, under autocast too.
    """
    return _Softmax(x, mask, (nonzero("softmax", "scale", scale), causal))
