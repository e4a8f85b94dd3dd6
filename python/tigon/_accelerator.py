"""Devices of torch that the report and the benchmark take: those of torch.cuda and, with torch_npu, of torch.npu."""

import re

import torch


def module(device):
    """torch.cuda or torch.npu for a device of theirs; None for the CPU."""
    return None if device.type == "cpu" else getattr(torch, device.type)


def count(kind):
    """How many devices of the kind cuda or npu torch finds."""
    found = getattr(torch, kind, None)
    return found.device_count() if found and found.is_available() else 0


def default():
    """cuda or npu where there is one, else cpu."""
    return next((kind for kind in ("cuda", "npu") if count(kind)), "cpu")


def mistake(name):
    """What is wrong with a device's name, or None."""
    if not re.fullmatch(r"cpu|(cuda|npu)(:\d+)?", name):
        return f"--device is {name}, must be cpu, cuda, cuda:N, npu or npu:N"
    kind, _, index = name.partition(":")
    if kind == "npu" and not hasattr(torch, "npu"):
        return f"--device is {name}, and torch has no npu: torch_npu is not installed"
    if kind != "cpu" and int(index or 0) >= count(kind):
        return f"--device is {name}, and torch finds {count(kind)} {'GPUs' if kind == 'cuda' else 'NPUs'}"
    return None
