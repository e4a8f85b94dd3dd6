"""Liger-Kernel's GRPO losses: of hidden states [B, T, H] and a head, and of logits [B, T + 1, V].

`compiled` and `chunk_size` have no effect: nothing is compiled, and the head's logits are held in chunks of tokens."""

import functools

import torch
from torch import nn

from ...torch import functional as F
from ._losses import LigerError, asserting, require

_IGNORED = -100
_BY_TOKENS = "dapo", "cispo", "vespo"  # whose mean is over the tokens of all ranks
_OF_TOKENS = "cispo", "sapo", "vespo"  # which have no sequence level and no delta
_KINDS = "grpo", "bnpo", "dr_grpo", "luspo", *_BY_TOKENS, "sapo"


def _check(kind, level, delta, ratio, mask):
    require(kind in _KINDS, f"loss_type is {kind!r}, must be one of {', '.join(_KINDS)}")
    levels = ("token", "sequence")
    require(level in levels, f"importance_sampling_level is {level!r}, must be 'token' or 'sequence'")
    of_tokens = kind in _OF_TOKENS
    require(not of_tokens or level == "token", f"importance_sampling_level is {level!r}, must be 'token' with {kind!r}")
    require(not of_tokens or delta is None, f"delta is {delta}, must be None with loss_type {kind!r}")
    if ratio is not None:
        rows, width = mask.shape
        shapes = [(rows,), (rows, 1), (rows, width)]
        found = tuple(ratio.shape)
        require(found in shapes, f"vllm_is_ratio.shape is {list(found)}, must be one of {[list(s) for s in shapes]}")


def _denominator(kind, mask, items):
    """The tokens that a mean of "dapo", "cispo" or "vespo" is over: those of all ranks, by their number."""
    if kind not in _BY_TOKENS:
        return None
    ranks = 1
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        ranks = torch.distributed.get_world_size()
    if items is None:
        if ranks == 1:
            return None
        items = (mask != 0).sum().float()
        torch.distributed.all_reduce(items)
    items = items.to(mask.device) if isinstance(items, torch.Tensor) else items
    return items / ranks


def _policy(loss, mask, ref, advantages, old, ratio, kind, beta, items, **options):
    """(loss, [mean KL unless beta is 0, the share of clipped tokens]).

    The one place where this file's losses meet the operators: `loss` is policy_loss of log-probabilities, or
    fused_linear_policy of a head."""
    given = dict(old=old, ref=ref if beta != 0 else None, outputs=True, **options)
    denominator = _denominator(kind, mask, items)
    found = loss(advantages, ratio=ratio, kind=kind, kl_weight=beta, denominator=denominator, **given)
    kl = [found.kl] if beta != 0 else []
    if kl and options["kl_bias_corrected"]:  # the mean of k3 rho: all that is left without an advantage
        with torch.no_grad():
            kl = [loss(torch.zeros_like(advantages), kind="bnpo", kl_weight=1.0, **given).loss]
    return found.loss, kl + [found.clip_low + found.clip_high]


def _head_policy(hidden, weight, ids, mask, bias, temperature, reference, ref, *arguments, **options):
    """_policy of a head, and of `ref` [B, T] or the log-probabilities of `reference`, (hidden, weight, bias) or None.

    Tokens outside of the mask are not multiplied."""
    target = ids.where(mask != 0, _IGNORED)
    of_head = dict(ignore_index=_IGNORED, temperature=temperature)
    if reference is not None:
        with torch.no_grad():
            ref = F.linear_logprob(*reference[:2], target, reference[2], **of_head).logprob
    loss = functools.partial(F.fused_linear_policy, hidden, weight, target, bias=bias, **of_head)
    return _policy(loss, mask, ref, *arguments, **options)


