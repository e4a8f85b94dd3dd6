"""fused_linear_divergence against divergence and cross_entropy of full logits."""

import pytest
import torch
from divergence_formulas import close, gradients, of_logs
from tigon.torch import functional as T
from tigon.torch import nn

N, H, D, V = 24, 16, 10, 37
KINDS = ["kl", "reverse_kl", "jsd", "tvd", "cosine"]


def heads(dtype=torch.float32, classes=V):
    """The student's hidden, weight and bias, the teacher's, and labels."""
    torch.manual_seed(3)
    student = [torch.randn(*shape).to(dtype).requires_grad_() for shape in ((4, 6, H), (V, H), (V,))]
    teacher = [torch.randn(*shape).to(dtype) for shape in ((4, 6, D), (classes, D), (classes,))]
    labels = torch.randint(0, V, (4, 6))
    labels.view(-1)[4::5] = -100
    return student, teacher, labels


def fused(student, teacher, labels=None, **options):
    (h, w, b), (h2, w2, b2) = student, teacher
    return T.fused_linear_divergence(h, w, h2, w2, b, b2, labels, **options)


def apart(student, teacher, labels=None, kind="kl", weight_soft=1.0, weight_hard=0.0, **options):
    """Logits that are rounded as the operator rounds them, once."""
    (z, t) = [torch.nn.functional.linear(h, w.to(h), b.to(h)) for h, w, b in (student, teacher)]
    soft = T.divergence(z, t[..., : z.shape[-1]], kind, labels, **options)
    hard = torch.zeros(())
    if weight_hard:
        mean = {name: options[name] for name in ("denominator", "token_scale") if name in options}
        hard = T.cross_entropy(z, labels, **mean)
    return weight_soft * soft + weight_hard * hard, soft, hard


