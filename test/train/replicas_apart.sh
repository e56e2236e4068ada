#!/bin/bash
# replicas_apart.sh - between synchronisations no replica waits for another (sync=local:H): numbers of steps are told later.
#
# metrics.jsonl has each step once and in order, with the loss of all replicas, on any layout inside of them and behind a resume.
# A step that is not finite in one replica is skipped by that one; or it ends the run, or the run rolls back as any other.  A
# signal ends a run that saves first, also where synchronisations are far apart.
# shellcheck source=test/lib/runs.sh
. "$(dirname "$0")/../lib/runs.sh"

job=(model=tiny data.train=text data.tokenizer=byte train.steps=30 train.batch=8 train.seq=32 order=canonical
    optim.warmup=2 ckpt.every=15 ckpt.keep=0 sample.every=0 log.every=0 val.every=10)
losses() { sed -n 's/^\({"step":[0-9]*,\("val_loss\|"loss\)[^,]*\),.*"tokens":\([0-9]*\).*/\1 \3/p; /val/p' "$1/metrics.jsonl"; }

train dp layout="dp=2 sync=local:4"
[ "$(grep -c grad_norm dp/metrics.jsonl)" = 30 ] || fail "there are $(grep -c grad_norm dp/metrics.jsonl) lines of 30 steps"
sed -n 's/^{"step":\([0-9]*\),.*/\1/p' dp/metrics.jsonl | sort -nc || fail "lines are not in order"
train tp layout="dp=2 tp=2 sync=local:4"
cmp <(losses dp) <(losses tp) || fail "other losses on dp=2 tp=2"
train again layout="dp=2 sync=local:4" resume=dp/ckpt/step-0000000015
cmp <(losses dp | tail -n 5) <(losses again | tail -n 5) || fail "other losses behind a resume"
same again dp
awk -F'"tokens":' '/grad_norm/ { split($2, x, ","); if (x[1] != 256 * ++n) exit 1 }' dp/metrics.jsonl || fail "tokens of a step are not 256"

# Resumed with another sync: what is dropped, and what becomes a mean, is told.
train diloco layout="dp=2 sync=diloco:4"
goes_on() { # the line that tells so, words
    timeout 60 "$skein" train "${job[@]}" resume=diloco/ckpt/step-0000000030 train.steps=31 val.every=0 ckpt.every=0 run="on-$checks" "${@:2}" >said 2>&1 ||
        { cat said; fail "not resumed: ${*:2}"; }
    if [ "$1" ]; then said "$1"; else checks=$((checks + 1)); fi
}
goes_on '' layout="dp=2 sync=diloco:8"
if grep -q 'replicas with\|dropped' said; then cat said; fail "nothing was dropped"; fi
goes_on 'has the anchor and the outer momentum of its synchronisations, .* dropped' layout="dp=2 sync=local:8"
goes_on '2 replicas with weights and optimizer state of their own: the run goes on with their mean' layout=dp=2
goes_on '2 replicas .*: each of 4 replicas goes on with their mean' layout="dp=4 sync=diloco:8"
goes_on 'optim.ema was 0 and is 0.9: the average begins from the weights of diloco' layout="dp=2 sync=diloco:8" optim.ema=0.9

# One replica alone: the others go on, and the run has other weights than one in which none was bad.
export SKEIN_FAULT=nan:10:1
train skip layout="dp=2 sync=local:4" train.nonfinite=skip
grep -q 'step 10: .* skipped by the replica whose numbers they are' skip.out skip.err || { cat skip.out skip.err; fail "the skip is not told"; }
grep -q '^{"step":30,.*"skipped":1,' skip/metrics.jsonl || fail "no step was skipped"
! cmp -s skip/final/model.safetensors dp/final/model.safetensors || fail "nothing was skipped"
refused 79 "step 10 of replica 1: " "${job[@]}" layout="dp=2 sync=local:4" run=stop
SKEIN_FAULT=nan:20:1 train back layout="dp=2 sync=local:4" train.nonfinite=rollback
grep -q '"left_out":1' back/metrics.jsonl || fail "no batch was left out"
unset SKEIN_FAULT
train f16 layout="dp=2 sync=local:4" train.dtype=f16 order=fast
[ "$(grep -c grad_norm f16/metrics.jsonl)" = 30 ] || fail "f16: other lines"

# From the step on whose rate is the first to fall: the eighth of a warmup of six, and a cosine; or a step of a schedule with steps.
train decay layout="dp=2 sync=postlocal:4@decay" optim.warmup=6
train from layout="dp=2 sync=postlocal:4@7" optim.warmup=6
same decay from
cmp <(losses decay) <(losses from) || fail "postlocal:4@decay: other losses"
grep -q 'dp sync postlocal:4@7 ' decay.out || { cat decay.out; fail "the step of the decay is not told"; }
refused 78 "it never does in 30 steps" "${job[@]}" layout="dp=2 sync=postlocal:4@decay" optim.schedule=constant run=no
refused 78 "train.steps=N is needed" model=tiny data.train=text data.tokenizer=byte train.batch=8 train.seq=32 train.time=5s \
    layout="dp=2 sync=postlocal:4@decay" run=no

"$skein" train "${job[@]}" layout="dp=2 sync=diloco:100000" train.steps=1000000 ckpt.every=0 val.every=0 run=long >long.out 2>&1 &
pid=$!
for ((i = 0; i < 300; i++)); do
    [ "$(grep -c grad_norm long/metrics.jsonl 2>/dev/null)" -gt 20 ] 2>/dev/null && break
    sleep 0.1
done
kill -INT $pid
rc=0
wait $pid || rc=$?
step=$(printf '%s\n' long/ckpt/step-* | tail -n 1)
step=${step##*/}
"$skein" verify long >said 2>&1 || { cat said long.out; fail "no checkpoint behind the signal (exit code $rc)"; }
last=$(sed -n 's/^{"step":\([0-9]*\),.*grad_norm.*/\1/p' long/metrics.jsonl | tail -n 1)
[ "$step" = "$(printf 'step-%010d' "$last")" ] || fail "saved $step, and metrics end with step $last"

# Who waits where replicas meet is not in a collective of the step: that one is not due before step 100000.
"$skein" train "${job[@]}" layout="dp=3 sync=local:100000" train.batch=12 train.threads=1 train.steps=1000000 ckpt.every=0 val.every=0 \
    order=fast comm.timeout=5 run=hang >hang.out 2>&1 &
pid=$!
for ((i = 0; i < 300; i++)); do
    [ "$(grep -c grad_norm hang/metrics.jsonl 2>/dev/null)" -gt 20 ] 2>/dev/null && break
    sleep 0.1
done
kill -STOP "$(pgrep -P $pid | sort -n | sed -n 2p)" || { cat hang.out; fail "the run has ended"; }
rc=0
wait $pid || rc=$?
[ $rc = 69 ] || { cat hang.out; fail "a rank that hangs ended with $rc"; }
grep -Eq 'rank [02] waited .* after step [0-9]+, at the meeting of replicas, for .*rank 1 \(pid [0-9]+\) is stopped' hang.out ||
    { cat hang.out; fail "the meeting of replicas is not named"; }

echo "replicas apart: $runs models with the same bytes, $checks refusals"
