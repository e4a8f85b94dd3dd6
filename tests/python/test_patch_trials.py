"""What tigon.patch tries before it replaces a module: strangers' modules that look like a part and compute something
else in one mode, for some sizes, in some dtype, in the gradient. Each of them must be left, with the reason."""

import random

import pytest
import torch
from test_patch_structure import CONVENTIONS, MLP, Norm, attention, only, rotate_half, rotate_pairs, turn
from tiny_models import batch, model
from torch import nn

import tigon


def gated(gate, up):
    return nn.functional.silu(gate) * up


class Variant(MLP):
    """A SiLU-gated MLP with a step before its projections, between them, and after the last one."""

    def __init__(self, before=lambda self, x: x, between=lambda self, g, u: gated(g, u), after=lambda self, y: y):
        super().__init__(nn.SiLU())
        self.steps = before, between, after
        self.dropout, self.calls, self.kept = nn.Dropout(0.1), 0, []
        self.register_buffer("total", torch.zeros(()))

    def forward(self, x):
        before, between, after = self.steps
        seen = before(self, x)
        return after(self, self.down_proj(between(self, self.gate_proj(seen), self.up_proj(seen))))


def counted(self, x):
    self.calls += 1
    return x


def kept(self, x):
    self.kept.append(x)
    return x


def summed(self, x):
    self.total.add_(1)
    return x


def in_place(self, x):
    return x.mul_(1)


def in_training(self, y):
    return y * 2 if self.training else y


BEFORE = {
    "scales x": lambda self, x: x * 1.5,
    "normalises x": lambda self, x: x / x.norm(dim=-1, keepdim=True).clamp(min=1e-6),
    "masks by x": lambda self, x: x * (x.abs().sum(-1, keepdim=True) < 100),
    "clamps x": lambda self, x: x.clamp(-200, 200),
    "zeroes tiny x": lambda self, x: torch.where(x.abs() < 1e-4, 0, x),
    "mixes tokens": lambda self, x: x + x.roll(1, -2),
    "mixes a batch": lambda self, x: x - x.mean(0) if x.ndim == 3 else x,
    "rounds bf16": lambda self, x: x * 2 if x.dtype == torch.bfloat16 else x,
    "rounds f16": lambda self, x: x * 2 if x.dtype == torch.float16 else x,
    "detaches x": lambda self, x: x.detach(),
    "changes the gradient of x": lambda self, x: x.detach() + 0.5 * (x - x.detach()),
    "another x with a gradient": lambda self, x: x * 2 if x.requires_grad else x,
    "drops x": lambda self, x: self.dropout(x),
    "counts calls": counted,
    "keeps x": kept,
    "writes into a buffer": summed,
    "writes into x": in_place,
}
BETWEEN = {
    "drops": lambda self, g, u: self.dropout(gated(g, u)),
    "clamps the product": lambda self, g, u: gated(g, u).clamp(-1e3, 1e3),
    "clamps the gate on both sides": lambda self, g, u: gated(g.clamp(-5, 5), u.clamp(-5, 5)),
    "clamps after the activation": lambda self, g, u: nn.functional.silu(g).clamp(max=7) * u.clamp(-7, 7),
    "adds 1 to up": lambda self, g, u: gated(g.clamp(max=7), u.clamp(-7, 7) + 1),
    "cuts tiny values": lambda self, g, u: nn.functional.hardshrink(gated(g, u), 1e-5),
    "scales in training": lambda self, g, u: gated(g, u) * (0.5 if self.training else 1),
    "detaches the gate": lambda self, g, u: nn.functional.silu(g).detach() * u,
    "mixes tokens": lambda self, g, u: gated(g, u.flip(-2)),
}
AFTER = {
    "drops": lambda self, y: self.dropout(y),
    "drops little": lambda self, y: nn.functional.dropout(y, 1e-4, self.training),
    "scales in training": in_training,
    "clamps": lambda self, y: y.clamp(-100, 100),
    "detaches": lambda self, y: y.detach(),
    "gives a tuple": lambda self, y: (y, None),
}
STRANGE = [dict(before=f) for f in BEFORE.values()] + [dict(between=f) for f in BETWEEN.values()]
STRANGE += [dict(after=f) for f in AFTER.values()]


