#!/usr/bin/env bash
# Fused and unfused agree within the bound, step by step, and the fused run holds less memory.
. "$(dirname "$0")/lib.bash"
cd "$scratch" || exit 1

for more in "--dtype f32" "--dtype f32 --tie --accumulate 2" "--dtype bf16"; do
  # shellcheck disable=SC2086
  train --compare --steps 30 --warmup 5 --json $more
  expect_status 0 "$more"
  grep -c '"unfused_loss"' "$scratch/out" | grep -qx 30 || fail "$more: not 30 steps"
  grep '^{"compare"' "$scratch/out" >"$scratch/compare" || fail "$more: no comparison"
  awk -F'[:,{}]' '{ for (i = 1; i < NF; ++i) value[$i] = $(i + 1) }
    END { print value["\"max_loss_diff\""], value["\"loss_bound\""], value["\"memory_ratio\""]
          exit !(value["\"max_loss_diff\""] <= value["\"loss_bound\""] && value["\"memory_ratio\""] < 1) }' \
    "$scratch/compare" || fail "$more: $(cat "$scratch/compare")"
  tail -1 "$scratch/out" | grep -q '"done":true' || fail "$more: no last line"
  [ -e tigon-run ] && fail "$more: a comparison saved a checkpoint unasked"
done

train --compare --steps 5
expect_status 0 "words"
grep -c '^step .* fused .* unfused .* difference' "$scratch/out" | grep -qx 5 || fail "words: not 5 steps"
grep -q '^peak memory' "$scratch/out" || fail "words: no table"
finish
