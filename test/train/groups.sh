#!/bin/bash
# groups.sh - optim.groups: what is said of a group is done, shown, kept for --resume, or refused.
# shellcheck source=test/lib/runs.sh
. "$(dirname "$0")/../lib/runs.sh"
job=(model=tiny data.train=text train.batch=4 train.seq=16 train.steps=1 optim.lr=0.01 optim.warmup=0
    optim.schedule=constant order=canonical val.every=0 sample.every=0 log.every=0 train.threads=1)

does() { # run directory, then more words
    timeout 120 "$skein" train "${job[@]}" run="$1" "${@:2}" >said 2>&1 || { rc=$?; cat said; fail "train $*: exit code $rc"; }
    checks=$((checks + 1))
}

# ---- vectors do not decay, unless weight_decay is said of a group of nothing else
does plain optim.groups="vector: adamw, rest: adamw"
does mixed optim.groups="rest: adamw weight_decay=0.1"
cmp plain/final/model.safetensors mixed/final/model.safetensors || fail "vectors of a mixed group decay"
does vectors optim.groups="vector: adamw weight_decay=0.5, rest: adamw"
python3 - <<'END' || fail "vectors do not decay by lr x weight_decay"
import json, struct
def read(run):
    data = open(run + "/final/model.safetensors", "rb").read()
    n = struct.unpack("<Q", data[:8])[0]
    return {k: struct.unpack("<%df" % ((v["data_offsets"][1] - v["data_offsets"][0]) // 4),
            data[8 + n + v["data_offsets"][0]:8 + n + v["data_offsets"][1]])
            for k, v in json.loads(data[8:8 + n]).items() if k != "__metadata__"}
x, y = read("plain"), read("vectors")
moved = 0
for k in x:
    for a, b in zip(x[k], y[k]):
        want = 0.005 if ("ln_" in k and k.endswith("weight")) else 0  # of weights of 1; biases are 0
        assert abs(a - b - want) < 1e-6, (k, a, b)
        moved += want > 0
assert moved == 5 * 32, moved
END
while read -r layout; do
    rm -rf there
    does there optim.groups="vector: adamw weight_decay=0.5, rest: adamw" "layout=$layout"
    cmp there/final/model.safetensors vectors/final/model.safetensors || fail "$layout: other bits"
done <<'END'
dp=2 zero=1
dp=2 zero=3 tp=2
pp=2 micro=2
END
# ---- plan and train tell the optimizer, its groups and what was said of them
told() { # words of the line, words of the command
    local words=$1
    shift
    "$skein" plan "${job[@]}" "$@" >said 2>&1 || fail "plan $*: $(cat said)"
    grep -qF "optimizer $words" said || { cat said; fail "plan $*: it does not tell $words"; }
    checks=$((checks + 1))
}
told "adamw lr=0.01 betas=[0.9, 0.99] · constant" optim.betas=0.9,0.99
told "sam lr=0.01 base=sgd momentum=0.5 · constant · ema 0.9" optim.name=sam optim.base=sgd optim.momentum=0.5 optim.ema=0.9
told "matrix: muon lr=0.02 (24,576 parameters), rest: adamw lr=0.01 (11,136) · constant" optim.groups="matrix: muon lr=0.02, rest: adamw"
told "vector: sgd lr=0.01 (896 parameters), rest: adamw lr=0.01 (34,816) · constant · state bf16" optim.groups="vector: sgd" optim.state=bf16
# ---- without an optimizer: the one that parameters have without the group
told "h.0.*: muon lr=0.5 (12,288 parameters), h.0.*: adamw lr=0.5 (416), matrix: muon lr=0.01 (12,288), rest: adamw lr=0.01 (10,720)" optim.name=muon optim.groups="h.0.*: lr=0.5"
told "vector: adamw lr=0.5 (896 parameters), matrix: muon lr=0.01 (24,576), rest: adamw lr=0.01 (10,240)" optim.name=muon optim.groups="vector: lr=0.5"
refused 78 "momentum of the group 'h.0.ln1.*' is a number of muon, which updates none of its parameters" "${job[@]}" optim.name=muon optim.groups="h.0.ln1.*: momentum=0.5"

# ---- the long form of an optimizer for matrices is the short one, to the bit
does short-form optim.name=muon
does long-form optim.groups="matrix: muon, rest: adamw"
does none-form optim.name=muon optim.groups="rest: lr=0.01"
for run in long-form none-form; do
    cmp short-form/final/model.safetensors $run/final/model.safetensors || fail "$run: other bits than optim.name=muon"
done

# ---- a rate that nobody has is told; the rate in the metrics is one that is used
warned() { # words of the warning or "", words of the command
    local words=$1
    shift
    "$skein" plan "${job[@]}" "$@" >said 2>&1 || fail "plan $*: $(cat said)"
    if [ -z "$words" ]; then ! grep "^warning" said || fail "plan $*: a warning"
    else grep -q "^warning .*$words" said || { cat said; fail "plan $*: no warning with $words"; }; fi
    checks=$((checks + 1))
}
own="matrix: muon lr=0.02, rest: adamw lr=0.004"
idle="optim.lr is 0.01 and has no effect: every group of optim.groups has a rate of its own; leave it out"
warned "$idle" optim.groups="$own"
warned "$idle" optim.groups="matrix: muon lr=0.01, rest: adamw lr=0.004"
warned "" optim.groups="matrix: muon lr=0.02, rest: adamw"
warned "" optim.groups="matrix: muon lr=0.02, vector: adamw lr=0.004"
warned "" optim.groups="$own" optim.schedule=linear optim.min_lr=0.001
warned "optim.name, optim.betas have no effect: every parameter is in a group of optim.groups with another optimizer than lion" \
    optim.name=lion optim.betas=0.5,0.6 optim.groups="$own"
warned "optim.betas has no effect: every .* than adamw; leave it out" optim.betas=0.5,0.6 optim.groups="matrix: muon lr=0.01, rest: lion lr=0.01"
warned "" optim.name=muon optim.momentum=0.9 optim.groups="matrix: muon lr=0.01, rest: lion"
warned "" optim.name=lion optim.groups="matrix: muon lr=0.01"
warned "" optim.name=lion optim.betas=0.5,0.6 optim.groups="matrix: muon, rest: lr=0.01"
does own optim.groups="$own"
grep -q '"lr":0.02[,}]' own/metrics.jsonl || fail "metrics: $(cat own/metrics.jsonl)"
grep -q 'optim.lr is 0.01 and has no effect' said || fail "train does not tell it: $(cat said)"
does follows optim.groups="matrix: muon lr=0.02, rest: adamw"
grep -q '"lr":0.02[,}]' follows/metrics.jsonl || fail "metrics have another rate than the first group's: $(cat follows/metrics.jsonl)"
"$skein" train run=own --resume train.steps=2 >said 2>&1 || fail "it cannot be resumed: $(cat said)"

# ---- a resumed run: the rate of each group against the one that its parameters had
does rates optim.lr=0.001 optim.groups="matrix: muon lr=0.01, rest: adamw"
jumps() { # words of the warning or "", words of the command
    local words=$1
    shift
    rm -rf other
    does other resume=rates/ckpt/step-0000000001 train.steps=3 optim.lr=0.001 "$@"
    if [ -z "$words" ]; then ! grep jumps said || fail "resume $*: no rate jumps"
    else grep -qF "warning   the learning rate of $words at step 2: train.steps was 1 and is 3; optim." said || { cat said; fail "resume $*: no warning with $words"; }; fi
}
jumps "" optim.groups="matrix: muon lr=0.01, rest: adamw lr=9e-4"
[ "$(grep -c '"lr":0.01[,}]' other/metrics.jsonl)" = 2 ] || fail "the rate in the metrics is another one: $(cat other/metrics.jsonl)"
jumps "" optim.groups="vector: adamw lr=0.0011, matrix: muon lr=0.011, rest: adamw"
jumps "'matrix: muon' jumps from 0.01 to 0.005, that of 'rest: adamw' from 0.001 to 0.002" optim.groups="matrix: muon lr=0.005, rest: adamw lr=2e-3"
jumps "'matrix: muon' jumps from 0.01 to 0.1" optim.groups="matrix: muon lr=0.1, rest: adamw"
jumps "'rest: adamw' jumps from 0.001 to 0.003" optim.groups="matrix: muon lr=0.01, rest: adamw" optim.lr=0.003
jumps "'vector: adamw' jumps from 0.001 to 0.01" optim.groups="vector: adamw lr=0.01, matrix: muon lr=0.01, rest: adamw"

# ---- a resumed run: what config.yaml says of the former optimizer, in whole lines, and defaults not at all
"$skein" train run=own --resume optim.name=muon train.steps=3 >said 2>&1 || fail "muon: $(cat said)"
if grep "no such key" said; then fail "defaults of adamw are told"; fi
does lion optim.name=lion optim.betas=0.5,0.6 optim.weight_decay=0.05 optim.groups="$own"
"$skein" train run=lion --resume optim.name=sgd train.steps=2 >said 2>&1 || fail "sgd: $(cat said)"
grep -q '^warning   optim.betas of lion/config.yaml: sgd has no such key; optim.groups="rest: adamw betas=\[0.5, 0.6\], ..."' said || fail "no line about betas: $(cat said)"
checks=$((checks + 2))

# ---- the output projection of tied weights is no head
refused 78 "no parameter is in the group 'head': the model has tied weights, so its output projection is the embedding" "${job[@]}" optim.groups="head: sgd"
told "head: sgd lr=0.01 (8,192 parameters)" optim.groups="head: sgd" model.tie_word_embeddings=false

# ---- K-FAC needs factors: what has none goes to the next group, which is told
warned "" optim.name=kfac
warned "a side of 'h.0.fc.w' has more than 16,384 rows, .* kfac goes by the other side alone" optim.name=kfac model.intermediate_size=16400
warned "kfac is for weights that one product alone reads, .*: adamw takes 'layers.0.w'" model=mlp model.input_size=16400 model.hidden_size=16400 optim.name=kfac
told "rest: adamw lr=0.01" model=mlp model.input_size=16400 model.hidden_size=16400 optim.name=kfac
warned "kfac is for .*: adamw takes 'wte' and 19 others" optim.groups="rest: kfac"
refused 78 "no parameter is in the group 'embedding': kfac needs Kronecker factors" "${job[@]}" optim.groups="embedding: kfac"
does factors optim.groups="rest: kfac"
does no-factors optim.groups="matrix: kfac, rest: adamw"
cmp factors/final/model.safetensors no-factors/final/model.safetensors || fail "what has no factors is not updated by the next group"

# ---- optim.work that no matrix can have is told
warned "optim.work is owner, and no optimizer works on whole matrices; leave it out" optim.work=owner
warned "optim.work is owner, and no matrix can be worked on so: .* by all that have them" optim.name=muon optim.work=owner
warned "optim.work is cut, and no matrix can be worked on so" optim.name=muon optim.work=cut layout=tp=2
warned "optim.work is all, and no matrix can be worked on so: .* by 2 owners along dp" optim.name=muon optim.work=all layout="dp=2 zero=1"
for work in all owner; do warned "" optim.name=muon optim.work=$work layout=dp=2; done
warned "" optim.name=muon optim.work=cut layout=tp=2 order=fast

does tells optim.groups="vector: adamw weight_decay=0.5, rest: adamw"
grep -q '^optimizer vector: adamw lr=0.01 weight_decay=0.5 (896 parameters), rest: adamw lr=0.01 (34,816)' said || fail "train: $(cat said)"

# ---- flops of a step, and so MFU, are those of the model: no optimizer, no extras of the backward pass
flops() { "$skein" plan "${job[@]}" "$@" | sed -n 's/^model.* \([0-9.e+]*\) flop a step/\1/p'; }
for words in optim.name=muon optim.name=kfac train.backward=kron train.backward="norms, variance"; do
    [ "$(flops "$words")" = "$(flops optim.name=adamw)" ] || fail "$words: $(flops "$words") flops a step, not $(flops optim.name=adamw)"
done
checks=$((checks + 4))

# ---- another base of sam: state of the same names that means another thing
for words in "optim.name=sam" "optim.groups=rest: sam"; do
    rm -rf sam
    does sam "$words"
    base=()
    if [ "$words" = optim.name=sam ]; then base=(optim.base=sgd); fi
    refused 78 "whose state has the same names and another meaning" run=sam --resume train.steps=3 "${words/rest: sam/rest: sam base=sgd}" \
        "${base[@]}"
    "$skein" train run=sam --resume train.steps=2 >said 2>&1 || fail "the same base: $(cat said)"
done

# ---- eps=0: where gradients are 0 a step is 0 / 0, which the error report tells
refused 79 "eps is 0: where all gradients so far are 0 a step is 0 / 0" "${job[@]}" run=eps optim.eps=0 train.steps=3
! grep -q "eps is 0" <("$skein" train "${job[@]}" run=huge optim.lr=1e30 optim.clip=0 optim.name=sgd train.steps=5 2>&1) || fail "eps is blamed"

# ---- --resume with another optimizer says which key differs, before any rank starts
resume=(--resume train.steps=3)
does muon optim.groups="matrix: muon, rest: adamw" layout="dp=2 zero=1" ranks=2
refused 78 'optim.groups was "matrix: muon, rest: adamw" and is "matrix: sgd, rest: adamw"' run=muon "${resume[@]}" optim.groups="matrix: sgd, rest: adamw"
refused 78 'optim.groups was "matrix: muon, rest: adamw" and is ""' run=muon "${resume[@]}" optim.groups=
"$skein" train run=muon "${resume[@]}" optim.groups="matrix: muon lr=0.1, rest: adamw" >said 2>&1 || fail "another rate: $(cat said)"
refused 78 "optim.name was adamw and is lion" run=plain "${resume[@]}" optim.name=lion optim.groups=

# ---- adafactor factors every matrix; a checkpoint of hidden ones alone, of an earlier version, goes on by groups
told "rest: adafactor lr=0.01 (34,816 parameters), rest: adafactor-vector lr=0.01 (896) · constant" optim.name=adafactor
told "rest: adafactor lr=0.01 (43,008 parameters), rest: adafactor-vector lr=0.01 (896)" optim.name=adafactor model.tie_word_embeddings=false
told "embedding: adafactor lr=0.5 (10,240 parameters), rest: adafactor lr=0.01 (24,576), rest: adafactor-vector lr=0.01 (896)" optim.name=adafactor optim.groups="embedding: lr=0.5"
hidden="matrix: adafactor, rest: adafactor-vector"
does earlier optim.name=adafactor optim.groups="$hidden"
python3 - earlier/config.yaml earlier/ckpt/step-0000000001/MANIFEST.json <<'END'
import re, sys
def crc32c(data):
    crc = 0xffffffff
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82f63b78 if crc & 1 else 0)
    return crc ^ 0xffffffff
