"""What holds beside the numbers: errors, autocast, threads, odd tensors, compilers."""

import gc
import shutil
import sys
import threading

import pytest
import torch
from op_cases import CASES, IDS, TARGET, make_inputs
from torch._dynamo.testing import CompileCounterWithBackend
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from tigon.torch import _op
from tigon.torch import functional as T

x, w = torch.randn(4, 64), torch.randn(64)

ERRORS = [
    (lambda: T.rms_norm(x, w[:5]), ValueError, "rms_norm_fwd: w.shape[0] is 5, must be 64 (x.shape[1])"),
    (lambda: T.rms_norm(x, eps=-1.0), ValueError, "rms_norm_fwd: eps is -1, must be 0 to 3.40282e+38"),
    (lambda: T.rms_norm(x.int()), TypeError, "rms_norm_fwd: x.dtype is i32, must be f32, f16, bf16"),
    (
        lambda: T.rms_norm(x, casting="lama"),
        ValueError,
        "tigon: casting is 'lama', must be 'llama' or 'gemma' or 'none'",
    ),
    (lambda: T.rms_norm(torch.randn((1,) * 9)), ValueError, "rms_norm_fwd: x.ndim is 9, must be 1 to 8"),
    (
        lambda: T.fused_add_rms_norm(x, x.half()),
        TypeError,
        "fused_add_rms_norm_fwd: residual.dtype is f16, must be f32 (x.dtype)",
    ),
    (lambda: T.swiglu(x, x[:3]), ValueError, "swiglu_fwd: b.shape[0] is 3, must be 4 (a.shape[0])"),
    (lambda: T.swiglu_packed(x[:, :5]), ValueError, "swiglu_packed_fwd: ab.shape[1] is 5, must be even"),
    (lambda: T.swiglu(x, x, 0.0), ValueError, "swiglu: gate_multiplier is 0, must be another number"),
    (
        lambda: T.cross_entropy(x, torch.tensor([1, 64, 0, 0])),
        ValueError,
        "cross_entropy_fwd: labels[1] is 64, must be 0 to 63 (logits.shape[1] - 1) or ignore_index",
    ),
    (
        lambda: T.cross_entropy(x, torch.zeros(3).long()),
        ValueError,
        "cross_entropy: target.shape is [3], must be [4] (one for each row)",
    ),
    (
        lambda: T.embedding(torch.tensor([4]), x),
        ValueError,
        "embedding_fwd: idx[0] is 4, must be 0 to 3 (table.shape[0] - 1)",
    ),
    (
        lambda: T.fused_linear_cross_entropy(x, x, torch.zeros(4).long(), workspace_bytes=8),
        ValueError,
        "fused_linear_cross_entropy_fwd: workspace_bytes is 8, must be 320 or more",
    ),
]


@pytest.mark.parametrize("call, kind, sentence", ERRORS, ids=range(len(ERRORS)))
def test_error(call, kind, sentence):
    with pytest.raises(kind) as caught:
        call()
    assert str(caught.value) == sentence


def test_create_graph_alone_is_fine():
    leaf = x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(T.rms_norm(leaf).sum(), leaf, create_graph=True)
    (wanted,) = torch.autograd.grad(T.rms_norm(leaf).sum(), leaf)
    assert torch.equal(gradient, wanted)


def test_fused_head_twice_over_one_graph():
    """Its first backward scales the gradients that forward made, in place; a second one must not scale them again."""
    h, v = torch.randn(2, 5, 7, requires_grad=True), torch.randn(9, 7, requires_grad=True)
    loss = T.fused_linear_cross_entropy(h, v, TARGET) * 3
    first = torch.autograd.grad(loss, (h, v), retain_graph=True)
    second = torch.autograd.grad(loss, (h, v))
    for a, b in zip(first, second):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-7)


