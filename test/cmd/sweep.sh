#!/bin/bash
# sweep.sh - skein sweep: grids and draws, tables, a job that fails, kill -9 and going on, keys that
# are refused, studies and fits.
# shellcheck source=test/lib/runs.sh
. "$(dirname "$0")/../lib/runs.sh"
subcommand=sweep

job=(model=tiny data.train=text data.order=sequential train.seq=16 train.batch=4 train.steps=6
    optim.warmup=2 log.every=0 train.threads=1) # threads: sums are added in another order with more

sweep() { # words: must succeed; the output is in said
    timeout 120 "$skein" sweep "$@" >said 2>&1 || { rc=$?; cat said; fail "sweep $*: exit code $rc"; }
    checks=$((checks + 1))
}

loss_of() { grep -o "\"step\":$2,\"$3\":[0-9.e+-]*" "$1/metrics.jsonl" | sed 's/.*://'; }

# ---- a grid with seeds, two at a time: the losses are those of train, whatever runs beside it
sweep "${job[@]}" optim.lr=1e-3,1e-2 train.seed=1..2 run=grid --jobs 2 --svg grid.svg
said '^\[4/4\] done'
said '^1e-2 2/2 [0-9.]+ [0-9.e-]+ [0-9.]+ [0-9.e-]+ 6 384 [0-9.]+ done'
[ "$(find grid -name outcome | wc -l)" = 4 ] || fail "not every job has an outcome"
"$skein" train "${job[@]}" optim.lr=1e-2 train.seed=2 run=alone >/dev/null
[ "$(loss_of alone 6 loss)" = "$(loss_of grid/lr=1e-2,seed=2 6 loss)" ] || fail "another loss than train's"
[ "$(loss_of alone 6 val_loss)" = "$(loss_of grid/lr=1e-2,seed=2 6 val_loss)" ] || fail "another validation"
[ -e grid/lr=1e-2,seed=2/final/model.safetensors ] || fail "there is no model"
cores=$(env -u OMP_NUM_THREADS nproc) # of which each of two jobs has half
[ "$cores" -lt 2 ] || grep -qE "^machine   ($((cores / 2))|$(((cores + 1) / 2))) core" grid/lr=1e-2,seed=1/console.log ||
    fail "cores are not divided: $(grep '^machine' grid/lr=1e-2,seed=1/console.log)"
head -n 1 grid/jobs.csv | grep -qx '"\?job"\?,optim.lr,train.seed,loss,val,steps,tokens,seconds,state,why' ||
    fail "jobs.csv begins with $(head -n 1 grid/jobs.csv)"
[ "$(wc -l <grid/jobs.csv)" = 5 ] || fail "jobs.csv has $(wc -l <grid/jobs.csv) lines"
[ "$(grep -c 'class="job"' grid.svg)" = 2 ] || fail "the picture has other points than the table"
python3 - <<'END' 2>/dev/null || [ ! -x "$(command -v python3)" ] || fail "grid.svg is no XML"
import xml.dom.minidom
xml.dom.minidom.parse("grid.svg")
END

# ---- again: nothing is trained; json of the same table; only the directory is named
refused 78 "'mun' is unknown (did you mean 'muon', " "${job[@]}" optim.name=adamw,mun run=no
refused 78 'unknown word "zro"' "${job[@]}" 'layout=[dp=2],[zro=1]' run=no
refused 64 'optim.schedule is "cosin"' "${job[@]}" optim.schedule=cosine,cosin run=no
before=$(stat -c %Y.%Z grid/*/metrics.jsonl)
sweep run=grid -o json
[ "$before" = "$(stat -c %Y.%Z grid/*/metrics.jsonl)" ] || fail "finished jobs were run again"
said '^\[4/4\] finished before'
said '"optim.lr": 1e-2, "seeds": "2/2", "loss": [0-9.]+, .*"state": "done"'
sweep run=grid/ --table -o csv
[ "$(wc -l <said)" = 3 ] || fail "a table of two groups has $(wc -l <said) lines"
# a larger grid in the same directory keeps what is there
sweep "${job[@]}" optim.lr=1e-3,1e-2,1e-1 train.seed=1..2 run=grid --dry
grep -oE 'done|waiting' said | sort | uniq -c | tr -s ' \n' ' ' | grep -qx ' 4 done 2 waiting ' ||
    fail "an extended grid: $(cat said)"
