"""dyt, dynamic tanh, and Liger-Kernel's names of it."""

import torch

from tigon.torch._autograd import fitting
from tigon.torch._derived import derived
from tigon.torch._sharding import rows
from tigon.torch.operators import Parameter, Reference

FUNCTIONS = ["dyt"]
MODULES = ["DyT"]
SHARDING = {"dyt": rows("alpha", "gamma", "beta")}
REFERENCE = Reference(
    lambda x, alpha, gamma, beta: gamma * torch.tanh(alpha * x) + beta,
    [(2, 5, 33), Parameter((1,)), Parameter((33,)), Parameter((33,))],
)

_DyT = derived("dyt", parameters=3)


def dyt(x, alpha, gamma, beta=None):
    """gamma * tanh(alpha * x) + beta. x [..., C] f32, bf16 or f16; alpha [1], gamma, beta [C], f32 or as x. y has x's dtype."""
    return _DyT(x, alpha, gamma, beta)


class DyT(torch.nn.Module):
    """functional.dyt over the last dimension, of `size`, in the place of a norm."""

    def __init__(self, size, alpha=0.5, bias=True, device=None, dtype=None):
        super().__init__()
        self.alpha = torch.nn.Parameter(torch.full((1,), alpha, device=device, dtype=dtype))
        self.gamma = torch.nn.Parameter(torch.ones(size, device=device, dtype=dtype))
        self.beta = torch.nn.Parameter(torch.zeros(size, device=device, dtype=dtype)) if bias else None

    def forward(self, x):
        return dyt(x, self.alpha, self.gamma, self.beta)

    def extra_repr(self):
        return f"{len(self.gamma)}, bias={self.beta is not None}"


def liger_dyt(x, alpha, gamma, beta):
    return dyt(x, *fitting(x, alpha, gamma, beta))


class LigerDyTFunction:
    apply = staticmethod(liger_dyt)


class LigerDyT(DyT):
    def __init__(self, hidden_size, beta=True, init_alpha=0.5):
        super().__init__(hidden_size, init_alpha, beta)
        self.hidden_size, self.init_alpha = hidden_size, init_alpha

    def forward(self, x):
        return liger_dyt(x, self.alpha, self.gamma, self.beta)

    def extra_repr(self):
        return f"{self.hidden_size}, init_alpha={self.init_alpha}, beta={self.beta}"
