"""Liger-Kernel's losses that are no operator of their own, against the formulas in plain torch and f64."""

import pytest
import torch

from tigon.compat import liger
from tigon.compat.liger import ops
from tigon.compat.liger.transformers import functional

N, H, V = 29, 16, 37
IGNORED = 7


def head(dtype, seed=0):
    """hidden, weight, probabilities with a 0, and labels of which some are ignored"""
    generator = torch.Generator().manual_seed(seed)
    hidden, weight, teacher = (torch.randn(shape, generator=generator) for shape in ((N, H), (V, H), (N, V)))
    target = (3 * teacher).softmax(-1)
    target[:, 3] = 0
    labels = torch.randint(0, V, (N,), generator=generator)
    labels[::4] = IGNORED
    return hidden.to(dtype).requires_grad_(), weight.to(dtype).requires_grad_(), target.to(dtype), labels


def in_f64(*tensors):
    return [t.detach().double().requires_grad_(t.requires_grad) for t in tensors]


def near(ours, theirs, dtype):
    """Relative to the largest: f32 some sums of V or N products, 16-bit a rounding of logits and three of a gradient."""
    most = 1e-5 if dtype == torch.float32 else 2**-6
    assert (ours.double() - theirs).abs().max() <= most * theirs.abs().max()


def kl(hidden, weight, target, labels, reduction, temperature):
    log_q = (hidden @ weight.t() / temperature).log_softmax(-1)
    each = (torch.xlogy(target, target) - target * log_q).sum(-1)
    counts = torch.ones(N, dtype=torch.bool) if labels is None else labels != IGNORED
    total, n = (each * counts).sum(), counts.sum()
    return total / dict(sum=1, batchmean=n, mean=n * V)[reduction]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("reduction", ["batchmean", "mean", "sum"])
@pytest.mark.parametrize("labelled", [False, True])
def test_kl_of_given_probabilities(labelled, reduction, dtype):
    hidden, weight, target, labels = head(dtype)
    labels = labels if labelled else None
    module = liger.LigerFusedLinearKLDivLoss(reduction, ignore_index=IGNORED, temperature=0.7)
    loss = module(hidden, weight, target, labels)
    (1.5 * loss).backward()
    exact = in_f64(hidden, weight, target)
    theirs = kl(*exact, labels, reduction, 0.7)
    (1.5 * theirs).backward()
    assert loss.dtype == torch.float32 and hidden.grad.dtype == weight.grad.dtype == dtype
    for mine, other in ((loss, theirs), (hidden.grad, exact[0].grad), (weight.grad, exact[1].grad)):
        near(mine, other, dtype)
    again = functional.liger_fused_linear_kl_div(
        hidden, weight, target, labels, reduction=reduction, ignore_index=IGNORED, temperature=0.7
    )
    assert torch.equal(again, loss)
    if labelled:
        assert not hidden.grad[labels == IGNORED].any()


def test_kl_takes_f32_probabilities_with_16_bit_hidden():
    hidden, weight, _, _ = head(torch.bfloat16)
    target = head(torch.float32)[2]
    loss = ops.LigerFusedLinearKLDivFunction.apply(hidden, weight, target)
    near(loss, kl(*in_f64(hidden, weight, target), None, "batchmean", 1.0), torch.bfloat16)


def test_kl_without_a_row_that_counts():
    hidden, weight, target, labels = head(torch.float32)
    loss = liger.LigerFusedLinearKLDivLoss(ignore_index=IGNORED)(hidden, weight, target, torch.full_like(labels, IGNORED))
    loss.backward()
    assert loss == 0 and not hidden.grad.any() and not weight.grad.any()


def test_kl_of_a_frozen_head_and_under_autocast():
    hidden, weight, target, _ = head(torch.float32)
    weight.requires_grad_(False)
    loss = liger.LigerFusedLinearKLDivLoss()
    loss(hidden, weight, target).backward()
    assert hidden.grad is not None and weight.grad is None
    with torch.autocast("cpu", torch.bfloat16):
        found = loss(hidden, weight, target)
    assert torch.equal(found, loss(hidden.bfloat16(), weight.bfloat16(), target))


def test_what_the_kl_refuses():
    hidden, weight, target, labels = head(torch.float32)
    apply = ops.LigerFusedLinearKLDivFunction.apply
    for arguments, sentence in (
        ((target, None, "none"), r"reduction is 'none', must be one of \('batchmean', 'mean', 'sum'\)"),
        ((target[:, 1:],), r"target.shape is \[29, 36\], must be \[29, 37\]"),
        ((target, labels[1:]), r"shift_labels.shape is \[28\], must be \[29\]"),
    ):
        with pytest.raises(ValueError, match=sentence):
            apply(hidden, weight, *arguments)
    with pytest.raises(AssertionError, match="temperature is 0, must be another number"):
        liger.LigerFusedLinearKLDivLoss(temperature=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_ce_and_tvd(dtype):
    hidden, weight, _, labels = head(dtype)
    student = (hidden @ weight.t()).detach().requires_grad_()
    teacher = student.detach().flip(0)
    ce, tvd = liger.LigerFusedCETVDLoss(ignore_index=IGNORED)(student, teacher, labels)
    upstream = torch.linspace(-1, 2, N)
    (ce * upstream + tvd * upstream.flip(0)).sum().backward()
    (exact,) = in_f64(student)
    counts = labels != IGNORED
    want_ce = torch.nn.functional.cross_entropy(exact, labels, reduction="none") * counts
    want_tvd = 0.5 * (exact.softmax(-1) - teacher.double().softmax(-1)).abs().sum(-1) * counts
    (want_ce * upstream + want_tvd * upstream.flip(0)).sum().backward()
    assert ce.dtype == tvd.dtype == torch.float32 and ce.shape == tvd.shape == (N,)
    near(ce, want_ce.detach(), torch.float32), near(tvd, want_tvd.detach(), torch.float32)
    near(student.grad, exact.grad, dtype)
    assert not student.grad[~counts].any()
    with pytest.raises(ValueError, match=r"teacher_logits.shape is \[28, 37\], must be \[29, 37\]"):
        ops.LigerFusedCETVDFunction.apply(student, teacher[1:], labels)
