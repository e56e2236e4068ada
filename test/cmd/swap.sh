#!/bin/bash
# swap.sh - skein swap: three phases, the table and swap.json, going on after kill -9 and after a
# stop, layouts of phases, other keys, workers that fail.
# shellcheck source=test/lib/runs.sh
. "$(dirname "$0")/../lib/runs.sh"
subcommand=swap
cp "$root/example/layouts/tiny.yaml" "$temp/tiny.yaml"
job=(model=tiny data.train=text train.seq=16 optim.warmup=2 log.every=0 train.threads=1)
large="train.batch=16 train.steps=5"
small="train.batch=3 train.steps=4 optim.lr=5e-4"

swap() { # words: must succeed; the output is in said
    timeout 120 "$skein" swap "$@" >said 2>&1 || { rc=$?; cat said; fail "swap $*: exit code $rc"; }
    checks=$((checks + 1))
}

# ---- all phases: by hand it is the same
swap "${job[@]}" run=w --large "$large" --small "$small" --workers 3 --jobs 2
said '^large w/large/job/final 16 5 [0-9.]+ [0-9.]+ *$'
said '^small w/small/seed=4/final 3 9 [0-9.]+ [0-9.]+ *$'
said '^average w/average-3 9 [0-9.]+ [0-9.]+ *$'
said '^val [0-9.]+ after phase 1, [0-9.]+ ± [0-9.e-]+ mean of workers, [0-9.]+ average'
python3 -m json.tool w/swap.json >json 2>/dev/null || [ ! -x "$(command -v python3)" ] || fail "swap.json is no JSON"
[ "$(grep -c '"phase"' w/swap.json)" = 5 ] || fail "swap.json has other rows than the table"
"$skein" train "${job[@]}" train.batch=16 train.steps=5 run=one >/dev/null
for seed in 2 3 4; do
    "$skein" train "${job[@]}" model=one/final train.batch=3 train.steps=4 optim.lr=5e-4 train.seed=$seed run=two$seed >/dev/null
    cmp "two$seed/final/model.safetensors" "w/small/seed=$seed/final/model.safetensors" || fail "worker $seed is another model"
done
"$skein" average mean two2 two3 two4 >/dev/null
cmp mean/model.safetensors w/average-3/model.safetensors || fail "the average is another model"
"$skein" train "${job[@]}" model=mean train.batch=3 train.steps=0 run=val >/dev/null
loss=$(sed 's/.*val_loss"://; s/}//' val/metrics.jsonl)
awk -v x="$loss" -v y="$(tr -s ' ' <said | awk '/^average /{print $NF}')" 'BEGIN { exit !(x - y < 6e-6 && y - x < 6e-6) }' ||
    fail "the average's loss is $loss: $(cat said)"
"$skein" sample w/average-3 --tokens 3 --temp 0 >/dev/null || fail "the average cannot be sampled"

# ---- again: nothing is trained; forms; more workers keep those that are there
before=$(stat -c %Y.%Z w/small/*/metrics.jsonl w/average-3/model.safetensors)
swap run=w -o csv
[ "$before" = "$(stat -c %Y.%Z w/small/*/metrics.jsonl w/average-3/model.safetensors)" ] || fail "what was done is done again"
grep -q '^average,w/average-3,,9,' said || fail "csv: $(cat said)"
swap run=w/ -o json
grep -q '"phase": "average"' said || fail "json: $(cat said)"
swap run=w -o md
swap "${job[@]}" run=w --large "$large" --small "$small" --workers 4
said '^\[3/4\] finished before'
said '^average w/average-4 9 '
[ "$before" = "$(stat -c %Y.%Z w/small/seed={2,3,4}/metrics.jsonl w/average-3/model.safetensors)" ] || fail "workers are trained again"

# ---- any spelling of the directory, from anywhere
before=$(stat -c %Y.%Z w/small/*/metrics.jsonl w/val/*/metrics.jsonl)
ln -s w link
mkdir away
for dir in ./w "$PWD/w" w// away/../w link; do swap run="$dir" --workers 4; done
said '^large link/large/job/final 16 5 '
(cd away && timeout 60 "$skein" swap run=../w --workers 4 >../said 2>&1) || { cat said; fail "not from another directory"; }
[ "$before" = "$(stat -c %Y.%Z w/small/*/metrics.jsonl w/val/*/metrics.jsonl)" ] || fail "another spelling: what was done is done again"

