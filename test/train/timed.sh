#!/bin/bash
# timed.sh - steps that time decides about: backup workers (sync=backup:B) and bounded staleness (sync=ssp:S).
#
# Laws: B=0 and S=0 are the plain program, to the bit; where a replay lets ranks go one after the other, a run with ssp is one rank that takes their samples one after the
# other.  A replay repeats a run to the bit, also one that was stopped and resumed.  The log has each drop once, and no
# rank is ever farther ahead than the bound.  A rank that is dead or hangs is told of, and not waited for as if it were slow.
# shellcheck source=test/lib/runs.sh
. "$(dirname "$0")/../lib/runs.sh"

job=(model=tiny data.train=text data.tokenizer=byte train.steps=12 train.batch=12 train.seq=16 train.threads=1 optim.warmup=2
    ckpt.every=6 ckpt.keep=0 sample.every=0 log.every=0 val.every=6)

replay() { # run to replay, directory of the new run, more words
    local of=$1 run=$2
    shift 2
    timeout 100 "$skein" train --replay "$of" run="$run" log.every=0 "$@" >"$run.out" 2>"$run.err" ||
        { cat "$run.out" "$run.err"; fail "$run: a replay of $of failed"; }
}
losses() { sed -nE 's/^(\{"step":[0-9]+),"loss":([^,]*),.*/\1 \2/p' "$1/metrics.jsonl"; }
lines() { # file, how many
    [ "$(wc -l <"$1")" = "$2" ] || fail "$1 has $(wc -l <"$1") lines, not $2"
    checks=$((checks + 1))
}

# None to drop, and none ahead.
train plain layout=dp=2 order=canonical
for way in backup:0 ssp:0; do
    train "none-$way" layout="dp=2 sync=$way" order=canonical
    same "none-$way" plain
    [ ! -e "none-$way/commits.jsonl" ] || fail "$way: there is a log"
done

# Backup workers: the slowest rank is dropped, each step has one line, and a replay is the same run.
SKEIN_FAULT=slow:300:2 train backup layout="dp=3 sync=backup:1"
lines backup/commits.jsonl 12
[ "$(grep -cF '"ranks":[0,1],"dropped":[2]}' backup/commits.jsonl)" -ge 8 ] || { cat backup/commits.jsonl; fail "who was slow was not dropped"; }
[ "$(grep -c '"dropped":1' backup/metrics.jsonl)" = 12 ] || fail "metrics do not tell of 12 drops"
tail -n 2 backup/metrics.jsonl | grep -q '"tokens":1536,' || fail "tokens are not those of two ranks in 12 steps"
grep -Eq '^dropped +rank 2 in ([89]|1[012])(, rank [01] in [1-4])* of 12 steps$' backup.out || { cat backup.out; fail "who was dropped how often is not told"; }
grep -q '^warning .*dropped rank' backup.out && fail "12 steps are too few for a warning"
replay backup again
same again backup
cmp again/commits.jsonl backup/commits.jsonl || fail "a replay chose anew"
[ "$(losses again)" = "$(losses backup)" ] || fail "a replay has other losses"
replay backup resumed resume=backup/ckpt/step-0000000006
same resumed backup
SKEIN_FAULT=slow:20:0:2 train bf16 layout="dp=3 sync=backup:1" train.dtype=bf16 optim.name=lamb train.threads=2
replay bf16 bf16-again
same bf16-again bf16
train thread layout="dp=3 sync=backup:2" --launch=thread
replay thread thread-again
same thread-again thread

# A rank that is dropped in most steps is told of, and rank 0 has no numbers of its own of steps without it.
SKEIN_FAULT=slow:100:0 train always layout="dp=3 sync=backup:1" train.steps=50 val.every=0 ckpt.every=0
grep -Eq '^warning +sync=backup dropped rank 0 in [2-5][0-9] of 50 steps' always.out || { cat always.out; fail "no warning of a rank that is always dropped"; }
awk '/"mfu":null/ && !/"exposed_pct":null/ { exit 1 } /"exposed_pct":null/ { n++ } END { exit n < 26 }' always/metrics.jsonl ||
    { cat always/metrics.jsonl; fail "what was not measured is not null"; }
