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
# compiled WORDS: every kernel was, with these words first and the common ones, and none with flags of the compiler's own
compiled() {
  local count
  count=$(grep -c "^bisheng $1 .*-O2 .*-ffp-contract=off .*-DTIGON_AICORE_DEVICE .*-c src/ascend/kernel/.*\.c -o " "$place/cann/calls")
  [ "$kernels" -eq "$count" ] || { echo "$count of $kernels kernels were compiled with $1" >&2; failed=1; }
  ! grep -q -- --cce-auto-sync "$place/cann/calls" || { echo "--cce-auto-sync was given" >&2; failed=1; }
  grep -q '^ld.lld -m aicorelinux -Ttext=0 -static ' "$place/cann/calls" || { echo "nothing was linked" >&2; failed=1; }
  rm "$place/cann/calls"
}
compiled "-x asc --aicore-only --npu-arch=dav-2201"

# A bisheng before 8.5, which knows no `asc`; then a CANN that says that it is older than all of that; and no bisheng that is known.
sed -i '2i case "$*" in *"-x asc"*) exit 1 ;; esac' "$place/cann/bin/bisheng"
mkdir "$place/cann/x86_64-linux"
echo "version=8.2.RC1" >"$place/cann/x86_64-linux/ascend_toolkit_install.info"
expect 0 "" "$place/kernels.o"
compiled "-x cce --cce-aicore-arch=dav-c220-vec --cce-aicore-only -DTIGON_AICORE_CCE"
echo "version=7.0.1" >"$place/cann/x86_64-linux/ascend_toolkit_install.info"
expect 3 "CANN is 7.0.1, must be 8.0 or later" "$place/kernels.o"
rm "$place/cann/x86_64-linux/ascend_toolkit_install.info"
cp "$place/cann/bin/bisheng" "$place/older"
sed -i '2i case "$*" in *"-x cce"*) echo no such language >\&2; exit 1 ;; esac' "$place/cann/bin/bisheng"
expect 3 "compiles an empty kernel neither with" "$place/kernels.o"
expect 3 "no such language" "$place/kernels.o"
cp "$place/older" "$place/cann/bin/bisheng"

printf '#!/bin/bash\nexit 1\n' >"$place/cann/bin/ld.lld"
expect 1 "the kernels do not link" "$place/kernels.o"
sed -i '2i case "$*" in *kernel/*.c*) exit 1 ;; esac' "$place/cann/bin/bisheng"
expect 1 "does not compile" "$place/kernels.o"
exit $failed
