#!/bin/bash
# resume.sh - stopping and going on changes nothing.
#
# A run of 60 steps is the reference.  The same job resumed from its checkpoint of step 20,
# stopped by Ctrl-C, or killed with all its ranks in the middle, ends with the same bytes.
# Resumed on other layouts it ends with the same loss, to rounding.
# shellcheck source=test/lib/runs.sh
. "$(dirname "$0")/../lib/runs.sh"

steps=60
job=(model=tiny data.train=text data.tokenizer=byte train.steps="$steps" train.batch=4 train.seq=32
    optim.warmup=5 ckpt.every=20 ckpt.keep=0 sample.every=0 log.every=0 val.every=30)

data() { tail -c +$(($(od -An -tu8 -N8 "$1") + 9)) "$1"; } # of a tensor file: behind its header

same() { # run directory: model and state as in the reference, every step told once
    local f
    cmp "$1/final/model.safetensors" ref/final/model.safetensors || fail "$1: another model"
    for f in ref/ckpt/step-*"$steps"/[mo]-*; do
        cmp <(data "$f") <(data "$1/${f#ref/}") || fail "$1: another state"
    done
    grep -c '"loss"' "$1/metrics.jsonl" | grep -qx "${2:-$steps}" || fail "$1: steps are told twice"
}

train ref -n 2 layout=dp=2
train again -n 2 layout=dp=2
same again

# saves by the clock, as often as a fast one makes them: the ranks agree on the step, no bit changes
SKEIN_FAULT=clock:1000 train clock -n 2 layout=dp=2 ckpt.every=2s
same clock
saves=$(find clock/ckpt -name 'step-*' | wc -l)
[ "$saves" -ge 3 ] || fail "clock: only $saves checkpoints"

# from a checkpoint of another run, in a new directory
train branch -n 2 layout=dp=2 resume=ref/ckpt/step-0000000020
same branch $((steps - 20))

# Ctrl-C in the middle, then --resume; the config comes from the run itself
"$skein" train "${job[@]}" run=stop -n 2 layout=dp=2 >stop.out 2>stop.err &
pid=$!
until [ "$(grep -c loss stop/metrics.jsonl 2>/dev/null)" -ge 3 ] 2>/dev/null; do sleep 0.01; done
kill -INT $pid
rc=0
wait $pid || rc=$?
[ $rc = 75 ] || [ $rc = 0 ] || { cat stop.err; fail "Ctrl-C: exit code $rc, 75 is needed"; }
compgen -G "stop/ckpt/step-*" >/dev/null || fail "Ctrl-C saved nothing"
"$skein" train --resume run=stop >stop.out 2>stop.err || { cat stop.err; fail "stop: no resume"; }
same stop

# everything killed at once, then --resume
"$skein" train "${job[@]}" run=kill -n 2 layout=dp=2 >kill.out 2>kill.err &
pid=$!
until [ -d kill/ckpt/step-0000000020 ]; do sleep 0.01; done
ranks=$(pgrep -P $pid)
kill -KILL $pid
wait $pid 2>/dev/null || true
sleep 0.2
for rank in $ranks; do # they die with their launcher
    case $(ps -o stat= -p "$rank") in '' | Z*) ;; *) fail "a rank outlived its launcher" ;; esac
done
train kill -n 2 layout=dp=2 --resume
same kill

# ranks killed again and again while it runs, with --restarts
"$skein" train "${job[@]}" ckpt.every=5 run=storm -n 2 layout=dp=2 --restarts 50 >storm.out 2>storm.err &
pid=$!
kills=0
while kill -0 $pid 2>/dev/null && [ $kills -lt 8 ]; do
    sleep 0.15
    victim=$(pgrep -P $pid | shuf -n 1)
    [ -z "$victim" ] || ! kill -KILL "$victim" 2>/dev/null || kills=$((kills + 1))
done
wait $pid || { cat storm.out storm.err; fail "storm: it did not survive"; }
same storm

# another number of ranks, or another layout, is all that must be said
for words in "-n 1" "layout=tp=2" "-n 4 layout=dp=4"; do
    # shellcheck disable=SC2086  # two words
    "$skein" train --resume run=again train.steps=$((steps + 2)) $words >more.out 2>more.err ||
        { cat more.err; fail "--resume $words"; }
done

