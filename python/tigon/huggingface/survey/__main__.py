"""Surveys tigon.patch: each causal language model type of transformers, and some multimodal ones on text, stock against
patched.

A type is made small from its configuration: two layers, or one of each kind, and random parameters. survey_types.py
holds what a single type needs besides. A copy is patched in evaluation mode. Both get the same text, with padding and
ignored labels. Compared are:
  in f32   the loss and each gradient of a training step, without and with dropout; logits; 8 generated tokens
  in bf16  the loss
  after tigon.unpatch the loss and each gradient, bit by bit
The bounds are those of docs/train.md. Where one is exceeded, 8 times what rounding the weights does to stock is added.

outcomes:
  ok         nothing differs
  wrong      something differs, raises or hangs; the line says what
  unnamed    a module has the name of a part that Tigon has an operator for, and is in neither list of the report
  not built  survey_types.py says why
The exit status is 1 if a type is wrong, or if its row in docs/huggingface.md is no longer true."""

import argparse
import json
import multiprocessing
import os
import sys
import time
from collections import Counter
from dataclasses import asdict
from multiprocessing.connection import wait
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
import survey_table
import transformers
from survey_compare import Result, survey
from survey_models import NAMES, TEXT

EXAMPLES = """examples:
  tools/test-python survey                     all types, some minutes
  tools/test-python survey llama gemma2 -v     two of them, with what is replaced and why something is left
  tools/test-python survey --third             the third of them that CI runs
  tools/test-python survey --write             all, and the table in docs/huggingface.md anew
  tools/test-python survey --json survey.json  all, and everything that was found as JSON"""


def main(arguments: list[str]) -> int:
    options = _options(arguments)
    names = options.types or (NAMES[::3] if options.third else NAMES)
    if options.list:
        print("\n".join(names))
        return 0
    results = list(_surveyed(names, options.jobs, options.limit, options.verbose))
    results.sort(key=lambda result: NAMES.index(result.name))
    if options.json:
        Path(options.json).write_text(json.dumps([asdict(result) for result in results], indent=1) + "\n")
    if options.write:
        survey_table.write(results)
    stale = [] if options.write or options.no_table else survey_table.stale(results)
    _summarise(results, stale)
    return int(bool(stale) or any(result.outcome == "wrong" for result in results))


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="survey", description=__doc__, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("types", nargs="*", metavar="TYPE", help=f"model types; multimodal ones end in {TEXT}")
    parser.add_argument("--third", action="store_true", help="every third type")
    parser.add_argument("--list", action="store_true", help="print the types and stop")
    parser.add_argument("--jobs", type=int, default=1, help="types at a time (1)")
    parser.add_argument("--limit", type=float, default=180, metavar="SECONDS", help="for a type (180)")
    parser.add_argument("--json", metavar="FILE", help="write the results")
    parser.add_argument("--write", action="store_true", help="write the table in docs/huggingface.md")
    parser.add_argument("--no-table", action="store_true", help="do not hold the table to the results")
    parser.add_argument("-v", "--verbose", action="store_true", help="print what was replaced and left of each")
    options = parser.parse_args(arguments)
    unknown = [name for name in options.types if name not in NAMES]
    if unknown:
        parser.error(f"{unknown[0]} is no type of the survey; --list prints them")
    if options.write and (options.types or options.third):
        parser.error("--write wants all types")
    return options


def _surveyed(names: list[str], jobs: int, limit: float, verbose: bool):
    """The results as they come. A process of its own for each: one that hangs or crashes is a result, too."""
    fork = multiprocessing.get_context("fork")
    waiting, running, done = list(names), {}, 0
    while waiting or running:
        while waiting and len(running) < jobs:
            name = waiting.pop(0)
            ours, theirs = fork.Pipe(duplex=False)
            process = fork.Process(target=_child, args=(name, theirs))
            process.start()
            theirs.close()
            running[ours] = (name, process, time.monotonic())
        wait(running, timeout=1)
        for connection, (name, process, since) in list(running.items()):
            seconds = time.monotonic() - since
            result = _received(connection, name, process, seconds, limit)
            if result is None:
                continue
            del running[connection]
            process.kill()
            process.join()
            result.seconds, done = round(seconds, 2), done + 1
            print(f"{done}/{len(names)} {survey_table.line(result, verbose)}", flush=True)
            yield result


def _received(connection, name, process, seconds, limit) -> Result | None:
    if connection.poll():
        try:
            return connection.recv()
        except EOFError:
            process.join()
            return Result(name, outcome="wrong", wrong=[f"the process ended with {process.exitcode}"])
    if seconds > limit:
        return Result(name, outcome="wrong", wrong=[f"took more than {limit:g} seconds"])
    return None


def _child(name: str, connection) -> None:
    sys.stdout = sys.stderr = open(os.devnull, "w")  # stock models warn
    connection.send(survey(name))


def _summarise(results: list[Result], stale: list[str]) -> None:
    outcomes = Counter(result.outcome for result in results)
    replaced = sum((Counter(result.replaced) for result in results), Counter())
    left = Counter()
    for result in results:
        for kind, _, _, count in result.left:
            left[kind] += count
    print(f"{len(results)} types: " + ", ".join(f"{count} {outcome}" for outcome, count in outcomes.items()))
    for kind in sorted(replaced | left):
        print(f"  {kind:<10}  {replaced[kind]} replaced, {left[kind]} left")
    for result in results:
        if result.outcome != "ok":
            print(survey_table.line(result, verbose=False))
    for sentence in stale:
        print(sentence)


if __name__ == "__main__":
    transformers.logging.set_verbosity_error()
    sys.exit(main(sys.argv[1:]))
