"""topk_divergence against its formulas in f64, and against divergence of a teacher that is known whole."""

import itertools

import pytest
import torch
from divergence_formulas import KINDS, LABELS, ROWS, SIDES, V, expect, log_of, of_logs, rows

from tigon.torch import functional as T
from tigon.torch import nn

K = 5


def student(dtype=torch.float32):
    return rows("logits", 1).to(dtype).requires_grad_()


def teacher(side, k=K, dtype=torch.float32):
    """The k likeliest classes of each row."""
    values, ids = rows(side, 2).topk(k, -1)
    return values.to(dtype), ids


def formula(kind, x, t, ids, target_is, tail, beta=0.5, temperature=1.0, least_tail=0.0):
    """Each row's, where no id repeats."""
    lq = (x / temperature).log_softmax(-1)
    outside = torch.ones_like(lq, dtype=torch.bool).scatter(-1, ids, False)
    lq_tail = lq.masked_fill(~outside, -torch.inf).logsumexp(-1, keepdim=True)
    lp = log_of(target_is, t, temperature)
    lq = torch.cat([lq.gather(-1, ids), lq_tail], -1)
    p_tail = (1 - lp.exp().sum(-1, keepdim=True)).clamp(min=least_tail)
    lp = torch.cat([lp, p_tail.log()], -1)
    if not (tail or kind != "kl"):
        lq, lp = lq[..., :-1], lp[..., :-1]
    return of_logs(kind, lp, lq, beta)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind, target_is, tail", list(itertools.product(KINDS, SIDES, [False, True])))
def test_formulas(kind, target_is, tail, dtype, reduction):
    x, (t, ids) = student(dtype), teacher(target_is)
    options = dict(target_is=target_is, tail=tail, beta=0.3, temperature=1.5, least_tail=0.01)
    run = lambda x, more: T.topk_divergence(x, t, ids, kind, **more, **options)
    expect(run, lambda exact: formula(kind, exact, t.double(), ids, **options), x, reduction)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("target_is", SIDES)
