#!/bin/bash
# offload.sh - a model far larger than its device's memory trains there, with a file behind it.
#
# Weights, gradients, state and activations live in a file; the device is to have memory for a quarter
# of the weights alone at most.  Losses, the final model and a resumed run are those of a run that
# has memory for all, to the bit.  A folder that is not there is told before the first step;
# nothing is left behind by a run that is killed.
set -eu
cd "$(dirname "$0")/../.."
skein=$(realpath "${SKEIN:-build/release/skein}")
temp=$(mktemp -d)
trap 'rm -rf "$temp"' EXIT
export XDG_CONFIG_HOME=$temp
fail() { echo "$*" && exit 1; }
for i in {1..300}; do echo "Line $i: what does not fit is brought when it is needed."; done >"$temp/text"

shape="model=llama-tiny model.num_hidden_layers=48 model.hidden_size=32 model.intermediate_size=96
    model.num_attention_heads=2 model.num_key_value_heads=2 train.batch=4 train.seq=16"
job="$shape data.train=$temp/text train.steps=4 val.every=0 sample.every=0 log.every=0 train.threads=1"
away="micro=4 recompute=full offload=all:file"

# shellcheck disable=SC2086  # words
weights=$("$skein" plan $shape layout=micro=4 -o csv | awk -F, 'NR == 2 { print $6 }')

for order in fast canonical; do
    # shellcheck disable=SC2086
    pool=$("$skein" plan $shape train.threads=1 order=$order layout="$away" -o csv | awk -F, 'NR == 2 { print $12 }')
    [ "$weights" -ge $((4 * pool)) ] || fail "weights of $weights bytes are not four times the pool of $pool"
    # shellcheck disable=SC2086
    "$skein" train $job order=$order layout=micro=4 run="$temp/near-$order" >/dev/null 2>&1
    # shellcheck disable=SC2086
    "$skein" train $job order=$order layout="$away" budget="$pool" run="$temp/far-$order" >"$temp/said" 2>&1 ||
        fail "a run behind a file: $(tail -3 "$temp/said")"
    cmp "$temp/near-$order/final/model.safetensors" "$temp/far-$order/final/model.safetensors" ||
        fail "$order order: another model"
    losses() { grep -o '"loss":[0-9.]*' "$1/metrics.jsonl"; }
    cmp <(losses "$temp/near-$order") <(losses "$temp/far-$order") || fail "$order order: other losses"
done

# the file's bytes are those of the plan, and its copies are told
grep -q "· file" "$temp/said" || fail "no word of the file: $(cat "$temp/said")"
grep -q '"copy_ms":[0-9.e+]*,"copy_hidden_pct":[0-9.]*' "$temp/far-fast/metrics.jsonl" || fail "no word of copies"

# from memory to the file and back, on two ranks, and with an optimizer that is late
for words in "" "optim.late=1"; do
    host="dp=2 zero=1 offload=state"
    # shellcheck disable=SC2086
    "$skein" train $job $words layout="$host" train.steps=6 run="$temp/six$words" >/dev/null 2>&1
    # shellcheck disable=SC2086
    "$skein" train $job $words layout="$host" train.steps=6 ckpt.every=3 run="$temp/three$words" >/dev/null 2>&1
    rm -rf "$temp/three$words/final"
    rm -rf "$temp/three$words"/ckpt/step-0000000006
    # shellcheck disable=SC2086
    "$skein" train $job $words layout="$host" train.steps=6 resume=auto run="$temp/three$words" >"$temp/said" 2>&1 ||
        fail "$words: resumed: $(tail -3 "$temp/said")"
    cmp "$temp/six$words/final/model.safetensors" "$temp/three$words/final/model.safetensors" ||
        fail "$words: another model after resuming"
done