refused 73 '"steps: 6" is "steps: 7" now' "${job[@]}" optim.lr=1e-3,1e-2 train.seed=1..2 train.steps=7 run=grid
sweep run=grid # what was refused is not what the directory remembers
said '^\[4/4\] finished before'

# ---- other values in the same directory: nothing of what is there is dropped
before=$(cat grid/jobs.csv grid/sweep.json)
refused 73 'grid has 4 jobs of a sweep over other values, the first lr=1e-2,seed=1,' "${job[@]}" train.batch=2,4 run=grid
refused 73 'grid has 2 jobs of a sweep over other values, the first lr=1e-2,seed=1,' "${job[@]}" optim.lr=1e-3,1e-1 train.seed=1..2 run=grid
[ "$before" = "$(cat grid/jobs.csv grid/sweep.json)" ] || fail "a refused sweep changed the records of another"
[[ ! -e grid/batch=2 && ! -e grid/lr=1e-1,seed=1 ]] || fail "a refused sweep began jobs"
sweep run=grid
said '^\[4/4\] finished before'

# ---- jobs that fail are rows, and the exit code is that of the first that was refused
refused 78 '2 of the 4 jobs of mixed are not done; the first, lr=1e-3,micro_batch=8, is refused: train.micro_batch is 8' \
    "${job[@]}" optim.name=sgd optim.clip=0 optim.lr=1e-3,1e6 train.micro_batch=0,8 run=mixed
said '^1e-3 0 [0-9.]+ [0-9.]+ 6 384 [0-9.]+ done'
said '^1e-3 8 0 0 0.000 refused train.micro_batch is 8, more than train.batch, which is 4'
said '^1e6 0 [0-9]+ [0-9]+ [0-9.]+ diverged step'
refused 78 'are not done' run=mixed
said '^\[2/4\] finished before' # the refused ones are told again, the diverged one is not tried again
refused 79 "none of the 1 job" "${job[@]}" optim.name=sgd optim.clip=0 optim.lr=1e6 run=bad
refused 78 "train.micro_batch is 8" "${job[@]}" train.micro_batch=8,9 run=none
[ ! -e none ] || fail "a sweep without jobs made a directory"
sweep run=mixed --table # looks, and judges nothing
sweep "${job[@]}" optim.name=sgd optim.clip=0 optim.lr=1e-3,1e6 run=wild # a job that diverged is a result
# a pair that cannot be is a row, also where the key belongs to another optimizer
refused 64 '2 of the 4 jobs of pairs are not done; the first, name=adamw,momentum=0, is refused: command line: optim.momentum is for other optimizers' \
    "${job[@]}" optim.name=sgd,adamw optim.momentum=0,0.9 run=pairs
said '^sgd 0.9 [0-9.]+ [0-9.]+ 6 384 [0-9.]+ done'
said '^adamw 0.9 0 0 0.000 refused command line: optim.momentum is for other optimizers'
refused 64 'momentum is for other optimizers' "${job[@]}" optim.name=sgd,adamw optim.momentum=0.5 run=pair
said '^sgd [0-9.]+ [0-9.]+ 6 384 [0-9.]+ done'
refused 64 'momentum is for other optimizers' "${job[@]}" optim.name=lion,adamw optim.momentum=0.5,0.9 run=x
refused 64 'optim.momentum is "7"' "${job[@]}" optim.name=sgd,adamw optim.momentum=0.5,7 run=x
# ---- a job that was done, and whose losses are lost or cut
sweep "${job[@]}" optim.lr=1e-3,2e-3 run=cut
cp cut/lr=1e-3/metrics.jsonl kept
rm cut/lr=1e-3/metrics.jsonl
refused 65 'cut/lr=1e-3/metrics.jsonl has 0 bytes, and ' run=cut
said '^1e-3 .* damaged cut/lr=1e-3/metrics.jsonl has 0 bytes'
head -n 3 kept >cut/lr=1e-3/metrics.jsonl
refused 65 'remove cut/lr=1e-3 to train the job again' run=cut
sweep run=cut --table
said '^1e-3 .* damaged cut/lr=1e-3/metrics.jsonl has [1-9]'
said '^2e-3 .* done *$'
# as many bytes as before: garbage, one digit, no line that ends
for edit in 's/./x/g' 's/"loss":[0-9]/"loss":9/' 's/}$/x/'; do
    sed "$edit" kept >cut/lr=1e-3/metrics.jsonl
    refused 65 'cut/lr=1e-3/metrics.jsonl is damaged, or was changed: the sum of its first' run=cut
    said '^1e-3 .* damaged cut/lr=1e-3/metrics.jsonl is damaged'
