#!/bin/bash
# refuse.sh - plan, explain and simulate refuse what train refuses, with its sentence and its exit
# code, where that can be told without data and devices; and nothing that train takes.
# shellcheck source=test/lib/runs.sh
. "$(dirname "$0")/../lib/runs.sh"
job=(model=tiny data.train=text train.seq=16 train.batch=4 train.steps=2 log.every=0 sample.every=0 train.threads=1)

alike() { # exit code, words: the other commands end as train does
    local want=$1 rc
    shift
    for command in train plan explain simulate; do
        rm -rf runs
        rc=0
        timeout 60 "$skein" "$command" "${job[@]}" "$@" >/dev/null 2>"said-$command" || rc=$?
        [ "$rc" = "$want" ] || fail "$command $*: exit code $rc, not $want: $(cat "said-$command")"
        [ "$want" = 0 ] || cmp said-train "said-$command" || fail "$command $*: another sentence: $(cat "said-$command")"
        checks=$((checks + 1))
    done
}

# ---- validations that a stop, or a validation alone, goes by
alike 78 val.stop_accuracy=0.5
alike 78 val.stop_loss=3 val.every=0
alike 78 val.stop_loss=3 data.val_fraction=0
alike 78 train.steps=0 val.every=0
alike 78 train.steps=0 data.val_fraction=0
alike 0 val.stop_loss=3
alike 0 train.steps=0
alike 0 val.stop_loss=3 data.val=text data.val_fraction=0

# ---- a run that is not there
alike 65 resume=nowhere
alike 65 --resume run=nowhere
alike 65 --resume
"$skein" train "${job[@]}" ckpt.every=1 run=there >/dev/null
alike 0 resume=there/ckpt/step-0000000001
alike 0 --resume run=there

# ---- pairs of keys
alike 78 optim.adascale=2
alike 78 train.noise=1
alike 78 train.dropless=1
alike 78 train.micro_batch=8
alike 78 optim.min_lr=1
alike 78 optim.name=schedulefree optim.schedule=cosine
alike 78 optim.groups="nobody: adamw"

# ---- ranks that do not wait for each other, on several hosts, and beside what waits
told() { # words that the sentence must have, then a command
    local rc=0 want=$1
    shift
    "$skein" "$@" >/dev/null 2>said || rc=$?
    [ $rc = 78 ] || fail "$*: exit code $rc, not 78: $(cat said)"
    grep -qF -- "$want" said || fail "$*: '$want' is not said: $(cat said)"
    checks=$((checks + 1))
}
for way in backup:1 ssp:3; do
    for command in plan simulate; do
        for machine in h100-8 a100-8; do
            told "rank 8 is on another host than rank 0" $command model=gpt2 train.batch=128 layout="dp=16 sync=$way" --cluster $machine
        done
    done
    told "with 'sync=$way' each rank goes by itself; take no train.relayout" plan "${job[@]}" layout="dp=2 sync=$way" train.relayout="1: dp=1"
    told "optim.name is onebit-adam" plan "${job[@]}" layout="dp=2 sync=$way" optim.name=onebit-adam
    told "the optimizer kfac has sums" plan "${job[@]}" layout="dp=2 sync=$way" optim.name=kfac
    told "the optimizer sam takes 2 gradients" plan "${job[@]}" layout="dp=2 sync=$way" optim.name=sam
done
told "leave out 'sync=local:2'" plan "${job[@]}" layout="dp=2 sync=local:2" train.relayout="1: dp=1"
told "leave out offload= and replica" plan "${job[@]}" layout="dp=2 replica" optim.name=onebit-adam
told "freeze_step=6, and optim.freeze_step is 100000; say optim.freeze_step=6" plan "${job[@]}" layout=dp=2 \
    optim.name=onebit-adam optim.groups="matrix:onebit-adam freeze_step=6,rest:onebit-adam freeze_step=6"
echo "refuse: $checks checks"
