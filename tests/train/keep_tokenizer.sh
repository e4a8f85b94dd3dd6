#!/usr/bin/env bash
# A run's tokenizer goes along: into --out and best/, a resumed run, one that begins with its weights, and run.json.
. "$(dirname "$0")/lib.bash"
cd "$scratch" || exit 1

# The letters of the text, "Ġ" for a blank and "Ċ" for a new line, and two merges. As in a cache of Hugging Face a link
# with neighbours leads to the file.
mkdir blobs given
awk 'BEGIN { n = split("a b c d e f g h i j k l m n o p q r s t u v w x y z . Ġ Ċ th the", t, " ")
  for (i = 1; i <= n; ++i) vocab = vocab (i > 1 ? "," : "") "\"" t[i] "\":" i - 1
  printf "{\"added_tokens\":[],\"normalizer\":null,\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false},"
  printf "\"decoder\":{\"type\":\"ByteLevel\"},\"post_processor\":null,"
  printf "\"model\":{\"type\":\"BPE\",\"vocab\":{%s},\"merges\":[\"t h\",\"th e\"]}}\n", vocab }' >blobs/0123
ln -s ../blobs/0123 given/tokenizer.json
echo '{"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 77}' >given/tokenizer_config.json

# carries FOLDER: it has both files, and text can be written with it.
carries() {
  same given/tokenizer.json "$1/tokenizer.json" "$1"
  same given/tokenizer_config.json "$1/tokenizer_config.json" "$1"
  run generate "$1" --prompt 'the dog' --max-tokens 8 --json
  expect_status 0 "generate $1"
  expect_json "j['prompt_tokens'] == 5 and len(j['tokens']) == 8" "generate $1"
}

# says FOLDER FILE: run.json has the file that was read.
says() { grep -qF "\"tokenizer\": \"$scratch/$2\"," "$1/run.json" || fail "$1: $(grep tokenizer "$1/run.json")"; }

train --tokenizer given --keep-best --steps 20 --eval-every 5 --quiet --out one
expect_status 0 "one"
carries one
carries one/best
says one given/tokenizer.json

mkdir elsewhere # a relative path in run.json would not be found
cd elsewhere || exit 1
run train --config ../one/run.json --quiet --out ../again
expect_status 0 "again"
cd ..
for file in model.safetensors run.json tokenizer.json tokenizer_config.json best/tokenizer.json; do
  same one/$file again/$file "again"
done

train --init-from one --steps 4 --quiet --out two
expect_status 0 "begun with its weights"
carries two
says two one/tokenizer.json
train --init-from one/best --keep-best --eval-every 2 --steps 4 --quiet --out three
expect_status 0 "begun with the best weights"
carries three/best

rm -r given/tokenizer.json one # a resumed run needs neither
cp blobs/0123 given/tokenizer.json
mv given kept
for config in '--config again/run.json --steps 22' '--steps 24'; do
  run train --resume again $config --prompt 'the dog' --sample 5
  expect_status 0 "resumed $config"
  says again again/tokenizer.json
done
mv kept given
carries again

# A broken file is left out only where nobody named it.
printf '{"model":{"type":"Unigram"}}' >two/tokenizer.json
train --init-from two --steps 1 --out none
expect_status 2 "a tokenizer that cannot be read"
grep -qF 'its model is "Unigram", must be "BPE"; the run goes on without a tokenizer' err || fail "left out: $(cat err)"
train --init-from again --tokenizer two --steps 1 --out none
expect_status 3 "a tokenizer that cannot be read, by name"
one_sentence 'its model is "Unigram", must be "BPE"' "by name"
[ -e none ] && fail "a mistake made a folder"
finish
