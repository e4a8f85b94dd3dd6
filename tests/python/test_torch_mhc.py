"""Hyper-connections beyond the cases of op_cases.py: the module, Liger-Kernel's names, and what other implementations get wrong."""

import pytest
import torch
from op_cases import mhc_coeffs as plain

from tigon.compat.liger.ops import mhc as liger_ops
from tigon.compat.liger.transformers import LigerMHC, functional as liger
from tigon.torch import functional as T
from tigon.torch import nn

OPTIONS = dict(tmax=3, pre_eps=0.125, sinkhorn_eps=0.01)  # op_cases.mhc_coeffs's


def inputs(streams, channels, dtype=torch.float32, tokens=(2, 5)):
    generator = torch.Generator().manual_seed(0)
    random = lambda *shape: torch.randn(*shape, generator=generator)
    count = streams * (streams + 2)
    x, phi = random(*tokens, streams, channels), random(streams * channels, count) / (streams * channels) ** 0.5
    return x.to(dtype), phi, random(count), random(()), random(()), random(())


def wrapped(x, layer, *parameters):
    """A layer within hyper-connections, in plain torch."""
    h_pre, h_post, h_res = plain(x, *parameters)
    return h_res @ x + h_post[..., None] * layer((h_pre[..., None] * x).sum(-2))[..., None, :]


@pytest.mark.parametrize("streams", [1, 2, 3, 4, 7, 16])  # Liger-Kernel has powers of two
def test_any_number_of_streams(streams):
    given = [t.requires_grad_() for t in inputs(streams, 9)]
    exact = [t.detach().double().requires_grad_() for t in given]
    h = T.mhc_coeffs(*given, **OPTIONS)
    wanted = plain(*exact)
    for found, must in zip(h, wanted, strict=True):
        torch.testing.assert_close(found.double(), must, rtol=1e-4, atol=1e-5)
    incoming = [torch.randn_like(y) for y in h]
    found = torch.autograd.grad(h, given, incoming)
    wanted = torch.autograd.grad(wanted, exact, [d.double() for d in incoming])
    for gradient, must in zip(found, wanted, strict=True):
        torch.testing.assert_close(gradient.double(), must, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("compiles", [False, True])
def test_module(compiles):
    torch.manual_seed(1)
    layer = torch.nn.Linear(8, 8)
    module = nn.MHC(layer, 4, 8, **OPTIONS)
    x, phi, b, *alphas = inputs(4, 8)
    with torch.no_grad():
        for parameter, value in zip((module.phi, module.b, module.alpha_pre), (phi, b, alphas[0])):
            parameter.copy_(value)
    run = torch.compile(module, fullgraph=True, backend="aot_eager") if compiles else module
    y = run(x)
    exact = [p.detach().double().requires_grad_() for p in module.parameters()]
    phi, b, pre, post, res, weight, bias = exact
    wanted = wrapped(x.double(), lambda t: torch.nn.functional.linear(t, weight, bias), phi, b, pre, post, res)
    torch.testing.assert_close(y.double(), wanted, rtol=1e-4, atol=1e-5)
    gradients = torch.autograd.grad(y.square().sum(), list(module.parameters()))
    for found, must in zip(gradients, torch.autograd.grad(wanted.square().sum(), exact), strict=True):
        torch.testing.assert_close(found.double(), must, rtol=1e-3, atol=1e-3)


def test_liger_names():
    x, *parameters = inputs(4, 8)
    layer = torch.nn.Linear(8, 8)
    h = liger.liger_mhc_coeffs(x, *parameters, **OPTIONS)
    y = liger.liger_mhc_pre(x, h[0])
    out = liger.liger_mhc_post_res(x, layer(y), *h[1:])
    torch.testing.assert_close(out, wrapped(x, layer, *parameters), rtol=1e-4, atol=1e-5)
    applied, x_in = liger.liger_mhc_apply(x, layer(y), *h, return_x_in=True)
    assert torch.equal(applied, out) and torch.equal(x_in, y)
    forward, coeffs = liger.liger_mhc_forward(x, layer, *parameters, **OPTIONS, return_coeffs=True)
    assert torch.equal(forward, out) and all(map(torch.equal, coeffs, h))
    numbers = (False, 3, 1e-6, 0.125, 0.01, 2.0)
    assert all(map(torch.equal, liger_ops.LigerMHCCoeffsFunction.apply(x, *parameters, *numbers), h))
    assert torch.equal(liger_ops.LigerMHCPreFunction.apply(x, h[0]), y)
    assert torch.equal(liger_ops.LigerMHCPostResFunction.apply(x, layer(y), *h[1:]), out)


def test_liger_module():
    module = LigerMHC(torch.nn.Linear(8, 8, dtype=torch.bfloat16), hc=4, c=8)
    assert module.phi.dtype == torch.float16 and module.phi.shape == (32, 24)
    x = inputs(4, 8, torch.bfloat16)[0].requires_grad_()
    y = module(x)
    y.sum().backward()
    assert y.dtype == torch.bfloat16 and y.shape == x.shape
    assert all(p.grad is not None and p.grad.dtype == p.dtype for p in module.parameters())


def test_streams_with_a_pitch_are_not_copied():
    """x may be one part of a wider tensor; Liger-Kernel copies it."""
    x, *parameters = inputs(4, 8)
    wide = torch.randn(2, 5, 4, 20)
    wide[..., 3:11] = x
    h, same = T.mhc_coeffs_pre(x, *parameters, **OPTIONS), T.mhc_coeffs_pre(wide[..., 3:11], *parameters, **OPTIONS)
    assert all(map(torch.equal, h, same))
    assert torch.equal(T.mhc_post_res(x, h[3], h[1], h[2]), T.mhc_post_res(wide[..., 3:11], h[3], h[1], h[2]))


def test_a_nan_stays_in_its_token():
    x, *parameters = inputs(4, 8)
    clean = T.mhc_coeffs_pre(x, *parameters, **OPTIONS)
    x[0, 1, 2, 3] = torch.nan
    for found, must in zip(T.mhc_coeffs_pre(x, *parameters, **OPTIONS), clean):
        assert found[0, 1].isnan().any()
        keep = torch.ones(2, 5, dtype=torch.bool)
        keep[0, 1] = False
        assert torch.equal(found[keep], must[keep])


def test_no_tokens():
    x, *parameters = inputs(4, 8)
    given = [x[:0].clone().requires_grad_(), *(t.requires_grad_() for t in parameters)]
    h_pre, h_post, h_res, y = T.mhc_coeffs_pre(*given, **OPTIONS)
    assert h_res.shape == (0, 5, 4, 4) and y.shape == (0, 5, 8)
    gradients = torch.autograd.grad((h_pre.sum() + h_res.sum() + y.sum(),), given)
    assert not any(g.any() for g in gradients)


def test_too_many_streams():
    with pytest.raises(ValueError, match="x.shape\\[2\\] is 17, must be 1 to 16"):
        T.mhc_coeffs(*inputs(17, 4))
