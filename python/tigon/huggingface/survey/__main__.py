"""Tries tigon.patch on the model families of the installed transformers, stock against patched.

A family is a model type of transformers: every causal language model, and some multimodal ones on text (NAME+text).
Each is made small from its configuration: two layers, or one of each kind, and random parameters. Nothing is
downloaded. A copy is patched in evaluation mode. Both get the same text, with padding and ignored labels.

Compared are:
  in f32   the loss and each gradient of a training step, without and with dropout; logits; 8 generated tokens
  in f32   with tigon.patch(model, attention=True) the loss, each gradient and the logits, without padding
  in bf16  the loss
  after tigon.unpatch the loss and each gradient, bit by bit
The bounds are those of docs/train.md. Where one is exceeded, 8 times what rounding the weights does to stock is added.

A row counts the modules of each kind that are patched: "2 of 3" says that one was left. Below the row stands why, in
the words of tigon.patch. The last column says:
  ok         nothing differs
  wrong      something differs, raises or hangs: a bug of Tigon; report it with what python -m tigon.env prints
  unnamed    a module has the name of a part that Tigon has an operator for, and tigon.patch says nothing about it
  not built  the family has no small model here; the reason follows
The exit status is 1 if a family is wrong, or if --check finds a row that is no longer true."""

import argparse
import json
import os
import signal
import sys
from collections import Counter
from dataclasses import asdict
from pathlib import Path

import torch

EXAMPLES = """examples:
  python -m tigon.huggingface.survey                       all families, some minutes
  python -m tigon.huggingface.survey llama gemma2 -v       two of them, with all details
  python -m tigon.huggingface.survey --json > survey.json  everything that was found
  python -m tigon.huggingface.survey --markdown            the tables of docs/huggingface.md"""


def main(arguments: list[str] | None = None) -> int:
    try:
        import transformers
    except ImportError:
        print("survey: transformers is not installed: pip install transformers", file=sys.stderr)
        return 2
    transformers.logging.set_verbosity_error()
    from . import table
    from .families import NAMES
    from .workers import surveyed

    options = _options(arguments, NAMES)
    names = options.families or NAMES[:: options.every]
    if options.list:
        print("\n".join(names))
        return 0
    as_rows = not (options.json or options.markdown)
    if as_rows:
        print(table.head())
    results = []
    bar = _bar(names)
    try:
        for result in surveyed(names, options.jobs, options.seconds, options.memory):
            results.append(result)
            bar.update()
            if as_rows:
                bar.write(table.row(result, options.verbose), file=sys.stdout)
                sys.stdout.flush()
    except KeyboardInterrupt:
        bar.close()
        print(f"survey: stopped after {len(results)} of {len(names)} families", file=sys.stderr)
        return 130
    bar.close()
    if options.json:
        print(json.dumps(dict(versions=table.versions(), families=[asdict(result) for result in results]), indent=1))
    elif options.markdown:
        print(table.markdown(results), end="")
    else:
        _summarise(results, table.versions())
    if options.write:
        table.write(options.write, results)
    stale = table.stale(options.check, results) if options.check else []
    for sentence in stale:
        print(sentence, file=sys.stderr)
    return int(bool(stale) or any(result.outcome == "wrong" for result in results))


def _options(arguments: list[str] | None, names: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tigon.huggingface.survey",
        description=__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("families", nargs="*", metavar="FAMILY", help="model types as --list prints them (default: all)")
    parser.add_argument("--list", action="store_true", help="print the families and stop")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="only each N-th family")
    jobs = min(len(os.sched_getaffinity(0)), 8)
    parser.add_argument("--jobs", type=int, default=jobs, metavar="N", help=f"families at a time (here {jobs})")
    parser.add_argument("--seconds", type=float, default=180, help="limit of time for a family (180)")
    parser.add_argument("--memory", type=float, default=4, metavar="GIB", help="limit of memory for a family (4)")
    shapes = parser.add_mutually_exclusive_group()
    shapes.add_argument("--json", action="store_true", help="print everything that was found as JSON")
    shapes.add_argument("--markdown", action="store_true", help="print the tables of docs/huggingface.md")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="put these tables between the markers of a page")
    parser.add_argument("--check", type=Path, metavar="PAGE", help="fail if a row of a page is no longer true")
    parser.add_argument("-v", "--verbose", action="store_true", help="print seconds, and what could not be compared")
    options = parser.parse_args(arguments)
    for name in options.families:
        if name not in names:
            parser.error(f"{name} is no family of the survey; --list prints them{_meant(name, names)}")
    for option in ("every", "jobs", "seconds", "memory"):
        if getattr(options, option) <= 0:
            parser.error(f"--{option} is {getattr(options, option):g}, must be above 0")
    if options.write and (options.families or options.every > 1):
        parser.error("--write wants all families")
    for page in filter(None, (options.write, options.check)):
        from . import table

        if mistake := table.mistake(page):
            parser.error(mistake)
    return options


def _meant(name: str, names: list[str]) -> str:
    import difflib

    near = difflib.get_close_matches(name, names, 3)
    return f" (near it: {', '.join(near)})" if near else ""


def _bar(names: list[str]):
    """On stderr, where that is a terminal."""
    from tqdm import tqdm

    return tqdm(total=len(names), unit=" families", disable=None, file=sys.stderr, dynamic_ncols=True)


def _summarise(results, versions: str) -> None:
    outcomes = Counter(result.outcome for result in results)
    counts = ", ".join(f"{count} {outcome}" for outcome, count in outcomes.items())
    print(f"\n{versions}; {len(results)} {'family' if len(results) == 1 else 'families'}: {counts}")
    for result in results:
        if result.outcome == "wrong":
            print(f"{result.name}: {'; '.join(result.wrong[:2])}")


if __name__ == "__main__":
    torch.set_num_threads(1)  # families run side by side
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # as in `... | head`
    sys.exit(main())
