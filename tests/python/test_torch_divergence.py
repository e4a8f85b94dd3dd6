"""divergence against its formulas in f64, and what other implementations get wrong (the issues of Liger-Kernel's are
named); Liger-Kernel's names of it."""

import itertools

import pytest
import torch
from divergence_formulas import LABELS, ROWS, SIDES, V, assert_near, expect, log_of, of_logs, rows
from torch.nn import functional as F

from tigon.compat.liger import transformers as liger
from tigon.compat.liger.ops.jsd import LigerJSDFunction
from tigon.torch import functional as T
from tigon.torch import nn

KINDS = ["kl", "reverse_kl", "jsd", "tvd", "cosine"]


def made(side, seed, dtype=torch.float32):
    """Rows of a side; those of probabilities add up to 1 but for their rounding."""
    return rows(side, seed).to(dtype).requires_grad_()


def formula(kind, x, t, input_is, target_is, beta, temperature):
    """Each row's."""
    if kind == "cosine":
        return 1 - F.cosine_similarity(x, t, -1)
    return of_logs(kind, log_of(target_is, t, temperature), log_of(input_is, x, temperature), beta)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind, input_is, target_is", list(itertools.product(KINDS, SIDES, SIDES)))
def test_formulas(kind, input_is, target_is, dtype, reduction):
    x, t = made(input_is, 1, dtype), made(target_is, 2, dtype).detach()
    options = dict(input_is=input_is, target_is=target_is, beta=0.3, temperature=1.5)
    run = lambda x, more: T.divergence(x, t, kind, **more, **options)
    expect(run, lambda exact: formula(kind, exact, t.double(), **options), x, reduction)


def test_zero_times_log_zero():
    """Terms of a probability 0 are exactly 0: also where eps-clamped logarithms, or M log M, are NaN (#769, #1453)."""
    p = torch.tensor([[0.5, 0.5, 0.0, 0.0]])
    q = torch.tensor([[0.5, 0.25, 0.25, 0.0]], requires_grad=True)
    for kind, wanted in ("kl", 0.5 * torch.tensor(2.0).log()), ("tvd", torch.tensor(0.25)):
        loss = T.divergence(q, p, kind, input_is="probs", target_is="probs")
        assert loss.item() == pytest.approx(wanted.item(), rel=1e-6)
    for kind in "kl", "jsd", "tvd":
        for input_is in "log_probs", "probs":
            x = (q.detach().log() if input_is == "log_probs" else q.detach()).requires_grad_()
            T.divergence(x, p.log(), kind, input_is=input_is, target_is="log_probs").backward()
            assert x.grad[0, 3] == 0 and x.grad.isfinite().all(), (kind, input_is)


def test_what_is_infinite():
    """kl where q is 0 and p is not, reverse_kl where p is 0 and q is not; jsd is at most log 2."""
    one, other = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0]])
    probs = dict(input_is="probs", target_is="probs")
    assert T.divergence(other, one, "kl", **probs) == torch.inf
    assert T.divergence(other, one, "reverse_kl", **probs) == torch.inf
    assert T.divergence(other, one, "jsd", **probs) == pytest.approx(0.6931472, rel=1e-6)
    assert T.divergence(other, one, "tvd", **probs) == 1


def test_small_probabilities():
    """A probability below 1e-10 counts as it is: Liger-Kernel's eps makes such a term of kl too large."""
    lq = torch.tensor([[0.5, 0.5]]).log()
    tail = torch.tensor([[0.0, 1e-12]])
    wanted = (tail.double()[0, 1] * (tail.double()[0, 1].log() - lq.double()[0, 1])).sum()
    got = T.divergence(lq, tail, input_is="log_probs", target_is="probs")
    assert got == pytest.approx(wanted.item(), rel=1e-6)


def test_ends_of_beta():
    """beta 0 is KL(p || q) and 1 is KL(q || p), not the formula's limits, which are 0."""
    x, t = made("logits", 1).detach(), made("logits", 2).detach()
    for beta, kind in (0.0, "kl"), (1.0, "reverse_kl"):
        assert T.divergence(x, t, "jsd", beta=beta) == T.divergence(x, t, kind) > 0.1
    assert T.divergence(x, t, "jsd", beta=1e-6) < 1e-4


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_counts(kind):
    """All rows ignored: the loss and the gradient are 0 (Liger-Kernel's tvd divides by zero)."""
    x = made("logits", 1)
    loss = T.divergence(x, made("logits", 2).detach(), kind, torch.full((ROWS,), -100))
    loss.backward()
    assert loss == 0 and not x.grad.any()


def test_denominator_and_temperature_squared():
    x, t = made("logits", 1), made("logits", 2).detach()
    total = T.divergence(x, t, labels=LABELS, reduction="sum", temperature=2.0)
    by = torch.tensor([2.5])
    for denominator in (2.5, by):
        loss = T.divergence(x, t, labels=LABELS, temperature=2.0, denominator=denominator, by_temperature_squared=True)
        torch.testing.assert_close(loss, total * 4 / 2.5)
    (expected,) = torch.autograd.grad(total * 4 / 2.5, x)
    torch.testing.assert_close(torch.autograd.grad(loss, x)[0], expected)
    mean, named = (T.divergence(x, t, labels=LABELS, reduction=name) for name in ("mean", "batchmean"))
    assert mean == named


