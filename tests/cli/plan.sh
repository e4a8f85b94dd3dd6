#!/usr/bin/env bash
# ctest: slow
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
for unit in 128 64; do # with 1024 columns of keys
  run plan rope --shape 2048x4096 --keys $((1024 / unit)) --unit $unit --dtype bf16 --device 910b4 --json
  expect_json "j['bytes_moved'] == j['bytes_min'] == 2048 * (2 * 5120 * 2 + $unit * 4)" "rope's tables, heads of $unit"
  run plan rope --mode fwd_positions --shape 2048x4096 --unit $unit --dtype bf16 --device 910b4 --json
  expect_json "j['bytes_min'] == 2048 * (2 * 5120 * 2 + $unit * 4 + 8)" "rope's positions, heads of $unit"
done
# A part's cores and bytes of UB by environment.
TIGON_ASCEND_CORES=12 TIGON_ASCEND_UB_BYTES=65536 run plan rms_norm --shape 2048x32768 --device 910b4 --json
expect_json 'j["grid"] == 12 and j["onchip_limit"] == 65536' "12 cores"
TIGON_ASCEND_CORES=12 TIGON_ASCEND_UB_BYTES=65536 run plan --devices --json
expect_json 'all(((d["cores"], d["onchip_bytes"]) == (12, 65536)) == d["name"].startswith("ascend") for d in j["devices"])' "all parts"
TIGON_ASCEND_CORES=none run plan rms_norm --shape 2048x32768 --device 910b4
expect_status 2 "cores that are no number"
grep -q 'TIGON_ASCEND_CORES is "none", must be a whole number from 1 to 128' "$scratch/err" || fail "$(cat "$scratch/err")"
TIGON_ASCEND_CORES=none run plan rms_norm --shape 2048x32768 --device cpu
expect_status 0 "a device that has no such cores"

run plan adamw --case B --shape 1x4096 --device 910b4
expect_status 2 "a case of what has none"
run plan embedding --mode bwd --shape 2048x4096 --table 32000 --device 910b4 --json
expect_json "j['bytes_moved'] == j['bytes_min'] == (2048 + 32000) * 4096 * 4 + 2048 * 8" "embedding's table"
run plan embedding --shape 2048x4096 --table 32000
expect_status 2 "a table without backward"

# What moves by the plan is what the simulator counts, and what `tigon bench` says that was predicted.
counted() { echo "json.load(open('$scratch/bench'))['rows'][0]['counted']['$1']"; }
compare() { # op, mode, dtype, shape, form
  local call="$1 --mode $2 --dtype $3 --shape $4 ${5:-} --json"
  run bench $call --device ascend-sim:910b4
  cp "$scratch/out" "$scratch/bench"
  run plan $call --device 910b4
  expect_json "j['bytes_moved'] + j['bytes_extra'] == $(counted bytes_moved) == $(counted bytes_predicted)" "$call"
}
for op in rms_norm fused_add_rms_norm layer_norm swiglu geglu relu_squared softmax sparsemax embedding cross_entropy rope; do
  for mode in fwd bwd; do compare $op $mode f32 256x512; done
done
for mode in fwd bwd; do
  compare rms_norm $mode bf16 256x512 --gate
  expect_json "j['mode'] == '${mode}_gate' and j['case'] != '-'" "a gate's own plan"
  compare swiglu $mode bf16 256x512 --packed
  compare rope $mode bf16 256x512 --complex-table
done
compare cross_entropy bwd bf16 3x200000
compare rope fwd bf16 100x1024
for dtype in f32 bf16; do
  compare adamw step $dtype 1x1048576
  compare adamw clip $dtype 1x1048576
done

# Tiles of launches that are no walk over rows: what a core has on chip, and the cores.
for op in rope embedding; do
  compare $op bwd bf16 256x1024
  expect_json "j['onchip_bytes'] == $(counted onchip_bytes) and j['grid'] == $(counted grid)" "tiles of $op bwd"
done
compare vocab_parallel_cross_entropy stats bf16 256x1024
run bench vocab_parallel_cross_entropy --mode merge --dtype f32 --shape 3000x64 --json --device ascend-sim:910b4
cp "$scratch/out" "$scratch/bench"
run plan vocab_parallel_cross_entropy --mode merge --shape 3000x1 --device 910b4 --json # tokens x shards
expect_json "j['bytes_moved'] + j['bytes_extra'] == $(counted bytes_moved) == $(counted bytes_predicted)" "merge"
expect_json "j['onchip_bytes'] <= $(counted onchip_bytes) and j['grid'] == $(counted grid) == 40" "tiles of merge"
run plan vocab_parallel_cross_entropy --mode merge --shape 3000x8 --dtype bf16 --device 910b4
expect_status 2 "merge of bf16"
compare adamw step bf16 3x1000
expect_json "j['onchip_bytes'] == $(counted onchip_bytes) and j['grid'] == $(counted grid) == 24" "tiles of adamw step"
finish
