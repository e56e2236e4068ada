#!/bin/bash
# relayout.sh - a run whose layout changes on the way learns what one rank learns.
#
# Thirty steps on four ranks, the layout changed after 10 and 20, among dp=4, dp=2 tp=2, tp=2 pp=2
# and zero=3; as processes and as threads; every loss must be within 1e-5 of a run on one rank
# that never changes, and the memory mapped must be the memory planned, by train and by plan.
# Where nothing but the change happens, resuming on either side of it, Ctrl-C, and a rank that is
# killed end with the same bytes, and so do two hosts that an MPI connects.  What cannot be is refused before anything runs.
# shellcheck source=test/lib/runs.sh
. "$(dirname "$0")/../lib/runs.sh"
pid=
trap '[ -z "$pid" ] || kill -9 "$pid" 2>/dev/null; rm -rf "$temp"' EXIT

job=(model=tiny data.train=text data.tokenizer=byte train.batch=5 train.seq=24 train.threads=1
    train.steps=30 optim.warmup=5 ckpt.every=10 ckpt.keep=0 val.every=15 sample.every=0 log.every=0)

train() { # run directory, then more words
    local run=$1
    shift
    timeout 100 "$skein" train "${job[@]}" run="$run" "$@" >"$run.out" 2>"$run.err" ||
        { rc=$?; cat "$run.out" "$run.err"; fail "$run: exit code $rc"; }
    grep -q 'planned = ' "$run.out" || { cat "$run.out"; fail "$run: maps what was not planned"; }
}

losses() { sed -nE 's/.*"step":([0-9]+),"(val_loss|loss)":([-+0-9.e]+).*/\1 \2 \3/p' "$1/metrics.jsonl"; }

near() { # two run directories: the losses of the second are those of the first
    paste -d ' ' <(losses "$1") <(losses "$2") | awk '
        { d = $6 / $3 - 1; d = d < 0 ? -d : d; if (d > worst) worst = d }
        $1 != $4 || $2 != $5 || !(d < 1e-5) { print "step", $1, $3, "but", $6 >"/dev/stderr"; wrong = 1 }
        END { print worst; exit wrong || NR != 32 }' >>worst || fail "$2: other losses than on one rank"
}

for optim in adamw lamb sgd; do train "one-$optim" -n 1 layout=dp=1 optim.name=$optim; done
n=0
while IFS='|' read -r first second third optim more; do
    n=$((n + 1))
    words=(layout="$first" train.relayout="10: $second, 20: $third" optim.name="$optim")
    # shellcheck disable=SC2086  # no word or two
    train "change$n" "${words[@]}" $more
    near "one-$optim" "change$n"
    [ "$(grep -c '^layout    from step' "change$n.out")" = 2 ] || fail "change$n: changes are not told"
    "$skein" plan "${job[@]}" "${words[@]}" -o csv >plan.csv
    awk -F, 'NR == FNR && FNR == 1 { for (i = 1; i <= NF; i++) if ($i == "total_bytes") col = i }
             NR == FNR { plan[$3] = $col; next }
             $2 == "mapped" { if (plan[$1] != $4) wrong = 1; ranks++ }
             END { exit wrong || ranks != 4 }' plan.csv "change$n/memory.csv" ||
        fail "change$n: the plan is not what was mapped"
done <<'LIST'
dp=4|dp=2 tp=2|tp=2 pp=2 micro=2|adamw|
dp=2 tp=2|dp=4 zero=3|dp=4|adamw|
tp=2 pp=2 micro=2|dp=4|dp=4 zero=3|adamw|
dp=4 zero=3|tp=2 pp=2 micro=2|dp=2 tp=2|adamw|
pp=4 micro=5|dp=2, tp=2, zero=2, order: dp tp|tp=4|lamb|
dp=4|dp=2 tp=2|tp=2 pp=2 micro=2|adamw|--launch thread
pp=2 dp=2 zero=3 micro=2|tp=4|dp=4 zero=1|sgd|
LIST

# skein top shows the layout at work, and the instructions of its program
"$skein" train "${job[@]}" run=top train.steps=1000000 ckpt.every=0 val.every=0 layout=dp=4 \
    train.relayout="3: tp=4, 5: dp=2 tp=2, 900000: tp=4" >top.out 2>&1 &
