"""The names of liger_kernel.transformers, with their arguments in their order, on Tigon's operators.

    from tigon.compat.liger import LigerRMSNorm, liger_cross_entropy, AutoLigerKernelForCausalLM, ...

Names without an operator here are missing, and an option that Tigon has not raises NotImplementedError. `in_place`,
`row_mode`, `impl`, `mode`, `accum_dtype` and `chunk_mem_const` are taken and have no effect: Tigon overwrites no input
and sums in f32."""

import functools
from dataclasses import dataclass

import torch
from torch import nn

from ..huggingface import AutoModelForCausalLM, patch, patch_class
from ..torch import functional as F
from ..torch.nn import Embedding


@dataclass
class CrossEntropyOutput:
    loss: torch.Tensor
    z_loss: torch.Tensor | None = None
    token_accuracy: torch.Tensor | None = None
    predicted_tokens: torch.Tensor | None = None


# --- functions -------------------------------------------------------------------------------------------------------


def liger_rms_norm(X, W, eps, offset=0.0, casting_mode="llama", in_place=True):
    return F.rms_norm(X, W, eps, offset, casting_mode)


def liger_fused_add_rms_norm(X, R, W, eps, offset=0.0, casting_mode="llama", in_place=True):
    return F.fused_add_rms_norm(X, R, W, eps, offset, casting_mode)


def liger_modulated_rms_norm(X, W, scale, shift=None, eps=1e-6, offset=0.0, casting_mode="llama", in_place=True):
    return F.modulated_rms_norm(X, scale, shift, W, eps, offset, casting_mode)


def liger_layer_norm(X, W, B, eps):
    return F.layer_norm(X, W, B, eps)


def liger_group_norm(X, affine_scaling_weight, affine_shifting_bias, num_channels, num_groups, eps):
    return F.group_norm(X, num_groups, affine_scaling_weight, affine_shifting_bias, eps)


def liger_swiglu(a, b):
    return F.swiglu(a, b)


def liger_geglu(a, b):
    return F.geglu(a, b)


def liger_relu_squared(x):
    return F.relu_squared(x)


def liger_softmax(x):
    return F.softmax(x)


def liger_rope(q, k, cos, sin, position_ids=None, unsqueeze_dim=1, rotary_dim=None):
    """q, k [B, H, T, D], for unsqueeze_dim 2 [B, T, H, D]. position_ids have no effect, as in Liger: cos and sin are
    theirs already."""
    if unsqueeze_dim == 2:
        q, k = F.rope(q.transpose(1, 2), k.transpose(1, 2), cos, sin, rotary_dim=rotary_dim)
        return q.transpose(1, 2), k.transpose(1, 2)
    return F.rope(q, k, cos, sin, rotary_dim=rotary_dim)


liger_rotary_pos_emb = liger_rope


def liger_cross_entropy(
    input,
    target,
    weight=None,
    size_average=None,
    ignore_index=-100,
    reduce=None,
    reduction="mean",
    label_smoothing=0.0,
    lse_square_scale=0.0,
    softcap=None,
    return_z_loss=False,
    return_token_accuracy=False,
    return_predicted_tokens=False,
):
    arguments = (input, target, weight, ignore_index, reduction, label_smoothing, lse_square_scale, softcap)
    if not (return_z_loss or return_token_accuracy or return_predicted_tokens):
        return F.cross_entropy(*arguments)
    outputs = F.cross_entropy_outputs(*arguments)
    counted = target != ignore_index
    tokens = counted.sum()
    right = (outputs.argmax == target).float() * counted
    z_loss = {"none": outputs.z_loss, "sum": outputs.z_loss.sum(), "mean": outputs.z_loss.sum() / tokens}[reduction]
    return CrossEntropyOutput(
        outputs.loss,
        z_loss if return_z_loss else None,
        (right if reduction == "none" else right.sum() / tokens) if return_token_accuracy else None,
        outputs.argmax if return_predicted_tokens else None,
    )


