"""fused_linear_topk_divergence against its formulas in f64 of full logits."""

import pytest
import torch
from divergence_formulas import KINDS, close, gradients, of_logs
from tigon.torch import functional as T
from tigon.torch import nn

N, H, V, K = 24, 16, 37, 5


def head(dtype=torch.float32):
    """The student's hidden, weight and bias, a teacher's log-probabilities with their ids, and labels."""
    torch.manual_seed(3)
    student = [torch.randn(*shape).to(dtype).requires_grad_() for shape in ((4, 6, H), (V, H), (V,))]
    log_probs, ids = torch.randn(4, 6, V).log_softmax(-1).topk(K, -1)
    labels = torch.randint(0, V, (4, 6))
    labels.view(-1)[4::5] = -100
    return student, (log_probs, ids), labels


def fused(student, teacher, labels=None, **options):
    (h, w, b), (t, ids) = student, teacher
    return T.fused_linear_topk_divergence(h, w, t, ids, b, labels, **options)


def plain(student, teacher, labels, kind="kl", temperature=1.0, softcap=None, logit_scale=1.0, tail=True, beta=0.5):
    """D of each token, and the cross entropy."""
    h, w, b = [x.double() for x in student]
    z = torch.nn.functional.linear(h, w, b) * logit_scale
    z = z if softcap is None else softcap * torch.tanh(z / softcap)
    lp, ids = teacher[0].double(), teacher[1]
    lq = (z / temperature).log_softmax(-1)
    outside = lq.scatter(-1, ids, -torch.inf).logsumexp(-1, keepdim=True)
    lq = lq.gather(-1, ids)
    if tail or kind != "kl":
        lq, lp = torch.cat([lq, outside], -1), torch.cat([lp, (1 - lp.exp().sum(-1, keepdim=True)).log()], -1)
    hard = torch.nn.functional.cross_entropy(z.flatten(0, 1), labels.flatten(), reduction="none").view(labels.shape)
    return of_logs(kind, lp, lq, beta) * (labels != -100), hard


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("room", [None, 4096])
@pytest.mark.parametrize(
    "options",
    [dict(), dict(temperature=2.0), dict(softcap=3.0, logit_scale=1.5), dict(logit_scale=0.25), dict(tail=False)],
    ids=str,
)
@pytest.mark.parametrize("weights", [(1.0, 0.0), (0.5, 0.25)])
def test_losses_and_gradients(kind, room, options, weights):
    student, teacher, labels = head()
    options = dict(kind=kind, tail=True) | options
    by = dict(weight_soft=weights[0], weight_hard=weights[1], workspace_bytes=room, outputs=True)
    found = fused(student, teacher, labels, **options, **by)
    soft, hard = plain(student, teacher, labels, **options)
    token, count = weights[0] * soft + weights[1] * hard, (labels != -100).sum()
    expected = token.sum() / count
    close([found.loss, found.token_loss, found.soft_loss], [expected, token, soft.sum() / count])
    if weights[1]:
        close([found.hard_loss], [hard.sum() / count])
    close(gradients(found.loss, student), gradients(expected, student))


def test_scale_and_denominator():
    student, teacher, labels = head()
    scale = torch.arange(N).float() / 8
    soft, hard = plain(student, teacher, labels, temperature=2.0)
    expected = ((4 * soft + 0.5 * hard) * scale.view(4, 6)).sum() / 7
    options = dict(temperature=2.0, by_temperature_squared=True, weight_hard=0.5, tail=True)
    loss = fused(student, teacher, labels, token_scale=scale, denominator=7.0, **options)
    close([loss, *gradients(loss, student)], [expected, *gradients(expected, student)])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("kind", KINDS)
