#!/bin/bash
# errors.sh - whatever goes wrong is told once, in a sentence, with the right exit code.
#
# Mistakes on the command line and in files, data that are too short or not what they should be,
# a full disk, Ctrl-C, and a rank that is killed.  Each case says which code must come out and
# which words the report must have; a report has one line on standard error.
set -eu
export ASAN_OPTIONS=${ASAN_OPTIONS:-}:detect_leaks=0 # what an MPI leaks is not ours to find
cd "$(dirname "$0")/../.."
skein=$(realpath "${SKEIN:-build/release/skein}")
[ -x "$skein" ] || { echo "there is no $skein"; exit 77; }
temp=$(mktemp -d)
mounted=
clean() {
    [ -z "$mounted" ] || umount "$temp/small"
    rm -rf "$temp"
}
trap clean EXIT
cp example/one_file.c "$temp/text"
cd "$temp"

cases=0 wrong=0
small=(model=tiny data.train=text train.batch=4 train.seq=32 sample.every=0 val.every=0)

bad() {
    echo "$*"
    wrong=$((wrong + 1))
}

# Code, words that the report must have (a|b: both), command
case_of() {
    local want=$1 words=$2 rc=0 word
    shift 2
    cases=$((cases + 1))
    timeout 60 "$skein" "$@" >out 2>err </dev/null || rc=$?
    [ $rc = "$want" ] || bad "skein $*: exit code $rc, $want is needed: $(head -n 3 err)"
    [ "$(grep -c '^skein: ' err)" = 1 ] || bad "skein $*: not one report: $(cat err)"
    IFS='|' read -r -a list <<<"$words"
    for word in "${list[@]}"; do
        grep -qF -- "$word" err || bad "skein $*: the report lacks '$word': $(cat err)"
    done
}