def liger_fused_linear_cross_entropy(
    input,
    weight,
    target,
    bias=None,
    ce_weight=None,
    ignore_index=-100,
    lse_square_scale=0.0,
    label_smoothing=0.0,
    reduction="mean",
    softcap=None,
    return_z_loss=False,
    accum_dtype=None,
    use_token_scaling=False,
    return_token_accuracy=False,
    return_predicted_tokens=False,
    chunk_mem_const=1,
):
    unknown = dict(
        return_z_loss=return_z_loss,
        use_token_scaling=use_token_scaling,
        return_token_accuracy=return_token_accuracy,
        return_predicted_tokens=return_predicted_tokens,
    )
    for name, wanted in unknown.items():
        if wanted:
            raise NotImplementedError(f"liger_fused_linear_cross_entropy: {name} is {wanted!r}, must be False")
    return F.fused_linear_cross_entropy(
        input, weight, target, bias, ce_weight, ignore_index, reduction, label_smoothing, lse_square_scale, softcap
    )


# --- modules ---------------------------------------------------------------------------------------------------------


def _filled(size, init_fn):
    if init_fn not in ("ones", "zeros"):
        raise ValueError(f"init_fn is {init_fn!r}, must be 'ones' or 'zeros'")
    return nn.Parameter(torch.ones(size) if init_fn == "ones" else torch.zeros(size))


class LigerRMSNorm(nn.Module):
    def __init__(
        self,
        hidden_size,
        eps=1e-6,
        offset=0.0,
        casting_mode="llama",
        init_fn="ones",
        in_place=True,
        row_mode=None,
        elementwise_affine=True,
    ):
        super().__init__()
        self.register_parameter("weight", _filled(hidden_size, init_fn) if elementwise_affine else None)
        self.variance_epsilon, self.offset, self.casting_mode = eps, offset, casting_mode

    def forward(self, hidden_states):
        return F.rms_norm(hidden_states, self.weight, self.variance_epsilon, self.offset, self.casting_mode)

    def extra_repr(self):
        return f"eps={self.variance_epsilon}, offset={self.offset}, casting_mode={self.casting_mode!r}"


class LigerRMSNormForGemma(LigerRMSNorm):
    def __init__(self, hidden_size, eps=1e-6, offset=1.0, casting_mode="gemma", init_fn="zeros", *args, **kwargs):
        super().__init__(hidden_size, eps, offset, casting_mode, init_fn, *args, **kwargs)


class LigerRMSNormForGemma3(LigerRMSNormForGemma):
    def __init__(self, dim, *args, **kwargs):
        super().__init__(dim, *args, **kwargs)


LigerRMSNormForGemma2 = LigerRMSNormForQwen3Next = LigerRMSNormForGemma
LigerRMSNormForOlmo2 = LigerRMSNormForGlm4 = LigerRMSNorm


class LigerFusedAddRMSNorm(LigerRMSNorm):
    def __init__(self, hidden_size, eps=1e-6, offset=0.0, casting_mode="llama", init_fn="ones", in_place=False):
        super().__init__(hidden_size, eps, offset, casting_mode, init_fn)

    def forward(self, hidden_states, residual):
        options = self.variance_epsilon, self.offset, self.casting_mode
        return F.fused_add_rms_norm(hidden_states, residual, self.weight, *options)


class LigerModulatedRMSNorm(LigerRMSNorm):
    def __init__(
        self,
        hidden_size,
        eps=1e-6,
        offset=0.0,
        casting_mode="llama",
        init_fn="ones",
        in_place=True,
        elementwise_affine=True,
    ):
        super().__init__(hidden_size, eps, offset, casting_mode, init_fn, elementwise_affine=elementwise_affine)

    def forward(self, hidden_states, scale, shift=None):
        options = self.variance_epsilon, self.offset, self.casting_mode
        return F.modulated_rms_norm(hidden_states, scale, shift, self.weight, *options)


class LigerLayerNorm(nn.Module):
    def __init__(self, hidden_size, eps=1e-6, bias=False, init_fn="ones", impl=None, mode=None, backend=None):
        super().__init__()
        self.hidden_size, self.variance_epsilon = hidden_size, eps
        self.weight = _filled(hidden_size, init_fn)
        self.bias = nn.Parameter(torch.randn(hidden_size) if bias else torch.zeros(hidden_size))

    def forward(self, hidden_states):
        return F.layer_norm(hidden_states, self.weight, self.bias, self.variance_epsilon)

    def extra_repr(self):
        return f"{self.hidden_size}, eps={self.variance_epsilon}"


