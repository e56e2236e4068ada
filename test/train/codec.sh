#!/bin/bash
# codec.sh - compressed edges, from the command line.
#
# What encoding lost is in the checkpoint.  Resumed on the same layout a run ends with the same
# bytes; on layouts with other numbers of ranks, without feedback, or with it for the first
# time, with nearly the same losses.
# shellcheck source=test/lib/runs.sh
. "$(dirname "$0")/../lib/runs.sh"

job=(model=tiny data.train=text data.tokenizer=byte train.steps=30 train.batch=12 train.seq=32
    optim.warmup=5 ckpt.every=10 ckpt.keep=0 sample.every=0 log.every=0 val.every=30)
code="weights=int8 grads=int4 feedback"

train() { # run directory, layout, more words
    local run=$1 layout=$2
    shift 2
    timeout 100 "$skein" train "${job[@]}" run="$run" layout="$layout" "$@" >"$run.out" 2>"$run.err" ||
        { rc=$?; cat "$run.out" "$run.err"; fail "$run: exit code $rc"; }
}

losses() { sed -nE 's/.*"step":([0-9]+),"loss":([-+0-9.e]+).*/\1 \2/p' "$1" | awk '$1 > 10'; }

near() { # run directory: losses after step 10 near those of the reference
    paste -d ' ' <(losses ref/metrics.jsonl) <(losses "$1/metrics.jsonl") | awk '
        { d = $4 / $2 - 1; d = d < 0 ? -d : d; if (d > worst) worst = d }
        $1 != $3 || !(d < 5e-3) { wrong = 1 }
        END { print worst; exit wrong || NR != 20 }' >>worst || fail "$1: other losses than ref"
}

train ref "dp=2 zero=3 $code"
grep -q '"wte.error"' ref/ckpt/step-0000000010/MANIFEST.json || fail "no errors in the checkpoint"
train same "dp=2 zero=3 $code" resume=ref/ckpt/step-0000000010
cmp ref/final/model.safetensors same/final/model.safetensors || fail "resumed: another model"

i=0
for layout in "dp=4 zero=3 $code copy=2" "dp=3 zero=2 grads=int4 feedback" "dp=2 grads=int8 feedback" \
    "pp=2 dp=2 zero=3 micro=2 $code" "dp=2 tp=2 zero=1 grads=int4 feedback" "dp=1" "dp=2 zero=3"; do
    i=$((i + 1))
    train "layout$i" "$layout" resume=ref/ckpt/step-0000000010
    near "layout$i"
done

# feedback begins where there was none
train first "dp=2 zero=3 $code" resume=layout7/ckpt/step-0000000020 train.steps=25
[ "$(losses first/metrics.jsonl | wc -l)" = 5 ] || fail "first: not 5 steps"

# codecs that draw, choose or keep signs: the same bytes when resumed; and on another layout
for c in topk:0.1 threshold:3 chunks:0.4 randk:0.3 sign q4 q8 powersgd:2; do
    train "$c" "dp=2 grads=$c feedback" train.steps=20
    train "$c-same" "dp=2 grads=$c feedback" train.steps=20 resume="$c/ckpt/step-0000000010"
    cmp "$c/final/model.safetensors" "$c-same/final/model.safetensors" || fail "$c resumed: another model"
done
train q2 "dp=2 zero=2 grads=q2" train.steps=20
train q2-same "dp=2 zero=2 grads=q2" train.steps=20 resume=q2/ckpt/step-0000000010
cmp q2/final/model.safetensors q2-same/final/model.safetensors || fail "q2 resumed: another model"
# what q2 loses is more than most gradients: kept, it would grow
refused() { "$skein" plan "${job[@]}" layout="$1" >refused 2>&1 && fail "$1 is not refused"; grep -q 'leave out feedback' refused || fail "$1: $(cat refused)"; }
refused "dp=2 grads=q2 feedback"
refused "dp=2 sync=diloco:5:codec=q2:feedback"
for c in topk:0.1 sign; do
    train "$c-other" "dp=4 zero=2 grads=$c feedback" train.steps=20 resume="$c/ckpt/step-0000000010"
    grep -q '"wte.error"' "$c-other/ckpt/step-0000000020/MANIFEST.json" || fail "$c-other: no errors"
    paste -d ' ' <(losses "$c/metrics.jsonl") <(losses "$c-other/metrics.jsonl") | awk '
        { d = $4 / $2 - 1 } $1 != $3 || d > 0.03 || d < -0.03 { wrong = 1 } END { exit wrong || NR != 10 }' ||
        fail "$c-other: other losses"