class TestMLP:
    @pytest.mark.parametrize("mode", ["training", "evaluation"])
    @pytest.mark.parametrize("steps", STRANGE, ids=[*BEFORE, *(f"{n} between" for n in BETWEEN), *(f"{n} after" for n in AFTER)])
    def test_strange(self, steps, mode):
        mlp = Variant(**steps).train(mode == "training")
        found = tigon.patch(mlp, verify=False)
        assert [entry.kind for entry in found.left] == ["mlp"] and not found.replaced, found
        assert mlp.training == (mode == "training") and not mlp.calls and not mlp.kept and not mlp.total

    def test_stock_is_replaced(self):
        assert only(Variant()).text == "SiLU"

    @pytest.mark.parametrize("limit", [0.25, 7.0, 10.0, 31.5])
    def test_clamp_is_computed(self, limit):
        mlp = Variant(between=lambda self, g, u: gated(g.clamp(max=limit), u.clamp(-limit, limit)))
        assert only(mlp).text == f"SiLU, clamped to {limit:g}"
        x = (100 * torch.randn(5, 16)).requires_grad_()
        ours, stock = mlp(x), Variant.forward(mlp, x)
        torch.testing.assert_close(ours, stock, rtol=1e-5, atol=1e-5)
        up = torch.randn(5, 16)
        torch.testing.assert_close(*(torch.autograd.grad(y, x, up)[0] for y in (ours, stock)), rtol=1e-4, atol=1e-4)
        assert (MLP.forward(mlp, x) - ours).abs().max() > 1  # the clamp shows

    def test_factors_are_computed(self):
        mlp = Variant(between=lambda self, g, u: gated(g * 0.883883476, u), after=lambda self, y: y * 0.3)
        assert only(mlp).text == "SiLU, gate * 0.883883, output * 0.3"
        x = 10 * torch.randn(5, 16)
        torch.testing.assert_close(mlp(x), Variant.forward(mlp, x), rtol=1e-5, atol=1e-6)

    def test_the_reason_is_said(self):
        text = only(Variant(after=AFTER["drops"]).eval(), "left").text
        assert text.startswith("it is down(SiLU) but for this: its output is not what its last projection gives (in training")

    def test_dropout_of_nothing_is_nothing(self):
        mlp = Variant(after=AFTER["drops"])
        mlp.dropout.p = 0.0
        assert only(mlp).text == "SiLU"

    def test_a_second_of_the_class_is_tried_again(self):
        parts = nn.Sequential(Variant(), Variant(after=AFTER["drops"]), Variant())
        parts[1].dropout.p = 0.5
        report = tigon.patch(parts)
        assert [e.path for e in report.replaced] == ["0", "2"] and [e.path for e in report.left] == ["1"]


class TestExperts:
    @pytest.mark.parametrize("shapes", [((4, 48, 16), (4, 16, 24)), ((4, 24, 16), (4, 16, 24))], ids=["gated", "plain"])
    def test_named_once(self, shapes):
        class Stack(nn.Module):
            def __init__(self, shape):
                super().__init__()
                self.weight = nn.Parameter(torch.rand(shape))

            def forward(self, x):
                return x

        class Experts(nn.Module):
            def __init__(self):
                super().__init__()
                self.a, self.b = map(Stack, shapes)

            def forward(self, x):
                return self.b(self.a(x))

        report = tigon.patch(nn.Sequential(Experts()))
        assert [(e.path, e.kind) for e in report.left] == [("0", "mlp")] and "experts" in report.left[0].text

    def test_lists_of_projections_are_no_mlp(self):
        report = tigon.patch(nn.ModuleList([nn.Linear(16, 24), nn.Linear(16, 24), nn.Linear(24, 16)]))
        assert not report.left and not report.replaced

    def test_packed_with_more_is_named(self):
        class More(MLP):
            def forward(self, x, layer):
                return super().forward(x)

        assert only(More(nn.SiLU(), True, ("gate_up", "down")), "left").text == "its forward takes x, layer"


