"""Liger-Kernel's preference losses of hidden states [N, T, H] and a head: DPO, CPO, SimPO and ORPO of pairs, KTO.

The first N / 2 sequences are the chosen ones. `compiled` and `chunk_size` have no effect: nothing is compiled, and the
head's logits are held in chunks of tokens."""

from typing import NamedTuple

import torch
from torch import nn

from ...huggingface.trl_head import mean_logits
from ...torch import functional as F
from ._losses import asserting, require


class _Head(NamedTuple):
    hidden: torch.Tensor
    weight: torch.Tensor
    bias: torch.Tensor | None

    def logps(self, target, ignore_index):
        """[N], the sum of each sequence."""
        found = F.linear_logprob(self.hidden, self.weight, target, self.bias, ignore_index=ignore_index)
        return found.logprob.sum(-1)

    def mean_logits(self, counted):
        """[N], the sum over the tokens that count of their mean logit, without gradient."""
        with torch.no_grad():
            return mean_logits(self.hidden, self.weight, self.bias, None).where(counted, 0.0).sum(-1)


def _reference(use_ref_model, hidden, weight, bias):
    if not use_ref_model:
        return None
    require(hidden is not None and weight is not None, "ref_input or ref_weight is None, must be there: use_ref_model")
    return _Head(hidden, weight, bias)


def _means(logps, counts, average):
    """A sequence without a token has the mean 0."""
    return logps / counts.clamp(min=1) if average else logps


def _head_preference(head, target, ignore_index, kind, average, ref=None, nll=False, nll_target=None, **options):
    """PreferenceLossOutputs, the log-probabilities [N] without and with the reference, and the NLL loss of the chosen.

    The one place where the losses of this file meet the operators."""
    counts = (target != ignore_index).sum(-1)
    logps, ref_logps, chosen = head.logps(target, ignore_index), None, {}
    if ref is not None:
        with torch.no_grad():
            ref_logps = ref.logps(target, ignore_index)
    nll_loss = logps.new_zeros(())
    if nll:
        pairs = target.shape[0] // 2
        chosen_logps, chosen_counts = logps[:pairs], counts[:pairs]
        if nll_target is not None:
            chosen_counts = (nll_target[:pairs] != ignore_index).sum(-1)
            chosen_logps = head._replace(hidden=head.hidden[:pairs]).logps(nll_target[:pairs], ignore_index)
        nll_loss = -chosen_logps.sum() / chosen_counts.sum().clamp(min=1)
        if options.get("nll_weight"):
            chosen = dict(nll_logps=chosen_logps, nll_counts=chosen_counts)
    if not chosen:
        options.pop("nll_weight", None)
    found = F.preference_loss(logps, ref_logps, counts if average else None, kind, outputs=True, **chosen, **options)
    return found, _means(logps, counts, average), nll_loss


def _pairs(hidden, weight, target, bias, ignore_index, *arguments, **options):
    """Liger-Kernel's loss and returned tuple of pairs."""
    rows = target.shape[0]
    require(rows % 2 == 0, f"target.shape[0] is {rows}, must be even: the chosen sequences, then the rejected ones")
    head = _Head(hidden, weight, bias)
    found, logps, nll_loss = _head_preference(head, target, ignore_index, *arguments, **options)
    counted = target != ignore_index
    logits = head.mean_logits(counted).view(2, -1).sum(-1) / counted.view(2, -1).sum(-1).clamp(min=1)
    return found.loss, (*logps.chunk(2), *logits, nll_loss, *found.rewards.chunk(2)), found


_SMOOTHED = "label_smoothing must be > 0 for loss_type='exo_pair'; its authors recommend 1e-3"
_KINDS = "sigmoid hinge ipo exo_pair nca_pair robust bco_pair sppo_hard apo_zero apo_down discopop".split()


def _check_dpo(loss_type, label_smoothing):
    require(loss_type in _KINDS, f"loss_type is {loss_type!r}, must be one of {', '.join(_KINDS)}")
    require(loss_type != "exo_pair" or label_smoothing > 0, _SMOOTHED)
    robust = loss_type != "robust" or 0 <= label_smoothing < 0.5
    require(robust, f"label_smoothing is {label_smoothing}, must be from 0 to below 0.5 for loss_type='robust'")


class LigerFusedLinearDPOFunction:
    @staticmethod
    @asserting
    def apply(
        _input,
        weight,
        target,
        bias=None,
        ref_input=None,
        ref_weight=None,
        ref_bias=None,
        ignore_index=-100,
        beta=0.1,
        compute_nll_loss=False,
        compiled=True,
        use_ref_model=True,
        average_log_prob=False,
        chunk_size=1,
        loss_type="sigmoid",
        label_smoothing=0.0,
        discopop_tau=0.05,
        alpha=1.0,
    ):
        """(loss, (chosen and rejected log-probabilities, their mean logits, the NLL loss, rewards of both)).

        "ipo", which Liger-Kernel lacks, is of means."""
        _check_dpo(loss_type, label_smoothing)
        ref = _reference(use_ref_model, ref_input, ref_weight, ref_bias)
        numbers = dict(beta=beta, label_smoothing=label_smoothing, tau=discopop_tau, nll_weight=alpha)
        average = average_log_prob or loss_type == "ipo"
        more = dict(ref=ref, nll=compute_nll_loss)
        return _pairs(_input, weight, target, bias, ignore_index, loss_type, average, **more, **numbers)[:2]


