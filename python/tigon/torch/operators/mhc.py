"""Manifold-constrained hyper-connections: mhc_coeffs, mhc_pre and mhc_post_res, the module over them, and Liger-Kernel's names."""

import torch

from tigon.torch._autograd import fitting
from tigon.torch._derived import derived
from tigon.torch._op import Op

FUNCTIONS = ["mhc_coeffs", "mhc_coeffs_pre", "mhc_pre", "mhc_post_res"]
MODULES = ["MHC"]

_PARAMETERS = ("phi", "b", "alpha_pre", "alpha_post", "alpha_res")


def _tokens(*args):
    """The rule of DTensors: a rank has whole tokens. x is the tensor of most dimensions, the last two of a token."""
    from torch.distributed.tensor import Partial, Replicate, Shard

    others = {name: Replicate() for name in _PARAMETERS} | {f"d{name}": Partial() for name in _PARAMETERS}
    ndim = max(a.ndim for a in args if hasattr(a, "ndim"))
    return [(dim, others | {"rstd": Shard(0)}) for dim in range(ndim - 2)]


SHARDING = dict.fromkeys(("mhc_coeffs", "mhc_coeffs_pre", "mhc_post_res"), _tokens)

_H = ("h_pre", "h_post", "h_res")
_Coeffs = derived(
    "mhc_coeffs",
    Op("mhc_coeffs_fwd", without=("y",)),
    Op("mhc_coeffs_bwd", without=("dy",)),
    parameters=5,
    returned=_H,
)
_CoeffsPre = derived(
    "mhc_coeffs_pre",
    Op("mhc_coeffs_pre_fwd", "mhc_coeffs_fwd"),
    Op("mhc_coeffs_pre_bwd", "mhc_coeffs_bwd"),
    parameters=5,
    returned=(*_H, "y"),
)
_PostRes = derived("mhc_post_res")


def mhc_coeffs(
    x,
    phi,
    b,
    alpha_pre,
    alpha_post,
    alpha_res,
    tmax=20,
    rms_eps=1e-6,
    pre_eps=0.0,
    sinkhorn_eps=1e-6,
    post_mult=2.0,
):
    """h_pre [..., HC], h_post [..., HC] and h_res [..., HC, HC], f32, of x [..., HC, C] f32, bf16 or f16, HC <= 16.

    With l = alpha * (x as [..., HC * C] @ phi) / sqrt(mean(x^2) + rms_eps) + b, of which the first HC are pre's, the next
    HC post's and the other HC * HC res's: h_pre = sigmoid(l) + pre_eps, h_post = post_mult * sigmoid(l), and h_res is what
    tmax rounds of Sinkhorn make of l. phi [HC * C, HC * HC + 2 * HC] f32, bf16 or f16; b and the alphas f32 or as x.
    """
    return _Coeffs(x, phi, b, alpha_pre, alpha_post, alpha_res, (tmax, rms_eps, pre_eps, sinkhorn_eps, post_mult))


def mhc_coeffs_pre(
    x,
    phi,
    b,
    alpha_pre,
    alpha_post,
    alpha_res,
    tmax=20,
    rms_eps=1e-6,
    pre_eps=0.0,
    sinkhorn_eps=1e-6,
    post_mult=2.0,
):
    """mhc_coeffs, and mhc_pre(x, h_pre) from the same read of x: h_pre, h_post, h_res, y."""
    return _CoeffsPre(x, phi, b, alpha_pre, alpha_post, alpha_res, (tmax, rms_eps, pre_eps, sinkhorn_eps, post_mult))


def mhc_pre(x, h_pre):
    """sum over i of h_pre[..., i] x[..., i, :]: [..., C] of x [..., HC, C] f32, bf16 or f16, and h_pre [..., HC] f32."""
    return _PostRes(x, None, None, h_pre.unsqueeze(-2)).squeeze(-2)


def mhc_post_res(x, f, h_post, h_res):
    """h_res @ x + h_post f: [..., J, C] of x [..., HC, C] and f [..., C] f32, bf16 or f16; h_post [..., J] and
    h_res [..., J, HC] f32. J is HC in the paper. f and h_post may both be None."""
    return _PostRes(x, f, h_post, h_res)


