"""apply_liger_kernel_to_*, of an instance, of all later models of a type, and AutoLigerKernelForCausalLM."""

import contextlib
import copy
import inspect
import logging

import pytest
import torch
import transformers
from tiny_models import FAMILIES, batch, config, model

import tigon
from tigon.compat import liger
from tigon.compat.liger import _models

TEXT = dict(
    vocab_size=131,
    hidden_size=64,
    intermediate_size=96,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    pad_token_id=0,
)


@contextlib.contextmanager
def applied(model_type, *args, **kwargs):
    """Within, models of the type are made with apply_liger_kernel_to_<model_type>."""
    getattr(liger, f"apply_liger_kernel_to_{model_type}")(*args, **kwargs)
    try:
        yield
    finally:
        for model_class in _models._classes(model_type):
            tigon.huggingface.unpatch_class(model_class)


def is_patched(module):
    return "forward" in vars(module)


class TestInstance:
    def test_options(self):
        patched = model("Gemma2")
        liger._apply_liger_kernel_to_instance(patched, rope=False, geglu=True, rms_norm=False)
        ids, labels = batch()
        assert patched(ids, labels=labels).logits is None
        layer = patched.model.layers[0]
        assert is_patched(layer.mlp) and not is_patched(layer.self_attn) and not is_patched(patched.model.norm)

    def test_by_position(self):
        patched = model("Llama")
        liger.apply_liger_kernel_to_llama(False, False, False, True, False, patched)
        layer = patched.model.layers[0]
        assert is_patched(patched.model.norm)
        assert not any(map(is_patched, (layer.self_attn, layer.mlp, patched.lm_head)))

    def test_a_default_of_false(self):
        patched = model("GLM4")
        liger.apply_liger_kernel_to_glm4(model=patched)
        assert is_patched(patched.model.norm) and not is_patched(patched.model.layers[0].self_attn)

    def test_by_type(self):
        patched = model("Qwen3")
        liger._apply_liger_kernel("qwen3", model=patched)
        assert is_patched(patched.lm_head)

    def test_a_type_that_liger_kernel_does_not_have(self):
        patched = model("StableLM")
        assert patched.config.model_type not in _models.LIGER_TYPES
        liger.apply_liger_kernel_to_stablelm(model=patched, layer_norm=False)
        assert is_patched(patched.lm_head) and not is_patched(patched.model.norm)

    def test_relu_squared_is_the_mlp_of_nemotron(self, monkeypatch):
        seen = []
        monkeypatch.setattr(_models, "patch", lambda model, **kinds: seen.append(kinds))
        liger.apply_liger_kernel_to_nemotron(False, model=torch.nn.Linear(1, 1), rope=False)
        liger.apply_liger_kernel_to_nemotron(model=torch.nn.Linear(1, 1))
        assert seen == [
            dict(loss=True, mlp=False, experts=False, rope=False),
            dict(loss=True, mlp=True, experts=True),
        ]