class Squared(nn.Module):
    def __init__(self, p=0.0, power=2):
        super().__init__()
        self.up_proj, self.down_proj, self.p, self.power = nn.Linear(16, 24), nn.Linear(24, 16), p, power

    def forward(self, x):
        y = torch.relu(self.up_proj(x)) ** self.power
        return self.down_proj(nn.functional.dropout(y, self.p, self.training))


class TestSquared:
    def test_replaced(self):
        mlp = Squared()
        assert only(mlp).text == "ReLU squared"
        x = torch.randn(3, 16, requires_grad=True)
        ours = mlp(x)
        assert "relu_squared" in ours.grad_fn.next_functions[1][0].name()
        torch.testing.assert_close(ours, Squared.forward(mlp, x), rtol=1e-6, atol=1e-7)

    def test_dropout_is_left(self):
        assert "in training mode" in only(Squared(0.1).eval(), "left").text

    def test_another_power_is_no_candidate(self):
        report = tigon.patch(Squared(power=3))
        assert not report.replaced and not report.left


class TestNorms:
    def rms(self, change):
        class Changed(Norm):
            def forward(self, x):
                return change(self, x, super().forward)

        return Changed(CONVENTIONS["Llama"])

    @pytest.mark.parametrize(
        "change",
        [
            lambda self, x, f: nn.functional.dropout(f(x), 0.1, self.training),
            lambda self, x, f: f(x) * 1.01 if self.training else f(x),
            lambda self, x, f: f(x.clamp(-1e3, 1e3)),
            lambda self, x, f: f(torch.where(x.abs() < 1e-4, 0, x)),
            lambda self, x, f: f(x) if x.ndim < 4 else f(x.transpose(1, 2)).transpose(1, 2) * 2,
            lambda self, x, f: f(x) if x.ndim < 3 else f(x).flip(-2),
            lambda self, x, f: f(x.detach()),
            lambda self, x, f: f(x) * 2 if x.dtype == torch.float16 else f(x),
            lambda self, x, f: vars(self).__setitem__("calls", 1) or f(x),
        ],
        ids=["drops", "training", "large x", "tiny x", "4 dimensions", "tokens", "gradient", "f16", "state"],
    )
    @pytest.mark.parametrize("training", [False, True])
    def test_strange(self, change, training):
        norm = self.rms(change).train(training)
        report = tigon.patch(norm, verify=False)
        assert [e.kind for e in report.left] == ["rms_norm"] and not report.replaced
        assert "calls" not in vars(norm)

    @pytest.mark.parametrize("convention", CONVENTIONS)
    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
    def test_dtype_of_a_wider_weight(self, convention, dtype):
        """A weight of f32 promotes the rows in one convention, and not in the others."""
        norm, x = Norm(CONVENTIONS[convention]), torch.randn(5, 24).to(dtype)
        assert only(norm).kind == "rms_norm"
        want = Norm.forward(norm, x)
        assert norm(x).dtype == want.dtype == (torch.float32 if convention == "Llama" else dtype)
        torch.testing.assert_close(norm(x), want, rtol=torch.finfo(dtype).eps, atol=0)

    def test_eps_is_read_at_the_call(self):
        norm, x = Norm(CONVENTIONS["Llama"]), torch.randn(5, 24)
        tigon.patch(norm)
        norm.tiny_eps = 0.5
        torch.testing.assert_close(norm(x), Norm.forward(norm, x))

    @pytest.mark.parametrize("norm", [nn.LayerNorm(24), nn.GroupNorm(4, 24), nn.RMSNorm(24, eps=1e-6)], ids=str)
    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
    def test_autocast(self, norm, dtype):
        x = torch.randn(5, 24).to(dtype)
        assert only(norm).kind
        with torch.autocast("cpu", torch.bfloat16):
            assert norm(x).dtype == type(norm).forward(norm, x).dtype

    def test_patched_under_autocast_and_other_defaults(self):
        torch.set_default_dtype(torch.bfloat16)
        try:
            with torch.autocast("cpu", torch.bfloat16), torch.inference_mode():
                assert only(Norm(CONVENTIONS["Gemma"])).text == "Gemma, eps 1e-05"
            assert torch.get_default_dtype() == torch.bfloat16
        finally:
            torch.set_default_dtype(torch.float32)


