#!/bin/bash
# readme_op.sh - README's claim: an op is one file.  Takes the op out of README.md, writes the
# table with it, and lets the test of all ops judge it, in float32 and float64.
set -eu
build=$(dirname "$SKEIN")
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

# shellcheck disable=SC2016  # backquotes of Markdown
sed -n '/^```c$/,/^```$/p' README.md | grep -v '^```' >"$dir/scale.c"
read -ra cc <<<"$SKEIN_CC"
read -ra libs <<<"$(pkg-config --libs openblas 2>/dev/null || echo -lopenblas) -lm -pthread"
tools/parts.sh "$dir/op.c" op parts/op/*.c parts/op/scale.c

judge() { # library, flags
    local library=$1
    shift
    "${cc[@]}" -O1 "$@" -Isrc "$dir/scale.c" "$dir/op.c" test/parts/op.c "$library" "${libs[@]}" -o "$dir/judge"
    "$dir/judge"
}
judge "$build/libskein.a"
judge "$build/libskein64.a" -DSK_REAL=double
