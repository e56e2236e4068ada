#!/bin/bash
# rundir.sh - the directory of a run: whose files, who may read them, what is never lost.
#
# Each case says which exit code must come out and which words the report must have, and then looks
# at the files.
# shellcheck source=test/lib/runs.sh
. "$(dirname "$0")/../lib/runs.sh"

cases=0 wrong=0
job=(model=tiny data.train=text train.threads=1 train.steps=4 train.batch=4 train.seq=32 sample.every=0 val.every=0 log.every=0)

bad() {
    echo "$*"
    wrong=$((wrong + 1))
}

# Code, words that the report must have (a|b: both), command
case_of() {
    local want=$1 words=$2 rc=0 word
    shift 2
    cases=$((cases + 1))
    "$@" >out 2>err </dev/null || rc=$?
    [ $rc = "$want" ] || bad "$*: exit code $rc, $want is needed: $(tail -n 3 out err)"
    [ "$want" = 0 ] || [ "$(grep -c '^skein: ' err)" = 1 ] || bad "$*: not one report: $(cat err)"
    IFS='|' read -r -a list <<<"$words"
    for word in "${list[@]}"; do
        grep -qF -- "$word" out err || bad "$*: '$word' is not said: $(cat out err)"
    done
}
train() { case_of "$1" "$2" timeout -k 2 60 "$skein" train "${job[@]}" "${@:3}"; }

# ---- the umask says who may read
for mask in 022 027 077; do
    (umask $mask && "$skein" train "${job[@]}" -n 2 run=mask$mask >out 2>err) || bad "umask $mask: $(cat err)"
    other=$(find "mask$mask" -type d ! -perm "$(printf %o $((0777 & ~mask)))" -exec ls -ld {} + \
        -o -type f ! -perm "$(printf %o $((0666 & ~mask)))" -exec ls -l {} +)
    cases=$((cases + 1))
    [ -z "$other" ] || bad "umask $mask: $other"
done

# ---- ulimit -f: a file at its limit is told, not a signal
# shellcheck disable=SC2016  # the inner shell's
case_of 74 "File too large|ulimit -f" bash -c 'ulimit -f 100; exec "$@"' limit "$skein" train "${job[@]}" run=limit
# shellcheck disable=SC2016
case_of 74 "File too large" bash -c 'ulimit -f 100; exec "$@"' limit "$skein" export mask022 exported
[ ! -e exported ] || bad "ulimit -f: half a model was published"

# ---- standard streams that are closed: no file of the run gets their numbers; output that is lost
# is told at the end, and the run is whole
for fd in '0<&-' '2>&-' '0<&- 2>&-'; do
    closed() { eval "$skein train ${job[*]} run=closed ckpt.every=1 $fd"; }
    case_of 0 "saved" closed
    grep -q "was not saved" out && bad "train $fd: $(cat out)"
    [ "$(find closed/ckpt -name 'step-*' | wc -l)" = 2 ] || bad "train $fd: $(ls closed/ckpt)"
    rm -r closed
done
for to in '>/dev/full' '>&-'; do
    full() { eval "$skein train ${job[*]} run=full $to"; }
    case_of 74 "cannot write to standard output" full
    [ -s full/final/model.safetensors ] || bad "train $to: the model was not saved"
    rm -r full
done

# ---- the last checkpoint fails: the model is there, and the code says that not all is well
lose() { # the folder of checkpoints goes away while the run is on
    "$skein" train "${job[@]}" train.steps=300 run=part &
    until [ -s part/metrics.jsonl ]; do sleep 0.01; done
    mv part/ckpt part/gone
    wait $!
}
case_of 74 "all 300 steps are done and the model is in part/final|the last checkpoint was not saved|part/ckpt" lose
[ -s part/final/model.safetensors ] || bad "the model was not saved"

# ---- saves that cost too much come less often, and that is said
train 0 "so that saving takes at most 1 % of the time" run=pace train.steps=200 ckpt.every=0.01s ckpt.keep=0
saves=$(find pace/ckpt -name 'step-*' | wc -l)
{ [ "$saves" -ge 2 ] && [ "$saves" -le 30 ]; } || bad "ckpt.every=0.01s: $saves checkpoints of 200 steps"
[ "$(grep -c "training stopped for" out)" = 1 ] || bad "it is not said once"

