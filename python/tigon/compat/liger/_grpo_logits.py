"""Liger-Kernel's triton_grpo_loss: the GRPO losses of logits [B, L + 1, V], whose last position predicts nothing."""

import functools
import math

import torch

from ...torch import functional as F
from ._losses import asserting, require
from ._policy import _check, _policy

_IGNORED = -100


def _target(ids, mask):
    """[B, L + 1]; what does not count is ignored."""
    target = ids if mask is None else ids.where(mask != 0, _IGNORED)
    return torch.nn.functional.pad(target, (0, 1), value=_IGNORED)


def _each(logits, target, temperature):
    return -F.cross_entropy(logits, target, ignore_index=_IGNORED, reduction="none", temperature=temperature)


class _InPlace(torch.autograd.Function):
    """_each, whose backward overwrites the logits by their gradient, a sequence at a time. torch refuses a second
    backward, and that of whoever else saved the logits, as their version has changed."""

    @staticmethod
    def forward(ctx, logits, target, temperature):
        ctx.save_for_backward(logits, target)
        ctx.temperature = temperature
        return _each(logits.detach(), target, temperature)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, upstream):
        logits, target = ctx.saved_tensors
        for row, labels, g in zip(logits.detach(), target, upstream):
            x = row.detach().requires_grad_()
            with torch.enable_grad():
                each = _each(x, labels, ctx.temperature)
            row.copy_(torch.autograd.grad(each, x, g)[0])
        return logits.detach(), None, None


def _logprob(logits, ids, mask, temperature, inplace):
    target = _target(ids, mask)
    overwrites = inplace and torch.is_grad_enabled() and logits.requires_grad
    each = _InPlace.apply(logits, target, temperature) if overwrites else _each(logits, target, temperature)
    return each[:, :-1]


def _gate(rho, tau):
    return torch.sigmoid(tau * (rho - 1)) * 4 / tau


@torch.no_grad()
def _vespo_weight(difference, ratio, mask, positive, numbers):
    """phi [B, 1]; a sequence's ratio counts once."""
    least = math.log(1e-8)
    w = (difference.clamp(-20, 20) * mask).sum(-1, keepdim=True)
    if ratio is not None:
        logs = ratio.float().log().clamp(least, 20)
        w = w + (logs.view(-1, 1) if logs.numel() == len(logs) else (logs * mask).sum(-1, keepdim=True))
    w = w.clamp(least, 20)
    k_positive, lambda_positive, k_negative, lambda_negative = numbers
    k = torch.where(positive, k_positive, k_negative)
    rate = torch.where(positive, lambda_positive, lambda_negative).clamp(min=1e-4)
    return torch.exp(rate + k * w - rate * w.exp()).nan_to_num(0.0, 0.0, 0.0)


def _token_losses(logprob, mask, advantages, old, ref, ratio, kind, beta, options):
    """(loss, KL or None, clipped or not) of each token [B, L], 0 where the mask is, as policy_loss.h has them. Its loss
    of a token has no gradient of its own, so this is torch's."""
    mask = (mask != 0).float()
    counts = mask.sum(-1, keepdim=True).clamp(min=1)
    a = advantages.float().view(-1, 1)
    difference = (logprob - (logprob.detach() if old is None else old.float())).where(mask != 0, 0.0)
    w = (difference * mask).sum(-1, keepdim=True) / counts if options["level"] == "sequence" else difference
    rho = torch.exp(w)
    low, high = options["eps_low"], options["eps_high"]
    if kind == "cispo":
        f = -rho.clamp(max=high).detach() * a * logprob
        clipped = (rho > high) & (a > 0)
    elif kind == "sapo":
        f = -torch.where(a > 0, _gate(rho, options["tau_positive"]), _gate(rho, options["tau_negative"])) * a
        clipped = torch.zeros_like(rho, dtype=torch.bool)
    elif kind == "vespo":
        numbers = [options[name] for name in ("k_positive", "lambda_positive", "k_negative", "lambda_negative")]
        f = -_vespo_weight(difference, ratio, mask, a >= 0, numbers) * a * logprob
        clipped, ratio = torch.zeros_like(rho, dtype=torch.bool), None
    else:
        bounded = rho if options["delta"] is None else rho.clamp(max=options["delta"])
        f = -torch.min(bounded * a, rho.clamp(1 - low, 1 + high) * a)
        clipped = ((rho < 1 - low) & (a < 0)) | ((rho > 1 + high) & (a > 0))
    if ratio is not None:
        f = f * ratio.float().view(len(ratio), -1)
    kl = None
    if beta != 0:
        d = (ref.float() - logprob).where(mask != 0, 0.0)
        kl = torch.exp(d) - d - 1
        f = f + beta * (kl * rho if options["kl_bias_corrected"] else kl)
        kl = (kl * mask).detach()
    return f * mask, kl, clipped * mask


