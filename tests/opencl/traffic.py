#!/usr/bin/env python3
"""Bytes that OpenCL kernels load and store in global memory, counted by oclgrind, beside the fewest that a call must: each tensor once.
Prints the table of docs/opencl.md; with --check it holds that page to it. A group of 64 shares a row; dtype bf16."""
import argparse
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/opencl.md"
SIZES = {"h": 1, "c": 1, "t": 2, "s": 2, "Dh": 2, "i": 4, "j": 4, "f": 4, "l": 8, "m": 8}  # bytes, by the mangled names of types
N, ROW = 3 * 4096, 3  # elements and rows of most cases
WIDE = "3x4096"
# operator, entry, case, the fewest bytes. Weights and their gradients count once, numbers of a row in f32.
CASES = [
    ("swiglu", "fwd", WIDE, 2 * 3 * N),
    ("swiglu", "bwd", WIDE, 2 * 5 * N),
    ("softmax", "fwd", "1x2x16384", 2 * 2 * 2 * 16384),
    ("softmax", "bwd", "1x2x16384", 2 * 3 * 2 * 16384),
    ("rms_norm", "fwd", "8x4096", 2 * 2 * 8 * 4096 + 2 * 4096),
    ("layer_norm", "fwd", WIDE, 2 * 2 * N + 2 * 2 * 4096 + 2 * 4 * ROW),
    ("cross_entropy", "fwd", "3x5120", 2 * 3 * 5120),
    ("cross_entropy", "bwd", "3x5120", 2 * 2 * 3 * 5120),
    ("rope", "fwd", "3x4x2x1x64", 2 * 2 * 3 * 4 * 3 * 64 + 2 * 4 * 3 * 4 * 32),
    ("sparsemax", "fwd", WIDE, 2 * 2 * N),
    ("sparsemax", "bwd", WIDE, 2 * 3 * N),
    ("embedding", "fwd", "8x4096x32", 2 * 2 * 8 * 4096 + 8 * 8),
]


def bytes_of(block):
    """Loads and stores of numbers, and of vectors by OpenCL's functions, whose names say lanes and type."""
    found = sum(map(int, re.findall(r"(?:load|store) global \((\d+) bytes\)", block)))
    for calls, lanes, kind in re.findall(r"(\d+) - call _Z\d+v(?:load|store)(?:_half)?(\d*)\w*?PU3AS1K?(Dh|\w)\(\)", block):
        found += int(calls) * int(lanes or 1) * SIZES[kind]
    return found


def counted(tigon, environment, op, entry, case):
    """Bytes of a call's kernels."""
    command = [tigon, "check", op, "--device", "opencl", "--variant", "opencl-groups", "--dtype", "bf16",
               "--case", f"{entry}/{case}/o0/uniform/dense"]
    out = subprocess.run(command, env=environment, capture_output=True, text=True)
    if out.returncode:
        sys.exit(f"traffic: {' '.join(command)} exits with {out.returncode}: {(out.stdout + out.stderr)[-300:]}")
    moved, launches = {}, {}
    for block in re.split(r"Instructions executed for kernel '", out.stdout + out.stderr)[1:]:
        kernel = block.split("'")[0]
        if not kernel.startswith("copy"):  # tigon_copy's, between host and device
            launches[kernel] = launches.get(kernel, 0) + 1
            moved[kernel] = moved.get(kernel, 0) + bytes_of(block)
    return sum(moved.values()) / max(1, min(launches.values(), default=1)), launches


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true", help="fail if docs/opencl.md has another table")
    parser.add_argument("--verbose", action="store_true", help="say the launches of each kernel")
    options = parser.parse_args()
    driver = pathlib.Path("/usr/lib/oclgrind/liboclgrind-rt-icd.so")
    if not driver.exists():
        print("skipped: oclgrind is not here", file=sys.stderr)
        sys.exit(77)
    with tempfile.TemporaryDirectory() as folder:
        vendors = pathlib.Path(folder, "vendors")
        vendors.mkdir()
        (vendors / "oclgrind.icd").write_text(f"{driver}\n")
        # oclgrind lacks an intrinsic that clang writes where it inlines a function.
        environment = os.environ | {
            "OCL_ICD_VENDORS": str(vendors), "TIGON_OPENCL_CACHE": f"{folder}/cache", "TIGON_OPENCL_TRUST": "1", "OCLGRIND_INST_COUNTS": "1",
            "OCLGRIND_BUILD_OPTIONS": "-Dinline=__attribute__((noinline)) -Dinlined=inline"}
        tigon = os.environ.get("TIGON", str(ROOT / "build/tigon"))
        lines = ["| operator | entry | case | fewest bytes | moved | moved / fewest |", "|---|---|---|---:|---:|---:|"]
        for op, entry, case, fewest in CASES:
            moved, launches = counted(tigon, environment, op, entry, case)
            lines.append(f"| `{op}` | {entry} | {case} | {fewest} | {moved:.0f} | {moved / fewest:.2f} |")
            if options.verbose:
                print(lines[-1], launches, file=sys.stderr)
    table = "\n".join(lines) + "\n"
    if not options.check:
        print(table, end="")
    elif table not in PAGE.read_text():
        sys.exit(f"traffic: docs/opencl.md has another table than `tests/opencl/traffic.py` prints:\n{table}")


if __name__ == "__main__":
    main()
