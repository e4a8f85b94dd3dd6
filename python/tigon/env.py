"""python -m tigon.env: what a report of a bug needs to know of this machine and of this Python."""

import argparse
import ctypes
import importlib.metadata
import json
import platform
import sys

PACKAGES = "torch torch-npu transformers trl peft accelerate liger-kernel deepspeed triton numpy jax apache-tvm-ffi"


def facts() -> dict:
    """Everything that the command prints. PyTorch is not imported."""
    packages = {name: _version(name) for name in PACKAGES.split()}
    return _of_library() | {
        "python": f"{platform.python_version()} ({sys.executable})",
        "packages": {name: version for name, version in packages.items() if version},
    }


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _of_library() -> dict:
    """What tigon_environment() says, part by part; `tigon env` prints the same."""
    try:
        from tigon import _library
    except (ImportError, OSError) as error:
        return {"tigon": f"its library does not load: {error}"}
    known: dict = {"tigon": {"library": _library.path}}

    @ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p)
    def add(_, part, name, value):
        part, name, value = (each.decode(errors="replace") for each in (part, name, value))
        known.setdefault(part, {})[name] = value

    _library.library.tigon_environment.restype = None
    _library.library.tigon_environment(add, None)
    return known


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
        description="Prints what a report of a bug needs: what `tigon env` says, and the versions of Python and its "
        "packages. Nothing is sent anywhere.",
    )
    parser.add_argument("--json", action="store_true", help="as JSON")
    options = parser.parse_args(arguments)
    known = facts()
    print(json.dumps(known, indent=1) if options.json else text(known))
    return 0


if __name__ == "__main__":
    sys.exit(main())
