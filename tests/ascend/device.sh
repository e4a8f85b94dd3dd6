#!/bin/bash
# ctest: slow timeout=900
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

entries=$(grep -hoE '^[A-Z]+_KERNEL\([a-z_0-9]*' "$source_tree"/src/ascend/kernel/*.[ch] | cut -d'(' -f2 | sort)
# shared DIRECTORY : the names that its objects have for others and that are no kernel's, the commonest first
shared() {
  nm --defined-only --extern-only "$1"/*.o | awk 'NF == 3 {print $NF}' | sort | uniq -c | sort -rn |
    awk '{print $2 " in " $1 " files"}' | grep -vxF "$(printf '%s in 1 files\n' $entries)"
}
# link DIRECTORY : its objects into one file, and that into a runtime of ours
link() {
  ld -r "$1"/*.o -o "$1/kernels.out" && echo "fake kernels" >"$1/kernels" &&
    "$cc" -shared -fPIC -O1 -ffp-contract=off -std=gnu17 -D_GNU_SOURCE -I "$source_tree/include" -I "$source_tree/src" \
      "$here/fake/acl.c" "$here/device/standin.c" -x none "$1/kernels.out" -o "$1/libacl_rt.so" -lm -ldl
}
# check DIRECTORY ORDER WORD... : `tigon check` on the linked kernels, whose pipes run in that order
check() {
  STANDIN_ORDER=$2 LD_LIBRARY_PATH=$1 TIGON_ASCEND_KERNELS=$1/kernels "$TIGON" check "${@:3}" --small --device npu >"$place/log" 2>&1
}

objects "$place/asc" -fsyntax-only || { echo "as -x asc: a kernel does not compile" >&2; failed=1; } # UB as an array
for level in 1 2; do
  to=$place/O$level
  objects "$to" "-O$level" -DTIGON_AICORE_CCE || { echo "-O$level: a kernel does not compile" >&2; failed=1; continue; }

  # One name with two bodies: the linker would keep one of them. So no file has a name for others but its kernels'.
  more=$(shared "$to")
  [ -z "$more" ] || { printf -- '-O%s: beside the kernels, the objects define\n%s\n' "$level" "$(head -n 20 <<<"$more")" >&2; failed=1; }

  link "$to" || { echo "-O$level: the kernels do not link" >&2; failed=1; continue; }
  nm -D --defined-only "$to/libacl_rt.so" | awk '{print $NF}' | sort >"$to/names"
  missing=$(comm -23 <(echo "$entries") "$to/names")
  [ -z "$missing" ] || { echo "-O$level: not in the linked file: $missing" >&2; failed=1; }
done

# Two mistakes of before are seen: helpers that other files see, and a flag that is set before its last wait is over.
mkdir -p "$place/wrong/src" "$place/wrong/A" "$place/wrong/B"
cp -r "$source_tree/src/ascend" "$place/wrong/src"
sed -i 's/^#define AICORE static /#define AICORE /' "$place/wrong/src/ascend/aicore_device.h"
for kernel in rms_norm_fwd layer_norm_fwd; do
  "$cxx" -I "$place/wrong/src" "${words[@]}" -O1 -DTIGON_AICORE_CCE -c "$source_tree/src/ascend/kernel/$kernel.c" \
    -o "$place/wrong/A/$kernel.o" || failed=1
done
shared "$place/wrong/A" | grep -q 'rows_of_tile.* in 2 files' ||
  { echo "helpers without \`static\` are not seen" >&2; failed=1; }
cp "$source_tree/src/ascend/aicore_device.h" "$place/wrong/src/ascend"
sed -i '/^AICORE void stage_again/,/^}/{/in_ready/d}' "$place/wrong/src/ascend/kernel/norm.h"
cp "$place"/O2/*.o "$place/wrong/B"
"$cxx" -I "$place/wrong/src" "${words[@]}" -O2 -DTIGON_AICORE_CCE -c "$source_tree/src/ascend/kernel/norm_bwd.c" \
  -o "$place/wrong/B/norm_bwd.o" && link "$place/wrong/B" || failed=1
[ -n "${TIGON:-}" ] || exit $failed
if check "$place/wrong/B" v rms_norm --dtype f32 --part 1/5 ||
  ! grep -q 'norm_bwd, .*: flag V->MTE2 id 2 is set again' "$place/log"; then
  echo "a flag that is set again is not seen" >&2
  failed=1
fi

# run LEVEL ORDER WORD...
run() {
  check "$place/O$1" "${@:2}" || {
    echo "-O$1, order $2: tigon check ${*:3}:" >&2
    grep -v ' 0  *[01]\.[0-9]*$' "$place/log" | head -n 12 >&2
    failed=1
  }
  tail -n 1 "$place/log"
}
operators=(rms_norm layer_norm group_norm fused_add_rms_norm softmax swiglu)
run 1 v "${operators[@]}" --dtype f32
run 2 eager "${operators[@]}" --dtype bf16
run 1 mte2 "${operators[@]}" --dtype f16 --part 1/5
run 2 mte3 "${operators[@]}" --dtype bf16 --part 2/5
run 2 random "${operators[@]}" --dtype f32 --part 3/5
# The simulator's other operators, so that a new one is here without being named.
others=$("$TIGON" list | awk '/^[a-z]/ {op = $1} / ascend-sim / {print op}' |
  grep -vxF "$(printf '%s\n' "${operators[@]}")")
if [ -n "$others" ]; then
  run 1 v $others --part 1/5
else
  echo "tigon list names no other operator of the simulator" >&2
  failed=1
fi
# Arithmetic that flushes denormal numbers costs what is one, and nothing else: a clamp works as before.
STANDIN_FLUSH=1 check "$place/O2" eager swiglu --dtype f32
tail -n 1 "$place/log"
if ! grep -q '^[1-9][0-9]* passed' "$place/log" || grep '^FAILED' "$place/log" | grep -v /denormal/ >&2; then
  echo "-O2, denormal numbers flushed: more than they fails, or nothing ran" >&2
  failed=1
fi
exit $failed
