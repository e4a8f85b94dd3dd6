"""fused_linear_preference: DPO and its kin from the hidden states of sequences, which never holds the logits."""

import torch

from tigon.torch._autograd import lowered, nonzero
from tigon.torch._heads import early_head, head_options, may_be_early
from tigon.torch._op import Op
from tigon.torch.operators.losses import _check_target
from tigon.torch.operators.policy_loss import one_number
from tigon.torch.operators.preference_loss import PreferenceLossOutputs, is_of_means, numbers, refuse_kind

FUNCTIONS = ["fused_linear_preference"]
MODULES = ["FusedLinearPreferenceLoss"]

_NAME = "fused_linear_preference"
_METRICS = "pair_loss", "rewards", "accuracy", "margin"
_fwd = Op(
    f"{_NAME}_fwd",
    without=("logps",),
    extents={"n": "sequences", "g": "items"},
    options=("bool more", "int workspace_bytes"),
    when=dict.fromkeys(_METRICS, lambda given: given["more"]),
    check=_check_target,
)
_FusedLinearPreference = early_head(_NAME, _fwd, tensors=10, bias=3, metrics=1 + len(_METRICS))


def fused_linear_preference(
    hidden,
    weight,
    target,
    bias=None,
    segments=None,
    ref_logps=None,
    kind="sigmoid",
    *,
    labels=None,
    shift=None,
    denominator=None,
    means=None,
    nll=None,
    ignore_index=-100,
    softcap=None,
    temperature=1.0,
    softcap_first=False,
    workspace_bytes=None,
    logits_in_f32=False,
    outputs=False,
    **options,
):
    """preference_loss of the sums of linear_logprob(hidden, weight, target, bias) over each sequence, without ever
    holding the logits, or with `outputs` PreferenceLossOutputs.

    hidden [B, T, H], or [N, H] with segments [S + 1], weight [V, H] and bias [V] of one dtype, f32, bf16 or f16 (under
    autocast, autocast's own; bias may be f32); target [B, T] or [N] i64 or i32. A token counts where its target is not
    ignore_index. Of pairs the first half of the sequences are the chosen ones. kind, ref_logps (sums, [B] or [S]),
    labels (of "kto", "apo_zero_unpaired" and "bco"), shift, denominator and the `options` beta, label_smoothing,
    gamma, tau, desirable_weight, undesirable_weight and nll_weight are preference_loss's. `means` (None: with "ipo",
    "simpo" and "orpo") divides by the tokens that count, and ref_logps, too. `nll` (None: with "cpo" and "orpo") adds
    nll_weight times the mean NLL of the chosen sequences' tokens.
    Gradients are made with the loss; those of f16, whose loss is scaled, in backward. They take three matrix products
    where the logits of a pair, or of a single sequence, fit into workspace_bytes of memory, else four. None there is
    what the library recommends.
    """
    pairs, options = numbers(_NAME, kind, **options)
    refuse_kind(_NAME, kind, ref_logps, shift)
    means = is_of_means(kind) if means is None else bool(means)
    nll = kind in ("cpo", "orpo") if nll is None else bool(nll)
    sequences = hidden.shape[0] if segments is None else segments.shape[0] - 1
    if labels is not None and labels.dtype == torch.bool:
        labels = labels.int()
    if ref_logps is not None:
        ref_logps = ref_logps.detach().float()
    granted = 0 if workspace_bytes is None else nonzero(_NAME, "workspace_bytes", workspace_bytes)
    options = (
        *(sequences, sequences // 2 if pairs else sequences, outputs, granted, *options, means, nll),
        *head_options(_NAME, ignore_index, softcap, temperature, softcap_first, logits_in_f32),
    )
    hidden, weight, bias = lowered(hidden, weight, bias)
    each = one_number(shift, hidden, or_each=True), one_number(denominator, hidden)
    inputs = hidden, weight, target, bias, segments, ref_logps, labels, *each
    found = _FusedLinearPreference(*inputs, outputs, may_be_early(hidden), options)
    if not outputs:
        return found
    loss, _, *metrics = found
    return PreferenceLossOutputs(loss, *metrics)


class FusedLinearPreferenceLoss(torch.nn.Module):
    """functional.fused_linear_preference; the options that are no tensors are the keyword arguments."""

    def __init__(self, kind="sigmoid", **options):
        super().__init__()
        self.kind, self.options = kind, options

    def forward(self, hidden, weight, target, bias=None, segments=None, ref_logps=None, **tensors):
        inputs = hidden, weight, target, bias, segments, ref_logps
        return fused_linear_preference(*inputs, self.kind, **self.options, **tensors)

    def extra_repr(self):
        return ", ".join([f"kind={self.kind!r}"] + [f"{name}={value}" for name, value in self.options.items()])
