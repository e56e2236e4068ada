#!/bin/bash
# calibrated.sh [-d cpu|cuda] [-r ROUNDS] [-s STEPS] [-c FILE] [-t SECONDS] [PATTERN] - what simulate says on
# the machine that calibrate wrote, beside what happens.
#
#   bench/calibrated.sh                        ten jobs on one thread, about four minutes
#   bench/calibrated.sh -d cuda                ten jobs on one GPU, about six minutes
#   bench/calibrated.sh -d cuda -c machine.txt 'fp8|experts'     with a file that is there already
#
# First `skein calibrate` (-t seconds).  Then every round runs each job once with `skein bench step` and
# simulates it right after; the table holds medians over the rounds.  Measured is, on a processor, the
# time of the core (which does not count what other programs do), on a GPU the time of a step.  The jobs
# are none of those that calibrate runs.  The file and its table stay in build/calibrated.txt and .csv.  Ends with 1 if the median of |simulated / measured - 1| is over
# 10 %, or a job failed.
set -eu
cd "$(dirname "$0")/.."
device=cpu rounds=1 steps=10 file='' seconds=''
usage() { sed -n '2,/^set/p' "$0" | sed -n 's/^# \{0,1\}//p'; }
while getopts hd:r:s:c:t: o; do
    case $o in
    d) device=$OPTARG ;;
    r) rounds=$OPTARG ;;
    s) steps=$OPTARG ;;
    c) file=$OPTARG ;;
    t) seconds=$OPTARG ;;
    h) usage && exit 0 ;;
    *) usage >&2 && exit 64 ;;
    esac
done
shift $((OPTIND - 1))
pattern=${1:-.}
skein=$(realpath "${SKEIN:-build/release/skein}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

gpt() { # width, heads, layers
    echo "model=tiny model.hidden_size=$1 model.num_attention_heads=$2 model.num_hidden_layers=$3 model.max_position_embeddings=4096"
}
llama() { # width, heads, key heads, hidden, layers
    echo "model=llama-tiny model.hidden_size=$1 model.num_attention_heads=$2 model.num_key_value_heads=$3 model.intermediate_size=$4 model.num_hidden_layers=$5"
}
# Name, words, layout.
on_cpu() {
    cat <<TABLE
gpt 192|$(gpt 192 6 4) train.batch=4 train.seq=64|dp=1
gpt 256 bf16|$(gpt 256 8 4) train.batch=2 train.seq=96 train.dtype=bf16|dp=1
gpt 128, 8 sequences|model=demo train.batch=8 train.seq=64|dp=1
gpt 320 recompute|$(gpt 320 5 3) train.batch=2 train.seq=96|recompute=full
gpt 256, 512 tokens|$(gpt 256 4 2) train.batch=1 train.seq=512|dp=1
gpt 96, lion|$(gpt 96 4 4) train.batch=8 train.seq=48 optim.name=lion|dp=1
gpt 256, 4096 words|$(gpt 256 4 2) model.vocab_size=4096 train.batch=2 train.seq=64|dp=1
llama 384|$(llama 384 6 2 1024 2) train.batch=1 train.seq=192|dp=1
llama 192 bf16, micro|$(llama 192 6 6 512 3) train.batch=4 train.seq=64 train.dtype=bf16|micro=2
experts 192|model=mixtral-tiny model.hidden_size=192 model.intermediate_size=384 model.num_attention_heads=6 model.num_key_value_heads=3 train.batch=4 train.seq=48|dp=1
TABLE
}
on_cuda() {
    local llama1b="model=llama-1b train.dtype=bf16"
    cat <<TABLE
gpt2 bf16, 1k|model=gpt2 train.dtype=bf16 train.batch=32 train.seq=1024|dp=1
gpt2 bf16, 4k|model=gpt2 model.max_position_embeddings=4096 train.dtype=bf16 train.batch=6 train.seq=4096|dp=1
gpt2 f32, 1k|model=gpt2 train.batch=16 train.seq=1024|dp=1
gpt2-large bf16, recompute|model=gpt2-large train.dtype=bf16 train.batch=8 train.seq=1024|recompute=full
llama-1b bf16, 2k|$llama1b train.batch=8 train.seq=2048|dp=1
llama-1b fp8, 2k|$llama1b train.matmul=fp8 train.batch=8 train.seq=2048|dp=1
llama-1b bf16, 8k|$llama1b model.max_position_embeddings=8192 train.batch=2 train.seq=8192|dp=1
llama-1b bf16, micro|$llama1b train.batch=8 train.seq=1024|micro=4
llama-1b offload|$llama1b train.batch=8 train.seq=2048|offload=state
experts bf16|model=mixtral-nano model.hidden_size=768 model.intermediate_size=2048 model.num_attention_heads=12 model.num_key_value_heads=4 model.num_hidden_layers=8 model.num_local_experts=8 model.vocab_size=32000 model.max_position_embeddings=1024 train.dtype=bf16 train.batch=16 train.seq=1024|dp=1
TABLE
}

case $device in cpu) on_cpu ;; cuda*) on_cuda ;; *) usage >&2 && exit 64 ;; esac |
    grep -E "^[^|]*($pattern)" >"$work/list"