# ---- the command line
case_of 78 "momentum is a number from 0 to below 1" plan model=tiny "layout=dp=2 sync=diloco:2:momentum=1"
case_of 78 "momentum is a number from 0 to below 1" plan model=tiny "layout=dp=2 sync=stream:2:momentum=1"
case_of 64 "a command is needed"
case_of 64 "trian|did you mean 'train'" trian
case_of 64 "train.stps|train.steps" train train.stps=3
case_of 64 "unknown option" train --frobnicate
case_of 64 "train.steps|many" train train.steps=many
case_of 64 "--tokens" sample . --tokens
case_of 64 '--temperature" - did you mean "--temp"?' sample . --temperature 1
case_of 64 '--max-tokens" - did you mean "--tokens"?' sample . --max-tokens 9
case_of 64 '--temp is "1m"|without a unit' sample . --temp 1m
case_of 64 'optim.lr is "1e30"; a number from 0 to 1000000 is needed' train optim.lr=1e30
"$skein" train "${small[@]}" train.steps=1 run=keys >out 2>err || bad "skein train: $(cat err)"
keys=$(awk '/^[a-z]/ { s = $1; sub(":", "", s); if (NF > 1) print s }
    /^  [a-z]/ { sub(":", "", $1); print s "." $1 }' keys/config.yaml)
[ "$(wc -w <<<"$keys")" -ge 80 ] || bad "config.yaml has $(wc -w <<<"$keys") keys"
for key in $keys; do # a report has one line, whatever its value
    for value in $'1\n2' $'\n' $'x\n  at y'; do
        cases=$((cases + 1))
        "$skein" plan "${small[@]}" "$key=$value" >out 2>err || [ "$(grep -c '' err)" = 1 ] ||
            bad "skein plan $key=$(printf %q "$value"): not one line: $(cat err)"
    done
done
case_of 64 'optim.lr is "1\n2"; a number' plan "${small[@]}" optim.lr=$'1\n2'
case_of 64 "optim.schedule|did you mean 'cosine'?" train optim.schedule=cosin
case_of 64 "optim.work|did you mean 'owner'?" train optim.work=owners
case_of 64 "optim.state|did you mean 'int8'?" train optim.state=int9
case_of 78 "none matches (did you mean 'matrix'?); a class (vector, matrix" train "${small[@]}" optim.groups="matrx: muon" run=none
case_of 78 "'vector': all that it matches are in groups before it" train "${small[@]}" optim.groups="rest: adamw, vector: sgd" run=none
case_of 78 "2 were given; dp=2 in the layout" train "${small[@]}" layout=zero=1 -n 2 run=none
case_of 78 "with sync=diloco:4 the ranks along 'dp' update alone and sum none|sync=diloco:4:codec=q4 encodes" \
    plan model=tiny layout="dp=4 sync=diloco:4 grads=q4"
case_of 78 "with sync=local:4 the ranks along 'dp'|leave grads out" plan model=tiny layout="dp=4 grads=powersgd:2 feedback sync=local:4"
case_of 78 "train.batch=2 leaves it empty: there are 4 micro-batches; take train.batch=4" plan model=tiny train.noise=1 layout=micro=4 train.batch=2
case_of 64 'momentum is for other optimizers|optim.groups="matrix: muon momentum=0.8, ..."' \
    plan model=tiny optim.groups="matrix: muon, rest: adamw" optim.momentum=0.8
case_of 78 'does not do alltoall|comm.algorithm="allreduce: ring"' plan model=tiny layout="dp=4 reduce=adasum" comm.algorithm=ring
case_of 78 "did you mean 'adamw'" plan model=tiny optim.name=AdamW
case_of 78 "did you mean 'sgd'" plan model=tiny optim.name=SGD
case_of 78 "did you mean 'adamw', Adam with decoupled weight decay (plain Adam with optim.weight_decay=0)?)" plan model=tiny optim.name=Adam
case_of 64 "log:1e-4:1e-1:4 has four values" sweep model=tiny optim.lr=1e-4..1e-1 run=none
for fault in bogus:1 nan:8 slow:x:1 clock:0.5; do
    SKEIN_FAULT=$fault case_of 78 "SKEIN_FAULT is \"$fault\"|doc/errors.md" train "${small[@]}" run=none
done
one_layer=("${small[@]}" model.num_hidden_layers=1 layout=pp=3 train.steps=2 run=none)
SKEIN_FAULT=nan:2:0 case_of 78 "SKEIN_FAULT is for a gradient of rank 0, which has none in this layout" train "${one_layer[@]}"
SKEIN_FAULT=nan:2:3 case_of 78 "SKEIN_FAULT is for rank 3, and the job has 3" train "${one_layer[@]}"
[ ! -e none ] || bad "a fault that was refused made a run"
case_of 64 "nowhere" list nowhere
case_of 64 "-o xml" list -o xml
case_of 64 "trian|did you mean 'train'" help trian
case_of 64 "learning_rate|optim.lr" help learning_rate
case_of 64 "adamm|did you mean 'adamw'" help adamm
case_of 64 "muno|or 'muon'?" help muno
case_of 64 "cosin|did you mean 'cosine'" help cosin
case_of 64 'optim.lrr|did you mean "optim.lr"' help optim.lrr
case_of 64 "'qqqqqqqqq'; skein --help lists commands, skein list all parts" help qqqqqqqqq
case_of 64 "one word too many" version 3

# ---- help by command and by key; a list for programs
said_of() { # words that the answer must have (a|b: both), command
    local words=$1 word
    shift
    cases=$((cases + 1))
    "$skein" "$@" >out 2>err || bad "skein $*: $(cat err)"
    IFS='|' read -r -a list <<<"$words"
    for word in "${list[@]}"; do
        grep -qF -- "$word" out || bad "skein $*: the answer lacks '$word': $(head -n 3 out)"
    done
}
said_of "usage: skein train|optim.lr" help train
said_of "skein bench step" help bench step
said_of "peak learning rate (|adagrad 0.01;" help optim.lr
said_of "ckpt.every|ckpt.keep" help ckpt
said_of "noise:LEAST-MOST|optim.batch_scaling=sqrt" help train.batch_schedule
said_of "STEP: LAYOUT|dp=2 tp=2" help train.relayout
said_of 'tp=N|tensor parallel|layout="tp=2"' help tp
said_of 'zero=0|1 shards optimizer state|layout="dp=2 zero=3"' help zero=3
said_of 'empty: dp=RANKS|tp=N|copy=N|doc/layout.md' help layout
said_of 'skein help layout' train --help
case_of 64 "fsdp|zero=3" help fsdp
case_of 64 "tensor-parallel|tp=N" help tensor-parallel
case_of 64 "easgd|sync=elastic:10" help easgd
for word in asgd async Hogwild; do case_of 64 "$word|sync=ssp:inf" help "$word"; done
case_of 64 "sync=ssp:3" help parameter-server
case_of 64 "sync=backup:1" help straggler
case_of 64 "sync=local:8" help localsgd
case_of 64 "grads=topk:0.01 feedback" help DGC
case_of 64 "grads=q4" help qsgd
case_of 64 "grads=sign feedback" help signsgd
case_of 64 "sync=SYNC" help synchronise
case_of 64 "'replay' is an option: skein help train" help replay
# ---- all about one part, of any kind: its keys with help, range and default
said_of 'optim adamw: Adam|optim.betas|decay rates of the two moments; two numbers from 0 to below 1 (0.9, 0.95)|(0.1)' list optim adamw
said_of 'optim adamw: Adam|optim.eps  |added to the denominator; a number from 0 to 1 (1e-08)' help adamw
said_of 'lr polynomial: |optim.schedule_power' help polynomial
said_of 'word overlap: |a whole number from 1 to 4096|layout="tp=2 overlap=4"' list word overlap
said_of 'coll ring: |2(n-1) a' help ring
said_of 'sync=diloco:H:lr=0.7:momentum=0.9|(50)|rate of the outer step; a number from 0 to 10 (0.7)|codec  |not with' help diloco:50
said_of 'sync diloco: |(none)' help DiLoCo
said_of 'powersgd:RANK|a whole number from 1 to 1024|grads=powersgd:4 feedback' help powersgd
said_of 'sync=stream:H:lr=0.7:momentum=0.9:fragments=4:mix=0.5|by layers; a whole number from 1 to 1024 (4)' help stream
said_of 'sync=postlocal:H@STEP|(must be said)|sync=postlocal:8@100' help postlocal
said_of 'sync=ssp:S|inf: any number (3)|GPUs' help ssp
said_of 'sync=backup:B|come last (1)' list sync backup
said_of 'coll adasum|reduce=adasum' help adasum
said_of 'parts of kind codec|skein list codec|topk4,' help codec
said_of 'codec topk: |topk:RATIO|above 0, at most 1|grads=topk:0.01 feedback|codec=topk:0.01:feedback' help topk:0.1
said_of 'FROM > TO BYTES_PER_SECOND|rest BYTES_PER_SECOND|between hosts' help comm.links
# ---- plan and simulate warn as train does
printf '0 1 50e9\nrest 1e9\n' >links
gpus=(model=gpt2 train.dtype=bf16 train.batch=64 train.seq=256 layout=dp=16 device=cuda comm.algorithm=ring)
said_of 'warning   comm.algorithm is "ring" and has no effect with device=cuda|NCCL_ALGO' plan "${gpus[@]}"
said_of 'warning   comm.algorithm is "ring"' simulate "${gpus[@]}" --cluster h100-8
for words in optim.warmup=100 optim.schedule_milestones=300,600 optim.schedule_decay=0 comm.links=links; do
    case $words in *milestones*) more=optim.schedule=step ;; *decay*) more=optim.schedule=wsd ;; *) more=layout=dp=2 ;; esac
    for command in plan simulate; do
        said_of "warning   ${words%%=*}" $command model=tiny train.steps=60 $more $words
    done
