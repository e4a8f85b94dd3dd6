#!/usr/bin/env python3
"""Times PyTorch and oneDNN beside Tigon on the CPU: the same cases, in one process, on the same memory and threads, sample by sample
in turns. `make bench-peers` makes the virtual environment and runs this; --help has the options.

Tigon is timed twice: called from C on memory that stays (`tigon`) and called from PyTorch (`python`). A peer's ratio is its time over
that of `tigon` where the memory is kept warm, over that of `python` where it is as a user finds it; `python` has its ratio to `tigon`."""
import argparse
import ctypes
import gc
import math
import os
import pathlib
import platform
import resource
import shutil
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time

import layers
import losses
import records
from onednn import Missing, OneDNN
from records import ROOT

MODES = ["fwd", "bwd", "full"]  # bench_mode in apps/cli/bench.h
PEERS = ["eager", "compile", "onednn"]
OF_TORCH = ["python", "eager", "compile"]  # whose memory is the process's
MEMORIES = ["default", "warm"]
SHARED = ["memory", "op", "mode", "dtype", "shape"]  # what a case is
COLUMNS = [*SHARED, "party", "median_ms", "spread", "peak_bytes", "wrong_by", "threads", "variant", "bytes_min", "disturbed"]
WARM_SECONDS = 0.005  # the least time of a sample
DTYPES = {1: "float32", 2: "float16", 3: "bfloat16", 4: "int32", 5: "int64", 6: "float8_e4m3fn", 7: "int8"}  # tigon_dtype: PyTorch's


def trouble(sentence):
    print(f"peers_cpu: {sentence}", file=sys.stderr)
    sys.exit(3)


class Parser(argparse.ArgumentParser):
    def error(self, message):
        print(f"{pathlib.Path(sys.argv[0]).stem}: {message}", file=sys.stderr)
        sys.exit(2)


def parse():
    parser = Parser(
        description="Time PyTorch eager, torch.compile and oneDNN beside Tigon, forward and backward, and print the ratios.",
        epilog="Examples:\n  make bench-peers\n  make bench-peers ARGS='--op rms_norm --dtype bf16 --mode bwd'\n"
        "  build/peers/bin/python bench/peers_cpu.py --op swiglu --shape 64x4096 --no-compile",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )

    def count(text):
        number = int(text)
        if not 1 <= number <= 4096:
            raise ValueError
        return number

    def shape(text):
        rows, cols = (int(part) for part in text.split("x"))
        if rows < 1 or cols < 1:
            raise ValueError
        return rows, cols

    count.__name__, shape.__name__ = "whole number from 1 to 4096", "ROWSxCOLS"
    parser.add_argument("--op", action="append", choices=list(CASES), help="may be repeated (default: all)")
    parser.add_argument("--dtype", action="append", choices=["f32", "bf16", "f16"], help="(default: f32 and bf16)")
    parser.add_argument("--mode", action="append", choices=MODES, help="(default: all)")
    parser.add_argument("--shape", type=shape, default=(0, 0), metavar="ROWSxCOLS",
                        help="instead of each operator's own, which are those of `tigon bench`")
    parser.add_argument("--threads", type=count, default=0, metavar="N",
                        help="of Tigon and of PyTorch (default: OMP_NUM_THREADS, else all cores)")
    parser.add_argument("--repeat", type=count, default=15, metavar="N", help="samples of each (default: 15)")
    parser.add_argument("--memory", choices=MEMORIES,
                        help="default: nothing is set, as a user finds it; warm: malloc keeps what PyTorch frees "
                        "(default: both, each in a process of its own)")
    parser.add_argument("--no-compile", action="store_true", help="leave torch.compile out; it takes seconds a case")
    parser.add_argument("--no-onednn", action="store_true", help="leave oneDNN out")
    records.add_options(parser, "peers_cpu")
    return parser.parse_args()


# ---- Tigon ----


class View(ctypes.Structure):
    """tigon_tensor in include/tigon/base.h."""

    _fields_ = [("data", ctypes.c_void_p), ("dtype", ctypes.c_int), ("ndim", ctypes.c_int32),
                ("shape", ctypes.c_int64 * 8), ("strides", ctypes.c_int64 * 8)]


