"""Stock against patched: the loss, each gradient, dropout, logits, generation, and what unpatch leaves."""

import copy
import inspect
import math
import re
from collections import Counter
from dataclasses import dataclass, field

import torch
from survey_models import batch, model, prompt, small_config

import tigon

SHAKES = 3
_ALLOWED = 8  # times what rounding the weights moves
_NEW_TOKENS = 8


@dataclass
class Result:
    """What became of one model type. `left` and `unnamed` count modules by (kind, class, reason) and by class."""

    name: str
    model: str = ""
    outcome: str = "ok"  # or "wrong", "not built"
    reason: str = ""
    replaced: dict[str, int] = field(default_factory=dict)
    left: list[tuple[str, str, str, int]] = field(default_factory=list)
    unnamed: dict[str, int] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    seconds: float = 0.0


def survey(name: str, patch=tigon.patch) -> Result:
    result = Result(name)
    try:
        stock = model(name)
        inputs = batch(name)
        result.model = type(stock).__name__
        step(stock, inputs)
    except Exception as error:
        result.outcome, result.reason = "not built", _sentence(error)
        return result
    try:
        patched = copy.deepcopy(stock)
        report = patch(patched)
        result.replaced = report.counts()
        result.left = [(*key, count) for key, count in Counter(map(_key, report.left)).items()]
        result.unnamed = dict(Counter(unnamed_parts(patched, report)))
        for compare in (_training, _half, _dropout, _evaluation, _generation, _unpatch):
            compare(result, name, stock, patched, inputs, patch)
    except Exception as error:
        result.wrong.append(f"raises {_sentence(error)}")
    if result.wrong:
        result.outcome = "wrong"
    return result


def _key(entry) -> tuple[str, str, str]:
    return entry.kind, entry.module, entry.text


