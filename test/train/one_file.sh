#!/bin/bash
# one_file.sh - the engine against a GPT written by hand (example/one_file.c).
#
# First the hand-written gradients meet finite differences, in double and in float.  Then skein
# trains ten steps from the weights that one_file drew, on the same windows of the same text:
# every loss agrees to 1e-5, every gradient norm to 1e-4, relatively.  Needs no Python.
set -eu
cd "$(dirname "$0")/../.."
temp=$(mktemp -d)
trap 'rm -rf "$temp"' EXIT

${CC:-cc} -O3 -march=native -Wall example/one_file.c -lm -o "$temp/one_file"
${CC:-cc} -O3 -march=native -Dreal=double example/one_file.c -lm -o "$temp/one_double"
head -c 1000 example/one_file.c >"$temp/text" # so short that the windows wrap

sizes="layers=2 heads=2 width=32 vocab=256 batch=4 seq=32"
for program in one_file one_double; do
    # shellcheck disable=SC2086  # words
    if ! "$temp/$program" "$temp/text" $sizes check=1 >"$temp/check"; then
        cat "$temp/check"
        echo "$program: a gradient written by hand is wrong"
        exit 1
    fi
done
# shellcheck disable=SC2086
"$temp/one_file" "$temp/text" $sizes steps=10 lr=1e-3 beta1=0.9 beta2=0.95 eps=1e-8 decay=0.1 \
    clip=1 save="$temp/model.safetensors" >"$temp/want"

skein=${SKEIN:-build/release/skein}
if ! [ -x "$skein" ] || ! "$skein" train --help >/dev/null 2>&1; then
    echo "the gradients of one_file are right; there is no skein train to compare with"
    exit 77
fi
mkdir "$temp/model"
mv "$temp/model.safetensors" "$temp/model"
cat >"$temp/model/config.json" <<'END'
{"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "n_layer": 2, "n_head": 2,
 "n_embd": 32, "vocab_size": 256, "n_positions": 32, "layer_norm_epsilon": 1e-5,
 "activation_function": "gelu_new", "tie_word_embeddings": true,
 "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
END
if ! "$skein" train model="$temp/model" data.train="$temp/text" data.tokenizer=byte \
    data.order=sequential data.val_fraction=0 train.steps=10 train.batch=4 train.seq=32 \
    train.dtype=f32 optim.name=adamw optim.lr=1e-3 optim.betas=0.9,0.95 optim.eps=1e-8 \
    optim.weight_decay=0.1 optim.clip=1 optim.schedule=constant optim.warmup=0 \
    run="$temp/run" >"$temp/said" 2>&1; then
    cat "$temp/said"
    exit 1
fi
number() { sed -nE "s/.*\"$1\": *([-+0-9.eE]+).*/\1/p" "$temp/run/metrics.jsonl"; }
paste -d ' ' "$temp/want" <(number loss) <(number grad_norm) | awk '
    function off(a, b) { a = a / b - 1; return a < 0 ? -a : a }
    {
        loss = off($4, $2); norm = off($5, $3)
        printf "%2d  one_file %.9g %.9g  skein %.9g %.9g\n", $1, $2, $3, $4, $5
        if (NF != 5 || !(loss <= 1e-5) || !(norm <= 1e-4)) wrong = 1
        if (loss > worst) worst = loss
        if (norm > worst_norm) worst_norm = norm
    }
    END {
        if (NR != 10) { print NR " lines, 10 are needed"; exit 1 }
        printf "10 steps: losses agree to %.1e, gradient norms to %.1e%s\n", worst, worst_norm,
               wrong ? ": too far" : ""
        exit wrong
    }'
