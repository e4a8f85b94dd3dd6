"""cross_entropy, and fused_linear_cross_entropy, which never holds the logits."""

import functools
import math
from typing import NamedTuple

import torch

from tigon.torch._autograd import Choice, autograd_function, lowered, nonzero
from tigon.torch._derived import derived
from tigon.torch._early import early, is_early
from tigon.torch._memory import size_given
from tigon.torch._op import Op
from tigon.torch._scale import scaled
from tigon.torch._sharded_head import check_group, is_tensor_parallel, over_ranks, over_vocabulary
from tigon.torch._sharding import is_distributed
from tigon.torch._vocab_shards import NONE, each, gathered, merge, shard_of, summed

FUNCTIONS = [
    "CrossEntropyOutputs",
    "cross_entropy",
    "cross_entropy_outputs",
    "fused_linear_cross_entropy",
    "fused_linear_cross_entropy_outputs",
    "LinearLogprobOutputs",
    "linear_logprob",
]
MODULES = ["CrossEntropyLoss", "FusedLinearCrossEntropyLoss", "LinearLogprob"]

_REDUCTION = Choice("reduction", mean=0, sum=1, none=NONE)


def _options(
    call, first, ignore_index, label_smoothing, lse_square_scale, softcap, temperature, softcap_first, reduction
):
    return (
        first,
        ignore_index is not None,
        ignore_index or 0,
        label_smoothing,
        lse_square_scale,
        0.0 if softcap is None else nonzero(call, "softcap", softcap),
        nonzero(call, "temperature", temperature),
        bool(softcap_first),
        _REDUCTION[reduction],
    )


def _denominator(target, denominator):
    """A number or a tensor of one element as the operators take it, without a look at a device's."""
    if denominator is None or not isinstance(target, torch.Tensor):
        return None
    if isinstance(denominator, torch.Tensor):
        return denominator.detach().to(target.device, torch.float32).reshape(())
    return torch.full((), denominator, dtype=torch.float32, device=target.device)


def _check_target(op, given):
    """One label per row of x [..., V]: x's shape without the last dimension, or flat."""
    x, labels = given["logits" if "logits" in given else "hidden"], given["labels"]
    rows, found = tuple(x.shape[:-1]), tuple(labels.shape)
    if not all(type(n) is int for n in (*rows, *found)):
        return  # torch.compile's symbols; the call itself will have numbers
    right = {rows, (math.prod(rows),)}
    if found in right:
        return
    must = " or ".join(str(list(shape)) for shape in sorted(right, key=len, reverse=True))
    call = op.entry.removesuffix("_fwd")
    sentence = f"{call}: target.shape is {list(found)}, must be {must} (one for each row)"
    if x.ndim > 2 and found == (x.shape[0], *x.shape[2:]):
        sentence += "; the classes are the last dimension: .movedim(1, -1) puts torch's second one there"
    raise ValueError(sentence)


class CrossEntropyOutputs(NamedTuple):
    loss: torch.Tensor
    """f32: a scalar, or with reduction "none" one for each token. It and the entropy have gradients."""
    z_loss: torch.Tensor
    """f32, one for each token: lse_square_scale * lse^2."""
    entropy: torch.Tensor
    """f32, one for each token: that of softmax(logits), in nats."""
    argmax: torch.Tensor
    """i64, one for each token: the likeliest, -1 where the target is ignored."""
    correct: torch.Tensor
    """i64, a scalar: how many tokens count and have their target as argmax."""


_OTHERS = "out_lse", "out_z_loss", "out_entropy", "out_argmax", "out_correct"
_LOSS = {"out_loss": lambda given: not each(given), "out_token_loss": each}
_MORE = dict.fromkeys(("out_z_loss", "out_entropy", "out_argmax", "out_correct"), lambda given: given["more"])
_cross_entropy_fwd = Op(
    "cross_entropy_fwd",
    without=("dlogits", "dloss", "dentropy"),
    options=("bool more",),
    when=_LOSS | _MORE,
    check=_check_target,
)
_cross_entropy_bwd = Op("cross_entropy_bwd", without=("entropy", "dentropy"), required=("dloss",))
_entropy_bwd = Op("cross_entropy_entropy_bwd", "cross_entropy_bwd", required=("dloss", "entropy", "dentropy"))
_NO_GRADIENT = "z_loss", "argmax", "correct"


