#!/bin/bash
# factor_interval.sh - K-FAC's factors in every third update: resumed between two of them, on the same and on another layout,
# and with a layout that changes on the way, a run ends with the bytes of one rank that never stops.
# shellcheck source=test/lib/runs.sh
. "$(dirname "$0")/../lib/runs.sh"

job=(model=tiny data.train=text data.tokenizer=byte train.steps=8 train.batch=4 train.seq=16 train.threads=1 order=canonical
    optim.name=kfac optim.warmup=2 optim.interval=4 optim.factor_interval=3 ckpt.every=4 ckpt.keep=0 val.every=0 sample.every=0 log.every=0)

train one
train many layout="dp=2 tp=2 zero=1"
same many one
train again resume=one/ckpt/step-0000000004
same again one
train there layout="dp=2 zero=3" resume=one/ckpt/step-0000000004
same there one
train back resume=many/ckpt/step-0000000004
same back one
train moved layout=dp=2 train.relayout="2: tp=2, 5: dp=2 zero=2"
same moved one
train often optim.factor_interval=1
cmp -s often/final/model.safetensors one/final/model.safetensors && fail "optim.factor_interval changes nothing"
echo "factor_interval: $runs runs end with the bytes that they must"
