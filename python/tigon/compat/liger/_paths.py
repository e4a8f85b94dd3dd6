"""Liger-Kernel's module paths below tigon.compat.liger: modules without a file, made from one table."""

import functools
import importlib
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType

from ...torch import operators
from . import _distillation, _divergence, _functional, _grpo_logits, _losses, _models, _modules, _policy, _preference
from . import _heads, _int2, _scaled, _tiled

_NORMS = "LigerRMSNorm LigerRMSNormForGemma LigerRMSNormForGemma2 LigerRMSNormForGemma3 LigerRMSNormForGemma4"
_NORMS += " LigerRMSNormForGlm4 LigerRMSNormForOlmo2 LigerRMSNormForQwen3Next LigerRMSNormForMuseGlimmer"
_NORMS += " LigerRMSNormForMuseGlimmerTextCentered"
_MLPS = "LigerBlockSparseTop2MLP LigerExperts LigerFalconH1SwiGLUMLP LigerHunyuanV1SwiGLUMLP LigerPhi3SwiGLUMLP"
_MLPS += " LigerQwen3MoeSwiGLUMLP LigerSwiGLUMLP LigerSwiGLUMLPForMuseGlimmer"
_FUNCTIONS = (
    "cross_entropy fused_add_rms_norm fused_linear_cross_entropy fused_linear_jsd geglu group_norm layer_norm"
)
_FUNCTIONS += " fused_linear_kl_div"
_FUNCTIONS += " fused_linear_scaled_cross_entropy_tp jsd kl_div modulated_rms_norm qwen2vl_mrope rms_norm rope softmax swiglu tvd"
_LLAMA4 = "apply_liger_llama4_rope_full liger_llama4_text_rotary_pos_emb liger_llama4_vision_rotary_pos_emb"
_SCALED = "LigerFusedLinearScaledCrossEntropyFunction LigerFusedLinearScaledCrossEntropyTPFunction"
_CHUNKED = "cosine cpo dpo grpo jsd kto orpo simpo"
_COSINE = "LigerFusedLinearCosineSimilarity"
_APPLY = "_apply_liger_kernel _apply_liger_kernel_to_instance"

# Path below the root, of a file of Liger-Kernel: its names.
_FILES = {
    "chunked_loss.cosine_similarity_loss": f"{_COSINE}Function {_COSINE}Loss",
    "chunked_loss.cpo_loss": "LigerFusedLinearCPOFunction LigerFusedLinearCPOLoss",
    "chunked_loss.dpo_loss": "LigerFusedLinearDPOFunction LigerFusedLinearDPOLoss",
    "chunked_loss.functional": " ".join(f"liger_fused_linear_{name}" for name in _CHUNKED.split()),
    "chunked_loss.grpo_loss": "LigerFusedLinearGRPOFunction LigerFusedLinearGRPOLoss",
    "chunked_loss.jsd_loss": "LigerFusedLinearJSDFunction LigerFusedLinearJSDLoss",
    "chunked_loss.kto_loss": "LigerFusedLinearKTOFunction LigerFusedLinearKTOLoss",
    "chunked_loss.orpo_loss": "LigerFusedLinearORPOFunction LigerFusedLinearORPOLoss",
    "chunked_loss.simpo_loss": "LigerFusedLinearSimPOFunction LigerFusedLinearSimPOLoss",
    "transformers": "is_transformers_available",
    "transformers.auto_model": "AutoLigerKernelForCausalLM",
    "transformers.cross_entropy": "CrossEntropyOutput LigerCrossEntropyLoss",
    "transformers.experimental.embedding": "LigerEmbedding",
    "transformers.functional": "CrossEntropyOutput " + " ".join(f"liger_{name}" for name in _FUNCTIONS.split()),
    "transformers.fused_add_rms_norm": "LigerFusedAddRMSNorm",
    "transformers.fused_ce_tvd": "LigerFusedCETVDLoss",
    "transformers.fused_linear_cross_entropy": "CrossEntropyOutput LigerFusedLinearCrossEntropyLoss",
    "transformers.fused_linear_jsd": "LigerFusedLinearJSD",
    "transformers.fused_linear_kl_div": "LigerFusedLinearKLDivLoss",
    "transformers.geglu": "LigerGEGLUMLP LigerGEGLUMLPForGemma4",
    "transformers.group_norm": "LigerGroupNorm",
    "transformers.grpo_loss": "triton_grpo_loss",
    "transformers.jsd": "LigerJSD",
    "transformers.kl_div": "LigerKLDIVLoss",
    "transformers.layer_norm": "LigerLayerNorm",
    "transformers.modulated_rms_norm": "LigerModulatedRMSNorm",
    "transformers.llama4_rope": _LLAMA4,
    "transformers.monkey_patch": f"{_APPLY} MODEL_TYPE_TO_APPLY_LIGER_FN",
    "transformers.qwen2vl_mrope": "liger_multimodal_rotary_pos_emb",
    "transformers.rms_norm": _NORMS,
    "transformers.rope": "liger_rotary_pos_emb liger_rotary_pos_emb_gpt_oss liger_rotary_pos_emb_vision",
    "transformers.softmax": "LigerSoftmax",
    "transformers.swiglu": _MLPS,
    "transformers.tiled_mlp": "LigerTiledGEGLUMLP LigerTiledSwiGLUMLP",
    "transformers.tvd": "LigerTVDLoss",
    "transformers.trainer_integration": "_apply_liger_kernel",
    "ops.cross_entropy": "LigerCrossEntropyFunction",
    "ops.experimental.embedding": "LigerEmbeddingFunction",
    "ops.experimental.mm_int8int2": "matmul pack_weights unpack_weights",
    "ops.fused_add_rms_norm": "LigerFusedAddRMSNormFunction",
    "ops.fused_ce_tvd": "LigerFusedCETVDFunction",
    "ops.fused_linear_cross_entropy": "LigerFusedLinearCrossEntropyFunction",
    "ops.fused_linear_jsd": "LigerFusedLinearJSDFunction",
    "ops.fused_linear_kl_div": "LigerFusedLinearKLDivFunction",
    "ops.fused_linear_scaled_cross_entropy": _SCALED,
    "ops.geglu": "LigerGELUMulFunction",
    "ops.group_norm": "LigerGroupNormFunction",
    "ops.grpo_loss": "GrpoLossFunction fused_selective_log_softmax",
    "ops.jsd": "LigerJSDFunction",
    "ops.kl_div": "LigerKLDivLossFunction",
    "ops.layer_norm": "LigerLayerNormFunction",
    "ops.llama4_rope": "LigerLlama4RopeFunction",
    "ops.modulated_rms_norm": "LigerModulatedRMSNormFunction",
    "ops.qwen2vl_mrope": "LigerQwen2VLMRopeFunction",
    "ops.rms_norm": "LigerRMSNormFunction",
    "ops.rope": "LigerRopeFunction",
    "ops.softmax": "LigerSoftmaxFunction",
    "ops.swiglu": "LigerFusedGateUpSiLUMulFunction LigerSiLUMulFunction",
    "ops.tiled_mlp": "LigerTiledMLPFunction apply_tiled_mlp",
    "ops.tvd": "LigerTVDLossFunction",
}
_OBJECTS = {}
_OWN = _distillation, _divergence, _grpo_logits, _policy, _preference, _losses, _functional, _modules, _models
for _own in (*_OWN, _heads, _int2, _scaled, _tiled):
    _OBJECTS |= vars(_own)


