"""What a GPU adds: the numbers again, streams, graphs, devices, and faults that the device finds."""

import pytest
import torch
from divergence_formulas import KINDS, assert_near, of_logs
from op_cases import CASES, against_oracle

import tigon.torch
from tigon.torch import functional as T
from tigon.torch import optim

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])
@pytest.mark.parametrize("layout", ["contiguous", "padded", "pitched"])
def test_oracle(case, dtype, layout):
    against_oracle(case, dtype, layout, "cuda")


def work(h, weight, head, target):
    y = T.swiglu_packed(T.rms_norm(h, weight))
    return T.fused_linear_cross_entropy(y, head, target)


@pytest.fixture
def inputs():
    torch.manual_seed(0)
    tensors = [torch.randn(*shape, device="cuda").requires_grad_() for shape in ((64, 256), (256,), (99, 128))]
    return (*tensors, torch.arange(64, device="cuda"))


def step(inputs):
    loss = work(*inputs)
    return loss.detach(), *torch.autograd.grad(loss, inputs[:3])


def test_another_stream(inputs):
    """Long work before, on the same stream: an operator on any other one would read x too early."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        slow = torch.randn(4096, 4096, device="cuda")
        for _ in range(20):
            slow = slow @ slow / 64
        x = torch.zeros(64, 256, device="cuda")
        x.add_(inputs[0].detach() + 0 * slow[0, 0].nan_to_num())
        found = T.rms_norm(x)
    stream.synchronize()
    assert torch.equal(found, T.rms_norm(inputs[0].detach()))


def test_graph(inputs):
    wanted = step(inputs)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        step(inputs)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = step(inputs)
    with torch.no_grad():
        kept = inputs[0].clone()
        inputs[0].zero_()
        graph.replay()
        assert not torch.equal(found[0], wanted[0])
        inputs[0].copy_(kept)
    for _ in range(2):
        graph.replay()
        torch.cuda.synchronize()
        assert all(torch.equal(a, b) for a, b in zip(found, wanted))


def test_graph_of_a_mixture():
    """A replay reads the routing anew: none of it has come to the host. An expert without tokens gets them all at last."""
    torch.manual_seed(0)
    tokens, experts, hidden, inner, choices = 200, 6, 128, 96, 2
    kind = dict(device="cuda", dtype=torch.bfloat16)
    x, dy = (torch.randn(tokens, hidden, **kind) for _ in range(2))
    gate_up, down = torch.randn(experts, 2 * inner, hidden, **kind) / 8, torch.randn(experts, hidden, inner, **kind) / 8
    w = torch.rand(tokens, choices, device="cuda")
    idx = torch.randint(experts - 1, (tokens, choices), device="cuda")
    wanted = [t.requires_grad_() for t in (x, w, gate_up, down)]

    def work():
        y = T.fused_moe(x, idx, w, gate_up, down)
        return y.detach(), *torch.autograd.grad(y, wanted, dy)

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        work()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = work()
    for routing in (idx.clone(), torch.randint_like(idx, -1, experts + 1), torch.full_like(idx, experts - 1)):
        idx.copy_(routing)
        graph.replay()
        torch.cuda.synchronize()
        assert all(torch.equal(a, b) for a, b in zip(found, work()))


def test_compiled(inputs):
    torch._dynamo.reset()
    loss = torch.compile(work, fullgraph=True)(*inputs)
    torch.testing.assert_close(loss, work(*inputs))
    for a, b in zip(torch.autograd.grad(loss, inputs[:3]), step(inputs)[1:]):
        torch.testing.assert_close(a, b)


def test_autocast(inputs):
    h, weight, head, target = inputs
    with torch.autocast("cuda", torch.bfloat16):
        y = T.rms_norm(T.linear(h, torch.randn(256, 256, device="cuda")), weight)
        assert y.dtype == torch.bfloat16
        T.fused_linear_cross_entropy(T.swiglu_packed(y), head, target).backward()
    assert h.grad.dtype == head.grad.dtype == weight.grad.dtype == torch.float32


def test_tensors_on_two_devices(inputs):
    with pytest.raises(ValueError, match=r"^rms_norm_fwd: w\.device is cpu, must be cuda:0 \(x\.device\)$"):
        T.rms_norm(inputs[0], torch.ones(256))


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="one GPU")
def test_second_device(inputs):
    """On the tensors' device, whichever is current."""
    wanted = step(inputs)
    moved = [t.detach().to("cuda:1").requires_grad_(t.requires_grad) for t in inputs]
    assert torch.cuda.current_device() == 0
    for a, b in zip(step(moved), wanted):
        assert a.device == torch.device("cuda:1")
        assert torch.equal(a.cpu(), b.cpu())