class Tigon:
    """A case of tests/check/cases.c, through build/libtigon_bench.so; what a name has behind : is the peers'."""

    library = None

    def __init__(self, op, dtype, shape, threads):
        self.load()
        self.hold(self.library.tigon_bench_open(op.split(":")[0].encode(), dtype.encode(), ctypes.c_int64(shape[0]),
                                                ctypes.c_int64(shape[1]), threads))

    @staticmethod
    def load():
        if Tigon.library is not None:
            return
        path = os.environ.get("TIGON_BENCH", ROOT / "build/libtigon_bench.so")
        try:
            Tigon.library = ctypes.CDLL(str(path))
        except OSError as error:
            trouble(f"{error}; `make bench-peers` builds it")
        for name in ("open", "open_on", "tensor"):
            getattr(Tigon.library, f"tigon_bench_{name}").restype = ctypes.c_void_p
        for name in ("sentence", "variant", "gemm"):
            getattr(Tigon.library, f"tigon_bench_{name}").restype = ctypes.c_char_p
        for name in ("bytes", "flops", "workspace"):
            getattr(Tigon.library, f"tigon_bench_{name}").restype = ctypes.c_double

    def hold(self, handle):
        if not handle:
            raise LookupError(self.library.tigon_bench_sentence().decode())
        self.handle = ctypes.c_void_p(handle)
        sizes = (ctypes.c_int64 * 2)()
        self.library.tigon_bench_sizes(self.handle, sizes)
        self.rows, self.cols = sizes

    def call(self, mode):
        if self.library.tigon_bench_call(self.handle, MODES.index(mode)) != 0:
            trouble(self.library.tigon_bench_sentence().decode())

    def tensors(self, *names):
        """PyTorch tensors on the case's own memory, by the names that tests/check gives them."""
        made = []
        for name in names:
            view = self.view(name)
            dtype = getattr(torch, DTYPES[view.dtype])
            shape = view.shape[:view.ndim]
            raw = (ctypes.c_char * (math.prod(shape) * dtype.itemsize)).from_address(view.data)
            made.append(torch.frombuffer(raw, dtype=dtype).view(shape))
        return made

    def has(self, name):
        return bool(self.library.tigon_bench_tensor(self.handle, name.encode()))

    def view(self, name):
        return ctypes.cast(self.library.tigon_bench_tensor(self.handle, name.encode()), ctypes.POINTER(View)).contents

    def modes(self):
        """Without a backward entry forward makes the gradients, too."""
        found = self.library.tigon_bench_call(self.handle, MODES.index("bwd"))
        return MODES if found == 0 else MODES[:1]

    def bytes_min(self, mode):
        return self.library.tigon_bench_bytes(self.handle, MODES.index(mode))

    def variant(self):
        return self.library.tigon_bench_variant(self.handle).decode()

    def close(self):
        self.library.tigon_bench_close(self.handle)


# ---- the cases: what PyTorch does with the tensors of Tigon's case (tests/check) ----
# Each returns (function, inputs that need a gradient, gradients of its outputs, Tigon's outputs, Tigon's gradients).


def rms_norm(t):
    x, w, dy, y, dx, dw = t.tensors("x", "w", "dy", "y", "dx", "dw")
    return lambda x, w: F.rms_norm(x, x.shape[1:], w, 1e-6), [x, w], [dy], [y], [dx, dw]


def fused_add_rms_norm(t):
    x, residual, w, dy, ds, s, y, dx, dw = t.tensors("x", "residual", "w", "dy", "ds", "s", "y", "dx", "dw")

    def function(x, residual, w):
        s = x + residual
        return F.rms_norm(s, s.shape[1:], w, 1e-6), s

    return function, [x, residual, w], [dy, ds], [y, s], [dx, dx, dw]


def layer_norm(t):
    x, w, b, dy, y, dx, dw, db = t.tensors("x", "w", "b", "dy", "y", "dx", "dw", "db")
    return lambda x, w, b: F.layer_norm(x, x.shape[1:], w, b, 1e-5), [x, w, b], [dy], [y], [dx, dw, db]


def group_norm(t):
    x, w, b, dy, mean, y, dx, dw, db = t.tensors("x", "w", "b", "dy", "mean", "y", "dx", "dw", "db")
    return lambda x, w, b: F.group_norm(x, mean.shape[1], w, b, 1e-5), [x, w, b], [dy], [y], [dx, dw, db]


