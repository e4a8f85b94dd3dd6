"""patch and unpatch: a walk over a model's modules, and the report of it."""

import functools
from collections import Counter
from dataclasses import dataclass, field

import torch
from torch import nn

from . import attention as attentions
from .embeddings import find_embedding
from .experts import find_experts
from .head import find_head
from .mlp import find_mlp
from .norms import find_group_norm, find_layer_norm, find_rms_norm
from .replacement import DTYPES, Left, Replacement, is_distributed, restore
from .rope import find_rotary
from .trials import Differs, Unrunnable, quiet

_FINDERS = {
    "embedding": find_embedding,
    "rms_norm": find_rms_norm,
    "mlp": find_mlp,
    "experts": find_experts,
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
    """What `patch` replaced, what it left and why, and what of the replaced it could not verify and why."""

    replaced: list[Entry] = field(default_factory=list)
    left: list[Entry] = field(default_factory=list)
    unverified: list[Entry] = field(default_factory=list)

    def counts(self) -> dict[str, int]:
        """Replaced modules of each kind."""
        return dict(Counter(entry.kind for entry in self.replaced))

    def __str__(self):
        lines = [f"replaced {len(self.replaced)}:", *(f"  {entry}" for entry in self.replaced)]
        lines += [f"left {len(self.left)}:", *(f"  {entry}" for entry in self.left)]
        if self.unverified:
            lines += [f"not verified {len(self.unverified)}:", *(f"  {entry}" for entry in self.unverified)]
        return "\n".join(lines)


def patch(
    model: nn.Module,
    *,
    embedding: bool = True,
    rms_norm: bool = True,
    mlp: bool | str = True,
    experts: bool = True,
    rope: bool = True,
    layer_norm: bool = True,
    group_norm: bool = True,
    loss: bool = True,
    attention: bool = False,
    verify: bool = True,
    verbose: bool = False,
) -> Report:
    """Makes the model compute with Tigon's operators what it computed before; in place, undone by `unpatch`.

    A module's kind is found by its structure and by running it on small random numbers, never by its name.
    Parameters, their names, hooks and saved files do not change. Patch before a model is wrapped (Trainer, DDP, FSDP,
    torch.compile). In training with labels the logits are not computed and `outputs.logits` is None;
    `model(..., skip_logits=False)` gives them. TRL's trainers get their log-probabilities from the same head. A second
    call replaces the first one's choices.

    model: a transformers model, or any torch.nn.Module with such parts.
    embedding, rms_norm, mlp, experts, rope, layer_norm, group_norm, loss: False leaves that kind alone.
    mlp: "tiled" makes a gated MLP one operator. It works on one tile of tokens at a time, and keeps only its input for
      backward. The report says what that saves.
    attention: True gives the model Tigon's attention, by transformers' registry. It has softcap, sinks, windows and
      packed sequences. Calls that it does not take run as before, and a warning says why.
    verify: each replaced module is compared with its own forward on a few random rows, in both modes. A module beyond
      its bound is put back, and `Report.left` names it. `Report.unverified` names modules that cannot be compared:
      weights on the device meta, sharded or quantised, or an output of their own that is not finite.
    verbose: print the report.
    Errors: TypeError if model is no torch.nn.Module; ValueError if mlp is another word."""
    if not isinstance(model, nn.Module):
        raise TypeError(f"patch: model is a {type(model).__name__}, must be a torch.nn.Module")
    if mlp not in (True, False, "tiled"):
        raise ValueError(f"patch: mlp is {mlp!r}, must be True, False or 'tiled'")
    unpatch(model)
    finders = _FINDERS | ({"mlp": functools.partial(find_mlp, tiled=True)} if mlp == "tiled" else {})
    wanted = dict(
        embedding=embedding,
        rms_norm=rms_norm,
        mlp=mlp,
        experts=experts,
        rope=rope,
        layer_norm=layer_norm,
        group_norm=group_norm,
        loss=loss,
    )
    report = Report()
    heads = []  # the outermost model that makes logits with a head has it
    with quiet(model):
        for path, module in model.named_modules():
            verdicts = {kind: find(module) for kind, find in finders.items() if wanted[kind]}
            for kind, found in verdicts.items():
                if kind == "loss" and found is not None:
                    head = module.get_output_embeddings()
                    found = None if any(head is other for other in heads) else found
                    heads.append(head)
                if found is None:
                    continue
                entry = functools.partial(Entry, path, type(module).__name__, kind)
                if not isinstance(found, Left):
                    obstacles = [reason for method in found.methods if (reason := method.obstacle())]
                    found = Left(obstacles[0]) if obstacles else found
                unknown = _unverifiable(found) if verify and not isinstance(found, Left) else None
                if verify and unknown is None and not isinstance(found, Left):
                    try:
                        unknown = _verify(found)
                    except Differs as difference:
                        found = Left(str(difference))
                if isinstance(found, Left):
                    report.left.append(entry(found.reason))
                    continue
                if unknown is not None:
                    report.unverified.append(entry(unknown))
                for method in found.methods:
                    method.install()
                report.replaced.append(entry(found.detail))
        for path, module, verdict, unknown in attentions.switch(model) if attention else ():
            entry = functools.partial(Entry, path, type(module).__name__, "attention")
            if isinstance(verdict, Left):
                report.left.append(entry(verdict.reason))
                continue
            if unknown is not None:
                report.unverified.append(entry(unknown))
            report.replaced.append(entry(verdict))
    if verbose:
        print(report)
    return report


def _unverifiable(found: Replacement) -> str | None:
    """Why a replacement cannot be compared with the module's own forward."""
    for method in found.methods[-1:] if found.weighs else ():
        for name, tensor in (*method.owner.named_parameters(), *method.owner.named_buffers()):
            if tensor.device.type == "meta":
                return f"its {name} is on the device meta"
            if is_distributed(tensor) or tensor.numel() == 0:
                return f"its {name} is sharded"
            plain = type(tensor) is nn.Parameter and tensor.dtype in DTYPES
            if isinstance(tensor, nn.Parameter) and not plain:
                return f"its {name} is a {type(tensor).__name__} of {str(tensor.dtype).removeprefix('torch.')}"
    return None


def _verify(found: Replacement) -> str | None:
    """Differs if the replacement is not the module's own forward; the reason, if that one does not run."""
    for training in (False, True):
        mode = "training" if training else "evaluation"
        try:
            pairs = found.compare(training)
        except Unrunnable as error:
            return str(error)
        except Exception as error:
            raise Differs(f"its replacement raises {type(error).__name__} in {mode} mode: {error}") from None
        for pair in pairs:
            if pair.roundings and isinstance(pair.old, torch.Tensor) and not pair.old.isfinite().all():
                return f"its own output in {mode} mode is not finite"
            if difference := pair.difference():
                raise Differs(f"verified in {mode} mode, {difference}")
    return None


def unpatch(model: nn.Module) -> nn.Module:
    """Gives every module of the model its own methods back, and returns the model."""
    for module in model.modules():
        restore(module)
    attentions.switch_back(model)
    return model