def test_fused_head_scales_f16_gradients_before_they_round():
    """With a loss scale of 2^16 the gradients of f16 are made from the scaled loss: those below 2^-24 would be lost."""
    h, v = torch.randn(4, 8).half().requires_grad_(), (1e-2 * torch.randn(9, 8)).half().requires_grad_()
    loss = T.fused_linear_cross_entropy(h, v, torch.tensor([1, 2, 3, 4]), token_scale=torch.full((4,), 1e-5))
    assert torch.autograd.grad(loss * 2**16, h)[0].count_nonzero() == 32


def test_workspace_does_not_change_the_loss():
    h, v, t = torch.randn(64, 32, requires_grad=True), torch.randn(999, 32), torch.arange(64)
    least, most = (T.fused_linear_cross_entropy(h, v, t, workspace_bytes=size) for size in (1 << 14, 1 << 24))
    torch.testing.assert_close(least, most, rtol=1e-6, atol=0)


@pytest.mark.parametrize("denominator", [7, 7.0, torch.tensor(7), torch.tensor([7.0])], ids=repr)
def test_denominator(denominator):
    logits = torch.randn(2, 5, 9, requires_grad=True)
    hidden, head = torch.randn(2, 5, 4, requires_grad=True), torch.randn(9, 4, requires_grad=True)
    for run, leaves in [
        (lambda **options: T.cross_entropy(logits, TARGET, **options), [logits]),
        (lambda **options: T.cross_entropy_outputs(logits, TARGET, **options).loss, [logits]),
        (lambda **options: T.fused_linear_cross_entropy(hidden, head, TARGET, **options), [hidden, head]),
        (lambda **options: T.fused_linear_cross_entropy_outputs(hidden, head, TARGET, **options).loss, [hidden, head]),
    ]:
        found, wanted = run(denominator=denominator), run(reduction="sum") / 7
        torch.testing.assert_close(found, wanted)
        for a, b in zip(torch.autograd.grad(found, leaves), torch.autograd.grad(wanted, leaves)):
            torch.testing.assert_close(a, b)
        with pytest.raises(ValueError, match="denominator is there, must be absent but with options.reduction mean"):
            run(denominator=denominator, reduction="sum")


def test_outputs_of_the_fused_head():
    hidden, head, bias = torch.randn(2, 5, 4), torch.randn(9, 4), torch.randn(9)
    wanted = T.cross_entropy_outputs(hidden @ head.t() + bias, TARGET, lse_square_scale=0.5)
    found = T.fused_linear_cross_entropy_outputs(hidden, head, TARGET, bias, lse_square_scale=0.5, workspace_bytes=512)
    for a, b in zip(found, wanted):
        torch.testing.assert_close(a, b)


def test_linear_logprob():
    hidden, head, bias = torch.randn(2, 5, 4, requires_grad=True), torch.randn(9, 4, requires_grad=True), torch.randn(9)
    g, log_p = torch.randn(2, 5), (hidden @ head.t() + bias).log_softmax(-1)
    counts = TARGET != -100
    wanted = log_p.gather(-1, TARGET.clamp(min=0)[..., None])[..., 0] * counts
    for cache_bytes, workspace_bytes in [(0, None), (40, 512), (108, 512), (1 << 20, None)]:
        granted = dict(cache_bytes=cache_bytes, workspace_bytes=workspace_bytes)
        found = T.linear_logprob(hidden, head, TARGET, bias, **granted)
        torch.testing.assert_close(found.logprob, wanted)
        assert found.entropy is None and not found.argmax.requires_grad
        assert torch.equal(found.argmax, log_p.argmax(-1).where(counts, -1))
        assert found.correct == (found.argmax == TARGET).sum()
        for a, b in zip(
            torch.autograd.grad(found.logprob, [hidden, head], g),
            torch.autograd.grad(wanted, [hidden, head], g, retain_graph=True),
        ):
            torch.testing.assert_close(a, b)
        both = T.linear_logprob(hidden, head, TARGET, bias, entropy=True, **granted)
        torch.testing.assert_close(both.entropy, -(log_p.exp() * log_p).sum(-1) * counts)
        (alone,) = torch.autograd.grad(both.entropy, head, g, retain_graph=True)
        entropy = -(log_p.exp() * log_p).sum(-1) * counts
        torch.testing.assert_close(alone, torch.autograd.grad(entropy, head, g, retain_graph=True)[0])
        assert torch.equal(both.logprob, found.logprob)
        # Twice, from one cache.
        (again,) = torch.autograd.grad(both.entropy, head, g)
        assert torch.equal(again, alone)