def _both(name, fwd, bwd, *more, others=()):
    """By whether it is that of each token, the loss, and `more`; the other outputs have no gradient."""
    pair, losses = (name, fwd, bwd), {False: "loss", True: "token_loss"}
    return {each: derived(*pair, returned=(loss, *more, *others), others=others) for each, loss in losses.items()}


_with_gradient = Op(
    "cross_entropy_with_gradient",
    "cross_entropy_fwd",
    without=("dloss", "dentropy", "out_token_loss", *_OTHERS),
    check=_check_target,
)
_early = early("cross_entropy", _with_gradient)
_LOSSES = _both("cross_entropy", _cross_entropy_fwd, _cross_entropy_bwd)
_OUTPUTS = _both("cross_entropy", _cross_entropy_fwd, _entropy_bwd, "entropy", others=_NO_GRADIENT)


def cross_entropy(
    logits,
    target,
    weight=None,
    ignore_index=-100,
    reduction="mean",
    label_smoothing=0.0,
    lse_square_scale=0.0,
    softcap=None,
    temperature=1.0,
    token_scale=None,
    softcap_first=False,
    denominator=None,
):
    """The cross entropy of logits [..., V] and target [...], or [rows], the vocabulary being the last dimension.

    torch's layout [B, V, ...] comes here as logits.movedim(1, -1).

    With z = softcap * tanh(u / softcap), u = logits / temperature (softcap_first: z = softcap * tanh(logits / softcap)
    / temperature) and lse = log sum exp z, a token's loss is
        token_scale * ((1 - s) * weight[t] * (lse - z[t]) + s / V * sum_v weight[v] * (lse - z[v])
                       + weight[t] * lse_square_scale * lse^2),   s = label_smoothing,
    and 0 where the target is ignore_index (None: no such target). "mean" divides the sum by that of weight[t] over the
    tokens that count. With `denominator` it divides by that, a number or a tensor of one element on any device, such as
    num_items_in_batch: the tokens of all micro batches.

    logits f32, bf16 or f16; target i64 or i32; weight [V] and token_scale [...] f32.
    The loss is f32, computed in f32, under autocast too. Only the logits get a gradient. That of mean and sum is made
    with the loss, for logits of 1 MiB and more in f32 and bf16 outside of torch.compile. The graph keeps it in place of
    the logits. Backward then has no work where the loss itself is differentiated, and else one pass.
    """
    options = ignore_index, label_smoothing, lse_square_scale, softcap, temperature, softcap_first, reduction
    options = _options("cross_entropy", False, *options)
    inputs = target, weight, token_scale, _denominator(target, denominator)
    if reduction != "none" and is_early(logits):
        return _early(logits, *inputs, options[1:])
    return _LOSSES[reduction == "none"](logits, *inputs, options)


def cross_entropy_outputs(
    logits,
    target,
    weight=None,
    ignore_index=-100,
    reduction="mean",
    label_smoothing=0.0,
    lse_square_scale=0.0,
    softcap=None,
    temperature=1.0,
    token_scale=None,
    softcap_first=False,
    denominator=None,
):
    """cross_entropy, and what else the same pass over the logits tells: CrossEntropyOutputs. The gradients of the loss
    and of the entropy are made together."""
    options = ignore_index, label_smoothing, lse_square_scale, softcap, temperature, softcap_first, reduction
    options = _options("cross_entropy", True, *options)
    inputs = logits, target, weight, token_scale, _denominator(target, denominator)
    loss, entropy, *others = _OUTPUTS[reduction == "none"](*inputs, options)
    return CrossEntropyOutputs(loss, others[0], entropy, *others[1:])


