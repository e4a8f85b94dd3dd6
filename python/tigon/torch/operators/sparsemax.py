"""sparsemax, softmax with exact zeros, and Liger-Kernel's names of it."""

import torch

from tigon.torch._derived import derived
from tigon.torch._sharding import rows
from tigon.torch.operators import Reference

FUNCTIONS = ["sparsemax"]
MODULES = ["Sparsemax"]
SHARDING = {"sparsemax": rows()}


def _plain(x):
    z = x if x.dtype == torch.float64 else x.float()
    z = z - z.amax(-1, keepdim=True)
    largest = z.sort(-1, descending=True).values
    sums = largest.cumsum(-1) - 1
    ranks = torch.arange(1, x.shape[-1] + 1, device=x.device, dtype=z.dtype)
    count = (ranks * largest > sums).sum(-1, keepdim=True)
    return torch.relu(z - sums.gather(-1, count - 1) / count).to(x.dtype)


REFERENCE = Reference(_plain, [(2, 5, 33)])

_Sparsemax = derived("sparsemax")


def sparsemax(x, dim=-1):
    """max(x - tau, 0) with tau such that it sums to 1 over `dim`: the probabilities that are nearest to x, most of them
    exactly 0. x f32, bf16 or f16. Of another dimension than the last one x is copied."""
    return _Sparsemax(x) if dim == -1 or dim == x.ndim - 1 else _Sparsemax(x.movedim(dim, -1)).movedim(-1, dim)


class Sparsemax(torch.nn.Module):
    """functional.sparsemax over `dim`."""

    def __init__(self, dim=-1):
        super().__init__()
        self.dim = dim

    def forward(self, x):
        return sparsemax(x, self.dim)

    def extra_repr(self):
        return f"dim={self.dim}"


def liger_sparsemax(input, dim=-1):
    return sparsemax(input, dim)


class LigerSparsemaxFunction:
    @staticmethod
    def apply(x, dim):
        return sparsemax(x, dim)


class LigerSparsemax(Sparsemax):
    """Sparsemax by Liger-Kernel's name."""