done
cp cut/lr=1e-3/outcome outcome
printf '0\n\n%d\n' "$(wc -c <kept)" >cut/lr=1e-3/outcome # bytes without their sum
sed 's/./x/g' kept >cut/lr=1e-3/metrics.jsonl
refused 65 'cut/lr=1e-3/metrics.jsonl is damaged: it has no losses' run=cut
cp kept cut/lr=1e-3/metrics.jsonl
sweep run=cut
for text in "" 0 $'0\n' $'0\n\n' $'0\n\nx\n' $'0\n\n12 x\n' "$(head -n 2 outcome)" "$(head -c -3 outcome)" "$(cat outcome outcome)"; do
    printf '%s' "$text" >cut/lr=1e-3/outcome
    refused 65 'cut/lr=1e-3/outcome is not the outcome of a job; remove it' run=cut
done
cp outcome cut/lr=1e-3/outcome
# ---- the model of a job that is done: lost, or another one
mv cut/lr=1e-3/final kept-model
refused 65 'cut/lr=1e-3/final/config.json is not there: the model of the job is lost; bring final/ back, or remove cut/lr=1e-3' run=cut
said '^1e-3 .* damaged cut/lr=1e-3/final'
cp -r cut/lr=2e-3/final cut/lr=1e-3/final
refused 65 'cut/lr=1e-3/final/ is not the model that the job left' run=cut
rm -r cut/lr=1e-3/final
mv kept-model cut/lr=1e-3/final
cp cut/lr=1e-3/final/model.safetensors kept-tensors
truncate -s -1 cut/lr=1e-3/final/model.safetensors
size=$(stat -c %s kept-tensors)
refused 65 "cut/lr=1e-3/final/model.safetensors has $((size - 1)) bytes, and $size were written; bring final/ back, or remove cut/lr=1e-3" run=cut
rm cut/lr=1e-3/final/model.safetensors
refused 65 'cut/lr=1e-3/final/model.safetensors is missing; bring final/ back' run=cut
said '^1e-3 .* damaged cut/lr=1e-3/final/model.safetensors is missing'
mv kept-tensors cut/lr=1e-3/final/model.safetensors
sweep run=cut
# lines behind those of the job, and no other model: the row stays, also after a validation by hand
sweep run=cut -o csv
cp said rows
echo '{"step":6,"val_loss":0.0001}' >>cut/lr=1e-3/metrics.jsonl
sweep run=cut -o csv
cmp said rows || fail "a loss that was added is shown: $(cat said)"
echo '{"step":7,"loss":0.0001,"tokens":448,"ms":1}' >>cut/lr=1e-3/metrics.jsonl
sweep run=cut -o csv
cmp said rows || fail "a step that was added is shown: $(cat said)"
"$skein" train run=cut/lr=1e-3 --resume train.steps=0 >/dev/null
[ "$(wc -l <cut/lr=1e-3/metrics.jsonl)" -gt "$(wc -l <kept)" ] || fail "a validation by hand left no line"
sweep run=cut -o csv
cmp said rows || fail "a validation by hand is shown: $(cat said)"
cp kept cut/lr=1e-3/metrics.jsonl
# ---- job.yaml, sweep.json
cp cut/lr=1e-3/job.yaml kept.yaml
for text in '' 'a: [b' 'word' 'optim: 3'; do
    printf '%s' "$text" >cut/lr=1e-3/job.yaml
    refused 65 'cut/lr=1e-3/job.yaml:' run=cut
    grep -q 'it is damaged; bring it back, or remove cut/lr=1e-3 to train' said || fail "no remedy: $(cat said)"
