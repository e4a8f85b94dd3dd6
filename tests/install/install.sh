#!/bin/bash
# Installs into an empty prefix, moves it, and builds and runs a program against it in both ways that users do:
# find_package(tigon) and pkg-config.
set -eu
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

echo "== hardening"
installed=("$library_dir/libtigon.so")
[ -x "$prefix/bin/tigon" ] && installed+=("$prefix/bin/tigon")
"$here/../../tools/check-hardened" "${installed[@]}"

echo "== find_package"
"$cmake" -S "$here/consumer" -B "$scratch/consumer" -DCMAKE_C_COMPILER="$cc" -DCMAKE_PREFIX_PATH="$prefix" \
  >"$scratch/configure.log" || { cat "$scratch/configure.log"; exit 1; }
"$cmake" --build "$scratch/consumer" >"$scratch/build.log" || { cat "$scratch/build.log"; exit 1; }
"$scratch/consumer/consumer"

echo "== pkg-config"
command -v pkg-config >/dev/null || { echo "skipped: pkg-config is not here"; exit 77; }
export PKG_CONFIG_PATH=$library_dir/pkgconfig
read -ra flags <<<"$(pkg-config --cflags --libs tigon)"
"$cc" -std=c11 -Wall -Wextra -Wpedantic -Werror "$here/consumer/consumer.c" -o "$scratch/by_pkg_config" "${flags[@]}"
LD_LIBRARY_PATH=$library_dir "$scratch/by_pkg_config"
test "$(pkg-config --modversion tigon)" = "$("$scratch/consumer/consumer")"

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
