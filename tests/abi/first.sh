#!/bin/bash
# ctest: slow
# What the first ABI that is promised has, today's has too (docs/abi.md); and a program built against its headers runs with today's
# library. The headers and the list of that time are git's.
set -eu
first=01b6f0b83b20 # attention's `exact`, the last field that took a place which was not reserved
source=${TIGON_SOURCE:-.} build=${TIGON_BUILD:-build}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
if ! git -C "$source" cat-file -e "$first^{commit}" 2>/dev/null; then
  echo "skipped: the history does not reach back to $first"
  exit 77
fi

# Each line with its struct or enum. What was reserved may have become a field.
entries() {
  awk '/^[a-z_]+(: [0-9]+ bytes)?$/ { of = $1 } /^TIGON_/ { $2 = $2 == "ffi" ? "" : $2; of = "" } /^==/ { of = "" } NF { print of, $0 }' |
    sed 's/  */ /g'
}
git -C "$source" show "$first:tests/abi/tigon.txt" | tail -n +2 | entries >"$scratch/then"
tail -n +2 "$source/tests/abi/tigon.txt" | entries >"$scratch/now"
lost=$(grep -vxFf "$scratch/now" "$scratch/then" | grep -v ' reserved: ' || true)
[ -z "$lost" ] || { echo "gone or changed since the first ABI:" && echo "$lost" && exit 1; }
echo "$(wc -l <"$scratch/then") functions, fields and numbers of the first ABI are still there"

git -C "$source" archive "$first" include | tar -x -C "$scratch"
cat "$scratch"/include/tigon/op/*.h | tr '\n' ' ' |
  grep -oE 'tigon_status tigon_[a-z0-9_]+\( *tigon_context \*[a-z]+, *const tigon_[a-z0-9_]+_args \*[a-z]+\)' |
  sed -E 's/tigon_status tigon_([a-z0-9_]+)\(.*const (tigon_[a-z0-9_]+) \*.*/ENTRY(\1, \2)/' >"$scratch/entries.def"
"${CC:-cc}" -std=gnu11 -Wall -Wno-cast-function-type -I "$scratch/include" -I "$scratch" "$source/tests/abi/program.c" \
  -o "$scratch/program" -L "$build" -ltigon -lm -Wl,-rpath,"$build"
"$scratch/program"
