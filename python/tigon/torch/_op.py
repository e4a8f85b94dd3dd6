"""C entries as torch operators.

The names of an operator's arguments are those of the C struct's fields, tensors first. A call builds a key (options,
stream, layouts), finds the struct that was filled for it before, writes the data pointers and calls: src/ffi/python.c.
What is not plain comes to Op.described. Under torch.compile, dispatch modes and for tensor subclasses the operator goes
through torch's dispatcher as torch.ops.tigon.<name>, behind which the same two make the call.
"""

import ctypes
import functools
import operator
import threading
from types import SimpleNamespace

import torch

from tigon import _abi
from tigon._library import ENTRIES, Context, error, in_c, library
from tigon.torch import _memory, _sharding
from tigon.torch._arguments import check_tensors, checked_options, dtype_number, needs_copies, strided
from tigon.torch._autograd import refuse_transforms
from tigon.torch._signature import Signature

_CALLS = 1024  # that a thread remembers before it starts afresh
_KEPT = 65536  # bytes of a workspace that a call keeps for the next one
_BRIEF = 32768  # bytes of a call on the CPU that is over before another thread could make use of the interpreter
_PLAIN = {torch.Tensor, torch.nn.Parameter, type(None)}
DEVICES = "cpu", "cuda", "npu"
OPS = {}  # name: Op
_compiling, _modes = torch.compiler.is_dynamo_compiling, torch._C._len_torch_dispatch_stack
_fragment = torch.library.Library("tigon", "DEF")
_tags = (torch.Tag.pt2_compliant_tag, torch.Tag.needs_fixed_stride_order)


_spare = {}  # (device, stream): contexts whose threads have ended. A CUDA graph may still use one's memory.


class _Contexts(dict):
    def __del__(self, spare=_spare):
        for key, context in self.items():
            spare.setdefault(key, []).append(context)


class _Thread(threading.local):
    def __init__(self):
        self.contexts, self.calls = _Contexts(), {}


_thread = _Thread()


def _stream_of(device):
    """What a context on the device depends on besides: the current stream; on the CPU the number of threads."""
    if device.type == "cuda":
        return torch._C._cuda_getCurrentRawStream(device.index)
    if device.type == "npu":
        return torch.npu.current_stream(device).npu_stream
    return torch.get_num_threads()


_current_device = getattr(torch._C, "_cuda_getDevice", None)


def _maker(t):
    """What makes a tensor like `t`: a function and its arguments, those that Inductor's code allocates by, in half the
    time, and a place in the pool. Of GPUs the function takes the current one, on which a call's key depends."""
    make = getattr(torch._C._dynamo.guards, f"_empty_strided_{t.device.type}", None)
    if make and (t.device.type == "cpu" or t.device.index == _current_device()):
        return make, (tuple(t.shape), t.stride(), t.dtype), _memory.pooled(t)
    return t.new_empty(0).new_empty_strided, (t.shape, t.stride()), _memory.pooled(t)


def _open(device, stream):
    if device.type == "cpu":
        return Context("cpu", threads=stream)
    if device.type != "cuda":
        return Context(str(device), stream)
    # A context owns device memory, which a stream that is being captured only lets a relaxed thread allocate.
    mode, exchange = ctypes.c_int(2), ctypes.CDLL("libcuda.so.1").cuThreadExchangeStreamCaptureMode
    exchange(ctypes.byref(mode))
    try:
        return Context(str(device), stream)
    finally:
        exchange(ctypes.byref(mode))


def context(device):
    """This thread's context for `device` and its current stream."""
    key = device, _stream_of(device)
    contexts = _thread.contexts
    if key not in contexts:
        contexts[key] = _spare[key].pop() if _spare.get(key) else _open(*key)
    return contexts[key]


def synchronize(device):
    """Waits for this thread's work on `device` and its current stream, and raises the fault that the device found.

    An index out of range is such a fault: only a host device refuses it at once."""
    context(torch.empty(0, device=device).device).run("context_sync")


def write_layout(call, field, into, dtype, shape, strides):
    """Fills a tigon_tensor but for its data; a scalar is [1]."""
    shape, strides = tuple(shape) or (1,), strides or (1,)
    ndim = len(shape)
    if ndim > _abi.MAX_DIMS:
        raise ValueError(f"{call}: {field}.ndim is {ndim}, must be 1 to {_abi.MAX_DIMS}")
    if 0 in shape:
        strides = [0] * ndim  # contiguous
    else:
        strides = [stride if extent > 1 else 1 for extent, stride in zip(shape, strides)]
        if not any(strides):
            raise ValueError(f"{call}: {field}.strides[{ndim - 1}] is 0, must be 1")
    into.dtype, into.ndim = dtype_number(dtype), ndim
    into.shape[:ndim], into.strides[:ndim] = shape, strides


