#!/bin/bash
# fake.sh - whole runs with device=cuda on a fake GPU (lib/fake_gpu.h): the host's half of it.
#
# What goes on between steps: checkpoints, going on from them, another layout, steps that are run again with
# room for all.  Losses are those of the same run on the CPU; what a resumed run ends in are the same bytes, also
# with streams that work as late as they may (SKEIN_FAKE_LAZY): whatever nobody waits for is then wrong every time.
set -eu
cd "$(dirname "$0")/../.."
skein=$(realpath "${SKEIN_FAKED:-build/release/skein_fake}")
[ -x "$skein" ] || { echo "there is no $skein"; exit 77; }
temp=$(mktemp -d)
trap 'rm -rf "$temp"' EXIT
cp example/one_file.c "$temp/text"
cd "$temp"
export XDG_CONFIG_HOME=$temp
export SKEIN_FUSE=none
fail() { echo "$*" && exit 1; }

runs=0
job="data.train=text data.tokenizer=byte train.batch=8 train.seq=24 train.steps=10 train.threads=1 optim.warmup=2
     val.every=5 ckpt.every=5 sample.every=0 log.every=0"
train() { # name, words
    local name=$1
    shift
    runs=$((runs + 1))
    # shellcheck disable=SC2086  # words
    "$skein" train $job run="$name" "$@" >"$name.out" 2>&1 || fail "$name: $* $(tail -n 3 "$name.out")"
    grep -q "planned = " "$name.out" || fail "$name: other bytes than planned"
}
losses() { grep -o '"\(val_\)\?loss":[-0-9.e+]*' "$1/metrics.jsonl" | cut -d: -f2; }
near() { # two runs, and how far apart
    paste <(losses "$1") <(losses "$2") | awk -v by="$3" '
        { d = $1 / $2 - 1; if (!(d * d <= by * by)) bad++; n++ } END { exit bad || n < 10 }' ||
        fail "$1 has other losses than $2: $(losses "$1" | tail -n 1), $(losses "$2" | tail -n 1)"
}
again() { grep -c '"again":1' "$1/metrics.jsonl" || true; }

n=0
due() { [ $((n++ % 2)) = 0 ] || [ -n "${SKEIN_LONG:-}" ]; } # every second line; with SKEIN_LONG all
while IFS='|' read -r by words; do
    due || continue
    rm -rf cpu gpu
    # shellcheck disable=SC2086
    eval train cpu $words device=cpu
    # shellcheck disable=SC2086
    eval train gpu $words device=cuda
    near cpu gpu "$by"
    [ "$(again cpu)" = "$(again gpu)" ] || fail "$words: $(again gpu) steps were run again, $(again cpu) on the CPU"
    cp -r gpu half
    rm -rf half/final half/ckpt/step-0000000010
    # shellcheck disable=SC2086
    SKEIN_FAKE_LAZY=1 eval train half $words device=cuda resume=auto
    cmp gpu/final/model.safetensors half/final/model.safetensors || fail "$words: another model after resuming"
    rm -rf half
    # shellcheck disable=SC2086
    SKEIN_FAKE_LAZY=1 eval train half $words device=cuda
    cmp gpu/final/model.safetensors half/final/model.safetensors || fail "$words: another model with lazy streams"
    rm -rf half
done <<'END'
1e-5|model=tiny layout="micro=2"
1e-5|model=tiny optim.name=lamb
1e-5|model=tiny optim.name=sgd optim.lr=0.05 optim.schedule=onecycle optim.warmup=0
1e-5|model=tiny optim.name=rmsprop optim.lr=1e-3 optim.schedule=onecycle optim.warmup=0
1e-5|model=tiny optim.schedule=onecycle optim.warmup=0 layout="offload=state"
2e-3|model=tiny train.dtype=bf16 layout="micro=2 recompute=full"
2e-3|model=tiny train.dtype=f16 train.nonfinite=skip
1e-5|model=tiny train.relayout="3: micro=2, 7: micro=4"
1e-5|model=switch-tiny model.capacity_factor=0.5 train.dropless=1
1e-5|model=switch-tiny model.capacity_factor=1.5 train.dropless=1
1e-5|model=switch-tiny layout="dp=1 gist=5"
1e-5|model=switch-tiny layout="dp=1 gist=60"
1e-5|model=mixtral-tiny layout="micro=2 offload=all"
2e-3|model=mixtral-tiny train.dtype=bf16 layout="micro=2"
2e-3|model=switch-tiny train.dtype=f16 model.router_bias_update_speed=0.001 model.expert_groups=2
END

