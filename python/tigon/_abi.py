"""The structs of include/tigon as ctypes. Those of the entries' arguments are what the library itself says; the few by
which it says so are written here, and tests/python/test_abi.py holds them to the headers."""

import ctypes
from typing import NamedTuple

VERSION = (0, 1)
MAX_DIMS = 8
DTYPES = {"float32": 1, "float16": 2, "bfloat16": 3, "int32": 4, "int64": 5, "float8_e4m3fn": 6, "int8": 7}

_RESERVED = ("reserved", ctypes.c_uint64 * 4)


class Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("dtype", ctypes.c_int),
        ("ndim", ctypes.c_int32),
        ("shape", ctypes.c_int64 * MAX_DIMS),
        ("strides", ctypes.c_int64 * MAX_DIMS),
    )


class ContextDesc(ctypes.Structure):
    _fields_ = (
        ("device", ctypes.c_char_p),
        ("variant", ctypes.c_char_p),
        ("stream", ctypes.c_void_p),
        ("threads", ctypes.c_int),
        _RESERVED,
    )


class _CField(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("offset", ctypes.c_size_t),
        ("kind", ctypes.c_int),
        ("flags", ctypes.c_int),
        ("shape", ctypes.c_char_p),
        ("dtypes", ctypes.c_uint32),
        ("as", ctypes.c_char),
        ("gives", ctypes.c_char),
        ("or_dtype", ctypes.c_int),
        ("below", ctypes.c_char),
        ("divides", ctypes.c_char),
        ("in_place", ctypes.c_char_p),
        ("low", ctypes.c_double),
        ("high", ctypes.c_double),
    )


class _CSchema(ctypes.Structure):
    _fields_ = (
        ("op", ctypes.c_char_p),
        ("entry", ctypes.c_char_p),
        ("name", ctypes.c_char_p),
        ("fields", ctypes.POINTER(_CField)),
        ("count", ctypes.c_int),
        ("bytes", ctypes.c_size_t),
        ("element_bytes", ctypes.c_size_t),
    )


STRUCTS = {  # C name: class
    "tigon_tensor": Tensor,
    "tigon_context_desc": ContextDesc,
    "tigon_field": _CField,
    "tigon_schema": _CSchema,
}
KINDS = "TENSOR", "WORKSPACE", "DOUBLE", "INT", "INT64", "LIST", "RESERVED", "BLOCKS"  # by number
FLAGS = {"OUT": 1, "OPTIONAL": 2, "EACH": 16, "IS_FLAG": 128}  # those that are asked for here
_MEMBERS = {  # by kind: what lies at the field's offset, and the name of what lies behind it
    "TENSOR": ((None, Tensor),),
    "WORKSPACE": ((None, ctypes.c_void_p), ("workspace_bytes", ctypes.c_size_t)),
    "DOUBLE": ((None, ctypes.c_double),),
    "INT": ((None, ctypes.c_int),),
    "INT64": ((None, ctypes.c_int64),),
    "LIST": ((None, ctypes.c_void_p), ("count", ctypes.c_int64)),
    "RESERVED": ((None, _RESERVED[1]),),
    "BLOCKS": ((None, ctypes.c_void_p),),
}


class Field(NamedTuple):
    """A field of an entry's argument struct; include/tigon/schema.h says what each means."""

    name: str  # that of a nested struct's field is "<nested>_<name>"
    offset: int
    kind: str
    flags: frozenset
    shape: str
    like: str  # the letter that names the dtype, "" for none
    or_float32: bool
    dtypes: tuple  # torch's names of those that are taken

    @classmethod
    def read(cls, field):
        text = lambda value: (value or b"").rstrip(b"\0").decode()
        return cls(
            text(field.name).replace(".", "_"),
            field.offset,
            KINDS[field.kind],
            frozenset(name for name, bit in FLAGS.items() if field.flags & bit),
            text(field.shape),
            text(getattr(field, "as")),
            field.or_dtype == DTYPES["float32"],
            tuple(name for name, number in DTYPES.items() if field.dtypes & 1 << number),
        )


class Entry(NamedTuple):
    """An entry point: its arguments in the order of its checks, and its struct of them."""

    index: int  # tigon_schema_at()'s
    name: str
    fields: tuple
    struct: type
    places: dict  # name: (offset, type)
    element: type  # type of its list's elements, or None


def _struct(name, fields, size):
    """The fields at their offsets as a flat class of `size` bytes, and their places."""
    members, places, end = [], {}, 0

    def add(name, kind):
        nonlocal end
        members.append((name, kind))
        end += ctypes.sizeof(kind)

    for field in sorted(fields, key=lambda field: field.offset):
        offset = field.offset
        for name_behind, kind in _MEMBERS[field.kind]:
            if offset > end:
                add(f"_padding_{end}", ctypes.c_char * (offset - end))
            places[name_behind or field.name] = offset, kind
            add(name_behind or field.name, kind)
            offset = end
    if size > end:
        add(f"_padding_{end}", ctypes.c_char * (size - end))
    return type(name, (ctypes.Structure,), {"_fields_": members}), places


def _entry(index, schema):
    name = schema.name.decode()
    fields = tuple(map(Field.read, schema.fields[: schema.count]))
    each = [field for field in fields if "EACH" in field.flags]
    struct, places = _struct(f"{name}_args", [field for field in fields if field not in each], schema.bytes)
    element = _struct(f"{name}_element", each, schema.element_bytes)[0] if each else None
    return Entry(index, name, fields, struct, places, element)


def entries(library):
    """Every entry point of the library, by name."""
    at = library.tigon_schema_at
    at.restype = ctypes.POINTER(_CSchema)
    found = {}
    while schema := at(len(found)):
        entry = _entry(len(found), schema.contents)
        found[entry.name] = entry
    return found