def modulated_rms_norm(t):
    x, w, scale, shift, dy, y, dx = t.tensors("x", "w", "scale", "shift", "dy", "y", "dx")
    batch = scale.shape[0]

    def function(x, w, scale, shift):
        n = F.rms_norm(x, x.shape[1:], w, 1e-6).view(batch, -1, x.shape[1])
        return ((1 + scale[:, None]) * n + shift[:, None]).view(x.shape)

    return function, [x, w, scale, shift], [dy], [y], [dx, *t.tensors("dw", "dscale", "dshift")]


def swiglu(t):
    a, b, dc, c, da, db = t.tensors("a", "b", "dc", "c", "da", "db")
    return lambda a, b: F.silu(a) * b, [a, b], [dc], [c], [da, db]


def geglu(t):
    a, b, dc, c, da, db = t.tensors("a", "b", "dc", "c", "da", "db")
    return lambda a, b: F.gelu(a, approximate="tanh") * b, [a, b], [dc], [c], [da, db]


def softmax(t):
    x, dy, y, dx = t.tensors("x", "dy", "y", "dx")
    return lambda x: torch.softmax(x, -1), [x], [dy], [y], [dx]


def embedding(t):
    table, idx, dy, y, dtable = t.tensors("table", "idx", "dy", "y", "dtable")
    return lambda table: F.embedding(idx, table), [table], [dy], [y], [dtable]


# ---- Tigon from PyTorch: a function of the inputs that need a gradient ----

FROM_TORCH = {
    "rms_norm": lambda t: lambda x, w: T.rms_norm(x, w, 1e-6),
    "fused_add_rms_norm": lambda t: lambda x, residual, w: T.fused_add_rms_norm(x, residual, w, 1e-6),
    "layer_norm": lambda t: lambda x, w, b: T.layer_norm(x, w, b, 1e-5),
    "group_norm": lambda t: lambda x, w, b: T.group_norm(x, t.view("mean").shape[1], w, b, 1e-5),
    "modulated_rms_norm": lambda t: lambda x, w, scale, shift: T.modulated_rms_norm(x, scale, shift, w, 1e-6),
    "swiglu": lambda t: T.swiglu,
    "geglu": lambda t: T.geglu,
    "softmax": lambda t: T.softmax,
    **losses.FROM_TORCH, **layers.FROM_TORCH,
    "embedding": lambda t: lambda table, idx=t.tensors("idx")[0]: T.embedding(idx, table),
}


CASES = {f.__name__: f
         for f in (rms_norm, fused_add_rms_norm, layer_norm, group_norm, modulated_rms_norm, swiglu, geglu, softmax,
                   *losses.CASES, embedding)} | layers.CASES | losses.FORMS


# ---- operators whose own file in the Python package says what they are in plain torch ----


def referenced():
    """Their names."""
    files = sorted((ROOT / "python/tigon/torch/operators").glob("*.py"))
    return [file.stem for file in files if "\nREFERENCE = " in file.read_text()]


def of_reference(op):
    """The case of such an operator: tensor d<t> of backward is the gradient of t."""

    def case(t):
        load_tigon()
        from tigon.torch._op import OPS
        from tigon.torch.operators import REFERENCES
        forward, backward = OPS[f"{op}_fwd"], OPS[f"{op}_bwd"]
        inputs = [name for name in forward.tensor_names if f"d{name}" in backward.output_names and t.has(name)]
        outputs = [name for name in forward.output_names if f"d{name}" in backward.tensor_names]
        gradients = [[f"d{name}" for name in names] for names in (outputs, inputs)]
        tensors = (t.tensors(*names) for names in (inputs, gradients[0], outputs, gradients[1]))
        return REFERENCES[op].plain, *tensors

    return case


CASES.update({op: of_reference(op) for op in referenced()})
FROM_TORCH.update({op: lambda t, op=op: getattr(T, op) for op in referenced()})


