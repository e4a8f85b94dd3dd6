"""tigon.patch on experts that no family has: what it finds, and what it leaves and why."""

import pytest
import torch
from tiny_models import FAMILIES, batch, model
from torch import nn

import tigon


class Experts(nn.Module):
    """Stacked experts with one thing or another about them."""

    def __init__(self, act=nn.functional.silu, turned=False, turns=False, bias=False, limit=None, offset=0.0, after=1.0):
        super().__init__()
        torch.manual_seed(0)
        shapes = ((5, 24, 48), (5, 24, 24)) if turned else ((5, 48, 24), (5, 24, 24))
        self.into, self.out = (nn.Parameter(torch.randn(shape) / 5) for shape in shapes)
        if bias:
            self.into_bias, self.out_bias = nn.Parameter(torch.randn(5, 48)), nn.Parameter(torch.randn(5, 24))
        self.act, self.turned, self.turns, self.limit, self.offset, self.after = act, turned, turns, limit, offset, after

    def gate(self, pre):
        gate, up = (pre[..., ::2], pre[..., 1::2]) if self.turns else pre.chunk(2, -1)
        if self.limit is not None:
            gate, up = gate.clamp(max=self.limit), up.clamp(-self.limit, self.limit)
        return self.act(gate) * (up + self.offset)

    def forward(self, states, chosen, share):
        y = torch.zeros_like(states)
        for expert in range(len(self.into)):
            token, choice = torch.where(chosen == expert)
            into, out = self.into[expert], self.out[expert]
            pre = states[token] @ (into if self.turned else into.T)
            pre = pre + self.into_bias[expert] if hasattr(self, "into_bias") else pre
            z = self.gate(pre) @ (out if self.turned else out.T)
            z = z + self.out_bias[expert] if hasattr(self, "out_bias") else z
            y = y.index_add(0, token, (z * share[token, choice, None] * self.after).to(y.dtype))
        return y


def gelu_tanh(x):
    return nn.functional.gelu(x, approximate="tanh")


def swish(x):
    return x * torch.sigmoid(1.702 * x)


FOUND = {
    "silu": (dict(), "experts with SiLU"),
    "gelu": (dict(act=gelu_tanh), "experts with GELU (tanh)"),
    "turned": (dict(turned=True, bias=True), "experts with SiLU"),
    "turns": (dict(turns=True), "experts with SiLU, interleaved"),
    "limit": (dict(limit=2.0), "experts with SiLU, limit 2"),
    "gpt-oss": (
        dict(act=swish, turned=True, turns=True, bias=True, limit=7.0, offset=1.0),
        "experts with SiLU, gate_multiplier 1.702, down_multiplier 0.587544, up_offset 1, limit 7, interleaved",
    ),
}


def inputs(dtype=torch.float32):
    numbers = torch.Generator().manual_seed(3)
    x, share = torch.randn(30, 24, generator=numbers), torch.rand(30, 2, generator=numbers)
    return x.to(dtype), torch.rand(30, 5, generator=numbers).argsort(-1)[:, :2], share.to(dtype)


@pytest.mark.parametrize("name", FOUND)
def test_found(name):
    options, text = FOUND[name]
    experts = Experts(**options)
    report = tigon.patch(nn.Sequential(experts))
    assert [(entry.kind, entry.text) for entry in report.replaced] == [("experts", text)] and not report.unverified
    given = [t.requires_grad_() if t.is_floating_point() else t for t in inputs()]
    leaves = [given[0], given[2], *experts.parameters()]
    found, wanted = experts(*given), Experts.forward(experts, *given)
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)
    upstream = torch.randn(wanted.shape, generator=torch.Generator().manual_seed(4))
    for mine, own in zip(*(torch.autograd.grad(y, leaves, upstream) for y in (found, wanted))):
        torch.testing.assert_close(mine, own, rtol=1e-4, atol=1e-4 * own.abs().max().item())


