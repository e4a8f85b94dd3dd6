#!/usr/bin/env bash
# ctest: slow timeout=600
# Under any limit a run ends by itself: with a checkpoint, or with exit status 3 and one sentence. It heeds SIGTERM.
. "$(dirname "$0")/lib.bash"
unset OMP_NUM_THREADS OPENBLAS_NUM_THREADS # whose threads are what a limit meets

head -c 6000 "$TIGON_SOURCE/docs/train.md" >"$scratch/text.txt"
small=(--data "$scratch/text.txt" --steps 2 --hidden 64 --heads 4 --layers 2 --seq 48 --batch 3 --overwrite --out "$scratch/run")
SECONDS_AT_MOST=60 # of a run that takes a second

# limited WHAT ULIMIT-ARGUMENTS -- ARGUMENT...
limited() {
  local what=$1 limits=()
  shift
  while [ "$1" != -- ]; do
    limits+=("$1")
    shift
  done
  shift
  (
    exec >"$scratch/out" 2>"$scratch/err" </dev/null
    ulimit "${limits[@]}" || exit 77
    exec timeout -k 5 $SECONDS_AT_MOST "$TIGON" train "$@"
  )
  status=$?
  case $status in
    0 | 77) ;;
    3) [ -s "$scratch/err" ] || fail "$what: exit 3 without a sentence" ;;
    126 | 127 | 139) # no room for the program: execve ends it with SIGSEGV, the loader with 127
      ! (ulimit "${limits[@]}" && exec "$TIGON" --version) >/dev/null 2>&1 || fail "$what: exit $status, and --version runs"
      ;;
    *) fail "$what: exit $status: $(tail -n 2 "$scratch/err")" ;;
  esac
}

ended=()
for kib in 5000 30000 50000 55000 60000 65000 70000 80000 100000 150000 300000 1000000; do
  limited "ulimit -v $kib" -v $kib -- "${small[@]}"
  ended+=("$status")
done
[[ " ${ended[*]} " == *" 0 "* ]] || fail "no run under ulimit -v ended well: ${ended[*]}"
limited "weights beyond ulimit -v" -v 200000 -- --data "$scratch/text.txt" --hidden 2048 --heads 16 --layers 2 --seq 48 --batch 3 --out "$scratch/large"
[ "$status" -eq 3 ] || fail "weights beyond ulimit -v: exit $status, must be 3"
grep -q 'no memory for' "$scratch/err" || fail "weights beyond ulimit -v: $(cat "$scratch/err")"
for files in 5 6 8 16; do limited "ulimit -n $files" -n $files -- "${small[@]}"; done

# The number of processes is a user's, and root's is not limited.
if [ "$(id -u)" = 0 ] && command -v setpriv >/dev/null; then
  chmod -R a+rwX "$scratch"
  for processes in 0 1 2; do
    (
      ulimit -u $processes
      exec setpriv --reuid=54321 --clear-groups timeout -k 5 $SECONDS_AT_MOST "$TIGON" train "${small[@]}" --threads 4
    ) >"$scratch/out" 2>"$scratch/err" </dev/null
    status=$?
    case $status in
      0 | 3 | 125 | 126) ;; # 125: timeout itself could not start it; 126: the build is out of that user's reach
      *) fail "ulimit -u $processes: exit $status: $(tail -n 2 "$scratch/err")" ;;
    esac
  done
fi

(
  ulimit -v 1000000
  exec "$TIGON" train --data "$scratch/text.txt" --steps 1000000 --overwrite --out "$scratch/run" >"$scratch/out" 2>"$scratch/err" </dev/null
) &
run=$!
sleep 3
kill -TERM $run
for ((i = 0; i < 10 * SECONDS_AT_MOST; ++i)); do
  kill -0 $run 2>/dev/null || break
  sleep 0.1
done
kill -KILL $run 2>/dev/null && fail "SIGTERM was not heeded within $SECONDS_AT_MOST s"
wait $run
[ $? -eq 143 ] || fail "after SIGTERM the exit status was not 143: $(tail -n 2 "$scratch/err")"
finish