class LigerFusedLinearGRPOFunction:
    @staticmethod
    @asserting
    def apply(
        _input,
        weight,
        selected_token_ids,
        attention_mask,
        advantages,
        bias=None,
        ref_per_token_logps=None,
        old_per_token_logps=None,
        ref_input=None,
        ref_weight=None,
        ref_bias=None,
        beta=0.04,
        epsilon_low=0.2,
        epsilon_high=0.2,
        loss_type="dapo",
        max_completion_length=None,
        importance_sampling_level="token",
        sapo_temperature_pos=1.0,
        sapo_temperature_neg=1.05,
        temperature=1.0,
        compiled=True,
        use_ref_model=True,
        chunk_size=1,
        vllm_is_ratio=None,
        delta=None,
        use_bias_correction_kl=False,
        vespo_k_pos=2.0,
        vespo_lambda_pos=3.0,
        vespo_k_neg=3.0,
        vespo_lambda_neg=2.0,
        num_items_in_batch=None,
    ):
        """(loss, (mean KL unless beta is 0, the share of clipped tokens))."""
        _check(loss_type, importance_sampling_level, delta, vllm_is_ratio, attention_mask)
        length = loss_type != "dr_grpo" or max_completion_length is not None
        require(length, "max_completion_length is None, must be there with loss_type 'dr_grpo'")
        reference = None
        if use_ref_model and ref_per_token_logps is None:
            there = ref_input is not None and ref_weight is not None
            require(there, "ref_per_token_logps or ref_input is None, must be there: use_ref_model")
            reference = ref_input, ref_weight, ref_bias

        loss, metrics = _head_policy(
            *(_input, weight, selected_token_ids, attention_mask, bias, temperature),
            reference if beta != 0 else None,
            ref_per_token_logps if use_ref_model else None,
            *(advantages, old_per_token_logps, vllm_is_ratio, loss_type, beta, num_items_in_batch),
            level=importance_sampling_level,
            eps_low=epsilon_low,
            eps_high=epsilon_high,
            delta=delta,
            tau_positive=sapo_temperature_pos,
            tau_negative=sapo_temperature_neg,
            k_positive=vespo_k_pos,
            lambda_positive=vespo_lambda_pos,
            k_negative=vespo_k_neg,
            lambda_negative=vespo_lambda_neg,
            kl_bias_corrected=use_bias_correction_kl,
            max_length=max_completion_length if loss_type == "dr_grpo" else None,
        )
        return loss, tuple(metrics)


class LigerFusedLinearGRPOLoss(nn.Module):
    def __init__(
        self,
        beta=0.04,
        compiled=True,
        use_ref_model=True,
        chunk_size=1,
        epsilon_low=0.2,
        epsilon_high=0.2,
        loss_type="dapo",
        max_completion_length=None,
        importance_sampling_level="token",
        sapo_temperature_pos=1.0,
        sapo_temperature_neg=1.05,
        temperature=1.0,
        delta=None,
        use_bias_correction_kl=False,
        vespo_k_pos=2.0,
        vespo_lambda_pos=3.0,
        vespo_k_neg=3.0,
        vespo_lambda_neg=2.0,
    ):
        super().__init__()
        positive = dict(sapo_temperature_pos=sapo_temperature_pos, sapo_temperature_neg=sapo_temperature_neg)
        for name, value in (positive | dict(delta=delta)).items():
            if value is not None and value <= 0:
                raise LigerError(f"{name} is {value}, must be greater than 0")
        self.beta, self.compiled, self.use_ref_model, self.chunk_size = beta, compiled, use_ref_model, chunk_size
        self.epsilon_low, self.epsilon_high, self.loss_type = epsilon_low, epsilon_high, loss_type
        self.max_completion_length = max_completion_length
        self.importance_sampling_level = importance_sampling_level
        self.sapo_temperature_pos, self.sapo_temperature_neg = sapo_temperature_pos, sapo_temperature_neg
        self.temperature, self.delta, self.use_bias_correction_kl = temperature, delta, use_bias_correction_kl
        self.vespo_k_pos, self.vespo_lambda_pos = vespo_k_pos, vespo_lambda_pos
        self.vespo_k_neg, self.vespo_lambda_neg = vespo_k_neg, vespo_lambda_neg

    def forward(
        self,
        _input,
        lin_weight,
        selected_token_ids,
        attention_mask,
        advantages,
        bias=None,
        ref_per_token_logps=None,
        old_per_token_logps=None,
        ref_input=None,
        ref_weight=None,
        ref_bias=None,
        vllm_is_ratio=None,
        num_items_in_batch=None,
    ):
        return LigerFusedLinearGRPOFunction.apply(
            *(_input, lin_weight, selected_token_ids, attention_mask, advantages, bias),
            *(ref_per_token_logps, old_per_token_logps, ref_input, ref_weight, ref_bias),
            *(self.beta, self.epsilon_low, self.epsilon_high, self.loss_type, self.max_completion_length),
            *(self.importance_sampling_level, self.sapo_temperature_pos, self.sapo_temperature_neg, self.temperature),
            *(self.compiled, self.use_ref_model, self.chunk_size, vllm_is_ratio, self.delta),
            *(self.use_bias_correction_kl, self.vespo_k_pos, self.vespo_lambda_pos, self.vespo_k_neg),
            *(self.vespo_lambda_neg, num_items_in_batch),
        )


liger_fused_linear_grpo = LigerFusedLinearGRPOFunction.apply
