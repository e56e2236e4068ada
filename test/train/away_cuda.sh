#!/bin/bash
# away_cuda.sh - on a GPU: what lives in the host's memory or in a file trains as if it did not.
#
# Losses of twelve steps of a small model with state, weights, gradients and results outside of the
# GPU, in tiles, behind a file, are those of the run that has all on it; the pool is what the plan
# says; copies are told.  An optimizer that is late is held against the same on the CPU.
set -eu
cd "$(dirname "$0")/../.."
[ -n "${SKEIN_FAKE:-}" ] || nvidia-smi -L >/dev/null 2>&1 || { echo "there is no GPU here"; exit 77; }
skein=$(realpath "${SKEIN:-build/release/skein}")
temp=$(mktemp -d)
trap 'rm -rf "$temp"' EXIT
export XDG_CONFIG_HOME=$temp
export SKEIN_FUSE=none # what is joined on a GPU rounds less often, and copies stand between neighbours
fail() { echo "$*" && exit 1; }
"$skein" train model=tiny device=cuda data.train=README.md train.steps=1 train.batch=1 train.seq=16 run="$temp/first" >"$temp/said" 2>&1 ||
    ! grep -q "built without CUDA" "$temp/said" || { echo "this skein was built without CUDA"; exit 77; }

shape="model=${SKEIN_AWAY_MODEL:-nano} train.batch=8 train.seq=128"
job="$shape data.train=$temp/text train.steps=12 val.every=6 sample.every=0 log.every=0 optim.warmup=2 optim.lr=1e-4 ckpt.every=0"

# Random words, all alike, and a small rate: no batch whose loss jumps, where bf16 is not near itself.
awk 'BEGIN {
    n = split("the a one two rank step loss layer weight moves reads writes waits sends sums turns holds takes", w, " ")
    for (x = 1; i < 60000; i++) {
        x = (x * 69069 + 1) % 4294967296
        printf "%s%s", w[1 + int(x / 65536) % n], i % 12 == 11 ? ".\n" : " "
    }
}' >"$temp/text"

# name, then words: one run on the GPU
run() {
    local name=$1
    shift
    # shellcheck disable=SC2086  # words
    "$skein" train $job device=cuda "$@" run="$temp/$name" >"$temp/said" 2>&1 ||
        fail "$*: $(tail -3 "$temp/said")"
    grep -q "^check .* planned = " "$temp/said" || fail "$*: planned is not mapped: $(grep "^check" "$temp/said")"
}
losses() { grep -o '"loss":[-0-9.e+]*' "$temp/$1/metrics.jsonl" | cut -d: -f2; }

# two runs, and how far apart their losses may be
near() {
    paste <(losses "$1") <(losses "$2") | awk -v by="$3" '
        { d = $1 / $2 - 1; if (d < 0) d = -d; if (d > most) most = d; n++ }
        END { if (n < 12 || most > by) { printf "%d losses, %g apart\n", n, most; exit 1 } }' ||
        fail "$1 has other losses than $2: $(losses "$1" | tail -1), $(losses "$2" | tail -1)"
}

for type in f32 bf16; do
    by=$([ $type = f32 ] && echo 1e-6 || echo 2e-3)
    far=$([ $type = f32 ] && echo 2e-5 || echo 2e-3) # where the host rounds otherwise, or sums are cut
    run plain-$type train.dtype=$type layout="micro=2"
    for way in state weights grads acts all all:file state:file+acts "all tiles=4" "all:file prefetch=2" "all recompute=full"; do
        name=$type-${way// /-}
        run "$name" train.dtype=$type layout="micro=2 offload=$way"
        case $way in
        weights | grads | acts) near "$name" plain-$type "$by" ;;
        *) near "$name" plain-$type "$far" ;;
        esac
        grep -q '"copy_ms":[0-9.e+-]*,"copy_hidden_pct":[0-9.e+-]*' "$temp/$name/metrics.jsonl" || fail "$way: no word of copies"
    done
    # the same late optimizer, whose factors and gradients come from a CPU
    # shellcheck disable=SC2086
    "$skein" train $job train.dtype=$type device=cpu optim.late=1 layout="micro=2 offload=state" run="$temp/cpu-$type" >"$temp/said" 2>&1 ||
        fail "late on the CPU: $(tail -3 "$temp/said")"
    for way in state state+grads all; do
        run "late-$type-$way" train.dtype=$type optim.late=1 layout="micro=2 offload=$way"
        near "late-$type-$way" "cpu-$type" "$([ $type = f32 ] && echo 1e-3 || echo 2e-2)"
    done
done
run lamb optim.name=lamb layout="micro=2"
run lamb-all optim.name=lamb layout="micro=2 offload=all"
near lamb-all lamb 1e-5

# a checkpoint of what lies in three memories, and on from there
run whole layout="micro=2 offload=all:file" ckpt.every=6
cp -r "$temp/whole" "$temp/half"
rm -rf "$temp/half/final" "$temp/half/ckpt/step-0000000012"
run half layout="micro=2 offload=all:file" ckpt.every=6 resume=auto
cmp "$temp/whole/final/model.safetensors" "$temp/half/final/model.safetensors" || fail "another model after resuming"

# less of the GPU, and as much as the plan says
# shellcheck disable=SC2086
device_bytes() { "$skein" plan $shape device=cuda layout="micro=2 $1" -o csv | awk -F, 'NR == 2 { print $12 }'; }
[ "$(device_bytes offload=all)" -lt "$(device_bytes offload=state)" ] || fail "all outside takes more than state outside"
[ "$(device_bytes offload=state)" -lt "$(device_bytes offload=none)" ] || fail "state outside takes more than nothing"
echo "away: losses of $(find "$temp" -name metrics.jsonl | wc -l) runs agree"
