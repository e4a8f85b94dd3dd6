"""tigon.compat.liger has Liger-Kernel's paths and signatures: liger_signatures.txt, recorded from release 0.8.5."""

import importlib.util
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import tigon.compat.liger

SIGNATURES = Path(__file__).with_name("liger_signatures.txt").read_text().splitlines()


@pytest.mark.parametrize("line", SIGNATURES, ids=lambda line: line.partition("(")[0])
def test_signature(line):
    path, name, signature = re.fullmatch(r"(\S+) ([\w.]+)(\(.*\))", line).groups()
    found = importlib.import_module(f"tigon.compat.liger.{path}")
    for part in name.split("."):
        found = getattr(found, part)
    ours = inspect.signature(found)
    plain = [p.replace(annotation=p.empty) for p in ours.parameters.values() if p.name != "self"]
    assert str(ours.replace(parameters=plain, return_annotation=ours.empty)) == signature


def test_all_apply_functions_are_recorded():
    recorded = {line.split("_to_")[1].partition("(")[0] for line in SIGNATURES if " apply_liger_kernel_to_" in line}
    assert recorded == set(tigon.compat.liger._models.LIGER_TYPES)


def run(code):
    """The words that a new interpreter prints."""
    places = [str(Path(tigon.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, places))}
    command = [sys.executable, "-c", code]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.split()


def test_paths_as_a_process_begins():
    """Nothing but torch is imported before it is needed; transformers is not."""
    code = """
import sys
import tigon.compat.liger.transformers.rms_norm as m
from tigon.compat.liger.ops.experimental import embedding
import tigon.compat.liger as l
l.apply_liger_kernel_to_llama, dir(l)
print(m.LigerRMSNorm.__name__, embedding.__name__, l.transformers.functional.liger_swiglu.__name__)
print("transformers" in sys.modules)"""
    assert run(code) == ["LigerRMSNorm", "tigon.compat.liger.ops.experimental.embedding", "liger_swiglu", "False"]


def test_specs():
    assert importlib.util.find_spec("tigon.compat.liger.ops.swiglu").name == "tigon.compat.liger.ops.swiglu"


@pytest.mark.parametrize("module", ["tigon.compat.liger", "tigon.compat.liger.transformers"])
def test_star(module):
    wanted = [
        "AutoLigerKernelForCausalLM",
        "LigerRMSNorm",
        "apply_liger_kernel_to_llama",
        "apply_liger_kernel_to_pixtral",
    ]
    names = {}
    exec(f"from {module} import *", names)
    assert names.keys() >= {*wanted, "_apply_liger_kernel_to_instance", "MODEL_TYPE_TO_APPLY_LIGER_FN"}
    assert set(dir(sys.modules[module])) >= set(wanted)
    assert "transformers" not in names and "torch" not in names


def test_what_is_missing():
    with pytest.raises(ImportError, match="cannot import name 'LigerExpertParallelFusedMoe'"):
        from tigon.compat.liger.transformers import LigerExpertParallelFusedMoe  # noqa: F401
    with pytest.raises(AttributeError, match="'tigon.compat.liger' has no attribute 'rms_norm_forward'"):
        tigon.compat.liger.rms_norm_forward
    with pytest.raises(ImportError):
        importlib.import_module("tigon.compat.liger.megatron")


def test_a_file_has_its_own_names_alone():
    from tigon.compat.liger.transformers import geglu

    assert geglu.__all__ == ["LigerGEGLUMLP", "LigerGEGLUMLPForGemma4"]
    assert not hasattr(geglu, "apply_liger_kernel_to_llama")
