"""Hyper-connections and mixtures among the cases of peers_cpu.py: what PyTorch does with the tensors of Tigon's case (tests/check)."""


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


def fused_moe(t):
    import torch
    import torch.nn.functional as F

    x, idx, w, gate_up, down, dy, y = t.tensors("x", "idx", "w", "gate_up", "down", "dy", "y")

    def function(x, w, gate_up, down):  # as in transformers
        y = torch.zeros_like(x)
        with torch.no_grad():
            mask = F.one_hot(idx.long(), len(down)).permute(2, 1, 0)
            hit = torch.greater(mask.sum(dim=(-1, -2)), 0).nonzero()
        for expert in hit:
            expert = expert[0]
            choice, token = torch.where(mask[expert])
            gate, up = F.linear(x[token], gate_up[expert]).chunk(2, dim=-1)
            z = F.linear(F.silu(gate) * up, down[expert]) * w[token, choice, None]
            y.index_add_(0, token, z.to(y.dtype))
        return y

    return function, [x, w, gate_up, down], [dy], [y], t.tensors("dx", "dw", "dgate_up", "ddown")


CASES = (mhc_coeffs, mhc_post_res, fused_moe)
FROM_TORCH = {
    "mhc_coeffs": lambda t: T.mhc_coeffs_pre,
    "mhc_post_res": lambda t: T.mhc_post_res,
    "fused_moe": lambda t: lambda x, w, gate_up, down, idx=t.tensors("idx")[0]: T.fused_moe(x, idx, w, gate_up, down),
}
