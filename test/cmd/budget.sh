#!/bin/bash
# budget.sh - budget= finds a way that fits whenever there is one.
#
# Models drawn at random (two, with SKEIN_LONG twenty): every level of sharding with every recomputation and number
# of slices, and all that can be offloaded, is planned by its own words, and so the bytes of all ways are known.
# A budget of any of them must be met, without offload if that is possible; one byte less than the least of all
# must be refused with that number.  One of the jobs is run, too.
set -eu
cd "$(dirname "$0")/../.."
skein=$(realpath "${SKEIN:-build/release/skein}")
temp=$(mktemp -d)
trap 'rm -rf "$temp"' EXIT
export XDG_CONFIG_HOME=$temp # no machine but the preset
RANDOM=7
pick() { echo $(($1 + RANDOM % ($2 - $1 + 1))); }
fail() { echo "$*" && exit 1; }

total() { awk -F, 'NR > 1 && $12 > most { most = $12 } END { print most }'; }

found=0 refused=0
for ((i = 0; i < ${SKEIN_LONG:+18} + 2; i++)); do
    heads=$(pick 1 4) layers=$(pick 1 7)
    model="model=$([ $((i % 2)) = 0 ] && echo llama-tiny || echo tiny) model.num_hidden_layers=$layers
        model.num_attention_heads=$heads model.num_key_value_heads=$heads
        model.hidden_size=$((heads * 2 * $(pick 2 12))) train.batch=$(pick 2 9) train.seq=$(pick 4 60)"
    base=$([ $((i % 3)) = 0 ] && echo "pp=2 dp=2 micro=2" || echo "dp=$(pick 2 4)")
    : >"$temp/bytes"
    : >"$temp/away"
    # shellcheck disable=SC2086  # words
    plan() { "$skein" plan $model layout="$base $*" -o csv | total; }
    for zero in 0 1 2 3; do
        for slices in 1 4 16; do
            for again in none selective 1 2 4 full; do
                plan "zero=$zero slices=$slices recompute=$again" >>"$temp/bytes"
            done
        done
        for away in state state+grads state+grads+acts all; do
            for more in "" slices=16 recompute=full "slices=16 recompute=full"; do
                plan "zero=$zero offload=$away $more" >>"$temp/away"
            done
        done
    done
    sort -n "$temp/bytes" >"$temp/sorted"
    for at in 1 19 43 72; do
        budget=$(sed -n ${at}p "$temp/sorted")
        # shellcheck disable=SC2086
        got=$("$skein" plan $model layout="$base" budget="$budget" -o csv | total)
        [ "$got" -le "$budget" ] || fail "$model, $base: $got bytes for a budget of $budget"
        found=$((found + 1))
    done
    awk -v least="$(sed -n 1p "$temp/sorted")" '$1 < least' "$temp/away" | sort -n >"$temp/less"
    [ -s "$temp/less" ] || fail "$model, $base: offload makes nothing less"
    for at in 1 $(($(wc -l <"$temp/less") / 2 + 1)); do
        budget=$(sed -n ${at}p "$temp/less")
        # shellcheck disable=SC2086
        got=$("$skein" plan $model layout="$base" budget="$budget" -o csv | total)
        [ "$got" -le "$budget" ] || fail "$model, $base: $got bytes for a budget of $budget, offloaded"
        found=$((found + 1))
    done
    least=$(sed -n 1p "$temp/less")
    # shellcheck disable=SC2086
    if "$skein" plan $model layout="$base" budget=$((least - 1)) >/dev/null 2>"$temp/err"; then
        fail "$model, $base: $least bytes are the least, and one less was said to fit"
    fi
    grep -q "the smallest of .* options needs" "$temp/err" || fail "another report: $(cat "$temp/err")"
    refused=$((refused + 1))
done

# blocks of a stage are counted over its chunks: each of four more is less memory
before=
for again in none 1 2 3 4; do
    bytes=$("$skein" plan model=tiny model.num_hidden_layers=8 train.batch=8 train.seq=24 -o csv \
        layout="pp=2 micro=4 schedule=interleaved chunks=2 recompute=$again" | total)
    [ -z "$before" ] || [ "$bytes" -lt "$before" ] ||
        fail "chunks: recompute=$again needs $bytes bytes, one block less $before"
    before=$bytes
done

# a run that changes its program has all on the device, so no budget offers it less
for words in "layout=dp=2 gist=60" "layout=dp=2|train.dropless=1" "layout=dp=2|train.relayout=2: dp=2"; do
    IFS='|' read -ra more <<<"$words"
    if "$skein" plan model=switch-tiny model.num_hidden_layers=4 train.batch=8 train.seq=64 "${more[@]}" \
        budget=1300KiB >"$temp/said" 2>&1; then fail "$words: 1300 KiB were enough"; fi
    grep -q "the smallest of .* options needs" "$temp/said" || fail "$words: another report: $(cat "$temp/said")"
    if grep -q "offload" "$temp/said"; then fail "$words: $(cat "$temp/said")"; fi
done

job="model=tiny model.num_hidden_layers=4 data.train=$temp/text train.steps=4 val.every=0 sample.every=0 log.every=0"
for _ in {1..200}; do echo "Sums that fit are sums that run."; done >"$temp/text"
# shellcheck disable=SC2086
"$skein" train $job layout=dp=2 run="$temp/free" >/dev/null 2>&1
# shellcheck disable=SC2086
"$skein" train $job layout=dp=2 budget=1600KiB run="$temp/tight" >"$temp/said" 2>&1 ||
    fail "a run with a budget: $(tail -3 "$temp/said")"
grep -q "recompute" "$temp/said" || fail "the run does not say what it makes again: $(cat "$temp/said")"
losses() { grep -o '"loss":[0-9.]*' "$1/metrics.jsonl"; }
paste <(losses "$temp/free") <(losses "$temp/tight") | tr -d '":a-z' |
    awk '{ d = $1 - $2; if (d < 0) d = -d; if (d > 1e-5 * $1) exit 1 }' || fail "other losses"
echo "budget: $found met, $refused refused with the least"