done

# factors of low rank: on another number of ranks, other shards and stages; the rank may change, and factors begin anew
for layout in "dp=4 zero=1 grads=powersgd:2" "pp=2 dp=2 micro=2 grads=powersgd:2" "dp=2 tp=2 grads=powersgd:2" "dp=2 grads=powersgd:4"; do
    run=other${layout//[ :=]/-}
    train "$run" "$layout feedback" train.steps=20 resume=powersgd:2/ckpt/step-0000000010
    most=1e-4 # to rounding with as many terms and as much rank
    case $layout in *dp=4* | *:4) most=0.01 ;; esac
    paste -d ' ' <(losses powersgd:2/metrics.jsonl) <(losses "$run/metrics.jsonl") | awk -v most=$most '
        { d = $4 / $2 - 1 } $1 != $3 || d > most || d < -most { wrong = 1 } END { exit wrong || NR != 10 }' ||
        fail "$layout: other losses"
done
grep -q '"wte.factor2"' powersgd:2/ckpt/step-0000000010/MANIFEST.json || fail "no factors in the checkpoint"

# an error that was lost matters: the bytes would differ
train lost "dp=2 zero=3 weights=int8 grads=int4" resume=ref/ckpt/step-0000000010
if cmp -s ref/final/model.safetensors lost/final/model.safetensors; then fail "lost: the same model"; fi

# What is owed and has no place any more is told, as far as it is dropped, by a resume and by a layout that changes.
told() { # run directory, words or "" for none
    if [ -z "$2" ]; then
        if grep 'error feedback' "$1.out"; then fail "$1: nothing is dropped"; fi
    else grep -qF "$2" "$1.out" || { cat "$1.out"; fail "$1: dropped without a word"; }; fi
    checks=$((checks + 1))
}
n=0
while IFS='|' read -r layout words; do
    n=$((n + 1))
    train "owed$n" "$layout" train.steps=12 resume=topk:0.1/ckpt/step-0000000010
    told "owed$n" "$words"
done <<'LIST'
dp=4|step-0000000010 has what encoding lost of 12 gradients (error feedback), which this run's layout has no use for: dropped
dp=2 grads=q4|has what encoding lost of 12 gradients
dp=2 sync=local:4|has what encoding lost of 12 gradients
dp=2 grads=powersgd:2 feedback|has what encoding lost of 2 gradients
dp=4 zero=1 grads=randk:0.1 feedback|
LIST
train diloco "dp=2 sync=diloco:5:codec=topk:0.1:feedback" train.steps=10
train diloco-plain "dp=2 sync=diloco:5" train.steps=12 resume=diloco/ckpt/step-0000000010
told diloco-plain "has what encoding lost of 12 changes (error feedback)"
train diloco-coded "dp=2 sync=diloco:3:codec=sign:feedback" train.steps=12 resume=diloco/ckpt/step-0000000010
told diloco-coded ""
phases="5: dp=4 grads=sign feedback, 8: tp=2 dp=2"
train moved "dp=4 grads=topk:0.1 feedback" train.steps=12 train.relayout="$phases"
told moved 'the layout "tp=2 dp=2" from step 8 on has no use for what encoding lost of 12 gradients (error feedback): dropped'
"$skein" plan "${job[@]}" layout="dp=4 grads=topk:0.1 feedback" train.relayout="$phases" >moved.out
told moved 'from step 8 on has no use for what encoding lost of 12 gradients'
[ "$(grep -c 'error feedback' moved.out)" = 1 ] || fail "a move that drops nothing is told"
echo "the same bytes when resumed; $i other layouts within $(sort -g worst | tail -n 1)"
