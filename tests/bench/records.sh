#!/bin/bash
# A record is written from a clean tree only; what a run writes otherwise says that it is none.
set -eu
command -v git >/dev/null && command -v python3 >/dev/null || exit 77
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
tree=$scratch/tree
mkdir -p "$tree/bench" "$tree/include/tigon"
cp "$TIGON_SOURCE/bench/records.py" "$tree/bench"
cp "$TIGON_SOURCE/include/tigon/base.h" "$tree/include/tigon"
cat >"$tree/bench/some.py" <<'END'
import argparse, records
parser = argparse.ArgumentParser()
records.add_options(parser, "some")
options = parser.parse_args()
head = {**records.begin(options), "versions": records.versions()}
case = {"op": "rope", "bytes": 12.0, "tigon": {"median_ms": 1.23456789, "spread": 0.126}, "eager": {"median_ms": 2.0, "wrong_by": None}}
columns = ["op", "party", "median_ms", "spread", "wrong_by", "bytes"]
path = records.place(options, "some")
if path:
    records.write(path, head, columns, records.by_party([case]))
    found, rows = records.read(path)
    assert found == head, found
    (back,) = records.by_case(rows)
    assert (back["bytes"], back["tigon"]["median_ms"], back["tigon"]["spread"], back["eager"]["wrong_by"]) == (12, 1.2346, 0.13, None)
END
unset TIGON_COMMIT
export PYTHONDONTWRITEBYTECODE=1 GIT_CEILING_DIRECTORIES=$scratch
cd "$tree"
git init -q . && git add . && git -c user.name=t -c user.email=t@t commit -qm first
commit=$(git rev-parse HEAD)
record=bench/results/some.csv

fail() {
  echo "FAIL: $*"
  exit 1
}
refused() { # sentence [option ...]
  local status=0
  python3 bench/some.py "${@:2}" 2>"$scratch/err" || status=$?
  [ $status = 3 ] || fail "exit status $status instead of 3"
  [ "$(cat "$scratch/err")" = "some: $1, so this would be no record (--no-record)" ] || fail "says $(cat "$scratch/err")"
}

for i in 1 2; do # the second time the tree has a record that is not committed
  python3 bench/some.py || fail "a clean tree has no record"
  grep -qx "# commit: $commit" $record && grep -qx '# tree: clean' $record || fail "$(cat $record)"
done
grep -qx 'rope,tigon,1.2346,0.13,,12' $record && grep -qx ',eager,2' $record || fail "$(cat $record)"
rm -r bench/results

touch src.c
refused "the tree has changes that no commit has"
rm src.c
echo >>include/tigon/base.h
refused "the tree has changes that no commit has" --out "$scratch/there.csv"
[ ! -e "$scratch/there.csv" ] && [ ! -e $record ] || fail "a refused run has written"
python3 bench/some.py --no-record
[ ! -e $record ] || fail "--no-record has written a record"
python3 bench/some.py --no-record --out "$scratch/there.csv"
grep -qx '# tree: not a record: the tree may have changes' "$scratch/there.csv" || fail "$(cat "$scratch/there.csv")"

! TIGON_COMMIT=abc python3 bench/some.py --no-record 2>/dev/null || fail "a wrong TIGON_COMMIT is taken"
rm -rf .git
refused "no commit is known: git and TIGON_COMMIT name none"
TIGON_COMMIT=abc python3 bench/some.py
grep -qx '# commit: abc' $record || fail "$(cat $record)"
