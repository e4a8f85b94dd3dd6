#!/usr/bin/env bash
# A mistake on the command line gives exit 2, nothing on stdout and one sentence on stderr, which names what helps.
. "$(dirname "$0")/lib.bash"

# mistake WHAT-STDERR-CONTAINS ARGUMENT...
mistake() {
  local part=$1
  shift
  run "$@"
  expect_status 2 "tigon $*"
  [ -s "$scratch/out" ] && fail "tigon $*: wrote to stdout"
  [ "$(wc -l <"$scratch/err")" -eq 1 ] || fail "tigon $*: stderr is not one line: $(cat "$scratch/err")"
  grep -qF -- "$part" "$scratch/err" || fail "tigon $*: no \"$part\" in: $(cat "$scratch/err")"
}

mistake 'no command given'
mistake 'did you mean "bench"?' bnch
mistake 'did you mean "devices"?' dev
mistake 'must be one of devices, list' xyzzy
mistake '--nope' --nope
mistake 'auto, always or never' --color=red list
mistake '--nope' devices --nope
mistake 'takes one device, but got "ref" too' devices cpu ref
mistake 'must be one of cuda, npu, xpu, cpu, opencl, ref, ascend-sim' devices abacus
mistake 'takes an operator with --schema only' list rms_norm
mistake 'takes one operator' list --schema rms_norm rope
mistake 'unknown operator' list --schema rms_nrom
mistake '--schema and --markdown exclude each other' list --schema --markdown
mistake 'exclude each other' list --json --markdown
mistake 'did you mean "rms_norm"?' bench rms_nrm
mistake 'must be ROWSxCOLS' bench --shape 4096
mistake 'must be ROWSxCOLS' bench --shape 0x4
mistake 'must be ROWSxCOLS' bench --shape 4x4y
mistake 'must be ROWSxCOLS' bench --shape 99999999999999999999x1
mistake 'must be f32, bf16 or f16' bench --dtype f64
mistake 'must be a whole number' bench --threads two
mistake 'must be a whole number' bench --threads 0
mistake 'must be a whole number' bench --repeat 0
mistake 'must be one of fwd' bench --mode sideways
mistake 'must be I/N with I from 1 to N' check --part 9/8
mistake 'other sweeps and --case exclude it' check --part 1/2 --sweep far
mistake '--sweep and --mutants exclude it' check --digest --mutants
mistake 'requires an argument' bench --shape
mistake '--window is "0", must be a whole number from 1' bench attention --window 0
mistake '--softcap is "inf", must be a finite number above 0' bench attention --softcap inf
mistake '--softcap is "-2", must be a finite number above 0' bench attention --softcap=-2
mistake '--sinks is for attention, which is not among the operators' bench rms_norm --sinks --window 3
mistake '--window is for attention, and the operator is rope' plan rope --shape 8x64 --window 3 --sinks
mistake 'did you mean "attention"?' plan attntion --shape 8x64 --sinks
mistake '--list is for attn_res, not for any operator that is timed here' bench rms_norm rope --list
mistake '--gate is for rms_norm, not for rope' plan rope --shape 8x64 --gate
mistake '--sections is for rope, not for rms_norm' plan rms_norm --shape 8x64 --sections --device 910b4
mistake 'exclude each other' bench --json --csv
mistake 'did you mean "llama-3-8b"?' bench --models=llama-3
mistake 'must be one of rows, width, threads' bench --sweep sideways
mistake 'two sweeps at once' bench --sweep rows --models
mistake '--shape excludes it' bench --models --shape 8x8
mistake '--models and --sweep exclude it' bench --overhead --sweep rows
mistake 'must be one of' bench --device abacus
mistake 'must be one of' bench --variant abacus
mistake 'must be one of ascend-sim:910B1, ' check --device ascend-sim:nope
OMP_NUM_THREADS=5000 mistake '(OMP_NUM_THREADS) is 5000, must be 4096 or fewer' check rms_norm --device cpu
# No argument steers the terminal.
esc=$'\033[31m'
mistake '"\x1b[31m"' "$esc"
mistake '"--\x1b[31m"' "--$esc"
mistake '"\x1b[31m"' bench "$esc"
mistake '"\x1b[31m"' bench --shape "$esc"
mistake '"\x1b[31m"' check --device "$esc"
mistake '"\x1b[31m" is no option' train "$esc"
fake_cuda=$(dirname "$TIGON")/tests/fake-cuda
if LD_LIBRARY_PATH=$fake_cuda "$TIGON" devices cuda | grep -q 'Fake GPU'; then # built with kernels
  LD_LIBRARY_PATH=$fake_cuda mistake '--sweep huge is for it too' check --device cuda --sweep far
fi
finish
