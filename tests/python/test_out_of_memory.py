"""Outputs for which memory runs out: the exception passes, nothing is lost, and the same call passes afterwards."""

import gc
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch

import tigon.torch
from tigon.torch import functional as T


class Allocator:
    """torch's functions that allocate an output. The nth call of them fails; 0: none does."""

    def __init__(self, monkeypatch):
        self.nth = self.made = 0
        for owner, name in (
            (torch, "empty"),
            (torch, "empty_like"),
            (torch.Tensor, "new_empty"),
            (torch.Tensor, "new_empty_strided"),
            (torch._C._dynamo.guards, "_empty_strided_cpu"),
        ):
            monkeypatch.setattr(owner, name, self.wrapped(getattr(owner, name)))

    def wrapped(self, function):
        def allocate(*args, **kwargs):
            self.made += 1
            if self.made == self.nth:
                raise torch.OutOfMemoryError("no memory for this tensor")
            return function(*args, **kwargs)

        return allocate

    def fail_at(self, nth):
        self.nth, self.made = nth, 0


def rows(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1)).requires_grad_()


def norm(x, w):
    return T.rms_norm(x, w)


def loss(x, w):
    return T.cross_entropy(x * w, torch.arange(x.shape[0]) % x.shape[1])


def head(x, w):
    return T.fused_linear_cross_entropy(x, w.expand(16, -1).contiguous(), torch.arange(x.shape[0]) % 16)


def step(call, x, w):
    """Forward and backward; everything that they make."""
    x.grad = w.grad = None
    y = call(x, w)
    y.sum().backward()
    return [t.detach().clone() for t in (y, x.grad, w.grad)]


def alive():
    gc.collect()
    return sum(issubclass(type(o), torch.Tensor) for o in gc.get_objects()), tigon.torch.memory_stats()["in_use"]


@pytest.mark.parametrize("call", [norm, loss, head])
def test_outputs(call, monkeypatch):
    allocator = Allocator(monkeypatch)
    x, w = rows(7, 26), rows(26)  # no other test has this shape, as a call keeps how its outputs are made
    expected, before = step(call, x, w), [x.detach().clone(), w.detach().clone()]
    x.grad = w.grad = None
    held, nth, failed = alive(), 1, 0
    while True:
        allocator.fail_at(nth)
        try:
            step(call, x, w)
        except torch.OutOfMemoryError as error:
            assert str(error) == "no memory for this tensor"
            failed += 1
        made = allocator.made
        allocator.fail_at(0)
        x.grad = w.grad = None
        if made < nth:
            break
        assert alive() == held, nth
        assert torch.equal(x, before[0]) and torch.equal(w, before[1])
        assert all(torch.equal(a, b) for a, b in zip(step(call, x, w), expected)), nth
        x.grad = w.grad = None
        nth += 1
    assert failed > 0


SHIM = Path(os.environ.get("TIGON_LIBRARY", "libtigon.so")).parent / "tests/liboom.so"


@pytest.mark.skipif(not SHIM.exists(), reason="tests/oom/shim.c is not built")
def test_the_pool():
    """Without memory for a block's own struct an output lies in torch's memory; without memory for a context a call fails."""
    code = """
        import ctypes, torch, tigon.torch
        from tigon.torch import functional as T
        seam = ctypes.CDLL(None)
        x, w = torch.randn(512, 512), torch.ones(512)
        failed, nth = 0, 1
        while True:
            seam.oom_begin(ctypes.c_long(nth), ctypes.c_bool(False))
            try:
                y = T.rms_norm(x, w)
            except MemoryError as error:
                failed += "memory" in str(error) or "not there" in str(error)
                y = None
            made = seam.oom_end()
            if made < nth:
                break
            again = T.rms_norm(x, w)
            assert y is None or torch.equal(y, again)
            nth += 1
        print(nth - 1, failed)
    """
    environment = {**os.environ, "LD_PRELOAD": str(SHIM), "OOM_OF": "libtigon", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], env=environment, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr
    points, failed = map(int, done.stdout.split())
    assert points > 0 and failed > 0
