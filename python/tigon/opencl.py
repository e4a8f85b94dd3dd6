"""Arrays in the memory of an OpenCL device, for the library's TVM-FFI functions.

    import numpy as np, tigon, tvm_ffi
    from tigon import opencl

    operators = tvm_ffi.load_module(tigon.library_path())
    x = opencl.put(np.ones((8, 512), np.float32))  # copied in
    y = opencl.empty(x.shape, x.dtype)
    operators.tigon_relu_squared_fwd(x, y)
    print(y.numpy())  # waits, and copies out

A tensor of another framework is copied by `put`. Only `shared` memory is the host's and the device's alike: NumPy and
PyTorch see it through `host()` and `torch()`, and nothing is copied.
"""

import ctypes
import functools
import math
import threading

import numpy as np

from tigon import _abi, _library

_KDL_CPU, _KDL_OPENCL = 1, 4
_CODES = {"float": 2, "int": 0, "bfloat": 4, "float8_e4m3fn": 10}  # DLDataTypeCode
_BITS = {"float32": 32, "float16": 16, "bfloat16": 16, "int32": 32, "int64": 64, "float8_e4m3fn": 8, "int8": 8}


class _DLManagedTensor(ctypes.Structure):  # https://dmlc.github.io/dlpack, its version before 1.0
    pass


_Deleter = ctypes.CFUNCTYPE(None, ctypes.POINTER(_DLManagedTensor))
_DLManagedTensor._fields_ = (
    ("data", ctypes.c_void_p),
    ("device_type", ctypes.c_int32),
    ("device_id", ctypes.c_int32),
    ("ndim", ctypes.c_int32),
    ("code", ctypes.c_uint8),
    ("bits", ctypes.c_uint8),
    ("lanes", ctypes.c_uint16),
    ("shape", ctypes.POINTER(ctypes.c_int64)),
    ("strides", ctypes.POINTER(ctypes.c_int64)),
    ("byte_offset", ctypes.c_uint64),
    ("manager", ctypes.c_void_p),
    ("deleter", _Deleter),
)
_exported = {}  # by the address of a _DLManagedTensor that somebody still has: it, and the array


@_Deleter
def _forget(managed):
    _exported.pop(ctypes.addressof(managed.contents), None)


_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype = ctypes.py_object
_new_capsule.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
_capsule_is, _capsule_pointer = ctypes.pythonapi.PyCapsule_IsValid, ctypes.pythonapi.PyCapsule_GetPointer
_capsule_is.argtypes = _capsule_pointer.argtypes = (ctypes.c_void_p, ctypes.c_char_p)
_capsule_pointer.restype = ctypes.c_void_p


@ctypes.PYFUNCTYPE(None, ctypes.c_void_p)
def _drop(capsule):
    """Frees a capsule that nobody took. A taken one has another name."""
    if _capsule_is(capsule, b"dltensor"):
        _exported.pop(_capsule_pointer(capsule, b"dltensor"), None)


def _numpy_dtype(name):
    """NumPy's dtype of that name; bfloat16 and float8_e4m3fn are those of the package ml_dtypes."""
    if name in ("bfloat16", "float8_e4m3fn"):
        try:
            import ml_dtypes
        except ImportError:
            raise TypeError(f"opencl: NumPy has no {name}: pip install ml_dtypes brings it") from None
        return np.dtype(getattr(ml_dtypes, name))
    return np.dtype(name)


class Device:
    """An OpenCL device by its number in `tigon devices`. Its arrays and all operators on them are on one queue."""

    def __init__(self, index):
        self.index = index
        self._context = _library.Context(f"opencl:{index}")
        self._lock = threading.RLock()  # an array may go while another is made

    def _run(self, function, *args):
        with self._lock:
            status = _library.library[f"tigon_{function}"](self._context.handle, *args)
            if status:
                raise _library.error(status, self._context.handle)

    def __repr__(self):
        return f"opencl:{self.index}"


@functools.lru_cache(maxsize=None)
def device(index=0):
    """The device with that number. RuntimeError: there is none, and the sentence says why."""
    return Device(index)


