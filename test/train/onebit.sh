#!/bin/bash
# onebit.sh - 1-bit Adam, 1-bit LAMB and 0/1 Adam from the command line.
#
# The first steps have the bytes of adamw or lamb.  Resumed before and behind the switch, and between two steps that send, a run
# ends with the same bytes.  What is owed is in checkpoints, a term for each rank, and is read by runs with another number of
# ranks, or with other axes beside; so are the weights of ranks between two steps that send.  Steps that are run again, since experts
# (train.dropless) or packed activations (gist) had no room, end in the bytes of a run with room.
# shellcheck source=test/lib/runs.sh
. "$(dirname "$0")/../lib/runs.sh"

# shellcheck disable=SC2054 # the comma is that of optim.betas
job=(model=tiny data.train=text data.tokenizer=byte train.steps=12 train.batch=12 train.seq=32
    optim.lr=1e-3 optim.eps=1e-8 optim.weight_decay=0.1 optim.betas=0.9,0.95 optim.warmup=2 ckpt.every=3 ckpt.keep=0 sample.every=0 log.every=0 val.every=6)
all=("${job[@]}")

# $1 optimizer  $2 that of its first steps  $3 how many  $4 step of a checkpoint between two that send, or 0  ... its numbers
try() {
    local name=$1 first=$2 n=$3 local_step=$4
    shift 4
    job=("${all[@]}")
    for l in dp=1 dp=2 dp=3; do
        [ "$local_step" != 0 ] && [ $l = dp=3 ] && continue # a mean over three ranks is rounded
        train "warm-$l" "optim.name=$name" "$@" layout=$l train.steps="$n"
        train "first-$l" layout=$l train.steps="$n" "optim.name=$first"
        same "warm-$l" "first-$l"
        rm -r "warm-$l" "first-$l"
    done
    job+=("optim.name=$name" "$@")
    for l in dp=2 "dp=2 tp=2" "pp=2 dp=2 micro=2" "mesh hosts=2 dp=2; split b over hosts; split b over dp; shard state over dp"; do
        train whole layout="$l"
        "$skein" verify whole >said || { cat said; fail "$name, $l: not verified"; }
        local points="9" others="dp=4"
        [ -z "${SKEIN_LONG:-}" ] && [ "$l" != dp=2 ] || points="3 6 9" others="dp=1 dp=2 dp=4 dp=2_tp=2"
        for at in $points; do
            train again layout="$l" resume="whole/ckpt/step-000000000$at"
            same again whole
            rm -r again
        done
        grep -q '"wte.error"' whole/ckpt/step-0000000009/MANIFEST.json || fail "$name, $l: what is owed is not in the checkpoint"
        local replicas=no
        grep -q '"wte.replica"' whole/ckpt/step-0000000009/MANIFEST.json && replicas=yes
        [ $replicas = "$([ "$local_step" = 0 ] && echo no || echo yes)" ] || fail "$name, $l: replicas in the checkpoint: $replicas"
        for other in $others; do
            train other layout="${other/_/ }" resume=whole/ckpt/step-0000000009
            rm -r other
        done
        rm -r whole
    done
    # A step that runs again, of experts or of kept results that had no room, sends what it owes once.
    for l in dp=2 "pp=2 dp=2 micro=2" "mesh hosts=2 dp=2; split b over hosts; split b over dp; shard state over dp"; do
        train roomy layout="$l" model=mixtral-tiny train.steps=9
        train full layout="$l" model=mixtral-tiny train.steps=9 model.capacity_factor=1 train.dropless=1
        same full roomy
        [ "$(grep -c '"again":1' full/metrics.jsonl)" = 9 ] || fail "$name, $l: no step of experts ran again"
        train kept layout="$l" model=switch-tiny model.num_hidden_layers=6 train.steps=9
        [[ "$l" = mesh* ]] && line="; " || line=" " # words of a long form stand in a line of their own
        train packed layout="$l${line}gist=5" model=switch-tiny model.num_hidden_layers=6 train.steps=9
        same packed kept
        [ "$(grep -c '"again":1' packed/metrics.jsonl)" = 9 ] || fail "$name, $l: no step with gist ran again"
        rm -r roomy full kept packed
        [ -n "${SKEIN_LONG:-}" ] || break
    done
    refused 78 "order=canonical loses nothing" "${job[@]}" layout=dp=2 order=canonical run=no
    refused 78 "leave out zero" "${job[@]}" layout="dp=2 zero=1" run=no
    refused 78 "all groups need $name with the same steps" "${job[@]}" layout=dp=2 optim.groups="wte: sgd" run=no
    refused 78 "optim.state=f32" "${job[@]}" layout=dp=2 optim.state=bf16 run=no
    refused 78 "take optim.name=$name" "${all[@]}" layout=dp=2 optim.name=adamw optim.groups="rest: $name" run=no
    refused 78 "these are not carried from the program of one batch" "${job[@]}" layout=dp=2 train.batch_schedule="2: 4" run=no
    refused 78 "stop and resume with the other layout" "${job[@]}" layout=dp=2 train.relayout="5: tp=2" run=no
}

