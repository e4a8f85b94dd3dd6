"""Parts of layers among the cases of peers_cpu.py: what PyTorch does with the tensors of Tigon's case (tests/check). Behind + in a
name are forms of the call (tests/check/forms.def), behind : other peers of it. A case without gradients has forward alone."""
import functools

GPT_OSS = dict(gate_multiplier=1.702, down_multiplier=1 / 1.702, limit=7.0, up_offset=1.0)


def load_torch():
    global torch, F
    import torch
    import torch.nn.functional as F


def named(t, inputs, upstream, outputs):
    """What follows a case's function: a gradient's name is d and that of its input."""
    return t.tensors(*inputs), t.tensors(*upstream), t.tensors(*outputs), t.tensors(*(f"d{name}" for name in inputs))


# ---- norms, positions, attention ----


def gated_rms_norm(t):
    def function(x, w, z):  # as in transformers' Qwen3-Next
        return (F.rms_norm(x, x.shape[1:], w, 1e-6) * F.silu(z.float())).to(x.dtype)

    return function, *named(t, ("x", "w", "z"), ["dy"], ["y"])


def quantised_rms_norm(t):
    q, scale = t.tensors("q", "scale")
    most = 127 if q.dtype == torch.int8 else 448

    def function(x, w):
        y = F.rms_norm(x, x.shape[1:], w, 1e-6).float()
        scale = y.abs().amax(-1) / most
        y = y / scale[:, None]
        return (y.round() if most == 127 else y).to(q.dtype), scale

    return function, t.tensors("x", "w"), [], [q, scale], []


def sections(half):
    """Of the pairs, as Tigon's case has them: time, height, width."""
    time = (half + 3) // 4
    height = (half - time) // 2
    return time, height, half - time - height


def by_position(tables, positions):
    """Rows of the tables by three positions of a token, whose pairs take turns, as transformers' Qwen3-VL makes them once for all
    layers."""
    pairs = range(tables[0].shape[1])
    _, height, width = sections(len(pairs))
    axis = [1 if i % 3 == 1 and i < 3 * height else 2 if i % 3 == 2 and i < 3 * width else 0 for i in pairs]
    return [torch.stack([table[positions[a], i] for i, a in enumerate(axis)], -1) for table in tables]


def rope(t):
    q, k, q_out, k_out, *tables = t.tensors("q", "k", "q_out", "k_out", "cos", "sin")
    half = tables[0].shape[1]
    tables = by_position(tables, t.tensors("positions")[0]) if t.has("positions") else [a[None] for a in tables]
    cos, sin = (torch.cat([a, a], -1)[:, :, None].to(q.dtype) for a in tables)

    def turned(x):
        return torch.cat([-x[..., half:], x[..., :half]], -1)

    def function(q, k):  # as in transformers
        return q * cos + turned(q) * sin, k * cos + turned(k) * sin

    return function, [q, k], [q.clone(), k.clone()], [q_out, k_out], [q_out, k_out]


def rope_from_torch(t):
    cos, sin = t.tensors("cos", "sin")
    half, more = cos.shape[1], {}
    if t.has("positions"):
        more = dict(positions=t.tensors("positions")[0], sections=sections(half), sections_interleaved=True)

    def function(q, k):
        made = T.rope(q.transpose(1, 2), k.transpose(1, 2), cos, sin, rotary_dim=2 * half, **more)
        return tuple(t.transpose(1, 2) for t in made)

    return function


def attention_of(call):
    """Heads lie within tokens."""
    return lambda q, k, v: call(*(a.transpose(1, 2) for a in (q, k, v))).transpose(1, 2)


def attention(t):
    function = attention_of(lambda *qkv: F.scaled_dot_product_attention(*qkv, is_causal=True, enable_gqa=True))
    return function, *named(t, ("q", "k", "v"), ["do"], ["o"])


