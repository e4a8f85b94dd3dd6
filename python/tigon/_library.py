"""The shared object: where it is, what it exports, and how its errors become Python's."""

import ctypes
import os
from pathlib import Path

from tigon import _abi


def find():
    """The path of libtigon.so: TIGON_LIBRARY, the one in this package, the one that a source tree built, or the system's."""
    if os.environ.get("TIGON_LIBRARY"):
        return os.environ["TIGON_LIBRARY"]
    package = Path(__file__).resolve().parent
    places = (package / "lib" / "libtigon.so", package.parent.parent / "build" / "libtigon.so")
    for place in places:
        if place.exists():
            return str(place)
    installed = f"libtigon.so.{_abi.VERSION[0]}"
    try:
        ctypes.CDLL(installed)
    except OSError as problem:
        looked = " or ".join(map(str, places))
        raise ImportError(f"tigon: no libtigon.so at {looked}, and {problem}; TIGON_LIBRARY names another one") from None
    return installed


def load(path):
    library = ctypes.CDLL(path)
    library.tigon_last_error.restype = ctypes.c_char_p
    library.tigon_last_error.argtypes = library.tigon_context_destroy.argtypes = (ctypes.c_void_p,)
    library.tigon_context_destroy.restype = None
    library.tigon_context_gemm.restype, library.tigon_context_gemm.argtypes = ctypes.c_char_p, (ctypes.c_void_p,)
    major, minor = divmod(library.tigon_version() // 100, 100)
    if (major, minor) != _abi.VERSION:  # before 1.0 a minor version may change the ABI
        raise ImportError(f"tigon: {path} is version {major}.{minor}, must be {'.'.join(map(str, _abi.VERSION))}")
    return library


path = find()
library = load(path)
ENTRIES = _abi.entries(library)  # by name, "rms_norm_fwd"

ERRORS = {
    1: ValueError,  # INVALID
    2: NotImplementedError,  # UNSUPPORTED
    3: ValueError,  # WORKSPACE
    4: ValueError,  # ALIAS
    5: RuntimeError,  # SCRATCH
    6: RuntimeError,  # DEVICE
    7: MemoryError,  # OUT_OF_MEMORY
}


def in_c(name, struct):
    """What a function of the library makes of a struct: a Python object, as those of src/ffi/python*.c are."""
    make = ctypes.PyDLL(path)[name]
    make.restype = ctypes.py_object
    return make(ctypes.byref(struct))


FOREIGN = {}  # dtypes that the library does not know: the number that stands for each in a call


def foreign(name):
    """The number for a dtype that the library does not know. The call is refused with the dtypes that it takes."""
    return FOREIGN.setdefault(name, 100 + len(FOREIGN))


def error(status, context=None):
    """The exception for a status, with the library's own sentence; a wrong dtype is a TypeError."""
    sentence = library.tigon_last_error(context).decode()
    for name, number in FOREIGN.items():
        sentence = sentence.replace(f".dtype is {number},", f".dtype is {name},")
    kind = TypeError if status == 1 and ".dtype is " in sentence else ERRORS.get(status, RuntimeError)
    return kind(sentence)


class Context:
    """A tigon_context. One thread at a time."""

    def __init__(self, device, stream=0, threads=0):
        desc = _abi.ContextDesc(device=device.encode(), stream=stream, threads=threads)
        self.handle = ctypes.c_void_p()
        status = library.tigon_context_create(ctypes.byref(desc), ctypes.byref(self.handle))
        if status:
            raise error(status)

    def run(self, function, *args):
        """Calls a C function of this context; each argument a struct or a number to be filled in."""
        status = library[f"tigon_{function}"](self.handle, *map(ctypes.byref, args))
        if status:
            raise error(status, self.handle)

    def gemm(self):
        """The library behind linear, and its determinism grades."""
        return library.tigon_context_gemm(self.handle).decode()

    def __del__(self, destroy=library.tigon_context_destroy):
        if self.handle:
            destroy(self.handle)
