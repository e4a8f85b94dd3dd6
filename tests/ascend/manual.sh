#!/bin/bash
# The commands of docs/ascend-simulator.md run as written, and the broken kernel's report is the one that it shows.
# ctest: slow
set -eu
manual=$TIGON_SOURCE/docs/ascend-simulator.md
[ -f "$TIGON_BUILD/libtigon_internal.a" ] || exit 77
command -v cc >/dev/null || exit 77
# A library that needs more at the link than the manual says: sanitizers, coverage, clang's OpenMP.
if nm "$TIGON_BUILD/libtigon_internal.a" 2>/dev/null | grep -qE '__asan_|__tsan_|__gcov_|__kmpc_'; then exit 77; fi
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place"
ln -s "$TIGON_SOURCE/include" "$TIGON_SOURCE/src" "$TIGON_SOURCE/README.md" .
ln -s "$TIGON_BUILD" build
sed -n '/^```sh$/,/^```$/ { /^```/d; p }' "$manual" >commands
sed -n '/^```text$/,/^```$/ { /^```/d; p }' "$manual" >expected
bash -eu commands >output
cat output
grep -qE '^y\[7\] = 14; 4000012 bytes in, 4000012 out, [0-9.]+ us by the model$' output
grep -qxFf expected output
grep -q '"ph":"X","name":"v_mul_f32"' trace.json
grep -q ' 0 failed' output
