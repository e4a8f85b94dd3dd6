"""Models that are patched as they are made: AutoModelForCausalLM, patch_class, transformers' register_patch_mapping."""

import sys

import pytest
import torch
import transformers
from tiny_models import FAMILIES, batch, config, model
from transformers.monkey_patching import register_patch_mapping, unregister_patch_mapping

import tigon
from tigon.huggingface import patch_class, patch_mapping, unpatch_class
from tigon.huggingface.auto import when_made


def patched_modules(made):
    return {name for name, module in made.named_modules() if "forward" in vars(module)}


def test_transformers_is_the_version_that_the_extension_points_were_tested_with():
    """`post_init`, `_loss_function` and `monkey_patching` are transformers' own: look at them again when this fails."""
    assert transformers.__version__.startswith("5.17.")


def test_auto_model():
    made = tigon.AutoModelForCausalLM.from_config(config("Llama"), tigon=dict(mlp=False))
    assert isinstance(made, transformers.LlamaForCausalLM)
    assert "lm_head" in patched_modules(made) and "model.layers.0.mlp" not in patched_modules(made)


def test_class():
    ids, labels = batch()
    stock = model("Qwen3")(ids, labels=labels)
    patch_class(transformers.Qwen3ForCausalLM, mlp=False)
    patch_class(transformers.Qwen3ForCausalLM, rope=False)
    try:
        made = model("Qwen3")
    finally:
        unpatch_class(transformers.Qwen3ForCausalLM)
    assert "post_init" not in vars(transformers.Qwen3ForCausalLM)
    assert "model.layers.0.mlp" in patched_modules(made) and "model.layers.0.self_attn" not in patched_modules(made)
    outputs = made(ids, labels=labels)
    assert outputs.logits is None
    torch.testing.assert_close(outputs.loss, stock.loss, rtol=1e-6, atol=0)
    assert not patched_modules(model("Qwen3"))


def test_class_and_its_base():
    """Each model is changed once, by what its own class was given; undoing either leaves the other, in any order."""

    class Base(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.seen = []
            self.post_init()

        def post_init(self):
            self.seen.append("stock")

    class Heir(Base):
        pass

    stock = Base.post_init
    for first, second in ((Base, Heir), (Heir, Base)):
        when_made(first, lambda made: made.seen.append(first))
        when_made(second, lambda made: made.seen.append(second))
        assert Base().seen == ["stock", Base] and Heir().seen == ["stock", Heir]
        unpatch_class(first)
        assert first().seen == (["stock"] if first is Base else ["stock", Base])
        assert second().seen == ["stock", second]
        unpatch_class(second)
        assert Base.post_init is stock and "post_init" not in vars(Heir)


@pytest.mark.parametrize("family", ["Gemma3", "StableLM"])
def test_class_that_is_loaded(family, tmp_path):
    """from_pretrained makes models on the device meta."""
    made = model(family)
    made.save_pretrained(tmp_path)
    patch_class(type(made))
    try:
        loaded = transformers.AutoModelForCausalLM.from_pretrained(tmp_path)
    finally:
        unpatch_class(type(made))
    tigon.patch(made)
    assert patched_modules(loaded) == patched_modules(made)


@pytest.fixture
def importable_aliases(monkeypatch):
    """apply_patches of transformers 5.17 imports every module that has an old name, some of which want torchvision."""
    for name, module in list(sys.modules.items()):
        try:
            dir(module)
        except ModuleNotFoundError:
            monkeypatch.delitem(sys.modules, name)


@pytest.mark.parametrize("family", ["OLMo2", "Gemma2"])
def test_mapping(family, importable_aliases):
    ids, labels = batch()
    stock = model(family)(ids, labels=labels)
    mapping = patch_mapping(config(family))
    register_patch_mapping(mapping)
    try:
        made = model(family)
    finally:
        unregister_patch_mapping(list(mapping))
    not_reached = 1 if family == "Gemma2" else 2  # the head, and an embedding that is torch's own
    assert len(patched_modules(made)) == sum(FAMILIES[family][2].values()) - not_reached
    outputs = made(ids, labels=labels)
    torch.testing.assert_close(outputs.loss, stock.loss, rtol=1e-6, atol=0)
    torch.testing.assert_close(outputs.logits, stock.logits, rtol=1e-4, atol=1e-5)
    assert not patched_modules(model(family))
    assert tigon.patch(made).counts() == FAMILIES[family][2]
