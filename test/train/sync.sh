#!/bin/bash
# sync.sh - replicas with weights of their own (sync=...), from the command line.
#
# A checkpoint between two synchronisations has each replica.  Resumed on the same layout, or on another one inside of the
# replicas, a run ends with the same bytes (in canonical order); with another number of replicas, or with none, each begins as
# the mean.  Exports and validations are of the mean; `skein verify` and `skein sample` read such a checkpoint.
# shellcheck disable=SC2015  # fail ends the script
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

# All that a synchronisation keeps is brought along where the batch grows: the workspace of the move has room for an anchor, a
# momentum and what is owed, each as large as the weights (what is owed is of matrices alone).
place() { tr -s ' ' <"$1.out" | sed -nE 's/.*workspace ([0-9.]+) KiB per rank.*/\1/p'; }
for way in local:3 elastic:3 diloco:3 diloco:3:codec=topk:0.1:feedback stream:4:codec=q4:feedback; do
    train "moves-$way" order=fast layout="dp=2 sync=$way" train.steps=6 train.batch_schedule="0: 8, 5: 16"
done
for pair in elastic:3=1 diloco:3=2 diloco:3:codec=topk:0.1:feedback=3 stream:4:codec=q4:feedback=3; do
    awk -v got="$(place "moves-${pair%=*}")" -v plain="$(place moves-local:3)" -v n="${pair##*=}" \
        'BEGIN { exit !(plain > 0 && got - plain > n * 136 && got - plain < n * 140) }' || fail "$pair: the move does not bring all"
    checks=$((checks + 1))
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

# `skein average` takes the same mean, and of a checkpoint with averages the mean of these.
"$skein" average av six/ckpt/step-0000000006 >said 2>&1 || { cat said; fail "average of replicas"; }
cmp av/model.safetensors six/final/model.safetensors || fail "average: another mean"
"$skein" average av-last local --last 2 >said 2>&1 || { cat said; fail "average --last of replicas"; }
said "saved av-last/, the mean of 2 models"
train with-ema layout="dp=2 sync=elastic:5" optim.ema=0.9
for c in "average av-ema with-ema" "export with-ema av-ex"; do
    # shellcheck disable=SC2086  # words
    "$skein" $c >said 2>&1 || { cat said; fail "$c"; }
    said "averages of its weights"
done
cmp av-ema/model.safetensors with-ema/final/model.safetensors || fail "average: not the averages"
cmp av-ex/model.safetensors with-ema/final/model.safetensors || fail "export: not the averages"
"$skein" average av-own with-ema --training-weights >said 2>&1 || { cat said; fail "average of training weights"; }
! cmp -s av-own/model.safetensors av-ema/model.safetensors || fail "average: training weights are the averages"

# final/, an export and an average are one mean to the bit, with any number of replicas; of 16 bits it is that of the masters, also
# where there is no checkpoint.
one_mean() { # run, more words
    local run=$1
    shift
    train "$run" train.steps=6 "$@"
    "$skein" export "$run" "$run-ex" >said 2>&1 || { cat said; fail "export of $run"; }
    "$skein" average "$run-av" "$run" --dtype f32 >said 2>&1 || { cat said; fail "average of $run"; }
    cmp "$run-ex/model.safetensors" "$run/final/model.safetensors" || fail "$run: export has another mean"
    cmp "$run-av/model.safetensors" "$run/final/model.safetensors" || fail "$run: average has another mean"
    runs=$((runs + 2))
}
one_mean quarters layout="dp=4 sync=local:4"
one_mean bf16 order=fast train.dtype=bf16 layout="dp=2 sync=local:4"
one_mean bf16-hosts order=fast train.dtype=bf16 optim.ema=0.9 layout="mesh dp=2 hosts=3; split b over hosts; split b over dp;
    shard state over dp; synchronize hosts by diloco:4" train.batch=12
one_mean f16 order=fast train.dtype=f16 layout="dp=4 sync=gossip"
train bf16-none order=fast train.dtype=bf16 layout="dp=2 sync=local:4" train.steps=6 ckpt.every=0
same bf16-none bf16

# The first steps of postlocal are the plain program, to the bit also where words are tied, with any number of replicas.
train tied-plain layout=dp=2 train.steps=3
for layout in "dp=2" "dp=4 micro=2" "pp=2 dp=2 micro=2"; do
    train "tied $layout" layout="$layout sync=postlocal:4@100" train.steps=3
    same "tied $layout" tied-plain
done

# State that a checkpoint with replicas lacks: averages and anchors begin from the weights, of a replica or their mean.
from=resume=local/ckpt/step-0000000006
for words in "layout=dp=1" "layout=dp=2" "layout=dp=2 sync=local:4" "layout=dp=4 sync=local:4"; do
    train "ema-of $words" "$words" optim.ema=0.9 "$from" train.steps=7
