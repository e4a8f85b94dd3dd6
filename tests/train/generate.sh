#!/usr/bin/env bash
# generate and eval of a checkpoint of bytes: repeatable, ended where they shall, and every mistake one sentence.
. "$(dirname "$0")/lib.bash"
cd "$scratch" || exit 1

head -c 161 "$text" >unseen.txt
train --steps 25 --out model --heldout unseen.txt --json
expect_status 0 "train"
heldout=$(sed -n 's/.*"heldout_loss":\([0-9.]*\).*/\1/p' out | tail -1)

generate() { run generate model "$@"; }

generate --prompt 'the ' --max-tokens 60 --seed 3
expect_status 0 "generate"
one_sentence "outgrew the model" "generate"
cp out first
[ "$(wc -c <first)" -ge 1 ] || fail "generate: no text"
generate --prompt 'the ' --max-tokens 60 --seed 3 --quiet
same out first "the same seed"
generate --prompt 'the ' --max-tokens 60 --seed 4 --quiet
cmp -s out first && fail "another seed, the same text"
printf 'the ' | "$TIGON" generate model --max-tokens 60 --seed 3 --quiet >out 2>err
same out first "the prompt by standard input"
printf 'the ' >prompt.txt
generate --prompt-file prompt.txt --max-tokens 60 --seed 3 --echo --quiet
{ cat prompt.txt first; } >whole
same out whole "echo"
generate --prompt 'the ' --max-tokens 0
expect_status 0 "no tokens" && [ ! -s out ] || fail "no tokens: text"

# A stop text ends the text before itself, and is not shown.
stop=$(tail -c +10 first | head -c 3)
generate --prompt 'the ' --max-tokens 60 --seed 3 --quiet --stop 'never' --stop "$stop"
expect_status 0 "stop"
[ "$(cat out)$stop" = "$(head -c $(($(wc -c <out) + ${#stop})) first)" ] || fail "stop: $(cat out)"
grep -qF -- "$stop" out && fail "stop: shown"
generate --prompt 'the ' --max-tokens 60 --seed 3 --stop "$stop" --json
expect_json "j['ended'] == 'stop' and j['prompt_tokens'] == 4 and len(j['tokens']) >= 3 and j['tokens_per_s'] >= 0" "stop"

# Past the context of 32 it goes on, and says so.
generate --prompt 'the ' --max-tokens 90 --temperature 0
expect_status 0 "past the context"
one_sentence "outgrew the model's context of 32 tokens" "past the context"

# mistake STATUS SENTENCE ARGUMENT...
mistake() {
  local want=$1 sentence=$2
  shift 2
  run "$@"
  expect_status "$want" "$*"
  one_sentence "$sentence" "$*"
  [ -s out ] && fail "$*: wrote to stdout"
}
printf 'a\0b' >nul.txt
printf 'ab\377' >latin.txt
: >empty.txt
long=$(head -c 33 "$text")
mistake 2 'no checkpoint given' generate --prompt x
mistake 2 'takes one checkpoint, but got "b" too' generate a b
mistake 2 '--top-p is "2", must be a number from 0 to 1' generate model --prompt x --top-p 2
mistake 2 '--temperature is "nan"' generate model --prompt x --temperature nan
mistake 2 '--stop is empty' generate model --prompt x --stop ''
mistake 2 '--dtype is "f64", must be f32 or bf16' generate model --prompt x --dtype f64
mistake 2 'both given' generate model --prompt x --prompt-file nul.txt
mistake 2 'abacus' generate model --prompt x --device abacus
mistake 2 'the prompt is empty, must have at least one token' generate model --prompt ''
mistake 2 'the prompt is empty' generate model # by standard input
mistake 2 "the prompt has 33 tokens, must have at most 32, the model's context" generate model --prompt "$long"
mistake 3 'nul.txt is not UTF-8 text: byte 0x00 at 1' generate model --prompt-file nul.txt
mistake 3 'latin.txt is not UTF-8 text: byte 0xff at 2' generate model --prompt-file latin.txt
mistake 3 'the prompt is not UTF-8 text: byte 0xff at 0' generate model --prompt $'\xff'
mistake 3 'cannot open nowhere/config.json' generate nowhere --prompt x
mistake 3 'cannot open nowhere.json' generate model --prompt x --tokenizer nowhere.json
mistake 2 '--data is not given' eval model
mistake 3 'cannot open nowhere.txt' eval model --data nowhere.txt
mistake 2 '--context is 33, must be at most 32' eval model --data unseen.txt --context 33
mistake 2 '--stride is 9, must be at most 8' eval model --data unseen.txt --context 8 --stride 9
printf 'a' >one.txt
mistake 3 'one.txt has 1 token, must have at least 2' eval model --data one.txt
mistake 2 'no text given' tokenize --tokenizer x
mistake 2 '--tokenizer is not given' tokenize unseen.txt
[ -e /dev/full ] && { "$TIGON" generate model --prompt x >/dev/full 2>err && fail "full disk: exit 0"; }

