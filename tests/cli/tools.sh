#!/usr/bin/env bash
# Every tool of the tree explains itself and does nothing else when it is asked for --help.
. "$(dirname "$0")/lib.bash"
for tool in "$TIGON_SOURCE"/tools/*; do
  [ -f "$tool" ] && [ -x "$tool" ] || continue
  [ "${tool##*/}" != take ] || continue # stands for compilers, with their options
  says=$(cd "$scratch" && timeout 60 "$tool" --help 2>&1) || fail "$tool --help: exit status $?"
  [ "$(wc -w <<<"$says")" -ge 10 ] || fail "$tool --help says only: $says"
done
finish
