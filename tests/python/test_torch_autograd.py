"""Derivatives of derivatives, tensors that are given twice, transforms: what autograd asks beside a gradient."""

import itertools

import pytest
import torch
from op_cases import CASES, make_inputs, outputs

from tigon.torch import functional as T

by_name = pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
SENTENCE = r"^tigon: \w+ has no second derivative; its backward cannot be differentiated$"
as_it_is = lambda t: t


def refused(f):
    """f()'s result, or None where Tigon says that there is no second derivative."""
    try:
        return f()
    except RuntimeError as error:
        assert "has no second derivative; its backward cannot be differentiated" in str(error)
        return None


def second(f, leaves, power, by):
    """The derivative of a penalty on all gradients, by one leaf. With power 1 the incoming gradient is constant."""
    made = outputs(f, leaves, [as_it_is] * len(leaves))
    loss = sum((torch.cos(torch.arange(y.numel()).to(y)).view_as(y) * y**power).sum() for y in made)
    gradients = torch.autograd.grad(loss, leaves, create_graph=True)
    penalty = sum(g.square().sum() for g in gradients)
    if not penalty.requires_grad:
        return torch.zeros_like(leaves[by])
    found = torch.autograd.grad(penalty, leaves[by], allow_unused=True)[0]
    return torch.zeros_like(leaves[by]) if found is None else found


@by_name
@pytest.mark.parametrize("power", [1, 2])
def test_second_derivative_is_refused_or_right(case, power):
    leaves, _ = make_inputs(case, torch.float32)
    exact = [leaf.detach().double().requires_grad_() for leaf in leaves]
    for by in range(len(leaves)):
        found = refused(lambda: second(case.run, leaves, power, by))
        if found is not None:
            wanted = second(case.oracle, exact, power, by)
            torch.testing.assert_close(found.double(), wanted, rtol=1e-4, atol=1e-4)


@by_name
def test_hessian_is_refused_or_right(case):
    leaves, _ = make_inputs(case, torch.float32)
    if sum(leaf.numel() for leaf in leaves) > 600:
        pytest.skip("a Hessian of many rows says the same")

    def loss(f, others, by):
        def of(z):
            made = outputs(f, [*others[:by], z, *others[by + 1 :]], [as_it_is] * len(others))
            return sum(y.square().sum() for y in made)

        return of

    values, exact = [t.detach() for t in leaves], [t.detach().double() for t in leaves]
    for by in range(len(leaves)):
        found = refused(lambda: torch.autograd.functional.hessian(loss(case.run, values, by), values[by]))
        if found is not None:
            wanted = torch.autograd.functional.hessian(loss(case.oracle, exact, by), exact[by])
            torch.testing.assert_close(found.double(), wanted, rtol=1e-3, atol=1e-3)