done
"$skein" export local/ckpt/step-0000000006 mean6 >said 2>&1 || { cat said; fail "export of replicas"; }
train still layout=dp=1 optim.ema=0.5 "$from" train.steps=7 optim.lr=0
cmp still/final/model.safetensors mean6/model.safetensors || fail "averages do not begin as the mean of the weights"
for way in diloco:2 elastic:2 stream:4; do
    for n in 2 4; do train "$n-$way" layout="dp=$n sync=$way" "$from" train.steps=10; done
done
# An outer step of next to nothing: all go to the anchor, which was the mean.
train still-diloco layout="dp=2 sync=diloco:7:lr=1e-30:momentum=0" "$from" train.steps=7 optim.lr=0
cmp still-diloco/final/model.safetensors mean6/model.safetensors || fail "anchors do not begin as the mean of the weights"

refused 78 "have weights of their own since step 0" "${job[@]}" layout="dp=2 sync=postlocal:4@9" "$from" train.steps=10 run=no
train on-their-own layout="dp=2 sync=postlocal:4@6" "$from" train.steps=7

# Three axes: with equal intervals two of them are one axis of as many replicas.
three="mesh a=2 b=2 c=2; split b over a; split b over b; split b over c; synchronize a by"
two() { echo "mesh a=$1 b=$2; split b over a; split b over b; synchronize a by $3; synchronize b by local:$4"; }
train two-4 layout="$(two 2 4 local:6 3)"
train three-4 layout="$three local:6; synchronize b by local:3; synchronize c by local:3"
same three-4 two-4
train two-2 layout="$(two 4 2 local:6 2)"
train three-2 layout="$three local:6; synchronize b by local:6; synchronize c by local:2"
same three-2 two-2
train two-outer layout="$(two 2 4 diloco:6 3)"
train three-outer layout="$three diloco:6; synchronize b by local:3; synchronize c by local:3"
same three-outer two-outer

# What a plan and a simulation say is sent in a step on average: the same bytes.
column() { awk -F, -v name="$1" 'NR == 1 { for (i = 1; i <= NF; i++) k[$i] = i } { print $k["class"], $k["ranks"], $k[name] }'; }
for layout in "dp=2 ep=2 sync=stream:4:codec=q4" "dp=3 sync=local:7" "dp=4 sync=stream:5"; do
    words=(model=tiny model.intermediate_size=24 train.batch=12 train.seq=8 order=fast layout="$layout" -o csv)
    plan=$("$skein" plan "${words[@]}" 2>/dev/null | column sent_bytes | awk 'NR > 1 { n += $2 * $3 } END { print n }')
    all=$("$skein" simulate --cluster cpu "${words[@]}" 2>/dev/null | column sent_bytes | sed -n 's/^all [0-9]* //p')
    # A plan has whole bytes of each rank, a simulation of all.
    [ $((2 * (plan - all))) -le 4 ] && [ $((2 * (all - plan))) -le 4 ] || fail "$layout: a plan sends $plan bytes, a simulation ${all:-none}"
    checks=$((checks + 1))
done

refused 78 "'momentum=0.99999999999' is 1 in f32" "${job[@]}" layout="dp=2 sync=diloco:3:momentum=0.99999999999" run=no
for codec in topk topk:0 topk:2; do
    refused 78 "the codec 'topk' needs a RATIO over 0 and up to 1, found \"$codec\"" "${job[@]}" layout="dp=2 grads=$codec feedback union" order=fast run=no
done
refused 78 "take two axes" "${job[@]}" layout="dp=2 zero=1 sync=local:4" run=no
refused 78 "replicas have weights of their own" "${job[@]}" layout="dp=2 sync=local:4" train.relayout="5: tp=2" run=no
refused 78 "samples to replica" "${job[@]}" layout="dp=3 sync=local:4" train.batch=9 run=no

# A replica without samples would count in the mean as much as those that learn.
for way in local:4 postlocal:4@2 diloco:4 stream:4 elastic:4 gossip; do
    refused 78 "2 of 4 replicas have no samples in a batch of 2, and sync=${way%%:*} counts" "${job[@]}" order=fast layout="dp=4 sync=$way" train.batch=2 run=no
done
refused 78 "take a train.batch of 4 or more, or at most 3 replicas" "${job[@]}" order=fast layout="dp=4 micro=2 sync=local:4" train.batch=3 run=no
refused 78 "3 of 4 replicas have no samples in a batch of 1" "${job[@]}" order=fast layout="$(two 2 2 local:6 3)" train.batch=1 run=no
refused 78 "batch_schedule, with a batch of 2: layout: 2 of 4 replicas have no samples" "${job[@]}" layout="dp=4 sync=local:4" train.batch_schedule="5: 2" run=no
for optim in onebit-adam zeroone-adam; do
    refused 78 "optim.name=$optim counts" "${job[@]}" order=fast layout=dp=4 optim.name=$optim train.batch=2 run=no
done
train least order=fast layout="dp=4 micro=2 sync=local:4" train.batch=4 train.steps=4
echo "sync: $runs models with the same bytes, $checks refusals"