done
mv kept.yaml cut/lr=1e-3/job.yaml
cp cut/sweep.json kept.json
for version in 2 '"1"' 1.5 null; do
    sed "s/\"version\": 1/\"version\": $version/" kept.json >cut/sweep.json
    refused 65 'cut/sweep.json: "version" is not 1, the only one that this skein reads' run=cut
done
mv kept.json cut/sweep.json
sweep run=cut
# trained further by hand: its row is that of the longer run
"$skein" train run=cut/lr=1e-3 --resume train.steps=8 >/dev/null
sweep run=cut
said '^1e-3 [0-9.]+ [0-9.]+ 8 .* done *$'
"$skein" train run=grid/lr=1e-2,seed=2 --resume train.steps=8 >/dev/null
sweep run=grid
said '^1e-2 2/2 [0-9.]+ [0-9.e-]+ [0-9.]+ [0-9.e-]+ 6\.\.8 384\.\.512 [0-9.]+ done'
rm -r cut/lr=1e-3
sweep run=cut
said '^1e-3 [0-9.]+ .* done *$'
sweep "${job[@]}" optim.lr=1e-3,2e-3 train.steps=0 model=cut/lr=1e-3/final run=looked # leaves no model
sweep run=looked
said '^\[2/2\] finished before'
echo '{"step":0,"val_loss":0.0001}' >>looked/lr=1e-3/metrics.jsonl
refused 65 'were written: losses were added; bring the file back, or remove looked/lr=1e-3' run=looked

# ---- not among the files of a run
for dir in alone alone/in alone/ckpt/a/b ./grid/lr=1e-2,seed=1/deep; do
    refused 73 'is the directory of a run, and jobs would lie among its files; name another run=DIR' "${job[@]}" optim.lr=1e-3,2e-3 run=$dir
done
[[ ! -e alone/in && ! -e alone/LOCK && ! -e alone/ckpt/a ]] || fail "a refused sweep made files in a run"

# ---- commas within a value: brackets, or refused; nothing is guessed
refused 64 'write "optim.groups=[matrix: muon, rest: adamw]" for one value' "${job[@]}" optim.groups="matrix: muon, rest: adamw" optim.lr=1e-3,2e-3 run=commas
sweep "${job[@]}" optim.groups="[matrix: muon, rest: adamw betas=[0.9,0.95]]" optim.lr=1e-3,2e-3 run=commas
grep -q 'groups: .*matrix: muon, rest: adamw betas=\[0.9,0.95\]' commas/lr=1e-3/job.yaml || fail "other groups: $(grep groups commas/*/job.yaml)"
sweep "${job[@]}" optim.groups="[matrix: muon, rest: adamw],[rest: lion]" run=two --dry
said '^2 jobs in two'

refused 65 '1 of the 2 jobs of lost is not done; it, train=missing, is refused: data' "${job[@]}" "data.train=[text],[missing]" run=lost
said '^missing 0 0 0.000 refused data'
cp text missing # a job that was refused is tried again
sweep run=lost
said '^missing [0-9.]+ [0-9.]+ 6 384 [0-9.]+ done'

# ---- killed with -9: its jobs die with it, and a second start goes on from their checkpoints
long=("${job[@]}" train.steps=600 ckpt.every=50 ckpt.keep=0 val.every=0 "optim.lr=1e-3,1e-2")
sweep "${long[@]}" run=whole --jobs 2
"$skein" sweep "${long[@]}" run=killed --jobs 2 >/dev/null 2>&1 &
pid=$!
until [ -e killed/lr=1e-3/ckpt/step-0000000050 ] && [ -e killed/lr=1e-2/ckpt/step-0000000050 ]; do sleep 0.02; done
children=$(pgrep -P $pid)
kill -KILL $pid
wait $pid 2>/dev/null || true
for _ in $(seq 100); do
    alive=0
    for p in $children; do [ ! -d "/proc/$p" ] || alive=1; done
    [ "$alive" = 1 ] || break
    sleep 0.05
