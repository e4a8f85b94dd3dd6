#!/usr/bin/env bash
# Ctrl-C and SIGTERM end the step, save, and exit with 130 and 143; what was saved is the run so far.
. "$(dirname "$0")/lib.bash"

for name in INT:130 TERM:143; do
  signal=${name%:*}
  out=$scratch/stopped-$signal
  more=(--steps 100000 --warmup 10 --checkpoint-every 0 --json --log-every 1)
  afresh
  "$TIGON" train "${tiny[@]}" "${more[@]}" --out "$out" >"$scratch/out" 2>"$scratch/err" </dev/null &
  child=$!
  wait_for_step 20 "$scratch/out" $child || fail "$signal: no step 20"
  kill -"$signal" $child
  wait $child
  status=$?
  expect_status "${name#*:}" "$signal"
  last=$(losses "$scratch/out" | tail -1 | cut -d' ' -f1)
  tail -1 "$scratch/out" | grep -q "\"done\":false.*\"steps\":$last" || fail "$signal: the last line is not of step $last"
  for file in model.safetensors optimizer.safetensors config.json loss.svg; do
    [ -s "$out/$file" ] || fail "$signal: no $file"
  done
  [ -z "$(find "$out" -name '*.tmp')" ] || fail "$signal: temporary files are left"
done

# The human words of it name the command that goes on.
afresh
"$TIGON" train "${tiny[@]}" --steps 100000 --log-every 1 --out "$scratch/words" >"$scratch/out" 2>"$scratch/err" </dev/null &
child=$!
for ((i = 0; i < 400; ++i)); do grep -q '^step' "$scratch/err" && break; sleep 0.05; done
kill -INT $child
wait $child
status=$?
expect_status 130 "words"
grep -q "go on with     tigon train --resume $scratch/words" "$scratch/out" || fail "words: $(cat "$scratch/out")"
grep -q $'\033' "$scratch/out" "$scratch/err" && fail "colour or a progress bar without a terminal"

# A reader that goes away does not cost the run.
("$TIGON" train "${tiny[@]}" --steps 30 --json --log-every 1 --out "$scratch/pipe" 2>"$scratch/err" </dev/null; echo $? >"$scratch/rc") | head -1 >/dev/null
[ -s "$scratch/pipe/model.safetensors" ] || fail "pipe: nothing was saved"
[ "$(cat "$scratch/rc")" -eq 3 ] || fail "pipe: exit $(cat "$scratch/rc"), must be 3: standard output failed"
finish
