#!/bin/bash
# adascale.sh - optim.adascale: gains follow from the variances that the metrics tell, rates from gains and the schedule,
# which ends the run; resuming changes no bit; SAM and other layouts can have it; and what is refused.
# shellcheck source=test/lib/runs.sh
. "$(dirname "$0")/../lib/runs.sh"

job=(model=tiny model.tie_word_embeddings=false data.train=text data.tokenizer=byte data.order=shuffle train.batch=16 train.seq=16
    train.steps=40 train.noise=1 optim.name=sgd optim.lr=0.05 optim.warmup=0 optim.schedule=linear optim.min_lr=0 optim.adascale=8
    val.every=0 sample.every=0 log.every=0 ckpt.every=5 ckpt.keep=0)
number() { sed -nE "s/.*\"$2\":(-?[0-9.e+-]+).*/\1/p" "$1/metrics.jsonl"; }

# The gain of a step is that of the averages before it, and its rate that of the schedule after as many steps as gains so far.
checked=0
expect() { # run
    paste -d ' ' <(number "$1" grad_norm) <(number "$1" grad_var) <(number "$1" lr) <(number "$1" gain) >got
    awk -v S=8 -v B=16 -v T=40 '
        function abs(x) { return x < 0 ? -x : x }
        BEGIN { gain = 1 }
        {
            if (abs($4 / gain - 1) > 1e-5 || $4 < 1 || $4 > S) { print "step " NR ": gain " $4 ", not " gain; exit 1 }
            lr = gain * 0.05 * (1 - int(at) / T)
            if (abs($3 / lr - 1) > 1e-5) { print "step " NR ": rate " $3 ", not " lr; exit 1 }
            at += gain; most = gain > most ? gain : most
            var = 0.95 * var + 0.05 * $2; square = 0.95 * square + 0.05 * ($1 * $1 - $2 / B)
            s = var > 0 ? S * var / B : 0; m = square > 0 ? square : 0
            gain = s / S + m > 0 ? (s + m) / (s / S + m) : 1
        }
        END { if (!(at >= T && at - $4 < T && NR < T && most > 1.2)) { print NR " steps, progress " at ", gains up to " most; exit 1 } }
        ' got >why || fail "$1: $(cat why)"
    checked=$((checked + $(wc -l <got)))
}

train ref layout=dp=4
expect ref
train micro layout="dp=2 micro=2 zero=1"
expect micro
train tensor layout="dp=2 tp=2"
expect tensor
train sam layout=dp=4 optim.name=sam optim.base=sgd optim.lr=0.05 optim.momentum=0
expect sam

# A batch that changes: the batch that the rate is for stays 16 / 8 = 2, so the scale of a step is its batch / 2.
batches() { # run, base batch
    paste -d ' ' <(number "$1" grad_norm) <(number "$1" grad_var) <(number "$1" lr) <(number "$1" gain) <(sed -nE '/"loss"/s/.*"batch":([0-9]+).*/\1/p' "$1/metrics.jsonl") >got
    awk -v base="$2" -v T=40 '
        function abs(x) { return x < 0 ? -x : x }
        {
            S = $5 / base; s = var > 0 ? var / base : 0; m = square > 0 ? square : 0
            gain = s / S + m > 0 ? (s + m) / (s / S + m) : 1
            if (NR == 1) gain = 1
            if (abs($4 / gain - 1) > 1e-5) { print "step " NR ": gain " $4 ", not " gain " with a batch of " $5; exit 1 }
            lr = gain * 0.05 * (1 - int(at) / T)
            if (abs($3 / lr - 1) > 1e-5) { print "step " NR ": rate " $3 ", not " lr; exit 1 }
            at += gain; seen[$5] = gain
            var = 0.95 * var + 0.05 * $2; square = 0.95 * square + 0.05 * ($1 * $1 - $2 / $5)
        }
        END { for (b in seen) { n++; if (seen[b] <= 1 || seen[b] > b / base) { print "gain " seen[b] " with a batch of " b; exit 1 } }
              if (n != 3 || at < T) { print n " batches, progress " at; exit 1 } }
        ' got >why || fail "$1: $(cat why)"
    checked=$((checked + $(wc -l <got)))
}
train grows layout=dp=4 train.batch_schedule="5: 32, 12: 8"
batches grows 2
train noise layout=dp=2 optim.adascale=4 train.batch=4 train.batch_schedule="3: 32, 9: 8"
batches noise 1

