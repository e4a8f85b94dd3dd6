#!/usr/bin/env bash
# A run that was killed and resumed is the run that was not: the same losses, weights and moments, byte for byte.
. "$(dirname "$0")/lib.bash"

for dtype in f32 bf16; do
  more=(--dtype "$dtype" --batch 16 --steps 120 --checkpoint-every 40 --json --log-every 1)
  train "${more[@]}" --out "$scratch/whole-$dtype"
  expect_status 0 "uninterrupted, $dtype"
  losses "$scratch/out" >"$scratch/want"
  [ "$(wc -l <"$scratch/want")" -eq 120 ] || fail "$dtype: not 120 steps logged"

  # kill -9 in the middle, when step 60 was seen
  "$TIGON" train "${tiny[@]}" "${more[@]}" --out "$scratch/part-$dtype" >"$scratch/killed-$dtype" 2>/dev/null </dev/null &
  child=$!
  wait_for_step 60 "$scratch/killed-$dtype" $child && kill -9 $child
  wait $child 2>/dev/null
  run train --resume "$scratch/part-$dtype" --sample 0 --json --log-every 1
  expect_status 0 "resumed, $dtype"
  losses "$scratch/out" >"$scratch/got"
  first=$(head -1 "$scratch/got" | cut -d' ' -f1)
  case $first in 41 | 81) ;; *) fail "$dtype: resumed at step $first, must be 41 or 81" ;; esac
  sed -n "${first:-1},\$p" "$scratch/want" >"$scratch/want_rest"
  same "$scratch/want_rest" "$scratch/got" "losses, $dtype"
  for file in model.safetensors optimizer.safetensors config.json; do
    same "$scratch/whole-$dtype/$file" "$scratch/part-$dtype/$file" "$dtype"
  done
  tail -1 "$scratch/out" | grep -q '"done":true.*"steps":120' || fail "$dtype: no last line"
done

# Nothing left to do: evaluates, and leaves the checkpoint as it is.
cp "$scratch/whole-f32/optimizer.safetensors" "$scratch/before"
run train --resume "$scratch/whole-f32" --json --sample 20
expect_status 0 "resumed at the end"
grep -q '"steps":120' "$scratch/out" || fail "resumed at the end: no steps"
same "$scratch/before" "$scratch/whole-f32/optimizer.safetensors" "resumed at the end"

# More steps than planned, in another folder; the first one stays.
run train --resume "$scratch/whole-f32" --steps 130 --out "$scratch/longer" --json --sample 0
expect_status 0 "longer"
tail -1 "$scratch/out" | grep -q '"steps":130' || fail "longer: not 130 steps"
same "$scratch/before" "$scratch/whole-f32/optimizer.safetensors" "longer"

# The weights as another program would leave them: step 0 has the loss of the step that they are of; saved elsewhere.
cd "$scratch" || exit 1
run train --resume whole-f32 --json --sample 0
sed -n 's/.*"heldout_loss":\([^,]*\),.*/\1/p' out >want
mkdir theirs && cp whole-f32/config.json theirs
LC_ALL=C sed 's/"pair":/"hers":/' whole-f32/model.safetensors >theirs/model.safetensors
cp -r theirs before-theirs
train --resume theirs --batch 16 --steps 0 --json
expect_status 0 "weights alone"
one_sentence 'theirs has no optimizer.safetensors: its weights begin at step 0, with zero moments' "weights alone"
sed -n 's/.*"heldout_loss":\([^,]*\),.*/\1/p' out >got
[ -s want ] || fail "weights alone: no held-out loss"
same want got "weights alone, held-out loss"
train --resume theirs --steps 3 --json --log-every 1
expect_status 0 "weights alone, trained"
[ "$(losses out | cut -d' ' -f1 | tr '\n' ' ')" = "1 2 3 " ] || fail "weights alone: not steps 1 2 3"
diff -r before-theirs theirs >/dev/null || fail "weights alone: changed"
[ -s tigon-run-2/optimizer.safetensors ] || fail "weights alone: no tigon-run-2"

# The same in a shard that an index names, then beside one that is gone.
shard=model-00001-of-00002.safetensors gone=model-00002-of-00002.safetensors index=model.safetensors.index.json
mv theirs/model.safetensors theirs/$shard
echo "{\"weight_map\": {\"model.norm.weight\": \"$shard\", \"lm_head.weight\": \"$shard\"}}" >theirs/$index
train --resume theirs --batch 16 --steps 0 --json
expect_status 0 "shards"
sed -n 's/.*"heldout_loss":\([^,]*\),.*/\1/p' out >got
same want got "shards, held-out loss"
echo "{\"weight_map\": {\"model.norm.weight\": \"$shard\", \"lm_head.weight\": \"$gone\"}}" >theirs/$index
train --resume theirs --batch 16 --steps 0 --json
expect_status 3 "a shard is gone"
one_sentence "theirs/$gone is missing, which theirs/$index names" "a shard is gone"
finish
