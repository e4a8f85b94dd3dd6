"""What the losses of a head share whose gradients are made with the loss."""

import torch

from tigon.torch._autograd import autograd_function, nonzero
from tigon.torch._scale import scaled


def head_options(call, ignore_index, softcap, temperature, softcap_first, logits_in_f32):
    """The options of the C entries in their order."""
    return (
        ignore_index is not None,
        ignore_index or 0,
        0.0 if softcap is None else nonzero(call, "softcap", softcap),
        nonzero(call, "temperature", temperature),
        bool(softcap_first),
        bool(logits_in_f32),
    )


def may_be_early(hidden):
    """f16 has too few exponents for gradients of a loss that is scaled later."""
    return torch.is_grad_enabled() and hidden.dtype != torch.float16


def early_head(name, op, tensors, bias, metrics):
    """The autograd function of `op`. Its inputs are as many `tensors`, hidden and weight the first ones, the bias at its
    place, dloss the last. Its outputs are the loss, as many `metrics`, and three gradients.

    It is called by the tensors but dloss, whether metrics are wanted, whether gradients are made with the loss, and
    the options. Those gradients are scaled by dloss, once and in place; a second backward makes them anew.
    """
    places = 0, 1, bias

    def forward(ctx, *args):
        inputs, more, early, options = args[: tensors - 1], *args[tensors - 1 :]
        need = [early and ctx is not None and ctx.needs_input_grad[place] for place in places]
        loss, *found = op(*inputs, None, *options, *need)
        others, gradients = tuple(found[:metrics]) if more else (), found[metrics:]
        if ctx is not None:
            ctx.save_for_backward(*inputs)
            ctx.options, ctx.gradients = options, gradients if early else None
            if others:
                ctx.mark_non_differentiable(*others)
        return (loss, *others) if others else loss

    def backward(ctx, dloss, *_):
        need = [ctx.needs_input_grad[place] for place in places]
        if ctx.gradients is None:
            gradients = op(*ctx.saved_tensors, dloss, *ctx.options, *need)[1 + metrics :]
        else:
            gradients, ctx.gradients = ctx.gradients, None
            gradients = [scaled(g, dloss, False) if needed else g for g, needed in zip(gradients, need)]
        made = dict(zip(places, [g if needed else None for g, needed in zip(gradients, need)]))
        return tuple(made.get(place) for place in range(tensors + 2))

    return autograd_function(name, forward, backward)
