"""Liger-Kernel's autograd functions, of which `apply` is there, and the functions over them.

`in_place` and `row_mode` have no effect: Tigon overwrites no input, and chooses its kernels itself."""

import torch

from ...torch import functional as F
from ...torch._autograd import fitting
from ._losses import asserting, require

_CASTING = {0: "llama", 1: "gemma", -1: "none"}  # Liger-Kernel's numbers


class LigerRMSNormFunction:
    @staticmethod
    @asserting
    def apply(X, W, eps, offset=0.0, casting_mode="llama", in_place=True, row_mode=None):
        return F.rms_norm(X, *fitting(X, W), eps, offset, _CASTING.get(casting_mode, casting_mode))


class LigerFusedAddRMSNormFunction:
    @staticmethod
    @asserting
    def apply(X, R, W, eps, offset=0.0, casting_mode="llama", in_place=False):
        """(y, X + R)"""
        return F.fused_add_rms_norm(X, R, *fitting(X, W), eps, offset, _CASTING.get(casting_mode, casting_mode))


class LigerModulatedRMSNormFunction:
    @staticmethod
    @asserting
    def apply(X, W, scale, shift, eps, offset=0.0, casting_mode="llama", in_place=True):
        W, scale, shift = fitting(X, W, scale, shift)
        if shift is not None and shift.dtype != scale.dtype:
            scale, shift = scale.float(), shift.float()
        return F.modulated_rms_norm(X, scale, shift, W, eps, offset, _CASTING.get(casting_mode, casting_mode))


class LigerLayerNormFunction:
    @staticmethod
    def apply(X, W, B, eps):
        return F.layer_norm(X, *fitting(X, W, B), eps)


class LigerGroupNormFunction:
    @staticmethod
    @asserting
    def apply(X, affine_scaling_weight, affine_shifting_bias, num_channels, num_groups, eps):
        return F.group_norm(X, num_groups, *fitting(X, affine_scaling_weight, affine_shifting_bias), eps)


class LigerSiLUMulFunction:
    @staticmethod
    def apply(a, b, gate_multiplier: float = 1.0, down_multiplier: float = 1.0):
        return F.swiglu(a, b, float(gate_multiplier), float(down_multiplier))


class LigerFusedGateUpSiLUMulFunction:
    @staticmethod
    def apply(y, in_place=False):
        return F.swiglu_packed(y)


class LigerGELUMulFunction:
    @staticmethod
    def apply(a, b):
        return F.geglu(a, b)


class LigerSoftmaxFunction:
    @staticmethod
    def apply(input_):
        return F.softmax(input_)


class LigerEmbeddingFunction:
    @staticmethod
    def apply(embeddings, indices):
        return F.embedding(indices, embeddings)


class LigerRopeFunction:
    @staticmethod
    def apply(q, k, cos, sin, position_ids=None, unsqueeze_dim=1, rotary_dim=None):
        """q, k [B, H, T, D], for unsqueeze_dim 2 [B, T, H, D]. position_ids have no effect, as in Liger-Kernel: cos and
        sin are theirs already."""
        if unsqueeze_dim == 2:
            q, k = F.rope(q.transpose(1, 2), k.transpose(1, 2), cos, sin, rotary_dim=rotary_dim)
            return q.transpose(1, 2), k.transpose(1, 2)
        return F.rope(q, k, cos, sin, rotary_dim=rotary_dim)


