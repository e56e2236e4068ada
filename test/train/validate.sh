#!/bin/bash
# validate.sh - train.steps=0 (one validation on all data), accuracy of classifiers on every layout,
# and training that ends at a validation loss or accuracy.
# shellcheck source=test/lib/runs.sh
. "$(dirname "$0")/../lib/runs.sh"

# 96 and 40 pictures of 5 by 5 with the bar of their class: labels can be learned.
python3 - <<'END' || { echo "there is no python3 to write pictures"; exit 77; }
import os, random, struct
random.seed(5)
os.mkdir("pictures")
for name, n in (("train", 96), ("t10k", 40)):
    pixels, labels = bytearray(), bytearray()
    for i in range(n):
        c = random.randrange(5)
        labels.append(c)
        for y in range(5):
            for x in range(5):
                pixels.append(min(255, (200 if x == c else 0) + random.randrange(120)))
    open("pictures/%s-images-idx3-ubyte" % name, "wb").write(struct.pack(">IIII", 2051, n, 5, 5) + pixels)
    open("pictures/%s-labels-idx1-ubyte" % name, "wb").write(struct.pack(">II", 2049, n) + labels)
END
job=(model=mlp model.input_size=25 model.hidden_size=8 model.vocab_size=5 data.train=pictures train.batch=8
    optim.lr=0.02 log.every=0 train.threads=1)

does() {
    timeout 120 "$skein" train "$@" >said 2>&1 || { rc=$?; cat said; fail "train $*: exit code $rc"; }
    checks=$((checks + 1))
}

right() { grep -o '"val_accuracy":[0-9.]*' "$1/metrics.jsonl" | tail -n 1 | sed 's/.*://'; }

does "${job[@]}" train.steps=40 val.batches=5 run=a
grep -q '% right' said || fail "the console has no accuracy: $(tail -n 4 said)"
trained=$(right a)

# ---- a validation alone: all 40 pictures, the same count on every layout, nothing else is written
k=0
while read -r layout; do
    k=$((k + 1))
    rm -rf e
    does "${job[@]}" model=a/final train.steps=0 run=e "layout=$layout"
    [ "$(wc -l <e/metrics.jsonl)" = 1 ] || fail "train.steps=0: $(cat e/metrics.jsonl)"
    [ "$(right e)" = "$trained" ] || fail "$layout: $(right e) are right, not $trained"
    [ ! -e e/final ] || fail "train.steps=0 wrote a model"
done <<'END'

dp=2
dp=2 zero=3
tp=5
pp=2 micro=4 schedule=gpipe
pp=2 micro=2 schedule=1f1b
dp=2 tp=2
END
rm -rf e
does "${job[@]}" model=a/final train.steps=0 run=e order=canonical
[ "$(right e)" = "$trained" ] || fail "canonical order: $(right e) are right, not $trained"
rm -rf e
does "${job[@]}" model=a/final train.steps=0 run=e train.dtype=bf16 layout=tp=5
awk -v x="$(right e)" -v y="$trained" 'BEGIN { exit !(x > y - 0.15 && x < y + 0.15) }' || fail "bf16: $(right e), not $trained"
# batches that do not divide the 40 pictures, or have room for more: each picture counts once
loss() { sed -n 's/.*"val_loss":\([0-9.]*\).*/\1/p' "$1/metrics.jsonl" | tail -n 1; }
rm -rf e
does "${job[@]}" model=a/final train.steps=0 run=e
exact=$(loss e)
while read -r batch layout; do
    rm -rf e
    does "${job[@]}" model=a/final train.steps=0 run=e train.batch="$batch" "layout=$layout"
    awk -v x="$(loss e)" -v y="$exact" 'BEGIN { exit !(x > y - 1e-6 && x < y + 1e-6) }' ||
        fail "batch $batch $layout: the loss is $(loss e), not $exact"
    [ "$(right e)" = "$trained" ] || fail "batch $batch $layout: $(right e) are right, not $trained"
done <<'END'
1
12
16 dp=2
16 pp=2 micro=4 schedule=1f1b
32 dp=2 zero=3
64 dp=4
64 tp=5
END
rm -rf e
does "${job[@]}" model=a/final train.steps=0 run=e train.batch=32 val.batches=2
grep -q 'it takes each once' said || fail "more batches than data: $(cat said)"
[[ -n $(loss e) && $(right e) = "$trained" ]] || fail "more batches than data: $(right e)"
refused 78 "val.batches is 0" "${job[@]}" model=a/final train.steps=0 val.batches=0 run=n
rm -rf e
# another program counts the same: the class of the largest logit
python3 - "$trained" <<'END' || fail "Python counts others"
import json, math, struct, sys
data = open("a/final/model.safetensors", "rb").read()
n = struct.unpack("<Q", data[:8])[0]
t = {k: struct.unpack("<%df" % ((v["data_offsets"][1] - v["data_offsets"][0]) // 4),
     data[8 + n + v["data_offsets"][0]:8 + n + v["data_offsets"][1]])
     for k, v in json.loads(data[8:8 + n]).items() if k != "__metadata__"}
images = open("pictures/t10k-images-idx3-ubyte", "rb").read()[16:]
labels = open("pictures/t10k-labels-idx1-ubyte", "rb").read()[8:]
def gelu(x): return 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3)))
best = {}
for norm in ("255", "0.5"):
    found = 0
    for i in range(40):
        x = [p / 255 if norm == "255" else p / 255 * 2 - 1 for p in images[25 * i:25 * i + 25]]
        h = [gelu(sum(w * v for w, v in zip(t["layers.0.weight"][25 * k:25 * k + 25], x)) + t["layers.0.bias"][k]) for k in range(8)]
        y = [sum(w * v for w, v in zip(t["layers.1.weight"][8 * k:8 * k + 8], h)) + t["layers.1.bias"][k] for k in range(5)]
        found += y.index(max(y)) == labels[i]
    best[norm] = found / 40