# ---- the directory is renamed: nothing is done again, and a worker that is not done goes on there
swap run=w --workers 4 -o csv
cp said rows
before=$(stat -c %Y.%Z w/small/seed={2,4}/metrics.jsonl w/average-3/model.safetensors)
echo '{"step":5,"loss":0.1,"tokens":1,"ms":1e6}' >>w/small/seed=3/metrics.jsonl # nobody trained it
swap run=w --workers 4 -o csv
cmp said rows || fail "a step that was added is shown: $(cat said)"
sed -i '$d' w/small/seed=3/metrics.jsonl
mv w moved
swap run=moved --workers 4 -o csv
sed 's#w/#moved/#' rows | cmp - said || fail "renamed: $(cat said)"
grep -qF "weights: $PWD/moved/large/job/final" moved/small/seed=5/job.yaml || fail "job.yaml names the model of before"
rm -r moved/small/seed=5/{outcome,ckpt,final}
mv moved w
swap run=w --workers 4
said '^small w/small/seed=5/final 3 9 '
[ "$before" = "$(stat -c %Y.%Z w/small/seed={2,4}/metrics.jsonl w/average-3/model.safetensors)" ] ||
    fail "renamed: what was done is done again"
cp w/small/seed=3/job.yaml kept
sed -i 's#large/job/final#other/final#' w/small/seed=3/job.yaml
refused 73 "other/final\" is \"weights: $PWD/w/large/job/final\" now" run=w --workers 4
mv kept w/small/seed=3/job.yaml

# ---- a training without its model; a start that is not that of the other workers
mv w/small/seed=3/final kept
rm -r w/average-4
refused 65 "w/small/seed=3, is damaged: w/small/seed=3/final/config.json is not there: the model of the job is lost" run=w --workers 4
mv kept w/small/seed=3/final
mv w/large/job/final kept
refused 65 "w/large/job, is damaged: w/large/job/final/config.json is not there" run=w --workers 4
cp -r two2/final w/large/job/final
refused 65 "w/large/job, is damaged: w/large/job/final/ is not the model that the job left" run=w --workers 4
sed -i '/^final /d' w/large/job/outcome # as an outcome without its model was
refused 65 "w/large/job/final is not the model that workers began with" run=w --workers 4
rm -r w/large/job/final
mv kept w/large/job/final
swap run=w --workers 4
cp -r w further
rm -r further/small/seed=5 further/average-4
"$skein" train run=further/large/job --resume train.steps=7 >/dev/null
refused 65 "further/large/job is at step 7, and workers began with step 5" run=further --workers 4
[ ! -e further/small/seed=5 ] || fail "a worker began with another model"

# ---- a model that is damaged, or was replaced: not shown beside the losses of another
change() { printf '\001\002\003' | dd of="$1" bs=1 seek=5000 conv=notrunc status=none; }
for model in w/average-4 w/small/seed=3/final w/large/job/final; do
    cp $model/model.safetensors kept
    change $model/model.safetensors
    refused 65 "swap: $model/model.safetensors is damaged, or was changed, in bytes" run=w --workers 4
    mv kept $model/model.safetensors
