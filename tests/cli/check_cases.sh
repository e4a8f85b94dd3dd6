#!/usr/bin/env bash
# Every case of the planner, A to G, is run by the check with two operators or more; parts of the cases are all of them.
. "$(dirname "$0")/lib.bash"

run check rms_norm group_norm modulated_rms_norm swiglu relu_squared --variant scalar --dtype f32 --json
expect_status 0 "tigon check --json"
expect_json 'list(j["planned"]) == list("ABCDEFG")' "the cases"
for case in A B C D E F G; do
  expect_json "len(j['planned']['$case']) >= 2" "case $case"
done
count() {
  run check softmax --variant scalar --dtype bf16 --small --json "$@"
  expect_status 0 "tigon check $*"
  python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["passed"])' "$scratch/out"
}
[ $(($(count --part 1/3) + $(count --part 2/3) + $(count --part 3/3))) = "$(count)" ] || fail "three parts are not the whole"
finish
