"""The head of a causal language model and its loss, without the logits.

The model's own forward runs as it is. While it trains on labels, its `lm_head` answers with the loss of
fused_linear_cross_entropy where logits are expected, and its `loss_function` hands that loss on. The weight is read
inside the forward of `lm_head` and nowhere else, so whatever gathers it there (FSDP, ZeRO, offloading) has done so."""

import functools
import inspect
import types
from dataclasses import dataclass
from functools import partial
from itertools import product

import torch
from torch import nn

from ..torch import functional as F
from . import trl_head
from .replacement import Left, Method, Pair, Replacement, computable, is_distributed
from .trials import Given, Unrunnable, generator, twin


@dataclass
class _Call:
    """One training forward: the targets [B, T] on the way in, the loss on the way out."""

    target: torch.Tensor
    items: torch.Tensor | int | None
    ignore_index: int
    loss: torch.Tensor | None = None


def find_head(model: nn.Module) -> Replacement | Left | None:
    """A model whose logits are those of a torch.nn.Linear, its own or that of a model inside it, under transformers'
    ForCausalLMLoss. What happens to the logits in between (nothing, a scale, a softcap) is found by running its own
    forward on known logits, in both modes."""
    if not hasattr(type(model), "loss_function"):
        return None
    head = model.get_output_embeddings()
    path = next((path for path, child in model.named_modules() if child is head), None)
    if head is None or not path:
        return None
    from transformers.loss.loss_utils import ForCausalLMLoss

    if not isinstance(head, nn.Linear) or type(head).forward is not nn.Linear.forward:
        return Left(f"its {path} is a {type(head).__name__}, must be a torch.nn.Linear")
    if model.loss_function is not ForCausalLMLoss:
        return Left(f"its loss is {getattr(model.loss_function, '__name__', model.loss_function)}, not ForCausalLMLoss")
    if trl_head.of_trl(vars(model).get("forward")):
        return trl_head.find(model)
    transform = _transform(model, path)
    if transform is None or isinstance(transform, Left):
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
        return call.loss.view((1,) * hidden.ndim)  # whose shape a forward may ask for

    def loss_function(self, *args, **kwargs):
        call = vars(self.get_submodule(path)).get("tigon_call")
        if call is None or call.loss is None:
            return ForCausalLMLoss(*args, **kwargs)
        if call.items is None:
            return call.loss
        return call.loss / (call.items.to(call.loss.device) if torch.is_tensor(call.items) else call.items)

    @functools.wraps(type(model).forward)
    def forward(self, *args, skip_logits=None, **kwargs):
        keep = kwargs.get("logits_to_keep", 0)
        skip = self.training if skip_logits is None else skip_logits
        head = self.get_submodule(path)
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
            Method(model, "get_output_embeddings", trl_head.get_output_embeddings),
            Method(head, "forward", head_forward),
        ),
        partial(_compare, model, path, head_forward, loss_function, forward),
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


class _Outputs:
    """The base model's outputs: hidden states, and None for everything else."""

    def __init__(self, hidden):
        self.last_hidden_state = hidden

    def __getitem__(self, index):
        return (self.last_hidden_state,)[index]

    def __getattr__(self, name):
        return None


def _around(model: nn.Module, path: str, training: bool, outputs, head: nn.Module) -> list[nn.Module]:
    """Twins of the model and of the models inside it that the path of its head leads through, outermost first.

    `head` is in the place of its head, and every other child answers with `outputs`."""
    name, _, rest = path.partition(".")
    inside = _around(getattr(model, name), rest, training, outputs, head) if rest else [head]

    def answer(*args, **kwargs):  # what is between the base model and the head is left out
        hidden = outputs.last_hidden_state
        given = isinstance(args[0], torch.Tensor) and args[0].data_ptr() == hidden.data_ptr() if args else False
        return args[0] if given else outputs

    children = {child: Given(answer, place) for child, place in model.named_children()} | {name: inside[0]}
    return [twin(model, training, children), *(inside if rest else [])]


def _run(model: nn.Module, forward, labels: torch.Tensor, **options):
    """A forward of the twin on labels, which serve as ids, too."""
    if "output_router_logits" in inspect.signature(type(model).forward).parameters:
        options["output_router_logits"] = False  # whose loss is of other outputs, which stand-ins do not give
    return forward(model, input_ids=labels.clamp(min=0), labels=labels, **options)


