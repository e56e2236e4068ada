#!/bin/bash
# idle.sh - ranks and micro-batches that have nothing to do, and axes that split nothing, are told
# before the start, by train, plan and simulate, with the letter and the key; where rank 0 is one of them there is no MFU; an ETA is sane or absent.
set -eu
cd "$(dirname "$0")/../.."
skein=$(realpath "${SKEIN:-build/release/skein}")
temp=$(mktemp -d)
trap 'rm -rf "$temp"' EXIT
cd "$temp"
cases=0
fail() { echo "$*" && exit 1; }

idle() { # layout, words that must be said, further keys
    cases=$((cases + 1))
    local layout=$1 words=$2
    shift 2
    for how in "plan" "plan -o csv" "simulate --cluster cpu" "simulate --cluster cpu -o csv"; do
        # shellcheck disable=SC2086  # a command and its options
        "$skein" $how model=tiny layout="$layout" "$@" >said 2>&1 || fail "$how $layout: $(cat said)"
        grep -qE "warning.*$words" said || fail "$how $layout does not say $words: $(cat said)"
    done
}
idle dp=64 "63 of 64 ranks have nothing to do: dp=64 splits letter b \(train.batch\) in 64, and its size is 1; .*dp=1" train.batch=1
idle "dp=4 micro=4" "3 of 4 ranks .*letter b \(train.batch over micro-batches\)" train.batch=4
idle "cp=8 dp=2" "8 of 16 ranks .*cp=8 splits letter t \(train.seq\) in 8, and its size is 4; .*cp=4" train.batch=4 train.seq=4
idle pp=8 "6 of 8 ranks .*pp=8 makes 8 stages, and the model has 2 layers.*pp=2" train.batch=8
idle "mesh x=2" "axis x of 2 splits nothing: its ranks repeat the same work" train.batch=4
idle "dp=8; mesh x=2" "8 of 16 ranks .*; axis x of 2 splits nothing" train.batch=4
idle "micro=4096" "4092 of 4096 micro-batches are empty: train.batch is 4" train.batch=4
idle "dp=2 schedule=1f1b" "schedule 1f1b has nothing to do: there is one stage" train.batch=4
idle "zero=3" "zero=3 has nothing to do: it shards over one rank" train.batch=4
idle "tp=1 sp overlap=2 partition" "sp has nothing to do: .*overlap has nothing to do: .*partition has nothing to do" train.batch=4
idle "dp=1 grads=int8" "grads has nothing to do: one rank sums them" train.batch=4
# Codecs that send all, fragments beyond the model, and buckets of what no collective sums.
idle "dp=2 grads=topk:1 feedback" "grads=topk:1 chooses elements, and sends all of them" train.batch=4
idle "dp=2 grads=threshold:0.5 feedback" "grads=threshold:0.5 chooses elements, and sends all" train.batch=4
idle "dp=2 sync=diloco:4:codec=topk:1:feedback" "codec=topk:1 chooses elements" train.batch=4
idle "dp=2 sync=stream:200:fragments=100" "96 of 100 fragments of sync=stream are empty: the model has 4 layers" train.batch=4
for way in ssp:1 backup:1; do
    idle "dp=2 sync=$way" "comm.bucket has no effect: with sync=${way%:*} ranks read" train.batch=4 comm.bucket=1MiB
done
# Pins that no call asks; plan and explain have the calls.
pins() { # words that must be said, keys
    local words=$1
    shift
    for how in plan explain; do
        "$skein" $how model=tiny train.batch=4 "$@" >said 2>&1 || fail "$how $*: $(cat said)"
        [ "$(grep -cE "warning.*$words" said)" = 1 ] || fail "$how $* does not say $words once: $(grep warning said)"
    done
    cases=$((cases + 1))
}
pins "the entry for alltoall has no effect: there is no such call" layout=dp=2 comm.algorithm="all-to-all: direct"
pins "the entry for allreduce over tp has no effect" layout="dp=2 tp=1" comm.algorithm="all-reduce/tp: ring, all-reduce/dp: ring"
pins "no effect: one rank calls no collective" layout=dp=1 comm.algorithm=ring
for way in ssp:1 backup:1; do pins "is for validation alone: with sync=${way%:*}" layout="dp=2 sync=$way" comm.algorithm=ring; done
for keys in comm.algorithm=ring comm.algorithm="all-reduce: ring" comm.algorithm="all-reduce/dp: ring" comm.bucket=1MiB; do
    "$skein" plan model=tiny layout=dp=2 train.batch=4 "$keys" >said 2>&1
    if grep warning said; then fail "$keys has an effect"; fi
