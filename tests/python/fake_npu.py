"""A stand-in for torch_npu: a device `npu` of torch whose memory and stream are those of the runtime in
tests/ascend/fake, so that python/tigon's way to an NPU runs on a machine without one. environment() is that
of a process whose torch has it: torch loads it as it loads torch_npu, by an entry point."""

import atexit
import ctypes
import os
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType, SimpleNamespace

import torch

SOURCE = Path(__file__).with_suffix(".cpp")


class Event:
    """Of a runtime that has done its work when a call returns."""

    def __init__(self, enable_timing=False):
        self.at = None

    def record(self, stream=None):
        self.at = time.perf_counter()

    def synchronize(self):
        pass

    def elapsed_time(self, end):
        return (end.at - self.at) * 1e3


def build(folder):
    """Compiles the C++ side into a folder, unless it lies there already."""
    made = Path(folder) / "libfake_npu.so"
    if not made.exists() or made.stat().st_mtime < SOURCE.stat().st_mtime:
        torch_place = Path(torch.__file__).parent
        command = ["g++", "-std=c++20", "-O0", "-w", "-shared", "-fPIC", f"-I{torch_place}/include", str(SOURCE)]
        command += ["-o", str(made), f"-L{torch_place}/lib", "-ltorch_cpu", "-lc10"]
        subprocess.run(command, check=True)
    return made


def environment(library, folder):
    """Of a process with an NPU, for the libtigon.so of a build; `folder` is for what is made. None: the build has no
    such runtime."""
    fake = Path(library).resolve().parent / "tests" / "fake-acl_rt"
    if not (fake / "libacl_rt.so").exists():
        return None
    package = Path(folder) / "fake_npu-1.dist-info"
    package.mkdir(parents=True, exist_ok=True)
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: fake_npu\nVersion: 1\n")
    (package / "entry_points.txt").write_text("[torch.backends]\nfake_npu = fake_npu:register\n")
    places = (Path(__file__).parents[2] / "python", folder, Path(__file__).parent)
    return os.environ | {
        "LD_LIBRARY_PATH": str(fake),
        "TIGON_ASCEND_KERNELS": str(fake / "kernels.o"),
        "TIGON_LIBRARY": str(library),
        "FAKE_NPU": str(build(folder)),
        "PYTHONPATH": os.pathsep.join(map(str, places)),
        "OMP_NUM_THREADS": "1",
    }


def wait_for_backward():
    """A program is aborted if it ends while torch's thread of backward wants the GIL (pytorch issue 38228)."""
    calm = 0
    while calm < 3:
        time.sleep(0.01)
        states = [stat.read_text().rsplit(")", 1)[1].split()[0] for stat in Path("/proc/self/task").glob("*/stat")]
        calm = 0 if states.count("R") > 1 else calm + 1  # this thread runs


def register():
    """After this torch has the device npu and the module torch.npu."""
    atexit.register(wait_for_backward)
    runtime = ctypes.CDLL("libacl_rt.so", mode=ctypes.RTLD_GLOBAL)
    ctypes.CDLL(os.environ["FAKE_NPU"])

    def new_stream():
        stream = ctypes.c_void_p()
        if runtime.aclrtSetDevice(0) or runtime.aclrtCreateStream(ctypes.byref(stream)):
            sys.exit("the runtime of tests/ascend/fake has no device")
        return SimpleNamespace(npu_stream=stream.value)

    streams = [new_stream()]
    npu = ModuleType("torch.npu")
    npu.new_stream = new_stream
    npu.streams = streams  # the last is the current one
    npu.Event = Event
    npu.current_stream = lambda device=None: streams[-1]
    npu.is_available = lambda: True
    npu.device_count = lambda: 1
    npu.current_device = lambda: 0
    npu.set_device = lambda device: None
    npu.get_device_name = lambda device=None: "Ascend910B4"
    npu.synchronize = lambda device=None: runtime.aclrtSynchronizeStream(ctypes.c_void_p(streams[-1].npu_stream))
    npu.memory_allocated = npu.max_memory_allocated = lambda device=None: 0
    npu.reset_peak_memory_stats = lambda device=None: None
    npu._is_in_bad_fork = lambda: False
    npu.manual_seed_all = lambda seed: None
    npu.get_rng_state = lambda device=None: torch.empty(0, dtype=torch.uint8)  # its numbers come from the CPU's generator
    npu.set_rng_state = lambda state, device=None: None
    npu.get_amp_supported_dtype = lambda: [torch.float16, torch.bfloat16]
    torch.utils.rename_privateuse1_backend("npu")
    torch._register_device_module("npu", npu)
    torch.utils.generate_methods_for_privateuse1_backend(for_storage=False)