class MHC(torch.nn.Module):
    """A layer [..., C] -> [..., C] within hyper-connections of `streams` streams: x [..., streams, channels] to the same."""

    def __init__(
        self,
        layer,
        streams,
        channels,
        tmax=20,
        rms_eps=1e-6,
        pre_eps=0.0,
        sinkhorn_eps=1e-6,
        post_mult=2.0,
        phi_dtype=None,
        device=None,
    ):
        super().__init__()
        self.layer, self.streams, self.channels = layer, streams, channels
        self.options = dict(
            tmax=tmax, rms_eps=rms_eps, pre_eps=pre_eps, sinkhorn_eps=sinkhorn_eps, post_mult=post_mult
        )
        count, f32 = streams * (streams + 2), dict(dtype=torch.float32, device=device)
        self.phi = torch.nn.Parameter(0.02 * torch.randn(streams * channels, count, dtype=phi_dtype, device=device))
        self.b = torch.nn.Parameter(torch.zeros(count, **f32))
        for name in ("alpha_pre", "alpha_post", "alpha_res"):
            self.register_parameter(name, torch.nn.Parameter(torch.ones((), **f32)))

    def forward(self, x):
        vectors = fitting(x, self.b, self.alpha_pre, self.alpha_post, self.alpha_res)
        h_pre, h_post, h_res, y = mhc_coeffs_pre(x, self.phi, *vectors, **self.options)
        return mhc_post_res(x, _run(self.layer, y).to(x.dtype), h_post, h_res)

    def extra_repr(self):
        return f"streams={self.streams}, channels={self.channels}, tmax={self.options['tmax']}"


def _run(layer, y):
    """A layer's output, of an input in the dtype of its first parameter."""
    first = next(layer.parameters(), None) if isinstance(layer, torch.nn.Module) else None
    return layer(y if first is None else y.to(first.dtype))


def liger_mhc_coeffs(
    x,
    phi,
    b,
    alpha_pre,
    alpha_post,
    alpha_res,
    *,
    allow_fp32=False,
    tmax=20,
    rms_eps=1e-6,
    pre_eps=0.0,
    sinkhorn_eps=1e-6,
    post_mult=2.0,
):
    vectors = fitting(x, b, alpha_pre, alpha_post, alpha_res)
    return mhc_coeffs(x, phi, *vectors, tmax, rms_eps, pre_eps, sinkhorn_eps, post_mult)


def liger_mhc_pre(x, h_pre):
    return mhc_pre(x, h_pre.float())


def liger_mhc_post_res(x, f_out, h_post, h_res):
    return mhc_post_res(x, f_out.to(x.dtype), h_post.float(), h_res.float())


def liger_mhc_apply(x, f_out, h_pre, h_post, h_res, *, return_x_in=False):
    x_out = liger_mhc_post_res(x, f_out, h_post, h_res)
    return (x_out, liger_mhc_pre(x, h_pre)) if return_x_in else x_out


def liger_mhc_forward(
    x,
    layer,
    phi,
    b,
    alpha_pre,
    alpha_post,
    alpha_res,
    *,
    allow_fp32=False,
    tmax=20,
    rms_eps=1e-6,
    pre_eps=0.0,
    sinkhorn_eps=1e-6,
    post_mult=2.0,
    return_coeffs=False,
):
    vectors = fitting(x, b, alpha_pre, alpha_post, alpha_res)
    *h, y = mhc_coeffs_pre(x, phi, *vectors, tmax, rms_eps, pre_eps, sinkhorn_eps, post_mult)
    x_out = liger_mhc_post_res(x, _run(layer, y), *h[1:])
    return (x_out, tuple(h)) if return_coeffs else x_out


class LigerMHCCoeffsFunction:
    @staticmethod
    def apply(
        x,
        phi,
        b,
        alpha_pre,
        alpha_post,
        alpha_res,
        allow_fp32,
        tmax,
        rms_eps,
        pre_eps,
        sinkhorn_eps,
        post_mult,
    ):
        vectors = fitting(x, b, alpha_pre, alpha_post, alpha_res)
        return mhc_coeffs(x, phi, *vectors, tmax, rms_eps, pre_eps, sinkhorn_eps, post_mult)


class LigerMHCPreFunction:
    apply = staticmethod(liger_mhc_pre)


class LigerMHCPostResFunction:
    apply = staticmethod(liger_mhc_post_res)


class LigerMHC(MHC):
    def __init__(
        self,
        layer,
        *,
        hc,
        c,
        tmax=20,
        rms_eps=1e-6,
        pre_eps=0.0,
        sinkhorn_eps=1e-6,
        post_mult=2.0,
        phi_dtype=torch.float16,
        allow_fp32=False,
    ):
        device = next((p.device for p in layer.parameters()), None)
        super().__init__(layer, hc, c, tmax, rms_eps, pre_eps, sinkhorn_eps, post_mult, phi_dtype, device)
        self.hc, self.c, self.allow_fp32 = hc, c, allow_fp32
