"""The operators for PyTorch: functional, nn and optim."""

from tigon.torch import functional, nn, optim
from tigon.torch._op import synchronize

__all__ = ["functional", "nn", "optim", "synchronize"]
