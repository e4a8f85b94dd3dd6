#!/bin/bash
# What pip runs, twice, the second time without scikit-build-core's folder, which its next environment would clear: one file of the
# library is compiled once, and an option of the first run is not the second's. Kernels are compiled for this CPU, as pip's are.
set -eu
cd "$(dirname "$0")/../.."
cmake=${CMAKE:-cmake}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
object=CMakeFiles/tigon_host.dir/src/core/base.c.o

run() { # run OPTION ...: configures as pip does, then compiles one file; prints what ninja did
  "$cmake" -S python -B "$scratch/scikit" -G Ninja -DCMAKE_BUILD_TYPE=Release -DTIGON_CLI=OFF -DTIGON_TESTS=OFF \
    -DTIGON_CPU_VARIANTS=native "$@" \
    >"$scratch/log" 2>&1 || { cat "$scratch/log"; exit 1; }
  "$cmake" --build "$scratch" --target $object
}
TIGON_CUDA=OFF run -DTIGON_MPI=OFF | tee "$scratch/first"
grep -q "$object" "$scratch/first"
grep -q '^TIGON_MPI:.*=OFF$' "$scratch/CMakeCache.txt"
grep -q 'tigon: CPU kernels scalar' "$scratch/log"
rm -rf "$scratch/scikit"
TIGON_CUDA=OFF run | tee "$scratch/second"
grep -q 'no work to do' "$scratch/second"
grep -q '^TIGON_MPI:.*=AUTO$' "$scratch/CMakeCache.txt"
