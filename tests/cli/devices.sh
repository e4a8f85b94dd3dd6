#!/usr/bin/env bash
# ctest: slow
# tigon devices: every family in the order of inference, and a reason for each that is not there.
. "$(dirname "$0")/lib.bash"

run devices
expect_status 0 "tigon devices"
[ -s "$scratch/err" ] && fail "tigon devices wrote to stderr"
for backend in cuda npu xpu cpu opencl ref; do
  grep -q "^$backend" "$scratch/out" || fail "tigon devices does not name $backend"
done

run devices --json
expect_status 0 "tigon devices --json"
expect_json 'list(dict.fromkeys(d["backend"] for d in j["devices"])) == ["cuda", "npu", "xpu", "cpu", "opencl", "ref"]' order
expect_json 'all(isinstance(d["name"], str) and d["name"] for d in j["devices"])' names
expect_json 'all(d["available"] == (d["reason"] is None) for d in j["devices"])' reasons
expect_json '[d for d in j["devices"] if d["backend"] == "cpu"][0]["cores"] >= 1' cores
expect_json 'all(d["variant"] in d["variants"] for d in j["devices"] if d["available"])' variants
expect_json 'j["version"].count(".") == 2' version

# The simulator: its parts are named, described when asked for, and never in the list that a context looks through.
expect_json '"ascend-sim:910B4" in j["simulated"] and len(j["simulated"]) >= 7' "the parts"
run devices
grep -q 'ascend-sim:910_93' "$scratch/out" || fail "tigon devices names no part of the simulator"
run devices ascend-sim --json
expect_status 0 "tigon devices ascend-sim --json"
expect_json '[d["device"] for d in j["devices"]] == j["simulated"]' "each part"
expect_json 'all(d["available"] and d["simulated"] and d["cores"] > 0 and d["onchip_bytes"] > 0 for d in j["devices"])' parts
run devices ascend-sim:910b4 --json
expect_json '[(d["name"], d["cores"]) for d in j["devices"]] == [("ascend910b4", 40)]' "one part"
expect_json '"linear_fwd" in j["devices"][0]["borrowed"]' "what it borrows"
run devices ascend-sim:910B4
grep -q '40 vector cores' "$scratch/out" || fail "tigon devices ascend-sim:910B4: $(cat "$scratch/out")"
run devices ascend-sim:910X
expect_status 2 "tigon devices ascend-sim:910X"
# A part's cores and bytes of UB by environment.
TIGON_ASCEND_CORES=12 TIGON_ASCEND_UB_BYTES=65536 run devices ascend-sim:910B4 --json
expect_json '[(d["name"], d["cores"], d["onchip_bytes"]) for d in j["devices"]] == [("ascend910b4", 12, 65536)]' "a part of 12 cores"
refused() { # the environment, and the sentence
  env "$1" "$TIGON" devices ascend-sim:910B4 >"$scratch/out" 2>&1 && fail "$1 was taken"
  grep -q "context: device ascend-sim:910B4 did not open: $2" "$scratch/out" || fail "$1: $(cat "$scratch/out")"
}
for cores in 0 129 -1 4x; do
  refused TIGON_ASCEND_CORES=$cores "TIGON_ASCEND_CORES is \"$cores\", must be a whole number from 1 to 128"
done
for bytes in 32736 65537 1048608 64K; do
  refused TIGON_ASCEND_UB_BYTES=$bytes "TIGON_ASCEND_UB_BYTES is \"$bytes\", must be a multiple of 32 from 32768 to 1048576"
done
TIGON_ASCEND_CORES=12 TIGON_ASCEND_UB_BYTES=65536 "$TIGON" check rms_norm group_norm cross_entropy --small --dtype f32 --device ascend-sim:910B4 >"$scratch/out" ||
  fail "a part of 12 cores: $(tail -n 3 "$scratch/out")"

run devices npu --json
expect_json 'len(j["devices"]) == 1 and (j["devices"][0]["available"] or len(j["devices"][0]["reason"]) > 20)' npu

TIGON_CPU=scalar run devices --json
expect_status 0 "TIGON_CPU=scalar tigon devices --json"
expect_json '[d for d in j["devices"] if d["backend"] == "cpu"][0]["variant"] == "scalar"' 'variant by TIGON_CPU'
TIGON_CPU=abacus run devices
grep -q 'abacus' "$scratch/out" || fail "tigon devices hides that TIGON_CPU=abacus is no variant"
finish
