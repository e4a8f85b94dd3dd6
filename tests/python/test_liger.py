"""tigon.compat.liger: Liger's names, with the arguments in its order, give what torch gives."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from tigon.compat import liger
from tigon.compat.liger import ops
from tigon.torch.operators import REFERENCES

CONFIG = SimpleNamespace(hidden_size=16, intermediate_size=24, hidden_act="silu", mlp_multipliers=(0.5, 2.0))


sparsemax, attn_res = REFERENCES["sparsemax"].plain, REFERENCES["attn_res"].plain


def unit(x, eps):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)


def close(ours, theirs):
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


class TestFunctions:
    x, w, b = torch.randn(6, 16), torch.rand(16), torch.rand(16)

    def test_norms(self):
        x, w, b = self.x, self.w, self.b
        close(liger.liger_rms_norm(x, w, 1e-5, 1.0, "gemma", False), unit(x, 1e-5) * (1 + w))
        y, summed = liger.liger_fused_add_rms_norm(x, 2 * x, w, 1e-5)
        close(summed, 3 * x)
        close(y, unit(3 * x, 1e-5) * w)
        close(liger.liger_modulated_rms_norm(x, w, b, 2 * b, 1e-5), (1 + b) * unit(x, 1e-5) * w + 2 * b)
        close(liger.liger_layer_norm(x, w, b, 1e-5), nn.functional.layer_norm(x, (16,), w, b, 1e-5))
        image = torch.randn(2, 16, 5)
        close(liger.liger_group_norm(image, w, b, 16, 4, 1e-5), nn.functional.group_norm(image, 4, w, b, 1e-5))

    def test_activations(self):
        a, b = self.x, self.x.flip(0)
        close(liger.liger_swiglu(a, b), nn.functional.silu(a) * b)
        close(liger.liger_geglu(a, b), nn.functional.gelu(a, approximate="tanh") * b)
        close(liger.liger_relu_squared(a), a.relu() ** 2)
        close(liger.liger_softmax(a), a.softmax(-1))
        close(liger.liger_sparsemax(a, 0), sparsemax(a.t()).t())
        blocks, w, b = torch.stack([a, b, a - b]), torch.rand(16), torch.rand(16)
        close(liger.liger_attn_res(list(blocks), w, b, 1e-6), attn_res(blocks, w, b))

    @pytest.mark.parametrize("unsqueeze_dim", [1, 2])
    def test_rope(self, unsqueeze_dim):
        from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

        q, k = torch.randn(2, 4, 4, 8), torch.randn(2, 4, 4, 8)
        angle = torch.randn(2, 4, 4).repeat(1, 1, 2)
        want = apply_rotary_pos_emb(q, k, angle.cos(), angle.sin(), unsqueeze_dim=unsqueeze_dim)
        for ours, theirs in zip(liger.liger_rotary_pos_emb(q, k, angle.cos(), angle.sin(), None, unsqueeze_dim), want):
            close(ours, theirs)

    @pytest.mark.parametrize("vision", [False, True])
    def test_rope_of_llama4(self, vision):
        from transformers.models.llama4 import modeling_llama4

        q, k = torch.randn(2, 5, 4, 8), torch.randn(2, 5, 2, 8)
        turn = torch.polar(torch.ones(2, 5, 4), torch.randn(2, 5, 4))
        if vision:
            turn = turn[0].unsqueeze(1)  # [T, 1, D / 2], as the model holds it
            want = modeling_llama4.vision_apply_rotary_emb(q, k, turn)
            got = liger.liger_llama4_vision_rotary_pos_emb(q, k, turn)
        else:
            want = modeling_llama4.apply_rotary_emb(q, k, turn)
            got = liger.liger_llama4_text_rotary_pos_emb(q, k, turn)
        for ours, theirs in zip(got, want):
            close(ours, theirs)
        with pytest.raises(AssertionError, match="freqs_cis.dtype is float32, must be complex"):
            liger.liger_llama4_text_rotary_pos_emb(q, k, turn.real)

    def test_rope_of_llama4_in_a_file(self):
        file = SimpleNamespace()
        liger.apply_liger_llama4_rope_full(file)
        assert file.apply_rotary_emb is liger.liger_llama4_text_rotary_pos_emb
        assert file.vision_apply_rotary_emb is liger.liger_llama4_vision_rotary_pos_emb
        assert liger.transformers.is_transformers_available()

    def test_rope_of_three_axes(self):
        """Each pair of a head turns by the angle of its section's axis: 1 pair of time, 1 of height, 2 of width."""
        q, k, angle = torch.randn(2, 3, 5, 8), torch.randn(2, 1, 5, 8), torch.randn(3, 2, 5, 4)
        table = torch.cat([angle, angle], -1)
        chosen = torch.stack([angle[0, ..., 0], angle[1, ..., 1], angle[2, ..., 2], angle[2, ..., 3]], -1).unsqueeze(1)
        got = liger.liger_multimodal_rotary_pos_emb(q, k, table.cos(), table.sin(), [1, 1, 2])
        for x, turned in zip((q, k), got):
            want = torch.view_as_complex(torch.stack(x.chunk(2, -1), -1)) * torch.polar(torch.ones(()), chosen)
            close(turned, torch.cat([want.real, want.imag], -1))

    def test_rope_of_gpt_oss_and_of_images(self):
        q, k, angle = torch.randn(5, 3, 8), torch.randn(5, 2, 8), torch.randn(5, 4)
        for x, turned in zip(
            (q, k), liger.liger_rotary_pos_emb_vision(q, k, angle.repeat(1, 2).cos(), angle.repeat(1, 2).sin())
        ):
            want = torch.view_as_complex(torch.stack(x.chunk(2, -1), -1)) * torch.polar(
                torch.ones(()), angle.unsqueeze(1)
            )
            close(turned, torch.cat([want.real, want.imag], -1))
            heads = x.transpose(0, 1).unsqueeze(0)
            table = angle.unsqueeze(0)
            close(
                liger.liger_rotary_pos_emb_gpt_oss(heads, heads, table.cos(), table.sin())[0][0].transpose(0, 1), turned
            )

    def test_rope_of_a_part_of_each_head(self):
        q, k, angle = torch.randn(1, 3, 5, 8), torch.randn(1, 2, 5, 8), torch.randn(1, 5, 2).repeat(1, 1, 2)
        turned, _ = liger.liger_rope(q, k, angle.cos(), angle.sin())
        close(turned[..., :4], liger.liger_rope(q[..., :4], k[..., :4], angle.cos(), angle.sin())[0])
        assert torch.equal(turned[..., 4:], q[..., 4:])


