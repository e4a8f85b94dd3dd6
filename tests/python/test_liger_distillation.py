"""tigon.compat.liger's losses of two heads against their formulas in f64."""

import pytest
import torch
import torch.nn.functional as F

import tigon.compat.liger
from tigon.compat.liger import LigerError, chunked_loss
from tigon.compat.liger.chunked_loss import functional as chunked
from tigon.compat.liger.ops import LigerFusedLinearJSDFunction
from tigon.compat.liger.transformers import LigerFusedLinearJSD
from tigon.compat.liger.transformers.functional import liger_fused_linear_jsd

N, H, D, V = 24, 16, 10, 37
LABELS = torch.randint(V, (N,), generator=torch.Generator().manual_seed(7))
LABELS[::5] = -100
COUNTED = LABELS != -100


def heads(dtype=torch.float32, classes=V):
    """The student's hidden, weight and bias, and the teacher's."""
    generator = torch.Generator().manual_seed(3)
    draw = lambda *shape: torch.randn(shape, generator=generator).to(dtype)
    student = [draw(N, H).requires_grad_(), draw(V, H).requires_grad_(), draw(V).requires_grad_()]
    return student, [draw(N, D), draw(classes, D), draw(classes)]


def kl(lp, lq):
    return (lp.exp() * (lp - lq)).sum(-1)


def jsd(z, t, beta, temperature):
    lq, lp = (z / temperature).log_softmax(-1), (t / temperature).log_softmax(-1)
    if beta in (0, 1):
        return kl(lq, lp) if beta else kl(lp, lq)
    lm = (beta * lp.exp() + (1 - beta) * lq.exp()).log()
    return beta * kl(lp, lm) + (1 - beta) * kl(lq, lm)


def cosine(z, t, beta, temperature):
    return beta * (1 - F.cosine_similarity(z, t, dim=-1))


def exact(tensors, gradients=True):
    return [t.detach().double().requires_grad_(gradients) for t in tensors]


def near(found, wanted):
    assert found.shape == wanted.shape
    assert (found.double() - wanted).abs().max().item() <= 2e-5 * max(wanted.detach().abs().max().item(), 0.05)


LOSSES = {
    "JSD": (jsd, "LigerFusedLinearJSDFunction", "liger_fused_linear_jsd"),
    "CosineSimilarity": (cosine, "LigerFusedLinearCosineSimilarityFunction", "liger_fused_linear_cosine"),
}


def formula(name, student, teacher, hard, soft, beta, temperature):
    z, t = [h @ w.T + b for h, w, b in (student, teacher)]
    soft_loss = (LOSSES[name][0](z, t, beta, temperature) * COUNTED).sum() / COUNTED.sum()
    hard_loss = F.cross_entropy(z, LABELS)
    return hard * hard_loss + soft * soft_loss, soft_loss, hard_loss


@pytest.mark.parametrize("weights", [(0.5, 0.5), (0.0, 1.0), (1.0, 0.0), (2.0, 0.25)], ids=str)
@pytest.mark.parametrize("beta", [0.0, 0.25, 1.0])
@pytest.mark.parametrize("name", LOSSES)
def test_chunked(name, beta, weights):
    (h, w, b), (h2, w2, b2) = student, teacher = heads()
    double = exact(student)
    wanted = formula(name, double, exact(teacher, False), *weights, beta, 2.0)
    options = dict(weight_hard_loss=weights[0], weight_soft_loss=weights[1], beta=beta, temperature=2.0)
    make = getattr(chunked_loss, f"LigerFusedLinear{name}Loss")
    found = make(**options, return_soft_hard_loss=True)(h, w, h2, w2, LABELS, b, b2)
    assert len(found) == 3 and not found[1].requires_grad and not found[2].requires_grad
    for ours, must in zip(found, wanted, strict=True):
        near(ours, must)
    alone = make(**options)(h, w, h2, w2, LABELS, b, b2)
    assert torch.equal(alone, found[0]) and alone.dtype == torch.float32
    for loss in (found[0], alone):
        made = torch.autograd.grad(1.5 * loss, student)
        for ours, must in zip(made, torch.autograd.grad(1.5 * wanted[0], double, retain_graph=True), strict=True):
            near(ours, must)


@pytest.mark.parametrize("name", LOSSES)
def test_chunked_functions(name):
    """By position, as the module has it; the defaults."""
    (h, w, b), (h2, w2, b2) = heads()
    module = getattr(chunked_loss, f"LigerFusedLinear{name}Loss")()
    _, function, alias = LOSSES[name]
    file = chunked_loss.jsd_loss if name == "JSD" else chunked_loss.cosine_similarity_loss
    wanted = module(h, w, h2, w2, LABELS, b, b2)
    for call in (getattr(file, function).apply, getattr(chunked, alias)):
        inputs = h, w, h2, w2, LABELS, b, b2
        assert torch.equal(call(*inputs), wanted)
        assert torch.equal(call(*inputs, 0.5, 0.5, 0.5, -100, 1.0, True, 1024, False), wanted)
        loss, *parts = call(*inputs, 0.25, 0.5, 0.5, -100, 1.0, False, 8, True)
        torch.testing.assert_close(loss.detach(), 0.5 * parts[0] + 0.25 * parts[1])


