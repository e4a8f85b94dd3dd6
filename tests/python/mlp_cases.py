"""The cases of mlp, for op_cases.py."""

import torch.nn.functional as F

from tigon.torch import functional as T
from tigon.torch.operators import Parameter


def mlp(act):
    """Of two weights, with or without biases."""

    def run(x, gate, up, down, gate_bias=None, up_bias=None, down_bias=None):
        return F.linear(act(F.linear(x, gate, gate_bias), F.linear(x, up, up_bias)), down, down_bias)

    return run


def packed(x, gate_up, down):
    return mlp(lambda a, b: F.gelu(a) * b)(x, *gate_up.chunk(2), down)


def with_options(*tensors):
    """The limit is far from all numbers: next to it a rounding switches a gradient on or off."""
    options = dict(gate_multiplier=1.25, down_multiplier=0.5, limit=64.0, up_offset=0.75)
    return T.mlp(*tensors, **options, workspace_bytes=4096)


def cases(one_pitch):
    """Fields of op_cases.Case. `one_pitch` is its OnePitch."""
    x, weights, biases = one_pitch((2, 5, 7)), [(9, 7), (9, 7), (7, 9)], [Parameter((n,)) for n in (9, 9, 7)]
    return [
        ("mlp", T.mlp, mlp(lambda a, b: F.silu(a) * b), [x, *weights, *biases], 8),
        ("mlp_options", with_options, mlp(lambda a, b: 0.5 * F.silu(1.25 * a) * (b + 0.75)), [x, *weights], 8),
        (
            "mlp_packed",
            lambda x, gate_up, down: T.mlp(x, gate_up, None, down, activation="gelu", cache_bytes=300),
            packed,
            [x, (18, 7), (7, 9)],
            8,
        ),
    ]
