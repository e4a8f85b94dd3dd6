"""Every operator with an oracle: the same maths in plain torch, which the tests run in float64."""

import math
from collections.abc import Callable
from typing import NamedTuple

import attention_formulas
import mlp_cases
import moe_cases
import torch
import torch.nn.functional as F
from attention_formulas import attention

from tigon.torch import functional as T
from tigon.torch.operators import REFERENCES, Parameter
from tigon.torch.operators.multi_token_attention import plain as multi_token_attention
from tigon.torch.operators.losses import _LinearLogprobShard

IDS = torch.tensor([[1, 8, 3, 3, 0], [7, 3, 8, 2, 5]])
TARGET = torch.tensor([[1, -100, 3, 3, 0], [7, 3, -100, 2, 5]])
CLASS_WEIGHT = torch.tensor([0.5, 1, 2, 1, 1, 0, 1, 1.5, 1])
TOKEN_SCALE = torch.tensor([[1, 1, 0.5, 2, 1], [0, 1, 1, 1, 3]])
COUNTS = torch.tensor([3, 1, 4, 2, 5, 2, 6, 5, 3, 4])
ADVANTAGE = torch.tensor([0.75, -0.5])
TEACHER = torch.randint(-8, 9, (2, 5, 9), generator=torch.Generator().manual_seed(3)) / 4
EYE = torch.eye(9)
ANGLES = torch.linspace(-3, 3, 5 * 4).view(1, 5, 4).repeat(1, 1, 2)
THREE = torch.linspace(-2, 3, 7 * 4).view(7, 4)  # positions in time, height and width
IDS_OF_AXES = (torch.arange(3 * 2 * 5) * 5 % 7).view(3, 2, 5)
MASK = torch.tensor([0, 0, -torch.inf, 1, 0, -2, 0])


class Case(NamedTuple):
    name: str
    run: Callable
    oracle: Callable
    shapes: list  # shapes of the inputs: data (any layout), or "parameter" ones (contiguous)
    roundings: int = 1  # to the inputs' dtype between inputs and outputs, the store included


class OnePitch(tuple):
    """The shape of an input that is copied unless its rows lie at one distance."""


def rms_norm(x, w=1, eps=1e-6, offset=0.0):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * (w + offset)


def modulated(x, scale, shift, w):
    return (1 + scale[:, None]) * rms_norm(x, w) + shift[:, None]


def clamped_swiglu(a, b):
    return 0.5 * F.silu(1.25 * a.clamp(max=1)) * (b.clamp(-1, 1) + 0.75)


def halves(gate):
    return lambda ab, *options: gate(*ab.chunk(2, -1), *options)


def rope(q, k, angles=None):
    angles = ANGLES if angles is None else torch.cat([angles, angles], -1)
    cos, sin = angles.to(q.dtype).cos(), angles.to(q.dtype).sin()

    def turn(x):
        turned, rest = x[..., :8], x[..., 8:]
        rotated = turned * cos + torch.cat([-turned[..., 4:], turned[..., :4]], -1) * sin
        return torch.cat([rotated, rest], -1)

    return turn(q), turn(k)


def rope_interleaved(q, k):
    cos, sin = ANGLES[..., :4].to(q.dtype).cos(), ANGLES[..., :4].to(q.dtype).sin()

    def turn(x):
        u, v = x[..., 0::2], x[..., 1::2]
        return torch.stack([u * cos - v * sin, v * cos + u * sin], -1).flatten(-2)

    return turn(q), turn(k)


def multimodal(interleaved):
    """rope of sections (2, 1, 1)."""
    axes = [0, 1, 2, 0] if interleaved else [0, 0, 1, 2]

    def run(q, k):
        angles = torch.stack([THREE[IDS_OF_AXES[axis], pair] for pair, axis in enumerate(axes)], -1)  # [B, T, R / 2]
        return rope(q, k, angles[:, None])

    return run


def softmax(x):
    causal = torch.ones(x.shape[-2:], dtype=torch.bool).tril(x.shape[-1] - x.shape[-2])
    return F.softmax((0.5 * x + MASK.to(x.dtype)).masked_fill(~causal, -torch.inf), -1)


