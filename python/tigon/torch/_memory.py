"""Memory for large outputs on the CPU that stays warm.

Torch gets the memory of a large tensor from malloc, which maps it anew at each call. The page faults of all its pages
take several times as long as the operator. Tigon's outputs of 1 MiB and more lie in a pool (src/ffi/pool.c), to which their
memory returns when the last tensor on it ends. docs/python.md says what that changes.
"""

import ctypes
import os
import re
import resource
from pathlib import Path

import torch

from tigon._abi import MAX_DIMS
from tigon._library import library

LARGE = 1 << 20  # bytes of a tensor from which on the pool has it
_IDLE = 30.0  # seconds: memory that no call of the last one or two such spans needed goes back to the system
# DLPack's codes.
_CODES = {torch.float32: 2, torch.float16: 2, torch.bfloat16: 4, torch.int32: 0, torch.int64: 0, torch.uint8: 1}
_CODES |= {torch.float8_e4m3fn: 10, torch.int8: 0}


class _Tensor(ctypes.Structure):
    """src/ffi/python.h's python_tensor."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("bytes", "ndim", "code", "bits")),
        *((name, ctypes.c_int64 * MAX_DIMS) for name in ("shape", "strides")),
    )


class _Stats(ctypes.Structure):
    """src/ffi/pool.h's tigon_pool_stats."""

    _fields_ = tuple(
        (name, ctypes.c_int64)
        for name in ("limit", "in_use", "idle", "peak_in_use", "warm", "cold", "refused", "trimmed")
    )


def _memory(groups="/proc/self/cgroup", root="/sys/fs/cgroup"):
    """Bytes that this process may have: the machine's, or what its control groups leave it."""
    found = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    lines = Path(groups).read_text().splitlines() if Path(groups).is_file() else []
    places = {"memory": ("memory", "memory.limit_in_bytes"), "": ("", "memory.max")}  # version 1 and version 2
    for _, controllers, group in (line.split(":", 2) for line in lines):
        for folder, name in (places[of] for of in controllers.split(",") if of in places):
            top = Path(root, folder)
            here = top / group.strip("/")
            for file in (above / name for above in (here, *here.parents) if above.is_relative_to(top)):
                text = file.read_text().strip() if file.is_file() else ""
                found = min(found, int(text)) if text.isdigit() else found
    return found


def _checked():
    """Does a tool look at each address, which would not see the use of an output after its end?"""
    return hasattr(ctypes.CDLL(None), "__asan_init") or "vgpreload" in os.environ.get("LD_PRELOAD", "")


def size_given(variable):
    """The bytes that a variable of the environment says; None where it is not set."""
    text = os.environ.get(variable, "")
    size = re.fullmatch(r"(\d+)([KMGT]?)", text)
    if text and not size:
        raise ValueError(f"tigon: {variable} is {text!r}, must be 0 or a size such as 512M or 8G")
    return int(size[1]) << 10 * " KMGT".index(size[2] or " ") if size else None


def _limit():
    """Bytes that the pool may hold: TIGON_CPU_POOL, else half of the memory. The pool reserves addresses, so that a
    limit on those leaves it out."""
    given = size_given("TIGON_CPU_POOL")
    if given is not None:
        return given
    limited = resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY
    return 0 if limited or _checked() else _memory() // 2


limit = _limit()
library.tigon_pool_set(ctypes.c_size_t(limit), ctypes.c_double(_IDLE))
library.tigon_pool_read.restype = _Stats


def pooled(t):
    """What src/ffi/python.c makes a tensor like `t` from on the pool's memory; None where the pool is not for it."""
    size = t.untyped_storage().nbytes()
    if t.device.type != "cpu" or not LARGE <= size <= limit or t.dtype not in _CODES or t.dim() > MAX_DIMS:
        return None
    extents = (ctypes.c_int64 * MAX_DIMS)(*t.shape), (ctypes.c_int64 * MAX_DIMS)(*t.stride())
    return bytes(_Tensor(size, t.dim(), _CODES[t.dtype], 8 * t.itemsize, *extents))


def memory_stats():
    """What the pool of large CPU outputs holds and did, as a dictionary.

    In bytes: `limit`, `in_use`, `idle`, `peak_in_use`, and `trimmed`, which went back to the system. Numbers of outputs:
    `warm`, whose memory was there with all its pages; `cold`, whose memory was not; `refused`, for which the pool had no
    room."""
    stats = library.tigon_pool_read()
    return {"enabled": limit > 0} | {name: getattr(stats, name) for name, _ in stats._fields_}


def empty_cache():
    """Gives the idle memory of the pool of large CPU outputs back to the system."""
    library.tigon_pool_trim()
