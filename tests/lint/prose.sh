# ctest: slow
# tools/check-prose on a small tree that has each fault: what it finds, its limits, and how they fall.
set -u
command -v git >/dev/null && command -v python3 >/dev/null || { echo "skipped: git or python3 is not here"; exit 77; }
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
mkdir -p "$tree"/{docs,src/cuda,python,tools}
cp "$TIGON_SOURCE/tools/check-prose" "$tree/tools/"
cd "$tree" && git init -q

failed=0
expect() { # what, and a line that the last output must have
  grep -qF -- "$2" log || { echo "$1: no line with: $2"; sed 's/^/  /' log; failed=1; }
}
refuse() {
  ! grep -qF -- "$2" log || { echo "$1: a line with: $2"; sed 's/^/  /' log; failed=1; }
}
status() { # what, the wanted exit status, a command
  local what=$1 wanted=$2
  shift 2
  "$@" >log 2>&1
  local got=$?
  [ $got = "$wanted" ] || { echo "$what: exit status $got, must be $wanted"; sed 's/^/  /' log; failed=1; }
}
words() { printf 'word %.0s' $(seq "$1"); }

cat >docs/page.md <<END
# Title
$(words 15)
$(words 15)last.

A short one. $(words 29)end, i.e. here. Then more.

$(words 20):
- $(words 20)
- $(words 20)

| $(words 20) | $(words 20) |
|---|---|
| \`$(words 40)\` | $(words 31) |

\`\`\`
$(words 40)
\`\`\`
END
cat >src/cuda/code.c <<END
/* Of the rows: one is here. */
char *text = "/* of a string */";
int a; /* offset */
// $(words 20)
// $(words 11)
/* y = $(words 20)
 * z = $(words 20) */
END
cat >python/code.py <<END
"""A docstring. $(words 31)"""
x = 1  # of one
text = "# of a string"
END
git add -A
printf '# head\n' >tools/prose-limits

status "without limits" 1 tools/check-prose
expect "a sentence over two lines" "docs/page.md:2: long sentence, 31 words"
expect "an abbreviation" "docs/page.md:5: long sentence, 31 words"
expect "a cell" "docs/page.md:13: long sentence, 31 words"
expect "a wide line" "docs/page.md:13: wide line, "
refuse "items" "docs/page.md:7"
refuse "cells of a row" "docs/page.md:11: long sentence"
expect "a comment" "src/cuda/code.c:1: begins with of, 6 words: Of the rows"
refuse "a string" "code.c:2"
refuse "another word" "code.c:3"
expect "lines of //" "src/cuda/code.c:4: long sentence, 31 words"
refuse "formulas" "code.c:6"
expect "a docstring" "python/code.py:1: long sentence, 31 words"
expect "a comment of Python" "python/code.py:2: begins with of"
refuse "a string of Python" "code.py:3"
expect "figures above" "above their limits"

status "new groups get their figures" 0 tools/check-prose --lower
expect "the head stays" "src/cuda"
[ "$(head -1 tools/prose-limits)" = "# head" ] || { echo "the head of tools/prose-limits is gone"; failed=1; }
status "at the limits" 0 tools/check-prose
cp tools/prose-limits before
echo "/* of one more */" >>src/cuda/code.c
status "one more" 1 tools/check-prose
status "limits are not raised" 1 tools/check-prose --lower
cmp -s before tools/prose-limits || { echo "--lower raised a limit"; failed=1; }
echo "int a;" >src/cuda/code.c
status "fewer" 0 tools/check-prose
expect "a hint" "tools/check-prose --lower writes them"
status "lower" 0 tools/check-prose --lower
echo "/* of one */" >src/cuda/code.c
status "a limit that fell" 1 tools/check-prose
status "one file" 1 tools/check-prose src/cuda/code.c
status "a file without a fault" 0 tools/check-prose tools/check-prose
exit $failed
