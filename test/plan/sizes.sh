#!/bin/bash
# sizes.sh - no number from outside is too much: it is taken, or refused in a sentence, at once.
#
# Every key with a number, as the help lists them, and every word of a layout with one, is set to half (with SKEIN_LONG all) of
# 0, -1, 2^31, 2^63-1, 2^63, 1e300, nan and nothing.  What is no number of this kind is refused
# (64 on the command line, 78 in a layout); all end within seconds, in little memory, with one
# sentence, and never as a fault of skein (70, a signal).
# shellcheck source=test/lib/runs.sh
. "$(dirname "$0")/../lib/runs.sh"
limit=3000000 # KiB; of a build with a sanitizer, which maps far more, none
(ulimit -v $limit && "$skein" list model >/dev/null 2>&1) || limit=unlimited

cases=0 wrong=0
bad() {
    echo "$*"
    wrong=$((wrong + 1))
}

# Codes that may come out, command
ends() {
    local codes=$1 rc=0 said
    shift
    cases=$((cases + 1))
    (ulimit -v $limit && exec timeout 30 "$skein" "$@") >out 2>err </dev/null || rc=$?
    said=$(grep -c '^skein: ' err || true)
    [[ " $codes " = *" $rc "* ]] || bad "skein $*: exit code $rc, one of $codes is needed: $(head -n 3 err)"
    [ "$rc" = 0 ] || [ "$said" = 1 ] || bad "skein $*: not one sentence: $(cat err)"
}

# Keys whose default is a number, a time or bytes, or such of every optimizer: "adamw 0.001; lamb 0.002".
keys() {
    "$skein" explain --help | awk '
        /^  [a-z]/ { if (line) print line; line = $0; next }
        /^   / { line = line " " $0; next }
        { if (line) print line; line = "" }
        END { if (line) print line }' | awk '/\(([a-z][-a-z]* )?-?[0-9][-a-z0-9.,; ]*\)$/ { print $1 }'
}

all=$(keys)
[ "$(wc -w <<<"$all")" -ge 25 ] || bad "only these keys have numbers: $all"
n=0
due() { [ $((n++ % 2)) = 0 ] || [ -n "${SKEIN_LONG:-}" ]; } # every second value, others with the next key; with SKEIN_LONG all
for key in $all; do
    n=$((n + 1))
    for value in nan 1e300 9223372036854775808 ""; do
        ! due || ends "64" plan model=tiny "$key=$value"
    done
    for value in 0 -1 2147483648 9223372036854775807; do
        ! due || ends "0 64 78" plan model=tiny "$key=$value"
    done
done

# ---- words of a layout
for word in pp dp cp ep tp micro chunks overlap slices prefetch tiles copy gist zero; do
    n=$((n + 1))
    for value in -1 2147483648 9223372036854775807 9223372036854775808 1e300 nan inf ""; do
        ! due || ends 78 plan model=llama-tiny layout="$word=$value"
    done
    ends "0 78" plan model=llama-tiny layout="$word=0"
    ends "0 78" plan model=llama-tiny layout="$word=1048576"
done
for sentence in "mesh a=N" "mesh a=2; split b over a; micro N" "mesh a=2; stages over a micro N" \
    "mesh a=2; split f over a; overlap in N turns" "results in N slices" "recompute N blocks" \
    "encode kept results in N percent" "mesh a=2; split b over a; shard params over a; gather weights N ahead"; do
    for value in -1 9223372036854775807 nan; do
        ends 78 plan model=llama-tiny layout="${sentence/N/$value}"
    done
done

# ---- each is a number that may be, and together they are too much
big=(model=llama-tiny train.seq=64)
ends 78 plan model=llama-tiny train.batch=1000000000 train.seq=1000000000
ends 78 plan "${big[@]}" train.batch=1000000000 train.micro_batch=1
ends 78 plan "${big[@]}" layout="pp=64 chunks=64 schedule=interleaved micro=4096"
ends 78 plan model=llama-7b train.batch=4096 layout="micro=4096"
ends 78 plan "${big[@]}" train.batch=1000000 layout="tp=2 overlap=1000000"
ends 78 plan "${big[@]}" train.batch=1000000 layout="slices=1000000"
few=500000 # KiB: slices are counted before anything is made of them
[ $limit != unlimited ] || few=unlimited
limit=$few ends 78 plan model=llama-7b train.batch=64 train.seq=4096 layout="slices=4096 micro=64"
limit=$few ends 78 simulate model=gpt2 train.batch=64 train.seq=1024 layout="slices=4096 micro=64"
limit=$few ends 78 train model=gpt2 data.train=text train.batch=64 train.seq=1024 layout="pp=2 slices=4096 micro=64"
ends 0 plan model=tiny train.batch=64 layout="slices=4096 micro=64" # 122,910 instructions are not too many
ends 78 train "${big[@]}" data.train=text layout="dp=1024 tp=1024"
ends "65 74" train "${big[@]}" data.train=text train.batch=1000000000
ends 64 train "${big[@]}" -n 9223372036854775807
ends 64 train "${big[@]}" -n 0

# ---- stages without layers, more stages than micro-batches: they run
ends 0 train model=tiny data.train=text train.batch=12 train.seq=12 train.steps=1 layout=pp=10 run=ten
ends 0 plan model=tiny layout="pp=64 micro=1"
ends 0 plan model=tiny layout="pp=70 micro=1"

echo "$cases cases, $wrong wrong"
[ $wrong = 0 ]
