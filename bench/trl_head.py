#!/usr/bin/env python3
"""TRL's projection of hidden states to log-probabilities and entropies, and Tigon's in its place: seconds of forward and backward with the
metrics that DPOTrainer asks for, and the process's growth at its peak. `bench/trl_head.py` on a CPU; each party has processes of its own,
which take turns."""
import argparse
import resource
import statistics
import subprocess
import sys
import time

OUTPUTS = "log_probs", "entropy", "mean_logits", "is_top1"


def child(party, dtype, tokens, hidden, vocab):
    import torch
    from tigon.huggingface import trl_head
    from trl.trainer import utils

    project = utils._ChunkedLogProbFunction.apply if party == "trl" else trl_head.project
    dtype = getattr(torch, dtype)
    x = torch.randn(tokens, hidden, dtype=dtype, requires_grad=True)
    w = (torch.randn(vocab, hidden, dtype=dtype) / hidden**0.5).requires_grad_()
    targets = torch.randint(vocab, (tokens,))

    def step(x, w, targets):
        project(x, w, None, targets, 1.0, utils._CHUNKED_LOGPROB_CHUNK_SIZE, None, 1.0, OUTPUTS)[0].mean().backward()
        x.grad = w.grad = None

    step(x[:2].detach().requires_grad_(), w[:64].detach().requires_grad_(), targets[:2] % 64)
    before, times = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, []
    for _ in range(3):
        start = time.perf_counter()
        step(x, w, targets)
        times.append(time.perf_counter() - start)
    print(statistics.median(times), (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in dict(tokens=1024, hidden=1024, vocab=50304, rounds=3).items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    shape = given.tokens, given.hidden, given.vocab
    if given.child:
        return child(*given.child, *shape)
    print("dtype     party   seconds  MiB")
    for dtype in ("float32", "bfloat16"):
        found = {"trl": [], "tigon": []}
        for _ in range(given.rounds):
            for party, rows in found.items():
                command = [sys.executable, *sys.argv, "--child", party, dtype]
                rows.append(tuple(map(float, subprocess.run(command, check=True, capture_output=True, text=True).stdout.split())))
        for party, rows in found.items():
            seconds, mib = (statistics.median(column) for column in zip(*rows))
            print(f"{dtype:<9} {party:<6} {seconds:8.2f} {mib:6.0f}")


if __name__ == "__main__":
    main()
