"""C entries as torch operators.

The names of an operator's arguments are those of the C struct's fields, tensors first. A call builds a key (options,
stream, layouts), finds the struct that was filled for it before, writes the data pointers and calls. src/ffi/python.c
does that for plain tensors, Op.described for all others. Under torch.compile, dispatch modes and for tensor subclasses
the operator goes through torch's dispatcher as torch.ops.tigon.<name>, behind which the same two make the call.
"""

import ctypes
import functools
import threading

import torch

from tigon import _abi
from tigon._library import ENTRIES, Context, error, in_c, library
from tigon.torch import _memory, _sharding
from tigon.torch._arguments import check_options, check_tensors, dtype_number, needs_copies
from tigon.torch._signature import Signature

_CALLS = 1024  # that a thread remembers before it starts afresh
_KEPT = 65536  # bytes of a workspace that a call keeps for the next one
_BRIEF = 32768  # bytes of a call on the CPU that is over before another thread could make use of the interpreter
_PLAIN = {torch.Tensor, torch.nn.Parameter, type(None)}
_DEVICES = "cpu", "cuda", "npu"
OPS = {}  # name: Op
_compiling, _modes = torch.compiler.is_dynamo_compiling, torch._C._len_torch_dispatch_stack
_fragment = torch.library.Library("tigon", "DEF")
_tags = (torch.Tag.pt2_compliant_tag, torch.Tag.needs_fixed_stride_order)


_spare = {}  # (device, stream): contexts whose threads have ended. A CUDA graph may still use one's memory.


class _State:
    def __init__(self):
        self.contexts, self.calls = {}, {}

    def __del__(self, spare=_spare):
        for key, context in self.contexts.items():
            spare.setdefault(key, []).append(context)


class _Thread(threading.local):
    def __init__(self):
        self.state = _State()
        self.calls = self.state.calls


_thread = _Thread()


@functools.cache
def _stream_of(device):
    """A function that says what a context on the device depends on besides: the current stream; on the CPU the number
    of threads."""
    if device.type == "cuda":
        return functools.partial(torch._C._cuda_getCurrentRawStream, device.index)
    if device.type == "npu":
        return lambda: torch.npu.current_stream(device).npu_stream
    return torch.get_num_threads


_current_device = getattr(torch._C, "_cuda_getDevice", None)


def _maker(t, here=False):
    """A function and its arguments, for a tensor like `t`: what Inductor's code allocates by, in half the time. Of GPUs
    it takes the current one; `here` says that the call depends on which that is. On the CPU large tensors lie in a
    pool."""
    make = getattr(torch._C._dynamo.guards, f"_empty_strided_{t.device.type}", None)
    if make and (t.device.type == "cpu" or (here and t.device.index == _current_device())):
        found = make, (tuple(t.shape), t.stride(), t.dtype)
    else:
        found = t.new_empty(0).new_empty_strided, (t.shape, t.stride())
    return t.device.type == "cpu" and _memory.maker(t, _exchange, *found) or found


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
    key = device, _stream_of(device)()
    contexts = _thread.state.contexts
    if key not in contexts:
        contexts[key] = _spare[key].pop() if _spare.get(key) else _open(*key)
    return contexts[key]


def synchronize(device):
    """Waits for this thread's work on `device` and its current stream; raises the fault that the device found
    meanwhile, as an index out of range, which only a host device refuses at once."""
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
        *((name, ctypes.py_object) for name in ("none", "tensor", "parameter")),
        *((name, ctypes.py_object) for name in ("number", "integer", "boolean", "dtype")),
        *((name, ctypes.py_object) for name in ("modes", "negative", "threads", "device", "thread", "calls")),
        *((name, ctypes.py_object) for name in ("prepare", "other", "refuse")),
        ("last", ctypes.c_void_p * 3),
    )


def _layout_of(t):
    return None if t is None else (t.shape, t.is_contiguous() or t.stride(), t.dtype, t.device, type(t))


class _Call:
    """A struct of arguments, filled but for the data pointers; `makers` make the outputs, `halves` is where a packed
    tensor's second half begins; `brief` says that other threads need not get the interpreter meanwhile. `copies`: the
    entry refuses the layouts, and the call is made over contiguous copies."""


