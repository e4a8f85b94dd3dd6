#!/usr/bin/env bash
# tigon env: every part is there, and every variable that the code reads is known, no other one.
. "$(dirname "$0")/lib.bash"
cd "$(dirname "$0")/../.." || exit 1

run env
expect_status 0 "tigon env"
for part in tigon system drivers devices environment; do
  grep -qx "$part:" "$scratch/out" || fail "tigon env has no $part"
done
for line in 'commit: [0-9a-f]\{12\}$\|commit: not known$' 'compiler: [A-Z].* [0-9]' 'build: .*CPU variants scalar' 'os: .*Linux' 'cpu: ..* [0-9]* cores' \
  'cuda: ' 'opencl: ' 'cpu: [0-9]* threads; variant [a-z0-9_]* of .*; GEMM ..*' '(OpenCL.s kernels): '; do
  grep -q "^  $line" "$scratch/out" || fail "tigon env has no line $line: $(cat "$scratch/out")"
done
if git rev-parse --short=12 HEAD >"$scratch/commit" 2>/dev/null && grep -q "commit: [0-9a-f]" "$scratch/out"; then
  git cat-file -e "$(sed -n 's/^  commit: //p' "$scratch/out")" || fail "tigon env names a commit that is none"
fi

# What the code reads, by its string.
grep -rhoE '"TIGON_[A-Z_]+"' src apps python --include=*.c --include=*.h --include=*.py | tr -d '"' |
  grep -vE '^TIGON_(OK|ERROR_.*|)$' | sort -u >"$scratch/read"
sed -n '/ours\[\] = {/,/};/p' src/core/environment.c | grep -oE 'TIGON_[A-Z_]+' | sort -u >"$scratch/listed"
cmp -s "$scratch/read" "$scratch/listed" || fail "the code reads other variables: $(diff "$scratch/read" "$scratch/listed")"

export OPENBLAS_NUM_THREADS=3 TIGON_GEMM=builtin TIGON_GEM=typo TIGON_CPUS=$'\033[31m' TIGON_CPU=abacus OMP_NUM_THREADS=1 HF_TOKEN=secret
run env --json
expect_status 0 "tigon env --json"
expect_json 'j["environment"]["TIGON_GEMM"] == "builtin" and j["environment"]["OMP_NUM_THREADS"] == "1" and j["environment"]["OPENBLAS_NUM_THREADS"] == "3"' variables
expect_json 'set(j["unknown"]) >= {"TIGON_GEM", "TIGON_CPUS"} and "TIGON_CPU" not in j["unknown"]' unknown
expect_json '"abacus" in j["devices"]["cpu"] and j["devices"]["ref"].startswith("1 threads; variant ref of ref; ")' devices
grep -q secret "$scratch/out" && fail "tigon env tells a secret"
run env
grep -q $'\033' "$scratch/out" && fail "a variable steers the terminal"
grep -qF 'TIGON_CPUS: \x1b[31m' "$scratch/out" || fail "no TIGON_CPUS"
fake=$(dirname "$TIGON")/tests/fake-acl_rt
if [ -d "$fake" ]; then
  LD_LIBRARY_PATH=$fake TIGON_ASCEND_KERNELS=$fake/kernels.o run env --json
  expect_json 'j["drivers"]["npu"] == "libacl_rt.so" and "variant dav-2201" in j["devices"]["npu:0"]' "a device's driver"
fi
run env x
expect_status 2 "tigon env x"
finish
