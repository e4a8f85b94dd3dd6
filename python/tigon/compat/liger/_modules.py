"""Liger-Kernel's modules, with its attributes. `in_place`, `row_mode`, `impl` and `mode` have no effect."""

import torch
from torch import nn

from ...torch import functional as F
from ...torch.nn import Embedding
from ._functional import LigerGroupNormFunction, LigerLayerNormFunction, LigerModulatedRMSNormFunction
from ._functional import LigerFusedAddRMSNormFunction, LigerRMSNormFunction
from ._losses import (
    LigerCrossEntropyFunction,
    LigerFusedLinearCrossEntropyFunction,
    check_loss_options,
    reported,
    require,
)


def _check_init(init_fn):
    require(init_fn in ("ones", "zeros"), f"init_fn is {init_fn!r}, must be 'ones' or 'zeros'")


def _filled(size, init_fn):
    _check_init(init_fn)
    return nn.Parameter(torch.ones(size) if init_fn == "ones" else torch.zeros(size))


# --- norms -----------------------------------------------------------------------------------------------------------


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
        _check_init(init_fn)
        self.register_parameter("weight", _filled(hidden_size, init_fn) if elementwise_affine else None)
        self.elementwise_affine, self.variance_epsilon, self.offset = elementwise_affine, eps, offset
        self.casting_mode, self.in_place, self.row_mode = casting_mode, in_place, row_mode

    @property
    def _options(self):
        return self.variance_epsilon, self.offset, self.casting_mode

    def forward(self, hidden_states):
        return LigerRMSNormFunction.apply(hidden_states, self.weight, *self._options)

    def extra_repr(self):
        return f"eps={self.variance_epsilon}, offset={self.offset}, casting_mode={self.casting_mode!r}"


class LigerRMSNormForGemma(LigerRMSNorm):
    def __init__(
        self, hidden_size, eps=1e-6, offset=1.0, casting_mode="gemma", init_fn="zeros", in_place=True, row_mode=None
    ):
        super().__init__(hidden_size, eps, offset, casting_mode, init_fn, in_place, row_mode)


class LigerRMSNormForGemma2(LigerRMSNorm):
    def __init__(
        self, hidden_size, eps=1e-6, offset=1.0, casting_mode="gemma", init_fn="zeros", in_place=False, row_mode=None
    ):
        super().__init__(hidden_size, eps, offset, casting_mode, init_fn, in_place, row_mode)


class LigerRMSNormForGemma3(LigerRMSNorm):
    def __init__(self, dim, eps=1e-6, offset=1.0, casting_mode="gemma", init_fn="zeros", in_place=False):
        super().__init__(dim, eps, offset, casting_mode, init_fn, in_place)


class LigerRMSNormForGemma4(LigerRMSNorm):
    def __init__(
        self, dim, eps=1e-6, offset=0.0, casting_mode="gemma", init_fn="ones", in_place=False, with_scale=True
    ):
        super().__init__(dim, eps, offset, casting_mode, init_fn, in_place, elementwise_affine=with_scale)
        self.with_scale = with_scale


class LigerRMSNormForMuseGlimmer(LigerRMSNormForGemma4):
    def __init__(
        self, dim=None, eps=1e-6, offset=0.0, casting_mode="gemma", init_fn="ones", in_place=False, with_scale=True
    ):
        super().__init__(dim, eps, offset, casting_mode, init_fn, in_place, with_scale)


class LigerRMSNormForOlmo2(LigerRMSNorm):
    def __init__(
        self, hidden_size, eps=1e-6, offset=0.0, casting_mode="llama", init_fn="ones", in_place=False, row_mode=None
    ):
        super().__init__(hidden_size, eps, offset, casting_mode, init_fn, in_place, row_mode)


LigerRMSNormForQwen3Next = LigerRMSNormForMuseGlimmerTextCentered = LigerRMSNormForGemma2
LigerRMSNormForGlm4 = LigerRMSNormForOlmo2


class LigerFusedAddRMSNorm(LigerRMSNorm):
    def __init__(self, hidden_size, eps=1e-6, offset=0.0, casting_mode="llama", init_fn="ones", in_place=False):
        super().__init__(hidden_size, eps, offset, casting_mode, init_fn, in_place)

    def forward(self, hidden_states, residual):
        return LigerFusedAddRMSNormFunction.apply(hidden_states, residual, self.weight, *self._options)


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
        super().__init__(hidden_size, eps, offset, casting_mode, init_fn, in_place, None, elementwise_affine)

    def forward(self, hidden_states, scale, shift=None):
        return LigerModulatedRMSNormFunction.apply(hidden_states, self.weight, scale, shift, *self._options)


class LigerLayerNorm(nn.Module):
    def __init__(self, hidden_size, eps=1e-6, bias=False, init_fn="ones", impl=None, mode=None, backend=None):
        super().__init__()
        self.hidden_size, self.eps, self.variance_epsilon = hidden_size, eps, eps
        self.impl, self.mode = backend if impl is None else impl, mode
        self.weight = _filled(hidden_size, init_fn)
        self.bias = nn.Parameter(torch.randn(hidden_size) if bias else torch.zeros(hidden_size))

    def forward(self, hidden_states):
        return LigerLayerNormFunction.apply(hidden_states, self.weight, self.bias, self.variance_epsilon)

    def extra_repr(self):
        return f"{self.hidden_size}, eps={self.eps}"


