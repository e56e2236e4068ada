#!/bin/bash
# gist.sh - training with kept results in fewer bits: the same bits, less memory; a step whose results find
# no room is run again.
set -eu
cd "$(dirname "$0")/../.."
skein=$(realpath "${SKEIN:-build/release/skein}")
temp=$(mktemp -d)
trap 'rm -rf "$temp"' EXIT
cd "$temp"
for i in {1..300}; do echo "Line $i of a text that says much the same in every line."; done >text
fail() { echo "$*" && exit 1; }

runs=0
job="model=switch-tiny model.num_hidden_layers=8 data.train=text train.batch=8 train.threads=1 train.steps=6 val.every=0 sample.every=0"
train() { # name, words
    local name=$1
    shift
    runs=$((runs + 1))
    # shellcheck disable=SC2086  # words
    "$skein" train $job log.every=1 run="$name" "$@" >"$name.out" 2>&1 || fail "$name: $(tail -n 3 "$name.out")"
    grep -q "planned = .* mapped" "$name.out" || fail "$name: other bytes than planned"
}
same() { cmp "$1/final/model.safetensors" "$2/final/model.safetensors" || fail "$1 and $2 differ"; }
bytes() { grep -o '"mem_bytes":[0-9]*' "$1/metrics.jsonl" | tail -n 1 | cut -d: -f2; }
again() { grep -c '"again":1' "$1/metrics.jsonl" || true; }
refused() { # what it says, words
    local says=$1
    shift
    # shellcheck disable=SC2086
    if "$skein" train $job run=refused "$@" >refused.out 2>&1; then fail "$*: it ran"; fi
    grep -q "$says" refused.out || fail "$*: $(tail -n 3 refused.out)"
}

for layout in "dp=2" "pp=2 micro=4" "tp=2 micro=2" "dp=2 zero=3"; do
    train "plain" layout="$layout"
    train "roomy" layout="$layout gist=60"
    train "close" layout="$layout gist=5"
    same plain roomy
    same plain close
    [ "$(again roomy)" = 0 ] || fail "$layout: $(again roomy) steps had no room in 60 per cent"
    [ "$(again close)" = 6 ] || fail "$layout: $(again close) of 6 steps had no room in 5 per cent"
    grep -q "fallback  6 of 6 steps were run again" close.out || fail "$layout: the end does not tell"
    [ "$(bytes roomy)" -lt "$(bytes plain)" ] || fail "$layout: $(bytes roomy) bytes, without it $(bytes plain)"
    rm -rf plain roomy close
done
train plain layout="dp=2" train.dropless=1
train both layout="dp=2 gist=40" train.dropless=1
same plain both
train one layout="gist=50" order=canonical
train two layout="dp=2 tp=2" order=canonical
same one two
refused "gist=60 and train.relayout" layout="dp=2 gist=60" train.relayout="3: tp=2"
refused "gist=60 runs a step again" layout="pp=2 micro=4 schedule=pipedream gist=60" optim.clip=0 model.tie_word_embeddings=false
refused "gist=60 runs a step again .* leave out .feedback" layout="dp=2 gist=60 grads=int4 feedback"
refused "train.dropless runs a step again .* leave out .feedback" layout="dp=2 grads=int4 feedback" train.dropless=1
refused "gist=60 runs a step again .* leave out .sync" layout="dp=2 gist=60 sync=diloco:2"
train owed layout="dp=2 grads=int4 feedback"
train signs layout="dp=2 gist grads=int4 feedback"
same owed signs
echo "gist: $runs runs: the same bits; $(again both) of 6 steps again with experts"