def test_whole_teacher(kind, target_is):
    """All classes as entries, in any order: divergence."""
    x, (t, ids) = student(), teacher(target_is, V)
    loss = T.topk_divergence(x, t, ids, kind, LABELS, target_is=target_is, tail=True)
    whole = torch.empty(ROWS, V).scatter(-1, ids, t)
    wanted = T.divergence(x, whole, kind, LABELS, target_is=target_is)
    torch.testing.assert_close(loss, wanted)
    (got,), (expected,) = torch.autograd.grad(loss, x), torch.autograd.grad(wanted, x)
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("kind", KINDS)
def test_one_class_of_two_is_the_other_ones_tail(kind):
    """The tail is a class like any other: k classes and the tail are divergence of k + 1 probabilities."""
    x, (t, ids) = student(), teacher("probs", 1)
    q = x.detach().softmax(-1).gather(-1, ids)
    token = T.topk_divergence(x, t, ids, kind, target_is="probs", tail=True, reduction="none")
    two = [torch.cat([p, 1 - p], -1) for p in (q, t)]
    wanted = T.divergence(*two, kind, input_is="probs", target_is="probs", reduction="none")
    torch.testing.assert_close(token, wanted, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_repeated_ids(kind):
    """The first of one class counts, so that a list is padded with any of its own classes, at any place."""
    x, (t, ids) = student(), teacher("log_probs")
    wanted = T.topk_divergence(x, t, ids, kind, tail=True)
    (expected,) = torch.autograd.grad(wanted, x)
    rubbish = torch.full((ROWS, 1), 3.0)
    for pad in 0, K - 1:
        padded = torch.cat([t, rubbish], -1), torch.cat([ids, ids[:, pad : pad + 1]], -1)
        loss = T.topk_divergence(x, *padded, kind, tail=True)
        assert torch.equal(loss, wanted) and torch.equal(torch.autograd.grad(loss, x)[0], expected)
    middle = [torch.cat([a[:, :2], b, a[:, 2:]], -1) for a, b in ((t, rubbish), (ids, ids[:, 1:2]))]
    torch.testing.assert_close(T.topk_divergence(x, *middle, kind, tail=True), wanted)


def test_small_tail():
    """log q_t where 1 - sum q is 0 in f32, and has the student's gradient still."""
    x = torch.full((1, 8), -200.0)
    x[0, 2] = 0
    x.requires_grad_()
    loss = T.topk_divergence(x, torch.tensor([[0.75]]), torch.tensor([[2]]), target_is="probs", tail=True)
    wanted = 0.75 * torch.tensor(0.75).log() + 0.25 * (torch.tensor(0.25 / 7).log() + 200)
    torch.testing.assert_close(loss, wanted)
    loss.backward()
    torch.testing.assert_close(x.grad[0], torch.tensor([-0.25 / 7] * 2 + [0.25] + [-0.25 / 7] * 5))


def test_masked_classes():
    """The one entry masked in the student: kl is infinite, its gradient is that of the others still. And all others."""
    x = torch.zeros(1, 4)
    x[0, 1] = -torch.inf
    x.requires_grad_()
    run = lambda i: T.topk_divergence(x, torch.tensor([[0.75]]), torch.tensor([[i]]), target_is="probs", tail=True)
    loss = run(1)
    loss.backward()
    assert loss == torch.inf
    torch.testing.assert_close(x.grad[0], torch.tensor([0.25, -0.75, 0.25, 0.25]))
    with torch.no_grad():
        x[0, :] = torch.tensor([-torch.inf, 1, -torch.inf, -torch.inf])
    x.grad = None
    loss = run(1)
    loss.backward()
    assert loss == torch.inf and x.grad[0].tolist() == [0, 0.25, 0, 0]


def test_entries_that_add_up_to_one():
    x, ids = student(), torch.arange(2).expand(ROWS, 2)
    t = torch.tensor([0.5, 0.5]).expand(ROWS, 2)
    run = lambda **options: T.topk_divergence(x, t, ids, "reverse_kl", target_is="probs", reduction="none", **options)
    assert run().isinf().all() and run(least_tail=1e-6).isfinite().all()


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_counts(kind):
    x, (t, ids) = student(), teacher("log_probs")
    loss = T.topk_divergence(x, t, ids, kind, torch.full((ROWS,), -100))
    loss.backward()
    assert loss == 0 and not x.grad.any()


@pytest.mark.parametrize("kind", KINDS)
def test_a_nan_stays_in_its_row(kind):
    x, (t, ids) = student(), teacher("log_probs")
    t[1, 3] = torch.nan
    token = T.topk_divergence(x, t, ids, kind, tail=True, reduction="none")
    token.sum().backward()
    clean = torch.arange(ROWS) != 1
    assert token[clean].isfinite().all() and x.grad[clean].isfinite().all() and token[1].isnan()


def test_denominator_and_temperature_squared():
    x, (t, ids) = student(), teacher("log_probs")
    total = T.topk_divergence(x, t, ids, labels=LABELS, reduction="sum", temperature=2.0)
    options = dict(labels=LABELS, temperature=2.0, by_temperature_squared=True)
    for denominator in (2.5, torch.tensor([2.5])):
        loss = T.topk_divergence(x, t, ids, denominator=denominator, **options)
        torch.testing.assert_close(loss, total * 4 / 2.5)
    mean, named = (T.topk_divergence(x, t, ids, reduction=name) for name in ("mean", "batchmean"))
    assert mean == named


def test_i32_ids_and_leading_dimensions():
    x, (t, ids) = student(), teacher("log_probs")
    flat = T.topk_divergence(x, t, ids, "jsd", reduction="none")
    cube = lambda a: a.unflatten(0, (2, 3))
    token = T.topk_divergence(cube(x), cube(t), cube(ids.int()), "jsd", reduction="none")
    assert torch.equal(token.flatten(), flat)


def test_target_gets_no_gradient():
    x, (t, ids) = student(), teacher("log_probs")
    T.topk_divergence(x, t.requires_grad_(), ids).backward()
    assert t.grad is None and x.grad is not None


def test_compiled_and_module():
    x, (t, ids) = student(), teacher("log_probs")
    module = nn.TopKDivergence("jsd", beta=0.25, reduction="sum")
    torch.compile(module, backend="aot_eager", fullgraph=True)(x, t, ids, LABELS).backward()
    compiled, x.grad = x.grad, None
    module(x, t, ids, LABELS).backward()
    assert torch.equal(compiled, x.grad)
    assert repr(module) == "TopKDivergence(jsd, beta=0.25, reduction=sum)"


@pytest.mark.parametrize(
    "option, sentence",
    [
        (dict(kind="cosine"), "kind is 'cosine', must be 'kl' or 'reverse_kl' or 'jsd' or 'tvd'"),
        (dict(target_is="p"), "target_is is 'p', must be 'logits' or 'log_probs' or 'probs'"),
        (dict(temperature=0), "topk_divergence: temperature is 0, must be another number"),
        (dict(least_tail=1.5), "options.least_tail is 1.5, must be 0 to 1"),
        (dict(reduction="median"), "reduction is 'median', must be 'mean' or 'sum' or 'none'"),
    ],
)
def test_refusals(option, sentence):
    x, (t, ids) = student(), teacher("log_probs")
    with pytest.raises(ValueError) as refusal:
        T.topk_divergence(x, t, ids, **option)
    assert sentence in str(refusal.value)


@pytest.mark.parametrize("wrong", [-1, V])
def test_ids_out_of_the_vocabulary(wrong):
    x, (t, ids) = student(), teacher("log_probs")
    ids[2, 1] = wrong
    with pytest.raises((ValueError, IndexError)) as refusal:
        T.topk_divergence(x, t, ids)
    assert f"target_ids[11] is {wrong}, must be 0 to 36 (input.shape[1] - 1)" in str(refusal.value)
