"""The head of TRL's trainers: their projection of hidden states to log-probabilities, computed by linear_logprob.

TRL gives a model a forward that calls the base model, asks `get_output_embeddings()` for the head, and hands the head's
weight to a function of trl.trainer.utils. A patched model answers that question and puts a stand-in in the function's
place. The stand-in serves one call and puts TRL's own function back, so other models never meet it."""

import functools
import inspect
import sys
import warnings
import weakref

import torch

from ..torch import functional as F
from ..torch._autograd import autocasting
from .replacement import Left, Method, Pair, Replacement, computable, is_distributed

_MODULE, _NAME = "trl.trainer.utils", "_ChunkedLogProbFunction"
_INPUTS = "hidden", "weight", "bias", "targets", "temperature", "chunk_size", "final_logit_softcapping", "logit_scale"
_OUTPUTS = "entropy", "log_sum_sq_probs", "mean_logits", "is_top1"
_CHUNK = 1 << 24  # logits that are held to average them


def of_trl(forward) -> bool:
    """Whether a model's forward is the one that TRL put there, or goes around it, as accelerate's for autocast does."""
    while forward is not None:
        function = getattr(forward, "__func__", forward)
        if getattr(function, "__globals__", {}).get("__name__") == _MODULE:
            return True
        forward = getattr(function, "__wrapped__", None)
    return False


def find(model) -> Replacement | Left:
    """A model that a trainer has got before it is patched: all but TRL's head stays as it is."""
    stock = _stock()
    reason = obstacle(stock)
    if reason is not None:
        return Left(f"TRL's head is left alone: {reason}")
    method = Method(model, "get_output_embeddings", get_output_embeddings)
    return Replacement("linear_logprob in TRL's forward", (method,), lambda training: _pairs(stock), weighs=False)


def get_output_embeddings(self):
    head = type(self).get_output_embeddings(self)
    if of_trl(vars(self).get("forward")):
        _stand_in(self)
    return head


def _stand_in(model) -> None:
    if _known():
        setattr(sys.modules[_MODULE], _NAME, _Projection(model, _stock()))


@torch.compiler.assume_constant_result
def _known() -> bool:
    reason = obstacle(_stock())
    if reason is not None:
        _warn(reason)
    return reason is None


def _stock():
    """TRL's own function, whatever stands in its place; None if it has moved."""
    found = getattr(sys.modules[_MODULE], _NAME, None)
    return found.stock if isinstance(found, _Projection) else found


@functools.cache
def _warn(reason: str) -> None:
    warnings.warn(f"tigon: TRL's head is left alone: {reason}", stacklevel=2)


class _Projection:
    """In the place of TRL's function, for one call of `apply`."""

    def __init__(self, model, stock):
        self.model, self.stock = weakref.ref(model), stock

    def apply(self, hidden, weight, bias, targets, *options):
        setattr(sys.modules[_MODULE], _NAME, self.stock)
        if self._of_model(weight) and _takes(hidden, weight, bias, *options):
            return project(hidden, weight, bias, targets, *options)
        return self.stock.apply(hidden, weight, bias, targets, *options)

    def _of_model(self, weight) -> bool:
        """A weight that FSDP2 shards is gathered into another tensor on the way."""
        model = self.model()
        if model is None or "get_output_embeddings" not in vars(model):
            return False
        asked = type(model).get_output_embeddings(model).weight
        return asked is weight or is_distributed(asked)


def _takes(hidden, weight, bias, temperature, chunk_size, softcap=None, scale=1.0, outputs=_OUTPUTS) -> bool:
    """ZeRO-3 takes the weight away before backward, which TRL's own backward knows. A sharded head has no argmax."""
    tensors = [t for t in (hidden, weight, bias) if t is not None]
    sharded = is_distributed(weight) or any(hasattr(t, "ds_id") for t in (weight, bias))
    return not sharded and all(map(computable, tensors)) and scale > 0 and (softcap is None or softcap > 0)