done
said_of 'schedule_milestones=[300, 600]' plan model=tiny optim.schedule=step optim.schedule_milestones=300,600
"$skein" plan model=tiny layout=dp=16 comm.links=links --cluster h100-8 | grep -q '^warning *comm.links' && bad "links between hosts have an effect"
"$skein" explain model=tiny layout=dp=2 device=cuda comm.algorithm=ring 2>&1 >out | grep -q 'warning: comm.algorithm is "ring"' || bad "explain does not warn"
said_of 'warning   comm.links is links and has no effect' train "${small[@]}" layout=dp=2 train.steps=12 comm.links=links run=links-run
case_of 64 "there is no optim 'adam' (did you mean 'adamw'?)" list optim adam
case_of 64 "there are no parts of kind 'adamw'" list adamw
case_of 64 "there are no parts of kind 'adamw'" list optim adamw -o csv
while IFS=, read -r kind name _; do
    ! "$skein" list "$name" >/dev/null 2>&1 || continue # a kind of that name: help alone has the part
    if ! "$skein" list "$kind" "$name" >out 2>err || ! head -n 1 out | grep -qF "$kind $name: "; then
        bad "list $kind $name: $(cat err)"
    fi
done < <("$skein" list -o csv | tail -n +2)
said_of '"kind": "optim", "name": "adamw", "doc": "' list optim -o json
said_of '| kind | name | doc | cost |' list -o md
said_of 'coll,ring,' list coll -o csv
case_of 64 "-o xml" doctor -o xml

