#!/bin/bash
# losses.sh - train.label_smoothing, train.z_loss and optim.layer_decay in a run: the training loss has both
# terms, the validation loss neither; canonical order gives the same bits on layouts that split the
# vocabulary; 0 and 1 change nothing; bad values are refused.
set -eu
cd "$(dirname "$0")/../.."
skein=$(realpath "${SKEIN:-build/release/skein}")
temp=$(mktemp -d)
trap 'rm -rf "$temp"' EXIT
cd "$temp"
job=(model=tiny train.batch=4 train.seq=16 train.steps=4 data.train=text.txt val.every=2 val.batches=2
    sample.every=0 log.every=0)
checks=0
fail() { echo "losses: $*" && exit 1; }
for i in $(seq 200); do echo "$i times the quick brown fox jumps over the lazy dog"; done >text.txt

train() { "$skein" train "${job[@]}" "$@" >said 2>&1 || fail "$*: $(cat said)"; checks=$((checks + 1)); }
numbers() { grep -o '"step":[0-9]*\|"loss":[^,]*\|"val_loss":[^,}]*' "$1/metrics.jsonl"; }
first() { grep -o '"loss":[^,]*' "$1/metrics.jsonl" | head -n 1 | cut -d: -f2; }
vals() { grep -o '"val_loss":[^,}]*' "$1/metrics.jsonl"; }

# --- at a rate of 0 weights stay: the validation loss is that of a run without the terms
train optim.lr=0 run=plain
train optim.lr=0 train.label_smoothing=0.1 run=smooth
train optim.lr=0 train.z_loss=0.01 run=z
train optim.lr=0 train.label_smoothing=0.1 train.z_loss=0.01 run=both
for run in smooth z both; do
    [ "$(vals $run | wc -l)" = 2 ] || fail "$run: validations are missing"
    [ "$(vals plain)" = "$(vals $run)" ] || fail "$run: the validation loss has more than the cross-entropy"
    [ "$(first plain)" != "$(first $run)" ] || fail "$run: the training loss is that of the cross-entropy"
done
awk -v p="$(first plain)" -v s="$(first smooth)" -v z="$(first z)" -v b="$(first both)" 'BEGIN {
    d = (b - p) - (s - p) - (z - p); exit !(z > p + 0.1 && d < 1e-4 && d > -1e-4) }' ||
    fail "the terms do not add up: $(first plain) $(first smooth) $(first z) $(first both)"

# --- the same bits on layouts, gradients included
soft=(train.label_smoothing=0.1 train.z_loss=0.01 optim.layer_decay=0.5 order=canonical)
train "${soft[@]}" run=one
for layout in tp=2 "dp=2 zero=3 tp=2" "pp=2 micro=2" "dp=2 recompute=full" "dp=2 offload=state"; do
    rm -rf two
    train "${soft[@]}" layout="$layout" run=two
    diff <(numbers one) <(numbers two) >/dev/null || fail "$layout: other losses"
    cmp -s one/final/model.safetensors two/final/model.safetensors || fail "$layout: other weights"
done
train order=canonical run=three
diff <(numbers one) <(numbers three) >/dev/null && fail "the terms change nothing"

# --- 0 and 1 are as if nothing was said
train run=nothing
train train.label_smoothing=0 train.z_loss=0 optim.layer_decay=1 run=zero
diff <(numbers nothing) <(numbers zero) || fail "0 is not none"

# --- layer decay alone
train optim.layer_decay=0.5 run=decay
diff <(numbers nothing) <(numbers decay) >/dev/null && fail "layer decay changes nothing"

refused() { # the sentence, then the keys
    local want=$1
    shift
    if "$skein" train "${job[@]}" "$@" run=bad >said 2>&1; then fail "$*: is not refused"; fi
    grep -qF -- "$want" said || fail "$*: $(cat said)"
    checks=$((checks + 1))
}
refused "train.label_smoothing" train.label_smoothing=1
refused "train.z_loss" train.z_loss=-1
refused "optim.layer_decay" optim.layer_decay=0
echo "losses: $checks runs as they should be"