def test_fault_found_by_the_device():
    tigon.torch.synchronize("cuda")
    T.cross_entropy(torch.randn(4, 9, device="cuda"), torch.tensor([0, 9, 1, 2], device="cuda"))
    with pytest.raises(ValueError):
        tigon.torch.synchronize("cuda")
    tigon.torch.synchronize("cuda")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=["f32", "bf16", "f16"])
@pytest.mark.parametrize("dim", [64, 128, 200])
@pytest.mark.parametrize("dilation", [1, 3])
def test_attention_of_segments(dtype, dim, dilation):
    ends = [0, 1, 1, 131, 700, 990]  # the last 10 rows are in none
    made = [torch.randn(1, 1000, n, dim, device="cuda", dtype=dtype).transpose(1, 2) for n in (4, 2, 2, 4)]
    options = dict(window=100, softcap=5.0, sinks=torch.randn(4, device="cuda"), dilation=dilation)

    def run(rows, **more):
        q, k, v, do = (t[:, :, rows].detach().requires_grad_() for t in made)
        o = T.attention(q, k, v, **options, **more)
        return [o, *torch.autograd.grad(o, (q, k, v), do)]

    found = run(slice(0, 1000), cu_seqlens_q=torch.tensor(ends, device="cuda", dtype=torch.int32))
    for begin, end in zip(ends, ends[1:]):
        for whole, alone in zip(found, run(slice(begin, end))):
            assert torch.equal(whole[:, :, begin:end], alone)
    assert not any(t[:, :, 990:].any() for t in found)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])
@pytest.mark.parametrize("cu", [[0, 90, 40, 100], [-(2**40), 2**40, 7], [2**31, -5, 300, -1, 64], [100], [99, 98, 97]])
def test_attention_of_any_segments(dtype, cu):
    """Numbers that only the device sees: the call stays within its tensors."""
    q = torch.randn(1, 2, 100, 64, device="cuda", dtype=dtype, requires_grad=True)
    T.attention(q, q, q, cu_seqlens_q=torch.tensor(cu, device="cuda")).sum().backward()
    T.attention(q, q, q, cu_seqlens_q=torch.tensor(cu, device="cuda"), dilation=3, causal=False).sum().backward()
    torch.cuda.synchronize()
    assert torch.isfinite(T.attention(q, q, q)).all()