class LigerGroupNorm(nn.Module):
    def __init__(self, num_channels, num_groups, eps=1e-6, bias=False, init_fn="ones"):
        super().__init__()
        require(
            num_channels % num_groups == 0,
            f"num_channels is {num_channels}, must be a multiple of {num_groups} (num_groups)",
        )
        self.num_channels, self.num_groups, self.eps, self.variance_epsilon = num_channels, num_groups, eps, eps
        self.weight = _filled(num_channels, init_fn)
        self.bias = nn.Parameter(torch.randn(num_channels) if bias else torch.zeros(num_channels))

    def forward(self, hidden_states):
        options = self.num_channels, self.num_groups, self.variance_epsilon
        require(hidden_states.dim() >= 3, f"hidden_states.ndim is {hidden_states.dim()}, must be 3 or more")
        require(
            hidden_states.shape[1] == self.num_channels,
            f"hidden_states.shape[1] is {hidden_states.shape[1]}, must be {self.num_channels} (num_channels)",
        )
        return LigerGroupNormFunction.apply(hidden_states, self.weight, self.bias, *options)

    def extra_repr(self):
        return f"num_channels={self.num_channels}, num_groups={self.num_groups}, eps={self.eps}"


# --- activations and embedding ---------------------------------------------------------------------------------------


