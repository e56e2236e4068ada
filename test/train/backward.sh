#!/bin/bash
# backward.sh - train.backward: metrics against runs of single samples, files on several layouts, weights that do not change by it,
# resuming, and what is refused.
set -eu
cd "$(dirname "$0")/../.."
skein=$(realpath "${SKEIN:-build/release/skein}")
temp=$(mktemp -d)
trap 'rm -rf "$temp"' EXIT
cd "$temp"
for i in {1..400}; do echo "Line $i of a text that says $((i * i % 97)) and much the same in every line."; done >text
fail() { echo "$*" && exit 1; }

runs=0
job="model=tiny data.train=text data.order=sequential train.seq=16 val.every=0 sample.every=0"
train() { # name, words
    local name=$1
    shift
    runs=$((runs + 1))
    # shellcheck disable=SC2086  # words
    "$skein" train $job run="$name" "$@" >"$name.out" 2>&1 || fail "$name: $(tail -n 3 "$name.out")"
}
number() { sed -nE "s/.*\"$2\":(-?[0-9.e+-]+).*/\1/p" "$1/metrics.jsonl"; }
near() { # run, relative tolerance: mean, largest and variance of step 1 against ./expected
    paste -d ' ' <(number "$1" sample_norm_mean) <(number "$1" sample_norm_max) <(number "$1" sample_variance) | head -n 1 >got
    awk -v t="$2" 'NR == FNR { split($0, e, " "); next }
        { for (i = 1; i <= 3; i++) if (($i - e[i]) ^ 2 > (t * e[i]) ^ 2 || !$i) bad = 1 } END { exit bad }' expected got ||
        fail "$1: $(cat got), not $(cat expected)"
}

# Windows of the data one by one, at a rate of 0: all see the same weights.
train singles train.batch=1 train.steps=8 optim.lr=0
train all train.batch=8 train.steps=1 optim.lr=0
number singles grad_norm | awk -v all="$(number all grad_norm)" '{ n = $1 / 8; sum += n; square += n * n; if (n > most) most = n }
    END { printf "%.9g %.9g %.9g\n", sum / 8, most, 8 * square - all * all }' >expected
for l in dp=1 "dp=2 zero=1" "dp=4 zero=3" tp=2 "pp=2 micro=4" cp=2 "dp=2 tp=2 micro=2" "pp=2 dp=2 zero=2 micro=2"; do
    train "$l" train.batch=8 train.steps=1 optim.lr=0 train.backward="norms, variance" layout="$l"
    near "$l" 1e-4
done
for d in bf16 f16; do
    train $d train.batch=8 train.steps=1 optim.lr=0 train.backward=norms train.dtype=$d layout="dp=2 tp=2"
    near $d 3e-2
done

# Weights are those of a run without the key; files have the same bytes on any layout in canonical order.
asked="norms, second_moment, variance, diag_ggn_mc, kron, gradients"
train plain train.batch=8 train.steps=4 order=canonical
for l in dp=1 "dp=2 zero=1" "pp=2 tp=2 micro=2" "dp=2 cp=2 zero=3"; do
    train "c $l" train.batch=8 train.steps=4 order=canonical layout="$l" train.backward="$asked" train.backward_every=2
    cmp -s plain/final/model.safetensors "c $l/final/model.safetensors" || fail "$l: train.backward changed the weights"
    for s in 2 4; do
        cmp "c dp=1/backward/step-000000000$s.safetensors" "c $l/backward/step-000000000$s.safetensors" || fail "$l: step $s differs"
    done
done
for k in wte.variance h.0.fc.w.kron_a h.0.fc.w.kron_g h.1.ln1.w.diag_ggn_mc h.0.qkv.b.gradients h.0.out.w.second_moment norms; do
    head -c 65536 "c dp=1/backward/step-0000000002.safetensors" | grep -aq "\"$k\"" || fail "$k is not in the file"
done

# Rank 0 tells the sums, also where another rank has them: stages without layers, interleaved stages, the V of zb-v.
sums="norms, diag_ggn_mc"
numbers() { sed -nE 's/.*("sample_norm_mean.*"ggn_mc_trace":[^,}]*).*/\1/p' "$1/metrics.jsonl"; }
train "s dp=1" train.batch=8 train.steps=3 order=canonical train.backward="$sums"
[ "$(numbers "s dp=1" | wc -l)" = 3 ] || fail "dp=1: not three rows of sums"
for l in "pp=3 micro=4" "pp=4 micro=4" "pp=2 micro=4 schedule=interleaved chunks=2" "pp=2 micro=4 schedule=zb-v" "pp=3 dp=2 micro=2 zero=2"; do
    train "s $l" train.batch=8 train.steps=3 order=canonical train.backward="$sums" layout="$l"
    [ "$(numbers "s $l")" = "$(numbers "s dp=1")" ] || fail "$l: $(numbers "s $l")"
