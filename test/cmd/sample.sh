#!/bin/bash
# sample.sh - a model that has learned the alphabet goes on saying it.
#
# Trained on "abc...z" over and over, a model must continue any part of it, for longer than it has
# positions; from final/, from a checkpoint, and from what export, import and verify make of it.
set -eu
cd "$(dirname "$0")/../.."
skein=$(realpath "${SKEIN:-build/release/skein}")
[ -x "$skein" ] || { echo "there is no $skein"; exit 77; }
temp=$(mktemp -d)
trap 'rm -rf "$temp"' EXIT
cd "$temp"

alphabet=abcdefghijklmnopqrstuvwxyz
for _ in $(seq 200); do printf '%s' $alphabet; done >text

fail() {
    echo "$*"
    exit 1
}

goes_on() { # what
    local want got
    want=$(printf "$alphabet%.0s" $(seq 9) | cut -c 8-160)
    got=$("$skein" sample "$1" --prompt hijklmn --tokens 146 --temp 0)
    [ "$got" = "$want" ] || fail "$1 says $got"
}

# What config.json may ask of a model is done when decoding too: biases, rope, activation, head_dim.
asked=(model=llama-tiny model.attention_bias=true model.mlp_bias=true model.hidden_act=gelu model.head_dim=12
    model.rope_type=llama3 model.rope_factor=4 model.rope_low_freq_factor=1 model.rope_high_freq_factor=4
    model.rope_original_positions=16 model.max_position_embeddings=64)
"$skein" train "${asked[@]}" data.train=text train.batch=8 train.seq=32 train.threads=1 train.steps=250 optim.lr=1e-2 \
    val.every=0 sample.every=0 run=asked >out 2>err || { cat out err; fail "asked: no training"; }
goes_on asked 2>err
grep -q "note: the text is longer than the model's 64 positions" err || fail "no note of a cut text: $(cat err)"
"$skein" train model=mistral-tiny data.train=text train.batch=8 train.seq=32 train.steps=2 val.every=0 sample.every=0 \
    run=window >out 2>err || fail "window: $(cat err)"
! "$skein" sample window --prompt abc --tokens 140 >out 2>err || fail "a text beyond the sliding window"
grep -q "sliding_window" err || fail "beyond the sliding window: $(cat err)"
grep -q '"rope_scaling": {"rope_type": "llama3", "factor": 4.0' asked/final/config.json || fail "$(cat asked/final/config.json)"

for model in tiny "llama"; do
    words=(model=tiny)
    [ $model = tiny ] || words=(model.arch=llama model.hidden_size=32 model.num_hidden_layers=2
        model.num_attention_heads=4 model.num_key_value_heads=2 model.intermediate_size=64
        model.vocab_size=256 model.max_position_embeddings=64)
    "$skein" train "${words[@]}" data.train=text train.batch=8 train.seq=32 train.threads=1 train.steps=250 \
        optim.lr=1e-2 val.every=0 sample.every=0 run=$model >out 2>err || { cat out err; fail "$model: no training"; }
    goes_on $model
    goes_on $model/final
    goes_on "$(ls -d $model/ckpt/step-*)"
    "$skein" export $model $model.hf >out
    goes_on $model.hf
    cmp $model.hf/model.safetensors $model/final/model.safetensors || fail "export differs from final"
    "$skein" export $model $model.half --dtype bf16 >out
    goes_on $model.half
    "$skein" export ./$model.hf $model.copy >out || fail "no export of a model directory"
    diff -r $model.hf $model.copy || fail "the export of a model directory differs"
    "$skein" export $model.hf $model.thin --dtype bfloat16 >out
    diff -r $model.half $model.thin || fail "in bf16 the export of a directory differs from that of its run"
    ! "$skein" export $model.hf ./$model.hf 2>err || fail "exported a directory onto itself"
    grep -q "are one directory" err || fail "onto itself: $(cat err)"
    "$skein" import $model.half run=$model.again "${words[@]:1}" data.train=text train.seq=32 >out || fail "import"
    rm -rf $model.again/final
    goes_on $model.again
    "$skein" verify $model $model.hf $model.half $model.again -o csv >out || fail "verify: $(cat out)"
    [ "$(grep -c ,good, out)" = 5 ] || fail "verify counts: $(cat out)"
done

one=$("$skein" sample tiny --prompt abc --tokens 60 --temp 2 --seed 5)
two=$("$skein" sample tiny --prompt abc --tokens 60 --temp 2 --seed 5)
other=$("$skein" sample tiny --prompt abc --tokens 60 --temp 2 --seed 6)
[ "$one" = "$two" ] || fail "one seed, two texts"
[ "$one" != "$other" ] || fail "two seeds, one text"
[ "$("$skein" sample tiny --prompt abc --tokens 0)" = abc ] || fail "no tokens"
# A text ends where config.json or generation_config.json say it does: 122 is z, 113 is q.
ends_at() { # directory, last letters
    local got
    got=$("$skein" sample "$1" --prompt hijklmn --tokens 40 --temp 0)
    [ "$got" = "hijklmn$2" ] || fail "$1 ends with $got, not $2"
}
names='tokenizer_config.json special_tokens_map.json added_tokens.json chat_template.jinja'
for f in $names; do printf '{"of": "%s"}\n' "$f" >tiny.hf/"$f"; done
grep -q '"max_length"' tiny.hf/generation_config.json && fail "a max_length was written"
rm tiny.hf/checksums.json # files are changed on purpose
sed -i 's/"eos_token_id": null/"eos_token_id": 122/; s/"bos_token_id": null/"bos_token_id": 97/' tiny.hf/config.json
ends_at tiny.hf opqrstuvwxy
"$skein" sample tiny.hf --prompt hijklmn --tokens 40 --temp 0 --ignore-eos | grep -q yzabc || fail "--ignore-eos"
echo '{"max_length": 20, "temperature": 0.6, "eos_token_id": [122, 113]}' >tiny.hf/generation_config.json
ends_at tiny.hf op

# What goes with the tokens goes on: trained, stopped, resumed after the first directory is gone.
carried() { # directory
    local f
    for f in $names; do cmp "$f".was "$1"/"$f" || fail "$1 has no $f"; done
    grep -q '"eos_token_id": 122' "$1"/config.json || fail "$1: ids: $(cat "$1"/config.json)"
    grep -q '"bos_token_id": 97' "$1"/config.json || fail "$1: ids: $(cat "$1"/config.json)"
    grep -q '"temperature": 0.6' "$1"/generation_config.json || fail "$1: $(cat "$1"/generation_config.json)"
    grep -q max_length "$1"/generation_config.json && fail "$1 has a max_length"
    ends_at "$1" op
}
for f in $names; do cp tiny.hf/"$f" "$f".was; done
tune() {
    "$skein" train "$@" run=tuned >out 2>err || { cat out err; fail "no tuning: $*"; }
}
tune model=./tiny.hf data.train=text train.batch=2 train.seq=32 train.steps=2 optim.lr=1e-6 val.every=0 sample.every=0
carried tuned/final
mv tiny.hf elsewhere
"$skein" train --resume run=tuned train.steps=3 >out 2>err || { cat out err; fail "resumed without its model"; }
carried tuned/final
"$skein" export tuned tuned.hf >out
carried tuned.hf
rm -r tuned/final
ends_at tuned op # from its checkpoint
"$skein" import elsewhere run=imported data.train=text train.seq=32 >out || fail "import"
mv elsewhere gone
"$skein" export imported imported.hf >out
carried imported.hf

echo "two models say the alphabet from five places; a seed says one thing"