def attend_exactly(q, k, v, causal, window):
    """o in f64, head by head."""
    group, tokens, keys = q.shape[1] // k.shape[1], q.shape[2], k.shape[2]
    last = torch.arange(tokens, device="cuda")[:, None] + keys - tokens
    key, unseen = torch.arange(keys, device="cuda"), torch.zeros(tokens, keys, dtype=torch.bool, device="cuda")
    if causal:
        unseen |= key > last
    if window:
        unseen |= key <= last - window
    o = torch.empty(q.shape, dtype=torch.float64, device="cuda")
    for b in range(q.shape[0]):
        for h in range(q.shape[1]):
            z = q[b, h].double() @ k[b, h // group].double().T / q.shape[3] ** 0.5
            o[b, h] = torch.softmax(z.masked_fill(unseen, -torch.inf), 1).nan_to_num(0) @ v[b, h // group].double()
    return o


@pytest.mark.parametrize("dtype, bound", [(torch.bfloat16, 2**-7), (torch.float16, 2**-10)], ids=["bf16", "f16"])
@pytest.mark.parametrize(
    "tokens, keys, heads, dim, causal, window",
    [
        (1000, 1000, (12, 12), 64, True, 0),
        (2100, 2100, (8, 2), 64, True, 0),
        (2100, 2000, (8, 8), 48, True, 0),  # the first 100 queries see no key
        (700, 900, (24, 8), 128, True, 0),
        (900, 300, (24, 24), 112, True, 0),
        (1500, 1500, (12, 4), 128, True, 200),
        (1300, 700, (16, 16), 128, False, 0),
        (2200, 130, (8, 8), 64, False, 0),
    ],
)
def test_attention_of_many_tiles(dtype, bound, tokens, keys, heads, dim, causal, window):
    """A block has several tiles, and goes from one to the next while its products run."""
    torch.manual_seed(0)
    make = lambda n, h: torch.randn(2, n, h, dim, device="cuda", dtype=dtype).transpose(1, 2)
    q, k, v = make(tokens, heads[0]), make(keys, heads[1]), make(keys, heads[1])
    q[:, ::3] *= 20  # scores that grow from step to step
    run = lambda q, k, v: T.attention(q, k, v, causal=causal, window=window or None)
    found, wanted = run(q, k, v), attend_exactly(q, k, v, causal, window)
    for row, exact in zip(found.double().flatten(0, 1), wanted.flatten(0, 1)):
        assert (row - exact).norm() < bound * exact.norm()
    assert not found[wanted.abs().sum(-1) == 0].any()
    for i in range(2):
        assert torch.equal(run(*(t[i : i + 1].contiguous() for t in (q, k, v)))[0], found[i])
    if causal:
        v[:, :, -1] = torch.inf  # which the last query sees alone
        again = run(q, k, v)
        assert (again - found)[:, :, :-1].abs().max() < 0.1
        assert not torch.isfinite(again[:, :, -1]).any()


def differentiate_exactly(q, k, v, do, causal):
    """dq, dk and dv in f64, head by head."""
    group, tokens, keys = q.shape[1] // k.shape[1], q.shape[2], k.shape[2]
    unseen = torch.ones(tokens, keys, dtype=torch.bool, device="cuda").triu(keys - tokens + 1) if causal else None
    found = [torch.zeros(t.shape, dtype=torch.float64, device="cuda") for t in (q, k, v)]
    for b in range(q.shape[0]):
        for h in range(q.shape[1]):
            qh, kh, vh, doh = (t[b, i].double() for t, i in ((q, h), (k, h // group), (v, h // group), (do, h)))
            z = qh @ kh.T / q.shape[3] ** 0.5
            p = torch.softmax(z if unseen is None else z.masked_fill(unseen, -torch.inf), 1).nan_to_num(0)
            dp = doh @ vh.T
            dz = p * (dp - (p * dp).sum(1, keepdim=True)) / q.shape[3] ** 0.5
            for to, i, d in ((found[0], h, dz @ kh), (found[1], h // group, dz.T @ qh), (found[2], h // group, p.T @ doh)):
                to[b, i] += d
    return found


@pytest.mark.parametrize("dtype, bound", [(torch.bfloat16, 2**-7), (torch.float16, 2**-10)], ids=["bf16", "f16"])
@pytest.mark.parametrize(
    "tokens, keys, heads, dim, causal",
    [
        (3100, 3100, (12, 6), 128, True),
        (3100, 2900, (6, 6), 80, True),  # the first 200 queries see no key
        (3100, 3300, (14, 7), 64, True),
        (2050, 2100, (4, 4), 128, False),
        (2050, 2100, (8, 4), 40, False),
    ],
)
def test_attention_of_many_tokens(dtype, bound, tokens, keys, heads, dim, causal):
    """dq that tiles of keys add up in their turn: near to f64, always of the same bits, alone and in a batch."""
    make = lambda n, h: torch.randn(2, n, h, dim, device="cuda", dtype=dtype).transpose(1, 2)
    q, k, v, do = make(tokens, heads[0]), make(keys, heads[1]), make(keys, heads[1]), make(tokens, heads[0])

    def run(q, k, v, do):
        q, k, v = (t.detach().requires_grad_() for t in (q, k, v))
        return torch.autograd.grad(T.attention(q, k, v, causal=causal), (q, k, v), do)

    found = run(q, k, v, do)
    for a, wanted in zip(found, differentiate_exactly(q, k, v, do, causal)):
        assert (a.double() - wanted).norm() < bound * wanted.norm()
    for _ in range(5):
        assert all(torch.equal(a, b) for a, b in zip(run(q, k, v, do), found))
    for i in range(2):
        alone = run(*(t[i : i + 1].contiguous() for t in (q, k, v, do)))
        assert all(torch.equal(a[0], b[i]) for a, b in zip(alone, found))
    if causal:
        v[:, :, -1] = torch.inf  # which the last query sees alone
        dq = run(q, k, v, do)[0][:, :, :-1]
        assert (dq - found[0][:, :, :-1]).double().norm() < 2 * bound * found[0].double().norm()


def test_adamw():
    mine = [torch.randn(33, 7, device="cuda").requires_grad_() for _ in range(3)]
    torchs = [p.detach().clone().requires_grad_() for p in mine]
    ours, other = optim.AdamW(mine, max_norm=1.0), torch.optim.AdamW(torchs)
    for _ in range(5):
        for p, q in zip(mine, torchs):
            p.grad = torch.randn_like(p)
            q.grad = p.grad.clone()
        torch.nn.utils.clip_grad_norm_(torchs, 1.0)
        ours.step(), other.step()
    for p, q in zip(mine, torchs):
        torch.testing.assert_close(p, q, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])
@pytest.mark.parametrize("rows, columns", [(600, 8200), (300, 24584), (100, 128256)])
def test_divergence_of_long_rows(kind, dtype, rows, columns):
    """More rows than a GPU works on at a time; some of their parts have no class, and some rows do not count."""
    torch.manual_seed(0)
    x, target = (3 * torch.randn(rows, columns, device="cuda").to(dtype) for _ in range(2))
    x[5, : columns // 2] = target[5, : columns // 2] = -torch.inf
    x[6] -= 300
    labels = torch.arange(rows, device="cuda")
    labels[::7] = -100
    x.requires_grad_()
    forward = T.divergence(x.detach(), target, kind, labels, temperature=1.5, beta=0.25)
    loss = T.divergence(x, target, kind, labels, temperature=1.5, beta=0.25)
    loss.backward()
    wide = x.detach().double().requires_grad_()
    lq, lp = ((side / 1.5).log_softmax(-1) for side in (wide, target.double()))
    counted = labels != -100
    # -Inf - -Inf has no gradient; such a class adds nothing to it.
    lq, lp = (torch.where(side == -torch.inf, -1e4, side) for side in (lq, lp))
    wanted = of_logs(kind, lp, lq, 0.25)[counted].mean()
    wanted.backward()
    assert_near(loss, wanted, torch.float32, wanted.item())
    assert_near(forward, wanted, torch.float32, wanted.item())
    if kind == "tvd":  # whose sign is rounding where p is q; it moves the row's other gradients by twice that probability
        same, q = (lq - lp).abs() < 1e-4, lq.exp()
        moves = q * (q * same).sum(-1, keepdim=True) / (1.5 * counted.sum())
        known = same | ((x.grad - wide.grad).abs() <= moves)
        x.grad[known] = wide.grad[known].to(dtype)
    assert_near(x.grad, wide.grad, dtype, wide.grad.abs().max().item())
    assert not x.grad[~counted].any()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("columns", [8200, 128256])
def test_divergence_of_long_rows_without_probabilities(kind, columns):
    """A NaN, an Inf or nothing but -Inf on either side: a row has a NaN where it has one on the CPU."""
    torch.manual_seed(0)
    x, target = (3 * torch.randn(9, columns) for _ in range(2))
    for row, value in enumerate((torch.nan, torch.inf)):
        x[row, 7], target[2 + row, columns - 1] = value, value
    x[4], target[5], x[6, 5], target[7, 5] = -torch.inf, -torch.inf, -torch.inf, -torch.inf
    found = []
    for device in ("cpu", "cuda"):
        leaf = x.to(device, copy=True).requires_grad_()
        loss = T.divergence(leaf, target.to(device), kind, beta=0.25, reduction="none")
        loss.sum().backward()
        found.append((loss.detach().cpu(), leaf.grad.cpu()))
    for cpu, gpu in zip(*found, strict=True):
        spoilt = cpu.isnan().view(9, -1).any(-1)
        assert torch.equal(spoilt, gpu.isnan().view(9, -1).any(-1))
        torch.testing.assert_close(gpu[~spoilt], cpu[~spoilt], rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("level", ["token", "sequence"])
@pytest.mark.parametrize("sequences", [1, 7, 37, 70])
def test_policy_loss_of_long_sequences(level, sequences):
    """Of as many warps each as there are for it: the numbers of the CPU, whose order of sums is another."""
    generator = torch.Generator().manual_seed(sequences)
    lengths = torch.randint(800, 2400, (sequences,), generator=generator)
    segments = torch.cat([torch.zeros(1, dtype=torch.long), lengths.cumsum(0)])
    tokens = int(segments[-1])
    logprob, old, entropy = (-torch.rand(tokens, generator=generator) for _ in range(3))
    mask = torch.rand(tokens, generator=generator) < 0.8
    advantage = torch.randn(sequences, generator=generator)

    def run(device):
        on = [x.to(device) for x in (logprob, advantage, segments, old, entropy, mask)]
        x = on[0].requires_grad_()
        more = dict(old=on[3], entropy=on[4], mask=on[5], kind="grpo", entropy_weight=0.1)
        loss = T.policy_loss(x, *on[1:3], **more, level=level)
        loss.backward()
        return loss.detach().cpu(), x.grad.cpu()

    for ours, theirs in zip(run("cuda"), run("cpu")):
        torch.testing.assert_close(ours, theirs, rtol=2e-5, atol=2e-5 * theirs.abs().max().item())
