#!/usr/bin/env bash
# tigon bench on tiny shapes: every operator has a case, none fails, and the figures are there.
# ctest: slow
. "$(dirname "$0")/lib.bash"

run bench --shape 8x128 --repeat 2 --json
expect_status 0 "tigon bench --shape 8x128"
grep -q 'failed:' "$scratch/err" && fail "$(cat "$scratch/err")"
expect_json 'not [s for s in j["skipped"] if "no case" in s["reason"]]' 'every operator has a case'
expect_json 'set(j["ceilings"]) == {"copy_gbps", "read_gbps"} and min(j["ceilings"].values()) > 0' ceilings
expect_json 'all(set(r) >= {"op", "mode", "variant", "dtype", "shape", "threads", "median_ms", "q20_ms", "q80_ms", "bytes_min", "gbps", "floor_fraction", "extra_bytes"} for r in j["rows"])' keys
expect_json 'all(0 < r["q20_ms"] <= r["median_ms"] <= r["q80_ms"] for r in j["rows"])' quantiles
expect_json 'any(r["op"] == "rms_norm" and r["mode"] == "full" for r in j["rows"])' 'rms_norm is timed'

run bench rms_norm --shape 8x128 --repeat 2 --mode fwd --dtype f32 --threads 1 --json
expect_status 0 "tigon bench rms_norm"
expect_json '[(r["op"], r["mode"], r["dtype"], r["shape"], r["threads"], r["extra_bytes"]) for r in j["rows"]] == [("rms_norm", "fwd", "f32", "8x128", 1, 0)]' 'one row'
# x and y of 8 x 128 f32, w of 128, rstd of 8
expect_json 'j["rows"][0]["bytes_min"] == 2 * 8 * 128 * 4 + 128 * 4 + 8 * 4' 'minimum bytes'

run bench rms_norm --shape 8x128 --repeat 2 --markdown
expect_status 0 "tigon bench --markdown"
grep -q '^| rms_norm | fwd | f32 | 8x128 |' "$scratch/out" || fail "no markdown row: $(cat "$scratch/out")"
run bench rms_norm --shape 8x128 --repeat 2 --mode fwd --csv
expect_status 0 "tigon bench --csv"
expect_csv 'list(j[0]) == ["kernel_name", "kernel_provider", "kernel_operation_mode", "metric_name", "metric_unit", "x_name", "x_label", "x_value", "y_value_50", "y_value_20", "y_value_80", "extra_benchmark_config_str", "gpu_name", "timestamp", "version"]' 'columns of the CSV'
expect_csv '[(r["kernel_operation_mode"], r["x_value"], json.loads(r["extra_benchmark_config_str"])["dtype"]) for r in j if r["metric_name"] == "speed"] == [("forward", "8", "f32"), ("forward", "8", "bf16")]' 'rows of the CSV'
expect_csv 'all(0 < float(r["y_value_20"]) <= float(r["y_value_50"]) <= float(r["y_value_80"]) for r in j)' 'quantiles of the CSV'

one=(bench rms_norm --repeat 2 --mode fwd --dtype f32)
for sweep in rows width threads; do
  run "${one[@]}" --shape 64x128 --threads 2 --sweep $sweep --svg "$scratch/$sweep.svg" --json
  expect_status 0 "tigon bench --sweep $sweep"
  cp "$scratch/out" "$scratch/$sweep"
done
expect_json '[(r["shape"], r["threads"]) for r in j["rows"]] == [("64x128", 1), ("64x128", 2)]' 'sweep of threads'
expect_json '[r["speedup"] > 0 for r in j["rows"]] == [True, True] and j["rows"][0]["speedup"] == 1' 'speed-up'
grep -q '<svg ' "$scratch/rows.svg" && grep -q '>rows, with 128 columns<' "$scratch/rows.svg" && [ "$(grep -c '<circle' "$scratch/rows.svg")" -eq 8 ] &&
  tail -n 1 "$scratch/rows.svg" | grep -qx '</svg>' || fail "--svg: $(head -c 300 "$scratch/rows.svg")"
run "${one[@]}" --shape 8x128 --svg "$scratch/none/plot.svg"
expect_status 3 "tigon bench --svg into no folder"
cp "$scratch/rows" "$scratch/out"
expect_json '[r["shape"] for r in j["rows"]] == [f"{2 << k}x128" for k in range(7)]' 'sweep of rows'
cp "$scratch/width" "$scratch/out"
expect_json '[r["shape"] for r in j["rows"]] == [f"64x{16 << k}" for k in range(6)]' 'sweep of the width'
run "${one[@]}" --models=qwen2.5-7b --json
expect_status 0 "tigon bench --models"
# The operator's own tensors: x and y; the case holds four for all modes.
expect_json '[(r["model"], r["shape"]) for r in j["rows"]] == [("qwen2.5-7b", "4096x3584")] and (j["rows"][0]["peak_bytes"] or 1e12) > 4 * 4096 * 3584 * 4' 'sizes of a model'

