#!/usr/bin/env python3
"""Times PyTorch (eager, its fused operators, torch.compile), Liger-Kernel, QuACK, FlashAttention 4 and cuDNN's norms beside Tigon
on a GPU: the same cases, in one process, on the same memory and stream, by the device's clock with nothing in its caches. --help
has the options.

A sample is one call between two events. Before them the device reads more than its caches hold, and waits as long as the host
takes for the call, so that neither earlier data nor the launch is in it."""
import ctypes
import importlib.metadata
import math
import statistics
import sys
import time

import liger
import newer
import peers_cpu
import records
from cuda_rows import HEAD, PEERS, ROUNDS, line, report
from cuda_sizes import REFERENCED, TABLE, extents, sizes
from peers_cpu import CASES, DTYPES, MODES, Parser, Tigon, evaluate, summary, torch_calls

TYPES = {1: "<f4", 2: "<f2", 3: "<i2", 4: "<i4", 5: "<i8"}  # tigon_dtype: what the array interface calls it, bf16 as int16
FLUSH_BYTES = 256 << 20
SHARED = ["op", "mode", "dtype", "shape"]  # what a case is
COLUMNS = [*SHARED, "party", "median_ms", "spread", "rounds_ahead", "host_us", "wrong_by", "peak_bytes", "bytes_min",
           "flops", "workspace_bytes", "floor_ms", "copy_ms"]


def trouble(text):
    print(f"peers_cuda: {text}", file=sys.stderr)
    sys.exit(3)


def sentence(error):
    """Its kind, and the first line of its text, which may be empty."""
    return f"{type(error).__name__}: {error}".splitlines()[0][:200]


# ---- Tigon ----


class Place(ctypes.Structure):
    _fields_ = [("device", ctypes.c_char_p), ("stream", ctypes.c_void_p), ("threads", ctypes.c_int)]


class Sizes(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int64) for name in ("rows", "cols", "other", "head_dim", "kv_heads", "experts", "choices", "as_weight")]


class Memory:
    """What torch.as_tensor() takes for a view of device memory."""

    def __init__(self, view):
        shape = tuple(view.shape[:view.ndim])
        self.__cuda_array_interface__ = {"shape": shape, "typestr": TYPES[view.dtype], "data": (view.data, False), "version": 3,
                                         "strides": None}


class OnDevice(Tigon):
    def __init__(self, op, one, device, stream):
        self.load()
        place = Place(device.encode(), stream, 0)
        asked = Sizes(*(one[name] for name, _ in Sizes._fields_))
        self.hold(self.library.tigon_bench_open_on(ctypes.byref(place), op.encode(), one["dtype"].encode(), ctypes.byref(asked)))

    def tensors(self, *names):
        made = []
        for name in names:
            view = self.view(name)
            made.append(torch.as_tensor(Memory(view), device="cuda").view(getattr(torch, DTYPES[view.dtype])))
        return made

    def call(self, mode):
        index = 3 if mode == "step" else MODES.index(mode)
        if self.library.tigon_bench_call(self.handle, index) != 0:
            raise LookupError(self.library.tigon_bench_sentence().decode())

    def number(self, name, mode):
        return getattr(self.library, f"tigon_bench_{name}")(self.handle, 3 if mode == "step" else MODES.index(mode))

    def gemm(self):
        return self.library.tigon_bench_gemm(self.handle).decode()


# ---- the cases ----
# Each returns ({peer: function}, inputs that need a gradient, gradients of its outputs, Tigon's outputs, Tigon's gradients); "fused"
# is an operator of PyTorch's own. What is compiled is "whole", else "fused", else "eager".


def one_of(op, peer):
    return lambda t: (lambda function, *rest: ({peer: function}, *rest))(*CASES[op](t))


def rms(x, w):
    wide = x.float()
    return w * (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-6)).to(x.dtype)  # as in transformers


def rms_norm(t):
    function, *rest = CASES["rms_norm"](t)
    return {"eager": rms, "fused": function}, *rest


