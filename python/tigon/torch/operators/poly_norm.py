"""poly_norm, a weighted sum of normalised powers, and Liger-Kernel's names of it."""

import torch

from tigon.torch._autograd import fitting
from tigon.torch._derived import derived
from tigon.torch._sharding import rows
from tigon.torch.operators import Parameter, Reference

FUNCTIONS = ["poly_norm"]
MODULES = ["PolyNorm"]
SHARDING = {"poly_norm": rows("w", "b")}


def _plain(x, weight, bias):
    powers = [x**3, x**2, x]
    normed = [u * torch.rsqrt(u.square().mean(-1, keepdim=True) + 1e-6) for u in powers]
    return sum(w * n for w, n in zip(weight, normed)) + bias


REFERENCE = Reference(_plain, [(2, 5, 33), Parameter((3,)), Parameter((1,))])

_PolyNorm = derived("poly_norm", parameters=2)


def poly_norm(x, weight, bias=None, eps=1e-6):
    """weight[0] n(x^3) + weight[1] n(x^2) + weight[2] n(x) + bias with n(u) = u / sqrt(mean(u^2) + eps), over the last
    dimension. x [..., C] f32, bf16 or f16; weight [3], bias [1], f32 or as x. y has x's dtype."""
    return _PolyNorm(x, weight, bias, (eps,))


class PolyNorm(torch.nn.Module):
    """functional.poly_norm over the last dimension."""

    def __init__(self, eps=1e-6, bias=True, device=None, dtype=None):
        super().__init__()
        self.eps = eps
        self.weight = torch.nn.Parameter(torch.full((3,), 1 / 3, device=device, dtype=dtype))
        self.bias = torch.nn.Parameter(torch.ones(1, device=device, dtype=dtype)) if bias else None

    def forward(self, x):
        return poly_norm(x, self.weight, self.bias, self.eps)

    def extra_repr(self):
        return f"eps={self.eps}, bias={self.bias is not None}"


def liger_poly_norm(X, W, B, eps=1e-6, in_place=True):
    return poly_norm(X, *fitting(X, W, B.reshape(1)), eps)


class LigerPolyNormFunction:
    apply = staticmethod(liger_poly_norm)


class LigerPolyNorm(PolyNorm):
    def __init__(self, eps=1e-6, in_place=True):
        super().__init__(eps)
        self.bias = torch.nn.Parameter(torch.tensor(1.0))
        self.variance_epsilon, self.in_place = eps, in_place

    def forward(self, hidden_states):
        return liger_poly_norm(hidden_states, self.weight, self.bias, self.variance_epsilon)
