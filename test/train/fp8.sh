#!/bin/bash
# fp8.sh - products of the blocks in 8 bits: the loss stays near that of bf16, in pieces too; what
# is marked, what is refused, and the workspace that a plan has for it.
set -eu
cd "$(dirname "$0")/../.."
skein=$(realpath "${SKEIN:-build/release/skein}")
temp=$(mktemp -d)
trap 'rm -rf "$temp"' EXIT
fail() { echo "$*" && exit 1; }
command -v bible >/dev/null || [ -x /usr/games/bible ] || { echo "no bible-kjv here"; exit 77; }

train() { # name, words
    local name=$1
    shift
    "$skein" train data.train=kjv train.threads=1 val.every=0 sample.every=0 log.every=0 run="$temp/$name" "$@" \
        >"$temp/$name.out" 2>&1
}
# The mean loss of the last ten steps, or as many as there are: that of one is its batch's.
loss() { grep -o '"loss":[0-9.]*' "$temp/$1/metrics.jsonl" | tail -10 | cut -d: -f2 | awk '{ s += $1 } END { print s / NR }'; }
near() { # two numbers, how near
    awk -v a="$1" -v b="$2" -v d="$3" 'BEGIN { x = a / b - 1; exit !(x < d && x > -d) }'
}

# With SKEIN_LONG, sixty steps: 45 seconds; else five.
steps=$([ -n "${SKEIN_LONG:-}" ] && echo 60 || echo 5)
for matmul in same fp8; do
    train nano-$matmul model=nano train.batch=4 train.seq=128 train.steps="$steps" train.dtype=bf16 train.matmul=$matmul ||
        fail "nano $matmul: $(tail -3 "$temp/nano-$matmul.out")"
done
near "$(loss nano-fp8)" "$(loss nano-same)" 0.02 || fail "nano: $(loss nano-fp8), and bf16 $(loss nano-same)"
cmp -s "$temp/nano-fp8/final/model.safetensors" "$temp/nano-same/final/model.safetensors" && fail "fp8 changed nothing"

# Pieces have scales of their own.
train bf16 model=tiny train.batch=8 train.steps=12 train.dtype=bf16
for layout in "dp=1" "tp=2" "dp=2 zero=3" "pp=2 micro=2" "tp=2 overlap=2"; do
    for type in bf16 f16; do
        name="$type $layout"
        train "$name" model=tiny train.batch=8 train.steps=12 train.dtype=$type train.matmul=fp8 layout="$layout" ||
            fail "$name: $(tail -3 "$temp/$name.out")"
        near "$(loss "$name")" "$(loss bf16)" 0.02 || fail "$name: $(loss "$name"), and bf16 $(loss bf16)"
    done
done

# Steps that overflow in f16 still show.
train large model=tiny train.batch=8 train.steps=12 train.dtype=f16 train.matmul=fp8 model.initializer_range=1 \
    optim.lr=1e-4 optim.clip=0 || fail "large: $(tail -3 "$temp/large.out")"
grep -q "skipped by all ranks" "$temp/large.out" || fail "nothing was skipped: $(cat "$temp/large.out")"

if train f32 model=tiny train.matmul=fp8; then fail "f32 was taken"; fi
grep -q "train.dtype=bf16 is needed" "$temp/f32.out" || fail "$(cat "$temp/f32.out")"
if train fp4 model=tiny train.matmul=fp4; then fail "fp4 was taken"; fi

# A GPU has a workspace for the copies: here those of the widest gradient, 16384 x (768 + 3072) elements, in 16
# bits, should it come to that.
workspace=$("$skein" explain model=gpt2 train.dtype=bf16 device=cuda train.batch=256 train.seq=64 train.matmul=fp8 |
    sed -n 's/.* = contract(.*  workspace\[\([0-9]*\)\].*/\1/p' | sort -n | tail -1)
more=$((${workspace:-0} - (64 << 20)))
((more >= 125829120 && more < 125829120 + 65536)) || fail "a workspace of $more bytes for 125829120"
echo "fp8: nano $(loss nano-fp8), and bf16 $(loss nano-same); pieces, overflows, workspace"
