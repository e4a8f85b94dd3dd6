"""Liger-Kernel's names on Tigon's operators, under its paths: `liger_kernel` in an import becomes `tigon.compat.liger`.

    from tigon.compat.liger.transformers import LigerRMSNorm, apply_liger_kernel_to_llama
    from tigon.compat.liger.transformers.functional import liger_cross_entropy
    from tigon.compat.liger.ops import LigerSiLUMulFunction

A loss has the dtype that Liger-Kernel gives it: that of the logits in cross entropy, f32 in fused linear cross entropy;
either is computed in f32. All names are here, too. Names without an operator are missing, and f64 is a TypeError.
`in_place`, `row_mode`, `impl`, `mode`, `accum_dtype` and `chunk_mem_const` are taken and have no effect: Tigon overwrites
no input and sums in f32. docs/liger.md is the manual."""

import sys

from ._losses import LigerError  # noqa: F401
from ._paths import build

build(sys.modules[__name__])
