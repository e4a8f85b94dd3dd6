#!/usr/bin/env bash
# ctest: slow
# What `make bench-peers` stands on: the runner has every case, and a mistake is one sentence. PyTorch is not needed.
. "$(dirname "$0")/lib.bash"
command -v python3 >/dev/null || exit 77
peers=$TIGON_SOURCE/bench/peers_cpu.py

mistake() {
  local code=$1 part=$2
  shift 2
  python3 "$peers" "$@" >"$scratch/out" 2>"$scratch/err"
  status=$?
  expect_status "$code" "peers_cpu.py $*"
  [ "$(wc -l <"$scratch/err")" -eq 1 ] && grep -qF -- "$part" "$scratch/err" || fail "peers_cpu.py $*: $(cat "$scratch/err")"
}

mistake 2 "'rms_nrm'" --op rms_nrm
mistake 2 'invalid ROWSxCOLS value' --shape 4096
mistake 2 'invalid whole number from 1 to 4096 value' --repeat 0
mistake 2 "invalid choice: 'hot'" --memory hot
(cd "$TIGON_SOURCE/bench" && python3 -c 'import peers_cpu as p; assert set(p.FROM_TORCH) == set(p.CASES)') ||
  fail "peers_cpu.py: an operator is not called from PyTorch"
python3 -c 'import torch' 2>/dev/null || mistake 3 'make bench-peers' --op rms_norm

"$TIGON" list --json >"$scratch/list"
python3 - "$TIGON_BUILD/libtigon_bench.so" "$scratch/list" <<'PYTHON' || fail "libtigon_bench.so"
import ctypes, json, sys
library = ctypes.CDLL(sys.argv[1])
library.tigon_bench_open.restype, library.tigon_bench_sentence.restype = ctypes.c_void_p, ctypes.c_char_p
slots = json.load(open(sys.argv[2]))["slots"]
entries = {(slot["op"], slot["entry"]) for slot in slots}
for op in sorted({slot["op"] for slot in slots} - {"adamw"}):
    case = library.tigon_bench_open(op.encode(), b"bf16", ctypes.c_int64(8), ctypes.c_int64(128), 1)
    modes = [mode for mode, entry in enumerate(("fwd", "bwd")) if (op, entry) in entries]
    modes += [2] if len(modes) == 2 else []  # full
    if not case or any(library.tigon_bench_call(ctypes.c_void_p(case), mode) for mode in modes):
        sys.exit(f"{op}: {library.tigon_bench_sentence().decode()}")
    if modes == [0] and not library.tigon_bench_call(ctypes.c_void_p(case), 1):
        sys.exit(f"{op}: a backward that it does not have passes")
    library.tigon_bench_close(ctypes.c_void_p(case))
case = library.tigon_bench_open(b"rms_norm+gate+quantised+int8", b"bf16", ctypes.c_int64(8), ctypes.c_int64(128), 1)
if not case or library.tigon_bench_call(ctypes.c_void_p(case), 0) or not library.tigon_bench_call(ctypes.c_void_p(case), 1):
    sys.exit("an entry that stands for fwd, and nothing else")
case = library.tigon_bench_open(b"attention+softcap+sinks", b"f32", ctypes.c_int64(8), ctypes.c_int64(128), 1)
if not case or any(library.tigon_bench_call(ctypes.c_void_p(case), mode) for mode in range(3)):
    sys.exit(f"attention's options: {library.tigon_bench_sentence().decode()}")
for name in (b"none", b"rope+gate", b"rms_norm+", b"rms_norm+gat", b"rms_norm+sinks", b"attention+sink"):
    if library.tigon_bench_open(name, b"f32", ctypes.c_int64(0), ctypes.c_int64(0), 1):
        sys.exit(f"a case of {name}")
PYTHON
finish
