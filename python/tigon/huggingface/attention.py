"""Attention of transformers' models, by transformers' registry: a configuration names the implementation.

One function makes the mask of a forward, another computes a layer's attention. What queries see is read from the
functions of indices that transformers composes a mask of. What is not understood runs as the model had it."""

import functools
import inspect
import sys
import warnings

import torch
from torch import nn
from torch.utils._pytree import tree_map_only

from ..torch import functional as F
from .attention_code import asks_for, makes_its_mask
from .replacement import Left, Pair, computable, is_distributed
from .trials import generator

_NAMES = {"sdpa": "tigon", "eager": "tigon_eager"}  # an implementation, and Tigon's with that behind it
_STOCK = {name: stock for stock, name in _NAMES.items()}
# Tensors that a layer may be called with besides: the mask has been made of them, or they are for other implementations.
_ASIDE = {"position_ids", "cache_position", "num_items_in_batch", "labels", "shift_labels"}
_ASIDE |= {"cu_seq_lens_q", "cu_seq_lens_k", "max_length_q", "max_length_k"}


class Mask(torch.Tensor):
    """What the queries of a forward see. The layers get it as their mask [B, 1, T, S], without storage.

    A function of torch that reads it gets the tensor that transformers would have made. So a model may build another
    mask of this one, and its attention then runs as before."""

    @staticmethod
    def __new__(cls, stock: str, arguments: dict, causal: bool, window: int | None, starts: torch.Tensor | None):
        """arguments: from which transformers makes the tensor. starts: of packed sequences, and the number of tokens."""
        shape = arguments["batch_size"], 1, arguments["q_length"], arguments["kv_length"]
        dtype = torch.bool if stock == "sdpa" else arguments.get("dtype", torch.float32)
        mask = cls._make_wrapper_subclass(cls, shape, dtype=dtype, device=arguments.get("device", "cpu"))
        mask.stock, mask.arguments, mask.causal, mask.window, mask.starts = stock, arguments, causal, window, starts
        mask.has_views = False
        return mask

    @functools.cached_property
    def given(self) -> torch.Tensor | None:
        """What transformers gives the layers: None where sdpa is causal without a mask."""
        return self._made()

    @functools.cached_property
    def whole(self) -> torch.Tensor:
        return self._made(allow_is_causal_skip=False, allow_is_bidirectional_skip=False).clone()

    def read(self) -> torch.Tensor:
        """Itself, or the tensor in whose place it is if somebody may have written into that."""
        return self.whole if self.has_views else self

    def _made(self, **changes):
        from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS

        return ALL_MASK_ATTENTION_FUNCTIONS[self.stock](**self.arguments | changes)

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, function, types, arguments=(), options=None):
        options = options or {}
        moved = function is torch.ops.aten._to_copy.default and options.get("dtype") in (None, arguments[0].dtype)
        if moved or function is torch.ops.aten.detach.default:
            return arguments[0]  # on another device, too: only `starts` is read, where the heads are
        shared = any(argument.alias_info for argument in function._schema.arguments)

        def whole(mask):
            mask.has_views |= shared
            return mask.whole

        arguments, options = tree_map_only(cls, whole, (arguments, options))
        return function(*arguments, **options)


def _read(function) -> dict | None:
    """What a function of indices sees: causal, a window to the left or to both sides, packed sequences, or all of these
    together; None for another one. The code of transformers' own functions tells them."""
    from transformers import masking_utils as own

    code = getattr(function, "__code__", None)
    cells = dict(zip(code.co_freevars, (c.cell_contents for c in function.__closure__ or ()))) if code else {}
    if function in (own.causal_mask_function, own.bidirectional_mask_function):
        return {"causal": True} if function is own.causal_mask_function else {}
    if code is own.sliding_window_overlay(1).__code__:
        return {"left": cells["sliding_window"]}
    if code is own.sliding_window_bidirectional_overlay(1).__code__:
        return {"window": cells["sliding_window"] + 1}
    if code is own.packed_sequence_mask_function(None).__code__:
        return {"packed": cells["packed_sequence_mask"]}
    if code is not own.and_masks().__code__:
        return None
    parts = [_read(part) for part in cells["mask_functions"]]
    if None in parts:
        return None
    both = {name: value for part in parts for name, value in part.items()}
    return both if len(both) == sum(map(len, parts)) else None


