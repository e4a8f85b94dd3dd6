"""policy_loss, from the log-probabilities of sampled tokens to GRPO and its kin."""

from typing import NamedTuple

import torch

from tigon.torch._autograd import Choice, autograd_function, nonzero
from tigon.torch._op import Op

FUNCTIONS = ["PolicyLossOutputs", "policy_loss"]
MODULES = ["PolicyLoss"]

_KIND = Choice("kind", grpo=0, bnpo=1, dr_grpo=2, dapo=3, luspo=4, cispo=5, sapo=6, vespo=7)
_LEVEL = Choice("level", token=False, sequence=True)


class PolicyLossOutputs(NamedTuple):
    loss: torch.Tensor
    """f32, a scalar; the only one that has a gradient."""
    token_loss: torch.Tensor
    """f32, laid out as logprob: each token's, before its weight; 0 where the mask is."""
    kl: torch.Tensor
    """f32, a scalar, as all that follow, over the tokens that count: the mean of k3."""
    clip_low: torch.Tensor
    """The share with rho below 1 - eps_low and a negative advantage."""
    clip_high: torch.Tensor
    """The share with rho above 1 + eps_high and a positive advantage."""
    entropy: torch.Tensor
    """The mean entropy."""
    ratio: torch.Tensor
    """The mean rho."""


METRICS = "token_loss", "kl", "clip_low", "clip_high", "mean_entropy", "mean_ratio"
_fwd = Op(
    "policy_loss_fwd",
    options=("bool more",),
    when=dict.fromkeys(METRICS, lambda given: given["more"]),
)


def _forward(ctx, *args):
    """The gradients come with the loss."""
    tensors, options = args[:-1], args[-1]
    need = (ctx.needs_input_grad[0], ctx.needs_input_grad[5]) if ctx is not None else (False, False)
    loss, token_loss, dlogprob, dentropy, *metrics = _fwd(*tensors, *options, *need)
    others = (token_loss, *metrics) if options[0] else ()
    if ctx is not None:
        ctx.save_for_backward(*[d if needed else None for d, needed in zip((dlogprob, dentropy), need)])
        if others:
            ctx.mark_non_differentiable(*others)
    return (loss, *others) if others else loss


def _backward(ctx, dloss, *_):
    dlogprob, dentropy = [d if d is None else d * dloss for d in ctx.saved_tensors]
    return dlogprob, None, None, None, None, dentropy, None, None, None, None


_PolicyLoss = autograd_function("policy_loss", _forward, _backward)


def each(given, sequences):
    """A vector of sequences or tokens, and whether it is of tokens."""
    if given is None:
        return None, False
    flat = given.float().reshape(-1)
    return flat, flat.shape[0] != sequences


def numbers(
    call,
    of_tokens,
    ratio_of_tokens,
    kind="dapo",
    level="token",
    eps_low=0.2,
    eps_high=None,
    delta=None,
    tau_positive=1.0,
    tau_negative=1.05,
    k_positive=2.0,
    lambda_positive=3.0,
    k_negative=3.0,
    lambda_negative=2.0,
    kl_weight=0.0,
    kl_bias_corrected=False,
    entropy_weight=0.0,
    max_length=None,
):
    """The options of the C entries in their order."""
    number, of_sequences = _KIND[kind], _LEVEL[level]
    if eps_high is None:
        eps_high = 5.0 if kind == "cispo" else eps_low
    of_sapo = dict(tau_positive=tau_positive, tau_negative=tau_negative)
    of_vespo = dict(k_positive=k_positive, lambda_positive=lambda_positive)
    of_vespo |= dict(k_negative=k_negative, lambda_negative=lambda_negative)
    return (
        *(number, of_sequences, of_tokens, ratio_of_tokens, kl_bias_corrected),
        nonzero(call, "eps_low", eps_low),
        nonzero(call, "eps_high", eps_high),
        0.0 if delta is None else nonzero(call, "delta", delta),
        *[nonzero(call, *item) for item in (of_sapo | of_vespo).items()],
        *(kl_weight, entropy_weight),
        0 if max_length is None else nonzero(call, "max_length", max_length),
    )


