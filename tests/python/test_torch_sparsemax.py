"""sparsemax beyond the cases of op_cases.py: other dimensions, wide rows, and what other implementations get wrong."""

import pytest
import torch

from tigon.torch import functional as T
from tigon.torch import nn
from tigon.torch.operators.sparsemax import _plain as by_sorting


def gradient(f, x, dy):
    x = x.detach().requires_grad_()
    y = f(x)
    (dx,) = torch.autograd.grad(y, x, dy)
    return y.detach(), dx


@pytest.mark.parametrize("dim", [0, 1, 2, -1, -2, -3])
def test_any_dimension(dim):
    torch.manual_seed(0)
    x, dy = torch.randn(4, 5, 6), torch.randn(4, 5, 6)
    wanted = gradient(lambda x: by_sorting(x.movedim(dim, -1)).movedim(-1, dim), x.double(), dy.double())
    module = nn.Sparsemax(dim)
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    for f in (lambda x: T.sparsemax(x, dim), module, compiled):
        for found, must in zip(gradient(f, x, dy), wanted):
            assert found.shape == x.shape
            torch.testing.assert_close(found.double(), must, rtol=1e-6, atol=1e-6)


def test_rows_of_more_than_65536():
    """Liger-Kernel refuses them."""
    torch.manual_seed(1)
    x, dy = torch.randn(3, 70001), torch.randn(3, 70001)
    for found, must in zip(gradient(T.sparsemax, x, dy), gradient(by_sorting, x.double(), dy.double())):
        torch.testing.assert_close(found.double(), must, rtol=0, atol=1e-6)
    assert (T.sparsemax(x) != 0).sum(-1).max() < 100


def test_a_constant_takes_nothing_away():
    """Sums of what was not shifted by the row's largest lose their last digits."""
    torch.manual_seed(2)
    x = torch.randint(-32, 33, (8, 999)) / 8
    assert torch.equal(T.sparsemax(x + 2**20), T.sparsemax(x))


def test_the_mean_is_not_rounded():
    """bf16 has 8 bits of a mean near 1, and dy - mean has fewer."""
    torch.manual_seed(3)
    y = torch.zeros(4, 64).bfloat16()
    y[:, ::9] = 0.125
    dy = (1 + torch.rand(4, 64) / 64).bfloat16()
    dx = torch.ops.tigon.sparsemax_bwd(dy=dy, y=y)
    mean = dy[:, ::9].double().mean(-1, keepdim=True)
    assert torch.equal(dx[:, ::9], (dy[:, ::9].double() - mean).bfloat16())
    assert not dx[y == 0].any()


def test_only_y_is_kept():
    """No f32 copy, no order of a sort, no mask of the support."""
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
        y = T.sparsemax(torch.randn(4, 64).bfloat16().requires_grad_())
    assert [(t.dtype, t.shape, t.data_ptr()) for t in kept] == [(y.dtype, y.shape, y.data_ptr())]


def test_a_nan_stays_in_its_row():
    x, dy = torch.randn(3, 40), torch.randn(3, 40)
    x[1, 7] = torch.nan
    for found, must in zip(gradient(T.sparsemax, x, dy), gradient(T.sparsemax, x[::2], dy[::2])):
        assert found[1].isnan().all() and torch.equal(found[::2], must)


def test_nothing_counts():
    x = torch.full((2, 9), -torch.inf)
    x[1, 4] = -3e38
    y, dx = gradient(T.sparsemax, x, torch.randn(2, 9))
    assert not y[0].any() and not dx.any() and torch.equal(y[1], torch.eye(9)[4])
