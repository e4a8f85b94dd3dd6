#!/usr/bin/env bash
# ctest: slow
# --keep-best: best/ has the lowest held-out loss, a resumed run knows it, and kill -9 at any point leaves one that loads.
. "$(dirname "$0")/lib.bash"
cd "$scratch" || exit 1

value() { sed -n "s/.*\"done\":true.*\"$1\":\([^,}]*\).*/\1/p" "$2"; }

# The rate rises until it ruins the model, so the last weights are not the best ones.
more=(--keep-best --lr 1 --warmup 100 --steps 100 --eval-every 15 --checkpoint-every 20 --json --log-every 1)
train "${more[@]}" --out whole
expect_status 0 "uninterrupted"
step=$(value best_step out) loss=$(value best_heldout_loss out)
want=$(awk -F, 'NR > 1 && $4 != "" && (least == "" || $4 + 0 < least) { least = $4 + 0; step = $1 } END { print step }' whole/metrics.csv)
[ -n "$step" ] && [ "$step" = "$want" ] && [ "$step" -lt 100 ] || fail "the best is of step \"$step\", must be \"$want\" and below 100"
run train --resume whole/best --steps "$step" --warmup 0 --sample 0 --json --out again
expect_status 0 "the best, loaded"
[ "$(value heldout_loss out)" = "$loss" ] || fail "best/ has a loss of $(value heldout_loss out), must be $loss"

# Killed behind the best step and resumed: the same best. With more steps at a rate that ruins the model it stays, too.
afresh
"$TIGON" train "${tiny[@]}" "${more[@]}" --out part >out 2>err </dev/null &
child=$!
wait_for_step $((step + 2)) out $child && kill -9 $child
wait $child 2>/dev/null
run train --resume part --sample 0 --json
expect_status 0 "resumed"
[ "$(value best_step out)" = "$step" ] || fail "resumed: the best is of step $(value best_step out)"
for file in model.safetensors optimizer.safetensors; do
  same whole/best/$file part/best/$file "resumed"
  same whole/$file part/$file "resumed"
done
run train --resume part --steps 120 --eval-every 5 --lr 10 --sample 0 --json
expect_status 0 "ruined"
[ "$(value best_step out)" = "$step" ] || fail "ruined: the best is of step $(value best_step out)"
same whole/best/model.safetensors part/best/model.safetensors "ruined"
run train --resume part --steps 121 --sample 0 --out elsewhere
grep -q "the best so far, of step $step with a held-out loss of .*, stays in part/best" err || fail "elsewhere: $(cat err)"

# A complete run without a best one gets it, and the checkpoint knows it.
train --steps 8 --quiet --out late
run train --resume late --keep-best --eval-every 4 --sample 0 --quiet
run train --resume late --steps 12 --lr 10 --sample 0 --json
[ "$(value best_step out)" = 8 ] || fail "late: the best is of step $(value best_step out)"

# kill -9 while nearly every step saves a best one.
for ((round = 0; round < 8; ++round)); do
  afresh
  "$TIGON" train "${tiny[@]}" --keep-best --lr 0.003 --warmup 0 --steps 4000 --eval-every 1 --checkpoint-every 0 --json --log-every 1 --overwrite \
    --out killed >out 2>err </dev/null &
  child=$!
  wait_for_step 3 out $child
  sleep 0.0$round
  kill -9 $child
  wait $child 2>/dev/null
  [ -e killed/model.safetensors ] && fail "killed: there is a checkpoint, too"
  train --init-from killed/best --steps 0 --out loaded --overwrite --quiet
  expect_status 0 "killed, weights of the best"
  run train --resume killed/best --steps 0 --out loaded --overwrite
  one_sentence "--steps is 0, must be at least " "killed, the whole of the best"
  run train --resume killed/best --steps "$(sed -n 's/.*must be at least \([0-9]*\),.*/\1/p' err)" --sample 0 --out loaded --overwrite
  expect_status 0 "killed, the best resumed"
done

# Another run takes the place of a run and of its best; a run that begins with that best keeps it.
train --steps 2 --quiet --out taken
expect_status 0 "taken"
cp -r late/best taken
run train --init-from taken/best --data "$text" --steps 1 --sample 0 --quiet --out taken --overwrite
[ -e taken/best/config.json ] || fail "taken: the first weights are gone"
train --steps 2 --quiet --out taken --overwrite
[ -e taken/best ] && fail "taken: the best of another run stays: $(ls taken/best)"
mkdir taken/best && touch taken/best/mine && cp late/best/* taken/best
train --steps 4 --keep-best --eval-every 3 --quiet --out taken --overwrite --checkpoint-every 2
expect_status 0 "taken again"
same taken/best/config.json taken/config.json "taken again"
[ -e taken/best/mine ] || fail "taken again: somebody's file is gone"
rm taken/model.safetensors
train --steps 1 --quiet --out taken
expect_status 2 "only a best"
one_sentence "--out taken holds a checkpoint already" "only a best"

train --compare --keep-best --eval-every 5 --steps 1
expect_status 2 "nothing saved"
one_sentence "--keep-best is given, but --compare saves nothing without --out" "nothing saved"
finish
