#!/bin/bash
# Every operator on the simulator whose exp, ln, sqrt and division are an ulp off, or flush denormals: within the bounds of such a
# device. With 8 ulps each operator that uses them is outside, softmax with 12, and topk_divergence with 32, whose sum alone uses them
# and may be off by 46 units. Without any of this the bounds are the strict ones, which check/ascend-* hold.
# ctest: slow
set -euo pipefail
part=ascend-sim:910B4
small=(check --small --device $part)
# A part of the cases each: noise, denormals flushed, other noise, and the dtype whose results are rounded to fewer bits than the noise
# has.
TIGON_ASCEND_SIM_NOISE=1 "$TIGON" "${small[@]}" --dtype f32 --part 1/2 | tail -n 1
TIGON_ASCEND_SIM_FLUSH=1 "$TIGON" "${small[@]}" --dtype f32 --part 2/3 | tail -n 1
TIGON_ASCEND_SIM_NOISE=1:2 "$TIGON" "${small[@]}" --dtype f32 --part 1/5 | tail -n 1
TIGON_ASCEND_SIM_NOISE=1 "$TIGON" "${small[@]}" --dtype bf16 --part 2/5 | tail -n 1
TIGON_ASCEND_SIM_FLUSH=1 "$TIGON" "${small[@]}" --dtype bf16 --part 3/5 | tail -n 1
for op in rms_norm fused_add_rms_norm modulated_rms_norm layer_norm group_norm softmax swiglu geglu cross_entropy topk_divergence adamw; do
  ulps=8
  [ $op = softmax ] && ulps=12
  [ $op = topk_divergence ] && ulps=32
  if TIGON_ASCEND_SIM_NOISE=$ulps "$TIGON" "${small[@]}" $op --dtype f32 >/dev/null; then
    echo "$ulps ulps of noise in $op are within the bounds"
    exit 1
  fi
done
