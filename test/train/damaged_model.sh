#!/bin/bash
# damaged_model.sh - whatever loads a model directory holds it to its checksums.json: every command, every file of it, ranks that
# share the chunks of a file, damaged sums, links, directories without sums, and DAMAGES (12) random bytes.
set -eu
cd "$(dirname "$0")/../.."
skein=$(realpath "${SKEIN:-build/release/skein}")
[ -x "$skein" ] || { echo "there is no $skein"; exit 77; }
temp=$(mktemp -d)
trap 'rm -rf "$temp"' EXIT
cp example/one_file.c "$temp/text"
cd "$temp"
checks=0
job=(data.train=text train.seq=16 train.batch=4 train.steps=2 val.every=0 sample.every=0 log.every=0 train.threads=1)

fail() {
    echo "$*"
    exit 1
}

does() { # words: must succeed
    timeout 120 "$skein" "$@" >said 2>&1 || { rc=$?; cat said; fail "$*: exit code $rc"; }
    checks=$((checks + 1))
}

refused() { # words of the sentence, words of the command
    local words=$1 rc=0
    shift
    timeout 60 "$skein" "$@" >said 2>&1 || rc=$?
    [ $rc = 65 ] || { cat said; fail "$*: exit code $rc, not 65"; }
    grep -qF -- "$words" said || { cat said; fail "$*: \"$words\" is not in its sentence"; }
    checks=$((checks + 1))
}

flip() { # file, byte, bits
    local byte
    byte=$(od -An -tu1 -j "$2" -N 1 "$1")
    # shellcheck disable=SC2059  # a byte has no other spelling
    printf "\\x$(printf %x $((byte ^ $3)))" | dd of="$1" bs=1 seek="$2" conv=notrunc status=none
}

all_refuse() { # words of the sentence: by everything that loads the directory d
    rm -rf to
    refused "$1" train "${job[@]}" model=./d run=to/train
    refused "$1" train "${job[@]}" model=./d run=to/ranks -n 2 layout=dp=2
    refused "$1" sample d --tokens 2
    refused "$1" export d to/export
    refused "$1" import ./d run=to/import data.train=text
    refused "$1" average to/average d good
    refused "$1" rate "${job[@]}" model=./d --steps 10
    refused "$1" sweep "${job[@]}" model=./d optim.lr=1e-3,2e-3 run=to/sweep
    refused "$1" swap "${job[@]}" model=./d run=to/swap --large train.steps=1 --small train.steps=1
    refused "$1" verify d
}

does train "${job[@]}" model=tiny run=a
mv a/final good

# ---- every command and every file; the last byte of weights is a number as good as any other
for f in model.safetensors config.json tokenizer.json generation_config.json; do
    rm -rf d && cp -r good d
    flip d/$f $(($(stat -c %s d/$f) - 3)) 1
    all_refuse "d/$f is damaged, or was changed"
    grep -qF "if the change is meant, remove checksums.json" said || fail "no hint"
done
rm -rf d && cp -r good d
rm d/tokenizer.json
refused "d/tokenizer.json" sample d --tokens 2

# ---- sums that are damaged themselves: cut, malformed, empty, of a newer format, no file
size=$(stat -c %s good/checksums.json)
sums_damaged_by() { # command that damages the file given as its last word
    rm -rf d && cp -r good d
    "$@" d/checksums.json
    refused "d/checksums.json" sample d --tokens 2
}
sums_damaged_by truncate -s -1
sums_damaged_by truncate -s $((size / 2))
sums_damaged_by truncate -s 0
sums_damaged_by sed -i 's/model.safetensors/nodel.safetensors/'
sums_damaged_by sed -i 's/"major":1/"major":2/'
all_refuse "d/checksums.json"
rm d/checksums.json && mkdir d/checksums.json
refused "d/checksums.json" sample d --tokens 2

# ---- what has no sums loads as it is, also damaged; a file that is not listed may be anything
rm -rf d && cp -r good d
echo anything >d/README.md
does sample d --tokens 2
rm d/checksums.json
flip d/model.safetensors $(($(stat -c %s d/model.safetensors) - 3)) 1
does sample d --tokens 2
does train "${job[@]}" model=./d run=bare

# ---- links, as in a cache of Hugging Face, are followed
mkdir blobs links
for f in good/*; do cp "$f" blobs && ln -s "../blobs/$(basename "$f")" links; done
does sample links --tokens 2
flip blobs/model.safetensors 100000 16
refused "links/model.safetensors is damaged" sample links --tokens 2

# ---- what a run kept of its tokenizer, when the first is gone
cp -r good tokens
does train "${job[@]}" model=tiny data.tokenizer=./tokens run=kept ckpt.every=1
rm -r tokens
does train --resume run=kept train.steps=3
flip kept/tokenizer/tokenizer.json 1000 1
refused "kept/tokenizer/tokenizer.json is damaged" train --resume run=kept train.steps=4

# ---- ranks share the chunks of 4 MiB: whoever has the damaged one tells it
does train "${job[@]}" train.steps=1 model=tiny model.vocab_size=270000 run=wide
size=$(stat -c %s wide/final/model.safetensors)
[ "$size" -gt $((32 << 20)) ] || fail "the wide model has only $size bytes"
does train "${job[@]}" model=./wide/final run=wide2 -n 2 layout=dp=2
for at in 5000000 10000000 30000000 $((size - 2)); do
    flip wide/final/model.safetensors "$at" 2
    from=$((at / 4194304 * 4194304))
    refused "model.safetensors is damaged, or was changed, in bytes $from to" train "${job[@]}" model=./wide/final run=wide3 \
        -n 2 layout=dp=2
    refused "model.safetensors is damaged, or was changed, in bytes $from to" sample wide/final --tokens 1
    flip wide/final/model.safetensors "$at" 2
done

# ---- random bytes of random files
RANDOM=${SEED:-1}
files=(good/*)
rm -rf d && cp -r good d
for _ in $(seq "${DAMAGES:-12}"); do
    f=d/$(basename "${files[RANDOM % ${#files[@]}]}")
    at=$(((RANDOM * 32768 + RANDOM) % $(stat -c %s "$f")))
    bits=$((1 + RANDOM % 255))
    flip "$f" $at $bits
    refused "$f" sample d --tokens 2
    refused "$f" train "${job[@]}" model=./d run=to/random
    flip "$f" $at $bits
done
does sample d --tokens 2

echo "damaged models: $checks commands refuse, or load, what they must"
