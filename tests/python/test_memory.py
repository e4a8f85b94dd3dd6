"""The memory of large CPU outputs: used again, limited, given back, and a tensor's like any other's."""

import contextlib
import copy
import gc
import io
import os
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode

import tigon.torch
from tigon.torch import _memory
from tigon.torch import functional as T

MIB = 1 << 20
LEAST = 512, 512  # rows and columns of 1 MiB in f32

pytestmark = pytest.mark.skipif(not tigon.torch.memory_stats()["enabled"], reason="the pool is off here")


@pytest.fixture(autouse=True)
def empty():
    gc.collect()
    tigon.torch.empty_cache()


def stats():
    return tigon.torch.memory_stats()


def taken(before):
    """Outputs that came from the pool since."""
    now = stats()
    return now["warm"] + now["cold"] - before["warm"] - before["cold"]


def run(code, **environment):
    """Another Python process; its standard output."""
    start = "import os, torch, tigon.torch\nfrom tigon.torch import functional as T\n"
    found = subprocess.run(
        [sys.executable, "-c", start + textwrap.dedent(code)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **environment},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert found.returncode == 0, found.stderr
    return found.stdout.strip()


def by_dispatcher(x, w):
    return torch.ops.tigon.rms_norm_fwd(x, w, None, 1e-6, 0.0, 0)[0]


@pytest.mark.parametrize("norm", [T.rms_norm, by_dispatcher], ids=["direct", "dispatcher"])
def test_reuse(norm):
    x, w = torch.randn(1024, 1024), torch.randn(1024)
    right = F.rms_norm(x, (1024,), w, 1e-6)
    before = stats()
    y = norm(x, w)
    address = y.data_ptr()
    assert taken(before) == 1 and stats()["in_use"] - before["in_use"] == y.nbytes
    y.fill_(torch.nan)
    del y
    assert stats()["in_use"] == before["in_use"] and stats()["idle"] >= 4 * MIB
    between = stats()
    y = norm(x, w)
    assert y.data_ptr() == address and stats()["warm"] == between["warm"] + 1
    torch.testing.assert_close(y, right)


def test_size_from_which():
    assert LEAST[0] * LEAST[1] * 4 == _memory.LARGE
    for rows, count in ((LEAST[0] - 1, 0), (LEAST[0], 1)):
        before = stats()
        y = T.softmax(torch.randn(rows, LEAST[1]))
        assert taken(before) == count and y.untyped_storage().resizable() == (not count)


def test_what_the_pool_is_not_for():
    """A dtype that no operator returns; more dimensions than an operator takes."""
    like = torch.empty(LEAST)
    assert _memory.pooled(like)
    assert not _memory.pooled(like.double())
    with pytest.raises(ValueError, match="rms_norm_fwd: x.ndim is 9, must be 1 to 8"):
        T.rms_norm(torch.empty((1,) * 7 + LEAST))


def test_layouts_and_dtypes():
    """The tensor has the layout that torch would have given it, and a storage of its own size."""
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        x = torch.randn(3, 700, 1001).to(dtype).transpose(0, 1)
        wanted = torch.empty_like(x)
        before = stats()
        y = T.relu_squared(x)
        assert taken(before) == 1 and (y.shape, y.stride(), y.dtype) == (wanted.shape, wanted.stride(), dtype)
        assert y.untyped_storage().nbytes() == wanted.untyped_storage().nbytes() and y.is_contiguous() is False
        torch.testing.assert_close(y, torch.relu(x) ** 2)


class Seen(TorchDispatchMode):
    """Sends each operator through torch's dispatcher."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("seen", [contextlib.nullcontext, Seen], ids=["direct", "dispatcher"])
def test_backward_and_workspace(seen):
    x, w = torch.randn(2048, 512, requires_grad=True), torch.randn(4096, 512, requires_grad=True)
    target = torch.randint(0, 4096, (2048,))
    before = stats()
    with seen():
        loss = T.fused_linear_cross_entropy(x, w, target, workspace_bytes=8 * MIB)
        loss.backward()
    # Both gradients and a workspace; the workspace is given back.
    assert taken(before) == 3
    gradients = x.grad.nbytes + w.grad.nbytes
    del loss
    assert stats()["in_use"] - before["in_use"] == gradients
    wanted = [t.detach().requires_grad_() for t in (x, w)]
    F.cross_entropy(F.linear(*wanted), target).backward()
    torch.testing.assert_close(x.grad, wanted[0].grad)
    torch.testing.assert_close(w.grad, wanted[1].grad)


def test_gradients_accumulate():
    """Autograd keeps an operator's gradient as .grad, and adds the next one to it in place."""
    w = torch.randn(4096, 512, requires_grad=True)
    ids = torch.randint(0, 4096, (600,))
    before = stats()
    T.embedding(ids, w).sum().backward()
    address = w.grad.data_ptr()
    assert stats()["in_use"] - before["in_use"] == w.grad.nbytes
    T.embedding(ids, w).sum().backward()
    assert w.grad.data_ptr() == address
    torch.testing.assert_close(w.grad, 2.0 * torch.bincount(ids, minlength=4096)[:, None].expand_as(w))
    w.grad = None
    assert stats()["in_use"] == before["in_use"]


def test_sums_in_place():
    """Autograd adds gradients in place where nobody else has the storage: it must not see the pool as an owner."""
    x = torch.randn(1024, 512, requires_grad=True)
    before = stats()
    y = T.relu_squared(x)
    assert torch._C._storage_Use_Count(y.untyped_storage()._cdata) <= 2  # the tensor and the object that asks
    (y + T.softmax(x)).sum().backward()
    del y
    assert stats()["in_use"] - before["in_use"] == x.grad.nbytes


def test_limit():
    said = run(
        """
        x = torch.randn(2048, 1024)
        held = [T.relu_squared(x) for _ in range(20)]
        assert all(torch.equal(y, torch.relu(x) ** 2) for y in held)
        found = tigon.torch.memory_stats()
        assert found["limit"] == found["in_use"] == 64 << 20 and found["refused"] == 12, found
        del held
        found = tigon.torch.memory_stats()
        assert found["in_use"] == 0 and found["idle"] == 64 << 20, found
        print("done")
        """,
        TIGON_CPU_POOL="64M",
    )
    assert said == "done"


def test_small_limit():
    said = run(
        """
        before = tigon.torch.memory_stats()["limit"]
        held = [T.relu_squared(torch.randn(512, 512)) for _ in range(5)], T.relu_squared(torch.randn(2048, 1024))
        found = tigon.torch.memory_stats()
        print(before >> 20, found["limit"] >> 20, found["in_use"] >> 20, found["refused"])
        """,
        TIGON_CPU_POOL="3M",
    )
    assert said == "3 4 4 1"  # whole pages of 2 MiB; what exceeds the limit is not asked for


def test_no_addresses():
    """Where the pool can reserve nothing, the outputs are torch's own."""
    said = run(
        """
        import resource
        used = int(open("/proc/self/statm").read().split()[0]) * 4096
        resource.setrlimit(resource.RLIMIT_AS, (used + (60 << 20), used + (60 << 20)))
        y = T.relu_squared(torch.randn(512, 512))
        found = tigon.torch.memory_stats()
        print(found["limit"], found["in_use"], found["refused"], y.untyped_storage().resizable())
        """,
        TIGON_CPU_POOL="8G",
        OMP_NUM_THREADS="1",
    )
    assert said == "0 0 0 True"


@pytest.mark.parametrize("text", ["0", "0G"])
def test_off(text):
    said = run(
        """
        y = T.relu_squared(torch.randn(1024, 1024))
        found = tigon.torch.memory_stats()
        print(found["enabled"], found["warm"] + found["cold"], y.untyped_storage().resizable())
        """,
        TIGON_CPU_POOL=text,
    )
    assert said == "False 0 True"


@pytest.mark.parametrize("text", ["x", "-1", "1.5G", "4 G", "G"])
def test_wrong_size(text, monkeypatch):
    monkeypatch.setenv("TIGON_CPU_POOL", text)
    with pytest.raises(ValueError) as caught:
        _memory._limit()
    assert str(caught.value) == f"tigon: TIGON_CPU_POOL is {text!r}, must be 0 or a size such as 512M or 8G"


def test_default_limit(monkeypatch):
    monkeypatch.delenv("TIGON_CPU_POOL", raising=False)
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert 0 < _memory._limit() <= machine // 2
    monkeypatch.setenv("LD_PRELOAD", "/usr/libexec/valgrind/vgpreload_memcheck-amd64-linux.so")
    assert _memory._limit() == 0  # its checks see no block of the pool


def test_control_groups(monkeypatch, tmp_path):
    """The smallest limit of the process's group and those above it counts."""
    text = {"/proc/self/cgroup": "1:cpu:/x\n4:memory:/a/b\n0::/c\n"}
    limits = {"c": "max", ".": "7000", "memory/a/b": "9000", "memory/a": "6000"}
    for folder, bytes in limits.items():
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        name = "memory.limit_in_bytes" if folder.startswith("memory") else "memory.max"
        (tmp_path / folder / name).write_text(bytes + "\n")
    (tmp_path / "cgroup").write_text(text["/proc/self/cgroup"])
    assert _memory._memory(tmp_path / "cgroup", tmp_path) == 6000
    (tmp_path / "memory/a/memory.limit_in_bytes").unlink()
    assert _memory._memory(tmp_path / "cgroup", tmp_path) == 7000
    assert _memory._memory(tmp_path / "none", tmp_path) == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def test_limited_addresses():
    code = """
        import resource, subprocess, sys
        resource.setrlimit(resource.RLIMIT_AS, (64 << 30, 64 << 30))
        test = "import tigon.torch; print(tigon.torch.memory_stats()['enabled'])"
        print(subprocess.run([sys.executable, "-c", test], capture_output=True, text=True).stdout.strip())
    """
    environment = {"TIGON_CPU_POOL": ""}
    assert run(code, **environment) == "False"


def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_empty_cache():
    x = torch.randn(4096, 4096)
    del_me = T.relu_squared(x)
    del del_me
    before, held = stats(), resident()
    assert before["idle"] >= 64 * MIB
    tigon.torch.empty_cache()
    after = stats()
    assert after["idle"] == 0 and after["trimmed"] - before["trimmed"] == before["idle"]
    assert resident() <= held - 60 * MIB


def test_views_outlive():
    x = torch.randn(1024, 1024)
    y = T.relu_squared(x)
    view, before = y[5:7].t(), stats()
    del y
    assert stats()["in_use"] == before["in_use"]
    others = [T.relu_squared(torch.randn(1024, 1024)) for _ in range(3)]
    torch.testing.assert_close(view, (torch.relu(x) ** 2)[5:7].t())
    del view, others
    assert stats()["in_use"] == before["in_use"] - 4 * MIB


def test_numpy_keeps_it():
    x = torch.randn(1024, 1024)
    before = stats()
    array = T.relu_squared(x).numpy()
    T.relu_squared(-x)
    assert stats()["in_use"] - before["in_use"] == 4 * MIB
    torch.testing.assert_close(torch.from_numpy(array), torch.relu(x) ** 2)
    del array
    assert stats()["in_use"] == before["in_use"]


def test_saved_and_copied():
    y = T.relu_squared(torch.randn(1000, 1000))
    file = io.BytesIO()
    torch.save(y, file)
    assert len(file.getvalue()) < y.nbytes + 4096
    file.seek(0)
    for other in (torch.load(file), copy.deepcopy(y), y.clone()):
        assert torch.equal(other, y) and other.data_ptr() != y.data_ptr()


@pytest.mark.parametrize("strategy", ["file_descriptor", "file_system"])
def test_share_memory(strategy, monkeypatch):
    """Shared memory replaces the pool's, which is given back."""
    monkeypatch.setattr(torch.multiprocessing, "_sharing_strategy", strategy)
    y = T.relu_squared(torch.randn(1024, 1024))
    wanted, before = y.clone(), stats()
    y.share_memory_()
    assert y.is_shared() and stats()["in_use"] == before["in_use"] - 4 * MIB
    T.relu_squared(torch.randn(1024, 1024))
    assert torch.equal(y, wanted)


def test_sent_to_a_process():
    """Through a queue of torch.multiprocessing, in both directions."""
    said = run(
        """
        import torch.multiprocessing as processes

        def double(questions, answers):
            x = questions.get()
            answers.put(T.relu_squared(x))
            questions.get()  # until the answer has been read

        def main():
            context = processes.get_context("fork")
            questions, answers = context.Queue(), context.Queue()
            torch.manual_seed(0)
            x = T.softmax(torch.randn(1024, 1024))
            child = context.Process(target=double, args=(questions, answers))
            child.start()
            wanted = x.clone() ** 2
            questions.put(x)
            del x
            noise = [T.softmax(torch.randn(1024, 1024)) for _ in range(4)]
            torch.testing.assert_close(answers.get(), wanted)
            questions.put(None)
            child.join()
            print(child.exitcode)

        main()
        """
    )
    assert said == "0"


def test_resize():
    """A storage of the pool cannot be resized: torch says so. A tensor that becomes smaller stays where it is."""
    y = T.relu_squared(torch.randn(1024, 1024))
    assert not y.untyped_storage().resizable()
    with pytest.raises(RuntimeError, match="Trying to resize storage that is not resizable"):
        y.untyped_storage().resize_(0)
    with pytest.raises(RuntimeError, match="Trying to resize storage that is not resizable"):
        y.resize_(2048, 1024)
    assert y.resize_(512, 1024).shape == (512, 1024)
    y.data = torch.empty(1)
    y.set_()
    assert y.numel() == 0


def test_threads():
    """Tensors that end in other threads than they began in."""
    before, wrong, handed = stats(), [], []
    inputs = [torch.randn(600, 600 + 16 * i) for i in range(4)]
    wanted = [torch.relu(x) ** 2 for x in inputs]

    def work(i):
        for turn in range(30):
            y = T.relu_squared(inputs[i])
            if not torch.equal(y, wanted[i]):
                wrong.append((i, turn))
            handed.append(y)
            if len(handed) > 6:
                handed.pop(0)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    handed.clear()
    assert not wrong and stats()["in_use"] == before["in_use"]


def test_fork_while_others_run():
    said = run(
        """
        import threading
        torch.set_num_threads(1)
        x = torch.randn(1024, 1024)
        kept, stop = T.relu_squared(x), False

        def churn():
            while not stop:
                T.relu_squared(x)

        threads = [threading.Thread(target=churn) for _ in range(2)]
        for thread in threads:
            thread.start()
        codes = []
        for _ in range(10):
            child = os.fork()
            if child == 0:
                import signal
                signal.alarm(60)
                y = T.relu_squared(x)
                kept.add_(1)
                os._exit(not torch.equal(y + 1, kept))
            codes.append(os.waitpid(child, 0)[1])
        stop = True
        for thread in threads:
            thread.join()
        print(codes == [0] * 10, torch.equal(kept, torch.relu(x) ** 2))
        """,
        OMP_NUM_THREADS="1",
    )
    assert said == "True True"


def test_after_the_interpreter():
    """Tensors that live until the interpreter ends, and longer."""
    said = run(
        """
        import atexit, builtins, ctypes
        x = torch.randn(1024, 1024, requires_grad=True)
        builtins.kept = T.relu_squared(x)
        for_ever = T.relu_squared(x)
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(for_ever))

        class Late:
            def __del__(self, y=T.relu_squared(x), softmax=T.softmax):
                y.sum()

        builtins.late = Late()
        atexit.register(lambda y: print(bool(y.sum() > 0)), T.relu_squared(x))
        kept.sum().backward()
        """
    )
    assert said == "True"


def gradient_and_bound(x):
    """In float64: the gradient of sum(softmax(relu(x)^2)^2), and how far one of f32 arithmetic may be from it.

    With p = softmax(z) of rows of n, it is 2 relu(x) p (2 p - dot) with dot = sum(2 p^2), whose terms may cancel: an
    error is one of their sizes, not of their difference. In units of 2^-24, p is off by z + max(z) from the rounding
    of z, by max(z) - z from that of the exponent, by n from the sum, and by at most 8 from exp and the quotient. A term
    has p in it at most three times; dot's sum adds n, and the products at most 8.
    """
    x = x.detach().double().requires_grad_()
    z = torch.relu(x) ** 2
    p = F.softmax(z, -1)
    gradient = torch.autograd.grad(p.square().sum(), x)[0]
    with torch.no_grad():
        count, dot = x.shape[-1], 2 * p.square().sum(-1, keepdim=True)
        sizes = 2 * torch.relu(x) * p * (2 * p + dot)
        units = 3 * (2 * z.amax(-1, keepdim=True) + count + 8) + count + 8
    return gradient, sizes * units * 2.0**-24


def test_compiled():
    torch._dynamo.reset()
    torch.manual_seed(0)
    x = torch.randn(1024, 512, requires_grad=True)
    call = lambda x: T.softmax(T.relu_squared(x)).square().sum()
    eager = torch.autograd.grad(call(x), x)[0]
    before = stats()
    compiled = torch.compile(call, fullgraph=True, backend="aot_eager")
    found = torch.autograd.grad(compiled(x), x)[0]
    assert taken(before) >= 4
    assert torch.equal(found, eager)
    wanted, bound = gradient_and_bound(x)
    assert ((found - wanted).abs() <= bound).all()
    torch._dynamo.reset()


def test_nothing_counts_on_zeros():
    """Fresh pages are zeros, the pool's are not: gradients that most rows do not reach."""
    shape = 4096, 512
    poison = T.relu_squared(torch.randn(shape)).fill_(torch.nan)
    del poison
    w = torch.randn(shape, requires_grad=True)
    before = stats()
    T.embedding(torch.tensor([3]), w).sum().backward()
    assert stats()["warm"] > before["warm"]
    assert w.grad[3].eq(1).all() and w.grad.sum() == shape[1]
