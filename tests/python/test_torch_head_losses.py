"""fused_linear_policy and fused_linear_preference against the losses of linear_logprob."""

import concurrent.futures

import pytest
import torch
import torch.nn.functional as TF
from tigon.torch import _op, nn
from tigon.torch import functional as T

B, S, H, V = 4, 6, 16, 37
SEGMENTS = torch.tensor([0, 3, 7, 7, 20])


def head(dtype=torch.float32, packed=False):
    torch.manual_seed(3)
    h = torch.randn(*((20,) if packed else (B, S)), H).to(dtype).requires_grad_()
    w, b = [torch.randn(*shape).to(dtype).requires_grad_() for shape in ((V, H), (V,))]
    target = torch.randint(0, V, h.shape[:-1])
    target.view(-1)[4::5] = -100
    return h, w, b, target


def close(a, b, tolerance=1e-5):
    for x, y in zip(a, b, strict=True):
        largest = y.float().abs().max().item()
        torch.testing.assert_close(x.float(), y.float(), rtol=tolerance, atol=tolerance * max(1, largest))


def gradients(loss, *leaves):
    return torch.autograd.grad(loss * 3, leaves)


POLICIES = [{}, dict(kind="grpo", level="sequence"), dict(kind="vespo"), dict(entropy_weight=0.5), dict(kind="cispo")]


@pytest.mark.parametrize("options", POLICIES, ids=str)
@pytest.mark.parametrize("packed", [False, True])
def test_policies(options, packed):
    h, w, b, target = head(packed=packed)
    advantage, old, ref = torch.randn(B), torch.randn(target.shape) - 3, torch.randn(target.shape) - 3
    of = T.linear_logprob(h, w, target, b, entropy=True)
    given = dict(old=old, ref=ref, kl_weight=0.25, outputs=True) | options
    segments = SEGMENTS if packed else None
    l, e = of.logprob.reshape(target.shape), of.entropy.reshape(target.shape)
    apart = T.policy_loss(l, advantage, segments, mask=target != -100, entropy=e, **given)
    fused = T.fused_linear_policy(h, w, target, advantage, b, segments, **given)
    close(fused, apart)
    close(gradients(fused.loss, h, w, b), gradients(apart.loss, h, w, b))


PREFERENCES = ["sigmoid", "ipo", "orpo", "cpo", "simpo", "kto"]


