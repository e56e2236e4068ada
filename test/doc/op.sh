#!/bin/bash
# op.sh - the op of doc/graph.md is complete: taken out of the page (or of another one, which is
# named), put among the others, and judged by the test of all ops, in float32 and float64.
set -eu
cd "$(dirname "$0")/../.."
build=$(dirname "${SKEIN:-build/release/skein}")
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

# shellcheck disable=SC2016  # backquotes of Markdown
sed -n '/^```c$/,/^```$/p' "${1:-doc/graph.md}" | grep -v '^```' >"$dir/pool.c"
read -ra cc <<<"${SKEIN_CC:-gcc -std=c11 -D_GNU_SOURCE}"
read -ra libs <<<"$(pkg-config --libs openblas 2>/dev/null || echo -lopenblas) -lm -pthread"
tools/parts.sh "$dir/op.c" op parts/op/*.c parts/op/pool.c

judge() { # library, flags
    local library=$1
    shift
    "${cc[@]}" -O1 "$@" -Isrc "$dir/pool.c" "$dir/op.c" test/parts/op.c "$library" "${libs[@]}" -o "$dir/judge"
    "$dir/judge"
}
judge "$build/libskein.a"
judge "$build/libskein64.a" -DSK_REAL=double
