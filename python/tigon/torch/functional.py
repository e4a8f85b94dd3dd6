"""Every operator as a function of torch tensors, forward and backward.

The contract of each is its header in include/tigon/op. Tensors stay on their own device and its current stream. Strided
views are taken as they are where the last stride is 1 and the leading dimensions have three strides at most (linear:
one). Tensors that lie otherwise are copied first, at each call. What an operator does not take raises the library's own
sentence, as a ValueError, TypeError (a dtype, no tensor, no number), NotImplementedError (no kernel for it),
RuntimeError (device) or MemoryError, and nothing is written.
Refused when somebody asks for them: a second derivative, forward-mode differentiation, the transforms of torch.func (vmap,
grad, ...), torch.jit.trace.

Under autocast, linear, attention and fused_linear_cross_entropy run in autocast's dtype, as torch's matmuls do; tensors
that must be of one dtype are promoted to the widest; everything else keeps its input's dtype, its arithmetic being f32
anyway (torch's own norms and losses give f32).
"""

from tigon.torch import operators

_FOUND = operators.public("FUNCTIONS")
__all__ = sorted(_FOUND)
globals().update(_FOUND)
