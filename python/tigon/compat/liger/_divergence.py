"""Liger-Kernel's KL, JSD and TVD. Its eps, below which a probability counts as more than it is, is not needed."""

from torch import nn
from torch.nn import functional as F

from ...torch._autograd import Choice
from ...torch.functional import divergence

_REDUCTIONS = Choice("reduction", batchmean="mean", mean="mean", sum="sum", none=None)


def _reduced(reduction, elements, x, *arguments, **options):
    """Liger-Kernel's "mean" is over elements, and its "none" gives them, which only plain torch does."""
    if _REDUCTIONS[reduction] is None:
        return elements()
    loss = divergence(x, *arguments, reduction=_REDUCTIONS[reduction], **options)
    return loss / x.shape[-1] if reduction == "mean" else loss


class LigerKLDivLossFunction:
    @staticmethod
    def apply(y_pred, y_true, reduction="batchmean", log_target=False, eps=1e-10):
        """eps, below which Liger-Kernel takes a probability for more than it is, is not needed: 0 log 0 is 0."""
        def elements():
            return F.kl_div(y_pred.float(), y_true.detach().float(), reduction="none", log_target=log_target)

        sides = dict(input_is="log_probs", target_is="log_probs" if log_target else "probs")
        return _reduced(reduction, elements, y_pred, y_true, **sides)


class LigerKLDIVLoss(nn.KLDivLoss):
    def __init__(self, eps=1e-10, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.eps = eps

    def forward(self, y_pred, y_true):
        return LigerKLDivLossFunction.apply(y_pred, y_true, self.reduction, self.log_target, self.eps)


def liger_kl_div(input, target, size_average=True, reduce=True, reduction="mean", log_target=False, eps=1e-10):
    return LigerKLDivLossFunction.apply(input, target, reduction, log_target, eps)


class LigerJSDFunction:
    @staticmethod
    def apply(_input, target, shift_labels=None, beta=0.5, ignore_index=-100, jsd_impl=None, jsd_mode=None):
        """The loss in the dtype of the input."""
        sides = dict(input_is="log_probs", target_is="log_probs")
        return divergence(_input, target, "jsd", shift_labels, ignore_index, beta=beta, **sides).to(_input.dtype)


class LigerJSD(nn.Module):
    def __init__(self, beta=0.5, ignore_index=-100):
        super().__init__()
        self.beta, self.ignore_index = beta, ignore_index

    def forward(self, log_q, log_p, shift_labels=None):
        return LigerJSDFunction.apply(log_q, log_p, shift_labels, self.beta, self.ignore_index)


def liger_jsd(input, target, shift_labels=None, beta=0.5, ignore_index=-100):
    return LigerJSDFunction.apply(input, target, shift_labels, beta, ignore_index)


class LigerTVDLossFunction:
    @staticmethod
    def apply(p, q, shift_labels=None, reduction="batchmean", ignore_index=-100):
        def elements():
            each = 0.5 * (p.float() - q.detach().float()).abs()
            return each if shift_labels is None else each * (shift_labels != ignore_index).unsqueeze(-1)

        sides = dict(input_is="probs", target_is="probs")
        return _reduced(reduction, elements, p, q, "tvd", shift_labels, ignore_index, **sides)


class LigerTVDLoss(nn.Module):
    def __init__(self, reduction="batchmean", ignore_index=-100):
        super().__init__()
        self.reduction, self.ignore_index = reduction, ignore_index

    def forward(self, p, q, shift_labels=None):
        return LigerTVDLossFunction.apply(p, q, shift_labels, self.reduction, self.ignore_index)


def liger_tvd(input, target, shift_labels=None, reduction="mean", ignore_index=-100):
    return LigerTVDLossFunction.apply(input, target, shift_labels, reduction, ignore_index)
