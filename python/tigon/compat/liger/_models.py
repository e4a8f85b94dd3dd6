"""apply_liger_kernel_to_*: tigon.patch by Liger-Kernel's signatures, of one model or of every later one of a type."""

import functools
import importlib
import importlib.util
import inspect
import logging

import torch
from torch import nn

from ...huggingface import patch
from ...huggingface.auto import when_made
from ...huggingface.replacement import Method, computable
from ...torch import functional as F

logger = logging.getLogger(__name__)


def is_transformers_available():
    return importlib.util.find_spec("transformers") is not None



# Parameters, in Liger-Kernel's order, of the functions for some types. "-": the default is False; "**": more are taken.
_LLAMA = "rope -cross_entropy fused_linear_cross_entropy rms_norm swiglu model"
_PARAMETERS = {
    _LLAMA: "exaone4 falcon_h1 hunyuan_v1_dense hunyuan_v1_moe llama ministral mistral mixtral olmo2 olmo3 phi3 qwen2"
    " qwen2_5_vl qwen3 qwen3_moe qwen3_vl_moe smollm3",
    "-rope -cross_entropy fused_linear_cross_entropy rms_norm swiglu model": "deepseek_v2 deepseek_v3 glm4 glm4v"
    " glm4v_moe qwen3_5 qwen3_5_moe qwen3_next",
    "rope -cross_entropy fused_linear_cross_entropy rms_norm -swiglu model": "gpt_oss qwen3_vl",
    "-rope -cross_entropy fused_linear_cross_entropy rms_norm -swiglu model": "deepseek_v4",
    "rope cross_entropy -fused_linear_cross_entropy rms_norm swiglu model": "granite",
    "rope -cross_entropy fused_linear_cross_entropy rms_norm swiglu model layer_norm": "llama4",
    "rope -cross_entropy fused_linear_cross_entropy layer_norm rms_norm swiglu model": "mllama muse_glimmer",
    "rope -cross_entropy fused_linear_cross_entropy rms_norm layer_norm swiglu model": "qwen2_vl",
    "rope -cross_entropy fused_linear_cross_entropy rms_norm geglu model": "gemma gemma2 gemma3_text",
    "rope -cross_entropy fused_linear_cross_entropy layer_norm rms_norm geglu model": "gemma3 paligemma",
    "-rope -cross_entropy fused_linear_cross_entropy rms_norm geglu model": "gemma4_text",
    "-rope -cross_entropy fused_linear_cross_entropy -layer_norm rms_norm geglu model": "gemma4",
    "rope rms_norm swiglu model": "pixtral",
    "-cross_entropy fused_linear_cross_entropy model **": "llava",
    "-cross_entropy fused_linear_cross_entropy rms_norm layer_norm model **": "internvl smolvlm",
    "relu_squared -cross_entropy fused_linear_cross_entropy model **": "nemotron",
}
_OTHERS = f"{_LLAMA} layer_norm"  # options of types that Liger-Kernel does not have
LIGER_TYPES = {model_type: names for names, types in _PARAMETERS.items() for model_type in types.split()}
# A model's own config.model_type, where Liger-Kernel's function is called otherwise.
_TEXT_TYPES = "llama4 qwen2_vl qwen2_5_vl qwen3_5 qwen3_5_moe qwen3_vl qwen3_vl_moe"
_ALIASES = {f"{name}_text": name for name in _TEXT_TYPES.split()}
_ALIASES["mllama_text_model"] = "mllama"

_KINDS = dict(  # tigon.patch's arguments for each option
    rope="rope",
    rms_norm="rms_norm",
    swiglu="mlp experts",
    geglu="mlp experts",
    relu_squared="mlp experts",
    layer_norm="layer_norm",
)
OPTIONS = {"cross_entropy", "fused_linear_cross_entropy", *_KINDS}


def _signature(names):
    kinds = inspect.Parameter
    return inspect.Signature(
        kinds("kwargs", kinds.VAR_KEYWORD)
        if name == "**"
        else kinds(name.lstrip("-"), kinds.POSITIONAL_OR_KEYWORD, default=None if name == "model" else name[0] != "-")
        for name in names.split()
    )


@functools.cache
def apply_to(model_type):
    """apply_liger_kernel_to_<model_type>"""
    signature = _signature(LIGER_TYPES.get(model_type, _OTHERS))

    def apply(*args, **kwargs):
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{apply.__name__}() {error}") from None
        bound.apply_defaults()
        options = dict(bound.arguments)
        options |= _known(apply.__name__, options.pop("kwargs", {}))
        model = options.pop("model")
        if options.get("cross_entropy") and options.get("fused_linear_cross_entropy"):
            raise AssertionError("cross_entropy and fused_linear_cross_entropy cannot both be True.")
        if model is not None:
            _change(model, options)
            return
        for model_class in _classes(model_type):
            when_made(model_class, functools.partial(_change, options=options))

    apply.__name__ = apply.__qualname__ = f"apply_liger_kernel_to_{model_type}"
    apply.__doc__ = f"tigon.patch of `model`, or without one of every {model_type} model that is made from now on."
    apply.__signature__ = signature
    return apply


