#!/bin/bash
# sync.sh - replicas with weights of their own (sync=...), from the command line.
#
# A checkpoint between two synchronisations has each replica.  Resumed on the same layout, or on another one inside of the
# replicas, a run ends with the same bytes (in canonical order); with another number of replicas, or with none, each begins as
# the mean.  Exports and validations are of the mean; `skein verify` and `skein sample` read such a checkpoint.
# shellcheck source=test/lib/runs.sh
. "$(dirname "$0")/../lib/runs.sh"

job=(model=tiny data.train=text data.tokenizer=byte train.steps=12 train.batch=8 train.seq=32 order=canonical
    optim.warmup=2 ckpt.every=6 ckpt.keep=0 sample.every=0 log.every=0 val.every=6)
hosts="mesh hosts=2 dp=2; split b over hosts; split b over dp; shard params over dp; synchronize hosts by"

for way in local:4 diloco:4 stream:4 elastic:5; do
    name=${way%%:*}
    train "$name" layout="dp=2 sync=$way"
    "$skein" verify "$name" >said || { cat said; fail "$way: not verified"; }
    grep -q '"wte.replica"' "$name/ckpt/step-0000000006/MANIFEST.json" || fail "$way: no replicas in the checkpoint"
    from=resume=$name/ckpt/step-0000000006
    train "$name-again" layout="dp=2 sync=$way" "$from"
    same "$name-again" "$name"
    train "$name-tp" layout="dp=2 tp=2 sync=$way" "$from"
    same "$name-tp" "$name"
    train "$name-zero" layout="$hosts $way" "$from"
    same "$name-zero" "$name"
done

# A batch that grows on the way, between two synchronisations: on another layout inside of the replicas, and behind a resume.
for way in local:4 stream:4; do
    name=grows-${way%%:*}
    train "$name" layout="dp=2 sync=$way" train.batch_schedule="0: 8, 7: 16"
    train "$name-again" layout="dp=2 sync=$way" train.batch_schedule="0: 8, 7: 16" resume="$name/ckpt/step-0000000006"
    same "$name-again" "$name"
    train "$name-tp" layout="dp=2 tp=2 sync=$way" train.batch_schedule="0: 8, 7: 16"
    same "$name-tp" "$name"
    ! cmp -s "$name/final/model.safetensors" "${way%%:*}/final/model.safetensors" || fail "$name: the batch did not grow"
done

# What replicas send encoded, with what is owed: resumed to the bit.
train coded layout="dp=2 sync=stream:4:codec=q4:feedback" order=fast
train coded-again layout="dp=2 sync=stream:4:codec=q4:feedback" order=fast resume=coded/ckpt/step-0000000006
same coded-again coded
refused 78 "order=fast is needed" "${job[@]}" layout="dp=2 sync=stream:4:codec=q4" run=no

# The mean, taken by the ranks where a run ends between two synchronisations, and by whoever reads its checkpoint: also a run
# without replicas, or with more of them.
train six layout="dp=2 sync=local:4" train.steps=6
"$skein" export six/ckpt/step-0000000006 mean >said 2>&1 || { cat said; fail "export of replicas"; }
cmp mean/model.safetensors six/final/model.safetensors || fail "export: another mean"
train none layout=dp=2 resume=local/ckpt/step-0000000006 train.steps=7
grep -q '"wte"' none/ckpt/step-0000000007/MANIFEST.json || fail "without sync: weights by another name"
train four layout="dp=4 sync=local:4" resume=local/ckpt/step-0000000006 train.steps=7
train synced layout="dp=2 sync=diloco:4" resume=none/ckpt/step-0000000007
"$skein" sample local --prompt "int" --tokens 4 >said 2>&1 || { cat said; fail "sample of replicas"; }

refused 78 "take two axes" "${job[@]}" layout="dp=2 zero=1 sync=local:4" run=no
refused 78 "replicas have weights of their own" "${job[@]}" layout="dp=2 sync=local:4" train.relayout="5: tp=2" run=no
refused 78 "samples to replica" "${job[@]}" layout="dp=3 sync=local:4" train.batch=9 run=no
echo "sync: $runs models with the same bytes, $checks refusals"
