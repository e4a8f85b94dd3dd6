"""python -m tigon.bench: the operators beside torch's own, in one run and in turns.

Without options, time and peak memory beyond the inputs at a model's sizes. With --overhead, host microseconds of a call
on four rows, where the call is all there is. Medians of rounds that alternate.
"""

import argparse
import contextlib
import json
import os
import statistics
import time

import torch
import torch.nn.functional as F

import tigon
from tigon import _accelerator
from tigon.torch import functional as T


def rope(x, cos, sin):
    half = x.shape[-1] // 2
    return x * cos + torch.cat([-x[..., half:], x[..., :half]], -1) * sin


def cases(rows, width, vocab, dtype, device):
    """name: (tigon's, torch's, inputs)."""
    source = torch.device("cpu") if device.type == "npu" else device  # not every torch_npu has all of these
    generator = torch.Generator(source).manual_seed(0)

    def make(*shape, dtype=dtype):
        return torch.randn(*shape, dtype=dtype, device=source, generator=generator).to(device).requires_grad_()

    target = torch.randint(vocab, (rows,), device=source, generator=generator).to(device)
    angles = torch.rand(1, rows, 64, device=source, generator=generator).to(device).repeat(1, 1, 2)
    cos, sin = angles.cos().to(dtype), angles.sin().to(dtype)
    weight = lambda: make(width)
    return {
        "rms_norm": (T.rms_norm, lambda x, w: F.rms_norm(x, (width,), w, 1e-6), (make(rows, width), weight())),
        "fused_add_rms_norm": (
            T.fused_add_rms_norm,
            lambda x, r, w: (F.rms_norm(x + r, (width,), w, 1e-6), x + r),
            (make(rows, width), make(rows, width), weight()),
        ),
        "layer_norm": (
            T.layer_norm,
            lambda x, w, b: F.layer_norm(x, (width,), w, b),
            (make(rows, width), weight(), weight()),
        ),
        "swiglu": (T.swiglu, lambda a, b: F.silu(a) * b, (make(rows, width), make(rows, width))),
        "geglu": (T.geglu, lambda a, b: F.gelu(a, approximate="tanh") * b, (make(rows, width), make(rows, width))),
        "rope": (
            lambda q, k: T.rope(q, k, cos, sin),
            lambda q, k: (rope(q, cos, sin), rope(k, cos, sin)),
            (make(1, 8, rows, 128), make(1, 2, rows, 128)),
        ),
        "softmax": (T.softmax, lambda x: F.softmax(x, -1), (make(rows, width),)),
        "cross_entropy": (
            lambda x: T.cross_entropy(x, target),
            lambda x: F.cross_entropy(x, target),
            (make(rows, vocab),),
        ),
        "fused_linear_cross_entropy": (
            lambda h, w: T.fused_linear_cross_entropy(h, w, target),
            lambda h, w: F.cross_entropy(F.linear(h, w), target),
            (make(rows, width), make(vocab, width)),
        ),
    }


def step(f, inputs, mode, overhead):
    """One call, or one with its gradients for a given upstream one, as a function of nothing. Forward by itself keeps
    nothing for a backward, except where what is measured is the call."""
    if mode == "forward":
        return (lambda: f(*inputs)) if overhead else torch.no_grad()(lambda: f(*inputs))
    outputs = f(*inputs)
    gradients = [torch.ones_like(y) for y in outputs] if isinstance(outputs, tuple) else torch.ones_like(outputs)
    return lambda: torch.autograd.grad(f(*inputs), inputs, gradients)


def microseconds(calls, device, rounds, repeats, host_only):
    """The median time of each call, in turns; `host_only` leaves the device's work out."""
    on = _accelerator.module(device)
    wait = (lambda: on.synchronize(device)) if on else lambda: None
    times = [[] for _ in calls]
    for round_ in range(rounds + 2):
        for call, found in zip(calls, times):
            wait()
            start = time.perf_counter()
            for _ in range(repeats):
                call()
            if not host_only:
                wait()
            if round_ >= 2:  # after warming up
                found.append((time.perf_counter() - start) / repeats * 1e6)
    wait()
    return [statistics.median(found) for found in times]


