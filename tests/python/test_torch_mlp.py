"""mlp: what it keeps and holds, its tiles, frozen weights, refusals, and tigon.patch(model, mlp="tiled")."""

import pytest
import torch
from test_memory import run
from tiny_models import batch, model
from torch import nn

import tigon
import tigon.torch
from tigon.torch import functional as T
from tigon.torch.nn import MLP

MIB = 1 << 20
ROWS, HIDDEN, INNER = 4096, 256, 1024


def made(*shapes, dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(shape, generator=generator).mul_(shape[-1] ** -0.5).to(dtype).requires_grad_() for shape in shapes]


@pytest.mark.skipif(not tigon.torch.memory_stats()["enabled"], reason="the pool is off here")
def test_memory():
    """Peak memory is the output, the gradients and the workspace: the inner tensors of all rows would be 16 MiB each. In a
    process of its own, as the peak is a process's."""
    run("""
        import gc
        from test_torch_mlp import HIDDEN, INNER, MIB, ROWS, made
        leaves = made((ROWS, HIDDEN), (INNER, HIDDEN), (INNER, HIDDEN), (HIDDEN, INNER))
        before = tigon.torch.memory_stats()["in_use"]
        y = T.mlp(*leaves, workspace_bytes=2 * MIB)
        gc.collect()
        assert tigon.torch.memory_stats()["in_use"] - before == y.nbytes  # x is kept, and nothing else
        y.backward(torch.ones_like(y))
        after = tigon.torch.memory_stats()
        gradients = sum(leaf.grad.nbytes for leaf in leaves)
        assert after["in_use"] - before == y.nbytes + gradients
        assert after["peak_in_use"] - before <= y.nbytes + gradients + 2 * MIB + MIB
    """)


def gradients(*leaves, **options):
    y = T.mlp(*leaves, **options)
    return y, *torch.autograd.grad(y, leaves, torch.ones_like(y))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])
def test_tiles_and_cache(dtype):
    """Neither a workspace nor a cache changes more of a weight's gradient than the order of its sum."""
    leaves = made((75, 24), (40, 24), (40, 24), (24, 40), dtype=dtype)
    wanted = gradients(*leaves)
    row = 2 * 40 * leaves[0].element_size()
    for options in (dict(workspace_bytes=20000), dict(cache_bytes=7 * row), dict(cache_bytes=MIB, workspace_bytes=20000)):
        found = gradients(*leaves, **options)
        for ours, theirs in zip(found, wanted):
            rtol = 1e-5 if dtype == torch.float32 else 2**-7
            torch.testing.assert_close(ours, theirs, rtol=rtol, atol=1e-5 * theirs.abs().max().item())


@pytest.mark.parametrize("trained", range(4))
def test_one_trained_input(trained):
    leaves = made((9, 6), (5, 6), (5, 6), (6, 5))
    wanted = gradients(*leaves)[1 + trained]
    given = [leaf if i == trained else leaf.detach() for i, leaf in enumerate(leaves)]
    y = T.mlp(*given)
    (found,) = torch.autograd.grad(y, leaves[trained], torch.ones_like(y))
    assert torch.equal(found, wanted)


def test_autocast():
    x, gate, up, down = made((9, 16), (32, 16), (32, 16), (16, 32))
    with torch.autocast("cpu", torch.bfloat16):
        y = T.mlp(x, gate, up, down)
    assert y.dtype == torch.bfloat16
    y.sum().backward()
    assert gate.grad.dtype == torch.float32


def test_rows():
    """No row, one row, an inner width of 1; rows that lie apart."""
    x, gate, up, down = made((6, 5), (1, 5), (1, 5), (5, 1))
    wanted = torch.nn.functional.silu(x @ gate.t()) * (x @ up.t()) @ down.t()
    torch.testing.assert_close(T.mlp(x, gate, up, down), wanted)
    torch.testing.assert_close(T.mlp(x[::2], gate, up, down), wanted[::2])
    torch.testing.assert_close(T.mlp(x[:1], gate, up, down), wanted[:1])
    y = T.mlp(x[:0], gate, up, down)
    assert y.shape == (0, 5) and torch.autograd.grad(y.sum(), gate)[0].abs().sum() == 0