class TestAutogradFunctions:
    """Liger's `<name>Function.apply`, in its order, with its outputs and gradients."""

    def test_in_order(self):
        torch.manual_seed(0)
        x, y, w, b = torch.randn(6, 16), torch.randn(6, 16), torch.rand(16), torch.rand(16)
        image, table, ids = torch.randn(2, 16, 5), torch.randn(9, 16), torch.tensor([[1, 8]])
        silu, gelu = nn.functional.silu, lambda t: nn.functional.gelu(t, approximate="tanh")
        cases = [
            (ops.LigerRMSNormFunction, (x, w, 1e-5, 1.0, "gemma", False, True), unit(x, 1e-5) * (1 + w)),
            (
                ops.LigerFusedAddRMSNormFunction,
                (x, y, w, 1e-5, 1.0, "gemma", True),
                (unit(x + y, 1e-5) * (1 + w), x + y),
            ),
            (
                ops.LigerModulatedRMSNormFunction,
                (x, w, b, 2 * b, 1e-5, 1.0, "gemma", True),
                (1 + b) * unit(x, 1e-5) * (1 + w) + 2 * b,
            ),
            (ops.LigerLayerNormFunction, (x, w, b, 1e-5), nn.functional.layer_norm(x, (16,), w, b)),
            (ops.LigerGroupNormFunction, (image, w, b, 16, 4, 1e-5), nn.functional.group_norm(image, 4, w, b)),
            (ops.LigerSiLUMulFunction, (x, y, 0.5, 2), 2 * silu(0.5 * x) * y),
            (ops.LigerFusedGateUpSiLUMulFunction, (torch.cat([x, y], -1), True), silu(x) * y),
            (ops.LigerGELUMulFunction, (x, y), gelu(x) * y),
            (ops.LigerReLUSquaredFunction, (x,), x.relu() ** 2),
            (ops.LigerSoftmaxFunction, (x,), x.softmax(-1)),
            (ops.LigerSparsemaxFunction, (x, -1), sparsemax(x)),
            (ops.LigerAttnResFunction, (torch.stack([x, y]), w, b, 1e-6), attn_res(torch.stack([x, y]), w, b)),
            (ops.LigerEmbeddingFunction, (table, ids), table[ids]),
        ]
        for function, arguments, want in cases:
            got = function.apply(*arguments)
            assert type(got) is type(want)
            for ours, theirs in zip(got, want) if isinstance(got, tuple) else [(got, want)]:
                close(ours, theirs)

    @pytest.mark.parametrize("mode, name", [(0, "llama"), (1, "gemma"), (-1, "none")])
    def test_casting_by_number(self, mode, name):
        x, w = torch.randn(4, 16).bfloat16(), torch.rand(16).bfloat16()
        run = ops.LigerRMSNormFunction.apply
        assert torch.equal(run(x, w, 1e-6, 0.0, mode), run(x, w, 1e-6, 0.0, name))
        with pytest.raises(AssertionError, match="casting is 'gpt', must be"):
            run(x, w, 1e-6, 0.0, "gpt")

    @pytest.mark.parametrize("x_dtype", [torch.float32, torch.bfloat16, torch.float16])
    @pytest.mark.parametrize("w_dtype", [torch.float32, torch.bfloat16, torch.float16])
    def test_dtypes(self, x_dtype, w_dtype):
        """The output has the dtype of x and a parameter's gradient that of the parameter, whichever they are."""
        torch.manual_seed(0)
        x = torch.randn(4, 16).to(x_dtype)
        w, b = (torch.rand(16).to(w_dtype).requires_grad_() for _ in range(2))
        X, W, B = x.double(), w.detach().double(), b.detach().double()
        for y, want in (
            (ops.LigerRMSNormFunction.apply(x, w, 1e-5), unit(X, 1e-5) * W),
            (ops.LigerFusedAddRMSNormFunction.apply(x, x, w, 1e-5)[0], unit(2 * X, 1e-5) * W),
            (ops.LigerModulatedRMSNormFunction.apply(x, None, w, b, 1e-5), (1 + W) * unit(X, 1e-5) + B),
            (ops.LigerLayerNormFunction.apply(x, w, b, 1e-5), nn.functional.layer_norm(X, (16,)) * W + B),
            (
                ops.LigerGroupNormFunction.apply(x.view(1, 16, 4), w, b, 16, 4, 1e-5),
                nn.functional.group_norm(X.view(1, 16, 4), 4) * W[:, None] + B[:, None],
            ),
        ):
            assert y.dtype == x_dtype
            bound = {torch.float32: 1e-5, torch.bfloat16: 2**-6, torch.float16: 2**-9}[x_dtype]
            torch.testing.assert_close(y.double(), want, rtol=bound, atol=bound)
            (gradient,) = torch.autograd.grad(y.float().sum(), [w])
            assert gradient.dtype == w_dtype and gradient.any()


