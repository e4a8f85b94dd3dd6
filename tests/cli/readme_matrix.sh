#!/usr/bin/env bash
# README.md's support matrix is what `tigon list --markdown` prints. A build without the kernels of a backend has no column for it.
. "$(dirname "$0")/lib.bash"
readme=$(dirname "$0")/../../README.md
[ -f "$readme" ] || { echo "no README.md" >&2; exit 77; }

run list --markdown
expect_status 0 "tigon list --markdown"
head -n 1 "$scratch/out" | grep -q '| cpu |.* ascend-sim |' || fail "tigon list --markdown lacks cpu or ascend-sim"
sed -n '/^<!-- tigon list --markdown -->$/,/^<!-- end -->$/p' "$readme" | sed '1d;$d' | sed '/^$/d' >"$scratch/readme"
[ -s "$scratch/readme" ] || fail "README.md has no block <!-- tigon list --markdown --> ... <!-- end -->"
[ "$(wc -l <"$readme")" -le 140 ] || fail "README.md has more than 140 lines"
[ "$(wc -l <"$scratch/readme")" -le 45 ] || fail "README.md's matrix has more than 45 lines"
awk -F' *[|] *' 'NR == FNR { for (i = 2; FNR == 1 && i < NF; ++i) here[$i] = 1; next }
  FNR == 1 { for (i = 2; i < NF; ++i) gone[i] = !($i in here) }
  { line = "|"; for (i = 2; i < NF; ++i) if (!gone[i]) line = line (FNR == 2 ? "---|" : " " $i " |"); print line }' \
  "$scratch/out" "$scratch/readme" >"$scratch/less"
diff -u "$scratch/less" "$scratch/out" >&2 || fail "README.md's matrix is old: put the output of tigon list --markdown there"
finish