_NAME = "fused_linear_cross_entropy"
_GIVEN = size_given("TIGON_HEAD_WORKSPACE")
_MOST = 256 << 20 if _GIVEN is None else _GIVEN  # bytes of a workspace that nobody asks for
_fused_fwd = Op(
    f"{_NAME}_fwd",
    most=_MOST,
    without=("dloss", "dentropy", *_OTHERS),
    options=("int workspace_bytes",),
    when=_LOSS,
    check=_check_target,
)
_fused_bwd = Op(
    f"{_NAME}_bwd",
    most=_MOST,
    without=("dentropy", "out_loss", "out_token_loss", *_OTHERS),
    required=("dloss",),
    options=("int workspace_bytes",),
)


def _forward(ctx, hidden, weight, bias, labels, class_weight, token_scale, denominator, early, options):
    """Makes the gradients with the loss, which saves backward the GEMM of the logits, where it may: `early`. They are
    then scaled by dloss, once and in place; a second backward makes them anew."""
    inputs = hidden, weight, bias, labels, class_weight, token_scale, denominator
    need = ctx.needs_input_grad[:3] if early else (False,) * 3
    loss, token_loss, *gradients = _fused_fwd(*inputs, *options, *need)
    if ctx is not None:
        ctx.save_for_backward(*inputs)
        ctx.options, ctx.gradients = options, gradients if early else None
    return token_loss if options[-2] == NONE else loss


def _backward(ctx, dloss):
    need = ctx.needs_input_grad[:3]
    if ctx.gradients is None:
        gradients = _fused_bwd(*ctx.saved_tensors, dloss, *ctx.options, *need)
    else:
        gradients, ctx.gradients = ctx.gradients, None
        gradients = [scaled(g, dloss, False) if needed else g for g, needed in zip(gradients, need)]
    return *[g if needed else None for g, needed in zip(gradients, need)], *[None] * 6


_FusedLinearCrossEntropy = autograd_function(_NAME, _forward, _backward)

_fused_outputs_fwd = Op(
    f"{_NAME}_outputs_fwd",
    f"{_NAME}_fwd",
    most=_MOST,
    without=("dloss", "dentropy", "dhidden", "dweight", "dbias", "out_lse"),
    options=("int workspace_bytes",),
    when=_LOSS,
    check=_check_target,
)
_fused_outputs_bwd = Op(
    f"{_NAME}_outputs_bwd",
    f"{_NAME}_bwd",
    most=_MOST,
    without=("out_loss", "out_token_loss", *_OTHERS),
    required=("dloss", "dentropy"),
    options=("int workspace_bytes",),
)
_FUSED_OUTPUTS = _both(_NAME, _fused_outputs_fwd, _fused_outputs_bwd, "entropy", others=_NO_GRADIENT)


def _fused_arguments(call, hidden, weight, target, bias, denominator, workspace_bytes, logits_in_f32, options):
    granted = 0 if workspace_bytes is None else nonzero(call, "workspace_bytes", workspace_bytes)
    options = *_options(call, granted, *options), bool(logits_in_f32)
    return (*lowered(hidden, weight, bias), _denominator(target, denominator), options)


def fused_linear_cross_entropy(
    hidden,
    weight,
    target,
    bias=None,
    class_weight=None,
    ignore_index=-100,
    reduction="mean",
    label_smoothing=0.0,
    lse_square_scale=0.0,
    softcap=None,
    temperature=1.0,
    token_scale=None,
    workspace_bytes=None,
    softcap_first=False,
    denominator=None,
    logits_in_f32=False,
):
    """cross_entropy(hidden @ weight.T + bias, target, ...) without ever holding the logits.

    hidden [..., H], weight [V, H] and bias [V] of one dtype, f32, bf16 or f16 (under autocast, autocast's own; bias may
    be f32); target [...] or [rows] i64 or i32. class_weight is cross_entropy's weight; the other options are its own.
    Chunks of tokens are worked off in workspace_bytes of memory. None is what the library recommends, up to
    TIGON_HEAD_WORKSPACE, a variable of the environment such as 2G, or 256 MiB; more may be faster. Gradients of mean
    and sum are made with the loss; those of "none" and of f16, whose loss is scaled, in backward, from the logits made
    again. Logits have hidden's dtype, or with logits_in_f32 f32, for twice or, with gradients, three times the
    memory.
    """
    options = ignore_index, label_smoothing, lse_square_scale, softcap, temperature, softcap_first, reduction
    given = _fused_arguments(_NAME, hidden, weight, target, bias, denominator, workspace_bytes, logits_in_f32, options)
    hidden, weight, bias, denominator, options = given
    early = torch.is_grad_enabled() and reduction != "none" and getattr(hidden, "dtype", None) != torch.float16
    inputs = hidden, weight, bias, target, class_weight, token_scale, denominator
    return _FusedLinearCrossEntropy(*inputs, early, options)


