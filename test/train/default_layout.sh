#!/bin/bash
# default_layout.sh - the layout of a job that says none: dp=RANKS for small ones and for those that
# say something that goes with it; else the one that a search finds, alike on all ranks however they
# are started, told in a line, kept in config.yaml, and with the results of the same words said.
# shellcheck source=test/lib/runs.sh
. "$(dirname "$0")/../lib/runs.sh"
unset SKEIN_HOST SKEIN_WIRE SKEIN_JOB SKEIN_RANK SKEIN_RANKS RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE
limit=100

small=(model=tiny data.train=text data.tokenizer=byte train.steps=2 train.batch=4 train.seq=16
    train.threads=1 val.every=0 sample.every=0 log.every=1)
# Many words and few tokens: gradients take longer than the work.
large=("${small[@]}" model=gpt2 model.num_hidden_layers=1 model.hidden_size=512
    model.num_attention_heads=8 model.vocab_size=20000 train.batch=2)

layout_of() { sed -n 's/^layout: *//p' "$1/config.yaml" | tr -d '"'; }
train() { timeout $limit "$skein" train "$@" >out 2>err </dev/null || fail "$*: $(cat out err)"; }
losses() { grep -o '"loss":[^,]*' "$1/metrics.jsonl"; }

# stays RUN WORDS...: two ranks have dp=2, and nothing is told
stays() {
    train "${@:2}" run="$1" -n 2
    [ "$(layout_of "$1")" = dp=2 ] || fail "$1: $(layout_of "$1") instead of dp=2"
    ! grep -q 'none was said' out || fail "$1: $(cat out)"
    checks=$((checks + 1))
}

stays small "${small[@]}"
stays noise "${large[@]}" train.noise=1
stays canonical "${large[@]}" order=canonical
stays said "${large[@]}" layout=dp=2

train "${large[@]}" run=chosen -n 2
words=$(layout_of chosen)
[ "$words" != dp=2 ] || fail "dp=2 was kept: $(cat out)"
grep -q "^layout .*none was said.*dp=2.*layout=\"$words\" pins it" out || fail "no line: $(cat out)"
[ "$(grep -c 'pins it' out)" = 1 ] || fail "more than one line"
train "${large[@]}" run=pinned -n 2 layout="$words"
! grep -q 'none was said' out || fail "a layout that was said is told as chosen"
[ "$(losses chosen)" = "$(losses pinned)" ] || fail "pinned: $(losses chosen) $(losses pinned)"
checks=$((checks + 4))

# Commands that only look take the same.
for command in plan simulate explain; do
    "$skein" $command "${large[@]}" -n 2 >out 2>err || fail "$command: $(cat err)"
    grep -q "layout=\"$words\" pins it" err || fail "$command: $(cat err)"
    "$skein" $command "${large[@]}" -n 2 layout="$words" >same 2>err || fail "$command: $(cat err)"
    sed -i '/^here /d' out same # memory that is free now
    cmp -s out same || fail "$command: another output than with the words"
    checks=$((checks + 2))
done

# A resumed run keeps it; for other ranks it says how to choose again.
train --resume run=chosen train.steps=3
[ "$(layout_of chosen)" = "$words" ] || fail "resumed with $(layout_of chosen)"
! grep -q 'none was said' out || fail "a resumed run chose again"
! "$skein" train --resume run=chosen train.steps=4 -n 4 >out 2>err || fail "4 ranks with $words"
grep -q 'layout=auto' err || fail "$(cat err)"
checks=$((checks + 4))

# As two processes that something else started, with unlike numbers of threads.
for rank in 1 0; do
    RANK=$rank WORLD_SIZE=2 LOCAL_RANK=$rank MASTER_ADDR=localhost MASTER_PORT=$((20000 + $$ % 10000)) \
        OMP_NUM_THREADS=$((1 + rank)) timeout $limit "$skein" train "${large[@]}" train.threads=0 \
        run=joined >"joined.$rank" 2>&1 </dev/null &
    pids[rank]=$!
done
for rank in 0 1; do wait "${pids[$rank]}" || fail "rank $rank: $(cat "joined.$rank")"; done
joined=$(layout_of joined)
[ "$joined" != dp=2 ] || fail "joined: dp=2"
grep -q "layout=\"$joined\" pins it" joined.0 || fail "joined: $(cat joined.0)"
checks=$((checks + 2))
echo "$checks checks: $words"