def test_ignored_rows_of_cosine():
    """Rows that do not count are skipped (Liger-Kernel's cosine counts them); a row of zeros has loss 1, gradient 0."""
    x, t = made("logits", 1).detach(), made("logits", 2).detach()
    x[2] = 0
    x.requires_grad_()
    token = T.divergence(x, t, "cosine", LABELS, reduction="none")
    assert token[2] == 1 and not token[LABELS == -100].any()
    token.sum().backward()
    assert not x.grad[2].any() and x.grad[0].any()


def test_sign_of_nothing():
    """tvd has no gradient where p is q, as in the padding of a vocabulary (#1373)."""
    p = torch.tensor([[0.5, 0.5, 0.0]])
    q = torch.tensor([[0.25, 0.75, 0.0]], requires_grad=True)
    T.divergence(q, p, "tvd", input_is="probs", target_is="probs").backward()
    assert q.grad.tolist() == [[-0.5, 0.5, 0.0]]


@pytest.mark.parametrize("kind", KINDS)
def test_a_nan_stays_in_its_row(kind):
    x, t = made("logits", 1), made("logits", 2).detach()
    t[1, 3] = torch.nan
    token = T.divergence(x, t, kind, reduction="none")
    token.sum().backward()
    clean = torch.arange(ROWS) != 1
    assert token[clean].isfinite().all() and x.grad[clean].isfinite().all() and token[1].isnan()
    assert x.grad[1].isnan().all()


def test_strongly_negative_logits():
    """A maximum that begins at 0 would underflow."""
    x, t = made("logits", 1).detach(), made("logits", 2).detach()
    assert T.divergence(x - 4096, t - 4096, "jsd") == pytest.approx(T.divergence(x, t, "jsd").item(), rel=1e-3)


def test_target_gets_no_gradient():
    x, t = made("logits", 1), made("logits", 2)
    T.divergence(x, t).backward()
    assert t.grad is None and x.grad is not None


def test_compiled_and_module():
    x, t = made("logits", 1), made("logits", 2).detach()
    module = nn.Divergence("jsd", beta=0.25, reduction="sum")
    torch.compile(module, backend="aot_eager", fullgraph=True)(x, t, LABELS).backward()
    compiled, x.grad = x.grad, None
    module(x, t, LABELS).backward()
    assert torch.equal(compiled, x.grad)
    assert repr(module) == "Divergence(jsd, beta=0.25, reduction=sum)"


@pytest.mark.parametrize(
    "option, sentence",
    [
        (dict(kind="js"), "kind is 'js', must be 'kl' or 'reverse_kl' or 'jsd' or 'tvd' or 'cosine'"),
        (dict(input_is="p"), "input_is is 'p', must be 'logits' or 'log_probs' or 'probs'"),
        (dict(target_is="p"), "target_is is 'p', must be 'logits' or 'log_probs' or 'probs'"),
        (dict(temperature=0), "divergence: temperature is 0, must be another number"),
        (dict(beta=1.5), "options.beta is 1.5, must be 0 to 1"),
        (dict(reduction="median"), "reduction is 'median', must be 'mean' or 'sum' or 'none'"),
    ],
)
def test_refusals(option, sentence):
    x = made("logits", 1)
    with pytest.raises(ValueError) as refusal:
        T.divergence(x, x.detach(), **option)
    assert sentence in str(refusal.value)


# ---- Liger-Kernel's names ----


@pytest.mark.parametrize("log_target", [False, True])
@pytest.mark.parametrize("reduction", ["mean", "batchmean", "sum", "none"])
def test_liger_kl_div(reduction, log_target):
    x, t = made("log_probs", 1), made("log_probs" if log_target else "probs", 2).detach()
    loss = liger.LigerKLDIVLoss(reduction=reduction, log_target=log_target)(x, t)
    exact = x.detach().double().requires_grad_()
    wanted = F.kl_div(exact, t.double(), reduction=reduction, log_target=log_target)
    loss.sum().backward()
    wanted.sum().backward()
    assert loss.shape == wanted.shape
    assert_near(loss, wanted, torch.float32)
    assert_near(x.grad, exact.grad, torch.float32, exact.grad.abs().max().item())


@pytest.mark.parametrize("beta", [0.0, 0.1, 0.5, 1.0])
def test_liger_jsd(beta):
    x, t = made("log_probs", 1), made("log_probs", 2).detach()
    loss = liger.LigerJSD(beta)(x, t, LABELS)
    kind = {0.0: "kl", 1.0: "reverse_kl"}.get(beta, "jsd")
    each = formula(kind, x.double(), t.double(), "log_probs", "log_probs", beta, 1)
    assert_near(loss, each[LABELS != -100].mean(), torch.float32)
    assert LigerJSDFunction.apply(x.bfloat16(), t.bfloat16()).dtype == torch.bfloat16


@pytest.mark.parametrize("reduction", ["mean", "batchmean", "sum", "none"])
def test_liger_tvd(reduction):
    p, q = made("probs", 1), made("probs", 2).detach()
    loss = liger.LigerTVDLoss(reduction)(p, q, LABELS)
    each = 0.5 * (p.double() - q.double()).abs() * (LABELS != -100).unsqueeze(-1)
    counted = (LABELS != -100).sum()
    rows = each.sum() / counted
    wanted = {"mean": rows / V, "batchmean": rows, "sum": each.sum(), "none": each}[reduction]
    assert loss.shape == wanted.shape
    assert_near(loss, wanted, torch.float32)
