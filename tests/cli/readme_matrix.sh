#!/usr/bin/env bash
# README.md's support matrix is what `tigon list --markdown` prints.
. "$(dirname "$0")/lib.bash"
readme=$(dirname "$0")/../../README.md
[ -f "$readme" ] || { echo "no README.md" >&2; exit 77; }

run list --markdown
expect_status 0 "tigon list --markdown"
sed -n '/^<!-- tigon list --markdown -->$/,/^<!-- end -->$/p' "$readme" | sed '1d;$d' | sed '/^$/d' >"$scratch/readme"
[ -s "$scratch/readme" ] || fail "README.md has no block <!-- tigon list --markdown --> ... <!-- end -->"
diff -u "$scratch/readme" "$scratch/out" >&2 || fail "README.md's matrix is old: put the output of tigon list --markdown there"
finish
