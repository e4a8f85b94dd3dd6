"""What tigon.patch recognises, module by module: by what a module computes, whatever it is called."""

import pytest
import torch
from tiny_models import batch, model
from torch import nn

import tigon


def only(module, list_name="replaced"):
    """The one entry of a report on the module, or None."""
    report = tigon.patch(module)
    assert len(report.replaced) + len(report.left) <= 1
    return next(iter(getattr(report, list_name)), None)


class Norm(nn.Module):
    def __init__(self, compute, weight=True, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(24)) if weight else None
        self.compute, self.tiny_eps = compute, eps

    def forward(self, x):
        return self.compute(x, self.weight, self.tiny_eps)


def unit(x, eps):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)


CONVENTIONS = {
    "Llama": lambda x, w, eps: w * unit(x.float(), eps).to(x.dtype),
    "Gemma": lambda x, w, eps: (unit(x.float(), eps) * (1 + w.float())).to(x.dtype),
    "OLMo 2": lambda x, w, eps: (w * unit(x.float(), eps)).to(x.dtype),
}


class TestRMSNorm:
    @pytest.mark.parametrize("convention", CONVENTIONS)
    def test_convention(self, convention):
        norm = Norm(CONVENTIONS[convention])
        assert only(norm).text == f"{convention}, eps 1e-05"
        x = torch.randn(5, 24)
        torch.testing.assert_close(norm(x), norm.compute(x, norm.weight, 1e-5))

    def test_without_weight(self):
        norm = Norm(lambda x, w, eps: unit(x.float(), eps).to(x.dtype), weight=False)
        assert only(norm).kind == "rms_norm"
        x = torch.randn(5, 24)
        torch.testing.assert_close(norm(x), unit(x, 1e-5))

    def test_torchs_own(self):
        assert only(nn.RMSNorm(24, eps=1e-6)).kind == "rms_norm"
        assert only(nn.RMSNorm(24, eps=1e-6, elementwise_affine=False)).kind == "rms_norm"
        assert "its eps is None" in only(nn.RMSNorm(24), "left").text

    @pytest.mark.parametrize(
        "compute",
        [
            lambda x, w, eps: w * x / (x.pow(2).mean(-1, keepdim=True).sqrt() + eps),
            lambda x, w, eps: w * x * torch.rsqrt(x.pow(2).sum(-1, keepdim=True) + eps),
            lambda x, w, eps: w * unit(x - x.mean(-1, keepdim=True), eps),
            lambda x, w, eps: w * unit(x, 2 * eps),
            lambda x, w, eps: w * unit(x.float(), eps),
            lambda x, w, eps: w * unit(x, eps),
            lambda x, w, eps: (_ for _ in ()).throw(RuntimeError("no")),
        ],
        ids=["eps outside", "sum", "LayerNorm", "another eps", "f32 result", "no casting", "raises"],
    )
    def test_left(self, compute):
        norm = Norm(compute)
        assert only(norm, "left").kind == "rms_norm"
        assert "forward" not in vars(norm)

    def test_works_on_a_meta_device_and_keeps_the_random_state(self):
        with torch.device("meta"):
            norm = Norm(CONVENTIONS["Gemma"])
        state = torch.get_rng_state()
        assert only(norm).text.startswith("Gemma")
        assert torch.equal(torch.get_rng_state(), state)

    def test_rows_that_the_library_does_not_take_run_stock(self):
        norm = Norm(CONVENTIONS["Llama"])
        tigon.patch(norm)
        x = torch.randn(24, 5)
        torch.testing.assert_close(norm(x.T), norm.compute(x.T, norm.weight, 1e-5))


class GatedNorm(Norm):
    def forward(self, x, gate=None):
        return self.compute(x, self.weight, self.tiny_eps, x if gate is None else gate)


def silu(gate):
    return nn.functional.silu(gate.float())