checks=$((checks + 2))

# Bounded staleness: the most steps that a rank is ahead of the slowest when it reads weights.  Turns have no gap.
ahead() { # run, ranks
    awk -F'[:,}]' -v n="$2" '{ ev[$6] = "r " $4 " " $2; ev[$8] = "u " $4 " " $2; if ($8 > last) last = $8 }
        END {
            for (t = 0; t <= last; t++) {
                if (split(ev[t], x, " ") != 3) { print "a gap at turn", t; exit }
                if (x[1] == "u") { done[x[2]] = x[3]; continue }
                low = 1e9
                for (r = 0; r < n; r++) if (done[r] + 0 < low) low = done[r] + 0
                if (x[3] - 1 - low > most) most = x[3] - 1 - low
            }
            print most + 0
        }' "$1/commits.jsonl"
}
for s in 1 3 inf; do
    SKEIN_FAULT=slow:100:2 train "ssp-$s" layout="dp=3 sync=ssp:$s"
    lines "ssp-$s/commits.jsonl" 36
    grep -Eq '^updates +36, by ranks that were [0-9.]+ steps behind the farthest in the mean, [0-9]+ at most$' "ssp-$s.out" ||
        { cat "ssp-$s.out"; fail "ssp:$s: how far apart ranks were is not told"; }
    tail -n 2 "ssp-$s/metrics.jsonl" | grep -q '"tokens":2304,' || fail "ssp:$s: the last row has not the tokens of all ranks"
    most=$(ahead "ssp-$s" 3)
    case $s in
    inf) [ "$most" -ge 4 ] || fail "ssp:inf: nobody was ahead, $most" ;; # of 6: then all meet for a validation
    *) [ "$most" = "$s" ] || fail "ssp:$s: $most steps ahead" ;;
    esac
    replay "ssp-$s" "ssp-$s-again"
    same "ssp-$s-again" "ssp-$s"
    cmp "ssp-$s-again/commits.jsonl" "ssp-$s/commits.jsonl" || fail "ssp:$s: a replay has another order"
    replay "ssp-$s" "ssp-$s-resumed" resume="ssp-$s/ckpt/step-0000000006"
    same "ssp-$s-resumed" "ssp-$s"
done

# One after the other: one rank with a third of the batch and of the rate, and three times the steps.
for optim in adamw sgd lamb muon; do
    words=(optim.schedule=constant optim.warmup=0 ckpt.every=0 val.every=0 "optim.name=$optim")
    train "serial-$optim" layout="dp=3 sync=ssp:1" "${words[@]}" optim.lr=0.003
    awk 'BEGIN { for (s = 0; s < 12; s++) for (r = 0; r < 3; r++) { t = 2 * (3 * s + r)
        printf "{\"step\":%d,\"rank\":%d,\"read\":%d,\"update\":%d}\n", s + 1, r, t, t + 1 } }' >"serial-$optim/commits.jsonl"
    replay "serial-$optim" "one-by-one-$optim"
    train "one-$optim" layout=dp=1 "${words[@]}" optim.lr=0.001 train.batch=4 train.steps=36
    same "one-by-one-$optim" "one-$optim"
done

