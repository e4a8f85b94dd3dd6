"""The survey's results as text: rows for a terminal, and the tables of docs/huggingface.md."""

import re
import shutil
import sys
import textwrap
from collections import defaultdict
from pathlib import Path

import torch
import transformers

import tigon

from .compare import Result
from .families import NAMES

BEGIN = "<!-- survey: written by `python -m tigon.huggingface.survey --write docs/huggingface.md` -->\n"
END = "<!-- survey: end -->\n"
KINDS = dict(
    embedding="embedding",
    rms_norm="RMS norm",
    layer_norm="layer norm",
    mlp="MLP",
    experts="experts",
    rope="rope",
    attention="attention",
    loss="head",
)
_HEAD = f"| family | {' | '.join(KINDS.values())} | result |\n|---|{'---:|' * len(KINDS)}---|\n"
_NAME = max(map(len, NAMES))
_WIDTH = 100


def versions() -> str:
    return f"tigon {tigon.version()}, transformers {transformers.__version__}, torch {torch.__version__}"


def head() -> str:
    return f"{'family':{_NAME}}  {'  '.join(KINDS.values())}  result"


def row(result: Result, verbose: bool) -> str:
    """A line for a terminal, and below it what else there is to say."""
    columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else 120
    cells = "  ".join(f"{cell:>{len(title)}}" for cell, title in zip(_cells(result), KINDS.values(), strict=True))
    details = [result.reason] * (result.outcome == "not built") + result.wrong[: None if verbose else 2]
    details += [f"{len(result.wrong)} in all: -v shows them"] * (len(result.wrong) > 2 and not verbose)
    details += [f"tigon.patch says nothing about {count} {name}" for name, count in result.unnamed.items()]
    details += [f"left {count} {name} ({KINDS.get(kind, kind)}): {why}" for kind, name, why, count in result.left]
    if verbose:
        details += [f"not compared: {text}" for text in result.skipped] + [f"{result.seconds:.1f} seconds"]
    indented = dict(width=max(columns, 60), initial_indent="    ", subsequent_indent="      ", break_on_hyphens=False)
    lines = [line for text in details for line in textwrap.wrap(text, **indented)]
    return "\n".join([f"{result.name:{_NAME}}  {cells}  {result.outcome}", *lines])


def _cells(result: Result) -> list[str]:
    """How many modules of each kind are replaced, and of how many."""
    cells = []
    for kind in KINDS:
        count = result.replaced.get(kind, 0)
        left = sum(n for other, _, _, n in result.left if other == kind)
        cells.append(f"{count} of {count + left}" if left else str(count or ""))
    return cells


def markdown(results: list[Result]) -> str:
    """The table of families, and the reasons of what was left."""
    rows = "".join(map(_markdown_row, results))
    return f"Written with transformers {transformers.__version__}.\n\n{_HEAD}{rows}\n{_reasons(results)}"


def _markdown_row(result: Result) -> str:
    if result.outcome == "not built":
        return f"| {result.name} |{' |' * len(KINDS)} not built: {result.reason} |\n"
    notes = ["**wrong**" if result.wrong else "ok"]
    notes += [f"not named: {', '.join(sorted(result.unnamed))}"] * bool(result.unnamed)
    notes += [f"no {text.split(':')[0]} in stock" for text in result.skipped]
    return f"| {result.name} | {' | '.join(_cells(result))} | {'; '.join(notes)} |\n"


def _reasons(results: list[Result]) -> str:
    """A list for each kind: a reason, and the classes of the modules that were left for it."""
    text = ""
    for kind, title in KINDS.items():
        classes = defaultdict(set)
        for result in results:
            for other, name, reason, _ in result.left:
                if other == kind:
                    classes[_without_figures(reason)].add(f"`{name}`")
        if classes:
            text += f"\n**{title}**\n"
        for reason, names in sorted(classes.items()):
            item = f"- {reason}: {', '.join(sorted(names))}."
            text += "\n".join(textwrap.wrap(item, _WIDTH, subsequent_indent="  ", break_on_hyphens=False)) + "\n"
    return text


def _without_figures(reason: str) -> str:
    """The first part of a sentence: what follows its colon may depend on the machine."""
    return reason.split(":")[0]


def mistake(page: Path) -> str | None:
    """Why a page cannot have the tables."""
    try:
        text = page.read_text()
    except (OSError, UnicodeDecodeError) as error:
        return f"{page} cannot be read: {getattr(error, 'strerror', None) or error}"
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
        return f"{page} does not have the two lines between which the tables stand: {BEGIN.strip()} and {END.strip()}"
    return None


def written(page: Path) -> str:
    return page.read_text().split(BEGIN)[1].split(END)[0]


def rows(page: Path) -> dict[str, str]:
    """A page's rows by family."""
    found = re.finditer(r"^\| ([\w.+-]+) \|.*\n", written(page), re.MULTILINE)
    return {match[1]: match[0] for match in found if match[1] in NAMES}


def write(page: Path, results: list[Result]) -> None:
    before, rest = page.read_text().split(BEGIN)
    _, after = rest.split(END)
    page.write_text(before + BEGIN + markdown(results) + END + after)


def stale(page: Path, results: list[Result]) -> list[str]:
    """Sentences on the rows and reasons that are no longer true."""
    there, known = rows(page), _known_reasons(page)
    sentences = []
    for result in results:
        wrong = [f"the row of {result.name}"] * (there.get(result.name) != _markdown_row(result))
        wrong += [
            f"the reason for {name} of {result.name}"
            for kind, name, reason, _ in result.left
            if (KINDS.get(kind, kind), _without_figures(reason), name) not in known
        ]
        sentences += [f"{page}: {what} is not what the survey finds: write the page anew" for what in wrong]
    return sentences


def _known_reasons(page: Path) -> set[tuple[str, str, str]]:
    """(title of a kind, reason, class) of a page's lists."""
    known, title = set(), None
    for block in re.split(r"\n(?=- |\*\*|\n)", written(page)):
        text = " ".join(block.split())
        if text.startswith("**"):
            title = text.strip("*")
        elif text.startswith("- "):
            reason, _, names = text[2:].partition(": `")
            known |= {(title, reason, name) for name in names.removesuffix("`.").split("`, `")}
    return known