def onednn_case(onednn, op, t):
    """What OneDNN's method of that name returns; None when oneDNN has no such operator."""
    if not onednn or not hasattr(onednn, op):
        return None
    try:
        return getattr(onednn, op)(*t.tensors("x", *(["w", "b"] if op == "layer_norm" else []), "dy"))
    except Missing as error:
        print(f"{op}: {error}", file=sys.stderr)
        return None


# ---- measuring ----


def wrong_by(ours, truth, dtype):
    """The largest error as a share of the largest value, over all tensors, when that is more than the dtype explains. In 8 bits a
    step is 2^-4 (f8e4m3) or 1/127 (int8) of the largest."""
    bounds = {torch.float32: 1e-4, torch.bfloat16: 0.05, torch.float16: 0.01, torch.float8_e4m3fn: 0.08, torch.int8: 0.01}
    worst = 0
    for one, right in zip(ours, truth):
        right = right.detach().double()
        error, size = (one.detach().double() - right).abs().max().item(), right.abs().max().item()
        share = error / max(size, 1e-30) if math.isfinite(error) else 1e30
        if share > max(bounds[dtype], bounds[one.dtype]):
            worst = max(worst, share)
    return worst or None


def summary(samples):
    """The median, and the spread: how far the 20 % and the 80 % quantile are apart, as a share of it."""
    cuts = statistics.quantiles(samples, n=5, method="inclusive") if len(samples) > 1 else samples * 4
    median = statistics.median(samples)
    return {"median_ms": median * 1e3, "spread": (cuts[3] - cuts[0]) / median}


