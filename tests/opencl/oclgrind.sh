#!/usr/bin/env bash
# ctest: slow timeout=900
# Tiny cases of kernels of each kind in oclgrind, by group: it meets no race of work-items, no access beside a buffer and no wrong call.
# divergence is not among them: oclgrind 21.10 computes a branch of it wrongly, unless nothing is optimised, which takes minutes more.
. "$(dirname "$0")/../cli/lib.bash"
# The program oclgrind goes before the loader, where a library that is found at run time does not look: so as a driver of the loader's.
oclgrind=$(command -v oclgrind) && oclgrind=$(dirname "$oclgrind")/../lib/oclgrind/liboclgrind-rt-icd.so
[ -f "$oclgrind" ] || { echo "skipped: oclgrind is not here" >&2; exit 77; }
mkdir "$scratch/vendors"
echo "$oclgrind" >"$scratch/vendors/oclgrind.icd"
export OCL_ICD_VENDORS=$scratch/vendors OCLGRIND_DATA_RACES=1 OCLGRIND_CHECK_API=1 TIGON_OPENCL_CACHE=$scratch/cache TIGON_OPENCL_TRUST=1
# It lacks an intrinsic that clang writes where it inlines a function.
export OCLGRIND_BUILD_OPTIONS="-Dinline=__attribute__((noinline)) -Dinlined=inline"
run check rms_norm layer_norm softmax sparsemax cross_entropy embedding swiglu rope linear attention fused_moe adamw \
  --device opencl --variant opencl-groups --dtype f32 --small --part 1/101
expect_status 0 "tigon check in oclgrind"
[ ! -s "$scratch/err" ] || fail "$(head -n 20 "$scratch/err")"
finish