class Array:
    """Contiguous elements in a device's memory; `empty`, `put` and `shared` make one."""

    def __init__(self, shape, dtype, on, allocate):
        self.shape = tuple(map(int, (shape,) if isinstance(shape, int) else shape))
        self.dtype = getattr(dtype, "name", None) or str(np.dtype(dtype) if isinstance(dtype, type) else dtype)
        self.dtype = self.dtype.removeprefix("torch.")
        self.device = on
        self._data = ctypes.c_void_p()
        if self.dtype not in _abi.DTYPES:
            raise TypeError(f"opencl: dtype is {self.dtype}, must be one of {', '.join(_abi.DTYPES)}")
        if not 1 <= len(self.shape) <= _abi.MAX_DIMS or min(self.shape) < 0:
            raise ValueError(f"opencl: shape is {self.shape}, must be 1 to {_abi.MAX_DIMS} extents of 0 or more")
        self.nbytes = math.prod(self.shape) * _BITS[self.dtype] // 8
        self._shares = allocate == "opencl_alloc_shared"
        on._run(allocate, ctypes.c_size_t(self.nbytes), ctypes.byref(self._data))

    def __del__(self, free=_library.library.tigon_free):
        if getattr(self, "_data", None):
            with self.device._lock:
                free(self.device._context.handle, self._data)

    def numpy(self):
        """A copy on the host, of what the operators before it left."""
        out = np.empty(self.shape, _numpy_dtype(self.dtype))
        if self.nbytes:
            to = out.ctypes.data_as(ctypes.c_void_p)
            self.device._run("copy", to, self._data, ctypes.c_size_t(self.nbytes))
        return out

    def host(self):
        """The memory itself as a NumPy array. Wait with `synchronize` before you read what an operator wrote."""
        if not self._shares:
            raise ValueError("opencl: the array is in the device's own memory; shared() makes one that the host has, too")
        data = (ctypes.c_uint8 * self.nbytes).from_address(self._data.value or 0) if self.nbytes else b""
        out = np.frombuffer(data, _numpy_dtype(self.dtype)).reshape(self.shape)
        _keep_alive(data, self)
        return out

    def torch(self):
        """The memory itself as a tensor of PyTorch, on its CPU."""
        import torch

        return torch.from_dlpack(_Host(self))

    def synchronize(self):
        self.device._run("context_sync")

    def _capsule(self, device_type, device_id):
        managed = _DLManagedTensor()
        kind = self.dtype if self.dtype in _CODES else self.dtype.rstrip("0123456789")
        managed.data, managed.device_type, managed.device_id = self._data, device_type, device_id
        managed.ndim, managed.code, managed.bits, managed.lanes = len(self.shape), _CODES[kind], _BITS[self.dtype], 1
        shape = (ctypes.c_int64 * len(self.shape))(*self.shape)
        managed.shape, managed.deleter = shape, _forget
        _exported[ctypes.addressof(managed)] = managed, shape, self
        return _new_capsule(ctypes.addressof(managed), b"dltensor", ctypes.cast(_drop, ctypes.c_void_p))

    def __dlpack__(self, **_):
        return self._capsule(_KDL_OPENCL, self.device.index)

    def __dlpack_device__(self):
        return _KDL_OPENCL, self.device.index

    def __repr__(self):
        return f"opencl.Array(shape={self.shape}, dtype={self.dtype}, device={self.device})"


class _Host:
    """A shared array as memory of the host."""

    def __init__(self, array):
        array.host()
        self._array = array

    def __dlpack__(self, **_):
        return self._array._capsule(_KDL_CPU, 0)

    def __dlpack_device__(self):
        return _KDL_CPU, 0


def _keep_alive(buffer, array):
    if buffer:
        buffer.array = array


def empty(shape, dtype="float32", device=None):
    """An array whose elements are not set. `device`: what `opencl.device()` gave; by default the first."""
    return Array(shape, dtype, device or globals()["device"](), "alloc")


def shared(shape, dtype="float32", device=None):
    """The same in memory that the host has, too: `host()` and `torch()` are that memory. NotImplementedError: the device
    has no fine-grained shared virtual memory."""
    return Array(shape, dtype, device or globals()["device"](), "opencl_alloc_shared")


def put(values, device=None):
    """A copy of a NumPy array, of a tensor of PyTorch's CPU, or of what else has `__dlpack__` on the host."""
    source = values
    if not isinstance(values, np.ndarray) and hasattr(values, "__dlpack_device__"):
        kind = values.__dlpack_device__()[0]
        if kind != _KDL_CPU:
            raise NotImplementedError(
                f"opencl: the tensor is on a device of DLPack's type {int(kind)}, whose memory OpenCL does not share: "
                "copy it to the host first"
            )
        if str(values.dtype).removeprefix("torch.") in ("bfloat16", "float8_e4m3fn"):  # unknown to NumPy's DLPack
            import torch

            bits = values.view(torch.int16 if values.element_size() == 2 else torch.int8)
            source = np.from_dlpack(bits.contiguous())
        else:
            source = np.from_dlpack(values)
    elif not isinstance(values, np.ndarray):
        source = values = np.asarray(values)
    source = np.ascontiguousarray(source)
    array = empty(tuple(values.shape) or (1,), values.dtype, device)
    if array.nbytes:
        array.device._run("copy", array._data, source.ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(array.nbytes))
    return array
