#!/usr/bin/env bash
# Colour and progress belong to a terminal: never to a pipe, not with NO_COLOR, and nothing is wider than 80 columns.
. "$(dirname "$0")/lib.bash"
escape=$(printf '\033')

for arguments in devices list 'bench rms_norm --shape 8x128 --repeat 2' --help; do
  run $arguments
  cat "$scratch/out" "$scratch/err" | grep -q "$escape" && fail "tigon $arguments: escape sequences in a pipe"
done
run --color=always list
grep -q "$escape" "$scratch/out" || fail "tigon --color=always list: no colour"
[ "$failures" -eq 0 ] || finish

script -qec true /dev/null >/dev/null 2>&1 || { echo "no script(1): the terminal part is skipped" >&2; finish; }
# on_terminal ARGUMENT...: the results of tigon on a terminal of 80 columns; the terminal itself breaks long messages.
on_terminal() {
  TERM=xterm script -qec "stty cols 80; '$TIGON' $* 2>/dev/null" /dev/null </dev/null | tr -d '\r' >"$scratch/out"
}
for arguments in devices list 'bench rms_norm --shape 8x128 --repeat 2'; do
  on_terminal "$arguments"
  grep -q "$escape" "$scratch/out" || fail "tigon $arguments: no colour on a terminal"
  sed "s/$escape\[[0-9;]*m//g" "$scratch/out" | awk 'length > 80' >"$scratch/wide"
  [ -s "$scratch/wide" ] && fail "tigon $arguments: wider than 80 columns: $(cat "$scratch/wide")"
done
NO_COLOR=1 on_terminal list
grep -q "$escape" "$scratch/out" && fail "tigon list: colour in spite of NO_COLOR"
finish
