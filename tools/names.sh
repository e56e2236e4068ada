#!/bin/sh
# names.sh LIBRARY - every symbol that a static library of ours exports starts with
# sk_, so that it can be linked into any program without a clash.
set -eu
lib=${1:-build/release/libskein.a}
[ -f "$lib" ] || { echo "names.sh: $lib is not there; build it first"; exit 1; }
nm -g --defined-only "$lib" 2>/dev/null | awk '
    /:$/ { file = $1; next }
    NF == 3 && $3 ~ /^sk_/ { n++; next }
    NF == 3 { print file " exports " $3 ", which does not start with sk_"; wrong = 1 }
    END {
        if (!n) { print "no symbols found"; exit 1 }
        if (!wrong) print n " exported names, all sk_"
        exit wrong
    }'