class TestGatedRMSNorm:
    @pytest.mark.parametrize(
        "compute",
        [
            lambda x, w, eps, gate: (w * unit(x.float(), eps).to(x.dtype) * silu(gate)).to(x.dtype),
            lambda x, w, eps, gate: (w * unit(x.float(), eps) * silu(gate)).to(x.dtype),
        ],
        ids=["Qwen3-Next", "one rounding"],
    )
    def test_recognised(self, compute):
        norm = GatedNorm(compute)
        assert only(norm).text == "gated, eps 1e-05"
        x, gate = torch.randn(2, 5, 24), torch.randn(2, 5, 24)
        for args, named in ((x, gate), {}), ((x,), {"gate": gate}), ((x,), {}), ((x, gate[:1]), {}):
            want = GatedNorm.forward(norm, *args, **named)
            torch.testing.assert_close(norm(*args, **named), want)

    @pytest.mark.parametrize(
        "compute",
        [
            lambda x, w, eps, gate: w * unit(x.float() * silu(gate), eps).to(x.dtype),
            lambda x, w, eps, gate: (w * unit(x.float(), eps) * torch.sigmoid(gate.float())).to(x.dtype),
            lambda x, w, eps, gate: w * unit(x.float(), eps).to(x.dtype) * gate,
            lambda x, w, eps, gate: w * unit((x + gate).float(), eps).to(x.dtype),
        ],
        ids=["Mamba-2", "sigmoid", "no activation", "residual"],
    )
    def test_left(self, compute):
        norm = GatedNorm(compute)
        assert only(norm, "left").text.startswith("its forward is none of gated: ")
        assert "forward" not in vars(norm)


class MLP(nn.Module):
    def __init__(self, act, packed=False, names=("gate_proj", "up_proj", "down_proj"), combine=torch.mul):
        super().__init__()
        self.names, self.act, self.combine = names, act, combine
        for name in names[:-1]:
            self.add_module(name, nn.Linear(16, 48 if packed else 24))
        self.add_module(names[-1], nn.Linear(24, 16))

    def forward(self, x):
        into, down = [getattr(self, name)(x) for name in self.names[:-1]], getattr(self, self.names[-1])
        gate, up = into if len(into) == 2 else into[0].chunk(2, -1)
        return down(self.combine(self.act(gate), up))


ACTIVATIONS = {"SiLU": nn.SiLU(), "GELU (tanh)": nn.GELU("tanh"), "GELU (erf)": nn.GELU()}


class TestMLP:
    @pytest.mark.parametrize("packed", [False, True], ids=["separate", "packed"])
    @pytest.mark.parametrize("activation", ACTIVATIONS)
    def test_activation(self, activation, packed):
        names = ("gate_up_proj", "down_proj") if packed else ("gate_proj", "up_proj", "down_proj")
        mlp = MLP(ACTIVATIONS[activation], packed, names)
        assert only(mlp).text == activation + (", packed" if packed else "")
        x = torch.randn(3, 16)
        torch.testing.assert_close(mlp(x), MLP.forward(mlp, x), rtol=1e-5, atol=1e-6)

    def test_names_do_not_matter(self):
        mlp = MLP(nn.SiLU(), names=("w3", "w1", "w2"))
        assert only(mlp).text == "SiLU"
        x = torch.randn(3, 16)
        torch.testing.assert_close(mlp(x), MLP.forward(mlp, x), rtol=1e-5, atol=1e-6)

    @pytest.mark.parametrize("act, combine", [(nn.ReLU(), torch.mul), (nn.SiLU(), torch.add)], ids=["ReLU", "sum"])
    def test_left(self, act, combine):
        assert only(MLP(act, combine=combine), "left").kind == "mlp"

    def test_plain_mlp_is_no_candidate(self):
        class Plain(nn.Module):
            def __init__(self):
                super().__init__()
                self.up, self.act, self.down = nn.Linear(16, 48), nn.GELU(), nn.Linear(48, 16)

            def forward(self, x):
                return self.down(self.act(self.up(x)))

        report = tigon.patch(Plain())
        assert not report.replaced and not report.left

    def test_with_other_parameters_it_is_left(self):
        mlp = MLP(nn.SiLU())
        mlp.scale = nn.Parameter(torch.ones(16))
        assert only(mlp, "left").text == "it has other parameters or buffers: scale"
        mlp.a, mlp.b, mlp.c, mlp.d = (nn.Parameter(torch.ones(1)) for _ in range(4))
        assert only(mlp, "left").text == "it has other parameters or buffers: scale, a, b, 2 more"

    def test_a_layer_is_no_candidate(self):
        class Attention(nn.Module):
            def __init__(self):
                super().__init__()
                self.qkv, self.out = nn.Linear(16, 32), nn.Linear(16, 16)

            def forward(self, x, mask, cos, sin):
                return self.out(self.qkv(x)[..., :16])

        report = tigon.patch(Attention())
        assert not report.replaced and not report.left

    def test_hooks_of_the_projections_run(self):
        mlp = MLP(nn.SiLU())
        tigon.patch(mlp)
        seen = []
        for name in mlp.names:
            getattr(mlp, name).register_forward_hook(lambda module, args, output: seen.append(module))
        mlp(torch.randn(3, 16))
        assert len(seen) == 3


