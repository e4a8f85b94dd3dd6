"""Modules over tigon.torch.functional, with the parameters' names and shapes of torch.nn."""

from tigon.torch import operators

_FOUND = operators.public("MODULES")
__all__ = sorted(_FOUND)
globals().update(_FOUND)
for _module in _FOUND.values():
    _module.__module__ = __name__  # the path to import and to pickle it by
