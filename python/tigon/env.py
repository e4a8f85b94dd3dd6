"""python -m tigon.env: what a report of a bug needs to know of this machine and of this Python."""

import argparse
import importlib.metadata
import json
import os
import platform
import sys

PACKAGES = "torch torch-npu transformers trl peft accelerate liger-kernel deepspeed triton numpy jax apache-tvm-ffi"
DEVICES = "cpu", "cuda", "npu"
VARIABLES = "TIGON_", "OMP_", "KMP_", "GOMP_", "MKL_", "OPENBLAS_", "CUDA_", "ASCEND_", "TORCH_", "PYTORCH_"


def facts() -> dict:
    """Everything that the command prints. PyTorch is not imported."""
    packages = {name: _version(name) for name in PACKAGES.split()}
    return {
        "tigon": _tigon(),
        "python": f"{platform.python_version()} ({sys.executable})",
        "system": f"{platform.platform()}, {len(os.sched_getaffinity(0))} CPUs for this process",
        "packages": {name: version for name, version in packages.items() if version},
        "devices": _devices(),
        "environment": {name: value for name, value in sorted(os.environ.items()) if name.startswith(VARIABLES)},
    }


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _tigon() -> str:
    try:
        import tigon

        return f"{tigon.version()} ({tigon.library_path()})"
    except (ImportError, OSError) as error:
        return f"its library does not load: {error}"


def _devices() -> dict[str, str]:
    """A device's matrix products, or why it is not there."""
    try:
        from tigon._library import Context
    except (ImportError, OSError):
        return {}
    found = {}
    for device in DEVICES:
        try:
            found[device] = Context(device).gemm()
        except Exception as error:
            found[device] = str(error)
    return found


def text(known: dict) -> str:
    lines = []
    for name, value in known.items():
        if isinstance(value, dict):
            lines += [f"{name}:", *(f"  {key}: {each}" for key, each in value.items())] if value else [f"{name}: none"]
        else:
            lines.append(f"{name}: {value}")
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tigon.env",
        description="Prints what a report of a bug needs: versions, devices and variables of the environment whose names "
        f"begin with {', '.join(VARIABLES)}. Nothing is sent anywhere.",
    )
    parser.add_argument("--json", action="store_true", help="as JSON")
    options = parser.parse_args(arguments)
    known = facts()
    print(json.dumps(known, indent=1) if options.json else text(known))
    return 0


if __name__ == "__main__":
    sys.exit(main())
