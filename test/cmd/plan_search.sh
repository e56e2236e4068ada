#!/bin/bash
# plan_search.sh - skein plan --search and layout=auto: found beside all layouts of four words, limits, refusals.
set -eu
cd "$(dirname "$0")/../.."
skein=$(realpath "${SKEIN:-build/release/skein}")
temp=$(mktemp -d)
trap 'rm -rf "$temp"' EXIT
export XDG_CONFIG_HOME=$temp
fail() { echo "$*" && exit 1; }
job="model=llama-tiny train.batch=16 train.seq=64 train.threads=1"

step() { # layout: simulated seconds of a step; nothing where it is refused
    # shellcheck disable=SC2086
    "$skein" simulate $job layout="$1" --cluster "$2" -o csv 2>/dev/null | awk -F, 'NR == 2 { print $5 }'
}

# never slower than any of these
tried=0
for cluster in cpu h100-8; do
    # shellcheck disable=SC2086
    found=$("$skein" plan $job -n 4 --cluster $cluster --search 400 -o csv 2>/dev/null | awk -F, 'NR == 2 { print $1 "," $2 }')
    layout=${found%,*} seconds=${found#*,}
    told=$(step "$layout" $cluster)
    awk -v a="$seconds" -v b="$told" 'BEGIN { exit !(a / b < 1.0001 && b / a < 1.0001) }' ||
        fail "$cluster: the search says $seconds s of \"$layout\", simulate $told"
    for mesh in dp=4 "dp=2 tp=2" "tp=4" "dp=2 pp=2" "tp=2 pp=2" "dp=2 cp=2"; do
        for micro in 1 2 4; do
            for more in "" zero=1 zero=3 recompute=full overlap=2; do
                other=$(step "$mesh micro=$micro $more" $cluster)
                tried=$((tried + 1))
                [ -z "$other" ] || awk -v a="$seconds" -v b="$other" 'BEGIN { exit !(a <= b * 1.0002) }' ||
                    fail "$cluster: found \"$layout\" of $seconds s, and \"$mesh micro=$micro $more\" takes $other"
            done
        done
    done
done

# the same every time; within memory; a reason beside the plain recipe
# shellcheck disable=SC2086
for i in 1 2; do "$skein" plan $job -n 4 --search 100 | sed 's/ in [0-9.]* s / /' >"$temp/said.$i"; done
cmp "$temp/said.1" "$temp/said.2" || fail "two searches differ: $(cat "$temp"/said.*)"
grep -q '^search    [0-9]* layouts on cpu' "$temp/said.1" || fail "no count: $(cat "$temp/said.1")"
grep -q '^plain  ' "$temp/said.1" || fail "no plain recipe: $(cat "$temp/said.1")"
# shellcheck disable=SC2086
"$skein" plan $job -n 4 --search 200 budget=800KiB -o csv >"$temp/table"
awk -F, 'NR > 1 && $6 > 800 * 1024 { exit 1 }' "$temp/table" || fail "over the budget: $(cat "$temp/table")"

# layout=auto is what the search finds, also for a run
# shellcheck disable=SC2086
"$skein" plan $job -n 2 layout=auto >"$temp/auto" || fail "auto: $(cat "$temp/auto")"
grep -q '^layout    2 ranks = ' "$temp/auto" || fail "auto: $(cat "$temp/auto")"
# shellcheck disable=SC2086
"$skein" train $job data.train=README.md layout=auto -n 2 train.steps=2 val.every=0 sample.every=0 run="$temp/run" >"$temp/said" 2>&1 ||
    fail "train: $(cat "$temp/said")"
[ "$(grep -o '^layout .* ranks = [^·]*' "$temp/said")" = "$(grep -o '^layout .* ranks = [^·]*' "$temp/auto")" ] ||
    fail "plan and train choose differently: $(cat "$temp/said" "$temp/auto")"

refused() { # exit code, words of the report, arguments
    local rc=0 code=$1 words=$2
    shift 2
    # shellcheck disable=SC2086
    "$skein" plan $job "$@" >"$temp/said" 2>&1 || rc=$?
    [ $rc = "$code" ] || fail "$*: exit code $rc, $code is needed: $(cat "$temp/said")"
    grep -q -- "$words" "$temp/said" || fail "$*: another report: $(cat "$temp/said")"
}
for odd in 3x 0 -1 1.5 "" s nan inf 1e9; do refused 64 "a time such as 30s" -n 2 --search "$odd"; done
refused 78 "none of .* layouts of 4 ranks fits in 1000 B a rank" -n 4 --search 20 budget=1k
refused 78 "layout=auto: none of" -n 4 layout=auto budget=1k
echo "search: never slower than any of $tried layouts, same twice, train and plan agree"