def mhc_coeffs(x, phi, b, alpha_pre, alpha_post, alpha_res):
    """Three rounds, and the options that the cases give."""
    n = x.shape[-2]
    flat = x.flatten(-2)
    mix = flat @ phi * torch.rsqrt(flat.square().mean(-1, keepdim=True) + 1e-6)
    pre, post, res = (mix * torch.cat([alpha_pre.expand(n), alpha_post.expand(n), alpha_res.expand(n * n)]) + b).split(
        [n, n, n * n], -1
    )
    m = res.unflatten(-1, (n, n)).softmax(-1) + 0.01
    for i in range(3):
        m = m / (m.sum(-1, keepdim=True) + 0.01) if i else m
        m = m / (m.sum(-2, keepdim=True) + 0.01)
    return pre.sigmoid() + 0.125, 2 * post.sigmoid(), m


def mhc_coeffs_pre(x, *rest):
    h = mhc_coeffs(x, *rest)
    return *h, (h[0][..., None] * x).sum(-2)


def cross_entropy(
    x, softcap=None, temperature=1.0, smoothing=0.0, square=0.0, weight=None, scale=None, reduction="mean", first=False
):
    """The formula of include/tigon/op/cross_entropy.h, token by token."""
    cap = lambda z: softcap * torch.tanh(z / softcap) if softcap else z
    z = cap(x) / temperature if first else cap(x / temperature)
    w = torch.ones(x.shape[-1], dtype=x.dtype) if weight is None else weight.to(x.dtype)
    counts = (TARGET != -100).to(x.dtype)
    t = TARGET.clamp(min=0)
    lse = z.logsumexp(-1)
    w_t = w[t] * counts
    smooth = smoothing / x.shape[-1] * (w * (lse[..., None] - z)).sum(-1)
    token = (1 - smoothing) * w_t * (lse - z.gather(-1, t[..., None])[..., 0]) + counts * smooth + w_t * square * lse**2
    token = token if scale is None else token * scale.to(x.dtype)
    return {"none": token, "sum": token.sum(), "mean": token.sum() / w_t.sum()}[reduction]


def divergence(x, reduction="mean"):
    """jsd of beta 0.5 and temperature 1.5."""
    lq, lp = (x / 1.5).log_softmax(-1), (TEACHER.to(x) / 1.5).log_softmax(-1)
    lm = torch.logaddexp(lq, lp) - math.log(2)
    token = 0.5 * (lp.exp() * (lp - lm) + lq.exp() * (lq - lm)).sum(-1) * (TARGET != -100)
    return token if reduction == "none" else token.sum() / (TARGET != -100).sum()


TOP, TOP_IDS = TEACHER.double().log_softmax(-1).topk(3, -1)


def topk_divergence(x, reduction="mean"):
    """kl with the tail, of temperature 1.5."""
    lq, counts = (x / 1.5).log_softmax(-1), TARGET != -100
    inside = lq.gather(-1, TOP_IDS)
    rest, p_rest = lq.scatter(-1, TOP_IDS, -torch.inf).logsumexp(-1), 1 - TOP.exp().sum(-1)
    token = ((TOP.exp() * (TOP - inside)).sum(-1) + p_rest * (p_rest.log() - rest)) * counts
    return token if reduction == "none" else token.sum() / counts.sum()


def topk_divergence_case(reduction):
    options = dict(temperature=1.5, tail=True, reduction=reduction)
    given = lambda x: (TOP.float().to(x.device), TOP_IDS.to(x.device), "kl", TARGET.to(x.device))
    return lambda x: T.topk_divergence(x, *given(x), **options)


def loss_and_entropy(found):
    return found.loss + (0.25 * found.entropy).sum()


def cross_entropy_and_entropy(x):
    counts, log_p = (TARGET != -100).to(x.dtype), x.log_softmax(-1)
    return cross_entropy(x) - 0.25 * (counts[..., None] * log_p.exp() * log_p).sum()


def logprob_and_entropy(x):
    log_p = (3 * torch.tanh(x / 3) / 1.5).log_softmax(-1)
    entropy = -(log_p.exp() * log_p).sum(-1)
    return (TARGET != -100) * (log_p.gather(-1, TARGET.clamp(min=0)[..., None])[..., 0] + 0.25 * entropy)


