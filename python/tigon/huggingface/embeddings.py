"""Embeddings: torch.nn.Embedding, and the lookup inside a subclass of it."""

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from .._abi import MAX_DIMS
from ..torch import functional as F
from .replacement import Left, Method, Replacement, computable
from .trials import Differs, compare_rows, run


def find_embedding(module: nn.Module) -> Replacement | Left | None:
    """A torch.nn.Embedding, by class. A subclass with a forward of its own, as Gemma's, which scales, keeps it: the
    lookup inside is Tigon's. Whether there is one is found by running it on one id, in both modes."""
    if not isinstance(module, nn.Embedding):
        return None
    for option in ("max_norm", "scale_grad_by_freq", "sparse"):
        if getattr(module, option):
            return Left(f"its {option} is {getattr(module, option)}, must be left out")
    detail = f"{module.num_embeddings} rows of {module.embedding_dim}"
    if module.padding_idx is not None:
        detail += f", padding_idx {module.padding_idx}"
    if type(module).forward is nn.Embedding.forward:
        return _replacement(module, detail, _forward)

    for training in (False, True):
        lookups = _Lookups()
        try:
            with lookups:
                ids = torch.zeros(1, 1, dtype=torch.long, device=module.weight.device)
                run(module, ids, training=training)
        except Differs as error:
            return Left(str(error))
        except Exception as error:  # whatever a stranger's forward raises
            return Left(f"its forward does not run on an id: {error}")
        if not lookups.found:
            mode = "" if not training else " in training mode"
            return Left(f"its forward does not call torch.nn.functional.embedding{mode}")
    return _replacement(module, f"{detail}, in its own forward", _forward_of_subclass)


def _replacement(module: nn.Module, detail: str, forward) -> Replacement:
    def draw(shape, generator):
        return torch.randint(module.num_embeddings, shape, generator=generator)

    return Replacement(detail, (Method(module, "forward", forward),), compare_rows(module, forward, (2, 3), 0, 0, draw))


def _forward(self, input):
    options = self.max_norm, self.norm_type, self.scale_grad_by_freq, self.sparse
    return _embedding(input, self.weight, self.padding_idx, *options)


def _forward_of_subclass(self, *args, **kwargs):
    with _Lookups():
        return type(self).forward(self, *args, **kwargs)


class _Lookups(TorchFunctionMode):
    """Under it torch.nn.functional.embedding is Tigon's; `found`: it was called."""

    found = False

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function is nn.functional.embedding:
            self.found, function = True, _embedding
        return function(*args, **(kwargs or {}))


def _embedding(input, weight, padding_idx=None, max_norm=None, norm_type=2.0, scale_grad_by_freq=False, sparse=False):
    """torch.nn.functional.embedding, which runs where Tigon has no kernel."""
    if (
        type(weight) in (torch.Tensor, nn.Parameter)  # no DTensor, no quantised one
        and computable(weight)
        and input.device == weight.device
        and input.dtype in (torch.int64, torch.int32)
        and 0 < input.ndim < MAX_DIMS
        and not (max_norm or scale_grad_by_freq or sparse)
    ):
        return F.embedding(input, weight, padding_idx)
    return nn.functional.embedding(input, weight, padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse)