def switches():
    """How often the system took a core from this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw


def timed(call, calls):
    start = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - start) / calls


def alternate(parties, repeat):
    """Each sample follows an untimed call of the same party, and who goes first moves on by one each round. Also returns
    the share of the samples in which another program took a core."""
    disturbed = 0
    calls, samples = {}, {name: [] for name in parties}
    for name, call in parties.items():
        timed(call, 1)
        calls[name] = max(1, int(WARM_SECONDS / max(timed(call, 2), 1e-9)))
    order = list(parties)
    for _ in range(repeat):
        for name in order:
            parties[name]()
            before = switches()
            samples[name].append(timed(parties[name], calls[name]))
            disturbed += switches() > before
        order = order[1:] + order[:1]
    return {name: summary(samples[name]) for name in parties}, disturbed / (repeat * len(parties))


def grown(call):
    """The bytes that a call takes at its peak, its outputs among them; None where Linux does not say."""
    gc.collect()
    empty_cache()
    ctypes.CDLL(None).malloc_trim(0)

    def of_process(what):
        lines = pathlib.Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith(what))

    try:
        pathlib.Path("/proc/self/clear_refs").write_text("5")  # the peak is what there is now
    except OSError:
        return None
    before = of_process("VmRSS")
    call()
    return of_process("VmHWM") - before


def evaluate(function, inputs, upstream):
    """Outputs and gradients."""
    outputs = function(*inputs)
    outputs = list(outputs) if isinstance(outputs, tuple) else [outputs]
    if not upstream:
        return outputs, []
    return outputs, torch.autograd.grad(outputs, inputs, upstream, retain_graph=True)


def in_double(function, inputs, upstream):
    """Without the graph, which may be larger than all else of a case."""
    outputs, gradients = evaluate(function, [t.detach().double().requires_grad_() for t in inputs], [t.double() for t in upstream])
    return [output.detach() for output in outputs], gradients


def torch_calls(function, inputs, upstream, modes):
    """Forward with the gradients, where Tigon has this mode alone."""
    outputs, _ = evaluate(function, inputs, upstream)

    def fwd():  # as in training: what backward needs is kept
        function(*inputs)

    def bwd():
        torch.autograd.grad(outputs, inputs, upstream, retain_graph=True)

    def full():
        made = function(*inputs)
        torch.autograd.grad(made, inputs, upstream if isinstance(made, tuple) else upstream[0])

    return {"fwd": fwd, "bwd": bwd, "full": full} if len(modes) > 1 else {"fwd": full if upstream else fwd}


def run_case(op, dtype_name, options, compiles, onednn):
    dtype = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}[dtype_name]
    try:
        tigon = Tigon(op, dtype_name, options.shape, torch.get_num_threads())
    except LookupError as error:
        print(f"skipped, {error}", file=sys.stderr)
        return
    function, inputs, upstream, tigon_outputs, tigon_gradients = CASES[op](tigon)
    if inputs[0].dtype != dtype:
        print(f"skipped, {op} has no {dtype_name}", file=sys.stderr)
        tigon.close()
        return
    modes = tigon.modes()
    inputs = [tensor.requires_grad_(bool(upstream)) for tensor in inputs]
    peers = {"python": FROM_TORCH[op](tigon), "eager": function}
    if compiles:
        torch._dynamo.reset()
        peers["compile"] = torch.compile(function, fullgraph=not hasattr(function, "breaks"), dynamic=False)
    calls = {"tigon": {mode: (lambda mode=mode: tigon.call(mode)) for mode in modes}}
    # A case may keep other tensors in backward where its outputs lay, so `truth` is taken where backward starts.
    tigon.call("fwd")
    ours = [tensor.clone() for tensor in tigon_outputs]
    truth = in_double(function, inputs, upstream)
    if "bwd" in modes:
        tigon.call("bwd")
    wrong = {"tigon": wrong_by(ours, truth[0], dtype) or wrong_by(tigon_gradients, truth[1], dtype)}
    tigon.call("fwd")

    def judge(name, outputs, gradients):
        wrong[name] = wrong_by(outputs, truth[0], dtype) or wrong_by(gradients, truth[1], dtype)
        if wrong[name]:
            print(f"{op} {dtype_name}: {name} is off by {wrong[name]:.2g} of the largest value", file=sys.stderr)

    for name, peer in peers.items():
        judge(name, *evaluate(peer, inputs, upstream))
    if (wrong["tigon"] or 0) > 2 * (wrong["eager"] or 0):  # exponentials of 16-bit logits are off by more in every kernel
        trouble(f"{op} {dtype_name}: Tigon is off by {wrong['tigon']:.2g} of the largest value")
    for name, peer in peers.items():
        calls[name] = torch_calls(peer, inputs, upstream, modes)
    case = onednn_case(onednn, op, tigon)
    if case:
        fwd, bwd, outputs, gradients = case
        fwd(), bwd()
        judge("onednn", outputs, gradients)
        calls["onednn"] = {"fwd": fwd, "bwd": bwd, "full": lambda: (fwd(), bwd())}
    del truth, ours
    for mode in [mode for mode in options.mode if mode in modes]:
        result, disturbed = alternate({name: calls[name][mode] for name in calls}, options.repeat)
        for name in wrong:
            result[name]["wrong_by"] = wrong[name]
        for name in [name for name in peers if options.memory == "default"]:  # warm, nothing that was freed is given back
            result[name]["peak_bytes"] = grown(calls[name][mode])
        yield {"memory": options.memory, "op": op, "mode": mode, "dtype": dtype_name, "shape": f"{tigon.rows}x{tigon.cols}",
               "threads": torch.get_num_threads(), "variant": tigon.variant(), "bytes_min": tigon.bytes_min(mode),
               "disturbed": disturbed, **result}
    del inputs, calls, peers, function, case
    tigon.close()


def ratio(row, name):
    base = "python" if row["memory"] == "default" and name != "python" else "tigon"
    return row[name]["median_ms"] / row[base]["median_ms"]


def mebibytes(row, name):
    peak = row.get(name, {}).get("peak_bytes")
    return "-" if peak is None else f"{peak / 2**20:.0f}"


def print_row(row):
    text = f"{row['op']:<28} {row['mode']:<4} {row['dtype']:<5} {row['shape']:<11} {row['tigon']['median_ms']:>9.4g}"
    for name in ["python", *PEERS]:
        text += f" {row[name]['median_ms']:>10.4g} {ratio(row, name):>5.2f}x" if name in row else f" {'-':>10} {'-':>6}"
    text += "".join(f" {mebibytes(row, name):>7}" for name in OF_TORCH)
    print(text, flush=True)


# ---- the machine ----


def machine(load):
    model = platform.processor() or platform.machine()
    cpuinfo = pathlib.Path("/proc/cpuinfo")
    for line in cpuinfo.read_text().splitlines() if cpuinfo.exists() else []:
        if line.startswith("model name"):
            model = line.split(":", 1)[1].strip()
            break
    maps = pathlib.Path("/proc/self/maps")
    runtimes = {line.split()[-1] for line in maps.read_text().splitlines() if "libgomp" in line or "libomp" in line}
    openmp = ", ".join(sorted(pathlib.Path(path).name for path in runtimes))
    return {"device": f"{model}, {len(os.sched_getaffinity(0))} cores", "load": f"{load:.2g}", "openmp": openmp}


def load_torch():
    global torch, F
    import torch
    import torch._functorch.config
    import torch.nn.functional as F
    losses.load_torch(), layers.load_torch()


def load_tigon():
    global T, empty_cache
    if str(ROOT / "python") not in sys.path:
        sys.path.insert(0, str(ROOT / "python"))
    import tigon.torch.functional as T
    from tigon.torch import empty_cache
    losses.T = layers.T = T


def compile_works():
    headers = pathlib.Path(sysconfig.get_paths()["include"]) / "Python.h"
    missing = [name for name, there in (("g++", shutil.which(os.environ.get("CXX", "g++"))),
                                        ("Python.h (python3-dev)", headers.exists())) if not there]
    if missing:
        print(f"peers_cpu: torch.compile is left out, it needs {' and '.join(missing)}", file=sys.stderr)
    return not missing


def each_memory(options, head):
    """A process for each, because what mallopt() sets stays set; one record of all."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        part = pathlib.Path(folder, "rows.csv")
        for memory in MEMORIES:
            command = [sys.executable, __file__, *sys.argv[1:], "--memory", memory, "--no-record", "--out", str(part)]
            code = subprocess.run(command).returncode
            if code:
                sys.exit(code)
            of_part, found = records.read(part)
            rows += found
    save(options, {**of_part, **head}, rows)