LEFT = {
    "relu": (dict(act=torch.relu), "its forward is not the sum of weight * down"),
    "erf": (dict(act=nn.functional.gelu), "its forward is not the sum of weight * down"),
    "scaled": (dict(after=2.0), None),  # which is a factor of c
}


@pytest.mark.parametrize("name", LEFT)
def test_left(name):
    options, text = LEFT[name]
    report = tigon.patch(nn.Sequential(Experts(**options)))
    if text is None:
        assert report.replaced[0].text == "experts with SiLU, down_multiplier 2"
    else:
        assert report.left[0].kind == "experts" and report.left[0].text.startswith(text)


class Noisy(Experts):
    def forward(self, states, chosen, share):
        return super().forward(states, chosen, share) * (1 + 0.1 * torch.rand(()) * self.training)


class ThirdExpertApart(Experts):
    def forward(self, states, chosen, share):
        return super().forward(states, chosen, share) + (chosen == 2).any(-1, keepdim=True)


class FourArguments(Experts):
    def forward(self, states, chosen, share, more=None):
        return super().forward(states, chosen, share)


@pytest.mark.parametrize("kind", [Noisy, ThirdExpertApart, FourArguments])
def test_others_are_left(kind):
    report = tigon.patch(nn.Sequential(kind()))
    assert not report.replaced and report.left[0].kind == "experts"


def test_runs_stock_where_dtypes_differ():
    experts = Experts()
    tigon.patch(nn.Sequential(experts))
    x, chosen, share = inputs(torch.float64)
    with pytest.raises(RuntimeError):  # torch's own, of f64 rows and f32 weights
        experts(x, chosen, share)


def test_arguments_by_name():
    experts = Experts()
    x, chosen, share = inputs()
    stock = experts(x, chosen, share)
    tigon.patch(nn.Sequential(experts))
    torch.testing.assert_close(experts(share=share, states=x, chosen=chosen), stock, rtol=1e-5, atol=1e-5)


def test_autocast_gives_the_rows_dtype():
    experts = Experts()
    given = inputs()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        stock = experts(*given)
    tigon.patch(nn.Sequential(experts))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = experts(*given)
    assert found.dtype == stock.dtype
    torch.testing.assert_close(found, stock, rtol=0.05, atol=0.05 * stock.abs().max().item())


@pytest.mark.parametrize("family", ["Qwen3-MoE", "gpt-oss"])
def test_compiles_as_one_graph(family):
    """The experts alone: routers of transformers may break a graph."""
    patched = model(family)
    tigon.patch(patched)
    experts = next(m for name, m in patched.named_modules() if name.endswith("experts"))
    x = torch.randn(12, 64)
    given = x, torch.arange(24).view(12, 2) % 4, torch.rand(12, 2)
    torch._dynamo.reset()
    compiled = torch.compile(experts.forward, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(*given), experts(*given))


def test_switched_off():
    patched = model("Mixtral")
    report = tigon.patch(patched, experts=False)
    counts = {kind: count for kind, count in FAMILIES["Mixtral"][2].items() if kind != "experts"}
    assert report.counts() == counts and not report.left


def test_keeps_less_than_stock():
    """Of a step, the numbers that autograd holds."""
    patched = model("Qwen3-MoE")
    ids, labels = batch()

    def held():
        sizes = {}
        keep = lambda t: sizes.setdefault(t.untyped_storage().data_ptr(), t.untyped_storage().nbytes()) and t
        experts = [m for name, m in patched.named_modules() if name.endswith("experts")]
        given = torch.randn(48, 64), torch.arange(96).view(48, 2) % 4, torch.rand(48, 2)
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda t: t):
            experts[0](*[t.requires_grad_() if t.is_floating_point() else t for t in given])
        return sum(sizes.values())

    stock = held()
    tigon.patch(patched)
    assert held() < stock
    assert patched(input_ids=ids, labels=labels).loss.isfinite()