def fused_add_rms_norm(t):
    function, *rest = CASES["fused_add_rms_norm"](t)

    def eager(x, residual, w):
        s = x + residual
        return rms(s, w), s

    return {"eager": eager, "fused": function}, *rest


def cross_entropy(t):
    logits, labels, loss, dlogits = t.tensors("logits", "labels", "loss", "dlogits")
    wide = lambda x: F.cross_entropy(x.float(), labels)  # as in transformers
    return ({"eager": wide, "fused": lambda x: F.cross_entropy(x, labels), "whole": wide}, [logits],
            [torch.ones((), device="cuda")], [loss[0]], [dlogits])


def linear(t):
    x, w, dy, y, dx, dw = t.tensors("x", "w", "dy", "y", "dx", "dw")
    return {"fused": lambda x, w: F.linear(x, w)}, [x, w], [dy], [y], [dx, dw]


def attention(t):
    q, k, v, d_o, o, dq, dk, dv = t.tensors("q", "k", "v", "do", "o", "dq", "dk", "dv")

    def function(q, k, v):
        turned = (x.transpose(1, 2) for x in (q, k, v))
        return F.scaled_dot_product_attention(*turned, is_causal=True, enable_gqa=True).transpose(1, 2)

    return {"fused": function}, [q, k, v], [d_o], [o], [dq, dk, dv]


def fused_linear_cross_entropy(t):
    hidden, weight, labels, loss, dhidden, dweight = t.tensors("hidden", "weight", "labels", "loss", "dhidden", "dweight")
    wide = lambda h, w: F.cross_entropy(F.linear(h, w).float(), labels, ignore_index=0)
    functions = {"eager": wide, "fused": lambda h, w: F.cross_entropy(F.linear(h, w), labels, ignore_index=0), "whole": wide}
    if hasattr(F, "linear_cross_entropy"):
        options = torch.nn.LinearCrossEntropyOptions()
        functions["chunked"] = lambda h, w: F.linear_cross_entropy(h, w, labels.long(), ignore_index=0, options=options)
    return (functions, [hidden, weight], [torch.ones((), device="cuda")], [loss[0]], [dhidden, dweight])


def linear_logprob(t):
    function, *rest = CASES["linear_logprob"](t)
    labels = t.tensors("labels")[0].long()
    functions = {"eager": function}
    try:
        from trl.trainer import utils
        functions["trl"] = lambda h, w: utils._ChunkedLogProbFunction.apply(
            h, w, None, labels, 1.0, utils._CHUNKED_LOGPROB_CHUNK_SIZE, None, 1.0, ())[0]
    except (ImportError, AttributeError):
        pass  # not installed, or of another version
    return functions, *rest


MADE = {"rms_norm": rms_norm, "fused_add_rms_norm": fused_add_rms_norm, "cross_entropy": cross_entropy, "linear": linear,
        "attention": attention, "fused_linear_cross_entropy": fused_linear_cross_entropy, "linear_logprob": linear_logprob,
        "linear_logprob+cache": linear_logprob,
        "fused_moe": one_of("fused_moe:grouped", "fused")}
MADE.update({op: one_of(op, "fused") for op in ("layer_norm", "group_norm", "softmax", "embedding")})
MADE.update({op: one_of(op, "eager") for op in ("divergence", "divergence+kl", "policy_loss", "preference_loss", "topk_divergence",
                                                "fused_linear_policy", "fused_linear_preference", "fused_linear_divergence",
                                                "modulated_rms_norm", "swiglu", "geglu", "rope", *REFERENCED)})


# ---- measuring ----


