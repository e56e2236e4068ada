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
told "vector: sgd lr=0.1 (896 parameters), rest: adamw lr=0.01 (34,816) · constant · state bf16" optim.groups="vector: sgd" optim.state=bf16
does tells optim.groups="vector: adamw weight_decay=0.5, rest: adamw"
grep -q '^optimizer vector: adamw lr=0.01 weight_decay=0.5 (896 parameters), rest: adamw lr=0.01 (34,816)' said || fail "train: $(cat said)"

# ---- flops of a step, and so MFU, are those of the model: no optimizer, no extras of the backward pass
flops() { "$skein" plan "${job[@]}" "$@" | sed -n 's/^model.* \([0-9.e+]*\) flop a step/\1/p'; }
for words in optim.name=muon optim.name=kfac train.backward=kron train.backward="norms, variance"; do
    [ "$(flops "$words")" = "$(flops optim.name=adamw)" ] || fail "$words: $(flops "$words") flops a step, not $(flops optim.name=adamw)"
done
checks=$((checks + 4))

# ---- --resume with another optimizer says which key differs, before any rank starts
resume=(--resume train.steps=3)
does muon optim.groups="matrix: muon, rest: adamw" layout="dp=2 zero=1" ranks=2
refused 78 'optim.groups was "matrix: muon, rest: adamw" and is "matrix: sgd, rest: adamw"' run=muon "${resume[@]}" optim.groups="matrix: sgd, rest: adamw"
refused 78 'optim.groups was "matrix: muon, rest: adamw" and is ""' run=muon "${resume[@]}" optim.groups=
"$skein" train run=muon "${resume[@]}" optim.groups="matrix: muon lr=0.1, rest: adamw" >said 2>&1 || fail "another rate: $(cat said)"
refused 78 "optim.name was adamw and is lion" run=plain "${resume[@]}" optim.name=lion optim.groups=
does soap optim.name=soap layout="dp=2 zero=1" ranks=2
refused 78 "has state that this run would drop, 'h.0.fc.w.soap.l': optim.max_dim was 8192 and is 16" run=soap "${resume[@]}" optim.max_dim=16
refused 78 "optim.max_dim was 8192 and is 64" run=soap "${resume[@]}" optim.max_dim=64
does short optim.name=soap optim.max_dim=16
refused 78 "has no 'h.0.qkv.w.soap.p': optim.max_dim was 16 and is 8192" run=short "${resume[@]}" optim.max_dim=8192
"$skein" train run=soap "${resume[@]}" optim.max_dim=8000 layout=tp=2 >said 2>&1 || fail "the same state: $(cat said)"
checks=$((checks + 2))

echo "groups: $checks checks"
