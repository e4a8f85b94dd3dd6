"""rms_norm and its kin."""

import torch

from tigon.torch._autograd import Choice, as_parameters, function, like, promoted, rows
from tigon.torch._op import op

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


@function("rms_norm", _rms_norm_fwd, _rms_norm_bwd, parameters=1)
def _RMSNorm(fwd, bwd):
    def forward(ctx, x, w, eps, w_offset, casting):
        y, ctx.rstd = fwd(x, w, eps, w_offset, casting)
        ctx.save_for_backward(x, w)
        ctx.options = w_offset, casting
        return y

    def backward(ctx, dy):
        need_dw = ctx.needs_input_grad[1]
        dx, dw = bwd(dy, *ctx.saved_tensors, ctx.rstd, *ctx.options, need_dw)
        return dx, dw if need_dw else None, None, None, None

    return forward, backward


def rms_norm(x, weight=None, eps=1e-6, offset=0.0, casting="llama"):
    """y = x * rstd * (weight + offset), rstd = 1 / sqrt(mean(x^2) + eps), over the last dimension.

    x [..., C] f32, bf16 or f16, last stride 1; weight [C] f32 or as x, None for 1. y has x's dtype, under autocast too.
    casting says where rounding happens: "llama" rounds x * rstd to x's dtype before the weight, "gemma" rounds once at
    the end, "none" computes in x's dtype.
    """
    return _RMSNorm(x, weight, eps, offset, CASTING[casting])


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


@function("fused_add_rms_norm", _fused_add_rms_norm_fwd, _fused_add_rms_norm_bwd)
def _FusedAddRMSNorm(fwd, bwd):
    def forward(ctx, x, residual, w, eps, w_offset, casting):
        s, y, ctx.rstd = fwd(x, residual, w, eps, w_offset, casting)
        ctx.save_for_backward(s, w)
        ctx.options = w_offset, casting
        return y, s

    def backward(ctx, dy, ds):
        need_dw = ctx.needs_input_grad[2]
        dx, dw = bwd(dy, ds, *ctx.saved_tensors, ctx.rstd, *ctx.options, need_dw)
        return dx, dx, dw if need_dw else None, None, None, None

    return forward, backward


def fused_add_rms_norm(x, residual, weight=None, eps=1e-6, offset=0.0, casting="llama"):
    """summed = x + residual, rounded to x's dtype; y = rms_norm(summed, ...). Returns (y, summed).

    x, residual [..., C] of one dtype (under autocast the wider one). The rest is rms_norm's.
    """
    casting = CASTING[casting]
    x, residual = promoted(x, residual)
    return _FusedAddRMSNorm(x, residual, *as_parameters(x, weight), eps, offset, casting)


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


@function("layer_norm", _layer_norm_fwd, _layer_norm_bwd, parameters=2)
def _LayerNorm(fwd, bwd):
    def forward(ctx, x, w, b, eps):
        y, ctx.stats = fwd(x, w, b, eps)
        ctx.save_for_backward(x, w)
        ctx.db_dtype = b.dtype if ctx.needs_input_grad[2] else None
        return y

    def backward(ctx, dy):
        need_dw = ctx.needs_input_grad[1]
        dx, dw, db = bwd(dy, *ctx.saved_tensors, ctx.stats, need_dw, ctx.db_dtype)
        return dx, dw if need_dw else None, None if ctx.db_dtype is None else db, None

    return forward, backward


def layer_norm(x, weight=None, bias=None, eps=1e-5):
    """y = (x - mean) * rstd * weight + bias over the last dimension.

    x [..., C] f32, bf16 or f16, last stride 1; weight, bias [C], f32 or as x, or None. y has x's dtype.
    """
    return _LayerNorm(x, weight, bias, eps)