class Layer(nn.Module):
    """A LayerNorm of a class of its own: without bias, or with 1 + weight."""

    def __init__(self, plus=0.0, bias=False, after=lambda self, y: y):
        super().__init__()
        self.weight, self.eps, self.plus, self.after = nn.Parameter(torch.rand(24)), 1e-5, plus, after
        self.bias = nn.Parameter(torch.rand(24)) if bias else None

    def forward(self, x):
        y = nn.functional.layer_norm(x, (24,), self.weight + self.plus, self.bias, self.eps)
        return self.after(self, y)


class TestLayerNorm:
    @pytest.mark.parametrize("bias", [False, True])
    @pytest.mark.parametrize("plus", [0.0, 1.0])
    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
    def test_replaced(self, plus, bias, dtype):
        norm = Layer(plus, bias).to(dtype)
        assert only(norm).text == ("LayerNorm, 1 + weight" if plus else "LayerNorm") + ", eps 1e-05"
        x = (3 + torch.randn(2, 5, 24)).to(dtype).requires_grad_()
        ours, stock = norm(x), Layer.forward(norm, x)
        assert "LayerNormBackward0" not in ours.grad_fn.name()
        torch.testing.assert_close(ours, stock, rtol=torch.finfo(dtype).eps * 8, atol=1e-6)

    @pytest.mark.parametrize("plus", [0.5, 2.0])
    def test_another_offset_is_left(self, plus):
        assert only(Layer(plus), "left")

    def test_dropout_is_left(self):
        norm = Layer(after=lambda self, y: nn.functional.dropout(y, 0.1, self.training)).eval()
        assert not tigon.patch(norm).replaced

    def test_subclasses_of_torchs(self):
        class Mine(nn.LayerNorm):
            def forward(self, x):
                return super().forward(x) * (2 if self.training else 1)

        class Groups(nn.GroupNorm):
            def forward(self, x):
                return super().forward(x) * 2

        assert "in training mode" in only(Mine(24).eval(), "left").text
        assert only(Groups(4, 24), "left").text == "its forward is Groups's own, must be torch.nn.GroupNorm's"


def one(x, cos, sin, unsqueeze_dim=1):
    return x * cos.unsqueeze(unsqueeze_dim) + rotate_half(x) * sin.unsqueeze(unsqueeze_dim)


def last(x, cos, sin, unsqueeze_dim=1):
    cos, sin = (t.repeat_interleave(2, -1).unsqueeze(unsqueeze_dim) for t in (cos, sin))
    keep, turning = x[..., : -cos.shape[-1]], x[..., -cos.shape[-1] :]
    return torch.cat([keep, turning * cos + rotate_pairs(turning) * sin], -1)


def vision(q, k, cos, sin):
    cos, sin = cos.unsqueeze(-2).float(), sin.unsqueeze(-2).float()
    return tuple((x.float() * cos + rotate_half(x.float()) * sin).to(x.dtype) for x in (q, k))


def complexes(xq, xk, freqs_cis):
    turned = (torch.view_as_complex(x.float().unflatten(-1, (-1, 2))) * freqs_cis[:, :, None] for x in (xq, xk))
    return tuple(torch.view_as_real(x).flatten(3).type_as(xq) for x in turned)