class LigerFusedLinearCPOFunction:
    @staticmethod
    @asserting
    def apply(
        _input,
        weight,
        target,
        bias=None,
        ignore_index=-100,
        beta=0.1,
        alpha=1.0,
        label_smoothing=0.0,
        compute_nll_loss=True,
        compiled=True,
        average_log_prob=False,
        chunk_size=1,
    ):
        """As LigerFusedLinearDPOFunction's."""
        numbers = dict(beta=beta, label_smoothing=label_smoothing, nll_weight=alpha, nll=compute_nll_loss)
        return _pairs(_input, weight, target, bias, ignore_index, "cpo", average_log_prob, **numbers)[:2]


class LigerFusedLinearSimPOFunction:
    @staticmethod
    @asserting
    def apply(
        _input,
        weight,
        target,
        bias=None,
        ignore_index=-100,
        beta=0.1,
        alpha=1.0,
        label_smoothing=0.0,
        compute_nll_loss=False,
        compiled=True,
        gamma=0.5,
        chunk_size=1,
    ):
        """As LigerFusedLinearDPOFunction's, of means."""
        numbers = dict(beta=beta, label_smoothing=label_smoothing, gamma=gamma, nll_weight=alpha, nll=compute_nll_loss)
        return _pairs(_input, weight, target, bias, ignore_index, "simpo", True, **numbers)[:2]


class LigerFusedLinearORPOFunction:
    @staticmethod
    @asserting
    def apply(
        _input,
        weight,
        target,
        bias=None,
        ignore_index=-100,
        beta=0.1,
        compute_nll_loss=True,
        nll_target=None,
        compiled=True,
        chunk_size=1,
    ):
        """As LigerFusedLinearDPOFunction's, of means, and then the mean log-sigmoid of the log-odds and their mean."""
        more = dict(beta=beta, nll=compute_nll_loss, nll_target=nll_target, nll_weight=1.0)
        loss, returned, found = _pairs(_input, weight, target, bias, ignore_index, "orpo", True, **more)
        with torch.no_grad():
            chosen, rejected = (l - torch.log(-torch.expm1(l)) for l in returned[:2])
            counts = (target != ignore_index).sum(-1).chunk(2)
            odds = [o.where(n > 0, 0.0) for o, n in zip((chosen, rejected), counts)]
            return loss, (*returned, -found.pair_loss.mean() / beta, (odds[0] - odds[1]).mean())


class LigerFusedLinearKTOFunction:
    @staticmethod
    @asserting
    def apply(
        _input,
        weight,
        target,
        preference_labels,
        bias=None,
        ref_input=None,
        ref_weight=None,
        ref_bias=None,
        kl=None,
        ignore_index=-100,
        beta=0.1,
        compiled=True,
        use_ref_model=True,
        average_log_prob=False,
        chunk_size=1,
    ):
        """(loss, sums of the chosen and the rejected: log-probabilities, logits, rewards)."""
        require(preference_labels is not None, "preference_labels is None, must be a tensor of a label a sequence")
        head, ref = _Head(_input, weight, bias), _reference(use_ref_model, ref_input, ref_weight, ref_bias)
        labels, counted = preference_labels != 0, target != ignore_index
        loss, logps, rewards = _head_singles(head, target, ignore_index, labels, ref, kl, beta, average_log_prob)
        logits = head.mean_logits(counted) * weight.shape[0]
        sums = [(each * side).sum() for each in (logps, logits, rewards) for side in (labels, ~labels)]
        return loss, tuple(sums)


def _head_singles(head, target, ignore_index, labels, ref, kl, beta, average):
    """(KTO's loss, log-probabilities [N], rewards [N]). The KL estimate may be one number or each sequence's."""
    counts = (target != ignore_index).sum(-1)
    logps = _means(head.logps(target, ignore_index), counts, average)
    with torch.no_grad():
        base = torch.zeros_like(logps)
        if ref is not None:
            base = _means(ref.logps(target, ignore_index), counts, average)
        rewards = beta * (logps - base)
        if kl is not None:
            base = base + kl.reshape(-1).float()
    return F.preference_loss(logps, base, None, "kto", labels=labels, beta=beta), logps, rewards


class _Loss(nn.Module):
    """Keeps the options under their names."""

    def __init__(self, **options):
        super().__init__()
        vars(self).update(options)