# ---- a config file: the place and the nearest name
printf 'model: tiny\noptim:\n  learning_rat: 3\n' >typo.yaml
printf 'optim: {betas: [0.8, 0.9]}\n' >betas.yaml
said_of "warning   a side of 'h.0.qkv.w' is 96 long, above max_dim=50 (so in 5 others): shampoo has no preconditioner" \
    train "${small[@]}" optim.name=shampoo optim.max_dim=50 train.steps=1 run=sides
said_of "warning   optim.betas of betas.yaml: muon has no such key; optim.groups=\"rest: adamw betas=[0.8, 0.9]\" gives it to adamw" \
    train "${small[@]}" betas.yaml optim.name=muon train.steps=1 run=betas
case_of 64 'unknown key "optim" - did you mean "optim.name"?' plan model=tiny optim=muon
printf 'optim: {groups: {matrix: muon, rest: adamw}}\n' >groups.yaml
case_of 78 "groups.yaml:1:9: |optim.groups is one text, no mapping" plan groups.yaml
case_of 64 "optim.lr is 1e-3:1e-1; a range is log:LOW:HIGH:N|lin:LOW:HIGH:N" sweep model=tiny optim.lr=1e-3:1e-1 run=colon
case_of 78 "schedulefree takes no other than constant" plan model=tiny optim.groups="matrix: schedulefree, rest: adamw"
case_of 78 "optim.clip=0 is needed|pipedream" plan model=llama-tiny layout="pp=2 micro=4 schedule=pipedream"
case_of 78 "train.dtype=bf16 is needed" plan model=llama-tiny optim.clip=0 train.dtype=f16 layout="pp=2 micro=4 schedule=pb"
case_of 78 "mpi does not sum bf16|train.dtype=f32" plan model=tiny layout="dp=2" comm.algorithm=mpi train.dtype=bf16
case_of 78 "mpi goes through the wire|on one host|shm" plan model=tiny layout="dp=2" comm.algorithm=mpi
for algorithm in ring double_tree torus rabenseifner; do
    case_of 78 "$algorithm adds in an order of its own|order=fast" plan model=tiny layout="dp=4" train.batch=4 order=canonical comm.algorithm=$algorithm
done
case_of 78 "ring adds in an order of its own" explain model=tiny layout="dp=2" order=canonical comm.algorithm=ring
case_of 78 "adasum combines by adasum|this allreduce sums" plan model=tiny layout="dp=2" comm.algorithm=adasum
case_of 78 "order=canonical|offload=state the host|order=fast" plan model=tiny device=cuda order=canonical layout=offload=state
case_of 78 "order=canonical|offload=grads the host" explain model=tiny device=cuda order=canonical layout=offload=grads
case_of 78 "does not begin with a step" simulate model=tiny train.relayout=nonsense
case_of 78 "has 3 ranks, the run has 1" simulate model=tiny train.relayout="5: dp=3"
case_of 78 "leave out 'offload=state'" simulate model=switch-tiny train.dropless=1 layout=offload=state
case_of 78 "leave out 'offload=state'" simulate model=tiny layout="offload=state gist=50"
case_of 78 "in f32|train.dtype is bf16" plan model=tiny order=canonical train.dtype=bf16
case_of 78 "a step of sam takes two gradients|1f1b" plan model=llama-tiny optim.name=sam layout="pp=2 micro=4 schedule=pipedream"
case_of 78 "untie it" plan model=tiny layout="pp=2 micro=4 schedule=pipedream"
case_of 78 "untie it" plan model=tiny optim.clip=0 layout="pp=2 micro=4 schedule=pipedream"
case_of 78 "typo.yaml:3:3|optim.learning_rat" train typo.yaml
printf 'model: tiny\ntrain:\n  stepz: 3\n' >typo2.yaml
case_of 78 "typo2.yaml:3:3|train.steps" train typo2.yaml
printf 'model: [tiny\n' >broken.yaml
case_of 78 "broken.yaml" train broken.yaml
cat >ds.json <<'END'
{"train_batch_size": 32, "gradient_accumulation_steps": 4, "gradient_clipping": "auto",
 "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}, "bf16": {"enabled": true},
 "fp16": {"enabled": false}, "optimizer": {"type": "AdamW", "params": {"lr": 3e-4, "betas": [0.9, 0.95]}}}