# a step that is skipped leaves nothing for a late optimizer, also where the run is resumed right behind it
late="optim.late=1 train.nonfinite=skip optim.warmup=0 optim.lr=0.01"
for name in whole broken; do
    # shellcheck disable=SC2086
    SKEIN_FAULT=nan:3:0 "$skein" train $job $late layout=offload=state train.steps=6 ckpt.every=3 run="$temp/$name" >/dev/null 2>&1
done
rm -rf "$temp/broken/final" "$temp/broken/ckpt/step-0000000006"
# shellcheck disable=SC2086
"$skein" train $job $late layout=offload=state train.steps=6 resume=auto run="$temp/broken" >"$temp/said" 2>&1 ||
    fail "resumed behind a skipped step: $(tail -3 "$temp/said")"
cmp "$temp/whole/final/model.safetensors" "$temp/broken/final/model.safetensors" || fail "another model behind a skipped step"

# late from now on; and in time from now on, which drops a gradient and says so
cp -r "$temp/near-fast" "$temp/later"
# shellcheck disable=SC2086
"$skein" train $job optim.late=1 layout=offload=state train.steps=6 resume=auto run="$temp/later" >"$temp/said" 2>&1 ||
    fail "late from now on: $(tail -3 "$temp/said")"
rm -rf "$temp/later/final"
# shellcheck disable=SC2086
"$skein" train $job optim.late=0 layout=dp=1 train.steps=8 resume=auto run="$temp/later" >"$temp/said" 2>&1 ||
    fail "in time from now on: $(tail -3 "$temp/said")"
grep -q "holds a gradient that was not applied yet" "$temp/said" || fail "no word of the gradient: $(cat "$temp/said")"
grep -q 'updates=7 ' "$temp"/later/ckpt/step-0000000008/MANIFEST.json || fail "a dropped gradient is counted"
# shellcheck disable=SC2086
"$skein" bench step $shape optim.late=1 layout=offload=state --steps 1 >"$temp/said" 2>&1 || fail "bench step, late: $(cat "$temp/said")"

cp -r "$temp/near-fast" "$temp/moved"
# shellcheck disable=SC2086
"$skein" train $job layout="dp=2 zero=3 offload=all:file" train.steps=5 resume=auto run="$temp/moved" >"$temp/said" 2>&1 ||
    fail "resumed behind a file: $(tail -3 "$temp/said")"

# reports
refused() { # words of the report, arguments
    local report=$1
    shift
    # shellcheck disable=SC2086
    if "$skein" train $job "$@" run="$temp/no" >"$temp/said" 2>&1; then fail "not refused: $*"; fi
    grep -q "$report" "$temp/said" || fail "another report for $*: $(cat "$temp/said")"
}
refused "cannot open a file there" layout="$away" train.scratch="$temp/nowhere"
refused "leave out .offload" layout="offload=state" train.relayout="2: offload=none"
refused "say offload=state" layout=dp=2 optim.late=1

for command in "bench step --steps 1" "simulate --cluster here"; do # which open files too
    # shellcheck disable=SC2086
    if "$skein" $command $shape layout="$away" train.scratch="$temp/nowhere" >"$temp/said" 2>&1; then
        fail "$command does not look at train.scratch"
    fi
    grep -q "cannot open a file there" "$temp/said" || fail "another report of $command: $(cat "$temp/said")"
done
"$skein" import "$temp/near-fast/final" optim.late=1 run="$temp/brought" >"$temp/said" 2>&1 || fail "import: $(cat "$temp/said")"

# nothing is left behind, even by a kill
# shellcheck disable=SC2086
"$skein" train $job layout="$away" train.steps=100000 run="$temp/killed" >/dev/null 2>&1 &
pid=$!
for _ in {1..100}; do
    grep -q '"step":3,' "$temp/killed/metrics.jsonl" 2>/dev/null && break
    sleep 0.1
done
kill -9 "$pid"
wait "$pid" 2>/dev/null || true
[ -z "$(find "$temp/killed" -name '.offload*')" ] || fail "a killed run left its file"
echo "offload: weights of $weights bytes behind a pool of $pool, same bits in both orders"