@pytest.mark.parametrize("beta", [0.0, 0.1, 0.5, 1.0])
@pytest.mark.parametrize("labels", [None, LABELS], ids=["all", "some"])
def test_fused_jsd(labels, beta):
    (h, w, _), (h2, w2, _) = student, teacher = heads()
    double = exact(student)[:2]
    each = jsd(double[0] @ double[1].T, (h2 @ w2.T).double(), beta, 2.0)
    wanted = each.mean() if labels is None else (each * COUNTED).sum() / COUNTED.sum()
    loss = LigerFusedLinearJSD(beta, -100, 2.0)(h, w, h2, w2, labels)
    near(loss, wanted)
    for ours, must in zip(torch.autograd.grad(1.5 * loss, student[:2]), torch.autograd.grad(1.5 * wanted, double)):
        near(ours, must)
    options = labels, beta, -100, 2.0
    assert torch.equal(LigerFusedLinearJSDFunction.apply(h, w, h2, w2, *options), loss)
    assert torch.equal(liger_fused_linear_jsd(h, w, h2, w2, *options, torch.float32), loss)


def test_bf16():
    """Loss and gradients of a teacher that is almost the student: of 16-bit logits nothing would be left."""
    (h, w, _), _ = heads(torch.bfloat16)
    near_w = (w.detach().float() + 2**-7 * torch.randn(V, H)).bfloat16()
    double = exact((h, w))
    wanted = jsd(double[0] @ double[1].T, double[0].detach() @ near_w.double().T, 0.5, 1.0).mean()
    loss = liger_fused_linear_jsd(h, w, h, near_w)
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss.double(), wanted, rtol=2e-3, atol=0)
    for ours, must in zip(torch.autograd.grad(loss, (h, w)), torch.autograd.grad(wanted, double)):
        assert ours.dtype == torch.bfloat16
        assert (ours.double() - must).norm() <= 2**-7 * must.norm()


def test_a_teacher_with_padded_classes():
    """They are left out, and no logits of 0 stand in for the student's."""
    (h, w, b), (h2, w2, b2) = heads(classes=V + 3)
    loss = chunked_loss.LigerFusedLinearJSDLoss()
    found = loss(h, w, h2, w2, LABELS, b, b2)
    assert torch.equal(found, loss(h, w, h2, w2[:V], LABELS, b, b2[:V]))


def test_a_class_that_neither_has():
    """Logits of -Inf in both are a probability of 0, not NaN."""
    (h, w, b), (h2, w2, b2) = student, teacher = heads()
    without = [w.detach()[:-1], b.detach()[:-1], w2[:-1], b2[:-1]]
    with torch.no_grad():
        b[-1] = b2[-1] = -torch.inf
    loss = chunked_loss.LigerFusedLinearJSDLoss()
    found = loss(h, w, h2, w2, LABELS.clamp(max=V - 2), b, b2)
    wanted = loss(h, without[0], h2, without[2], LABELS.clamp(max=V - 2), without[1], without[3])
    torch.testing.assert_close(found, wanted)
    made, must = [torch.autograd.grad(each, h)[0] for each in (found, wanted)]
    torch.testing.assert_close(made, must)


def test_nothing_counts():
    (h, w, b), (h2, w2, b2) = student, teacher = heads()
    for loss in (chunked_loss.LigerFusedLinearJSDLoss(), chunked_loss.LigerFusedLinearCosineSimilarityLoss()):
        found = loss(h, w, h2, w2, torch.full((N,), -100), b, b2)
        assert found == 0 and all((g == 0).all() for g in torch.autograd.grad(found, student))


def test_two_names_of_one():
    """The chunked losses and the one without cross entropy have the same names in other files, as in Liger-Kernel."""
    assert chunked.liger_fused_linear_jsd is chunked_loss.jsd_loss.LigerFusedLinearJSDFunction.apply
    assert chunked_loss.jsd_loss.LigerFusedLinearJSDFunction is not LigerFusedLinearJSDFunction
    assert tigon.compat.liger.LigerFusedLinearJSDFunction is LigerFusedLinearJSDFunction


def test_refusals():
    (h, w, _), (h2, w2, _) = heads()
    with pytest.raises(LigerError, match="^temperature is 0, must be another number$"):
        LigerFusedLinearJSD(temperature=0)
    with pytest.raises(LigerError, match="^temperature is 0, must be another number$"):
        chunked_loss.LigerFusedLinearCosineSimilarityLoss(temperature=0)
    sentence = r"^shift_labels.shape is \[23\], must be \[24\] \(teacher_input.shape\[0\]\)$"
    with pytest.raises(LigerError, match=sentence):
        liger_fused_linear_jsd(h, w, h2, w2, LABELS[1:])
    with pytest.raises(LigerError, match=r"labels\[0\] is 37, must be 0 to 36 .* \(out of bounds\)$"):
        chunked.liger_fused_linear_jsd(h, w, h2, w2, LABELS.where(COUNTED, V), None, None)
