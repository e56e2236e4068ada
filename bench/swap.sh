#!/bin/bash
# swap.sh [-n SEEDS] [-k WORKERS] [-t SECONDS] [-q] - SWAP beside small and large batches alone, on
# Fashion-MNIST with a multilayer perceptron, on the CPU.
#
#   bench/swap.sh                     on 16 cores: about three minutes
#   bench/swap.sh -q                  a look at whether all of it works, a minute on two cores
#
# Four contenders, each with seeds 1 to SEEDS (five): small batches on one worker, small batches data-parallel on
# all workers, large batches data-parallel, and SWAP (doc/swap.md): large batches data-parallel, then small ones on
# every worker by itself.  A worker has an equal part of the cores.  One contender runs at a time, so that none
# takes cores from another.  Every final model, and that of phase 1, is validated on all 10,000 pictures of the test
# set (train.steps=0).  The table has means and standard deviations over seeds, Markdown on stdout.  Seconds are
# those of training steps, of SWAP those of phase 1 and of its slowest worker.  -t is the most that all of it may
# take (480): what is not done then is left out, and the rows say of how many seeds they are.  Lengths are set by
# EPOCHS_SMALL, EPOCHS_LARGE, EPOCHS_ONE and EPOCHS_TWO, rates by RATE_SMALL, RATE_LARGE, RATE_ONE and RATE_TWO,
# batches by BATCH_SMALL and BATCH_LARGE.  Leaves nothing behind.
set -eu
cd "$(dirname "$0")/.."
skein=$(realpath "${SKEIN:-build/release/skein}")
seeds=5 workers=8 limit=480 quick=0
while getopts n:k:t:q o; do
    case $o in
    n) seeds=$OPTARG ;;
    k) workers=$OPTARG ;;
    t) limit=$OPTARG ;;
    q) quick=1 ;;
    *) exit 2 ;;
    esac