done
# Steps that the run has not, of optimizers whose ranks send momentum.
for optim in onebit-adam onebit-lamb; do
    idle dp=2 "optim.freeze_step is 100000 and train.steps 20: every step sends gradients" train.batch=4 train.steps=20 optim.name=$optim
    idle dp=2 "optim.freeze_step is 20 and train.steps 20" train.batch=4 train.steps=20 optim.name=$optim optim.freeze_step=20
done
# Replicas that would synchronise behind the last step, and ways that are the plain program.
idle "dp=2 sync=diloco" "sync=diloco:50 is first behind step 50 and train.steps is 20: each replica learns" train.batch=4 train.steps=20
idle "dp=2 sync=local:21" "sync=local:21 is first behind step 21" train.batch=4 train.steps=20
idle "dp=2 sync=postlocal:8@1000" "begins behind step 1000 and train.steps is 20: every step sums gradients" train.batch=4 train.steps=20
idle "dp=2 sync=postlocal:8@13" "sync=postlocal:8 is first behind step 21" train.batch=4 train.steps=20
idle "dp=2 sync=stream:24:fragments=2" "sync=stream:24 sends its last fragment behind step 24 .*some are never" train.batch=4 train.steps=20
idle "dp=2 sync=stream:50:fragments=2" "sync=stream:50 is first behind step 25" train.batch=4 train.steps=20
for way in local:1 postlocal:1@5 backup:0 ssp:0; do
    idle "dp=2 sync=$way" "sync=$way has nothing to do: it is the plain program" train.batch=4
done
for way in local:20 postlocal:8@12 stream:20:fragments=2 diloco:20 gossip; do
    "$skein" plan model=tiny layout="dp=2 sync=$way" train.batch=4 train.steps=20 >said 2>&1 || fail "$way: $(cat said)"
    if grep warning said; then fail "$way synchronises"; fi
    cases=$((cases + 1))
done
idle dp=2 "in train.steps=20 of zeroone-adam gradients are sent 18 times, momentum 2 times, and 0 steps are local" train.batch=4 train.steps=20 optim.name=zeroone-adam
for words in "onebit-adam optim.freeze_step=199" "onebit-adam layout=tp=2" "onebit-lamb train.time=9s" "zeroone-adam train.steps=200000" \
    "zeroone-adam optim.var_freeze_step=5 optim.local_step_scaler=2" "zeroone-adam optim.var_freeze_step=5 optim.local_step_clipper=1"; do
    # shellcheck disable=SC2086  # many keys
    "$skein" plan model=tiny layout=dp=2 train.batch=4 optim.name=$words >said 2>&1 || fail "$words: $(cat said)"
    if grep warning said; then fail "$words has steps of all kinds"; fi
    cases=$((cases + 1))
done
for layout in dp=4 tp=2 pp=2 "dp=2 pp=2 micro=2" "dp=2 zero=3 micro=2" "mesh x=2; split b over x" "dp=4 # no schedule"; do
    "$skein" plan model=tiny layout="$layout" train.batch=4 >said 2>&1
    if grep warning said; then fail "$layout has work for all"; fi
done

# A run of them: rank 0 has no layer, so that its clock says nothing of the flops of a step.
printf 'In the beginning God created the heaven and the earth. %.0s' {1..40} >text
job="data.train=text model=tiny train.seq=16 train.batch=4 val.every=0 sample.every=0"
# shellcheck disable=SC2086  # many keys
"$skein" train $job layout=pp=4 train.steps=3 run=idle >said 2>&1 || fail "$(cat said)"
grep -q '^warning   2 of 4 ranks have nothing to do: pp=4 makes 4 stages' said || fail "train: $(cat said)"
[ "$(grep -c '"mfu":null' idle/metrics.jsonl)" = 3 ] || fail "MFU of no work: $(cat idle/metrics.jsonl)"
# shellcheck disable=SC2086
"$skein" train $job layout="mesh x=2; micro 5" train.steps=2 run=twice >said 2>&1 || fail "$(cat said)"
grep -q '^warning   axis x of 2 splits nothing: its ranks repeat the same work; 1 of 5 micro-batches is' said ||
    fail "train: $(cat said)"
