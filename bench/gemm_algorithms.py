#!/usr/bin/env python3
"""Times the algorithms that cuBLASLt's heuristic offers for products of interest, and prints lines for src/cuda/blaslt_choices.def where
the first is not the fastest. The heuristic is asked as src/cuda/blaslt.c asks it, so that an index means the same there.

A product is c[m, n] = a[m, k] b[k, n] of matrices in rows; a letter t marks a transposed one."""
import argparse
import ctypes
import statistics
import sys

CANDIDATES, WORKSPACE, ALIGNMENT, REDUCE_IN_F32, COMPUTE_F32 = 8, 32 << 20, 16, 2, 68
TYPES = {"TIGON_F32": 0, "TIGON_F16": 2, "TIGON_BF16": 14}
MODELS = {"llama-3-8b": (4096, 14336, 128256), "qwen2.5-7b": (3584, 18944, 152064), "qwen2.5-72b": (8192, 29568, 152064)}
LEAST_GAIN = 0.02
PANELS = 8  # that dlogits are parked in: src/op/fused_linear_cross_entropy.c


class Found(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t"""

    _fields_ = [("algorithm", ctypes.c_uint64 * 8), ("workspace", ctypes.c_size_t), ("status", ctypes.c_int),
                ("waves", ctypes.c_float), ("reserved", ctypes.c_int * 4)]


class Library:
    def __init__(self):
        for name in ("libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"):
            try:
                self.lt = ctypes.CDLL(name)
                break
            except OSError:
                continue
        else:
            sys.exit("gemm_algorithms: cuBLASLt is not found")
        self.lt.cublasLtGetVersion.restype = ctypes.c_size_t
        self.version = self.lt.cublasLtGetVersion()
        self.handle, self.preference = ctypes.c_void_p(), ctypes.c_void_p()
        self.do("Create", ctypes.byref(self.handle))
        self.do("MatmulPreferenceCreate", ctypes.byref(self.preference))
        for attribute, value in ((1, ctypes.c_uint64(WORKSPACE)), (3, ctypes.c_uint32(REDUCE_IN_F32)),
                                 *((5 + i, ctypes.c_uint32(ALIGNMENT)) for i in range(4))):
            self.do("MatmulPreferenceSetAttribute", self.preference, attribute, ctypes.byref(value),
                    ctypes.c_size_t(ctypes.sizeof(value)))

    def do(self, name, *arguments):
        status = getattr(self.lt, "cublasLt" + name)(*arguments)
        if status != 0:
            raise RuntimeError(f"cublasLt{name} returned {status}")

    def layout(self, kind, rows, cols, pitch):
        made = ctypes.c_void_p()
        self.do("MatrixLayoutCreate", ctypes.byref(made), TYPES[kind], ctypes.c_uint64(rows), ctypes.c_uint64(cols),
                ctypes.c_int64(pitch))
        return made


class Product:
    """Columns are ours in rows, so the library's first matrix is b and its second is a."""

    def __init__(self, library, kind, c_kind, a_t, b_t, m, n, k):
        self.library = library
        self.desc = ctypes.c_void_p()
        library.do("MatmulDescCreate", ctypes.byref(self.desc), COMPUTE_F32, 0)
        for attribute, value in ((3, b_t), (4, a_t)):
            library.do("MatmulDescSetAttribute", self.desc, attribute, ctypes.byref(ctypes.c_int32(value)), ctypes.c_size_t(4))
        first = (k, n) if b_t else (n, k)
        second = (m, k) if a_t else (k, m)
        self.layouts = [library.layout(kind, *first, first[0]), library.layout(kind, *second, second[0]),
                        library.layout(c_kind, n, m, n)]
        dtypes = {"TIGON_F32": torch.float32, "TIGON_F16": torch.float16, "TIGON_BF16": torch.bfloat16}
        make = lambda count, name: torch.randn(count, device="cuda", dtype=torch.bfloat16).to(dtypes[name])
        self.a, self.b = make(m * k, kind), make(n * k, kind)
        self.c = torch.zeros(m * n, device="cuda", dtype=dtypes[c_kind])
        self.workspace = torch.empty(WORKSPACE, device="cuda", dtype=torch.uint8)

    def candidates(self):
        found, count = (Found * CANDIDATES)(), ctypes.c_int()
        first, second, c = self.layouts
        self.library.do("MatmulAlgoGetHeuristic", self.library.handle, self.desc, first, second, c, c, self.library.preference,
                        CANDIDATES, found, ctypes.byref(count))
        return found[:count.value]

    def call(self, one, beta):
        first, second, c = self.layouts
        pointer = lambda tensor: ctypes.c_void_p(tensor.data_ptr())
        self.library.do("Matmul", self.library.handle, self.desc, ctypes.byref(ctypes.c_float(1)), pointer(self.b), first,
                        pointer(self.a), second, ctypes.byref(ctypes.c_float(beta)), pointer(self.c), c, pointer(self.c), c,
                        ctypes.byref(one.algorithm), pointer(self.workspace), ctypes.c_size_t(WORKSPACE),
                        ctypes.c_void_p(torch.cuda.current_stream().cuda_stream))

    def seconds(self, one, beta, repeat):
        samples = []
        for i in range(repeat + 2):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            self.call(one, beta)
            end.record()
            end.synchronize()
            if i >= 2:
                samples.append(begin.elapsed_time(end) * 1e-3)
        return statistics.median(samples)


def products(models, tokens, kind):
    """(name, kind, kind of c, a transposed, b transposed, m, n, k, beta)"""
    for model in models:
        hidden, intermediate, vocabulary = MODELS[model]
        for name, out, sizes in (("head", vocabulary, tokens), ("mlp", intermediate, [8192])):
            for rows in sizes:
                yield f"{model} {name} y", kind, kind, False, True, rows, out, hidden, 0
                yield f"{model} {name} dx", kind, kind, False, False, rows, hidden, out, 0
                yield f"{model} {name} dw", kind, "TIGON_F32", True, False, out, hidden, rows, 1
                if name == "mlp":
                    yield f"{model} mlp dw as weight", kind, kind, True, False, out, hidden, rows, 0
        yield f"{model} parked dw", kind, kind, True, False, -(-vocabulary // PANELS), hidden, min(4096, hidden), 0


def main(options):
    library, device = Library(), torch.cuda.get_device_name()[:31]
    kind = {"bf16": "TIGON_BF16", "f16": "TIGON_F16", "f32": "TIGON_F32"}[options.dtype]
    lines = []
    for name, a_kind, c_kind, a_t, b_t, m, n, k, beta in products(options.model or list(MODELS), options.tokens, kind):
        product = Product(library, a_kind, c_kind, a_t, b_t, m, n, k)
        times = []
        for one in product.candidates():
            try:
                times.append(product.seconds(one, beta, options.repeat) if one.status == 0 else float("inf"))
            except RuntimeError:
                times.append(float("inf"))
        best = min(range(len(times)), key=times.__getitem__)
        # Twice: a choice that noise made would stay for good.
        if best and product.seconds(product.candidates()[best], beta, 3 * options.repeat) > (1 - LEAST_GAIN) * times[0]:
            best = 0
        print(f"{name:<24} {m}x{n}x{k}: first {times[0] * 1e3:.3f} ms, best {times[best] * 1e3:.3f} ms (index {best} of {len(times)}), "
              f"{2e-12 * m * n * k / times[best]:.0f} TFLOP/s", flush=True)
        if best:
            marks = ", ".join("true" if t else "false" for t in (a_t, b_t))
            lines.append(f'CHOICE("{device}", {library.version}, {a_kind}, {c_kind}, {marks}, {m}, {n}, {k}, {best})')
        del product
        torch.cuda.empty_cache()
    print("\n".join(lines))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Time what cuBLASLt's heuristic offers, and print lines for blaslt_choices.def.")
    parser.add_argument("--model", action="append", choices=list(MODELS), help="may be repeated (default: all)")
    parser.add_argument("--tokens", type=int, nargs="+", default=[1024, 2048], help="rows of a chunk of logits (default: 1024 2048)")
    parser.add_argument("--dtype", choices=["bf16", "f16", "f32"], default="bf16")
    parser.add_argument("--repeat", type=int, default=7, help="samples of each (default: 7)")
    chosen = parser.parse_args()
    import torch

    main(chosen)
