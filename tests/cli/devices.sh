#!/usr/bin/env bash
# tigon devices: every family in the order of inference, and a reason for each that is not there.
. "$(dirname "$0")/lib.bash"

run devices
expect_status 0 "tigon devices"
[ -s "$scratch/err" ] && fail "tigon devices wrote to stderr"
for backend in cuda npu xpu cpu ref; do
  grep -q "^$backend" "$scratch/out" || fail "tigon devices does not name $backend"
done

run devices --json
expect_status 0 "tigon devices --json"
expect_json 'list(dict.fromkeys(d["backend"] for d in j["devices"])) == ["cuda", "npu", "xpu", "cpu", "ref"]' order
expect_json 'all(isinstance(d["name"], str) and d["name"] for d in j["devices"])' names
expect_json 'all(d["available"] == (d["reason"] is None) for d in j["devices"])' reasons
expect_json '[d for d in j["devices"] if d["backend"] == "cpu"][0]["cores"] >= 1' cores
expect_json 'all(d["variant"] in d["variants"] for d in j["devices"] if d["available"])' variants
expect_json 'j["version"].count(".") == 2' version

TIGON_CPU=scalar run devices --json
expect_status 0 "TIGON_CPU=scalar tigon devices --json"
expect_json '[d for d in j["devices"] if d["backend"] == "cpu"][0]["variant"] == "scalar"' 'variant by TIGON_CPU'
TIGON_CPU=abacus run devices
grep -q 'abacus' "$scratch/out" || fail "tigon devices hides that TIGON_CPU=abacus is no variant"
finish
