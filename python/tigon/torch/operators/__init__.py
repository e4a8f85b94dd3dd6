"""The operators for PyTorch. A file is found because it is here; no list names it. It says what is public of it:

FUNCTIONS   names of tigon.torch.functional
MODULES     names of tigon.torch.nn
SHARDING    by operator, how ranks share out a DTensor (tigon/torch/_sharding.py)
REFERENCE   a Reference of the operator that the file is named after: its tests and benchmarks are made from that
Liger*, liger_*   Liger-Kernel's names, which tigon.compat.liger has then
"""

import importlib
import pkgutil
from collections.abc import Callable
from typing import NamedTuple


class Parameter(tuple):
    """The shape of an input that is contiguous, as a weight is."""


class Reference(NamedTuple):
    """An operator's maths in plain torch, of the same tensors: float64 of it is the tests' oracle."""

    plain: Callable
    shapes: list  # shapes of small inputs, tuples and Parameters
    roundings: int = 1  # to the inputs' dtype between inputs and outputs, the store included


FILES = [importlib.import_module(f"{__name__}.{found.name}") for found in pkgutil.iter_modules(__path__)]
REFERENCES = {file.__name__.rpartition(".")[2]: file.REFERENCE for file in FILES if hasattr(file, "REFERENCE")}


def public(kind):
    """{name: what it names} of FUNCTIONS or MODULES."""
    return {name: getattr(file, name) for file in FILES for name in getattr(file, kind, ())}
