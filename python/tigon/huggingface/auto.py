"""Models that are patched from the start: by name or configuration, and every one of a class."""

import functools
from collections.abc import Callable

import torch

from .patching import patch


class AutoModelForCausalLM:
    """As transformers.AutoModelForCausalLM; `tigon`, a dict, holds keyword arguments for tigon.patch."""

    @staticmethod
    def from_pretrained(*args, tigon: dict | None = None, **kwargs):
        from transformers import AutoModelForCausalLM

        model = AutoModelForCausalLM.from_pretrained(*args, **kwargs)
        patch(model, **(tigon or {}))
        return model

    @staticmethod
    def from_config(*args, tigon: dict | None = None, **kwargs):
        from transformers import AutoModelForCausalLM

        model = AutoModelForCausalLM.from_config(*args, **kwargs)
        patch(model, **(tigon or {}))
        return model


def patch_class(model_class: type, **kinds: bool) -> None:
    """Every model of the class that is made from now on is patched, whoever makes it; `kinds` are patch's arguments.

    For scripts that load the model themselves. Takes effect at the end of the class's __init__, in transformers'
    `post_init`. `unpatch_class` undoes it; models that were made in between stay patched."""
    when_made(model_class, functools.partial(patch, **kinds))


def when_made(model_class: type, change: Callable[[torch.nn.Module], object]) -> None:
    """patch_class, for any change of a new model. A class has one change, its own before an inherited one."""
    unpatch_class(model_class)
    stock = getattr(model_class.post_init, "of_tigon", model_class.post_init)

    @functools.wraps(stock)
    def post_init(self):
        stock(self)
        change(self)

    post_init.of_tigon = stock
    post_init.inherited = "post_init" not in vars(model_class)
    model_class.post_init = post_init


def unpatch_class(model_class: type) -> None:
    post_init = vars(model_class).get("post_init")
    if not hasattr(post_init, "of_tigon"):
        return
    if post_init.inherited:
        del model_class.post_init
    else:
        model_class.post_init = post_init.of_tigon


def patch_mapping(config, **kinds: bool) -> dict[str, type]:
    """{class name: class} for transformers.monkey_patching.register_patch_mapping: the norms, MLPs, attentions
    and embeddings of transformers' own classes in the causal language model that `config` makes, patched as they are
    made. `kinds` are patch's arguments; the loss and the choice of attention belong to the model, whose class a mapping
    does not reach: patch or patch_class does that."""
    from transformers import AutoModelForCausalLM

    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    kinds |= {"loss": False, "attention": False}
    classes = {type(model.get_submodule(entry.path)) for entry in patch(model, **kinds).replaced}
    of_transformers = [made for made in classes if not made.__module__.startswith("torch.")]
    return {made.__name__: _patched_when_made(made, kinds) for made in of_transformers}


def _patched_when_made(made: type, kinds: dict[str, bool]) -> type:
    def __init__(self, *args, **kwargs):
        made.__init__(self, *args, **kwargs)
        patch(self, **kinds)

    return type(made.__name__, (made,), dict(__init__=__init__, __module__=made.__module__))
