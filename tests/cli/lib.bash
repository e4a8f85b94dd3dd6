# What the CLI's tests share. TIGON is the binary; a test passes with 0, fails with 1 and is skipped with 77.
set -u
: "${TIGON:?set TIGON to the tigon binary}"
[ -x "$TIGON" ] || { echo "$TIGON is no program" >&2; exit 1; }
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
failures=0

fail() {
  echo "FAIL: $*" >&2
  failures=$((failures + 1))
}

finish() {
  [ "$failures" -eq 0 ] || echo "$failures failed" >&2
  [ "$failures" -eq 0 ] && exit 0
  exit 1
}

# run ARGUMENT...: leaves $status, $scratch/out and $scratch/err.
run() {
  "$TIGON" "$@" >"$scratch/out" 2>"$scratch/err" </dev/null
  status=$?
}

expect_status() {
  [ "$status" -eq "$1" ] || fail "$2: exit $status, must be $1: $(head -c 300 "$scratch/err")"
}

# The JSON of $scratch/out holds when the Python expression, with the value as `j`, is true. Without python3 it is not asked.
expect_json() {
  expect_read 'json.load' "$@"
}

# The same for CSV: `j` is a list with a dictionary a line.
expect_csv() {
  expect_read 'lambda file: list(csv.DictReader(file))' "$@"
}

expect_read() {
  command -v python3 >/dev/null || return 0
  python3 - "$scratch/out" "$1" "$2" <<'PYTHON' || fail "$3: $2 does not hold for $(head -c 300 "$scratch/out")"
import csv, json, sys
try:
    sys.exit(0 if eval(sys.argv[3], {"j": eval(sys.argv[2])(open(sys.argv[1])), "json": json}) else 1)
except (ValueError, LookupError, TypeError) as error:
    sys.exit(f"{type(error).__name__}: {error}")
PYTHON
}
