"""What other implementations of heads, policy and preference losses were seen to get wrong, each as a test; those of
divergences are in test_torch_divergence.py. Every one names the place where it was reported."""

import math

import pytest
import torch
import torch.nn.functional as F

from tigon.torch import functional as T

TOKENS, HIDDEN, VOCAB = 7, 16, 1031  # no multiple of a tile
LABELS = torch.tensor([0, 3, VOCAB - 1, 512, VOCAB - 1, -100, 1029])


def head(dtype=torch.float32):
    generator = torch.Generator().manual_seed(1)
    hidden = torch.randn(TOKENS, HIDDEN, generator=generator).to(dtype)
    weight = (0.5 * torch.randn(VOCAB, HIDDEN, generator=generator)).to(dtype)
    return hidden.requires_grad_(), weight.requires_grad_()


def exact(hidden, weight, bias=None):
    """The log-probability and entropy of tokens that count, in float64."""
    logits = hidden.double() @ weight.double().T + (0 if bias is None else bias.double())
    logp = logits.log_softmax(-1)
    entropy = -torch.where(logp.isinf(), 0, logp.exp() * logp).sum(-1)
    return logp.gather(-1, LABELS.clamp(min=0)[:, None])[:, 0] * (LABELS >= 0), entropy * (LABELS >= 0)


# ---- heads ----


def test_the_entropy_has_a_gradient():
    """TRL's has none, without a word; Liger-Kernel's entropy has the dtype of hidden."""
    hidden, weight = head()
    out = T.linear_logprob(hidden, weight, LABELS, entropy=True)
    wanted = exact(h := hidden.detach().double().requires_grad_(), w := weight.detach().double().requires_grad_())[1]
    found = torch.autograd.grad(out.entropy.sum(), (hidden, weight))
    for g, must in zip(found, torch.autograd.grad(wanted.sum(), (h, w))):
        assert must.abs().max() > 1e-2
        torch.testing.assert_close(g.double(), must, rtol=1e-4, atol=1e-5)
    half = T.linear_logprob(*head(torch.bfloat16), LABELS, entropy=True)
    assert half.entropy.dtype == half.logprob.dtype == torch.float32


@pytest.mark.parametrize("base", [-2.0**20, 2.0**20])
def test_all_logits_far_from_zero(base):
    """A maximum that begins at 0 makes NaN of logits that are negative everywhere (SkyRL#2141)."""
    hidden, weight = head()
    bias = torch.full((VOCAB,), base)
    out = T.linear_logprob(hidden, weight, LABELS, bias, entropy=True, logits_in_f32=True)
    wanted = exact(hidden, weight, bias)
    for found, must in zip((out.logprob, out.entropy), wanted):  # logits have an ulp of 1/8
        torch.testing.assert_close(found.double(), must, rtol=0, atol=0.5)
    for g in torch.autograd.grad(out.logprob.sum() + out.entropy.sum(), (hidden, weight)):
        assert g.isfinite().all()


def test_a_label_in_the_last_tile():
    """A kernel gave log-probabilities above 0 where the vocabulary was no multiple of its tile (verl#2656)."""
    hidden, weight = head()
    for granted in None, 1 << 20:
        out = T.linear_logprob(hidden, weight, LABELS, workspace_bytes=granted)
        assert (out.logprob <= 0).all()
        torch.testing.assert_close(out.logprob.double(), exact(hidden, weight)[0], rtol=1e-5, atol=1e-5)


def test_a_class_that_is_masked_away():
    """A logit of -Inf has the probability 0, and 0 log 0 is 0: in the entropy and in all gradients."""
    hidden, weight = head()
    bias = torch.zeros(VOCAB).index_fill(0, torch.tensor([5, 700]), -math.inf).requires_grad_()
    out = T.linear_logprob(hidden, weight, LABELS, bias, entropy=True)
    for found, must in zip((out.logprob, out.entropy), exact(hidden, weight, bias)):
        torch.testing.assert_close(found.double(), must, rtol=1e-5, atol=1e-5)
    for g in torch.autograd.grad(out.logprob.sum() + out.entropy.sum(), (hidden, weight, bias)):
        assert g.isfinite().all()