def _starts(packed: torch.Tensor) -> torch.Tensor:
    """cu_seqlens of the rows one after the other, from each token's sequence [B, T]."""
    first = torch.ones_like(packed, dtype=torch.bool)
    first[:, 1:] = packed[:, 1:] != packed[:, :-1]
    starts = first.flatten().nonzero().flatten()
    return torch.cat([starts, starts.new_tensor([packed.numel()])]).int()


def _mask(stock, **arguments):
    """A Mask where Tigon computes what it says, else transformers' own."""
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
    from transformers.utils.import_utils import is_tracing

    tokens, keys, padding = (arguments[name] for name in ("q_length", "kv_length", "attention_mask"))
    first, first_key = arguments["q_offset"], arguments["kv_offset"]
    seen = None if is_tracing() or not isinstance(first, int) else _read(arguments["mask_function"])
    if (
        seen is None
        or first + tokens != first_key + keys  # the last query stands at the last key
        or ("left" in seen and ("causal" not in seen or "window" in seen))
        or ("packed" in seen and tokens != keys)
        or (padding is not None and not padding.all())
    ):
        return ALL_MASK_ATTENTION_FUNCTIONS[stock](**arguments)
    starts = _starts(seen["packed"]) if "packed" in seen else None
    return Mask(stock, arguments, seen.get("causal", False), seen.get("left", seen.get("window")), starts)


def _obstacle(module, mask, q, k, v, dropout, others) -> str | None:
    """Why a call runs as before."""
    if not isinstance(mask, Mask):
        return "it has no mask" if mask is None else "its mask is a tensor, as for padding or a cache of fixed size"
    if dropout:
        return "it has dropout"
    if others.get("output_attentions"):
        return "its weights are asked for"
    strange = [n for n, value in others.items() if isinstance(value, torch.Tensor) and n not in _ASIDE]
    if strange:
        return f"it is called with {strange[0]}"
    causal = others.get("is_causal")  # which sdpa reads where it has no mask
    causal = getattr(module, "is_causal", True) if causal is None else causal
    if mask.stock == "sdpa" and mask.causal != causal and mask.given is None:
        return f"it is {'' if causal else 'not '}causal, and its mask is {'not' if causal else 'so'}"
    if (q.shape[2], k.shape[2]) != (mask.arguments["q_length"], mask.arguments["kv_length"]):
        return "its mask is for other numbers of queries and keys"
    if not q.shape[-1] == k.shape[-1] == v.shape[-1]:
        return "its values are of another width than its keys"
    if len({q.dtype, k.dtype, v.dtype}) > 1 or any(is_distributed(t) or not computable(t) for t in (q, k, v)):
        return f"its heads are {q.dtype} on {q.device.type}, sharded, or lie otherwise than Tigon takes them"
    return None


def _attend(
    stock, module, query, key, value, attention_mask, dropout=0.0, scaling=None, softcap=None, s_aux=None, **others
):
    """(o [B, T, H, D], None). The window is the mask's, not `sliding_window`."""
    mask = attention_mask.read() if isinstance(attention_mask, Mask) else attention_mask
    heads = [query, key, value]
    if obstacle := _obstacle(module, mask, *heads, dropout, others):
        from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

        if not torch.compiler.is_compiling():
            layer = type(module).__name__
            warnings.warn(f"tigon.patch: an attention runs by {stock}, because {obstacle} ({layer})", stacklevel=2)
        options = dict(dropout=dropout, scaling=scaling, softcap=softcap, s_aux=s_aux)
        function = _eager(module) if stock == "eager" else ALL_ATTENTION_FUNCTIONS[stock]
        return function(module, *heads, mask.given if isinstance(mask, Mask) else mask, **options | others)
    starts = mask.starts
    if starts is not None:  # [B, H, T, D] as [1, H, B * T, D]
        heads = [t.transpose(1, 2).flatten(0, 1).unsqueeze(0).transpose(1, 2) for t in heads]
        starts = starts.to(query.device)
    o = F.attention(*heads, scaling, mask.causal, mask.window, softcap, s_aux, starts).transpose(1, 2)
    return o.reshape(query.shape[0], query.shape[2], *o.shape[2:]).contiguous(), None


