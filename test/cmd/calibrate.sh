#!/bin/bash
# calibrate.sh - skein calibrate: a file that says what was measured, is read everywhere, and fits the job it
# was made of; on a processor and with a fake GPU (lib/fake_gpu.h), whose path through the device is the same.
#
# Times are those of a host on which other tests run: bounds are wide.
# shellcheck disable=SC2015,SC2086  # fail ends the script; words
set -eu
skein=$(realpath "${SKEIN:-build/release/skein}")
faked=$(realpath "${SKEIN_FAKED:-build/release/skein_fake}")
[ -x "$skein" ] || { echo "there is no $skein"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
export XDG_CONFIG_HOME=$work/config XDG_CACHE_HOME=$work/cache TMPDIR=$work
fail() { echo "calibrate: $*" && exit 1; }

refused() { # words of the sentence, the command line
    local words=$1
    shift
    if "$skein" calibrate "$@" >out 2>err; then fail "$* was accepted"; fi
    grep -q -- "$words" err || fail "$*: $(cat err)"
}
refused 'is no key=value' model=tiny nonsense
refused '\-\-seconds is "0"' --seconds 0
refused 'neither a file nor' model=tiny --like h9000
refused "has 2 ranks" model=tiny layout=dp=2

# Rows of a table that was written: what, then how many.
rows() { awk -F, -v what="$1" '$1 == what' "$2" | wc -l; }
key() { awk -F': ' -v key="$1" '$1 == key { print $2 }' "$2"; }
least() { # file, key, least
    awk -v x="$(key "$2" "$1")" -v least="$3" 'BEGIN { exit !(x + 0 >= least) }' || fail "$1: $2 is $(key "$2" "$1")"
}

job="model=demo train.batch=4 train.seq=64"
# shellcheck disable=SC2086  # words
timeout 200 "$skein" calibrate $job --seconds 3 -o csv >cpu.csv 2>err || fail "$(cat err)"
file=config/skein/machine.txt
[ -s $file ] || fail "no $file"
grep -q "written to .*machine.txt" err || fail "$(cat err)"
[ "$(key version $file)" = 2 ] && [ "$(key per_thread $file)" = yes ] && [ "$(key collectives $file)" = chosen ] ||
    fail "$(grep -v '^op\|^product' $file)"
for k in flops_f32 flops memory_rate copy_rate host_rate; do least $file $k 1e6; done
least $file shm_tiny 1e-9
awk -v x="$(key overhead $file)" 'BEGIN { exit !(x > 0 && x < 1e-3) }' || fail "overhead $(key overhead $file)"
[ "$(rows product cpu.csv)" = "$(grep -c '^product: f32' $file)" ] || fail "products: $(cat cpu.csv)"
[ "$(rows product cpu.csv)" -ge 9 ] || fail "of the products of a GPT $(rows product cpu.csv) were measured"
for op in layernorm adamw bias_gelu xent_terms embedding any; do
    grep -q "^op: $op f32 " $file || fail "op $op was not measured: $(grep ^op $file)"
done
[ "$(grep -c '^attention_at: f32 32 64 ' $file)" = 1 ] || fail "attention: $(grep ^attention $file)"
# Elements at (m, n, k) and bytes are those of the model: the head, and the first moments of its largest matrix.
grep -q '^product: f32 256 256 128 ' $file || fail "no product of the head"
awk -F, '$1 == "job" { exit !($6 > 0.5 && $6 < 2) }' cpu.csv || fail "its own job: $(grep ^job cpu.csv)"

# It is read without being named, and is the machine of its job; a factor holds for what was measured.
# shellcheck disable=SC2086
step() { "$skein" simulate $job train.threads=1 -o csv "$@" | awk -F, '$1 == "all" { print $5 }'; }
own=$(step) named=$(step --cluster $file) preset=$(step --cluster h100-8)
[ "$own" = "$named" ] && [ "$own" != "$preset" ] || fail "simulated: $own, $named, on another machine $preset"
ran=$(awk -F, '$1 == "job" { print 1e-6 * $5 * $6 }' cpu.csv) # simulated over measured, times measured
awk -v x="$own" -v y="$ran" 'BEGIN { exit !(x / y > 0.99 && x / y < 1.01) }' || fail "simulate says $own, calibrate $ran"
fast=$("$skein" simulate $job train.threads=1 --vary flops=8x,memory_rate=8x -o csv 2>err | tail -n 1 | cut -d, -f4)
awk -v x="$own" -v y="$fast" 'BEGIN { exit !(x / y > 5 && x / y < 8.1) }' || fail "eight times as fast: $fast, not $own / 8"
# Measuring the collectives again leaves the kernels.
"$skein" bench coll --calibrate --seconds 0.5 >out 2>&1 || fail "$(cat out)"
[ "$(grep -c '^op: adamw' $file)" -ge 1 ] || fail "collectives took the kernels away"

# --- a GPU
[ -x "$faked" ] || { echo "a processor; there is no $faked"; exit 0; }
for lazy in 0 1; do
    SKEIN_FAKE_LAZY=$lazy timeout 200 "$faked" calibrate device=cuda model=tiny train.batch=2 train.seq=16 \
        train.dtype=bf16 --seconds 1 -o csv >gpu.csv 2>err || fail "device=cuda: $(cat err)"
    gpu=config/skein/machine-cuda.txt
    [ -s $gpu ] || fail "no $gpu"
    [ "$(key per_thread $gpu)" = no ] && [ "$(key collectives $gpu)" = nccl ] && [ "$(key sms $gpu)" = 132 ] ||
        fail "not like h100-8: $(grep -v '^op\|^product' $gpu)"
    for k in flops memory_rate copy_rate host_rate; do least $gpu $k 1e5; done
    least $gpu issue 1e-12
    awk -v x="$(key sustained $gpu)" 'BEGIN { exit !(x >= 0.1 && x <= 1) }' || fail "sustained: $(key sustained $gpu)"
    # what is fused on a GPU is measured as one kernel
    grep -q '^op: xent ' $gpu && grep -q '^op: norm_grad ' $gpu || fail "fusions: $(grep ^op $gpu)"
    grep -q '^product: bf16 ' $gpu && grep -q '^attention_at: bf16 16 16 ' $gpu || fail "$(cat $gpu)"
    for what in issued 'in a graph' burst sustained; do grep -q "$what" gpu.csv || fail "no $what: $(cat gpu.csv)"; done
done
[ "$(key per_thread $file)" = yes ] || fail "a GPU's numbers are in the file of the processor"
gpu_job="device=cuda model=tiny train.batch=2 train.seq=16 train.dtype=bf16"
# shellcheck disable=SC2086
a=$("$faked" simulate $gpu_job -o csv | sed -n 2p) b=$("$faked" simulate $gpu_job --cluster here -o csv | sed -n 2p)
# shellcheck disable=SC2086
c=$("$faked" simulate $gpu_job --cluster $gpu -o csv | sed -n 2p)
[ -n "$a" ] && [ "$a" = "$b" ] && [ "$a" = "$c" ] || fail "of a GPU: '$a', here '$b', of the file '$c'"
rm $gpu
# shellcheck disable=SC2086
if "$faked" simulate $gpu_job --cluster here >out 2>err; then fail "a GPU that was not measured is here"; fi
grep -q 'skein calibrate device=cuda' err || fail "$(cat err)"
echo "a processor and a fake GPU: $(rows product cpu.csv) products, $(rows op cpu.csv) ops; its own job within bounds"
