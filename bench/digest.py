#!/usr/bin/env python3
"""The bits of every operator's results, `tigon check --digest`, as a record, or beside one.

  bench/digest.py                   writes bench/results/digest_cpu.csv
  bench/digest.py --compare [OP...] says where this build's bits are not the record's; exit status 1 where some are not"""
import argparse
import csv
import json
import pathlib
import subprocess
import sys

import records

DTYPES = ["f32", "bf16", "f16"]
KEY = ["variant", "op", "entry"]


def digests(options):
    command = [options.tigon, "check", "--digest", "--json", "--device", options.device, *options.ops]
    run = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if run.returncode:
        sys.exit(f"digest: {' '.join(command)} ends with {run.returncode}")
    for entry in json.loads(run.stdout)["entries"]:
        yield {**entry, "cases": str(entry["cases"]), **entry["digests"]}


def compare(options, path):
    """Rows of the record that this run asks for, against its own. An entry that the record lacks is new."""
    found = {tuple(row[name] for name in KEY): row for row in digests(options)}
    variants = {key[0] for key in found}
    with open(path, newline="") as file:  # as text: some digests look like numbers
        rows = csv.DictReader([line for line in file if not line.startswith("# ")])
    recorded = {tuple(row[name] for name in KEY): row for row in rows if not options.ops or row["op"] in options.ops}
    missing = sorted({key[0] for key in recorded} - variants)
    others = 0
    for key, row in recorded.items():
        if key[0] in missing:
            continue
        other = [name for name in ["cases", *DTYPES] if found.get(key, {}).get(name, "") != row[name]]
        others += bool(other)
        if other:
            print(f"other {', '.join(other)}: {' '.join(key)}")
    print(f"{sum(key in recorded for key in found) - others} of {len(recorded)} rows of {path.name} are the same, {others} differ, "
          f"{len(found.keys() - recorded.keys())} are new; not here: {', '.join(missing) or 'no variant'}")
    return others > 0 or not found.keys() & recorded.keys()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ops", nargs="*", help="operators (default: all)")
    parser.add_argument("--tigon", default=str(records.ROOT / "build/tigon"))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--compare", action="store_true", help="with the record, which stays as it is")
    parser.add_argument("--record", metavar="FILE", help="the record to compare with")
    records.add_options(parser, "digest_DEVICE")
    options = parser.parse_args()
    name = f"digest_{options.device.split(':')[0]}"
    if options.compare:
        sys.exit(compare(options, pathlib.Path(options.record or records.RESULTS / f"{name}.csv")))
    head = records.begin(options)
    machine = json.loads(subprocess.run([options.tigon, "devices", options.device, "--json"], capture_output=True, text=True,
                                        check=True).stdout)["devices"][0]
    path = records.place(options, name)
    rows = list(digests(options))
    if path:
        records.write(path, {**head, "device": machine["name"], "versions": records.versions()}, [*KEY, "cases", *DTYPES], rows)


if __name__ == "__main__":
    main()