class LigerLlama4RopeFunction:
    @staticmethod
    @asserting
    def apply(q, k, freqs_cis, BLOCK_SIZE=None):
        """q, k [B, T, H, D] turn by pairs; freqs_cis complex, [T, D / 2] or [B, T, D / 2] in memory."""
        require(freqs_cis.is_complex(), f"freqs_cis.dtype is {str(freqs_cis.dtype)[6:]}, must be complex")
        table = freqs_cis.reshape(-1, q.shape[1], q.shape[-1] // 2)
        q, k = F.rope(q.transpose(1, 2), k.transpose(1, 2), table, interleaved=True)
        return q.transpose(1, 2), k.transpose(1, 2)


class LigerQwen2VLMRopeFunction:
    @staticmethod
    @asserting
    def apply(q, k, cos, sin, mrope_section, unsqueeze_dim=1):
        """LigerRopeFunction with cos, sin [3, B, T, D] of time, height and width, which have sections of D / 2 pairs."""
        if unsqueeze_dim == 2:
            q, k = F.rope(q.transpose(1, 2), k.transpose(1, 2), cos, sin, sections=mrope_section)
            return q.transpose(1, 2), k.transpose(1, 2)
        return F.rope(q, k, cos, sin, sections=mrope_section)


def liger_rms_norm(X, W, eps, offset: float = 0.0, casting_mode: str = "llama", in_place: bool = True):
    return LigerRMSNormFunction.apply(X, W, eps, offset, casting_mode)


def liger_fused_add_rms_norm(X, R, W, eps, offset: float = 0.0, casting_mode: str = "llama", in_place: bool = True):
    return LigerFusedAddRMSNormFunction.apply(X, R, W, eps, offset, casting_mode)


def liger_modulated_rms_norm(
    X,
    W,
    scale,
    shift=None,
    eps: float = 1e-6,
    offset: float = 0.0,
    casting_mode: str = "llama",
    in_place: bool = True,
):
    return LigerModulatedRMSNormFunction.apply(X, W, scale, shift, eps, offset, casting_mode)


def liger_layer_norm(X, W, B, eps):
    return LigerLayerNormFunction.apply(X, W, B, eps)


def liger_group_norm(X, affine_scaling_weight, affine_shifting_bias, num_channels, num_groups, eps):
    return LigerGroupNormFunction.apply(X, affine_scaling_weight, affine_shifting_bias, num_channels, num_groups, eps)


def liger_swiglu(a, b):
    return F.swiglu(a, b)


def liger_geglu(a, b):
    return F.geglu(a, b)


def liger_softmax(x):
    return F.softmax(x)


def liger_rope(q, k, cos, sin, position_ids=None, unsqueeze_dim=1, rotary_dim=None):
    return LigerRopeFunction.apply(q, k, cos, sin, position_ids, unsqueeze_dim, rotary_dim)


def liger_rotary_pos_emb(q, k, cos, sin, position_ids=None, unsqueeze_dim=1, rotary_dim=None):
    return LigerRopeFunction.apply(q, k, cos, sin, position_ids, unsqueeze_dim, rotary_dim)


def liger_rotary_pos_emb_gpt_oss(q, k, cos, sin):
    """For whole heads, with cos and sin [.., D / 2]."""
    return LigerRopeFunction.apply(q, k, cos, sin, rotary_dim=q.shape[-1])


def liger_rotary_pos_emb_vision(q, k, cos, sin):
    """q, k [T, H, D] in their own dtypes, computed in f32."""
    heads = [x.float().unsqueeze(0).transpose(1, 2) for x in (q, k)]
    turned = F.rope(*heads, cos.float(), sin.float())
    return tuple(y.transpose(1, 2).squeeze(0).to(x.dtype) for y, x in zip(turned, (q, k)))


def liger_llama4_text_rotary_pos_emb(xq, xk, freqs_cis):
    return LigerLlama4RopeFunction.apply(xq, xk, freqs_cis)


def liger_llama4_vision_rotary_pos_emb(query, key, freqs_ci):
    return LigerLlama4RopeFunction.apply(query, key, freqs_ci)


def apply_liger_llama4_rope_full(modeling_module):
    """Puts both functions into transformers' file of Llama 4."""
    modeling_module.apply_rotary_emb = liger_llama4_text_rotary_pos_emb
    modeling_module.vision_apply_rotary_emb = liger_llama4_vision_rotary_pos_emb


def liger_qwen2vl_mrope(q, k, cos, sin, mrope_section, unsqueeze_dim=1):
    return LigerQwen2VLMRopeFunction.apply(q, k, cos, sin, mrope_section, unsqueeze_dim)


def liger_multimodal_rotary_pos_emb(q, k, cos, sin, mrope_section, unsqueeze_dim=1):
    return LigerQwen2VLMRopeFunction.apply(q, k, cos, sin, mrope_section, unsqueeze_dim)
