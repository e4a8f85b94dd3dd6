"""The sdist has the tree's files and the version, which it takes without git."""

import subprocess
import tarfile
from pathlib import Path

import pytest
from scikit_build_core.build import build_sdist

import tigon

ROOT = Path(__file__).parents[2]
LEFT_OUT = ("docs/lab/", "bench/results/")


def test_files(tmp_path, monkeypatch):
    if not (ROOT / ".git").exists():
        pytest.skip("not a checkout")
    monkeypatch.chdir(ROOT)
    name = build_sdist(str(tmp_path))
    assert name == f"tigon-{tigon.version()}.tar.gz"
    with tarfile.open(tmp_path / name) as archive:
        top, found = f"tigon-{tigon.version()}/", archive.getnames()
        information = archive.extractfile(top + "PKG-INFO").read().decode()
    assert f"\nVersion: {tigon.version()}\n" in information and all(file.startswith(top) for file in found)
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split("\n")
    wanted = {file for file in listed if (ROOT / file).is_file() and not file.startswith(LEFT_OUT)}
    assert {file.removeprefix(top) for file in found} == wanted | {"PKG-INFO"}
