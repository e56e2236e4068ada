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
echo "refuse: $checks checks"
