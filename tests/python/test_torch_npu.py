"""python/tigon on a device npu: a stand-in for torch_npu (fake_npu.py) over the runtime of tests/ascend/fake, whose
launches run in the simulator. Each test is a process of its own, because a process has one such device or none."""

import json
import os
import shutil
import subprocess
import sys

import fake_npu
import pytest


@pytest.fixture(scope="module")
def npu(tmp_path_factory):
    """The environment of a process with an NPU."""
    library = os.environ.get("TIGON_LIBRARY", "")
    if not shutil.which("g++"):
        pytest.skip("the stand-in for torch_npu needs g++")
    found = fake_npu.environment(library, tmp_path_factory.mktemp("npu"))
    if not found:
        pytest.skip("the build has no runtime of tests/ascend/fake")
    return found


def python(environment, *arguments):
    return subprocess.run([sys.executable, *arguments], env=environment, capture_output=True, text=True)


OPERATORS = """
import json
import sys
import torch
import tigon
from tigon.torch import _op, functional as T

found = {}
make = lambda *shape: torch.randn(*shape, generator=generator)
for dtype in (torch.float32, torch.bfloat16):
    generator = torch.Generator().manual_seed(1)
    cases = {
        "rms_norm": (T.rms_norm, (make(3, 5, 300), make(300))),
        "swiglu": (T.swiglu, (make(7, 130), make(7, 130))),
        "softmax": (T.softmax, (make(4, 1000),)),
    }
    for name, (f, inputs) in cases.items():
        answers = []
        for device in ("cpu", "npu"):
            given = [t.to(dtype).to(device).requires_grad_() for t in inputs]
            y = f(*given)
            g = torch.linspace(-1, 1, y.numel()).reshape(y.shape).to(dtype).to(device)
            answers.append([y, *torch.autograd.grad(y, given, g)])
            assert all(t.device == torch.device("cpu" if device == "cpu" else "npu:0") for t in answers[-1])
            assert all(type(t) is torch.Tensor and t.dtype == dtype for t in answers[-1])
        pairs = [(a.double(), b.cpu().double()) for a, b in zip(*answers)]
        off = max(((b - a).abs().max() / a.abs().max()).item() for a, b in pairs)
        found[f"{name} {str(dtype)[6:]}"] = off

# A context belongs to a device and a stream, which is looked up for each call.
x = torch.ones(2, 64).to("npu")
first = _op.context(x.device)
assert first is _op.context(x.device)
T.softmax(x)
assert list(_op._thread.contexts) == [(torch.device("cpu"), 1), (x.device, torch.npu.streams[0].npu_stream)]
torch.npu.streams.append(torch.npu.new_stream())
second = _op.context(x.device)
assert second is not first and first.handle.value != second.handle.value
assert torch.equal(T.softmax(x).cpu(), torch.full((2, 64), 1 / 64))
torch.npu.streams.pop()
assert _op.context(x.device) is first
_op.synchronize(x.device)

# Through torch's dispatcher, as under torch.compile.
found["dispatched"] = (torch.ops.tigon.softmax_fwd(x, None, 1.0, False).cpu() - 1 / 64).abs().max().item()
try:
    T.rms_norm(x, torch.ones(64))
except ValueError as error:
    found["mixed"] = str(error)
print(json.dumps(found))
"""


def test_operators_match_the_cpus(npu):
    done = python(npu, "-c", OPERATORS)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found.pop("mixed") == "rms_norm_fwd: w.device is cpu, must be npu:0 (x.device)"
    assert found.pop("dispatched") < 1e-7
    assert len(found) == 6
    for name, off in found.items():
        assert off <= (2e-6 if "float32" in name else 1 / 128), name
    assert any(found.values())  # the devices' kernels are not the same


def test_a_kernel_that_is_not_there_is_an_exact_error(npu, tmp_path):
    (tmp_path / "kernels.o").write_text("no kernels")
    code = "import torch; from tigon.torch import functional as T; T.softmax(torch.ones(2, 64).to('npu'))"
    done = python(npu | {"TIGON_ASCEND_KERNELS": str(tmp_path / "kernels.o")}, "-c", code)
    assert done.returncode == 1
    assert "context: device npu did not open: aclrtBinaryLoad" in done.stderr


def test_bench(npu):
    sizes = ("--rows", "8", "--width", "64", "--vocab", "96")
    done = python(npu, "-m", "tigon.bench", "--device", "npu", *sizes, "--json")
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["rows"]
    assert len(rows) == 18 and all(row["tigon_us"] > 0 and row["torch_us"] > 0 for row in rows)


def test_report(npu):
    done = python(npu, "-m", "tigon.report", "--device", "npu:0", "--quick", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert report["device"] == "Ascend910B4" and report["threads"] is None
    rows = {row["provider"]: row for row in report["cases"][0]["rows"]}
    assert rows["stock"]["device"] == rows["tigon"]["device"] == "Ascend910B4"


@pytest.mark.parametrize("module", ("tigon.bench", "tigon.report"))
def test_wrong_devices_are_named(npu, module):
    for device, sentence in (
        ("npu:1", "--device is npu:1, and torch finds 1 NPUs"),
        ("tpu", "--device is tpu, must be cpu, cuda, cuda:N, npu or npu:N"),
    ):
        done = python(npu, "-m", module, "--device", device)
        assert done.returncode == 2 and done.stderr.splitlines()[-1].endswith(sentence)
    done = python(npu | {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}, "-m", module, "--device", "npu")
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].endswith("--device is npu, and torch has no npu: torch_npu is not installed")


def test_a_part_is_what_the_environment_says(npu):
    command = os.path.join(os.path.dirname(npu["TIGON_LIBRARY"]), "tigon")

    def described(**given):
        done = subprocess.run([command, "devices", "npu:0", "--json"], env=npu | given, capture_output=True, text=True)
        return json.loads(done.stdout)["devices"][0] if done.returncode == 0 else done.stderr.strip()

    found = described()
    assert (found["name"], found["cores"], found["onchip_bytes"]) == ("ascend910b4", 40, 188160)
    found = described(TIGON_ASCEND_PART="910B1", TIGON_ASCEND_CORES="24", TIGON_ASCEND_UB_BYTES="65536")
    assert (found["name"], found["cores"], found["onchip_bytes"]) == ("ascend910b1", 24, 65536)
    for name, value, sentence in (
        ("TIGON_ASCEND_PART", "310P", "TIGON_ASCEND_PART says 310P; there are kernels for 910B1 to 910B4 and 910_93"),
        ("TIGON_ASCEND_CORES", "0", 'TIGON_ASCEND_CORES is "0", must be a whole number from 1 to 128'),
        ("TIGON_ASCEND_UB_BYTES", "9", 'TIGON_ASCEND_UB_BYTES is "9", must be a multiple of 32 from 32768 to 188160'),
        ("TIGON_ASCEND_UB_BYTES", "188192", 'TIGON_ASCEND_UB_BYTES is "188192", must be a multiple of 32'),
    ):
        assert f"context: device npu did not open: {sentence}" in described(**{name: value}), name
