"""tigon.compat.liger: Liger's names, with the arguments in its order, give what torch gives."""

import inspect
from types import SimpleNamespace

import pytest
import torch
import transformers
from tiny_models import FAMILIES, batch, config, model
from torch import nn

import tigon
from tigon.compat import liger

CONFIG = SimpleNamespace(hidden_size=16, intermediate_size=24, hidden_act="silu", mlp_multipliers=(0.5, 2.0))


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

    @pytest.mark.parametrize("unsqueeze_dim", [1, 2])
    def test_rope(self, unsqueeze_dim):
        from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

        q, k = torch.randn(2, 4, 4, 8), torch.randn(2, 4, 4, 8)
        angle = torch.randn(2, 4, 4).repeat(1, 1, 2)
        want = apply_rotary_pos_emb(q, k, angle.cos(), angle.sin(), unsqueeze_dim=unsqueeze_dim)
        for ours, theirs in zip(liger.liger_rotary_pos_emb(q, k, angle.cos(), angle.sin(), None, unsqueeze_dim), want):
            close(ours, theirs)

    @pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
    def test_cross_entropy(self, reduction):
        target = torch.tensor([3, -100, 0, 15, 7, -100])
        options = dict(weight=self.w, reduction=reduction, label_smoothing=0.1)
        close(
            liger.liger_cross_entropy(self.x, target, **options),
            nn.functional.cross_entropy(self.x, target, **options),
        )
        outputs = liger.liger_cross_entropy(
            self.x,
            target,
            reduction=reduction,
            lse_square_scale=0.1,
            return_z_loss=True,
            return_token_accuracy=True,
            return_predicted_tokens=True,
        )
        counted = target != -100
        z_loss = 0.1 * self.x.logsumexp(-1) ** 2 * counted
        right = ((self.x.argmax(-1) == target) & counted).float()
        reduce = {"mean": lambda t: t.sum() / 4, "sum": torch.sum, "none": lambda t: t}[reduction]
        close(outputs.z_loss, reduce(z_loss))
        close(outputs.loss, nn.functional.cross_entropy(self.x, target, reduction=reduction) + reduce(z_loss))
        close(outputs.token_accuracy, right if reduction == "none" else right.sum() / 4)
        assert torch.equal(outputs.predicted_tokens, self.x.argmax(-1).where(counted, -1))

    def test_fused_linear_cross_entropy(self):
        weight, bias, target = torch.randn(9, 16), torch.randn(9), torch.tensor([3, -100, 0, 8, 7, -100])
        logits = self.x @ weight.T + bias
        ce_weight = torch.rand(9)
        want = nn.functional.cross_entropy(5 * torch.tanh(logits / 5), target, ce_weight, label_smoothing=0.1)
        arguments = (self.x, weight, target, bias, ce_weight, -100, 0.0, 0.1, "mean", 5.0)
        close(liger.liger_fused_linear_cross_entropy(*arguments), want)
        with pytest.raises(NotImplementedError, match="use_token_scaling is True, must be False"):
            liger.liger_fused_linear_cross_entropy(*arguments, use_token_scaling=True)


