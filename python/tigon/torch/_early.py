"""Losses whose gradient is made with them: one pass over what two passes would read."""

import torch

from tigon.torch._autograd import autograd_function
from tigon.torch._scale import is_plain, scaled

_LEAST = 1 << 20  # bytes of logits: a pass over fewer takes less time than a call


def is_early(logits):
    """Is the gradient of a mean or sum made with the loss? Not f16's, whose loss is scaled later, and not in compiled
    code, where backward could not take its memory."""
    if torch.compiler.is_compiling() or not (is_plain(logits) and torch.is_grad_enabled() and logits.requires_grad):
        return False
    return logits.dtype != torch.float16 and logits.nbytes >= _LEAST


def early(name, op):
    """The loss of `op`, whose last option says that it makes the gradient of the logits, too."""

    def forward(ctx, logits, link, *given):
        """Backward needs the gradient, and not the logits, whose memory may go. `link`, of no elements, has their
        graph: by it a derivative of the gradient finds the refusal."""
        *inputs, options = given
        loss, gradient = op(logits, *inputs, *options, True)
        ctx.save_for_backward(gradient, link)
        return loss

    def backward(ctx, dloss):
        gradient, again = ctx.saved_tensors[0], torch._C._autograd._get_current_graph_task_keep_graph()
        return scaled(gradient, dloss, again), *[None] * (len(ctx.needs_input_grad) - 1)

    function = autograd_function(name, forward, backward)
    return lambda logits, *given: function(logits, logits.repeat((0,) * logits.dim()), *given)
