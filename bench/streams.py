"""Hyper-connections among the cases of peers_cpu.py: what PyTorch does with the tensors of Tigon's case (tests/check)."""


def mhc_coeffs(t):
    import torch

    names = ("x", "phi", "b", "alpha_pre", "alpha_post", "alpha_res")
    tmax, rms_eps, eps, post_mult = 20, 1e-6, 1e-6, 2

    def function(x, phi, b, *alphas):
        n, wide = x.shape[1], torch.promote_types(x.dtype, torch.float32)
        flat = x.flatten(1)
        rstd = (flat.to(wide).square().mean(-1, keepdim=True) + rms_eps).rsqrt()
        alpha = torch.cat([a.expand(count) for a, count in zip(alphas, (n, n, n * n))])
        logits = alpha * ((flat @ phi).to(wide) * rstd) + b
        pre, post, res = logits.split([n, n, n * n], -1)
        m = res.unflatten(-1, (n, n)).softmax(-1) + eps
        m = m / (m.sum(-2, keepdim=True) + eps)
        for _ in range(tmax - 1):
            m = m / (m.sum(-1, keepdim=True) + eps)
            m = m / (m.sum(-2, keepdim=True) + eps)
        pre = pre.sigmoid()
        return pre, post_mult * post.sigmoid(), m, (pre.to(x.dtype)[:, None] @ x)[:, 0]

    outputs = ("h_pre", "h_post", "h_res", "y")
    return (function, t.tensors(*names), t.tensors(*(f"d{name}" for name in outputs)), t.tensors(*outputs),
            t.tensors(*(f"d{name}" for name in names)))


def mhc_post_res(t):
    def function(x, f, h_post, h_res):
        return h_res.to(x.dtype) @ x + h_post.to(x.dtype)[..., None] * f[:, None]

    names = ("x", "f", "h_post", "h_res")
    return function, t.tensors(*names), t.tensors("g"), t.tensors("o"), t.tensors(*(f"d{name}" for name in names))


CASES = (mhc_coeffs, mhc_post_res)
FROM_TORCH = {"mhc_coeffs": lambda t: T.mhc_coeffs_pre, "mhc_post_res": lambda t: T.mhc_post_res}
