"""Losses whose gradient is made with them: backward scales it, once, where it lies."""

import math
import weakref

import pytest
import torch
from tigon.torch import _memory
from tigon.torch import functional as T
from tigon.torch.operators import losses

ROWS, V = 160, 4096  # 1.25 MiB in 16 bits
TARGET = (torch.arange(ROWS) * 977 % V).index_fill(0, torch.tensor([3, 50]), -100)
FACTORS = [1.0, 0.5, 1 / 3, -7e3, 0.0, math.inf, math.nan]


def logits(dtype=torch.float32):
    return torch.randn(ROWS, V, generator=torch.Generator().manual_seed(1)).to(dtype).requires_grad_()


def apart(x, factor, **options):
    """The gradient of f64 logits in plain torch."""
    exact = x.detach().double().requires_grad_()
    loss = torch.nn.functional.cross_entropy(exact, TARGET, **options)
    return torch.autograd.grad(loss, exact, torch.tensor(factor, dtype=torch.float64))[0]


def saved_by(call):
    """A call's result, and the tensors with elements that autograd saves in it."""
    saved = []
    keep = lambda t: saved.append(t) or t
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda t: t):
        return call(), [t for t in saved if t.numel()]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_factors(dtype, reduction):
    x = logits(dtype)
    (unscaled,) = torch.autograd.grad(T.cross_entropy(x, TARGET, reduction=reduction), x)
    for factor in FACTORS:
        (found,) = torch.autograd.grad(T.cross_entropy(x, TARGET, reduction=reduction) * factor, x)
        assert torch.equal(found.nan_to_num(1), (unscaled.float() * factor).to(dtype).nan_to_num(1))
        if math.isfinite(factor):
            rounding = 2**-7 if dtype == torch.bfloat16 else 1e-5
            wanted = apart(x, factor, reduction=reduction, label_smoothing=0.0)
            torch.testing.assert_close(found.double(), wanted, rtol=rounding, atol=1e-9 * abs(factor))


def test_a_factor_of_one_has_no_copy():
    x = logits()
    loss, (gradient,) = saved_by(lambda: T.cross_entropy(x, TARGET))
    place = gradient.data_ptr()
    del gradient
    loss.backward()
    assert x.grad.data_ptr() == place and x.grad.shape == x.shape


def test_logits_are_not_kept():
    x = logits()
    y = x * 2
    loss, seen = T.cross_entropy(y, TARGET), weakref.ref(y)
    del y
    assert seen() is None
    loss.backward()
    torch.testing.assert_close(x.grad.double(), 2 * apart(2 * x.detach(), 1.0), rtol=1e-5, atol=1e-9)


def test_backward_again():
    """A kept graph keeps its gradient as it was, whatever becomes of the first result."""
    x = logits()
    loss = T.cross_entropy(x, TARGET)
    wanted = apart(x, 1.0)
    for factor in (3.0, 1.0, -0.5):
        (found,) = torch.autograd.grad(loss * factor, x, retain_graph=True)
        torch.testing.assert_close(found.double(), factor * wanted, rtol=1e-5, atol=1e-9)
        found.zero_()
    (last,) = torch.autograd.grad(loss * 2, x)
    torch.testing.assert_close(last.double(), 2 * wanted, rtol=1e-5, atol=1e-9)
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        torch.autograd.grad(loss, x)


def test_second_derivatives_are_refused():
    first = torch.ones((), requires_grad=True)
    x = logits()
    y = x * first
    loss = T.cross_entropy(y, TARGET)
    (gradient,) = torch.autograd.grad(loss, y, create_graph=True)
    sentence = "^tigon: cross_entropy has no second derivative"
    for leaf in (y, x, first):
        with pytest.raises(RuntimeError, match=sentence):
            torch.autograd.grad(loss + gradient.square().sum(), leaf, retain_graph=True)
    with pytest.raises(RuntimeError, match=sentence):
        (loss + gradient.square().sum()).backward()


def test_where_it_is_not_made(monkeypatch):
    def never(*args):
        raise AssertionError("made a gradient")

    monkeypatch.setattr(losses, "_early", never)
    x = logits()
    with torch.no_grad():
        T.cross_entropy(x, TARGET)
    T.cross_entropy(x.detach(), TARGET)
    T.cross_entropy(x.half(), TARGET).backward()  # its loss is scaled before it is small
    T.cross_entropy(x[:8], TARGET[:8]).backward()
    T.cross_entropy(x, TARGET, reduction="none").sum().backward()
    torch._dynamo.reset()
    torch.compile(T.cross_entropy, fullgraph=True, backend="aot_eager")(x, TARGET).backward()
    with pytest.raises(AssertionError, match="made a gradient"):
        T.cross_entropy(x, TARGET)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", ["kl", "reverse_kl", "jsd", "tvd", "cosine"])
