"""Attention in plain torch, for op_cases.py and test_torch_attention.py."""

import torch
import torch.nn.functional as F

from tigon.torch import functional as T
from tigon.torch.operators import Parameter


def attention(q, k, v, sinks=None, causal=True, window=None, scale=None, softcap=None, dilation=1, lengths=None):
    """`lengths`: of queries and of keys, where the rows are sequences end to end; the last rows may be in none."""
    k, v = (t.repeat_interleave(q.shape[1] // t.shape[1], 1) for t in (k, v))
    t, s = q.shape[2], k.shape[2]
    seen = torch.zeros(t, s, dtype=torch.bool)
    t0 = s0 = 0
    for tokens, keys in lengths or [(t, s)]:
        apart = torch.arange(tokens)[:, None] + keys - tokens - torch.arange(keys)
        inside = apart % dilation == 0
        if causal:
            inside &= apart >= 0
        if window:
            inside &= apart.abs() < window * dilation
        seen[t0 : t0 + tokens, s0 : s0 + keys] = inside
        t0, s0 = t0 + tokens, s0 + keys
    z = q @ k.transpose(-1, -2) * (scale or q.shape[-1] ** -0.5)
    if softcap:
        z = softcap * torch.tanh(z / softcap)
    z = z.masked_fill(~seen, -torch.inf)
    sink = z.new_full((1,), -torch.inf) if sinks is None else sinks
    z = torch.cat([z, sink[:, None, None].expand(*z.shape[:2], t, 1)], -1)
    p = F.softmax(z.masked_fill(~seen.any(-1, keepdim=True) & (z == -torch.inf).all(-1, keepdim=True), 0), -1)
    return p[..., :-1].masked_fill(~seen, 0) @ v


ATTENTION_LENGTHS = [(2, 3), (0, 1), (3, 1)]  # split op_cases.HEADS' 5 queries and 5 keys


def cumulative(side, device):
    return torch.tensor([0, *(pair[side] for pair in ATTENTION_LENGTHS)], device=device).cumsum(0)


def cases(q, kv):
    """Fields of op_cases.Case, of shapes of q and of k and v: a name, the operator, its maths, shapes of inputs, roundings.

    The gradient of a sink sums o * do over columns, queries and batches. o and, on a GPU, its weights are rounded, and
    these products cancel: four more roundings of the largest."""
    return [
        (
            "attention_softcap_and_sinks",
            lambda q, k, v, sinks: T.attention(q, k, v, softcap=2.0, sinks=sinks),
            lambda q, k, v, sinks: attention(q, k, v, sinks, softcap=2.0),
            [q, kv, kv, Parameter((4,))],
            7,
        ),
        (
            "attention_dilation",
            lambda q, k, v: T.attention(q, k, v, causal=False, window=2, dilation=2),
            lambda q, k, v: attention(q, k, v, causal=False, window=2, dilation=2),
            [q, kv, kv],
            3,
        ),
        (
            "attention_segments",
            lambda q, k, v: T.attention(
                q, k, v, cu_seqlens_q=cumulative(0, q.device).int(), cu_seqlens_k=cumulative(1, q.device)
            ),
            lambda q, k, v: attention(q, k, v, lengths=ATTENTION_LENGTHS),
            [(1, *shape[1:]) for shape in (q, kv, kv)],
            3,
        ),
    ]
