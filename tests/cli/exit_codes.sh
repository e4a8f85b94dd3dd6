#!/usr/bin/env bash
# The exit codes that `tigon --help` promises.
. "$(dirname "$0")/lib.bash"

for command in "" devices list plan check bench train generate eval tokenize env completion; do
  run $command -h
  expect_status 0 "tigon $command -h"
  cp "$scratch/out" "$scratch/short"
  run $command --help
  cmp -s "$scratch/short" "$scratch/out" ||
    fail "tigon $command -h is not tigon $command --help: $(diff "$scratch/short" "$scratch/out")"
  expect_status 0 "tigon $command --help"
  [ -s "$scratch/err" ] && fail "tigon $command --help wrote to stderr"
  grep -q '^Usage: tigon' "$scratch/out" || fail "tigon $command --help shows no usage"
  grep -q 'Example' "$scratch/out" || fail "tigon $command --help shows no example"
done
# What malloc() leaves in its memory, such as blanks, changes no help.
for fill in 1 223; do
  GLIBC_TUNABLES=glibc.malloc.perturb=$fill "$TIGON" train --help >"$scratch/help-$fill"
done
cmp -s "$scratch/help-1" "$scratch/help-223" || fail "tigon train --help is not always the same: $(diff "$scratch"/help-*)"
for code in '0 done' '1 the command' '2 the command line' '3 a device' '130 interrupted'; do
  run --help
  tr '\n' ' ' <"$scratch/out" | grep -q "$code" || fail "tigon --help does not explain: $code"
done

run --version
expect_status 0 "tigon --version"
grep -qE '^tigon [0-9]+\.[0-9]+\.[0-9]+$' "$scratch/out" || fail "tigon --version prints $(cat "$scratch/out")"

run help bench
expect_status 0 "tigon help bench"
grep -q '^Usage: tigon bench' "$scratch/out" || fail "tigon help bench does not show the help of bench"

if [ -w /dev/full ]; then
  for words in list --help --version "bench --help" "train -h"; do
    "$TIGON" $words >/dev/full 2>"$scratch/err"
    status=$?
    expect_status 3 "tigon $words to a full disk"
    grep -q '^tigon: standard output: ' "$scratch/err" || fail "tigon $words to a full disk says $(cat "$scratch/err")"
  done
fi

# More than any memory: nothing is measured.
run bench rms_norm --shape 99999999x99999999
expect_status 3 "tigon bench of a shape that fits nowhere"
grep -q 'nothing was measured: ' "$scratch/err" || fail "a shape that fits nowhere: $(cat "$scratch/err")"
export OCL_ICD_VENDORS=$scratch # a loader without a device
run devices xpu
expect_status 0 "tigon devices xpu"
grep -q 'xpu *not there: \(libOpenCL.so.1 is not found\|the OpenCL loader finds no GPU of Intel\|no GPU is there\)' "$scratch/out" ||
  fail "tigon devices xpu: $(cat "$scratch/out")"
run check rms_norm --device xpu
expect_status 3 "tigon check --device xpu"
grep -q 'device xpu is not there: ' "$scratch/err" || fail "xpu: $(cat "$scratch/err")"

timeout --preserve-status -s INT 1 "$TIGON" bench --repeat 1001 >"$scratch/out" 2>"$scratch/err"
status=$?
expect_status 130 "an interrupted tigon bench"
finish
