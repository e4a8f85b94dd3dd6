#!/usr/bin/env bash
# Each mistake and each broken file: its exit status, one sentence, and nothing lost.
. "$(dirname "$0")/lib.bash"
cd "$scratch" || exit 1

# mistake STATUS SENTENCE ARGUMENT...: nothing on stdout, no checkpoint made.
mistake() {
  local want=$1 sentence=$2
  shift 2
  run train --steps 3 "$@"
  expect_status "$want" "train $*"
  one_sentence "tigon train: $sentence" "train $*"
  [ -s "$scratch/out" ] && fail "train $*: wrote to stdout"
  [ -e "$scratch/tigon-run/model.safetensors" ] && fail "train $*: left a checkpoint" && rm -rf "$scratch/tigon-run"
}

mistake 2 '--steps is "x", must be a whole number from 0 to 1000000000' --steps x
mistake 2 '--dtype is "f64", must be one of: f32 bf16 f16' --dtype f64
mistake 2 '--hidden is 130, must be a multiple of --heads (4)' --hidden 130
mistake 2 '--batch is 8, must be a multiple of 3 (1 rank x --accumulate 3)' --accumulate 3
mistake 2 '"notes.txt" is no option; the data are given by --data' notes.txt
mistake 2 '--data is empty, must be a name' --data ''
mistake 2 '--compare starts two runs from the same first weights' --compare --resume x
mistake 3 'cannot open nowhere.txt: No such file or directory' --data nowhere.txt
: >empty.txt
mistake 3 "$scratch/empty.txt is empty" --data empty.txt
echo short >short.txt
mistake 3 'the data has 6 tokens, must have at least 514 for --seq 256' --data short.txt
printf 'abc\377def%01000d' 0 >latin.txt
mistake 3 "$scratch/latin.txt is not UTF-8 text: byte 0xff at 3" --data latin.txt
mkdir -p void && mistake 3 "$scratch/void holds no text" --data void
head -c 2001 /dev/zero >odd.bin
mistake 3 "$scratch/odd.bin has 2001 bytes, must be a multiple of 2" --data odd.bin
mistake 3 'cannot open nowhere/config.json: No such file or directory' --resume nowhere
mistake 3 'cannot write /proc/nowhere' --data "$text" --out /proc/nowhere
run train --nope
expect_status 2 "train --nope"
one_sentence "--nope" "train --nope"
run train --device abacus --data "$text"
expect_status 2 "train --device abacus"
one_sentence "abacus" "train --device abacus"
rm -rf tigon-run

# No file of a checkpoint can be cut without a sentence; the others stay as they are.
train --steps 4 --out good
expect_status 0 "good"
for file in model.safetensors optimizer.safetensors config.json; do
  for part in 0 7 100 half less; do
    rm -rf bad && cp -r good bad
    size=$(stat -c %s "bad/$file")
    case $part in half) part=$((size / 2)) ;; less) part=$((size - 1)) ;; esac
    [ "$file $part" = "config.json $((size - 1))" ] && continue # its last byte is a newline
    truncate -s "$part" "bad/$file"
    run train --resume bad --steps 6
    expect_status 3 "$file cut to $part"
    one_sentence "bad/$file" "$file cut to $part"
    [ "$(stat -c %s "bad/$file")" -eq "$part" ] || fail "$file cut to $part: changed"
  done
done

# Nor can its state be one that no run has.
train --steps 4 --dtype f16 --keep-best --eval-every 2 --quiet --out state
for change in 'tokens":"512:tokens":"-12:tokens is no whole number from 0 to 9007199254740992' \
  'best_step":"4:best_step":"5:best_step is no whole number from 0 to 4' \
  'loss_scale":"65536:loss_scale":"-0.00:loss_scale is no number from 1 to 1.84467e+19' \
  'good_steps":"4:good_steps":"x:good_steps is no whole number from 0 to 4'; do
  IFS=: read -r a b c d sentence <<<"$change" # each half has a colon of its own
  rm -rf bad && cp -r state bad
  LC_ALL=C sed -i "s/$a:$b/$c:$d/" bad/optimizer.safetensors
  run train --resume bad --steps 6
  expect_status 3 "$sentence"
  one_sentence "bad/optimizer.safetensors is no usable checkpoint: its $sentence" "$sentence"
done

# Another run's checkpoint is not replaced unasked.
train --steps 4 --out good
expect_status 2 "out is taken"
one_sentence '--out good holds a checkpoint already' "out is taken"
train --steps 4 --out good --overwrite --quiet
expect_status 0 "overwrite"
train --steps 2 --quiet
train --steps 2 --quiet
[ -s tigon-run/model.safetensors ] && [ -s tigon-run-2/model.safetensors ] || fail "no tigon-run-2"

# A loss that is no number ends the run before the weights are touched, and keeps what was saved.
cp good/model.safetensors before
run train --resume good --steps 400 --lr 1e6 --clip 0 --warmup 0 --checkpoint-every 0 --sample 0
expect_status 1 "diverged"
grep -q 'is not a number: a smaller --lr or a longer --warmup helps' "$scratch/err" || fail "diverged: $(cat "$scratch/err")"
same before good/model.safetensors "diverged"
finish