done
swap run=w --workers 4
mv w/small/seed=3/final kept
cp -r two2/final w/small/seed=3/final
refused 65 "w/small/seed=3/final/ is not the model that the job left; bring that model back, or remove w/small/seed=3 to train" run=w --workers 4
rm -r w/average-4
refused 65 "w/small/seed=3/final/ is not the model that the job left" run=w --workers 4
[ ! -e w/average-4 ] || fail "a model that was replaced is averaged"
# a worker that was trained anew or further: the average and the rows are those of the one before
cp w/small/seed=3/outcome outcome
sed -i '/^final /d' w/small/seed=3/outcome
refused 65 "w/small/seed=3/final is not the model that was validated in w/val/model=seed=3" run=w --workers 4
refused 65 "w/average-3 is not the mean of the workers of now: w/average-3.models lists other models" run=w --workers 3
rm -r w/small/seed=3/final w/average-4
mv kept w/small/seed=3/final
mv outcome w/small/seed=3/outcome
swap run=w --workers 4
cp -r two2/final other
mv w/average-4 kept
mv other w/average-4
refused 65 "w/average-4 is not the model that was validated in w/val/model=average-4" run=w --workers 4
rm -r w/average-4
mv kept w/average-4
cp -r w/small/seed=5 kept
"$skein" train run=w/small/seed=5 --resume train.steps=6 >/dev/null
refused 65 "w/small/seed=5/final is not the model that the worker left" run=w --workers 4
rm -r w/small/seed=5
mv kept w/small/seed=5
swap run=w --workers 4

# ---- damaged records
cp w/val/model=seed=3/metrics.jsonl kept
echo '{"step":0,"val_loss":0.001}' >>w/val/model=seed=3/metrics.jsonl
refused 65 "w/val/model=seed=3/metrics.jsonl has" run=w --workers 4
mv kept w/val/model=seed=3/metrics.jsonl
mv w/large/job job # phase 1 is not trained again for nothing
mv w/small/start kept
refused 65 "w/small/start is lost" run=w --workers 4
[ ! -e w/large/job ] || fail "phase 1 was trained again before the swap was refused"
mv kept w/small/start
mv job w/large/job
for record in small/start average-4.models; do
    mv w/$record kept
    refused 65 "w/$record is lost" run=w --workers 4
    mv kept w/$record
done
cp w/small/start kept
for start in "" garbage "5" "$(printf '5\nsums')" "$(head -c 200 kept)"; do
    printf '%s' "$start" >w/small/start
    refused 65 "w/small/start is damaged: which model workers began with is not known" run=w --workers 4
done
mv kept w/small/start
sed 's/"version": 1/"version": 2/' w/swap.json >kept
cp w/swap.json json
mv kept w/swap.json
refused 65 'w/swap.json: "version" is not 1' run=w
mv json w/swap.json
swap run=w --workers 4

# ---- other keys are refused and change nothing
refused 73 '"steps: 4" is "steps: 5" now' "${job[@]}" run=w --large "$large" --small "$small train.steps=5" --workers 3
refused 73 '"steps: 4" is "steps: 5" now' run=w --small "$small train.steps=5" --workers 3 # --large is that of the swap
refused 73 '"batch: 16" is "batch: 8" now' run=w --large "$large train.batch=8"
refused 64 "--large is missing" run=new --small "$small"
refused 73 '"batch: 16" is "batch: 8" now' "${job[@]}" run=w --large "$large train.batch=8" --small "$small"
swap run=w

# ---- layouts of the phases, one worker, a FILE.yaml, a target of phase 1
swap tiny.yaml data.train=text run=l --workers 1 --jobs 8 \
    --large "train.batch=8 train.steps=50 val.every=2 val.stop_loss=5.3 layout='dp=2 zero=1'" \
    --small "train.batch=4 train.steps=3 layout='tp=2 sp'"
said '^average l/average-1 '
cmp l/average-1/model.safetensors l/small/seed=2/final/model.safetensors || fail "the mean of one worker is another model"
[ "$(grep -c '"ms"' l/large/job/metrics.jsonl)" -lt 50 ] || fail "phase 1 did not end at its target"
swap "${job[@]}" train.seed=7 run=s --large "$large" --small "$small" --workers 2
[[ -d s/small/seed=8 && -d s/small/seed=9 ]] || fail "seeds of workers: $(ls s/small)"

# ---- killed with -9 in phase 2, and in each later moment: jobs die with it, the end is the same
long=("${job[@]}" train.seed=1 --large "$large" --small "train.batch=3 train.steps=400 ckpt.every=50 ckpt.keep=0" --workers 3 --jobs 2)
swap "${long[@]}" run=whole
"$skein" swap "${long[@]}" run=killed >/dev/null 2>&1 &
pid=$!
until [ -e killed/small/seed=2/ckpt/step-0000000050 ]; do sleep 0.02; done
children=$(pgrep -P $pid || true)
kill -KILL $pid
wait $pid 2>/dev/null || true
for _ in $(seq 100); do
    alive=0
    for p in $children; do [ ! -d "/proc/$p" ] || alive=1; done
    [ "$alive" = 1 ] || break
    sleep 0.05
