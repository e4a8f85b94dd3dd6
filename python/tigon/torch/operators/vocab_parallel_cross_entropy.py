"""vocab_parallel_cross_entropy: the loss of logits whose vocabulary is cut into shards, one for each rank of a group."""

from typing import NamedTuple

import torch

from tigon.torch._autograd import Choice, autograd_function, nonzero
from tigon.torch._op import Op
from tigon.torch._vocab_shards import NONE, gathered, merge, shard_of
from tigon.torch.operators.losses import _REDUCTION, _check_target, _denominator

FUNCTIONS = ["VocabParallelOutputs", "vocab_parallel_cross_entropy"]
MODULES = ["VocabParallelCrossEntropyLoss"]

_NAME = "vocab_parallel_cross_entropy"
_FORMULA = Choice("smoothing_formula", pytorch=0, megatron=1)

_stats = Op(f"{_NAME}_stats", check=_check_target)
_bwd = Op(f"{_NAME}_bwd", required=("dloss",))


class VocabParallelOutputs(NamedTuple):
    loss: torch.Tensor
    """f32: a scalar, or with reduction "none" one for each token. It and the entropy have gradients."""
    lse: torch.Tensor
    """f32, one for each token: log sum exp of all classes' logits."""
    entropy: torch.Tensor | None
    """f32, one for each token: that of the softmax over all classes, in nats; None unless asked for."""


def _forward(ctx, logits, target, denominator, group, options):
    """options: vocab, vocab_begin, rank, with_entropy, ignores, ignored, smoothing, formula, own_partition,
    lse_square_scale, softcap, temperature, softcap_first, reduction."""
    vocab, begin, rank, entropy, ignores, ignored, smoothing, formula, own, square, *logit_options, reduction = options
    stats = _stats(logits, target, vocab, begin, ignores, ignored, *logit_options, entropy, smoothing != 0)
    merged = vocab, ignores, ignored, smoothing, formula, own, square, reduction
    every = gathered(stats, group)
    outputs = merge(every, target.reshape(-1), denominator, entropy, *merged, rank, logits.shape[-1])
    loss, token_loss, lse, _, of_entropy = outputs
    shape = logits.shape[:-1]
    if reduction == NONE:
        loss = token_loss.reshape(shape)
    lse = lse.reshape(shape)
    of_entropy = of_entropy.reshape(shape) if entropy else None
    if ctx is not None:
        ctx.save_for_backward(logits, target, lse, denominator, of_entropy)
        ctx.mark_non_differentiable(lse)
        ctx.options = *merged, begin, *logit_options
    return (loss, lse, of_entropy) if entropy else (loss, lse)


def _backward(ctx, dloss, *others):
    logits, target, lse, denominator, entropy = ctx.saved_tensors
    dentropy = others[1] if len(others) == 2 else None
    dlogits = _bwd(logits, target, lse, denominator, entropy, dloss, dentropy, *ctx.options)
    return dlogits, *[None] * 4


_VocabParallelCrossEntropy = autograd_function(_NAME, _forward, _backward)


