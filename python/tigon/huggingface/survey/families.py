"""Small models with random parameters: each type of transformers from its configuration, and its inputs."""

import torch
import transformers
from transformers import PreTrainedConfig
from transformers.models.auto import modeling_auto
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from .sizes import INPUTS, MULTIMODAL, OVERRIDES, SIZES

CAUSAL = modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
_MULTIMODAL = modeling_auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES
TEXT = "+text"  # ends the survey's name of a multimodal model, as some types are also causal language models
NAMES = [*sorted(CAUSAL), *(name + TEXT for name in sorted(MULTIMODAL) if name in _MULTIMODAL)]

_ROWS, _TOKENS, _PADDED = 2, 32, 5
_FIRST_TOKEN, _LAST_TOKEN = 3, 199  # range of the text; the special ones lie outside


def model(name: str, dropout: float = 0.0) -> torch.nn.Module:
    """The same parameters each time, in f32 and in training mode. Each is random: the ones and zeros that norms and
    biases begin with would hide a factor or a sum that is wrong."""
    mapping = _MULTIMODAL if name.endswith(TEXT) else CAUSAL
    model_class = getattr(transformers, mapping[name.removesuffix(TEXT)])
    config = small_config(name, dropout)
    torch.manual_seed(0)
    made = model_class._from_config(config)
    with torch.no_grad():
        for parameter in made.parameters():
            if parameter.ndim < 2 or parameter.std() < 1e-6:
                parameter.add_(0.1 * torch.randn_like(parameter))
            elif parameter.std() < 0.05:  # 0.02 by default, with which an activation is nearly straight
                parameter.mul_(0.1 / parameter.std())
    return made.train()


def small_config(name: str, dropout: float = 0.0) -> PreTrainedConfig:
    """`dropout` is every rate that the configuration has."""
    own = OVERRIDES.get(name, OVERRIDES.get(name.removesuffix(TEXT), {}))
    config_class = CONFIG_MAPPING[name.removesuffix(TEXT)]
    if not name.endswith(TEXT):  # llama4's causal language model is its text model
        config_class = getattr(transformers, CAUSAL[name]).config_class
    config = config_class(**_fields(config_class(), own, dropout))
    if hasattr(config, "is_decoder"):
        config.is_decoder = True
    return config


def _fields(default: PreTrainedConfig, own: dict, dropout: float) -> dict:
    """The arguments that make a configuration small: sizes, the first layer of each kind, special tokens, and parts."""
    fields = {}
    special = _LAST_TOKEN + 1
    for name, value in vars(default).items():
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if isinstance(value, PreTrainedConfig):
            part = _fields(value, own.get(name, {}), dropout)
            fields[name] = part | dict(model_type=value.model_type)
        elif name in ("pad_token_id", "bos_token_id", "eos_token_id"):
            fields[name] = ("pad_token_id", "bos_token_id", "eos_token_id").index(name)
        elif name.endswith(("_token_id", "_token_index")) and is_number:
            fields[name] = special
            special += 1
        elif name in SIZES and is_number and value != 0:
            fields[name] = SIZES[name]
        elif "drop" in name and is_number:
            fields[name] = dropout
    if "qk_rope_head_dim" in fields:  # one latent for all heads
        fields["num_key_value_heads"] = SIZES["num_attention_heads"]
    fields |= _layers(default)
    return fields | {name: value for name, value in own.items() if not isinstance(fields.get(name), dict)}


def _layers(default: PreTrainedConfig) -> dict:
    """The entries of the first layer of each kind, and at least two, in each list with an entry for each layer."""
    depth = getattr(default, "num_hidden_layers", None)
    lists = {
        name: [SIZES.get(name, entry) if isinstance(entry, int) else entry for entry in value]
        for name, value in vars(default).items()
        if isinstance(value, (list, tuple)) and depth and len(value) == depth and list(value) != list(range(depth))
    }
    kinds = list(map(repr, zip(*lists.values())))
    first = [kinds.index(kind) for kind in dict.fromkeys(kinds)]
    if not first:
        return {}
    chosen = first if len(first) > 1 else first * 2
    return dict(num_hidden_layers=len(chosen)) | {name: [each[i] for i in chosen] for name, each in lists.items()}


def batch(name: str, padded: bool = True) -> dict[str, torch.Tensor]:
    """Text: some labels are ignored, and one row may be padded at its end."""
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(_FIRST_TOKEN, _LAST_TOKEN + 1, (_ROWS, _TOKENS), generator=generator)
    mask = torch.ones_like(ids)
    if padded:
        mask[1, -_PADDED:] = ids[1, -_PADDED:] = 0
    labels = ids.masked_fill(mask == 0, -100)
    labels[:, :3] = labels[0, 10:13] = -100
    inputs = dict(input_ids=ids, attention_mask=mask, labels=labels)
    return inputs | {key: make(inputs) for key, make in INPUTS.get(name.removesuffix(TEXT), {}).items()}


def prompt() -> torch.Tensor:
    return batch("")["input_ids"][:, :8]
