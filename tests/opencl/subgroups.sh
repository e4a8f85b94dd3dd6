#!/usr/bin/env bash
# ctest: slow
# The variant with subgroups, which no device here has, at least compiles: each program, by clang.
set -u
: "${TIGON_SOURCE:?set TIGON_SOURCE to the tree}"
clang=$(command -v clang-14) || { echo "skipped: clang-14 is not here" >&2; exit 77; }
failed=0
for file in "$TIGON_SOURCE"/src/opencl/kernel/*.cl; do
  if grep -q "#include \"${file##*/}\"" "$TIGON_SOURCE"/src/opencl/kernel/*; then continue; fi # a part of others
  "$clang" -x cl -cl-std=CL2.0 -target spir64 -fsyntax-only -Xclang -finclude-default-header -Xclang -cl-ext=+cl_khr_subgroups -I "$TIGON_SOURCE/src" \
    -Dcl_khr_subgroups=1 -D__OPENCL_VERSION__=200 -Wall -Werror -Wno-unused-function -Wno-macro-redefined -Wno-builtin-macro-redefined \
    -DT=3 -DF32=1 -DF16=2 -DBF16=3 -DLANES=4 -DGROUP=64 -DSUBGROUPS=2 "$file" || failed=1
done
exit $failed
