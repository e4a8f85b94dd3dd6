#!/usr/bin/env bash
# ctest: slow
# tigon plan on a device without a planner: what every operator's call would launch, and how much workspace it takes.
. "$(dirname "$0")/lib.bash"

for op in rms_norm fused_add_rms_norm layer_norm modulated_rms_norm poly_norm group_norm dyt swiglu geglu relu_squared rope embedding softmax \
  sparsemax attn_res attention cross_entropy linear fused_linear_cross_entropy mhc_coeffs mhc_post_res multi_token_attention; do
  for mode in fwd bwd; do
    run plan $op --shape 256x512 --mode $mode --json
    expect_status 0 "tigon plan $op --mode $mode"
    expect_json 'j["status"] == "TIGON_OK" and len(j["launches"]) > 0 and all(l["grid"] > 0 and l["block"] > 0 for l in j["launches"])' "$op $mode"
  done
done
for mode in step clip; do
  run plan adamw --shape 256x512 --mode $mode --json
  expect_json 'len(j["launches"]) == 1' "adamw $mode"
done
# 32 slabs of dw, which a second launch adds up.
run plan rms_norm --shape 2048x4096 --mode bwd --json
expect_json 'j["workspace_bytes"] == 32 * 4096 * 4 and [l["slabs"] for l in j["launches"]] == [32, 32] and j["launches"][0]["grid"] == 32' "slabs"
# A tensor of 2^50 bytes has no memory here; one huge row is shared.
OMP_NUM_THREADS=2 run plan softmax --shape 1x281474976710656 --json
expect_json '[(l["grid"], l["times"], l["cluster"]) for l in j["launches"]] == [(32, 3, 32)]' "a huge row"
# A GPU that is not here: kernels, grids, blocks and bytes on chip from a table's figures.
for op in rms_norm fused_add_rms_norm layer_norm modulated_rms_norm poly_norm group_norm dyt swiglu geglu relu_squared rope embedding softmax \
  sparsemax attn_res attention cross_entropy linear fused_linear_cross_entropy mhc_coeffs mhc_post_res multi_token_attention; do
  for mode in fwd bwd; do
    run plan $op --shape 256x512 --mode $mode --dtype bf16 --device b200 --json
    expect_status 0 "tigon plan $op --mode $mode on a b200"
    expect_json 'len(j["launches"]) > 0 and all(l["kernel"] and l["grid"] > 0 for l in j["launches"])' "$op $mode on a b200"
  done
done
# Products of a head: whole pairs fit a chunk of what is recommended, none fits a small one.
of_head() { # operator, device, workspace; then a condition on the head
  run plan $1 --shape 8192x1024 --dtype bf16 --device $2 ${3:+--workspace $3} --json
  expect_status 0 "tigon plan $1 on $2"
  expect_json "(lambda h: $4)(j['head'])" "$1 on $2"
}
for device in cpu h200; do
  of_head fused_linear_policy $device "" 'h["products"] == 3 and h["groups"] == 0 and h["chunks"] > 1'
  of_head fused_linear_policy $device 8388608 'h["products"] == 3 and h["chunks"] > 16'
  of_head fused_linear_preference $device "" 'h["products"] == 3 and h["groups"] == 4 and h["groups_twice"] == 0'
  of_head fused_linear_preference $device 8388608 'h["products"] == 4 and h["groups"] == 4 and h["groups_twice"] == 4'
  of_head fused_linear_cross_entropy $device "" 'h["products"] == 1'
  of_head fused_linear_divergence $device "" 'h["products"] == 4 and h["groups"] == 0'
  of_head fused_linear_topk_divergence $device "" 'h["products"] == 1 and h["groups"] == 0'
