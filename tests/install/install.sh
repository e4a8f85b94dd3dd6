#!/bin/bash
# Installs into an empty prefix, moves it, and builds and runs a program against it: find_package(tigon) and pkg-config. Then
# builds the program with the library in its own tree: add_subdirectory and FetchContent.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
build=${TIGON_BUILD:-$here/../../build}
cmake=${CMAKE:-cmake}
cc=${CC:-cc}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

"$cmake" --install "$build" --prefix "$scratch/first" >"$scratch/install.log" || { cat "$scratch/install.log"; exit 1; }
mv "$scratch/first" "$scratch/moved"
prefix=$scratch/moved
library_dir=$(dirname "$(find "$prefix" -name libtigon.so)")
test -f "$prefix/include/tigon/tigon.h"
test -L "$library_dir/libtigon.so.0"
fail() {
  echo "install.sh: $*"
  exit 1
}

echo "== hardening"
installed=("$library_dir/libtigon.so")
[ -x "$prefix/bin/tigon" ] && installed+=("$prefix/bin/tigon")
"$here/../../tools/check-hardened" "${installed[@]}"

echo "== the Debian packages have each file once, and need what tools/setup installs"
packages=$here/../../debian
patterns=$(sed 's/ .*//' "$packages"/{lib,}tigon*.install)
(cd "$prefix" && find . -type f -o -type l) | sed "s|^\./${library_dir#"$prefix"/}/|usr/lib/multiarch/|; s|^\./|usr/|" >"$scratch/files"
while read -r file; do
  owners=0
  for pattern in $patterns; do
    # shellcheck disable=SC2053 # these are patterns
    [[ $file == $pattern || $file == $pattern/* ]] && owners=$((owners + 1))
  done
  [ $owners = 1 ] || fail "$owners lines of debian/*.install have $file, must be 1"
done <"$scratch/files"
test -f "$packages/libtigon$(readlink "$library_dir/libtigon.so" | sed 's/.*so\.//').install"
for package in $(sed -n 's/^build  *\([^ ]*\).*/\1/p' "$here/../../tools/setup"); do
  [[ $package =~ ^(gcc|libc6-dev)$ ]] || grep -q "[ :,]$package\b" "$packages/control" || fail "debian/control does not build-depend on $package"
done

echo "== no debug information, which the component debug has"
library=$(readlink -f "$library_dir/libtigon.so")
line_of_version() { # file:line of tigon_version(), ?? without debug information
  addr2line -e "$library" "0x$(nm -D "$library" | awk '$3 ~ /^tigon_version@/ { print $1 }')"
}
for file in "$library" $(find "$prefix" -path "*/bin/*" -type f); do
  ! readelf -SW "$file" | grep -qE ' \.(debug_|symtab)' || fail "$file is not stripped"
done
[[ $(line_of_version) == "??"* ]] || fail "$library has lines: $(line_of_version)"
"$cmake" --install "$build" --prefix "$prefix" --component debug >"$scratch/debug.log" || fail "$(cat "$scratch/debug.log")"
[[ $(line_of_version) == *src/core/base.c:* ]] || fail "$library finds no debug information: $(line_of_version)"

echo "== size"
images=$({ find "$build/cuda" -name '*.fatbin' -printf '%s\n' 2>/dev/null || true; } | awk '{ sum += $1 } END { print sum + 0 }')
size=$(($(stat -c %s "$library") - images))
echo "$size bytes without $images of CUDA kernels"
[ "$size" -le 8388608 ] || fail "$library has $size bytes besides CUDA kernels, must be 8388608 (8 MiB) or fewer"

consume() { # consume HOW [cmake options]: builds and runs the consumer
  echo "== $1"
  local folder=$scratch/consumer-$1
  "$cmake" -S "$here/consumer" -B "$folder" -DCMAKE_C_COMPILER="$cc" -DHOW="$1" "${@:2}" >"$scratch/log" 2>&1 &&
    "$cmake" --build "$folder" --target consumer >>"$scratch/log" 2>&1 || fail "$(tail -n 40 "$scratch/log")"
  "$folder/consumer"
}
consume find_package -DCMAKE_PREFIX_PATH="$prefix" | tee "$scratch/version"

of_cache() { sed -n "s/^$1:[A-Z]*=//p" "$build/CMakeCache.txt"; }
TAKE_FROM=$(cd "$build" && pwd) take=$(cd "$here/../../tools" && pwd)/take
export TAKE_FROM
options=(-DTIGON_SOURCE="$(cd "$here/../.." && pwd)" -DCMAKE_C_COMPILER_LAUNCHER="$take" -DTIGON_CUDA="$(of_cache TIGON_CUDA)"
  -DTIGON_CUDA_ARCHITECTURES="$(of_cache TIGON_CUDA_ARCHITECTURES)" -DCMAKE_BUILD_TYPE="$(of_cache CMAKE_BUILD_TYPE)")
[[ $(of_cache TIGON_NVCC) == *NOTFOUND ]] || options+=(-DTIGON_NVCC="$take")
consume add_subdirectory "${options[@]}"
consume FetchContent "${options[@]}"

echo "== pkg-config"
command -v pkg-config >/dev/null || { echo "skipped: pkg-config is not here"; exit 77; }
export PKG_CONFIG_PATH=$library_dir/pkgconfig
read -ra flags <<<"$(pkg-config --cflags --libs tigon)"
"$cc" -std=c11 -Wall -Wextra -Wpedantic -Werror "$here/consumer/consumer.c" -o "$scratch/by_pkg_config" "${flags[@]}"
LD_LIBRARY_PATH=$library_dir "$scratch/by_pkg_config"
test "$(pkg-config --modversion tigon)" = "$(tail -n 1 "$scratch/version")"

echo "== README.md's program, by its command, with its output"
readme=$here/../../README.md
mkdir "$scratch/readme"
awk '/^```c$/ { inside = 1; next } /^```/ { inside = 0 } inside' "$readme" >"$scratch/readme/example.c"
awk '/^\$ cc / { inside = 1; next } /^```/ { inside = 0 } inside' "$readme" >"$scratch/readme/wanted"
command=$(sed -n 's/^\$ cc /"$cc" /p' "$readme")
test -n "$command"
(cd "$scratch/readme" && LD_LIBRARY_PATH=$library_dir eval "$command") | diff "$scratch/readme/wanted" -

if [ -x "$prefix/bin/tigon" ]; then
  echo "== command line"
  "$prefix/bin/tigon" --version

  echo "== completions and manual pages"
  grep -q 'complete -F _tigon tigon$' "$prefix/share/bash-completion/completions/tigon"
  grep -q '^#compdef tigon$' "$prefix/share/zsh/site-functions/_tigon"
  grep -q '^complete -c tigon' "$prefix/share/fish/vendor_completions.d/tigon.fish"
  command -v help2man >/dev/null || { echo "skipped: help2man is not here"; exit 77; }
  for command in "" $("$prefix/bin/tigon" --help | sed -nE 's/^  ([a-z]+)  .*/\1/p' | grep -vx tigon); do
    page=$prefix/share/man/man1/tigon${command:+-$command}.1
    "$prefix/bin/tigon" $command --help | sed -nE 's/^  (-.,|   )? +(--[a-z0-9-]+).*/\2/p' | sort -u >"$scratch/options"
    sed 's/\\-/-/g' "$page" | grep -oE '^(.{1,9}, )?\\fB--[a-z0-9-]+' | grep -oE -- '--[a-z0-9-]+' | sort -u | diff "$scratch/options" -
    test -s "$scratch/options"
    grep -q '^\.SH EXAMPLES' "$page"
  done
fi
