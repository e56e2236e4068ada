#!/bin/bash
# averaged.sh - optim.ema and schedulefree: what validation, final/, samples and checkpoints read; resumed to the bit.
set -eu
cd "$(dirname "$0")/../.."
skein=$(realpath "${SKEIN:-build/release/skein}")
temp=$(mktemp -d)
trap 'rm -rf "$temp"' EXIT
cd "$temp"
for i in {1..400}; do echo "Line $i of a text that says $((i * i % 97)) and much the same in every line."; done >text
fail() { echo "$*" && exit 1; }

job=(model=tiny data.train=text train.seq=16 train.batch=8 order=canonical sample.every=0 val.every=1 val.batches=2 log.every=1)
steps=(train.steps=6 ckpt.every=3 ckpt.keep=0 optim.warmup=2)
ema=(optim.ema=0.8 optim.lr=0.01)
free=(optim.name=schedulefree optim.lr=0.01)
train() { # name, words
    local name=$1
    shift
    "$skein" train "${job[@]}" run="$name" "$@" >"$name.out" 2>&1 || fail "$name: $(tail -n 3 "$name.out")"
}
losses() { sed -nE 's/.*"loss":([0-9.e+-]+).*/\1/p' "$1/metrics.jsonl"; }
last_val() { sed -nE 's/.*"val(_loss)?":([0-9.e+-]+).*/\2/p' "$1/metrics.jsonl" | tail -n 1; }
same() { cmp "$1/model.safetensors" "$2/model.safetensors" || fail "$1 and $2 differ: $3"; }
differ() { ! cmp -s "$1/model.safetensors" "$2/model.safetensors" || fail "$1 and $2 are the same: $3"; }

# What validation reads is what is exported; training reads the weights.
train plain "${steps[@]}" optim.lr=0.01
for name in ema free; do
    declare -n average=$name # the array of that name
    train $name "${steps[@]}" "${average[@]}"
    differ plain/final $name/final "weights are exported, not their average"
    train of-$name model=$name/final train.steps=1 optim.lr=0
    [ -n "$(last_val $name)" ] || fail "$name: no validation in its metrics"
    [ "$(last_val $name)" = "$(last_val of-$name)" ] ||
        fail "$name: validation reads $(last_val $name), the exported model has $(last_val of-$name)"
done
[ "$(losses ema)" = "$(losses plain)" ] || fail "optim.ema changes the training"
[ "$(last_val ema)" != "$(last_val plain)" ] || fail "validation reads the weights, not their average"
train wide "${steps[@]}" "${ema[@]}" train.dtype=bf16 order=fast layout="dp=2 zero=1"
train of-wide model=wide/final train.steps=1 optim.lr=0 train.dtype=bf16 order=fast layout="dp=2 zero=1"
[ "$(last_val wide)" = "$(last_val of-wide)" ] || fail "bf16: $(last_val wide) and $(last_val of-wide)"
echo "validation and final/ read the average"

# Checkpoints hold both: they resume to the bit, on other layouts too, and are exported as their average.
for name in ema free; do
    declare -n average=$name # the array of that name
    "$skein" export $name/ckpt/step-0000000006 out-$name >said || fail "export: $(cat said)"
    grep -q 'averages of its weights' said || fail "export does not say what it wrote: $(cat said)"
    same out-$name $name/final "a checkpoint is exported otherwise"
    for layout in dp=1 "dp=2 zero=3 tp=2" "dp=2 zero=1 offload=state"; do
        rm -rf resumed
        train resumed "${steps[@]}" "${average[@]}" resume=$name/ckpt/step-0000000003 layout="$layout"
        same resumed/final $name/final "resumed on $layout"
    done
    train moved-$name "${steps[@]}" "${average[@]}" layout="dp=2 zero=1" train.relayout="2: tp=2, 4: dp=2 zero=3"
    same moved-$name/final $name/final "another layout from step to step"
    "$skein" sample $name --tokens 3 --prompt Line >said || fail "sample: $(cat said)"
done
echo "resumed on 6 layouts, moved between 6, to the bit"

# The weights themselves: those of the same training without an average.
"$skein" export ema/ckpt/step-0000000006 out-weights --training-weights >said || fail "export: $(cat said)"
same out-weights plain/final "--training-weights"

if "$skein" export ema/final out-none --training-weights >said 2>&1; then fail "weights of a model directory: it ran"; fi

# A checkpoint without an average: it begins as the weights, and weights that stay keep it.
"$skein" export plain/ckpt/step-0000000003 out-plain >said || fail "export: $(cat said)"
train late "${steps[@]}" optim.ema=0.8 optim.lr=0 resume=plain/ckpt/step-0000000003
same late/final out-plain "an average that begins late"
train given model=plain/final train.steps=1 optim.ema=0.8 optim.lr=0
same given/final plain/final "an average of loaded weights"
"$skein" import plain/final "${ema[@]}" run=brought >said 2>&1 || fail "import: $(cat said)"
"$skein" export brought out-brought >said || fail "export: $(cat said)"
same out-brought plain/final "an imported model"

# One that was kept is not dropped without a word.
rc=0
"$skein" train "${job[@]}" "${steps[@]}" resume=ema/ckpt/step-0000000003 optim.ema=0 run=dropped >said 2>&1 || rc=$?
[ $rc = 78 ] || fail "an average that is dropped: exit code $rc"
grep -q 'has an average of the weights (optim.ema=0.8) that this run would drop' said || fail "refused otherwise: $(cat said)"

# Schedules, and two averages.
grep -q '^ *schedule: constant' free/config.yaml || fail "schedulefree has another schedule by default"
if "$skein" train "${job[@]}" "${free[@]}" optim.schedule=cosine run=refused >said 2>&1; then fail "cosine with schedulefree: it ran"; fi
grep -q 'schedulefree takes no other than constant' said || fail "refused otherwise: $(cat said)"
if "$skein" train "${job[@]}" "${free[@]}" optim.ema=0.9 run=refused >said 2>&1; then fail "two averages: it ran"; fi
grep -q 'leave one of them out' said || fail "refused otherwise: $(cat said)"
if "$skein" train "${job[@]}" optim.ema=1 run=refused >said 2>&1; then fail "a decay of 1: it ran"; fi
echo "refused what cannot be"