try onebit-adam adamw 5 0 optim.freeze_step=5
try onebit-lamb lamb 5 0 optim.freeze_step=5 optim.max_coeff=1e6 optim.min_coeff=0
# Dense 1, 2, 4; sent 3, 5 to 8, 10, 12; local 9, 11.
try zeroone-adam adamw 2 9 optim.var_freeze_step=5 optim.var_update_scaler=2 optim.local_step_scaler=2 optim.local_step_clipper=2

# The second moment is corrected for the steps that made it: another number of these is taken only where both are still to come.
job=("${all[@]}" train.steps=9 layout=dp=2)
for name in onebit-adam onebit-lamb; do
    train short optim.name=$name optim.freeze_step=5
    train once optim.name=$name optim.freeze_step=6
    train never optim.name=$name
    for from in never short; do # "compress from now on", of step 3, and behind it
        train now optim.name=$name optim.freeze_step=3 resume=$from/ckpt/step-0000000003
        train later optim.name=$name optim.freeze_step=6 resume=$from/ckpt/step-0000000003
        train third optim.name=$name optim.freeze_step=3
        same now third
        same later once
        rm -r now later third
    done
    train now optim.name=$name optim.freeze_step=6 resume=never/ckpt/step-0000000006
    same now once
    again=("${job[@]}" "optim.name=$name" run=no)
    refused 78 "optim.freeze_step=6, which sends momentum from the next step" "${again[@]}" optim.freeze_step=2 resume=never/ckpt/step-0000000006
    refused 78 "optim.freeze_step was 5 and is 30" "${again[@]}" optim.freeze_step=30 resume=short/ckpt/step-0000000006
    refused 78 "resume with optim.freeze_step=5" "${again[@]}" optim.freeze_step=6 resume=short/ckpt/step-0000000006
    train never optim.name=$name --resume optim.freeze_step=9 train.steps=12
    refused 78 "optim.freeze_step was 9 and is 11" "${job[@]}" --resume run=never train.steps=15 optim.freeze_step=11
    rm -r short once never now
done
# 0/1 Adam has the number of updates in its state; but what ranks added up alone is sent before a dense step.
job=("${all[@]}" layout=dp=2 optim.name=zeroone-adam optim.var_update_scaler=2 optim.local_step_scaler=2 optim.local_step_clipper=2)
train frozen optim.var_freeze_step=5
refused 78 "optim.var_update_scaler was 2 and is 20: so step 10" "${job[@]}" run=no optim.var_freeze_step=20 optim.var_update_scaler=20 resume=frozen/ckpt/step-0000000009
train thaw optim.var_freeze_step=20 resume=frozen/ckpt/step-0000000009 # step 10 sends
train thaw optim.var_freeze_step=20 resume=frozen/ckpt/step-0000000006
# Its ranks have weights of their own: a mean only where there are other ranks.
if grep 'weights and optimizer state of their own' thaw.out; then fail "as many ranks go on as they were"; fi
train more layout=dp=4 optim.var_freeze_step=5 resume=frozen/ckpt/step-0000000006
grep -q 'has 2 replicas .* each of 4 replicas goes on with their mean' more.out || { cat more.out; fail "no word of a mean"; }
rm -r more
rm -r frozen thaw
echo "onebit: $runs models with the same bytes, $checks refusals"
