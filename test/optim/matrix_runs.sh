#!/bin/bash
# matrix_runs.sh - matrices with owners and cut matrices in runs: resume, other layouts, what explain tells.
#
# In canonical order runs with owners (dp=2 without zero, tp=2), resumed on other layouts and with layouts that change on the
# way, end with the bytes of one rank.  In fast order a run that is resumed ends with the bytes of the run that is not.
# shellcheck source=test/lib/runs.sh
. "$(dirname "$0")/../lib/runs.sh"

job=(model=tiny data.train=text data.tokenizer=byte train.steps=6 train.batch=4 train.seq=16 train.threads=1
    optim.warmup=2 ckpt.every=3 ckpt.keep=0 val.every=0 sample.every=0 log.every=0)

for o in muon shampoo; do
    c=(optim.name="$o" order=canonical optim.groups="matrix: $o, rest: adamw")
    [ $o = muon ] || c+=(optim.interval=2)
    train $o "${c[@]}"
    train $o-owners "${c[@]}" layout=dp=2 optim.work=owner
    same $o-owners $o
    train $o-all "${c[@]}" layout=dp=2 optim.work=all resume=$o-owners/ckpt/step-0000000003
    same $o-all $o
    train $o-back "${c[@]}" layout=tp=2 optim.work=owner resume=$o/ckpt/step-0000000003
    same $o-back $o
    train $o-moved "${c[@]}" layout=dp=2 train.relayout="2: tp=2, 4: dp=2 zero=1"
    same $o-moved $o
done

train cut optim.name=muon layout=tp=2 optim.work=cut
train cut-there optim.name=muon layout=tp=2 optim.work=cut resume=cut/ckpt/step-0000000003
same cut-there cut
train cut-on optim.name=muon layout="dp=2" resume=cut/ckpt/step-0000000003

told() { # words, then the line that must be there
    "$skein" explain model=tiny optim.name=muon "${@:1:$#-1}" >list || fail "explain ${*:1:$#-1} failed"
    grep -qx "${*: -1}" list || { grep matrices list; fail "explain ${*:1:$#-1} does not say: ${*: -1}"; }
}
told layout=dp=2 "matrices h.0.fc.w and [0-9]* alike: muon by 2 owners along dp"
told layout=dp=2 optim.work=all "matrices h.0.fc.w and [0-9]* alike: muon by all that have them"
told layout=tp=2 optim.work=cut "matrices h.0.fc.w and [0-9]* alike: muon by all that have them, cut over tp"
told layout="dp=2 tp=2 zero=1" optim.work=cut "matrices h.0.fc.w and [0-9]* alike: muon by 2 owners along dp, cut over tp"
"$skein" explain model=tiny optim.name=muon optim.work=some >out 2>&1 && fail "optim.work=some is taken"
grep -q "optim.work" out || fail "optim.work=some is refused with: $(cat out)"
echo "matrix_runs: $runs runs end with the bytes that they must"
