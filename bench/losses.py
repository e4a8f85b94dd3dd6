"""The losses among the cases of peers_cpu.py: what PyTorch does with the tensors of Tigon's case (tests/check)."""
import math


def load_torch():
    global torch, F
    import torch
    import torch.nn.functional as F


def cross_entropy(t):
    logits, labels, loss, dlogits = t.tensors("logits", "labels", "loss", "dlogits")
    return lambda x: F.cross_entropy(x.float(), labels), [logits], [torch.ones_like(loss[0])], [loss[0]], [dlogits]


def jsd(x, target):
    lq, lp = x.float().log_softmax(-1), target.float().log_softmax(-1)
    lm = torch.logaddexp(lq, lp) - math.log(2)
    return 0.5 * (lp.exp() * (lp - lm) + lq.exp() * (lq - lm)).sum(-1).mean()


def divergence(t):
    x, target, loss, dinput = t.tensors("input", "target", "loss", "dinput")
    return lambda x: jsd(x, target), [x], [torch.ones_like(loss[0])], [loss[0]], [dinput]


def kl_divergence(t):
    kl = lambda x, target: F.kl_div(x.float().log_softmax(-1), target.float().log_softmax(-1), reduction="batchmean", log_target=True)
    return (lambda x, target=t.tensors("target")[0]: kl(x, target)), *divergence(t)[1:]


def topk_divergence(t):
    x, target, ids, loss, dinput = t.tensors("input", "target", "target_ids", "loss", "dinput")
    ids = ids.long()
    first = (ids[:, :, None] == ids[:, None]).int().argmax(-1) == torch.arange(ids.shape[-1], device=ids.device)  # some repeat

    def kl(x):
        lq, p = x.float().log_softmax(-1), target.exp() * first.to(target)
        rest, p_rest = lq.scatter(-1, ids, -math.inf).logsumexp(-1), (1 - p.sum(-1)).clamp(min=0)
        return ((p * (target - lq.gather(-1, ids))).sum(-1) + torch.xlogy(p_rest, p_rest) - p_rest * rest).mean()

    return kl, [x], [torch.ones_like(loss[0])], [loss[0]], [dinput]


def fused_linear_cross_entropy(t):
    hidden, weight, labels, loss, dhidden, dweight = t.tensors("hidden", "weight", "labels", "loss", "dhidden", "dweight")
    labels = labels.long()

    def function(hidden, weight):
        return F.cross_entropy(F.linear(hidden, weight).float(), labels, ignore_index=0)

    return function, [hidden, weight], [torch.ones_like(loss[0])], [loss[0]], [dhidden, dweight]


def fused_linear_divergence(t):
    hidden, weight, loss, dhidden, dweight = t.tensors("hidden", "weight", "loss", "dhidden", "dweight")
    teacher = t.tensors("teacher_hidden", "teacher_weight")

    def function(hidden, weight):
        return jsd(F.linear(hidden, weight), F.linear(*teacher))

    return function, [hidden, weight], [torch.ones_like(loss[0])], [loss[0]], [dhidden, dweight]


def linear_logprob(t):
    hidden, weight, labels, dlogprob, logprob = t.tensors("hidden", "weight", "labels", "dlogprob", "logprob")
    labels = labels.long()[:, None]

    def function(hidden, weight):
        return F.linear(hidden, weight).float().log_softmax(-1).gather(-1, labels)[:, 0]

    return function, [hidden, weight], [dlogprob], [logprob], t.tensors("dhidden", "dweight")


def grpo(logprob, old, advantage, counts):
    """GRPO of a padded batch [B, T] by log-probabilities; Tigon's metrics are not made."""
    ratio, advantage = (logprob - old).exp(), advantage[:, None]
    losses = -torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage)
    return ((losses * counts).sum(-1) / counts.sum(-1).clamp(min=1)).mean()


def dpo(t):
    """DPO by sums of log-probabilities; Tigon's rewards and metrics are not made."""
    (ref,) = t.tensors("ref")

    def function(logps):
        chosen, rejected = (logps - ref).chunk(2)
        return -F.logsigmoid(0.1 * (chosen - rejected)).mean()

    return function


def of_vector(t, function, given):
    inputs, loss, gradients = t.tensors(given, "loss", f"d{given}")
    return function, [inputs], [torch.ones_like(loss[0])], [loss[0]], [gradients]


