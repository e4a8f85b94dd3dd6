#!/usr/bin/env bash
# The exit codes that `tigon --help` promises.
. "$(dirname "$0")/lib.bash"

for command in "" devices list plan check bench train; do
  run $command --help
  expect_status 0 "tigon $command --help"
  [ -s "$scratch/err" ] && fail "tigon $command --help wrote to stderr"
  grep -q '^Usage: tigon' "$scratch/out" || fail "tigon $command --help shows no usage"
  grep -q 'Example' "$scratch/out" || fail "tigon $command --help shows no example"
done
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
  "$TIGON" list >/dev/full 2>"$scratch/err"
  status=$?
  expect_status 3 "tigon list to a full disk"
fi

timeout --preserve-status -s INT 1 "$TIGON" bench --repeat 1001 >"$scratch/out" 2>"$scratch/err"
status=$?
expect_status 130 "an interrupted tigon bench"
finish
