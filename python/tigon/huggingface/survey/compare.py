"""Stock against patched: the loss, each gradient, dropout, logits, generation, and what unpatch leaves."""

import dataclasses
import functools
import inspect
import math
import re
import warnings
from collections import Counter
from dataclasses import dataclass, field

import torch
import transformers

from ..patching import patch as patch_model
from ..patching import unpatch
from .families import batch, model, prompt, small_config
from .sizes import NOT_BUILT

_DROPOUT = 0.25
_NEW_TOKENS = 8
_SHAKES, _ALLOWED = 3, 8  # samples of what rounding the weights does, and how many times the largest is allowed


@dataclass
class Result:
    """What became of one family. `left` counts modules by (kind, class, reason), `unnamed` by class."""

    name: str
    model: str = ""
    outcome: str = "ok"  # or "wrong", "unnamed", "not built"
    reason: str = ""
    replaced: dict[str, int] = field(default_factory=dict)
    left: list[tuple[str, str, str, int]] = field(default_factory=list)
    unnamed: dict[str, int] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)  # what stock does not do
    seconds: float = 0.0


def survey(name: str, patch=patch_model, built=lambda: None) -> Result:
    """`built` is called once stock has made a step."""
    result = Result(name)
    try:
        result.model = type(model(name)).__name__
        step(model(name), batch(name))
    except Exception as error:  # whatever a stranger's model raises
        result.outcome, result.reason = "not built", NOT_BUILT.get(name, _sentence(error))
        return result
    built()
    if name in NOT_BUILT:
        result.wrong.append("is built, and NOT_BUILT names it")
    try:
        _compare(result, patch)
    except Exception as error:
        result.wrong.append(f"raises {_sentence(error)}")
    result.outcome = "wrong" if result.wrong else "unnamed" if result.unnamed else "ok"
    return result


def _compare(result: Result, patch) -> None:
    pair = Pair(result.name, patch)
    report = pair.report
    result.replaced = report.counts()
    result.left = _counted(report.left)
    result.unnamed = dict(Counter(unnamed_parts(pair.patched, report)))
    result.wrong += pair.different_steps()
    result.wrong += pair.unused_head()
    result.wrong += pair.different_logits()
    try:
        result.wrong += pair.different_tokens()
    except StockRaises as error:
        result.skipped.append(f"generate: {_sentence(error.__cause__)}")
    result.wrong += pair.different_after_unpatch()
    _compare_attention(result, patch)

    try:
        dropping = Pair(result.name, patch, _DROPOUT if has_dropout(result.name) else 0.0)
        if dropping.dropout:
            result.wrong += [f"with dropout: {text}" for text in dropping.different_steps()]
    except StockRaises as error:
        result.skipped.append(f"dropout: {_sentence(error.__cause__)}")
        dropping = Pair(result.name, patch)
    try:
        result.wrong += dropping.different_half()
    except StockRaises as error:
        result.skipped.append(f"bf16: {_sentence(error.__cause__)}")


def _compare_attention(result: Result, patch) -> None:
    """Adds what tigon.patch(attention=True) does besides. Calls that run as before count as left."""
    pair = Pair(result.name, functools.partial(patch, attention=True), padded=False)
    entries = [entry for entry in pair.report.replaced if entry.kind == "attention"]
    left = [entry for entry in pair.report.left if entry.kind == "attention"]
    if entries:
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            differences = pair.different_steps() + pair.different_logits()
        result.wrong += [f"with attention: {text}" for text in differences]
        said = [re.fullmatch(r"tigon.patch: an attention (.*) \((\w+)\)", str(warning.message)) for warning in seen]
        as_before = {match[2]: match[1] for match in said if match}  # by the class of a layer
        for entry in list(entries):
            layers = {type(layer).__name__ for layer in pair.patched.get_submodule(entry.path).modules()}
            if ours := sorted(as_before.keys() & layers):
                entries.remove(entry)
                left.append(dataclasses.replace(entry, text=f"it {as_before[ours[0]]}"))
    if entries:
        result.replaced["attention"] = len(entries)
    result.left += _counted(left)


