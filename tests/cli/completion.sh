#!/usr/bin/env bash
# tigon completion: what a shell offers is what --help and the tables have. bash is asked always, zsh and fish where they are.
. "$(dirname "$0")/lib.bash"
ops=$(sed -nE 's/^TIGON_(SLOT|COMPOSITE)[A-Z_]*\(([a-z_0-9]+), .*/\2/p' "$(dirname "$0")/../../src/ops.def" | sort -u)
for shell in bash zsh fish; do
  run completion $shell
  expect_status 0 "tigon completion $shell"
  cp "$scratch/out" "$scratch/$shell"
done
run --help
commands=$(sed -nE 's/^  ([a-z]+)  .*/\1/p' "$scratch/out" | grep -vx tigon | sort)
[ "$(wc -w <<<"$commands")" -ge 10 ] || fail "tigon --help lists $commands"

# expect WHERE WANT GOT: both sorted, one a line.
expect() {
  [ "$2" = "$3" ] || fail "$1: $(diff <(printf '%s\n' "$2") <(printf '%s\n' "$3") | tr '\n' ' ')"
}

# ---- bash ----
. "$scratch/bash"
offers() {
  COMP_LINE=$1 COMP_POINT=${#1} COMP_WORDBREAKS=$' \t\n"\'><=;|&(:' COMPREPLY=()
  _tigon
  printf '%s\n' "${COMPREPLY[@]}" | sort
}
expect 'tigon' "$(printf '%s\nhelp' "$commands" | sort)" "$(offers 'tigon ')"
expect 'tigon help' "$commands" "$(offers 'tigon help ')"
for command in "" $commands; do
  run $command --help
  # An option's line begins with its short form or with blanks in its place.
  options=$(sed -nE 's/^  (-.,|   )? +(--[a-z0-9-]+).*/\2/p' "$scratch/out" | sort -u)
  [ "$(wc -w <<<"$options")" -ge 3 ] || fail "tigon $command --help shows only $options"
  expect "tigon $command -" "$options" "$(offers "tigon ${command:+$command }-")"
done
expect 'bench OPERATOR' "$ops" "$(offers 'tigon bench ')"
expect 'a second operator' rms_norm "$(offers 'tigon bench rope rms_')"
expect 'behind --color' rms_norm "$(offers 'tigon --color never bench --json rms_')"
expect '--color' $'always\nauto\nnever' "$(offers 'tigon --color ')"
expect '--dtype' $'bf16\nf16\nf32' "$(offers 'tigon bench --dtype ')"
expect '--dtype=' bf16 "$(offers 'tigon bench --dtype=b')"
expect '-t' bf16 "$(offers 'tigon bench -t b')"
expect '--models=' llama-3-8b "$(offers 'tigon bench --models=llama-3')"
expect '--models takes its value by = only' rms_norm "$(offers 'tigon bench --models rms_')"
expect '--device' cpu "$(offers 'tigon train --device cp')"
expect 'behind a colon' 910B4 "$(offers 'tigon check --device ascend-sim:910B4')"
expect '--schedule' $'constant\ncosine' "$(offers 'tigon train --schedule co')"
expect '--lr' '' "$(offers 'tigon train --lr ')"
expect 'completion' zsh "$(offers 'tigon completion z')"
touch "$scratch/notes one.txt"
expect 'files' "$scratch/notes one.txt" "$(offers "tigon train --data $scratch/not")"
expect 'a text' "$scratch/notes one.txt" "$(offers "tigon tokenize $scratch/not")"
expect 'a checkpoint' "$scratch/notes one.txt" "$(offers "tigon eval $scratch/not")"

# ---- fish ----
if command -v fish >/dev/null; then
  fish_offers() { HOME=$scratch fish --no-config -c "source $scratch/fish; complete -C '$1'" | cut -f1 | sed "s,=$,," | sort -u; }
  expect 'fish: tigon' "$(printf '%s\nhelp' "$commands" | sort)" "$(fish_offers 'tigon ')"
  expect 'fish: bench OPERATOR' "$ops" "$(fish_offers 'tigon bench ')"
  expect 'fish: --dtype' $'bf16\nf16\nf32' "$(fish_offers 'tigon bench --dtype ')"
  for command in $commands; do
    expect "fish: $command" "$(offers "tigon $command -")" "$(fish_offers "tigon $command --")"
  done
else
  echo "no fish: its completion is not asked" >&2
fi

# ---- zsh ----
if command -v zsh >/dev/null; then
  cat >"$scratch/ask.zsh" <<'ZSH'
zmodload zsh/zpty
zpty tigon zsh -f -i
zpty -w tigon "PS1=; autoload -U compinit && compinit -u -D; source $1/zsh; show() { print -r -- \$*; print show''n }; print read''y"
zpty -r tigon answer '*ready*'
# Behind a line that is completed, Ctrl-A and "show " make it words that are printed. What is typed while they
# are printed is echoed amid them: the next line waits.
while read -r line; do
  zpty -w -n tigon "$line"$'\t'
  zpty -w -n tigon $'\x01show \n'
  zpty -r tigon answer '*shown*'
  print -r -- "$answer"
done
ZSH
  # what is typed, and what it becomes
  pairs=('tigon toke' 'tigon tokenize' 'tigon bench --swe' 'tigon bench --sweep' 'tigon bench --sweep wid' 'tigon bench --sweep width'
    'tigon bench --sweep=wid' 'tigon bench --sweep=width' 'tigon check --json swigl' 'tigon check --json swiglu'
    'tigon train --schedule cos' 'tigon train --schedule cosine' 'tigon help gene' 'tigon help generate'
    'tigon check --device ascend-sim:910B4' 'tigon check --device ascend-sim:910B4' 'tigon --color nev' 'tigon --color never'
    "tigon eval $scratch/not" "tigon eval $scratch/notes one.txt")
  for ((i = 0; i < ${#pairs[@]}; i += 2)); do printf '%s\n' "${pairs[i]}"; done |
    HOME=$scratch TERM=dumb timeout 60 zsh -f "$scratch/ask.zsh" "$scratch" | tr -d '\r' >"$scratch/answers"
  for ((i = 0; i < ${#pairs[@]}; i += 2)); do
    grep -qxF -- "${pairs[i + 1]}" "$scratch/answers" || fail "zsh: ${pairs[i]}: $(cat "$scratch/answers")"
  done
else
  echo "no zsh: its completion is not asked" >&2
fi
finish
