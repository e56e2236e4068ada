#!/bin/bash
# layouts.sh - every file in example/layouts plans and trains; the layout changes no loss.
#
# Each layout is planned, explained on its last rank, and trained for three steps on the tiny
# model; each loss agrees with one rank's to 1e-5, relatively.  A run file is its own layout.
set -eu
cd "$(dirname "$0")/../.."
skein=${SKEIN:-build/release/skein}
temp=$(mktemp -d)
trap 'rm -rf "$temp"' EXIT
tiny=example/layouts/tiny.yaml
n=0

quietly() { "$@" >"$temp/said" 2>&1 || { cat "$temp/said"; echo "failed: $*"; exit 1; }; }

losses() { # name, arguments of train: the losses, one a line, in $temp/NAME
    local name=$1
    shift
    quietly "$skein" train "$@" run="$temp/run-$name" train.steps=3 train.threads=1 sample.every=0
    sed -nE 's/.*"loss":([-+0-9.eE]+).*/\1/p' "$temp/run-$name/metrics.jsonl" >"$temp/$name"
    [ "$(wc -l <"$temp/$name")" = 3 ] || { echo "$name: three losses are needed"; exit 1; }
}

try() { # name, run file, arguments: plan, explain, train, compare with one rank
    local name=$1 file=$2 ranks
    shift 2
    quietly "$skein" plan "$file" "$@" -o csv
    ranks=$(awk -F, 'NR > 1 { n += $2 } END { print n }' "$temp/said")
    quietly "$skein" explain "$file" "$@" --rank $((ranks - 1))
    losses many "$file" "$@"
    rm -rf "$temp/run-one" "$temp/one"
    losses one "$file" layout=dp=1
    paste -d ' ' "$temp/one" "$temp/many" | awk -v name="$name" -v ranks="$ranks" '
        { off = $2 / $1 - 1; off = off < 0 ? -off : off; if (off > worst) worst = off }
        END {
            printf "%-14s %d %s, losses agree to %.0e\n", name, ranks, ranks == 1 ? "rank" : "ranks", worst
            exit !(worst <= 1e-5)
        }'
    rm -rf "$temp/run-many" "$temp/many"
    n=$((n + 1))
}

# The lines of README's section are layouts too; a column of blanks parts them from what is said of them.
readme() {
    local words
    lines=0
    while read -r words; do
        quietly "$skein" plan model=switch-tiny model.num_hidden_layers=4 layout="$words" train.batch=32
        lines=$((lines + 1))
    done < <(sed -n '/^## A layout/,/^## The tour/s/^    \(.*[^ ]\)    *[^ ].*/\1/p' README.md)
    [ $lines -ge 10 ] || { echo "README.md has $lines layouts, no more?"; exit 1; }
}

readme
for f in example/layouts/*.txt; do try "$(basename "$f" .txt)" "$tiny" layout="$f"; done
for f in example/layouts/*.yaml; do try "$(basename "$f" .yaml)" "$f"; done
echo "$n layouts plan, explain and train; $lines of README.md plan"