# from a checkpoint, and once more from the end
train branch layout=dp=4 resume=ref/ckpt/step-0000000010
cmp branch/final/model.safetensors ref/final/model.safetensors || fail "resumed: another model"
[ "$(number branch lr | tail -n 1)" = "$(number ref lr | tail -n 1)" ] || fail "resumed: another rate"
"$skein" train run=ref --resume >again.out 2>&1 || { cat again.out; fail "a finished run cannot be resumed"; }
[ "$(number ref lr | wc -l)" = "$(wc -l <ref/metrics.jsonl)" ] || fail "the finished run went on"

# resumed without AdaScale the rates are those of as many steps, and with it they have its gain: jumps that are told
jump() { # checkpoint, keys of the sentence, words; the rate of the next step is in $to
    local from=$1 words=$2
    shift 2
    rm -rf jump
    timeout 100 "$skein" train "${job[@]}" run=jump layout=dp=4 resume="$from/ckpt/step-0000000010" ckpt.every=0 "$@" >jump.out 2>&1 || { cat jump.out; fail "jump"; }
    to=$(sed -nE "s/^warning   the learning rate jumps from .* to (.*) at step 11: $words\$/\1/p" jump.out)
}
jump ref "optim.lr was 0.05 and is 0.1; optim.adascale was 8 and is 0" optim.adascale=0 optim.lr=0.1
[ "$to" = 0.075 ] || { cat jump.out; fail "without AdaScale the rate jumps to $to, not to 0.075"; }
train plain layout=dp=4 optim.adascale=0 ckpt.every=10
jump plain "optim.adascale was 0 and is 8"
if [ -z "$to" ] || [ "$(number jump lr | head -n 1 | cut -c 1-4)" != "${to:0:4}" ]; then cat jump.out; fail "with AdaScale the rate jumps to '$to'"; fi

# In canonical order all micro-batches of all ranks are the small batches: whatever cuts the batch into the same parts has the
# same gains, rates and weights, to the bit.
parts() { # name; layouts that cut the batch into the same parts, a line each
    local n=0 first="" layout
    while read -r layout; do
        n=$((n + 1))
        train "$1$n" layout="$layout" order=canonical optim.name=adamw optim.lr=0.01 train.steps=12 ckpt.every=0
        for key in loss grad_norm grad_var noise_scale gain lr; do number "$1$n" $key; done >"$1$n.numbers"
        [ "$(number "$1$n" gain | awk '$1 > 1.05' | wc -l)" -gt 3 ] || fail "$layout: no gains: $(number "$1$n" gain)"
        first=${first:-$1$n}
        cmp "$1$n.numbers" "$first.numbers" || fail "$layout: canonical order, other numbers than the first layout"
        cmp "$1$n/final/model.safetensors" "$first/final/model.safetensors" || fail "$layout: canonical order, another model"
        same=$((same + 1))
    done
}
same=0
parts four <<END
dp=4
micro=4
dp=2 micro=2
dp=2 tp=2 micro=2
dp=4 zero=1
dp=2 zero=2 micro=2
dp=2 zero=3 micro=2
pp=2 micro=4
pp=2 dp=2 micro=2 schedule=gpipe
tp=2 micro=4
tp=2 sp micro=4
cp=2 micro=4
END
parts two <<END
dp=2
dp=2 tp=2
micro=2
tp=2 micro=2
END
cmp -s two1/final/model.safetensors four1/final/model.safetensors && fail "two parts and four have the same bits: nothing was measured"

refused() { # sentence, words
    local want=$1
    shift
    if "$skein" train "${job[@]}" run=no "$@" >no.out 2>&1; then fail "not refused: $*"; fi
    grep -qF "$want" no.out || fail "refused otherwise: $(cat no.out)"
}
refused "for a batch of train.batch / 2 = 8, and train.batch_schedule has a smaller one, 4;" layout=dp=4 optim.adascale=2 train.batch_schedule="5: 32, 8: 4"
refused "both scale the rate by the batch; leave one of them out" layout=dp=4 train.batch_schedule="5: 32" optim.batch_scaling=linear
refused "train.noise=1 is needed" layout=dp=4 train.noise=0
refused "from 2 to 16, is needed" layout=dp=4 optim.adascale=1
refused "from 2 to 16, is needed" layout=dp=4 optim.adascale=17
refused "take two micro-batches (micro=2)" layout=dp=1
refused "take model.tie_word_embeddings=false or order=fast, or leave out train.noise" layout=dp=4 order=canonical \
    model.tie_word_embeddings=true
refused "with zero=2 the parts of the gradient of 'wte'" layout="dp=4 zero=2" model.tie_word_embeddings=true
grep -qF "take model.tie_word_embeddings=false or zero=1, or leave out train.noise" no.out || fail "$(cat no.out)"
echo "adascale: $checked steps have the gain and the rate that they must, $same layouts in canonical order the same bits"