def test_16_bits(kind, dtype):
    """Against topk_divergence of logits that are rounded as the operator rounds them, once."""
    student, (t, ids), labels = head(dtype)
    z = torch.nn.functional.linear(*student)
    expected = T.topk_divergence(z, t, ids, kind, labels, tail=True) + 0.5 * T.cross_entropy(z, labels)
    loss = fused(student, (t, ids), labels, kind=kind, tail=True, weight_hard=0.5)
    close([loss], [expected], 2**-8)
    for g, e in zip(gradients(loss, student), gradients(expected, student), strict=True):
        assert g.dtype == dtype
        torch.testing.assert_close(g.float(), e.float(), rtol=2**-5, atol=2**-6 * e.float().abs().max().item())


@pytest.mark.parametrize("target_is", ["logits", "log_probs", "probs"])
def test_what_the_target_is(target_is):
    student, (t, ids), labels = head()
    given = t.exp() if target_is == "probs" else t
    loss = fused(student, (given, ids.int()), labels, target_is=target_is, weight_soft=2.0)
    z = torch.nn.functional.linear(*student)
    expected = 2 * T.topk_divergence(z, given, ids, "kl", labels, target_is=target_is)
    close([loss, *gradients(loss, student)], [expected, *gradients(expected, student)])


def test_autocast():
    student, teacher, labels = head()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = fused(student, teacher, labels, tail=True)
    short = [t.detach().bfloat16().requires_grad_() for t in student]
    close([loss], [fused(short, teacher, labels, tail=True)], 2**-7)
    assert all(g.dtype == torch.float32 for g in gradients(loss, student))


def test_frozen_head_and_second_backward():
    student, teacher, labels = head()
    h, w, b = student
    loss = fused(student, teacher, labels, tail=True, weight_hard=1.0)
    first = torch.autograd.grad(loss * 3, student, retain_graph=True)
    close(torch.autograd.grad(loss * 3, student), first)
    frozen = fused((h, w.detach(), b.detach()), teacher, labels, tail=True, weight_hard=1.0)
    assert torch.equal(torch.autograd.grad(frozen * 3, h)[0], first[0])


def test_target_gets_no_gradient():
    student, (t, ids), labels = head()
    t.requires_grad_()
    assert torch.autograd.grad(fused(student, (t, ids), labels), t, allow_unused=True) == (None,)


def test_nothing_counts():
    student, teacher, labels = head()
    loss = fused(student, teacher, labels.fill_(-100), weight_hard=0.5)
    assert loss == 0 and all((g == 0).all() for g in gradients(loss, student))


def test_compile():
    student, teacher, labels = head()
    loss = lambda: fused(student, teacher, labels, kind="jsd", softcap=2.0, weight_hard=0.5)
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(), loss())
    close(gradients(compiled(), student), gradients(loss(), student))


def test_module():
    student, teacher, labels = head()
    (h, w, b), (t, ids) = student, teacher
    module = nn.FusedLinearTopKDivergence("jsd", beta=0.25)
    assert torch.equal(module(h, w, t, ids, b, labels), fused(student, teacher, labels, kind="jsd", beta=0.25))
    assert repr(module) == "FusedLinearTopKDivergence(kind='jsd', beta=0.25)"


def test_refusals():
    student, (t, ids), labels = head()
    call = "fused_linear_topk_divergence"
    wild = ids.clone()
    wild[0, 0, 1] = V
    cases = [
        (ids, dict(softcap=0.0), f"{call}: softcap is 0, must be another number"),
        (ids, dict(weight_hard=0.5), f"{call}_fwd: labels is absent, must be there with weight_hard"),
        (wild, dict(), f"{call}_fwd: target_ids[1] is {V}, must be 0 to {V - 1} (weight.shape[0] - 1)"),
        (ids, dict(kind="cosine"), "tigon: kind is 'cosine', must be 'kl' or 'reverse_kl' or 'jsd' or 'tvd'"),
    ]
    for given, options, sentence in cases:
        with pytest.raises(ValueError) as caught:
            fused(student, (t, given), **options)
        assert str(caught.value) == sentence
