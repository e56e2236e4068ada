#!/bin/bash
# replica.sh - one copy of the weights per host changes no bit and saves the others' copies.
#
# The same job with zero=1 or 2 and with replica added: losses, final model and checkpoints must
# be the same bytes, as processes and as threads, with sums of the optimizer (lamb), from each
# other's checkpoints and from a model's directory.  Then a job of four ranks is looked at while it
# runs: its shared memory must be smaller by the weights of three ranks, and be what was planned.
# shellcheck source=test/lib/runs.sh
. "$(dirname "$0")/../lib/runs.sh"
pid=
trap '[ -z "$pid" ] || kill -9 "$pid" 2>/dev/null; rm -rf "$temp"' EXIT

job=(model=tiny data.train=text data.tokenizer=byte train.batch=5 train.seq=32 train.threads=1
    sample.every=0 log.every=0)
n=0

train() { # run directory, then more words
    local run=$1
    shift
    timeout 100 "$skein" train "${job[@]}" train.steps=12 ckpt.every=6 ckpt.keep=0 val.every=6 \
        run="$run" "$@" >"$run.out" 2>&1 || { cat "$run.out"; fail "$run: failed"; }
    grep -q 'planned = ' "$run.out" || { cat "$run.out"; fail "$run: maps what was not planned"; }
}

told() { grep -oE '"(loss|val_loss|grad_norm)":[^,}]*' "$1/metrics.jsonl"; }

same() { # two run directories
    cmp "$1/final/model.safetensors" "$2/final/model.safetensors" || fail "$1, $2: other models"
    diff <(told "$1") <(told "$2") >/dev/null || fail "$1, $2: other losses"
    n=$((n + 1))
}

pair() { # name, layout, then more words: with and without
    local name=$1 layout=$2
    shift 2
    train "$name-own" layout="$layout" "$@"
    train "$name" layout="replica $layout" "$@"
    same "$name-own" "$name"
}

pair one "dp=3 zero=1"
pair two "dp=2 tp=2 zero=2 micro=2"
pair three "pp=2 dp=2 zero=1 micro=2 order: dp pp"
pair lamb "dp=3 zero=1" optim.name=lamb
train threads layout="replica dp=3" --launch thread
same one threads

# each other's checkpoints, and a model's directory
train there layout="replica dp=3" resume=one-own/ckpt/step-0000000006
train back layout="dp=3 zero=1" resume=one/ckpt/step-0000000006
same there back
cmp there/final/model.safetensors one/final/model.safetensors || fail "resumed: another model"
pair from "dp=3 zero=1" model=one/final

# KiB of heaps that the processes of a job have touched, each page counted once
touched() { # process of the launcher
    local p
    for p in "$1" $(cat "/proc/$1/task/$1/children"); do cat "/proc/$p/smaps"; done |
        awk '/^[0-9a-f]+-[0-9a-f]+ / { heap = /memfd:skein / } heap && /^Pss:/ { n += $2 }
             END { print n + 0 }'
}

near() { # are two numbers within 1 %?
    local off=$(($1 - $2))
    [ "${off#-}" -le $(($2 / 100)) ]
}

size() { # run directory, layout: sets kib and weights
    local planned=0 tries=0
    "$skein" train "${job[@]}" train.steps=100000 ckpt.every=0 val.every=0 run="$1" layout="$2" \
        model.hidden_size=256 model.num_hidden_layers=4 model.num_attention_heads=4 \
        >"$1.out" 2>&1 &
    pid=$!
    until [ "$(grep -c loss "$1/metrics.jsonl" 2>/dev/null)" -ge 2 ] 2>/dev/null; do
        kill -0 $pid || { cat "$1.out"; fail "$1: failed"; }
        sleep 0.05
    done
    planned=$(awk -F, '$2 == "mapped" { n += $4 } END { print int(n / 1024) }' "$1/memory.csv")
    weights=$(awk -F, '$1 == 0 && $2 == "weights" { print int($4 / 1024) }' "$1/memory.csv")
    until kib=$(touched $pid) && near "$kib" "$planned"; do # counts of mappings change meanwhile
        [ $((tries += 1)) -lt 40 ] || fail "$1: $kib KiB are touched, $planned were planned"
        sleep 0.1
    done
    kill -INT $pid
    wait $pid || [ $? = 75 ] || { cat "$1.out"; fail "$1: did not stop"; }
    pid=
}

size large-own "dp=4 zero=1"
own=$kib
size large "dp=4 replica"
saved=$((own - kib)) # each count may be off by as much as near() allows
{ [ $((100 * saved)) -ge $((290 * weights)) ] && [ $((100 * saved)) -le $((320 * weights)) ]; } ||
    fail "heaps of $own KiB became $kib, 3 x $weights less were to be"
echo "replica: $n pairs alike; four ranks with weights of $weights KiB: $own KiB of heaps became" \
    "$kib, less by $(((100 * (own - kib) + weights / 2) / weights)) % of the weights"