assert float(sys.argv[1]) in best.values(), (sys.argv[1], best)
END

# ---- a run that is validated stays as it was: the next --resume goes on with its steps
cp a/config.yaml before
does run=a --resume train.steps=0
! grep -q '^warning' said || fail "warnings about steps: $(cat said)"
cmp before a/config.yaml || fail "train.steps=0 of a run changed its config.yaml"
does run=a --resume train.steps=42
grep -q '2 steps' said || fail "the run did not go on: $(tail -n 3 said)"
does "${job[@]}" resume=a train.steps=0 run=fresh
grep -q 'steps: 0' fresh/config.yaml || fail "a directory of its own has no config.yaml"

# ---- training ends there, on two ranks, and says it once
does "${job[@]}" train.steps=400 val.every=5 val.batches=5 val.stop_accuracy=0.9 run=s ranks=2
last=$(tail -n 1 s/metrics.jsonl)
grep -q val_accuracy <<<"$last" || fail "the last line is no validation: $last"
[ "$(sort s/metrics.jsonl | uniq -d | wc -l)" = 0 ] || fail "a validation is told twice"
steps=$(grep -c '"ms"' s/metrics.jsonl)
[[ $steps -lt 400 && $((steps % 5)) = 0 ]] || fail "it ended after $steps steps"
[ -e s/final/model.safetensors ] || fail "there is no model"
does "${job[@]}" train.steps=400 val.every=5 val.stop_loss=1 run=l
[ "$(grep -c '"ms"' l/metrics.jsonl)" -lt 400 ] || fail "val.stop_loss did not stop"
grep val_loss l/metrics.jsonl | sed 's/.*val_loss"://; s/[,}].*//' | awk '{ last = $1; if ($1 <= 1) n++ } END { exit !(last <= 1 && n == 1) }' ||
    fail "it did not end at the first such loss"

# ---- stopped in the step of such a validation, which the resumed run makes up for; resumed behind it, it is over
ends=(model=tiny model.hidden_size=8 data.train=text train.seq=8 train.batch=4 train.threads=1 train.steps=300 log.every=0
    val.every=6 sample.every=6 val.stop_loss=10)
does "${ends[@]}" run=u
SKEIN_FAULT=slow:2000:0:5 "$skein" train "${ends[@]}" run=i >said 2>&1 &
pid=$! rc=0
for _ in $(seq 600); do if grep -qs '"step":4,' i/metrics.jsonl; then break; fi; sleep 0.05; done
kill -INT $pid
wait $pid || rc=$?
if [ $rc != 75 ] || ! grep -q 'stopped after step 6,' said; then cat said; fail "SIGINT: exit code $rc"; fi
! grep -q val_loss i/metrics.jsonl || fail "a run that is asked to stop validates first"
cp -r i k
does run=k --resume val.stop_loss=0 train.steps=8
[ "$(grep -ac '▸' said)" = 2 ] || fail "the sample that was due is not made up for: $(cat said)"
does run=i --resume
cmp u/final/model.safetensors i/final/model.safetensors || fail "stopped and resumed: another model"
[ "$(grep val_loss i/metrics.jsonl)" = "$(grep val_loss u/metrics.jsonl)" ] || fail "other validations: $(cat i/metrics.jsonl)"
does run=u --resume
said 'warning the run ended at step 6, where the validation loss was .*: to train on, set val.stop_loss to less than that, or to 0'
said 'done 0 steps'
does run=u --resume val.stop_loss=0.1 train.steps=8
[ "$(grep -c '"ms"' u/metrics.jsonl)" = 8 ] || fail "a run that ended does not go on with another val.stop_loss"

# ---- pairs, whose weights are their own: a batch of 3 has the loss of batches of 1
for i in 1 2 3 4 5 6 7; do echo "{\"prompt\": \"what is $i plus $i\", \"completion\": \"it is $((i + i)), as all know\"}"; done >pairs.jsonl
for b in 1 3; do
    does model=tiny data.train=text data.val=pairs.jsonl train.seq=24 train.batch=$b train.steps=0 run="p$b" log.every=0 sample.every=0
done
awk -v x="$(loss p3)" -v y="$(loss p1)" 'BEGIN { exit !(x > y - 1e-5 && x < y + 1e-5) }' || fail "pairs: $(loss p3), not $(loss p1)"

# ---- a text model has no accuracy; what cannot work is refused
text=(model=tiny data.train=text train.seq=16 train.batch=4 log.every=0 sample.every=0)
does "${text[@]}" train.steps=0 run=t
! grep -q accuracy t/metrics.jsonl || fail "text has an accuracy"
refused 78 "no classes" "${text[@]}" val.stop_accuracy=0.5 run=n
refused 78 "val.every is 0" "${text[@]}" train.steps=0 val.every=0 run=n
refused 78 "val.every is 0" "${text[@]}" val.stop_loss=1 val.every=0 run=n
refused 78 "data.val" "${text[@]}" train.steps=0 data.val_fraction=0 run=n
refused 64 "val.stop_accuracy" "${job[@]}" val.stop_accuracy=2 run=n
refused 64 "leave one of them out" "${text[@]}" train.steps=0 train.time=5 run=n
echo "validate: $checks checks"
