#!/bin/bash
# batches.sh - train.batch_schedule: a batch that changes at steps, or by the gradient noise scale.
#
# Samples are read one after the other whatever the batches are: at a rate of 0 the loss of a step is the
# mean of its samples, one by one.  Canonical order gives the same bits on all layouts, also where the
# layout changes; resuming anywhere in the schedule, and rolling back over a change, goes on exactly; the
# memory mapped is the memory planned; rates follow; what cannot be is refused.
set -eu
cd "$(dirname "$0")/../.."
skein=$(realpath "${SKEIN:-build/release/skein}")
faked=$(realpath "${SKEIN_FAKED:-build/release/skein_fake}" 2>/dev/null || true)
temp=$(mktemp -d)
trap 'rm -rf "$temp"' EXIT
cd "$temp"
job=(model=tiny train.seq=16 data.train=text.txt val.every=0 sample.every=0 log.every=0 train.threads=1)
steps=(train.batch_schedule="0: 4, 4: 8, 9: 2" train.steps=12)
checks=0
fail() { echo "batches: $*" && exit 1; }
for i in $(seq 300); do echo "$i times the quick brown fox jumps over the lazy dog"; done >text.txt

train() { # run directory, then more words
    local run=$1
    shift
    timeout 100 "$skein" train "${job[@]}" "$@" run="$run" >"$run.out" 2>&1 || fail "$run, $*: $(cat "$run.out")"
    grep -q 'planned = ' "$run.out" || fail "$run: maps what was not planned"
    checks=$((checks + 1))
}
rows() { grep '"loss"' "$1/metrics.jsonl" | sed -E 's/"(ms|tok_s|mfu|exposed_pct|mem_bytes)":[^,]*,//g'; }
column() { grep '"loss"' "$1/metrics.jsonl" | sed -nE "s/.*\"$2\":([^,}]*).*/\\1/p" | tr '\n' ' '; }
same() { # two run directories
    diff <(rows "$1") <(rows "$2") >&2 || fail "$2: other losses than $1"
    cmp -s "$1/final/model.safetensors" "$2/final/model.safetensors" || fail "$2: other weights than $1"
}

# --- samples
means() { # sizes of batches; losses of samples from stdin
    awk -v sizes="$1" 'BEGIN { n = split(sizes, b, " ") } { x[NR] = $1 }
        END { for (k = 1; k <= n; k++) { s = 0; for (i = 0; i < b[k]; i++) s += x[++at]; print s / b[k] } }'
}
near() { # two lists of losses
    paste -d ' ' "$1" "$2" | awk 'NF != 2 || $1 / $2 - 1 > 2e-6 || $1 / $2 - 1 < -2e-6 { print; bad = 1 } END { exit bad || !NR }' ||
        fail "$3: other samples than one by one"
}
train each train.batch=1 train.steps=62 optim.lr=0
column each loss | tr ' ' '\n' | grep . >one_by_one
train still "${steps[@]}" optim.lr=0 layout=dp=2
[ "$(column still batch)" = "4 4 4 4 8 8 8 8 8 2 2 2 " ] || fail "batches are $(column still batch)"
[ "$(column still tokens)" = "64 128 192 256 384 512 640 768 896 928 960 992 " ] || fail "tokens: $(column still tokens)"
means "4 4 4 4 8 8 8 8 8 2 2 2" <one_by_one >want
column still loss | tr ' ' '\n' | grep . >is
near want is "dp=2"
[ "$(grep -c '^phase     from step' still.out)" = 2 ] || fail "changes are not told"
[ "$(grep -c '^{"step":[0-9]*,"batch":[0-9]*}$' still/metrics.jsonl)" = 2 ] || fail "changes are not in the metrics"

# --- layouts, and a layout that changes too
exact=("${steps[@]}" order=canonical ckpt.every=3 ckpt.keep=0)
train whole "${exact[@]}"
for layout in dp=2 "dp=2 zero=3" tp=2 "pp=2 micro=2" "dp=2 recompute=full"; do
    rm -rf two
    train two "${exact[@]}" layout="$layout"
    same whole two
done
rm -rf two
train two "${exact[@]}" layout=dp=2 train.relayout="2: tp=2, 4: dp=2 zero=1, 6: pp=2 micro=2, 11: dp=2"
same whole two
[ "$(grep -c '^phase     from step' two.out)" = 5 ] || fail "relayout: phases are not told: $(cat two.out)"
if [ -x "$faked" ]; then
    real=$skein skein=$faked
    train gpu "${exact[@]}" device=cuda
    skein=$real
    [ "$(column gpu batch)" = "$(column whole batch)" ] || fail "other batches on a GPU"
fi

# --- what is mapped is what was planned
"$skein" plan "${job[@]}" "${steps[@]}" layout=dp=2 -o csv >plan.csv
awk -F, 'NR == FNR && FNR == 1 { for (i = 1; i <= NF; i++) if ($i == "total_bytes") col = i }
         NR == FNR { plan[$3] = $col; next }
         $2 == "mapped" { if (plan[$1] != $4) wrong = 1; ranks++ }
         END { exit wrong || ranks != 2 }' plan.csv still/memory.csv || fail "the plan is not what was mapped"

