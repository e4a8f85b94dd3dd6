"""Liger-Kernel's fused_linear_scaled_cross_entropy: each token's loss at a temperature, on linear_logprob."""

import torch

from ...torch import functional as F
from ._losses import asserting, require


def _chosen(hidden, weight, target, logprob, temperature, ignore_index, ids):
    """The log-probabilities [M, K] of the same K classes for every token: their logits less the token's log-sum-exp,
    which its own logit less its log-probability is."""
    counted = target != ignore_index
    labels = F.embedding(target.where(counted, 0), weight)
    own = (hidden.float() * labels.float()).sum(-1) / temperature
    logits = hidden.float() @ F.embedding(ids, weight).float().T / temperature
    return (logits - (own - logprob).unsqueeze(-1)).where(counted.unsqueeze(-1), 0)


def _outputs(found, selected=None):
    outputs = [-found.logprob] + [extra for extra in (found.entropy, selected) if extra is not None]
    return outputs[0] if len(outputs) == 1 else tuple(outputs)


class LigerFusedLinearScaledCrossEntropyFunction:
    @staticmethod
    @asserting
    def apply(
        _input,
        weight,
        target,
        temperature=1.0,
        ignore_index=-100,
        m_tiles_per_cluster=1,
        return_entropy=False,
        selected_token_ids=None,
    ):
        """Each token's loss, its entropy with return_entropy, and with selected_token_ids [K] the log-probabilities
        [M, K] of those; all f32, and 0 where ignored."""
        options = dict(ignore_index=ignore_index, temperature=temperature, entropy=return_entropy)
        if selected_token_ids is None:
            return _outputs(F.linear_logprob(_input, weight, target, **options))
        require(selected_token_ids.dim() == 1, f"selected_token_ids.ndim is {selected_token_ids.dim()}, must be 1")
        found = F.linear_logprob(_input, weight, target, logits_in_f32=True, **options)
        arguments = _input, weight, target, found.logprob, temperature, ignore_index, selected_token_ids
        return _outputs(found, _chosen(*arguments))


class LigerFusedLinearScaledCrossEntropyTPFunction:
    @staticmethod
    @asserting
    def apply(
        _input,
        weight,
        target,
        tp_group,
        temperature=1.0,
        ignore_index=-100,
        tiles_per_reduce=1,
        return_entropy=False,
    ):
        """The same of a head whose vocabulary the group's ranks share out in equal parts; target has global classes."""
        group = torch.distributed.group.WORLD if tp_group is None else tp_group
        options = dict(ignore_index=ignore_index, temperature=temperature, entropy=return_entropy)
        return _outputs(F.linear_logprob(_input, weight, target, group=group, **options))


def liger_fused_linear_scaled_cross_entropy_tp(
    input,
    weight,
    target,
    tp_group,
    temperature: float = 1.0,
    ignore_index: int = -100,
    tiles_per_reduce: int = 1,
    return_entropy: bool = False,
):
    options = temperature, ignore_index, tiles_per_reduce, return_entropy
    return LigerFusedLinearScaledCrossEntropyTPFunction.apply(input, weight, target, tp_group, *options)
