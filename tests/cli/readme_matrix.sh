#!/usr/bin/env bash
# README.md's support matrix is what `tigon list --markdown` prints; a build without CUDA kernels has all of it but their column.
. "$(dirname "$0")/lib.bash"
readme=$(dirname "$0")/../../README.md
[ -f "$readme" ] || { echo "no README.md" >&2; exit 77; }

run list --markdown
expect_status 0 "tigon list --markdown"
sed -n '/^<!-- tigon list --markdown -->$/,/^<!-- end -->$/p' "$readme" | sed '1d;$d' | sed '/^$/d' >"$scratch/readme"
[ -s "$scratch/readme" ] || fail "README.md has no block <!-- tigon list --markdown --> ... <!-- end -->"
if ! grep -q '| cuda |' "$scratch/out"; then
  awk -F' *[|] *' -v OFS=' | ' 'NR == 1 { for (i = 2; i < NF; ++i) if ($i == "cuda") gone = i }
    NR == 2 { sub(/---[|]/, ""); print; next }
    { line = "|"; for (i = 2; i < NF; ++i) if (i != gone) line = line " " $i " |"; print line }' "$scratch/readme" >"$scratch/less"
  mv "$scratch/less" "$scratch/readme"
fi
diff -u "$scratch/readme" "$scratch/out" >&2 || fail "README.md's matrix is old: put the output of tigon list --markdown there"
finish
