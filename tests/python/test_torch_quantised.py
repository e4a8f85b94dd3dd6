"""rms_norm in 8 bits: against plain torch, in odd rows, and what it refuses."""

import pytest
import torch

from tigon.torch import functional as T

LARGEST = {torch.float8_e4m3fn: 448.0, torch.int8: 127.0}
both = pytest.mark.parametrize("dtype", LARGEST)


def draw(*shape, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0)).to(dtype)


def expected(x, w, gate):
    x, w = x.double(), w.double()
    y = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * w
    return y if gate is None else y * torch.nn.functional.silu(gate.double())


@both
@pytest.mark.parametrize("x_dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("gated", [False, True])
def test_values(dtype, x_dtype, gated):
    x, w = draw(3, 5, 77, dtype=x_dtype), draw(77, dtype=x_dtype)
    gate = draw(3, 5, 77, dtype=x_dtype).flip(0) if gated else None
    q, scale = T.rms_norm_quantised(x, w, casting="gemma", gate=gate, dtype=dtype)
    assert (q.dtype, q.shape, scale.dtype, scale.shape) == (dtype, x.shape, torch.float32, (3, 5))
    y = expected(x, w, gate)
    torch.testing.assert_close(scale.double(), y.abs().amax(-1) / LARGEST[dtype], rtol=1e-5, atol=0)
    steps = y / scale.double()[..., None]
    near = steps.round() if dtype == torch.int8 else steps.float().clamp(-448, 448).to(dtype).double()
    assert (q.double() != near).double().mean() < 0.01  # next to the middle of two numbers
    off = (q.double() - steps).abs()
    assert (off <= (0.501 if dtype == torch.int8 else steps.abs() * 2**-4 * 1.001 + 2**-10)).all()


@both
def test_rows_of_zeros_and_of_nan(dtype):
    x = draw(4, 64)
    x[1], x[2, 5] = 0, torch.nan
    q, scale = T.rms_norm_quantised(x, dtype=dtype)
    assert scale[1] == 1 and (q[1].float() == 0).all()
    assert scale[2].isnan()
    assert q[2].float().isnan().all() if dtype.is_floating_point else (q[2] == 0).all()
    others = T.rms_norm_quantised(x[[0, 3]], dtype=dtype)
    assert torch.equal(q[[0, 3]].view(torch.uint8), others[0].view(torch.uint8))
    assert torch.equal(scale[[0, 3]], others[1])


def test_no_gradient_and_refusals():
    x = draw(4, 64).requires_grad_()
    q, scale = T.rms_norm_quantised(x, torch.ones(64, requires_grad=True))
    assert not q.requires_grad and not scale.requires_grad
    with pytest.raises(ValueError, match="dtype is torch.uint8, must be torch.float8_e4m3fn or torch.int8"):
        T.rms_norm_quantised(x, dtype=torch.uint8)
    with pytest.raises(TypeError, match="rms_norm_fwd: x.dtype is i8, must be f32, f16, bf16"):
        T.rms_norm(torch.zeros(2, 8, dtype=torch.int8))


@both
def test_compiled(dtype):
    x, w = draw(4, 64), draw(64)
    compiled = torch.compile(lambda: T.rms_norm_quantised(x, w, dtype=dtype), fullgraph=True, backend="aot_eager")
    for found, wanted in zip(compiled(), T.rms_norm_quantised(x, w, dtype=dtype)):
        assert torch.equal(found.view(torch.uint8), wanted.view(torch.uint8))