# --- resumed anywhere
for at in 3 6 9; do
    cp -r whole "from$at"
    find "from$at/ckpt" -maxdepth 1 -name 'step-*' | sort | tail -n +$((at / 3 + 1)) | xargs rm -rf
    rm -rf "from$at/final"
    train "from$at" --resume "${exact[@]}" layout=dp=2
    same whole "from$at"
done
# Without the schedule the run goes on behind the samples that were read.
cp -r still plain
find plain/ckpt -maxdepth 1 -name 'step-*' | sort | head -n -1 | xargs -r rm -rf
train plain --resume train.batch_schedule= train.batch=2 train.steps=14 optim.lr=0
column plain loss | tr ' ' '\n' | grep . | tail -n 2 >is
train more train.batch=1 train.steps=66 optim.lr=0
column more loss | tr ' ' '\n' | grep . | tail -n 4 | means "2 2" >want
near want is "resumed without the schedule"

# --- rolled back over a change: the batch of the step that failed is skipped, no other sample is
SKEIN_FAULT=nan:6:0 train back "${steps[@]}" optim.lr=0 train.nonfinite=rollback ckpt.every=3 ckpt.keep=0
grep -q 'roll back to the checkpoint of step 3 and skip batch 6' back.out || fail "no rollback: $(cat back.out)"
train long train.batch=1 train.steps=70 optim.lr=0
column long loss | tr ' ' '\n' | grep . | sed '25,32d' | means "4 4 4 4 8 8 8 8 8 2 2 2" >want
column back loss | tr ' ' '\n' | grep . >is
near want is rollback

# --- rates
for s in none sqrt linear; do train "rate-$s" "${steps[@]}" optim.schedule=constant optim.warmup=0 optim.lr=0.001 optim.batch_scaling=$s; done
[ "$(column rate-none lr)" = "$(printf '0.001 %.0s' {1..12})" ] || fail "none: $(column rate-none lr)"
[ "$(column rate-linear lr)" = "0.001 0.001 0.001 0.001 0.002 0.002 0.002 0.002 0.002 0.0005 0.0005 0.0005 " ] || fail "linear: $(column rate-linear lr)"
[[ "$(column rate-sqrt lr)" = *"0.00141421356 0.000707106781 "* ]] || fail "sqrt: $(column rate-sqrt lr)"

# --- by the noise scale
noise=(model.tie_word_embeddings=false train.batch_schedule=noise:2-16 train.steps=100 layout=dp=2 order=canonical ckpt.every=30 ckpt.keep=0 optim.lr=1e-2)
train noise "${noise[@]}"
sizes=$(column noise batch)
[ "${sizes:0:40}" = "$(printf '2 %.0s' {1..20})" ] || fail "noise: the batch changes too early: $sizes"
[[ "$sizes" = *" 4 "* ]] || fail "noise: the batch never changes: $sizes"
[ "$(grep -c '^phase     batch' noise.out)" = "$(grep -c '^{"step":[0-9]*,"batch"' noise/metrics.jsonl)" ] || fail "noise: changes are not told"
for at in 30 60 90; do
    cp -r noise "noise$at"
    find "noise$at/ckpt" -maxdepth 1 -name 'step-*' | sort | tail -n +$((at / 30 + 1)) | xargs rm -rf
    rm -rf "noise$at/final"
    train "noise$at" --resume "${noise[@]}"
    same noise "noise$at"
done
# A checkpoint right at a change has it as the last one: the next comes 20 steps later there too.
at=$(sed -nE 's/^\{"step":([0-9]+),"batch".*/\1/p' noise/metrics.jsonl | head -n 1)
train change "${noise[@]}" ckpt.every="$at"
grep -q "changed=$at " "change/ckpt/step-$(printf %010d "$at")/MANIFEST.json" || fail "noise: the checkpoint of step $at lacks the change"
find change/ckpt -maxdepth 1 -name 'step-*' | sort | tail -n +2 | xargs rm -rf
rm -rf change/final
train change --resume "${noise[@]}"
same noise change

