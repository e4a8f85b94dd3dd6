"""Every kind of preference_loss against its paper's formula in float64, whose gradients torch makes."""

import functools

import pytest
import torch
import torch.nn.functional as F

from tigon.torch import functional as T
from tigon.torch import nn

BETA, SHIFT = 0.5, 0.375
COUNTS = torch.tensor([3, 1, 4, 2, 5, 2, 6, 5, 3, 4])
LABELS = torch.tensor([1, 0, 0, 1, 1, 0, 1, 0, 0, 1])


def of_h(f):
    return lambda a, b: f(BETA * (a - b))


def log_odds(l):
    return l - torch.log(-torch.expm1(l))


def discopop(h):
    m = torch.sigmoid(h / 0.05)
    return -F.logsigmoid(h) * (1 - m) + torch.exp(-h) * m


def exo_pair(h):
    p = torch.sigmoid(torch.stack([h, -h]))
    return (p * (p.log() - torch.tensor([[0.75], [0.25]]).double().log())).sum(0)


PAIRS = {  # functions of the log-ratios of chosen and rejected
    "sigmoid": of_h(lambda h: -0.75 * F.logsigmoid(h) - 0.25 * F.logsigmoid(-h)),
    "cpo": of_h(lambda h: -0.75 * F.logsigmoid(h) - 0.25 * F.logsigmoid(-h)),
    "simpo": of_h(lambda h: -0.75 * F.logsigmoid(h - 0.5) - 0.25 * F.logsigmoid(0.5 - h)),
    "hinge": of_h(lambda h: F.relu(1 - h)),
    "ipo": lambda a, b: (a - b - 1 / (2 * BETA)) ** 2,
    "exo_pair": of_h(exo_pair),
    "nca_pair": lambda a, b: (
        -F.logsigmoid(BETA * a) - 0.5 * F.logsigmoid(-BETA * a) - 0.5 * F.logsigmoid(-BETA * b)
    ),
    "robust": of_h(lambda h: (-0.75 * F.logsigmoid(h) + 0.25 * F.logsigmoid(-h)) / 0.5),
    "bco_pair": lambda a, b: -F.logsigmoid(BETA * a - SHIFT) - F.logsigmoid(SHIFT - BETA * b),
    "sppo_hard": lambda a, b: (a - 0.5 / BETA) ** 2 + (b + 0.5 / BETA) ** 2,
    "apo_zero": lambda a, b: 1 - torch.sigmoid(BETA * a) + torch.sigmoid(BETA * b),
    "apo_down": lambda a, b: torch.sigmoid(BETA * a) + 1 - torch.sigmoid(BETA * (a - b)),
    "discopop": of_h(discopop),
    "orpo": lambda a, b: -BETA * F.logsigmoid(log_odds(a) - log_odds(b)),
}
SINGLE = {  # functions of the log-ratio and the label, 1 or -1
    "kto": lambda l, y: 1 - torch.sigmoid(y * BETA * (l - SHIFT)),
    "apo_zero_unpaired": lambda l, y: 1 - torch.sigmoid(y * BETA * l),
    "bco": lambda l, y: -F.logsigmoid(y * (BETA * l - SHIFT)),
}
SHIFTED = "bco_pair", "kto", "bco"
WITHOUT_REF, MEANS = ("cpo", "simpo", "orpo"), ("ipo", "simpo", "orpo")


def plain(kind, logps, ref, means):
    l = logps - (0 if ref is None else ref.double())
    if means:
        l = l / COUNTS
    if kind in PAIRS:
        return PAIRS[kind](*l.chunk(2)).mean()
    return (SINGLE[kind](l, 2 * LABELS - 1) * torch.where(LABELS == 1, 1.5, 0.75)).mean()