def logprob_of_one_rank(h, w, b):
    """linear_logprob of a group, whose operators need none; a shard is the vocabulary then."""
    options = 0, True, -100, 3.0, 1.5, True, False, w.shape[0], 0
    logprob, entropy = _LinearLogprobShard(h, w, b, TARGET.to(h.device), 3, True, None, options)
    return logprob + 0.25 * entropy


def log_p_of_targets(x):
    counts, log_p = TARGET != -100, x.log_softmax(-1)
    return counts, log_p, counts * log_p.gather(-1, TARGET.clamp(min=0)[..., None])[..., 0]


def policy_of_head(x):
    counts, log_p, l = log_p_of_targets(x)
    ratio, entropy = torch.exp(l - l.detach()), -(log_p.exp() * log_p).sum(-1)
    return (counts * (-ratio * ADVANTAGE[:, None] - 0.5 * entropy)).sum() / counts.sum()


def preference_of_head(x):
    """Of the chosen sequence and the rejected one, with the NLL of the first."""
    counts, _, l = log_p_of_targets(x)
    return -F.logsigmoid(0.1 * (l[0].sum() - l[1].sum())) - l[0].sum() / counts[0].sum()


def fused(**options):
    return lambda h, w, b: cross_entropy(F.linear(h, w, b), **options)


ORACLE_EVERYTHING = dict(
    smoothing=0.1, square=1e-2, softcap=3.0, temperature=1.5, weight=CLASS_WEIGHT, scale=TOKEN_SCALE
)


def tables(device):
    return ANGLES.cos().to(device), ANGLES.sin().to(device)


def three(device):
    return THREE.cos().to(device), THREE.sin().to(device)


def everything(device):
    options = dict(label_smoothing=0.1, lse_square_scale=1e-2, softcap=3.0, temperature=1.5)
    return options | {"token_scale": TOKEN_SCALE.to(device)}


X, H, V = (2, 5, 33), OnePitch((2, 5, 7)), (2, 5, 9)
W = Parameter((33,))
HEAD = [H, Parameter((9, 7)), Parameter((9,))]
HEADS = [(2, 4, 5, 8), (2, 2, 5, 8)]