def integers(mask):
    """What the entries take: 0 where a token does not count. A mask of integers goes as it is."""
    if mask.dtype in (torch.int32, torch.int64):
        return mask
    return (mask if mask.dtype == torch.bool else mask != 0).int()


def one_number(given, like, or_each=False):
    """A number, or a tensor of one, as the vector that the entries take; None stays so, and with `or_each` a vector."""
    if given is None:
        return None
    if isinstance(given, torch.Tensor):
        given = given.detach().to(like.device, torch.float32)
        return given.contiguous() if or_each and given.ndim == 1 else given.reshape(1)
    return torch.full((1,), given, dtype=torch.float32, device=like.device)


def policy_loss(
    logprob,
    advantage,
    segments=None,
    *,
    old=None,
    ref=None,
    entropy=None,
    ratio=None,
    mask=None,
    kind="dapo",
    level="token",
    eps_low=0.2,
    eps_high=None,
    delta=None,
    tau_positive=1.0,
    tau_negative=1.05,
    k_positive=2.0,
    lambda_positive=3.0,
    k_negative=3.0,
    lambda_negative=2.0,
    kl_weight=0.0,
    kl_bias_corrected=False,
    entropy_weight=0.0,
    max_length=None,
    denominator=None,
    outputs=False,
):
    """The policy-gradient loss of sampled tokens, or with `outputs` PolicyLossOutputs.

    logprob [B, T] with a mask [B, T], or [N] with segments [S + 1]: sequence s has the tokens from segments[s] to
    segments[s + 1] - 1. old (absent: the policy's own, as constants), ref and entropy are laid out as logprob.
    advantage and ratio, the importance of the sampler's policy, are of sequences ([B], [B, 1] or [S]) or of tokens. As
    many as there are sequences are of these.
    `kind` is "grpo", "bnpo", "dr_grpo", "dapo", "luspo", "cispo", "sapo" or "vespo"; `level` "token" or "sequence",
    which is GSPO's ratio. eps_high is eps_low if None, with "cispo" 5. max_length is T if None. tau is
    "sapo"'s, k and lambda are "vespo"'s, by the sign of the advantage.
    denominator, a number or a tensor of one, takes the place of the sequences or tokens that a kind divides by: those
    of all batches whose gradients are added up. Only logprob and entropy get gradients; nothing waits for the device.
    The formulas are in include/tigon/op/policy_loss.h.
    """
    call = "policy_loss"
    if (segments is None) != (logprob.ndim == 2):
        must = "absent where logprob is [B, T], else there"
        raise ValueError(f"{call}: segments is {'absent' if segments is None else 'there'}, must be {must}")
    shape = logprob.shape
    if segments is None:
        sequences = shape[0]
        segments = torch.arange(sequences + 1, device=logprob.device) * shape[1]
    else:
        sequences = segments.shape[0] - 1
    flat = [t if t is None else t.float().reshape(-1) for t in (logprob, old, ref, entropy)]
    (advantage, of_tokens), (ratio, ratio_of_tokens) = each(advantage, sequences), each(ratio, sequences)
    if mask is not None:
        mask = integers(mask).reshape(-1)
    options = (
        outputs,
        *numbers(
            *(call, of_tokens, ratio_of_tokens, kind, level, eps_low, eps_high, delta, tau_positive, tau_negative),
            *(k_positive, lambda_positive, k_negative, lambda_negative, kl_weight, kl_bias_corrected),
            *(entropy_weight, max_length),
        ),
    )
    denominator = one_number(denominator, logprob)
    found = _PolicyLoss(flat[0], segments, advantage, *flat[1:], ratio, mask, denominator, options)
    if not outputs:
        return found
    loss, token_loss, *metrics = found
    return PolicyLossOutputs(loss, token_loss.reshape(shape), *metrics)


class PolicyLoss(torch.nn.Module):
    """functional.policy_loss; the options that are no tensors are the keyword arguments."""

    def __init__(self, kind="dapo", **options):
        super().__init__()
        self.kind, self.options = kind, options

    def forward(self, logprob, advantage, segments=None, **tensors):
        return policy_loss(logprob, advantage, segments, kind=self.kind, **self.options, **tensors)

    def extra_repr(self):
        return ", ".join([f"kind={self.kind!r}"] + [f"{name}={value}" for name, value in self.options.items()])