class TestTorchNorms:
    @pytest.mark.parametrize(
        "norm, shape",
        [
            (nn.LayerNorm(24), (5, 24)),
            (nn.LayerNorm(24, bias=False), (5, 24)),
            (nn.LayerNorm(24, elementwise_affine=False), (5, 24)),
            (nn.GroupNorm(4, 24), (2, 24, 7)),
            (nn.GroupNorm(4, 24, affine=False), (2, 24, 3, 5)),
        ],
        ids=str,
    )
    def test_replaced(self, norm, shape):
        x = torch.randn(shape)
        stock = norm(x)
        assert only(norm).kind in ("layer_norm", "group_norm")
        torch.testing.assert_close(norm(x), stock, rtol=1e-5, atol=1e-6)
        assert "forward" in vars(norm)

    def test_several_dimensions_are_left(self):
        assert "2 dimensions" in only(nn.LayerNorm([3, 24]), "left").text


class Quantised(torch.Tensor):
    """Stands for the weights of packages that pack them."""


class Scaled(nn.Embedding):
    def forward(self, ids):
        return super().forward(ids) * self.embedding_dim**0.5


def gradient(embedding, ids, upstream):
    embedding.zero_grad()
    embedding(ids).backward(upstream)
    return embedding.weight.grad


def lookup(out):
    """The node of autograd that looked `out` up."""
    node = out.grad_fn
    while "embedding" not in node.name().lower():
        node = node.next_functions[0][0]
    return node.name()


