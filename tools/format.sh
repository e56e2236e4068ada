#!/bin/sh
# format.sh [--fix] - clang-format has the last word; 14 is the version that speaks,
# because versions disagree with one another about details.
set -eu
cd "$(dirname "$0")/.."
tool=$(command -v clang-format-14 || command -v clang-format) ||
    { echo "clang-format is not installed"; exit 77; }
"$tool" --version | grep -q 'version 14\.' ||
    { echo "clang-format 14 is the judge; found: $("$tool" --version)"; exit 77; }
list() { find src parts test example bench include -name '*.[ch]' -o -name '*.cu'; }
if [ "${1-}" = --fix ]; then
    list | xargs -r "$tool" -i
else
    wrong=$(list | xargs -r -n 16 -P 2 "$tool" --dry-run 2>&1 | sed -n 's/:[0-9]*:[0-9]*: warning.*//p' | sort -u)
    for f in $wrong; do echo "$f is not as clang-format writes it (tools/format.sh --fix)"; done
    [ -z "$wrong" ] || exit 1
fi
echo "$(list | wc -l) files"