def policy_loss(t):
    old, mask, advantage = t.tensors("old", "mask", "advantage")
    padded = (len(advantage), -1)
    old, counts = old.view(padded), (mask != 0).float().view(padded)
    return of_vector(t, lambda logprob: grpo(logprob.view(padded), old, advantage, counts), "logprob")


def preference_loss(t):
    return of_vector(t, dpo(t), "logps")


def of_head(t, function, sequences):
    """A loss of the log-probabilities [B, T] of `sequences` that are as long."""
    hidden, weight, labels, loss, dhidden, dweight = t.tensors("hidden", "weight", "labels", "loss", "dhidden", "dweight")
    labels = labels.long()[:, None]

    def of_hidden(hidden, weight):
        logprob = F.linear(hidden, weight).float().log_softmax(-1).gather(-1, labels)
        return function(logprob.view(sequences, -1))

    return of_hidden, [hidden, weight], [torch.ones_like(loss[0])], [loss[0]], [dhidden, dweight]


def fused_linear_policy(t):
    (advantage,) = t.tensors("advantage")
    every = torch.ones(len(advantage), 1, device=advantage.device).expand(-1, t.rows // len(advantage))
    return of_head(t, lambda logprob: grpo(logprob, logprob.detach(), advantage, every), len(advantage))


def fused_linear_preference(t):
    function = dpo(t)
    return of_head(t, lambda logprob: function(logprob.sum(-1)), len(*t.tensors("ref")))


CASES = [
    cross_entropy, divergence, fused_linear_cross_entropy, linear_logprob, policy_loss, preference_loss,
    fused_linear_policy, fused_linear_preference, fused_linear_divergence, topk_divergence
]
FORMS = {"linear_logprob+cache": linear_logprob, "divergence+kl": kl_divergence}  # what is behind + as in layers.py


# ---- Tigon from PyTorch, by peers_cpu.py's load_tigon() ----


def policy_from_torch(segments, advantage, old, mask):
    return lambda logprob: T.policy_loss(logprob, advantage, segments, old=old, mask=mask, kind="grpo")


def policy_head_from_torch(labels, advantage):
    labels = labels.view(len(advantage), -1)
    return lambda h, w: T.fused_linear_policy(
        h.view(*labels.shape, -1), w, labels, advantage, kind="grpo", ignore_index=None)


def preference_head_from_torch(labels, ref):
    labels = labels.view(len(ref), -1)
    return lambda h, w: T.fused_linear_preference(
        h.view(*labels.shape, -1), w, labels, ref_logps=ref, ignore_index=None)


FROM_TORCH = {
    "cross_entropy": lambda t: lambda x, labels=t.tensors("labels")[0]: T.cross_entropy(x, labels),
    "divergence": lambda t: lambda x, target=t.tensors("target")[0]: T.divergence(x, target, "jsd"),
    "divergence+kl": lambda t: lambda x, target=t.tensors("target")[0]: T.divergence(x, target, "kl"),
    "topk_divergence": lambda t: lambda x, given=t.tensors("target", "target_ids"): T.topk_divergence(x, *given, tail=True),
    "fused_linear_cross_entropy": lambda t: lambda h, w, labels=t.tensors("labels")[0]: T.fused_linear_cross_entropy(
        h, w, labels, ignore_index=0),
    "linear_logprob": lambda t: lambda h, w, labels=t.tensors("labels")[0]: T.linear_logprob(h, w, labels).logprob,
    "linear_logprob+cache": lambda t: lambda h, w, labels=t.tensors("labels")[0]: T.linear_logprob(
        h, w, labels, cache_bytes=1 << 32).logprob,
    "policy_loss": lambda t: policy_from_torch(*t.tensors("segments", "advantage", "old", "mask")),
    "preference_loss": lambda t: lambda logps, ref=t.tensors("ref")[0]: T.preference_loss(logps, ref),
    "fused_linear_divergence": lambda t: lambda h, w, teacher=t.tensors("teacher_hidden", "teacher_weight"): (
        T.fused_linear_divergence(h, w, *teacher, kind="jsd")),
    "fused_linear_policy": lambda t: policy_head_from_torch(*t.tensors("labels", "advantage")),
    "fused_linear_preference": lambda t: preference_head_from_torch(*t.tensors("labels", "ref")),
}
