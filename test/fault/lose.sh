#!/bin/bash
# lose.sh - kill -9 of everything at a random moment of a default run: what does --resume lose?
#
# Nothing is said about checkpoints, so they come every ten minutes.  The clock between them is made
# faster (SKEIN_FAULT=clock:N), so that 20 minutes are some seconds.  What is lost is what the run
# says itself: the steps past the newest checkpoint, whose lines it moves aside, and their time.
#
#     SKEIN_LONG=1 test/fault/lose.sh     20 kills instead of 3, with a slower clock
# shellcheck source=test/lib/runs.sh
. "$(dirname "$0")/../lib/runs.sh"

rounds=3 clock=400
[ -z "${SKEIN_LONG:-}" ] || rounds=20 clock=150
limit=11.5 # minutes: ten, a step, and a save, which take longer under a fast clock
if grep -qE '__(asan|tsan)_init' "$skein"; then limit=20; fi
seed=${SKEIN_SEED:-$(($(date +%s) % 32768))}
RANDOM=$seed
job=(model=tiny data.train=text train.batch=4 train.seq=32)

fail() {
    echo "$* (round $i, SKEIN_SEED=$seed)"
    cat run.out run.err more.out more.err 2>/dev/null
    exit 1
}

worst=0 sum=0 none=0
for ((i = 0; i < rounds; i++)); do
    rm -rf run
    SKEIN_FAULT=clock:$clock "$skein" train "${job[@]}" train.steps=1000000 -n 2 run=run >run.out 2>run.err &
    pid=$!
    until [ -s run/metrics.jsonl ]; do kill -0 $pid || fail "it ended by itself"; sleep 0.01; done
    after=$((RANDOM % 1200)) # seconds of the 20 minutes
    sleep "$(awk -v s=$after -v c=$clock 'BEGIN { printf "%.3f", s / c }')"
    ranks=$(pgrep -P $pid)
    # shellcheck disable=SC2086  # several numbers
    kill -KILL $pid $ranks
    wait $pid 2>/dev/null || true
    cp run/metrics.jsonl before
    rc=0
    newest=$(find run/ckpt -name 'step-*' | sort | tail -n 1)
    newest=${newest##*step-}
    steps=$((10#${newest:-0} + 2))
    timeout -k 2 60 "$skein" train run=run --resume train.steps=$steps >more.out 2>more.err || rc=$?
    if [ -z "$newest" ]; then # before the first: nothing to go on from, and nothing is touched
        { [ $rc = 65 ] && cmp -s before run/metrics.jsonl; } || fail "no checkpoint: exit code $rc"
        lost=$(sed -nE 's/.*"ms":([0-9.e+]+).*/\1/p' before | awk -v c=$clock '{ s += $1 } END { print s * c / 6e4 }')
        none=$((none + 1))
    else
        [ $rc = 0 ] || fail "--resume: exit code $rc"
        cmp -s before <(head -n "$(grep -c . <(awk -F'[:,]' -v n=$((10#$newest)) '$2 <= n' before))" run/metrics.jsonl
            cat run/metrics.jsonl.1 2>/dev/null || true) || fail "lines were lost"
        lost=$(sed -nE 's/.* had come [0-9]+ steps? \(([0-9.e+-]+) s\) past .*/\1/p' more.out)
        lost=$(awk -v s="${lost:-0}" -v c=$clock 'BEGIN { print s * c / 60 }')
    fi
    [ -z "${SKEIN_LONG:-}" ] || echo "killed after $(awk -v s=$after 'BEGIN { printf "%4.1f", s / 60 }') min: $(awk -v l="$lost" 'BEGIN { printf "%4.1f", l }') min lost, $((10#${newest:-0})) steps kept"
    read -r worst sum < <(awk -v l="$lost" -v w="$worst" -v s="$sum" 'BEGIN { print (l > w ? l : w), s + l }')
    awk -v l="$lost" -v m=$limit 'BEGIN { exit !(l <= m) }' || fail "killed after $after s: $lost minutes are lost"
done
awk -v r=$rounds -v n=$none -v w="$worst" -v s="$sum" 'BEGIN {
    printf "%d kills -9 within 20 minutes, %d before the first checkpoint: --resume loses %.1f minutes on average, %.1f at most\n", r, n, s / r, w }'