def calls(function, *names):
    """An attention whose forward calls the function with these arguments."""
    scope = {"rotary": function}
    exec(f"def forward(self, {', '.join(names)}):\n    return rotary({', '.join(names)})", scope)
    return type("Attention", (nn.Module,), {"forward": scope["forward"]})()


def both(module, *arguments):
    """(ours, stock) as tuples, and whether ours is Tigon's."""
    stock = type(module).forward(module, *arguments)
    ours = module(*arguments)
    name = str(ours[0].grad_fn if isinstance(ours, tuple) else ours.grad_fn)
    ours, stock = (x if isinstance(x, tuple) else (x,) for x in (ours, stock))
    nodes, tigons = [x.grad_fn for x in ours], "_RoPE" in name
    for _ in range(4):
        nodes = [n for node in nodes if node is not None for n, _ in node.next_functions]
        tigons = tigons or "_RoPE" in str(nodes)
    return ours, stock, tigons


def heads(*shape, dtype=torch.float32):
    return torch.randn(shape).to(dtype).requires_grad_()


class TestRope:
    def same(self, module, *arguments):
        assert only(module).kind == "rope"
        ours, stock, tigons = both(module, *arguments)
        assert tigons and len(ours) == len(stock)
        for mine, theirs in zip(ours, stock):
            assert mine.dtype == theirs.dtype
            eps = torch.finfo(mine.dtype).eps
            torch.testing.assert_close(mine, theirs, rtol=8 * eps, atol=8 * eps)

    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
    def test_one_tensor(self, dtype):
        angle = torch.randn(2, 6, 8).repeat(1, 1, 2)
        self.same(calls(one, "x", "cos", "sin"), heads(2, 3, 6, 16, dtype=dtype), angle.cos().to(dtype), angle.sin().to(dtype))
        scope = calls(one, "x", "cos", "sin", "unsqueeze_dim")
        self.same(scope, heads(2, 6, 3, 16, dtype=dtype), angle.cos().to(dtype), angle.sin().to(dtype), 2)

    @pytest.mark.parametrize("width", [16, 24])
    def test_the_last_of_a_head(self, width):
        angle = torch.randn(2, 6, 8)
        self.same(calls(last, "x", "cos", "sin"), heads(2, 3, 6, width), angle.cos(), angle.sin())

    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
    def test_vision(self, dtype):
        angle = torch.randn(6, 8).repeat(1, 2)
        q, k = heads(6, 3, 16, dtype=dtype), heads(6, 3, 16, dtype=dtype)
        self.same(calls(vision, "q", "k", "cos", "sin"), q, k, angle.cos(), angle.sin())

    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
    def test_complex(self, dtype):
        table = torch.polar(torch.rand(2, 6, 8) + 0.5, torch.randn(2, 6, 8))
        q, k = heads(2, 6, 3, 16, dtype=dtype), heads(2, 6, 1, 16, dtype=dtype)
        self.same(calls(complexes, "xq", "xk", "freqs_cis"), q, k, table)

    def test_tables_of_f32_give_f32(self):
        """What autocast makes of an attention: heads of bf16, tables of f32."""
        angle = torch.randn(2, 6, 8).repeat(1, 1, 2)
        q, k = heads(2, 4, 6, 16, dtype=torch.bfloat16), heads(2, 2, 6, 16, dtype=torch.bfloat16)
        self.same(attention(turn), q, k, angle.cos(), angle.sin())

    @pytest.mark.parametrize(
        "strange",
        [
            lambda q, k, cos, sin, unsqueeze_dim=1: turn(q, k.detach(), cos, sin, unsqueeze_dim),
            lambda q, k, cos, sin, unsqueeze_dim=1: turn(q.clamp(-100, 100), k, cos, sin, unsqueeze_dim),
            lambda q, k, cos, sin, unsqueeze_dim=1: turn(q, k, cos, sin.flip(0), unsqueeze_dim),
            lambda q, k, cos, sin, unsqueeze_dim=1: turn(q, k * 2, cos, sin, unsqueeze_dim),
        ],
        ids=["detaches k", "clamps q", "other tables", "scales k"],
    )
    def test_strange(self, strange):
        assert only(attention(strange), "left").kind == "rope"

    def test_what_was_not_tried_runs_stock(self):
        """unsqueeze_dim that the function ignores, tables longer than the tokens, heads wider than the tables."""

        def ignores(q, k, cos, sin, unsqueeze_dim=1):
            return turn(q, k, cos, sin, 1)

        angle = torch.randn(2, 6, 8).repeat(1, 1, 2)
        module = attention(ignores, 2)
        tigon.patch(module)
        q, k = heads(2, 4, 6, 16), heads(2, 2, 6, 16)
        ours, stock, tigons = both(module, q, k, angle.cos(), angle.sin())
        assert all(map(torch.allclose, ours, stock))
        module = attention(turn)
        tigon.patch(module)
        with pytest.raises(RuntimeError, match="must match the size"):
            module(q[:, :, :5], k[:, :, :5], angle.cos(), angle.sin())
        table = angle.cos().requires_grad_()
        assert not both(module, q, k, table, angle.sin())[2]

    def test_the_last_elements_are_not_the_first(self):
        """Both agree where all of a head turns."""

        def turn_last(q, k, cos, sin, unsqueeze_dim=1):
            wide = cos.shape[-1]
            turned = turn(q[..., -wide:], k[..., -wide:], cos, sin, unsqueeze_dim)
            return tuple(torch.cat([x[..., :-wide], y], -1) for x, y in zip((q, k), turned))

        angle = torch.randn(2, 6, 4).repeat(1, 1, 2)
        self.same(attention(turn_last), heads(2, 4, 6, 16), heads(2, 2, 6, 16), angle.cos(), angle.sin())

    def test_keys_may_be_missing(self):
        def rotary(q, k=None, cos=None, sin=None, unsqueeze_dim=1):
            turned = turn(q, q if k is None else k, cos, sin, unsqueeze_dim)
            return turned[0] if k is None else turned

        scope = {"rotary": rotary}
        exec("def forward(self, q, cos, sin):\n    return rotary(q, cos=cos, sin=sin, unsqueeze_dim=1)", scope)
        module, angle = type("Attention", (nn.Module,), {"forward": scope["forward"]})(), torch.randn(2, 6, 16)
        assert only(module).kind == "rope"
        q = heads(2, 3, 6, 16)
        assert torch.equal(module(q, angle.cos(), angle.sin()), turn(q, q, angle.cos(), angle.sin())[0])

    def test_other_arguments_are_said(self):
        def rotary(tensor, sin, cos):
            return tensor * cos + sin

        assert only(calls(rotary, "tensor", "sin", "cos"), "left").text == "rotary takes tensor, sin, cos"


