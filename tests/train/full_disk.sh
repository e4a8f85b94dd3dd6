#!/usr/bin/env bash
# A disk that is full, here a limit on the size of files and, as root, a small tmpfs: one sentence, the checkpoint before
# intact, the run's end saved elsewhere.
. "$(dirname "$0")/lib.bash"
export TMPDIR=$scratch/rescue
mkdir -p "$TMPDIR"

train --steps 4 --out "$scratch/good" --quiet
expect_status 0 "good"
cp -r "$scratch/good" "$scratch/copy"

# Too small from the start: known before the first step.
(ulimit -f 100; train --steps 4 --out "$scratch/small"; exit "$status")
status=$?
expect_status 3 "no room"
one_sentence "no room in $scratch/small for a checkpoint" "no room"

mounted=$scratch/disk
mkdir -p "$mounted"
if ! mount -t tmpfs -o size=2m tmpfs "$mounted" 2>/dev/null; then
  echo "no tmpfs can be mounted here, the rest is left out"
  finish
fi
trap 'umount "$mounted"; rm -rf "$scratch"' EXIT

# Room for the first checkpoint; then something else fills the disk while the run goes on.
afresh
"$TIGON" train "${tiny[@]}" --steps 400 --checkpoint-every 20 --log-every 1 --json --out "$mounted/run" \
  >"$scratch/out" 2>"$scratch/err" </dev/null &
child=$!
wait_for_step 30 "$scratch/out" $child || fail "no step 30"
for ((i = 0; i < 100; ++i)); do [ -s "$mounted/run/optimizer.safetensors" ] && break; sleep 0.05; done
dd if=/dev/zero of="$mounted/filler" bs=4k 2>/dev/null
wait $child
status=$?
expect_status 3 "filled"
tail -1 "$scratch/err" | grep -q 'No space left on device; step 400 is saved in .*/rescue/tigon-rescue-' ||
  fail "filled: $(tail -1 "$scratch/err")"
grep -q 'No space left on device; the run goes on, the checkpoint of step [0-9]* is intact' "$scratch/err" ||
  fail "filled: no note about a checkpoint on the way: $(head -5 "$scratch/err")"
[ -z "$(find "$mounted/run" -name '*.tmp')" ] || fail "filled: temporary files are left"
run train --resume "$(echo "$TMPDIR"/tigon-rescue-*)" --json --sample 0
expect_status 0 "resumed from the rescue"
grep -q '"steps":400' "$scratch/out" || fail "resumed from the rescue: $(cat "$scratch/out")"
rm "$mounted/filler"
run train --resume "$mounted/run" --json --sample 0
expect_status 0 "resumed from the full disk"
finish
