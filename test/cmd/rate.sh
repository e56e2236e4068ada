#!/bin/bash
# rate.sh - skein rate: the suggestion is a rate that trains, results are those of the seed and of no
# layout, tables and the picture have all steps, and what cannot be done is refused by its name.
set -eu
cd "$(dirname "$0")/../.."
skein=$(realpath "${SKEIN:-build/release/skein}")
temp=$(mktemp -d)
trap 'rm -rf "$temp"' EXIT
cd "$temp"
small=(model=tiny train.batch=4 train.seq=16 data.train=text.txt data.val_fraction=0)
checks=0
fail() { echo "rate: $*" && exit 1; }
ok() { checks=$((checks + 1)); }

for i in $(seq 400); do echo "$i times the quick brown fox jumps over the lazy dog"; done >text.txt

# --- a suggestion that trains
"$skein" rate "${small[@]}" -o csv >curve.csv 2>advice || fail "$(cat advice)"
head -n 1 curve.csv | grep -qx 'step,lr,loss,smooth,mark' || fail "columns: $(head -n 1 curve.csv)"
[ "$(wc -l <curve.csv)" = 101 ] || fail "$(wc -l <curve.csv) lines for 100 steps"
[ "$(cut -d, -f5 curve.csv | sort | grep -c -E 'lowest|steepest')" = 2 ] || fail "marks"
awk -F, 'NR == 2 { first = $2 } END { exit !(first == 1e-06 && $2 == 1 && $1 == 100) }' curve.csv || fail "rates of adamw"
lr=$(sed -n 's/^try .* optim.lr=//p' advice)
awk -v lr="$lr" 'BEGIN { exit !(lr >= 1e-4 && lr <= 2e-2) }' || fail "it suggests '$lr': $(cat advice)"
grep -q '^try  *skein train model=tiny train.batch=4 .*val_fraction=0 optim.lr=' advice || fail "the command: $(cat advice)"
ok

losses() { # of the last ten steps, with this rate
    "$skein" train "${small[@]}" train.steps=60 optim.schedule=constant optim.warmup=0 optim.lr="$1" val.every=0 \
        sample.every=0 run="run-$1" >said 2>&1 || { cat said >&2 && echo 1e9 && return; }
    tail -n 10 "run-$1/metrics.jsonl" | sed 's/.*"loss":\([^,]*\),.*/\1/' | awk '{ s += $1 } END { print s / NR }'
}
good=$(losses "$lr") slow=$(losses "$(awk -v lr="$lr" 'BEGIN { print lr / 30 }')") wild=$(losses 1)
awk -v g="$good" -v s="$slow" -v w="$wild" 'BEGIN { exit !(g < 5 && g < s && g < w) }' ||
    fail "loss $good at $lr, $slow at a thirtieth, $wild at 1"
ok

# --- rates of groups: the advice scales all of them, and trains
groups() { # optim.groups: runs the test, leaves the command in words
    "$skein" rate "${small[@]}" --steps 40 optim.groups="$1" >said || fail "groups: $(cat said)"
    sed -n 's/^try  *skein //p' said >words
    [ -s words ] || fail "no advice: $(cat said)"
}
ratio() { # of the rate of a group, in the words, to optim.lr
    sed -n "s/.*$1 lr=\([0-9.e-]*\).* optim.lr=\([0-9.e-]*\)$/\1 \2/p" words | awk '{ print $1 / $2 }'
}
groups 'matrix: muon lr=0.02 momentum=0.9, rest: adamw betas=[0.9, 0.99] lr=1e-3'
[ "$(sed -n 's/.*muon lr=\([0-9.e-]*\).*0.99\] lr=\([0-9.e-]*\).*/\1 \2/p' words | awk '{ print $1 / $2 }')" = 20 ] || fail "rates of groups: $(cat said)"
! grep 'optim.lr=' words || fail "a rate that no group follows is suggested"
grep -q '^note .* optim.groups keep their ratio' said || fail "it does not say that: $(cat said)"
[ "$(grep -o 'optim.groups=' words | wc -l)" = 1 ] || fail "groups twice: $(cat words)"
eval "\"$skein\" $(cat words) train.steps=3 log.every=0 sample.every=0 run=grouped" >said 2>&1 || fail "its command: $(cat said)"
! grep "has no effect" said || fail "its command says what has no effect"
grep -q 'lr=[0-9.]* momentum=0.9, rest: adamw betas=\[0.9, 0.99\] lr=' grouped/config.yaml || fail "other groups: $(cat grouped/config.yaml)"
groups 'matrix: sgd, rest: betas=[0.9,0.95]' # the default of sgd is not optim.lr; the rest has it
[ "$(ratio 'sgd')" = 100 ] || fail "the rate of sgd: $(cat words)"
grep -q 'rest: betas=\[0.9,0.95\]. optim.lr=' words || fail "the rest: $(cat words)"
groups 'vector: weight_decay=0' # follows optim.lr: nothing to say
! grep -q '^note .* optim.groups' said || fail "a note about rates that follow: $(cat said)"
grep -q "'optim.groups=vector: weight_decay=0' optim.lr=" words || fail "other groups: $(cat words)"
"$skein" rate "${small[@]}" --steps 40 optim.lr=1 optim.min_lr=0.5 --from 1e-6 --to 1 >said
awk '/^try/ { n++; for (i = 1; i <= NF; i++) { split($i, p, "="); v[p[1]] = p[2] } } END { exit !n || v["optim.min_lr"] > v["optim.lr"] }' said ||
    fail "it suggests what train refuses: $(cat said)"
