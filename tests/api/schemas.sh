#!/usr/bin/env bash
# The descriptions of all entries are those of schemas.txt, which was read against include/tigon/op/*.h field by field: a change
# of a contract shows here. `tests/api/schemas.sh --write` takes over what the library says now.
. "$(dirname "$0")/../cli/lib.bash"
golden="$(dirname "$0")/schemas.txt"
ops=$(sed -nE 's/^TIGON_(SLOT|COMPOSITE)\(([a-z_0-9]+), .*/\2/p' "$(dirname "$0")/../../src/ops.def" | uniq)

for op in $ops; do
  run list "$op" --schema
  expect_status 0 "tigon list $op --schema"
  grep -Ev '^(argument  .*)?$' "$scratch/out" | sed 's/ *$//' >>"$scratch/all"
done
[ "${1:-}" = --write ] && cp "$scratch/all" "$golden"
diff -u "$golden" "$scratch/all" || fail "the descriptions are not those of tests/api/schemas.txt"
finish
