#!/usr/bin/env bash
# ctest: slow
# The trainer on the Ascend simulator, on an NPU over the runtime and the operators of tests/ascend/fake, and on a GPU where there is
# one, has the CPU's losses, within the bound that docs/train.md derives under "Devices".
. "$(dirname "$0")/lib.bash"
cd "$scratch" || exit 1
layers=2 hidden=72 intermediate=96 tokens=64 rate=0.01

small=(--data "$text" --layers $layers --hidden $hidden --intermediate $intermediate --heads 2 --seq 32 --batch 2 --lr $rate
  --warmup 0 --steps 3 --sample 0 --eval-every 0 --log-every 1 --json)

compare() { # device dtype
  local device=$1 dtype=$2
  run train "${small[@]}" --dtype "$dtype" --device cpu --out "cpu-${device%%:*}-$dtype"
  expect_status 0 "cpu $dtype"
  losses "$scratch/out" >cpu
  run train "${small[@]}" --dtype "$dtype" --device "$device" --out "${device%%:*}-$dtype"
  expect_status 0 "$device $dtype"
  losses "$scratch/out" >there
  paste -d ' ' cpu there >both
  awk -v layers=$layers -v hidden=$hidden -v wide=$intermediate -v tokens=$tokens -v rate=$rate -v dtype="$dtype" -v device="$device" '
    BEGIN { unit = dtype == "f32" ? 2 ^ -24 : 2 ^ -8; roundings = 13 * layers + 8
            weights = 2 * 256 * hidden + layers * (4 * hidden * hidden + 3 * hidden * wide)
            gradient = 6 * (sqrt(3 * roundings) * unit + sqrt(tokens) * 2 ^ -24) }
    { bound = $2 * (8 * 2 ^ -24 + 6 * sqrt(roundings / tokens) * unit) + 2 * rate * sqrt(weights) * gradient * ($1 - 1)
      difference = $2 > $4 ? $2 - $4 : $4 - $2
      print device, dtype, "step", $1, "differs by", difference, "of", bound
      if ($1 != $3 || difference > bound) exit 1; ++steps }
    END { if (steps != 3) exit 1 }' both >&2 || fail "$device $dtype: $(cat both)"
}

devices=(ascend-sim:910B4)
for family in cuda opencl; do
  run devices $family --json
  ! grep -q '"available": *true' "$scratch/out" || devices+=($family)
done
for device in "${devices[@]}"; do
  compare "$device" f32
  compare "$device" bf16
done
fake=${TIGON_BUILD:-}/tests/fake-acl_rt
if [ -e "$fake/libopapi.so" ]; then
  export LD_LIBRARY_PATH=$fake TIGON_ASCEND_KERNELS=$fake/kernels.o
  compare npu f32
fi
finish