class TestEmbedding:
    @pytest.mark.parametrize("made, text", [(nn.Embedding, ""), (Scaled, ", in its own forward")])
    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=["f32", "bf16", "f16"])
    def test_replaced(self, made, text, dtype):
        embedding = made(11, 24, padding_idx=-2, dtype=dtype)
        embedding.weight.data[9] = 1  # which is looked up, and has no gradient
        assert only(embedding).text == "11 rows of 24, padding_idx 9" + text
        for shape in ((5,), (2, 30), (2, 1, 3, 1, 2, 1, 2), (2, 0)):
            ids, upstream = torch.randint(11, shape), torch.rand(*shape, 24, dtype=dtype)
            ours = embedding(ids)
            assert torch.equal(ours, made.forward(embedding, ids)) and lookup(ours) == "embeddingBackward"
            stock = made(11, 24, 9, _weight=embedding.weight.detach().double())
            want = gradient(stock, ids, upstream.double())
            assert not want[9].any()
            got, rtol = gradient(embedding, ids, upstream).double(), 4 * torch.finfo(dtype).eps
            torch.testing.assert_close(got, want, rtol=rtol, atol=0)

    @pytest.mark.parametrize("ids", [torch.tensor([[1, 10, 1]]).int(), torch.arange(10).view(2, 5).T], ids=["i32", "T"])
    def test_ids(self, ids):
        embedding = nn.Embedding(11, 24)
        tigon.patch(embedding)
        assert lookup(embedding(ids)) == "embeddingBackward"
        assert torch.equal(embedding(ids), embedding.weight[ids.long()])

    @pytest.mark.parametrize("option", [dict(max_norm=1.0), dict(scale_grad_by_freq=True), dict(sparse=True)], ids=str)
    def test_options_are_left(self, option):
        ((name, value),) = option.items()
        assert only(nn.Embedding(11, 24, **option), "left").text == f"its {name} is {value}, must be left out"
        embedding = nn.Embedding(11, 24)
        tigon.patch(embedding)
        setattr(embedding, name, value)  # later, it is heeded
        assert lookup(embedding(torch.tensor([3]))) != "embeddingBackward"

    def test_subclasses_are_left(self):
        class Gathers(nn.Embedding):
            def forward(self, ids):
                return self.weight[ids]

        class TakesMore(nn.Embedding):
            def forward(self, ids, shape):
                return super().forward(ids.view(shape))

        assert only(Gathers(11, 24), "left").text == "its forward does not call torch.nn.functional.embedding"
        assert "does not run on an id" in only(TakesMore(11, 24), "left").text

    @pytest.mark.parametrize("made", [nn.Embedding, Scaled])
    @pytest.mark.parametrize(
        "where, ids",
        [
            (dict(dtype=torch.float64), torch.tensor([3])),
            (dict(device="meta"), torch.tensor([3], device="meta")),
            (dict(_weight=torch.rand(11, 24).as_subclass(Quantised)), torch.tensor([3])),
            ({}, torch.tensor(3)),
            ({}, torch.ones((1,) * 8, dtype=torch.long)),
        ],
        ids=["f64", "meta", "quantised", "scalar", "8 dimensions"],
    )
    def test_what_tigon_has_no_kernel_for_runs_stock(self, made, where, ids):
        embedding = made(11, 24, **where)
        assert only(embedding).kind == "embedding"
        out = embedding(ids)
        assert out.shape == (*ids.shape, 24) and lookup(out) == "EmbeddingBackward0"

    @pytest.mark.parametrize("made", [nn.Embedding, Scaled])
    def test_wrong_id(self, made):
        embedding = made(11, 24)
        tigon.patch(embedding)
        with pytest.raises(ValueError, match=r"embedding_fwd: idx\[1\] is 11, must be 0 to 10"):
            embedding(torch.tensor([3, 11]))

    @pytest.mark.parametrize("made", [nn.Embedding, Scaled])
    def test_compiled(self, made):
        embedding, ids, upstream, graphs = made(11, 24), torch.tensor([3, 3, 7]), torch.rand(3, 24), []
        tigon.patch(embedding)
        want = gradient(embedding, ids, upstream)

        def backend(graph, inputs):
            graphs.append(str(graph.graph))
            return graph

        compiled = torch.compile(embedding, backend=backend, fullgraph=True)
        assert torch.equal(gradient(compiled, ids, upstream), want)
        assert len(graphs) == 1 and "nn.functional.embedding" not in graphs[0]

    def test_frozen(self):
        embedding = nn.Embedding(11, 24).requires_grad_(False)
        tigon.patch(embedding)
        embedding.register_forward_hook(lambda module, args, output: output.requires_grad_())
        out = embedding(torch.tensor([3]))
        assert out.is_leaf and out.requires_grad