def fused_linear_cross_entropy_outputs(
    hidden,
    weight,
    target,
    bias=None,
    class_weight=None,
    ignore_index=-100,
    reduction="mean",
    label_smoothing=0.0,
    lse_square_scale=0.0,
    softcap=None,
    temperature=1.0,
    token_scale=None,
    workspace_bytes=None,
    softcap_first=False,
    denominator=None,
    logits_in_f32=False,
):
    """fused_linear_cross_entropy, and what else the logits tell: CrossEntropyOutputs. The gradients of the loss and of
    the entropy are made together in backward, from the logits made again."""
    options = ignore_index, label_smoothing, lse_square_scale, softcap, temperature, softcap_first, reduction
    given = _fused_arguments(_NAME, hidden, weight, target, bias, denominator, workspace_bytes, logits_in_f32, options)
    hidden, weight, bias, denominator, options = given
    inputs = hidden, weight, bias, target, class_weight, token_scale, denominator
    loss, entropy, *others = _FUSED_OUTPUTS[reduction == "none"](*inputs, options)
    return CrossEntropyOutputs(loss, others[0], entropy, *others[1:])


class LinearLogprobOutputs(NamedTuple):
    logprob: torch.Tensor
    """f32, one for each token: log softmax(logits)[target], 0 where the target is ignored. It has a gradient."""
    entropy: torch.Tensor | None
    """f32, one for each token: that of softmax(logits), in nats; None unless asked for. It has a gradient."""
    argmax: torch.Tensor | None
    """i64, one for each token: the likeliest, -1 where the target is ignored; None with a group."""
    correct: torch.Tensor | None
    """i64, a scalar: how many tokens count and have their target as argmax; None with a group."""


_is_cached = lambda given: given["cached"] > 0
_WHOLE = "vocab", "vocab_begin"  # which a head without shards has not
_logprob_fwd = Op(
    "linear_logprob_fwd",
    without=("stats", *_WHOLE),
    extents={"k": "cached"},
    options=("int workspace_bytes", "bool with_entropy", "bool with_unit"),
    when={
        "entropy": lambda given: given["with_entropy"],
        "cache": _is_cached,
        "unit": lambda given: given["with_unit"],
    },
    wide={"cache": "logits_in_f32"},
    check=_check_target,
)
_logprob_bwd = Op("linear_logprob_bwd", without=_WHOLE, options=("int workspace_bytes",))
_shard_stats = Op(
    "linear_logprob_stats",
    "linear_logprob_fwd",
    without=("logprob", "lse", "entropy", "argmax", "correct", "unit"),
    extents={"k": "cached"},
    options=("int workspace_bytes",),
    when={"stats": lambda given: True, "cache": _is_cached},
    wide={"cache": "logits_in_f32"},
    check=_check_target,
)
_shard_bwd = Op("linear_logprob_shard_bwd", "linear_logprob_bwd", options=("int workspace_bytes",))


def _logprob_forward(ctx, hidden, weight, bias, labels, cached, with_entropy, options):
    """For a frozen head forward makes the gradient of hidden, but for the factor that backward knows: `unit`."""
    need = (False,) * 3 if ctx is None else ctx.needs_input_grad[:3]
    with_unit = need[0] and not (need[1] or need[2] or with_entropy)
    cached = cached if any(need) and not with_unit else 0
    granted, *numbers = options
    outputs = _logprob_fwd(hidden, weight, bias, labels, cached, granted, with_entropy, with_unit, *numbers)
    logprob, lse, entropy, argmax, correct, cache, unit = outputs
    if ctx is not None:
        inputs = hidden, weight, bias, labels, lse, entropy if with_entropy else None, cache if cached else None
        ctx.save_for_backward(*((unit,) if with_unit else inputs))
        ctx.mark_non_differentiable(argmax, correct)
        ctx.with_unit, ctx.options = with_unit, options
    return (logprob, entropy, argmax, correct) if with_entropy else (logprob, argmax, correct)


