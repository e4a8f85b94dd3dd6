"""The operators for PyTorch: functional, nn and optim."""

from tigon.torch import functional, nn, optim
from tigon.torch._memory import empty_cache, memory_stats
from tigon.torch._op import synchronize

__all__ = ["empty_cache", "functional", "memory_stats", "nn", "optim", "synchronize"]