def test_logits_in_f32():
    hidden, head = torch.randn(2, 5, 64).bfloat16(), torch.randn(9, 64).bfloat16()
    exact = (hidden.float() @ head.float().t()).log_softmax(-1)
    counts, entropy = TARGET != -100, -(exact.exp() * exact).sum(-1)
    wanted = exact.gather(-1, TARGET.clamp(min=0)[..., None])[..., 0] * counts
    found = T.linear_logprob(hidden, head, TARGET, entropy=True, cache_bytes=1 << 20, logits_in_f32=True)
    torch.testing.assert_close(found.logprob, wanted, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(found.entropy, entropy * counts, rtol=1e-5, atol=1e-5)
    assert not torch.allclose(T.linear_logprob(hidden, head, TARGET).logprob, wanted, rtol=1e-5, atol=1e-5)
    hidden.requires_grad_(), head.requires_grad_()
    for run in (
        lambda wide: T.fused_linear_cross_entropy(hidden, head, TARGET, logits_in_f32=wide),
        lambda wide: T.fused_linear_cross_entropy_outputs(hidden, head, TARGET, logits_in_f32=wide).loss,
        lambda wide: -T.linear_logprob(hidden, head, TARGET, logits_in_f32=wide).logprob.sum() / counts.sum(),
    ):
        loss, rounded = run(True), run(False)
        torch.testing.assert_close(loss, -wanted.sum() / counts.sum(), rtol=1e-5, atol=1e-5)
        for a, b in zip(torch.autograd.grad(loss, [hidden, head]), torch.autograd.grad(rounded, [hidden, head])):
            assert a.dtype == torch.bfloat16
            torch.testing.assert_close(a, b, rtol=0.1, atol=0.05)
    g = torch.randn(2, 5)
    known, again = (T.linear_logprob(hidden, head, TARGET, logits_in_f32=True, cache_bytes=n).logprob for n in (200, 0))
    assert [t.dtype for t in known.grad_fn.saved_tensors if t is not None and t.shape[-1:] == (9,)] == [torch.float32]
    for a, b in zip(*(torch.autograd.grad(t, [hidden, head], g) for t in (known, again))):
        assert torch.equal(a, b)


@pytest.mark.parametrize("target", [TARGET, TARGET.flatten()], ids=["rows", "flat"])
def test_linear_logprob_of_a_frozen_head(target):
    hidden, head = torch.randn(2, 5, 4, requires_grad=True), torch.randn(9, 4)
    g, trained = torch.randn_like(target, dtype=torch.float32), head.clone().requires_grad_()
    (frozen,) = torch.autograd.grad(T.linear_logprob(hidden, head, target).logprob, hidden, g)
    (wanted, _) = torch.autograd.grad(T.linear_logprob(hidden, trained, target).logprob, [hidden, trained], g)
    torch.testing.assert_close(frozen, wanted)
    with torch.no_grad():
        assert not T.linear_logprob(hidden, head, target).logprob.requires_grad


def test_outputs_of_cross_entropy():
    logits = torch.randn(2, 5, 9)
    found = T.cross_entropy_outputs(logits, TARGET, lse_square_scale=0.5)
    counts, lse = TARGET != -100, logits.logsumexp(-1)
    p = logits.softmax(-1)
    torch.testing.assert_close(found.z_loss, 0.5 * lse.square() * counts)
    torch.testing.assert_close(found.entropy, -(p * p.log()).sum(-1) * counts)
    assert torch.equal(found.argmax, logits.argmax(-1).where(counts, -1))
    assert found.correct == (found.argmax == TARGET).sum()
    logits.requires_grad_()
    found = T.cross_entropy_outputs(logits, TARGET)
    assert found.loss.requires_grad and found.entropy.requires_grad and not found.z_loss.requires_grad
    (without,) = torch.autograd.grad(found.loss, logits, retain_graph=True)
    assert torch.equal(without, torch.autograd.grad(T.cross_entropy(logits, TARGET), logits)[0])
    (alone,) = torch.autograd.grad(found.entropy.sum(), logits)
    log_p = logits.log_softmax(-1)
    torch.testing.assert_close(alone, torch.autograd.grad(-(counts * (log_p.exp() * log_p).sum(-1)).sum(), logits)[0])


# ---- odd tensors ----


def test_no_rows():
    leaf, weight = torch.randn(0, 64, requires_grad=True), w.clone().requires_grad_()
    y = T.rms_norm(leaf, weight)
    y.sum().backward()
    assert y.shape == leaf.grad.shape == (0, 64)
    assert torch.equal(weight.grad, torch.zeros(64))


def test_expanded_rows_and_gradients():
    leaf = torch.randn(1, 64, requires_grad=True)
    T.rms_norm(leaf.expand(4, 64)).sum().backward()
    wanted = torch.zeros(1, 64)
    for _ in range(4):
        wanted += torch.autograd.grad(T.rms_norm(leaf), leaf, torch.ones(1, 64))[0]
    torch.testing.assert_close(leaf.grad, wanted)


def test_transposed_gradient():
    leaf, g = x.clone().requires_grad_(), torch.randn(64, 4)
    (found,) = torch.autograd.grad(T.rms_norm(leaf).t(), leaf, g)
    (wanted,) = torch.autograd.grad(T.rms_norm(leaf), leaf, g.t().contiguous())
    assert torch.equal(found, wanted)


def test_inputs_are_left_alone():
    for case in CASES:
        leaves, views = make_inputs(case, torch.float32, "padded")
        before = [leaf.detach().clone() for leaf in leaves]
        y = case.run(*[view(leaf) for view, leaf in zip(views, leaves)])
        (y[0] if isinstance(y, tuple) else y).sum().backward()
        assert all(torch.equal(a, b) for a, b in zip(leaves, before)), case.name


def test_i32_targets_and_ids():
    logits, table = torch.randn(2, 5, 9), torch.randn(9, 4)
    assert torch.equal(T.cross_entropy(logits, TARGET.int()), T.cross_entropy(logits, TARGET))
    assert torch.equal(T.embedding(IDS.int(), table), T.embedding(IDS, table))


def test_mask_expanded_over_heads():
    scores, mask = torch.randn(2, 3, 4, 4), torch.randn(2, 1, 4, 4)
    torch.testing.assert_close(T.softmax(scores, mask=mask.expand_as(scores)), (scores + mask).softmax(-1))


# ---- autocast ----


@pytest.mark.parametrize("compiled", [False, True])
def test_autocast(compiled):
    def step(h, v, target, residual):
        y = T.linear(h, v)
        y, summed = T.fused_add_rms_norm(y, residual, torch.ones(64))
        gate = T.swiglu(y, T.linear(y, v))
        return y, summed, gate, T.fused_linear_cross_entropy(gate, v, target), T.rms_norm(h.bfloat16(), torch.ones(64))

    if compiled:
        torch._dynamo.reset()
        step = torch.compile(step, fullgraph=True, backend="aot_eager")
    h, v = torch.randn(4, 64, requires_grad=True), torch.randn(64, 64, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        results = step(h, v, torch.zeros(4).long(), torch.randn(4, 64))
    kinds = [t.dtype for t in results]
    assert kinds == [torch.float32, torch.float32, torch.float32, torch.float32, torch.bfloat16]
    results[3].backward()
    assert h.grad.dtype == v.grad.dtype == torch.float32


def test_autocast_takes_a_narrower_weight():
    with torch.autocast("cpu", torch.bfloat16):
        assert T.rms_norm(x, w.bfloat16()).dtype == torch.float32
    with pytest.raises(TypeError):
        T.rms_norm(x, w.bfloat16())


# ---- threads ----


def step(seed):
    generator = torch.Generator().manual_seed(seed)
    h = torch.randn(4, 64, generator=generator).requires_grad_()
    weight = torch.randn(64, generator=generator).requires_grad_()
    loss = T.cross_entropy(T.rms_norm(h, weight), torch.arange(4))
    return loss.detach(), *torch.autograd.grad(loss, (h, weight))


def test_two_threads_at_once():
    seeds = range(50)
    wanted = [step(seed) for seed in seeds]
    start, found = threading.Barrier(2), {}

    def work(name):
        start.wait()
        found[name] = [step(seed) for seed in seeds]

    workers = [threading.Thread(target=work, args=(name,)) for name in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    for results in found.values():
        assert all(torch.equal(a, b) for r, s in zip(results, wanted) for a, b in zip(r, s))
    gc.collect()
    key = torch.device("cpu"), torch.get_num_threads()
    spare = len(_op._spare[key])
    assert spare >= 1
    worker = threading.Thread(target=step, args=(0,))
    worker.start()
    worker.join()
    gc.collect()
    assert len(_op._spare[key]) == spare  # taken and given back


def test_each_thread_prepares_its_own_calls():
    x, made = torch.randn(4, 64), []

    def work():
        T.relu_squared(x)
        made.append(len(_op._thread.calls))

    work()
    worker = threading.Thread(target=work)
    worker.start()
    worker.join()
    assert made[1] == 1


def test_number_of_threads_does_not_change_the_bits():
    threads = torch.get_num_threads()
    h = torch.randn(64, 4096, requires_grad=True)
    results = []
    try:
        for count in (1, 2):
            torch.set_num_threads(count)
            results.append(torch.autograd.grad(T.rms_norm(h, torch.ones(4096)).square().sum(), h)[0])
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(*results)


def test_calls_forgotten_are_made_anew(monkeypatch):
    monkeypatch.setattr(_op, "_CALLS", 4)
    for width in range(1, 20):
        row = torch.randn(2, width)
        torch.testing.assert_close(T.relu_squared(row), row.relu().square())
    assert len(_op._thread.calls) <= 4


def test_call_in_c_is_that_in_python():
    op = _op.OPS["layer_norm_fwd"]
    in_python = op.described
    w, b = torch.randn(64), torch.nn.Parameter(torch.randn(64))
    _op._thread.calls.clear()
    with torch.no_grad():
        strided = torch.randn(8, 64, dtype=torch.bfloat16)[::2], torch.randn(2, 3, 128)[..., :64]
        for x in (torch.randn(4, 64), *strided):
            for eps in (1e-5, 0):
                for _ in range(2):  # prepared, then found
                    found, wanted = op.direct(x, w, b, eps), in_python(x, w, b, eps)
                    assert all(map(torch.equal, found, wanted))
        assert sum(type(key) is bytes for key in _op._thread.calls) == 6
        strange = type("Float", (float,), {})(1e-5)  # which only Python knows
        assert torch.equal(op.direct(x, w, None, strange)[0], op.direct(x, w, None, 1e-5)[0])
        assert sum(type(key) is bytes for key in _op._thread.calls) == 7


# ---- torch's own machinery ----


@pytest.mark.parametrize("take", [torch.Tensor.contiguous, lambda g: g.t().contiguous().t()], ids=("plain", "strided"))
def test_autograd_keeps_no_reference(take):
    inputs = [t.clone().requires_grad_() for t in (x, x, w, w)]
    a, r, weight, bias = inputs
    labels = torch.randint(64, (4,))
    gradient = take(torch.randn(4, 64))

    def step():
        torch.autograd.grad(T.layer_norm(a, weight, bias), (a, weight, bias), gradient)
        torch.autograd.grad(T.fused_add_rms_norm(a, r, weight), (r, weight), (gradient, gradient))
        torch.autograd.grad(T.cross_entropy(a, labels), a)
        torch.autograd.grad(T.softmax(a), a, gradient)
        with pytest.raises(ValueError, match="must be 64"):
            T.layer_norm(a, weight[:5], bias)
        with torch.no_grad():
            T.layer_norm(a, weight, bias)

    def counts():
        gc.collect()
        return [sys.getrefcount(o) for o in (*inputs, labels, gradient, None, True, torch.float32)]

    step()
    before = counts()
    for _ in range(200):
        step()
    assert all(abs(now - then) < 100 for now, then in zip(counts(), before))


def test_saved_tensors_are_autograds():
    a, weight, bias = x.clone().requires_grad_(), w.clone().requires_grad_(), w.clone().requires_grad_()
    saved = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t):
        T.layer_norm(a, weight, bias).sum().backward()
    assert len(saved) == 2 and saved[0].data_ptr() == a.data_ptr() and saved[1].data_ptr() == weight.data_ptr()
    y = T.rms_norm(a, weight)
    y.sum().backward()
    with pytest.raises(RuntimeError, match="a second time"):
        y.sum().backward()
    inside = a * 1
    y = T.rms_norm(inside, weight)
    inside.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_gradients_that_nobody_needs():
    a, weight, bias = x.clone(), w.clone().requires_grad_(), w.clone()
    (only,) = torch.autograd.grad(T.layer_norm(a, weight, bias).sum(), weight)
    bias.requires_grad_()
    a.requires_grad_()
    all_of_them = torch.autograd.grad(T.layer_norm(a, weight, bias).sum(), (a, weight, bias))
    assert torch.equal(only, all_of_them[1]) and all(g is not None for g in all_of_them)


def test_modes_see_forward_and_backward():
    class Names(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            names.append(function.name())
            return function(*args, **(kwargs or {}))

    names, x = [], torch.randn(4, 64, requires_grad=True)
    with Names():
        T.softmax(x).sum().backward()
    assert "tigon::softmax_fwd" in names and "tigon::softmax_bwd" in names


def test_fake_tensors():
    with FakeTensorMode():
        y = T.rms_norm(torch.empty(4, 64, dtype=torch.bfloat16))
    assert y.shape == (4, 64) and y.dtype == torch.bfloat16
    assert T.rms_norm(torch.empty(4, 64, device="meta")).device.type == "meta"


def test_checkpoint():
    h = torch.randn(4, 64, requires_grad=True)
    f = lambda t: T.swiglu_packed(T.rms_norm(t)).sum()
    (wanted,) = torch.autograd.grad(f(h), h)
    for reentrant in (False, True):
        h.grad = None
        torch.utils.checkpoint.checkpoint(f, h, use_reentrant=reentrant).backward()
        assert torch.equal(h.grad, wanted)


def test_dynamic_shapes_compile_once():
    torch._dynamo.reset()
    counter = CompileCounterWithBackend("aot_eager")
    f = torch.compile(lambda t: T.rms_norm(t, w), fullgraph=True, dynamic=True, backend=counter)
    compiled = []
    for rows in (3, 4, 5):
        h = torch.randn(rows, 64)
        assert torch.equal(f(h), T.rms_norm(h, w))
        compiled.append(counter.frame_count)
    assert len(set(compiled)) == 1


@pytest.mark.skipif(not shutil.which("g++"), reason="inductor needs a C++ compiler")
def test_inductor():
    def f(h, weight, head):
        y = T.rms_norm(h * 2, weight) + 1
        return T.fused_linear_cross_entropy(T.swiglu_packed(y), head, torch.arange(4))

    torch._dynamo.reset()
    inputs = [t.requires_grad_() for t in (torch.randn(4, 64), torch.randn(64), torch.randn(9, 32))]
    loss, wanted = torch.compile(f, fullgraph=True)(*inputs), f(*inputs)
    torch.testing.assert_close(loss, wanted)
    for a, b in zip(torch.autograd.grad(loss, inputs), torch.autograd.grad(wanted, inputs)):
        torch.testing.assert_close(a, b)
