"""fused_moe in plain torch, and its cases for op_cases.py: a name, the operator, its maths, shapes of inputs, roundings."""

import torch
import torch.nn.functional as F

from tigon.torch import functional as T
from tigon.torch.operators import Parameter

EXPERTS = torch.tensor([[[1, 3], [0, 1], [3, 3], [-1, 0], [1, 0]], [[0, 4], [3, 1], [1, 0], [0, 3], [3, 0]]])  # of 4
GPT_OSS = dict(interleaved=True, gate_multiplier=1.702, down_multiplier=1 / 1.702, limit=7.0, up_offset=1.0)


def experts(x, w, gate_up, down, gate_up_bias=None, down_bias=None, gpt_oss=False, before=False):
    """Every expert of every choice, with weights [E, 2 I, H] and [E, H, I]."""
    here = (EXPERTS >= 0) & (EXPERTS < len(down))
    chosen, w = EXPERTS.clamp(0, len(down) - 1), (w * here)[..., None]
    pre = torch.einsum("...h,...kih->...ki", x, gate_up[chosen])
    pre = pre if gate_up_bias is None else pre + gate_up_bias[chosen]
    if gpt_oss:
        gate, up = pre[..., ::2].clamp(max=7), pre[..., 1::2].clamp(-7, 7)
        c = gate * torch.sigmoid(1.702 * gate) * (up + 1)
    else:
        c = (lambda gate, up: F.gelu(gate, approximate="tanh") * up if before else F.silu(gate) * up)(*pre.chunk(2, -1))
    z = torch.einsum("...ki,...khi->...kh", c, down[chosen])
    bias = 0 if down_bias is None else down_bias[chosen] * here[..., None]
    return (w * z + bias if before else w * (z + bias)).sum(-2)


MIXTURE = [(2, 5, 7), Parameter((2, 5, 2)), Parameter((4, 12, 7)), Parameter((4, 7, 6))]
BIASES = [Parameter((4, 12)), Parameter((4, 7))]

CASES = [
    ("fused_moe", lambda x, w, *weights: T.fused_moe(x, EXPERTS.to(x.device), w, *weights), experts, MIXTURE, 5),
    (
        "fused_moe_before",
        lambda x, w, *weights: T.fused_moe(
            x, EXPERTS.to(x.device), w, *weights, activation="gelu_tanh", weight_before_down=True
        ),
        lambda *args: experts(*args, before=True),
        MIXTURE + BIASES,
        5,
    ),
    (  # weights that are stored as gpt-oss has them
        "fused_moe_gpt_oss",
        lambda x, w, gate_up, down, *biases: T.fused_moe(
            *(x, EXPERTS.to(x.device), w, gate_up.transpose(1, 2), down.transpose(1, 2), *biases),
            **GPT_OSS,
            recompute=True,
        ),
        lambda x, w, gate_up, down, *biases: experts(
            x, w, gate_up.transpose(1, 2), down.transpose(1, 2), *biases, gpt_oss=True
        ),
        [*MIXTURE[:2], Parameter((4, 7, 12)), Parameter((4, 6, 7)), *BIASES],
        5,
    ),
]
