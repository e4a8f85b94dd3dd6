"""The package by itself: without torch, and as a command."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import tigon

ROOT = Path(__file__).parents[2]


def python(*args, package=Path(tigon.__file__).parents[1]):
    """What a fresh interpreter prints that finds the package where this one did, or in another folder."""
    environment = os.environ | {"PYTHONPATH": str(package), "TIGON_LIBRARY": tigon.library_path()}
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


def test_env(monkeypatch):
    monkeypatch.setenv("TIGON_GEMM", "builtin")
    monkeypatch.setenv("TIGON_GEM", "x")
    monkeypatch.setenv("HF_TOKEN", "secret")
    found = python("-m", "tigon.env", "--json")
    known = json.loads(found)
    assert (known["tigon"]["version"], known["tigon"]["library"]) == (tigon.version(), tigon.library_path())
    assert "GEMM built-in: " in known["devices"]["cpu"] and known["environment"]["TIGON_GEMM"] == "builtin"
    assert known["unknown"]["TIGON_GEM"] == "x" and {"system", "drivers"} <= set(known)
    assert "secret" not in found and "torch" in known["packages"]
    assert python("-m", "tigon.env").startswith(f"tigon:\n  library: {tigon.library_path()}\n  version: {tigon.version()}\n")


def test_env_without_a_library(tmp_path):
    environment = os.environ | {"PYTHONPATH": str(Path(tigon.__file__).parents[1]), "TIGON_LIBRARY": str(tmp_path / "no.so")}
    run = subprocess.run([sys.executable, "-m", "tigon.env"], env=environment, capture_output=True, text=True)
    assert run.returncode == 0 and run.stdout.startswith("tigon: its library does not load: ")


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


NEW_OPERATOR = """
import torch

from tigon.torch.operators import Reference, relu_squared

FUNCTIONS, MODULES = ["twice"], ["Twice"]
REFERENCE = Reference(lambda x: 2 * torch.relu(x).square(), [(2, 5)])


def twice(x):
    return 2 * relu_squared.relu_squared(x)


class Twice(torch.nn.Module):
    def forward(self, x):
        return twice(x)


class LigerTwice(Twice):
    pass


class LigerTwiceFunction:
    apply = staticmethod(twice)


def liger_twice(x):
    return twice(x)
"""


def test_a_new_operator_is_one_file(tmp_path):
    """It is in every public place, by being there; the tests' cases have it, too."""
    shutil.copytree(Path(tigon.__file__).parent, tmp_path / "tigon", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "tigon/torch/operators/twice.py").write_text(NEW_OPERATOR)
    code = f"""
import sys, torch
sys.path.append({str(ROOT / "tests/python")!r})
from tigon.torch import functional, nn
from tigon.compat.liger.transformers.twice import LigerTwice
from tigon.compat.liger.transformers.functional import liger_twice
from tigon.compat.liger.ops.twice import LigerTwiceFunction
from tigon.compat.liger import LigerTwice as same
from op_cases import CASES
x = torch.tensor([1.0, -1.0])
for f in functional.twice, nn.Twice(), LigerTwice(), liger_twice, LigerTwiceFunction.apply:
    assert f(x).tolist() == [2, 0]
assert same is LigerTwice and nn.Twice.__module__ == "tigon.torch.nn"
assert "twice" in functional.__all__ and "Twice" in nn.__all__
print([case.name for case in CASES if case.run is functional.twice])"""
    assert python("-c", code, package=tmp_path) == "['twice']\n"


STUBS = Path(tigon.library_path()).parent / "stubs"


@pytest.mark.skipif(not STUBS.is_dir(), reason="the library lies in no build folder")
@pytest.mark.parametrize("module", ["functional", "nn"])
def test_stubs_have_all_names(module):
    code = f"from tigon.torch import {module} as m; print(*m.__all__)"
    stub = re.findall(r" as (\w+)$", (STUBS / f"{module}.pyi").read_text(), re.MULTILINE)
    assert sorted(stub) == python("-c", code).split()