class LigerGroupNorm(nn.Module):
    def __init__(self, num_channels, num_groups, eps=1e-6, bias=False, init_fn="ones"):
        super().__init__()
        self.num_channels, self.num_groups, self.variance_epsilon = num_channels, num_groups, eps
        self.weight = _filled(num_channels, init_fn)
        self.bias = nn.Parameter(torch.randn(num_channels) if bias else torch.zeros(num_channels))

    def forward(self, hidden_states):
        return F.group_norm(hidden_states, self.num_groups, self.weight, self.bias, self.variance_epsilon)

    def extra_repr(self):
        return f"num_channels={self.num_channels}, num_groups={self.num_groups}, eps={self.variance_epsilon}"


class LigerReLUSquared(nn.Module):
    def forward(self, x):
        return F.relu_squared(x)


class LigerSoftmax(nn.Module):
    def forward(self, x):
        return F.softmax(x)


class LigerEmbedding(Embedding):
    """Liger's transformers.experimental.embedding: what padding_idx looks up is 0, whatever the weight holds there."""

    def __init__(self, num_embeddings, embedding_dim, padding_idx=None):
        super().__init__(num_embeddings, embedding_dim, padding_idx)

    def forward(self, indices):
        embedded = super().forward(indices)
        if self.padding_idx is None:
            return embedded
        return embedded.masked_fill((indices == self.padding_idx).unsqueeze(-1), 0)


class _GatedMLP(nn.Module):
    def __init__(self, config, intermediate_size=None, bias=False):
        super().__init__()
        self.config, self.hidden_size = config, config.hidden_size
        self.intermediate_size = config.intermediate_size if intermediate_size is None else intermediate_size
        self.gate_proj = nn.Linear(self.hidden_size, self.intermediate_size, bias=bias)
        self.up_proj = nn.Linear(self.hidden_size, self.intermediate_size, bias=bias)
        self.down_proj = nn.Linear(self.intermediate_size, self.hidden_size, bias=bias)


def _must_be_silu(config):
    if config.hidden_act not in ("silu", "swish"):
        raise ValueError(f"Activation function {config.hidden_act} not supported.")


class LigerSwiGLUMLP(_GatedMLP):
    def __init__(self, config, intermediate_size=None):
        super().__init__(config, intermediate_size)
        _must_be_silu(config)

    def forward(self, x):
        return self.down_proj(F.swiglu(self.gate_proj(x), self.up_proj(x)))


LigerQwen3MoeSwiGLUMLP = LigerSwiGLUMLP


class LigerFalconH1SwiGLUMLP(_GatedMLP):
    def __init__(self, config):
        super().__init__(config, bias=getattr(config, "mlp_bias", False))
        _must_be_silu(config)
        self.gate_multiplier, self.down_multiplier = map(float, config.mlp_multipliers)

    def forward(self, x):
        gate, up = self.gate_proj(x), self.up_proj(x)
        return self.down_proj(F.swiglu(gate, up, self.gate_multiplier, self.down_multiplier))


class LigerGEGLUMLP(_GatedMLP):
    def forward(self, x):
        return self.down_proj(F.geglu(self.gate_proj(x), self.up_proj(x)))


