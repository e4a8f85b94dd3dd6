"""python -m tigon.report: a page about training on this machine with and without Tigon."""

import argparse
import datetime
import importlib.metadata
import importlib.util
import json
import platform
import re
import shlex
import sys
from pathlib import Path

import tigon

from . import page
from .measure import measure
from .trainer import MODELS, PROVIDERS, WARM_UP, Case

TOKENS = {"tiny": 512, "llama-3-8b": 4096, "quick": 64}
EPILOG = f"""
It trains a Llama with random weights four times, side by side: as transformers makes it, patched by Tigon, by
torch.compile, and by Liger-Kernel. A peer that cannot run is named with the reason. Time, memory and losses go into
the page:

  python -m tigon.report                         tigon-report/report.html and report.csv, some minutes
  python -m tigon.report --quick                 seconds: a toy model, f32, without torch.compile
  python -m tigon.report --dtype bf16 --out my.html
  python -m tigon.report --json > figures.json   only the figures; needs no matplotlib

models:
"""


def arguments(given):
    models = "\n".join(
        f"  {name:12}{model.text}: hidden {model.hidden_size}, vocabulary {model.vocab_size}, {TOKENS[name]} tokens"
        for name, model in MODELS.items()
    )
    parser = argparse.ArgumentParser(
        prog="python -m tigon.report",
        description="Makes " + __doc__.split(": ", 1)[1],
        epilog=EPILOG + models,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    places = "a folder, or a file *.html or *.csv (default: tigon-report); an earlier report's are replaced"
    parser.add_argument("--out", type=Path, help=places)
    parser.add_argument("--device", help="cpu, cuda, cuda:N, npu or npu:N (default: an accelerator where there is one)")
    parser.add_argument("--dtype", nargs="+", choices=("f32", "bf16"), help="default: both on a CPU, else bf16")
    parser.add_argument("--model", choices=MODELS, help="default: tiny on a CPU, else llama-3-8b")
    parser.add_argument("--steps", type=int, help=f"of which {WARM_UP} warm up (default: 30)")
    parser.add_argument("--quick", action="store_true", help="a look in seconds, not a measurement")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON; no files without --out")
    options = parser.parse_args(given)

    if options.device != "cpu":  # torch takes seconds to import, which the CPU need not wait for
        from tigon import _accelerator

        options.device = options.device or _accelerator.default()
        if mistake := _accelerator.mistake(options.device):
            parser.error(mistake)
    kind = options.device.partition(":")[0]
    options.steps = options.steps if options.steps is not None else WARM_UP + 3 if options.quick else 30
    if options.steps <= WARM_UP:
        parser.error(f"--steps is {options.steps}, must be more than {WARM_UP}, which warm up")
    options.model = options.model or ("quick" if options.quick else "tiny" if kind == "cpu" else "llama-3-8b")
    options.dtype = options.dtype or (["f32"] if options.quick else ["f32", "bf16"] if kind == "cpu" else ["bf16"])
    options.out = options.out or (None if options.json else Path("tigon-report"))
    return options


def progress(case, step, steps):
    """A bar on stderr, where that is a terminal; `step` None takes it away."""
    if not sys.stderr.isatty():
        return
    bar = ""
    if step is not None:
        drawn = "#" * (30 * step // steps)
        bar = f"{case.model} {case.dtype} [{drawn:30}] step {step} of {steps}, {case.tokens} tokens each"
    print(f"\r\x1b[K{bar}", end="", file=sys.stderr, flush=True)


def versions():
    found = {"tigon": tigon.version(), "python": platform.python_version()}
    for package in ("torch", "transformers", "liger-kernel"):
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            pass
    driver = Path("/proc/driver/nvidia/version")
    if driver.exists():
        found["driver"] = re.search(r"\d+\.[\d.]+", driver.read_text())[0]
    return found


def places(out):
    """(page or None, CSV), in a folder that exists from here on."""
    table = out.with_suffix(".csv") if out.suffix in (".csv", ".html") else out / "report.csv"
    table.parent.mkdir(parents=True, exist_ok=True)
    return None if out.suffix == ".csv" else table.with_suffix(".html"), table


def main(given=None):
    given = sys.argv[1:] if given is None else given
    options = arguments(given)
    try:
        document, table = places(options.out) if options.out else (None, None)
    except OSError as error:
        sys.exit(f"tigon.report: --out: {error}")
    if document and not importlib.util.find_spec("matplotlib"):
        sys.exit("tigon.report: the page needs matplotlib: pip install matplotlib; --json and --out *.csv do not")
    left = {"torch_compile": "--quick leaves it out, as it compiles for a minute"} if options.quick else {}
    cases = []
    for dtype in options.dtype:
        case = Case(options.model, dtype, options.device, TOKENS[options.model])
        progress(case, 0, options.steps)
        cases.append(measure(case, options.steps, left, lambda case, step: progress(case, step, options.steps)))
        progress(case, None, options.steps)
    rows = [row for case in cases for row in case["rows"]]
    report = dict(
        device=rows[0]["device"] if rows else options.device,
        threads=rows[0]["threads"] if rows and options.device == "cpu" else None,
        timestamp=datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M:%S"),
        versions=versions(),
        command=shlex.join(["python", "-m", "tigon.report", *given]),
        steps=options.steps,
        cases=cases,
    )
    if table:
        table.write_text(page.csv_text(report))
    if document:
        document.write_text(page.html(report, table.name))
    written = "\n".join(str(path) for path in (document, table) if path)
    print(json.dumps(report) if options.json else page.terminal_text(report) + written)
    ran = all({"stock", "tigon"} <= {row["provider"] for row in case["rows"]} for case in cases)
    return 0 if ran else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