# ---- --resume without a checkpoint is an error; what was measured is kept
lines() { cat "$@" | grep -c '"loss"'; }
train 0 "" run=cut ckpt.every=0
rm -r cut/ckpt/step-*
cp cut/metrics.jsonl before
train 65 "cut has no checkpoint|without --resume it starts again" run=cut --resume
cmp before cut/metrics.jsonl || bad "--resume touched the metrics"
train 65 "cut has no checkpoint" resume=cut
train 65 "there is no run nowhere" run=nowhere --resume
[ ! -e nowhere ] || bad "--resume made a directory"
train 73 "cut has a model in final/ and no checkpoint" run=cut
rm -r cut/final
train 0 "metrics.jsonl of an earlier start is now metrics.jsonl.1" run=cut
cmp before cut/metrics.jsonl.1 || bad "lines were lost"
[ "$(lines cut/metrics.jsonl)" = 4 ] || bad "a run that begins anew has $(lines cut/metrics.jsonl) steps"

# ---- lines past the checkpoint go aside, each step is told once
train 0 "" run=past ckpt.every=2
rm -r past/ckpt/step-0000000004
printf 'half a li' >>past/metrics.jsonl
cp past/metrics.jsonl before
train 0 "2 steps|past the checkpoint of step 2|metrics.jsonl.1" run=past --resume
cmp before <(head -n 2 past/metrics.jsonl; cat past/metrics.jsonl.1) || bad "lines were lost at --resume"
[ "$(lines past/metrics.jsonl)" = 4 ] || bad "steps are told twice"
train 0 "" run=past --resume
[ ! -e past/metrics.jsonl.2 ] || bad "nothing was to be moved aside"

# ---- a renamed checkpoint is passed over, not taken for the newest
train 0 "" run=named ckpt.every=2
mv named/ckpt/step-0000000002 named/ckpt/step-0000000009
train 0 "resuming from step 4|step 9 is not usable|it was renamed" run=named train.steps=5 --resume

# ---- stray names in ckpt/ cost no try; when nothing is good, the report says why
train 0 "" run=stray
mkdir stray/ckpt/step-9999999999
: >stray/ckpt/step-0000000500
for n in 600 700 800; do ln -s ../nowhere stray/ckpt/step-0000000$n; done
train 0 "resuming from step 4|step 9999999999 is not usable|step 500 is not usable" run=stray train.steps=5 --resume
mkdir stray/ckpt/step-0000000001
echo mine >stray/ckpt/step-0000000001/notes
train 0 "" run=stray train.steps=8 ckpt.every=1 ckpt.keep=2 --resume
[ -s stray/ckpt/step-0000000001/notes ] || bad "a directory that is no checkpoint was removed"
rm -r stray/ckpt/step-000000000*
train 65 "none of the newest 5 checkpoints is good (step 9999999999 is not usable: " run=stray --resume
rm -r stray/ckpt/step-* stray/final
case_of 65 "stray: a run that has no checkpoint and no final/" "$skein" verify stray

# ---- half a line at the end of the metrics is no step
train 0 "" run=half
printf '{"step":' >>half/metrics.jsonl
train 0 "the end of metrics.jsonl is no complete line of a step; it is now in metrics.jsonl.1" run=half --resume

# ---- other data under the same name
cp text words
train 0 "" run=data data.train=words train.steps=2
train 0 "" run=data data.train=words train.steps=3 --resume
printf X | dd of=words bs=1 seek=999 conv=notrunc status=none
train 65 "data.train (words) is not what|data.changed=1" run=data data.train=words --resume
train 0 "" run=data data.train=words data.changed=1 --resume
grep -q 'changed: 0' data/config.yaml || bad "data.changed stays for ever"
train 0 "" run=data data.train=words train.steps=5 --resume
head -c 20000 text >words
train 65 "26303:|20000:" run=data data.train=words train.steps=6 --resume
train 65 "data.changed=1" run=branch data.train=words resume=named/ckpt/step-0000000004

