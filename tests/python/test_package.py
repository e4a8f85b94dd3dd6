"""The package by itself: without torch, and as a command."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import tigon

ROOT = Path(__file__).parents[2]


def python(*args):
    """What a fresh interpreter prints that finds the package where this one did."""
    environment = os.environ | {"PYTHONPATH": str(Path(tigon.__file__).parents[1])}
    return subprocess.run([sys.executable, *args], env=environment, capture_output=True, text=True, check=True).stdout


def test_import_needs_no_torch():
    code = "import sys; sys.modules['torch'] = None; import tigon; print(tigon.version(), tigon.library_path())"
    assert python("-c", code).split() == [tigon.version(), tigon.library_path()]


def test_importing_tigon_imports_nothing_else():
    code = "import sys, tigon; print(sorted({'torch', 'tigon._library'} & set(sys.modules)))"
    assert python("-c", code) == "[]\n"


def test_version_is_the_headers():
    text = (ROOT / "include/tigon/base.h").read_text()
    parts = [line.split()[2] for line in text.splitlines() if line.startswith("#define TIGON_VERSION_")]
    assert tigon.version() == ".".join(parts)


def test_wrong_library():
    code = "import os; os.environ['TIGON_LIBRARY'] = '/nowhere.so'; import tigon; tigon.version()"
    with pytest.raises(subprocess.CalledProcessError) as failed:
        python("-c", code)
    assert "/nowhere.so: cannot open shared object file" in failed.value.stderr


def test_bench():
    small = "--device cpu --rows 4 --width 64 --vocab 64 --json"
    rows = json.loads(python("-m", "tigon.bench", *small.split()))["rows"]
    assert len(rows) == 18
    assert all(row[f"{who}_us"] > 0 for row in rows for who in ("tigon", "torch"))
    loss = next(row for row in rows if (row["op"], row["mode"]) == ("cross_entropy", "forward"))
    assert 0 < loss["tigon_bytes"] < loss["torch_bytes"]