# Stopped by a signal, resumed, and replayed from the beginning.
for way in backup:1 ssp:2; do
    for steps in 300 3000; do # on a fast machine, or one with other work, it may end before the signal
        rm -rf "stop-$way"
        SKEIN_FAULT=slow:5:0 "$skein" train "${job[@]}" layout="dp=3 sync=$way" train.steps=$steps val.every=0 ckpt.every=0 run="stop-$way" \
            >stop.out 2>&1 &
        for _ in $(seq 500); do [ "$(wc -l 2>/dev/null <"stop-$way/commits.jsonl" || echo 0)" -gt 20 ] && break; sleep 0.02; done
        kill -INT $! 2>/dev/null || true
        rc=0
        wait $! || rc=$?
        [ $rc = 0 ] || break
    done
    [ "$rc" = 75 ] || { cat stop.out; fail "$way: stopped with $rc"; }
    timeout 100 "$skein" train --resume run="stop-$way" >said 2>&1 || { cat said; fail "$way: not resumed"; }
    case $way in backup:1) lines "stop-$way/commits.jsonl" "$steps" ;; *) lines "stop-$way/commits.jsonl" $((3 * steps)) ;; esac
    replay "stop-$way" "stopped-$way"
    same "stopped-$way" "stop-$way"
done

# A rank that hangs is no straggler for ever, and one that is dead is told of at once.
for way in backup:1 ssp:inf; do
    for signal in STOP KILL; do
        "$skein" train "${job[@]}" layout="dp=3 sync=$way" train.steps=1000000 val.every=0 ckpt.every=0 comm.timeout=2 run="bad-$way-$signal" \
            >bad.out 2>&1 &
        pid=$!
        for _ in $(seq 100); do [ "$(wc -l 2>/dev/null <"bad-$way-$signal/commits.jsonl" || echo 0)" -gt 5 ] && break; sleep 0.1; done
        kill -$signal "$(pgrep -P $pid | sort -n | sed -n 3p)"
        rc=0
        wait $pid || rc=$?
        [ $rc = 69 ] || { cat bad.out; fail "$way: $signal ended with $rc"; }
        grep -Eq 'rank 2 (died|\(pid [0-9]+\) (is stopped|has done nothing))' bad.out || { cat bad.out; fail "$way: $signal: rank 2 is not named"; }
        checks=$((checks + 1))
    done
done

# With no bound the fast ranks wait for many steps of a slow one, which does not hang: for longer than comm.timeout, in a replay too.
far=(layout="dp=3 sync=ssp:inf" train.steps=40 val.every=0 ckpt.every=0 comm.timeout=2)
SKEIN_FAULT=slow:100:2 train far "${far[@]}"
SKEIN_FAULT=slow:100:0 replay far far-again comm.timeout=2
same far-again far
# One that is stopped meanwhile does.
SKEIN_FAULT=slow:100:2 "$skein" train "${job[@]}" "${far[@]}" run=stopped-far >bad.out 2>&1 &
pid=$!
for _ in $(seq 200); do grep -q '"step":40,"rank":0' stopped-far/commits.jsonl 2>/dev/null && break; sleep 0.02; done
kill -STOP "$(pgrep -P $pid | sort -n | sed -n 3p)"
rc=0
wait $pid || rc=$?
[ $rc = 69 ] || { cat bad.out; fail "a stopped rank that others wait for ended with $rc"; }
grep -Eq 'rank [01] waited 2.* rank 2 \(pid [0-9]+\) is stopped' bad.out || { cat bad.out; fail "the rank that is stopped is not named"; }
checks=$((checks + 1))

for way in ssp:1 backup:1; do
    subcommand=rate refused 78 "sync=${way%:*} is for skein train" "${job[@]}" --steps 12 layout="dp=2 sync=$way"
done
for way in backup:1 ssp:1; do
    refused 78 "rank 0 has no samples" "${job[@]}" layout="dp=3 sync=$way" train.batch=2 run=no
    refused 78 "has no samples" "${job[@]}" layout="dp=4 micro=2 sync=$way" train.batch=4 run=no
