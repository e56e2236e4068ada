#!/bin/bash
# nonfinite.sh - a NaN in one element of one gradient of one rank: all ranks stop, skip the step, or go
# back and leave the batch out, alike.  No checkpoint holds numbers that are not finite.
set -eu
cd "$(dirname "$0")/../.."
skein=$(realpath "${SKEIN:-build/release/skein}")
temp=$(mktemp -d)
trap 'rm -rf "$temp"' EXIT
for i in {1..300}; do echo "Line $i of a text that says much the same in every line."; done >"$temp/text"
fail() { echo "$*" && exit 1; }

runs=0
train() { # name, words; the fault is in $fault
    local name=$1
    shift
    runs=$((runs + 1))
    SKEIN_FAULT=${fault:-} "$skein" train model=tiny data.train="$temp/text" train.batch=8 train.steps=12 val.every=0 \
        sample.every=0 log.every=0 ckpt.every=5 ckpt.keep=0 run="$temp/$name" "$@" >"$temp/$name.out" 2>&1
}
good() { train "$@" || fail "$1: $(tail -3 "$temp/$1.out")"; }
same() { cmp "$temp/$1/final/model.safetensors" "$temp/$2/final/model.safetensors" || fail "$1 and $2 differ"; }
losses() { grep -o '"loss":[^,]*' "$temp/$1/metrics.jsonl" | cut -d: -f2; }
told() { grep -q "$2" "$temp/$1.out" || fail "$1: no '$2' in $(tail -3 "$temp/$1.out")"; }
extra() { grep -o 'steps=[^"]*tokenizer' "$temp/$1/ckpt/$(cat "$temp/$1/ckpt/LATEST")/MANIFEST.json"; }

# Which rank it is, and which gradient, changes nothing: not the decision, and not the bits after it.  All of it with dp=2;
# of other layouts every second policy, with SKEIN_LONG all.
n=0
for layout in "dp=2" "tp=2" "pp=2 micro=2" "dp=2 zero=3" "pp=2 dp=2 tp=2 zero=2 micro=2" "dp=2 sync=postlocal:4@12"; do
    for policy in stop skip rollback; do
        n=$((n + 1))
        [ $n -le 3 ] || [ $((n % 2)) = 0 ] || [ -n "${SKEIN_LONG:-}" ] || continue
        first=
        for who in 0 1 1:f; do
            fault=nan:8:$who name="$layout $policy $who"
            [ $who != 0 ] || fault=inf:8:0
            if [ $policy = stop ]; then
                code=0
                train "$name" layout="$layout" || code=$?
                [ $code = 79 ] || fail "$name: exit code $code, not 79: $(tail -3 "$temp/$name.out")"
                told "$name" "step 8: loss .* they must be finite.*the newest checkpoint is that of step 5"
                [ "$(losses "$name" | wc -l)" = 7 ] || fail "$name: $(losses "$name" | wc -l) steps were done, not 7"
                continue
            fi
            good "$name" layout="$layout" train.nonfinite=$policy
            if [ $policy = skip ]; then told "$name" "step 8: .* skipped by all ranks"; else
                told "$name" "step 8: .* all ranks roll back to the checkpoint of step 5 and skip batch 8"
            fi
            [ "$(losses "$name" | wc -l)" = 12 ] || fail "$name: steps are told twice"
            [ -z "$first" ] || same "$first" "$name"
            first=$name
        done
    done
done
[[ "$(extra "dp=2 skip 0")" = *"updates=11 "*"skipped=1 left= "* ]] || fail "skip: $(extra "dp=2 skip 0")"
[[ "$(extra "dp=2 rollback 0")" = *"updates=12 "*"skipped=0 left=7 "* ]] || fail "rollback: $(extra "dp=2 rollback 0")"
grep -q '"step":8,.*"skipped":1,"left_out":0' "$temp/dp=2 skip 0/metrics.jsonl" || fail "skip: metrics.jsonl"
grep -q '"step":8,.*"skipped":0,"left_out":1' "$temp/dp=2 rollback 0/metrics.jsonl" || fail "rollback: metrics.jsonl"

# What is no number is told without a sign.  Random places times the length of their stretch are too large for f16 at first.
good "randk" layout="dp=2 grads=randk:0.1" train.dtype=f16
told randk "norm of the gradient \(nan\|inf\): skipped by all ranks, the loss scale is now"
! grep -q -- "-nan" "$temp/randk.out" || fail "randk: -nan"

# From wherever it goes back, the bits are those of a training without the batch; in canonical order on any layout.
fault=nan:8:0
good "every 3" layout="dp=2" train.nonfinite=rollback ckpt.every=3
same "dp=2 rollback 0" "every 3"
good one layout="dp=1" order=canonical train.nonfinite=rollback
good eight layout="pp=2 dp=2 tp=2 zero=1 micro=2" order=canonical train.nonfinite=rollback ckpt.every=2
same one eight

# At a rate of zero a loss is the batch's own: from step 8 on they are those of one step later.
fault='' good still layout="dp=2" optim.lr=0 train.steps=13
good left layout="dp=2" optim.lr=0 train.nonfinite=rollback
cmp <(losses still | sed 8d) <(losses left) || fail "other batches: $(losses left)"

