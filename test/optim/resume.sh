#!/bin/bash
# resume.sh - what an optimizer keeps beside its arrays survives a checkpoint and another layout.
#
# Optimizers with scalars for each parameter (novograd) and with masters (sam), in canonical order: a run that is resumed on
# another layout, one whose layout changes on the way, one with offloaded state and one on many ranks
# end with the bytes of one rank that never stops; with f32 and with bf16 state.
# shellcheck source=test/lib/runs.sh
. "$(dirname "$0")/../lib/runs.sh"

job=(model=tiny data.train=text data.tokenizer=byte train.steps=6 train.batch=4 train.seq=16 train.threads=1
    order=canonical optim.warmup=2 ckpt.every=3 ckpt.keep=0 val.every=0 sample.every=0 log.every=0)

for o in novograd sam; do
    train $o optim.name=$o
    train $o-many optim.name=$o layout="dp=2 tp=2 zero=3"
    same $o-many $o
    train $o-pipe optim.name=$o layout="pp=2 dp=2 zero=1 micro=2"
    same $o-pipe $o
    train $o-moved optim.name=$o layout=dp=2 train.relayout="2: tp=2, 4: dp=2 zero=2"
    same $o-moved $o
    train $o-there optim.name=$o layout="dp=2 tp=2 zero=3" resume=$o/ckpt/step-0000000003
    same $o-there $o
    train $o-back optim.name=$o resume=$o-many/ckpt/step-0000000003
    same $o-back $o
    train $o-host optim.name=$o layout="dp=2 zero=1 offload=state"
    same $o-host $o
    train $o-bf16 optim.name=$o optim.state=bf16
    train $o-bf16-many optim.name=$o optim.state=bf16 layout="dp=2 zero=2" resume=$o-bf16/ckpt/step-0000000003
    same $o-bf16-many $o-bf16
    cmp -s $o-bf16/final/model.safetensors $o/final/model.safetensors && fail "$o: optim.state=bf16 changes nothing"
done

# a scalar is a tensor of one element of the checkpoint
grep -aoq '"wte.novograd.v":{[^}]*"shape":\[1\]' novograd-many/ckpt/step-0000000003/o-* || fail "there is no wte.novograd.v"
echo "resume: $runs runs end with the bytes that they must"