ok

# --- an optimizer with an average instead of a schedule: a rate near the best of 300 steps, 5e-3 to 1e-2
"$skein" rate "${small[@]}" optim.name=schedulefree -o csv >free.csv 2>said || fail "schedulefree: $(cat said)"
lr=$(sed -n 's/^try .* optim.lr=//p' said)
awk -v lr="$lr" 'BEGIN { exit !(lr >= 2e-3 && lr <= 4e-2) }' || fail "schedulefree: it suggests '$lr': $(cat said)"
"$skein" rate "${small[@]}" optim.name=schedulefree optim.warmup=1000 -o csv 2>/dev/null | cmp - free.csv || fail "the warmup counts"
ok

# --- keys that end a training
"$skein" rate "${small[@]}" --steps 12 val.stop_loss=5 -o csv >stop.csv 2>said || fail "val.stop_loss: $(cat said)"
grep -q '^skein: note: val.stop_loss does not end a range test' said || fail "val.stop_loss: $(cat said)"
[ "$(wc -l <stop.csv)" = 13 ] || fail "val.stop_loss: $(wc -l <stop.csv) lines"
"$skein" rate "${small[@]}" --steps 12 val.stop_accuracy=0.5 >/dev/null 2>said || fail "val.stop_accuracy: $(cat said)"
"$skein" rate "${small[@]}" --steps 12 train.steps=0 >/dev/null 2>said || fail "train.steps=0: $(cat said)"
ok

# --- phases: the test has the first batch and the first layout, and says so
"$skein" rate "${small[@]}" --steps 12 train.batch=3 -o csv >first.csv 2>/dev/null
phased=("${small[@]/train.batch=4/train.seq=16}" --steps 12)
"$skein" rate "${phased[@]}" train.batch_schedule="0: 3, 5: 12" -o csv >phases.csv 2>said || fail "train.batch_schedule: $(cat said)"
grep -q '^skein: note: train.batch_schedule is "0: 3, 5: 12": the range test has its first batch, 3, in all steps$' said || fail "batches: $(cat said)"
cmp first.csv phases.csv || fail "train.batch_schedule: another curve than that of the first batch"
"$skein" rate "${small[@]}" --steps 12 train.relayout="5: dp=2" >/dev/null 2>said || fail "train.relayout: $(cat said)"
grep -q '^skein: note: train.relayout is "5: dp=2": the range test has the first layout in all steps$' said || fail "layouts: $(cat said)"
ok

# --- sgd diverges, and the test ends then
"$skein" rate "${small[@]}" optim.name=sgd --to 1e4 >said || fail "sgd"
grep -q '^diverged  at .*, after [0-9]* of 100 steps: ' said || fail "$(cat said)"
grep -q '^edge      at ' said || fail "no line edge: $(cat said)"
grep -q '^settled   at ' said || fail "no line settled: $(cat said)"
lr=$(sed -n 's/^try .* optim.lr=//p' said) # the best of 0.01 to 3 is 0.3
awk -v lr="$lr" 'BEGIN { exit !(lr >= 0.1 && lr <= 1) }' || fail "sgd: it suggests '$lr': $(cat said)"
grep -q '#  steepest$' said || fail "no mark in the curve: $(cat said)"
[ "$(grep -c '#' said)" -le 25 ] || fail "a curve of $(grep -c '#' said) rows"
ok

# --- the same bits again, and on any layout in canonical order
"$skein" rate "${small[@]}" -o csv 2>/dev/null | cmp - curve.csv || fail "another curve with the same seed"
"$skein" rate "${small[@]}" train.seed=2 -o csv 2>/dev/null | cmp -s - curve.csv && fail "another seed, the same curve"
few=("${small[@]}" --steps 12 -o csv order=canonical)
"$skein" rate "${few[@]}" >one 2>/dev/null
for layout in "dp=2 zero=3" "tp=2" "pp=2 micro=2" "dp=2 offload=state:file"; do
    "$skein" rate "${few[@]}" layout="$layout" 2>said | cmp - one || fail "$layout: another curve: $(cat said)"
done
"$skein" rate "${small[@]}" --steps 12 train.dtype=f16 -o csv >half 2>said || fail "f16: $(cat said)"
[ "$(wc -l <half)" = 13 ] || fail "f16: $(wc -l <half) lines"
ok

