"""patch and unpatch: a walk over a model's modules, and the report of it."""

from collections import Counter
from dataclasses import dataclass, field

import torch
from torch import nn

from .embeddings import find_embedding
from .head import find_head
from .mlp import find_gated_mlp
from .norms import find_group_norm, find_layer_norm, find_rms_norm
from .replacement import Left, restore
from .rope import find_rotary

_FINDERS = {
    "embedding": find_embedding,
    "rms_norm": find_rms_norm,
    "mlp": find_gated_mlp,
    "rope": find_rotary,
    "layer_norm": find_layer_norm,
    "group_norm": find_group_norm,
    "loss": find_head,
}


@dataclass(frozen=True)
class Entry:
    """One module: its path in the model, its class, the kind of replacement, and how or why not."""

    path: str
    module: str
    kind: str
    text: str

    def __str__(self):
        return f"{self.kind:<10}  {self.path or '(the model)'}: {self.module}, {self.text}"


@dataclass
class Report:
    """What `patch` replaced, and what it left and why."""

    replaced: list[Entry] = field(default_factory=list)
    left: list[Entry] = field(default_factory=list)

    def counts(self) -> dict[str, int]:
        """Replaced modules of each kind."""
        return dict(Counter(entry.kind for entry in self.replaced))

    def __str__(self):
        lines = [f"replaced {len(self.replaced)}:", *(f"  {entry}" for entry in self.replaced)]
        return "\n".join([*lines, f"left {len(self.left)}:", *(f"  {entry}" for entry in self.left)])


def patch(
    model: nn.Module,
    *,
    embedding: bool = True,
    rms_norm: bool = True,
    mlp: bool = True,
    rope: bool = True,
    layer_norm: bool = True,
    group_norm: bool = True,
    loss: bool = True,
    verbose: bool = False,
) -> Report:
    """Makes the model compute with Tigon's operators what it computes now; in place, undone by `unpatch`.

    What a module is, is found by its structure and by running it on small random numbers, never by its name.
    Parameters, their names, hooks and saved files do not change. Patch before a model is wrapped (Trainer, DDP, FSDP,
    torch.compile). In training with labels the logits are not computed and `outputs.logits` is None;
    `model(..., skip_logits=False)` gives them. A second call replaces the first one's choices.

    model: a transformers model, or any torch.nn.Module with such parts
    embedding, rms_norm, mlp, rope, layer_norm, group_norm, loss: False leaves that kind alone
    verbose: print the report
    Errors: TypeError if model is no torch.nn.Module."""
    if not isinstance(model, nn.Module):
        raise TypeError(f"patch: model is a {type(model).__name__}, must be a torch.nn.Module")
    unpatch(model)
    wanted = dict(
        embedding=embedding,
        rms_norm=rms_norm,
        mlp=mlp,
        rope=rope,
        layer_norm=layer_norm,
        group_norm=group_norm,
        loss=loss,
    )
    report = Report()
    for path, module in model.named_modules():
        for kind, find in _FINDERS.items():
            with torch.device("cpu"):  # of the numbers that it is tried on; in from_pretrained the default is meta
                found = find(module) if wanted[kind] else None
            if found is None:
                continue
            if not isinstance(found, Left):
                obstacles = [reason for method in found.methods if (reason := method.obstacle())]
                found = Left(obstacles[0]) if obstacles else found
            if isinstance(found, Left):
                report.left.append(Entry(path, type(module).__name__, kind, found.reason))
                continue
            for method in found.methods:
                method.install()
            report.replaced.append(Entry(path, type(module).__name__, kind, found.detail))
    if verbose:
        print(report)
    return report


def unpatch(model: nn.Module) -> nn.Module:
    """Gives every module of the model its own methods back, and returns the model."""
    for module in model.modules():
        restore(module)
    return model
