#!/usr/bin/env bash
# ctest: slow
# The check of an Ascend device runs every case of the planner: A to F with two operators or more, G with group_norm. Parts of the
# cases are all of them.
. "$(dirname "$0")/lib.bash"

run check rms_norm group_norm softmax swiglu relu_squared --device ascend-sim:910B4 --dtype f32 --json
expect_status 0 "tigon check --json"
expect_json 'list(j["planned"]) == list("ABCDEFG")' "the cases"
for case in A B C D E F; do
  expect_json "len(j['planned']['$case']) >= 2" "case $case"
done
expect_json 'j["planned"]["G"] == ["group_norm"]' "case G"
count() {
  run check softmax --variant scalar --dtype bf16 --small --json "$@"
  expect_status 0 "tigon check $*"
  python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["passed"])' "$scratch/out"
}
[ $(($(count --part 1/3) + $(count --part 2/3) + $(count --part 3/3))) = "$(count)" ] || fail "three parts are not the whole"
finish
