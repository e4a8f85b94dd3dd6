"""What tigon.patch tries before it replaces a module: strangers' modules that look like a part and compute something
else in one mode, for some sizes, in some dtype, in the gradient. Each of them must be left, with the reason."""

import pytest
import torch
import transformers
from test_patch_structure import CONVENTIONS, MLP, Norm, only
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
        if before is summed:
            self.register_buffer("total", torch.zeros(()))

    def forward(self, x):
        before, between, after = self.steps
        seen = before(self, x)
        return after(self, self.down_proj(between(self, self.gate_proj(seen), self.up_proj(seen))))


class Dropping(nn.Linear):
    def forward(self, x):
        return nn.functional.dropout(super().forward(x), 0.1, self.training)


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
    @pytest.mark.parametrize(
        "steps", STRANGE, ids=[*BEFORE, *(f"{n} between" for n in BETWEEN), *(f"{n} after" for n in AFTER)]
    )
    def test_strange(self, steps, mode):
        mlp = Variant(**steps).train(mode == "training")
        found = tigon.patch(mlp, verify=False)
        assert [entry.kind for entry in found.left] == ["mlp"] and not found.replaced, found
        assert not any(buffer.any() for buffer in mlp.buffers())
        assert mlp.training == (mode == "training") and not mlp.calls and not mlp.kept

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
        assert text.startswith(
            "it is down(SiLU) but for this: its output is not what its last projection gives (in training"
        )

    def test_dropout_of_nothing_is_nothing(self):
        mlp = Variant(after=AFTER["drops"])
        mlp.dropout.p = 0.0
        assert only(mlp).text == "SiLU"

    def test_buffers_are_left(self):
        """What is loaded into them after the patch would be lost."""
        mlp = Variant(after=lambda self, y: y * (1 + self.total))
        mlp.register_buffer("total", torch.zeros(()))
        assert only(mlp, "left").text == "it has other parameters or buffers: total"

    def test_random_projections_draw_in_stocks_order(self):
        """As adapters do, whose dropout is in training mode."""

        class UpFirst(Variant):
            def forward(self, x):
                up = self.up_proj(x)
                return self.down_proj(gated(self.gate_proj(x), up))

        mlp = UpFirst()
        for name in mlp.names:
            getattr(mlp, name).__class__ = Dropping
        assert only(mlp).text == "SiLU"
        x = torch.randn(3, 16)
        torch.manual_seed(3)
        ours = mlp(x)
        torch.manual_seed(3)
        torch.testing.assert_close(ours, UpFirst.forward(mlp, x), rtol=1e-5, atol=1e-6)

    def test_a_second_of_the_class_is_tried_again(self):
        parts = nn.Sequential(Variant(), Variant(after=AFTER["drops"]), Variant())
        parts[1].dropout.p = 0.5
        report = tigon.patch(parts)
        assert [e.path for e in report.replaced] == ["0", "2"] and [e.path for e in report.left] == ["1"]


class TestExperts:
    @pytest.mark.parametrize(
        "shapes",
        [((4, 48, 16), (4, 16, 24)), ((4, 24, 16), (4, 16, 24)), ((6, 48, 16), (4, 16, 24))],
        ids=["gated", "plain", "some"],
    )
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
        assert [(e.path, e.kind) for e in report.left] == [("0", "experts")] and "experts" in report.left[0].text

    def test_matrices_of_all_experts(self):
        class Flat(nn.Module):
            def __init__(self):
                super().__init__()
                self.a, self.b, self.c = (nn.Parameter(torch.rand(96, 16)) for _ in range(3))

            def forward(self, x, a, b, c):
                return x

        assert "experts" in only(Flat(), "left").text

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

    @pytest.mark.parametrize("convention", CONVENTIONS)
    def test_autocast_of_conventions(self, convention):
        """Nothing in them depends on autocast, so all of them are Tigon's there."""
        norm, x = Norm(CONVENTIONS[convention]).bfloat16(), torch.randn(5, 24).bfloat16().requires_grad_()
        tigon.patch(norm)
        with torch.autocast("cpu", torch.bfloat16):
            assert "rms_norm" in norm(x).grad_fn.name()
            assert norm(x).dtype == Norm.forward(norm, x).dtype

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


FOUND = dict(hidden_size=64, intermediate_size=96, num_hidden_layers=1, num_attention_heads=4, vocab_size=256)


class TestFamilies:
    """Modules of transformers that were once replaced by something else."""

    def test_dropout_in_evaluation_mode(self):
        config = transformers.SeedOssConfig(**FOUND, num_key_value_heads=2, head_dim=16)
        patched = transformers.SeedOssForCausalLM(config).eval()
        report = tigon.patch(patched)
        assert "mlp" not in report.counts() and "mlp" in [e.kind for e in report.left]
        mlp, x = patched.train().model.layers[0].mlp, torch.randn(1, 4, 64)
        assert (mlp(x) == 0).any() and not (mlp.eval()(x) == 0).any()

    def test_clamp(self):
        from transformers.models.deepseek_v4.modeling_deepseek_v4 import DeepseekV4MLP

        mlp = DeepseekV4MLP(transformers.DeepseekV4Config(hidden_size=64, intermediate_size=96))
        assert only(mlp).text == "SiLU, clamped to 10"
        x = 60 * torch.randn(4, 64)
        torch.testing.assert_close(mlp(x), DeepseekV4MLP.forward(mlp, x), rtol=1e-5, atol=1e-4)


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
