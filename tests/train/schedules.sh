#!/usr/bin/env bash
# ctest: slow
# Each learning-rate schedule has its rates, and a resumed run has the uninterrupted run's bits.
. "$(dirname "$0")/lib.bash"

resumes_exactly cosine --steps 300 --lr-floor 0.2
cp "$scratch/cosine-whole/model.safetensors" "$scratch/cosine.safetensors"
for name in linear constant wsd; do
  resumes_exactly $name --steps 300 --lr-floor 0.2 --schedule $name
  cmp -s "$scratch/cosine.safetensors" "$scratch/$name-whole/model.safetensors" && fail "$name: the weights of cosine"
done

# The printed rates: half the peak in the middle of the warm-up; the peak; what the end is.
for want in cosine:1.00e-02:2.00e-03 linear:1.00e-02:2.00e-03 constant:1.00e-02:1.00e-02 wsd:1.00e-02:2.00e-03; do
  IFS=: read -r name peak last <<<"$want"
  train --steps 20 --warmup 4 --lr-floor 0.2 --schedule "$name" --log-every 1 --overwrite --out "$scratch/rates"
  expect_status 0 "$name, rates"
  for rate in "2:5.00e-03" "5:$peak" "20:$last"; do
    grep -q "^step *${rate%%:*}/20 .*lr ${rate#*:} " "$scratch/err" || fail "$name: step ${rate%%:*} has not ${rate#*:}"
  done
  grep -q "rate: at most 0.01, last $(printf '%.3g' "$last")" "$scratch/out" || fail "$name: no rate beside the curve"
done

train --steps 100 --schedule wsd --warmup 10 --decay-fraction 0.95 --out "$scratch/no"
expect_status 2 "too long a decay"
one_sentence '--warmup is 10, must be at most 5: --decay-fraction 0.95 of --steps 100 leaves no more' "too long a decay"
train --schedule step
expect_status 2 "no such schedule"
one_sentence '--schedule is "step", must be one of: cosine linear constant wsd' "no such schedule"
finish
