#!/usr/bin/env bash
# The descriptions of all entries are those of schemas.txt, which was read against include/tigon/op/*.h field by field: a change
# of a contract shows here. `tests/api/schemas.sh --write` takes over what the library says now.
# A line is entry(inputs) -> outputs; numbers, whose types tests/abi/tigon.txt has. What has a "?" may be absent, "float" is
# f32, bf16 or f16, strides are free but where "contiguous" or "free" stands, names in a row share what follows them, and "as"
# names an entry with the same fields.
. "$(dirname "$0")/../cli/lib.bash"
golden="$(dirname "$0")/schemas.txt"

run list --schema
expect_status 0 "tigon list --schema"
sed -E 's/f32 bf16 f16/float/; s/^(each )?([^ ]+)( .*), may be absent/\1\2?\3/; s/  rows//' "$scratch/out" | awk -F '  +' '
  function say(part) { text[part] = text[part] last[part]; last[part] = "" }
  function line(  i) {
    for (i = 1; i <= 3; ++i) if (last[i]) say(i)
    line_is = substr(text[1], 2) ")" (text[2] ? " ->" text[2] : "") (text[3] ? ";" text[3] : "")
    if (name) print name "(" (line_is == line_was ? "as " entry ")" : line_is)
    line_was = line_is; entry = name
    delete text
  }
  /^argument|^$/ { next }
  /^tigon_/ { line(); name = substr($1, 7, index($1, "(") - 7); next }
  { part = $2 == "in" ? 1 : $2 == "out" ? 2 : 3; what = ""
    for (i = 3; i <= NF; ++i) if ($i != "") what = what " " $i
    if (last[part] && last[part] != what ",") say(part)
    text[part] = text[part] " " $1; last[part] = what "," }
  END { line() }' | sed -E 's/,(\)| ->|;|$)/\1/g' | fold -s -w 122 | sed -E 's/ $//; /^[a-z_0-9]+\(/!s/^/  /' >"$scratch/all"
[ "${1:-}" = --write ] && cp "$scratch/all" "$golden"
diff -u "$golden" "$scratch/all" || fail "the descriptions are not those of tests/api/schemas.txt"
finish
