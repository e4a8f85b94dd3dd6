"""The losses among the cases of peers_cpu.py: what PyTorch does with the tensors of Tigon's case (tests/check)."""
import math


def load_torch():
    global torch, F
    import torch
    import torch.nn.functional as F


def cross_entropy(t):
    logits, labels, loss, dlogits = t.tensors("logits", "labels", "loss", "dlogits")
    return lambda x: F.cross_entropy(x.float(), labels), [logits], [torch.tensor(1.0)], [loss[0]], [dlogits]


def divergence(t):
    x, target, loss, dinput = t.tensors("input", "target", "loss", "dinput")

    def jsd(x):
        lq, lp = x.float().log_softmax(-1), target.float().log_softmax(-1)
        lm = torch.logaddexp(lq, lp) - math.log(2)
        return 0.5 * (lp.exp() * (lp - lm) + lq.exp() * (lq - lm)).sum(-1).mean()

    return jsd, [x], [torch.tensor(1.0)], [loss[0]], [dinput]


def topk_divergence(t):
    x, target, ids, loss, dinput = t.tensors("input", "target", "target_ids", "loss", "dinput")
    ids = ids.long()
    first = (ids[:, :, None] == ids[:, None]).int().argmax(-1) == torch.arange(ids.shape[-1])  # some repeat

    def kl(x):
        lq, p = x.float().log_softmax(-1), target.exp() * first.to(target)
        rest, p_rest = lq.scatter(-1, ids, -math.inf).logsumexp(-1), (1 - p.sum(-1)).clamp(min=0)
        return ((p * (target - lq.gather(-1, ids))).sum(-1) + torch.xlogy(p_rest, p_rest) - p_rest * rest).mean()

    return kl, [x], [torch.tensor(1.0)], [loss[0]], [dinput]


def fused_linear_cross_entropy(t):
    hidden, weight, labels, loss, dhidden, dweight = t.tensors("hidden", "weight", "labels", "loss", "dhidden", "dweight")
    labels = labels.long()

    def function(hidden, weight):
        return F.cross_entropy(F.linear(hidden, weight).float(), labels, ignore_index=0)

    return function, [hidden, weight], [torch.ones_like(loss[0])], [loss[0]], [dhidden, dweight]


def linear_logprob(t):
    hidden, weight, labels, dlogprob, logprob = t.tensors("hidden", "weight", "labels", "dlogprob", "logprob")
    labels = labels.long()[:, None]

    def function(hidden, weight):
        return F.linear(hidden, weight).float().log_softmax(-1).gather(-1, labels)[:, 0]

    return function, [hidden, weight], [dlogprob], [logprob], t.tensors("dhidden", "dweight")


def policy_loss(t):
    """GRPO of a padded batch; Tigon's metrics are not made."""
    logprob, old, mask, advantage = t.tensors("logprob", "old", "mask", "advantage")
    padded = (advantage.shape[0], -1)
    advantage, counts = advantage[:, None], (mask != 0).float().view(padded)
    own = counts.sum(-1).clamp(min=1)

    def grpo(logprob):
        ratio = (logprob - old).exp().view(padded)
        losses = -torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage)
        return ((losses * counts).sum(-1) / own).mean()

    loss, dlogprob = t.tensors("loss", "dlogprob")
    return grpo, [logprob], [torch.ones_like(loss[0])], [loss[0]], [dlogprob]


def preference_loss(t):
    """DPO; Tigon's rewards and metrics are not made."""
    logps, ref, loss, dlogps = t.tensors("logps", "ref", "loss", "dlogps")

    def dpo(logps):
        chosen, rejected = (logps - ref).chunk(2)
        return -F.logsigmoid(0.1 * (chosen - rejected)).mean()

    return dpo, [logps], [torch.ones_like(loss[0])], [loss[0]], [dlogps]


CASES = [cross_entropy, divergence, fused_linear_cross_entropy, linear_logprob, policy_loss, preference_loss,
         topk_divergence]
