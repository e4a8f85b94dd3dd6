"""Records of what was measured: bench/results/*.csv. Lines that begin with `#` say of which commit, when, on what and by which command;
below them is a row for each case and party, whose numbers have few significant digits. A row that does not say its case is of
the one above it; empty values at a row's end are left out.

A record is written from a clean tree only, so that everybody can check out what it measured."""
import csv
import datetime
import os
import pathlib
import platform
import re
import shlex
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench/results"
DIGITS = {"spread": 2, "disturbed": 2, "wrong_by": 2, "host_us": 3}  # significant ones
MOST_DIGITS = 5  # tells apart times of kernels that are level


def output(*command):
    try:
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def add_options(parser, name):
    parser.add_argument("--out", metavar="FILE", help=f"(default: bench/results/{name}.csv)")
    parser.add_argument("--no-record", action="store_true",
                        help="the tree may have changes; nothing is written but to --out, which says that it is no record")


def tree():
    """(commit, whether the tree has what the commit has not). The records themselves may differ: a run writes one of several.
    Where a commit was unpacked without git, TIGON_COMMIT names it."""
    named = os.environ.get("TIGON_COMMIT")
    if output("git", "rev-parse", "--show-toplevel") != str(ROOT):
        return named, False
    commit = output("git", "rev-parse", "HEAD")
    if named and not commit.startswith(named):
        sys.exit(f"TIGON_COMMIT is {named}, but the tree is of {commit}")
    return commit, output("git", "status", "--porcelain", "--", ".", ":!bench/results") != ""


def begin(options):
    """The first lines of the record that a run makes; ends the program where it would be none."""
    commit, changed = tree()
    if not options.no_record and (changed or not commit):
        why = "the tree has changes that no commit has" if changed else "no commit is known: git and TIGON_COMMIT name none"
        print(f"{pathlib.Path(sys.argv[0]).stem}: {why}, so this would be no record (--no-record)", file=sys.stderr)
        sys.exit(3)
    return {"commit": commit or "unknown", "tree": "not a record: the tree may have changes" if options.no_record else "clean",
            "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
            "command": command()}


def command():
    """What measures the same again: the command without the place of its record, which is a path of this machine."""
    words = [os.path.relpath(sys.argv[0], ROOT), *sys.argv[1:]]
    places = [i for i, word in enumerate(words) if word == "--out"]
    return shlex.join(word for i, word in enumerate(words) if not (i in places or i - 1 in places or word.startswith("--out=")))


def versions(**more):
    text = (ROOT / "include/tigon/base.h").read_text().splitlines()
    numbers = [line.split()[-1] for part in ("MAJOR", "MINOR", "PATCH") for line in text
               if line.startswith(f"#define TIGON_VERSION_{part} ")]
    found = {"tigon": ".".join(numbers), "python": platform.python_version(), **more}
    return ", ".join(f"{name} {version}" for name, version in found.items() if version)


def place(options, name):
    """Where a run writes; None: nowhere."""
    return pathlib.Path(options.out) if options.out else None if options.no_record else RESULTS / f"{name}.csv"


def rounded(name, value):
    """1.05e9 for 1.05e+09, which is a fortieth of a record."""
    return re.sub(r"e\+?(-?)0*", r"e\1", f"{value:.{DIGITS.get(name, MOST_DIGITS)}g}") if isinstance(value, float) else value


def write(path, head, columns, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w", newline="") as file:
        for name, text in head.items():
            file.write(f"# {name}: {text}\n")
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        for row in rows:
            values = [rounded(name, row.get(name)) for name in columns]
            while values and values[-1] in (None, ""):
                values.pop()
            writer.writerow(values)


def read(path):
    """(first lines, rows), with numbers as floats and nothing as None."""

    def number(text):
        try:
            return float(text) if text else None
        except ValueError:
            return text

    with open(path, newline="") as file:
        lines = file.readlines()
    head = dict(line[2:].rstrip("\n").split(": ", 1) for line in lines if line.startswith("# "))
    rows = csv.DictReader(line for line in lines if not line.startswith("# "))
    return head, [{name: number(text) for name, text in row.items()} for row in rows]


def by_party(cases):
    """Rows of a record: each case's parties. What a case is, and all its other values stand in its first row alone, Tigon's."""
    for case in cases:
        of_case = {name: value for name, value in case.items() if not isinstance(value, dict)}
        for party, figures in case.items():
            if isinstance(figures, dict):
                yield {**(of_case if party == "tigon" else {}), "party": party, **figures}


def by_case(rows):
    """The reverse."""
    cases = []
    for row in rows:
        if row["party"] == "tigon":
            cases.append(dict(row))
        cases[-1][row["party"]] = row
    return cases


def cases(*names):
    """Cases of some records, on warm memory; the newest record counts where several have the same."""
    found = {}
    for _, rows in sorted((read(RESULTS / f"{name}.csv") for name in names), key=lambda record: record[0]["date"]):
        for row in by_case(rows):
            if row.get("memory", "warm") == "warm":
                found[row["op"], row["mode"], row["dtype"], row["shape"]] = row
    return list(found.values())