class TestEmbedding:
    def test_noise_of_a_hook_stays(self):
        """NEFTune adds noise in a forward hook."""
        embedding, ids = nn.Embedding(11, 24), torch.tensor([3, 4])
        embedding.register_forward_hook(lambda module, args, out: out + 1 if module.training else out)
        tigon.patch(embedding)
        assert torch.equal(embedding(ids), embedding.weight[ids] + 1)
        assert torch.equal(embedding.eval()(ids), embedding.weight[ids])

    def test_trial_leaves_no_trace(self):
        class Counts(nn.Embedding):
            calls = 0

            def forward(self, ids):
                self.calls += 1
                return super().forward(ids)

        embedding = Counts(11, 24)
        assert only(embedding, "left").text == "its forward adds attributes to it"
        assert embedding.calls == 0


def with_forward(change, **config):
    """A tiny Llama whose forward is `change(self, hidden, labels)`."""
    made = model("Llama", **config)

    class Mine(type(made)):
        def forward(self, input_ids=None, labels=None, **kwargs):
            return change(self, self.model(input_ids=input_ids, **kwargs)[0], labels)

    made.__class__ = Mine
    return made


def outputs(self, logits, labels, extra=0.0, **kwargs):
    from transformers.modeling_outputs import CausalLMOutputWithPast

    loss = None if labels is None else self.loss_function(logits, labels, self.config.vocab_size, **kwargs)
    return CausalLMOutputWithPast(loss=loss if loss is None else loss + extra, logits=logits)


