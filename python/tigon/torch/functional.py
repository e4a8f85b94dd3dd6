"""Every operator as a function of torch tensors, forward and backward.

The contract of each is its header in include/tigon/op. Tensors stay on their own device and its current stream. Strided
views are taken as they are where the last stride is 1 and the leading dimensions have three strides at most (linear:
one). Tensors that lie otherwise are copied first, at each call.

An operator raises the library's own sentence for what it does not take, and then nothing is written. The class is
ValueError, TypeError (a dtype, no tensor, no number), NotImplementedError (no kernel for it), RuntimeError (device) or
MemoryError. A second derivative, forward-mode differentiation, the transforms of torch.func (vmap, grad, ...) and
torch.jit.trace are refused.

Under autocast, linear, attention, mlp, fused_moe, linear_logprob and the fused_linear_ functions run in autocast's
dtype, as torch's matmuls do. Tensors that must be of one dtype are promoted to the widest. Other operators keep their
input's dtype, because their arithmetic is f32 anyway. There torch's own norms and losses give f32.
"""

from tigon.torch import operators

_FOUND = operators.public("FUNCTIONS")
__all__ = sorted(_FOUND)
globals().update(_FOUND)