# No file of a checkpoint can be cut without a sentence, and a vocabulary without a tokenizer is refused.
for file in model.safetensors config.json; do
  for part in 0 7 100; do
    rm -rf bad && cp -r model bad && truncate -s "$part" "bad/$file"
    mistake 3 "bad/$file" generate bad --prompt x
    mistake 3 "bad/$file" eval bad --data unseen.txt
  done
done
rm -rf bad && cp -r model bad && sed -i 's/"vocab_size": 256/"vocab_size": 255/' bad/config.json
mistake 3 'model.embed_tokens.weight' generate bad --prompt x
printf '{"model":{"type":"Unigram"}}' >bad/tokenizer.json && cp model/config.json bad
mistake 3 'its model is "Unigram", must be "BPE"' generate bad --prompt x
head -c 1200 /dev/zero >tokens.bin
run train --data tokens.bin --vocab 19 --layers 1 --hidden 8 --heads 2 --seq 8 --batch 2 --steps 1 --sample 0 --out words
mistake 3 'words has no tokenizer.json, and its vocabulary is 19, not 256 bytes: give --tokenizer' generate words --prompt x

# The loss is the trainer's own where the windows are its own; smaller strides count the same tokens.
run eval model --data unseen.txt --json
expect_status 0 "eval"
expect_json "abs(j['loss'] - $heldout) < 2e-5 and j['tokens'] == j['bytes'] == 160 and j['windows'] == 5" "eval"
run eval model --data unseen.txt --stride 5 --json
expect_json "j['tokens'] == 160 and j['windows'] == 27" "eval by 5"
run eval model --data unseen.txt --dtype bf16
expect_status 0 "eval in bf16"
grep -q '^bits per byte' out || fail "eval: no bits per byte"

# A .bin of the same tokens has the same figures. Without a tokenizer bits per byte are not known.
zeros() { LC_ALL=C od -An -v -tu1 -w1 unseen.txt | LC_ALL=C awk -v n="$1" '{ printf "%c", $1; for (i = 0; i < n; ++i) printf "%c", 0 }'; }
zeros 1 >unseen.bin
zeros 3 >unseen32.bin
run eval model --data unseen.txt --json
figures() { sed '/"tokens_per_s"/d' "$1"; }
figures out >want
for given in "unseen.bin" "unseen32.bin --token-bits 32"; do
  run eval model --data $given --json
  expect_status 0 "eval of $given"
  figures out | cmp -s want - || fail "eval of $given: $(cat out)"
done
run eval words --data tokens.bin --json
expect_status 0 "eval without a tokenizer"
expect_json "j['bytes'] is None and j['bits_per_byte'] is None and j['tokens'] == 599" "eval without a tokenizer"
run eval words --data tokens.bin
grep -q 'bits per byte' out && fail "eval without a tokenizer: $(cat out)"
mistake 3 "token 0 of unseen.bin is $(od -An -tu1 -N1 unseen.txt | tr -d " "), must be below the model's vocabulary of 19" eval words --data unseen.bin
head -c 3 unseen.bin >cut.bin
mistake 3 'cut.bin has 3 bytes, must be a multiple of 2' eval model --data cut.bin
mistake 2 '--token-bits is "8", must be 16 or 32' eval model --data unseen.bin --token-bits 8
mistake 3 'cannot open nowhere.bin' eval model --data nowhere.bin
mistake 3 'cannot open nowhere.json' eval words --data tokens.bin --tokenizer nowhere.json

# Another run's tokenizer.json does not stay beside a model of bytes.
echo '{}' >model/tokenizer.json
train --steps 1 --out model --overwrite --quiet
[ -e model/tokenizer.json ] && fail "a tokenizer.json of another run stayed"
finish
