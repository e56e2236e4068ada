#!/bin/bash
# updates.sh - an optimizer counts its updates, whatever a step is.
#
# All data are one letter, so every batch has the same gradient, and a step of PipeDream on one
# stage with 4 micro-batches is 4 plain steps.  Runs that go from one to the other, by
# train.relayout or by resuming, must have the losses of as many plain steps: Adam's corrections
# go by the number of updates.
set -eu
cd "$(dirname "$0")/../.."
skein=$(realpath "${SKEIN:-build/release/skein}")
[ -x "$skein" ] || { echo "there is no $skein"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
head -c 60000 /dev/zero | tr '\0' a >text
runs=0

train() { # run directory, steps, layout, more words
    local run=$1 steps=$2 layout=$3
    shift 3
    timeout 60 "$skein" train model=tiny model.tie_word_embeddings=false data.train=text \
        data.tokenizer=byte train.batch=8 train.seq=24 train.threads=1 optim.clip=0 optim.warmup=0 \
        optim.schedule=constant optim.lr=3e-4 ckpt.every=1 ckpt.keep=0 val.every=0 sample.every=0 \
        log.every=0 run="$run" train.steps="$steps" layout="$layout" "$@" >"$run.out" 2>&1 ||
        { cat "$run.out"; exit 1; }
    runs=$((runs + 1))
}

loss() { sed -nE "s/.*\"step\":$2,\"loss\":([-+0-9.e]+).*/\1/p" "$1/metrics.jsonl"; }

as_plain() { # run, step, and the plain step that it is
    local x y
    x=$(loss "$1" "$2") y=$(loss plain "$3")
    awk -v x="$x" -v y="$y" 'BEGIN { d = x - y; exit !(x > 0 && y > 0 && d < 1e-6 && d > -1e-6) }' ||
        { echo "$1: step $2 has loss $x, plain step $3 has $y"; exit 1; }
}

apart="dp=1 micro=4 schedule=pipedream"
train plain 17 dp=1
train back 8 "$apart" train.relayout="3: dp=1"
for step in 4 5 6 7 8; do as_plain back $step $((step + 9)); done
train forth 8 dp=1 train.relayout="3: $apart, 6: dp=1"
for step in 7 8; do as_plain forth $step $((step + 9)); done
train resumed 8 dp=1 resume=back/ckpt/step-0000000003
as_plain resumed 8 17
cmp resumed/final/model.safetensors back/final/model.safetensors
train "two-stages" 4 "pp=2 micro=4 schedule=pipedream" resume=plain/ckpt/step-0000000002
grep -q '"extra":"steps=4 updates=10 ' two-stages/ckpt/step-0000000004/MANIFEST.json ||
    { grep -o '"extra":"[^"]*' two-stages/ckpt/step-0000000004/MANIFEST.json; echo "10 updates are needed"; exit 1; }
# What nobody says is the optimizer's own number, not another's: LAMB alone is LAMB with its numbers said.
lamb() { # run, more words
    local run=$1
    shift
    "$skein" train model=tiny data.train=text data.tokenizer=byte train.batch=8 train.seq=24 train.threads=1 train.steps=5 \
        val.every=0 sample.every=0 log.every=0 run="$run" "$@" >"$run.out" 2>&1 || { cat "$run.out"; exit 1; }
    runs=$((runs + 1))
}
lamb alone optim.name=lamb
lamb said optim.name=lamb optim.lr=2e-3 optim.betas=0.9,0.999 optim.eps=1e-6 optim.weight_decay=0.01
lamb adams optim.name=lamb optim.lr=1e-3 optim.betas=0.9,0.95 optim.eps=1e-8 optim.weight_decay=0.1
cmp alone/final/model.safetensors said/final/model.safetensors || { echo "LAMB has other numbers than its own"; exit 1; }
if cmp -s alone/final/model.safetensors adams/final/model.safetensors; then echo "LAMB has AdamW's numbers"; exit 1; fi
grep -q "betas: \[0.9, 0.999\]" alone/config.yaml || { echo "config.yaml: $(grep betas alone/config.yaml)"; exit 1; }
"$skein" list optim | grep -q "lamb.*betas 0.9 and 0.999" || { echo "list optim: $("$skein" list optim)"; exit 1; }
# A number that only one optimizer has reaches its pass, is written down and read back.
lamb mixed optim.name=ademamix
lamb more optim.name=ademamix optim.alpha=8 optim.mix_warmup=3
if cmp -s mixed/final/model.safetensors more/final/model.safetensors; then echo "optim.alpha changes nothing"; exit 1; fi
grep -q "alpha: 8" more/config.yaml || { echo "config.yaml: $(grep alpha more/config.yaml)"; exit 1; }
"$skein" train more/config.yaml run=once-more >once-more.out 2>&1 || { cat once-more.out; exit 1; }
cmp more/final/model.safetensors once-more/final/model.safetensors

echo "updates: $runs runs with 1 and 4 a step, counted alike"