done
[ "$alive" = 0 ] || fail "jobs outlive a sweep that was killed"
sweep run=killed --dry
said '^lr=1e-3 1e-3 (broken|done)'
sweep run=killed --jobs 2
for lr in 1e-3 1e-2; do
    cmp "whole/lr=$lr/final/model.safetensors" "killed/lr=$lr/final/model.safetensors" ||
        fail "killed and resumed: another model"
done

# ---- what a full disk leaves, a model without a checkpoint: the job begins anew, and the others stay
for code in '74' none; do # none: there was no room for the outcome either
    cp -r whole full
    rm -r full/lr=1e-3/ckpt/step-*
    printf '74\nthe last checkpoint was not saved\n0 00000000\n' >full/lr=1e-3/outcome
    [ $code = 74 ] || rm full/lr=1e-3/outcome
    touch full/{sweep.json,jobs.csv}.tmp-12 full/lr=1e-3/{job.yaml,outcome}.tmp-345 full/lr=1e-2/outcome.tmp-9
    touch full/jobs.csv.tmp-mine full/lr=1e-3/outcome.tmp-
    before=$(stat -c %Y.%Z full/lr=1e-2/metrics.jsonl)
    sweep run=full
    said '^lr=1e-3: its last start left a model and no checkpoint; the job begins anew'
    said '^\[2/2\] done'
    cmp whole/lr=1e-3/final/model.safetensors full/lr=1e-3/final/model.safetensors ||
        fail "a job that began anew has another model"
    [ "$before" = "$(stat -c %Y.%Z full/lr=1e-2/metrics.jsonl)" ] || fail "a job that was done was run again"
    [ "$(find full -name '*.tmp-*' | sort | tr '\n' ' ')" = "full/jobs.csv.tmp-mine full/lr=1e-3/outcome.tmp- " ] ||
        fail "temporary files: $(find full -name '*.tmp-*')"
    rm -r full
done
# somebody's own files are not removed
cp -r whole full
rm -r full/lr=1e-3/ckpt/step-* full/lr=1e-3/outcome
echo mine >full/lr=1e-3/final/notes
refused 73 "lr=1e-3, is failed: run full/lr=1e-3 has a model in final/ and no checkpoint" run=full
[ -e full/lr=1e-3/final/notes ] || fail "a file that skein did not write is gone"
rm -r full

# ---- asked to stop: jobs save, code 75, and the same command goes on
"$skein" sweep "${long[@]}" train.steps=1000000 ckpt.every=10m run=stopped --jobs 2 >stop.out 2>&1 &
pid=$!
until [ "$(grep -c loss stopped/lr=1e-3/metrics.jsonl 2>/dev/null)" -ge 3 ] 2>/dev/null; do sleep 0.02; done
sweep run=stopped --table -o csv
said '^1e-3,.*,running,'
# another sweep in the same directory is refused at once
began=$(date +%s%N)
refused 73 "another sweep runs jobs there, process $pid on $(uname -n)" run=stopped
[ $((($(date +%s%N) - began) / 1000000)) -lt 4500 ] || fail "it waited for the other sweep"
kill -TERM $pid
rc=0
wait $pid || rc=$?
[ $rc = 75 ] || { cat stop.out; fail "asked to stop: exit code $rc"; }
grep -q 'skein sweep run=stopped goes on' stop.out || fail "asked to stop: $(cat stop.out)"
sweep run=stopped --dry
said '(stopped|broken)'

# ---- draws: as many as asked for, with every seed, the first ones the same when there are more
sweep "${job[@]}" optim.lr=log:1e-4:1e-1 train.batch=2,4,8 train.seed=1,2 run=drawn --random 3 --seed 5 --dry -o csv
[ "$(wc -l <said)" = 7 ] || fail "3 draws with 2 seeds: $(cat said)"
cp said three
sweep "${job[@]}" optim.lr=log:1e-4:1e-1 train.batch=2,4,8 train.seed=1,2 run=drawn --random 6 --seed 5 --dry -o csv
head -n 7 said | cmp - three || fail "more draws changed the first"
sweep "${job[@]}" optim.lr=log:1e-4:1e-1 train.batch=2,4,8 train.seed=1,2 run=drawn --random 3 --seed 6 --dry -o csv
cmp -s said three && fail "another seed draws the same"
sweep "${job[@]}" train.batch=2,4 run=drawn --random 9 --dry -o csv
[ "$(wc -l <said)" = 3 ] || fail "two values are two jobs, however many are drawn: $(cat said)"

