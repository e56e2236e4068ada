#!/bin/bash
# average.sh - skein average: means of runs, checkpoints and model directories; what sample, train,
# verify and export make of them; weights; models that differ, damaged files, places not to write to.
# shellcheck source=test/lib/runs.sh
. "$(dirname "$0")/../lib/runs.sh"
job=(model=tiny data.train=text train.seq=16 train.batch=4 train.steps=6 val.every=0 sample.every=0
    log.every=0 train.threads=1)

does() { # words: must succeed; the output is in said
    timeout 120 "$skein" "$@" >said 2>&1 || { rc=$?; cat said; fail "$*: exit code $rc"; }
    checks=$((checks + 1))
}

subcommand=average
does train "${job[@]}" ckpt.every=2 ckpt.keep=0 run=a
does train "${job[@]}" train.seed=2 run=b
does train "${job[@]}" train.seed=3 run=c -n 2

# ---- runs, checkpoints and directories are the same models; copies have their bits
does average ab a b
does average ab2 a/final b/ckpt/step-0000000006
cmp ab/model.safetensors ab2/model.safetensors || fail "a run, its checkpoint and its final/ are not one model"
cmp ab/config.json a/final/config.json || fail "another config.json"
cmp ab/tokenizer.json a/final/tokenizer.json || fail "another tokenizer"
does average aaa a/final a a/ckpt/step-0000000006 --weights 1,2,1
cmp aaa/model.safetensors a/final/model.safetensors || fail "the mean of copies is another model"
does average only a/final b/final --weights 0,3
grep -q '^saved only/, a copy in f32 of the one model with a weight above 0; nothing is averaged:$' said || fail "one weight: $(cat said)"
cmp only/model.safetensors b/final/model.safetensors || fail "a weight of 0 counts"

# ---- averages of weights: taken as final/ has them, or not, and told
does train "${job[@]}" optim.ema=0.9 run=e
does average mean-e e
grep -q '^saved mean-e/, a copy of one model in f32; nothing is averaged:$' said || fail "one model: $(cat said)"
grep -q '^  1      e/ckpt/step-0000000006  the averages of its weights$' said || fail "which weights: $(cat said)"
cmp mean-e/model.safetensors e/final/model.safetensors || fail "the averages are not those of final/"
does average mean-w e --training-weights
grep -q '^  1      e/ckpt/step-0000000006  its training weights$' said || fail "which weights: $(cat said)"
cmp mean-w/model.safetensors a/final/model.safetensors || fail "the weights are not those of a run without averages"
does average mean-ab a b
! grep -q 'weights' said || fail "a kind of weights where there is one: $(cat said)"
refused 64 "--training-weights is for checkpoints, and a/final is a model directory" no a/final --training-weights

# ---- the numbers, by another program
if python3 -c 'import struct, json' 2>/dev/null; then
    does average abc a b c --weights 1,2.5,0.5
    does average last a --last 3
    python3 - <<'END' || fail "other numbers than Python's"
