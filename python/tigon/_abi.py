"""The structs of include/tigon as ctypes; tests/python/test_abi.py holds every size and offset to the headers."""

import ctypes

VERSION = (0, 1)
MAX_DIMS = 8
DTYPES = {"float32": 1, "float16": 2, "bfloat16": 3, "int32": 4, "int64": 5}

_TYPES = {"f8": ctypes.c_double, "i4": ctypes.c_int, "i8": ctypes.c_int64, "ptr": ctypes.c_void_p}
_RESERVED = ("reserved", ctypes.c_uint64 * 4)
_WORKSPACE = (("workspace", ctypes.c_void_p), ("workspace_bytes", ctypes.c_size_t))

STRUCTS = {}  # C name: class
ENTRIES = {}  # "rms_norm_fwd": its struct of arguments


class Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("dtype", ctypes.c_int),
        ("ndim", ctypes.c_int32),
        ("shape", ctypes.c_int64 * MAX_DIMS),
        ("strides", ctypes.c_int64 * MAX_DIMS),
    )


class ContextDesc(ctypes.Structure):
    _fields_ = (
        ("device", ctypes.c_char_p),
        ("variant", ctypes.c_char_p),
        ("stream", ctypes.c_void_p),
        ("threads", ctypes.c_int),
        _RESERVED,
    )


def _fields(line):
    """Of "x w:f8" a tensor x and a double w; a word that names a struct, "options:cross_entropy_options", nests it."""
    for word in line.split():
        name, _, kind = word.partition(":")
        if name == "workspace":
            yield from _WORKSPACE
        else:
            yield name, Tensor if not kind else _TYPES.get(kind) or STRUCTS[f"tigon_{kind}"]


def _struct(name, line, reserved=True):
    fields = tuple(_fields(line)) + ((_RESERVED,) if reserved else ())
    made = STRUCTS[f"tigon_{name}"] = type(name, (ctypes.Structure,), {"_fields_": fields})
    return made


def _entry(name, line):
    ENTRIES[name] = _struct(f"{name}_args", line)


STRUCTS["tigon_tensor"], STRUCTS["tigon_context_desc"] = Tensor, ContextDesc

_entry("rms_norm_fwd", "x w y rstd eps:f8 w_offset:f8 casting:i4")
_entry("rms_norm_bwd", "dy x w rstd dx dw w_offset:f8 casting:i4 accumulate_dw:i4 workspace")
_entry("fused_add_rms_norm_fwd", "x residual w s y rstd eps:f8 w_offset:f8 casting:i4")
_entry("fused_add_rms_norm_bwd", "dy ds s w rstd dx dw w_offset:f8 casting:i4 accumulate_dw:i4 workspace")
_entry("layer_norm_fwd", "x w b y mean rstd eps:f8")
_entry("layer_norm_bwd", "dy x w mean rstd dx dw db accumulate_dw:i4 workspace")
_entry("group_norm_fwd", "x w b y mean rstd groups:i8 eps:f8")
_entry("group_norm_bwd", "dy x w mean rstd dx dw db groups:i8 accumulate_dw:i4 workspace")
_entry("modulated_rms_norm_fwd", "x w scale shift y rstd eps:f8 w_offset:f8 casting:i4")
_entry(
    "modulated_rms_norm_bwd",
    "dy x w scale rstd dx dw dscale dshift w_offset:f8 casting:i4 accumulate_dw:i4 accumulate_dscale:i4 workspace",
)
_entry("swiglu_fwd", "a b c gate_mult:f8 down_mult:f8 clamp:f8")
_entry("swiglu_bwd", "dc a b da db gate_mult:f8 down_mult:f8 clamp:f8")
_entry("geglu_fwd", "a b c approx:i4")
_entry("geglu_bwd", "dc a b da db approx:i4")
_entry("relu_squared_fwd", "x y")
_entry("relu_squared_bwd", "dy x dx")
ENTRIES["rope_fwd"] = ENTRIES["rope_bwd"] = _struct(
    "rope_args", "q k cos sin positions q_out k_out error layout:i4 rotary_dim:i8"
)
_entry("embedding_fwd", "table idx y error")
_entry("embedding_bwd", "dy idx dtable error has_padding_idx:i4 padding_idx:i8 accumulate_dtable:i4 workspace")
_entry("softmax_fwd", "x mask y scale:f8 causal:i4")
_entry("softmax_bwd", "dy y dx scale:f8")
_entry("attention_fwd", "q k v o lse scale:f8 causal:i4 window:i8")
_entry("attention_bwd", "d_o q k v o lse dq dk dv scale:f8 causal:i4 window:i8 workspace")
_entry("linear_fwd", "x w b y")
_entry("linear_bwd", "dy x w dx dw db accumulate_dw:i4 workspace")

_struct(
    "cross_entropy_options",
    "weight token_scale has_ignore_index:i4 ignore_index:i8 label_smoothing:f8 lse_square_scale:f8 softcap:f8 "
    "temperature:f8 reduction:i4",
)
_struct("cross_entropy_outputs", "loss token_loss lse z_loss entropy argmax correct error", reserved=False)
_entry(
    "cross_entropy_fwd",
    "logits labels options:cross_entropy_options out:cross_entropy_outputs dlogits dloss grad_scale:f8 workspace",
)
_entry(
    "cross_entropy_bwd",
    "logits labels lse options:cross_entropy_options dloss dlogits error grad_scale:f8 workspace",
)
ENTRIES["fused_linear_cross_entropy_fwd"] = ENTRIES["fused_linear_cross_entropy_bwd"] = _struct(
    "fused_linear_cross_entropy_args",
    "hidden weight bias labels options:cross_entropy_options out:cross_entropy_outputs dloss grad_scale:f8 dhidden "
    "dweight dbias accumulate_dweight:i4 workspace",
)

_struct("adamw_param", "param master grad exp_avg exp_avg_sq weight_decay:f8", reserved=False)
_entry("adamw_step", "params:ptr count:i8 clip_factor lr:f8 beta1:f8 beta2:f8 eps:f8 step:i8")
_entry("adamw_clip", "grads:ptr count:i8 max_norm:f8 norm factor workspace")


def flat(struct, prefix="", base=0):
    """Every field as {name: (offset, type)}; the fields of a nested struct are "<nested>_<name>"."""
    found = {}
    for name, kind in struct._fields_:
        offset = base + getattr(struct, name).offset
        if issubclass(kind, ctypes.Structure) and kind is not Tensor:
            found |= flat(kind, f"{prefix}{name}_", offset)
        else:
            found[prefix + name] = (offset, kind)
    return found