# An earlier run in which every time was a nanosecond, then one in which it was a thousand seconds.
for was in 1e-6:1:slower 1e6:0:faster; do
  sed -E "s/\"(median|q20|q80)_ms\": [^,]*/\"\1_ms\": ${was%%:*}/" "$scratch/threads" >"$scratch/old"
  run "${one[@]}" --shape 64x128 --threads 1 --against "$scratch/old"
  [ "$status:$(grep -cE '^(slower|faster): ' "$scratch/out")" = "$(cut -d: -f2 <<<$was):1" ] && grep -q "^${was##*:}: rms_norm fwd f32 64x128, 1 thread: " "$scratch/out" ||
    fail "--against $was: exit $status: $(cat "$scratch/out")"
done
run "${one[@]}" --shape 64x128 --threads 1 --against "$scratch/old" --json
expect_json 'j["against"]["faster"] == 1 and j["rows"][0]["against"]["verdict"] == "faster" and j["rows"][0]["against"]["median_ms"] == 1e6' 'against as JSON'
run "${one[@]}" --shape 8x8 --against "$scratch/old"
expect_status 3 "tigon bench --against another shape"
run "${one[@]}" --shape 8x8 --against "$scratch/nothing"
expect_status 3 "tigon bench --against no file"

run bench linear rms_norm --shape 16x32 --dtype bf16 --mode bwd --repeat 2 --dweight-as-weight --json
expect_status 0 "tigon bench --dweight-as-weight"
expect_json '[(r["shape"], r["bytes_min"]) for r in j["rows"] if r["op"] == "linear"] == [("16x32, dweight as weight", 2 * (3 * 16 * 32 + 2 * 32 * 32))]' 'dweight in bf16'
expect_json '[r["shape"] for r in j["rows"] if r["op"] == "rms_norm"] == ["16x32"]' 'no choice of dweight'

# attention's options: pairs of a query and a key that it sees are counted one by one, in heads of 64 columns.
attention() { # window or 0, both sides, dilation, sequences; then the options, and what they add to the shape
  run bench attention rms_norm --shape 61x128 --dtype f32 --repeat 2 --threads 1 $5 --json
  expect_status 0 "tigon bench attention $5"
  local lengths="[61 // $4 + (s < 61 % $4) for s in range($4)]" reach="(${1/#0/99}) * $3"
  local pairs="sum(abs(t - i) % $3 == 0 and abs(t - i) < $reach and (i <= t or $2) for n in $lengths for t in range(n) for i in range(n))"
  expect_json "[(r['mode'], r['shape'], round(r['gflops'] * r['median_ms'] * 1e6 / (4 * 128 * $pairs), 3)) for r in j['rows'] if r['op'] == 'attention'] == [(m, '61x128$6', f) for m, f in (('fwd', 1), ('bwd', 2.5), ('full', 3.5))]" "attention $5"
  expect_json '{r["shape"] for r in j["rows"] if r["op"] == "rms_norm"} == {"61x128"}' "rms_norm has no keys"
}
attention 0 0 1 1 "" ""
attention 9 0 1 1 "--window 9 --sinks --exact" ", window 9, sinks, exact"
attention 4 1 3 1 "--window 4 --both-sides --dilation 3" ", both sides, window 4, dilation 3"
attention 5 0 2 7 "--sequences 7 --window 5 --dilation 2 --softcap 2.5" ", window 5, dilation 2, 7 sequences, softcap 2.5"
attention 0 1 1 70 "--sequences 70 --both-sides" ", both sides, 70 sequences"
# A short window takes a small part of the time.
for window in "" "--window 8"; do
  run bench attention --shape 2048x64 --repeat 3 --mode fwd --dtype f32 --threads 1 $window --json
  [ -n "$window" ] || cp "$scratch/out" "$scratch/all"