def _find_exchange():
    """The address of DLPack's exchange API: tensors' pointers and layouts without a Python object for each."""
    capsule = getattr(torch.Tensor, "__dlpack_c_exchange_api__", None)
    if capsule is None:
        raise ImportError(f"tigon: torch is version {torch.__version__}, must be 2.10 or later")
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    return pointer(capsule, b"dlpack_exchange_api")


_exchange = _find_exchange()


class _PythonOp(ctypes.Structure):
    """src/ffi/python.h's python_op."""

    _fields_ = (
        ("exchange", ctypes.c_void_p),
        *((name, ctypes.c_int64) for name in ("inputs", "outputs", "options")),
        *((name, ctypes.py_object) for name in ("tensor", "parameter", "dtype", "modes", "negative")),
        *((name, ctypes.py_object) for name in ("threads", "stream", "device", "thread", "calls")),
        *((name, ctypes.py_object) for name in ("prepare", "other", "refuse")),
        ("last", ctypes.c_void_p * 3),
    )


class Op(Signature):
    """The operator `name` over the C entry of its own name or of another one; the rest is Signature's. `most`: bytes of
    a workspace that it takes without being told so, where the entry works with as many."""

    def __init__(self, name, entry=None, most=None, **signature):
        self.name, self.entry, self.most = name, entry or name, most
        super().__init__(self.name, self.entry, **signature)
        _fragment.define(self.schema, tags=_tags)
        self.torch_op = getattr(torch.ops.tigon, self.name).default
        self.struct, self.fields = ENTRIES[self.entry].struct, ENTRIES[self.entry].places
        self.function = library[f"tigon_{self.entry}"]
        self.python_op, self.direct = self._in_c(dispatched=False)
        self.dispatched_op, self.dispatched = self._in_c(dispatched=True)
        OPS[self.name] = self
        for key in ("CPU", "CUDA", "PrivateUse1"):
            _fragment.impl(self.name, lambda *args: self._given(self.dispatched(*args), args), key)
        fake = torch.library.register_fake(f"tigon::{self.name}", lib=_fragment)
        fake(lambda *args: self._given(self.outputs(*args), args))

    def __call__(self, *args):
        return self.torch_op(*args) if _compiling() else self.direct(*args)  # torch.compile cannot see through C

    def _in_c(self, dispatched):
        """The call in C and what it reads; `dispatched`: it comes from torch's dispatcher."""
        python_op = _PythonOp(
            exchange=_exchange,
            inputs=len(self.tensor_names),
            outputs=len(self.output_names),
            options=len(self.option_names),
            tensor=torch.Tensor,
            parameter=torch.nn.Parameter,
            dtype=torch.dtype,
            modes=_modes,
            negative=torch.Tensor.is_neg,
            threads=torch.get_num_threads,
            stream=lambda t: _stream_of(t.device),
            device=_current_device,
            thread=_thread,
            calls="calls",
            prepare=self._prepare_direct,
            other=functools.partial(self.described, dispatched=dispatched),
            refuse=functools.partial(self._refuse_direct, dispatched),
        )
        return python_op, in_c("tigon_python_call", python_op)

    def _prepare_direct(self, key, *args):
        call, outputs = self._prepare(args)
        function = 0 if call.copies else ctypes.cast(self.function, ctypes.c_void_p).value
        words = [function, call.context.handle.value, ctypes.addressof(call.struct), call.brief, 0]
        for name in self.tensor_names + self.output_names + ["workspace"] * ("workspace" in self.fields):
            places = [self.fields[field][0] // 8 for field in self.halves.get(name, (name,))]
            words += [*places, 0][:2] + [call.halves]
        call.plan = (ctypes.c_uint64 * len(words))(*words)
        if len(_thread.calls) >= _CALLS:
            _thread.calls.clear()
        makers = [t if t is None else _maker(t) for t in (*outputs, call.each_workspace)]
        call.each_workspace = None
        _thread.calls[key] = ctypes.addressof(call.plan), *makers, call
        return _thread.calls[key]

    def _refuse_direct(self, dispatched, prepared, *args):
        call = prepared[-1]
        if call.plan[0]:
            self._refuse(call.plan[4], call, args)
            call.plan[0] = 0  # next time at once
        return self._over_copies(args, dispatched)

    def _refuse(self, status, call, args):
        """Raises, unless copies may help."""
        refusal = error(status, call.context.handle)
        if not needs_copies(refusal, args[: len(self.tensor_names)]):
            raise refusal

    def described(self, *args, dispatched=False):
        """What the call in C does, for all that it does not know. It returns the outputs, None for an absent one."""
        if not dispatched and _modes():
            return self.torch_op(*args)
        tensors, options = args[: len(self.tensor_names)], args[len(self.tensor_names) :]
        check_tensors(self, tensors)
        if not dispatched:
            refuse_transforms(self.name.removesuffix("_bwd"), tensors)
            plain = _PLAIN.issuperset(map(type, tensors)) and tensors[0].device.type in DEVICES
            if not plain:  # a subclass or a device that torch's dispatcher has to see
                if any(hasattr(t, "placements") for t in tensors):
                    _sharding.register()
                return self.torch_op(*args)
        known = [t if t is None else t.resolve_neg() for t in tensors] + checked_options(self, options)
        if any(a is not b for a, b in zip(known, args)):
            return self._again(known, dispatched)
        call, outputs = self._prepare(args)
        if not call.copies:
            status = self.function(call.context.handle, ctypes.byref(call.struct))
            if not status:
                return outputs[0] if len(outputs) == 1 else outputs
            self._refuse(status, call, args)
        return self._over_copies(args, dispatched)

    def _again(self, args, dispatched):
        return (self.dispatched if dispatched else self.direct)(*args)

    def _over_copies(self, args, dispatched):
        copies = [strided(a) for a in args]
        if all(map(operator.is_, copies, args)):
            copies = [a.contiguous() if isinstance(a, torch.Tensor) else a for a in args]
        results = self._again(copies, dispatched)
        if not dispatched:
            return results
        # torch.compile counts on the strides of the outputs that it was told of.
        single = not isinstance(results, tuple)
        given = [
            result if place is None or place.stride() == result.stride() else place.copy_(result)
            for place, result in zip(self.outputs(*args), (results,) if single else results)
        ]
        return given[0] if single else tuple(given)

    @staticmethod
    def _given(outputs, args):
        """torch's schemas know no absent output: it is a tensor of no elements."""
        if isinstance(outputs, torch.Tensor):
            return outputs
        given = tuple(args[0].new_empty(0) if t is None else t for t in outputs)
        return given[0] if len(given) == 1 else given

    def _prepare(self, args):
        """A call whose struct is filled, and its outputs. `halves`: bytes from a packed tensor's first half to its
        second. `brief`: other threads need not get the interpreter meanwhile. `copies`: the entry refuses the layouts,
        and the call is made over copies. `each_workspace`: each call needs its own like this one."""
        tensors, options = args[: len(self.tensor_names)], args[len(self.tensor_names) :]
        check_tensors(self, tensors)
        options = checked_options(self, options)
        outputs = self.outputs(*args)
        call = SimpleNamespace(struct=self.struct(), brief=False, halves=0, copies=False, each_workspace=None)
        call.context = context(tensors[0].device)
        try:
            self._fill(call, tensors, outputs, options)
        except ValueError as refusal:
            call.copies = needs_copies(refusal, tensors)
            if not call.copies:
                raise
        return call, outputs

    def _fill(self, call, tensors, outputs, options):
        device = tensors[0].device
        call.brief = device.type == "cpu" and sum(t.nbytes for t in tensors + outputs if t is not None) <= _BRIEF
        for name, t in zip(self.tensor_names + self.output_names, tensors + outputs):
            if t is None:
                continue
            if t.device != device:
                first = self.tensor_names[0]
                raise ValueError(f"{self.name}: {name}.device is {t.device}, must be {device} ({first}.device)")
            if name in self.halves and t.shape[-1] % 2:
                raise ValueError(f"{self.name}: {name}.shape[{t.ndim - 1}] is {t.shape[-1]}, must be even")
            shape, strides = self.layout(name, t)
            if name in self.halves:
                call.halves = shape[-1] * strides[-1] * t.element_size()
            for i, field in enumerate(self.halves.get(name, (name,))):
                into = _abi.Tensor.from_buffer(call.struct, self.fields[field][0])
                write_layout(self.entry, field, into, t.dtype, shape, strides)
                into.data = t.data_ptr() + i * call.halves
        for name, value in zip(self.option_names, options):
            if name in self.fields:
                offset, kind = self.fields[name]
                kind.from_buffer(call.struct, offset).value = value if kind is ctypes.c_double else int(value)
        if "workspace" in self.fields:
            call.struct.workspace_bytes = needed = self._workspace(call)
            # A CUDA graph's must be its own: of the streams, the default one cannot be captured.
            alone = device.type == "cpu" or (device.type == "cuda" and _stream_of(device) == 0)
            workspace = torch.empty(needed, dtype=torch.uint8, device=device)
            call.struct.workspace = workspace.data_ptr()
            if needed <= (_KEPT if alone else 0):
                call.workspace = workspace
            else:
                call.each_workspace = workspace

    def _workspace(self, call):
        """Bytes that the call needs; for a composite those that the caller grants, else those recommended up to `most`."""
        least, good, context = ctypes.c_size_t(), ctypes.c_size_t(), call.context.handle
        of, found = ENTRIES[self.entry].index, (ctypes.byref(least), ctypes.byref(good))
        status = library.tigon_schema_workspace(of, context, ctypes.byref(call.struct), *found)
        if status:
            raise error(status, context)
        most = good.value if self.most is None else max(least.value, self.most)
        return call.struct.workspace_bytes or min(good.value, most)
