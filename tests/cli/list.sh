#!/usr/bin/env bash
# tigon list: the three forms hold the same matrix.
. "$(dirname "$0")/lib.bash"
ops=$(sed -nE 's/^TIGON_(SLOT|COMPOSITE)[A-Z_]*\(([a-z_0-9]+), .*/\2/p' "$(dirname "$0")/../../src/ops.def" | uniq)

run list
expect_status 0 "tigon list"
cp "$scratch/out" "$scratch/table"
run list --markdown
expect_status 0 "tigon list --markdown"
cp "$scratch/out" "$scratch/markdown"
run list --json
expect_status 0 "tigon list --json"
for op in $ops; do
  grep -q "^$op " "$scratch/table" || fail "tigon list does not name $op"
  grep -q "^| \`$op\` |" "$scratch/markdown" || fail "tigon list --markdown does not name $op"
done
expect_json 'all(set(s) >= {"op", "entry", "backend", "variant", "dtypes"} for s in j["slots"])' keys
expect_json '{(s["op"], s["grade"]) for s in j["slots"] if "grade" in s and s["backend"] in ("cpu", "ref")} == {("attention", "exact")}' grades
expect_json 'all(s["dtypes"] and set(s["dtypes"]) <= {"f32", "bf16", "f16"} for s in j["slots"])' dtypes
expect_json '{("rms_norm", e, "ref") for e in ("fwd", "bwd")} <= {(s["op"], s["entry"], s["backend"]) for s in j["slots"]}' \
  'rms_norm has an oracle'
expect_json 'all((s["op"], s["entry"], "ref") in {(t["op"], t["entry"], t["backend"]) for t in j["slots"]} for s in j["slots"])' \
  'what a backend has, the oracle has'

# What a simulator borrows is not its own: not listed, not checked, and the check says so.
expect_json 'not [s for s in j["slots"] if s["backend"] == "ascend-sim" and s["op"] in ("linear", "fused_linear_cross_entropy")]' \
  'borrowed slots are not listed'
run check linear rms_norm --device ascend-sim:tiny --dtype f32 --case fwd/1x1/o0/uniform/dense --json
expect_status 0 "tigon check --device ascend-sim:tiny"
expect_json 'j["borrowed"] == ["linear_fwd", "linear_bwd"] and {e["op"] for e in j["entries"]} == {"rms_norm"}' 'borrowed slots'
run check linear --device ascend-sim:tiny
grep -q '^not checked, because ascend-sim:tiny borrows .*: linear_fwd, linear_bwd$' "$scratch/out" || fail "check linear: $(cat "$scratch/out")"

# The arguments: as a table and as JSON, of one operator and of all.
run list rms_norm --schema
expect_status 0 "tigon list rms_norm --schema"
grep -q '^tigon_rms_norm_bwd(context, args)$' "$scratch/out" || fail "tigon list rms_norm --schema: no backward"
grep -Eq '^dw +out, may be absent +\[C\] +as x or f32 +contiguous' "$scratch/out" || fail "tigon list --schema: no dw"
grep -Eq '^eps +double +0 or more' "$scratch/out" || fail "tigon list --schema: no range of eps"
run list --schema --json
expect_status 0 "tigon list --schema --json"
expect_json 'len(j["entries"]) > 60 and all(e["arguments"] for e in j["entries"])' "an object for every entry"
expect_json '[a["in_place"] for e in j["entries"] if (e["op"], e["entry"]) == ("rms_norm", "bwd") for a in e["arguments"] if a["name"] == "dx"] == [["dy", "x", "z"]]' "dx may be dy, x or z"
finish
