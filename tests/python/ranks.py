"""Two processes of a test: by gloo on the CPU, by NCCL on two GPUs."""

import os
import socket

import pytest
import torch
import torch.distributed as dist

two_gpus = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="fewer than two GPUs")
DEVICES = ["cpu", pytest.param("cuda", marks=two_gpus)]


def results_of(run, device, tmp_path_factory):
    """What both processes of run(rank, port, folder, device) saved, by rank, on the CPU."""
    folder = tmp_path_factory.mktemp("ranks")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    torch.multiprocessing.spawn(run, (port, str(folder), device), nprocs=2)
    return [torch.load(folder / f"{rank}.pt", weights_only=False, map_location="cpu") for rank in range(2)]


def join(rank, port, device):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    if device == "cuda":
        torch.cuda.set_device(rank)
    dist.init_process_group({"cpu": "gloo", "cuda": "nccl"}[device], rank=rank, world_size=2)


def leave(rank, folder, results):
    torch.save(results, f"{folder}/{rank}.pt")
    dist.destroy_process_group()