# --- random schedules, layouts and losses: the bits of one rank, also when resumed somewhere
one_of() { # name of a variable, words; not in a subshell, whose RANDOM the next one would not go on from
    local name=$1 words=("${@:2}")
    printf -v "$name" %s "${words[RANDOM % (${#words[@]})]}"
}
RANDOM=${SKEIN_SEED:-1} ranks=
if [ -z "${SKEIN_LONG:-}" ]; then draws=4; else draws=40; fi
for i in $(seq $draws); do
    a=$((1 + RANDOM % 4)) b=$((a + 1 + RANDOM % 4))
    one_of first "0: 6, " ""
    one_of optim adamw sgd lamb lion muon soap novograd
    one_of ema 0 0.9
    one_of smoothing 0 0.1
    one_of z_loss 0 0.01
    one_of decay 1 0.7
    one_of scaling none sqrt linear
    one_of layout dp=2 "dp=2 zero=2 micro=2" "tp=2 dp=2 zero=3" "pp=2 micro=2" "pp=2 dp=2 micro=2" "cp=2" "dp=3 zero=1"
    one_of ranks "" "$((RANDOM % 9 + 1)): $layout recompute=full"
    drawn=(train.steps=10 order=canonical ckpt.every=3 ckpt.keep=0
        train.batch_schedule="$first$a: $((7 + RANDOM % 4)), $b: $((2 + RANDOM % 4))"
        optim.name="$optim" optim.ema="$ema" train.label_smoothing="$smoothing" train.z_loss="$z_loss"
        optim.layer_decay="$decay" optim.batch_scaling="$scaling")
    rm -rf one two
    train one "${drawn[@]}"
    train two "${drawn[@]}" layout="$layout" train.relayout="$ranks"
    same one two
    find two/ckpt -maxdepth 1 -name 'step-*' | sort | tail -n +$((2 + RANDOM % 3)) | xargs rm -rf
    train two --resume "${drawn[@]}" layout="$layout" train.relayout=
    same one two
done

refused() { # the sentence, then the keys
    local want=$1
    shift
    if "$skein" train "${job[@]}" train.steps=4 "$@" run=bad >said 2>&1; then fail "$*: is not refused"; fi
    grep -qF -- "$want" said || fail "$*: $(cat said)"
    checks=$((checks + 1))
}
refused 'is no STEP: BATCH' train.batch_schedule="10"
refused 'is no STEP: BATCH' train.batch_schedule="1: 4; 2: 8"
refused 'steps must rise' train.batch_schedule="5: 4, 5: 8"
refused 'the batch from step 5 on is 4, as before' train.batch_schedule="0: 4, 5: 4"
refused 'the batch from step 5 on is 0' train.batch_schedule="5: 0"
refused 'noise:LEAST-MOST' train.batch_schedule=noise:8-9
refused 'noise:LEAST-MOST' train.batch_schedule=noises
refused 'leave one of them out' train.batch=3 train.batch_schedule="0: 4, 2: 8"
refused 'never changes' optim.batch_scaling=sqrt
refused 'goes with one layout' train.batch_schedule=noise layout=dp=2 train.relayout="2: dp=2 zero=1"
refused 'train.noise compares' train.batch_schedule=noise
refused "leave out 'offload" train.batch_schedule="2: 8" layout="offload=state"
refused 'one copy of the weights' train.batch_schedule="2: 8" layout="dp=2 zero=1 replica"
refused 'one run has one of them' train.batch_schedule="2: 8" layout="gist=50"
"$skein" simulate "${job[@]}" "${steps[@]}" | grep -q '^batch     4, the first of' || fail "simulate does not say which batch"
"$skein" explain "${job[@]}" "${steps[@]}" | grep -q 'with a batch of 4, the first of' || fail "explain does not say which batch"
# --- the line of memory: kinds of the largest phase, as a run with that batch alone has them
kinds() { sed -n 's/^memory .* = \(.*scratch [0-9.]* [KM]*i*B\).*/\1/p' "$1.out"; }
train largest train.batch=8 train.steps=1
train phased "${steps[@]}"
[ -n "$(kinds phased)" ] || fail "memory: no kinds: $(grep ^memory phased.out)"
[ "$(kinds phased)" = "$(kinds largest)" ] || fail "memory: $(grep ^memory phased.out largest.out)"
grep -q '^memory .* + changes of phase .* · in the largest phase$' phased.out || fail "memory of changes: $(grep ^memory phased.out)"

# --- the line of the optimizer: what differs from the defaults, and nothing else
train usual train.batch=4 train.steps=1
grep -q '^optimizer adamw lr=0.001 · cosine · warmup 10$' usual.out || fail "defaults: $(grep ^optimizer usual.out)"
train other train.batch=4 train.steps=1 optim.name=sam optim.base=sgd optim.clip=0.5 train.label_smoothing=0.1 train.z_loss=1e-4 optim.ema=0.99 \
    optim.schedule=polynomial optim.schedule_power=3 optim.min_lr=1e-5 optim.layer_decay=0.9
grep -q '^optimizer sam lr=0.1 base=sgd · polynomial schedule_power=3 to 1e-05 · warmup 10 · clip 0.5 · ema 0.99 · layer decay 0.9 · label smoothing 0.1 · z-loss 0.0001$' other.out ||
    fail "keys: $(grep ^optimizer other.out)"
train unclipped train.batch=4 train.steps=1 optim.clip=0
grep -q ' · no clipping$' unclipped.out || fail "clip: $(grep ^optimizer unclipped.out)"

echo "batches: $checks runs as they should be"
