#!/bin/bash
# kill.sh - kill -9 of a random rank at random moments: one error report, soon, nothing left.
#
# Four ranks train a tiny model without an end.  After each kill the job must end with code 69
# and an error message that names the rank and where it was; no process and no shared memory may stay.
# shellcheck source=test/lib/runs.sh
. "$(dirname "$0")/../lib/runs.sh"

rounds=6
[ -z "${SKEIN_LONG:-}" ] || rounds=40
limit=1500 # ms from the kill to the end of the launcher
if grep -qE '__(asan|tsan)_init' "$skein"; then limit=10000; fi
seed=${SKEIN_SEED:-$(($(date +%s) % 32768))}
RANDOM=$seed

# The children of a process in the order of their birth: numbers of processes begin again at a limit.
born() { pgrep -P "$1" | awk -v parent="$1" '{ print ($1 < parent), $1 }' | sort -n -k 1,1 -k 2,2 | cut -d ' ' -f 2; }

ms() { echo $(($(date +%s%N) / 1000000)); }

fail() {
    echo "$* (round $i, SKEIN_SEED=$seed)"
    cat "$run.out" "$run.err"
    exit 1
}

layouts=("dp=4" "dp=2 tp=2" "tp=2 pp=2 micro=2" "dp=4 zero=3")
worst=0 early=0
for ((i = 0; i < rounds; i++)); do
    run=$temp/run$i
    "$skein" train model=tiny data.train=text data.tokenizer=byte train.steps=1000000 train.batch=4 \
        train.seq=32 sample.every=0 log.every=0 val.every=0 ckpt.every=50 -n 4 --restarts 0 \
        layout="${layouts[i % 4]}" run="$run" >"$run.out" 2>"$run.err" &
    pid=$!
    until mapfile -t ranks < <(born $pid) && [ ${#ranks[@]} = 4 ]; do
        kill -0 $pid || fail "it ended by itself"
    done
    sleep "$(printf '0.%03d' $((RANDOM % (i % 2 ? 1000 : 12))))" # half of them soon after the start
    victim=$((RANDOM % 4))
    kill -KILL "${ranks[victim]}" || fail "rank $victim is not there"
    start=$(ms) rc=0
    wait $pid || rc=$?
    took=$(($(ms) - start))
    [ $rc = 69 ] || fail "rank $victim killed: exit code $rc, 69 is needed"
    [ $took -le $limit ] || fail "rank $victim killed: it took $took ms"
    grep -qE "^skein: rank $victim died: signal 9 .*(in step [0-9]+, instruction [0-9]+ |before the first step)" \
        "$run.err" || fail "rank $victim killed: the message does not say so"
    [ "$(grep -c '^skein: ' "$run.err")" = 1 ] || fail "more than one error report"
    ! pgrep -f "run=$run" >/dev/null || fail "rank $victim killed: a process is left"
    if grep -q "before the first step" "$run.err"; then early=$((early + 1)); fi
    [ $took -le $worst ] || worst=$took
    rm -rf "$run"
done

# The same without a launcher: nobody but the ranks can see it, and one of them tells.
lone=$((rounds / 6))
for ((i = 0; i < lone; i++)); do
    run=$temp/lone$i ranks=()
    for r in 0 1 2 3; do
        SKEIN_RANK=$r SKEIN_RANKS=4 SKEIN_JOB=lone$i-$$ "$skein" train model=tiny data.train=text \
            data.tokenizer=byte train.steps=1000000 train.batch=4 train.seq=32 sample.every=0 \
            log.every=0 val.every=0 layout="${layouts[i % 4]}" run="$run" >"$run.$r" 2>&1 &
        ranks+=($!)
    done
    : >"$run.out"
    : >"$run.err"
    until grep -q '"loss"' "$run/metrics.jsonl" 2>/dev/null; do
        kill -0 "${ranks[0]}" || fail "it did not begin: $(cat "$run".?)"
        sleep 0.02
    done
    victim=$((RANDOM % 4))
    kill -KILL "${ranks[victim]}"
    start=$(ms)
    for r in 0 1 2 3; do
        rc=0
        wait "${ranks[r]}" 2>/dev/null || rc=$?
        [ $rc = $((r == victim ? 137 : 69)) ] || fail "rank $r of a job without launcher: code $rc"
    done
    took=$(($(ms) - start))
    cat "$run".? >"$run.err"
    [ $took -le $limit ] || fail "rank $victim killed without a launcher: it took $took ms"
    [ "$(grep -c "^skein: rank $victim (pid ${ranks[victim]}) died in step" "$run.err")" = 1 ] ||
        fail "rank $victim killed without a launcher: not told, or told twice"
    [ $took -le $worst ] || worst=$took
    rm -rf "$run"
done

left=$(find /dev/shm -newer text -user "$(id -un)" -name '*skein*' 2>/dev/null)
[ -z "$left" ] || { echo "left behind: $left"; exit 1; }
echo "$rounds kills ($early before the first step) and $lone without a launcher, each told within $worst ms, nothing left"
