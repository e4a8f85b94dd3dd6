"""Positions and attention: rope, attention, softmax."""

from tigon.torch._autograd import lowered, nonzero, promoted
from tigon.torch._derived import derived

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


def _rope_rule(q, k, cos, *_):
    """How ranks share out q, k [B, H, T, D] and cos, sin [T, R], [1, T, R] or [B, T, R]."""
    from torch.distributed.tensor import Replicate, Shard

    one_table = cos.ndim == 2 or cos.shape[0] == 1
    tables = (Replicate() if one_table else Shard(0), Replicate(), Shard(cos.ndim - 2))
    return [(dim, dict(cos=table, sin=table)) for dim, table in enumerate(tables)]


SHARDING = {"rope": _rope_rule}


_RoPE = derived(  # whose backward is the rotation back, of the gradients
    "rope",
    both={"views": _ROPE, "without": ("positions",), "required": ("k",)},
    returned=("q_out", "k_out"),
    gradients={"q_out": 0, "k_out": 1},
    incoming=("q", "k"),
)


def rope(q, k, cos, sin, interleaved=False, rotary_dim=None):
    """Rotary position embedding of q [B, Hq, T, D] and k [B, Hk, T, D]; returns both, rotated.

    cos, sin [T, R], [1, T, R] or [B, T, R] f32 or as q, as Hugging Face has them: angles twice, of which the first R /
    2 columns are read; with rotary_dim given, also [.., rotary_dim / 2]. The first R elements of a head turn, the
    others pass through. Pair i is (x[i], x[i + R / 2]), interleaved (x[2 i], x[2 i + 1]). q and k f32, bf16 or f16 of
    one dtype (under autocast the wider one), read where they lie if the last stride is 1. cos and sin get no gradient.
    """
    q, k = promoted(q, k)
    rotary_dim = getattr(cos, "shape", (0,))[-1] if rotary_dim is None else rotary_dim
    return _RoPE(q, k, cos, sin, (int(interleaved), rotary_dim))


_HEADS = dict.fromkeys(("q", "k", "v", "o", "d_o", "dq", "dk", "dv"), _heads_inside)
_Attention = derived("attention", both={"views": _HEADS})


def attention(q, k, v, scale=None, causal=True, window=None):
    """softmax(scale * q k^T + mask) v in O(T * D) memory, with grouped heads.

    q [B, Hq, T, D]; k, v [B, Hk, S, D], Hk dividing Hq; all f32, bf16 or f16 (under autocast, autocast's own dtype),
    read where they lie if the last stride is 1. scale None is 1 / sqrt(D). causal: query t sees keys up to t + S - T;
    a window lets it see that many keys to its left, itself included. A query that sees no key gives 0.
    """
    q, k, v = lowered(q, k, v)
    scale = 0.0 if scale is None else nonzero("attention", "scale", scale)
    window = 0 if window is None else nonzero("attention", "window", window)
    return _Attention(q, k, v, (scale, causal, window))


_Softmax = derived("softmax")


def softmax(x, scale=1.0, mask=None, causal=False):
    """softmax(scale * x + mask) over the last dimension; a row whose every element is masked gives 0.

    x [..., T, C] f32, bf16 or f16; mask [C], [T, C] or x's shape (an expanded view will do), f32 or as
    x, gets no gradient. causal: column c of row t counts when c <= t + C - T. y has x's dtype, under autocast too.
    """
    return _Softmax(x, mask, (nonzero("softmax", "scale", scale), causal))
