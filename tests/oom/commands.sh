#!/usr/bin/env bash
# ctest: slow
# Commands in which one allocation fails: they pass with the same result, or end with status 3 and a sentence, never by a signal. A
# checkpoint is then the one before or the new one, and a run goes on from it. OOM_MOST says how many allocations of each command fail, which
# are spread evenly beyond the first half of these; all is every one.
. "$(dirname "$0")/../train/lib.bash"
shim=${TIGON_BUILD:?}/tests/liboom.so
[ -f "$shim" ] || { echo "skipped: this build has no $shim"; exit 77; }
most=${OOM_MOST:-30}
export OCL_ICD_VENDORS=/nowhere # the driver's memory is not ours
export TIGON_GEMM=builtin       # a library that finds no memory counts as not there, and others have other bits
cd "$scratch" || exit 1
subjects=0 points=0 refused=0

# nth N ARGUMENT...: the command whose Nth allocation fails; $count is how many there were.
nth() {
  LD_PRELOAD=$shim OOM_NTH=$1 OOM_COUNT=count "$TIGON" "${@:2}" >out 2>err </dev/null
  status=$?
  count=$(cat count)
}

# which COUNT: the allocations that fail.
which() {
  [ "$most" = all ] && most=$1
  awk -v n="$1" -v most="$most" 'BEGIN {
    half = most / 2; step = n > most ? (n - half) / half : 1
    for (i = 1; i <= n; i = int(i + (i < half ? 1 : step < 1 ? 1 : step))) print i }'
}

# subject NAME PREPARE CHECK ARGUMENT...: PREPARE runs before each call. CHECK looks at what is left, with $status and the name.
subject() {
  local name=$1 prepare=$2 check=$3 n
  shift 3
  $prepare
  nth 0 "$@"
  expect_status 0 "$name"
  cp out want
  subjects=$((subjects + 1))
  for n in $(which "$count"); do
    points=$((points + 1))
    $prepare
    nth "$n" "$@"
    case $status in
      0) $check "$name, allocation $n" ;;
      3)
        refused=$((refused + 1))
        [ -s err ] || fail "$name, allocation $n: no sentence"
        $check "$name, allocation $n"
        ;;
      1) # of a check that found a context without memory
        refused=$((refused + 1))
        grep -q '"error": "context: ' out || fail "$name, allocation $n: exit 1: $(head -c 300 err)"
        ;;
      *) fail "$name, allocation $n: exit $status: $(head -c 300 err)" ;;
    esac
  done
}

nothing() { :; }
# A command that passes has printed all.
same_output() {
  [ "$status" -ne 0 ] || same want out "$1"
}

small=(--data "$text" --layers 1 --hidden 16 --heads 2 --seq 16 --batch 2 --sample 0 --eval-every 0 --json)
"$TIGON" train "${small[@]}" --steps 2 --out two >/dev/null || fail "two steps"
"$TIGON" train "${small[@]}" --steps 4 --checkpoint-every 2 --out four >/dev/null || fail "four steps"

cp -r two resumed
"$TIGON" train --resume resumed --steps 4 --sample 0 --json >/dev/null || fail "resumed"
afresh_run() { goal=four; rm -rf run; }
old_run() { goal=resumed; rm -rf run && cp -r two run; }
# After a failure the same command passes, and leaves what the undisturbed one left.
goes_on() {
  if [ "$status" -ne 0 ] && [ -e run/model.safetensors ]; then
    "$TIGON" train --resume run --steps 4 --sample 0 --json >/dev/null 2>err || fail "$1: the checkpoint is broken: $(cat err)"
  elif [ "$status" -ne 0 ]; then
    "$TIGON" train "${small[@]}" --steps 4 --checkpoint-every 2 --overwrite --out run >/dev/null 2>err || fail "$1: then: $(cat err)"
  fi
  for file in model.safetensors optimizer.safetensors config.json; do same $goal/$file run/$file "$1"; done
  [ "$status" -ne 0 ] || [ "$(wc -l <run/metrics.jsonl)" -eq "$(wc -l <$goal/metrics.jsonl)" ] || fail "$1: metrics.jsonl lacks steps"
}

subject train afresh_run nothing train "${small[@]}" --steps 4 --checkpoint-every 2 --out run
subject checkpoints afresh_run goes_on train "${small[@]}" --steps 4 --checkpoint-every 2 --out run
subject resume old_run goes_on train --resume run --steps 4 --sample 0 --json
subject generate nothing nothing generate four --prompt the --max-tokens 3 --json
subject eval nothing nothing eval four --data "$text" --json
subject devices nothing same_output devices cpu --json
subject lines nothing same_output devices cpu
subject list nothing same_output list --json
subject table nothing same_output list
subject plan nothing same_output plan rms_norm --shape 128x1024 --dtype f32 --device 910B4 --json
subject launches nothing same_output plan rms_norm --shape 128x1024 --dtype f32 --device H100 --json
subject check nothing same_output check relu_squared --small --dtype bf16 --json
echo "{\"device\": \"commands\", \"subjects\": $subjects, \"points\": $points, \"out_of_memory\": $refused, \"failed\": $failures}"
finish
