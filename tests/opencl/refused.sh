#!/usr/bin/env bash
# Drivers of ours (fake/driver.c): what tigon devices and check say of one that computes wrongly, and of two devices.
. "$(dirname "$0")/../cli/lib.bash"
fake=${TIGON_BUILD:-build}/tests/fake-opencl
[ -f "$fake/libOpenCL.so.1" ] || { echo "skipped: there is no $fake" >&2; exit 77; }
export LD_LIBRARY_PATH=$fake FAKE_OPENCL=wrong TIGON_OPENCL_CACHE=$scratch/cache
wrong='relu_squared_fwd wrongly in f32: y['

run devices opencl --json
expect_json 'j["devices"][0]["refused"] == []' "nothing was checked"
run devices opencl --self-check --json
expect_status 0 "tigon devices --self-check"
expect_json "any('$wrong' in sentence for sentence in j['devices'][0]['refused'])" "what it finds"
run devices opencl
grep -q "refused .*relu_squared_fwd" "$scratch/out" || fail "tigon devices shows nothing refused: $(cat "$scratch/out")"
TIGON_OPENCL_TRUST=1 run devices opencl --json
expect_json 'j["devices"][0]["refused"] == []' "TIGON_OPENCL_TRUST"
run check relu_squared --device opencl --small --dtype f32
expect_status 1 "tigon check on a wrong driver"
grep -qF "TIGON_ERROR_DEVICE: relu_squared_fwd: the launch on opencl failed: the driver of Fake CPU computes $wrong" "$scratch/out" "$scratch/err" ||
  fail "tigon check says $(head -c 300 "$scratch/out")"
TIGON_OPENCL_TRUST=1 run check relu_squared --device opencl --small --dtype f32
expect_status 1 "tigon check, which trusts a wrong driver"
if grep -q TIGON_ERROR_DEVICE "$scratch/out" "$scratch/err"; then fail "it is not trusted"; fi
FAKE_OPENCL=right run devices opencl --json
expect_json 'j["devices"][0]["refused"] == []' "another driver"

# A CPU beside a GPU with subgroups: each is checked by the variants that it runs.
export FAKE_OPENCL='right intel subgroups'
run devices opencl --json
expect_json '[len(d["variants"]) for d in j["devices"]] == [3, 2]' "variants of two devices"
TIGON_OPENCL_TRUST=1 run check relu_squared --device opencl:1 --sweep path --dtype f32
expect_status 0 "tigon check without subgroups"
finish
