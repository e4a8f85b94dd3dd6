#!/usr/bin/env bash
# f16 trains with a loss scale that adapts: overflowing steps are skipped and said, and a resumed run has the same bits.
. "$(dirname "$0")/lib.bash"

# Starts too high, so that steps are skipped, and grows again and again, before and after the stop.
resumes_exactly f16 --dtype f16 --steps 320 --init-scale 1e9 --growth-interval 7
skipped=$(sed -n 's/.*"done":true.*"skipped_steps":\([0-9]*\).*/\1/p' "$scratch/f16-out")
[ "${skipped:-0}" -ge 2 ] || fail "only \"$skipped\" steps skipped"
sed -n 's/.*"loss_scale":\([^,]*\),.*/\1/p' "$scratch/f16-out" | sort -u | sed -n '4,$p' | grep -q . ||
  fail "fewer than four scales"

# A skipped step is no update. The first one moves each weight by the whole rate, however many steps were skipped before it.
first=$(sed -n 's/^{"step":\([0-9]*\),.*"skipped_steps":\([0-9]*\).*/\1 \2/p' "$scratch/f16-out" | awk '$1 != $2 { print $1; exit }')
train --dtype f16 --init-scale 1e9 --schedule constant --warmup 0 --weight-decay 0 --clip 0 --steps "$first" --quiet --out "$scratch/first"
command -v python3 >/dev/null && {
  python3 - "$scratch/first/model.safetensors" <<'PYTHON' || fail "step $first does not move the last norm by 0.01"
import json, struct, sys
data = open(sys.argv[1], "rb").read()
size = struct.unpack("<Q", data[:8])[0]
begin, end = json.loads(data[8 : 8 + size])["model.norm.weight"]["data_offsets"]
moved = [abs(w - 1) for (w,) in struct.iter_unpack("<f", data[8 + size + begin : 8 + size + end])]
sys.exit(0 if max(moved) > 0.0099 and max(moved) < 0.0101 else str(max(moved)))
PYTHON
}

# As good as f32 within some per cent: the skipped steps are most of the warm-up.
train --steps 320 --json --out "$scratch/f32"
paste <(tail -1 "$scratch/f16-out") <(tail -1 "$scratch/out") | sed 's/"heldout_loss":/\n/g' | sed -n '2,3s/,.*//p' | paste - - |
  awk '{ print $1, $2; exit !($1 > 0 && $1 < 1.08 * $2 && $1 > 0.95 * $2) }' || fail "f16 learns otherwise than f32"

# The words: a note for each skipped step and the count at the end. The first steps leave the weights alone.
train --dtype f16 --steps 4 --init-scale 1e9 --lr 0 --log-every 1 --out "$scratch/words"
expect_status 0 "words"
grep -q 'step 1 is skipped: its gradient is not finite with a loss scale of 1e+09, the next one is 5e+08 (1 skipped so far)' "$scratch/err" ||
  fail "words: $(grep skipped "$scratch/err")"
grep -q '^loss scale     .*, [1-4] steps\{0,1\} skipped' "$scratch/out" || fail "words: $(cat "$scratch/out")"

# --init-scale on a resumed run starts the scale afresh; a scale of 1 that overflows is an error, not an endless wait.
run train --resume "$scratch/words" --steps 5 --lr 0.01 --init-scale 8 --sample 0 --json --log-every 1
expect_status 0 "given scale"
grep -q '"loss_scale":8[.,]' "$scratch/out" || fail "given scale: $(cat "$scratch/out")"
train --dtype f16 --steps 4 --init-scale 1e300 --out "$scratch/no"
expect_status 2 "too high a scale"
one_sentence '--init-scale is "1e300", must be a number from 1 to 1e+09' "too high a scale"
finish