done
# Tiles of an MLP: forward has 3 products of rows x H x I, backward 8, and with too little room for the sums of bf16 gradients 11.
of_mlp() { # direction, device, workspace; then a condition on the tiles
  run plan mlp --shape 8192x1024 --classes 2816 --dtype bf16 --mode $1 --device $2 ${3:+--workspace $3} --json
  expect_status 0 "tigon plan mlp on $2"
  expect_json "(lambda t: $4)(j['tiles']) and j['head'] is None" "mlp $1 on $2"
}
for device in cpu h200; do
  of_mlp fwd $device "" 't["products"] == 3 and t["tiles"] > 1 and t["tile_bytes"] == t["tile_rows"] * 2 * 2816 * 2'
  of_mlp fwd $device 1048576 't["products"] == 3 and t["tiles"] == 89'
  of_mlp bwd $device "" 't["products"] == 8 and t["sums_bytes"] == 0'
  of_mlp bwd $device 1048576 't["products"] == 8 and t["tiles"] > 100'
done
# attention's options. Sequences and a dilation of many parts have more places for tiles of 64 queries; a plan reads no cu_seqlens.
for device in cpu h200; do
  for mode in fwd bwd; do
    run plan attention --shape 640x512 --mode $mode --device $device --softcap 30 --sinks --sequences 10 --window 7 --dilation 2 --both-sides --json
    expect_json 'j["status"] == "TIGON_OK" and len(j["launches"]) > 0' "attention's options, $mode on $device"
  done
done
run plan attention --shape 640x512 --window 7 --sinks
grep -q '640 x 512, window 7, sinks  on cpu' "$scratch/out" || fail "no options: $(cat "$scratch/out")"
places() { # the places of 640 queries, and the options
  run plan attention --shape 640x512 $2 --json
  expect_json "[l['grid'] for l in j['launches']] == [8 * $1]" "places of attention $2"
}
places 10 ""
places 10 "--window 9 --softcap 30 --sinks"
places 12 "--dilation 3" # of 64 * 3 queries: 4 times 3
places 24 "--sequences 10" # 10, and one for each sequence and for the 4 around them
kernels() { # a condition on the kernels of both directions, and the options
  for mode in fwd bwd; do
    run plan attention --shape 640x512 --dtype bf16 --device h200 --mode $mode $2 --json
    expect_json "(lambda names: $1)(' '.join(l['kernel'] for l in j['launches']))" "kernels of attention $mode $2"
  done
}
kernels '"any" not in names and "sinks" not in names' ""
for options in "--softcap 30" "--dilation 2" "--sequences 10"; do kernels '"any" in names' "$options"; done
kernels '"sinks" in names or "any" in names' --sinks
# Backward of many tokens makes its scores once on Hopper, and its workspace has dq in f32.
once() { # a condition on whether it does, the tokens, and the options
  run plan attention --shape $2x4096 --dtype bf16 --device h200 --mode bwd $3 --json
  expect_json "(lambda once: $1 and once == (j['workspace_bytes'] > 4 * $2 * 4096))(any('once' in l['kernel'] for l in j['launches']))" "attention of $2 tokens $3"
}
once 'once' 4096 ""
for options in "--window 512" "--softcap 30" "--sequences 10"; do once 'not once' 4096 "$options"; done
once 'not once' 2048 ""
# Other forms of calls.
for device in cpu h200; do
  while read -r op mode forms; do
    run plan $op --shape 256x512 --mode $mode --dtype bf16 --device $device $forms --json
    expect_json 'j["status"] == "TIGON_OK" and len(j["launches"]) > 0' "$op $mode $forms on $device"
  done <<'FORMS'
rms_norm fwd --gate
rms_norm bwd --gate
rms_norm quantised
rms_norm quantised --gate --int8
rope fwd --sections --complex-table
swiglu bwd --gpt-oss --packed
attn_res bwd --list
multi_token_attention fwd --pre --sparse
multi_token_attention bwd --biases
divergence fwd --kl
mhc_coeffs fwd --bare
mhc_post_res bwd --bare
linear bwd --biases --dweight-as-weight
mlp bwd --packed --biases --gpt-oss --dweight-as-weight
fused_moe fwd --gpt-oss
fused_moe bwd --recompute --interleaved
FORMS
  run plan mlp --shape 8192x1024 --classes 2816 --dtype bf16 --mode bwd --device $device --cache --json
  expect_json 'j["tiles"]["products"] == 6' "backward with a cache on $device"