def test_the_gradient_of_a_likely_label():
    """p - 1 is formed in f32: in 16 bits it loses 20 to 100 % of itself at p >= 0.99 (Liger-Kernel#1329)."""
    for margin in 10.0, 12.0, 14.0:
        logits = torch.zeros(1, 128, dtype=torch.bfloat16)
        logits[0, 3] = margin
        logits.requires_grad_()
        T.cross_entropy(logits, torch.tensor([3])).backward()
        wanted = logits.detach().double().softmax(-1)[0, 3] - 1
        assert logits.grad[0, 3].double() == pytest.approx(wanted.item(), rel=2.0**-8)


def test_labels_of_32_bits():
    """Liger-Kernel's scaled cross entropy takes 64-bit labels alone."""
    hidden, weight = head()
    assert torch.equal(*(T.linear_logprob(hidden, weight, LABELS.to(t)).logprob for t in (torch.int32, torch.int64)))


# ---- policy losses ----


def test_more_tokens_than_a_grid_has_blocks():
    """A grid of (batch, tokens) ends at 65,535 tokens (Liger-Kernel#1294)."""
    tokens = 70_001
    logprob = (-torch.rand(1, tokens, generator=torch.Generator().manual_seed(2))).requires_grad_()
    loss = T.policy_loss(logprob, torch.tensor([0.5]), kind="grpo")
    loss.backward()
    assert loss.item() == pytest.approx(-0.5, rel=1e-6)
    torch.testing.assert_close(logprob.grad, torch.full((1, tokens), -0.5 / tokens))


def test_delta_below_the_clip():
    """For a < 0 and delta < 1 + eps_high the clip is taken, and its gradient is there (Liger-Kernel loses it)."""
    old = torch.zeros(1, 3)
    logprob = torch.tensor([1.05, 1.15, 1.5]).log()[None].requires_grad_()
    loss = T.policy_loss(logprob, torch.tensor([-2.0]), old=old, delta=1.1, kind="bnpo")
    loss.backward()
    l = logprob.detach().double().requires_grad_()
    rho = l.exp()
    f = -torch.minimum(rho.clamp(max=1.1) * -2, rho.clamp(0.8, 1.2) * -2)
    f.mean().backward()
    assert loss.item() == pytest.approx(f.mean().item(), rel=1e-6)
    torch.testing.assert_close(logprob.grad.double(), l.grad, rtol=1e-5, atol=1e-7)
    assert logprob.grad[0, 1] > 0.1


@pytest.mark.parametrize("width", [1, 4, 9])
def test_a_sequence_s_ratio_counts_once_in_vespo(width):
    """One ratio of a sequence is added once, not once a token (Liger-Kernel's two paths differ by T times)."""
    logprob = torch.full((1, width), -1.0)
    ratio, a, w = torch.tensor([[0.5]]), torch.tensor([1.0]), math.log(0.5)
    loss = T.policy_loss(logprob, a, kind="vespo", ratio=ratio)
    phi = math.exp(3 + 2 * w - 3 * math.exp(w))
    assert loss.item() == pytest.approx(phi, rel=1e-6)


def test_padding_counts_for_nothing():
    """What stands in padding reaches no loss, metric or gradient, of luspo either, whatever it is."""
    mask = torch.tensor([[1, 1, 0, 0], [1, 1, 1, 0]])
    for kind in "grpo", "luspo", "vespo", "dapo":
        found = []
        for filled in 0.0, math.nan, -1e30:
            logprob = torch.full((2, 4), -0.5).masked_fill(mask == 0, filled).requires_grad_()
            loss = T.policy_loss(logprob, torch.tensor([1.0, -2.0]), mask=mask, kind=kind, old=logprob.detach() - 0.1)
            loss.backward()
            assert not logprob.grad[mask == 0].any()
            found.append((loss.item(), logprob.grad))
        assert all(loss == found[0][0] and torch.equal(g, found[0][1]) for loss, g in found), kind