def _logprob_backward(ctx, dlogprob, *others):
    need = ctx.needs_input_grad[:3]
    if ctx.with_unit:
        (unit,) = ctx.saved_tensors
        by = dlogprob.reshape(*unit.shape[:-1], 1)
        gradients = torch.mul(unit, by, out=torch.empty_like(unit)), None, None  # one kernel, in f32, rounded once
    else:
        dentropy = others[0] if len(others) == 3 else None
        gradients = _logprob_bwd(*ctx.saved_tensors, dlogprob, dentropy, *ctx.options, *need)
    return *[g if needed else None for g, needed in zip(gradients, need)], *[None] * 4


_LinearLogprob = autograd_function("linear_logprob", _logprob_forward, _logprob_backward)


def _shard_forward(ctx, hidden, weight, bias, labels, cached, with_entropy, group, options):
    """options: those of _logprob_forward, vocab and vocab_begin."""
    need = (False,) * 3 if ctx is None else ctx.needs_input_grad[:3]
    stats, cache = _shard_stats(hidden, weight, bias, labels, cached if any(need) else 0, *options)
    ignores, vocab = options[1:3], options[-2]
    merged = vocab, *ignores, 0.0, 0, False, 0.0, NONE  # no smoothing, no z-loss
    _, loss, lse, _, entropy = merge(gathered(stats, group), labels.reshape(-1), None, with_entropy, *merged, 0, 0)
    logprob = (0 - loss).reshape(labels.shape)
    lse, entropy = (t if t is None else t.reshape(labels.shape) for t in (lse, entropy if with_entropy else None))
    if ctx is not None:
        ctx.save_for_backward(hidden, weight, bias, labels, lse, entropy, cache if cached and any(need) else None)
        ctx.group, ctx.options = group, options
    return (logprob, entropy) if with_entropy else logprob


def _shard_backward(ctx, dlogprob, *dentropy):
    need = ctx.needs_input_grad[:3]
    dhidden, *others = _shard_bwd(*ctx.saved_tensors, dlogprob, *(dentropy or [None]), *ctx.options, *need)
    gradients = summed(dhidden, ctx.group) if need[0] else None, *others
    return *[g if needed else None for g, needed in zip(gradients, need)], *[None] * 5


_LinearLogprobShard = autograd_function("linear_logprob", _shard_forward, _shard_backward)