for path in sys.argv[1:]:
    text = open(path).read()
    text, n = re.subn(r'groups: (\\?")matrix: adafactor, rest: adafactor-vector', r"groups: \1", text)
    assert n == 1, path
    if path.endswith(".json"):
        text = text[:-27] + '"check":"crc32c:%08x"}\n' % crc32c(text[:-27].encode())
    open(path, "w").write(text)
END
refused 78 "it was saved by an earlier version, in which adafactor had hidden matrices alone; resume with optim.groups=\"$hidden\"" run=earlier "${resume[@]}"
"$skein" train run=earlier "${resume[@]}" optim.groups="$hidden" >said 2>&1 || fail "the groups that it names: $(cat said)"
does at-once optim.name=adafactor optim.groups="$hidden" train.steps=3
cmp earlier/final/model.safetensors at-once/final/model.safetensors || fail "a checkpoint of an earlier version goes on with other bits"

does soap optim.name=soap layout="dp=2 zero=1" ranks=2
refused 78 "has state that this run would drop, 'h.0.fc.w.soap.l': optim.max_dim was 8192 and is 16" run=soap "${resume[@]}" optim.max_dim=16
refused 78 "optim.max_dim was 8192 and is 64" run=soap "${resume[@]}" optim.max_dim=64
does short optim.name=soap optim.max_dim=16
refused 78 "has no 'h.0.qkv.w.soap.p': optim.max_dim was 16 and is 8192" run=short "${resume[@]}" optim.max_dim=8192
"$skein" train run=soap "${resume[@]}" optim.max_dim=8000 layout=tp=2 >said 2>&1 || fail "the same state: $(cat said)"
checks=$((checks + 2))

echo "groups: $checks checks"