class TestModules:
    x = torch.randn(6, 16)

    @pytest.mark.parametrize(
        "module, want",
        [
            (liger.LigerRMSNorm(16), lambda x: unit(x, 1e-6)),
            (liger.LigerRMSNorm(16, elementwise_affine=False), lambda x: unit(x, 1e-6)),
            (liger.LigerRMSNormForGemma(16), lambda x: unit(x, 1e-6)),
            (liger.LigerRMSNormForGemma3(dim=16, eps=1e-3), lambda x: unit(x, 1e-3)),
            (liger.LigerLayerNorm(16), lambda x: nn.functional.layer_norm(x, (16,), eps=1e-6)),
            (liger.LigerReLUSquared(), lambda x: x.relu() ** 2),
            (liger.LigerSoftmax(), lambda x: x.softmax(-1)),
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
        with pytest.raises(ValueError, match="Activation function relu not supported"):
            liger.LigerSwiGLUMLP(SimpleNamespace(**vars(CONFIG) | dict(hidden_act="relu")))

    def test_losses(self):
        target = torch.tensor([3, 1, 0, 15, 7, 2])
        close(liger.LigerCrossEntropyLoss()(self.x, target), nn.functional.cross_entropy(self.x, target))
        weight = torch.randn(20, 16)
        loss = liger.LigerFusedLinearCrossEntropyLoss(reduction="sum")(weight, self.x, target)
        close(loss, nn.functional.cross_entropy(self.x @ weight.T, target, reduction="sum"))


class TestModels:
    def test_instance(self):
        patched = model("Gemma2")
        liger._apply_liger_kernel_to_instance(patched, rope=False, geglu=True, rms_norm=False)
        ids, labels = batch()
        assert patched(ids, labels=labels).logits is None
        assert "forward" in vars(patched.model.layers[0].mlp)
        assert "forward" not in vars(patched.model.layers[0].self_attn)
        assert "forward" not in vars(patched.model.norm)

    def test_models_made_later(self):
        liger.apply_liger_kernel_to_llama(swiglu=False)
        try:
            later = model("Llama")
        finally:
            tigon.huggingface.unpatch_class(transformers.LlamaForCausalLM)
        assert "forward" in vars(later.model.norm) and "forward" not in vars(later.model.layers[0].mlp)
        ids, labels = batch()
        assert later(ids, labels=labels).logits is None
        assert "forward" not in vars(model("Llama").model.norm)

    def test_of_an_instance_by_its_type(self):
        patched = model("Qwen3")
        liger.apply_liger_kernel_to_qwen3(model=patched)
        assert "forward" in vars(patched.lm_head)

    def test_auto_model(self, tmp_path):
        made = liger.AutoLigerKernelForCausalLM.from_config(config("Llama"), rope=False)
        assert "forward" in vars(made.model.norm) and "forward" not in vars(made.model.layers[0].self_attn)
        made.save_pretrained(tmp_path)
        loaded = liger.AutoLigerKernelForCausalLM.from_pretrained(tmp_path, dtype=torch.bfloat16)
        assert loaded.dtype == torch.bfloat16 and "forward" in vars(loaded.model.layers[0].self_attn)

    def test_what_is_not_there(self):
        with pytest.raises(AttributeError, match="apply_liger_kernel_to_nothing"):
            liger.apply_liger_kernel_to_nothing
        with pytest.raises(NotImplementedError, match="cross_entropy is True"):
            liger.apply_liger_kernel_to_llama(cross_entropy=True, fused_linear_cross_entropy=False)


def test_argument_orders():
    """Liger 0.8's, of the functions and modules that are called by position most."""
    orders = {
        liger.liger_cross_entropy: "input target weight size_average ignore_index reduce reduction",
        liger.liger_fused_linear_cross_entropy: "input weight target bias ce_weight ignore_index lse_square_scale",
        liger.liger_rotary_pos_emb: "q k cos sin position_ids unsqueeze_dim",
        liger.LigerRMSNorm: "hidden_size eps offset casting_mode init_fn in_place row_mode",
        liger.LigerCrossEntropyLoss: "weight ignore_index lse_square_scale label_smoothing reduction softcap",
        liger.LigerFusedLinearCrossEntropyLoss: "ce_weight ignore_index lse_square_scale label_smoothing reduction",
        liger.LigerFusedLinearCrossEntropyLoss.forward: "self lin_weight _input target bias",
    }
    for function, order in orders.items():
        assert list(inspect.signature(function).parameters)[: len(order.split())] == order.split()


def test_every_family_has_an_apply_function():
    for family in FAMILIES:
        assert callable(getattr(liger, f"apply_liger_kernel_to_{config(family).model_type}"))
