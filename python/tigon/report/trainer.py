"""One provider's training in a process of its own, where what it patches or compiles cannot touch another's."""

import contextlib
import ctypes
import importlib.util
import os
import platform
import time
from dataclasses import asdict, dataclass
from pathlib import Path

WARM_UP = 3  # steps that count for the loss, not for time and memory: first calls, compilation, optimizer state
PHASES = "forward", "backward", "optimizer"
PROVIDERS = {"stock": "transformers", "tigon": "Tigon", "torch_compile": "torch.compile", "liger": "Liger-Kernel"}


@dataclass(frozen=True)
class Model:
    """A Llama: `text` says which, the others are LlamaConfig's; `learning_rate` is AdamW's."""

    text: str
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    vocab_size: int
    learning_rate: float

    def shape(self) -> dict[str, int]:
        """The arguments of LlamaConfig."""
        return {name: value for name, value in asdict(self).items() if name not in ("text", "learning_rate")}


MODELS = {
    "tiny": Model("a tiny Llama with Llama 2's vocabulary", 512, 1408, 4, 8, 4, 32000, 1e-3),
    "llama-3-8b": Model("two layers of Llama 3 8B", 4096, 14336, 2, 32, 8, 128256, 3e-5),
    "quick": Model("a toy Llama", 64, 176, 2, 4, 2, 2048, 1e-3),
}


@dataclass(frozen=True)
class Case:
    """One batch of one sequence of `tokens` in each step; model a key of MODELS, dtype "f32" or "bf16"."""

    model: str
    dtype: str
    device: str
    tokens: int


class Left(Exception):
    """Why a provider takes no part."""


def _liger(model):
    from liger_kernel.transformers import apply_liger_kernel_to_llama

    apply_liger_kernel_to_llama(model=model)
    return model


class Trainer:
    def __init__(self, case: Case, provider: str):
        if provider == "liger" and not importlib.util.find_spec("liger_kernel"):
            raise Left("liger_kernel is not installed")
        if provider == "liger" and case.device == "cpu":
            raise Left("its kernels are Triton's, which need a GPU")
        import torch
        import transformers

        import tigon
        from tigon import _accelerator

        transformers.logging.set_verbosity_error()
        self.device = torch.device(case.device)
        self.steps, self.idle_bytes = 0, 0
        self.on = _accelerator.module(self.device)
        if self.device.index is not None:
            self.on.set_device(self.device)
        shape = MODELS[case.model]
        config = transformers.LlamaConfig(**shape.shape(), max_position_embeddings=case.tokens)
        torch.manual_seed(0)
        with self.device:
            dtype = {"f32": torch.float32, "bf16": torch.bfloat16}[case.dtype]
            model = transformers.AutoModelForCausalLM.from_config(config, dtype=dtype).train()
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=shape.learning_rate, fused=self.device.type != "npu")
        self.replaced = tigon.patch(model).counts() if provider == "tigon" else None
        prepare = {"torch_compile": torch.compile, "liger": _liger}.get(provider)
        self.model = prepare(model) if prepare else model

    def about(self) -> dict:
        import torch

        name = self.on.get_device_name(self.device) if self.on else _processor()
        return dict(device=name, threads=torch.get_num_threads(), replaced=self.replaced)

    def step(self, ids: list[int]) -> dict:
        """Trains on one sequence. Milliseconds of each phase, the loss, and the most bytes held since warm-up:
        `peak_bytes` by the training, `process_bytes` by the whole process, which on a GPU is not known."""
        import torch

        if self.steps == WARM_UP:
            self._forget_peak()
        self.steps += 1
        batch = torch.tensor([ids], device=self.device)
        marks = [self._mark()]
        loss = self.model(input_ids=batch, labels=batch, use_cache=False).loss
        marks.append(self._mark())
        loss.backward()
        marks.append(self._mark())
        self.optimizer.step()
        self.optimizer.zero_grad()
        marks.append(self._mark())
        answer = dict(loss=loss.item(), phases=self._milliseconds(marks))
        if self.on:
            return answer | dict(peak_bytes=self.on.max_memory_allocated(), process_bytes=None)
        peak = _process_memory("VmHWM")
        return answer | dict(peak_bytes=peak - self.idle_bytes, process_bytes=peak)

    def _mark(self):
        if not self.on:
            return time.perf_counter()
        event = self.on.Event(enable_timing=True)
        event.record()
        return event

    def _milliseconds(self, marks) -> list[float]:
        pairs = zip(marks, marks[1:])
        if not self.on:
            return [(end - start) * 1e3 for start, end in pairs]
        marks[-1].synchronize()
        return [start.elapsed_time(end) for start, end in pairs]

    def _forget_peak(self):
        """From here on the peak counts. What is resident now but for weights and moments is the idle process: the
        interpreter, libraries, compiled code."""
        if self.on:
            return self.on.reset_peak_memory_stats()
        with contextlib.suppress(AttributeError):  # another C library than glibc
            ctypes.CDLL(None).malloc_trim(0)
        # getrusage's ru_maxrss is the same count and cannot be set back: compilation would stay in it.
        with contextlib.suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")
        state = (t for tensors in self.optimizer.state.values() for t in tensors.values())
        kept = sum(t.nbytes for t in (*self.model.parameters(), *state))
        self.idle_bytes = _process_memory("VmRSS") - kept


def _process_memory(key: str) -> int:
    """Bytes: "VmRSS" resident now, "VmHWM" resident at most."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(key))


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.split(": ", 1)[1] for line in lines if line.startswith("model name")), platform.machine())


def serve(connection, log: str, case: Case, provider: str):
    """Answers `None` with about(), a sequence with step(), until the other end closes; a str is why it cannot. What
    libraries print goes to the file `log`."""
    with open(log, "wb") as into:
        for stream in (1, 2):
            os.dup2(into.fileno(), stream)
    try:
        trainer = Trainer(case, provider)
        while True:
            ids = connection.recv()
            connection.send(trainer.about() if ids is None else trainer.step(ids))
    except (EOFError, KeyboardInterrupt):
        pass
    except Left as left:
        connection.send(str(left))
    except Exception as error:  # a provider's own: it is left, the others go on
        connection.send(f"{type(error).__name__}: {error}".strip().splitlines()[0])