# ---- a resume that is refused leaves config.yaml as it was
train 0 "" run=calm
for other in "optim.name=sgd|optim.name was adamw and is sgd" "model.hidden_size=64|another model" \
    "model.num_hidden_layers=3|holds another model: it has no tensor 'h.2.ln1.w', needed with sizes [32]; model.num_hidden_layers was 2 and is 3" \
    "model.num_hidden_layers=1|another model: it has a tensor 'h.1.ln1.w' of sizes [32], for which this run has no place" \
    "model.vocab_size=300|another model: 'wte' has sizes [256, 32], needed [300, 32]; model.vocab_size was 256 and is 300" \
    "model.tie_word_embeddings=false|another model: it has no tensor 'head'"; do
    cp calm/config.yaml before
    train "$([ "${other%%.*}" = optim ] && echo 78 || echo 65)" "${other#*|}" run=calm --resume "${other%|*}"
    cmp before calm/config.yaml || bad "${other%|*}: a refused --resume changed config.yaml"
    [ "${other%%.*}" = optim ] || train 65 "${other#*|}" run=apart resume=calm "${other%|*}"
done
case_of 0 "" "$skein" train run=calm --resume train.steps=5
grep -q 'steps: 5' calm/config.yaml || bad "--resume did not write config.yaml"

# ---- the same tensors under another arithmetic are told, another arch is refused
cp -r calm same
train 0 "model.norm_eps was 1e-05 and is 0.001: the weights continue in another model than that of same/ckpt/step-0000000005|model.hidden_act was |and is relu:" \
    run=same train.steps=6 --resume model.norm_eps=1e-3 model.hidden_act=relu
train 0 "" run=same train.steps=7 --resume model.norm_eps=1e-3 model.hidden_act=relu model.resid_pdrop=0.1
! grep -q "another model" out || bad "the same model is called another"
train 65 "step-0000000007 holds a model of arch 'gpt2', this run's is 'llama'" run=same --resume model=llama-nano

# ---- config.yaml is lost: the checkpoint has the job as well
cp calm/config.yaml before
rm calm/config.yaml
case_of 0 "calm/config.yaml is gone|calm/ckpt/step-0000000005/MANIFEST.json|2 layers · 32 wide" "$skein" train run=calm --resume
cmp before calm/config.yaml || bad "a lost config.yaml is not what it was"

# ---- a file of the user's own is not written over
mkdir exp
printf '# mine\nmodel: tiny\n' >exp/config.yaml
case_of 73 "exp/config.yaml was not written by skein|run=DIR" "$skein" train exp/config.yaml "${job[@]:1}" run=exp
{ [ "$(head -n 1 exp/config.yaml)" = "# mine" ] && [ ! -e exp/ckpt ]; } || bad "a user's file was written over"
case_of 0 "" "$skein" train exp/config.yaml "${job[@]:1}" run=exp/run
case_of 0 "" "$skein" train exp/run/config.yaml run=exp/other

# ---- nothing is written through a link
echo mine >precious
for name in rank0.log metrics.jsonl; do
    for kind in "ln -s ../precious" "ln -s ../missing" mkfifo; do
        rm -rf linked
        mkdir linked
        (cd linked && $kind $name)
        train 73 "linked/$name is" run=linked
    done
done
{ [ "$(cat precious)" = mine ] && [ ! -e missing ]; } || bad "a link was followed"
mkdir -p linked2
ln -s ../precious linked2/config.yaml.tmp-1
ln -s ../precious linked2/trace.json
train 0 "" run=linked2 log.trace=1
{ [ "$(cat precious)" = mine ] && [ -s linked2/trace.json ]; } || bad "trace.json: a link was followed"

# ---- what a killed run leaves is swept, and nothing else
mkdir -p old/final.tmp-0123456789abcdef old/sample-0000000002 old/sample-0000000003.tmp-0123456789abcdef \
    old/sample-mine old/final.tmp-mine old/ckpt/tmp-0000000009-g1-0123456789abcdef
ours="config.yaml.tmp-12 memory.csv.tmp-7 trace.0.part trace.json.tmp-3 sample-0000000002/config.json
    final.tmp-0123456789abcdef/model.safetensors ckpt/tmp-0000000009-g1-0123456789abcdef/m-00000.safetensors ckpt/LATEST.tmp-4"
mine="sample-mine/x final.tmp-mine/x config.yaml.tmp-old notes.tmp-five trace.mine.part sample-2"
for f in $ours $mine; do : >"old/$f"; done
train 0 "" run=old
for f in $ours; do [ ! -e "old/$f" ] || bad "$f was not swept"; done
for f in $mine; do [ -e "old/$f" ] || bad "$f was swept"; done
left=$(find old -name '*tmp-[0-9]*' -o -name 'sample-00*')
[ -z "$left" ] || bad "left: $left"

