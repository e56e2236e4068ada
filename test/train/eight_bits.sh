#!/bin/bash
# eight_bits.sh - training with optimizer state in blocks of 8 bits.
#
# 100 steps of adam8bit end with a loss within a per cent of the same Adam with state of f32.  A run
# that is resumed on its layout ends with the same bytes, since encoding what was decoded changes
# nothing; on other layouts with the same loss, to rounding, from checkpoints of f32 too.  optim.state
# wins over what an optimizer declares.  train.relayout moves blocks where shards stay, and is
# refused where they are cut anew.
# shellcheck source=test/lib/runs.sh
. "$(dirname "$0")/../lib/runs.sh"

job=(model=tiny data.train=text data.tokenizer=byte train.batch=4 train.seq=32
    optim.warmup=5 ckpt.keep=0 sample.every=0 log.every=0 val.every=0)

loss() { # of the last steps of a run, on the average
    grep -o '"loss":[0-9.e+-]*' "$1/metrics.jsonl" | cut -d: -f2 | tail -n 10 |
        awk '{ s += $1 } END { print s / NR }'
}

near() { # two runs, and how far apart their losses may be
    awk -v a="$(loss "$1")" -v b="$(loss "$2")" -v e="$3" \
        'BEGIN { d = a / b - 1; exit !(d < e && d > -e) }' ||
        fail "$1 ends with a loss of $(loss "$1"), $2 with $(loss "$2")"
}

data() { tail -c +$(($(od -An -tu8 -N8 "$1") + 9)) "$1"; } # of a tensor file: behind its header

# convergence
train wide -n 2 layout="dp=2 zero=1" train.steps=100 optim.name=adam8bit optim.state=f32 ckpt.every=50
train ref -n 2 layout="dp=2 zero=1" train.steps=100 optim.name=adam8bit ckpt.every=50
near ref wide 0.01
cmp -s ref/final/model.safetensors wide/final/model.safetensors && fail "the state is not of 8 bits"
grep -q "state: auto" ref/config.yaml || fail "config.yaml has another optim.state"

# resumed: the same bytes of weights and state
train again -n 2 layout="dp=2 zero=1" train.steps=100 optim.name=adam8bit ckpt.every=50 \
    resume=ref/ckpt/step-0000000050
cmp ref/final/model.safetensors again/final/model.safetensors || fail "resumed: another model"
for f in ref/ckpt/step-*100/[mo]-*; do
    cmp <(data "$f") <(data "again/${f#ref/}") || fail "resumed: another state"
done

# on other layouts, and from state of f32
for layout in "tp=2" "dp=2 zero=3" "pp=2 micro=2" "dp=2 offload=state"; do
    run=${layout//[ =]/_}
    train "$run" -n 2 layout="$layout" train.steps=100 optim.name=adam8bit \
        resume=ref/ckpt/step-0000000050
    near "$run" ref 0.01
done
train narrowed -n 2 layout="dp=2" train.steps=100 optim.name=adam8bit resume=wide/ckpt/step-0000000050
near narrowed ref 0.01
train widened -n 2 layout="dp=2" train.steps=100 optim.name=adam8bit optim.state=f32 \
    resume=ref/ckpt/step-0000000050
near widened ref 0.01

# bytes: what is said wins; every optimizer takes it
bytes() { "$skein" plan model=tiny "$@" -o csv | awk -F, 'NR == 1 { for (i = 1; i <= NF; i++)
    k[$i] = i } NR == 2 { print $k["optimizer_bytes"] }'; }
[ "$(bytes optim.name=adam8bit)" = "$(bytes optim.name=adamw optim.state=int8)" ] || fail "other bytes"
[ "$(bytes optim.name=adam8bit optim.state=f32)" = "$(bytes optim.name=adamw)" ] || fail "not f32"
[ "$(bytes optim.name=adam8bit optim.state=bf16)" = "$(bytes optim.name=adamw optim.state=bf16)" ] ||
    fail "not bf16"
[ $((3 * $(bytes optim.name=adam8bit))) -lt $((2 * $(bytes optim.name=adamw))) ] || fail "not smaller"

# groups have the type of their own optimizers
[ "$(bytes optim.groups="matrix: adam8bit, rest: adamw")" -lt "$(bytes optim.name=adamw)" ] ||
    fail "groups: not smaller"

# relayout
train moved -n 2 layout="dp=2" train.steps=20 optim.name=adam8bit train.relayout="10: dp=2 micro=2"
train stays -n 2 layout="dp=2" train.steps=20 optim.name=adam8bit
near moved stays 0.01
if "$skein" train "${job[@]}" run=cut -n 2 layout="dp=2 zero=1" train.steps=20 optim.name=adam8bit \
    train.relayout="10: tp=2" >cut.out 2>&1; then fail "relayout: blocks were cut"; fi
grep -q "optim.state is int8: train.relayout cannot cut the blocks of" cut.out || fail "$(cat cut.out)"
if "$skein" train "${job[@]}" run=cut2 optim.state=int4 >cut.out 2>&1; then fail "int4"; fi
grep -q 'optim.state is "int4"; needed is one of: auto f32 bf16 int8' cut.out || fail "$(cat cut.out)"
if "$skein" train "${job[@]}" run=cut2 -n 2 layout="tp=2" order=canonical optim.state=int8 >cut.out 2>&1
then fail "canonical: blocks were cut"; fi
grep -q "with order=canonical no layout may cut a block" cut.out || fail "$(cat cut.out)"
echo "eight bits: loss $(loss ref), of f32 $(loss wide)"
