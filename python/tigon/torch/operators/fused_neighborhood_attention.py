"""Neighbourhood attention by Liger-Kernel's names: attention with a window to both sides and a dilation. At the ends of
a sequence neighbourhoods are clipped, in Liger-Kernel too; NATTEN shifts them."""

import math

import torch

from tigon.torch.operators.attention import attention
from tigon.torch.operators.norms import LayerNorm


def _neighbourhood(query, key, value, kernel_size, dilation, scale):
    return attention(query, key, value, scale, causal=False, window=kernel_size // 2 + 1, dilation=dilation)


def liger_fused_neighborhood_attention(query, key, value, kernel_size=7, dilation=1, scale=None):
    """Query t sees the kernel_size keys around it, `dilation` apart, as far as they exist."""
    return _neighbourhood(query, key, value, kernel_size, dilation, scale)


class LigerFusedNeighborhoodAttentionFunction:
    @staticmethod
    def apply(query, key, value, kernel_size=7, dilation=1, scale=None):
        return _neighbourhood(query, key, value, kernel_size, dilation, scale)


class LigerFusedNeighborhoodAttention(torch.nn.Module):
    """Self-attention of hidden states [B, T, hidden_size] over neighbourhoods, with its four projections."""

    def __init__(self, hidden_size, num_heads, kernel_size=7, dilation=1, bias=True, dropout=0.0, scale=None):
        super().__init__()
        if hidden_size % num_heads:
            raise ValueError(f"hidden_size is {hidden_size}, must be a multiple of {num_heads} (num_heads)")
        if kernel_size < 1 or kernel_size % 2 == 0:
            raise ValueError(f"kernel_size is {kernel_size}, must be odd and >= 1")
        if dilation < 1:
            raise ValueError(f"dilation is {dilation}, must be >= 1")
        self.hidden_size, self.num_heads, self.head_dim = hidden_size, num_heads, hidden_size // num_heads
        self.kernel_size, self.dilation, self.dropout_p = kernel_size, dilation, dropout
        self.scale = 1 / math.sqrt(self.head_dim) if scale is None else scale
        for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
            setattr(self, name, torch.nn.Linear(hidden_size, hidden_size, bias=bias))
        self.dropout = torch.nn.Dropout(dropout) if dropout > 0 else None

    def forward(self, hidden_states, attention_mask=None):
        if attention_mask is not None:
            raise NotImplementedError("LigerFusedNeighborhoodAttention takes no attention_mask")
        heads = [
            project(hidden_states).unflatten(-1, (self.num_heads, self.head_dim)).transpose(1, 2)
            for project in (self.q_proj, self.k_proj, self.v_proj)
        ]
        o = _neighbourhood(*heads, self.kernel_size, self.dilation, self.scale).transpose(1, 2).flatten(-2)
        return self.out_proj(o if self.dropout is None else self.dropout(o))

    def extra_repr(self):
        names = ("hidden_size", "num_heads", "head_dim", "kernel_size", "dilation", "scale")
        return ", ".join(f"{name}={getattr(self, name)}" for name in names) + f", dropout={self.dropout_p}"


class LigerFusedNeighborhoodAttentionLayer(torch.nn.Module):
    """hidden_states + attention of their layer norm; dropout is in the attention, and behind it again."""

    def __init__(
        self,
        hidden_size,
        num_heads,
        kernel_size=7,
        dilation=1,
        bias=True,
        dropout=0.0,
        layer_norm_eps=1e-5,
        scale=None,
    ):
        super().__init__()
        options = hidden_size, num_heads, kernel_size, dilation, bias, dropout, scale
        self.attention = LigerFusedNeighborhoodAttention(*options)
        self.layer_norm = LayerNorm(hidden_size, eps=layer_norm_eps)
        self.dropout = torch.nn.Dropout(dropout) if dropout > 0 else None

    def forward(self, hidden_states, attention_mask=None):
        o = self.attention(self.layer_norm(hidden_states), attention_mask)
        return hidden_states + (o if self.dropout is None else self.dropout(o))


class LigerFusedNeighborhoodAttentionConfig:
    """The layer's arguments, as attributes and as a dict."""

    def __init__(
        self,
        hidden_size=768,
        num_heads=12,
        kernel_size=7,
        dilation=1,
        bias=True,
        dropout=0.0,
        layer_norm_eps=1e-5,
        scale=None,
    ):
        self.hidden_size, self.num_heads, self.scale = hidden_size, num_heads, scale
        self.kernel_size, self.dilation = kernel_size, dilation
        self.bias, self.dropout, self.layer_norm_eps = bias, dropout, layer_norm_eps

    def to_dict(self):
        return dict(vars(self))
