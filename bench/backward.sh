#!/bin/bash
# backward.sh - what outputs of the backward pass cost (train.backward), in per cent of a plain step.
#
#     bench/backward.sh [-d cuda] [STEPS [KEY=VALUE ...]]
#
# A classifier of plain layers with 10 classes and a GPT of 3 layers, one rank, f32.  With -d cuda, on one GPU: a wider classifier,
# and GPT-2 in bf16 with 16 x 512 and 8 x 1024 tokens.  Every round runs every way once, and the best of the rounds counts: noise
# only adds.  About a minute on two cores.
set -eu
cd "$(dirname "$0")/.."
skein=$(realpath "${SKEIN:-build/release/skein}")
device=cpu
[ "${1-}" != -d ] || { device=$2 && shift 2; }
steps=${1:-4}
[ $# = 0 ] || shift
if [ "$device" = cpu ]; then
    models="mlp gpt"
    mlp="model=mlp model.input_size=784 model.hidden_size=256 model.num_hidden_layers=3 model.vocab_size=10 train.batch=128 train.threads=1"
    gpt="model=gpt2 model.hidden_size=128 model.num_hidden_layers=3 model.num_attention_heads=4 model.intermediate_size=512
        model.vocab_size=512 model.max_position_embeddings=128 train.batch=8 train.seq=128 train.threads=1"
else
    models="mlp gpt512 gpt1024"
    mlp="model=mlp model.input_size=784 model.hidden_size=2048 model.num_hidden_layers=3 model.vocab_size=10 train.batch=1024 device=$device"
    gpt512="model=gpt2 train.batch=16 train.seq=512 train.dtype=bf16 device=$device"
    gpt1024="model=gpt2 train.batch=8 train.seq=1024 train.dtype=bf16 device=$device"
fi

ms() { # keys of a model and of a way
    # shellcheck disable=SC2086  # words
    "$skein" bench step $1 optim.clip=0 --steps "$steps" "${@:2}" -o csv |
        awk -F, 'NR == 1 { for (i = 1; i <= NF; i++) k[$i] = i } NR == 2 { print $k["ms"], $k["mem_bytes"] }'
}
for model in $models; do
    ways=("" norms variance kron diag_ggn_mc)
    [ "$model" != mlp ] || ways+=(diag_ggn)
    [ "$model" != mlp ] && [ "$device" != cpu ] || ways+=(gradients)
    for round in 1 2; do
        for way in "${ways[@]}"; do echo "${way:-plain} $(ms "${!model}" train.backward="$way" "$@")"; done
    done | awk -v model="$model" '
        { if (!($1 in best)) order[++n] = $1; if (!($1 in best) || $2 < best[$1]) best[$1] = $2; mem[$1] = $3 }
        END { for (i = 1; i <= n; i++) { w = order[i]
            printf "%-7s %-14s %8.1f ms %6.0f %%  %7.1f MiB\n", model, w, best[w], 100 * (best[w] / best["plain"] - 1), mem[w] / 2 ^ 20 } }'
done
