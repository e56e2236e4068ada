#!/bin/bash
# optimizers.sh [-d cpu|cuda] [-j JOBS] [-n SEEDS] [-t SECONDS] [-p PROBLEMS] [-l OPTIMIZERS] [-q] - steps and
# seconds to a validation loss, by optimizer.
#
#   bench/optimizers.sh -d cuda -j 6                   all, on one GPU that the jobs share
#   bench/optimizers.sh -d cpu -j 8 -p fashion,large   16 cores, without the language model
#   bench/optimizers.sh -p fashion -l adamw,lars       some of it
#   bench/optimizers.sh -q                             a look at whether all of it works, two minutes on two cores
#
# Problems: fashion (Fashion-MNIST, a multilayer perceptron, batches of 512), large (the same with batches of
# 8192, for adamw, lars and lamb) and nano (a GPT-2 of 10 M parameters on the King James Bible).  Optimizers are those of -l
# that `skein list optim` has.  For each: five rates, from a tenth of its default to ten times that, with
# seed 1; the one that reaches the loss in the fewest steps is then run with SEEDS seeds (five).  A job ends at
# its first validation at or below the loss; steps and seconds are interpolated from the validation before, and
# validations are not in the seconds.  The table has means and standard deviations over the seeds that reach it,
# Markdown on stdout.  With JOBS at once seconds are those of a machine that is shared evenly: compare them within
# one table only.  -t is the most that all of it may take (480); the time that is left is divided among what
# is left to do, and a row says what was not reached.  TARGET_FASHION, TARGET_LARGE and TARGET_NANO are the losses.
# Leaves nothing behind.
set -eu
cd "$(dirname "$0")/.."
skein=$(realpath "${SKEIN:-build/release/skein}")
device=cpu jobs=2 seeds=5 limit=480 problems=fashion,large,nano quick=0
list=adamw,sgd,lars,lamb,lion,muon,shampoo,soap,kfac
while getopts d:j:n:t:p:l:q o; do
    case $o in
    d) device=$OPTARG ;;
    j) jobs=$OPTARG ;;
    n) seeds=$OPTARG ;;
    t) limit=$OPTARG ;;
    p) problems=$OPTARG ;;
    l) list=$OPTARG ;;
    q) quick=1 ;;
    *) exit 2 ;;
    esac
done
factors=(0.1 0.3 1 3 10)
[ "$quick" = 0 ] || { seeds=2 factors=(1 3) list=adamw,lamb limit=150; }
case $problems in
*fashion* | *large*) [ -e /usr/share/datasets/fashion-mnist ] || { echo "optimizers.sh: needs the package dataset-fashion-mnist"; exit 77; } ;;
esac
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
deadline=$(($(date +%s) + limit))
"$skein" list optim >"$work/optims"

dtype=f32
[ "$device" = cpu ] || dtype=bf16
fashion="model=mlp data.train=fashion-mnist train.batch=512 train.steps=1500 val.every=20 val.batches=19"
large="model=mlp data.train=fashion-mnist train.batch=8192 train.steps=400 val.every=5 val.batches=1"
nano="model=nano data.train=kjv train.batch=32 train.seq=128 train.dtype=$dtype train.steps=400 val.every=10 val.batches=8"
declare -A keys=([fashion]="$fashion" [large]="$large" [nano]="$nano")
declare -A target=([fashion]="${TARGET_FASHION:-0.37}" [large]="${TARGET_LARGE:-0.42}" [nano]="${TARGET_NANO:-2.0}")
if [ "$quick" = 1 ]; then
    keys[fashion]="${keys[fashion]} train.steps=80 val.every=10 val.batches=2"
    keys[large]="${keys[large]} train.steps=12 val.every=2"
    keys[nano]="${keys[nano]} model.hidden_size=48 model.num_hidden_layers=1 train.batch=8 train.seq=32 train.steps=60 val.every=10 val.batches=2"
    target=([fashion]=0.6 [large]=1.2 [nano]=3.3)
fi
job=("device=$device" optim.schedule=constant optim.warmup=20 sample.every=0 log.every=0 ckpt.every=0)

names() { # of a problem: the optimizers that are there
    local o
    for o in ${list//,/ }; do
        grep -q "^ *$o " "$work/optims" || continue
        case $1.$o in large.adamw | large.lars | large.lamb | fashion.* | nano.*) echo "$o" ;; esac
    done
}

