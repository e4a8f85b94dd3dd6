#!/usr/bin/env bash
# tigon plan: the documented keys, for a device that this machine need not have.
. "$(dirname "$0")/lib.bash"

run plan rms_norm --shape 2048x32768 --dtype f32 --device ascend910b4
expect_status 0 "tigon plan rms_norm"
[ -s "$scratch/out" ] || fail "tigon plan printed nothing"
for mode in fwd bwd; do
  run plan rms_norm --shape 2048x32768 --dtype f32 --device ascend910b4 --mode $mode --json
  expect_status 0 "tigon plan --mode $mode --json"
  expect_json 'set(j) >= {"status", "case", "grid", "rows_per_tile", "cols_per_tile", "splits", "passes", "onchip_bytes", "onchip_limit", "bytes_moved", "bytes_min", "workspace_bytes", "reason"}' "keys of $mode"
  expect_json 'j["onchip_bytes"] <= j["onchip_limit"] and j["bytes_min"] <= j["bytes_moved"]' "figures of $mode"
done
for unit in 128 64; do
  run plan rope --shape 2048x5120 --unit $unit --dtype bf16 --device 910b4 --json
  expect_json "j['bytes_moved'] == j['bytes_min'] == 2048 * (2 * 5120 * 2 + $unit * 4 + 8)" "rope's tables, heads of $unit"
done
run plan embedding --mode bwd --shape 2048x4096 --table 32000 --device 910b4 --json
expect_json "j['bytes_moved'] == j['bytes_min'] == (2048 + 32000) * 4096 * 4 + 2048 * 8" "embedding's table"
run plan embedding --shape 2048x4096 --table 32000
expect_status 2 "a table without backward"

# What moves by the plan is what the simulator counts.
for op in rms_norm fused_add_rms_norm layer_norm swiglu geglu relu_squared softmax embedding; do
  for mode in fwd bwd; do
    call="$op --mode $mode --dtype f32 --shape 256x512 --json"
    run bench $call --device ascend-sim:910b4
    cp "$scratch/out" "$scratch/bench"
    counted="json.load(open('$scratch/bench'))['rows'][0]['counted']['bytes_moved']"
    run plan $call --device 910b4
    expect_json "j['bytes_moved'] + j['bytes_extra'] == $counted" "$call"
  done
done
finish
