#!/bin/bash
# schedules.sh - every schedule of the learning rate in a run: stopped and resumed it has the rates and
# losses of a run that was not; onecycle's momentum is the same on all layouts and moves the weights;
# with train.time the rates before the number of steps is known are those that the schedule promises.
set -eu
cd "$(dirname "$0")/../.."
skein=$(realpath "${SKEIN:-build/release/skein}")
temp=$(mktemp -d)
trap 'rm -rf "$temp"' EXIT
cd "$temp"
job=(model=tiny train.batch=4 train.seq=16 train.threads=1 train.steps=12 data.train=text.txt val.every=0 sample.every=0 log.every=0)
checks=0
fail() { echo "schedules: $*" && exit 1; }
for i in $(seq 200); do echo "$i times the quick brown fox jumps over the lazy dog"; done >text.txt

numbers() { grep -o '"step":[0-9]*\|"loss":[^,]*\|"lr":[^,]*\|"momentum":[^,}]*' "$1/metrics.jsonl"; }
train() { "$skein" train "${job[@]}" "$@" >said 2>&1 || fail "$*: $(cat said)"; }

for name in $("$skein" list lr -o csv | tail -n +2 | cut -d, -f2); do
    min=1e-5
    if [ "$name" = constant ]; then min=0; fi # else refused: nothing falls to it
    train optim.schedule="$name" optim.min_lr=$min ckpt.every=5 ckpt.keep=0 run="whole-$name"
    cp -r "whole-$name" "part-$name"
    rm -rf "part-$name"/ckpt/step-*1[0-9] "part-$name/final"
    train --resume run="part-$name" resume="part-$name/ckpt/step-0000000005"
    [ "$(wc -l <"part-$name/metrics.jsonl.1")" = 7 ] || fail "$name: it did not go on from step 5"
    diff <(numbers "whole-$name") <(numbers "part-$name") || fail "$name: resumed, it goes on otherwise"
    [ "$(numbers "whole-$name" | grep -c '"lr"')" = 12 ] || fail "$name: rates are missing"
    checks=$((checks + 1))
done
[ "$(grep -c momentum whole-onecycle/metrics.jsonl)" = 12 ] || fail "onecycle sets no momentum"
! grep -q momentum whole-cosine/metrics.jsonl || fail "cosine sets the momentum"

# --- momentum: of every optimizer that has one, on layouts, and not without a cycle
for optim in adamw sgd lamb muon lion; do
    train optim.name=$optim optim.schedule=onecycle order=canonical run="one-$optim"
    for layout in "dp=2 zero=3" "pp=2 micro=2" "dp=2 offload=state"; do
        if [[ "$optim $layout" = muon*offload* ]]; then continue; fi # refused
        rm -rf two
        train optim.name=$optim optim.schedule=onecycle order=canonical layout="$layout" run=two
        diff <(numbers "one-$optim") <(numbers two) >/dev/null || fail "$optim, $layout: other losses"
        checks=$((checks + 1))
    done
    train optim.name=$optim optim.schedule=onecycle optim.schedule_momentum=0,0 order=canonical run="own-$optim"
    ! grep -q momentum "own-$optim/metrics.jsonl" || fail "0,0 sets the momentum"
    [ "$(numbers "one-$optim" | grep loss | tail -n 1)" != "$(numbers "own-$optim" | grep loss | tail -n 1)" ] ||
        fail "$optim: the momentum changes nothing"
done

# --- an optimizer without momentum gets none, and metrics tell none
for words in optim.name=rmsprop optim.name=adagrad optim.name=adafactor "optim.name=sgd optim.momentum=0" "optim.name=adamw optim.betas=0,0.9"; do
    rm -rf none cycled
    # shellcheck disable=SC2086  # words
    train $words optim.schedule=onecycle optim.schedule_momentum=0,0 run=none
    # shellcheck disable=SC2086
    train $words optim.schedule=onecycle run=cycled
    diff <(numbers none) <(numbers cycled) || fail "$words: onecycle brings a momentum"
    checks=$((checks + 1))
done
for words in "optim.name=rmsprop optim.momentum=0.5" "optim.name=adagrad optim.groups=vector:lion"; do
    rm -rf cycled
    # shellcheck disable=SC2086
    train $words optim.schedule=onecycle run=cycled
    [ "$(grep -c momentum cycled/metrics.jsonl)" = 12 ] || fail "$words: the momentum is not told"
    checks=$((checks + 1))
done

# --- the number of steps is not known at first
job+=(train.time=1s optim.min_lr=1e-5)
"$skein" train "${job[@]/train.steps=12/train.seed=3}" optim.schedule=wsd optim.warmup=2 run=timed >said 2>&1 || fail "$(cat said)"
sed -n 3,5p timed/metrics.jsonl | grep -c '"lr":0.001,' | grep -qx 3 || fail "wsd does not wait at the peak"
tail -n 1 timed/metrics.jsonl | grep -q '"lr":0.001,' && fail "wsd never falls"
"$skein" train "${job[@]/train.steps=12/train.seed=3}" optim.schedule=onecycle run=timed1 >said 2>&1 || fail "$(cat said)"
sed -n 1,5p timed1/metrics.jsonl | grep -c '"lr":4e-05,' | grep -qx 5 || fail "onecycle does not wait at its first rate"
tail -n 1 timed1/metrics.jsonl | grep -q '"lr":1e-05,' || fail "onecycle does not come to its end"
echo "schedules: $((checks + 4)) checks"