class LigerSoftmax(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        return F.softmax(x)


class LigerEmbedding(Embedding):
    """What padding_idx looks up is 0, whatever the weight holds there."""

    def __init__(self, num_embeddings, embedding_dim, padding_idx=None):
        super().__init__(num_embeddings, embedding_dim, padding_idx)

    def forward(self, indices):
        embedded = super().forward(indices)
        if self.padding_idx is None:
            return embedded
        return embedded.masked_fill((indices == self.padding_idx).unsqueeze(-1), 0)


# --- MLPs ------------------------------------------------------------------------------------------------------------


def _must_be_silu(hidden_act):
    if hidden_act not in ("silu", "swish"):
        raise ValueError(f"Activation function {hidden_act} not supported.")


class _GatedMLP(nn.Module):
    def __init__(self, config, intermediate_size=None, bias=False):
        super().__init__()
        self.config, self.hidden_size = config, config.hidden_size
        self.intermediate_size = config.intermediate_size if intermediate_size is None else intermediate_size
        self.gate_proj = nn.Linear(self.hidden_size, self.intermediate_size, bias=bias)
        self.up_proj = nn.Linear(self.hidden_size, self.intermediate_size, bias=bias)
        self.down_proj = nn.Linear(self.intermediate_size, self.hidden_size, bias=bias)


class LigerSwiGLUMLP(_GatedMLP):
    def __init__(self, config, intermediate_size=None):
        super().__init__(config, intermediate_size)
        _must_be_silu(config.hidden_act)

    def forward(self, x):
        return self.down_proj(F.swiglu(self.gate_proj(x), self.up_proj(x)))


LigerQwen3MoeSwiGLUMLP = LigerSwiGLUMLP


class LigerHunyuanV1SwiGLUMLP(LigerSwiGLUMLP):
    def __init__(self, config, layer_idx=None, is_shared_mlp=False):
        super().__init__(config)
        self.layer_idx = layer_idx


class LigerSwiGLUMLPForMuseGlimmer(LigerSwiGLUMLP):
    def __init__(self, config):
        _GatedMLP.__init__(self, config)
        _must_be_silu(getattr(config, "hidden_activation", None) or getattr(config, "hidden_act", None))


class LigerExperts(nn.Module):
    def __init__(self, config):
        super().__init__()
        names = ("num_experts", "num_local_experts", "n_routed_experts")
        self.num_experts = next(getattr(config, name) for name in names if hasattr(config, name))
        inner = "moe_intermediate_size" if hasattr(config, "moe_intermediate_size") else "intermediate_size"
        self.intermediate_dim, self.hidden_dim = getattr(config, inner), config.hidden_size
        self.gate_up_proj = nn.Parameter(torch.empty(self.num_experts, 2 * self.intermediate_dim, self.hidden_dim))
        self.down_proj = nn.Parameter(torch.empty(self.num_experts, self.hidden_dim, self.intermediate_dim))
        _must_be_silu(config.hidden_act)

    def forward(self, hidden_states, top_k_index, top_k_weights):
        tokens = hidden_states.shape[:-1]
        index, weights = (t.reshape(*tokens, t.shape[-1]) for t in (top_k_index, top_k_weights))
        return F.fused_moe(hidden_states, index, weights, self.gate_up_proj, self.down_proj)


class LigerFalconH1SwiGLUMLP(_GatedMLP):
    def __init__(self, config):
        super().__init__(config, bias=getattr(config, "mlp_bias", False))
        _must_be_silu(config.hidden_act)
        self.gate_multiplier, self.down_multiplier = map(float, config.mlp_multipliers)

    def forward(self, x):
        gate, up = self.gate_proj(x), self.up_proj(x)
        return self.down_proj(F.swiglu(gate, up, self.gate_multiplier, self.down_multiplier))


class LigerGEGLUMLP(_GatedMLP):
    def __init__(self, config):
        super().__init__(config)

    def forward(self, x):
        return self.down_proj(F.geglu(self.gate_proj(x), self.up_proj(x)))


class LigerGEGLUMLPForGemma4(LigerGEGLUMLP):
    """With use_double_wide_mlp, the layers that share keys and values are twice as wide."""

    def __init__(self, config, layer_idx=None):
        shared = getattr(config, "num_kv_shared_layers", 0)
        first = getattr(config, "num_hidden_layers", 0) - shared
        wide = getattr(config, "use_double_wide_mlp", False) and shared > 0 and layer_idx is not None
        wide = wide and layer_idx >= first
        _GatedMLP.__init__(self, config, 2 * config.intermediate_size if wide else None)


class LigerPhi3SwiGLUMLP(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config, self.hidden_size, self.intermediate_size = config, config.hidden_size, config.intermediate_size
        self.gate_up_proj = nn.Linear(self.hidden_size, 2 * self.intermediate_size, bias=False)
        self.down_proj = nn.Linear(self.intermediate_size, self.hidden_size, bias=False)
        _must_be_silu(config.hidden_act)

    def forward(self, x):
        return self.down_proj(F.swiglu_packed(self.gate_up_proj(x)))


class LigerBlockSparseTop2MLP(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.ffn_dim, self.hidden_dim = config.intermediate_size, config.hidden_size
        self.w1 = nn.Linear(self.hidden_dim, self.ffn_dim, bias=False)
        self.w2 = nn.Linear(self.ffn_dim, self.hidden_dim, bias=False)
        self.w3 = nn.Linear(self.hidden_dim, self.ffn_dim, bias=False)
        _must_be_silu(config.hidden_act)

    def forward(self, x):
        return self.w2(F.swiglu(self.w1(x), self.w3(x)))


# --- losses ----------------------------------------------------------------------------------------------------------


class LigerCrossEntropyLoss(nn.Module):
    def __init__(
        self,
        weight: torch.FloatTensor | None = None,
        ignore_index: int = -100,
        lse_square_scale: float = 0.0,
        label_smoothing: float = 0.0,
        reduction: str = "mean",
        softcap: float | None = None,
        return_z_loss: bool = False,
        return_token_accuracy: bool = False,
        return_predicted_tokens: bool = False,
    ):
        super().__init__()
        check_loss_options(label_smoothing, reduction, softcap)
        self.weight, self.ignore_index, self.reduction, self.softcap = weight, ignore_index, reduction, softcap
        self.lse_square_scale, self.label_smoothing = lse_square_scale, label_smoothing
        self.return_z_loss, self.return_token_accuracy = return_z_loss, return_token_accuracy
        self.return_predicted_tokens = return_predicted_tokens

    def forward(self, _input: torch.Tensor, target: torch.Tensor):
        wanted = self.return_z_loss, self.return_token_accuracy, self.return_predicted_tokens
        options = self.ignore_index, self.lse_square_scale, self.label_smoothing, self.reduction, self.softcap
        return reported(LigerCrossEntropyFunction.apply(_input, target, self.weight, *options, *wanted), *wanted)


class LigerFusedLinearCrossEntropyLoss(nn.Module):
    def __init__(
        self,
        ce_weight: torch.FloatTensor | None = None,
        ignore_index: int = -100,
        lse_square_scale: float = 0.0,
        label_smoothing: float = 0.0,
        reduction: str = "mean",
        softcap: float | None = None,
        return_z_loss: bool = False,
        accum_dtype: torch.dtype | None = None,
        use_token_scaling: bool = False,
        return_token_accuracy: bool = False,
        return_predicted_tokens: bool = False,
    ):
        super().__init__()
        check_loss_options(label_smoothing, reduction, softcap)
        self.ce_weight, self.ignore_index, self.reduction, self.softcap = ce_weight, ignore_index, reduction, softcap
        self.lse_square_scale, self.label_smoothing = lse_square_scale, label_smoothing
        self.accum_dtype, self.use_token_scaling = accum_dtype, use_token_scaling
        self.return_z_loss, self.return_token_accuracy = return_z_loss, return_token_accuracy
        self.return_predicted_tokens = return_predicted_tokens

    def forward(self, lin_weight, _input, target, bias=None):
        wanted = self.return_token_accuracy, self.return_predicted_tokens
        options = self.ignore_index, self.lse_square_scale, self.label_smoothing, self.reduction, self.softcap
        options += self.return_z_loss, self.accum_dtype, self.use_token_scaling
        outputs = LigerFusedLinearCrossEntropyFunction.apply(
            _input, lin_weight, target, bias, self.ce_weight, *options, *wanted
        )
        return reported(outputs, self.return_z_loss, *wanted)
