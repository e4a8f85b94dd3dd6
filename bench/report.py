#!/usr/bin/env python3
"""Runs `python -m tigon.report` with the options that it is given, and keeps its figures as a record: bench/results/report_<device>.csv.
`bench/report.py --steps 30` on a machine with a GPU; --help has the record's own options."""
import argparse
import json
import os
import subprocess
import sys

import records

COLUMNS = ["model", "dtype", "tokens", "party", "step_ms", "spread", "forward_ms", "backward_ms", "optimizer_ms", "peak_bytes", "time_share",
           "time_share_q20", "time_share_q80", "memory_share", "loss_apart"]


def rows_of(report):
    """A row for each case and party; shares are Tigon's of the party's."""
    for case in report["cases"]:
        against = {one["provider"]: one for one in case["against"]}
        for row in case["rows"]:
            step, other = row["step_ms"], against.get(row["provider"])
            found = {"model": case["model"], "dtype": case["dtype"], "tokens": case["tokens"], "party": row["provider"],
                     "step_ms": step["median"], "spread": (step["q80"] - step["q20"]) / step["median"], "peak_bytes": row["peak_bytes"],
                     **{name: row[name]["median"] for name in ("forward_ms", "backward_ms", "optimizer_ms")}}
            if other:
                time = other["time"]
                found |= {"time_share": time["median"], "time_share_q20": time["q20"], "time_share_q80": time["q80"],
                          "memory_share": other["memory"]["peak_bytes"], "loss_apart": other["loss"]}
            yield found


def head_of(report):
    versions = ", ".join(f"{name} {version}" for name, version in report["versions"].items())
    return {"device": report["device"], "versions": versions, "steps": report["steps"],
            "left out": "; ".join(f"{one['title']}: {one['reason']}" for case in report["cases"] for one in case["missing"]) or "nobody"}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0], epilog="Other options are those of python -m tigon.report.")
    records.add_options(parser, "report_DEVICE")
    options, others = parser.parse_known_args()
    head = records.begin(options)
    path = os.pathsep.join([str(records.ROOT / "python"), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run([sys.executable, "-m", "tigon.report", "--json", *others], stdout=subprocess.PIPE, text=True,
                          env=os.environ | {"PYTHONPATH": path})
    if done.returncode:
        sys.exit(done.returncode)
    report = json.loads(done.stdout)
    device = report["cases"][0]["device"].partition(":")[0]
    where = records.place(options, f"report_{device}")
    if where:
        records.write(where, {**head, **head_of(report)}, COLUMNS, rows_of(report))


if __name__ == "__main__":
    main()
