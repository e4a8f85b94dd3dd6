"""One line for a Hugging Face model: `tigon.patch(model)`; docs/huggingface.md is the manual."""

from .auto import AutoModelForCausalLM, patch_class, patch_mapping, unpatch_class
from .patching import Entry, Report, patch, unpatch

__all__ = [
    "AutoModelForCausalLM",
    "Entry",
    "Report",
    "patch",
    "patch_class",
    "patch_mapping",
    "unpatch",
    "unpatch_class",
]