class LigerPhi3SwiGLUMLP(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config, self.hidden_size, self.intermediate_size = config, config.hidden_size, config.intermediate_size
        self.gate_up_proj = nn.Linear(self.hidden_size, 2 * self.intermediate_size, bias=False)
        self.down_proj = nn.Linear(self.intermediate_size, self.hidden_size, bias=False)
        _must_be_silu(config)

    def forward(self, x):
        return self.down_proj(F.swiglu_packed(self.gate_up_proj(x)))


class LigerBlockSparseTop2MLP(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.ffn_dim, self.hidden_dim = config.intermediate_size, config.hidden_size
        self.w1 = nn.Linear(self.hidden_dim, self.ffn_dim, bias=False)
        self.w2 = nn.Linear(self.ffn_dim, self.hidden_dim, bias=False)
        self.w3 = nn.Linear(self.hidden_dim, self.ffn_dim, bias=False)
        _must_be_silu(config)

    def forward(self, x):
        return self.w2(F.swiglu(self.w1(x), self.w3(x)))


class LigerCrossEntropyLoss(nn.Module):
    def __init__(
        self,
        weight=None,
        ignore_index=-100,
        lse_square_scale=0.0,
        label_smoothing=0.0,
        reduction="mean",
        softcap=None,
        return_z_loss=False,
        return_token_accuracy=False,
        return_predicted_tokens=False,
    ):
        super().__init__()
        self.weight = weight
        self.options = dict(
            ignore_index=ignore_index,
            lse_square_scale=lse_square_scale,
            label_smoothing=label_smoothing,
            reduction=reduction,
            softcap=softcap,
            return_z_loss=return_z_loss,
            return_token_accuracy=return_token_accuracy,
            return_predicted_tokens=return_predicted_tokens,
        )

    def forward(self, _input, target):
        return liger_cross_entropy(_input, target, self.weight, **self.options)


class LigerFusedLinearCrossEntropyLoss(nn.Module):
    def __init__(
        self,
        ce_weight=None,
        ignore_index=-100,
        lse_square_scale=0.0,
        label_smoothing=0.0,
        reduction="mean",
        softcap=None,
        return_z_loss=False,
        accum_dtype=None,
        use_token_scaling=False,
        return_token_accuracy=False,
        return_predicted_tokens=False,
    ):
        super().__init__()
        self.ce_weight = ce_weight
        self.options = dict(
            ignore_index=ignore_index,
            lse_square_scale=lse_square_scale,
            label_smoothing=label_smoothing,
            reduction=reduction,
            softcap=softcap,
            return_z_loss=return_z_loss,
            use_token_scaling=use_token_scaling,
            return_token_accuracy=return_token_accuracy,
            return_predicted_tokens=return_predicted_tokens,
        )

    def forward(self, lin_weight, _input, target, bias=None):
        return liger_fused_linear_cross_entropy(_input, lin_weight, target, bias, self.ce_weight, **self.options)


# --- models ----------------------------------------------------------------------------------------------------------

_KINDS = dict(rope="rope", rms_norm="rms_norm", swiglu="mlp", geglu="mlp", layer_norm="layer_norm")


def _kinds(options):
    """tigon.patch's arguments for those of an apply_liger_kernel_to_*."""
    if options.get("cross_entropy"):
        raise NotImplementedError("cross_entropy is True, must be False: fused_linear_cross_entropy is there instead")
    kinds = {_KINDS[name]: wanted for name, wanted in options.items() if name in _KINDS}
    return kinds | dict(loss=options.get("fused_linear_cross_entropy", True))


def _apply_liger_kernel_to_instance(model, **kwargs):
    patch(model, **_kinds(kwargs))


def _apply_liger_kernel(model_type, model=None, **kwargs):
    """To the model, or without one to every model of the type that is made from now on."""
    if model is not None:
        return _apply_liger_kernel_to_instance(model, **kwargs)
    import transformers

    patch_class(getattr(transformers, _class_names()[model_type]), **_kinds(kwargs))


def _class_names():
    from transformers.models.auto import modeling_auto

    vision = modeling_auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES
    return dict(vision) | dict(modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)


def __getattr__(name):
    """apply_liger_kernel_to_<type>, for every causal language model that transformers has."""
    prefix = "apply_liger_kernel_to_"
    if name.startswith(prefix) and name.removeprefix(prefix) in _class_names():
        return functools.partial(_apply_liger_kernel, name.removeprefix(prefix))
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class AutoLigerKernelForCausalLM:
    """AutoModelForCausalLM; the keyword arguments of apply_liger_kernel_to_* choose what is replaced."""

    @staticmethod
    def from_pretrained(*args, **kwargs):
        options = {name: kwargs.pop(name) for name in _OPTIONS & kwargs.keys()}
        return AutoModelForCausalLM.from_pretrained(*args, tigon=_kinds(options), **kwargs)

    @staticmethod
    def from_config(*args, **kwargs):
        options = {name: kwargs.pop(name) for name in _OPTIONS & kwargs.keys()}
        return AutoModelForCausalLM.from_config(*args, tigon=_kinds(options), **kwargs)


_OPTIONS = {"cross_entropy", "fused_linear_cross_entropy", *_KINDS}