def project(hidden, weight, bias, targets, temperature, chunk_size, softcap=None, scale=1.0, outputs=_OUTPUTS):
    """(log-probability, entropy, log of the sum of squared probabilities, mean logit, is the target the likeliest), [N]
    each, None where `outputs` does not name it.

    TRL's logits are softcap * tanh(x * scale / softcap) / temperature of x = hidden @ weight.T + bias: with
    softcap_first, Tigon's of softcap / scale and temperature / scale. Only the first two have gradients."""
    if not autocasting(hidden):  # which casts for itself
        weight, bias = (t if t is None else t.to(hidden.dtype) for t in (weight, bias))
    options = dict(ignore_index=None, softcap=softcap and softcap / scale, softcap_first=True)
    temperature = temperature / scale
    found = F.linear_logprob(
        hidden, weight, targets, bias, temperature=temperature, entropy="entropy" in outputs, **options
    )
    log_squares = mean = None
    with torch.no_grad():
        if "log_sum_sq_probs" in outputs:  # lse(2 z) - 2 lse(z), in which the target's own logit cancels out
            doubled = F.linear_logprob(hidden, weight, targets, bias, temperature=temperature / 2, **options)
            log_squares = 2 * found.logprob - doubled.logprob
        if "mean_logits" in outputs:
            mean = mean_logits(hidden, weight, bias, options["softcap"]) / temperature
    top = found.argmax == targets if "is_top1" in outputs else None
    return found.logprob, found.entropy, log_squares, mean, top


def mean_logits(hidden, weight, bias, softcap):
    """The mean of [N, V] by rows: without a softcap, that of the weight's rows times hidden."""
    if softcap is None:
        with torch.autocast(hidden.device.type, enabled=False):
            mean = hidden.float() @ weight.mean(0, dtype=torch.float32)
        return mean if bias is None else mean + bias.float().mean()
    means = [hidden.new_empty(0, dtype=torch.float32)]
    for rows in hidden.split(max(1, _CHUNK // weight.shape[0])):
        means.append((softcap * torch.tanh(F.linear(rows, weight, bias).float() / softcap)).mean(-1))
    return torch.cat(means)


def obstacle(stock) -> str | None:
    """Why TRL's function is not the one that `project` computes, as a sentence."""
    if stock is None:
        return f"{_MODULE} has no {_NAME}"
    try:
        return _verdict(stock)
    except Exception as error:  # whatever a stranger's function raises
        return f"{_NAME} raises {type(error).__name__}: {error}"


@functools.cache
def _verdict(stock) -> str | None:
    """Its signature, and what it computes on a few random numbers, with its gradients."""
    names = tuple(inspect.signature(stock.forward).parameters) if hasattr(stock, "forward") else ()
    if names != ("ctx", *_INPUTS, "outputs"):
        return f"{_NAME}.forward takes {', '.join(names) or 'nothing'}, must take ctx, {', '.join(_INPUTS)}, outputs"
    with torch.autocast("cpu", enabled=False), torch.inference_mode(False), torch.device("cpu"), torch.enable_grad():
        return next((f"{_NAME} computes something else: {d}" for p in _pairs(stock) if (d := p.difference())), None)


def _pairs(stock) -> list[Pair]:
    return [pair for softcap, scale in ((None, 1.0), (3.0, 0.5)) for pair in _compare(stock, softcap, scale)]


@torch.enable_grad()
def _compare(stock, softcap, scale) -> list[Pair]:
    numbers = torch.Generator().manual_seed(0)
    drawn = [torch.randn(s, generator=numbers, dtype=torch.float32) for s in ((9, 16), (23, 16), (23,))]
    upstream = torch.randn(2, 9, generator=numbers, dtype=torch.float32)
    targets = torch.randint(23, (9,), generator=numbers)
    likeliest = (drawn[0] @ drawn[1].T + drawn[2]).argmax(-1)
    targets[::2] = likeliest[::2]

    def step(function):
        given = [t.clone().requires_grad_() for t in drawn]
        found = function(*given, targets, 0.7, 8, softcap, scale, _OUTPUTS)
        gradients = torch.autograd.grad(found[:2], given, list(upstream))
        return [t.detach().float() for t in (*found, *gradients)]

    return [Pair(*pair, 32, 32) for pair in zip(step(stock.apply), step(project), strict=True)]
