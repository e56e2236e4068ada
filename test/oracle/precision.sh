#!/bin/bash
# precision.sh - 200 steps of nano in 16 bits end where f32 ends: the mean of the last 20 losses within 1 %.
#
# nano is a GPT-2 of 10.7 million weights.  bf16, f16, and bf16 with the optimizer's state in bf16
# too, on two ranks with sharded gradients.  Takes about five minutes on two cores.
set -eu
cd "$(dirname "$0")/../.."
skein=$(realpath "${SKEIN:-build/release/skein}")
temp=$(mktemp -d)
trap 'rm -rf "$temp"' EXIT
if command -v bible >/dev/null; then bible -f -l20000 ge1:1-re22:21 >"$temp/text" || true; fi
[ -s "$temp/text" ] || cat src/*/*.c >"$temp/text"

run() { # name, words
    local name=$1
    shift
    if ! "$skein" train model=nano data.train="$temp/text" train.batch=4 train.seq=64 train.steps=200 optim.lr=3e-4 \
        val.every=0 sample.every=0 log.every=0 run="$temp/$name" "$@" >"$temp/$name.out" 2>&1; then
        echo "$name: $(tail -n 3 "$temp/$name.out")"
        exit 1
    fi
    grep -o '"loss":[0-9.]*' "$temp/$name/metrics.jsonl" | cut -d: -f2 >"$temp/$name.losses"
    rm -rf "${temp:?}/$name"
}
last() { tail -n 20 "$temp/$1.losses" | awk '{ s += $1 } END { printf "%.5f", s / NR }'; }

run f32
[ "$(wc -l <"$temp/f32.losses")" = 200 ] || { echo "f32: $(wc -l <"$temp/f32.losses") steps, not 200" && exit 1; }
run bf16 train.dtype=bf16
run f16 train.dtype=f16
run "bf16, state too" train.dtype=bf16 optim.state=bf16 layout="dp=2 zero=2"
wrong=0
for name in bf16 f16 "bf16, state too"; do
    awk -v n="$name" -v a="$(last "$name")" -v b="$(last f32)" -v first="$(head -n 1 "$temp/f32.losses")" 'BEGIN {
        off = 100 * (a / b - 1)
        printf "%-16s %s, f32 %s (from %s): %+.3f %%\n", n, a, b, first, off
        exit !(off < 1 && off > -1 && b < 0.6 * first)
    }' || wrong=1
done
exit $wrong