CASES = [
    Case("rms_norm", T.rms_norm, rms_norm, [X, W], 2),
    Case("rms_norm_bare", T.rms_norm, rms_norm, [X]),
    Case(
        "rms_norm_gemma",
        lambda x, w: T.rms_norm(x, w, 1e-5, 1.0, "gemma"),
        lambda x, w: rms_norm(x, w, 1e-5, 1.0),
        [X, W],
    ),
    Case("rms_norm_none", lambda x, w: T.rms_norm(x, w, casting="none"), rms_norm, [X, W], 6),
    Case(
        "rms_norm_gate",
        lambda x, w, z: T.rms_norm(x, w, gate=z),
        lambda x, w, z: rms_norm(x, w) * F.silu(z),
        [X, W, X],
        2,
    ),
    Case("rms_norm_gate_bare", lambda x, z: T.rms_norm(x, gate=z), lambda x, z: rms_norm(x) * F.silu(z), [X, X], 2),
    Case("rms_norm_wide", T.rms_norm, rms_norm, [(3, 4099), Parameter((4099,))], 2),
    Case(
        "fused_add_rms_norm",
        lambda x, r, w: T.fused_add_rms_norm(x, r, w, casting="gemma"),
        lambda x, r, w: (rms_norm(x + r, w), x + r),
        [X, X, W],
        3,
    ),
    Case("layer_norm", T.layer_norm, lambda x, w, b: F.layer_norm(x, (33,), w, b), [X, W, W]),
    Case("layer_norm_bare", T.layer_norm, lambda x: F.layer_norm(x, (33,)), [X]),
    Case(
        "group_norm",
        lambda x, w, b: T.group_norm(x, 2, w, b),
        lambda x, w, b: F.group_norm(x, 2, w, b),
        [Parameter((3, 4, 5, 7)), Parameter((4,)), Parameter((4,))],
    ),
    Case(
        "modulated_rms_norm",
        lambda x, scale, shift, w: T.modulated_rms_norm(x, scale, shift, w, casting="gemma"),
        modulated,
        [X, (2, 33), (2, 33), W],
    ),
    Case("swiglu", T.swiglu, lambda a, b: F.silu(a) * b, [X, X]),
    Case("swiglu_limit", lambda a, b: T.swiglu(a, b, 1.25, 0.5, 1.0, 0.75), clamped_swiglu, [X, X]),
    Case("swiglu_packed", T.swiglu_packed, halves(lambda a, b: F.silu(a) * b), [(2, 5, 34)]),
    Case("geglu", T.geglu, lambda a, b: F.gelu(a, approximate="tanh") * b, [X, X]),
    Case("geglu_packed", lambda ab: T.geglu_packed(ab, "none"), halves(lambda a, b: F.gelu(a) * b), [(2, 5, 34)]),
    Case("rope", lambda q, k: T.rope(q, k, *tables(q.device)), rope, [(2, 4, 5, 10), (2, 2, 5, 10)]),
    Case(
        "rope_interleaved",
        lambda q, k: T.rope(q, k, *[t[0] for t in tables(q.device)], interleaved=True),
        rope_interleaved,
        HEADS,
    ),
    Case(
        "rope_complex",
        lambda q, k: T.rope(q, k, torch.polar(torch.ones(()), ANGLES[0, :, :4]).to(q.device), interleaved=True),
        rope_interleaved,
        HEADS,
    ),
    Case(
        "rope_positions",
        lambda q, k: T.rope(q, k, *three(q.device), rotary_dim=8, positions=IDS_OF_AXES[1].to(q.device)),
        lambda q, k: rope(q, k, THREE[IDS_OF_AXES[1]][:, None]),
        [(2, 4, 5, 10), (2, 2, 5, 10)],
    ),
    Case(
        "rope_of_sections",
        lambda q, k: T.rope(
            q, k, *three(q.device), rotary_dim=8, positions=IDS_OF_AXES.to(q.device), sections=(2, 1, 1)
        ),
        multimodal(False),
        [(2, 4, 5, 10), (2, 2, 5, 10)],
    ),
    Case(
        "rope_of_sections_in_turn",
        lambda q, k: T.rope(
            q,
            k,
            *[t[IDS_OF_AXES] for t in three(q.device)],
            rotary_dim=8,
            sections=(2, 1, 1),
            sections_interleaved=True,
        ),
        multimodal(True),
        [(2, 4, 5, 10), (2, 2, 5, 10)],
    ),
    Case("attention", T.attention, attention, HEADS + HEADS[1:], 3),
    Case(
        "attention_window",
        lambda q, k, v: T.attention(q, k, v, scale=0.25, window=3),
        lambda q, k, v: attention(q, k, v, window=3, scale=0.25),
        HEADS + HEADS[1:],
        3,
    ),
    Case(
        "multi_token_attention",
        lambda *t: T.multi_token_attention(*t, padding=(5, 5), stride=(1, 2)),
        lambda *t: multi_token_attention(*t, padding=(5, 5), stride=(1, 2)),
        [(2, 4, 9, 9), Parameter((2, 4, 6, 11)), Parameter((2,))],
    ),
    Case(
        "multi_token_attention_pre",
        lambda *t: T.multi_token_attention(*t, place="pre", padding=2, dilation=(1, 2), groups=2),
        lambda *t: multi_token_attention(*t, place="pre", padding=2, dilation=(1, 2), groups=2),
        [(2, 4, 9, 9), Parameter((6, 2, 3, 3))],
    ),
    Case(
        "mhc_coeffs",
        lambda x, phi, *rest: T.mhc_coeffs(x, 0.25 * phi, *rest, tmax=3, pre_eps=0.125, sinkhorn_eps=0.01),
        lambda x, phi, *rest: mhc_coeffs(x, 0.25 * phi, *rest),
        [(2, 5, 4, 6), Parameter((24, 24)), Parameter((24,)), *[Parameter((1,))] * 3],
        2,
    ),
    Case(
        "mhc_coeffs_pre",
        lambda x, phi, *rest: T.mhc_coeffs_pre(x, 0.25 * phi, *rest, tmax=3, pre_eps=0.125, sinkhorn_eps=0.01),
        lambda x, phi, *rest: mhc_coeffs_pre(x, 0.25 * phi, *rest),
        [(2, 5, 4, 6), Parameter((24, 24)), Parameter((24,)), *[Parameter((1,))] * 3],
        2,
    ),
    Case(
        "mhc_pre",
        lambda x, h: T.mhc_pre(x, h.float()),
        lambda x, h: (h[..., None] * x).sum(-2),
        [(2, 5, 4, 33), (2, 5, 4)],
    ),
    Case(
        "mhc_post_res",
        lambda x, f, h_post, h_res: T.mhc_post_res(x, f, h_post.float(), h_res.float()),
        lambda x, f, h_post, h_res: h_res @ x + h_post[..., None] * f[..., None, :],
        [(2, 5, 4, 33), X, (2, 5, 3), (2, 5, 3, 4)],
    ),
    Case("softmax", lambda x: T.softmax(x, 0.5, MASK.to(x.device), causal=True), softmax, [(2, 5, 7)], 2),
    Case("embedding", lambda w: T.embedding(IDS.to(w.device), w, 3), lambda w: F.embedding(IDS, w, 3), [(9, 33)]),
    Case("linear", T.linear, F.linear, [H, (5, 7), Parameter((5,))]),
    Case("preference_loss", T.preference_loss, lambda x: -F.logsigmoid(0.1 * (x[:5] - x[5:])).mean(), [(10,)]),
    Case(
        "preference_loss_nll",
        lambda x, nll: T.preference_loss(x, nll_logps=nll, nll_counts=COUNTS[:5].to(x.device), nll_weight=0.5),
        lambda x, nll: -F.logsigmoid(0.1 * (x[:5] - x[5:])).mean() - 0.5 * nll.sum() / COUNTS[:5].sum(),
        [(10,), (5,)],
    ),
    Case(
        "preference_loss_outputs",
        lambda x: T.preference_loss(x, kind="kto", labels=(COUNTS % 2).to(x.device), outputs=True).loss,
        lambda x: torch.sigmoid(-0.1 * x * (COUNTS % 2 * 2 - 1)).mean(),
        [(10,)],
    ),
    Case(
        "policy_loss",
        lambda x: T.policy_loss(x, ADVANTAGE.to(x.device)),
        lambda x: -(torch.exp(x - x.detach()) * ADVANTAGE[:, None]).mean(),
        [(2, 5)],
    ),
    Case(
        "policy_loss_outputs",
        lambda x, e: T.policy_loss(x, ADVANTAGE.to(x.device), entropy=e, entropy_weight=0.5, outputs=True).loss,
        lambda x, e: -(torch.exp(x - x.detach()) * ADVANTAGE[:, None]).mean() - 0.5 * e.mean(),
        [(2, 5), (2, 5)],
    ),
    Case("cross_entropy", lambda x: T.cross_entropy(x, TARGET.to(x.device)), cross_entropy, [V]),
    Case(
        "cross_entropy_everything",
        lambda x: T.cross_entropy(x, TARGET.to(x.device), CLASS_WEIGHT.to(x.device), **everything(x.device)),
        lambda x: cross_entropy(x, **ORACLE_EVERYTHING),
        [V],
    ),
    Case(
        "cross_entropy_none",
        lambda x: T.cross_entropy(x, TARGET.to(x.device), reduction="none"),
        lambda x: cross_entropy(x, reduction="none"),
        [V],
    ),
    Case(
        "divergence",
        lambda x: T.divergence(x, TEACHER.to(x), "jsd", TARGET.to(x.device), temperature=1.5),
        divergence,
        [V],
    ),
    Case(
        "divergence_none",
        lambda x: T.divergence(x, TEACHER.to(x), "jsd", TARGET.to(x.device), temperature=1.5, reduction="none"),
        lambda x: divergence(x, "none"),
        [V],
    ),
    Case("topk_divergence", topk_divergence_case("mean"), topk_divergence, [V]),
    Case("topk_divergence_none", topk_divergence_case("none"), lambda x: topk_divergence(x, "none"), [V]),
    Case("cross_entropy_outputs", lambda x: T.cross_entropy_outputs(x, TARGET.to(x.device)).loss, cross_entropy, [V]),
    Case(
        "vocab_parallel_cross_entropy",
        lambda x: T.vocab_parallel_cross_entropy(x, TARGET.to(x.device)),
        cross_entropy,
        [V],
    ),
    Case(
        "cross_entropy_softcap_first",
        lambda x: T.cross_entropy(x, TARGET.to(x.device), softcap=3.0, temperature=1.5, softcap_first=True),
        lambda x: cross_entropy(x, softcap=3.0, temperature=1.5, first=True),
        [V],
    ),
    Case(
        "cross_entropy_entropy",
        lambda x: loss_and_entropy(T.cross_entropy_outputs(x, TARGET.to(x.device))),
        cross_entropy_and_entropy,
        [V],
    ),
    Case(
        "fused_linear_cross_entropy",
        lambda h, w, b: T.fused_linear_cross_entropy(h, w, TARGET.to(h.device), b),
        fused(),
        HEAD,
        5,
    ),
    Case(
        "fused_linear_cross_entropy_everything",
        lambda h, w, b: T.fused_linear_cross_entropy(
            h, w, TARGET.to(h.device), b, CLASS_WEIGHT.to(h.device), reduction="sum", **everything(h.device)
        ),
        fused(reduction="sum", **ORACLE_EVERYTHING),
        HEAD,
        5,
    ),
    Case(
        "linear_logprob",
        lambda h, w, b: T.linear_logprob(h, w, TARGET.to(h.device), b, cache_bytes=40).logprob,
        lambda h, w, b: -cross_entropy(F.linear(h, w, b), reduction="none"),
        HEAD,
        5,
    ),
    Case(
        "linear_logprob_entropy",
        lambda h, w, b: (lambda found: found.logprob + 0.25 * found.entropy)(
            T.linear_logprob(h, w, TARGET.to(h.device), b, softcap=3.0, temperature=1.5, softcap_first=True, entropy=True)
        ),
        lambda h, w, b: logprob_and_entropy(F.linear(h, w, b)),
        HEAD,
        5,
    ),
    Case(
        "linear_logprob_shard",
        lambda h, w, b: logprob_of_one_rank(h, w, b),
        lambda h, w, b: logprob_and_entropy(F.linear(h, w, b)),
        HEAD,
        5,
    ),
    Case(
        "fused_linear_policy",
        lambda h, w, b: T.fused_linear_policy(
            h, w, TARGET.to(h.device), ADVANTAGE.to(h.device), b, kind="bnpo", entropy_weight=0.5
        ),
        lambda h, w, b: policy_of_head(F.linear(h, w, b)),
        HEAD,
        5,
    ),
    Case(
        "fused_linear_preference",
        lambda h, w, b: T.fused_linear_preference(h, w, TARGET.to(h.device), b, nll=True),
        lambda h, w, b: preference_of_head(F.linear(h, w, b)),
        HEAD,
        5,
    ),
    Case(
        "fused_linear_divergence",
        lambda h, w, b: T.fused_linear_divergence(
            *(h, w, TEACHER.to(h), EYE.to(h), b, None, TARGET.to(h.device)),
            **dict(kind="jsd", temperature=1.5, weight_soft=2.0, weight_hard=0.5),
        ),
        lambda h, w, b: (lambda z: 2 * divergence(z) + 0.5 * cross_entropy(z))(F.linear(h, w, b)),
        HEAD,
        5,
    ),
    Case(
        "fused_linear_topk_divergence",
        lambda h, w, b: T.fused_linear_topk_divergence(
            *(h, w, TOP.float().to(h.device), TOP_IDS.to(h.device), b, TARGET.to(h.device)),
            **dict(tail=True, temperature=1.5, weight_soft=2.0, weight_hard=0.5),
        ),
        lambda h, w, b: (lambda z: 2 * topk_divergence(z) + 0.5 * cross_entropy(z))(F.linear(h, w, b)),
        HEAD,
        5,
    ),
    Case(
        "fused_linear_cross_entropy_outputs",
        lambda h, w, b: loss_and_entropy(T.fused_linear_cross_entropy_outputs(h, w, TARGET.to(h.device), b)),
        lambda h, w, b: cross_entropy_and_entropy(F.linear(h, w, b)),
        HEAD,
        5,
    ),
    Case(
        "fused_linear_cross_entropy_none",
        lambda h, w, b: T.fused_linear_cross_entropy(h, w, TARGET.to(h.device), b, reduction="none"),
        fused(reduction="none"),
        HEAD,
        5,
    ),
]
CASES += [Case(*case) for case in moe_cases.CASES]
CASES += [Case(*case) for case in attention_formulas.cases(*HEADS)]
CASES += [Case(*case) for case in mlp_cases.cases(OnePitch)]
# An operator's own file has the case of its bare call.
CASES += [Case(name, getattr(T, name), *reference) for name, reference in REFERENCES.items()]