# ---- a flipped bit in any exported file is found; what has no sums is not called good
flip() { # file, byte: its lowest bit
    local byte
    byte=$(od -An -tu1 -j "$2" -N 1 "$1")
    # shellcheck disable=SC2059  # a byte has no other spelling
    printf "\\x$(printf %x $((byte ^ 1)))" | dd of="$1" bs=1 seek="$2" conv=notrunc status=none
}
case_of 0 "" "$skein" export mask022 exported --dtype bf16
for dir in mask022/final exported; do
    case_of 0 "good" "$skein" verify $dir
    for f in "$dir"/*; do
        size=$(stat -c %s "$f")
        for at in $((size - 1)) $((size / 2)) $((size * 2 / 3)); do
            flip "$f" $at
            case_of 65 "$dir/" "$skein" verify $dir
            flip "$f" $at
        done
    done
    case_of 0 "good" "$skein" verify $dir/model.safetensors
    size=$(stat -c %s $dir/model.safetensors)
    flip $dir/model.safetensors $((size - 1))
    case_of 65 "model.safetensors is damaged, or was changed|checksums.json says" "$skein" verify $dir/model.safetensors
    flip $dir/model.safetensors $((size - 1))
    truncate -s -1 $dir/generation_config.json
    case_of 65 "generation_config.json has" "$skein" verify $dir
done
rm exported/checksums.json
case_of 0 "not checksummed" "$skein" verify exported
case_of 0 "not checksummed" "$skein" verify exported/model.safetensors
! grep -q good out || bad "what has no sums is called good"
case_of 73 "exported would be replaced|it has no checksums.json|move it away" "$skein" export mask022 exported
rm -r exported
for _ in 1 2; do case_of 0 "" "$skein" export mask022 exported; done # over one of its own
case_of 0 "good" "$skein" verify exported

# ---- a directory that skein did not write is never replaced; a run hears it at its beginning
sums() { find "$1" -type f -exec cksum {} + | sort -k3; }
mkdir -p theirs
cp exported/* theirs
rm theirs/checksums.json
sums theirs >before
case_of 73 "theirs would be replaced|it has no checksums.json" "$skein" export mask022 theirs
cp exported/checksums.json theirs
echo notes >theirs/added_tokens.json
case_of 73 "'added_tokens.json' is no file of its checksums.json" "$skein" export mask022 theirs
rm theirs/added_tokens.json
sed -i 's/"vocab_size": 256/"vocab_size": 255/' theirs/config.json
case_of 73 "config.json is damaged, or was changed" "$skein" export mask022 theirs
cp exported/config.json theirs
rm theirs/checksums.json
cmp before <(sums theirs) || bad "a model of somebody else was changed"
train 0 "" run=held
mv held/final kept
for kind in "cp -r theirs" "ln -s ../kept" "cp precious"; do
    $kind held/final 2>/dev/null || $kind held/final
    cp held/metrics.jsonl before
    train 73 "held/final" run=held train.steps=6 --resume
    cmp before held/metrics.jsonl || bad "final/ ($kind): found out only after training"
    rm -rf held/final
done
cp -r kept held/final
train 73 "model=held/final is the final/ of run held|name another run=DIR" model=held/final run=held train.steps=6 --resume
cmp <(sums kept | cut -d' ' -f1) <(sums held/final | cut -d' ' -f1) || bad "the model that a run reads was replaced"
train 0 "" run=held train.steps=6 --resume

# ---- a tokenizer/ of the user's own
mkdir -p tok/tokenizer
echo mine >tok/tokenizer/notes
train 73 "tok/tokenizer would be replaced" run=tok
cp exported/{config,tokenizer}.json tok/tokenizer
train 73 "tok/tokenizer would be replaced" run=tok data.tokenizer=tok/tokenizer
case_of 73 "tok/tokenizer would be replaced" "$skein" import exported run=tok
[ "$(cat tok/tokenizer/notes)" = mine ] || bad "a tokenizer/ of the user's was removed"
{ [ ! -e tok/ckpt ] && [ ! -e tok/config.yaml ]; } || bad "tok/ was begun nevertheless"

# ---- a directory of a model is no run
cp -r exported plain-model
train 73 "run=plain-model is the directory of a model|not of a run" run=plain-model
train 73 "run=plain-model is the directory of a model" run=plain-model --resume
diff -r exported plain-model || bad "a directory of a model was trained into"

echo "$cases cases, $wrong wrong"
[ $wrong = 0 ]