done
refused 78 "at most 2 can be dropped" "${job[@]}" layout="dp=3 sync=backup:3" run=no
refused 78 "take 'dp' alone" "${job[@]}" layout="dp=2 tp=2 sync=backup:1" run=no
refused 78 "zero=1 shards them" "${job[@]}" layout="dp=2 zero=1 sync=ssp:1" run=no
refused 78 "take order=fast" "${job[@]}" layout="dp=2 sync=backup:1" order=canonical run=no
refused 78 "grads=CODEC" "${job[@]}" layout="dp=2 grads=bf16 sync=ssp:1" run=no
refused 78 "it has one number" "${job[@]}" layout="dp=2 sync=ssp:1:2" run=no
refused 78 "sums of the backward pass" "${job[@]}" layout="dp=2 sync=backup:1" optim.name=kfac run=no
for optim in onebit-adam onebit-lamb zeroone-adam; do
    for way in backup:1 ssp:1; do
        refused 78 "optim.name is $optim, whose ranks send momentum" "${job[@]}" layout="dp=2 sync=$way" optim.name=$optim run=no
    done
done
refused 78 "gradients a step" "${job[@]}" layout="dp=2 sync=backup:1" optim.name=sam run=no
refused 78 "as many updates as ranks" "${job[@]}" layout="dp=2 sync=ssp:1" optim.ema=0.9 run=no
refused 78 "take bf16" "${job[@]}" layout="dp=2 sync=ssp:1" train.dtype=f16 run=no
refused 78 "stop or skip" "${job[@]}" layout="dp=2 sync=backup:1" train.nonfinite=rollback run=no
refused 78 "train.steps=N" model=tiny data.train=text data.tokenizer=byte train.time=10s layout="dp=2 sync=backup:1" run=no
for way in backup:1 ssp:3; do
    refused 78 "with 'sync=$way' each rank goes by itself" "${job[@]}" layout="dp=2 sync=$way" train.relayout="5: dp=2" run=no
    refused 78 "from step 5 on: all ranks change the layout together" "${job[@]}" layout=dp=2 train.relayout="5: dp=2 sync=$way" run=no
    subcommand=plan refused 78 "with 'sync=$way' each rank goes by itself" "${job[@]}" layout=dp=2 train.relayout="5: dp=2 sync=$way"
done
# config.yaml has the last keys of a run; the log, where they were changed.
for way in backup:1 ssp:1; do
    train "keys-$way" layout="dp=2 sync=$way" val.every=0
    timeout 100 "$skein" train --resume run="keys-$way" train.steps=18 log.every=5 val.every=0 ckpt.every=9 >said 2>&1 || { cat said; fail "$way: not resumed"; }
    [ "$(grep -c changed "keys-$way/commits.jsonl")" = 1 ] || fail "$way: no change is recorded"
    grep -qxF '{"step":12,"changed":"train.steps"}' "keys-$way/commits.jsonl" || fail "$way: $(grep changed "keys-$way/commits.jsonl")"
    refused 78 "was resumed behind step 12 with another train.steps" --replay "keys-$way" run=no
    cp -r "keys-$way" "moved-$way"
    sed -i 's/:12,"changed"/:11,"changed"/' "moved-$way/commits.jsonl"
    refused 65 "is about step 11, step 12 is needed" --replay "moved-$way" run=no
    replay "keys-$way" "since-$way" resume="keys-$way/ckpt/step-0000000012"
    same "since-$way" "keys-$way"
    grep -q changed "since-$way/commits.jsonl" && fail "$way: another run has the change"
done

for said in run=backup run=./backup "--run backup"; do
    # shellcheck disable=SC2086  # words
    refused 73 "run ${said#*[= ]} already has checkpoints" --replay backup $said
done
of_layout() { # run, layout, ranks: a copy whose config.yaml has another, which words may not
    rm -rf other
    cp -r "$1" other
    sed -i "s/^layout:.*/layout: \"$2\"/; s/^ranks:.*/ranks: $3/" other/config.yaml
}
of_layout backup "dp=3 sync=backup:2" 3
refused 65 "line 1 drops 1 rank, and with sync=backup:2 every step drops 2" --replay other run=no
cp -r backup damaged
sed -i '5s/"ranks":.*/"ranks":[0,1,2],"dropped":[]}/' damaged/commits.jsonl
refused 65 "damaged/commits.jsonl: line 5 drops 0 ranks" --replay damaged run=no
sed '5s/"ranks":\[0/"ranks":[0,0/' backup/commits.jsonl >damaged/commits.jsonl
refused 65 "line 5 is no line of a step" --replay damaged run=no