class TestLaterModels:
    def test_options(self):
        with applied("llama", swiglu=False):
            later = model("Llama")
        assert is_patched(later.model.norm) and not is_patched(later.model.layers[0].mlp)
        ids, labels = batch()
        assert later(ids, labels=labels).logits is None
        assert not is_patched(model("Llama").model.norm)

    @pytest.mark.parametrize("name", ["LlamaModel", "LlamaForSequenceClassification", "LlamaForTokenClassification"])
    def test_every_class_of_the_type(self, name):
        with applied("llama"):
            made = getattr(transformers, name)(config("Llama", num_labels=3))
        base = made if name == "LlamaModel" else made.model
        assert is_patched(base.norm) and is_patched(base.layers[0].mlp) and is_patched(base.layers[1].self_attn)

    def test_inside_another_model(self):
        vision = dict(hidden_size=32, intermediate_size=48, num_hidden_layers=1, num_attention_heads=2, image_size=16)
        text = config("Llama")
        with applied("llama"):
            vision = transformers.CLIPVisionConfig(**vision, patch_size=8)
            made = transformers.LlavaForConditionalGeneration(
                transformers.LlavaConfig(vision_config=vision, text_config=text)
            )
        assert is_patched(made.model.language_model.norm)

    def test_llama4_with_images(self):
        vision = dict(hidden_size=32, intermediate_size=128, num_hidden_layers=1, num_attention_heads=2, image_size=16)
        vision |= dict(patch_size=8, vision_output_dim=32, projector_input_dim=32, projector_output_dim=32)
        text = TEXT | dict(head_dim=16, num_local_experts=2, intermediate_size_mlp=96, moe_layers=[1])
        with applied("llama4"):
            made = transformers.Llama4ForConditionalGeneration(
                transformers.Llama4Config(vision_config=vision, text_config=text)
            )
            assert "post_init" in vars(transformers.Llama4ForConditionalGeneration)
        assert "post_init" not in vars(transformers.Llama4ForConditionalGeneration)
        assert is_patched(made.language_model.model.norm) and is_patched(made.vision_model.layernorm_pre)

    def test_pixtral(self):
        shape = dict(hidden_size=64, intermediate_size=96, num_hidden_layers=1, num_attention_heads=4, image_size=16)
        with applied("pixtral", swiglu=False):
            made = transformers.PixtralVisionModel(transformers.PixtralVisionConfig(patch_size=8, **shape))
        layer = made.transformer.layers[0]
        assert is_patched(made.ln_pre) and is_patched(layer.attention_norm) and not is_patched(layer.feed_forward)

    @pytest.mark.parametrize(
        "model_type, classes",
        [
            ("llama4", "Llama4ForCausalLM Llama4ForConditionalGeneration Llama4TextModel Llama4VisionModel"),
            (
                "mllama",
                "MllamaForCausalLM MllamaForConditionalGeneration MllamaModel MllamaTextModel MllamaVisionModel",
            ),
            ("qwen3_5", "Qwen3_5ForCausalLM Qwen3_5ForConditionalGeneration Qwen3_5TextModel"),
            ("qwen3_5_moe", "Qwen3_5MoeForCausalLM Qwen3_5MoeForConditionalGeneration"),
            ("qwen2_vl", "Qwen2VLForConditionalGeneration Qwen2VLModel Qwen2VLTextModel"),
            ("gemma3_text", "Gemma3ForCausalLM Gemma3ForConditionalGeneration Gemma3ForSequenceClassification"),
            ("mistral", "MistralModel MistralForCausalLM MistralForQuestionAnswering"),
        ],
    )
    def test_classes(self, model_type, classes):
        found = {model_class.__name__ for model_class in _models._classes(model_type)}
        assert found >= set(classes.split())

    def test_every_type_of_liger_kernel_has_classes(self):
        for model_type in _models.LIGER_TYPES:
            assert _models._classes(model_type), model_type

    def test_a_type_that_transformers_does_not_have(self, monkeypatch):
        monkeypatch.delitem(transformers.CONFIG_MAPPING._mapping, "llama")
        with pytest.raises(NotImplementedError, match="transformers .* has no model type 'llama'"):
            liger.apply_liger_kernel_to_llama()


class TestCrossEntropy:
    """cross_entropy=True: logits are there, their loss is Tigon's."""

    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
    @pytest.mark.parametrize("items", [None, 17, torch.tensor(17)])
    def test_granite_as_it_is_called_by_default(self, items, dtype):
        ids, labels = batch()
        stock, patched = model("Granite", dtype), model("Granite", dtype)
        calls = []
        liger.apply_liger_kernel_to_granite(rope=False, rms_norm=False, swiglu=False, model=patched)
        with pytest.MonkeyPatch.context() as patcher:
            theirs = _models.F.cross_entropy
            patcher.setattr(_models.F, "cross_entropy", lambda *a, **k: calls.append(1) or theirs(*a, **k))
            outputs = patched(ids, labels=labels, num_items_in_batch=items)
        want = stock(ids, labels=labels, num_items_in_batch=items)
        assert calls and torch.equal(outputs.logits, want.logits) and outputs.loss.dtype == want.loss.dtype
        torch.testing.assert_close(outputs.loss, want.loss, rtol=1e-6, atol=0)
        outputs.loss.backward()
        want.loss.backward()
        bound = 1e-5 if dtype == torch.float32 else 2**-6
        for ours, theirs in zip(patched.parameters(), stock.parameters()):
            assert (ours.grad - theirs.grad).abs().max() <= bound * theirs.grad.abs().max()

    def test_shift_labels_and_another_ignore_index(self):
        ids, _ = batch()
        stock, patched = model("Granite"), model("Granite")
        liger.apply_liger_kernel_to_granite(model=patched)
        shifted = ids.clone()
        for options in (dict(shift_labels=shifted), dict(ignore_index=int(ids[0, 5]))):
            ours, theirs = (made(ids, labels=ids, **options).loss for made in (patched, stock))
            torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=0)

    def test_later_models_and_back(self):
        ids, labels = batch()
        with applied("llama", cross_entropy=True, fused_linear_cross_entropy=False):
            later = model("Llama")
        assert later._loss_function.__func__ is _models._causal_loss
        assert later(ids, labels=labels).logits is not None
        copied = copy.deepcopy(later)
        assert copied._loss_function.__self__ is copied
        tigon.unpatch(later)
        assert "_loss_function" not in vars(later)

    def test_a_loss_of_another_kind_is_left(self, caplog):
        made = model("Llama")
        made.loss_function = lambda *args, **kwargs: torch.zeros(())
        liger.apply_liger_kernel_to_llama(cross_entropy=True, fused_linear_cross_entropy=False, model=made)
        assert made.loss_function() == 0
        assert "LlamaForCausalLM keeps its loss: it is <lambda>, not ForCausalLMLoss" in caplog.text

    def test_not_with_the_fused_one(self):
        with pytest.raises(AssertionError, match="cannot both be True"):
            liger.apply_liger_kernel_to_llama(cross_entropy=True)