def make_inputs(case, dtype, layout="contiguous", device="cpu"):
    """Leaves, and the views of them that the operator gets: rows in wider rows, or with the first two dimensions
    turned."""
    generator = torch.Generator().manual_seed(0)
    leaves, views = [], []
    for shape in case.shapes:
        strided = layout != "contiguous" and not isinstance(shape, Parameter)
        if strided and layout == "padded":
            leaf = torch.randn(*shape[:-1], shape[-1] + 3, generator=generator)
            view = lambda t, n=shape[-1]: t[..., 1 : n + 1]
        elif strided and layout == "pitched":  # rows apart, each on 16 bytes still
            leaf = torch.randn(*shape[:-1], shape[-1] + 16, generator=generator)
            view = lambda t, n=shape[-1]: t[..., :n]
        elif strided and len(shape) > 2 and not isinstance(shape, OnePitch):
            leaf = torch.randn(shape[1], shape[0], *shape[2:], generator=generator)
            view = lambda t: t.transpose(0, 1)
        else:
            leaf = torch.randn(*shape, generator=generator)
            view = lambda t: t
        leaves.append(leaf.to(device, dtype).requires_grad_())
        views.append(view)
    return leaves, views


def outputs(f, leaves, views):
    results = f(*[view(leaf) for view, leaf in zip(views, leaves)])
    return results if isinstance(results, tuple) else (results,)