def _eager(module: nn.Module):
    """The attention in the file of a module that calls the registry; None for another module."""
    inner = inspect.unwrap(type(module).forward)
    names = getattr(getattr(inner, "__code__", None), "co_names", ())
    return inner.__globals__.get("eager_attention_forward") if "ALL_ATTENTION_FUNCTIONS" in names else None


def _compare(module: nn.Module, eager) -> Pair:
    """Five tokens by both, with the module's own sinks."""
    sinks, groups = getattr(module, "sinks", None), getattr(module, "num_key_value_groups", 1)
    heads, device = (2 * groups, "cpu") if sinks is None else (len(sinks), sinks.device)
    made = generator(0)
    q, k, v = (torch.randn(2, n, 5, 8, generator=made).to(device) for n in (heads, heads // groups, heads // groups))
    mask = torch.full((1, 1, 5, 5), torch.finfo(q.dtype).min, device=device).triu(1)
    cap = 1.5 if "softcap" in inspect.signature(eager).parameters else None
    old, _ = eager(module, q, k, v, mask, scaling=0.7, dropout=0.0, softcap=cap, s_aux=sinks)
    return Pair(old, F.attention(q, k, v, 0.7, softcap=cap, sinks=sinks).transpose(1, 2), 4, 8)


def _switched(config, owner, layers) -> tuple[Left | str, str | None]:
    """(what is there now or why not, why it could not be compared)."""
    from transformers import AttentionInterface, AttentionMaskInterface

    stock, unknown = config._attn_implementation, None
    if stock not in _NAMES:
        return Left(f"its attention is {stock}, must be sdpa or eager"), None
    if not getattr(owner, "_supports_attention_backend", False):
        return Left("its class says that it takes no attention of others"), None
    for kind in {type(module): None for module in owner.modules() if getattr(module, "config", None) is config}:
        if asks_for(kind, stock):
            return Left(f"its {kind.__name__} asks whether its attention is {stock}"), None
    for layer in {type(layer): layer for layer in layers}.values():
        if makes_its_mask(type(layer)):
            return Left(f"its {type(layer).__name__} makes a mask of its own"), None
        sinks = getattr(layer, "sinks", None)
        capped = any(value for name, value in vars(layer).items() if "softcap" in name)
        if stock == "sdpa" and (capped or sinks is not None):
            return Left("its sdpa leaves out softcap or sinks, which attn_implementation='eager' has"), None
        if sinks is not None and (sinks.device.type == "meta" or is_distributed(sinks)):
            unknown = "its sinks are not there"
            continue
        try:
            difference = _compare(layer, _eager(layer)).difference()
        except Exception as error:
            difference = f"{type(error).__name__}: {error}"
        if difference:
            return Left(f"its eager attention is another function: {difference}"), None
    AttentionInterface.register(_NAMES[stock], functools.partial(_attend, stock))
    AttentionMaskInterface.register(_NAMES[stock], functools.partial(_mask, stock))
    config._attn_implementation_internal = _NAMES[stock]  # by its setter those within it would have it, too
    return f"{len(layers)} by {_NAMES[stock]}, else by {stock}", unknown


def switch(model: nn.Module):
    """Names Tigon's implementation in the model's configurations. Gives (path, module, verdict, why unverified)."""
    transformers, done = sys.modules.get("transformers"), set()
    for path, owner in model.named_modules() if transformers else ():
        config = getattr(owner, "config", None)
        if isinstance(owner, transformers.PreTrainedModel) and id(config) not in done:
            done.add(id(config))
            layers = [m for m in owner.modules() if getattr(m, "config", None) is config and _eager(m)]
            if layers:
                yield path, owner, *_switched(config, owner, layers)


def switch_back(model: nn.Module) -> None:
    for module in model.modules():
        name = getattr(getattr(module, "config", None), "_attn_implementation", None)
        if name in _STOCK:
            module.config._attn_implementation_internal = _STOCK[name]