# A number that is not finite, in a gradient and in a weight: what the run does then is what it does on a CPU.
good() { # name, fault, words
    local name=$1 fault=$2
    shift 2
    SKEIN_FAULT=$fault train "$name" model=tiny ckpt.every=2 val.every=0 "$@"
}
while IFS='|' read -r by fault words; do
    due || continue
    rm -rf cpu gpu
    # shellcheck disable=SC2086
    eval good cpu "$fault" $words device=cpu
    # shellcheck disable=SC2086
    eval good gpu "$fault" $words device=cuda
    near cpu gpu "$by"
    grep -q "skipped by all\|roll back to the checkpoint of step 4" gpu.out || fail "$words: $(grep "step" gpu.out)"
    cmp <(grep -o "skipped.*\|all ranks roll.*" cpu.out) <(grep -o "skipped.*\|all ranks roll.*" gpu.out) || fail "$words: another report"
done <<'END'
1e-5|nan:5:0|train.nonfinite=skip
1e-5|inf:5:0|train.nonfinite=rollback
1e-5|nan:5:0|train.nonfinite=rollback layout="micro=2 offload=all"
2e-3|nan:5:0|train.nonfinite=rollback layout="micro=2 offload=all" train.dtype=bf16
2e-3|nan:5:0|train.nonfinite=rollback layout="micro=2 offload=state" optim.late=1 train.dtype=bf16
1e-5|state:5:0|train.nonfinite=rollback ckpt.every=1
1e-5|state:5:0|train.nonfinite=rollback ckpt.every=1 layout="offload=state:file"
2e-3|inf:5:0|train.dtype=f16 layout="micro=2"
END
code=0
# shellcheck disable=SC2086
SKEIN_FAULT=nan:5:0 "$skein" train $job model=tiny device=cuda run=stop >stop.out 2>&1 || code=$?
[ $code = 79 ] || fail "stop: exit code $code, not 79: $(tail -n 3 stop.out)"

# Kernels that did not get what they wanted are told at the start, with op, shape and reason, and --ops names them.
train slow model=tiny device=cuda
grep -q "times as long" slow.out && fail "a warning of nothing: $(grep "times as long" slow.out)"
rm -rf slow
SKEIN_FAKE_SLOW=1 train slow model=tiny device=cuda
grep -q "contract of [0-9x]* (f32) runs on kernel walk, 40 times as long as run: the fake GPU was told to; the step is about [0-9]* % longer" \
    slow.out || fail "no warning: $(head -n 20 slow.out)"
SKEIN_FAKE_SLOW=1 "$skein" bench step model=tiny device=cuda train.threads=1 --steps 1 --ops -o csv >ops.csv 2>ops.err || fail "ops: $(cat ops.err)"
grep -q "^dp=1,contract,walk," ops.csv || fail "ops: $(cat ops.csv)"
grep -q "^dp=1,layernorm,own," ops.csv || fail "ops: $(cat ops.csv)"
grep -q "runs on kernel walk" ops.err || fail "ops: $(cat ops.err)"

# A GPU's addresses are not for the CPU's kernels.
if "$skein" simulate --cluster here model=tiny device=cuda >here.out 2>&1; then fail "simulate --cluster here with device=cuda"; fi
grep -q "skein calibrate device=cuda does that" here.out || fail "simulate: $(tail -n 3 here.out)"

# A GPU that is too small: what is needed, of which kind, and a change that fits and then runs.
small=(model=nano device=cuda train.batch=8 train.seq=64 train.steps=1 val.every=0 sample.every=0)
code=0
SKEIN_FAKE_BYTES=265000000 "$skein" train "${small[@]}" run=small >small.out 2>&1 || code=$?
[ $code = 74 ] || fail "a small GPU: exit code $code, not 74: $(tail -n 3 small.out)"
grep -q "cuda:0 has 252.7 MiB free; rank 0 needs .* = weights .* + activations .*, most of it" small.out ||
    fail "a small GPU: $(tail -n 1 small.out)"
change=$(grep -o 'train.micro_batch=[0-9]* needs .* fits' small.out) || fail "a small GPU: $(tail -n 1 small.out)"
SKEIN_FAKE_BYTES=265000000 "$skein" train "${small[@]}" "${change%% *}" run=small2 >small.out 2>&1 ||
    fail "${change%% *} does not fit: $(tail -n 1 small.out)"
echo "fake: $runs runs"