def run(f, leaves, views):
    """Outputs, and gradients for seeded incoming ones."""
    made = outputs(f, leaves, views)
    generator = torch.Generator().manual_seed(1)
    incoming = [torch.randn(y.shape, generator=generator).to(y) for y in made]
    return [y.detach() for y in made], list(torch.autograd.grad(made, leaves, incoming))


def check(name, found, wanted, dtype, roundings):
    """One rounding at the store, `roundings - 1` to the inputs' dtype before it that may be as large as those of the
    largest element, and f32's own error: 64 units of that element."""
    assert found.shape == wanted.shape, name
    unit = torch.finfo(found.dtype).eps / 2
    largest = wanted.abs().max()
    bound = unit * wanted.abs() + (64 * 2**-24 + (roundings - 1) * torch.finfo(dtype).eps / 2) * largest
    if found.dtype == torch.float16:
        bound += 2**-25  # half a denormal
    wrong = ~((found.double() - wanted).abs() <= bound)
    assert not wrong.any(), f"{name}: {found[wrong][:3]} is not {wanted[wrong][:3]}"


def against_oracle(case, dtype, layout, device="cpu"):
    """Forward and backward on `device` against float64 on the CPU, from the same inputs and incoming gradients."""
    leaves, views = make_inputs(case, dtype, layout, device)
    made, gradients = run(case.run, leaves, views)
    exact = [leaf.detach().cpu().double().requires_grad_() for leaf in leaves]
    expected = outputs(case.oracle, exact, views)
    generator = torch.Generator().manual_seed(1)
    incoming = [torch.randn(y.shape, generator=generator).to(y.dtype).double() for y in made]
    wanted = torch.autograd.grad(expected, exact, incoming)
    for i, (found, y) in enumerate(zip(made, expected, strict=True)):
        check(f"output {i}", found.cpu(), y.detach(), dtype, case.roundings)
    for i, (found, gradient) in enumerate(zip(gradients, wanted, strict=True)):
        assert found.dtype == dtype
        check(f"gradient {i}", found.cpu(), gradient, dtype, case.roundings)