done
run plan rms_norm --shape 256x512 --workspace 64
expect_status 2 "a workspace of an operator that is no head"
# A shard of the vocabulary has the logits of its own classes. Its loss is no output, so that it lies in the workspace.
of_shard() { # arguments; then a condition
  run plan linear_logprob --shape 256x512 --classes 500 $1 --json
  expect_json "$2" "a head of 500 classes, $1"
}
for device in cpu h200; do
  of_shard "--device $device" 'j["head"]["logits_bytes"] == 256 * 500 * 4'
  whole=$(sed -n 's/.*"workspace_bytes": \([0-9]*\).*/\1/p' "$scratch/out")
  of_shard "--device $device --vocab 1500 --vocab-begin 1000" "j['status'] == 'TIGON_OK' and j['head']['logits_bytes'] == 256 * 500 * 4"
  expect_json "j['workspace_bytes'] == $whole + 256 * 4" "a shard's workspace on $device"
  of_shard "--device $device --vocab 1500 --mode bwd" 'j["status"] == "TIGON_OK" and j["head"]["products"] == 3'
done
of_shard "--vocab 1500 --vocab-begin 1001" 'j["reason"].endswith("vocab_begin is 1001, must be 0 to 1000 (vocab - weight.shape[0])")'
expect_status 1 "a shard beyond the vocabulary"
of_shard "--vocab 400" 'j["reason"].endswith("weight.shape[0] is 500, must be at most 400 (vocab)")'
mistaken() { # arguments, what stderr says
  run plan $1
  expect_status 2 "tigon plan $1"
  grep -qF -- "$2" "$scratch/err" || fail "tigon plan $1 says $(cat "$scratch/err"), must say $2"
}
mistaken "linear_logprob --shape 256x512 --vocab-begin 4" "--vocab-begin is 4, must be 0 without --vocab"
mistaken "fused_linear_policy --shape 256x512 --vocab 20000" "--vocab is for linear_logprob, and fused_linear_policy has no shards"
mistaken "linear --shape 256x512 --classes 500" "--classes is for heads, and linear is none"
mistaken "rms_norm --shape 256x512 --device 910b4 --vocab 500" "--vocab is for heads on devices without a planner, and 910b4 has one"
run plan rms_norm --shape 8192x4096 --dtype bf16 --device h200 --json
expect_json '[(l["kernel"], l["grid"], l["block"], l["cluster"]) for l in j["launches"]] == [("rms_norm_fwd_4_bf16", 8192, 128, 1)]' "h200"
run plan rms_norm --shape 8192x4096 --dtype bf16 --device h200 --gate --json
expect_json '["gated_rms_norm" in l["kernel"] for l in j["launches"]] == [True]' "h200, a gate"
run plan rms_norm --shape 8192x4096 --dtype bf16 --device h200 --mode quantised --json
expect_json '["quantised" in l["kernel"] for l in j["launches"]] == [True]' "h200, 8 bits"
run plan rms_norm --shape 8192x4096 --dtype bf16 --device H200 --mode bwd --json
expect_json '[(l["kernel"], l["grid"], l["onchip_bytes"]) for l in j["launches"]] == [("rms_norm_bwd_plain_bf16", 132, 98304), ("column_sum", 128, 0)]' "h200, backward"
run plan rms_norm --shape 8192x4096 --dtype bf16 --device a100 --mode bwd --json
expect_json 'j["launches"][0]["grid"] == 108' "a100, backward"
held() { # direction, how softmax's rows of a width are held, the width
  run plan softmax --shape 64x$3 --dtype bf16 --device h200 --mode $1 --json
  expect_json "[l['held'] for l in j['launches']] == ['$2']" "softmax $1, rows of $3"
}
held fwd held 4096
held bwd held 4096
held fwd packed 32768
held bwd shared 131072
held fwd walked 1048576
run plan rms_norm --shape 256x512 --case B
expect_status 2 "a case where there is none"
run plan rms_norm --shape 256x512 --mode sideways
expect_status 2 "a mode that there is not"
finish