def test_items_of_the_whole_accumulation():
    """Trainers pass the number of tokens of all micro-batches: it is a tensor, and halves two halves (trl#5890)."""
    logprob = -torch.rand(4, 5, generator=torch.Generator().manual_seed(3))
    a = torch.tensor([1.0, -1, 2, -0.5])
    items = torch.tensor([20.0])
    run = lambda rows: T.policy_loss(logprob[rows], a[rows], kind="dapo", old=logprob[rows] - 0.1, denominator=items)
    whole, parts = run(slice(None)), run(slice(2)) + run(slice(2, 4))
    assert parts.item() == pytest.approx(whole.item(), rel=1e-6)


# ---- preference losses ----


def test_a_sequence_without_tokens():
    """Its mean is 0 and it has no gradient; Liger-Kernel divides 0 by 0."""
    logps = torch.tensor([-4.0, 0.0, -6.0, -8.0], requires_grad=True)
    counts = torch.tensor([2, 0, 3, 4])
    for kind in "ipo", "simpo", "orpo":
        loss = T.preference_loss(logps, kind=kind, counts=counts)
        (g,) = torch.autograd.grad(loss, logps)
        assert loss.isfinite() and g.isfinite().all() and g[1] == 0 and g[0] != 0, kind


def test_orpo_of_a_certain_sequence():
    """log(1 - e^l) of l close to 0."""
    for l in -1e-6, -1e-12, -1e-30:
        logps = torch.tensor([l, -2.0], requires_grad=True)
        loss = T.preference_loss(logps, kind="orpo", counts=torch.tensor([1, 1]), beta=0.1)
        loss.backward()
        exact = logps.detach().double().requires_grad_()
        odds = exact - torch.log(-torch.expm1(exact))
        wanted = -0.1 * F.logsigmoid(odds[0] - odds[1])
        wanted.backward()
        assert loss.item() == pytest.approx(wanted.item(), rel=1e-5, abs=1e-37)
        torch.testing.assert_close(logps.grad.double(), exact.grad, rtol=1e-5, atol=1e-7)


def test_discopop_of_a_lost_pair():
    """e^-h overflows below h = -88."""
    logps = torch.tensor([-5000.0, -10.0], requires_grad=True)
    loss = T.preference_loss(logps, kind="discopop", beta=0.1)
    loss.backward()
    assert loss.item() == pytest.approx(499.0, rel=1e-6)
    assert logps.grad.isfinite().all()


def test_half_a_pair():
    """An odd batch is refused; Liger-Kernel splits it."""
    with pytest.raises(ValueError, match="must be even"):
        T.preference_loss(torch.zeros(3), kind="sigmoid")


def test_a_long_pair():
    """Sequences of 64k tokens are ordinary: nothing of [tokens, vocabulary] is held (Liger-Kernel#439, #721)."""
    tokens, hidden, vocab = 1 << 16, 4, 64
    generator = torch.Generator().manual_seed(4)
    x = torch.randn(2, tokens, hidden, generator=generator)
    w = torch.randn(vocab, hidden, generator=generator, requires_grad=True)
    y = torch.randint(vocab, (2, tokens), generator=generator)
    logps = T.linear_logprob(x, w, y, workspace_bytes=1 << 20).logprob.sum(-1)
    loss = T.preference_loss(logps, kind="sigmoid", ref_logps=logps.detach() - torch.tensor([0.5, 0.25]))
    (g,) = torch.autograd.grad(loss, w)
    v = w.detach().double().requires_grad_()
    sums = -F.cross_entropy((x.double() @ v.T).flatten(0, 1), y.flatten(), reduction="none").view(2, -1).sum(-1)
    torch.testing.assert_close(logps.double(), sums, rtol=1e-5, atol=0)
    h = 0.1 * (sums[0] - sums[1] - (sums.detach()[0] - sums.detach()[1]) + 0.25)
    (must,) = torch.autograd.grad(-F.logsigmoid(h), v)
    torch.testing.assert_close(g.double(), must, rtol=1e-3, atol=1e-3 * must.abs().max().item())