import json, struct
def read(path):
    data = open(path + "/model.safetensors", "rb").read()
    n = struct.unpack("<Q", data[:8])[0]
    head = json.loads(data[8:8 + n]); out = {}
    for name, t in head.items():
        if name == "__metadata__": continue
        b, e = t["data_offsets"]
        out[name] = struct.unpack("<%df" % ((e - b) // 4), data[8 + n + b:8 + n + e])
    return out
def f32(x): return struct.unpack("<f", struct.pack("<f", x))[0]
a, b, c, got = read("a/final"), read("b/final"), read("c/final"), read("abc")
assert got.keys() == a.keys()
for name in a:
    for x, y, z, g in zip(a[name], b[name], c[name], got[name]):
        assert g == f32((1 * x + 2.5 * y + 0.5 * z) / 4.0), (name, x, y, z, g)
END
fi
for k in 2 4 6; do does export a/ckpt/step-000000000$k e$k; done
does average last1 a --last 1
grep -q 'a copy of one model in f32; nothing is averaged:$' said || fail "--last 1: $(cat said)"
does average last a --last 3
grep -q '^saved last/, the mean of 3 models in f32:$' said || fail "--last 3: $(cat said)"
does average last2 e2 e4 e6
cmp last/model.safetensors last2/model.safetensors || fail "--last 3 is not the mean of the last three"
! cmp -s last/model.safetensors a/final/model.safetensors || fail "--last 3 is the last one"

# ---- what others make of it
does sample ab --tokens 4 --temp 0
does verify ab
grep -q 'good' said || fail "verify: $(cat said)"
does train "${job[@]}" model=ab run=on
does export ab half --dtype bf16
does average half2 half half
does export half2 half3 --dtype bf16
cmp half2/model.safetensors half3/model.safetensors || fail "the mean of bf16 models is not bf16"
does average wide half a --dtype f32
refused 64 "a is a run; the first word is the directory to write" a b
refused 64 "--dtype f32" no half a

# ---- models that differ
does train "${job[@]}" model.hidden_size=48 run=w
does train "${job[@]}" model.num_hidden_layers=3 run=d
refused 78 "has sizes" no a w
grep -qF "'wte' has sizes" said || fail "not the first tensor: $(cat said)"
refused 78 "is not in" no a d
does train model=llama-tiny data.train=text train.seq=16 train.batch=4 train.steps=2 val.every=0 sample.every=0 log.every=0 run=l
refused 78 "one architecture is needed" no a l
cp -r a/final eps
sed -i 's/"layer_norm_epsilon": [0-9.e-]*/"layer_norm_epsilon": 0.25/' eps/config.json
rm eps/checksums.json
refused 78 "layer_norm_epsilon" no a eps
cp -r a/final tok
rm tok/checksums.json tok/tokenizer.json
refused 78 "tokenizer.json of" no a tok

# ---- damaged files, wrong words, places
cp -r a/final cut
truncate -s -1 cut/model.safetensors
refused 65 "cut" no a cut
cp -r a/final flip
printf '\377' | dd of=flip/model.safetensors bs=1 seek=5000 conv=notrunc status=none
refused 65 "flip" no a flip
cp -r a/ckpt/step-0000000006 step-0000000006
printf '\377\377\377' | dd of=step-0000000006/m-00000.safetensors bs=1 seek=5000 conv=notrunc status=none
refused 65 "step-0000000006" no b step-0000000006
# the newest checkpoint of a run is damaged: an older one is named, and not taken unasked
cp -r a hurt
truncate -s -10 hurt/ckpt/step-0000000006/m-00000.safetensors
refused 65 "average: the newest checkpoint of hurt, step 6 is not usable: " no b hurt
grep -qF "name the one to take: hurt/ckpt/step-0000000004 is good" said || fail "no hint: $(cat said)"
refused 65 "step-0000000006" no hurt --last 2
does average older b hurt/ckpt/step-0000000004
does average good hurt/final b
cmp good/model.safetensors ab/model.safetensors || fail "final/ of a run whose checkpoint is damaged is another model"
does export hurt exported
grep -q '^skein: warning: hurt: step 6 is not usable: .*; hurt/ckpt/step-0000000004 is taken' said || fail "export: $(cat said)"
rm -r hurt/final
does sample hurt --tokens 2
grep -q '^skein: warning: hurt: step 6 is not usable: ' said || fail "sample: $(cat said)"
rm hurt/ckpt/step-0000000006/MANIFEST.json
refused 65 "the newest checkpoint of hurt, step 6 is not usable" no b hurt
refused 65 "missing" no a missing
refused 65 "preset" no a preset:tiny
refused 65 "has 3 checkpoints, --last asks for 4" no a --last 4
refused 65 "is no run" no a/final --last 2
refused 64 "one run" no a b --last 1
for bad in 0 -1 2.5 many; do refused 64 "--last is \"$bad\"" no a --last $bad; done
refused 64 "has 1 number for 2 models" no a b --weights 1
refused 64 "has 3 numbers for 2 models" no a b --weights 1,2,3
for bad in 1,x 1,-1 "1," nan,1 inf,1; do refused 64 "no number from 0 on" no a b --weights "$bad"; done
refused 64 "above 0" no a b --weights 0,0
refused 64 "--dtype f64" no a b --dtype f64
refused 64 "are needed" no
refused 73 "one directory" ab b ab
refused 73 "in the directory of a run" a/final b
refused 73 "cannot make the folder /proc/no" /proc/no a b
refused 73 "in the directory of a run" a/ckpt/new a b
refused 73 "in the directory of a run" a/ckpt/deep/er/new a b
ln -s a/ckpt link
refused 73 "in the directory of a run" link/new a b
rm link
# a full disk names the directory: here files of at most 64 KiB
(trap '' XFSZ; ulimit -f 64; "$skein" average full/no a b >said 2>&1) && fail "a full disk: saved"
grep -q '^skein: full/no was not saved: model.safetensors: no space for [0-9]* bytes' said || fail "a full disk: $(cat said)"
[ -z "$(ls full)" ] || fail "a full disk: left $(ls full)"
mkdir mine
echo keep >mine/notes
refused 73 "mine" mine a b
[ "$(cat mine/notes)" = keep ] || fail "somebody's files are gone"
[ ! -e no ] || fail "a refused average left a directory"
[ -z "$(find . -maxdepth 1 -name '*.tmp-*')" ] || fail "a refused average left a temporary directory"

# ---- an older average is replaced, in one move
does average ab a b
cmp ab/model.safetensors ab2/model.safetensors || fail "again: another model"
echo "average: $checks checks"
