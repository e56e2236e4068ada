#!/bin/bash
# dropless.sh - train.dropless: a step whose experts were full is run again with room for all.
#
# In canonical order a run of 20 steps in a small room ends in the same bytes as one with room for
# every token, on many layouts, whether all steps were run again or some; resumed, stopped, with a
# rank killed and on two hosts too.  In fast order losses are within 1e-5.  Drops and repeated steps
# are counted in metrics.jsonl and on the console; without the key drops are counted and stay.
# shellcheck source=test/lib/runs.sh
. "$(dirname "$0")/../lib/runs.sh"
pid=
trap '[ -z "$pid" ] || kill -9 "$pid" 2>/dev/null; rm -rf "$temp"' EXIT

job=(data.train=text data.tokenizer=byte train.batch=8 train.seq=24 train.steps=20 train.threads=1
    optim.warmup=2 val.every=10 sample.every=0 log.every=5)

train() { # run directory, then more words
    local run=$1
    shift
    timeout 100 "$skein" train "${job[@]}" run="$run" "$@" >"$run.out" 2>"$run.err" ||
        { rc=$?; cat "$run.out" "$run.err"; fail "$run: exit code $rc"; }
    grep -q 'planned = ' "$run.out" || { cat "$run.out"; fail "$run: maps what was not planned"; }
}

values() { sed -nE "s/.*\"$2\":([-+0-9.e]+).*/\\1/p" "$1/metrics.jsonl"; } # run, key
sum() { values "$1" "$2" | awk '{ n += $1 } END { print n + 0 }'; }

# Steps with drops are those that were run again, and the console says how many they are.
counted() { # run, steps; sets again
    again=$(sum "$1" again)
    paste -d ' ' <(values "$1" drops) <(values "$1" again) |
        awk '($1 > 0) != $2 { wrong = 1 } END { exit wrong }' || fail "$1: drops, and not run again"
    [ "$(values "$1" again | wc -l)" = "$2" ] || fail "$1: not every step tells whether it was run again"
    grep -q "fallback .*$again of $2 steps were run again, with room" "$1.out" ||
        { cat "$1.out"; fail "$1: the console does not say that $again of $2 were run again"; }
}

same() { cmp "$1/final/model.safetensors" "$2/final/model.safetensors" || fail "$1: another model than $2"; }

# --- the same bytes ---
job+=(order=canonical)
train mixtral -n 1 model=mixtral-tiny
train switch -n 1 model=switch-tiny model.capacity_factor=0
[ "$(sum mixtral drops) $(sum switch drops)" = "0 0" ] || fail "drops with room for all"
n=0 some=0
while IFS='|' read -r model factor ranks layout more; do
    n=$((n + 1))
    words=(model="$model-tiny" model.capacity_factor="$factor" train.dropless=1 -n "$ranks" layout="$layout")
    # shellcheck disable=SC2086  # no word or two
    train "way$n" "${words[@]}" $more
    same "way$n" "$model"
    counted "way$n" 20
    [ "$again" -gt 0 ] || fail "way$n: nothing was dropped, so nothing was tested"
    [ "$again" = 20 ] || some=$((some + 1))
    grep -q 'drops [0-9.]* %' "way$n.out" || fail "way$n: rows do not tell drops"
    "$skein" plan "${job[@]}" "${words[@]}" -o csv >plan.csv
    awk -F, -v ranks="$ranks" '
        NR == FNR && FNR == 1 { for (i = 1; i <= NF; i++) if ($i == "total_bytes") col = i }
        NR == FNR { plan[$3] = $col; left += $2 * $col; next } # a row for each class of ranks
        $2 == "mapped" { if ($1 in plan && plan[$1] != $4) wrong = 1; left -= $4; n++ }
        END { exit wrong || left || n != ranks }' plan.csv "way$n/memory.csv" ||
        fail "way$n: the plan is not what was mapped"
done <<'LIST'
mixtral|1|1|dp=1|
mixtral|1.75|1|dp=1|
mixtral|1|4|dp=2 ep=2|
mixtral|1.75|4|dp=2 ep=2|
mixtral|1.75|4|mesh dp=2 tp=2; split b e over dp; split h f v over tp|
mixtral|1.75|4|pp=2 ep=2 micro=4|
mixtral|1.75|4|pp=4 micro=8 schedule=zb-h1|--launch thread
mixtral|1.5|4|dp=2 tp=2 zero=3|
mixtral|1.9|4|replica dp=4|
mixtral|1.75|2|cp=2|--launch thread
switch|1.25|3|dp=3 zero=2 micro=2|
switch|1|4|dp=2 ep=2 zero=1|
LIST
[ $some -ge 4 ] || fail "only $some ways have steps of both kinds"

# an optimizer with two passes and sums between them
train lamb -n 1 model=mixtral-tiny optim.name=lamb
train lamb4 -n 4 layout="dp=2 ep=2 zero=1" model=mixtral-tiny optim.name=lamb model.capacity_factor=1.75 train.dropless=1
same lamb4 lamb