class TestHead:
    @pytest.mark.parametrize(
        "change, text",
        [
            (lambda self, h, y: outputs(self, self.lm_head(h) * (2 if self.training else 1), y), "in training mode"),
            (lambda self, h, y: outputs(self, (z := self.lm_head(h)), y, 1e-3 * z.logsumexp(-1).mean()), "more than its loss"),
            (
                lambda self, h, y: outputs(self, (z := self.lm_head(h)), y, 1e-3 * z.detach().logsumexp(-1).mean()),
                "more than its loss",
            ),
            (lambda self, h, y: outputs(self, self.lm_head(h), y, ignore_index=7), "gives its loss ignore_index"),
            (lambda self, h, y: outputs(self, self.lm_head(h)[..., :130], y), "shape of the logits"),
            (lambda self, h, y: outputs(self, self.lm_head(h) * torch.arange(1, h.shape[1] + 1)[:, None], y), "more to the logits"),
            (lambda self, h, y: outputs(self, self.lm_head(h) + h.sum(-1, keepdim=True), y), "more to the logits"),
            (lambda self, h, y: outputs(self, self.lm_head(h).bfloat16().float(), y), "more to the logits"),
        ],
        ids=["mode", "z-loss", "z-loss without gradient", "ignore_index", "slice", "position", "hidden", "rounding"],
    )
    def test_strange(self, change, text):
        patched = with_forward(change).eval()
        (left,) = tigon.patch(patched, verify=False).left
        assert left.kind == "loss" and text in left.text

    def test_stock_forward_of_another_class_is_replaced(self):
        patched = with_forward(lambda self, h, y: outputs(self, self.lm_head(h), y))
        assert tigon.patch(patched).counts()["loss"] == 1

    def test_shape_of_the_logits_may_be_read(self):
        patched = with_forward(lambda self, h, y: outputs(self, (z := self.lm_head(h)), y, 0 * z.shape[-1]))
        ids, labels = batch()
        stock = patched(ids, labels=labels)
        assert tigon.patch(patched).counts()["loss"] == 1
        torch.testing.assert_close(patched(ids, labels=labels).loss, stock.loss, rtol=1e-6, atol=0)

    @pytest.mark.parametrize("scale", [1.0, 0.25])
    def test_head_of_a_model_inside(self, scale):
        """The outer model makes the loss of the inner one's logits: both are one head, the outer model's."""
        inner = model("Llama")

        class Outer(type(inner)):
            def __init__(self, config):
                super().__init__(config)
                self.language_model = inner
                del self.model, self.lm_head

            def get_output_embeddings(self):
                return self.language_model.get_output_embeddings()

            def get_input_embeddings(self):
                return self.language_model.get_input_embeddings()

            def forward(self, input_ids=None, labels=None, **kwargs):
                return outputs(self, self.language_model(input_ids=input_ids, **kwargs)[0] * scale, labels)

        outer = Outer(inner.config).train()
        ids, labels = batch()
        stock = outer(ids, labels=labels)
        report = tigon.patch(outer)
        assert [(e.path, e.kind) for e in (*report.replaced, *report.left) if e.kind == "loss"] == [("", "loss")]
        ours = outer(ids, labels=labels)
        assert ours.logits is None
        torch.testing.assert_close(ours.loss, stock.loss, rtol=1e-6, atol=0)
        assert inner(ids, labels=labels).logits is not None

    def test_loss_of_a_model_inside(self):
        """The inner model makes the loss."""
        inner = model("Llama")

        class Outer(type(inner)):
            def __init__(self, config):
                super().__init__(config)
                self.language_model = inner
                del self.model, self.lm_head

            def get_output_embeddings(self):
                return self.language_model.get_output_embeddings()

            def forward(self, input_ids=None, labels=None, **kwargs):
                return self.language_model(input_ids=input_ids, labels=labels, **kwargs)

        outer = Outer(inner.config).train()
        report = tigon.patch(outer)
        assert [e.path for e in report.replaced if e.kind == "loss"] == ["language_model"]
        ids, labels = batch()
        assert outer(ids, labels=labels).logits is None