class TestAuto:
    def test_is_transformers_class(self):
        assert issubclass(liger.AutoLigerKernelForCausalLM, transformers.AutoModelForCausalLM)

    def test_options(self, tmp_path):
        made = liger.AutoLigerKernelForCausalLM.from_config(config("Llama"), rope=False)
        assert is_patched(made.model.norm) and not is_patched(made.model.layers[0].self_attn)
        made.save_pretrained(tmp_path)
        loaded = liger.AutoLigerKernelForCausalLM.from_pretrained(tmp_path, dtype=torch.bfloat16)
        assert loaded.dtype == torch.bfloat16 and is_patched(loaded.model.layers[0].self_attn)

    def test_touches_no_other_model(self):
        liger.AutoLigerKernelForCausalLM.from_config(config("Llama"))
        assert not is_patched(model("Llama").model.norm)

    def test_option_of_nemotron(self):
        shape = TEXT | dict(head_dim=16, max_position_embeddings=64)
        made = liger.AutoLigerKernelForCausalLM.from_config(transformers.NemotronConfig(**shape), relu_squared=False)
        assert is_patched(made.lm_head)

    def test_an_option_that_the_type_has_not(self):
        with pytest.raises(
            TypeError, match=r"apply_liger_kernel_to_llama\(\) got an unexpected keyword argument 'geglu'"
        ):
            liger.AutoLigerKernelForCausalLM.from_config(config("Llama"), geglu=False)


class TestNames:
    def test_a_typo(self):
        made = model("Llama")
        message = r"apply_liger_kernel_to_llama\(\) got an unexpected keyword argument 'rms_nrom'"
        with pytest.raises(TypeError, match=message):
            liger.apply_liger_kernel_to_llama(model=made, rms_nrom=False)
        with pytest.raises(TypeError, match="apply_liger_kernel_to_llava.* unexpected keyword argument 'rms_nrom'"):
            liger.apply_liger_kernel_to_llava(rms_nrom=False)
        with pytest.raises(TypeError, match="unexpected keyword argument 'rms_nrom'"):
            liger._apply_liger_kernel("llama", rms_nrom=False)
        with pytest.raises(TypeError, match="unexpected keyword argument 'rms_nrom'"):
            liger._apply_liger_kernel_to_instance(made, rms_nrom=False)
        with pytest.raises(TypeError, match="apply_liger_kernel_to_llama.* too many positional arguments"):
            liger.apply_liger_kernel_to_llama(True, False, True, True, True, made, True)
        assert not any(map(is_patched, made.modules()))

    def test_an_option_of_another_type_is_left_out(self, caplog):
        made = model("Llama")
        with caplog.at_level(logging.INFO):
            liger._apply_liger_kernel_to_instance(made, geglu=False)
        assert "apply_liger_kernel_to_llama has no option geglu: left out" in caplog.text
        assert is_patched(made.model.layers[0].mlp)

    @pytest.mark.parametrize("model_type", ["foobar", "", None])
    def test_a_type_that_is_unknown(self, model_type, caplog):
        with caplog.at_level(logging.INFO):
            assert liger._apply_liger_kernel(model_type, rope=False) is None
        assert f"There is no model type {model_type!r}: nothing is applied" in caplog.text

    def test_a_name_that_is_unknown(self):
        with pytest.raises(AttributeError, match="apply_liger_kernel_to_nothing"):
            liger.apply_liger_kernel_to_nothing

    def test_every_family(self):
        for family in FAMILIES:
            assert callable(getattr(liger, f"apply_liger_kernel_to_{config(family).model_type}"))

    def test_table_of_types(self):
        """Liger-Kernel 0.8.5's, where a type's function has another name, and all of its functions by their own."""
        table = liger.MODEL_TYPE_TO_APPLY_LIGER_FN
        others = dict(llama4_text="llama4", mllama_text_model="mllama", qwen2_vl_text="qwen2_vl")
        others |= dict(qwen2_5_vl_text="qwen2_5_vl", qwen3_5_text="qwen3_5", qwen3_5_moe_text="qwen3_5_moe")
        others |= dict(qwen3_vl_text="qwen3_vl", qwen3_vl_moe_text="qwen3_vl_moe")
        for model_type, name in {**{name: name for name in _models.LIGER_TYPES}, **others}.items():
            assert table[model_type] is getattr(liger, f"apply_liger_kernel_to_{name}")
        assert table["stablelm"].__name__ == "apply_liger_kernel_to_stablelm"
        common = (
            "(rope=True, cross_entropy=False, fused_linear_cross_entropy=True, rms_norm=True, swiglu=True, model=None"
        )
        assert str(inspect.signature(table["stablelm"])) == common + ", layer_norm=True)"