def vocab_parallel_cross_entropy(
    logits,
    target,
    group=None,
    vocab=None,
    vocab_begin=None,
    ignore_index=-100,
    reduction="mean",
    label_smoothing=0.0,
    smoothing_formula="pytorch",
    own_partition=False,
    lse_square_scale=0.0,
    softcap=None,
    temperature=1.0,
    softcap_first=False,
    denominator=None,
    entropy=False,
    outputs=False,
):
    """The cross entropy of logits [..., V_k], the shard of this rank of `group`, and target [...] or [rows] of the whole
    vocabulary; with `outputs` or `entropy` VocabParallelOutputs.

    Forward has one collective, an all-gather of 20 bytes a token, and backward none; neither waits for the device. Each
    rank gets the same loss, and the gradient of its own logits. `vocab` and `vocab_begin`, the classes of all ranks and
    the first one of this rank, may be left out where each rank has as many classes. Without a group there is one rank.
    `smoothing_formula` is "pytorch", cross_entropy's, or "megatron", whose label_smoothing is V / (V - 1) times as large.
    With own_partition it is spread over this rank's classes alone, so that losses of ranks differ: with "megatron" that
    is Megatron-LM's own loss. All other options are cross_entropy's.
    """
    vocab, vocab_begin, rank = shard_of(_NAME, group, logits.shape[-1], vocab, vocab_begin)
    options = (
        *(vocab, vocab_begin, rank, bool(entropy)),
        *(ignore_index is not None, ignore_index or 0),
        *(label_smoothing, _FORMULA[smoothing_formula], bool(own_partition), lse_square_scale),
        0.0 if softcap is None else nonzero(_NAME, "softcap", softcap),
        nonzero(_NAME, "temperature", temperature),
        *(bool(softcap_first), _REDUCTION[reduction]),
    )
    found = _VocabParallelCrossEntropy(logits, target, _denominator(target, denominator), group, options)
    if entropy:
        return VocabParallelOutputs(*found)
    return VocabParallelOutputs(*found, None) if outputs else found[0]


class VocabParallelCrossEntropyLoss(torch.nn.Module):
    """functional.vocab_parallel_cross_entropy; its options are the keyword arguments."""

    def __init__(self, group=None, **options):
        super().__init__()
        self.group, self.options = group, options

    def forward(self, logits, target):
        return vocab_parallel_cross_entropy(logits, target, self.group, **self.options)

    def extra_repr(self):
        return ", ".join(f"{name}={value}" for name, value in self.options.items())


def _liger_smoothing(label_smoothing, formula, mode):
    """Liger-Kernel's options as Tigon's."""
    if mode not in ("global", "partition"):
        raise ValueError(f"label_smoothing_mode is {mode!r}, must be 'global' or 'partition'")
    if not 0 <= label_smoothing < 1:
        raise ValueError(f"label_smoothing is {label_smoothing}, must be at least 0 and less than 1")
    _FORMULA[formula]
    return dict(label_smoothing=label_smoothing, smoothing_formula=formula, own_partition=mode == "partition")


def _check_liger(logits):
    if logits.ndim != 3:
        raise ValueError(f"vocab_parallel_logits.ndim is {logits.ndim}, must be 3: [sequence, batch, vocabulary]")


class LigerVocabParallelCEFunction:
    @staticmethod
    def apply(
        vocab_parallel_logits,
        target,
        tp_group,
        ignore_index,
        label_smoothing,
        label_smoothing_formula,
        label_smoothing_mode,
    ):
        """Each token's loss, in f32."""
        _check_liger(vocab_parallel_logits)
        smoothing = _liger_smoothing(label_smoothing, label_smoothing_formula, label_smoothing_mode)
        arguments = vocab_parallel_logits, target, tp_group, None, None, ignore_index, "none"
        return vocab_parallel_cross_entropy(*arguments, **smoothing)


class LigerVocabParallelCrossEntropy(torch.nn.Module):
    def __init__(
        self,
        ignore_index=-100,
        label_smoothing=0.0,
        reduction="none",
        label_smoothing_formula="pytorch",
        label_smoothing_mode="global",
    ):
        super().__init__()
        if reduction != "none":
            raise ValueError(f"reduction is {reduction!r}, must be 'none'")
        _liger_smoothing(label_smoothing, label_smoothing_formula, label_smoothing_mode)
        self.ignore_index, self.label_smoothing, self.reduction = ignore_index, label_smoothing, reduction
        self.label_smoothing_formula, self.label_smoothing_mode = label_smoothing_formula, label_smoothing_mode

    def forward(self, vocab_parallel_logits, target, tp_group=None):
        smoothing = self.label_smoothing, self.label_smoothing_formula, self.label_smoothing_mode
        return LigerVocabParallelCEFunction.apply(
            vocab_parallel_logits, target, tp_group, self.ignore_index, *smoothing
        )
