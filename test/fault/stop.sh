#!/bin/bash
# stop.sh - kill -STOP of a random rank at random moments: a hang is named, not waited for.
#
# With comm.timeout=2 the job must end with code 69 and an error message that names the stopped rank,
# its process and its instruction, whoever noticed first; the stopped process must be gone.
# While it hangs, `skein top` says the same.
# shellcheck source=test/lib/runs.sh
. "$(dirname "$0")/../lib/runs.sh"

rounds=3
[ -z "${SKEIN_LONG:-}" ] || rounds=40
timeout=2 limit=4500 # ms from the stop to the end of the launcher
if grep -qE '__(asan|tsan)_init' "$skein"; then timeout=10 limit=25000; fi
seed=${SKEIN_SEED:-$(($(date +%s) % 32768))}
RANDOM=$seed

# The children of a process in the order of their birth: numbers of processes begin again at a limit.
born() { pgrep -P "$1" | awk -v parent="$1" '{ print ($1 < parent), $1 }' | sort -n -k 1,1 -k 2,2 | cut -d ' ' -f 2; }

ms() { echo $(($(date +%s%N) / 1000000)); }

fail() {
    echo "$* (round $i, SKEIN_SEED=$seed)"
    cat "$run.out" "$run.err" "$run.top" 2>/dev/null
    exit 1
}

layouts=("dp=2 tp=2" "dp=4 zero=3" "tp=2 pp=2 micro=2")
worst=0
for ((i = 0; i < rounds; i++)); do
    run=$temp/run$i
    "$skein" train model=tiny data.train=text data.tokenizer=byte train.steps=1000000 train.batch=4 \
        train.seq=32 sample.every=0 log.every=0 val.every=0 comm.timeout=$timeout -n 4 \
        layout="${layouts[i % 3]}" run="$run" >"$run.out" 2>"$run.err" &
    pid=$!
    until mapfile -t ranks < <(born $pid) && [ ${#ranks[@]} = 4 ]; do
        kill -0 $pid || fail "it ended by itself"
    done
    sleep "$(printf '0.%03d' $((RANDOM % 800)))"
    victim=$((RANDOM % 4))
    kill -STOP "${ranks[victim]}" || fail "rank $victim is not there"
    start=$(ms) rc=0
    sleep 1
    "$skein" top "$run" --once >"$run.top" 2>&1 || fail "no skein top"
    grep -qF "stuck: rank $victim is stopped (kill -CONT ${ranks[victim]})" "$run.top" ||
        fail "skein top does not name rank $victim"
    wait $pid || rc=$?
    took=$(($(ms) - start))
    [ $rc = 69 ] || fail "rank $victim stopped: exit code $rc, 69 is needed"
    [ $took -le $limit ] || fail "rank $victim stopped: it took $took ms"
    grep -qE "rank $victim \(pid ${ranks[victim]}\) is stopped.*(in step [0-9]+, instruction [0-9]+ |before the first step)" \
        "$run.err" || fail "rank $victim stopped: the message does not say so"
    ! pgrep -f "run=$run" >/dev/null || fail "rank $victim stopped: a process is left"
    [ $took -le $worst ] || worst=$took
    rm -rf "$run"
done
echo "$rounds stops, each named by skein top and told within $worst ms with comm.timeout=$timeout"
