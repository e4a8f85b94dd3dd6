"""Tigon: fused operators for training large language models.

`tigon.torch.functional`, `.nn` and `.optim` are the operators for PyTorch; `tigon.patch(model)` puts them into a
Hugging Face model. Nothing is imported before it is used.
"""

import importlib

_HOMES = dict.fromkeys(("AutoModelForCausalLM", "patch", "unpatch"), "tigon.huggingface")
__all__ = ["library_path", "version", *_HOMES]


def __getattr__(name):
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    if name == "__version__":
        return version()
    if name in ("compat", "huggingface", "torch"):
        return importlib.import_module(f"tigon.{name}")
    raise AttributeError(f"module 'tigon' has no attribute {name!r}")


def library_path():
    """The shared object that this package calls."""
    return importlib.import_module("tigon._library").path


def version():
    """The library's version, as "0.1.0"."""
    number = importlib.import_module("tigon._library").library.tigon_version()
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}"
