#!/bin/bash
# canonical.sh - order=canonical: one run of 20 steps on many layouts ends in the same bytes.
#
#     test/train/canonical.sh [DEVICE]      cpu, or cuda
set -eu
device=${1:-cpu}
skein=$(realpath "${SKEIN:-build/release/skein}")
text=$(realpath "$(dirname "$0")/../../example/one_file.c")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
ways=0 most=1

# Of each step: its number, loss, norm and, with experts, auxiliary loss.
numbers() { sed -nE '/"loss"/ { s/,"lr".*("aux":[^,]*).*/,\1/; s/,"lr".*//; p }' "$1/metrics.jsonl"; }

# train MODEL RANKS LAYOUT [key=value ...]: final/model.safetensors and the numbers of each step are those of the first of MODEL.
train() {
    local model=$1 ranks=$2 layout=$3 name
    shift 3
    name=$model.$(echo "$layout $*" | tr -c 'a-zA-Z0-9\n' _)
    "$skein" train model="$model" layout="$layout" device="$device" order=canonical data.train="$text" train.steps=20 train.batch=8 \
        train.seq=24 train.threads=1 optim.warmup=2 log.every=20 val.every=0 run="$name" -n "$ranks" "$@" \
        >"$name.log" 2>&1 || { echo "$model on \"$layout\": $(tail -n 5 "$name.log")"; exit 1; }
    if [ ! -f "$model.first" ]; then echo "$name" >"$model.first"; fi
    cmp "$(cat "$model.first")/final/model.safetensors" "$name/final/model.safetensors" ||
        { echo "$model: other bits on \"$layout\" $*"; exit 1; }
    [ "$(numbers "$name" | wc -l)" -ge 2 ] || { echo "$name: no numbers"; exit 1; }
    ! numbers "$name" | grep -vxFf <(numbers "$(cat "$model.first")") >other ||
        { echo "$model: other numbers on \"$layout\" $*:"; cat other; exit 1; }
    ways=$((ways + 1)) most=$((ranks > most ? ranks : most))
}

for model in tiny switch-tiny; do
    train $model 1 "dp=1" train.threads=1
    train $model 1 "dp=1" train.threads=2
    train $model 1 "dp=1 micro=3"
    train $model 2 "dp=2"
    train $model 2 "tp=2"
    train $model 3 "tp=3"
    train $model 2 "pp=2 micro=4"
    train $model 8 "dp=2 tp=2 pp=2 zero=3 micro=2"
    train $model 2 "cp=2"
    train $model 3 "dp=3 zero=2 micro=2"
    train $model 4 "dp=2 tp=2 sp zero=1"
done
train switch-tiny 2 "ep=2"
train switch-tiny 4 "dp=2 ep=2 zero=1"
train mixtral-tiny 1 "dp=1"
train mixtral-tiny 2 "ep=2"
train mixtral-tiny 2 "tp=2"
train mixtral-tiny 8 "ep=2 tp=2 pp=2 micro=4 schedule=zb-h1"
train tiny 8 "pp=2 cp=2 dp=2 micro=3 schedule=zb-v zero=1"
train tiny 4 "dp=4" train.relayout="5: dp=2 tp=2 zero=3, 12: pp=2 tp=2 micro=2"
rm -f mixtral-tiny.first switch-tiny.first # routers with a bias
bias=model.router_bias_update_speed=0.01
train mixtral-tiny 1 "dp=1" $bias
train mixtral-tiny 2 "ep=2" $bias
train mixtral-tiny 3 "dp=3 zero=3 micro=2" $bias
train mixtral-tiny 4 "pp=2 tp=2 micro=4" $bias
train mixtral-tiny 4 "dp=4" $bias train.relayout="5: dp=2 tp=2 zero=3, 12: pp=2 ep=2 micro=2"
train mixtral-tiny 2 "dp=2" $bias ckpt.every=10 ckpt.keep=0
train mixtral-tiny 4 "ep=2 tp=2" $bias resume="$(echo mixtral-tiny.dp_2_*ckpt_keep_0)/ckpt/step-0000000010"
grep -q 'resum' mixtral-tiny.ep_2_tp_2_*resume*.log || { echo "nothing was resumed"; exit 1; }
! "$skein" train model=mixtral-tiny train.steps=20 train.batch=8 train.seq=24 run=none -n 1 data.train="$text" \
    resume="$(echo mixtral-tiny.dp_2_*ckpt_keep_0)/ckpt/step-0000000010" >none.log 2>&1 ||
    { echo "a bias was left behind"; exit 1; }
grep -q 'has routers with a bias (model.router_bias_update_speed=0.01)' none.log || { cat none.log; exit 1; }
train switch-tiny 1 "dp=1" $bias
train switch-tiny 4 "dp=2 ep=2 zero=1" $bias
train switch-tiny 2 "cp=2" $bias
rm -f tiny.first # another optimizer, another model
train tiny 1 "dp=1" optim.name=lamb
train tiny 4 "dp=4 zero=3" optim.name=lamb
train tiny 6 "tp=3 dp=2 zero=2" optim.name=lamb
[ "$device" != cpu ] || train tiny 4 "dp=4" optim.name=lamb --launch=thread
# Many ranks: more than a word has bits, as threads and as processes, each its own program.
if [ "$device" = cpu ]; then
    rm -f tiny.first
    many=(train.steps=2 train.batch=64 sample.every=0)
    train tiny 1 "dp=1" "${many[@]}"
    train tiny 128 "dp=16 tp=2 pp=2 cp=2 micro=2" "${many[@]}" --launch=thread
    train tiny 128 "dp=64 tp=2 zero=3" "${many[@]}"
    train tiny 200 "tp=2 dp=100 zero=1 replica" "${many[@]}" --launch=thread
fi
echo "canonical: $ways runs on 1-$most ranks, equal to the bit"
