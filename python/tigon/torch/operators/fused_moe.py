"""fused_moe, the experts of a mixture, and Liger-Kernel's name of it."""

import torch

from tigon.torch._autograd import Choice, as_parameters, lowered, nonzero
from tigon.torch._derived import derived
from tigon.torch._op import Op
from tigon.torch._sharding import rows

FUNCTIONS = ["fused_moe"]
MODULES = ["FusedMoE"]
_WEIGHTS = "gate_up", "gate_up_bias", "down", "down_bias"
SHARDING = dict.fromkeys(("fused_moe", "fused_moe_lean"), rows(*_WEIGHTS))

_ACTIVATION = Choice("activation", silu=0, gelu_tanh=1)

_FusedMoE = derived("fused_moe")
_without_pre = dict(without=("pre",))
# Which keeps nothing but its inputs.
_Lean = derived(
    "fused_moe_lean",
    Op("fused_moe_lean_fwd", "fused_moe_fwd", **_without_pre),
    Op("fused_moe_lean_bwd", "fused_moe_bwd", **_without_pre),
)


def fused_moe(
    x,
    idx,
    weights,
    gate_up,
    down,
    gate_up_bias=None,
    down_bias=None,
    activation="silu",
    interleaved=False,
    weight_before_down=False,
    gate_multiplier=1.0,
    down_multiplier=1.0,
    limit=None,
    up_offset=0.0,
    recompute=False,
):
    """sum over k of weights[t, k] * expert(x[t]), of expert idx[t, k]: a gated MLP without a loop over experts.

    x [..., H]; idx [..., K] i32 or i64, where an expert outside of [0, E) adds nothing; weights [..., K];
    gate_up [E, 2 I, H], gate first, or with `interleaved` in turns; down [E, H, I]; gate_up_bias [E, 2 I],
    down_bias [E, H]. Weights that are stored as [E, H, 2 I] and [E, I, H] are passed as w.transpose(1, 2), which
    is not copied. f32, bf16 or f16; weights and biases may be f32. The other numbers are swiglu's; activation is
    "silu" or "gelu_tanh". With `weight_before_down` a slot's weight does not multiply the bias of down.

    Forward keeps [..., K, 2 I] numbers for backward, or with `recompute` none. gpt-oss: interleaved,
    gate_multiplier 1.702, down_multiplier 1 / 1.702, limit 7, up_offset 1. Under autocast, in autocast's own dtype.
    """
    gate_multiplier = nonzero("fused_moe", "gate_multiplier", gate_multiplier)
    down_multiplier = nonzero("fused_moe", "down_multiplier", down_multiplier)
    limit = 0.0 if limit is None else nonzero("fused_moe", "limit", limit)
    x, gate_up, gate_up_bias, down, down_bias = lowered(x, gate_up, gate_up_bias, down, down_bias)
    (weights,) = as_parameters(x, weights)
    options = _ACTIVATION[activation], interleaved, weight_before_down
    numbers = gate_multiplier, down_multiplier, limit, float(up_offset)
    run = _Lean if recompute or not torch.is_grad_enabled() else _FusedMoE
    return run(x, idx, weights, gate_up, gate_up_bias, down, down_bias, (*options, *numbers))


class FusedMoE(torch.nn.Module):
    """functional.fused_moe of its own weights: gate_up [E, 2 I, H], down [E, H, I] and, with `bias`, gate_up_bias and
    down_bias. `options` are the function's. Weights begin as torch.nn.Linear's do."""

    def __init__(self, experts, hidden, inner, bias=False, device=None, dtype=None, **options):
        super().__init__()
        empty = lambda *shape: torch.nn.Parameter(torch.empty(experts, *shape, device=device, dtype=dtype))
        self.options = options
        self.gate_up, self.down = empty(2 * inner, hidden), empty(hidden, inner)
        self.register_parameter("gate_up_bias", empty(2 * inner) if bias else None)
        self.register_parameter("down_bias", empty(hidden) if bias else None)
        self.reset_parameters()

    def reset_parameters(self):
        for weight, bias in ((self.gate_up, self.gate_up_bias), (self.down, self.down_bias)):
            for parameter in (weight, bias):
                if parameter is not None:
                    torch.nn.init.uniform_(parameter, -(weight.shape[2] ** -0.5), weight.shape[2] ** -0.5)

    def forward(self, x, idx, weights):
        biases = self.gate_up_bias, self.down_bias
        return fused_moe(x, idx, weights, self.gate_up, self.down, *biases, **self.options)

    def extra_repr(self):
        experts, hidden, inner = self.down.shape
        given = "".join(f", {name}={value!r}" for name, value in self.options.items())
        return f"{experts}, {hidden}, {inner}, bias={self.down_bias is not None}{given}"


class LigerFusedMoEFunction:
    @staticmethod
    def apply(x, gate_up_proj, down_proj, top_k_index, top_k_weights):
        return fused_moe(x, top_k_index, top_k_weights, gate_up_proj, down_proj)