def _counted(left) -> list[tuple[str, str, str, int]]:
    counts = Counter((entry.kind, entry.module, entry.text) for entry in left)
    return [(*key, count) for key, count in counts.items()]


def _sentence(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"


class StockRaises(Exception):
    """The stock model does not do what is to be compared; the cause says why."""


def of_stock(function, *arguments):
    try:
        return function(*arguments)
    except Exception as error:
        raise StockRaises from error


# The survey's own view of what a part is, by the names of classes and modules, which tigon.patch never looks at.
_PART = re.compile(r"(RMS|Layer|Group)Norm(Gated|1P)?$|Experts$|(MLP|FeedForward)\w*$")
_NO_PART = re.compile(r"Rotary|Router|Rope")
_PLAIN_MLP = re.compile(r"(MLP|FeedForward)\w*$")  # act(x A) B, for which there is no operator but with relu squared
_GATED = re.compile(r"gate|w3$|wi_1$")


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
    if isinstance(module, torch.nn.Embedding):
        return True
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
    transformers.set_seed(seed)  # torch's, and Python's own, which drops layers
    return learner(**{key: value for key, value in inputs.items() if key in taken})


def bounds(report_counts, loss, inputs, dtype) -> tuple[float, float]:
    """(loss, a gradient as a share of its norm): docs/train.md, "The losses". A replaced norm rounds 4 values on its
    way to the loss, an MLP and a rope 3, the attentions of two layers 8. The adds of two layers and the loss are 12."""
    u = torch.finfo(dtype).eps / 2
    rounded = dict(rms_norm=4, layer_norm=4, group_norm=4, mlp=3, rope=3, attention=8)
    n = 12 + sum(rounded.get(kind, 0) * count for kind, count in report_counts.items())
    tokens = (inputs["labels"] != -100).sum().item()
    return (
        abs(loss) * (8 * 2**-24 + 6 * math.sqrt(n / tokens) * u),
        6 * (math.sqrt(3 * n) * u + math.sqrt(tokens) * 2**-24),
    )


def shaken(name: str, seed: int, dtype=torch.float32, dropout: float = 0.0) -> torch.nn.Module:
    """Stock with weights that are off by about one rounding: how much it differs is what rounding alone does."""
    twin = model(name, dropout)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in twin.parameters():
            parameter.mul_(1 + torch.finfo(dtype).eps * torch.randn(parameter.shape, generator=generator))
    return twin


def differ(a: torch.Tensor, b: torch.Tensor) -> float:
    return (a.double() - b.double()).norm().item()


class Pair:
    """Stock and patched models of one type, patched in the mode in which `from_pretrained` returns a model. Training
    steps, in f32 and bf16, follow on one seed: a dropout that is lost, or done twice, shows in the loss."""

    def __init__(self, name: str, patch=patch_model, dropout: float = 0.0, padded: bool = True):
        self.name, self.dropout, self.inputs = name, dropout, batch(name, padded)
        self.stock, self.patched = of_stock(model, name, dropout), model(name, dropout).eval()
        self.report = patch(self.patched)

    def bounds(self, loss: float, dtype=torch.float32) -> tuple[float, float]:
        return bounds(self.report.counts(), loss, self.inputs, dtype)

    def different_steps(self) -> list[str]:
        """Sentences on what of a training step is beyond docs/train.md's bound and what rounding alone does."""
        loss, gradients = of_stock(step, self.stock.train(), self.inputs)
        got_loss, got_gradients = step(self.patched.train(), self.inputs)
        if gradients.keys() != got_gradients.keys():
            return [f"gradients of other parameters: {sorted(gradients.keys() ^ got_gradients.keys())[:3]}"]
        if not math.isfinite(loss):
            return [f"the stock loss is {loss}"]
        loss_bound, bound = self.bounds(loss.item())
        limits = {key: bound * gradient.double().norm().item() for key, gradient in gradients.items()}
        errors = {key: differ(got_gradients[key], gradient) for key, gradient in gradients.items()}
        if differ(loss, got_loss) <= loss_bound and all(errors[key] <= limits[key] for key in errors):
            return []
        noise = [step(shaken(self.name, seed, dropout=self.dropout), self.inputs) for seed in range(_SHAKES)]
        loss_bound += _ALLOWED * max(differ(loss, other) for other, _ in noise)
        wrong = []
        if not differ(loss, got_loss) <= loss_bound:
            wrong.append(f"loss {got_loss:.7g}, must be {loss:.7g} within {loss_bound:.1g}")
        for key, error in errors.items():
            limit = limits[key] + _ALLOWED * max(differ(gradients[key], other[key]) for _, other in noise)
            if not error <= limit:
                norm = gradients[key].double().norm().item()
                wrong.append(f"gradient of {key} is off by {error:.2g}, must be within {limit:.2g} of {norm:.2g}")
        return wrong

    def unused_head(self) -> list[str]:
        """A head that is reported as replaced makes no logits in training."""
        made = forward(self.patched.train(), self.inputs).get("logits") is not None
        return ["the head is reported as replaced, and logits are made"] * (made and "loss" in self.report.counts())

    def different_logits(self) -> list[str]:
        want, got = logits(self.stock.eval(), self.inputs), logits(self.patched.eval(), self.inputs)
        if want.shape != got.shape:
            return [f"logits of shape {tuple(got.shape)}, must be {tuple(want.shape)}"]
        limit = self.bounds(1.0)[1] * want.double().norm().item()
        if not differ(want, got) <= limit:
            noise = [differ(want, logits(shaken(self.name, seed).eval(), self.inputs)) for seed in range(_SHAKES)]
            limit += _ALLOWED * max(noise)
        if differ(want, got) <= limit:
            return []
        return [f"logits are off by {differ(want, got):.2g}, must be within {limit:.2g}"]

    def different_tokens(self) -> list[str]:
        want, got = of_stock(generated, self.stock.eval()), generated(self.patched.eval())
        new = slice(-_NEW_TOKENS, None)
        return [] if torch.equal(want, got) else [f"generates {got[0, new].tolist()}, must {want[0, new].tolist()}"]

    def different_half(self) -> list[str]:
        """The loss in bf16; the models stay in bf16."""
        want, got = of_stock(half_loss, self.stock, self.inputs), half_loss(self.patched, self.inputs)
        bound, _ = self.bounds(want, torch.bfloat16)
        if not abs(got - want) <= bound:
            others = [shaken(self.name, seed, torch.bfloat16, self.dropout) for seed in range(_SHAKES)]
            bound += _ALLOWED * max(abs(half_loss(other, self.inputs) - want) for other in others)
        return [] if abs(got - want) <= bound else [f"bf16 loss {got:.5g}, must be {want:.5g} within {bound:.1g}"]

    def different_after_unpatch(self) -> list[str]:
        unpatch(self.patched)
        loss, gradients = step(self.stock.train(), self.inputs)
        got_loss, got_gradients = step(self.patched.train(), self.inputs)
        same = torch.equal(loss, got_loss) and gradients.keys() == got_gradients.keys()
        if same and all(torch.equal(gradients[key], got_gradients[key]) for key in gradients):
            return []
        return ["unpatched it differs from stock"]


def half_loss(learner, inputs) -> float:
    inputs = {key: value.bfloat16() if value.is_floating_point() else value for key, value in inputs.items()}
    with torch.no_grad():
        return forward(learner.train().to(torch.bfloat16), inputs).loss.item()


def has_dropout(name: str) -> bool:
    return str(small_config(name)) != str(of_stock(small_config, name, _DROPOUT))


def generated(learner) -> torch.Tensor:
    options = dict(max_new_tokens=_NEW_TOKENS, min_new_tokens=_NEW_TOKENS, do_sample=False, pad_token_id=0)
    return learner.generate(prompt(), **options)


def logits(learner, inputs) -> torch.Tensor:
    with torch.no_grad():
        return forward(learner, {key: value for key, value in inputs.items() if key != "labels"}).logits