class Counts(nn.Module):
    """A stranger that notices being called."""

    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return x


class TestVerify:
    """After the trials each replaced module is compared with its own forward."""

    def beyond_the_trials(self):
        return Variant(after=lambda self, y: y * 1.001 if y.shape[:2] == (2, 2) else y)

    def test_what_differs_is_put_back(self):
        mlp = self.beyond_the_trials()
        left = only(mlp, "left")
        assert left.text.startswith("verified in evaluation mode, it is ") and "from stock, must be" in left.text
        assert "forward" not in vars(mlp)
        assert tigon.patch(mlp, verify=False).counts() == dict(mlp=1)

    def test_of_ropes(self):
        def wide(q, k, cos, sin, unsqueeze_dim=1):
            q, k = turn(q, k, cos, sin, unsqueeze_dim)
            return (q * 1.001, k) if q.shape[-1] == 64 else (q, k)

        assert "from stock" in only(attention(wide), "left").text

    def test_of_the_head(self):
        def change(self, hidden, labels):
            logits = self.lm_head(hidden)
            return outputs(self, logits * 2 if hidden.dtype == torch.bfloat16 else logits, labels)

        patched = with_forward(change).bfloat16()
        (left,) = tigon.patch(patched).left
        assert left.kind == "loss" and left.text.startswith("verified in evaluation mode")
        assert "loss" not in tigon.patch(patched, loss=False).counts() and "forward" not in vars(patched.lm_head)

    def test_leaves_no_trace(self):
        patched = model("Gemma3")
        patched.model.norm.register_forward_hook(lambda *_: seen.append(1))
        patched.model.layers[0].mlp.up_proj.register_forward_pre_hook(lambda *_: seen.append(1))
        patched.lm_head.register_forward_hook(lambda *_: seen.append(1))
        seen, ids = [], batch()[0]
        patched(ids, labels=ids).loss.backward()
        seen.clear()
        patched.model.layers[1].eval()
        before = [(n, p.clone(), p.grad.clone(), p._version) for n, p in patched.named_parameters()]
        buffers = [(n, b.clone(), b._version) for n, b in patched.named_buffers()]
        modes = [m.training for m in patched.modules()]
        state, pythons = torch.get_rng_state(), random.getstate()
        assert tigon.patch(patched).counts()["loss"] == 1
        assert torch.equal(torch.get_rng_state(), state) and random.getstate() == pythons
        assert modes == [m.training for m in patched.modules()] and not seen
        for (_, value, grad, version), p in zip(before, patched.parameters()):
            assert torch.equal(p, value) and torch.equal(p.grad, grad) and p._version == version
        for (_, value, version), b in zip(buffers, patched.buffers()):
            assert torch.equal(b, value) and b._version == version

    def test_what_has_no_weights_is_named(self):
        with torch.device("meta"):
            parts = nn.Sequential(Norm(CONVENTIONS["Llama"]), MLP(nn.SiLU()))
        report = tigon.patch(parts)
        assert [str(entry.text) for entry in report.unverified] == [
            "its weight is on the device meta",
            "its gate_proj.weight is on the device meta",
        ]
        assert len(report.replaced) == 2 and "not verified 2:" in str(report)
        assert not tigon.patch(parts, verify=False).unverified

    def test_quantised_weights_are_named(self):
        mlp = MLP(nn.SiLU())
        mlp.up_proj.weight = nn.Parameter(torch.zeros(24, 16, dtype=torch.int8), requires_grad=False)
        (entry,) = tigon.patch(mlp).unverified
        assert entry.text == "its up_proj.weight is a Parameter of int8"
