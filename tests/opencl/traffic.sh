#!/usr/bin/env bash
# ctest: slow timeout=300
# The bytes that kernels move, counted by oclgrind, are those of docs/opencl.md.
exec python3 "$(dirname "$0")/traffic.py" --check