END
case_of 64 'ds.json is a config of DeepSpeed|layout="dp=N zero=2 micro=4 offload=state" train.batch=32 optim.lr=0.0003 train.dtype=bf16' \
    train ds.json
mkdir folder.yaml
case_of 74 "folder.yaml|directory" train folder.yaml

# ---- layouts and models
case_of 78 "4 ranks|2 were given" train "${small[@]}" -n 2 layout=dp=4
case_of 78 "layout" train "${small[@]}" layout="dp=2 frob=3"
case_of 78 "train.micro_batch is 1|makes 2 micro-batches|train.batch=4|2 ranks|micro=4" plan "${small[@]}" \
    train.micro_batch=1 layout="dp=2 micro=4"
OMP_NUM_THREADS=many case_of 78 'OMP_NUM_THREADS is "many"|train.threads' plan "${small[@]}"
case_of 78 "num_hidden_layers (n_layer) is 1000000000|1 to 10000" plan model=tiny model.num_hidden_layers=1000000000
case_of 78 "vocab_size is 10000000000|1 to 1e+08" plan model=tiny model.vocab_size=1e10
case_of 78 "elements, at most" plan model=tiny model.vocab_size=1e8 train.batch=1e9
case_of 78 "elements, at most" plan model=mlp model.input_size=1e8 model.hidden_size=1e8 train.batch=1e9
case_of 64 "train.batch|from 1 to 1000000000" plan model=tiny train.batch=1e12
case_of 78 "at most 512 of 64" plan model=tiny layout=pp=3000
case_of 78 "2048 ranks have more than 1024 different programs|train.seq" simulate model=tiny layout=cp=2048 \
    model.max_position_embeddings=4096 train.seq=4095
case_of 78 "from step 2 on: layout: a run that|leave out 'offload=state'" plan model=tiny layout=dp=2 \
    train.relayout="2: dp=2 offload=state"
case_of 78 "leave out 'offload state to host; offload weights to file'" plan model=tiny \
    layout="dp=2 offload=state:host+weights:file" train.relayout="2: dp=2"
case_of 78 "'Z' is split over 'tp'|its letters are b c" plan model=tiny \
    layout="mesh tp=2; split h f v Z over tp"
case_of 78 "'H' is split over 'tp'|did you mean 'h'" plan model=tiny layout="mesh tp=2; split H over tp"
case_of 78 "recompute=embedding|no block of the model" plan model=tiny layout="dp=2 recompute=embedding" # kept anyway
case_of 78 "recompute=layrnorm|did you mean 'layernorm'" plan model=tiny layout="dp=2 recompute=layrnorm"
case_of 78 "'t' is split over 'cp'" plan model=mlp layout="cp=2"
case_of 78 "optim.name|adamw" train "${small[@]}" optim.name=adamv
case_of 78 "tokenizer|256|100" train "${small[@]}" model.vocab_size=100

# ---- open files: what many ranks need and what there is (ulimit -n)
printf '#!/bin/bash\nulimit -n 100\nexec %q "$@"\n' "$skein" >few && chmod +x few
skein=./few case_of 74 "files: 128 ranks need 192|this process may have 100|ulimit -n" \
    train "${small[@]}" train.batch=128 layout=dp=128

# ---- memory: what is needed, of which kind, and a change that fits, as plan says it
huge=(model=preset:gpt2 train.seq=1024 train.batch=4096)
case_of 74 "rank 0 needs|= weights 474.8 MiB + grads 474.8 MiB + optimizer 949.7 MiB + activations|most of it activations|fits" \
    train "${huge[@]}" run=huge
[ ! -e huge ] || bad "a run that does not fit left a directory"
change=$(grep -o 'train.micro_batch=[0-9]* needs [0-9.]* .iB' err) || bad "no change that fits: $(cat err)"
"$skein" plan "${huge[@]}" "${change%% *}" | grep -q "^memory *${change##*needs } on the fullest rank" ||
    bad "plan says something else than $change"
case_of 74 "2 ranks need|recompute=full zero=3 in the layout and train.micro_batch=1 still needs" train model=llama-70b -n 2 run=huge
case_of 74 "rank 0 needs|train.micro_batch=" bench step "${huge[@]}" layout="dp=1 micro=2"