@pytest.mark.parametrize("means", [False, True], ids=["sums", "means"])
@pytest.mark.parametrize("kind", [*PAIRS, *SINGLE])
def test_formula(kind, means):
    if kind in MEANS and not means:
        pytest.skip("of means alone")
    generator = torch.Generator().manual_seed(0)
    draw = lambda: -4 * torch.rand(10, generator=generator) - 0.5
    logps, ref = draw().requires_grad_(), None if kind in WITHOUT_REF else draw()
    options = dict(beta=BETA, label_smoothing=0.25, counts=COUNTS if means else None)
    if kind in SINGLE:
        options |= dict(labels=LABELS, desirable_weight=1.5, undesirable_weight=0.75)
    if kind in SHIFTED:
        options["shift"] = SHIFT
    run = functools.partial(T.preference_loss, kind=kind, **options)
    loss, exact = run(logps, ref), logps.detach().double().requires_grad_()
    wanted = plain(kind, exact, ref, means)
    (found,), (gradient,) = torch.autograd.grad(3 * loss, logps), torch.autograd.grad(3 * wanted, exact)
    torch.testing.assert_close(loss.double(), wanted, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(found.double(), gradient, rtol=1e-5, atol=1e-6 * gradient.abs().max().item())
    torch._dynamo.reset()
    compiled = torch.compile(run, fullgraph=True, backend="aot_eager")(logps, ref)
    assert torch.equal(compiled, loss)
    assert torch.equal(*torch.autograd.grad(3 * compiled, logps), found)


def test_outputs_and_module():
    logps = torch.tensor([-1.0, -4, -2, -3], requires_grad=True)
    made = T.preference_loss(logps, beta=0.5, outputs=True)
    assert made.rewards.tolist() == [-0.5, -2, -1, -1.5]
    assert made.accuracy == 0.5 and made.margin == 0
    assert made.pair_loss.shape == (2,) and torch.equal(made.pair_loss.mean(), made.loss)
    assert made.loss.requires_grad and not any(t.requires_grad for t in made[1:])
    module = nn.PreferenceLoss("sigmoid", beta=0.5)
    assert torch.equal(module(logps), made.loss) and "beta=0.5" in repr(module)


def test_gradient_of_the_model_alone():
    """The reference is a constant, and so are the shift and the denominator."""
    logps, ref, shift = torch.randn(4, requires_grad=True), torch.randn(4, requires_grad=True), torch.ones(1)
    labels = torch.tensor([True, False, True, False])
    denominator = torch.tensor(8.0, requires_grad=True)
    options = dict(kind="kto", labels=labels, shift=shift)
    loss = T.preference_loss(logps, ref, denominator=denominator, **options)
    loss.backward()
    assert logps.grad is not None and ref.grad is None and denominator.grad is None
    torch.testing.assert_close(loss, T.preference_loss(logps, ref, **options) / 2)


@pytest.mark.parametrize("kind", ["kto", "bco", "bco_pair"])
def test_shift_of_each(kind):
    """A vector shifts every sequence or pair by its own number."""
    logps, ref = torch.randn(6), torch.randn(6)
    labels = None if kind == "bco_pair" else torch.tensor([1, 0, 1, 1, 0, 0])
    shift = torch.rand(3 if labels is None else 6)
    run = functools.partial(T.preference_loss, logps, ref, kind=kind, labels=labels, outputs=True)
    each = torch.stack([run(shift=s).pair_loss[i] for i, s in enumerate(shift)])
    assert torch.equal(run(shift=shift).pair_loss, each)
    with pytest.raises(ValueError, match="shift.shape.0. is 2, must be"):
        run(shift=shift[:2])


x = torch.randn(4)
REFUSED = [
    (lambda: T.preference_loss(x[:3]), "_fwd: logps.shape[0] is 3, must be even with an options.kind of pairs"),
    (lambda: T.preference_loss(x, x, kind="cpo"), ": ref_logps is there, must be None with kind 'cpo'"),
    (
        lambda: T.preference_loss(x, kind="simpo"),
        ": counts is None, must be there with kind 'simpo', which is of means",
    ),
    (lambda: T.preference_loss(x, beta=0), ": beta is 0, must be another number"),
    (
        lambda: T.preference_loss(x, kind="kto"),
        "_fwd: labels is absent, must be there with an options.kind of single sequences",
    ),
    (
        lambda: T.preference_loss(x, shift=1.0),
        "_fwd: shift is there, must be absent but with options.kind BCO_PAIR, KTO or BCO",
    ),
    (
        lambda: T.preference_loss(x, label_smoothing=0.5),
        "_fwd: options.label_smoothing is 0.5, must be at least 0 and less than 0.5",
    ),
    (lambda: T.preference_loss(x, nll_logps=x), "_fwd: nll_counts is absent, must be given with nll_logps"),
]


@pytest.mark.parametrize("call, sentence", REFUSED, ids=range(len(REFUSED)))
def test_refused(call, sentence):
    with pytest.raises(ValueError) as caught:
        call()
    assert str(caught.value) == "preference_loss" + sentence


def test_unknown_kind():
    with pytest.raises(ValueError, match="tigon: kind is 'aot', must be 'sigmoid' or 'hinge'"):
        T.preference_loss(x, kind="aot")
