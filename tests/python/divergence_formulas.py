"""What the tests of divergences and of their heads share: the kinds in plain torch, and a call held to them in f64."""

import torch

ROWS, V = 6, 37
LABELS = torch.tensor([3, -100, 0, 36, -100, 5])
KINDS = ["kl", "reverse_kl", "jsd", "tvd"]
SIDES = ["logits", "log_probs", "probs"]


def rows(side, seed):
    """[ROWS, V] f64 of a side."""
    logits = 2 * torch.randn(ROWS, V, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return {"logits": logits, "log_probs": logits.log_softmax(-1), "probs": logits.softmax(-1)}[side]


def log_of(side, x, temperature):
    return {"logits": (x / temperature).log_softmax(-1), "log_probs": x}.get(side) if side != "probs" else x.log()


def of_logs(kind, lp, lq, beta):
    """Each row's divergence, from logarithms of both sides' probabilities."""
    p, q = lp.exp(), lq.exp()
    kl = lambda p, lp, lq: torch.where(p == 0, 0, p * (lp - lq)).sum(-1)
    lm = (beta * p + (1 - beta) * q).log()
    return {
        "kl": lambda: kl(p, lp, lq),
        "reverse_kl": lambda: kl(q, lq, lp),
        "jsd": lambda: beta * kl(p, lp, lm) + (1 - beta) * kl(q, lq, lm),
        "tvd": lambda: 0.5 * (p - q).abs().sum(-1),
    }[kind]()


def assert_near(ours, theirs, dtype, scale=1):
    """f32 a hundred roundings of the largest term, 16-bit one of the output, too."""
    error = 2e-5 if dtype == torch.float32 else 2**-7
    assert (ours.double() - theirs).abs().max() <= error * max(scale, theirs.abs().max().item())


def expect(run, each, x, reduction):
    """run(x, options) and its gradient are those of each(x in f64), a row's divergence."""
    scale = torch.linspace(0.5, 2, ROWS)
    loss = run(x, dict(labels=LABELS, reduction=reduction, token_scale=scale))
    exact = x.detach().double().requires_grad_()
    token = each(exact) * scale * (LABELS != -100)
    counted = (LABELS != -100).sum()
    wanted = {"mean": token.sum() / counted, "sum": token.sum(), "none": token}[reduction]
    gradient = torch.linspace(-1, 2, ROWS) if reduction == "none" else torch.tensor(1.5)
    loss.backward(gradient)
    wanted.backward(gradient.double())
    assert loss.dtype == torch.float32 and x.grad.dtype == x.dtype
    assert_near(loss, wanted, torch.float32)
    assert_near(x.grad, exact.grad, x.dtype, exact.grad.abs().max().item())
    assert not x.grad[LABELS == -100].any()


def close(a, b, tolerance=1e-5):
    for x, y in zip(a, b, strict=True):
        largest = y.float().abs().max().item()
        torch.testing.assert_close(x.float(), y.float(), rtol=tolerance, atol=tolerance * max(0.1, largest))


def gradients(loss, leaves):
    return torch.autograd.grad(loss * 3, leaves)