done
expect_json "j['rows'][0]['median_ms'] < json.load(open('$scratch/all'))['rows'][0]['median_ms'] / 2" 'a window is less work'
run bench attention --shape 8x64 --repeat 2 --mode fwd --dtype f32 --softcap 30 --csv
expect_csv 'json.loads(j[0]["extra_benchmark_config_str"])["shape"] == "8x64, softcap 30"' 'the shape in CSV'
# q, k, v and o; lse of two heads, their sinks, and cu_seqlens, which queries and keys share.
run bench attention --shape 8x128 --repeat 2 --mode fwd --dtype f32 --sinks --sequences 2 --json
expect_json 'j["rows"][0]["bytes_min"] == 4 * 8 * 128 * 4 + 8 * 2 * 4 + 2 * 4 + 3 * 8' 'bytes of sinks and cu_seqlens'
# Other forms of calls, and the bytes that they move in f32.
form() { # operator, mode, shape, options, what the shape ends in, bytes
  run bench $1 --mode $2 --shape $3 --dtype f32 --repeat 2 --threads 1 $4 --json
  expect_json "[(r['shape'], r['bytes_min']) for r in j['rows']] == [('$3$5', 4 * ($6))]" "$1 $2 $4"
}
form rms_norm fwd 8x128 --gate ", gate" "3 * 1024 + 128 + 8"
form rms_norm bwd 8x128 --gate ", gate" "5 * 1024 + 2 * 128 + 8"
form rms_norm quantised 8x128 "" "" "1.25 * 1024 + 128 + 8"
form rms_norm quantised 8x128 "--int8 --gate" ", gate, int8" "2.25 * 1024 + 128 + 8"
form rope fwd 8x128 --sections ", sections" "4 * 1024 + 2 * 7 * 64 + 2 * 3 * 8" # 7 rows of the tables
form rope bwd 8x128 --complex-table ", complex table" "4 * 1024 + 2 * 128"     # 2 tokens a sequence
form swiglu bwd 8x128 "--packed --gpt-oss" ", gpt-oss, packed" "5 * 1024"
form geglu fwd 8x128 --packed ", packed" "3 * 1024"
form attn_res fwd 8x128 --list ", list" "9 * 1024 + 2 * 128 + 2 * 64"
form attn_res bwd 8x128 --list ", list" "17 * 1024 + 4 * 128 + 2 * 64"
form multi_token_attention fwd 8x2 "--pre --sparse" ", pre, sparse" "2 * (64 + 66 + 13 * 8 + 13)" # 13 rows of o
form multi_token_attention bwd 8x2 --biases ", biases" "2 * (2 * 64 + 2 * 66 + 13 * 8 + 8 + 1)"
form divergence fwd 8x128 --kl ", kl" "2 * 1024 + 4 * 8 + 1"
form mhc_coeffs fwd 8x128 --bare ", bare" "8 * 512 + 512 * 24 + 24 + 3 + 8 * (24 + 24 + 1)"
form mhc_post_res fwd 8x128 --bare ", bare" "8 * (2 * 512 + 16)"
products() { # operator, options, the third size; then the products of forward and backward
  run bench $1 --shape 8x128 --dtype f32 --repeat 2 --threads 1 $2 --mode fwd --mode bwd --json
  expect_json "[round(r['gflops'] * r['median_ms'] * 1e6 / (2 * 8 * 128 * $3), 3) for r in j['rows']] == $4" "products of $1 $2"
}
products mlp "" 5504 "[3, 8]"
products mlp "--cache --packed --biases --gpt-oss" 5504 "[3, 6]"
products fused_moe "--gpt-oss" 512 "[12, 24]"
products fused_moe "--recompute --interleaved --biases" 512 "[12, 32]"
run bench rms_norm rope --shape 8x128 --dtype f32 --repeat 2 --int8 --json
expect_json '[(r["op"], r["mode"], r["shape"]) for r in j["rows"]] == [("rms_norm", "quantised", "8x128, int8")] + [("rope", m, "8x128") for m in ("fwd", "bwd", "full")]' "int8 is of one mode"
run bench rms_norm --hot --gate --mode full --dtype f32 --repeat 2 --threads 1 --json
expect_json 'j["rows"][0]["bytes_min"] < 2 * j["machine"]["l2_bytes"]' "hot rows with a gate"

run bench --hot --repeat 2 --threads 1 --json
expect_status 0 "tigon bench --hot"
expect_json 'j["hot"] and {"rms_norm", "group_norm", "cross_entropy"} <= {r["op"] for r in j["rows"]} and all(r["floor_fraction"] > 0 and r["bytes_min"] < 2 * j["machine"]["l2_bytes"] for r in j["rows"])' 'hot rows'
run bench linear --hot --json
expect_status 3 "tigon bench linear --hot"
expect_json 'not j["rows"] and "matrix products" in j["skipped"][0]["reason"]' 'no hot rows for matrix products'
run "${one[@]}" --hot --against "$scratch/threads"
expect_status 3 "tigon bench --hot --against a cold run"
run bench --hot --models
expect_status 2 "tigon bench --hot --models"

run bench rms_norm --overhead --repeat 2
expect_status 0 "tigon bench --overhead"
grep -q 'rms_norm .* us' "$scratch/out" || fail "no microseconds: $(cat "$scratch/out")"

# On a simulator the planner's bytes stand beside those counted, of every operator that it plans.
sim=(bench --device ascend-sim:tiny --shape 24x1024 --dtype bf16)
run "${sim[@]}" --json
expect_status 0 "tigon bench on a simulator"
expect_json '{"rms_norm", "rope", "cross_entropy", "adamw"} <= {r["op"] for r in j["rows"]} and all(c["bytes_predicted"] == c["bytes_moved"] > 0 for c in (r["counted"] for r in j["rows"] if not r["op"].startswith(("mhc_", "attn_res", "multi_token", "fused_moe"))))' 'bytes predicted and counted'
run "${sim[@]}" --markdown
[ "$(awk -F '|' '$10 != $11 && $2 !~ /mhc_|attn_res|multi_token|fused_moe/' "$scratch/out" | grep -c ' bf16 ')" = 0 ] && grep -q '| predicted | counted |' "$scratch/out" ||
  fail "predicted and counted: $(cat "$scratch/out")"
finish
