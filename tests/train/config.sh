#!/usr/bin/env bash
# run.json has every option as used; --config takes it back, the command line wins, and each mistake in it is one sentence.
. "$(dirname "$0")/lib.bash"
cd "$scratch" || exit 1

train --steps 12 --tie --lr 0.0123 --beta2 0.3 --schedule wsd --quiet --out one
expect_status 0 "one"
for want in '"data": "/.*/text.txt"' '"steps": 12' '"tie": true' '"lr": 0.0123' '"kv-heads": 1' '"intermediate": 96' '"warmup": 1' \
  '"vocab": 256' '"heldout": null' '"schedule": "wsd"' '"token-bits": "16"' '"device": "cpu"'; do
  grep -q "^  $want,$" one/run.json || fail "run.json has no $want"
done
grep -qE '"(out|resume|overwrite|config|svg|json|quiet)"' one/run.json && fail "run.json says where the run was saved"

# The same run again, bit for bit, and with its own options where the command line has others.
run train --config one/run.json --quiet --out two
expect_status 0 "again"
for file in model.safetensors optimizer.safetensors run.json; do same one/$file two/$file "again"; done
run train --steps 7 --config one/run.json --no-tie --lr 0.5 --quiet --out three
expect_status 0 "others"
diff one/run.json three/run.json | grep '^>' | tr -d ' ' | tr '\n' ' ' >got
[ "$(cat got)" = '>"tie":false, >"steps":7, >"lr":0.5, ' ] || fail "others: $(cat got)"

# A resumed run writes what it used; a file's options count as given.
run train --resume one --steps 14 --sample 0 --quiet
grep -q '"steps": 14' one/run.json || fail "resumed: $(grep steps one/run.json)"
run train --resume one --config three/run.json --steps 15
expect_status 2 "another shape"
one_sentence "--no-tie is given, but the checkpoint's head is tied" "another shape"

# mistake STATUS SENTENCE JSON
mistake() {
  printf '%s' "$3" >bad.json
  run train --config bad.json --steps 1 --out none
  expect_status "$1" "$3"
  one_sentence "tigon train: $2" "$3"
  [ -e none ] && fail "$3: made a folder"
}
mistake 2 'bad.json: "learning-rate" is no option of `tigon train'"'" '{"learning-rate": 1}'
mistake 2 'bad.json: "config" is no option of `tigon train'"' that a file may have" '{"config": "one/run.json"}'
mistake 2 'bad.json: steps is "800", must be a whole number from 0 to 1000000000' '{"steps": "800"}'
mistake 2 'bad.json: steps is 8.5, must be a whole number from 0 to 1000000000' '{"steps": 8.5}'
mistake 2 'bad.json: steps is -1, must be a whole number from 0 to 1000000000' '{"steps": -1}'
mistake 2 'bad.json: lr is null, must be a number from 0 to 1e+06' '{"lr": null}'
mistake 2 'bad.json: lr is [1], must be a number from 0 to 1e+06' '{"lr": [1]}'
mistake 2 'bad.json: dtype is "f64", must be one of: f32 bf16 f16' '{"dtype": "f64"}'
mistake 2 'bad.json: dtype is 16, must be one of: f32 bf16 f16' '{"dtype": 16}'
mistake 2 'bad.json: tie is 1, must be true or false' '{"tie": 1}'
mistake 2 'bad.json: data is true, must be text that is not empty, or null' '{"data": true}'
mistake 2 'bad.json: data is "", must be text that is not empty, or null' '{"data": ""}'
mistake 2 'bad.json is broken JSON in line 2' $'{"lr": 1,\n"lr": 2}'
mistake 2 'bad.json is broken JSON in line 1' '{"lr": 1'
mistake 2 'bad.json is broken JSON in line 1' ''
mistake 2 'bad.json must be an object of options, as run.json is' '[1, 2]'
printf '{"data": "nowhere.txt", "out": "none", "quiet": true}' >good.json # a file of one's own may have those
run train --config good.json
expect_status 3 "good.json"
one_sentence "cannot open nowhere.txt" "good.json"
run train --config nowhere.json
expect_status 3 "nowhere.json"
one_sentence "cannot open nowhere.json: No such file or directory" "nowhere.json"
run train --config .
expect_status 2 "a folder"
one_sentence ". is broken JSON" "a folder"
finish
