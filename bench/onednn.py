"""oneDNN as a peer of bench/peers_cpu.py: its own primitives on the tensors of Tigon's case, through the C API of
libdnnl.so.3 (oneapi/dnnl/dnnl.h). docs/performance.md says which operators it has not."""
import ctypes
import os
import pathlib
import sysconfig

# dnnl_types.h, dnnl_common_types.h
F16, BF16, F32 = 1, 2, 3
CPU, IN_ORDER, TRAINING, BACKWARD, SOFTMAX, SCALE_AND_SHIFT = 1, 1, 64, 128, 0x30000, 0x2 | 0x4
ARGS = {"src": 1, "dst": 17, "mean": 49, "variance": 50, "scale": 51, "shift": 52, "diff_src": 129, "diff_dst": 145,
        "diff_scale": 255, "diff_shift": 256}
EPS = ctypes.c_float(1e-5)


class Version(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int) for name in ("major", "minor", "patch")]


class Argument(ctypes.Structure):
    _fields_ = [("arg", ctypes.c_int), ("memory", ctypes.c_void_p)]


class Missing(Exception):
    """oneDNN is not there, or a primitive of it does not run here."""


class OneDNN:
    def __init__(self):
        of_paddle = pathlib.Path(sysconfig.get_path("purelib"), "paddle/libs/libdnnl.so.3")
        place = os.environ.get("TIGON_ONEDNN") or (of_paddle if of_paddle.exists() else "libdnnl.so.3")
        try:
            self.library = ctypes.CDLL(str(place))
        except OSError as error:
            raise Missing(f"{error}; TIGON_ONEDNN may name it") from None
        self.library.dnnl_version.restype = ctypes.POINTER(Version)
        v = self.library.dnnl_version().contents
        self.version = f"{v.major}.{v.minor}.{v.patch}"
        self.engine = self.make("engine_create", CPU, ctypes.c_size_t(0))
        self.stream = self.make("stream_create", self.engine, IN_ORDER)

    def make(self, what, *arguments):
        """A handle from a dnnl_*_create function."""
        handle = ctypes.c_void_p()
        status = getattr(self.library, f"dnnl_{what}")(ctypes.byref(handle), *arguments)
        if status != 0:
            raise Missing(f"oneDNN {self.version}: dnnl_{what} returned {status}")
        return handle

    def layout(self, tensor):
        sizes, strides = ((ctypes.c_int64 * 12)(*values) for values in (tensor.shape, tensor.stride()))
        kind = {"torch.float32": F32, "torch.bfloat16": BF16, "torch.float16": F16}[str(tensor.dtype)]
        return self.make("memory_desc_create_with_strides", tensor.dim(), sizes, kind, strides)

    def call(self, description, **tensors):
        """A function that runs a primitive on tensors, which have the names of ARGS."""
        primitive = self.make("primitive_create", description)
        arguments = (Argument * len(tensors))(*(
            (ARGS[name], self.make("memory_create", self.layout(tensor), self.engine, ctypes.c_void_p(tensor.data_ptr())))
            for name, tensor in tensors.items()))
        execute, wait = self.library.dnnl_primitive_execute, self.library.dnnl_stream_wait

        def run(kept=tensors):  # whose memory must stay
            if execute(primitive, self.stream, len(arguments), arguments) or wait(self.stream):
                raise RuntimeError(f"oneDNN {self.version}: a primitive failed")

        return run

    # ---- the cases: each returns its forward, its backward, their outputs and the gradients ----

    def softmax(self, x, dy):
        y, dx = x.new_empty(x.shape), x.new_empty(x.shape)
        flat = self.layout(x)
        forward = self.make("softmax_forward_primitive_desc_create", self.engine, TRAINING, SOFTMAX, flat, flat,
                            x.dim() - 1, None)
        backward = self.make("softmax_backward_primitive_desc_create", self.engine, SOFTMAX, flat, flat, flat, x.dim() - 1,
                             forward, None)
        return (self.call(forward, src=x, dst=y), self.call(backward, dst=y, diff_dst=dy, diff_src=dx), [y], [dx])

    def layer_norm(self, x, w, b, dy):
        """Scale, shift and their gradients are f32, as oneDNN has them by default."""
        y, dx, w, b = x.new_empty(x.shape), x.new_empty(x.shape), w.float(), b.float()
        mean, variance = w.new_empty(x.shape[:1]), w.new_empty(x.shape[:1])
        dw, db = w.new_empty(w.shape), w.new_empty(w.shape)
        flat, row = self.layout(x), self.layout(mean)
        forward = self.make("layer_normalization_forward_primitive_desc_create", self.engine, TRAINING, flat, flat, row, EPS,
                            SCALE_AND_SHIFT, None)
        backward = self.make("layer_normalization_backward_primitive_desc_create", self.engine, BACKWARD, flat, flat, flat,
                             row, EPS, SCALE_AND_SHIFT, forward, None)
        kept = {"src": x, "mean": mean, "variance": variance, "scale": w, "shift": b}
        return (self.call(forward, dst=y, **kept),
                self.call(backward, diff_dst=dy, diff_src=dx, diff_scale=dw, diff_shift=db, **kept), [y], [dx, dw, db])
