"""Every kind of policy_loss at both levels against plain torch in float64, as trainers write it, and its gradients."""

import functools

import pytest
import torch

from tigon.torch import functional as T
from tigon.torch import nn

B, WIDTH = 3, 6
MASK = torch.tensor([[1, 1, 1, 1, 0, 0], [1, 1, 1, 1, 1, 1], [1, 0, 1, 0, 0, 0]])
KINDS = "grpo", "bnpo", "dr_grpo", "dapo", "luspo", "cispo", "sapo", "vespo"
LIMITS = torch.tensor(1e-8).double().log(), 20


def token_losses(kind, level, l, old, a, c):
    lengths = MASK.sum(1, keepdim=True)
    log_ratio = l - old
    rho = torch.exp((log_ratio * MASK).sum(1, keepdim=True) / lengths if level == "sequence" else log_ratio)
    if kind == "cispo":
        return -rho.detach().clamp(max=5) * a * l * c
    if kind == "sapo":
        tau = torch.where(a > 0, 1.0, 1.05)
        return -4 / tau * torch.sigmoid(tau * (rho - 1)) * a * c
    if kind == "vespo":
        w = (log_ratio.clamp(-20, 20) * MASK).sum(1, keepdim=True) + c.log().clamp(*LIMITS)
        w = w.clamp(*LIMITS).detach()
        k, lam = torch.where(a >= 0, 2.0, 3.0), torch.where(a >= 0, 3.0, 2.0)
        return -torch.exp(lam + k * w - lam * torch.exp(w)) * a * l
    return -torch.minimum(rho.clamp(max=1.25) * a, rho.clamp(0.8, 1.28) * a) * c


def plain(kind, level, l, old, ref, entropy, a, c):
    lengths = MASK.sum(1, keepdim=True)
    losses = token_losses(kind, level, l, old, a, c) * MASK
    losses = losses + 0.25 * (torch.exp(ref - l) - (ref - l) - 1) * MASK
    if kind in ("grpo", "sapo"):
        loss = (losses / lengths).sum() / B
    elif kind == "dr_grpo":
        loss = losses.sum() / (B * WIDTH)
    elif kind == "luspo":
        loss = losses.sum() / B if level == "sequence" else (losses * lengths).sum() / (B * WIDTH)
    else:
        loss = losses.sum() / MASK.sum()
    return loss - 0.125 * (entropy * MASK).sum() / MASK.sum()


def draw():
    generator = torch.Generator().manual_seed(0)
    rand = lambda *shape: torch.rand(*shape, generator=generator)
    l = -2 * rand(B, WIDTH)
    old, ref, entropy = l + rand(B, WIDTH) - 0.5, l + rand(B, WIDTH) - 0.5, rand(B, WIDTH)
    return l.requires_grad_(), old, ref, entropy.requires_grad_(), torch.tensor([0.5, -1.5, 1]), rand(B) + 0.5


@pytest.mark.parametrize("level", ["token", "sequence"])
@pytest.mark.parametrize("kind", KINDS)
def test_formula(kind, level):
    l, old, ref, entropy, advantage, ratio = draw()
    options = dict(kind=kind, level=level, delta=1.25, kl_weight=0.25, entropy_weight=0.125)
    if kind != "cispo":
        options["eps_high"] = 0.28
    given = dict(old=old, ref=ref, ratio=ratio[:, None])
    run = functools.partial(T.policy_loss, **options, **given)
    loss = run(l, advantage, mask=MASK, entropy=entropy)
    exact, e = l.detach().double().requires_grad_(), entropy.detach().double().requires_grad_()
    tensors = [t.double() for t in (old, ref)]
    wanted = plain(kind, level, exact, *tensors, e, advantage.double()[:, None], ratio.double()[:, None])
    torch.testing.assert_close(loss.double(), wanted, rtol=1e-5, atol=1e-6)
    found, gradients = torch.autograd.grad(3 * loss, (l, entropy)), torch.autograd.grad(3 * wanted, (exact, e))
    for g, must in zip(found, gradients):
        torch.testing.assert_close(g.double(), must, rtol=1e-5, atol=1e-6 * must.abs().max().item())
    torch._dynamo.reset()
    compiled = torch.compile(run, fullgraph=True, backend="aot_eager")(l, advantage, mask=MASK, entropy=entropy)
    assert torch.equal(compiled, loss)
    assert all(map(torch.equal, torch.autograd.grad(3 * compiled, (l, entropy)), found))