def _transform(model: nn.Module, path: str) -> tuple[float, float | None] | Left | None:
    """(temperature, softcap): what the model's forward does to lm_head's output, as cross_entropy does it.

    None if the loss is made elsewhere, by a model inside this one."""
    head = model.get_submodule(path)
    labels = torch.zeros(2, 3, dtype=torch.long)
    found, losses = [], []
    for training, seed in product((False, True), (0, 1)):
        given, seen = _logits((2, 3, head.out_features), seed).requires_grad_(), []

        def loss_function(depth, logits, labels, vocab_size=None, **kwargs):
            seen.append((depth, logits, labels, vocab_size, kwargs))
            return torch.tensor(0.5)

        outputs = _Outputs(torch.randn(2, 3, head.in_features, dtype=torch.float32))
        twins = _around(model, path, training, outputs, Given(given, head))
        for depth, made in enumerate(twins):
            vars(made)["_loss_function"] = partial(loss_function, depth)
        try:
            with torch.enable_grad():
                result = _run(twins[0], type(model).forward, labels)
        except Exception as error:  # whatever a stranger's forward raises
            return Left(f"its forward cannot be followed: {error}")
        if len(seen) != 1:
            return Left(f"its forward calls its loss_function {len(seen)} times, must once")
        ((depth, logits, seen_labels, width, others),) = seen
        if depth:
            return None
        if seen_labels is not labels or logits.shape != given.shape or width not in (None, head.out_features):
            return Left("its forward changes the labels or the shape of the logits on the way to its loss")
        others = sorted(name for name, value in others.items() if value is not None and name in _read_by_the_loss())
        if others:
            return Left(f"its forward gives its loss {', '.join(others)}")
        scale = _scale(given.detach(), logits.detach().double())
        found.append(scale)
        if scale is None or scale != found[0]:
            mode = " in training mode" if training else ""
            return Left(f"its forward does more to the logits than to scale and to softcap them{mode}")
        if not isinstance(result, (tuple, dict)):
            return Left(f"its forward gives a {type(result).__name__}, must be a tuple or a ModelOutput")
        named = dict(enumerate(result)) if isinstance(result, tuple) else result
        loss, *rest = (value for key, value in named.items() if key not in ("logits", 1))
        if any(isinstance(value, torch.Tensor) and value.requires_grad for value in (loss, *rest)):
            return Left("its forward uses the logits for more than its loss")
        losses.append(float(loss))
        if losses[-1] != losses[0]:
            return Left("its forward uses the logits for more than its loss")
    return found[0]


@functools.cache
def _read_by_the_loss() -> set[str]:
    """Arguments of transformers' loss. It drops others, such as the `vision_feature_layer` of Mistral 3."""
    from transformers.loss import loss_utils

    functions = loss_utils.ForCausalLMLoss, getattr(loss_utils, "fixed_cross_entropy", loss_utils.ForCausalLMLoss)
    return {name for function in functions for name in inspect.signature(function).parameters} - {"kwargs"}


def _logits(shape: tuple[int, ...], seed: int) -> torch.Tensor:
    """Logits of both signs, from 1e-3 to 1e6 in size; the first is the smallest, the last the largest."""
    numbers = generator(seed)
    uniform, sign = (torch.rand(shape, generator=numbers, dtype=torch.float64) for _ in range(2))
    logits = 10 ** (uniform * 9 - 3) * (sign * 2 - 1).sign()
    logits.view(-1)[0], logits.view(-1)[-1] = 1e-3, 1e6
    return logits


def _scale(x: torch.Tensor, z: torch.Tensor) -> tuple[float, float | None] | None:
    """(temperature, softcap) with z = softcap * tanh(x / temperature / softcap)."""
    x, z = x.flatten(), z.flatten()
    ratio, softcap = (z[0] / x[0]).item(), _short(z[-1].item())  # at 1e-3, where tanh is straight; at 1e6, where it is flat
    if not ratio > 0:
        return None
    for slope in (_short(ratio), 1 / _short(1 / ratio)):  # a model multiplies by a number, or divides
        if torch.allclose(z, slope * x, rtol=1e-6):
            return 1 / slope, None
        if torch.allclose(z, softcap * torch.tanh(slope * x / softcap), rtol=1e-6):
            return 1 / slope, softcap
    return None


def _short(number: float) -> float:
    """Without what f32 adds to a number that somebody wrote down."""
    return float(f"{number:.6g}")


def _compare(model, path, head_forward, loss_function, forward, training: bool) -> list[Pair]:
    """The loss of random hidden states, and their gradient, with the weights of the head."""
    head = model.get_submodule(path)
    numbers = generator(0)
    hidden = torch.randn(2, 3, head.in_features, generator=numbers).to(head.weight.device, head.weight.dtype)
    labels = torch.randint(head.out_features, (2, 3), generator=numbers).to(head.weight.device)
    labels[1, 1] = -100

    def step(function, **options):
        given = hidden.clone().requires_grad_()
        inner = twin(head, training, parameters={k: p.detach() for k, p in head.named_parameters()})
        twins = _around(model, path, training, _Outputs(given), inner)
        if function is forward:
            vars(inner)["forward"] = types.MethodType(head_forward, inner)
            vars(twins[0])["_loss_function"] = types.MethodType(loss_function, twins[0])
        with torch.enable_grad():
            result = _run(twins[0], function, labels, **options)
            return result, result[0].detach(), *torch.autograd.grad(result[0], given)

    try:
        result, loss, gradient = step(type(model).forward)
        largest = result.logits.detach().abs().max().item()
    except Exception as error:  # whatever a stranger's forward raises
        raise Unrunnable(f"its own forward raises {type(error).__name__}: {error}") from None
    _, our_loss, our_gradient = step(forward, skip_logits=True)
    # A logit x that is rounded changes exp(x) by |x| roundings.
    roundings, terms = (int(count * (1 + largest) ** 2) for count in (8, head.in_features))
    dtype = hidden.dtype  # in which stock rounds the logits
    return [Pair(*pair, roundings, terms, dtype) for pair in ((loss, our_loss), (gradient, our_gradient))]