def rotate_half(x):
    return torch.cat([-x[..., x.shape[-1] // 2 :], x[..., : x.shape[-1] // 2]], -1)


def rotate_pairs(x):
    return torch.stack([-x[..., 1::2], x[..., ::2]], -1).flatten(-2)


def turn(q, k, cos, sin, unsqueeze_dim=1):
    cos, sin = cos.unsqueeze(unsqueeze_dim), sin.unsqueeze(unsqueeze_dim)
    return q * cos + rotate_half(q) * sin, k * cos + rotate_half(k) * sin


def turn_pairs(q, k, cos, sin, unsqueeze_dim=1):
    cos, sin = cos.unsqueeze(unsqueeze_dim), sin.unsqueeze(unsqueeze_dim)
    return q * cos + rotate_pairs(q) * sin, k * cos + rotate_pairs(k) * sin


def turn_back(q, k, cos, sin, unsqueeze_dim=1):
    return turn(q, k, cos, -sin, unsqueeze_dim)


def attention(rotary, unsqueeze_dim=1):
    """An attention whose forward calls `rotary` by a global name, as transformers' do."""
    scope = {"rotary": rotary, "dim": unsqueeze_dim}
    exec("def forward(self, q, k, cos, sin):\n    return rotary(q, k, cos, sin, dim)", scope)
    return type("Attention", (nn.Module,), {"forward": scope["forward"]})()


class TestRotary:
    @pytest.mark.parametrize(
        "rotary, repeat, layout",
        [(turn, lambda a: a.repeat(1, 1, 2), "halves"), (turn_pairs, lambda a: a.repeat_interleave(2, -1), "pairs")],
    )
    @pytest.mark.parametrize("unsqueeze_dim", [1, 2])
    def test_layout(self, rotary, repeat, layout, unsqueeze_dim):
        module = attention(rotary, unsqueeze_dim)
        q, k = torch.randn(2, 4, 6, 16), torch.randn(2, 2, 6, 16)
        if unsqueeze_dim == 2:
            q, k = q.transpose(1, 2), k.transpose(1, 2)
        angle = repeat(torch.randn(2, 6, 8))
        stock = module(q, k, angle.cos(), angle.sin())
        assert layout in only(module).text
        ours = module(q.requires_grad_(), k, angle.cos(), angle.sin())
        assert "ropeBackward" in str(ours[0].grad_fn.next_functions) or "ropeBackward" in str(ours[0].grad_fn)
        for mine, theirs in zip(ours, stock):
            torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-6)

    def test_the_other_direction_is_left(self):
        assert "turn_back" not in only(attention(turn_back), "left").text
        assert only(attention(turn_back), "left").kind == "rope"

    def test_a_function_that_the_package_kernels_made_a_module(self):
        class Function(nn.Module):
            def forward(self, q, k, cos, sin, unsqueeze_dim=1):
                return turn(q, k, cos, sin, unsqueeze_dim)

        assert "halves" in only(attention(Function())).text

    def test_global_name_stays_stock(self):
        patched = model("Llama", num_hidden_layers=1)
        scope = type(patched.model.layers[0].self_attn).forward.__globals__
        before = scope["apply_rotary_pos_emb"]
        tigon.patch(patched)
        assert scope["apply_rotary_pos_emb"] is before


class TestHead:
    def test_a_head_that_is_no_linear_is_left(self):
        patched = model("Llama")

        class Mine(nn.Linear):
            def forward(self, x):
                return super().forward(x) * 2

        patched.lm_head = Mine(64, 131, bias=False)
        assert [e.text for e in tigon.patch(patched).left] == ["its lm_head is a Mine, must be a torch.nn.Linear"]

    def test_another_loss_is_left(self):
        patched = model("Llama")
        patched.loss_function = lambda **kwargs: None
        assert "not ForCausalLMLoss" in tigon.patch(patched).left[0].text

    def test_other_work_on_the_logits_is_left(self):
        class Clamped(type(model("Llama"))):
            def forward(self, *args, labels=None, **kwargs):
                logits = super().forward(*args, **kwargs).logits.clamp(-1, 1)
                return type("Output", (), dict(logits=logits, loss=self.loss_function(logits, labels, 131)))

        patched = model("Llama")
        patched.__class__ = Clamped
        (left,) = tigon.patch(patched).left
        assert left.text == "its forward does more to the logits than to scale and to softcap them"

    @pytest.mark.parametrize(
        "family, text",
        [("Gemma2", "softcap 5"), ("Granite", "logits / 4"), ("Cohere", "logits / 16"), ("Llama", "cross_entropy")],
    )
    def test_transform(self, family, text):
        loss = next(e for e in tigon.patch(model(family)).replaced if e.kind == "loss")
        assert loss.text.endswith(text)


def test_a_forward_replaced_by_somebody_else_is_left():
    patched = model("Llama")
    stock = patched.forward
    patched.forward = lambda *args, **kwargs: stock(*args, **kwargs)
    (left,) = tigon.patch(patched).left
    assert left.kind == "loss" and "its forward was replaced before, by" in left.text


def test_hooks_of_accelerate_keep_running():
    from accelerate.hooks import ModelHook, add_hook_to_module

    class Count(ModelHook):
        calls = 0

        def pre_forward(self, module, *args, **kwargs):
            Count.calls += 1
            return args, kwargs

    patched = model("Llama")
    ids, labels = batch()
    loss = patched(ids, labels=labels).loss
    for module in (patched, patched.lm_head, patched.model.norm, patched.model.layers[0].mlp):
        add_hook_to_module(module, Count())
    assert not tigon.patch(patched).left
    outputs = patched(ids, labels=labels)
    assert Count.calls == 4 and outputs.logits is None
    torch.testing.assert_close(outputs.loss, loss, rtol=1e-6, atol=0)
    tigon.unpatch(patched)
    assert torch.equal(patched(ids, labels=labels).loss, loss) and Count.calls == 8
