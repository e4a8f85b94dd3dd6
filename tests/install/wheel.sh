#!/bin/bash
# Installs a wheel into an empty environment, first without anything else, then with PyTorch and transformers for README.md's
# Python, whose output has to be README.md's: tests/install/wheel.sh build/dist/tigon-*.whl
set -eu
wheel=$(realpath "$1")
readme=$(realpath "$(dirname "$0")/../../README.md")
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch"
unset TIGON_LIBRARY PYTHONPATH LD_LIBRARY_PATH

"${PYTHON:-python3}" -m venv env
env/bin/pip install --quiet --disable-pip-version-check --no-deps "$wheel"
echo "== alone: $(env/bin/python -c 'import tigon; print(tigon.version(), tigon.library_path())')"
env/bin/python -m tigon.env
maps=$(env/bin/python -c 'import tigon; tigon.library_path(), tigon.version(); print(open("/proc/self/maps").read())')
grep -q "$scratch/.*/tigon/lib/libgomp.so.1" <<<"$maps" || { echo "the wheel's OpenMP runtime is not the one that is loaded"; exit 1; }

echo "== README.md's Python, with its output"
env/bin/pip install --quiet --disable-pip-version-check "$wheel[hf]"
awk '/^```python$/ { inside = 1; next } /^```/ { inside = 0 } inside' "$readme" >readme.py
awk '/^```text$/ { inside = 1; next } /^```/ { inside = 0 } inside' "$readme" >wanted
[ -s readme.py ] && [ -s wanted ]
env/bin/python readme.py | diff wanted -
echo "passed"
