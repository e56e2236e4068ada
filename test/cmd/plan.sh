#!/bin/bash
# plan.sh - what `skein plan` says is what every rank maps, to the byte, kind by kind.
set -eu
skein=${SKEIN:-build/release/skein}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
seq 1 4000 >"$work/text"
rows=0

# plan.csv has one line for each class of ranks, and how many they are: the numbers of all of them.
planned() {
    awk -F, 'NR == 1 { for (i = 1; i <= NF; i++) name[i] = $i; next }
             { for (i = 1; i <= NF; i++) if (name[i] == "host_bytes") host = $i
               for (r = 0; r < $2; r++) for (i = 1; i <= NF; i++)
                   if (name[i] ~ /_bytes$/ && name[i] != "sent_bytes")
                       print substr(name[i], 1, length(name[i]) - 6) "," $i + (name[i] == "total_bytes" ? host : 0) }' "$1" | sort
}

# memory.csv has a line for each rank and kind, and what was mapped: of the device and of the host.
mapped() { awk -F, 'NR > 1 { print ($2 == "mapped" ? "total" : $2) "," $4 }' "$1" | sort; }

for layout in "dp=1" "dp=2" "tp=2 micro=2" "pp=2 micro=3" "dp=2 zero=1" "dp=2 zero=2" \
    "dp=2 zero=3 micro=2" "dp=2 tp=3" "dp=2 tp=2 pp=2 zero=3 micro=2" "dp=3 replica" \
    "dp=2 tp=2 pp=2 zero=2 micro=2 replica" "dp=2 zero=2 offload=all" "tp=2 offload=state:file+acts"; do
    words=(model=tiny "data.train=$work/text" train.batch=5 train.seq=32 train.steps=1
        "layout=$layout" sample.every=0 val.every=0)
    "$skein" plan "${words[@]}" -o csv >"$work/plan.csv"
    "$skein" train "${words[@]}" run="$work/run" >"$work/out" 2>&1 || {
        cat "$work/out"
        exit 1
    }
    planned "$work/plan.csv" >"$work/planned"
    mapped "$work/run/memory.csv" >"$work/mapped"
    diff "$work/planned" "$work/mapped" || {
        echo "plan: layout $layout maps something else than planned"
        exit 1
    }
    rows=$((rows + $(wc -l <"$work/planned")))
    rm -rf "$work/run"
done
echo "plan: $rows numbers on 13 layouts, planned = mapped"
[ "$rows" -gt 200 ]

# The workspace of attention's gradient on a GPU is part of the plan: a square of t x t in 16 bits for a head.
workspace() { # time
    "$skein" plan model=llama-tiny model.num_hidden_layers=1 model.hidden_size=64 model.num_attention_heads=1 \
        model.num_key_value_heads=1 model.vocab_size=64 model.max_position_embeddings=200000 train.batch=1 train.seq="$1" \
        train.dtype=bf16 device=cuda val.every=0 -o csv |
        awk -F, -v t="$1" 'NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i } NR == 2 { printf "%.2f\n", $at["activations_bytes"] / (2 * t * t) }'
}
for t in 16384 32768 65536; do
    squares=$(workspace $t)
    awk -v x="$squares" 'BEGIN { exit !(x > 1 && x < 1.1) }' || { echo "plan: $squares squares of $t x $t"; exit 1; }
done

# explain tells the memory of plan, also of a rank whose class another one stands for, and with a second program.
words=(model=tiny model.num_hidden_layers=13 train.batch=1 train.seq=5 optim.clip=0
    layout="zero=3 gist=5 slices=2 dp=7 micro=5")
for rank in 0 5; do
    planned=$("$skein" plan "${words[@]}" -o csv 2>/dev/null | awk -F, 'NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i } NR == 2 { print $at["scratch_bytes"] }')
    said=$("$skein" explain "${words[@]}" --rank $rank 2>/dev/null | awk '$1 == "memory" && $2 == "scratch" { print $3 }')
    [ "$said" = "$planned" ] || { echo "plan: scratch of rank $rank is $planned bytes, explain says $said"; exit 1; }
done

# Fragments of stream take turns in the same memory, which is counted once.
lost=$("$skein" plan model=tiny train.batch=8 layout="dp=2 sync=stream:8" | sed -n 's/^peak .*packing loses \(-*\).*/\1/p')
[ -z "$lost" ] || { echo "plan: more results than memory at the peak"; exit 1; }

# Sequence parallelism beside context parallelism gathers along tp alone: cp sends what it does without it.
sent() { "$skein" plan model=gpt2 train.batch=8 train.seq=1024 val.every=0 layout="$1" -o csv | awk -F, 'NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i } NR == 2 { print $at["sent_bytes"] }'; }
[ "$(sent "cp=4 tp=4 sp")" -lt $(($(sent "cp=4 tp=4") * 5 / 4)) ] || { echo "plan: cp=4 tp=4 sp sends $(sent "cp=4 tp=4 sp") bytes"; exit 1; }
# Gradients that are summed over two axes wait for each other behind the backward pass, not in it.
"$skein" explain model=tiny train.batch=8 train.seq=16 val.every=0 layout="dp=2 tp=2 sp zero=1" comm.bucket=64KiB |
    awk '/ op / { last = NR } /start .*all-reduce over tp: grads/ { n++; if (!first) first = NR } END { exit !(n == 1 && first > last) }' ||
    { echo "plan: gradients of norms are summed over tp within the backward pass"; exit 1; }

# Where the first steps send gradients, and those after them something else, both are said.
first() { "$skein" plan model=tiny train.batch=8 train.seq=16 val.every=0 train.steps=50 "$@" | grep ^sends || true; }
plain=$("$skein" plan model=tiny train.batch=8 train.seq=16 val.every=0 layout=dp=2 | awk '/^ +0 / { printf "%.1f KiB\n", $14 / 1024 }')
[ "$(first layout="dp=2 sync=postlocal:4@15")" = "sends     $plain a rank in step 1, 34.9 KiB on average from step 16 on (in the table)" ] ||
    { echo "plan: postlocal: $(first layout="dp=2 sync=postlocal:4@15"), plain: $plain"; exit 1; }
[[ "$(first layout=dp=2 optim.name=onebit-adam optim.freeze_step=15)" = *" from step 16 on "* ]] || { echo "plan: onebit-adam"; exit 1; }
[[ "$(first layout=dp=2 optim.name=zeroone-adam)" = *" in the long run "* ]] || { echo "plan: zeroone-adam"; exit 1; }
[ -z "$(first layout=dp=2)$(first layout="dp=2 sync=local:4")$(first layout=dp=1 optim.name=onebit-adam)" ] || { echo "plan: first steps are as all"; exit 1; }
"$skein" explain model=tiny train.batch=8 layout=dp=2 optim.name=onebit-adam | grep -q 'all-to-all over dp: momentum from .* after step 100000' ||
    { echo "plan: explain of onebit-adam does not say that momentum is sent"; exit 1; }

# Ranks that differ only in what they own are planned once: compile time goes with the classes.
classes=$("$skein" plan model=llama-7b layout="pp=8 dp=128 tp=8 zero=3" train.batch=1024 |
    sed -n 's/.* · \([0-9]*\) class[es]* of ranks$/\1/p')
echo "plan: 8192 ranks are of $classes classes"
[ "$classes" = 32 ]
