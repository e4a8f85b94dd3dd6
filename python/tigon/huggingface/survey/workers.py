"""Runs the survey of each family in a process of its own, within limits of time and memory."""

import multiprocessing
import os
import resource
import sys
import time
from multiprocessing.connection import wait
from pathlib import Path

import torch

from . import compare
from .compare import Result

_BUILT = "built"  # what a child says before its result


def surveyed(names: list[str], jobs: int, seconds: float, gib: float):
    """The results in the order of the names. A family that hangs or crashes is a result too."""
    done = {}
    finished = _finished(names, jobs, seconds, gib)
    for name in names:
        while name not in done:
            result = next(finished)
            done[result.name] = result
        yield done[name]


def _finished(names: list[str], jobs: int, limit: float, gib: float):
    """The results as they come."""
    fork = multiprocessing.get_context("fork")  # what was imported, which takes seconds, is there
    waiting, running, built = list(names), {}, set()
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                name = waiting.pop(0)
                ours, theirs = fork.Pipe(duplex=False)
                process = fork.Process(target=_child, args=(name, theirs, gib), daemon=True)
                process.start()
                theirs.close()
                running[ours] = (name, process, time.monotonic())
            wait(running, timeout=1)
            for connection, (name, process, since) in list(running.items()):
                passed = time.monotonic() - since
                result = _received(connection, name, process, built)
                if result is None and passed > limit:
                    result = _failed(name, built, f"takes more than {limit:g} seconds")
                if result is None:
                    continue
                del running[connection]
                process.kill()
                process.join()
                result.seconds = round(passed, 2)
                yield result
    finally:
        for _, process, _ in running.values():
            process.kill()


def _received(connection, name: str, process, built: set) -> Result | None:
    if not connection.poll():
        return None
    try:
        message = connection.recv()
    except EOFError:
        process.join()
        return _failed(name, built, f"its process ended with {process.exitcode}")
    if message == _BUILT:
        built.add(name)
        return None
    return message


def _failed(name: str, built: set, text: str) -> Result:
    return Result(name, outcome="wrong", wrong=[text]) if name in built else Result(name, outcome="not built", reason=text)


def _child(name: str, connection, gib: float) -> None:
    sys.stdout = sys.stderr = open(os.devnull, "w")  # stock models warn
    torch.set_num_threads(1)
    _limit_memory(int(gib * 2**30))
    connection.send(compare.survey(name, built=lambda: connection.send(_BUILT)))


def _limit_memory(more: int) -> None:
    """To what the process has now, and `more` bytes."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    most = (int(status["VmData"].split()[0]) << 10) + more
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    if hard == resource.RLIM_INFINITY or most < hard:
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))
