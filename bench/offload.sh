#!/bin/bash
# offload.sh - how much of the copies between memories is hidden behind work.
#
#     bench/offload.sh [STEPS]
#
# A model whose weights are over four times its device's pool, with everything it keeps in the host's memory or
# in a file, many micro-batches a step, beside the same model with memory for all.  One row a way: bytes of the
# device, seconds a step (median; the first step is left out), copies a step, and the part of them that the rank did
# not wait for.
set -eu
cd "$(dirname "$0")/.."
skein=$(realpath "${SKEIN:-build/release/skein}")
steps=${1:-5}
temp=$(mktemp -d)
trap 'rm -rf "$temp"' EXIT
for i in {1..3000}; do echo "Line $i: what does not fit is brought when it is needed."; done >"$temp/text"
job="model=llama-tiny model.hidden_size=256 model.intermediate_size=768 model.num_hidden_layers=40
    model.num_attention_heads=4 model.num_key_value_heads=4 data.train=$temp/text train.batch=12 train.seq=256
    train.threads=1 val.every=0 sample.every=0 log.every=0 train.steps=$steps"
ways=(none state all all:file "all:file prefetch=2")

for i in "${!ways[@]}"; do
    # shellcheck disable=SC2086  # words
    "$skein" train $job layout="micro=12 recompute=full offload=${ways[i]}" run="$temp/$i" >/dev/null 2>&1
    awk -v way="${ways[i]}" -F'[:,]' '
        function of(key,  k) { for (k = 1; k < NF; k++) if ($k == "\"" key "\"") return $(k + 1) + 0 }
        /"loss"/ && ++n > 1 { ms[n - 1] = of("ms"); copy += of("copy_ms"); hid += of("copy_ms") * of("copy_hidden_pct"); mem = of("mem_bytes") }
        END {
            for (i = 1; i < n; i++) for (j = i + 1; j < n; j++) if (ms[j] < ms[i]) { t = ms[i]; ms[i] = ms[j]; ms[j] = t }
            printf "%-20s %11d bytes of the device  %6.2f s a step  %6.2f s of copies", way, mem, ms[int(n / 2)] / 1e3, copy / (n - 1) / 1e3
            if (copy) printf "  %5.1f %% hidden", hid / copy
            print ""
        }' "$temp/$i/metrics.jsonl"
done
