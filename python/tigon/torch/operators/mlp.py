"""mlp: a whole gated MLP in tiles of rows, which keeps its input alone for backward."""

import functools
import math

import torch

from tigon.torch._autograd import Choice, autograd_function, lowered, nonzero
from tigon.torch._op import Op
from tigon.torch._sharding import by_rows, is_distributed

FUNCTIONS = ["mlp"]
MODULES = ["MLP"]

_ACTIVATION = Choice("activation", silu=0, gelu_tanh=1, gelu=2)
_GRANTED = ("int workspace_bytes",)
_fwd = Op("mlp_fwd", extents={"k": "cached"}, options=_GRANTED, when={"cache": lambda given: given["cached"] > 0})
_bwd = Op("mlp_bwd", options=_GRANTED)


def _forward(ctx, x, gate, up, down, gate_bias, up_bias, down_bias, cached, options):
    need = (False,) * 7 if ctx is None else ctx.needs_input_grad[:7]
    cached = cached if any(need) else 0
    y, cache = _fwd(x, gate, up, down, gate_bias, up_bias, down_bias, cached, *options)
    if ctx is not None:
        ctx.save_for_backward(x, gate, up, down, gate_bias, up_bias, cache if cached else None)
        ctx.options, ctx.bias_dtype = options, down_bias.dtype if need[6] else None
    return y


def _backward(ctx, dy):
    need = ctx.needs_input_grad[:7]
    gradients = _bwd(*ctx.saved_tensors, dy, *ctx.options, *need[:6], ctx.bias_dtype)
    return *[g if needed else None for g, needed in zip(gradients, need)], None, None


_MLP = autograd_function("mlp", _forward, _backward)


def mlp(
    x,
    gate,
    up,
    down,
    gate_bias=None,
    up_bias=None,
    down_bias=None,
    activation="silu",
    gate_multiplier=1.0,
    down_multiplier=1.0,
    limit=None,
    up_offset=0.0,
    cache_bytes=0,
    workspace_bytes=None,
):
    """linear(act(linear(x, gate, gate_bias)) * linear(x, up, up_bias), down, down_bias), a tile of rows at a time.

    Nothing of the inner width is held for all rows: backward makes it again from x.

    x [..., H], gate and up [I, H], down [H, I] and the biases [I], [I] and [H] of one dtype, f32, bf16 or f16 (under
    autocast, autocast's own; biases may be f32). With up None gate is [2 I, H] and its bias [2 I], the gate's rows first,
    and two products are one. activation "silu", with swiglu's multipliers, limit and up_offset, or "gelu_tanh" and
    "gelu", without.

    Tiles are worked off in workspace_bytes of memory, None for what the library recommends. Gradients of the weights are
    summed in f32 over all tiles, and autograd sees each once. Forward and backward have 11 products, where torch has 9;
    those of as many rows as fit into cache_bytes, 2 I numbers each, have 9. DTensors: all arguments are, of one mesh;
    x may be sharded along its rows, a sharded weight is gathered for the call.
    """
    biases = dict(gate_bias=gate_bias, up_bias=up_bias, down_bias=down_bias)
    given = dict(x=x, gate=gate, up=up, down=down) | biases
    if is_distributed(*given.values()):
        options = dict(activation=activation, gate_multiplier=gate_multiplier, down_multiplier=down_multiplier)
        options |= dict(limit=limit, up_offset=up_offset, cache_bytes=cache_bytes, workspace_bytes=workspace_bytes)
        return by_rows("mlp", functools.partial(mlp, **options), **given)
    act = _ACTIVATION[activation]
    numbers = (
        0 if workspace_bytes is None else nonzero("mlp", "workspace_bytes", workspace_bytes),
        act,
        *_factors(act, gate_multiplier, down_multiplier),
        0.0 if limit is None else nonzero("mlp", "limit", limit),
        float(up_offset),
    )
    given = lowered(*given.values())
    cached = 0
    if cache_bytes:
        row = 2 * down.shape[1] * given[0].element_size()
        cached = min(cache_bytes // row, math.prod(x.shape[:-1])) if row else 0
    return _MLP(*given, cached, numbers)


def _factors(act, *multipliers):
    """1 is not given to an activation that knows no factors."""
    names = "gate_multiplier", "down_multiplier"
    return [0.0 if act and m == 1 else nonzero("mlp", name, m) for name, m in zip(names, multipliers)]


class MLP(torch.nn.Module):
    """functional.mlp of gate_proj, up_proj and down_proj, three torch.nn.Linear, or with `packed` of gate_up_proj and
    down_proj; its options are the keyword arguments. The projections' own forward is not called."""

    def __init__(self, hidden, intermediate, bias=False, packed=False, device=None, dtype=None, **options):
        super().__init__()
        linear = functools.partial(torch.nn.Linear, bias=bias, device=device, dtype=dtype)
        self.packed, self.options = packed, options
        if packed:
            self.gate_up_proj = linear(hidden, 2 * intermediate)
        else:
            self.gate_proj, self.up_proj = linear(hidden, intermediate), linear(hidden, intermediate)
        self.down_proj = linear(intermediate, hidden)

    def forward(self, x):
        gate, up = (self.gate_up_proj, None) if self.packed else (self.gate_proj, self.up_proj)
        return of_modules(x, gate, up, self.down_proj, **self.options)

    def extra_repr(self):
        return ", ".join(f"{name}={value!r}" for name, value in self.options.items())


def of_modules(x, gate, up, down, **options):
    """mlp of projections, which are torch.nn.Linear; up may be None."""
    bias = None if up is None else up.bias
    weight = None if up is None else up.weight
    return mlp(x, gate.weight, weight, down.weight, gate.bias, bias, down.bias, **options)


class LigerMLPFunction:
    @staticmethod
    def apply(input, gate_weight, up_weight, down_weight, gate_multiplier=1.0, down_multiplier=1.0):
        options = dict(gate_multiplier=gate_multiplier, down_multiplier=down_multiplier)
        return mlp(input, gate_weight, up_weight, down_weight, **options)


class LigerMLP(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config, self.hidden_size, self.intermediate_size = config, config.hidden_size, config.intermediate_size
        self.gate_proj = torch.nn.Linear(self.hidden_size, self.intermediate_size, bias=False)
        self.up_proj = torch.nn.Linear(self.hidden_size, self.intermediate_size, bias=False)
        self.down_proj = torch.nn.Linear(self.intermediate_size, self.hidden_size, bias=False)
        if config.hidden_act not in ("silu", "swish"):
            raise ValueError(f"Activation function {config.hidden_act} not supported.")

    def forward(self, x):
        return of_modules(x, self.gate_proj, self.up_proj, self.down_proj)


class LigerFalconH1MLP(LigerMLP):
    """With the factors of the gate and of the output that config.mlp_multipliers has."""

    def __init__(self, config):
        if getattr(config, "mlp_bias", False):
            raise ValueError("LigerFalconH1MLP: config.mlp_bias is True, must be False")
        super().__init__(config)
        self.gate_multiplier, self.down_multiplier = config.mlp_multipliers

    def forward(self, x):
        factors = dict(gate_multiplier=float(self.gate_multiplier), down_multiplier=float(self.down_multiplier))
        return of_modules(x, self.gate_proj, self.up_proj, self.down_proj, **factors)