done
[ "$alive" = 0 ] || fail "jobs outlive a swap that was killed"
[ ! -e killed/average-3 ] || fail "an average of workers that are not done"
swap run=killed --jobs 2
cmp whole/average-3/model.safetensors killed/average-3/model.safetensors || fail "killed and resumed: another average"
# what a swap that was killed while it wrote its average has left
mkdir killed/average-3.tmp-0123456789abcdef killed/average-3.tmp-mine
echo half >killed/average-3.tmp-0123456789abcdef/model.safetensors
swap run=killed
[ ! -e killed/average-3.tmp-0123456789abcdef ] || fail "a half average is left"
[ -d killed/average-3.tmp-mine ] || fail "a directory that is not a swap's is gone"
# a worker whose last checkpoint found no room begins anew
rm -r killed/small/seed=2/ckpt/step-* killed/small/seed=2/outcome killed/average-3* killed/val
touch killed/{swap.json,average-3.models}.tmp-12 killed/small/{start,sweep.json}.tmp-12
swap run=killed
said '^seed=2: its last start left a model and no checkpoint; the job begins anew'
cmp whole/average-3/model.safetensors killed/average-3/model.safetensors || fail "a worker that began anew has another model"
[ -z "$(find killed -name '*.tmp-*')" ] || fail "temporary files: $(find killed -name '*.tmp-*')"
for wait in 0.3 0.9 1.8; do
    rm -rf killed
    timeout -s KILL $wait "$skein" swap "${long[@]}" run=killed >/dev/null 2>&1 || true
    if [ -e killed/swap.json ]; then swap run=killed --jobs 2; else swap "${long[@]}" run=killed; fi
    cmp whole/average-3/model.safetensors killed/average-3/model.safetensors || fail "killed after $wait s: another average"
done

# ---- asked to stop: code 75, and run=DIR goes on
rm -rf killed
"$skein" swap "${long[@]}" run=killed >first 2>&1 &
pid=$!
until [ -e killed/small/seed=2/ckpt/step-0000000050 ]; do sleep 0.02; done
kill -STOP $pid # it does not end meanwhile
began=$(date +%s%N)
refused 73 "another swap runs jobs there, process $pid on $(uname -n)" run=killed
[ $((($(date +%s%N) - began) / 1000000)) -lt 4500 ] || fail "it waited for the other swap"
kill -TERM $pid
kill -CONT $pid
rc=0
wait $pid || rc=$?
cp first said
[ "$rc" = 75 ] || [ "$rc" = 0 ] || { cat said; fail "stopped: exit code $rc"; }
for _ in $(seq 50); do # once it was not there at once, for a reason that is not known
    if [ "$rc" = 0 ] || grep -q 'stopped in phase 2' first; then break; fi
    sleep 0.1
done
if [ "$rc" = 75 ] && ! grep -q 'stopped in phase 2; skein swap run=killed goes on' first; then
    cat -A first
    tail -n 3 killed/small/*/outcome killed/small/*/log* 2>/dev/null || true
    fail "stopped with code 75, and no line that says how to go on"
fi
swap run=killed --jobs 2
cmp whole/average-3/model.safetensors killed/average-3/model.safetensors || fail "stopped and resumed: another average"