# ---- keys
refused 64 'did you mean "optim.lr"' "${job[@]}" optim.lrr=1,2
refused 64 'did you mean "train.seed"' "${job[@]}" seed=1..3
refused 64 'optim.lr is "a"' "${job[@]}" optim.lr=1e-3,a run=x
refused 64 'optim.betas=[...],[...]' "${job[@]}" optim.betas=0.9,0.95 run=x
refused 64 'has no number of values' "${job[@]}" optim.lr=log:1e-4:1e-1 run=x
refused 64 'upwards from above 0' "${job[@]}" optim.lr=log:0:1:3 run=x
refused 64 'LOW:HIGH:N' "${job[@]}" optim.lr=log:1:3:x run=x
refused 64 'among other values' "${job[@]}" optim.lr=1,log:1e-2:1e-1 run=x
refused 64 'FIRST..LAST' "${job[@]}" train.seed=3..1 run=x
refused 64 'the value 4 twice' "${job[@]}" train.batch=4,4 run=x
refused 64 'optim.lr has one value twice, as 1e-3 and as 0.001: lr=1e-3 and lr=0.001 would be the same job; leave one out' "${job[@]}" optim.lr=1e-3,0.001 run=x
refused 64 'train.seed has one value twice, as 1 and as 01' "${job[@]}" train.batch=4,8 train.seed=1,01 run=x
refused 64 'comm.bucket has one value twice, as 1MiB and as 1048576' "${job[@]}" comm.bucket=1MiB,1048576 run=x
own='optim.groups=[matrix: muon lr=0.01, rest: adamw lr=1e-3]'
refused 64 'optim.lr has several values and no effect: every group of optim.groups has a rate of its own, so lr=2e-3 and lr=2e-2 would be the same job' \
    "${job[@]}" optim.lr=2e-3,2e-2 "$own" run=x
refused 64 'so lr=2e-3,batch=4 and lr=2e-2,batch=4 would be' "${job[@]}" optim.lr=2e-3,2e-2 train.batch=4,8 "$own" run=x
sweep "${job[@]}" optim.lr=2e-3,2e-2 "${own% lr=*}]" run=x --dry
said '^2 jobs in x'
refused 64 'is empty' "${job[@]}" train.batch=4,,8 run=x
refused 64 'resumes its jobs by itself' "${job[@]}" train.batch=4,8 resume=auto run=x
echo 'resume: auto' >resume.yaml
refused 78 'resume.yaml: resume is "auto"' resume.yaml "${job[@]}" train.batch=4,8 run=x
refused 64 'more than 10000 jobs' "${job[@]}" train.seed=1..1000 optim.lr=lin:1:2:11 run=x
refused 64 '--jobs is "0"' "${job[@]}" train.batch=4,8 --jobs 0 run=x
refused 64 'there are csv, json and md' "${job[@]}" train.batch=4,8 -o xml run=x
refused 64 'needs the law' "${job[@]}" train.batch=4,8 --predict-params 1e6 run=x
refused 64 'which keys?' --jobs 2
PMI_RANK=0 PMI_SIZE=2 refused 64 'a sweep is one process' "${job[@]}" train.batch=4,8 run=x
refused 64 'there is no nowhere/sweep.json' run=nowhere
refused 73 "cannot create the picture '/nonexistent/x.svg'" "${job[@]}" train.batch=4,8 --svg /nonexistent/x.svg run=x
refused 73 "cannot create the picture '/tmp'" "${job[@]}" train.batch=4,8 --svg /tmp run=x
[ ! -e x ] || fail "a refused command made a directory"
[ ! -e nowhere ] || fail "looking for a sweep made a directory"
mkdir broken
echo '{"words": 3}' >broken/sweep.json
refused 65 'not the file of a sweep' run=broken
sweep "${job[@]}" "optim.betas=[0.9,0.95],[0.9,0.99]" "layout=[dp=1],[dp=2 zero=1]" train.steps=log:4:16:3 run=x --dry -o csv
grep -q '"0.9,0.99",dp=2 zero=1,16,waiting' said || fail "brackets: $(cat said)"
[ "$(wc -l <said)" = 13 ] || fail "2 x 2 x 3 jobs: $(cat said)"

