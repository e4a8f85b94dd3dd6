#!/bin/bash
# ctest: timeout=900
# The device's side of the dialect (ascend/aicore_device.h) over intrinsics of ours (device/standin.c): every kernel compiles both
# ways in which tools/build-ascend-kernels compiles it; the objects have no name to share but their kernels'; linked into one file,
# as that tool does, they pass the check. At -O1 compilers leave functions out of line that they inline at -O2. Only the vendor's
# compiler and a device can show more.
set -u
source_tree=$(cd "${TIGON_SOURCE:-$(dirname "$0")/../..}" && pwd)
cc=${CC:-cc} cxx=${CXX:-c++}
command -v "$cxx" >/dev/null && command -v "$cc" >/dev/null || exit 77
here=$source_tree/tests/ascend
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
failed=0
words=(-x c++ -std=c++17 -Wall -Wextra -Wno-missing-field-initializers -Wno-unused-function -Werror -ffp-contract=off -fPIC
  -DTIGON_AICORE_DEVICE -include "$here/device/intrinsics.h" -I "$source_tree/include" -I "$source_tree/src")

# objects DIRECTORY FLAG... : every kernel, as many at a time as there are cores
objects() {
  local to=$1
  shift
  mkdir -p "$to"
  printf '%s\n' "$source_tree"/src/ascend/kernel/*.c |
    xargs -P "$(nproc)" -I{} bash -c '"${@:3}" -c "$1" -o "$2/$(basename "$1" .c).o"' _ {} "$to" "$cxx" "${words[@]}" "$@"
}

objects "$place/asc" -O0 || { echo "as -x asc: a kernel does not compile" >&2; failed=1; } # UB as an array
entries=$(grep -ho '^AICORE_KERNEL([a-z_0-9]*' "$source_tree"/src/ascend/kernel/*.[ch] | cut -d'(' -f2 | sort)
for level in 1 2; do
  to=$place/O$level
  objects "$to" "-O$level" -DTIGON_AICORE_CCE || { echo "-O$level: a kernel does not compile" >&2; failed=1; continue; }

  # One name with two bodies: the linker would keep one of them. So no file has a name for others but its kernels'.
  more=$(nm --defined-only --extern-only "$to"/*.o | awk 'NF == 3 {print $NF}' | sort | uniq -c | sort -rn |
    awk '{print $2 " in " $1 " files"}' | grep -vxF "$(printf '%s in 1 files\n' $entries)")
  [ -z "$more" ] || { printf -- '-O%s: beside the kernels, the objects define\n%s\n' "$level" "$(head -n 20 <<<"$more")" >&2; failed=1; }

  ld -r "$to"/*.o -o "$to/kernels.o" &&
    "$cc" -shared -fPIC -O1 -ffp-contract=off -std=gnu17 -D_GNU_SOURCE -I "$source_tree/include" -I "$source_tree/src" \
      "$here/fake/acl.c" "$here/device/standin.c" "$to/kernels.o" -o "$to/libacl_rt.so" -lm -ldl ||
    { echo "-O$level: the kernels do not link" >&2; failed=1; continue; }
  nm -D --defined-only "$to/libacl_rt.so" | awk '{print $NF}' | sort >"$to/names"
  missing=$(comm -23 <(echo "$entries") "$to/names")
  [ -z "$missing" ] || { echo "-O$level: not in the linked file: $missing" >&2; failed=1; }
  echo "fake kernels" >"$to/kernels"
done

# run LEVEL ORDER WORD... : a check in which the pipes run in that order
run() {
  local level=$1 order=$2
  shift 2
  STANDIN_ORDER=$order LD_LIBRARY_PATH=$place/O$level TIGON_ASCEND_KERNELS=$place/O$level/kernels \
    "$TIGON" check "$@" --small --device npu >"$place/log" 2>&1 || {
    echo "-O$level, order $order: tigon check $*:" >&2
    grep -v ' 0  *[01]\.[0-9]*$' "$place/log" | head -n 12 >&2
    failed=1
  }
  tail -n 1 "$place/log"
}
[ -n "${TIGON:-}" ] || exit $failed
operators=(rms_norm layer_norm group_norm fused_add_rms_norm softmax swiglu)
run 1 v "${operators[@]}" --dtype f32
run 2 eager "${operators[@]}" --dtype bf16
run 1 mte2 "${operators[@]}" --dtype f16 --part 1/4
run 2 mte3 "${operators[@]}" --dtype bf16 --part 2/4
run 2 random "${operators[@]}" --dtype f32 --part 3/4
run 1 v geglu relu_squared rope embedding cross_entropy adamw --part 1/4
# Arithmetic that flushes denormal numbers costs what is one, and nothing else: a clamp works as before.
STANDIN_FLUSH=1 LD_LIBRARY_PATH=$place/O2 TIGON_ASCEND_KERNELS=$place/O2/kernels \
  "$TIGON" check swiglu --dtype f32 --small --device npu >"$place/log" 2>&1
tail -n 1 "$place/log"
if ! grep -q '^[1-9][0-9]* passed' "$place/log" || grep '^FAILED' "$place/log" | grep -v /denormal/ >&2; then
  echo "-O2, denormal numbers flushed: more than they fails, or nothing ran" >&2
  failed=1
fi
exit $failed
