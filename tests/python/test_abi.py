"""The ctypes structs against the headers, by a C program that prints what its compiler says."""

import ctypes
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tigon import _abi, _library
from tigon.torch import _derived, _memory, _op
from tigon.torch.operators import gates, losses, norms

INCLUDE = Path(__file__).parents[2] / "include"
HEADERS = "".join(path.read_text() for path in sorted(INCLUDE.glob("tigon/**/*.h")))


@pytest.fixture(scope="module")
def compiler():
    found = os.environ.get("CC") or shutil.which("cc")
    if not found:
        pytest.skip("no C compiler")
    return found


def check(compiler, tmp_path, includes, structs):
    """Holds {C name: (bytes, [(C field, offset, bytes)])} to what the compiler says."""
    lines = [f"#include {include}" for include in ("<stddef.h>", *includes)]
    for name, (size, fields) in structs.items():
        lines.append(f'_Static_assert(sizeof({name}) == {size}, "{name} has another size");')
        for field, offset, bytes_ in fields:
            right = f"offsetof({name}, {field}) == {offset} && sizeof((({name} *)0)->{field}) == {bytes_}"
            lines.append(f'_Static_assert({right}, "{name}.{field} lies elsewhere");')
    source = tmp_path / "abi.c"
    source.write_text("\n".join(lines) + "\n")
    folders = ["-I", INCLUDE, "-I", INCLUDE.parent / "src"]
    done = subprocess.run([compiler, "-fsyntax-only", *folders, source], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def written(struct):
    """A class that is written down: its size and its fields."""
    fields = [(name, getattr(struct, name).offset, ctypes.sizeof(kind)) for name, kind in struct._fields_]
    return ctypes.sizeof(struct), fields


def test_sizes_and_offsets(compiler, tmp_path):
    structs = {name: written(struct) for name, struct in _abi.STRUCTS.items()}
    for entry in _library.ENTRIES.values():
        own = f"tigon_{entry.name}_args"
        name = own if f"}} {own};" in HEADERS else f"tigon_{entry.name.rpartition('_')[0]}_args"
        fields = [(dotted(field), at, ctypes.sizeof(kind)) for field, (at, kind) in entry.places.items()]
        structs[name] = ctypes.sizeof(entry.struct), fields
        for field, (at, kind) in entry.places.items():
            place = getattr(entry.struct, field)
            assert (place.offset, place.size) == (at, ctypes.sizeof(kind)), (name, field)
    structs["tigon_adamw_param"] = written(_library.ENTRIES["adamw_step"].element)
    assert all(name in structs for name in re.findall(r"} (tigon_\w+_args);", HEADERS))
    check(compiler, tmp_path, ["<tigon/tigon.h>", "<tigon/schema.h>"], structs)


def dotted(field):
    """The C name of a field, which may lie in a nested struct."""
    return re.sub(r"^(options|out)_", r"\1.", field)


def names_of(struct):
    """The names of a struct's fields in the headers, in their order."""
    body = re.search(rf"typedef struct {struct} \{{\n(.*?)\n\}} {struct};", HEADERS, re.DOTALL).group(1)
    code = re.sub(r"/\*.*?\*/", "", body, flags=re.DOTALL)
    names = (name for line in re.findall(r"[^;]+(?=;)", code) for name in line.split(","))
    return [re.search(r"(\w+)(\[\w+\])?$", name)[1] for name in names]


def test_fields_are_complete():
    """A struct of the right size could still swap two fields of one kind: the names are the headers', in their
    order."""
    for name, struct in _abi.STRUCTS.items():
        assert names_of(name) == [field for field, _ in struct._fields_], name


def test_twins_of_structs_in_the_library(compiler, tmp_path):
    """The structs by which src/ffi and python/tigon/torch speak of operators, of pairs of them and of the pool."""
    structs = {
        "python_op": renamed(_op._PythonOp, {"last": "last_thread"}, tensor="plain[0]", parameter="plain[1]"),
        "python_pair": renamed(
            _derived._PythonPair, {}, forward_op="forward", backward_op="backward", incoming_count="incoming",
            options_count="options", others_count="others",
        ),
    }
    check(compiler, tmp_path, ['"ffi/ffi.h"', '"ffi/python.h"', '"ffi/python_pair.c"'], structs)
    structs = {"python_tensor": written(_memory._Tensor), "tigon_pool_stats": written(_memory._Stats)}
    check(compiler, tmp_path, ['"ffi/python.h"', '"ffi/pool.h"'], structs)


def renamed(struct, first_of, **names):
    """The class as C names its fields; a field of `first_of` stands for several, of which the first is compared."""
    size, fields = written(struct)
    c_fields = [(names.get(name, name), at, bytes_) for name, at, bytes_ in fields if name not in first_of]
    c_fields += [(first_of[name], at, 8) for name, at, _ in fields if name in first_of]
    return size, c_fields


def test_numbers_of_enums():
    numbers = {name: int(value) for name, value in re.findall(r"^  (TIGON_\w+) = (\d+),", HEADERS, re.MULTILINE)}
    assert {name: numbers[f"TIGON_FIELD_{name}"] for name in _abi.FLAGS} == _abi.FLAGS
    assert [numbers[f"TIGON_FIELD_{name}"] for name in _abi.KINDS] == list(range(len(_abi.KINDS)))
    short = {"float32": "F32", "float16": "F16", "bfloat16": "BF16", "int32": "I32", "int64": "I64"}
    short |= {"float8_e4m3fn": "F8E4M3", "int8": "I8"}
    assert _abi.DTYPES == {name: numbers[f"TIGON_{s}"] for name, s in short.items()}
    assert norms.CASTING == {name: numbers[f"TIGON_CASTING_{name.upper()}"] for name in ("llama", "gemma", "none")}
    assert losses._REDUCTION == {name: numbers[f"TIGON_REDUCTION_{name.upper()}"] for name in ("mean", "sum", "none")}
    assert gates._APPROXIMATE == {"tanh": numbers["TIGON_GELU_TANH"], "none": numbers["TIGON_GELU_ERF"]}
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
