#!/bin/bash
# h200.sh - training steps of skein beside PyTorch on one H200, in one run.
#
#     bench/h200.sh                                     all: 3 models, PyTorch eager and compile, skein
#     bench/h200.sh --who eager,skein                   without torch.compile, which takes 40 to 110 s to start
#     bench/h200.sh --models gpt2 --rounds 3            one model, three times
#     bench/h200.sh --who skein -- layout="micro=2"     further words for skein
#     bench/h200.sh --results FILE --table              the tables of what FILE holds
#
# Every round runs every contender once, one after the other, each in a process of its own; the
# tables hold medians over the rounds.  Results are added to FILE (usual: build/h200.jsonl, begun anew
# without --results), so that what does not fit in one sitting can be measured in several.  A first
# round of everything takes about five minutes, later ones find what was compiled.
# SKEIN is the program, PYTHON one with PyTorch, SKEIN_CUDNN a libcudnn.so.9 for skein; unset: that of
# PyTorch, so that both sides run the same.  Exit code 1: some run failed.
set -eu
cd "$(dirname "$0")/.."

# ---- the command lines
skein=${SKEIN:-build/release/skein}
python=${PYTHON:-python3}
# Results that memory has room for are kept and not made again (doc/memory.md).
declare -A shape=(
    [gpt2]="model=gpt2 train.batch=64 train.seq=1024 layout=keep=bias_gelu"
    [gpt2-xl]="model=gpt2-xl train.batch=16 train.seq=1024 layout=keep=bias_gelu"
    [llama-1b]="model=llama-1b train.batch=16 train.seq=2048 layout=keep=cheap"
)
declare -A words=([gpt2]=50304 [gpt2-xl]=50304 [llama-1b]=32768)
# The optimizer as torch_peer.py has it; nothing but steps.
job="device=cuda train.dtype=bf16 optim.name=adamw optim.lr=1e-4 optim.betas=0.9,0.95 optim.eps=1e-8
    optim.weight_decay=0.1 optim.clip=0 optim.schedule=constant optim.warmup=0 val.every=0"
# @RUN@ is a fresh folder; the run is ended when it has done its steps.
train="train data.train=@TOKENS@ data.order=sequential data.val_fraction=0 train.steps=100000 sample.every=0
    log.every=0 run=@RUN@"
step="bench step -o csv" # --with step: no data, no run directory; says nothing of the first step
peer="bench/h200/torch_peer.py --weights ${WEIGHTS:-autocast} --attention ${ATTENTION:-best}"
must=${MUST:-gpt2=600000,gpt2-xl=53000,llama-1b=100000} # tokens/s
goal=${GOAL:-gpt2=700000,gpt2-xl=62000,llama-1b=118000}
more=()                       # further words for skein: those behind --

models=gpt2,gpt2-xl,llama-1b who=eager,compile,skein rounds=1 steps=20 warm=5 results='' with=train table=0
usage() { sed -n '2,/^set/p' "$0" | sed -n 's/^# \{0,1\}//p'; }
while [ $# -gt 0 ]; do
    case $1 in
    -h | --help) usage; exit 0 ;;
    --table) table=1 && shift && continue ;;
    --) shift && more=("$@") && break ;;
    --models | --who | --rounds | --steps | --warm | --results | --with) ;;
    *) usage >&2; exit 64 ;;
    esac
    [ $# -ge 2 ] || { usage >&2; exit 64; }
    printf -v "${1#--}" %s "$2"
    shift 2
done
case $with in train | step) ;; *) echo "h200.sh: --with $with; train or step is needed" >&2 && exit 64 ;; esac
if [ -z "$results" ]; then
    results=build/h200.jsonl
    mkdir -p build
    [ "$table" = 1 ] || : >"$results"
fi
runs() { "$python" bench/h200/runs.py "$@"; }
tables() { runs table --results "$results" --must "$must" --goal "$goal"; }
if [ "$table" = 1 ]; then tables; exit; fi

# The libcudnn.so.9 that PyTorch has brought along, if it did.
torch_cudnn() {
    "$python" -c "
from importlib.util import find_spec
import os
for folder in find_spec('torch') and find_spec('nvidia.cudnn').submodule_search_locations:
    path = os.path.join(folder, 'lib', 'libcudnn.so.9')
    if os.path.exists(path): print(path) or exit()" 2>/dev/null || true
}
if [ -z "${SKEIN_CUDNN+set}" ]; then
    SKEIN_CUDNN=$(torch_cudnn)
    if [ -n "$SKEIN_CUDNN" ]; then export SKEIN_CUDNN; else unset SKEIN_CUDNN; fi
fi

temp=$(mktemp -d)
trap 'rm -rf "$temp"' EXIT
export TORCHINDUCTOR_CACHE_DIR=$temp/inductor TRITON_CACHE_DIR=$temp/triton # the first start is a cold one

# Random ids, as in torch_peer.py: 24 Mi of them.
tokens() { # words
    [ -s "$temp/$1.bin" ] || "$python" -c "
import numpy, sys
numpy.random.default_rng(1).integers(0, int(sys.argv[1]), 24 << 20, 'u2').tofile(sys.argv[2])" "$1" "$temp/$1.bin"
}

measure() { # who, model
    local c last=()
    case $1:$with in
    skein:train)
        tokens "${words[$2]}"
        c=${train//@TOKENS@/$temp/${words[$2]}.bin}
        c="$skein $c ${shape[$2]} $job" last=("${more[@]}")
        ;;
    skein:step) c="$skein $step --steps $steps ${shape[$2]} $job" last=("${more[@]}") ;;
    *) c="$python $peer --model $2 --$1 --steps $steps --warm $warm" ;;
    esac
    # shellcheck disable=SC2086  # words
    runs run --results "$results" --who "$1" --model "$2" --steps "$steps" --warm "$warm" -- $c "${last[@]}"
}

{
    nvidia-smi --query-gpu=name,driver_version,clocks.sm,clocks.mem,power.limit --format=csv,noheader 2>/dev/null ||
        echo "no nvidia-smi"
    echo "cuDNN of skein: ${SKEIN_CUDNN:-that of the system}"
    date -u +%Y-%m-%d
} | paste -sd ' '
failed=0
for ((r = 0; r < rounds; r++)); do
    for m in ${models//,/ }; do
        for w in ${who//,/ }; do
            measure "$w" "$m" || failed=1
        done
    done
done
tables
exit $failed
