"""Liger-Kernel's MLPs in tiles. Its function tiles any callable of rows; the modules are Tigon's operator, of which the workspace
chooses the tiles, so that num_shards has no effect on them."""

import torch

from ...torch.operators.mlp import of_modules
from ._modules import _GatedMLP, _must_be_silu


class _Tiled(torch.autograd.Function):
    """fn(module, rows) shard by shard, made again in backward. The parameters are inputs: autograd gets each one's gradient
    once, of sums in f32 over the shards."""

    @staticmethod
    def forward(ctx, fn, module, shards, x, *parameters):
        ctx.fn, ctx.module, ctx.shards = fn, module, shards
        ctx.save_for_backward(x, *parameters)
        return torch.cat([fn(module, part) for part in x.chunk(shards)])

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, dy):
        x, *parameters = ctx.saved_tensors
        dx, sums, first = [], [None] * len(parameters), int(ctx.needs_input_grad[3])
        for part, upstream in zip(x.chunk(ctx.shards), dy.chunk(ctx.shards)):
            part = part.detach().requires_grad_(ctx.needs_input_grad[3])
            with torch.enable_grad():
                y = ctx.fn(ctx.module, part)
            inputs = [part] * first + parameters
            found = torch.autograd.grad(y, inputs, upstream, allow_unused=True)
            dx += found[:first]
            for i, gradient in enumerate(found[first:]):
                if gradient is not None:
                    sums[i] = gradient.float() if sums[i] is None else sums[i].add_(gradient)
        given = [s if s is None else s.to(p.dtype) for s, p in zip(sums, parameters)]
        return None, None, None, torch.cat(dx) if dx else None, *given


class LigerTiledMLPFunction:
    @staticmethod
    def apply(fn, mlp_module, x, shards, compute_params=None):
        parameters = mlp_module.parameters() if compute_params is None else compute_params
        flat = x.reshape(-1, x.shape[-1])
        y = _Tiled.apply(fn, mlp_module, shards, flat, *[p for p in parameters if p.requires_grad])
        return y.reshape(*x.shape[:-1], y.shape[-1])


def apply_tiled_mlp(fn, mlp_module, x, num_shards=None, compute_params=None):
    rows, hidden = x.numel() // x.shape[-1], x.shape[-1]
    shards = max(1, -(-rows // hidden) if num_shards is None else num_shards)
    return LigerTiledMLPFunction.apply(fn, mlp_module, x, shards, compute_params)


class _TiledMLP(_GatedMLP):
    activation = "silu"

    def __init__(self, config, num_shards=None):
        super().__init__(config)
        self.num_shards = num_shards

    def forward(self, x):
        return of_modules(x, self.gate_proj, self.up_proj, self.down_proj, activation=self.activation)


class LigerTiledSwiGLUMLP(_TiledMLP):
    def __init__(self, config, num_shards=None):
        super().__init__(config, num_shards)
        _must_be_silu(getattr(config, "hidden_act", "silu"))


class LigerTiledGEGLUMLP(_TiledMLP):
    activation = "gelu_tanh"

    def __init__(self, config, num_shards=None):
        super().__init__(config, num_shards)
        named = getattr(config, "hidden_act", "gelu_pytorch_tanh")
        if named not in ("gelu", "gelu_new", "gelu_pytorch_tanh"):
            raise ValueError(f"LigerTiledGEGLUMLP requires GELU activation, got {named}")
