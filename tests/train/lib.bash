# What the trainer's tests share: a small text and a small model that runs some hundred steps a second.
. "$(dirname "${BASH_SOURCE[0]}")/../cli/lib.bash"
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1} OPENBLAS_NUM_THREADS=1
unset NO_COLOR

text=$scratch/text.txt
awk 'BEGIN { srand(1); split("the quick brown fox jumps over a lazy dog and sleeps in the warm sun", w, " ")
  for (i = 0; i < 6000; ++i) printf "%s%s", w[1 + int(rand() * 14)], i % 12 == 11 ? ".\n" : " " }' >"$text"

tiny=(--data "$text" --layers 2 --hidden 32 --heads 2 --seq 32 --batch 4 --lr 0.01 --sample 0 --eval-every 0)

train() { run train "${tiny[@]}" "$@"; }

# losses FILE: "step loss" of every logged step, as printed.
losses() { sed -n 's/^{"step":\([0-9]*\),"loss":\([^,]*\),.*/\1 \2/p' "$1"; }

# one_sentence WHAT-STDERR-CONTAINS NAME: one line on stderr, which holds it.
one_sentence() {
  [ "$(wc -l <"$scratch/err")" -eq 1 ] || fail "$2: stderr is not one line: $(head -c 600 "$scratch/err")"
  grep -qF -- "$1" "$scratch/err" || fail "$2: no \"$1\" in: $(head -c 600 "$scratch/err")"
}

same() { cmp -s "$1" "$2" || fail "$3: $1 and $2 differ"; }

# Empties what a run in the background writes to: it opens its files later than somebody may look into them.
afresh() { : >"$scratch/out" 2>"$scratch/err"; }

# wait_for_step N FILE PID: until the run has logged step N.
wait_for_step() {
  for ((i = 0; i < 3000; ++i)); do
    grep -q "^{\"step\":$1," "$2" 2>/dev/null && return 0
    kill -0 "$3" 2>/dev/null || return 1
    sleep 0.01
  done
  return 1
}

# resumes_exactly NAME ARGUMENT...: a run that is stopped at about step 20 and resumed leaves the uninterrupted run's files.
# Both are in $scratch/NAME-whole and $scratch/NAME-part, and the first one's output is in $scratch/NAME-out.
resumes_exactly() {
  local name=$1
  shift
  train "$@" --json --log-every 1 --out "$scratch/$name-whole"
  expect_status 0 "$name, uninterrupted"
  cp "$scratch/out" "$scratch/$name-out"
  afresh
  "$TIGON" train "${tiny[@]}" "$@" --json --log-every 1 --out "$scratch/$name-part" >"$scratch/out" 2>"$scratch/err" </dev/null &
  local child=$!
  wait_for_step 20 "$scratch/out" $child && kill -TERM $child
  wait $child
  status=$?
  expect_status 143 "$name, stopped"
  run train --resume "$scratch/$name-part" --sample 0 --json
  expect_status 0 "$name, resumed"
  for file in model.safetensors optimizer.safetensors; do
    same "$scratch/$name-whole/$file" "$scratch/$name-part/$file" "$name"
  done
}