def eager_attention(q, k, v, mask, softcap=None, sinks=None):
    """As transformers' eager attention of Gemma 2 and gpt-oss, whose softmax is in f32."""
    wide = torch.promote_types(q.dtype, torch.float32)
    k, v = (a.repeat_interleave(q.shape[1] // k.shape[1], 1) for a in (k, v))
    scores = q @ k.mT * q.shape[-1]**-0.5
    if softcap:
        scores = torch.tanh(scores / softcap) * softcap
    scores = scores + mask.to(scores.dtype)
    if sinks is not None:
        scores = torch.cat([scores, sinks.to(scores.dtype)[:, None, None].expand(*scores.shape[:-1], 1)], -1)
    return scores.to(wide).softmax(-1).to(q.dtype)[..., :mask.shape[-1]] @ v


def softcap_attention(t):
    (q,) = t.tensors("q")
    mask = torch.full((q.shape[1], q.shape[1]), -torch.inf).triu(1)
    return attention_of(lambda *qkv: eager_attention(*qkv, mask, softcap=50)), *named(t, ("q", "k", "v"), ["do"], ["o"])


def sink_attention(t):
    (q,) = t.tensors("q")
    mask = torch.full((q.shape[1], q.shape[1]), -torch.inf).triu(1)

    def function(q, k, v, sinks):
        return attention_of(lambda *qkv: eager_attention(*qkv, mask, sinks=sinks))(q, k, v)

    return function, *named(t, ("q", "k", "v", "sinks"), ["do"], ["o"])


def multi_token_attention(t):
    from tigon.torch.operators.multi_token_attention import plain

    function = lambda s, weight: plain(s, weight, padding=5, groups=s.shape[1])
    s, weight = t.tensors("scores", "weight")
    return function, [s, weight], t.tensors("d_o"), t.tensors("o"), t.tensors("dscores", "dweight")


# ---- residual streams ----


def attn_res_list(t):
    from tigon.torch.operators import REFERENCES

    v, q, wn, dv, dq, dwn = t.tensors("v", "q", "wn", "dv", "dq", "dwn")
    function = lambda *given: REFERENCES["attn_res"].plain(torch.stack(given[:-2]), *given[-2:])
    return function, [*v, q, wn], t.tensors("dh"), t.tensors("h"), [*dv, dq, dwn]


def mhc_coeffs(t):
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
    return function, *named(t, ("x", "phi", "b", "alpha_pre", "alpha_post", "alpha_res"), [f"d{name}" for name in outputs], outputs)


def mhc_post_res(t):
    def function(x, f, h_post, h_res):
        return h_res.to(x.dtype) @ x + h_post.to(x.dtype)[..., None] * f[:, None]

    return function, *named(t, ("x", "f", "h_post", "h_res"), ["g"], ["o"])


# ---- gates, whole MLPs and mixtures ----


def gpt_oss_gate(a, b):
    a, b = a.clamp(max=7), b.clamp(-7, 7)
    return a * torch.sigmoid(1.702 * a) * (b + 1)


def gpt_oss_swiglu(t):
    return gpt_oss_gate, *named(t, ("a", "b"), ["dc"], ["c"])


def mlp(t):
    def function(x, gate, up, down):
        return F.linear(F.silu(F.linear(x, gate)) * F.linear(x, up), down)

    return function, *named(t, ("x", "gate", "up", "down"), ["dy"], ["y"])


def experts_in_turn(idx, x, w, count, expert):
    """As in transformers: expert(i, x) for the tokens of each."""
    y = torch.zeros_like(x)
    with torch.no_grad():
        mask = F.one_hot(idx.long(), count).permute(2, 1, 0)
        hit = torch.greater(mask.sum(dim=(-1, -2)), 0).nonzero()
    for i in hit:
        i = i[0]
        choice, token = torch.where(mask[i])
        y.index_add_(0, token, (expert(i, x[token]) * w[token, choice, None]).to(y.dtype))
    return y


def fused_moe(t):
    (idx,) = t.tensors("idx")

    def function(x, w, gate_up, down):
        def expert(i, x):
            gate, up = F.linear(x, gate_up[i]).chunk(2, dim=-1)
            return F.linear(F.silu(gate) * up, down[i])

        return experts_in_turn(idx, x, w, len(down), expert)

    function.breaks = True
    return function, *named(t, ("x", "w", "gate_up", "down"), ["dy"], ["y"])


def grouped_moe(t):
    """As transformers' experts_implementation "grouped_mm"."""
    idx, down = t.tensors("idx", "down")
    in_turn, *others = fused_moe(t)
    grouped = getattr(F, "grouped_mm", None) or torch._grouped_mm

    def function(x, w, gate_up, down):
        if x.dtype == torch.float64 or (x.is_cuda and x.dtype == torch.float32):  # which no grouped product has
            return in_turn(x, w, gate_up, down)
        expert, order = idx.flatten().sort(stable=True)
        token = order // idx.shape[1]
        ends = torch.searchsorted(expert, ids, right=True).to(torch.int32)
        gate, up = grouped(x[token], gate_up.transpose(1, 2), offs=ends).chunk(2, dim=-1)
        z = grouped(F.silu(gate) * up, down.transpose(1, 2), offs=ends) * w.flatten()[order, None]
        return torch.zeros_like(x).index_add(0, token, z.to(x.dtype))

    ids = torch.arange(len(down), dtype=idx.dtype, device=idx.device)
    return function, *others


def gpt_oss_moe(t):
    (idx,) = t.tensors("idx")

    def function(x, w, gate_up, gate_up_bias, down, down_bias):  # weights are [E, H, 2 I] and [E, I, H]
        def expert(i, x):
            pre = x @ gate_up[i] + gate_up_bias[i]
            return gpt_oss_gate(pre[..., ::2], pre[..., 1::2]) @ down[i] + down_bias[i]

        return experts_in_turn(idx, x, w, len(down), expert)

    function.breaks = True
    return function, *named(t, ("x", "w", "gate_up", "gate_up_bias", "down", "down_bias"), ["dy"], ["y"])


def gpt_oss_moe_from_torch(t):
    (idx,) = t.tensors("idx")
    return lambda x, w, gate_up, gate_up_bias, down, down_bias: T.fused_moe(
        x, idx, w, gate_up.mT, down.mT, gate_up_bias, down_bias, interleaved=True, **GPT_OSS)


CASES = {
    "rms_norm+gate": gated_rms_norm,
    "rms_norm+quantised": quantised_rms_norm,
    "rms_norm+quantised+int8": quantised_rms_norm,
    "rope": rope,
    "rope+sections": rope,
    "swiglu+gpt-oss": gpt_oss_swiglu,
    "attention": attention,
    "attention+softcap": softcap_attention,
    "attention+sinks": sink_attention,
    "multi_token_attention": multi_token_attention,
    "attn_res+list": attn_res_list,
    "mhc_coeffs": mhc_coeffs,
    "mhc_post_res": mhc_post_res,
    "mlp": mlp,
    "mlp+cache": mlp,
    "fused_moe": fused_moe,
    "fused_moe:grouped": grouped_moe,
    "fused_moe+gpt-oss": gpt_oss_moe,
}


def moe_from_torch(t):
    return lambda x, w, gate_up, down, idx=t.tensors("idx")[0]: T.fused_moe(x, idx, w, gate_up, down)


FROM_TORCH = {
    "rms_norm+gate": lambda t: lambda x, w, z: T.rms_norm(x, w, 1e-6, gate=z),
    "rms_norm+quantised": lambda t: lambda x, w: T.rms_norm_quantised(x, w, 1e-6),
    "rms_norm+quantised+int8": lambda t: lambda x, w: T.rms_norm_quantised(x, w, 1e-6, dtype=torch.int8),
    "rope": rope_from_torch,
    "rope+sections": rope_from_torch,
    "swiglu+gpt-oss": lambda t: functools.partial(T.swiglu, **GPT_OSS),
    "attention": lambda t: attention_of(T.attention),
    "attention+softcap": lambda t: attention_of(functools.partial(T.attention, softcap=50.0)),
    "attention+sinks": lambda t: lambda q, k, v, sinks: attention_of(functools.partial(T.attention, sinks=sinks))(q, k, v),
    "multi_token_attention": lambda t: lambda s, w: T.multi_token_attention(s, w, padding=5, groups=s.shape[1]),
    "attn_res+list": lambda t: lambda *given: T.attn_res(given[:-2], *given[-2:]),
    "mhc_coeffs": lambda t: T.mhc_coeffs_pre,
    "mhc_post_res": lambda t: T.mhc_post_res,
    "mlp": lambda t: T.mlp,
    "mlp+cache": lambda t: functools.partial(T.mlp, cache_bytes=1 << 40),
    "fused_moe": moe_from_torch,
    "fused_moe:grouped": moe_from_torch,
    "fused_moe+gpt-oss": gpt_oss_moe_from_torch,
}