def _known(function, options):
    """The options, none of which may be one that no model type has."""
    for name in options:
        if name not in OPTIONS:
            raise TypeError(f"{function}() got an unexpected keyword argument {name!r}")
    return options


def _change(model, options):
    """tigon.patch's replacements for Liger-Kernel's options; those without an option are made."""
    kinds = dict(loss=options.get("fused_linear_cross_entropy", True))
    for name in _KINDS.keys() & options.keys():
        for kind in _KINDS[name].split():
            kinds[kind] = kinds.get(kind, True) and bool(options[name])
    report = patch(model, **kinds)
    if options.get("cross_entropy"):
        _install_cross_entropy(model)
    logger.info("%s: %s", type(model).__name__, report)


def _install_cross_entropy(model):
    """Tigon's cross_entropy of the logits, in every model of transformers inside whose loss is ForCausalLMLoss."""
    from transformers import PreTrainedModel
    from transformers.loss.loss_utils import ForCausalLMLoss

    for module in model.modules():
        if not isinstance(module, PreTrainedModel) or module.get_output_embeddings() is None:
            continue
        if module.loss_function is ForCausalLMLoss:
            Method(module, "_loss_function", _causal_loss).install()
        else:
            name = getattr(module.loss_function, "__name__", module.loss_function)
            logger.warning("%s keeps its loss: it is %s, not ForCausalLMLoss", type(module).__name__, name)


def _causal_loss(
    self, logits, labels, vocab_size=None, num_items_in_batch=None, ignore_index=-100, shift_labels=None, **kwargs
):
    """transformers' ForCausalLMLoss, without its copy of the logits in f32."""
    from transformers.loss.loss_utils import ForCausalLMLoss

    if not computable(logits) or vocab_size not in (None, logits.shape[-1]):
        options = num_items_in_batch, ignore_index, shift_labels
        return ForCausalLMLoss(logits, labels, vocab_size, *options, **kwargs)
    if shift_labels is None:  # token t predicts t + 1
        shift_labels = nn.functional.pad(labels, (0, 1), value=ignore_index)[..., 1:]
    target = shift_labels.to(logits.device).view(logits.shape[:-1])
    if num_items_in_batch is None:
        return F.cross_entropy(logits, target, ignore_index=ignore_index)
    items = num_items_in_batch.to(logits.device) if torch.is_tensor(num_items_in_batch) else num_items_in_batch
    return F.cross_entropy(logits, target, ignore_index=ignore_index, reduction="sum") / items


def _classes(model_type):
    """Every model class of the modeling file that the type is in, as Liger-Kernel replaces parts of the whole file."""
    from transformers import CONFIG_MAPPING, PreTrainedModel, __version__

    if model_type not in CONFIG_MAPPING:
        raise NotImplementedError(f"transformers {__version__} has no model type {model_type!r}")
    name = CONFIG_MAPPING[model_type].__module__.replace("configuration_", "modeling_")
    found = vars(importlib.import_module(name)).values()
    return [
        made
        for made in found
        if isinstance(made, type) and issubclass(made, PreTrainedModel) and made.__module__ == name
    ]


@functools.cache
def all_types():
    """{model type: apply_liger_kernel_to_*}: Liger-Kernel's, and the language models besides that transformers has."""
    from transformers.models.auto import modeling_auto

    names = {**LIGER_TYPES, **modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES}
    names |= modeling_auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES
    return {name: apply_to(_ALIASES.get(name, name)) for name in sorted(names.keys() | _ALIASES.keys())}


def _apply_liger_kernel(model_type, **kwargs):
    """apply_liger_kernel_to_<model_type>, with those of the options that it has; nothing for a type that is unknown."""
    options = _known("_apply_liger_kernel", {name: value for name, value in kwargs.items() if name != "model"})
    if model_type not in all_types():
        logger.info("There is no model type %r: nothing is applied.", model_type)
        return
    apply = all_types()[model_type]
    dropped = options.keys() - apply.__signature__.parameters.keys()
    if dropped and "kwargs" not in apply.__signature__.parameters:
        logger.info("%s has no option %s: left out.", apply.__name__, ", ".join(sorted(dropped)))
        kwargs = {name: value for name, value in kwargs.items() if name not in dropped}
    apply(**kwargs)


def _apply_liger_kernel_to_instance(model, **kwargs):
    """_apply_liger_kernel of the model's own type; of a model without a known one, the options of most types."""
    model_type = getattr(getattr(model, "config", None), "model_type", None)
    _apply_liger_kernel(model_type if model_type in all_types() else "llama", model=model, **kwargs)


def __getattr__(name):
    if name == "MODEL_TYPE_TO_APPLY_LIGER_FN":
        return all_types()
    model_type = name.removeprefix("apply_liger_kernel_to_")
    if model_type != name and (model_type in LIGER_TYPES or model_type in all_types()):
        return apply_to(model_type)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
