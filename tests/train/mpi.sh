#!/usr/bin/env bash
# Two ranks give the losses of one process with the same global batch, and the same bits each time.
. "$(dirname "$0")/lib.bash"
command -v mpirun >/dev/null || { echo "skipped: no mpirun"; exit 77; }
ldd "$TIGON" | grep -q 'libmpi' || { echo "skipped: built without MPI"; exit 77; }

ranks() {
  timeout 100 mpirun -n "$@" >"$scratch/out" 2>"$scratch/err" </dev/null
  status=$?
}

more=(--steps 25 --warmup 5 --batch 8 --json --log-every 1 --threads 1)
train "${more[@]}" --out "$scratch/one"
expect_status 0 "one process"
losses "$scratch/out" >"$scratch/one.txt"
one_heldout=$(tail -1 "$scratch/out")
for round in 1 2; do
  ranks 2 "$TIGON" train "${tiny[@]}" "${more[@]}" --out "$scratch/two-$round"
  expect_status 0 "two ranks"
  losses "$scratch/out" >"$scratch/two-$round.txt"
done
two_heldout=$(tail -1 "$scratch/out")
[ "$(wc -l <"$scratch/two-1.txt")" -eq 25 ] || fail "two ranks: not 25 lines: $(head -3 "$scratch/err")"
same "$scratch/two-1.txt" "$scratch/two-2.txt" "two runs on two ranks"
same "$scratch/two-1/model.safetensors" "$scratch/two-2/model.safetensors" "two runs on two ranks"
join "$scratch/one.txt" "$scratch/two-1.txt" | awk '
  { d = ($2 - $3) / $2; if (d < 0) d = -d; if (d > most) most = d; if (NR == 1) first = d }
  END { printf "largest relative difference %.2e, of the first step %.2e\n", most, first
        exit !(NR == 25 && first <= 1e-6 && most <= 1e-5) }' || fail "two ranks: other losses than one process"
echo "held out, one process $one_heldout"
echo "held out, two ranks   $two_heldout"

# What a rank cannot share is said once.
ranks 2 "$TIGON" train "${tiny[@]}" --batch 3
expect_status 2 "batch of 3"
[ "$(grep -c 'must be a multiple of 2 (2 ranks x --accumulate 1)' "$scratch/err")" -eq 1 ] ||
  fail "batch of 3: $(cat "$scratch/err")"

# A run of two ranks goes on alone, and the other way round.
run train --resume "$scratch/two-1" --steps 30 --sample 0 --json
expect_status 0 "two to one"
ranks 2 "$TIGON" train --resume "$scratch/one" --steps 30 --sample 0 --json --threads 1
expect_status 0 "one to two"
tail -1 "$scratch/out" | grep -q '"steps":30' || fail "one to two: $(tail -1 "$scratch/out")"
finish