def linear_logprob(
    hidden,
    weight,
    target,
    bias=None,
    ignore_index=-100,
    softcap=None,
    temperature=1.0,
    softcap_first=False,
    entropy=False,
    cache_bytes=0,
    workspace_bytes=None,
    logits_in_f32=False,
    group=None,
    vocab=None,
    vocab_begin=None,
):
    """The log-probability of each target under softmax(hidden @ weight.T + bias), with gradients and without ever
    holding the logits: what policy losses are made of. LinearLogprobOutputs.

    hidden [..., H], weight [V, H] and bias [V] of one dtype, f32, bf16 or f16 (under autocast, autocast's own; bias may
    be f32); target [...] or [rows] i64 or i32. softcap, temperature and softcap_first as in cross_entropy. Chunks of
    tokens are worked off in workspace_bytes of memory, None for what the library recommends. Backward makes the logits
    again, but for those of as many tokens as fit into cache_bytes. Where neither weight nor bias needs a gradient, and
    no entropy is asked for, backward is one product of each token with a number.

    DTensors: all arguments are, of one mesh. hidden may be sharded along the tokens. A sharded weight is gathered for the
    call, and its gradient is a sum over the ranks that share out the tokens. But where a mesh of one dimension shards
    weight and bias over the vocabulary, and hidden and target are replicated, the call is that of its `group`.

    A tensor-parallel head: with a process `group` weight and bias are this rank's shard of the vocabulary, hidden and
    target those of all ranks. Forward has one collective, an all-gather of 20 bytes a token, and backward one, the sum of
    hidden's gradient; neither waits for the device. Each rank gets the same log-probabilities and entropies, and the
    gradients of its own shard; argmax and correct are None. `vocab` and `vocab_begin`, the classes of all ranks and the
    first one of this rank, may be left out where each rank has as many classes. weight and bias may be DTensors that
    the group's mesh shards over the vocabulary, which tell both numbers; hidden and target are local tensors then.
    """
    if group is None and not (vocab is None and vocab_begin is None):
        raise ValueError("linear_logprob: vocab and vocab_begin are given, must be None without group")
    if is_distributed(hidden, weight, target, bias):
        options = dict(ignore_index=ignore_index, softcap=softcap, temperature=temperature, softcap_first=softcap_first)
        options |= dict(cache_bytes=cache_bytes, workspace_bytes=workspace_bytes, logits_in_f32=logits_in_f32)
        local = functools.partial(linear_logprob, entropy=entropy, **options)
        if group is None:
            return over_ranks(local, hidden, weight, target, bias)
        if is_distributed(hidden, target) or not is_tensor_parallel(weight, bias):
            raise ValueError("linear_logprob: group is given with DTensors, must be None, or the tensors local ones")
        if not (vocab is None and vocab_begin is None):
            raise ValueError("linear_logprob: vocab and vocab_begin are given, must be None with a sharded weight")
        check_group(group, weight)
        return over_vocabulary(local, hidden, weight, target, bias)
    granted = 0 if workspace_bytes is None else nonzero("linear_logprob", "workspace_bytes", workspace_bytes)
    options = _options("linear_logprob", granted, ignore_index, 0.0, 0.0, softcap, temperature, softcap_first, "none")
    options = *options[:3], *options[5:8], bool(logits_in_f32)  # without smoothing, z-loss and the reduction
    hidden, weight, bias = lowered(hidden, weight, bias)
    cached = 0
    if cache_bytes:
        row = weight.shape[0] * (4 if logits_in_f32 else weight.element_size())
        cached = min(cache_bytes // row, math.prod(hidden.shape[:-1])) if row else 0
    if group is not None:
        shard = shard_of("linear_logprob", group, weight.shape[0], vocab, vocab_begin)[:2]
        arguments = hidden, weight, bias, target, cached, bool(entropy), group, (*options, *shard)
        found = _LinearLogprobShard(*arguments)
        return LinearLogprobOutputs(*(found if entropy else (found, None)), None, None)
    outputs = _LinearLogprob(hidden, weight, bias, target, cached, bool(entropy), options)
    return LinearLogprobOutputs(*outputs) if entropy else LinearLogprobOutputs(outputs[0], None, *outputs[1:])


class _Loss(torch.nn.Module):
    def __init__(self, weight=None, **options):
        super().__init__()
        self.register_buffer("weight", weight)
        self.options = options


class CrossEntropyLoss(_Loss):
    """functional.cross_entropy; its options are the keyword arguments."""

    def forward(self, logits, target):
        return cross_entropy(logits, target, self.weight, **self.options)


class FusedLinearCrossEntropyLoss(_Loss):
    """functional.fused_linear_cross_entropy; its options are the keyword arguments, `weight` that of the classes."""

    def forward(self, hidden, weight, target, bias=None):
        return fused_linear_cross_entropy(hidden, weight, target, bias, class_weight=self.weight, **self.options)


class LinearLogprob(torch.nn.Module):
    """functional.linear_logprob; its options are the keyword arguments."""

    def __init__(self, **options):
        super().__init__()
        self.options = options

    def forward(self, hidden, weight, target, bias=None):
        return linear_logprob(hidden, weight, target, bias, **self.options)

    def extra_repr(self):
        return ", ".join(f"{name}={value}" for name, value in self.options.items())