done
[ -e /usr/share/datasets/fashion-mnist ] || { echo "swap.sh: needs the package dataset-fashion-mnist"; exit 77; }
epochs=("${EPOCHS_SMALL:-10}" "${EPOCHS_LARGE:-20}" "${EPOCHS_ONE:-20}" "${EPOCHS_TWO:-2}")
[ "$quick" = 0 ] || { seeds=2 workers=2 && epochs=(0.2 1 0.6 0.1); }
small=${BATCH_SMALL:-128} large=${BATCH_LARGE:-2048}
steps() { awk -v e="$1" -v b="$2" 'BEGIN { printf "%d", e * 60000 / b + 0.999 }'; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
deadline=$(($(date +%s) + limit))

cores=$(nproc)
both=(model=mlp data.train=fashion-mnist val.every=0 ckpt.every=0 log.every=0 optim.warmup=20
    "train.threads=$((cores > workers ? cores / workers : 1))")
keys_small="train.batch=$small optim.lr=${RATE_SMALL:-2e-3}"
keys_large="train.batch=$large optim.lr=${RATE_LARGE:-1e-2} layout=dp=$workers"
keys_one="train.batch=$large optim.lr=${RATE_ONE:-1e-2} layout=dp=$workers"
keys_two="train.batch=$small optim.lr=${RATE_TWO:-5e-4} optim.schedule=constant"

left() { # seconds until the deadline
    local n=$((deadline - $(date +%s)))
    echo $((n > 1 ? n : 1))
}

run() { # words: a part of the work; what it cannot finish in time is left out
    timeout -s TERM "$(left)" "$skein" "$@" >>"$work/log" 2>&1 || echo "swap.sh: not finished: skein $*" >&2
}

# ---- training
alone() { # name, epochs, batch, keys: one seed after the other
    # shellcheck disable=SC2086 # keys are words
    run sweep "${both[@]}" $4 train.steps="$(steps "$2" "$3")" train.seed=1..$seeds run="$work/$1" --jobs 1
}
alone small "${epochs[0]}" "$small" "$keys_small"
alone small_dp "${epochs[0]}" "$small" "$keys_small layout=dp=$workers"
alone large "${epochs[1]}" "$large" "$keys_large"
for seed in $(seq "$seeds"); do
    run swap "${both[@]}" train.seed="$((100 * seed))" run="$work/swap-$seed" --workers "$workers" --jobs "$workers" \
        --large "$keys_one train.steps=$(steps "${epochs[2]}" "$large")" \
        --small "$keys_two train.steps=$(steps "${epochs[3]}" "$small")"
done

# ---- validations: a line "NAME SEED STEPS SECONDS MODEL" for each model
trained() { # run directory: steps and seconds of it
    awk -F'"ms":' 'NF > 1 { split($2, a, ","); s += a[1]; n++ } END { printf "%d %.3f\n", n, s / 1000 }' "$1/metrics.jsonl"
}
models() {
    local seed dir
    for seed in $(seq "$seeds"); do
        for dir in small small_dp large; do
            [ ! -e "$work/$dir/seed=$seed/final/config.json" ] ||
                echo "$dir $seed $(trained "$work/$dir/seed=$seed") $work/$dir/seed=$seed/final"
        done
        dir=$work/swap-$seed
        [ ! -e "$dir/average-$workers/config.json" ] || {
            echo "phase1 $seed $(trained "$dir/large/job") $dir/large/job/final"
            echo "worker $seed $(trained "$dir/small/seed=$((100 * seed + 1))") $dir/small/seed=$((100 * seed + 1))/final"
            awk -v RS='{' -v s="$seed" -v m="$dir/average-$workers" '/"phase": "average"/ {
                match($0, /"steps": [0-9]+/); n = substr($0, RSTART + 9, RLENGTH - 9)
                match($0, /"seconds": [0-9.]+/); t = substr($0, RSTART + 11, RLENGTH - 11)
                print "average", s, n, t, m }' "$dir/swap.json"
        }
    done
}
models >"$work/models"
while read -r name seed steps seconds model; do
    "$skein" train model="$model" data.train=fashion-mnist train.batch=100 train.steps=0 log.every=0 \
        run="$work/val-$name-$seed" >>"$work/log" 2>&1 || continue
    sed 's/.*"val_loss":\([0-9.]*\),"val_accuracy":\([0-9.]*\)}.*/\1 \2/' "$work/val-$name-$seed/metrics.jsonl" |
        while read -r loss right; do echo "$name $steps $seconds $loss $right"; done
done <"$work/models" >"$work/results"

# ---- the table
echo "| contender | seeds | steps | seconds | val loss | accuracy, % |"
echo "| --- | --: | --: | --: | --: | --: |"
awk -v small="$small" -v large="$large" -v k="$workers" '
    { n[$1]++; for (i = 2; i <= 5; i++) { x = $i * (i == 5 ? 100 : 1); sum[$1, i] += x; sq[$1, i] += x * x } }
    function mean(c, i) { return sum[c, i] / n[c] }
    function sd(c, i,  v) { v = n[c] > 1 ? (sq[c, i] - sum[c, i] ^ 2 / n[c]) / (n[c] - 1) : 0; return v > 0 ? sqrt(v) : 0 }
    function row(c, text) {
        if (!n[c]) { printf "| %s | 0 | – | – | – | – |\n", text; return }
        printf "| %s | %d | %.0f | %.2f ± %.2f | %.4f ± %.4f | %.2f ± %.2f |\n", text, n[c], mean(c, 2), mean(c, 3), sd(c, 3),
            mean(c, 4), sd(c, 4), mean(c, 5), sd(c, 5)
    }
    END {
        row("small", "small batches (" small "), one worker")
        row("small_dp", "small batches (" small "), dp=" k)
        row("large", "large batches (" large "), dp=" k)
        row("phase1", "SWAP, after phase 1 (" large "), dp=" k)
        row("worker", "SWAP, one worker (" small "), its own steps")
        row("average", "SWAP, average of " k " workers")
    }' "$work/results"
[ -s "$work/results" ] || { tail -n 5 "$work/log" >&2 && exit 1; }
