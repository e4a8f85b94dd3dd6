#!/bin/bash
# Every kernel compiles over the device's side of the dialect, against prototypes as the vendor's reference gives them. It shows
# that names, argument orders and types agree; only the vendor's compiler can show more.
set -u
source_tree=${TIGON_SOURCE:-$(dirname "$0")/../..}
cxx=${CXX:-c++}
command -v "$cxx" >/dev/null || exit 77
failed=0 count=0
for kernel in "$source_tree"/src/ascend/kernel/*.c; do
  count=$((count + 1))
  "$cxx" -x c++ -std=c++17 -Wall -Wextra -Wno-missing-field-initializers -Wno-unused-function -Werror -fsyntax-only \
    -DTIGON_AICORE_DEVICE -I "$source_tree/tests/ascend/device" -I "$source_tree/include" -I "$source_tree/src" "$kernel" || failed=1
done
echo "$count kernels"
[ $count -gt 0 ] && exit $failed