def test_divergence(kind, dtype):
    """The gradient that its own pass makes, times any factor, again, and refused a second time."""
    x, target = logits(dtype), logits(dtype).detach().flip(0)
    rounding = 2**-7 if dtype == torch.bfloat16 else 1e-5
    options = dict(kind=kind, labels=TARGET, temperature=1.5)
    per_row = T.divergence(x, target, reduction="none", **options).sum()
    (wanted,) = torch.autograd.grad(per_row, x)
    loss, (kept,) = saved_by(lambda: T.divergence(x, target, reduction="sum", **options))
    assert kept.shape == x.shape and kept.data_ptr() not in (x.data_ptr(), target.data_ptr())
    torch.testing.assert_close(loss, per_row, rtol=1e-5, atol=1e-6)
    for factor in (1.0, -0.5):
        (found,) = torch.autograd.grad(loss * factor, x, retain_graph=True)
        torch.testing.assert_close(found.double(), factor * wanted.double(), rtol=rounding, atol=1e-8)
    (gradient,) = torch.autograd.grad(loss, x, create_graph=True)
    with pytest.raises(RuntimeError, match="^tigon: divergence has no second derivative"):
        gradient.square().sum().backward()


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoint(reentrant):
    x = logits()
    loss = torch.utils.checkpoint.checkpoint(lambda x: T.cross_entropy(x * 1, TARGET), x, use_reentrant=reentrant)
    (loss / 3).backward()
    torch.testing.assert_close(x.grad.double(), apart(x, 1 / 3), rtol=1e-5, atol=1e-9)


def test_saved_elsewhere():
    x = logits()
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t.clone(), lambda t: t.clone()):
        loss = T.cross_entropy(x, TARGET)
    (loss / 3).backward()
    torch.testing.assert_close(x.grad.double(), apart(x, 1 / 3), rtol=1e-5, atol=1e-9)


def test_losses_added_up():
    x = logits()
    (T.cross_entropy(x, TARGET) + 0.25 * T.cross_entropy(2 * x, TARGET, reduction="sum")).backward()
    wanted = apart(x, 1.0) + 0.5 * apart(2 * x.detach(), 1.0, reduction="sum")
    torch.testing.assert_close(x.grad.double(), wanted, rtol=1e-5, atol=1e-6)


def test_other_layouts():
    """Rows that do not lie end to end, and classes that are not the last dimension in memory."""
    target = TARGET.view(4, 40)
    for x in (logits().view(4, 40, V).transpose(0, 1), logits().view(V, ROWS).t().reshape(4, 40, V).movedim(1, 0)):
        leaf = x.detach().requires_grad_()
        (found,) = torch.autograd.grad(T.cross_entropy(leaf, target.t()) / 3, leaf)
        exact = leaf.detach().double().requires_grad_()
        loss = torch.nn.functional.cross_entropy(exact.reshape(-1, V), target.t().reshape(-1)) / 3
        torch.testing.assert_close(found.double(), torch.autograd.grad(loss, exact)[0], rtol=1e-5, atol=1e-9)


HEADS = {
    "fused_linear_cross_entropy": lambda h, w, t: T.fused_linear_cross_entropy(h, w, t),
    "fused_linear_policy": lambda h, w, t: T.fused_linear_policy(h, w, t, torch.tensor([1.0, -0.5])),
}


@pytest.mark.parametrize("name", HEADS)
def test_heads_round_once(name):
    torch.manual_seed(2)
    h, w = torch.randn(2, 8, 64).bfloat16().requires_grad_(), torch.randn(50, 64).bfloat16().requires_grad_()
    target = torch.randint(50, (2, 8))
    unscaled = torch.autograd.grad(HEADS[name](h, w, target), (h, w))
    for factor in FACTORS:
        found = torch.autograd.grad(HEADS[name](h, w, target) * factor, (h, w))
        for g, by_one in zip(found, unscaled):
            assert torch.equal(g.nan_to_num(1), (by_one.float() * factor).bfloat16().nan_to_num(1))


def test_a_head_without_tokens():
    h, w = torch.randn(0, 64, requires_grad=True), torch.randn(50, 64, requires_grad=True)
    (3 * T.fused_linear_cross_entropy(h, w, torch.randint(50, (0,)), reduction="sum")).backward()
    assert h.grad.shape == h.shape and not w.grad.any()


def test_a_head_takes_a_quarter_of_a_gibibyte():
    """Without touching what it would compute on."""
    h, w = (torch.empty(n, 4096, dtype=torch.bfloat16) for n in (8192, 128256))
    target, options = torch.zeros(8192, dtype=torch.int64), (0, True, -100, 0.0, 0.0, 0.0, 1.0, False, 0, False)
    needed = lambda rows, granted: losses._fused_fwd._prepare(
        (h[:rows], w, None, target[:rows], None, None, None, granted, *options[1:], True, True, False)
    )[0].struct.workspace_bytes
    assert needed(8192, 0) == 256 << 20 and needed(64, 0) < 64 << 20
    assert needed(8192, 2 << 30) == 2 << 30


def test_sizes_in_the_environment(monkeypatch):
    for text, size in ("", None), ("0", 0), ("64M", 64 << 20), ("2G", 2 << 30):
        monkeypatch.setenv("TIGON_HEAD_WORKSPACE", text)
        assert _memory.size_given("TIGON_HEAD_WORKSPACE") == size
    monkeypatch.setenv("TIGON_HEAD_WORKSPACE", "2 GB")
    with pytest.raises(ValueError, match="^tigon: TIGON_HEAD_WORKSPACE is '2 GB', must be 0 or a size such as 512M or 8G$"):
        _memory.size_given("TIGON_HEAD_WORKSPACE")