class Op(Signature):
    """A C entry as an operator."""

    def __init__(self, name, entry, **signature):
        super().__init__(name, entry, **signature)
        self.name, self.entry = name, entry
        _fragment.define(self.schema, tags=_tags)
        self.torch_op = getattr(torch.ops.tigon, self.name).default
        self.struct, self.fields = ENTRIES[self.entry].struct, ENTRIES[self.entry].places
        self.function = library[f"tigon_{self.entry}"]
        # Which of the struct's words are a tensor's pointers, those of its halves where it is packed.
        names = self.tensor_names + self.output_names
        self.places = [[self.fields[field][0] // 8 for field in self.halves.get(name, (name,))] for name in names]
        self.python_op, self.direct = self._in_c(self.described)
        self.dispatched_op, in_dispatcher = self._in_c(functools.partial(self.described, dispatched=True))
        OPS[self.name] = self
        for key in ("CPU", "CUDA", "PrivateUse1"):
            _fragment.impl(self.name, lambda *args: self._given(in_dispatcher(*args), args), key)
        fake = torch.library.register_fake(f"tigon::{self.name}", lib=_fragment)
        fake(lambda *args: self._given(self.outputs(*args), args))

    def _in_c(self, other):
        """The call in C and what it reads. `other` makes the calls that C does not know."""
        python_op = _PythonOp(
            exchange=_exchange,
            inputs=len(self.tensor_names),
            outputs=len(self.output_names),
            options=len(self.option_names),
            none=None,
            tensor=torch.Tensor,
            parameter=torch.nn.Parameter,
            number=float,
            integer=int,
            boolean=bool,
            dtype=torch.dtype,
            modes=_modes,
            negative=torch.Tensor.is_neg,
            threads=torch.get_num_threads,
            device=_current_device,
            thread=_thread,
            calls="calls",
            prepare=self._prepare_direct,
            other=other,
            refuse=functools.partial(self._refuse_direct, other),
        )
        return python_op, in_c("tigon_python_call", python_op)

    def _prepare_direct(self, key, *args):
        tensors, options = args[: len(self.tensor_names)], args[len(self.tensor_names) :]
        call = self._prepare(tensors, options, here=True)
        function = 0 if call.copies else ctypes.cast(self.function, ctypes.c_void_p).value
        words = [function, call.handle.value, call.address.value, call.brief]
        for places in self.places:
            words += [*places, call.halves] if len(places) == 2 else [*places, 0, 0]
        if "workspace" in self.fields:
            words += [self.fields["workspace"][0] // 8, 0, 0]
        call.plan = (ctypes.c_uint64 * len(words))(*words)
        return self._remember(key, (ctypes.addressof(call.plan), *call.makers, call.workspace_maker, call))

    def _refuse_direct(self, other, prepared, status, *args):
        refusal = error(status, prepared[-1].handle)
        if not needs_copies(refusal, args[: len(self.tensor_names)]):
            raise refusal
        prepared[-1].plan[0] = 0  # next time at once
        return other(*args)

    def described(self, *args, dispatched=False):
        """Runs the C entry on torch's tensors: what the call in C does, for all that it does not know. It returns the
        outputs, None for an absent one, or by way of torch's dispatcher a tensor of no elements."""
        if not dispatched and _modes():
            return self.torch_op(*args)
        count = len(self.tensor_names)
        tensors, options = args[:count], args[count:]
        try:
            if any(t is not None and t.is_neg() for t in tensors):
                tensors = [t if t is None else t.resolve_neg() for t in tensors]
                return self.described(*tensors, *options, dispatched=dispatched)
            key = self.name, options, _stream_of(tensors[0].device)(), tuple(map(_layout_of, tensors))
        except Exception:
            check_tensors(self, tensors)
            raise
        call = _thread.calls.get(key)
        if call is None:
            plain = _PLAIN.issuperset(map(type, tensors)) and tensors[0].device.type in _DEVICES
            if not dispatched and not plain:  # a subclass or a device that torch's dispatcher has to see
                if any(hasattr(t, "placements") for t in tensors):
                    _sharding.register()
                return self.torch_op(*args)
            call = self._remember(key, self._prepare(tensors, options))
        return self._over_copies(tensors, options, dispatched) if call.copies else self._run(call, args, dispatched)

    def _run(self, call, args, dispatched):
        count = len(self.tensor_names)
        tensors = args[:count]
        outputs = [maker and maker[0](*maker[1]) for maker in call.makers]
        for places, t in zip(self.places, (*tensors, *outputs)):
            if t is not None:
                pointer = t.data_ptr()
                for place in places:
                    call.words[place] = pointer
                    pointer += call.halves
        if call.workspace_maker is not None:
            workspace = call.workspace_maker[0](*call.workspace_maker[1])
            call.words[self.fields["workspace"][0] // 8] = workspace.data_ptr()
        status = self.function(call.handle, call.address)
        if status:
            refusal = error(status, call.handle)
            call.copies = needs_copies(refusal, tensors)
            if not call.copies:
                raise refusal
            return self._over_copies(tensors, args[count:], dispatched)
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    def _over_copies(self, tensors, options, dispatched):
        copies = [t if t is None else t.contiguous() for t in tensors]
        results = self.described(*copies, *options, dispatched=dispatched)
        if not dispatched:
            return results
        # torch.compile counts on the strides of the outputs that it was told of.
        single = not isinstance(results, tuple)
        wanted = self.outputs(*tensors, *options)
        given = [
            result if place is None or place.stride() == result.stride() else place.copy_(result)
            for place, result in zip(wanted, (results,) if single else results)
        ]
        return given[0] if single else tuple(given)

    @staticmethod
    def _given(outputs, args):
        """torch's schemas know no absent output: it is a tensor of no elements."""
        if isinstance(outputs, torch.Tensor):
            return outputs
        given = tuple(args[0].new_empty(0) if t is None else t for t in outputs)
        return given[0] if len(given) == 1 else given

    @staticmethod
    def _remember(key, call):
        if len(_thread.calls) >= _CALLS:
            _thread.calls.clear()
        _thread.calls[key] = call
        return call

    def _prepare(self, tensors, options, here=False):
        check_tensors(self, tensors)
        check_options(self, options)
        outputs = self.outputs(*tensors, *options)
        call = _Call()
        call.context = context(tensors[0].device)
        call.handle = call.context.handle
        call.struct = self.struct()
        call.address = ctypes.c_void_p(ctypes.addressof(call.struct))
        call.words = memoryview(call.struct).cast("B").cast("Q")
        call.workspace_maker = None  # the call needs none, or keeps its own
        call.halves, call.copies = 0, False
        call.makers = [None if t is None else _maker(t, here) for t in outputs]
        try:
            self._fill(call, tensors, outputs, options, here)
        except ValueError as refusal:
            call.copies = needs_copies(refusal, tensors)
            if not call.copies:
                raise
        return call

    def _fill(self, call, tensors, outputs, options, here):
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
            for field in self.halves.get(name, (name,)):
                into = _abi.Tensor.from_buffer(call.struct, self.fields[field][0])
                write_layout(self.entry, field, into, t.dtype, shape, strides)
            if name in self.halves:
                call.halves = shape[-1] * strides[-1] * t.element_size()
        for name, value in zip(self.option_names, options):
            if name in self.fields:
                offset, kind = self.fields[name]
                kind.from_buffer(call.struct, offset).value = value if kind is ctypes.c_double else int(value)
        if "workspace" in self.fields:
            call.struct.workspace_bytes = needed = self._workspace(call)
            # A CUDA graph's must be its own: of the streams, the default one cannot be captured.
            alone = device.type == "cpu" or (device.type == "cuda" and _stream_of(device)() == 0)
            workspace = torch.empty(needed, dtype=torch.uint8, device=device)
            if alone and 0 < needed <= _KEPT:
                call.workspace = workspace
                call.struct.workspace = workspace.data_ptr()
            elif needed:
                call.workspace_maker = _maker(workspace, here)

    def _workspace(self, call):
        """Bytes that the call needs; for a composite those that the caller grants, else those recommended."""
        sizes = ctypes.c_size_t(), ctypes.c_size_t()
        query = f"{self.entry}_workspace"
        if not hasattr(library, f"tigon_{query}"):
            query = f"{self.entry[:-4]}_workspace"
        if not hasattr(library, f"__tvm_ffi_tigon_{query}_minimum"):
            sizes = sizes[:1]
        call.context.run(query, call.struct, *sizes)
        return call.struct.workspace_bytes or sizes[-1].value


def op(name, entry=None, **signature):
    """The call of an operator over the C entry of its own name or of another one; the rest is Signature's."""
    found = Op(name, entry or name, **signature)
    torch_op, direct = found.torch_op, found.direct

    def call(*args):
        return torch_op(*args) if _compiling() else direct(*args)  # torch.compile cannot see through C

    call.op, call.direct = found, direct
    return call