REFUSED = [
    (dict(activation="relu"), "tigon: activation is 'relu', must be 'silu' or 'gelu_tanh' or 'gelu'"),
    (dict(activation="gelu", limit=2.0), "mlp_fwd: clamp is 2, must be 0 with act 2"),
    (dict(workspace_bytes=64), "mlp_fwd: workspace_bytes is 64, must be 168 or more"),
]


@pytest.mark.parametrize("options, sentence", REFUSED, ids=range(len(REFUSED)))
def test_refusals(options, sentence):
    with pytest.raises(ValueError) as refusal:
        T.mlp(*made((9, 6), (5, 6), (5, 6), (6, 5)), **options)
    assert str(refusal.value) == sentence


@pytest.mark.parametrize("packed", [False, True])
def test_module(packed):
    module = MLP(6, 10, bias=True, packed=packed, activation="gelu_tanh")
    x = torch.randn(2, 3, 6)
    gate_up = module.gate_up_proj(x) if packed else torch.cat([module.gate_proj(x), module.up_proj(x)], -1)
    gate, up = gate_up.chunk(2, -1)
    wanted = module.down_proj(nn.functional.gelu(gate, approximate="tanh") * up)
    torch.testing.assert_close(module(x), wanted)
    assert "activation='gelu_tanh'" in repr(module)


# --- tigon.patch -----------------------------------------------------------------------------------------------------


def step(learner):
    ids, labels = batch()
    learner.zero_grad()
    learner(input_ids=ids, labels=labels, use_cache=False).loss.backward()
    return {name: p.grad.clone() for name, p in learner.named_parameters()}


@pytest.mark.parametrize("family", ["Llama", "Gemma3", "Phi3"])
def test_patch(family):
    learner = model(family)
    stock = step(learner)
    report = tigon.patch(learner, mlp="tiled")
    texts = [entry.text for entry in report.replaced if entry.kind == "mlp"]
    inner = learner.config.intermediate_size
    size = 3 * inner * 4
    told = f"tiled: for backward {size} bytes a token less than untiled, {size * 65536 / 2**30:.3g} GiB at 65536 tokens"
    assert texts and all(text.endswith(told) for text in texts)
    for name, gradient in step(learner).items():
        assert (gradient - stock[name]).norm() <= 1e-5 * stock[name].norm(), name
    assert report.counts() == tigon.patch(learner).counts()
    assert not any("tiled" in entry.text for entry in tigon.patch(learner).replaced)


def test_patch_leaves_projections_of_their_own_way():
    """A projection with a hook, or of another class, is called."""
    learner = model("Llama")
    mlp = learner.model.layers[0].mlp
    mlp.up_proj.register_forward_hook(lambda *_: None)
    report = tigon.patch(learner, mlp="tiled")
    first, second = (entry.text for entry in report.replaced if entry.kind == "mlp")
    assert first.endswith("; not tiled: its up_proj has hooks") and ", tiled: " in second
    called = []
    learner.model.layers[1].mlp.gate_proj.register_forward_hook(lambda *_: called.append(True))
    step(learner)
    assert called  # a hook that came after the patch


def test_patched_mlp_compiles():
    """torch.compile finds one graph, and the same bits come out."""
    learner = model("Llama")
    tigon.patch(learner, mlp="tiled")
    mlp, x = learner.model.layers[0].mlp, torch.randn(2, 5, 64, requires_grad=True)
    torch._dynamo.reset()
    for run in (mlp, torch.compile(mlp, fullgraph=True, backend="aot_eager")):
        y = run(x)
        found = y, *torch.autograd.grad(y.sum(), (x, mlp.gate_proj.weight))
        wanted = found if run is mlp else wanted
        assert all(map(torch.equal, found, wanted))


def test_patch_refuses_another_word():
    with pytest.raises(ValueError, match="patch: mlp is 'tiles', must be True, False or 'tiled'"):
        tigon.patch(model("Llama"), mlp="tiles")
