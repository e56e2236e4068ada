#!/bin/bash
# search.sh - is the layout that a search finds as fast as the best of a measured list?
#
#     bench/search.sh [--models N] [--first I] [--steps N] [--rounds N] [--time S]
#
# Small models drawn at random (20; the I-th is the same everywhere) on 2 to 4 ranks of this host.  For each, `skein
# plan --search` finds a layout by the prices of this host (calibrate first: skein bench coll --calibrate), and
# `skein bench step --layouts all` measures every product of dp, tp, pp and zero.  Then the two, the one found and the
# fastest of the list, are measured in turns; of each the fastest turn counts.  A line a model: ranks, layouts, both
# times and their ratio.  After S seconds (600) no other model is begun.  Exit code 1: a ratio is over 1.05.
#
# Take it on a quiet machine: where others share the cores even equal layouts differ by more.
set -eu
cd "$(dirname "$0")/.."
skein=$(realpath "${SKEIN:-build/release/skein}")
models=20 first=1 steps=20 rounds=5 time=600
while (($#)); do
    case $1 in
        --models) models=$2 ;;
        --first) first=$2 ;;
        --steps) steps=$2 ;;
        --rounds) rounds=$2 ;;
        --time) time=$2 ;;
        *) sed -n '2,13s/^# \{0,1\}//p' "$0"; exit 64 ;;
    esac
    shift 2
done

# The I-th model: sizes that ranks divide, and some that they do not.
draw() {
    RANDOM=$((1000 + $1))
    local parts=(gpt2 llama-tiny qwen2-tiny) heads=$((2 << RANDOM % 2)) width=$((32 << RANDOM % 3))
    ranks=$((2 + RANDOM % 3))
    job=(model="${parts[RANDOM % 3]}" model.num_hidden_layers=$((2 + RANDOM % 4)) model.hidden_size="$width"
        model.num_attention_heads="$heads" model.intermediate_size=$((width * (2 + RANDOM % 3)))
        model.vocab_size=$((256 << RANDOM % 4)) train.seq=$((32 << RANDOM % 3)) train.batch=$((12 * (1 + RANDOM % 3)))
        train.threads=1)
    [[ ${job[0]} == model=gpt2 ]] || job+=(model.num_key_value_heads="$heads")
}

# Milliseconds of a step, from the line of `bench step`.
measure() {
    "$skein" bench step "${job[@]}" -n "$ranks" --layout "$1" --steps "$steps" -o csv 2>/dev/null |
        awk -F, 'NR == 2 {print $4}'
}

faster() { awk -v a="$1" -v b="$2" 'BEGIN {print (b == "" || a + 0 < b + 0) ? a : b}'; }

bad=0 told=0
for ((i = first; i < first + models && SECONDS < time; i++)); do
    draw "$i"
    found=$("$skein" plan "${job[@]}" -n "$ranks" --search 160 -o csv | awk -F, 'NR == 2 {print $1}')
    list=$("$skein" bench step "${job[@]}" -n "$ranks" --layouts all --steps "$steps" -o csv 2>/dev/null)
    best=$(awk -F, 'NR > 1 && $4 > 0 && (!t || $4 < t) {t = $4; l = $1} END {print l}' <<<"$list")
    a='' b=''
    for ((k = 0; k < rounds; k++)); do
        a=$(faster "$(measure "$found")" "$a")
        b=$(faster "$(measure "$best")" "$b")
    done
    ratio=$(awk -v a="$a" -v b="$b" 'BEGIN {printf "%.3f", a / b}')
    mark=$(awk -v r="$ratio" 'BEGIN {print r > 1.05 ? "<<" : ""}')
    told=$((told + 1)) bad=$((bad + (${#mark} > 0)))
    printf '%2d  %d ranks  %s: found %s, %.4g ms; best of %d %s, %.4g ms; ratio %s %s\n' "$i" "$ranks" "${job[0]#model=}" \
        "$found" "$a" "$(($(wc -l <<<"$list") - 1))" "$best" "$b" "$ratio" "$mark"
done
echo "$((told - bad)) of $told models within 5 %"
exit $((bad > 0))