# ---- address space: OpenBLAS would ask for its buffers for ever; two threads of its own on any host
tight() { # KiB, code, words, command
    local space=$1 rc=0 word
    cases=$((cases + 1))
    (ulimit -v "$space" && OPENBLAS_NUM_THREADS=2 exec timeout -s KILL 20 "$skein" "${@:4}") >out 2>err </dev/null || rc=$?
    [ $rc = "$2" ] || bad "ulimit -v $space, skein ${*:4}: exit code $rc, $2 is needed: $(cat err)"
    IFS='|' read -r -a list <<<"$3"
    for word in "${list[@]}"; do
        grep -qF -- "$word" out err || bad "ulimit -v $space, skein ${*:4}: no '$word': $(cat err)"
    done
}
if (ulimit -v 80000 && OPENBLAS_NUM_THREADS=1 "$skein" list model >out 2>&1); then # not so of a sanitizer
    for space in 150000 300000; do
        tight $space 0 "memory " plan model=tiny
        tight $space 74 "memory: ulimit -v leaves|MiB are needed|for each of 2 threads that call BLAS" \
            train "${small[@]}" train.threads=2 run=huge
        [ ! -e huge ] || bad "a run that does not fit left a directory"
        tight $space 74 "ulimit -v leaves|BLAS" bench step model=tiny train.threads=2 layout=dp=1
    done
    tight 300000 74 "ulimit -v leaves" train "${small[@]}" train.threads=1 -n 2 --launch thread run=huge
    tight 150000 0 "not measured" doctor
    tight 600000 0 "saved" train "${small[@]}" train.threads=2 train.steps=2 run=tight
fi

# ---- data
printf 'too short' >short
case_of 65 "9 tokens|train.seq=32|33" train "${small[@]}" data.train=short
rc=0
timeout 60 "$skein" train "${small[@]}" data.train=missing >out 2>err || rc=$?
cases=$((cases + 1))
case $rc in 65 | 74 | 78) grep -q missing err || bad "a missing file is not named" ;; *) bad "a missing file: $rc" ;; esac
mkdir -p empty
rc=0
timeout 60 "$skein" train "${small[@]}" data.train=empty >out 2>err || rc=$?
cases=$((cases + 1))
case $rc in 65 | 74 | 78) grep -q empty err || bad "an empty folder is not named" ;; *) bad "an empty folder: $rc" ;; esac

# ids that the model does not have: at the start; of more than 256 MiB within minutes, not when their window comes
ids() { printf '\\x%02x\\x%02x' $(($1 & 255)) $(($1 >> 8)); } # little endian
{ head -c 20000 text | sed 's/./&\x01/g' | tr -d '\n' | head -c 9000 | tr '\001' '\000'; printf %b "$(ids 300)"; } >ids.bin
case_of 65 "ids.bin: the token at byte 9000 is 300|below 256" train "${small[@]}" data.train=ids.bin data.dtype=uint16 run=ids
[ ! -e ids ] || bad "a run with bad ids left a directory"
truncate -s 300M holes.bin
said_of "ids checked, from the first to the last, the rest in the first minutes" train "${small[@]}" \
    data.train=holes.bin data.dtype=uint16 train.steps=2 run=holes
at=$(((300 << 20) / 4096))
at=$((at * 4000 + (70 << 10))) # between two of the blocks that are looked at
printf %b "$(ids 999)" | dd of=holes.bin bs=1 seek=$at conv=notrunc status=none
for n in 1 2; do
    case_of 65 "holes.bin: the token at byte $at is 999" train "${small[@]}" data.train=holes.bin \
        data.dtype=uint16 train.steps=1000000 -n $n run=holes$n
done

# formats that are none of ours, unless the user says text; validation that would be left out
echo '[{"text": "one"}, {"text": "two"}]' >array.json
sed 's/^/1,/' text >table.csv
case_of 65 "array.json is one JSON array|JSON lines" train "${small[@]}" data.train=array.json
case_of 65 "table.csv is called a table|JSON lines|data.format=text" train "${small[@]}" data.train=table.csv
said_of "table.csv · " train "${small[@]}" data.train=table.csv data.format=text train.steps=1 run=table
head -c 300 text >little
said_of "no validation: data.val_fraction=0.1 of the data are 30 tokens, and 33 are needed" train "${small[@]}" \
    data.train=little val.every=1 train.steps=1 run=little1