words="device=$device"
[ "$device" = cpu ] && words="$words train.threads=1"
if [ -z "$file" ]; then
    file=$work/machine.txt
    if [ -z "$seconds" ]; then seconds=$([ "$device" = cpu ] && echo 90 || echo 180); fi
    "$skein" calibrate "device=$device" --seconds "$seconds" --out "$file" -o csv >"$work/calibrate.csv"
    mkdir -p build && cp "$file" build/calibrated.txt && cp "$work/calibrate.csv" build/calibrated.csv
fi

one() { # model words, layout -> measured ms, simulated ms
    local ran said
    # shellcheck disable=SC2086  # words
    ran=$("$skein" bench step $1 $words --layout "$2" --steps "$steps" -o csv 2>"$work/err" |
        awk -F, -v cpu="$([ "$device" = cpu ] && echo 1)" 'NR == 2 { print cpu ? $(NF - 1) : $4 }')
    # shellcheck disable=SC2086
    said=$("$skein" simulate $1 $words layout="$2" --cluster "$file" -o csv 2>>"$work/err" |
        awk -F, '$1 == "all" { printf "%.4f\n", 1e3 * $5 }')
    if [ -z "$ran" ] || [ -z "$said" ]; then
        cat "$work/err" >&2
        return 1
    fi
    echo "$ran $said"
}

failed=0
for ((r = 0; r < rounds; r++)); do
    while IFS='|' read -r name model layout; do
        if point=$(one "$model" "$layout" </dev/null); then
            echo "$name|$layout|$point" >>"$work/points"
        else
            failed=1
        fi
    done <"$work/list"
done
echo "| job | layout | ms simulated | ms measured | simulated ÷ measured |"
echo "| --- | --- | --: | --: | --: |"
awk -F'|' '
    function median(list, n,    v, i, j, t) {
        n = split(list, v, " ")
        for (i = 2; i <= n; i++)
            for (j = i; j > 1 && v[j] + 0 < v[j - 1] + 0; j--) { t = v[j]; v[j] = v[j - 1]; v[j - 1] = t }
        return (v[int((n + 1) / 2)] + v[int(n / 2) + 1]) / 2
    }
    {
        split($3, x, " ")
        key = $1 "|" $2
        if (!(key in ran)) order[++n] = key
        ran[key] = ran[key] " " x[1]
        said[key] = said[key] " " x[2]
    }
    END {
        for (i = 1; i <= n; i++) {
            split(order[i], k, "|")
            a = median(said[order[i]]); b = median(ran[order[i]]); r = a / b
            off = r > 1 ? r - 1 : 1 - r
            offs = offs " " off
            far += off > 0.1
            printf "| %s | `%s` | %.2f | %.2f | %.3f |\n", k[1], k[2], a, b, r
        }
        if (!n) exit 1
        printf "\n%d jobs; median off by %.1f %%, more than 10 %% in %d\n", n, 100 * median(offs), far
        exit median(offs) > 0.1
    }' "$work/points" || failed=1
exit $failed