def test_penalty_of_a_network():
    """The gradient by a first layer, by way of a second one: no path past the refusal."""
    x, first, last = (torch.randn(*shape, requires_grad=True) for shape in ((2, 8), (8, 8), (3, 8)))
    y = T.linear(T.relu_squared(torch.nn.functional.linear(x, first)), last)
    (gx,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    for leaf in (x, first, last):
        with pytest.raises(RuntimeError, match=SENTENCE):
            torch.autograd.grad(gx.square().sum(), leaf, retain_graph=True)
    with pytest.raises(RuntimeError, match=SENTENCE):
        (y.square().mean() + gx.square().sum()).backward()


@by_name
def test_backward_of_a_penalty_is_refused(case):
    leaves, _ = make_inputs(case, torch.float32)
    y = outputs(case.run, leaves, [as_it_is] * len(leaves))
    gradients = torch.autograd.grad(sum(t.square().sum() for t in y), leaves, create_graph=True)
    with pytest.raises(RuntimeError, match=SENTENCE):
        sum(g.square().sum() for g in gradients).backward()


def test_second_derivative_of_a_compiled_call():
    """AOTAutograd refuses it. (backend="eager", for debugging, drops it without a word for any autograd function.)"""
    for f, shapes in ((T.linear, ((2, 8), (3, 8))), (T.rms_norm, ((2, 8), (8,))), (T.swiglu, ((2, 8), (2, 8)))):
        torch._dynamo.reset()
        leaves = [torch.randn(*shape, requires_grad=True) for shape in shapes]
        y = torch.compile(f, fullgraph=True, backend="aot_eager")(*leaves)
        with pytest.raises(RuntimeError, match="has no second derivative|does not currently support double backward"):
            gradients = torch.autograd.grad(y.sum(), leaves, create_graph=True)
            torch.autograd.grad(sum(g.square().sum() for g in gradients), leaves, allow_unused=True)


# ---- tensors given twice ----

TWICE = {
    "swiglu": lambda x: T.swiglu(x, x),
    "geglu": lambda x: T.geglu(x, x),
    "attention": lambda x: T.attention(x.view(1, 1, 4, 4), x.view(1, 1, 4, 4), x.view(1, 1, 4, 4)),
    "attention_qqq": lambda x: (lambda q: T.attention(q, q, q))(x.view(1, 1, 4, 4)),
    "rope": lambda x: (lambda q: T.rope(q, q, *[torch.linspace(-1, 1, 16).view(4, 4)] * 2)[0])(x.view(1, 1, 4, 4)),
    "fused_add_rms_norm": lambda x: T.fused_add_rms_norm(x, x)[1],
    "linear": lambda x: T.linear(x, x),
    "layer_norm": lambda x: T.layer_norm(x, x[0], x[0]),
    "modulated_rms_norm": lambda x: T.modulated_rms_norm(x, x, x),
    "group_norm": lambda x: (lambda v: T.group_norm(x, 2, v, v))(x[0]),
    "fused_linear_cross_entropy": lambda x: T.fused_linear_cross_entropy(x, x, torch.arange(4)),
    "cross_entropy": lambda x: (lambda v: T.cross_entropy(x, torch.arange(4), v, token_scale=v))(x[0].detach()),
    "softmax": lambda x: T.softmax(x, mask=x.detach()),
}


@pytest.mark.parametrize("name", TWICE)
def test_a_tensor_given_twice(name):
    torch.manual_seed(0)
    x = torch.rand(4, 4, requires_grad=True)
    wanted = TWICE[name](x)
    (gradient,) = torch.autograd.grad(wanted.square().sum(), x)
    for backend in ("eager", "aot_eager"):
        torch._dynamo.reset()
        y = torch.compile(TWICE[name], fullgraph=True, backend=backend)(x)
        (found,) = torch.autograd.grad(y.square().sum(), x)
        assert torch.equal(y, wanted)
        torch.testing.assert_close(found, gradient, rtol=1e-6, atol=1e-6)


def test_one_graph_input_under_two_names():
    torch._dynamo.reset()
    x = torch.randn(3, 4, requires_grad=True)
    y = torch.compile(lambda a, b: T.swiglu(a, b), fullgraph=True, backend="aot_eager")(x, x)
    wanted = T.swiglu(x, x)
    assert torch.equal(y, wanted)
    assert torch.equal(torch.autograd.grad(y.sum(), x)[0], torch.autograd.grad(wanted.sum(), x)[0])


# ---- transforms ----


def test_transforms_are_refused():
    x = torch.randn(4, 8)
    leaf = x.clone().requires_grad_()
    refused = r"^tigon: relu_squared is called within a transform of torch.func \(vmap, grad, jvp, ...\), must be"
    calls = [
        lambda: torch.vmap(T.relu_squared)(x),
        lambda: torch.func.grad(lambda z: T.relu_squared(z).sum())(x),
        lambda: torch.func.jacrev(T.relu_squared)(x),
        lambda: torch.func.jvp(T.relu_squared, (x,), (x,)),
        lambda: torch.autograd.grad(T.relu_squared(leaf), leaf, torch.ones(3, 4, 8), is_grads_batched=True),
        lambda: torch.autograd.functional.jacobian(T.relu_squared, x, vectorize=True),
    ]
    for call, keeps in itertools.product(calls, (True, False)):
        if keeps or call in calls[:3]:
            with torch.set_grad_enabled(keeps), pytest.raises(NotImplementedError, match=refused):
                call()


def test_a_trace_is_refused():
    """It would hold what the operator gave for the example, as a constant. Calls after it are as ever."""
    x = torch.randn(4, 8)
    for warm in (False, True):
        if warm:
            T.relu_squared(x)
        with pytest.raises(NotImplementedError, match="^tigon: relu_squared is called within torch.jit.trace, must be"):
            torch.jit.trace(lambda t: t + T.relu_squared(t), x)
        assert torch.equal(T.relu_squared(x), x.relu().square())


def test_forward_mode_is_refused():
    """Without a graph, too: the tangent would be lost."""
    x = torch.randn(4, 8)
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(x, torch.ones_like(x))
        for keeps in (True, False):
            with torch.set_grad_enabled(keeps), pytest.raises(NotImplementedError, match="forward mode AD"):
                T.relu_squared(dual)
