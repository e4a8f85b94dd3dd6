#!/usr/bin/env bash
# ctest: slow
# metrics.jsonl and metrics.csv have a row for each printed or evaluated step, once, after any kill and resume.
. "$(dirname "$0")/lib.bash"
cd "$scratch" || exit 1

# rows FOLDER: what does not depend on time, from both files, which must agree.
rows() {
  cut -d, -f1-6 "$1/metrics.csv" >csv
  { echo step,tokens,loss,heldout_loss,lr,gradient_norm
    sed 's/null//g; s/"[a-z_]*"://g; s/[{}]//g' "$1/metrics.jsonl" | cut -d, -f1-6; } >jsonl
  cmp -s csv jsonl || fail "$1: metrics.csv and metrics.jsonl differ: $(diff csv jsonl | head -4)"
  cat csv
}

# whole_lines FOLDER: each line of both is complete.
whole_lines() {
  for file in metrics.jsonl metrics.csv; do
    [ -z "$(tail -c 1 "$1/$file")" ] || fail "$1/$file ends with half a line"
  done
  grep -qv '^{"step":[0-9]*,.*}$' "$1/metrics.jsonl" && fail "$1/metrics.jsonl has a line that is no object"
  [ "$(awk -F, '{ print NF }' "$1/metrics.csv" | sort -u)" = 12 ] || fail "$1/metrics.csv has a line without 12 cells"
}

more=(--steps 160 --checkpoint-every 40 --eval-every 25 --log-every 10)
train "${more[@]}" --out whole
expect_status 0 "uninterrupted"
rows whole >want
[ "$(cut -d, -f1 want | tr '\n' ' ')" = "step 1 10 20 25 30 40 50 60 70 75 80 90 100 110 120 125 130 140 150 160 " ] ||
  fail "uninterrupted: steps $(cut -d, -f1 want | tr '\n' ' ')"
[ "$(awk -F, '$4 != "" { printf "%s ", $1 }' want)" = "step 25 50 75 100 125 150 160 " ] || fail "uninterrupted: held-out losses"
whole_lines whole
awk -F, 'NR > 1 { if (!($7 > 0 && $8 >= last && $9 > 0 && $10 == "" && $11 == "")) exit 1; last = $8 }' whole/metrics.csv ||
  fail "uninterrupted: $(tail -1 whole/metrics.csv)"

# kill -9 again and again; a resumed process begins with a row of its own, the others are those of the uninterrupted run.
for ((round = 0; round < 6; ++round)); do
  [ -e part/model.safetensors ] && go_on=(--resume part) || go_on=("${tiny[@]}" "${more[@]}" --overwrite --out part)
  afresh
  "$TIGON" train "${go_on[@]}" --sample 0 --json --log-every 1 >out 2>err </dev/null &
  child=$!
  wait_for_step $((30 + 25 * round)) out $child
  kill -9 $child
  wait $child 2>/dev/null
  [ -e part/metrics.csv ] && whole_lines part
done
run train --resume part --sample 0 --log-every 1
expect_status 0 "resumed after kills"
whole_lines part
rows part | tail -n +2 >got
[ "$(cut -d, -f1 got)" = "$(sort -nu -t, -k1,1 got | cut -d, -f1)" ] || fail "resumed after kills: a row twice"
tail -n +2 want | while IFS= read -r row; do grep -qxF -- "$row" got || echo "$row"; done >missing
[ -s missing ] && fail "resumed after kills: rows are missing or others: $(cat missing)"
[ "$(tail -1 got | cut -d, -f1)" = 160 ] || fail "resumed after kills: the last row is $(tail -1 got)"

# Half a line, a line of another run, and rows beyond the resumed step are cut; another --out takes the rows along.
cp -r whole cut
sed -i '/^{"step":60,/d; s/^{"step":70,.*"loss":/&9/; $a {"step":170,"tokens":1,"loss":1}' cut/metrics.jsonl
printf '{"step":1' >>cut/metrics.jsonl
run train --resume cut --steps 165 --sample 0 --quiet --out other
expect_status 0 "cut"
rows other >got
[ "$(grep -cE '^(60|70|170),' got)" = 0 ] || fail "cut: rows that are not this run's: $(cat got)"
[ "$(grep -cE '^(1|50|160|161|165),' got)" = 5 ] || fail "cut: rows are gone: $(cat got)"

# The device's rate gives MFU: 6 operations for each of the 32928 multiplied weights, 12 x 2 layers x 32 x 32 for attention.
train --steps 2 --peak-tflops 0.5 --quiet --out mfu
awk -F, 'NR > 1 { want = $7 * (6 * 32928 + 12 * 2 * 32 * 32) / 0.5e12; print $10, want; if (($10 / want - 1) ^ 2 > 1e-8) exit 1 }' \
  mfu/metrics.csv >&2 || fail "mfu"
# The progress and the last lines say it, too, and nothing where the rate is not known.
train --steps 2 --peak-tflops 0.5 --out mfu --overwrite
[ "$(cat out err | grep -cE '[0-9]+ tokens/s, [0-9.e-]+ % MFU')" -ge 2 ] || fail "no MFU: $(cat out err)"
train --steps 2 --out mfu --overwrite
if grep -q MFU out err; then fail "MFU of a CPU: $(cat out err)"; fi

# A file that cannot grow: one note, whole lines, and the run goes on.
least=(--data "$text" --layers 1 --hidden 8 --heads 1 --seq 8 --batch 1 --sample 0 --eval-every 0 --checkpoint-every 0)
(ulimit -f 200; exec "$TIGON" train "${least[@]}" --steps 1200 --log-every 1 --json --out full >out 2>err </dev/null)
status=$?
expect_status 0 "full"
[ "$(grep -c 'metrics.jsonl: File too large; the run goes on without this row' err)" = 1 ] || fail "full: $(cat err)"
whole_lines full
finish
