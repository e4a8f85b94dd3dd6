#!/usr/bin/env bash
# ctest: slow
# Three products of f32 by CLBlast, on the first device. They are few because a CPU's driver takes seconds to compile each of its kernels.
. "$(dirname "$0")/../cli/lib.bash"
export TIGON_GEMM=clblast TIGON_OPENCL_TRUST=1 TIGON_OPENCL_CACHE=
run check linear --device opencl --variant opencl-items --dtype f32 --small --part 1/61
if grep -q -e 'libclblast.so.1 is not found' -e 'device opencl is not there' "$scratch/err"; then
  echo "skipped: $(cat "$scratch/err")" >&2
  exit 77
fi
expect_status 0 "tigon check with CLBlast"
grep -q '^[1-9][0-9]* passed, 0 failed' "$scratch/out" || fail "$(tail -n 3 "$scratch/out")"
finish