class LigerFusedLinearDPOLoss(_Loss):
    def __init__(
        self,
        ignore_index=-100,
        beta=0.1,
        alpha=1.0,
        compute_nll_loss=False,
        compiled=True,
        use_ref_model=True,
        average_log_prob=False,
        chunk_size=1,
        loss_type="sigmoid",
        label_smoothing=0.0,
        discopop_tau=0.05,
    ):
        _check_dpo(loss_type, label_smoothing)
        options = dict(ignore_index=ignore_index, beta=beta, alpha=alpha, compute_nll_loss=compute_nll_loss)
        options |= dict(compiled=compiled, use_ref_model=use_ref_model, average_log_prob=average_log_prob)
        options |= dict(chunk_size=chunk_size, loss_type=loss_type, label_smoothing=label_smoothing)
        super().__init__(**options, discopop_tau=discopop_tau)

    def forward(self, lin_weight, _input, target, bias=None, ref_input=None, ref_weight=None, ref_bias=None):
        return LigerFusedLinearDPOFunction.apply(
            *(_input, lin_weight, target, bias, ref_input, ref_weight, ref_bias),
            *(self.ignore_index, self.beta, self.compute_nll_loss, self.compiled, self.use_ref_model),
            *(self.average_log_prob, self.chunk_size, self.loss_type, self.label_smoothing, self.discopop_tau),
            self.alpha,
        )


class LigerFusedLinearCPOLoss(_Loss):
    def __init__(
        self,
        ignore_index=-100,
        beta=0.1,
        alpha=1.0,
        label_smoothing=0.0,
        compute_nll_loss=True,
        compiled=True,
        average_log_prob=False,
        chunk_size=1,
    ):
        options = dict(ignore_index=ignore_index, beta=beta, alpha=alpha, label_smoothing=label_smoothing)
        options |= dict(compute_nll_loss=compute_nll_loss, compiled=compiled)
        super().__init__(**options, average_log_prob=average_log_prob, chunk_size=chunk_size)

    def forward(self, lin_weight, _input, target, bias=None):
        return LigerFusedLinearCPOFunction.apply(
            *(_input, lin_weight, target, bias, self.ignore_index, self.beta, self.alpha, self.label_smoothing),
            *(self.compute_nll_loss, self.compiled, self.average_log_prob, self.chunk_size),
        )


class LigerFusedLinearSimPOLoss(_Loss):
    def __init__(
        self,
        ignore_index=-100,
        beta=0.1,
        alpha=1.0,
        label_smoothing=0.0,
        compute_nll_loss=True,
        compiled=True,
        gamma=0.5,
        chunk_size=1,
    ):
        options = dict(ignore_index=ignore_index, beta=beta, alpha=alpha, label_smoothing=label_smoothing)
        super().__init__(
            **options, compute_nll_loss=compute_nll_loss, compiled=compiled, gamma=gamma, chunk_size=chunk_size
        )

    def forward(self, lin_weight, _input, target, bias=None):
        return LigerFusedLinearSimPOFunction.apply(
            *(_input, lin_weight, target, bias, self.ignore_index, self.beta, self.alpha, self.label_smoothing),
            *(self.compute_nll_loss, self.compiled, self.gamma, self.chunk_size),
        )


class LigerFusedLinearORPOLoss(_Loss):
    def __init__(self, ignore_index=-100, beta=0.1, compute_nll_loss=True, compiled=True, chunk_size=1):
        options = dict(ignore_index=ignore_index, beta=beta, compute_nll_loss=compute_nll_loss)
        super().__init__(**options, compiled=compiled, chunk_size=chunk_size)

    def forward(self, lin_weight, _input, target, bias=None, nll_target=None):
        return LigerFusedLinearORPOFunction.apply(
            *(_input, lin_weight, target, bias, self.ignore_index, self.beta, self.compute_nll_loss),
            *(nll_target, self.compiled, self.chunk_size),
        )


class LigerFusedLinearKTOLoss(_Loss):
    def __init__(
        self, ignore_index=-100, beta=0.1, compiled=True, use_ref_model=False, average_log_prob=False, chunk_size=1
    ):
        options = dict(ignore_index=ignore_index, beta=beta, compiled=compiled, use_ref_model=use_ref_model)
        super().__init__(**options, average_log_prob=average_log_prob, chunk_size=chunk_size)

    def forward(
        self,
        _input,
        lin_weight,
        target,
        bias=None,
        preference_labels=None,
        ref_input=None,
        ref_weight=None,
        ref_bias=None,
        kl=None,
    ):
        return LigerFusedLinearKTOFunction.apply(
            *(_input, lin_weight, target, preference_labels, bias, ref_input, ref_weight, ref_bias, kl),
            *(self.ignore_index, self.beta, self.compiled, self.use_ref_model, self.average_log_prob, self.chunk_size),
        )


liger_fused_linear_dpo = LigerFusedLinearDPOFunction.apply
liger_fused_linear_cpo = LigerFusedLinearCPOFunction.apply
liger_fused_linear_simpo = LigerFusedLinearSimPOFunction.apply
liger_fused_linear_orpo = LigerFusedLinearORPOFunction.apply
liger_fused_linear_kto = LigerFusedLinearKTOFunction.apply