def _sentence(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"


# The survey's own view of what a part is, by the names of classes and modules, which tigon.patch never looks at.
_PART = re.compile(r"(RMS|Layer|Group)Norm|Embedding$|Experts$|(MLP|FeedForward)\w*$")
_NO_PART = re.compile(r"Rotary|Router|Rope")
_PLAIN_MLP = re.compile(r"(MLP|FeedForward)\w*$")  # act(x A) B, for which there is no operator but with relu squared
_GATED = re.compile(r"gate|up_proj|w3$|wi_1")


def unnamed_parts(patched: torch.nn.Module, report) -> list[str]:
    """Classes of the modules that look like parts and are neither in the report nor around or inside one that is."""
    entries = [*report.replaced, *report.left]
    rotated = {entry.path for entry in entries if entry.kind == "rope"}
    named = {entry.path for entry in entries if entry.path and entry.kind != "rope"}
    missing = []
    for path, module in patched.named_modules():
        kind = type(module).__name__
        known = any((path + ".").startswith(other + ".") or other.startswith(path + ".") for other in named)
        if not known and _looks_like_a_part(kind, module):
            missing.append(kind)
        if calls_rope(type(module)) and path not in rotated:
            missing.append(f"rope of {kind}")
    return missing


def _looks_like_a_part(kind: str, module: torch.nn.Module) -> bool:
    if not _PART.search(kind) or _NO_PART.search(kind) or next(module.parameters(), None) is None:
        return False
    children = dict(module.named_children())
    squared = any(type(child).__name__ == "ReLUSquaredActivation" for child in children.values())
    return not _PLAIN_MLP.search(kind) or squared or any(_GATED.search(name) for name in children)


def calls_rope(module_class: type) -> bool:
    code = getattr(module_class.forward, "__code__", None)
    return code is not None and any(re.match(r"apply_(\w*_)?rotary|apply_rope", name) for name in code.co_names)


def step(learner, inputs, seed=0) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """(loss, gradients by name) of one training step."""
    learner.zero_grad()
    loss = forward(learner, inputs, seed).loss
    loss.backward()
    return loss.detach(), {name: p.grad.clone() for name, p in learner.named_parameters() if p.grad is not None}


def forward(learner, inputs, seed=0):
    taken = inspect.signature(type(learner).forward).parameters
    inputs = inputs | dict(use_cache=False)
    torch.manual_seed(seed)
    return learner(**{key: value for key, value in inputs.items() if key in taken})


def bounds(report_counts, loss, inputs, dtype) -> tuple[float, float]:
    """(loss, a gradient as a share of its norm): docs/train.md, "The losses". A replaced norm rounds 4 values on its
    way to the loss, an MLP and a rope 3, an embedding and its gradient 2, and the head's loss 8."""
    u = torch.finfo(dtype).eps / 2
    rounded = dict(rms_norm=4, layer_norm=4, group_norm=4, mlp=3, rope=3)
    n = 12 + sum(rounded.get(kind, 2) * count for kind, count in report_counts.items())
    tokens = (inputs["labels"] != -100).sum().item()
    return (
        abs(loss) * (8 * 2**-24 + 6 * math.sqrt(n / tokens) * u),
        6 * (math.sqrt(3 * n) * u + math.sqrt(tokens) * 2**-24),
    )


def shaken(stock, dtype, seed):
    """A copy whose weights are off by about one rounding: by how much it differs is what rounding alone does."""
    twin = copy.deepcopy(stock)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in twin.parameters():
            noise = torch.randn(parameter.shape, generator=generator) * torch.finfo(dtype).eps
            parameter.mul_(1 + noise.to(parameter.dtype) if dtype == torch.float32 else 1 + noise)
    return twin


def _differ(a: torch.Tensor, b: torch.Tensor) -> float:
    return (a.double() - b.double()).norm().item()


def _training(result, name, stock, patched, inputs, patch):
    stock.train(), patched.train()
    want, got = step(stock, inputs), step(patched, inputs)
    result.wrong += different_steps(stock, want, got, result.replaced, inputs)


def different_steps(stock, want, got, counts, inputs) -> list[str]:
    """Sentences on what of a training step is outside of docs/train.md's bound and of what rounding alone does."""
    (loss, gradients), (got_loss, got_gradients) = want, got
    if gradients.keys() != got_gradients.keys():
        return [f"gradients of other parameters: {sorted(gradients.keys() ^ got_gradients.keys())[:3]}"]
    if not math.isfinite(loss):
        return [f"the stock loss is {loss}"]
    loss_bound, bound = bounds(counts, loss.item(), inputs, torch.float32)
    limits = {name: bound * gradient.double().norm().item() for name, gradient in gradients.items()}
    errors = {name: _differ(got_gradients[name], gradient) for name, gradient in gradients.items()}
    if _differ(loss, got_loss) <= loss_bound and all(errors[name] <= limits[name] for name in errors):
        return []
    noise = [step(shaken(stock, torch.float32, seed), inputs) for seed in range(SHAKES)]
    loss_bound += _ALLOWED * max(_differ(loss, other) for other, _ in noise)
    wrong = []
    if not _differ(loss, got_loss) <= loss_bound:
        wrong.append(f"loss {got_loss:.7g}, must be {loss:.7g} within {loss_bound:.1g}")
    for name, error in errors.items():
        limit = limits[name] + _ALLOWED * max(_differ(gradients[name], other[name]) for _, other in noise)
        if not error <= limit:
            norm = gradients[name].double().norm().item()
            wrong.append(f"gradient of {name} is off by {error:.2g}, must be within {limit:.2g} of {norm:.2g}")
    return wrong


def _half(result, name, stock, patched, inputs, patch):
    """The loss in bf16."""
    try:
        want = _half_loss(stock, inputs)
    except Exception as error:  # a stock model that does not run in bf16
        result.skipped.append(f"bf16: {_sentence(error)}")
        return
    got = _half_loss(patched, inputs)
    bound, _ = bounds(result.replaced, want, inputs, torch.bfloat16)
    if abs(got - want) <= bound:
        return
    noise = [_half_loss(shaken(stock, torch.bfloat16, seed), inputs) for seed in range(SHAKES)]
    bound += _ALLOWED * max(abs(other - want) for other in noise)
    if not abs(got - want) <= bound:
        result.wrong.append(f"bf16 loss {got:.5g}, must be {want:.5g} within {bound:.1g}")


def _half_loss(learner, inputs) -> float:
    with torch.no_grad():
        twin = copy.deepcopy(learner).to(torch.bfloat16)
        return forward(twin, {k: v.bfloat16() if v.is_floating_point() else v for k, v in inputs.items()}).loss.item()


def _dropout(result, name, stock, patched, inputs, patch):
    """Patched in evaluation mode, as from_pretrained returns a model, then trained: under one seed of random numbers
    the same elements are dropped, so a dropout that is lost or done twice shows in the loss."""
    if str(small_config(name)) == str(small_config(name, 0.25)):
        result.skipped.append("dropout: the configuration has none")
        return
    dropping = model(name, 0.25)
    want = step(dropping, inputs)
    twin = copy.deepcopy(dropping).eval()
    report = patch(twin)
    got = step(twin.train(), inputs)
    result.wrong += [f"with dropout: {text}" for text in different_steps(dropping, want, got, report.counts(), inputs)]


def _evaluation(result, name, stock, patched, inputs, patch):
    stock.eval(), patched.eval()
    want, got = _logits(stock, inputs), _logits(patched, inputs)
    _, bound = bounds(result.replaced, 1.0, inputs, torch.float32)
    if want.shape != got.shape:
        result.wrong.append(f"logits of shape {tuple(got.shape)}, must be {tuple(want.shape)}")
        return
    limit = bound * want.double().norm().item()
    if not _differ(want, got) <= limit:
        noise = [_differ(want, _logits(shaken(stock, torch.float32, seed), inputs)) for seed in range(SHAKES)]
        limit += _ALLOWED * max(noise)
    if not _differ(want, got) <= limit:
        result.wrong.append(f"logits are off by {_differ(want, got):.2g}, must be within {limit:.2g}")


def _logits(learner, inputs) -> torch.Tensor:
    with torch.no_grad():
        return forward(learner, {key: value for key, value in inputs.items() if key != "labels"}).logits


def _generation(result, name, stock, patched, inputs, patch):
    stock.eval(), patched.eval()
    try:
        want = _generated(stock)
    except Exception as error:
        result.skipped.append(f"generate: stock raises {_sentence(error)}")
        return
    got = _generated(patched)
    if not torch.equal(want, got):
        result.wrong.append(f"generates {got[0, 7:].tolist()}, must {want[0, 7:].tolist()}")


def _generated(learner) -> torch.Tensor:
    torch.manual_seed(0)
    tokens = dict(max_new_tokens=_NEW_TOKENS, min_new_tokens=_NEW_TOKENS)
    return learner.generate(prompt(), do_sample=False, pad_token_id=0, **tokens)


def _unpatch(result, name, stock, patched, inputs, patch):
    tigon.unpatch(patched)
    stock.train(), patched.train()
    (loss, gradients), (got_loss, got_gradients) = step(stock, inputs), step(patched, inputs)
    same = torch.equal(loss, got_loss) and gradients.keys() == got_gradients.keys()
    if not same or not all(torch.equal(gradients[key], got_gradients[key]) for key in gradients):
        result.wrong.append("unpatched it differs from stock")