@pytest.mark.parametrize("level", ["token", "sequence"])
@pytest.mark.parametrize("kind", KINDS)
def test_packed(kind, level):
    """Tokens end to end with segments give what the padded batch gives."""
    l, old, _, _, advantage, _ = draw()
    keep = MASK.bool()
    segments = torch.cat([torch.zeros(1, dtype=torch.long), MASK.sum(1).cumsum(0)])
    options = dict(kind=kind, level=level, max_length=WIDTH)
    padded = T.policy_loss(l, advantage, old=old, mask=keep, **options)
    leaf = l.detach()[keep].requires_grad_()
    packed = T.policy_loss(leaf, advantage, segments, old=old[keep], **options)
    assert torch.equal(padded, packed)
    (a,), (b,) = torch.autograd.grad(padded, l), torch.autograd.grad(packed, leaf)
    assert torch.equal(a[keep], b) and not a[~keep].any()


def test_outputs_and_module():
    l, old, ref, entropy, advantage, _ = draw()
    made = T.policy_loss(l, advantage, old=old, ref=ref, entropy=entropy, mask=MASK, outputs=True)
    keep, rho = MASK.bool(), torch.exp(l - old).detach()
    assert made.token_loss.shape == l.shape and not made.token_loss[~keep].any()
    torch.testing.assert_close(made.ratio, rho[keep].mean())
    torch.testing.assert_close(made.entropy, entropy.detach()[keep].mean())
    torch.testing.assert_close(made.kl, (torch.expm1(ref - l) - (ref - l)).detach()[keep].mean())
    a = advantage[:, None].expand_as(l)
    torch.testing.assert_close(made.clip_low, ((rho < 0.8) & (a < 0))[keep].float().mean())
    torch.testing.assert_close(made.clip_high, ((rho > 1.2) & (a > 0))[keep].float().mean())
    assert made.loss.requires_grad and not any(t.requires_grad for t in made[1:])
    module = nn.PolicyLoss("dapo", kl_weight=0.0)
    assert torch.equal(module(l, advantage, old=old, mask=MASK), made.loss) and "kind='dapo'" in repr(module)


def test_advantage_of_tokens():
    l, old, _, _, advantage, _ = draw()
    each = advantage[:, None].expand_as(l)
    assert torch.equal(T.policy_loss(l, advantage, old=old), T.policy_loss(l, each, old=old))


def test_numbers_of_one_kind():
    """Each of SAPO's and VESPO's changes the loss, and has its own place among the options."""
    l, old, _, _, advantage, _ = draw()
    for kind, names in ("sapo", ["tau"]), ("vespo", ["k", "lambda"]):
        losses = [T.policy_loss(l, advantage, old=old, kind=kind)]
        for name in names:
            for side in "positive", "negative":
                losses.append(T.policy_loss(l, advantage, old=old, kind=kind, **{f"{name}_{side}": 1.5}))
        assert len({loss.item() for loss in losses}) == len(losses)
        positive = functools.partial(T.policy_loss, l, advantage.abs(), old=old, kind=kind)
        assert torch.equal(positive(**{f"{names[0]}_negative": 9.0}), positive())


x = torch.zeros(2, 3)
REFUSED = [
    (
        lambda: T.policy_loss(x.reshape(-1), x[:, 0]),
        ": segments is absent, must be absent where logprob is [B, T], else there",
    ),
    (
        lambda: T.policy_loss(x.reshape(-1), x[:, 0], torch.tensor([0, 4, 5])),
        "_fwd: segments[2] is 5, must be 6 (logprob.shape[0])",
    ),
    (lambda: T.policy_loss(x, x[0, :2], eps_low=0), ": eps_low is 0, must be another number"),
    (lambda: T.policy_loss(x, x.new_zeros(4)), "_fwd: advantage.shape[0] is 4, must be 6 (logprob.shape[0])"),
]


@pytest.mark.parametrize("call, sentence", REFUSED, ids=range(len(REFUSED)))
def test_refused(call, sentence):
    with pytest.raises(ValueError) as caught:
        call()
    assert str(caught.value) == "policy_loss" + sentence
