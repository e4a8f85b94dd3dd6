"""rms_norm and its kin."""

import collections.abc

import torch

from tigon.torch._autograd import Choice, as_parameters, promoted
from tigon.torch._derived import derived
from tigon.torch._op import Op
from tigon.torch._sharding import rows

FUNCTIONS = ["rms_norm", "rms_norm_quantised", "fused_add_rms_norm", "layer_norm"]
MODULES = ["RMSNorm", "LayerNorm"]
SHARDING = dict.fromkeys(("rms_norm", "fused_add_rms_norm"), rows("w"))

EPS = torch.finfo(torch.float32).eps  # where none is given, as torch 2.13, whatever the dtype
CASTING = Choice("casting", llama=0, gemma=1, none=2)


_RMSNorm = derived("rms_norm", parameters=1)


def rms_norm(x, weight=None, eps=1e-6, offset=0.0, casting="llama", gate=None):
    """y = x * rstd * (weight + offset), rstd = 1 / sqrt(mean(x^2) + eps), over the last dimension; times silu(gate).

    x [..., C] f32, bf16 or f16; weight [C] f32 or as x, None for 1; gate as x (under autocast both are the wider one),
    None for no gate. y has x's dtype, under autocast too.
    casting says where rounding happens: "llama" rounds x * rstd to x's dtype before the weight, "gemma" rounds once at
    the end, "none" computes in x's dtype. eps None is 2^-23, as torch has it.
    """
    if gate is not None:
        x, gate = promoted(x, gate)
    return _RMSNorm(x, weight, gate, (EPS if eps is None else eps, offset, CASTING[casting]))


_quantised = Op("rms_norm_quantised", dtypes={"q": "q_dtype"})


def rms_norm_quantised(
    x, weight=None, eps=1e-6, offset=0.0, casting="llama", gate=None, dtype=torch.float8_e4m3fn
):
    """rms_norm in 8 bits, (q, scale): y is about q * scale[..., None]. It has no gradient.

    dtype: torch.float8_e4m3fn, where a row's largest |y| becomes 448, or torch.int8, where it becomes 127. scale [...]
    f32; of a row of zeros it is 1. The rest is rms_norm's; y is not rounded before.
    """
    if dtype not in (torch.float8_e4m3fn, torch.int8):
        raise ValueError(f"rms_norm_quantised: dtype is {dtype}, must be torch.float8_e4m3fn or torch.int8")
    x, weight, gate = (t if t is None else t.detach() for t in (x, weight, gate))
    if gate is not None:
        x, gate = promoted(x, gate)
    eps = EPS if eps is None else eps
    q, scale = _quantised(x, *as_parameters(x, weight), gate, dtype, eps, offset, CASTING[casting])
    return q, scale.view(x.shape[:-1])


_FusedAddRMSNorm = derived("fused_add_rms_norm", returned=("y", "s"), gradients={"dx": (0, 1)})


def fused_add_rms_norm(x, residual, weight=None, eps=1e-6, offset=0.0, casting="llama"):
    """summed = x + residual, rounded to x's dtype; y = rms_norm(summed, ...). Returns (y, summed).

    x, residual [..., C] of one dtype (under autocast the wider one). The rest is rms_norm's.
    """
    casting = CASTING[casting]
    x, residual = promoted(x, residual)
    eps = EPS if eps is None else eps
    return _FusedAddRMSNorm(x, residual, *as_parameters(x, weight), (eps, offset, casting))


_LayerNorm = derived("layer_norm", parameters=2, both={"halves": {"stats": ("mean", "rstd")}})


def layer_norm(x, weight=None, bias=None, eps=1e-5):
    """y = (x - mean) * rstd * weight + bias over the last dimension.

    x [..., C] f32, bf16 or f16; weight, bias [C], f32 or as x, or None. y has x's dtype.
    """
    return _LayerNorm(x, weight, bias, (eps,))


def _one_dimension(module, name, shape):
    """The extent of a normalized_shape, which torch takes as a number or as a tuple."""
    if not isinstance(shape, collections.abc.Iterable):
        return shape
    if len(shape) != 1:
        raise ValueError(f"{module}: {name} has {len(shape)} dimensions, must have 1")
    return shape[0]


class RMSNorm(torch.nn.Module):
    """functional.rms_norm over the last dimension, of `size`, a number or a tuple of one. The weight starts at
    1 - offset, so as the identity. A gate is the second argument of forward."""

    def __init__(self, size, eps=1e-6, offset=0.0, casting="llama", elementwise_affine=True, device=None, dtype=None):
        super().__init__()
        size = _one_dimension("RMSNorm", "size", size)
        self.size, self.eps, self.offset, self.casting = size, eps, offset, casting
        weight = torch.full((size,), 1.0 - offset, device=device, dtype=dtype) if elementwise_affine else None
        self.register_parameter("weight", weight if weight is None else torch.nn.Parameter(weight))

    def forward(self, x, gate=None):
        return rms_norm(x, self.weight, self.eps, self.offset, self.casting, gate)

    def extra_repr(self):
        return f"{self.size}, eps={self.eps}, offset={self.offset}, casting={self.casting!r}"


class LayerNorm(torch.nn.LayerNorm):
    """torch.nn.LayerNorm over the last dimension."""

    def __init__(self, normalized_shape, *args, **kwargs):
        super().__init__(normalized_shape, *args, **kwargs)
        _one_dimension("LayerNorm", "normalized_shape", self.normalized_shape)

    def forward(self, x):
        return layer_norm(x, self.weight, self.bias, self.eps)
