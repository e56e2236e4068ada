#!/bin/bash
# noise.sh - train.noise: gradient variance and noise scale against gradients of small batches that are
# computed one by one, on layouts that split the batch in different ways; and what is refused.
set -eu
cd "$(dirname "$0")/../.."
skein=$(realpath "${SKEIN:-build/release/skein}")
temp=$(mktemp -d)
trap 'rm -rf "$temp"' EXIT
cd "$temp"
for i in {1..400}; do echo "Line $i of a text that says $((i * i % 97)) and much the same in every line."; done >text
fail() { echo "$*" && exit 1; }

# A rate of 0 keeps the weights: all runs see the gradients of one point, window after window of the data.
runs=0
job="model=tiny model.tie_word_embeddings=false data.train=text data.order=sequential train.seq=16 optim.lr=0 val.every=0 sample.every=0"
train() { # name, words
    local name=$1
    shift
    runs=$((runs + 1))
    # shellcheck disable=SC2086  # words
    "$skein" train $job log.every=1 run="$name" "$@" >"$name.out" 2>&1 || fail "$name: $(tail -n 3 "$name.out")"
}
number() { sed -nE "s/.*\"$2\":(-?[0-9.e+-]+).*/\1/p" "$1/metrics.jsonl"; }

# Expected from the norms of small batches alone: sizes and first windows of those of a step of 8, as "windows:first".
train of1 train.batch=1 train.steps=32
train of2 train.batch=2 train.steps=16
train of4 train.batch=4 train.steps=8
for n in 1 2 4; do number of$n grad_norm >norms$n; done
expect() { # run, steps, small batches
    paste -d ' ' <(number "$1" grad_norm) <(number "$1" grad_var) <(number "$1" noise_scale) >got
    [ "$(wc -l <got)" = "$2" ] || fail "$1: $(wc -l <got) lines with numbers, not $2"
    awk -v steps="$2" -v parts="$3" '
        FILENAME ~ /norms/ { norm[substr(FILENAME, 6), FNR] = $1; next }
        {
            n = split(parts, p, " "); f1 = f2 = small = 0
            for (i = 1; i <= n; i++) {
                split(p[i], x, ":"); b = x[1]; at = ((FNR - 1) * 8 + x[2]) / b + 1
                f1 += b / 8; f2 += b * b / 64; small += b * b / 64 * norm[b, at] ^ 2
            }
            square = (f1 * $1 ^ 2 - small) / (f1 - f2); variance = 8 * ($1 ^ 2 - square)
            v = 0.95 * v + 0.05 * variance; s = 0.95 * s + 0.05 * square
            off = ($2 - variance) / variance; ratio = ($3 - v / s) / (v / s)
            if (off ^ 2 > worst ^ 2) worst = off
            if (ratio ^ 2 > worst ^ 2) worst = ratio
        }
        END { printf "%.1e\n", worst < 0 ? -worst : worst; exit !(worst ^ 2 < 1e-6) }' \
        norms1 norms2 norms4 got >worst || fail "$1: off by $(cat worst): $(cat got)"
    echo "$1: within $(cat worst) of the small batches $3"
}
all8="1:0 1:1 1:2 1:3 1:4 1:5 1:6 1:7"
try() { # small batches, layout, words
    local parts=$1 layout=$2
    shift 2
    train "$layout" layout="$layout" train.noise=1 train.batch=8 train.steps=4 "$@"
    expect "$layout" 4 "$parts"
    rm -rf "${layout:?}"
}
try "2:0 2:2 2:4 2:6" "dp=4"
try "2:0" "micro=4"
try "2:0 2:2" "dp=2 micro=2"
try "4:0 4:4" "dp=2 tp=2"
try "4:0 4:4" "dp=2 zero=1"
try "4:0 4:4" "dp=2 zero=2"
try "1:0 1:1" "dp=2 zero=3 micro=4"
try "2:0" "pp=2 micro=4"
try "2:0" "pp=2 micro=4 schedule=zb-h1"
try "2:4 2:6" "dp=2 pp=2 micro=2 schedule=gpipe"
try "4:0 4:4" "dp=2 " order=canonical
try "2:0 2:2 2:4 2:6" "micro=4 " order=canonical # all micro-batches
try "$all8" "dp=8" train.threads=1

# Weights are those of a run without it, to the bit; and metrics without the key have no such numbers.
for layout in "dp=2" "dp=2 zero=3 micro=2" "tp=2 micro=2"; do
    train plain layout="$layout" optim.lr=0.01 train.batch=8 train.steps=3 train.dtype=bf16
    train noisy layout="$layout" optim.lr=0.01 train.batch=8 train.steps=3 train.dtype=bf16 train.noise=1
    cmp plain/final/model.safetensors noisy/final/model.safetensors || fail "$layout: other weights with train.noise"
    ! grep -q noise_scale plain/metrics.jsonl || fail "a noise scale without train.noise"
    grep -q "noise scale" noisy.out || fail "the console does not tell the noise scale"
    rm -rf plain noisy
done

# Samples one by one: the variance of 32 gradients, and how often the mean of all outweighs it.
train whole train.batch=32 train.steps=1
train parts train.batch=8 train.steps=4 layout=dp=4 train.noise=1
read -r variance scale < <(paste -d ' ' norms1 <(yes "$(number whole grad_norm)" | head -n 32) |
    awk '{ s += $1 ^ 2 / 32; all = $2 ^ 2 } END { v = (s - all) * 32 / 31; print v, v / (all - v / 32) }')
paste -d ' ' <(number parts grad_var) <(number parts noise_scale) | awk -v v="$variance" -v b="$scale" '
    { s += $1 / 4; last = $2 }
    END { printf "grad_var %.4g, of samples one by one %.4g; noise_scale %.4g, %.4g\n", s, v, last, b
          exit !(s > 0.8 * v && s < 1.25 * v && last > 0.7 * b && last < 1.4 * b) }' || fail "not the variance of the samples"

refused() { # what it says, words
    local says=$1
    shift
    # shellcheck disable=SC2086
    if "$skein" train $job train.batch=8 train.noise=1 run=refused "$@" >refused.out 2>&1; then fail "$*: it ran"; fi
    grep -q "$says" refused.out || fail "$*: $(tail -n 3 refused.out)"
}
refused "one rank has all of it in one micro-batch" layout=tp=2
refused "train.batch=8 leaves it empty: there are 12 micro-batches" layout=micro=12
refused "partial sum over cp, which splits no samples" layout="dp=2 cp=2"
refused "partial sum over tp, which splits no samples" layout="dp=2 tp=2 sp"
refused "stages 1 and 0 have a part each of the gradient of 'wte'" layout="dp=2 pp=2" model.tie_word_embeddings=true
refused "'wte' are reduced one by one" layout="dp=2 zero=3" model.tie_word_embeddings=true
refused "gradients are offloaded to the host" layout="dp=2 offload=grads"
refused "with grads=int8 the gradient of the batch is not the sum" layout="dp=2 grads=int8"
refused "schedule pipedream updates weights between micro-batches" layout="pp=2 micro=4 schedule=pipedream" optim.clip=0
refused "not split by samples over ep" layout="ep=2" model=mixtral-tiny
echo "noise: $runs runs"
