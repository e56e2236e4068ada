#!/bin/bash
# precision.sh - runs in bf16 and f16: near f32, resumed to the bit, moved to another layout and
# type, with steps that overflow.
set -eu
cd "$(dirname "$0")/../.."
skein=$(realpath "${SKEIN:-build/release/skein}")
temp=$(mktemp -d)
trap 'rm -rf "$temp"' EXIT
for i in {1..300}; do echo "Line $i of a text that says much the same in every line."; done >"$temp/text"
fail() { echo "$*" && exit 1; }

runs=0
train() { # name, words
    local name=$1
    shift
    runs=$((runs + 1))
    "$skein" train model=tiny data.train="$temp/text" train.batch=8 train.steps=12 val.every=0 sample.every=0 \
        log.every=0 run="$temp/$name" "$@" >"$temp/$name.out" 2>&1
}
last() { grep -o '"loss":[0-9.]*' "$temp/$1/metrics.jsonl" | tail -1 | cut -d: -f2; }
near() { # two numbers, how near
    awk -v a="$1" -v b="$2" -v d="$3" 'BEGIN { x = a / b - 1; exit !(x < d && x > -d) }'
}
same() { cmp "$temp/$1/final/model.safetensors" "$temp/$2/final/model.safetensors" || fail "$1 and $2 differ"; }

train f32 || fail "f32: $(tail -3 "$temp/f32.out")"
for type in bf16 f16; do
    for layout in "dp=2 zero=2 micro=2" "pp=2 tp=2 micro=2" "dp=2 zero=3"; do
        name="$type $layout"
        train "$name" train.dtype=$type layout="$layout" || fail "$name: $(tail -3 "$temp/$name.out")"
        near "$(last "$name")" "$(last f32)" 0.01 || fail "$name: $(last "$name"), and f32 $(last f32)"
    done
    # Half the way, then the rest: the bits of the whole way.
    train "$type half" train.dtype=$type layout="dp=2 zero=2 micro=2" ckpt.every=6 train.steps=12
    rm -rf "$temp/$type half/final" "$temp/$type half/ckpt/step-0000000012"
    train "$type half" train.dtype=$type layout="dp=2 zero=2 micro=2" --resume ||
        fail "resumed: $(tail -3 "$temp/$type half.out")"
    same "$type dp=2 zero=2 micro=2" "$type half"
    # To other pieces on the way; a checkpoint of this type goes on in f32.
    train "$type moved" train.dtype=$type layout="dp=2 zero=1 micro=2" train.relayout="5: tp=2 micro=2" ||
        fail "moved: $(tail -3 "$temp/$type moved.out")"
    near "$(last "$type moved")" "$(last f32)" 0.01 || fail "moved: $(last "$type moved")"
    train "$type on" train.dtype=f32 train.steps=14 layout="dp=2" resume="$temp/$type dp=2 zero=3" ||
        fail "in f32: $(tail -3 "$temp/$type on.out")"
done

# A scale is f16's own: what comes from bf16, where it is 1, begins as a new run does.
scale() { grep -o 'scale=[0-9.e+-]*' "$temp/$1/ckpt/$(cat "$temp/$1/ckpt/LATEST")/MANIFEST.json"; }
train "to f16" train.dtype=f16 train.steps=14 layout="dp=2" resume="$temp/bf16 dp=2 zero=3" ||
    fail "bf16 to f16: $(tail -3 "$temp/to f16.out")"
[ "$(scale "to f16")" = "$(scale "f16 dp=2 zero=3")" ] || fail "bf16 to f16: $(scale "to f16"), and new $(scale "f16 dp=2 zero=3")"

# Gradients too large for f16: skipped by all ranks, with half the scale, and it goes on.
train large train.dtype=f16 layout="dp=2" model.initializer_range=1 optim.lr=1e-4 optim.clip=0 ||
    fail "large: $(tail -3 "$temp/large.out")"
grep -q "skipped by all ranks, the loss scale is now" "$temp/large.out" || fail "nothing was skipped: $(cat "$temp/large.out")"

# A rate that blows up: stops, or is skipped until that is hopeless.
for word in stop skip; do
    if train "up $word" layout="dp=2" optim.name=sgd optim.lr=1e6 optim.clip=0 optim.warmup=0 train.nonfinite=$word train.steps=60; then
        fail "$word: it came through"
    fi
    grep -q "they must be finite" "$temp/up $word.out" || fail "$word: $(tail -3 "$temp/up $word.out")"
done
[ "$(grep -c "skipped by all ranks" "$temp/up skip.out")" -ge 20 ] || fail "skip: $(cat "$temp/up skip.out")"
if grep -q "skipped by all ranks" "$temp/up stop.out"; then fail "stop: it skipped"; fi
echo "precision: $runs runs: near f32, resumed to the bit, moved; overflows skipped by all ranks"