# shellcheck disable=SC2086
"$skein" train $job layout="dp=2 sync=diloco" train.steps=3 run=alone >said 2>&1 || fail "$(cat said)"
grep -q '^warning   sync=diloco:50 is first behind step 50 and train.steps is 3' said || fail "train: $(cat said)"
# What the steps never come to: the end of the warmup, a layout; also where the steps are chosen on the way.
said() { grep -qF "$1" said || fail "train does not say $1: $(cat said)"; }
# shellcheck disable=SC2086
"$skein" train $job -n 2 train.steps=4 optim.warmup=8 train.relayout="2: tp=2, 4: pp=2, 9: dp=2" run=short >said 2>&1 ||
    fail "$(cat said)"
said 'warning   optim.warmup is 8 and train.steps 4: the learning rate ends at 0.0005 and never comes to optim.lr=0.001'
said 'warning   train.relayout: the layout "pp=2" from step 4 on is never used: train.steps is 4'
said 'warning   train.relayout: the layout "dp=2" from step 9 on is never used'
[ "$(grep -c '^warning' said)" = 3 ] || fail "a warning too many: $(cat said)"
# shellcheck disable=SC2086
"$skein" train $job train.steps=4 optim.warmup=0 train.batch_schedule="2: 2, 4: 1" run=batches >said 2>&1 || fail "$(cat said)"
said 'warning   train.batch_schedule: the batch of 1 from step 4 on is never used: train.steps is 4'
# shellcheck disable=SC2086
"$skein" train $job train.time=0.2 optim.warmup=1000000 run=timed >said 2>&1 || fail "$(cat said)"
said 'warning   optim.warmup is 1000000 and train.steps '
# shellcheck disable=SC2086
"$skein" train $job train.time=0.2 layout=dp=2 optim.name=onebit-adam run=dense >said 2>&1 || fail "$(cat said)"
grep -qE '^warning   .*optim.freeze_step is 100000 and train.steps [0-9]+: every step' said || fail "$(cat said)"
[ "$(grep -c 'optim.freeze_step is' said)" = 1 ] || fail "told twice: $(cat said)"

# shellcheck disable=SC2086
"$skein" train $job train.steps=4 optim.warmup=1 train.backward=kron train.backward_every=5 optim.schedule=step optim.schedule_every=2 \
    optim.schedule_milestones=2,4,500 run=never >said 2>&1 || fail "$(cat said)"
said 'warning   train.backward_every is 5 and train.steps 4: no file of train.backward is written'
said 'warning   optim.schedule_milestones: the learning rate never drops at 4, 500: train.steps is 4'
said 'warning   optim.schedule_every is 2 and has no effect beside optim.schedule_milestones; leave one of them out'
# shellcheck disable=SC2086
"$skein" train $job train.steps=4 optim.warmup=1 train.backward=kron train.backward_every=4 optim.schedule=step optim.schedule_milestones=2,3 \
    run=reached >said 2>&1 || fail "$(cat said)"
! grep '^warning' said || fail "a warning about what is reached"
# shellcheck disable=SC2086
"$skein" train $job train.steps=2 optim.lr=0 run=still >said 2>&1 || fail "$(cat said)"
said 'warning   optim.lr is 0: nothing is trained'

# Threads: the key, then OMP_NUM_THREADS, and the start lines say which
export OMP_NUM_THREADS=3,2
# shellcheck disable=SC2086
"$skein" train $job train.steps=1 run=omp >said 2>&1 && said '1 rank · 3 threads (OMP_NUM_THREADS)'
# shellcheck disable=SC2086
"$skein" train $job train.steps=1 train.threads=1 run=key >said 2>&1
grep -q '1 rank · 1 thread$' said || fail "train.threads is not first: $(cat said)"
unset OMP_NUM_THREADS

# shellcheck disable=SC2086
"$skein" train $job train.steps=100000000000 train.time=0 run=busy log.every=1 >said 2>&1 &
child=$!
for _ in {1..600}; do
    sleep 0.05
    [ "$(grep -cE '^ +[0-9]+ +[0-9.]+ ' said)" -lt 3 ] || break
done
kill -INT $child
wait $child || true
grep -qE '^ +1 .* –$' said || fail "the first step says nothing of the others: $(cat said)"
for step in 2 3; do # by the clock of the ranks, not by when the console sees them
    grep -qE "^ +$step .* [0-9]+ d\$" said || fail "days that are left: $(cat said)"
done
sed -nE 's/.*"mfu":([^,]*),.*/\1/p' busy/metrics.jsonl |
    awk '!($1 > 0 && $1 < 1) { bad = 1 } END { exit bad || !NR }' || fail "no MFU, or more than all: $(cat busy/metrics.jsonl)"
echo "idle: $cases layouts told, MFU only of work, ETA in days"
