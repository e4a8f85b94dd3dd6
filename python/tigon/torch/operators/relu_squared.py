"""relu_squared, and Liger-Kernel's names of it."""

import torch

from tigon.torch._derived import derived
from tigon.torch._sharding import elements
from tigon.torch.operators import Reference

FUNCTIONS = ["relu_squared"]
MODULES = ["ReLUSquared"]
SHARDING = {"relu_squared": elements}
REFERENCE = Reference(lambda x: torch.relu(x).square(), [(2, 5, 33)])

_ReLUSquared = derived("relu_squared")


def relu_squared(x):
    """max(x, 0)^2. x f32, bf16 or f16."""
    return _ReLUSquared(x)


class ReLUSquared(torch.nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        return relu_squared(x)


class LigerReLUSquaredFunction:
    @staticmethod
    def apply(X):
        return relu_squared(X)


class LigerReLUSquared(ReLUSquared):
    """ReLUSquared by Liger-Kernel's name."""


def liger_relu_squared(x):
    return relu_squared(x)
