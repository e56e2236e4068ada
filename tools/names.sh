#!/bin/sh
# names.sh LIBRARY - every symbol that a static library of ours exports starts with
# sk_, so that it can be linked into any program without a clash; or with skein_, and
# then include/skein.h declares it: that prefix is for other programs.
set -eu
lib=${1:-build/release/libskein.a}
[ -f "$lib" ] || { echo "names.sh: $lib is not there; build it first"; exit 1; }
nm -g --defined-only "$lib" 2>/dev/null | awk '
    FILENAME ~ /skein\.h$/ {
        while (match($0, /skein_[a-z_]+\(/)) {
            public[substr($0, RSTART, RLENGTH - 1)] = 1
            $0 = substr($0, RSTART + RLENGTH)
        }
        next
    }
    /:$/ { file = $1; next }
    NF == 3 && ($3 ~ /^sk_/ || $3 in public) { n++; next }
    NF == 3 { print file " exports " $3 ", which neither starts with sk_ nor is in skein.h"; wrong = 1 }
    END {
        if (!n) { print "no symbols found"; exit 1 }
        if (!wrong) print n " exported names, all sk_ or in skein.h"
        exit wrong
    }' "$(dirname "$0")/../include/skein.h" -
