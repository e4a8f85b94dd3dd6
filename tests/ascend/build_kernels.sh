#!/bin/bash
# tools/build-ascend-kernels: what it says where CANN is not, and which commands it gives to a compiler and a linker of ours. The
# vendor's own have not run it.
set -u
tool=$TIGON_SOURCE/tools/build-ascend-kernels
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
failed=0
unset ASCEND_HOME_PATH

# expect STATUS WHAT-STDERR-CONTAINS ARGUMENT...
expect() {
  local status=$1 sentence=$2
  shift 2
  "$tool" "$@" >"$place/out" 2>"$place/err"
  local got=$?
  if [ $got -ne "$status" ] || { [ -n "$sentence" ] && ! grep -qF -- "$sentence" "$place/err"; }; then
    echo "exit $got, must be $status with \"$sentence\": $(cat "$place/err")" >&2
    failed=1
  fi
}

command -v bisheng >/dev/null && { echo "bisheng is here: this test is for machines without it"; exit 77; }
expect 3 "bisheng, the compiler of CANN, is not here: install CANN's toolkit and source its set_env.sh"

mkdir -p "$place/cann/bin" "$place/cann/include"
export ASCEND_HOME_PATH=$place/cann
# A program that notes its arguments and writes what follows -o.
write_tool() {
  cat >"$place/cann/bin/$1" <<'SH'
#!/bin/bash
echo "$(basename "$0") $*" >>"$(dirname "$0")/../calls"
while [ $# -gt 1 ]; do [ "$1" = -o ] && echo made >"$2"; shift; done
SH
  chmod +x "$place/cann/bin/$1"
}
write_tool bisheng
expect 3 "ld.lld is not beside $place/cann/bin/bisheng" "$place/kernels.o"
write_tool ld.lld
expect 0 "" "$place/new/kernels.o"
grep -qx "export TIGON_ASCEND_KERNELS=$(readlink -f "$place")/new/kernels.o" "$place/out" || { cat "$place/out" >&2; failed=1; }
[ -s "$place/new/kernels.o" ] || { echo "no file of kernels" >&2; failed=1; }
kernels=$(ls "$TIGON_SOURCE"/src/ascend/kernel/*.c | wc -l)
compiled=$(grep -c '^bisheng -x asc --aicore-only --npu-arch=dav-2201 .*-DTIGON_AICORE_DEVICE .*-c src/ascend/kernel/.*\.c -o ' "$place/cann/calls")
[ "$kernels" -eq "$compiled" ] || { echo "$compiled of $kernels kernels were compiled" >&2; failed=1; }
grep -q '^ld.lld -m aicorelinux -Ttext=0 -static ' "$place/cann/calls" || { echo "nothing was linked" >&2; failed=1; }

printf '#!/bin/bash\nexit 1\n' >"$place/cann/bin/ld.lld"
expect 1 "the kernels do not link" "$place/kernels.o"
printf '#!/bin/bash\nexit 1\n' >"$place/cann/bin/bisheng"
expect 1 "does not compile" "$place/kernels.o"
exit $failed
