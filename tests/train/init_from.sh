#!/usr/bin/env bash
# --init-from begins at step 0 with the weights of another folder, which stays as it is.
. "$(dirname "$0")/lib.bash"
cd "$scratch" || exit 1

heldout() { sed -n 's/.*"heldout_loss":\([^,]*\),.*/\1/p' out; }

for tie in --no-tie --tie; do
  train --steps 30 $tie --lr 0.02 --json --out ours$tie
  expect_status 0 "ours $tie"
  want=$(heldout)
  mkdir theirs$tie # as another program leaves it
  cp ours$tie/config.json theirs$tie
  LC_ALL=C sed 's/"pair":/"hers":/' ours$tie/model.safetensors >theirs$tie/model.safetensors
  for from in ours$tie theirs$tie; do
    cp -r "$from" before
    run train --init-from "$from" --data "$text" --batch 4 --steps 0 --json --sample 0 --out new-$from
    expect_status 0 "$from"
    one_sentence "the weights are those of $scratch/$from, at step 0 with zero moments" "$from"
    [ "$(heldout)" = "$want" ] || fail "$from: held-out loss $(heldout), must be $want"
    # a fresh run: its own options, steps 1, 2, 3, no history
    run train --init-from "$from" --data "$text" --steps 3 --json --log-every 1 --sample 0 --out trained-$from
    expect_status 0 "$from, trained"
    [ "$(losses out | cut -d' ' -f1 | tr '\n' ' ')" = "1 2 3 " ] || fail "$from: not steps 1 2 3"
    grep -q '"lr": 0.003,' trained-$from/run.json || fail "$from: took the learning rate along"
    grep -q "\"init-from\": \"$scratch/$from\"" trained-$from/run.json || fail "$from: run.json does not say so"
    diff -r before "$from" >/dev/null || fail "$from: changed"
    rm -r before
  done
  same trained-ours$tie/model.safetensors trained-theirs$tie/model.safetensors "$tie: ours as theirs"
done

# The run goes on by itself, also with its own run.json, and when the first weights are gone.
cp -r ours--tie gone
run train --init-from gone --data "$text" --steps 4 --sample 0 --quiet --out child
rm -r gone
run train --resume child --config child/run.json --steps 6 --sample 0 --json
expect_status 0 "resumed"
grep -q '"steps":6' out || fail "resumed: $(cat out)"

# Both runs of a comparison begin with those weights.
run train --init-from ours--tie --data "$text" --batch 4 --steps 4 --compare --json
expect_status 0 "compared"
awk -F'[:,]' '/"unfused_loss"/ { if (!($4 < 3.5)) exit 1; ++n } END { exit n != 4 }' out || fail "compared: $(cat out)"

mistake() { # STATUS SENTENCE ARGUMENT...
  local want=$1 sentence=$2
  shift 2
  run train --data "$text" --sample 0 --steps 1 "$@"
  expect_status "$want" "$*"
  one_sentence "tigon train: $sentence" "$*"
}
mistake 2 '--resume goes on with a run and --init-from begins one, so only one of them can be given' --init-from ours--tie --resume child
mistake 2 '--out is the folder of --init-from, which stays as it is' --init-from ours--tie --out ./ours--tie/ --overwrite
mistake 2 '--hidden is 64, must be 32 as in the checkpoint' --init-from ours--tie --hidden 64
mistake 2 '--seq is 64, must be at most 32 as in the checkpoint' --init-from ours--tie --seq 64
mistake 3 'cannot open nowhere/config.json: No such file or directory' --init-from nowhere
sed -i 's/"attention_bias": false/"attention_bias": true/' theirs--tie/config.json
mistake 3 'theirs--tie/config.json is no usable configuration: attention_bias must be false' --init-from theirs--tie
finish