# ---- steps to a target against the batch size
sweep "${job[@]}" train.steps=40 train.batch=2,4,8 optim.lr=1e-2,3e-2 val.every=4 run=study --target-loss 4.5
said '^train.batch keys reached steps steps_sd tokens seconds gain scaling'
said '^2 lr=[13]e-2 [01]/1'
said '^critical batch'
! grep -q noise_scale said || fail "a noise scale that nobody measured: $(cat said)"
sweep "${job[@]}" train.steps=40 train.batch=2,4,8,16 optim.lr=3e-2 val.every=4 layout=micro=2 train.noise=1 run=noisy --target-loss 4.0
said '^critical batch: ([0-9.e+]+ \(steps = [0-9.e+]+ \+ [0-9.e+]+ / batch\)|above|below)'
said '^noise scale: -?[0-9.e+]+, the median of [1-4] batch sizes? \(-?[0-9.e+]+ to [0-9.e+]+\)'
said '^4 - 1/1 .* [0-9.e+]+$'
sweep run=noisy --table --target-loss 4.0 -o csv
head -n 1 said | grep -q 'scaling,noise_scale$' || fail "csv: $(cat said)"
sweep "${job[@]}" train.steps=20 train.batch=2,4 val.every=4 run=two --target-loss 5.3
said '^critical batch: 2 batch sizes reach the target; 3 are needed'
sweep "${job[@]}" train.steps=20 train.batch=2,4,8 val.every=10 run=early --target-loss 5.5 # there at the first validation
said '^2 - 1/1 <= 10 <= 320 <= [0-9.]+$'
said '^3 of 3 rows are at the target at the first validation: .*lower val.every$'
said '^critical batch: steps of 0 batch sizes are known; 3 are needed'
for dry in "" --dry; do # a law that the jobs are too few for
    # shellcheck disable=SC2086  # an option or nothing
    refused 65 "the points have 2 different numbers of tokens; at least 4 are needed" "${job[@]}" train.steps=2,3 run=unfit --fit $dry
    [ ! -e unfit ] || fail "--fit trained jobs that are too few"
done
sweep "${job[@]}" train.batch=2,4 run=fewer --random 5 --dry
said '^skein: note: --random 5, and 2 combinations of values were found'
sweep run=study --table --target-loss 0.001 -o csv
[ "$(grep -c 'not reached' said)" = 3 ] || fail "a loss that nobody reaches: $(cat said)"
# all batch sizes are validated on the same sequences
grep -h '  batches:' study/*/job.yaml | sort | uniq -c | awk '{ print $1, $3 }' >found
printf '2 2\n2 4\n2 8\n' | cmp - found || fail "validations: $(cat found)"

# ---- laws: the fit itself is tested by plan_scaling_law
refused 65 'at least 4' run=study --table --fit
sweep "${job[@]}" train.steps=10,20,40,80 optim.lr=1e-2 run=law --jobs 2 --fit --predict train.steps=160
said '^loss = E \+ B / D\^beta over 4 points'
said '^loss at N=35712 D=10240'
! grep -q 'held out' said || fail "a job that is not there is held out: $(cat said)"
# a job of the size that is asked for is left out of the fit, and compared with it
sweep "${job[@]}" train.steps=10,20,40,80,160 optim.lr=1e-2 run=law --jobs 2 --fit --predict train.steps=160
said '^loss = E \+ B / D\^beta over 4 points'
said '^measured there \(held out\) [0-9.]+$'
said '^prediction off by, % -?[0-9.]+$'
sweep run=law --table --fit
said '^loss = E \+ B / D\^beta over 5 points'
sweep run=law --table --fit --predict-tokens 10240 -o csv
grep -q '^measured there (held out),' said || fail "csv: $(cat said)"
said '^name,value,low,high'
said '^beta,[0-9.]+,'
refused 64 'says nothing about' run=law --table --fit --predict-params 1e6
refused 64 'differ in parameters and in tokens' run=law --table --fit --predict-compute 1e12

echo "$checks sweeps and lines"
