"""The head of a causal language model and its loss, without the logits.

The model's own forward runs as it is. While it trains on labels, its `lm_head` answers with the loss of
fused_linear_cross_entropy where logits are expected, and its `loss_function` hands that loss on. The weight is read
inside the forward of `lm_head` and nowhere else, so whatever gathers it there (FSDP, ZeRO, offloading) has done so."""

import copy
import functools
import inspect
from dataclasses import dataclass

import torch
from torch import nn

from ..torch import functional as F
from .replacement import Left, Method, Replacement, computable, is_distributed


@dataclass
class _Call:
    """One training forward: the targets [B, T] on the way in, the loss on the way out."""

    target: torch.Tensor
    items: torch.Tensor | int | None
    ignore_index: int
    loss: torch.Tensor | None = None


def find_head(model: nn.Module) -> Replacement | Left | None:
    """A model with an `lm_head` and transformers' ForCausalLMLoss. What happens to the logits in between (nothing, a
    scale, a softcap) is found by running its own forward on known logits."""
    head = model.get_output_embeddings() if hasattr(model, "loss_function") else None
    name = next((name for name, child in model.named_children() if child is head), None)
    if head is None or name is None:
        return None
    from transformers.loss.loss_utils import ForCausalLMLoss

    if not isinstance(head, nn.Linear) or type(head).forward is not nn.Linear.forward:
        return Left(f"its {name} is a {type(head).__name__}, must be a torch.nn.Linear")
    if model.loss_function is not ForCausalLMLoss:
        return Left(f"its loss is {getattr(model.loss_function, '__name__', model.loss_function)}, not ForCausalLMLoss")
    transform = _logits_transform(model, name)
    if isinstance(transform, Left):
        return transform
    temperature, softcap = transform

    def head_forward(self, hidden):
        call = vars(self).get("tigon_call")
        whole = self.weight.shape[0] == self.out_features and not is_distributed(self.weight)
        if call is None or not computable(hidden) or not whole:
            return type(self).forward(self, hidden)
        call.loss = F.fused_linear_cross_entropy(
            hidden,
            self.weight,
            call.target.to(hidden.device),
            self.bias,
            ignore_index=call.ignore_index,
            reduction="mean" if call.items is None else "sum",
            softcap=softcap,
            temperature=temperature,
        )
        return call.loss

    def loss_function(self, *args, **kwargs):
        call = vars(getattr(self, name)).get("tigon_call")
        if call is None or call.loss is None:
            return ForCausalLMLoss(*args, **kwargs)
        if call.items is None:
            return call.loss
        return call.loss / (call.items.to(call.loss.device) if torch.is_tensor(call.items) else call.items)

    @functools.wraps(type(model).forward)
    def forward(self, *args, skip_logits=None, **kwargs):
        keep = kwargs.get("logits_to_keep", 0)
        skip = self.training if skip_logits is None else skip_logits
        head = getattr(self, name)
        if kwargs.get("labels") is None or not skip or not isinstance(keep, int) or keep != 0:
            return type(self).forward(self, *args, **kwargs)
        call = _Call(_shifted(kwargs), kwargs.get("num_items_in_batch"), kwargs.get("ignore_index", -100))
        vars(head)["tigon_call"] = call
        try:
            outputs = type(self).forward(self, *args, **kwargs)
        finally:
            del vars(head)["tigon_call"]
        return outputs if call.loss is None else _without_logits(outputs)

    scale = "" if temperature == 1 else f", logits / {temperature:g}"
    return Replacement(
        "fused_linear_cross_entropy" + scale + ("" if softcap is None else f", softcap {softcap:g}"),
        (
            Method(model, "forward", forward),
            Method(model, "_loss_function", loss_function),
            Method(head, "forward", head_forward),
        ),
        lambda training: [],
    )


def _shifted(kwargs: dict) -> torch.Tensor:
    """Token t predicts t + 1, as in ForCausalLMLoss."""
    if kwargs.get("shift_labels") is not None:
        return kwargs["shift_labels"]
    padded = nn.functional.pad(kwargs["labels"], (0, 1), value=kwargs.get("ignore_index", -100))
    return padded[..., 1:].contiguous()


def _without_logits(outputs):
    if isinstance(outputs, tuple):  # loss, logits, ...
        return outputs[:1] + outputs[2:]
    return type(outputs)(**{key: value for key, value in outputs.items() if key != "logits"})


class _Known(nn.Module):
    """A child whose output is known."""

    def __init__(self, output):
        super().__init__()
        self.output = output

    def forward(self, *args, **kwargs):
        return self.output


class _Outputs:
    """The base model's outputs: hidden states, and None for everything else."""

    def __init__(self, hidden):
        self.last_hidden_state = hidden

    def __getitem__(self, index):
        return (self.last_hidden_state,)[index]

    def __getattr__(self, name):
        return None


def _logits_transform(model: nn.Module, name: str) -> tuple[float, float | None] | Left:
    """(temperature, softcap): what the model's forward does to lm_head's output, as cross_entropy does it."""
    magnitude = torch.logspace(-3, 6, 64, dtype=torch.float64)
    given = torch.cat([-magnitude.flip(0), magnitude]).expand(1, 2, -1)  # [B, T, V]
    seen = []

    def loss_function(logits, labels, vocab_size=None, **kwargs):
        seen.append((logits, labels))
        return logits.new_zeros(())

    twin = copy.copy(model)
    outputs = _Outputs(torch.zeros(1, 2, getattr(model, name).in_features))
    twin._modules = {child: _Known(outputs) for child in model._modules} | {name: _Known(given)}
    twin._loss_function = loss_function
    labels = torch.zeros(1, 2, dtype=torch.long)
    routed = "output_router_logits" in inspect.signature(type(model).forward).parameters
    off = {"output_router_logits": False} if routed else {}
    try:
        with torch.no_grad():
            type(model).forward(twin, input_ids=labels, labels=labels, **off)
        ((logits, seen_labels),) = seen
    except Exception as error:  # whatever a stranger's forward raises
        return Left(f"its forward cannot be followed: {error}")
    if seen_labels is not labels or logits.shape != given.shape:
        return Left("its forward changes the labels or the shape of the logits on the way to its loss")

    x, z = given[0, 0], logits[0, 0].double()
    slope = (z[64] / x[64]).item()  # at 1e-3, where tanh is straight
    if slope > 0 and torch.allclose(z, slope * x, rtol=1e-6):
        return 1 / slope, None
    softcap = z[-1].item()  # at 1e6, where tanh is flat
    if slope > 0 and torch.allclose(z, softcap * torch.tanh(slope * x / softcap), rtol=1e-6):
        return 1 / slope, softcap
    return Left("its forward does more to the logits than to scale and to softcap them")