done
train "s phases" train.batch=8 train.steps=3 order=canonical train.backward="$sums" train.relayout="1: dp=4, 2: dp=2 pp=2 micro=2" layout="pp=4 micro=4"
[ "$(numbers "s phases")" = "$(numbers "s dp=1")" ] || fail "phases: $(numbers "s phases")"

# Resumed, on another layout: the same bytes.
train half train.batch=8 train.steps=2 optim.schedule=constant order=canonical train.backward="$asked" train.backward_every=2
train whole train.batch=8 train.steps=4 optim.schedule=constant order=canonical train.backward="$asked" train.backward_every=2
train half train.batch=8 train.steps=4 optim.schedule=constant order=canonical train.backward="$asked" train.backward_every=2 layout=dp=2 resume=auto
cmp half/backward/step-0000000004.safetensors whole/backward/step-0000000004.safetensors || fail "resumed: step 4 differs"
train moved train.batch=8 train.steps=4 order=canonical train.backward="$asked" train.backward_every=2 train.relayout="2: dp=2" ranks=2
cmp moved/backward/step-0000000004.safetensors "c dp=1/backward/step-0000000004.safetensors" || fail "relayout: step 4 differs"

refused() { # words of the sentence, keys
    local said
    # shellcheck disable=SC2086  # words
    said=$("$skein" train $job train.batch=8 train.steps=1 "${@:2}" 2>&1) && fail "not refused: ${*:2}"
    grep -qF "$1" <<<"$said" || fail "${*:2}: $said"
}
refused 'did you mean "variance"?' train.backward=varianse
refused 'a backward pass for each class' train.backward=diag_ggn
refused 'train.backward is empty' train.backward_every=2
# A file that cannot be written ends the training, with its path.
mkdir blocked && touch blocked/backward
for layout in dp=1 dp=2; do
    rc=0
    # shellcheck disable=SC2086  # words
    said=$("$skein" train $job train.batch=8 train.steps=3 train.backward=variance train.backward_every=2 run=blocked layout=$layout 2>&1) || rc=$?
    [ $rc = 74 ] || fail "no file can be written: exit code $rc: $said"
    grep -qF "blocked/backward/step-0000000002.safetensors was not written" <<<"$said" || fail "no path: $said"
    rm -rf blocked/metrics.jsonl* blocked/ckpt
done

for what in kron second_moment gradients; do
    refused "train.backward: $what has no number in metrics.jsonl" train.backward="norms, $what"
    train "one $what" train.batch=8 train.steps=2 train.backward="$what" train.backward_every=2
    [ "$(ls "one $what/backward")" = step-0000000002.safetensors ] || fail "$what: $(ls "one $what/backward")"
    "$skein" explain model=tiny train.backward="$what" >/dev/null || fail "$what: explain needs files"
done
for list in ',' 'norms,,variance' 'norms,' 'norms variance'; do refused 'which is no list' train.backward="$list"; done
refused 'train.backward has norms twice' train.backward=norms,norms
refused 'gradients are offloaded' train.backward=norms layout=offload=grads
for way in local:2 diloco:2 gossip:2 postlocal:4@1000 stream:4; do
    refused 'with sync each replica has' train.backward=variance layout="dp=2 sync=$way"
done
refused 'with sync each replica has' train.backward=norms \
    layout="mesh hosts=2 dp=2; split b over hosts; split b over dp; synchronize hosts by local:4; synchronize dp by local:2"
refused 'with sync each replica has' train.backward=kron train.backward_every=1 optim.name=kfac layout="dp=2 sync=local:2"
for optim in onebit-adam onebit-lamb zeroone-adam; do
    refused "ranks of $optim send each other a state" train.backward=norms optim.name=$optim layout=dp=2
done
train "one $optim" train.batch=8 train.steps=1 "optim.name=$optim" train.backward=norms layout=dp=1
for what in norms variance; do
    refused "the variance of $what" train.backward=$what layout="dp=2 reduce=adasum"
    for codec in powersgd:1 q8 "topk:0.1 feedback" bf16; do
        refused "the variance of $what" train.backward=$what layout="dp=2 grads=$codec"
    done
done
train "moments adasum" train.batch=8 train.steps=2 train.backward=second_moment train.backward_every=2 layout="dp=2 reduce=adasum"
# Replicas that synchronise in every step are the plain program.
train "each step" train.batch=8 train.steps=3 train.backward=norms layout="dp=2 sync=local:1"
train "no sync" train.batch=8 train.steps=3 train.backward=norms layout=dp=2
[ "$(number "each step" sample_variance)" = "$(number "no sync" sample_variance)" ] || fail "sync=local:1: another variance"
refused 'updates weights between micro-batches' train.backward=norms optim.clip=0 layout="pp=2 micro=4 schedule=pipedream"
echo "backward: $runs runs"