# --- interrupted ---
job+=(model=mixtral-tiny ckpt.every=5 ckpt.keep=0)
whole=("${job[@]}")
job+=(model.capacity_factor=1.75 -n 4 layout="dp=2 ep=2")
train kept # without the key: nothing is run again, drops stay, and both are told
[ "$(values kept again | wc -l)" = 0 ] || fail "kept: told of what was not asked for"
[ "$(sum kept drops)" -gt 0 ] || fail "kept: no drops"
[ "$(values kept drops | head -n 1)" = "$(values way4 drops | head -n 1)" ] ||
    fail "the first step drops otherwise when it is run again afterwards"
! cmp -s kept/final/model.safetensors mixtral/final/model.safetensors || fail "kept: drops changed nothing"
job+=(train.dropless=1)
train again
same again mixtral
train from10 resume=again/ckpt/step-0000000010
same from10 mixtral
counted from10 10

steps() { grep -c '"loss"' "$1/metrics.jsonl" 2>/dev/null || true; }
"$skein" train "${job[@]}" run=stop >stop.out 2>stop.err &
pid=$!
until [ "$(steps stop)" -ge 7 ] 2>/dev/null; do sleep 0.01; done
kill -INT $pid
rc=0
wait $pid || rc=$?
pid=
[ $rc = 75 ] || [ $rc = 0 ] || { cat stop.err; fail "Ctrl-C: exit code $rc, 75 is needed"; }
"$skein" train --resume run=stop >stop.out 2>stop.err || { cat stop.err; fail "stop: no resume"; }
same stop mixtral

kills=0
storm() { # run, then more words: a rank is killed on the way
    local run=$1
    shift
    "$skein" train "${job[@]}" run="$run" "$@" >"$run.out" 2>"$run.err" &
    pid=$!
    until [ "$(steps "$run")" -ge 6 ] 2>/dev/null || ! kill -0 $pid 2>/dev/null; do sleep 0.01; done
    victim=$(pgrep -P $pid | shuf -n 1)
    [ -z "$victim" ] || ! kill -KILL "$victim" 2>/dev/null || kills=$((kills + 1))
    rc=0
    wait $pid || rc=$?
    pid=
}
storm survives --restarts 9
[ $rc = 0 ] || { cat survives.out survives.err; fail "survives: exit code $rc"; }
same survives mixtral
job+=(train.steps=5000) # long enough to be killed for sure
storm dies
if [ $rc = 0 ] || [ ! -s dies/flight.txt ] || ! grep -q 'died: signal 9' dies.err; then
    cat dies.out dies.err
    fail "dies: exit code $rc, and no report"
fi
job+=(train.steps=20)

# --- two hosts, played by SKEIN_HOST ---
export NO_COLOR=1
on_hosts() { # run
    same "$1" mixtral
    counted "$1" 20
}
two_hosts on_hosts

# --- numbers ---
job=("${whole[@]}" -n 1 order=fast)
train fast
train fast2 model.capacity_factor=1.75 train.dropless=1 -n 2 layout=ep=2
counted fast2 20
paste -d ' ' <(values fast loss) <(values fast2 loss) | awk '
    { d = $2 / $1 - 1; d = d < 0 ? -d : d } !(d < 1e-5) { print "loss", $1, "but", $2; wrong = 1 }
    END { exit wrong || NR != 20 }' || fail "fast2: other losses than with room for all"
train half model.capacity_factor=0.5 # 24 places for the 48 choices of a sequence
values half drop_pct | awk '!($1 >= 50 && $1 < 100) { wrong = 1 } END { exit wrong || NR != 20 }' ||
    fail "half: half of the choices cannot have found room"
paste -d ' ' <(values half drops) <(values half drop_pct) | awk '
    { d = 100 * $1 / (8 * 24 * 2 * 2) - $2 } d * d > 0.01 { wrong = 1 } END { exit wrong }' ||
    fail "half: drop_pct is not drops over tokens x choices x layers"
[ "$(values half aux | awk '$1 > 0' | wc -l)" = 20 ] || fail "half: no auxiliary loss"
train dense model=tiny
! grep -qE '"(aux|drops|drop_pct|again)"' dense/metrics.jsonl || fail "dense: experts are told of"
! grep -q 'drops' dense.out || fail "dense: drops are told of"
train room train.dropless=1 # there is room for all anyway: one program, nothing to run again
[ "$(values room again | wc -l)" = 0 ] || fail "room: a second program was made"

# --- what cannot be ---
refused() { # part of the report, then the words
    local report=$1
    shift
    rc=0
    timeout 20 "$skein" train "${job[@]}" run=refused "$@" >refused.out 2>&1 || rc=$?
    [ $rc = 78 ] || [ $rc = 64 ] || { cat refused.out; fail "'$*': exit code $rc, 78 or 64 is needed"; }
    grep -qF "$report" refused.out || { cat refused.out; fail "'$*': the report lacks '$report'"; }
    [ ! -e refused ] || fail "'$*': something was begun"
}
refused 'has no experts' model=tiny train.dropless=1
refused 'one run has one of them' model.capacity_factor=1 train.dropless=1 train.relayout="10: dp=1"
refused 'train.dropless' model.capacity_factor=1 train.dropless=2
echo "$n ways to the same bytes as with room for all, planned = mapped, $some of them with steps of both" \
    "kinds; resumed, stopped, with $kills ranks killed, on two hosts by:${mpis:- no MPI is here}"
[ $kills -ge 1 ]
