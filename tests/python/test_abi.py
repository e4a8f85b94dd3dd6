"""The ctypes structs against the headers, by a C program that prints what its compiler says."""

import ctypes
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tigon import _abi, _library
from tigon.torch import _gates, _losses, _norms

INCLUDE = Path(__file__).parents[2] / "include"


@pytest.fixture(scope="module")
def compiler():
    found = os.environ.get("CC") or shutil.which("cc")
    if not found:
        pytest.skip("no C compiler")
    return found


def test_sizes_and_offsets(compiler, tmp_path):
    expected, lines = [], []
    for name, struct in _abi.STRUCTS.items():
        expected.append(f"{name} {ctypes.sizeof(struct)}")
        lines.append(f'printf("{name} %zu\\n", sizeof({name}));')
        for field, kind in struct._fields_:
            place = getattr(struct, field)
            expected.append(f"{name}.{field} {place.offset} {ctypes.sizeof(kind)}")
            size = f"sizeof((({name} *)0)->{field})"
            lines.append(f'printf("{name}.{field} %zu %zu\\n", offsetof({name}, {field}), {size});')
    source, program = tmp_path / "abi.c", tmp_path / "abi"
    source.write_text("#include <stdio.h>\n#include <tigon/tigon.h>\nint main(void) {\n" + "\n".join(lines) + "\n}\n")
    subprocess.run([compiler, "-I", INCLUDE, source, "-o", program], check=True)
    assert subprocess.run([program], capture_output=True, text=True, check=True).stdout.splitlines() == expected


def test_every_struct_of_the_headers_is_there():
    text = "".join(path.read_text() for path in sorted(INCLUDE.glob("tigon/**/*.h")))
    assert set(re.findall(r"^typedef struct (tigon_\w+) {", text, re.MULTILINE)) == set(_abi.STRUCTS)


def test_fields_are_complete(compiler):
    """A struct of the right size could still swap two fields of one kind: the names are the headers', in their
    order."""
    text = "".join(path.read_text() for path in sorted(INCLUDE.glob("tigon/**/*.h")))
    for name, struct in _abi.STRUCTS.items():
        body = re.search(rf"typedef struct {name} \{{\n(.*?)\n\}} {name};", text, re.DOTALL).group(1)
        code = re.sub(r"/\*.*?\*/", "", body, flags=re.DOTALL)
        assert re.findall(r"(\w+)(?:\[\w+\])?;", code) == [field for field, _ in struct._fields_], name


def test_numbers_of_enums():
    text = "".join(path.read_text() for path in sorted(INCLUDE.glob("tigon/**/*.h")))
    numbers = {name: int(value) for name, value in re.findall(r"^  (TIGON_\w+) = (\d+),", text, re.MULTILINE)}
    short = {"float32": "F32", "float16": "F16", "bfloat16": "BF16", "int32": "I32", "int64": "I64"}
    assert _abi.DTYPES == {name: numbers[f"TIGON_{s}"] for name, s in short.items()}
    assert _norms.CASTING == {name: numbers[f"TIGON_CASTING_{name.upper()}"] for name in ("llama", "gemma", "none")}
    assert _losses._REDUCTION == {name: numbers[f"TIGON_REDUCTION_{name.upper()}"] for name in ("mean", "sum", "none")}
    assert _gates._APPROXIMATE == {"tanh": numbers["TIGON_GELU_TANH"], "none": numbers["TIGON_GELU_ERF"]}
    assert (numbers["TIGON_ROPE_HALF"], numbers["TIGON_ROPE_INTERLEAVED"]) == (False, True)
    kinds = {numbers[f"TIGON_ERROR_{name}"]: kind for name, kind in KINDS.items()}
    assert _library.ERRORS == kinds


KINDS = {
    "INVALID": ValueError,
    "UNSUPPORTED": NotImplementedError,
    "WORKSPACE": ValueError,
    "ALIAS": ValueError,
    "SCRATCH": RuntimeError,
    "DEVICE": RuntimeError,
    "OUT_OF_MEMORY": MemoryError,
}