def _found(file):
    """{path: names} of what an operator's own file has, where Liger-Kernel has such names."""
    stem, listed = file.__name__.rpartition(".")[2], {}
    for name in vars(file):
        if name.startswith("liger_"):
            listed.setdefault("transformers.functional", []).append(name)
        elif name.startswith("Liger"):
            folder = "ops" if name.endswith("Function") else "transformers"
            listed.setdefault(f"{folder}.{stem}", []).append(name)
    return listed


for _file in operators.FILES:
    for _path, _names in _found(_file).items():
        _FILES[_path] = " ".join([*_FILES.get(_path, "").split(), *_names])
        _OBJECTS |= {name: vars(_file)[name] for name in _names}
_NEED_TRANSFORMERS = set()
if not _models.is_transformers_available():
    _NEED_TRANSFORMERS = {"AutoLigerKernelForCausalLM", "MODEL_TYPE_TO_APPLY_LIGER_FN"}


def _late(module, name):
    """What needs transformers, and apply_liger_kernel_to_*."""
    if name == "AutoLigerKernelForCausalLM":
        return importlib.import_module(f"{__package__}._auto").AutoLigerKernelForCausalLM
    try:
        return _models.__getattr__(name)
    except AttributeError:
        raise AttributeError(f"module {module!r} has no attribute {name!r}") from None


def _fill(module, under):
    """Gives the module the names of all files under a path: a package's, or one file's."""
    names = {name for path, listed in _FILES.items() if f"{path}.".startswith(under) for name in listed.split()}
    if "_apply_liger_kernel_to_instance" in names:
        names |= {f"apply_liger_kernel_to_{model_type}" for model_type in _models.LIGER_TYPES}
    vars(module).update({name: _OBJECTS[name] for name in names & _OBJECTS.keys()})
    if under.startswith("chunked_loss."):
        vars(module).update({name: _distillation.CHUNKED[name] for name in names & _distillation.CHUNKED.keys()})
    module.__all__ = sorted(names - _NEED_TRANSFORMERS)
    module.__dir__ = lambda: sorted({*vars(module), *module.__all__})
    if names - _OBJECTS.keys():
        module.__getattr__ = functools.partial(_late, module.__name__)


def build(root):
    """Fills the module `root`, and makes those below it."""
    _fill(root, "")
    parents = {path.rpartition(".")[0] for path in _FILES} - {""}
    for path in sorted({*parents, *_FILES}):
        name = f"{root.__name__}.{path}"
        module = ModuleType(name, f"Liger-Kernel's {path}, as far as Tigon has it.")
        module.__spec__ = ModuleSpec(name, None, is_package=path in parents)
        module.__package__ = name if path in parents else name.rpartition(".")[0]
        if path in parents:
            module.__path__ = []
        _fill(module, f"{path}.")
        sys.modules[name] = module
        parent, _, child = name.rpartition(".")
        setattr(sys.modules[parent], child, module)