@contextlib.contextmanager
def silence():
    """The profiler writes a line to stderr, past Python, whenever it starts or stops."""
    kept = os.dup(2)
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def peak_bytes(call, device):
    """The most memory that a call holds at once, beyond what is there before it."""
    if on := _accelerator.module(device):
        on.synchronize(device)
        on.reset_peak_memory_stats(device)
        before = on.memory_allocated(device)
        call()
        return on.max_memory_allocated(device) - before
    activities = [torch.profiler.ProfilerActivity.CPU]
    with silence(), torch.profiler.profile(activities=activities, profile_memory=True) as profile:
        call()
    held = peak = 0
    changes = [e for e in profile.profiler.kineto_results.events() if e.name() == "[memory]"]
    for event in sorted(changes, key=lambda e: e.start_ns()):
        held += event.nbytes()
        peak = max(peak, held)
    return peak


def measure(options):
    device = torch.device(options.device)
    dtype = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}[options.dtype]
    found = cases(*((4, 64, 64) if options.overhead else (options.rows, options.width, options.vocab)), dtype, device)
    if options.overhead:
        found = {name: found[name] for name in ("rms_norm", "layer_norm", "cross_entropy")}
    for name, (ours, torchs, inputs) in found.items():
        for mode in ("forward", "forward+backward"):
            calls = [step(f, inputs, mode, options.overhead) for f in (ours, torchs)]
            rounds, repeats = (101, 50) if options.overhead else (9, 1)
            row = dict(op=name, mode=mode, dtype=options.dtype)
            row["tigon_us"], row["torch_us"] = microseconds(calls, device, rounds, repeats, options.overhead)
            if not options.overhead:
                row["tigon_bytes"], row["torch_bytes"] = (peak_bytes(call, device) for call in calls)
            yield row


def main():
    parser = argparse.ArgumentParser(prog="python -m tigon.bench", description=__doc__)
    parser.add_argument("--overhead", action="store_true", help="host time of a call instead")
    parser.add_argument("--device", help="cpu, cuda, cuda:N, npu or npu:N (default: an accelerator where there is one)")
    parser.add_argument("--dtype", default="f32", choices=("f32", "bf16", "f16"))
    parser.add_argument("--rows", type=int, default=1024)
    parser.add_argument("--width", type=int, default=2048)
    parser.add_argument("--vocab", type=int, default=8192)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    options.device = options.device or _accelerator.default()
    if mistake := _accelerator.mistake(options.device):
        parser.error(mistake)
    head = dict(tigon=tigon.version(), torch=torch.__version__, device=options.device, threads=torch.get_num_threads())
    if options.json:
        print(json.dumps(head | {"rows": list(measure(options))}))
        return
    print("  ".join(f"{name} {value}" for name, value in head.items()))
    unit, scale = ("us", 1) if options.overhead else ("ms", 1e-3)
    memory = "" if options.overhead else f"{'tigon MiB':>12}{'torch MiB':>12}"
    print(f"{'op':28}{'':18}{'tigon ' + unit:>12}{'torch ' + unit:>12}{'':>12}{memory}")
    for row in measure(options):
        times = row["tigon_us"] * scale, row["torch_us"] * scale
        compared = f"{times[0] - times[1]:+11.1f} " if options.overhead else f"{times[1] / times[0]:10.2f} x"
        line = f"{row['op']:28}{row['mode']:18}{times[0]:12.2f}{times[1]:12.2f}{compared}"
        if memory:
            line += f"{row['tigon_bytes'] / 2**20:12.1f}{row['torch_bytes'] / 2**20:12.1f}"
        print(line, flush=True)


if __name__ == "__main__":
    main()