# ---- workers that fail, words that cannot be
refused 79 "workers with small batches" "${job[@]}" run=bad --large "$large" --small "train.batch=3 train.steps=9 optim.name=sgd optim.lr=1e6 optim.clip=0" --workers 2
[ ! -e bad/average-2 ] || fail "a diverged worker was averaged"
refused 78 "micro_batch" "${job[@]}" run=no --large "$large" --small "$small train.micro_batch=9"
[ ! -e no ] || fail "keys of phase 2 that cannot be are found after phase 1"
# what later phases refuse, before phase 1
refused 78 "phase 2: layout: 'tp' needs a whole number" "${job[@]}" run=no --large "$large" --small "$small layout=tp=x"
refused 78 "phase 2: layout: the mesh has 1 ranks, 2 were given" "${job[@]}" run=no --large "$large" --small "$small layout=dp=1 ranks=2"
refused 78 "phase 2: val.stop_loss needs validations" "${job[@]}" run=no --large "$large" --small "$small val.stop_loss=2 val.every=0"
refused 78 "phase 3: train.steps=0, a validation alone needs validations" "${job[@]}" run=no --large "$large" --small "$small data.val_fraction=0"
refused 65 'phase 2: data: "missing"' "${job[@]}" run=no --large "$large" --small "$small data.train=missing"
refused 65 'phase 1: data: "missing"' "${job[@]}" run=no --large "$large data.train=missing" --small "$small"
refused 64 "phase 2: train.steps is 0" "${job[@]}" run=no --large "$large" --small "$small train.steps=0"
refused 64 "phase 1: train.steps is 0" "${job[@]}" run=no --large "$large train.steps=0" --small "$small"
swap "${job[@]}" run=ada --large "$large" --small "$small train.batch=4 train.noise=1 optim.adascale=2 layout=micro=2" --workers 1
refused 64 "has 256 words or more" "${job[@]}" run=no --large "$large $(printf 'train.seq=16 %.0s' $(seq 256))" --small "$small"
refused 78 "phase 2: data.order is sequential, so that all workers" "${job[@]}" data.order=sequential run=no --large "$large" --small "$small"
refused 64 "--small is missing" "${job[@]}" run=no --large "$large"
refused 64 "--large is missing" "${job[@]}" run=no --small "$small"
refused 64 "seed" "${job[@]}" run=no --large "$large" --small "$small train.seed=3"
refused 64 "model is no key of --small" "${job[@]}" run=no --large "$large" --small "$small model=tiny"
refused 64 "model.hidden_size is no key of --small: phase 2 goes on from the model of phase 1" "${job[@]}" run=no --large "$large" --small "$small model.hidden_size=48"
refused 64 "model.hidden_size is no key of --large" "${job[@]}" run=no --large "$large model.hidden_size=48" --small "$small"
refused 64 "run is no key of --large" "${job[@]}" run=no --large "$large run=x" --small "$small"
refused 64 "not closed" "${job[@]}" run=no --large "$large layout='dp=2" --small "$small"
refused 64 "key=value" "${job[@]}" run=no --large "$large word" --small "$small"
refused 64 "resume" "${job[@]}" run=no resume=auto --large "$large" --small "$small"
echo 'resume: auto' >resume.yaml
refused 78 'resume.yaml: resume is "auto"' resume.yaml "${job[@]}" run=no --large "$large" --small "$small"
for bad in 0 1001 x 1.5; do refused 64 "--workers is \"$bad\"" "${job[@]}" run=no --large "$large" --small "$small" --workers $bad; done
refused 64 "-o xml" "${job[@]}" run=no --large "$large" --small "$small" -o xml
refused 64 "optim.lr" "${job[@]}" run=no --large "$large optim.lr=1e-3,2e-3" --small "$small"
refused 64 "there is no empty/swap.json" run=empty
mkdir -p odd
echo '{"format": "skein-sweep", "words": []}' >odd/swap.json
refused 65 "odd/swap.json is not the file of a swap" run=odd
echo '{"format": "skein-swap", "words": []}' >odd/swap.json
refused 65 'odd/swap.json: "version" is not 1' run=odd
echo '{' >odd/swap.json
refused 65 "odd/swap.json" run=odd
refused 73 "one/in: $PWD/one is the directory of a run, and jobs would lie among its files" "${job[@]}" run=one/in --large "$large" --small "$small"
[ ! -e one/in ] || fail "a refused swap made a directory in a run"
refused 64 "is no key=value" "${job[@]}" run=no --large "$large" --small "$small" word
[ ! -e no ] || fail "a refused swap made a directory"
echo "swap: $checks checks"
