"""rms_norm and its kin."""

import torch

from tigon.torch._autograd import Choice, as_parameters, like, promoted, rows
from tigon.torch._derived import derived
from tigon.torch._op import op

EPS = torch.finfo(torch.float32).eps  # where none is given, as torch 2.13, whatever the dtype
CASTING = Choice("casting", llama=0, gemma=1, none=2)


@op("rms_norm_fwd(Tensor x, Tensor? w, float eps, float w_offset, int casting) -> (Tensor y, Tensor rstd)")
def _rms_norm_fwd(x, w, eps, w_offset, casting):
    return torch.empty_like(x), rows(x)


@op(
    "rms_norm_bwd(Tensor dy, Tensor x, Tensor? w, Tensor rstd, float w_offset, int casting, bool need_dw)"
    " -> (Tensor dx, Tensor dw)"
)
def _rms_norm_bwd(dy, x, w, rstd, w_offset, casting, need_dw):
    return torch.empty_like(x), like(w, need_dw)


_RMSNorm = derived("rms_norm", _rms_norm_fwd, _rms_norm_bwd, parameters=1)


def rms_norm(x, weight=None, eps=1e-6, offset=0.0, casting="llama"):
    """y = x * rstd * (weight + offset), rstd = 1 / sqrt(mean(x^2) + eps), over the last dimension.

    x [..., C] f32, bf16 or f16; weight [C] f32 or as x, None for 1. y has x's dtype, under autocast too.
    casting says where rounding happens: "llama" rounds x * rstd to x's dtype before the weight, "gemma" rounds once at
    the end, "none" computes in x's dtype. eps None is 2^-23, as torch has it.
    """
    return _RMSNorm(x, weight, (EPS if eps is None else eps, offset, CASTING[casting]))


@op(
    "fused_add_rms_norm_fwd(Tensor x, Tensor residual, Tensor? w, float eps, float w_offset, int casting)"
    " -> (Tensor s, Tensor y, Tensor rstd)"
)
def _fused_add_rms_norm_fwd(x, residual, w, eps, w_offset, casting):
    return torch.empty_like(x), torch.empty_like(x), rows(x)


@op(
    "fused_add_rms_norm_bwd(Tensor dy, Tensor? ds, Tensor s, Tensor? w, Tensor rstd, float w_offset, int casting,"
    " bool need_dw) -> (Tensor dx, Tensor dw)"
)
def _fused_add_rms_norm_bwd(dy, ds, s, w, rstd, w_offset, casting, need_dw):
    return torch.empty_like(s), like(w, need_dw)


_FusedAddRMSNorm = derived(
    "fused_add_rms_norm",
    _fused_add_rms_norm_fwd,
    _fused_add_rms_norm_bwd,
    returned=("y", "s"),
    gradients={"dx": (0, 1)},
)


def fused_add_rms_norm(x, residual, weight=None, eps=1e-6, offset=0.0, casting="llama"):
    """summed = x + residual, rounded to x's dtype; y = rms_norm(summed, ...). Returns (y, summed).

    x, residual [..., C] of one dtype (under autocast the wider one). The rest is rms_norm's.
    """
    casting = CASTING[casting]
    x, residual = promoted(x, residual)
    eps = EPS if eps is None else eps
    return _FusedAddRMSNorm(x, residual, *as_parameters(x, weight), (eps, offset, casting))


_STATS = {"stats": ("mean", "rstd")}


@op("layer_norm_fwd(Tensor x, Tensor? w, Tensor? b, float eps) -> (Tensor y, Tensor stats)", halves=_STATS)
def _layer_norm_fwd(x, w, b, eps):
    return torch.empty_like(x), rows(x, 2)


@op(
    "layer_norm_bwd(Tensor dy, Tensor x, Tensor? w, Tensor stats, bool need_dw, ScalarType? db_dtype)"
    " -> (Tensor dx, Tensor dw, Tensor db)",
    halves=_STATS,
)
def _layer_norm_bwd(dy, x, w, stats, need_dw, db_dtype):
    db = None if db_dtype is None else x.new_empty(x.shape[-1], dtype=db_dtype)
    return torch.empty_like(x), like(w, need_dw), db


_LayerNorm = derived("layer_norm", _layer_norm_fwd, _layer_norm_bwd, parameters=2)


def layer_norm(x, weight=None, bias=None, eps=1e-5):
    """y = (x - mean) * rstd * weight + bias over the last dimension.

    x [..., C] f32, bf16 or f16; weight, bias [C], f32 or as x, or None. y has x's dtype.
    """
    return _LayerNorm(x, weight, bias, (eps,))
