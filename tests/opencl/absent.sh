#!/usr/bin/env bash
# Without an OpenCL loader, with one of nothing in its place, and with one that finds no driver, all else works.
. "$(dirname "$0")/../cli/lib.bash"

says() { # the sentence, as a pattern
  run devices --json
  expect_status 0 "tigon devices"
  expect_json "all(not d['available'] and '$1' in d['reason'] for d in j['devices'] if d['backend'] == 'opencl')" "$1"
  expect_json "all(not d['available'] and len(d['reason']) > 20 for d in j['devices'] if d['backend'] == 'xpu')" xpu
  expect_json "any(d['backend'] == 'cpu' and d['available'] for d in j['devices'])" "the CPU"
  run check relu_squared --small --dtype f32 --device opencl
  expect_status 3 "tigon check on a device that is not there"
  grep -q "$1" "$scratch/err" || fail "tigon check says $(cat "$scratch/err")"
  run plan rms_norm --shape 64x128 --device opencl --json
  expect_status 0 "tigon plan, which needs no device"
  expect_json '[(l["kernel"], l["grid"], l["block"]) for l in j["launches"]] == [("rms_norm_fwd", 64, 64)]' "a plan"
  run check relu_squared --small --dtype f32
  expect_status 0 "tigon check on the CPU"
}

mkdir "$scratch/empty"
export OCL_ICD_VENDORS=$scratch/empty
if "$TIGON" devices opencl | grep -q 'libOpenCL.so.1 is not found'; then
  says 'libOpenCL.so.1 is not found: no OpenCL loader is installed'
else
  says 'the OpenCL loader finds no'
fi
: >"$scratch/empty/libOpenCL.so.1"
LD_LIBRARY_PATH=$scratch/empty says 'libOpenCL.so.1 is not found: no OpenCL loader is installed'
cc -shared -o "$scratch/empty/libOpenCL.so.1" -xc - <<<'int clGetPlatformIDs(void) { return 0; }' || finish
LD_LIBRARY_PATH=$scratch/empty says 'libOpenCL.so.1 has no clGetDeviceIDs: the loader is older than OpenCL 1.2'
finish