# --- on a GPU that is none (test/lib/fake_gpu.h)
fake=${SKEIN_FAKED:-${skein}_fake}
if [ -x "$fake" ]; then
    SKEIN_FUSE=none "$fake" rate "${small[@]}" --steps 12 -o csv device=cuda >gpu 2>said || fail "cuda: $(cat said)"
    "$skein" rate "${small[@]}" --steps 12 -o csv >cpu 2>/dev/null
    paste -d, cpu gpu | awk -F, 'NR > 1 && NR < 10 { d = $3 / $8 - 1; bad += !(d * d < 1e-8) } END { exit bad || NR != 13 }' ||
        fail "cuda: other losses: $(paste -d, cpu gpu)"
    ok
fi

# --- steps that run again with room for all
"$skein" rate "${small[@]/model=tiny/model=mixtral-tiny}" --steps 12 -n 2 layout=ep=2 model.capacity_factor=1 train.dropless=1 \
    >said 2>&1 || fail "dropless: $(cat said)"
ok

# --- other forms
"$skein" rate "${small[@]}" --steps=10 --from=1e-4 --to 1e-2 -o json --svg curve.svg >points.json 2>/dev/null
[ "$(grep -c '"step": [0-9]*, "lr": [0-9.e-]*, "loss": ' points.json)" = 10 ] || fail "json: $(cat points.json)"
[ "$(grep -c 'class="loss"' curve.svg)" = 10 ] || fail "points of the picture"
grep -q 'data-lr="0.0001"' curve.svg || fail "the first rate of the picture"
if command -v xmllint >/dev/null; then xmllint --noout curve.svg || fail "the picture is no XML"; fi
"$skein" rate "${small[@]}" --steps 10 -o md 2>/dev/null | head -n 1 | grep -q '^| step | lr ' || fail "md"
"$skein" rate "${small[@]}" --steps 10 --to 1e-5 >said || fail "no advice is no failure"
grep -q '^no advice' said || fail "$(cat said)"
printf 'model: tiny\nrun: here\ntrain: {batch: 4, seq: 16, relayout: "5: dp=2"}\ndata: {train: text.txt}\n' >job.yaml
"$skein" rate job.yaml --steps 10 'sample.prompt=it'"'"'s two' optim.lr=0.01 >said || fail "a file"
{ [ ! -e here ] && [ ! -e runs ]; } || fail "it left a run directory"
grep -q "^try .* job.yaml 'sample.prompt=it'.''s two' optim.lr=[0-9.e-]*$" said || grep -q '^no advice' said || fail "$(cat said)"
ok

# --- refusals
refused() { # code, words, arguments
    local code=$1 words=$2 got=0
    shift 2
    "$skein" rate "${small[@]}" "$@" >out 2>said || got=$?
    [ "$got" = "$code" ] || fail "$*: exit code $got, expected $code: $(cat said)"
    grep -qE -e "$words" said || fail "$* does not say $words: $(cat said)"
    ok
}
refused 64 'grows from 0.1 to 0.01; --to must be over --from' --from 0.1 --to 0.01
refused 64 'grows from 0.5 to 0.5' --from 0.5 --to 0.5
refused 64 '"--from|from.*"fast"; a rate from' --from fast
refused 64 '--to is "0"; a rate' --to 0
refused 64 '--to is "inf"' --to inf
refused 64 '--steps is "9"; 10 to 10000' --steps 9
refused 64 '--steps is "1e9"' --steps 1e9
refused 64 '--stop is "1"; a number over 1' --stop 1
refused 64 'csv, json and md' -o xml
refused 64 'did you mean "from"' --form 1
refused 64 'optim.lr is 0: --from and --to are needed' optim.lr=0
refused 64 'unknown key' train.stepz=3
refused 64 'begins with the weights of step 0' --resume
refused 64 'begins with the weights of step 0' resume=auto
printf 'resume: auto\n' >resume.yaml
refused 78 'begins with the weights of step 0' resume.yaml
refused 78 'optim.adascale is 2: .*train.batch=2 optim.adascale=0' optim.adascale=2 train.noise=1 layout=micro=2
refused 78 'optim.name.*nobody|nobody' optim.name=nobody
refused 73 "cannot create the picture '/nonexistent/x.svg'" --steps 10 --svg /nonexistent/x.svg
OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_LOCAL_RANK=0 OMPI_COMM_WORLD_LOCAL_SIZE=2 \
    refused 64 'started 2 ranks; skein rate starts its ranks itself, on one host: skein rate -n 2'
"$skein" rate "${small[@]}" --steps 30 -ojson --optim.lr 0.001 >/dev/null 2>said || fail "-ojson"
grep -q '^try  *skein train model=tiny .*val_fraction=0 optim.lr=[0-9.e-]*$' said || fail "the command: $(cat said)"
echo "rate: $((checks + 1)) checks"