rates() { # of an optimizer: multiples of its default
    local at
    at=$(grep "^ *$1 " "$work/optims" | grep -o '; lr [0-9.e-]*' | sed 's/; lr //; s/,$//')
    for f in "${factors[@]}"; do awk -v x="${at:-0.001}" -v f="$f" 'BEGIN { printf "%s%g", n++ ? "," : "", x * f }'; echo; done | paste -sd,
}

reach() { # run directory, loss: "STEPS SECONDS" where it is reached
    [ -e "$1/metrics.jsonl" ] || return 0
    awk -v want="$2" '
        match($0, /"step":[0-9]+/) { step = substr($0, RSTART + 7, RLENGTH - 7) + 0 }
        match($0, /"ms":[0-9.e+]+/) { s += substr($0, RSTART + 5, RLENGTH - 5) / 1000 }
        match($0, /"val_loss":[0-9.]+/) {
            x = substr($0, RSTART + 11, RLENGTH - 11) + 0
            if (x <= want) {
                part = seen && before > x ? (before - want) / (before - x) : 1
                printf "%.1f %.4f\n", at + part * (step - at), t + part * (s - t)
                exit
            }
            seen = 1; before = x; at = step; t = s
        }' "$1/metrics.jsonl"
}

left=0 # pairs of a problem and an optimizer that are still to come
for p in ${problems//,/ }; do left=$((left + $(names "$p" | wc -l))); done

run() { # words of a sweep, within this pair's share of the time
    local now share
    now=$(date +%s)
    share=$(((deadline - now) / (left > 0 ? left : 1)))
    [ $((deadline - now)) -gt 0 ] || return 0
    timeout -s TERM "$((share > 5 ? share : 5))" "$skein" sweep "$@" --jobs "$jobs" >>"$work/log" 2>&1 || true
}

row() { # problem, optimizer
    local p=$1 o=$2 dir=$work/$1-$2 best='' least='' lr got found=''
    # shellcheck disable=SC2086 # keys are words
    run ${keys[$p]} "${job[@]}" optim.name="$o" optim.lr="$(rates "$o")" train.seed=1 val.stop_loss="${target[$p]}" run="$dir-rates"
    for lr in $(rates "$o" | tr , ' '); do
        got=$(reach "$dir-rates/lr=$lr" "${target[$p]}")
        [ -n "$got" ] || continue
        [ -n "$least" ] && awk -v x="${got% *}" -v y="$least" 'BEGIN { exit !(x >= y) }' && continue
        least=${got% *} best=$lr
    done
    if [ -z "$best" ]; then
        echo "| $p | $o | – | 0/$seeds | – | – | $(why "$dir-rates") |"
        left=$((left - 1))
        return
    fi
    # shellcheck disable=SC2086
    run ${keys[$p]} "${job[@]}" optim.name="$o" optim.lr="$best" train.seed=1..$seeds val.stop_loss="${target[$p]}" run="$dir-seeds"
    found=$(for s in $(seq "$seeds"); do reach "$dir-seeds/seed=$s" "${target[$p]}"; done)
    awk -v p="$p" -v o="$o" -v lr="$best" -v all="$seeds" '
        NF == 2 { n++; a += $1; b += $1 * $1; c += $2; d += $2 * $2 }
        function sd(s, q) { return n > 1 && q > s * s / n ? sqrt((q - s * s / n) / (n - 1)) : 0 }
        END {
            if (n) printf "| %s | %s | %s | %d/%d | %.0f ± %.0f | %.2f ± %.2f | |\n", p, o, lr, n, all, a / n, sd(a, b), c / n, sd(c, d)
            else printf "| %s | %s | %s | 0/%d | – | – | no time was left |\n", p, o, lr, all
        }' <<<"$found"
    left=$((left - 1))
}

why() { # of a sweep in which no rate reached the loss
    local f text=''
    for f in "$1"/*/outcome; do
        [ -e "$f" ] || continue
        case $(head -n 1 "$f") in 0 | 75) ;; *) text=$(sed -n 2p "$f" | cut -c1-90) ;; esac
    done
    echo "${text:-not reached}" | tr '|' '/'
}

for p in ${problems//,/ }; do
    echo "$p: validation loss ${target[$p]}, \`${keys[$p]}\`" | tr -s ' '
done
echo
echo "| problem | optimizer | best rate | seeds | steps | seconds | |"
echo "| --- | --- | --: | --: | --: | --: | --- |"
for p in ${problems//,/ }; do
    for o in $(names "$p"); do row "$p" "$o"; done
done
[ -s "$work/log" ] || exit 1
