"""Norms whose rows have a scale of their own: group_norm, modulated_rms_norm."""

import torch

from tigon.torch._autograd import as_parameters, like, promoted, rows
from tigon.torch._derived import derived
from tigon.torch._norms import CASTING, EPS
from tigon.torch._op import op


@op("group_norm_fwd(Tensor x, Tensor? w, Tensor? b, int groups, float eps) -> (Tensor y, Tensor mean, Tensor rstd)")
def _group_norm_fwd(x, w, b, groups, eps):
    mean = torch.empty((x.shape[0], groups), dtype=torch.float32, device=x.device)
    return torch.empty_like(x), mean, torch.empty_like(mean)


@op(
    "group_norm_bwd(Tensor dy, Tensor x, Tensor? w, Tensor mean, Tensor rstd, int groups, bool need_dw,"
    " ScalarType? db_dtype) -> (Tensor dx, Tensor dw, Tensor db)"
)
def _group_norm_bwd(dy, x, w, mean, rstd, groups, need_dw, db_dtype):
    db = None if db_dtype is None else x.new_empty(x.shape[1], dtype=db_dtype)
    return torch.empty_like(x), like(w, need_dw), db


_GroupNorm = derived(
    "group_norm", _group_norm_fwd, _group_norm_bwd, parameters=2, taken=torch.Tensor.contiguous
)


def group_norm(x, num_groups, weight=None, bias=None, eps=1e-5):
    """y = (x - mean) * rstd * weight[c] + bias[c], mean and rstd over a batch's group of C / num_groups channels.

    x [B, C, ...spatial] f32, bf16 or f16, copied unless the spatial dimensions lie end to end; weight, bias [C], f32 or
    as x, or None. y has x's dtype.
    """
    return _GroupNorm(x, weight, bias, (num_groups, eps))


@op(
    "modulated_rms_norm_fwd(Tensor x, Tensor? w, Tensor scale, Tensor? shift, float eps, float w_offset, int casting)"
    " -> (Tensor y, Tensor rstd)"
)
def _modulated_rms_norm_fwd(x, w, scale, shift, eps, w_offset, casting):
    return torch.empty_like(x), rows(x)


@op(
    "modulated_rms_norm_bwd(Tensor dy, Tensor x, Tensor? w, Tensor scale, Tensor rstd, float w_offset, int casting,"
    " bool need_dw, bool need_dscale, bool need_dshift) -> (Tensor dx, Tensor dw, Tensor dscale, Tensor dshift)"
)
def _modulated_rms_norm_bwd(dy, x, w, scale, rstd, w_offset, casting, need_dw, need_dscale, need_dshift):
    return torch.empty_like(x), like(w, need_dw), like(scale, need_dscale), like(scale, need_dshift)


_ModulatedRMSNorm = derived("modulated_rms_norm", _modulated_rms_norm_fwd, _modulated_rms_norm_bwd)


def modulated_rms_norm(x, scale, shift=None, weight=None, eps=1e-6, offset=0.0, casting="llama"):
    """y = (1 + scale) * rms_norm(x, weight, eps, offset, casting) + shift, as adaptive layer norms have it.

    x [..., C] f32, bf16 or f16; scale [C], or [G, C] for G groups of rows that follow each other, G being a product of
    x's first dimensions ([B, C] or [B * T, C] for x [B, T, C]), or [B, 1, C]; f32 or as x; shift as scale, or None.
    y has x's dtype.
    """
    casting = CASTING[casting]
    scale, shift, weight = as_parameters(x, scale, shift, weight)
    if shift is not None:
        scale, shift = promoted(scale, shift)
    return _ModulatedRMSNorm(x, weight, scale, shift, (EPS if eps is None else eps, offset, casting))