pid=$!
for ((i = 0; i < 100; i++)); do
    "$skein" top top --once >top.seen 2>&1 && grep -q 'phase 3 of 4' top.seen && break
    sleep 0.1
done
kill -9 "$pid"
wait "$pid" 2>/dev/null || true
pid=
grep -q '^layout dp 2 · tp 2 · phase 3 of 4, from step 5$' top.seen ||
    { cat top.out top.seen; fail "top: the layout at work is not shown"; }
[ "$(grep -cE ' (op|load|start|wait|add|slice|update|clip|stats|zero) ' top.seen)" -ge 3 ] ||
    { cat top.seen; fail "top: the instructions are not shown"; }

# the same bytes, however it is interrupted
job+=(ckpt.every=5 layout=dp=4 train.relayout="10: dp=2 tp=2, 20: tp=2 pp=2 micro=2")
same() { # run directory, steps that it tells
    cmp "$1/final/model.safetensors" change1/final/model.safetensors || fail "$1: another model"
    grep -c '"loss"' "$1/metrics.jsonl" | grep -qx "$2" || fail "$1: steps are told twice"
}
train again
same again 30
for step in 05 10 15 20 25; do # before, at and behind the changes
    train "from$step" resume="again/ckpt/step-00000000$step"
    same "from$step" $((30 - 10#$step))
done

steps() { grep -c '"loss"' "$1/metrics.jsonl" 2>/dev/null || true; }
"$skein" train "${job[@]}" run=stop >stop.out 2>stop.err &
pid=$!
until [ "$(steps stop)" -ge 12 ] 2>/dev/null; do sleep 0.01; done
kill -INT $pid
rc=0
wait $pid || rc=$?
pid=
[ $rc = 75 ] || [ $rc = 0 ] || { cat stop.err; fail "Ctrl-C: exit code $rc, 75 is needed"; }
"$skein" train --resume run=stop >stop.out 2>stop.err || { cat stop.err; fail "stop: no resume"; }
same stop 30

"$skein" train "${job[@]}" run=storm --restarts 20 >storm.out 2>storm.err &
pid=$!
kills=0
for at in 3 11 21; do # a rank in each phase
    until [ "$(steps storm)" -ge $at ] 2>/dev/null || ! kill -0 $pid 2>/dev/null; do sleep 0.01; done
    victim=$(pgrep -P $pid | shuf -n 1)
    [ -z "$victim" ] || ! kill -KILL "$victim" 2>/dev/null || kills=$((kills + 1))
    sleep 0.05
done
wait $pid || { cat storm.out storm.err; fail "storm: it did not survive"; }
pid=
same storm 30

# two hosts, played by SKEIN_HOST: what is far goes over the wire
on_hosts() { same "$1" 30; }
two_hosts on_hosts

# what cannot be
refused() { # part of the report, then the words
    local report=$1
    shift
    rc=0
    timeout 20 "$skein" train "${job[@]}" run=refused "$@" >refused.out 2>&1 || rc=$?
    [ $rc = 78 ] || { cat refused.out; fail "'$*': exit code $rc, 78 is needed"; }
    grep -qF "$report" refused.out || { cat refused.out; fail "'$*': the report lacks '$report'"; }
    [ ! -e refused ] || fail "'$*': something was begun"
    reports=$((reports + 1))
}
reports=0
refused 'has 2 ranks, the run has 4' train.relayout="10: dp=2"
refused 'steps must rise' train.relayout="10: dp=4, 10: tp=4"
refused 'steps must rise' train.relayout="0: tp=4"
refused 'does not begin with a step' train.relayout="tp=4"
refused 'has no layout behind it' train.relayout="10:"
refused 'from step 20 on: layout' train.relayout="10: tp=4, 20: xx"
refused "leave out 'replica'" train.relayout="10: replica dp=4"
refused "leave out 'replica'" layout="replica dp=4"
echo "$n chains of three layouts within $(sort -g worst | tail -n 1) of one rank, planned = mapped;" \
    "the same bytes from 5 checkpoints, stopped, and with $kills ranks killed; on two hosts by:${mpis:- no MPI is here}; $reports refusals"
[ "$kills" -ge 1 ]
