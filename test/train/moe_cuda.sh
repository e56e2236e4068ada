#!/bin/bash
# moe_cuda.sh - on a GPU: mixtures of experts in f32, bf16 and f16 learn what they learn on the CPU.
#
# Losses of ten steps of small models with every option of routers, beside those of the same run on the CPU;
# then the same in 8 bits.  SKEIN_FAKE=1 SKEIN=build/release/skein_fake walks the same runs on a fake GPU.
set -eu
cd "$(dirname "$0")/../.."
[ -n "${SKEIN_FAKE:-}" ] || nvidia-smi -L >/dev/null 2>&1 || { echo "there is no GPU here"; exit 77; }
skein=$(realpath "${SKEIN:-build/release/skein}")
temp=$(mktemp -d)
trap 'rm -rf "$temp"' EXIT
export XDG_CONFIG_HOME=$temp
fail() { echo "$*" && exit 1; }
"$skein" train model=tiny device=cuda data.train=README.md train.steps=1 train.batch=1 train.seq=16 run="$temp/first" >"$temp/said" 2>&1 ||
    ! grep -q "built without CUDA" "$temp/said" || { echo "this skein was built without CUDA"; exit 77; }

# Random words, all alike, and a small rate: no batch whose loss jumps, where bf16 is not near itself.
awk 'BEGIN {
    n = split("the a one two rank step loss layer weight moves reads writes waits sends sums turns holds takes", w, " ")
    for (x = 1; i < 60000; i++) {
        x = (x * 69069 + 1) % 4294967296
        printf "%s%s", w[1 + int(x / 65536) % n], i % 12 == 11 ? ".\n" : " "
    }
}' >"$temp/text"
job="data.train=$temp/text train.batch=4 train.seq=64 train.steps=10 val.every=0 sample.every=0 log.every=0 optim.warmup=2 optim.lr=1e-4"

run() { # device, words
    local device=$1
    shift
    rm -rf "${temp:?}/$device"
    # shellcheck disable=SC2086  # words
    "$skein" train $job device="$device" run="$temp/$device" "$@" >"$temp/said" 2>&1 || fail "$device $*: $(tail -3 "$temp/said")"
}
losses() { grep -o '"loss":[-0-9.e+]*' "$temp/$1/metrics.jsonl" | cut -d: -f2; }

runs=0
while IFS='|' read -r words; do
    for type in f32 bf16 f16; do
        by=$([ $type = f32 ] && echo 2e-5 || echo 5e-3)
        # shellcheck disable=SC2086
        run cpu train.dtype=$type $words
        # shellcheck disable=SC2086
        run cuda train.dtype=$type $words
        paste <(losses cpu) <(losses cuda) | awk -v by="$by" -v what="$type $words" '
            { d = $1 / $2 - 1; if (d < 0) d = -d; if (!(d <= most)) most = d; n++; a = $1; b = $2 }
            END { printf "%-9.8g %-9.8g %.1e  %s\n", a, b, most, what; exit !(n == 10 && most <= by) }' ||
            fail "$type $words: other losses than on the CPU"
        runs=$((runs + 2))
    done
done <<'END'
model=mixtral-tiny
model=switch-tiny
model=mixtral-nano model.num_hidden_layers=2
model=switch-nano model.num_hidden_layers=2
model=mixtral-tiny model.n_shared_experts=2 model.expert_groups=2 model.router_bias_update_speed=0.001 model.capacity_factor=1.25
model=switch-tiny model.expert_groups=2 model.router_bias_update_speed=0.001 model.dropout=0.1
model=switch-tiny train.dropless=1 model.capacity_factor=1
END
[ -n "${SKEIN_FAKE:-}" ] || run cuda model=mixtral-nano train.dtype=bf16 train.matmul=fp8
echo "moe on a GPU: losses of $runs runs agree"