# Turns that no run can have had: of two ranks, of none, before the rank's last one, farther ahead than the bound.
rm -rf damaged
cp -r serial-sgd damaged
turns() { # sed's words, words of the sentence
    sed "$1" serial-sgd/commits.jsonl >damaged/commits.jsonl
    refused 65 "$2" --replay damaged run=no
}
turns '5s/"read":8/"read":7/' "turn 7 is there twice"
turns '5s/"update":9/"update":10/' "turn 10 is there twice"
turns '1s/"read":0,"update":1/"read":0,"update":99/' "line 4: rank 0 read the weights for step 2 in turn 6, and its step 1 ended in turn 99"
awk 'BEGIN { for (s = 0; s < 12; s++) for (r = 0; r < 3; r++) { t = 2 * (3 * s + r) + 4 * (s > 1)
    printf "{\"step\":%d,\"rank\":%d,\"read\":%d,\"update\":%d}\n", s + 1, r, t, t + 1 } }' >damaged/commits.jsonl
refused 65 "no line has turn 12" --replay damaged run=no
awk 'BEGIN { for (r = 0; r < 3; r++) for (s = 0; s < 12; s++) { t = 2 * (12 * r + s)
    printf "{\"step\":%d,\"rank\":%d,\"read\":%d,\"update\":%d}\n", s + 1, r, t, t + 1 } }' >damaged/commits.jsonl
refused 65 "in turn 4 rank 0 was 2 steps ahead of the slowest, and with sync=ssp:1 it waits at more than 1" --replay damaged run=no
of_layout damaged "dp=3 sync=ssp:inf" 3
replay other in-turn
refused 65 "time made no choices" --replay plain run=no
of_layout backup "dp=2 sync=backup:1" 2
refused 65 "with as many ranks as the run had" --replay other run=no
refused 65 "are asked for" --replay backup train.steps=13 run=no
# Keys of its own: what is due where ranks had not met is left out, and the weights are those of the run.
for words in val.every=5 ckpt.every=4 sample.every=3; do
    replay ssp-inf "own-$words" "$words"
    same "own-$words" ssp-inf
    tr -s ' ' <"own-$words.out" | grep -qE "^warning all ranks would meet behind [0-9]+ steps?, from step [0-9]+ on, behind which those of run ssp-inf did not" ||
        { cat "own-$words.out"; fail "$words: nothing is said of what is left out"; }
done
[ ! -e own-ckpt.every=4/ckpt/step-0000000004 ] || fail "a checkpoint between turns"
for i in 1 2; do replay ssp-inf "shorter$i" train.steps=7; done
same shorter1 shorter2
replay ssp-inf ssp-inf-same
if grep 'would meet' ssp-inf-same.out; then fail "a replay with the keys of its run leaves nothing out"; fi
of_layout ssp-1 "dp=3 sync=backup:1" 3
refused 65 "is no line of a" --replay other run=no
# A key that changes the result is named with both values.
refused 78 "layout was \"dp=3 sync=backup:1\" and is \"dp=3 sync=backup:2\"" --replay backup layout="dp=3 sync=backup:2" run=no
refused 78 "train.seed was 1 and is 7, optim.lr was 0.001 and is 0.1; " --replay backup train.seed=7 optim.lr=0.1 run=no
refused 78 "train.threads was 1 and is 2" --replay backup train.threads=2 run=no
replay backup "its own" log.every=4 train.steps=4
"$skein" train --replay "its own" >said 2>&1 || { cat said; fail "no replay of a replay"; }
said "next skein sample 'runs/[0-9]+-[0-9]+-replay-its own' --prompt"
echo "timed: $runs models with the same bytes, $checks other checks"