# keys that say which data a step reads: each is told with what it was, what it is and what follows
train flat -n 2 layout=dp=2 optim.schedule=constant train.steps=20
told() { # words that must be said (none: no warning at all), words of the command
    local words=$1
    shift
    rm -rf other
    timeout 100 "$skein" train "${job[@]}" run=other resume=flat/ckpt/step-0000000020 train.steps=21 optim.schedule=constant "$@" >other.out 2>&1 ||
        { cat other.out; fail "resume $*"; }
    [ "$(grep -c '^warning' other.out)" = $((${#words} > 0)) ] || { cat other.out; fail "resume $*: not one warning"; }
    grep -qF "warning   $words" other.out || [ -z "$words" ] || { cat other.out; fail "resume $*: nobody says '$words'"; }
}
told ""
told "train.batch was 4 and is 6: the run goes on at window 120 of the data, not 80; 40 are skipped" train.batch=6
told "train.batch was 4 and is 2: the run goes on at window 40 of the data, not 80; 40 are read twice" train.batch=2
told "train.seq was 32 and is 16: windows are cut differently" train.seq=16
told "train.seed was 1 and is 7: the order of samples is another" train.seed=7
told "data.order was shuffle and is sequential: some samples of this epoch are read twice" data.order=sequential
told "data.val or data.val_fraction was changed: there were " data.val_fraction=0.3
# the rate of the last step, as it was, against that of the next one: what a schedule does by itself is no jump
told "the learning rate jumps from 0.001 to 9.61e-06 at step 21: train.steps was 20 and is 21; optim.schedule was constant and is cosine" optim.schedule=cosine
told "the learning rate jumps from 0.001 to 0.003 at step 21: train.steps was 20 and is 21; optim.lr was 0.001 and is 0.003" optim.lr=0.003
told "the learning rate jumps from 0.001 to 0.002 at step 21: train.steps was 20 and is 21; optim.batch_scaling was none and is linear; train.batch_schedule was \"\" and is" \
    train.batch_schedule="10: 8" optim.batch_scaling=linear
told "" optim.lr=0.0011
timeout 100 "$skein" train "${job[@]}" run=level resume=ref/ckpt/step-0000000040 optim.schedule=constant >other.out 2>&1 || { cat other.out; fail "level"; }
grep -qE "^warning   the learning rate jumps from 0.000[0-9]+ to 0.001 at step 41: optim.schedule was cosine and is constant$" other.out ||
    { cat other.out; fail "a jump with the same train.steps"; }

# a run is not cut: fewer steps than it has are refused, and change nothing
for to in again other; do
    cp -r again before
    rc=0
    if [ $to = again ]; then "$skein" train --resume run=again train.steps=20 >more.out 2>more.err || rc=$?; fi
    if [ $to = other ]; then "$skein" train "${job[@]}" run=less resume=again train.steps=20 >more.out 2>more.err || rc=$?; fi
    [ $rc = 78 ] || { cat more.err; fail "fewer steps than it has: exit code $rc"; }
    grep -q "train.steps is 20, and .* is at step $((steps + 2)) already" more.err || { cat more.err; fail "fewer steps than it has"; }
    diff -r -x LOCK before again || fail "fewer steps than it has: the run was changed"
    rm -rf before
done

# words about the model are held against the run's own, not against the default one
train llama model=llama-tiny train.steps=2
"$skein" train --resume run=llama train.steps=3 model.rope_theta=5000 >more.out 2>more.err || { cat more.err; fail "a llama's key"; }
grep -qF "model.rope_theta was 10000 and is 5000" more.out || { cat more.out; fail "another model, in silence"; }
rc=0
"$skein" train --resume run=ref model.hidden_size=100 >more.out 2>more.err || rc=$?
[ $rc = 65 ] || { cat more.err; fail "another width: exit code $rc"; }
grep -qF "'wte' has sizes [256, 32], needed [256, 100]" more.err || { cat more.err; fail "another width: not told"; }

# other layouts: every loss after step 20
losses() { sed -nE 's/.*"step":([0-9]+),"loss":([-+0-9.e]+).*/\1 \2/p' "$1" | awk '$1 > 20'; }
i=0
for layout in dp=1 tp=2 "dp=2 zero=1" "dp=2 zero=3" "pp=2 micro=2" "dp=2 tp=2"; do
    ranks=$(echo "$layout" | tr ' ' '\n' | awk -F= '/^(dp|tp|pp)=/ { n = (n ? n : 1) * $2 } END { print n }')
    i=$((i + 1))
    train "layout$i" -n "$ranks" layout="$layout" resume=ref/ckpt/step-0000000020
    paste -d ' ' <(losses ref/metrics.jsonl) <(losses "layout$i/metrics.jsonl") | awk '
        { d = $4 / $2 - 1; d = d < 0 ? -d : d; if (d > worst) worst = d }
        $1 != $3 || !(d < 1e-4) { wrong = 1 }
        END { print worst; exit wrong || NR != 40 }' >>worst || fail "resumed on '$layout': other losses"
done
echo "the same bytes when resumed, branched, stopped, killed $kills times; $i other layouts within $(sort -g worst | tail -n 1)"
