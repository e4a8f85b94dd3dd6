#!/usr/bin/env python3
"""Prints the tables of README.md and docs that are made from the records in bench/results.
With --check it holds the docs to the records, and the records to their rules: the test `records`."""
import argparse
import statistics
import sys

import cuda_sizes
import peers_cpu
import records
from cuda_rows import best_peer, is_behind, ratio

MODES = peers_cpu.MODES
HEAD = ["commit", "tree", "date", "command", "device", "versions"]  # what a record says of itself
MOST_BYTES = 200_000  # the most bytes of all records together
RULE = "2026-11-24"  # records of before say in `tree` what is not known of them
TITLES = {"tigon": "Tigon", "stock": "transformers", "torch_compile": "torch.compile", "liger": "Liger-Kernel"}


def joined(values, form):
    return " / ".join(format(value, form) for value in values)


def by_mode(rows):
    """{(op, dtype, shape): its cases in the order of the record}"""
    found = {}
    for row in rows:
        found.setdefault((row["op"], row["dtype"], row["shape"]), []).append(row)
    return found


def of_cpu(name):
    lines = ["| operator | dtype | forward | backward | both |", "|---|---|---:|---:|---:|"]
    for (op, dtype, _), modes in by_mode(records.cases(name)).items():
        cells = [joined((peers_cpu.ratio(row, name) for name in peers_cpu.PEERS if name in row), ".1f") for row in modes]
        if len(cells) == 1:  # forward makes the gradients, too, unless there are none
            cells = [*cells, "", ""] if "+quantised" in op else ["", "", *cells]
        lines.append(f"| `{op}` | {dtype} | {' | '.join(cells)} |")
    return lines


def cpu():
    """PyTorch and oneDNN on the CPU, with warm memory."""
    return of_cpu("peers_cpu")


def heads():
    """Heads, losses and newer operators on the CPU, beside PyTorch eager and torch.compile."""
    return of_cpu("heads_cpu")


def microseconds(row):
    us = row["tigon"]["median_ms"] * 1e3
    return f"{us:.3g}" if us < 1000 else f"{us:.0f}" if us < 10_000 else f"{us / 1000:.1f}k"


def on_a_gpu():
    return records.cases("peers_cuda", "heads_cuda", "attention_cuda")


def in_table(row):
    return any(row["dtype"] == one["dtype"] and row["shape"] == cuda_sizes.extents(one, one["rows"], one["cols"])
               for one in cuda_sizes.TABLE[row["op"]] if not one["as_weight"])


def cuda():
    """A GPU's case table, and how many rows are level."""
    rows = on_a_gpu()
    table = [row for row in rows if in_table(row)]
    lines = ["| case | us | % of floor | best peer's time over ours |", "|---|---:|---:|---:|"]
    for (op, dtype, shape), modes in by_mode(table).items():
        floors = joined((100 * row["floor_ms"] / row["tigon"]["median_ms"] for row in modes), ".0f")
        peers = " / ".join(f"{times:.2f} {name}" for name, times in map(best_peer, modes))
        lines.append(f"| `{op}` {dtype} {shape} | {' / '.join(map(microseconds, modes))} | {floors} | {peers} |")
    best = [best_peer(row)[1] for row in rows]
    return [*lines, f"Of the {len(rows)} rows Tigon is level with the best peer or ahead in {sum(times >= 1 for times in best)}, at most 5 % behind "
            f"in {sum(times >= 0.95 for times in best)}.",
            f"Of this table's {len(table)} rows a peer is ahead in all five rounds in {sum(map(is_behind, table))}"]


def report():
    """The report on a GPU."""
    lines = ["| | ms a step | forward, backward, optimizer | Tigon's share of its time | peak MiB | Tigon's share of it |",
             "|---|---:|---:|---:|---:|---:|"]
    rows = records.read(records.RESULTS / "report_cuda.csv")[1]
    for row in sorted(rows, key=lambda row: list(TITLES).index(row["party"])):
        phases = ", ".join(f"{row[f'{name}_ms']:.1f}" for name in ("forward", "backward", "optimizer"))
        time, memory = ("" if row[name] is None else f"{row[name]:.2f}" for name in ("time_share", "memory_share"))
        lines.append(f"| {TITLES[row['party']]} | {row['step_ms']:.1f} | {phases} | {time} | {row['peak_bytes'] / 2**20:.0f} | {memory} |")
    return lines


def front():
    """The front page's table of speed, and in how many cases a peer is faster."""
    lines = ["| what | beside | its time | its memory | command |", "|---|---|---:|---:|---|"]
    first = ["two layers of Llama 3 8B, H200", "`python -m tigon.report --steps 30`"]
    for row in records.read(records.RESULTS / "report_cuda.csv")[1]:
        if row["time_share"]:
            lines.append(f"| {first[0]} | {TITLES[row['party']]} | {1 / row['time_share']:.2f} | {1 / row['memory_share']:.2f} | {first[1]} |")
            first = ["", ""]
    best = statistics.median(best_peer(row)[1] for row in on_a_gpu())
    lines.append(f"| operators, H200, median | the fastest peer | {best:.2f} | | `python3 bench/peers_cuda.py` |")
    first = ["operators, 2 cores of an AMD EPYC or a Xeon, median", "`make bench-peers`"]
    for peer, title in (("eager", "PyTorch eager"), ("compile", "torch.compile")):
        time = statistics.median(peers_cpu.ratio(row, peer) for row in records.cases("peers_cpu", "heads_cpu") if peer in row)
        lines.append(f"| {first[0]} | {title} | {time:.2f} | | {first[1]} |")
        first = ["", ""]
    times = [best_peer(row)[1] for row in on_a_gpu()]
    lines.append(f"On the H200 a peer is more than 5 % faster in {sum(time < 0.95 for time in times)} of {len(times)} cases.")
    return [line.replace("|  |", "| |") for line in lines]


TABLES = {front: "README.md", cpu: "docs/performance.md", heads: "docs/lab/heads/cpu.md", cuda: "docs/performance.md", report: "docs/python.md"}


def wrong():
    """What a record or a page has otherwise than it should."""
    files = sorted(records.RESULTS.iterdir())
    nbytes = sum(file.stat().st_size for file in files)
    if nbytes > MOST_BYTES:
        yield f"bench/results has {nbytes} bytes, at most {MOST_BYTES}"
    for file in files:
        head, rows = records.read(file)
        missing = [name for name in HEAD if not head.get(name)]
        if missing or not rows:
            yield f"{file.name} lacks {', '.join(missing) or 'rows'}"
        elif head["tree"] != "clean" and head["date"] >= RULE:
            yield f"{file.name} is of no clean tree: {head['tree']}"
    for table, page in TABLES.items():
        text = " ".join((records.ROOT / page).read_text().replace("**", "").split())
        for line in table():
            if " ".join(line.split()) not in text:
                yield f"{page} lacks a line of the record: {line}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true", help="say what docs and records have otherwise, and fail")
    if not parser.parse_args().check:
        for table, page in TABLES.items():
            print(f"{page}: {table.__doc__}", "", *table(), "", sep="\n")
        return
    found = list(wrong())
    print(*found or ["docs and records agree"], sep="\n")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