OPTIONS = [
    {},
    dict(temperature=2.0, beta=0.1, by_temperature_squared=True),
    dict(weight_soft=0.5, weight_hard=0.25, temperature=0.5),
    dict(denominator=7.0, weight_hard=1.0),
    dict(token_scale=torch.arange(N).float() / 8, weight_hard=0.5, weight_soft=2.0),
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_losses_and_gradients(kind, options):
    student, teacher, labels = heads()
    found = fused(student, teacher, labels, kind=kind, outputs=True, **options)
    loss, soft, hard = apart(student, teacher, labels, kind, **options)
    close([found.loss], [loss])
    if "token_scale" not in options:
        squared = 4 if options.get("by_temperature_squared") else 1
        close([found.soft_loss * squared, found.hard_loss], [soft, hard])
    assert found.token_loss.shape == labels.shape and (found.token_loss[labels == -100] == 0).all()
    by = options.get("denominator", (labels != -100).sum())
    close([found.token_loss.sum() / by], [loss])
    close(gradients(found.loss, student), gradients(loss, student))


@pytest.mark.parametrize("kind", KINDS)
def test_all_tokens_and_no_bias(kind):
    (h, w, _), (h2, w2, _), _ = heads()
    loss = T.fused_linear_divergence(h, w, h2, w2, kind=kind)
    expected = T.divergence(h @ w.T, h2 @ w2.T, kind)
    close([loss, *gradients(loss, (h, w))], [expected, *gradients(expected, (h, w))])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("kind", KINDS)
def test_16_bits(kind, dtype):
    student, teacher, labels = heads(dtype)
    loss = fused(student, teacher, labels, kind=kind, weight_hard=0.5)
    expected = apart(student, teacher, labels, kind, weight_hard=0.5)[0]
    close([loss], [expected], 2**-8)
    for g, e, x in zip(gradients(loss, student), gradients(expected, student), student, strict=True):
        assert g.dtype == dtype and g.shape == x.shape
        torch.testing.assert_close(g.float(), e.float(), rtol=2**-5, atol=2**-6 * e.float().abs().max().item())


def test_logits_in_f32():
    """Of a teacher that is almost the student, 16-bit logits leave hardly a digit."""
    (h, w, _), _, _ = heads(torch.bfloat16)
    with torch.no_grad():
        near = w + (torch.randn(V, H) * 2**-7).bfloat16()
    leaf = h.detach().float().requires_grad_()
    expected = T.divergence(leaf @ w.detach().float().T, leaf.detach() @ near.float().T, "jsd")
    (exact,) = torch.autograd.grad(expected, leaf)
    errors = []
    for wide in (False, True):
        loss = T.fused_linear_divergence(h, w.detach(), h, near, kind="jsd", logits_in_f32=wide)
        (made,) = torch.autograd.grad(loss, h)
        errors.append(((made.float() - exact).norm() / exact.norm()).item())
        if wide:
            close([loss], [expected], 1e-4)
    assert errors[1] < 2**-7 < errors[0] / 4


def capped(u, cap, scale):
    return u * scale if cap is None else cap * torch.tanh(u * scale / cap)


def plain(student, teacher, labels, kind, maps, temperature=1.0, weight_hard=0.0, beta=0.5):
    """Of both heads in f64, softcaps before the temperature."""
    z, t = [
        capped(torch.nn.functional.linear(*[x.double() for x in side]), *of)
        for side, of in zip((student, teacher), (maps[:2], maps[2:]), strict=True)
    ]
    z, t, labels = z[labels != -100], t[labels != -100], labels[labels != -100]
    if kind == "cosine":
        each = 1 - torch.nn.functional.cosine_similarity(z, t, -1, eps=0.0)
    else:
        each = of_logs(kind, (t / temperature).log_softmax(-1), (z / temperature).log_softmax(-1), beta)
    return each.mean() + weight_hard * torch.nn.functional.cross_entropy(z, labels)


# softcap, logit_scale, teacher_softcap, teacher_logit_scale
MAPS = [(3.0, 1.5, 5.0, 0.25), (2.0, 1.0, None, 1.0), (None, 0.5, 1.5, 1.0), (None, 2.0, None, 0.125)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("maps", MAPS, ids=str)
@pytest.mark.parametrize("options", [dict(), dict(temperature=2.0, weight_hard=0.5)], ids=str)
def test_softcaps_and_scales(kind, maps, options):
    student, teacher, labels = heads()
    names = "softcap", "logit_scale", "teacher_softcap", "teacher_logit_scale"
    expected = plain(student, teacher, labels, kind, maps, **options)
    wanted = [expected, *gradients(expected, student)]
    for room in (None, 4096):
        loss = fused(
            *(student, teacher, labels), kind=kind, workspace_bytes=room, **dict(zip(names, maps)), **options
        )
        close([loss, *gradients(loss, student)], wanted)


def test_autocast():
    student, teacher, labels = heads()
    options = dict(kind="jsd", weight_hard=0.5)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = fused(student, teacher, labels, **options)
    short = [t.detach().bfloat16().requires_grad_() for t in student]
    expected = fused(short, [t.bfloat16() for t in teacher], labels, **options)
    # the teacher's bias stays in f32 under autocast
    close([loss], [expected], 2**-7)
    assert all(g.dtype == torch.float32 for g in gradients(loss, student))


@pytest.mark.parametrize("classes", [V - 5, V + 3])
def test_other_vocabularies(classes):
    """What a teacher lacks has a probability of 0; what it has beyond the student's is left out."""
    student, teacher, labels = heads(classes=classes)
    z, t = [torch.nn.functional.linear(*side) for side in (student, teacher)]
    t = torch.nn.functional.pad(t, (0, max(0, V - classes)), value=-torch.inf)[..., :V]
    loss = fused(student, teacher, labels, kind="jsd", truncate_teacher=classes > V)
    expected = T.divergence(z, t, "jsd", labels)
    close([loss, *gradients(loss, student)], [expected, *gradients(expected, student)])


def losses(student, teacher, labels, **options):
    for kind, hard in (("kl", 0.5), ("jsd", 0.0), ("cosine", 1.0)):
        given = dict(kind=kind, weight_hard=hard, temperature=2.0, **options)
        yield lambda student=student, given=given: fused(student, teacher, labels, **given)


def test_workspace():
    student, teacher, labels = heads()
    for small, large in zip(losses(student, teacher, labels, workspace_bytes=4096), losses(student, teacher, labels)):
        assert torch.equal(small(), large())
        close(gradients(small(), student), gradients(large(), student))


def test_frozen_head():
    student, teacher, labels = heads()
    h, w, b = student
    for loss in losses(student, teacher, labels):
        (trained,) = torch.autograd.grad(loss(), h)
        (frozen,) = torch.autograd.grad(loss((h, w.detach(), b.detach())), h)
        assert torch.equal(trained, frozen)
        (of_weight,) = torch.autograd.grad(loss((h.detach(), w, b.detach())), w)
        assert torch.equal(of_weight, torch.autograd.grad(loss(), w)[0])
        with torch.no_grad():
            assert torch.equal(loss(), loss().detach())


def test_teacher_gets_no_gradient():
    student, teacher, labels = heads()
    teacher = [t.requires_grad_() for t in teacher]
    found = torch.autograd.grad(fused(student, teacher, labels), teacher, allow_unused=True)
    assert found == (None, None, None)


def test_second_backward():
    student, teacher, labels = heads()
    for loss in losses(student, teacher, labels):
        value = loss()
        first = torch.autograd.grad(value * 3, student, retain_graph=True)
        close(torch.autograd.grad(value * 3, student), first)


def test_nothing_counts():
    student, teacher, labels = heads()
    loss = fused(student, teacher, labels.fill_(-100), weight_hard=0.5)
    assert loss == 0 and all((g == 0).all() for g in gradients(loss, student))


def test_compile():
    student, teacher, labels = heads()
    for loss in losses(student, teacher, labels):
        compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
        assert torch.equal(compiled(), loss())
        close(gradients(compiled(), student), gradients(loss(), student))


def test_module():
    student, teacher, labels = heads()
    (h, w, b), (h2, w2, b2) = student, teacher
    module = nn.FusedLinearDivergence("jsd", beta=0.25)
    assert torch.equal(module(h, w, h2, w2, b, b2, labels), fused(student, teacher, labels, kind="jsd", beta=0.25))
    assert repr(module) == "FusedLinearDivergence(kind='jsd', beta=0.25)"


def test_refusals():
    student, teacher, labels = heads(classes=V + 1)
    call = "fused_linear_divergence"
    cases = [
        (dict(labels=labels, weight_soft=0.0), f"{call}: weight_soft is 0, must be another number"),
        (dict(labels=labels, teacher_softcap=0.0), f"{call}: teacher_softcap is 0, must be another number"),
        (dict(labels=labels, logit_scale=0.0), f"{call}: logit_scale is 0, must be another number"),
        (dict(weight_hard=0.5, truncate_teacher=True), f"{call}_fwd: labels is absent, must be there with weight_hard"),
        (
            dict(labels=labels),
            f"{call}_fwd: teacher_weight.shape[0] is 38, must be at most 37 (weight.shape[0]) without truncate_teacher",
        ),
        (
            dict(labels=labels.clamp(min=-1), truncate_teacher=True),
            f"{call}_fwd: labels[4] is -1, must be 0 to 36 (weight.shape[0] - 1) or ignore_index",
        ),
    ]
    for options, sentence in cases:
        with pytest.raises(ValueError) as caught:
            fused(student, teacher, **options)
        assert str(caught.value) == sentence
