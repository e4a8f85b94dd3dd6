"""tigon.torch.nn and .optim beside torch's own."""

import copy

import pytest
import torch

from tigon.torch import nn, optim

h, ids = torch.randn(2, 5, 32), torch.randint(0, 9, (2, 5))

PAIRS = {
    "RMSNorm": (nn.RMSNorm(32), torch.nn.RMSNorm(32, eps=1e-6), (h,)),
    "RMSNorm_bare": (nn.RMSNorm(32, elementwise_affine=False), torch.nn.RMSNorm(32, 1e-6, False), (h,)),
    "LayerNorm": (nn.LayerNorm(32), torch.nn.LayerNorm(32), (h,)),
    "LayerNorm_no_bias": (nn.LayerNorm(32, bias=False), torch.nn.LayerNorm(32, bias=False), (h,)),
    "GroupNorm": (nn.GroupNorm(1, 5), torch.nn.GroupNorm(1, 5), (h,)),
    "Embedding": (nn.Embedding(9, 4, padding_idx=-1), torch.nn.Embedding(9, 4, padding_idx=-1), (ids,)),
}


@pytest.mark.parametrize("mine, torchs, inputs", PAIRS.values(), ids=PAIRS)
def test_like_torch(mine, torchs, inputs):
    mine.load_state_dict(torchs.state_dict())
    y, wanted = mine(*inputs), torchs(*inputs)
    torch.testing.assert_close(y, wanted)
    g = torch.randn_like(y)
    if mine.state_dict():
        a = torch.autograd.grad(y, list(mine.parameters()), g)
        for found, gradient in zip(a, torch.autograd.grad(wanted, list(torchs.parameters()), g), strict=True):
            torch.testing.assert_close(found, gradient)


def test_gates():
    gate, up = h.chunk(2, -1)
    for module, activation in ((nn.SwiGLU(), torch.nn.SiLU()), (nn.GEGLU(), torch.nn.GELU("tanh"))):
        torch.testing.assert_close(module(gate, up), activation(gate) * up)
        assert torch.equal(module(h), module(gate, up))
    torch.testing.assert_close(nn.ReLUSquared()(h), h.relu().square())


def test_losses():
    weight, target = torch.rand(9), ids.flatten()
    head, flat = torch.randn(9, 32), h.flatten(0, 1)
    wanted = torch.nn.CrossEntropyLoss(weight, label_smoothing=0.1)(flat @ head.t(), target)
    torch.testing.assert_close(nn.CrossEntropyLoss(weight, label_smoothing=0.1)(flat @ head.t(), target), wanted)
    fused = nn.FusedLinearCrossEntropyLoss(weight, label_smoothing=0.1)
    torch.testing.assert_close(fused(flat, head, target), wanted)
    logs = (flat @ head.t() / 0.5).log_softmax(-1)
    found = nn.LinearLogprob(temperature=0.5, entropy=True)(flat, head, target)
    torch.testing.assert_close(found.logprob, logs.gather(-1, target[:, None]).squeeze(-1))
    torch.testing.assert_close(found.entropy, -(logs.exp() * logs).sum(-1))


def test_gemma_norm_starts_as_the_identity():
    norm = nn.RMSNorm(32, offset=1.0, casting="gemma")
    assert torch.equal(norm.weight, torch.zeros(32))
    torch.testing.assert_close(norm(h), torch.nn.functional.rms_norm(h, (32,), eps=1e-6))


def test_what_a_module_refuses():
    with pytest.raises(ValueError, match="^LayerNorm: normalized_shape has 2 dimensions, must have 1$"):
        nn.LayerNorm((5, 32))
    with pytest.raises(NotImplementedError, match="^Embedding: sparse is True, must be left out$"):
        nn.Embedding(9, 4, sparse=True)


# ---- AdamW ----


def train(make, params, steps, clip=None, resume=None):
    """Steps with seeded gradients, the last tensor's missing each third time; with `resume` by way of a state_dict."""
    generator = torch.Generator().manual_seed(0)
    optimizer = make(params)
    for step in range(steps):
        for i, p in enumerate(params):
            p.grad = torch.randn(p.shape, generator=generator).to(p)
            if i == len(params) - 1 and step % 3 == 2:
                p.grad = None
        if clip:
            clip()
        optimizer.step()
        if step == resume:
            state = copy.deepcopy(optimizer.state_dict())
            optimizer = make(params)
            optimizer.load_state_dict(state)
    return optimizer


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])
@pytest.mark.parametrize("max_norm", [None, 1.0])
def test_adamw(dtype, max_norm):
    mine = [torch.randn(*shape).to(dtype).requires_grad_() for shape in ((7, 5), (3,), (2, 2, 2))]
    exact = [p.detach().double().requires_grad_() for p in mine]
    options = dict(lr=1e-2, betas=(0.8, 0.95), weight_decay=0.1)
    found = train(lambda ps: optim.AdamW(ps, max_norm=max_norm, **options), mine, 12, resume=5)

    def as_ours():
        """The gradients as the operator gets them, rounded; then clipped."""
        for q in exact:
            q.grad = q.grad if q.grad is None else q.grad.to(dtype).double()
        if max_norm:
            torch.nn.utils.clip_grad_norm_(exact, max_norm)

    train(lambda ps: torch.optim.AdamW(ps, **options), exact, 12, clip=as_ours)
    for p, q in zip(mine, exact):
        master = found.state[p].get("master", p)
        torch.testing.assert_close(master.double(), q.detach(), rtol=1e-5, atol=1e-6)
        assert torch.equal(p, master.to(dtype))
    if max_norm:
        assert found.grad_norm > max_norm


def test_adamw_takes_over_from_torch():
    """Either loads the other's state: the names and the step are the same."""
    a = torch.randn(4, 4).requires_grad_()
    first = train(lambda ps: torch.optim.AdamW(ps), [a], 3)
    b = a.detach().clone().requires_grad_()
    second = optim.AdamW([b])
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    a.grad = b.grad = torch.randn(4, 4)
    first.step(), second.step()
    torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-7)


def test_adamw_writes_nothing_on_an_error():
    p = torch.ones(4, requires_grad=True)
    p.grad = torch.ones(4)
    before = p.detach().clone()
    optimizer = optim.AdamW([p])
    optimizer.param_groups[0]["lr"] = -1.0
    with pytest.raises(ValueError, match=r"^adamw_step: lr is -1, must be 0 to "):
        optimizer.step()
    assert torch.equal(p, before)
