"""Tensors that lie in memory as no C entry takes them: copied, where torch's own operators work on them."""

import pytest
import torch
from op_cases import CASES, TARGET, make_inputs, outputs
from torch.utils._python_dispatch import TorchDispatchMode

from tigon.torch import _op
from tigon.torch import functional as T


def backwards(t):
    """With the strides in reverse: the last one is the largest."""
    order = list(range(t.ndim))[::-1]
    return t.permute(order).contiguous().permute(order)


def stepped(t):
    return t.repeat_interleave(2, -1)[..., ::2]


def negated(t):
    """The negative bit over the negative: contiguous, and each element of the memory has the wrong sign."""
    return torch._neg_view(-t)


def one_number(t):
    """A gradient as sum() hands it out: every stride is 0."""
    return t.mean().expand(t.shape)


LAYOUTS = {f.__name__: f for f in (backwards, stepped, negated)}
by_layout = pytest.mark.parametrize("lay", LAYOUTS.values(), ids=LAYOUTS)
by_name = pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])


def run(f, inputs, incoming=None):
    """Outputs and gradients; `incoming` makes those of the outputs from random ones."""
    made = outputs(f, inputs, [lambda t: t] * len(inputs))
    generator = torch.Generator().manual_seed(1)
    gradients = [torch.randn(y.shape, generator=generator).to(y) for y in made]
    gradients = [incoming(g) for g in gradients] if incoming else gradients
    return [y.detach() for y in made] + list(torch.autograd.grad(made, inputs, gradients))


def laid_out(case, lay):
    leaves, _ = make_inputs(case, torch.float32)
    found = [lay(leaf.detach()).requires_grad_() for leaf in leaves]
    assert all(torch.equal(a, b) for a, b in zip(found, leaves))
    return leaves, found


def equal(found, wanted):
    assert all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))


@by_name
@by_layout
def test_inputs(case, lay):
    """The bits are those of contiguous inputs, at the first call of a layout and at the next one."""
    leaves, inputs = laid_out(case, lay)
    wanted = run(case.run, leaves)
    for _ in range(2):
        equal(run(case.run, inputs), wanted)
    with torch.no_grad():
        equal(outputs(case.run, inputs, [lambda t: t] * len(inputs)), wanted[: len(wanted) - len(inputs)])


@by_name
@pytest.mark.parametrize("lay", [backwards, negated, one_number])
def test_incoming_gradients(case, lay):
    leaves, _ = make_inputs(case, torch.float32)
    wanted = run(case.run, leaves, lambda g: lay(g).resolve_neg().contiguous())
    equal(run(case.run, leaves, lay), wanted)


