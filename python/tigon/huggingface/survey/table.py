"""The survey's results as text: a line, and the table in docs/huggingface.md."""

import re
from collections import Counter
from pathlib import Path

from survey_compare import Result
from survey_models import NAMES

PAGE = Path(__file__).parents[2] / "docs" / "huggingface.md"
BEGIN, END = "<!-- survey: written by `make test-models ARGS=--write` -->\n", "<!-- survey: end -->\n"
KINDS = dict(embedding="embedding", rms_norm="RMS norm", layer_norm="layer norm", mlp="MLP", experts="experts", rope="rope", loss="head")
_HEAD = f"| model type | {' | '.join(KINDS.values())} | result |\n|---|{'---:|' * len(KINDS)}---|\n"


def line(result: Result, verbose: bool) -> str:
    """One line of progress."""
    text = f"{result.outcome:<9} {result.name:<24} {result.seconds:5.1f} s"
    details = [result.reason] * (result.outcome == "not built") + result.wrong[:2]
    details += [f"{len(result.wrong)} in all"] * (len(result.wrong) > 2)
    details += [f"unnamed: {_counted(result.unnamed)}"] * bool(result.unnamed)
    if verbose:
        details += [f"replaced {_counted(result.replaced)}"]
        details += [f"left {count} {model} ({kind}): {reason}" for kind, model, reason, count in result.left]
        details += result.wrong[2:] + [f"not compared: {text}" for text in result.skipped]
    return "\n    ".join([text, *details])


def _counted(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.items())


def row(result: Result) -> str:
    """Of each kind how many modules are replaced, and of how many."""
    if result.outcome == "not built":
        return f"| {result.name} |{' |' * len(KINDS)} not built: {result.reason} |\n"
    cells = []
    for kind in KINDS:
        count = result.replaced.get(kind, 0)
        left = sum(n for other, _, _, n in result.left if other == kind)
        cells.append(f"{count} of {count + left}" if left else str(count or ""))
    classes = Counter()
    for _, model, _, count in result.left:
        classes[model] += count
    notes = [f"left: {', '.join(f'`{name}`' for name in sorted(classes))}"] * bool(classes)
    notes += [f"not named: {', '.join(sorted(result.unnamed))}"] * bool(result.unnamed)
    notes += [f"no {text.split(':')[0]} in stock" for text in result.skipped]
    ok = "**wrong**" if result.wrong else "ok"
    return f"| {result.name} | {' | '.join(cells)} | {'; '.join([ok, *notes])} |\n"


def table() -> str:
    """What stands in the page."""
    return PAGE.read_text().split(BEGIN)[1].split(END)[0]


def rows() -> dict[str, str]:
    """The page's rows by model type."""
    found = re.finditer(r"^\| ([\w.+-]+) \|.*\n", table(), re.MULTILINE)
    return {match[1]: match[0] for match in found if match[1] in NAMES}


def write(results: list[Result]) -> None:
    before, rest = PAGE.read_text().split(BEGIN)
    _, after = rest.split(END)
    PAGE.write_text(before + BEGIN + _HEAD + "".join(map(row, results)) + END + after)


def stale(results: list[Result]) -> list[str]:
    """Sentences on the rows that are no longer true."""
    written = rows()
    return [
        f"{PAGE.name}: the row of {result.name} is not what the survey finds: make test-models ARGS=--write"
        for result in results
        if written.get(result.name) != row(result)
    ]