said_of "validation should take 3 batches of 4 sequences (val.batches), and the data have 2 sequences (90 tokens): it takes each once" \
    train "${small[@]}" data.train=little data.val_fraction=0.3 val.every=1 val.batches=3 train.steps=1 run=little2

# ---- models that are not what they should be
"$skein" train "${small[@]}" train.steps=2 run=good >out 2>err || { cat err; echo "no run to spoil"; exit 1; }
cp -r good spoilt
spoil() { # bytes that stay of config.yaml
    head -c "$1" good/config.yaml >spoilt/config.yaml
}
spoil 0
case_of 78 "spoilt/config.yaml has no keys; if it is damaged, remove it|newest checkpoint" train run=spoilt --resume train.steps=3
spoil "$(($(grep -b '^  steps:' good/config.yaml | cut -d: -f1) + 4))"
case_of 78 "spoilt/config.yaml:|remove it" train run=spoilt --resume train.steps=3
spoil "$(grep -b '^device:' good/config.yaml | cut -d: -f1)"
case_of 78 "spoilt/config.yaml ends before its last key, sample.prompt|remove it" train run=spoilt --resume train.steps=3
spoil "$(($(stat -c %s good/config.yaml) - 2))"
case_of 78 "spoilt/config.yaml|remove it" train run=spoilt --resume train.steps=3
rm spoilt/config.yaml
said_of "spoilt/config.yaml is gone: the job is that of spoilt/ckpt/step-0000000002/MANIFEST.json" train run=spoilt --resume train.steps=3
case_of 65 "nothing" sample nothing
case_of 65 "neither" sample empty
echo '{"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false},"model":{"type":"BPE","vocab":{"a":0,"b":299},"merges":[]}}' >wide.json
case_of 78 "tokenizer 'wide.json' has 300 ids, the model's vocab_size is 256" export good exported --tokenizer wide.json
case_of 78 "wide.json|300|256" export good/final exported --tokenizer wide.json
[ ! -e exported ] || bad "a refused export left a directory"
sed -i 's/299/9/' wide.json
said_of "saved exported" export good exported --tokenizer wide.json
cp -r good/final cut
size=$(stat -c %s cut/model.safetensors)
truncate -s $((size - 100)) cut/model.safetensors
case_of 65 "cut/model.safetensors" sample cut
case_of 65 "cut/model.safetensors" verify cut
case_of 65 "cut/model.safetensors" verify cut/model.safetensors
case_of 65 "cut" train "${small[@]}" model=cut train.steps=2 run=fromcut
cp -r good flipped
f=$(ls flipped/ckpt/step-*/m-*)
printf '\377' | dd of="$f" bs=1 seek=$(($(stat -c %s "$f") / 2)) conv=notrunc status=none
case_of 65 "flipped" verify flipped
case_of 65 "2 of 4 are bad, the first: cut/" verify good/final cut good/final/model.safetensors nothing -o csv
grep -v '^path,' out | cut -d, -f1,2 | tr '\n' ' ' >lines # a line each, in order, whatever comes before
[ "$(cat lines)" = "good/final,good cut,bad good/final/model.safetensors,good nothing,bad " ] || bad "verify: $(cat out)"
case_of 65 "flipped" train "${small[@]}" run=flipped --resume train.steps=4
case_of 73 "already has checkpoints|--resume" train "${small[@]}" run=good
: >plainfile
case_of 73 "plainfile" train "${small[@]}" run=plainfile/run

# ---- numbers that go bad
case_of 79 "finite|optim.lr" train "${small[@]}" train.steps=50 optim.lr=1e5 optim.clip=0 optim.warmup=0 run=bad
[ ! -d bad/final ] || bad "a model was saved from bad numbers"

# ---- escape sequences only where they are obeyed: a terminal, TERM other than dumb, no NO_COLOR
if command -v script >/dev/null; then
    for where in TERM=xterm TERM=dumb TERM= "TERM=xterm NO_COLOR=1"; do
        cases=$((cases + 1))
        script -qec "env $where '$skein' train ${small[*]} train.threads=1 train.steps=300 run='tty$cases'" /dev/null >typed </dev/null ||
            bad "on a terminal with $where: $(tail -n 2 typed)"
        escapes=$(tr -dc '\033' <typed | wc -c)
        case $where in
        TERM=xterm) [ "$escapes" -gt 10 ] || bad "$where: only $escapes escape sequences, the test sees nothing" ;;
        *) [ "$escapes" = 0 ] || bad "$where: $escapes escape sequences" ;;
        esac
    done
