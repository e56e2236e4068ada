#!/bin/sh
# size.sh - no function in src/ or parts/ is longer than 100 lines; most fit a screen.
#
# Counts from the first line of the signature to the closing brace.  It relies on
# the shape that clang-format gives: the braces of a function stand alone in column
# one.  tools/size.allow names the exceptions, "file function" per line with the
# reason behind a #; one that is no longer needed is an error too.
set -eu
cd "$(dirname "$0")/.."
ceiling=100
lengths=$(mktemp)
trap 'rm -f "$lengths"' EXIT
# shellcheck disable=SC2016  # the dollars are awk's
find src parts -name '*.c' -o -name '*.h' -o -name '*.cu' | sort | xargs awk '
    function name(line) {
        sub(/\(.*/, "", line)
        sub(/.*[^A-Za-z0-9_]/, "", line)
        return line
    }
    function note(n) { print n, FILENAME, name(text) }
    FNR == 1 { first = 0; inside = 0 }
    inside { if ($0 == "}") { note(FNR - first + 1); inside = 0; first = 0 } ; next }
    /^[A-Za-z_].*\) \{ .*\}$/ { text = $0; first = 0; note(1); next }
    $0 == "{" && first { inside = 1; next }
    /^[A-Za-z_]/ { if (!first) { first = FNR; text = "" } }
    first { text = text $0 }
    /;[ \t]*(\/\*.*)?$/ || /^$/ || /^[#}]/ { first = 0 }' /dev/null >"$lengths"
awk -v ceiling="$ceiling" '
    FILENAME ~ /allow$/ { sub(/#.*/, ""); if (NF) allow[$1 " " $2] = 1; next }
    $1 > ceiling && !(($2 " " $3) in allow) {
        print $2 ": " $3 " has " $1 " lines, the ceiling is " ceiling
        wrong = 1
    }
    $1 > ceiling { delete allow[$2 " " $3] }
    END {
        for (a in allow) { print "tools/size.allow: " a " is not needed any more"; wrong = 1 }
        exit wrong
    }' tools/size.allow "$lengths"
sort -n "$lengths" | awk '
    { n[NR] = $1 }
    function at(q, i) { i = int(q * NR + 0.999999); return n[i < 1 ? 1 : i] }
    END {
        if (NR) printf "%d functions, lines median %d, p90 %d, p99 %d, longest %d\n",
                       NR, at(0.5), at(0.9), at(0.99), n[NR]
    }'