class Nothing(TorchDispatchMode):
    """Leads all calls through torch's dispatcher."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        return function(*args, **(kwargs or {}))


@by_name
@by_layout
def test_through_the_dispatcher(case, lay):
    leaves, inputs = laid_out(case, lay)
    wanted = run(case.run, leaves)
    with Nothing():
        equal(run(case.run, inputs), wanted)


@by_name
def test_compiled(case):
    leaves, inputs = laid_out(case, backwards)
    wanted = run(case.run, leaves)
    torch._dynamo.reset()
    equal(run(torch.compile(case.run, fullgraph=True, backend="aot_eager"), inputs), wanted)


def test_outputs_lie_as_the_compiler_was_told():
    x = backwards(torch.randn(3, 4, 5))
    op = torch.ops.tigon.relu_squared_fwd.default
    told = torch.empty_like(x)
    assert op(x).stride() == told.stride() and torch.equal(op(x), x.relu().square())
    torch.library.opcheck(op, (x,))
    torch.library.opcheck(torch.ops.tigon.rms_norm_fwd.default, (x, None, None, 1e-6, 0.0, 0))


LEADING = {
    "rms_norm": T.rms_norm,
    "layer_norm": T.layer_norm,
    "softmax": T.softmax,
    "relu_squared": T.relu_squared,
    "swiglu": lambda x: T.swiglu(x, x),
    "swiglu_packed": T.swiglu_packed,
    "fused_add_rms_norm": lambda x: T.fused_add_rms_norm(x, x)[0],
    "modulated_rms_norm": lambda x: T.modulated_rms_norm(x, torch.ones(8)),
    "linear": lambda x: T.linear(x, torch.eye(8)[:3].to(x)),
    "cross_entropy": lambda x: T.cross_entropy(x, torch.zeros(x.shape[:-1]).long()),
    "fused_linear_cross_entropy": lambda x: T.fused_linear_cross_entropy(
        x, torch.eye(8).to(x), torch.zeros(x.shape[:-1]).long()
    ),
    "group_norm": lambda x: T.group_norm(x, 1),
}


@pytest.mark.parametrize("name", LEADING)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])
def test_four_leading_strides(name, dtype):
    f, x = LEADING[name], torch.randn(2, 3, 4, 5, 8).to(dtype).permute(3, 1, 0, 2, 4)
    turned, flat = x.requires_grad_(), x.detach().contiguous().requires_grad_()
    equal(run(f, [turned]), run(f, [flat]))


def test_what_torch_takes():
    x, weight = torch.randn(4, 64), torch.randn(64, 4)
    torch.testing.assert_close(T.softmax(x.t()), x.t().softmax(-1))
    torch.testing.assert_close(T.rms_norm(x.t()), torch.nn.functional.rms_norm(x.t(), (4,), eps=1e-6))
    torch.testing.assert_close(T.linear(x, weight.t()), x @ weight)
    torch.testing.assert_close(T.linear(torch.randn(4, 3, 64)[:, :2], weight.t()).shape, torch.Size((4, 2, 4)))
    torch.testing.assert_close(T.softmax(x[:, ::2]), x[:, ::2].softmax(-1))
    expanded = x[:1, :1].expand(4, 64)
    torch.testing.assert_close(T.softmax(expanded), torch.full((4, 64), 1 / 64))
    assert torch.equal(T.embedding(torch.arange(4), x.t()), x.t()[:4])


def test_the_imaginary_part_of_a_conjugate():
    im = torch.randn(6, 1, dtype=torch.complex64).conj().imag
    assert im.is_neg()
    equal([T.relu_squared(im)], [im.relu().square()])
    z = torch.randn(4, 8, dtype=torch.complex64)
    equal([T.relu_squared(z.conj().imag)], [z.conj().imag.relu().square()])
    with pytest.raises(TypeError, match="^relu_squared_fwd: x.dtype is complex64, must be f32, f16, bf16$"):
        T.relu_squared(z.conj())


def test_halves_of_a_packed_tensor_with_a_stride():
    """One column each: the last stride of a half is that of an extent of 1, and the other half begins a stride away."""
    ab = torch.randn(4, 4)
    for packed in (ab[:, ::2], ab[:, ::3], ab[:1, ::2]):
        equal([T.swiglu_packed(packed)], [T.swiglu_packed(packed.contiguous())])


def test_copies_are_made_of_nothing_else():
    """A layout that the entry takes is read where it lies; one that it refuses is known the next time."""
    op, x = _op.OPS["relu_squared_fwd"], torch.randn(8, 64)
    counted = []
    copies = _op.Op._over_copies
    _op.Op._over_copies = lambda self, *args: counted.append(self.name) or copies(self, *args)
    try:
        for t in (x, x[::2], x[:, 1:9], x.view(2, 4, 64).transpose(0, 1), x[:1].expand(8, 64)):
            T.relu_squared(t)
        assert counted == []
        for _ in range(3):
            T.relu_squared(x[:, ::2])
        assert counted == ["relu_squared_fwd"] * 3
    finally:
        _op.Op._over_copies = copies
    assert op.name == "relu_squared_fwd"


def test_strided_labels_and_indices():
    logits, hidden, table = torch.randn(5, 2, 9), torch.randn(5, 2, 7), torch.randn(9, 4)
    target, weight = TARGET.t(), torch.randn(9, 7)
    equal([T.cross_entropy(logits, target)], [T.cross_entropy(logits, target.contiguous())])
    wanted = T.fused_linear_cross_entropy(hidden, weight, target.contiguous())
    equal([T.fused_linear_cross_entropy(hidden, weight, target)], [wanted])
    ids = target.clamp(min=0)
    equal([T.embedding(ids, table)], [table[ids]])
    scale = torch.rand(2, 5).t()
    found = T.cross_entropy(logits, target, token_scale=scale)
    equal([found], [T.cross_entropy(logits, target.contiguous(), token_scale=scale.contiguous())])


def test_refusals_of_what_no_copy_mends():
    x = torch.randn(4, 64)
    with pytest.raises(ValueError, match=r"^swiglu_fwd: b.shape\[0\] is 3, must be 4 \(a.shape\[0\]\)$"):
        T.swiglu(x.t()[:4], x.t()[:3])
    with pytest.raises(ValueError, match=r"^rms_norm_fwd: w.shape\[0\] is 5, must be 4 \(x.shape\[1\]\)$"):
        T.rms_norm(x.t(), torch.ones(5))