def _grpo(logits, old, ref, ids, advantages, mask, temperature, beta, inplace, kind, reduce, ratio, items, **options):
    require(beta == 0 or ref is not None, f"ref_logp is None, must be there with beta {beta}")
    counted = torch.ones_like(ids) if mask is None else mask
    _check(kind, options["level"], options["delta"], ratio, counted)
    logprob = _logprob(logits, ids, mask, temperature, inplace)
    if reduce:
        options["max_length"] = options["max_length"] if kind == "dr_grpo" else None
        of_tokens = functools.partial(F.policy_loss, logprob, mask=counted)
        loss, metrics = _policy(of_tokens, counted, ref, advantages, old, ratio, kind, beta, items, **options)
        return loss, metrics[0] if beta != 0 else None, metrics[-1]
    return _token_losses(logprob, counted, advantages, old, ref, ratio, kind, beta, options)


class GrpoLossFunction:
    @staticmethod
    @asserting
    def apply(
        logits,
        old_logp,
        ref_logp,
        completion_ids,
        advantages,
        completion_mask,
        temperature,
        beta,
        eps_low,
        eps_high,
        inplace,
        loss_type="grpo",
        max_completion_length=None,
        reduce=True,
        importance_sampling_level="token",
        sapo_temperature_pos=1.0,
        sapo_temperature_neg=1.05,
        vllm_is_ratio=None,
        delta=None,
        use_bias_correction_kl=False,
        num_items_in_batch=None,
        phi_seq=None,
    ):
        """(loss, mean KL or None, share of clipped tokens), or of each token [B, L] if not `reduce`."""
        vespo = loss_type == "vespo" or phi_seq is not None
        require(not vespo, "loss_type is 'vespo', whose weights are no argument here: call triton_grpo_loss")
        return _grpo(
            *(logits, old_logp, ref_logp, completion_ids, advantages, completion_mask, temperature, beta, inplace),
            *(loss_type, reduce, vllm_is_ratio, num_items_in_batch),
            level=importance_sampling_level,
            eps_low=eps_low,
            eps_high=eps_high,
            delta=delta,
            tau_positive=sapo_temperature_pos,
            tau_negative=sapo_temperature_neg,
            kl_bias_corrected=use_bias_correction_kl,
            max_length=max_completion_length,
        )


@asserting
def triton_grpo_loss(
    logits,
    old_logp,
    ref_logp,
    completion_ids,
    advantages,
    completion_mask=None,
    temperature=0.9,
    beta=0.04,
    eps_low=0.2,
    eps_high=0.4,
    inplace=True,
    loss_type="dapo",
    max_completion_length=None,
    importance_sampling_level="token",
    reduce=False,
    sapo_temperature_pos=1.0,
    sapo_temperature_neg=1.05,
    vllm_is_ratio=None,
    delta=None,
    use_bias_correction_kl=False,
    num_items_in_batch=None,
    vespo_k_pos=2.0,
    vespo_lambda_pos=3.0,
    vespo_k_neg=3.0,
    vespo_lambda_neg=2.0,
):
    """(loss, [mean KL unless beta is 0, share of clipped tokens]), or without `reduce` of each token [B, L]: (loss, KL
    or None, clipped or not). With `inplace` backward leaves the gradient where the logits were."""
    found = _grpo(
        *(logits, old_logp, ref_logp, completion_ids, advantages, completion_mask, temperature, beta, inplace),
        *(loss_type, reduce, vllm_is_ratio, num_items_in_batch),
        level=importance_sampling_level,
        eps_low=eps_low,
        eps_high=eps_high,
        delta=delta,
        tau_positive=sapo_temperature_pos,
        tau_negative=sapo_temperature_neg,
        k_positive=vespo_k_pos,
        lambda_positive=vespo_lambda_pos,
        k_negative=vespo_k_neg,
        lambda_negative=vespo_lambda_neg,
        kl_bias_corrected=use_bias_correction_kl,
        max_length=max_completion_length,
    )
    if not reduce:
        return found
    loss, *metrics = found
    return loss, [metric for metric in metrics if metric is not None]


@torch.no_grad()
def fused_selective_log_softmax(logits, input_ids, temperature=0.9, mask=None):
    """[B, L], without gradient: of the last L of input_ids, 0 where the mask is."""
    length = logits.shape[1] - 1
    mask = mask if mask is None else mask[:, -length:]
    return _logprob(logits, input_ids[:, -length:], mask, temperature, False)
