#!/bin/bash
# torch.sh - skein against PyTorch: the same weights, the same windows, the same losses.
#
# Twenty steps of AdamW with clipping on one rank: nano (a GPT-2 of 10.7 million weights), and a
# Llama with grouped keys and an untied head.  Every loss agrees to 1e-4, relatively.  Before that
# PyTorch meets example/one_file.c, so that the oracle itself has been held against another.
# Takes about two minutes.  Needs Debian's python3-torch; installs it where it may.
set -eu
cd "$(dirname "$0")/../.."
python=/usr/bin/python3
oracle() { "$python" test/oracle/torch_oracle.py "$@"; }
has_torch() { "$python" -c 'import numpy, torch' 2>/dev/null; }

if ! has_torch && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    DEBIAN_FRONTEND=noninteractive apt-get -qq -y --no-install-recommends \
        -o DPkg::Lock::Timeout=120 install python3-torch python3-numpy >/dev/null 2>&1 || true
fi
if ! has_torch; then
    echo "PyTorch is not here: apt-get install --no-install-recommends python3-torch python3-numpy"
    exit 77
fi

temp=$(mktemp -d)
trap 'rm -rf "$temp"' EXIT
# Short enough that the windows wrap before the twentieth step.
if command -v bible >/dev/null; then bible -f -l20000 ge1:1-re22:21 >"$temp/all" || true; fi
[ -s "$temp/all" ] || cat example/one_file.c test/oracle/torch_oracle.py >"$temp/all"
head -c 15001 "$temp/all" >"$temp/text"

# ---- PyTorch against the GPT by hand
${CC:-cc} -O3 -march=native example/one_file.c -lm -o "$temp/one_file"
oracle make gpt2 "$temp/small" n_layer=3 n_head=4 n_embd=64 n_positions=48
oracle train "$temp/small" "$temp/text" seq=48 >"$temp/torch"
"$temp/one_file" "$temp/text" layers=3 heads=4 width=64 seq=48 batch=4 steps=20 \
    weights="$temp/small/model.safetensors" >"$temp/by_hand"
oracle compare 1e-5 "one_file and PyTorch" "$temp/by_hand" "$temp/torch"

skein=${SKEIN:-build/release/skein}
if ! [ -x "$skein" ] || ! "$skein" train --help >/dev/null 2>&1; then
    echo "PyTorch agrees with one_file; there is no skein train to compare with"
    exit 77
fi

# ---- skein against PyTorch
# At 1e-3 without warmup the loss of nano jumps to 8 and back within a step, in PyTorch too, and
# each jump magnifies rounding a hundredfold; at 3e-4 it falls.
against_torch() { # arch, learning rate, what to call it, label smoothing, z-loss
    oracle make "$1" "$temp/$1"
    if ! "$skein" train model="$temp/$1" data.train="$temp/text" data.tokenizer=byte \
        data.order=sequential data.val_fraction=0 train.steps=20 train.batch=4 train.seq=256 \
        train.dtype=f32 optim.name=adamw optim.lr="$2" optim.betas=0.9,0.95 optim.eps=1e-8 \
        train.label_smoothing="${4:-0}" train.z_loss="${5:-0}" optim.weight_decay=0.1 optim.clip=1 optim.schedule=constant optim.warmup=0 \
        run="$temp/run_$1${4:-}" >"$temp/said" 2>&1; then
        tail -n 30 "$temp/said"
        return 1
    fi
    oracle train "$temp/$1" "$temp/text" lr="$2" smooth="${4:-0}" z="${5:-0}" >"$temp/torch_$1"
    oracle compare 1e-4 "$3" "$temp/run_$1${4:-}/metrics.jsonl" "$temp/torch_$1"
}
wrong=0
against_torch gpt2 3e-4 "skein and PyTorch, GPT-2 nano" || wrong=1
against_torch llama 1e-3 "skein and PyTorch, Llama with grouped keys" || wrong=1
against_torch llama 1e-3 "the same with label smoothing and z-loss" 0.1 1e-3 || wrong=1
exit $wrong
