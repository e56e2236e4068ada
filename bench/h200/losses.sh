#!/bin/bash
# losses.sh - fifty steps of skein on a GPU beside fifty of PyTorch, loss by loss.
#
#     bench/h200/losses.sh                          gpt2 (124M) and llama-nano, bf16 and f32
#     MODELS=gpt2 DTYPES=bf16 bench/h200/losses.sh  some of it
#     DEVICE= MODELS=nano BATCH=4 SEQ=128 bench/h200/losses.sh      the same on the CPU
#
# Both sides start from the same weights: skein draws them from train.seed, and a first run of one
# step with a rate of zero leaves them in RUN/final, where PyTorch reads them.  Both see the same
# windows of the same ids (torch_losses.py tells how).  Every loss must agree, relatively: 1e-2 in
# bf16, 1e-4 in f32.  SKEIN is the program, PYTHON one with PyTorch, KEEP a folder for what both
# sides printed.  Exit code 1: some loss does not agree.
set -eu
cd "$(dirname "$0")/../.."
skein=${SKEIN:-build/release/skein}
python=${PYTHON:-python3}
device=${DEVICE-device=cuda} # the words that put skein on the GPU
read -r -a models <<<"${MODELS:-gpt2 llama-nano}"
read -r -a dtypes <<<"${DTYPES:-bf16 f32}"
steps=${STEPS:-50} batch=${BATCH:-4} seq=${SEQ:-1024} micro=${MICRO:-0} lr=${LR:-3e-4} warmup=10

temp=$(mktemp -d)
trap 'rm -rf "$temp"' EXIT
keep=${KEEP:-$temp/keep}
mkdir -p "$keep"

# Not the same for all models: ids are spread over the whole vocabulary, positions may be few.
words_of() { case $1 in gpt2*) echo 50304 ;; llama-1b) echo 32768 ;; *) echo 256 ;; esac; }
seq_of() { case $1 in nano | llama-nano) [ "$seq" -lt 256 ] && echo "$seq" || echo 256 ;; *) echo "$seq" ;; esac; }

say() { # file of words; runs skein, shows the end of what it said if it fails
    local said=$1
    shift
    if ! "$skein" "$@" >"$said" 2>&1; then
        echo "skein $*" >&2
        tail -n 20 "$said" >&2
        return 1
    fi
}

# The weights that train.seed=1 means.  On the CPU, with the smallest batch: they do not depend on it.
start_of() { # model
    say "$temp/said" train "model=$1" "data.train=$temp/$1.bin" data.val_fraction=0 train.steps=1 train.batch=1 \
        train.seq=8 train.seed=1 optim.lr=0 optim.warmup=0 optim.schedule=constant val.every=0 sample.every=0 \
        log.every=0 run="$temp/start" || return 1
    mkdir "$temp/hf"
    mv "$temp/start/final/config.json" "$temp/start/final/model.safetensors" "$temp/hf/"
    rm -rf "$temp/start"
}

both() { # model, dtype
    local t
    t=$(seq_of "$1")
    # shellcheck disable=SC2086  # words
    say "$temp/said" train "model=$1" $device "data.train=$temp/$1.bin" data.order=sequential \
        data.val_fraction=0 train.steps="$steps" train.batch="$batch" train.seq="$t" train.dtype="$2" \
        train.seed=1 optim.name=adamw optim.lr="$lr" optim.betas=0.9,0.95 optim.eps=1e-8 \
        optim.weight_decay=0.1 optim.clip=1 optim.schedule=constant optim.warmup=$warmup val.every=0 \
        sample.every=0 log.every=0 run="$temp/run" || return 1
    mv "$temp/run/metrics.jsonl" "$keep/$1-$2.jsonl"
    rm -rf "$temp/run"
    "$python" bench/h200/torch_losses.py train "$temp/hf" "$temp/$1.bin" --dtype "$2" --steps "$steps" \
        --batch "$batch" --seq "$t" --micro "$micro" --lr "$lr" --warmup "$warmup" ${HF:+--hf} \
        --out "$keep/$1-$2.torch" --against "$keep/$1-$2.jsonl"
}

wrong=0
for m in "${models[@]}"; do
    "$python" bench/h200/torch_losses.py tokens - "$temp/$m.bin" --words "$(words_of "$m")"
    start_of "$m" || { wrong=1; continue; }
    for dtype in "${dtypes[@]}"; do
        echo
        echo "### $m, $dtype, $steps steps of $batch x $(seq_of "$m") tokens"
        echo
        both "$m" "$dtype" || wrong=1
    done
    rm -rf "$temp/hf"
done
exit $wrong