class TestModules:
    x = torch.randn(6, 16)

    @pytest.mark.parametrize(
        "module, want",
        [
            (liger.LigerRMSNorm(16), lambda x: unit(x, 1e-6)),
            (liger.LigerRMSNorm(16, elementwise_affine=False), lambda x: unit(x, 1e-6)),
            (liger.LigerRMSNormForGemma(16), lambda x: unit(x, 1e-6)),
            (liger.LigerRMSNormForGemma3(dim=16, eps=1e-3), lambda x: unit(x, 1e-3)),
            (liger.LigerRMSNormForGemma4(16), lambda x: unit(x, 1e-6)),
            (liger.LigerRMSNormForMuseGlimmer(with_scale=False), lambda x: unit(x, 1e-6)),
            (liger.LigerLayerNorm(16), lambda x: nn.functional.layer_norm(x, (16,), eps=1e-6)),
            (liger.LigerReLUSquared(), lambda x: x.relu() ** 2),
            (liger.LigerSoftmax(), lambda x: x.softmax(-1)),
            (liger.LigerSparsemax(), sparsemax),
        ],
        ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else "",
    )
    def test_unary(self, module, want):
        close(module(self.x), want(self.x))

    def test_group_norm(self):
        image = torch.randn(2, 16, 5)
        close(liger.LigerGroupNorm(16, 4)(image), nn.functional.group_norm(image, 4, eps=1e-6))

    def test_norms_of_two(self):
        y, summed = liger.LigerFusedAddRMSNorm(16)(self.x, self.x)
        close(summed, 2 * self.x)
        close(y, unit(2 * self.x, 1e-6))
        close(liger.LigerModulatedRMSNorm(16)(self.x, self.x[0]), (1 + self.x[0]) * unit(self.x, 1e-6))

    def test_embedding(self):
        embedding, ids = liger.LigerEmbedding(11, 16, 3), torch.tensor([[1, 3, 10]])
        embedding.weight.data[3] = 1
        want = embedding.weight[ids] * torch.tensor([1, 0, 1])[:, None]
        close(embedding(ids), want)
        (gradient,) = torch.autograd.grad(embedding(ids).sum(), embedding.weight)
        assert gradient.sum(1).tolist() == [16.0 * (row in (1, 10)) for row in range(11)]

    def test_mlps(self):
        x, silu = self.x, nn.functional.silu
        mlp = liger.LigerSwiGLUMLP(CONFIG, intermediate_size=8)
        close(mlp(x), mlp.down_proj(silu(mlp.gate_proj(x)) * mlp.up_proj(x)))
        mlp = liger.LigerGEGLUMLP(CONFIG)
        close(mlp(x), mlp.down_proj(nn.functional.gelu(mlp.gate_proj(x), approximate="tanh") * mlp.up_proj(x)))
        mlp = liger.LigerPhi3SwiGLUMLP(CONFIG)
        gate, up = mlp.gate_up_proj(x).chunk(2, -1)
        close(mlp(x), mlp.down_proj(silu(gate) * up))
        mlp = liger.LigerBlockSparseTop2MLP(CONFIG)
        close(mlp(x), mlp.w2(silu(mlp.w1(x)) * mlp.w3(x)))
        mlp = liger.LigerFalconH1SwiGLUMLP(CONFIG)
        close(mlp(x), mlp.down_proj(2.0 * silu(0.5 * mlp.gate_proj(x)) * mlp.up_proj(x)))
        mlp = liger.LigerFalconH1MLP(CONFIG)
        close(mlp(x), mlp.down_proj(2.0 * silu(0.5 * mlp.gate_proj(x)) * mlp.up_proj(x)))
        with pytest.raises(ValueError, match="LigerFalconH1MLP: config.mlp_bias is True, must be False"):
            liger.LigerFalconH1MLP(SimpleNamespace(**vars(CONFIG) | dict(mlp_bias=True)))
        for kind in (liger.LigerMLP, liger.LigerTiledSwiGLUMLP):
            mlp = kind(CONFIG)
            close(mlp(x), mlp.down_proj(silu(mlp.gate_proj(x)) * mlp.up_proj(x)))
        mlp = liger.LigerTiledGEGLUMLP(SimpleNamespace(**vars(CONFIG) | dict(hidden_act="gelu")), num_shards=3)
        close(mlp(x), mlp.down_proj(nn.functional.gelu(mlp.gate_proj(x), approximate="tanh") * mlp.up_proj(x)))
        with pytest.raises(ValueError, match="LigerTiledGEGLUMLP requires GELU activation, got silu"):
            liger.LigerTiledGEGLUMLP(CONFIG)
        with pytest.raises(ValueError, match="Activation function relu not supported"):
            liger.LigerSwiGLUMLP(SimpleNamespace(**vars(CONFIG) | dict(hidden_act="relu")))

    @pytest.mark.parametrize("shards", [None, 1, 4, 9])
    def test_tiled_function(self, shards):
        """Each parameter's gradient comes once, the sum over all shards."""
        stock, tiled = nn.Linear(4, 4), nn.Linear(4, 4)
        tiled.load_state_dict(stock.state_dict())
        came = []
        tiled.weight.register_post_accumulate_grad_hook(came.append)
        x = torch.randn(2, 5, 4, requires_grad=True)
        y = ops.apply_tiled_mlp(lambda module, rows: module(rows).relu(), tiled, x, shards)
        (dx,) = torch.autograd.grad(stock(x).relu().square().sum() + 0 * x.sum(), x)
        y.square().sum().backward()
        stock(x.detach()).relu().square().sum().backward()
        close(x.grad, dx)
        close(tiled.weight.grad, stock.weight.grad)
        close(tiled.bias.grad, stock.bias.grad)
        assert len(came) == 1

    def test_mlps_of_one_family(self):
        x = self.x
        mlp = liger.LigerHunyuanV1SwiGLUMLP(CONFIG, layer_idx=3, is_shared_mlp=True)
        assert mlp.layer_idx == 3
        close(mlp(x), liger.LigerSwiGLUMLP.forward(mlp, x))
        renamed = SimpleNamespace(hidden_size=16, intermediate_size=24, hidden_activation="silu")
        assert liger.LigerSwiGLUMLPForMuseGlimmer(renamed)(x).shape == x.shape
        shared = SimpleNamespace(**vars(CONFIG), use_double_wide_mlp=True, num_hidden_layers=4, num_kv_shared_layers=2)
        widths = [liger.LigerGEGLUMLPForGemma4(shared, layer).gate_proj.out_features for layer in (None, 1, 2, 3)]
        assert widths == [24, 24, 48, 48]

    def test_attributes(self):
        norm = liger.LigerRMSNorm(16, 1e-3, 1.0, "gemma", "zeros", False, True, False)
        assert (norm.variance_epsilon, norm.offset, norm.casting_mode) == (1e-3, 1.0, "gemma")
        assert (norm.in_place, norm.row_mode, norm.elementwise_affine, norm.weight) == (False, True, False, None)
        assert liger.LigerRMSNorm(16).in_place and not liger.LigerRMSNormForGemma2(16).in_place
        assert liger.LigerRMSNormForGemma(16).in_place and not liger.LigerRMSNormForOlmo2(16).in_place
        unscaled = liger.LigerRMSNormForGemma4(16, with_scale=False)
        assert unscaled.with_scale is False and unscaled.weight is None
        assert liger.LigerFusedAddRMSNorm(16, in_place=True).in_place
        assert liger.LigerModulatedRMSNorm(16, elementwise_affine=False).elementwise_affine is False
        layer = liger.LigerLayerNorm(16, 1e-3, impl="nvidia-triton", mode="x")
        assert (layer.eps, layer.variance_epsilon, layer.impl, layer.mode) == (1e-3, 1e-3, "nvidia-triton", "x")
        assert liger.LigerLayerNorm(16, backend="cutile").impl == "cutile"
        assert liger.LigerGroupNorm(16, 4, 1e-3).eps == 1e-3
        embedding = liger.LigerEmbedding(11, 16, 3)
        assert (embedding.num_embeddings, embedding.embedding_dim, embedding.padding_idx) == (11, 16, 3)

    @pytest.mark.parametrize("kind", [AssertionError, ValueError])
    def test_refused_at_construction(self, kind):
        for norm in (liger.LigerRMSNorm, liger.LigerFusedAddRMSNorm, liger.LigerModulatedRMSNorm, liger.LigerLayerNorm):
            with pytest.raises(kind, match="init_fn is 'twos', must be 'ones' or 'zeros'"):
                norm(16, init_fn="twos")
        with pytest.raises(kind, match="init_fn is 'twos', must be 'ones' or 'zeros'"):
            liger.LigerRMSNorm(16, init_fn="twos", elementwise_affine=False)
        with pytest.raises(kind, match=r"num_channels is 16, must be a multiple of 5 \(num_groups\)"):
            liger.LigerGroupNorm(16, 5)
        norm = liger.LigerGroupNorm(16, 4)
        with pytest.raises(kind, match="hidden_states.ndim is 2, must be 3 or more"):
            norm(torch.randn(2, 16))
        with pytest.raises(kind, match=r"hidden_states.shape\[1\] is 8, must be 16 \(num_channels\)"):
            norm(torch.randn(2, 8, 3))