class Clock:
    def __init__(self, stream):
        self.stream = stream
        self.buffer = torch.zeros(FLUSH_BYTES // 4, dtype=torch.int32, device="cuda")
        self.cycles_a_second = 2e9  # at most; a longer wait does no harm

    def host(self, call):
        """Seconds of the host's time that a call takes."""
        best = 1e9
        for _ in range(3):
            torch.cuda.synchronize()
            start = time.perf_counter()
            for _ in range(3):
                call()
            best = min(best, (time.perf_counter() - start) / 3)
        torch.cuda.synchronize()
        return best

    def samples(self, call, count, host):
        events = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(count)]
        wait = int(max(0, 1.5 * host - 40e-6) * self.cycles_a_second)
        for begin, end in events:
            if wait:
                torch.cuda._sleep(wait)
            self.buffer.amax()  # reads it
            begin.record(self.stream)
            call()
            end.record(self.stream)
        torch.cuda.synchronize()
        return [begin.elapsed_time(end) * 1e-3 for begin, end in events]

    def in_turns(self, parties, repeat):
        """{name: summary, each round's median and host_us} of calls. Another party begins each round."""
        samples, hosts, counts = {}, {}, {}
        for name, call in parties.items():
            for _ in range(3):
                call()
            hosts[name] = self.host(call)
            once = min(self.samples(call, 2, hosts[name]))
            counts[name] = max(1, min(-(-repeat // ROUNDS), int(0.06 / max(once, 1e-6))))
        names = list(parties)
        for i in range(ROUNDS):
            for name in names[i % len(names):] + names[:i % len(names)]:
                samples.setdefault(name, []).append(self.samples(parties[name], counts[name], hosts[name]))
        return {name: {**summary([one for part in samples[name] for one in part]),
                       "rounds_ms": [statistics.median(part) * 1e3 for part in samples[name]], "host_us": hosts[name] * 1e6}
                for name in parties}


def ceilings(clock):
    """Bytes a second of a copy, and operations a second of matrix products."""
    a, b = (torch.empty(1 << 30, dtype=torch.uint8, device="cuda") for _ in range(2))
    copy = 2 * a.numel() / statistics.median(clock.samples(lambda: b.copy_(a), 9, 1e-5))
    del a, b
    rates = {}
    for name, dtype in (("bf16", torch.bfloat16), ("f16", torch.float16), ("f32", torch.float32)):
        n = 4096 if name == "f32" else 8192
        x, y = (torch.randn(n, n, device="cuda", dtype=dtype) for _ in range(2))
        x @ y
        rates[name] = 2 * n**3 / statistics.median(clock.samples(lambda: x @ y, 7, 1e-5))
        del x, y
    return copy, rates


def same_size_copy(clock, nbytes):
    """Seconds of a copy that moves as many bytes."""
    half = max(16, int(nbytes / 2) // 16 * 16)
    if half > 4 << 30:
        return None
    a, b = (torch.empty(half, dtype=torch.uint8, device="cuda") for _ in range(2))
    return statistics.median(clock.samples(lambda: b.copy_(a), 9, 1e-5))


def wrong_by(ours, truth, dtype):
    """The largest error as a share of the largest value of its tensor, over all tensors, when that is more than the dtype
    explains. A tensor counts as a thousandth of the largest one at least: dq is 0 where a query sees one key, and what
    rounding leaves of terms as large as dv's is no error."""
    bound = {"f32": 1e-4, "bf16": 0.05, "f16": 0.01}[dtype]
    pairs = [(one.detach().float(), right.detach().float()) for one, right in zip(ours, truth)]
    extents = [right.abs().amax().item() for _, right in pairs]
    worst = 0.0
    for (one, right), largest in zip(pairs, extents):
        error = torch.nan_to_num((one - right).abs().amax(), nan=1e30, posinf=1e30).item()
        worst = max(worst, error / max(largest, 1e-3 * max(extents), 1e-30))
    return worst if worst > bound else None


def grown(call):
    """The bytes that a call takes at its peak, its outputs and gradients among them."""
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    call()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before


def clones(tensors):
    return [t.detach().clone().requires_grad_() for t in tensors]


class Run:
    def __init__(self, options):
        self.options = options
        self.start = time.monotonic()
        self.stream = torch.cuda.Stream()
        torch.cuda.set_stream(self.stream)
        self.clock = Clock(self.stream)
        self.gemm = None
        try:
            peers_cpu.load_tigon()
            self.from_torch = True
        except ImportError as error:
            self.from_torch = False
            self.note(f"tigon from PyTorch is left out: {error}")

    def left(self):
        return self.options.seconds - (time.monotonic() - self.start)

    def note(self, text):
        print(f"  {text}", file=sys.stderr, flush=True)

    def peers_of(self, op, t, functions, compiles):
        peers = {name: functions[name] for name in PEERS if name in functions}
        if self.from_torch and op in peers_cpu.FROM_TORCH:
            peers = {"python": peers_cpu.FROM_TORCH[op](t), **peers}
        if compiles and self.left() > 45:
            torch._dynamo.reset()
            whole = functions.get("whole") or functions.get("fused") or functions.get("eager")
            peers["compile"] = torch.compile(whole, fullgraph=True, dynamic=False)
        if not self.options.no_liger:
            try:
                theirs = liger.case(op, t, REFERENCED)
            except (ImportError, AttributeError) as error:
                theirs = None
                self.note(f"liger: {error}")
            if theirs:
                peers["liger"] = theirs
        return peers if self.options.no_newer else {**peers, **newer.cases(op, t, self.left_out)}

    def calls_of(self, op, t, one, compiles):
        """{party: {mode: call}} and {party: how wrong}; a peer that fails is left out, with its sentence on stderr."""
        functions, inputs, upstream, ours, gradients = MADE[op](t)
        inputs = [x.requires_grad_() for x in inputs]
        modes = t.modes()
        if one["frozen"]:
            return self.frozen(op, t, functions, inputs, upstream, compiles)
        calls, wrong = {"tigon": {mode: (lambda mode=mode: t.call(mode)) for mode in modes}}, {}
        # A case may keep other tensors in backward where its outputs lay, so `truth` is taken where backward starts.
        t.call("fwd")
        torch.cuda.synchronize()
        made = [x.clone() for x in ours]
        function = functions.get("fused") or functions["eager"]
        truth = evaluate(function, [x.detach().float().requires_grad_() for x in inputs], [x.float() for x in upstream])
        truth = [[x.detach() for x in part] for part in truth]
        t.call(modes[-1] if "cross_entropy" in op or "divergence" in op or "bwd" not in modes else "bwd")
        wrong["tigon"] = wrong_by(made, truth[0], one["dtype"]) or wrong_by(gradients, truth[1], one["dtype"])
        t.call("fwd")
        for name, peer in self.peers_of(op, t, functions, compiles).items():
            try:
                # Liger-Kernel overwrites what it is given.
                mine = (clones(inputs), [x.clone() for x in upstream]) if name == "liger" else (inputs, upstream)
                outputs, peers_gradients = evaluate(peer, *mine)
                wrong[name] = wrong_by(outputs, truth[0], one["dtype"]) or wrong_by(peers_gradients, truth[1], one["dtype"])
                calls[name] = torch_calls(peer, *mine, modes)
            except Exception as error:  # any kind: an error of a peer is not ours
                self.left_out(op, name, error)
            if name == "liger" and op in liger.OTHER_NUMBERS:
                wrong[name] = None
        return calls, wrong

    def left_out(self, op, name, error):
        self.note(f"{op}: {name} is left out: {sentence(error)}")

    def frozen(self, op, t, functions, inputs, upstream, compiles):
        """calls_of() with a weight that gets no gradient, of which Tigon has no case in C: the party tigon is Tigon from PyTorch."""
        hidden, weight = inputs[0], inputs[1].detach()
        calls, gradients = {}, {}
        for name, peer in self.peers_of(op, t, functions, compiles).items():
            function = lambda h, peer=peer: peer(h, weight)
            try:
                gradients[name] = evaluate(function, [hidden], upstream)[1]
                calls[name] = torch_calls(function, [hidden], upstream, peers_cpu.MODES)
            except Exception as error:  # any kind: an error of a peer is not ours
                self.left_out(op, name, error)
        if "python" not in calls:
            raise LookupError("Tigon from PyTorch is not there")
        calls = {"tigon": calls.pop("python"), **calls}
        return calls, {"tigon": wrong_by(gradients["python"], gradients["eager"], "bf16")}

    def adamw(self, t):
        p, g, m, v = t.tensors("param", "grad", "exp_avg", "exp_avg_sq")
        step = torch.tensor(3.0, device="cuda")
        common = dict(lr=1e-2, beta1=0.9, beta2=0.95, weight_decay=0.1, eps=1e-8, amsgrad=False, maximize=False)
        fused = lambda: torch._fused_adamw_([p], [g], [m], [v], [], [step], **common)
        return {"tigon": {"step": lambda: t.call("step")}, "fused": {"step": fused}}, {}

    def case(self, op, one, compiles, copy, matmul):
        """The case's rows, one by one; none, with a sentence on stderr, where it fails."""
        t = None
        try:
            t = OnDevice(op, one, self.options.device, self.stream.cuda_stream)
            self.gemm = t.gemm()
            yield from self.rows(t, op, one, compiles, copy, matmul)
        except (LookupError, ValueError, RuntimeError) as error:
            self.note(f"{op} {one['dtype']} is left out: {sentence(error)}")
        finally:
            torch.cuda.synchronize()
            if t:
                t.close()

    def rows(self, t, op, one, compiles, copy, matmul):
        calls, wrong = self.adamw(t) if op == "adamw" else self.calls_of(op, t, one, compiles)
        for name, off in wrong.items():
            if off:
                self.note(f"{op} {one['dtype']}: {name} is off by {off:.2g} of the largest value")
        for mode in ["step"] if op == "adamw" else [mode for mode in self.options.mode if mode in calls["tigon"]]:
            result = self.clock.in_turns({name: calls[name][mode] for name in calls}, self.options.repeat)
            nbytes, flops = t.number("bytes", mode), t.number("flops", mode)
            if one["frozen"]:  # dhidden is read, and is all that is written
                flops = 0 if mode == "bwd" else 4 * math.prod((t.rows, t.cols, one["other"]))
                nbytes = (t.rows * (3 if mode == "bwd" else 2) + (mode != "bwd") * one["other"]) * t.cols * 2
            floor = max(nbytes / copy, flops / matmul[one["dtype"]])
            same = same_size_copy(self.clock, nbytes) if not flops else None
            row = {"op": op, "mode": mode, "dtype": one["dtype"], "shape": extents(one, t.rows, t.cols), "bytes_min": nbytes, "flops": flops,
                   "workspace_bytes": t.number("workspace", mode), "floor_ms": floor * 1e3,
                   "copy_ms": same and same * 1e3, **result}
            for name in calls:
                row[name]["wrong_by"] = wrong.get(name)
                if name != "tigon" or one["frozen"]:
                    row[name]["peak_bytes"] = grown(calls[name][mode])
                row[name]["rounds_ahead"] = sum(theirs < ours for theirs, ours in
                                                zip(result[name]["rounds_ms"], result["tigon"]["rounds_ms"]))
            yield row


# ---- the command ----


def shape(text):
    rows, cols = (int(part) for part in text.split("x"))
    return rows, cols


def parse():
    shape.__name__ = "ROWSxCOLS"
    parser = Parser(description="Time PyTorch, Liger-Kernel, QuACK, FlashAttention 4 and cuDNN's norms beside Tigon on a GPU, and print the ratios.")
    parser.add_argument("--op", action="append", choices=list(TABLE), help="may be repeated (default: all)")
    parser.add_argument("--mode", action="append", choices=MODES, help="(default: all)")
    parser.add_argument("--shape", type=shape, metavar="ROWSxCOLS", help="instead of the table's")
    parser.add_argument("--quick", action="store_true", help="one size an operator")
    parser.add_argument("--compile-all", action="store_true", help="torch.compile for the sizes of few rows, too")
    parser.add_argument("--no-compile", action="store_true", help="leave torch.compile out; it takes seconds a case")
    parser.add_argument("--no-liger", action="store_true", help="leave Liger-Kernel out")
    parser.add_argument("--no-newer", action="store_true", help="leave QuACK, FlashAttention 4 and cuDNN's front end out")
    parser.add_argument("--repeat", type=int, default=20, metavar="N", help="samples of each (default: 20)")
    parser.add_argument("--seconds", type=float, default=420, help="no case is begun after (default: 420)")
    parser.add_argument("--go-on", action="store_true", help="with the cases that the record of the same commit and GPU had no time for")
    parser.add_argument("--device", default="cuda:0", help="as tigon_context_desc.device names it (default: cuda:0)")
    records.add_options(parser, "peers_cuda")
    return parser.parse_args()


def version_of(package, module=None):
    """None: it is not there, or its module cannot be imported."""
    try:
        importlib.import_module(module or package)
        return importlib.metadata.version(package)
    except Exception:  # any kind: a package lacks parts of itself
        return None


def machine(run, copy, matmul):
    driver = records.output("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader") or ""
    products = ", ".join(f"{name} {rate * 1e-12:.4g}" for name, rate in matmul.items())
    versions = records.versions(torch=torch.__version__, cuda=torch.version.cuda, driver=driver.split("\n")[0],
                                triton=version_of("triton"), liger_kernel=version_of("liger_kernel"), trl=version_of("trl"), quack=version_of("quack-kernels", "quack"),
                                flash_attn_4=version_of("flash-attn-4", "flash_attn.cute"), cudnn_frontend=version_of("nvidia-cudnn-frontend", "cudnn"))
    return {"device": torch.cuda.get_device_name(), "versions": versions, "gemm": run.gemm,
            "copy_gbps": f"{copy * 1e-9:.4g}", "matmul_tflops": products}


def earlier(path, head, made, all_sizes):
    """(rows of the record at `path`, sizes that it had no time for: the last ones)."""
    if not (path and path.exists()):
        trouble(f"--go-on: there is no record {path}")
    told, rows = records.read(path)
    for name, value in {"commit": head["commit"], "device": made["device"], "versions": made["versions"]}.items():
        if told[name] != value:
            trouble(f"--go-on: the record's {name} is {told[name]}, this run's is {value}")
    names = [] if told["skipped"] == "none" else told["skipped"].split(", ")
    return records.by_case(rows), all_sizes[len(all_sizes) - len(names):]


def main(options):
    head = records.begin(options)
    if not torch.cuda.is_available():
        trouble("PyTorch sees no GPU")
    options.mode = options.mode or MODES
    torch._functorch.config.donated_buffer = False  # `bwd` runs one graph many times
    torch.set_float32_matmul_precision("highest")
    torch.manual_seed(1)
    run = Run(options)
    copy, matmul = ceilings(run.clock)
    path = records.place(options, "peers_cuda")
    made = machine(run, copy, matmul)
    rows, todo = earlier(path, head, made, sizes(options)) if options.go_on else ([], sizes(options))
    skipped = []
    print(HEAD, flush=True)
    for op, one, compiles in todo:
        if run.left() < 0:
            skipped.append(op)
            continue
        for row in run.case(op, one, compiles and not options.no_compile, copy, matmul):
            rows.append(row)
            print(line(row), flush=True)
        torch.cuda.empty_cache()
    made["gemm"] = run.gemm or made["gemm"]
    head = {**head, **made, "skipped": ", ".join(skipped) or "none"}
    try:
        path and records.write(path, head, COLUMNS, records.by_party(rows))
    except OSError as error:
        trouble(error)
    report(rows, copy, matmul, torch.cuda.get_device_name())
    if skipped:
        print(f"no time for {len(skipped)} cases of {', '.join(sorted(set(skipped)))}")


if __name__ == "__main__":
    chosen = parse()
    try:
        peers_cpu.load_torch()
    except ImportError:
        trouble("no PyTorch here")
    torch, F = peers_cpu.torch, peers_cpu.F
    main(chosen)