# Resumed behind it and before it, the same bits; so is a run that is moved to another layout.
for from in 10 5; do
    cp -r "$temp/dp=2 rollback 0" "$temp/from $from"
    rm -rf "$temp/from $from/final" "$temp/from $from/ckpt/step-0000000012"
    [ $from = 10 ] || rm -rf "$temp/from $from/ckpt/step-0000000010"
    good "from $from" layout="dp=2" train.nonfinite=rollback --resume
    same "dp=2 rollback 0" "from $from"
done
grep -q "roll back" "$temp/from 5.out" || fail "from 5: it did not come by the batch"
if grep -q "roll back" "$temp/from 10.out"; then fail "from 10: it does not know what is left out"; fi
good moved order=canonical layout="dp=2" train.relayout="6: tp=2" train.nonfinite=rollback
same one moved
told moved "roll back to the checkpoint of step 5"

# f16, where gradients are the scale's business.
fault=nan:8:1 good f16 layout="dp=2" train.dtype=f16 train.nonfinite=rollback
told f16 "skipped by all ranks, the loss scale is now 64"
grep -q '"step":8,.*"scale":128,"skipped":1,' "$temp/f16/metrics.jsonl" || fail "f16: metrics.jsonl"
grep -q '"step":9,.*"scale":64,"skipped":1,' "$temp/f16/metrics.jsonl" || fail "f16: metrics.jsonl"
fault='' good row layout="dp=2" train.dtype=f16 log.every=1
told row "scale 128, 0 skipped"
fault='' good plain layout="dp=2" log.every=1
if grep -q "scale" "$temp/plain.out"; then fail "f32: the console tells of a scale"; fi

# No checkpoint, and no end.
code=0
fault=nan:3:0 train early layout="dp=2" train.nonfinite=rollback || code=$?
[ $code = 79 ] || fail "early: exit code $code"
told early "step 3: .*there is no checkpoint yet to roll back to; ckpt.every=N"
code=0
fault='' train hopeless layout="dp=2" optim.name=sgd optim.lr=1e6 optim.clip=0 optim.warmup=0 train.nonfinite=rollback \
    train.steps=60 ckpt.every=1 || code=$?
[ $code = 79 ] || fail "hopeless: exit code $code: $(tail -3 "$temp/hopeless.out")"
told hopeless "rolled back to the checkpoint of step [0-9]* 20 times in a row and skipped [0-9]* batches in all"

# Where stages update within a step it cannot be skipped, and the report does not say that weights are as they were.
for how in "pipedream micro=4" "pipedream micro=1" "pipedream-2bw micro=2"; do
    pipe=(layout="pp=2 schedule=$how" model.tie_word_embeddings=false optim.clip=0) name="pipe $how"
    code=0
    fault=nan:8:0 train "$name" "${pipe[@]}" train.nonfinite=skip || code=$?
    [ $code = 79 ] || fail "$name: exit code $code"
    told "$name" "step 8: .* weights were changed, and no step can be skipped; the newest checkpoint is that of step 5"
    fault=nan:8:0 good "$name back" "${pipe[@]}" train.nonfinite=rollback
    told "$name back" "roll back to the checkpoint of step 5 and skip batch 8"
done

# State that is not finite is not saved: the run ends, or goes back and leaves the batch out that made it.
code=0
fault=state:5:0 train state layout="dp=2 zero=1" || code=$?
[ $code = 79 ] || fail "state: exit code $code"
told state "after step 5 '.*' is not finite any more; it is not saved, the newest checkpoint is none"
[ -z "$(ls -d "$temp"/state/ckpt/step-* 2>/dev/null)" ] || fail "state: it was saved"
code=0
fault=state:12:1 train last layout="dp=2 zero=3" || code=$?
[ $code = 79 ] || fail "last: exit code $code"
[ ! -e "$temp/last/final" ] || fail "last: a model that is not finite was written"
for type in f32 bf16; do
    fault=state:10:1 good "back $type" layout="dp=2 zero=3" train.dtype=$type train.nonfinite=rollback
    told "back $type" "after step 10 '.*' is not finite any more: all ranks roll back to the checkpoint of step 5 and skip batch 10"
    fault=nan:10:1 good "grad $type" layout="dp=2 zero=3" train.dtype=$type train.nonfinite=rollback
    same "back $type" "grad $type"
    fault=state:12:1 good "end $type" layout="dp=2 zero=3" train.dtype=$type train.nonfinite=rollback
    told "end $type" "roll back to the checkpoint of step 10 and skip batch 12"
done

# Weights to begin with that are not finite: told by their name, before a step.
cp -r "$temp/plain/final" "$temp/nan"
rm -f "$temp/nan/checksums.json"
printf '\0\0\300\177' | dd of="$temp/nan/model.safetensors" bs=1 conv=notrunc status=none \
    seek=$(($(od -An -tu8 -N8 "$temp/nan/model.safetensors") + 8))
code=0
fault='' train begun model="$temp/nan" data.tokenizer=byte layout="dp=2" || code=$?
[ $code = 79 ] || fail "weights of NaN: exit code $code"
told begun "/nan: '.*' has numbers that are not finite in f32; skein verify .*/nan tells"
code=0
"$skein" sample "$temp/nan" --prompt x --tokens 2 >"$temp/said" 2>&1 || code=$?
[ "$code $(grep -c "skein verify tells" "$temp/said")" = "79 1" ] || fail "sample of NaN: exit code $code: $(cat "$temp/said")"
echo "nonfinite: $runs runs: stopped, skipped or went back, alike on all ranks"
