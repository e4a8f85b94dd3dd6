"""Norms whose rows have a scale of their own: group_norm, modulated_rms_norm."""

import torch

from tigon.torch._autograd import as_parameters, promoted
from tigon.torch._derived import derived
from tigon.torch.operators.norms import CASTING, EPS

FUNCTIONS = ["group_norm", "modulated_rms_norm"]
MODULES = ["GroupNorm"]


_GroupNorm = derived("group_norm", parameters=2)


def group_norm(x, num_groups, weight=None, bias=None, eps=1e-5):
    """y = (x - mean) * rstd * weight[c] + bias[c], mean and rstd over a batch's group of C / num_groups channels.

    x [B, C, ...spatial] f32, bf16 or f16, copied unless the spatial dimensions lie end to end; weight, bias [C], f32 or
    as x, or None. y has x's dtype.
    """
    return _GroupNorm(x, weight, bias, (num_groups, eps))


_ModulatedRMSNorm = derived("modulated_rms_norm")


def modulated_rms_norm(x, scale, shift=None, weight=None, eps=1e-6, offset=0.0, casting="llama"):
    """y = (1 + scale) * rms_norm(x, weight, eps, offset, casting) + shift, as adaptive layer norms have it.

    x [..., C] f32, bf16 or f16. scale [C], [B, 1, C], or [G, C] for G groups of rows that follow each other; f32 or as
    x. G is a product of x's first dimensions: [B, C] or [B * T, C] for x [B, T, C]. shift as scale, or None. y has x's
    dtype.
    """
    casting = CASTING[casting]
    scale, shift, weight = as_parameters(x, scale, shift, weight)
    if shift is not None:
        scale, shift = promoted(scale, shift)
    return _ModulatedRMSNorm(x, weight, scale, shift, (EPS if eps is None else eps, offset, casting))


class GroupNorm(torch.nn.GroupNorm):
    def forward(self, x):
        return group_norm(x, self.num_groups, self.weight, self.bias, self.eps)