def save(options, head, rows):
    path = records.place(options, "peers_cpu")
    try:
        path and records.write(path, head, COLUMNS, rows)
    except OSError as error:
        trouble(error)


def main(options, head):
    if options.threads:
        torch.set_num_threads(options.threads)
    options.mode = options.mode or MODES
    if options.memory == "warm":  # what PyTorch frees it gets again; otherwise large outputs are fresh pages
        libc = ctypes.CDLL(None)
        libc.mallopt(-4, 0)  # M_MMAP_MAX
        libc.mallopt(-1, 2**31 - 1)  # M_TRIM_THRESHOLD
    torch._functorch.config.donated_buffer = False  # `bwd` runs one graph many times
    compiles = not options.no_compile and compile_works()
    load = os.getloadavg()[0]
    onednn = None
    try:
        onednn = None if options.no_onednn else OneDNN()
    except Missing as error:
        print(f"peers_cpu: oneDNN is left out: {error}", file=sys.stderr)
    print(f"memory: {options.memory}; {torch.get_num_threads()} threads")
    print(f"{'operator':<28} {'mode':<4} {'dtype':<5} {'shape':<11} {'tigon ms':>9}"
          + "".join(f" {name + ' ms':>10} {'ratio':>6}" for name in ["python", *PEERS])
          + "".join(f" {name[:3] + ' MiB':>7}" for name in OF_TORCH), flush=True)
    rows = []
    for op in options.op or CASES:
        for dtype in options.dtype or ["f32", "bf16"]:
            for row in run_case(op, dtype, options, compiles, onednn):
                rows.append(row)
                print_row(row)
    versions = records.versions(torch=torch.__version__, onednn=onednn and onednn.version)
    save(options, {**head, **machine(load), "versions": versions}, records.by_party(rows))
    disturbed = sum(row["disturbed"] for row in rows) / max(len(rows), 1)
    if disturbed > 0.5:  # an idle kernel's own threads reach a third
        print(f"other programs took a core in {100 * disturbed:.0f} % of the samples: keep no figure of this run",
              file=sys.stderr)


if __name__ == "__main__":
    chosen = parse()
    first_lines = records.begin(chosen)
    if chosen.threads:
        os.environ["OMP_NUM_THREADS"] = str(chosen.threads)
    try:
        load_torch()
    except ImportError:
        trouble("no PyTorch here; `make bench-peers` makes an environment that has it")
    if chosen.memory is None:
        each_memory(chosen, first_lines)
    else:
        load_tigon()
        main(chosen, first_lines)
