#!/usr/bin/env bash
# A trainer that is killed and resumed by chance has the undisturbed run's losses, for some seconds (`tools/soak` for hours).
# With sanitizers, which keep freed memory for a while, it would not be flat.
# ctest: slow
. "$(dirname "$0")/lib.bash"

python3 "$TIGON_SOURCE/tools/soak" train --minutes 0.15 --every 10 --hidden 64 >"$scratch/out" 2>"$scratch/err" || fail "$(cat "$scratch/err")"
grep -q "have the undisturbed run's losses" "$scratch/out" || fail "$(cat "$scratch/out")"
finish
