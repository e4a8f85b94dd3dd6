#!/usr/bin/env bash
# A digest is the same in every run, on any number of threads, whatever is asked beside it and in parts; bench/digest.py says where
# it is not the record's.
. "$(dirname "$0")/lib.bash"

ops=(rms_norm linear)
digest() { # FILE ARGUMENT...
  run check --digest --variant scalar --small --json "${@:2}"
  expect_status 0 "tigon check --digest ${*:2}"
  cp "$scratch/out" "$scratch/$1"
}
OMP_NUM_THREADS=1 digest one "${ops[@]}"
OMP_NUM_THREADS=2 digest two "${ops[@]}"
OMP_NUM_THREADS=2 digest again linear rms_norm
cmp "$scratch/one" "$scratch/two" || fail "one thread and two have other digests"
cmp "$scratch/two" "$scratch/again" || fail "the same digests do not come again"
expect_json '[(e["op"], e["entry"]) for e in j["entries"]] == [("rms_norm", "fwd"), ("rms_norm", "bwd"), ("rms_norm", "quantised"), ("linear", "fwd"), ("linear", "bwd")]' \
  "the entries"
expect_json 'all(list(e["digests"]) == ["f32", "bf16", "f16"] and e["cases"] > 30 for e in j["entries"])' "digests"
expect_json 'len({d for e in j["entries"] for d in e["digests"].values()}) == 15' "digests that differ"
TIGON_GEMM=openblas digest named linear
python3 - "$scratch" <<'PYTHON' || fail "a library's products are in a digest"
import json, sys
named, all_of_them = (json.load(open(f"{sys.argv[1]}/{name}"))["entries"] for name in ("named", "one"))
sys.exit(named != all_of_them[3:])
PYTHON
digest other linear --seed 2
! cmp -s "$scratch/named" "$scratch/other" || fail "another seed has the same digests"

for part in 1 2 3; do digest "part$part" "${ops[@]}" --part $part/3; done
python3 - "$scratch" <<'PYTHON' || fail "three parts are not the whole"
import json, sys
def sums(name):
    return [int(d, 16) for e in json.load(open(f"{sys.argv[1]}/{name}"))["entries"] for d in e["digests"].values()]
sys.exit([sum(d) % 2**64 for d in zip(*map(sums, ("part1", "part2", "part3")))] != sums("one"))
PYTHON

run check --digest relu_squared --variant scalar --dtype f16
expect_status 0 "a table of one dtype"
[ "$(wc -l <"$scratch/out")" = 3 ] || fail "a table of two entries: $(cat "$scratch/out")"

# A record beside this build, then one with another number.
command -v git >/dev/null || finish
PYTHONDONTWRITEBYTECODE=1
export PYTHONDONTWRITEBYTECODE
record=$scratch/record.csv
compare() { python3 "$TIGON_SOURCE/bench/digest.py" --tigon "$TIGON" "$@" >"$scratch/compared" 2>"$scratch/err"; }
compare --no-record --out "$record" relu_squared || fail "no record: $(cat "$scratch/err")"
compare --compare --record "$record" relu_squared || fail "a record is not that of its own build: $(cat "$scratch/compared")"
sed -i '/^scalar,relu_squared,fwd/s/...$/zzz/' "$record"
! compare --compare --record "$record" relu_squared || fail "another number is not noticed"
grep -qx 'other f16: scalar relu_squared fwd' "$scratch/compared" || fail "says $(cat "$scratch/compared")"
finish