else
    unseen=" (terminals not tried: there is no script)"
fi

# ---- two jobs in one directory
"$skein" train "${small[@]}" train.steps=1000000 run=mine >out1 2>err1 &
pid=$!
until [ "$(wc -l 2>/dev/null <mine/metrics.jsonl)" -ge 3 ] 2>/dev/null; do sleep 0.02; done
case_of 73 "mine" train "${small[@]}" run=mine --resume

# ---- Ctrl-C saves and asks to be resumed
kill -INT $pid
rc=0
wait $pid || rc=$?
cases=$((cases + 1))
[ $rc = 75 ] || bad "Ctrl-C: exit code $rc, 75 is needed: $(cat err1)"
grep -q -- --resume err1 || bad "Ctrl-C: no word on how to go on: $(cat err1)"
compgen -G "mine/ckpt/step-*" >/dev/null || bad "Ctrl-C: nothing was saved"

# ---- a rank is killed: the others stop at once, and one report names it
for launch in 2 4; do
    "$skein" train "${small[@]}" train.steps=1000000 -n $launch run=kill$launch >out1 2>err1 &
    pid=$!
    until [ "$(wc -l 2>/dev/null <kill$launch/metrics.jsonl)" -ge 3 ] 2>/dev/null; do sleep 0.02; done
    victim=$(pgrep -P $pid | tail -n 1)
    begin=${EPOCHREALTIME/./}
    kill -KILL "$victim"
    rc=0
    wait $pid || rc=$?
    took=$(((${EPOCHREALTIME/./} - begin) / 1000))
    cases=$((cases + 1))
    [ $rc = 69 ] || bad "a killed rank: exit code $rc, 69 is needed: $(cat err1)"
    [ $took -lt 1000 ] || bad "a killed rank: the others took $took ms, 1000 are allowed"
    grep -qE "^skein: rank $((launch - 1)) died: signal 9 .* in step [0-9]+, instruction .*rank$((launch - 1)).log" err1 ||
        bad "a killed rank: the report is $(cat err1)"
    [ "$(grep -c '^skein: ' err1)" = 1 ] || bad "a killed rank: not one report: $(cat err1)"
done

case_of 64 "optim.betas is for other optimizers: sgd has no such key" plan model=tiny optim.name=sgd optim.betas=0.9,0.99

# ---- how long, by two keys; how many ranks, and a layout for others
case_of 64 "train.steps is 5 and train.time is 3s" train "${small[@]}" train.steps=5 train.time=3s run=both
"$skein" train "${small[@]}" layout="dp=2 zero=3" train.steps=2 run=sharded >out 2>err || bad "dp=2 zero=3: $(cat err)"
case_of 64 'which is not for 4 ranks' train --resume run=sharded train.steps=4 -n 4

# ---- the same signal to the process and to its group, as timeout sends it: saved and stopped
timeout 2 "$skein" train "${small[@]}" train.steps=1000000 run=twice >out 2>err || true
cases=$((cases + 1))
grep -q "everything is saved" err || bad "two signals at once: $(cat err)"

# ---- a full disk: a warning each time, the old checkpoint stays, three in a row end it
full=
mkdir small
if [ "$(id -u)" = 0 ] && mount -t tmpfs -o size=2m none small 2>/dev/null; then
    mounted=1
    "$skein" train "${small[@]}" train.steps=4 ckpt.every=2 run=small/run >out 2>err || { cat err; bad "2 MiB: no run"; }
    before=$(ls small/run/ckpt)
    head -c 4m /dev/zero >small/ballast 2>/dev/null || true
    case_of 74 "in a row" train "${small[@]}" train.steps=40 ckpt.every=2 run=small/run --resume
    [ "$(grep -c 'was not saved' out)" = 3 ] || bad "a full disk: not three warnings: $(cat out)"
    [ "$(ls small/run/ckpt)" = "$before" ] || bad "a full disk: checkpoints were $before, are $(ls small/run/ckpt)"
    rm small/ballast
    "$skein" train "${small[@]}" train.steps=6 run=small/run --resume >out 2>err || bad "no resume after the disk was full: $(cat err)"
else
    full=" (full disk not tried: no right to mount a tmpfs)"
fi

echo "$cases cases, $wrong wrong$full${unseen:-}"
[ $wrong = 0 ]