@pytest.mark.parametrize("kind", PREFERENCES)
@pytest.mark.parametrize("packed", [False, True])
def test_preferences(kind, packed):
    h, w, b, target = head(packed=packed)
    ends = SEGMENTS if packed else torch.arange(B + 1) * S
    of = torch.repeat_interleave(torch.arange(B), ends.diff())
    logprob = T.linear_logprob(h, w, target, b).logprob.reshape(-1)
    logps = torch.zeros(B).index_add(0, of, logprob)
    counts = torch.zeros(B, dtype=torch.int64).index_add(0, of, (target.reshape(-1) != -100).long())
    given = dict(outputs=True)
    if kind in ("sigmoid", "ipo", "kto"):
        given["ref_logps"] = torch.randn(B) - 20
    if kind == "kto":
        given |= dict(labels=torch.tensor([True, False, True, True]), shift=0.5)
    more = dict(counts=counts) if kind in ("ipo", "orpo", "simpo") else {}
    if kind in ("orpo", "cpo"):
        more |= dict(nll_logps=logps[: B // 2], nll_counts=counts[: B // 2])
    apart = T.preference_loss(logps, kind=kind, **given, **more)
    fused = T.fused_linear_preference(h, w, target, b, SEGMENTS if packed else None, kind=kind, **given)
    close(fused, apart)
    close(gradients(fused.loss, h, w, b), gradients(apart.loss, h, w, b))


def losses(h, w, b, target, **options):
    torch.manual_seed(5)
    advantage = torch.randn(B)
    yield lambda h=h, w=w, b=b: T.fused_linear_policy(h, w, target, advantage, b, kind="grpo", **options)
    yield lambda h=h, w=w, b=b: T.fused_linear_policy(h, w, target, advantage, b, level="sequence", **options)
    yield lambda h=h, w=w, b=b: T.fused_linear_preference(h, w, target, b, kind="cpo", **options)


def test_workspace_changes_no_bit_of_a_token(monkeypatch):
    """Groups of whole sequences, and sequences too long for a chunk. OpenBLAS's bits may depend on the other rows, so
    that a thread with a context of its own asks for the built-in GEMM."""
    monkeypatch.setenv("TIGON_GEMM", "builtin")
    monkeypatch.setattr(_op, "_spare", {})

    def compare():
        h, w, b, target = head()
        for small, large in zip(losses(h, w, b, target, workspace_bytes=2048), losses(h, w, b, target), strict=True):
            assert torch.equal(small(), large())
            assert torch.equal(*[torch.autograd.grad(loss(), h)[0] for loss in (small, large)])
            close(gradients(small(), w, b), gradients(large(), w, b))
        assert _op.context(h.device).gemm().startswith("built-in: ")
        _op._thread.contexts.clear()

    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        pool.submit(compare).result()


def test_frozen_head():
    h, w, b, target = head()
    for loss in losses(h, w, b, target):
        (trained,) = torch.autograd.grad(loss(), h)
        (frozen,) = torch.autograd.grad(loss(w=w.detach(), b=b.detach()), h)
        assert torch.equal(trained, frozen)
        with torch.no_grad():
            assert torch.equal(loss(), loss().detach())


def test_second_backward():
    h, w, b, target = head()
    for loss in losses(h, w, b, target):
        value = loss()
        first = torch.autograd.grad(value * 3, (h, w, b), retain_graph=True)
        close(torch.autograd.grad(value * 3, (h, w, b)), first)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_16_bits_and_autocast(dtype):
    h, w, b, target = head()
    with torch.autocast("cpu", dtype=dtype):
        cast = [loss() for loss in losses(h, w, b, target)]
    short = [t.detach().to(dtype).requires_grad_() for t in (h, w, b)]
    for loss, of_short in zip(cast, losses(*short, target), strict=True):
        value = of_short()
        assert torch.equal(loss, value)
        for g, e, x in zip(gradients(loss, h, w, b), gradients(value, *short), (h, w, b), strict=True):
            assert g.dtype == torch.float32 and e.dtype == dtype and g.shape == x.shape
            torch.testing.assert_close(g.to(dtype), e, rtol=2**-6, atol=1e-3)


def test_compile():
    h, w, b, target = head()
    for loss in losses(h, w, b, target):
        compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
        assert torch.equal(compiled(), loss())
        close(gradients(compiled(), h, w, b), gradients(loss(), h, w, b))


def test_modules():
    h, w, b, target = head()
    advantage = torch.ones(B)
    module = nn.FusedLinearPolicyLoss("grpo", eps_low=0.1)
    inputs = h, w, target, advantage, b
    assert torch.equal(module(*inputs), T.fused_linear_policy(*inputs, kind="grpo", eps_low=0.1))
    assert repr(module) == "FusedLinearPolicyLoss(kind='grpo', eps_low=0.1)"
    module = nn.FusedLinearPreferenceLoss("simpo", beta=2.0)
    assert torch.equal(module(h, w, target, b), T.fused_linear_preference(h, w, target, b, kind="simpo", beta=2.0))
    assert repr(module) == "FusedLinearPreferenceLoss(kind='simpo', beta=2.0)"


def test_refusals():
    h, w, b, target = head()
    cases = [
        (
            lambda: T.fused_linear_policy(h, w, target, torch.ones(B), eps_low=0),
            "fused_linear_policy: eps_low is 0, must be another number",
        ),
        (
            lambda: T.fused_linear_policy(h, w, target, torch.ones(5)),
            "fused_linear_policy_fwd: advantage.shape[0] is 5, must be 24 (rows of hidden)",
        ),
        (
            lambda: T.fused_linear_preference(h[:3], w, target[:3]),
            "fused_linear_preference_fwd: hidden.shape[0] is 3, must be even with an options.kind of pairs",
        ),
        (
            lambda: T.fused_linear_preference(h, w, target, ref_logps=torch.ones(B), kind="orpo"),
            "fused_linear_preference: ref_logps is there, must be None with kind 'orpo'",
        ),
        (
            lambda: T.fused_linear_preference(h, w, target, kind="kto"),
            "fused_linear_preference_fwd: desirable is absent, must be there with an options.kind of single sequences",
        ),
    ]
    for call, sentence in cases:
        with pytest.raises(ValueError) as caught:
            call()
        assert str(caught.value) == sentence


def test_peaked_target():
    """A target of probability near 1 has a gradient of p - 1, which rounding p first would lose."""
    h, w, _, target = head(torch.bfloat16)
    with torch.no_grad():
        logits = h.float() @ w.float().T
        target = logits.argmax(-1)
    loss = T.fused_linear_policy(h, w, target, torch.ones(B), kind="bnpo", temperature=0.25)
    (made,) = torch.autograd.grad(loss, h)
    leaf = h.detach().float().requires_grad_()
    z = (leaf @ w.detach().float().T).to(torch.bfloat16).float() / 0.25
    (expected,) = torch.autograd.grad(torch.nn.functional.cross_entropy(z.reshape(-1, V), target.reshape(-1)), leaf)
    torch.testing.assert_close(made.float(), expected, rtol=0.05, atol=0.02 * expected.abs().max().item())
