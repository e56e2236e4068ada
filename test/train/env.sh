#!/bin/bash
# env.sh - a job that was started in a wrong way says so once, with what to type instead.
#
# Numbers of ranks that do not fit, variables of two launchers that disagree, a module of another
# MPI, hosts that nothing connects, ranks that never come.  Each case says which exit code must
# come out and which words the report must have; however many ranks there are, one tells it.
set -eu
cd "$(dirname "$0")/../.."
skein=$(realpath "${SKEIN:-build/release/skein}")
[ -x "$skein" ] || { echo "there is no $skein"; exit 77; }
build=$(dirname "$skein")
temp=$(mktemp -d)
trap 'rm -rf "$temp"' EXIT
cp example/one_file.c "$temp/text"
cd "$temp"
unset SKEIN_HOST SKEIN_WIRE SKEIN_JOB SKEIN_RANK SKEIN_RANKS RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_orte_tmpdir_base=$temp # a folder of its own: of two mpiruns in one the first to end takes it away
export ASAN_OPTIONS=${ASAN_OPTIONS:-}:detect_leaks=0 # what an MPI leaks is not ours to find

cases=0 wrong=0
job=(train model=tiny data.train=text train.steps=5 train.batch=4 train.seq=32 sample.every=0 val.every=0
    run=run)

bad() {
    echo "$*"
    sed 's/^/    /' err
    wrong=$((wrong + 1))
}

# Exit code, words that the report must have (a|b: both), command
case_of() {
    local want=$1 words=$2 rc=0 word list
    shift 2
    cases=$((cases + 1))
    rm -rf run
    timeout 100 "$@" >out 2>err </dev/null || rc=$?
    if grep -q "Unable to start a daemon on the local node" err; then # two singletons of Open MPI at once: its own race
        rc=0
        timeout 100 "$@" >out 2>err </dev/null || rc=$?
    fi
    [ $rc = "$want" ] || bad "$*: exit code $rc, $want is needed"
    [ "$(grep -c '^skein: ' err)" = 1 ] || bad "$*: not one report"
    IFS='|' read -r -a list <<<"$words"
    for word in "${list[@]}"; do
        grep '^skein: ' err | grep -qF -- "$word" || bad "$*: the report lacks '$word'"
    done
}

# ---- variables that anybody can set; MASTER_PORT and SKEIN_JOB name the job

port=$((20000 + $$ % 10000))
case_of 64 "-n 4|torchrun started 2 ranks" env RANK=0 WORLD_SIZE=2 MASTER_PORT=$port "$skein" "${job[@]}" -n 4
case_of 64 "--launch|torchrun" env RANK=0 WORLD_SIZE=2 MASTER_PORT=$port "$skein" "${job[@]}" --launch thread
case_of 78 "torchrun started 2 ranks on several hosts|mpirun -n 2 $skein train" \
    env RANK=0 WORLD_SIZE=2 MASTER_ADDR=node7 MASTER_PORT=$port "$skein" "${job[@]}"
case_of 78 "WORLD_SIZE=many" env RANK=0 WORLD_SIZE=many "$skein" "${job[@]}"
case_of 78 "RANK=2|WORLD_SIZE=2|0 to 1" env RANK=2 WORLD_SIZE=2 "$skein" "${job[@]}"
case_of 78 "SKEIN_RANK=1 is set and SKEIN_RANKS is not" env SKEIN_RANK=1 "$skein" "${job[@]}"
case_of 78 "SKEIN_JOB is not set" env SKEIN_RANK=1 SKEIN_RANKS=2 "$skein" "${job[@]}"
case_of 78 "two launchers disagree|torchrun says rank 0 of 2|skein says rank 1 of 2|SKEIN_RANK" \
    env RANK=0 WORLD_SIZE=2 SKEIN_RANK=1 SKEIN_RANKS=2 SKEIN_JOB=env-$$ "$skein" "${job[@]}"
case_of 78 "srun started 4 ranks on 2 nodes without PMI|srun --mpi=pmix -n 4 $skein|srun --mpi=pmi2 -n 4 $skein" \
    env SLURM_PROCID=0 SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=4 SLURM_STEP_NUM_NODES=2 SLURM_JOB_ID=$$ \
    "$skein" "${job[@]}"

# ---- ranks that never come

alone() { # exit code, words, variables
    local want=$1 words=$2 start=$SECONDS
    shift 2
    case_of "$want" "$words" env "$@" "$skein" "${job[@]}" comm.timeout=2
    [ $((SECONDS - start)) -le 20 ] || bad "$*: it took $((SECONDS - start)) s with comm.timeout=2"
}
alone 69 "rank 1 of 2 did not come within 2 s" RANK=0 WORLD_SIZE=2 MASTER_PORT=$port
alone 69 "rank 0 of 2 did not come within 2 s" SKEIN_RANK=1 SKEIN_RANKS=2 SKEIN_JOB=env-$$

# Who waits for nobody says so soon: what for, why it thinks so, and what to type instead.
late() { # variables; words
    local words=$1 start=${EPOCHREALTIME/./} took=0 word pid
    shift
    cases=$((cases + 1))
    env "$@" "$skein" "${job[@]}" comm.timeout=60 >out 2>err </dev/null &
    pid=$!
    until grep -q '^skein waits: ' err || [ $took -gt 20000 ]; do
        sleep 0.05
        took=$(((${EPOCHREALTIME/./} - start) / 1000))
    done
    IFS='|' read -r -a list <<<"$words"
    for _ in {1..40}; do # the rest of the report follows at once, or soon where cores are busy
        if grep -qF -- "${list[-1]}" err; then break; fi
        sleep 0.05
    done
    kill -KILL $pid
    wait $pid 2>/dev/null || true
    [ $took -le $limit ] || bad "$*: it is silent for $took ms"
    for word in "${list[@]}"; do grep -qF -- "$word" err || bad "$*: '$word' is not said"; done
}
limit=2000
if grep -qE '__(asan|tsan)_init' "$skein"; then limit=10000; fi
late "rank 0 of 4 waits for ranks 1, 2, 3|RANK=0 and WORLD_SIZE=4 are set, as by torchrun|env -u RANK -u WORLD_SIZE $skein train" \
    RANK=0 WORLD_SIZE=4 MASTER_PORT=$port
late "rank 1 of 2 waits for rank 0|SKEIN_RANK=1 and SKEIN_RANKS=2|env -u SKEIN_RANK -u SKEIN_RANKS $skein train" \
    SKEIN_RANK=1 SKEIN_RANKS=2 SKEIN_JOB=late-$$

# ---- many see it, one tells it

all_of() { # as case_of: four processes with SKEIN_RANK
    local want=$1 words=$2
    shift 2
    # shellcheck disable=SC2016  # the inner shell's
    case_of "$want" "$words" bash -c '
        pids=() rc=0
        for r in 0 1 2 3; do SKEIN_RANK=$r "$@" & pids+=($!); done
        for pid in "${pids[@]}"; do wait $pid || rc=$?; done
        exit $rc' all env SKEIN_RANKS=4 SKEIN_JOB=env-$$ "$@"
}
all_of 64 "-n 2|skein started 4 ranks" "$skein" "${job[@]}" -n 2
all_of 64 "train.stps|train.steps" "$skein" "${job[@]}" train.stps=3
all_of 78 "2 ranks|4" "$skein" "${job[@]}" layout=dp=2
all_of 78 "optim.name|adamw" "$skein" "${job[@]}" layout=dp=4 optim.name=adamv

# ---- under mpirun; an MPI was not built for the sanitizer: what it locks is not looked at

export TSAN_OPTIONS=${TSAN_OPTIONS:-}:detect_deadlocks=0:ignore_noninstrumented_modules=1

with_mpi() { # openmpi or mpich, the other one; the launcher is in $run
    case_of 64 "-n 4, but $1 started 2 ranks" "${run[@]}" -n 2 "$skein" "${job[@]}" -n 4
    case_of 64 "train.stps" "${run[@]}" -n 2 "$skein" "${job[@]}" train.stps=3
    case_of 78 "4 ranks|3" "${run[@]}" -n 3 "$skein" "${job[@]}" layout="dp=2 tp=2"
    case_of 78 "two launchers disagree|$1 says rank|torchrun says rank 0 of 1|-n 2 env -u RANK -u WORLD_SIZE $skein" \
        "${run[@]}" -n 2 env RANK=0 WORLD_SIZE=1 "$skein" "${job[@]}"
    case_of 64 "wire nothing" "${run[@]}" -n 2 env SKEIN_WIRE=nothing "$skein" "${job[@]}"
    [ -e "$build/skein_$1.so" ] || { modules="$modules, no skein_$1.so" && return; }
    case_of 78 "4 ranks|2" "${run[@]}" -n 2 env SKEIN_HOST=a "$skein" "${job[@]}" layout=dp=4
    case_of 78 "SKEIN_WIRE=none" "${run[@]}" -n 2 env SKEIN_WIRE=none \
        OMPI_COMM_WORLD_LOCAL_SIZE=1 MPI_LOCALNRANKS=1 "$skein" "${job[@]}"
    [ ! -e "$build/skein_$2.so" ] ||
        case_of 78 "$1 started this process as rank|of 2, but the library of module $2|sees rank 0 of 1|-n 2 env -u SKEIN_WIRE $skein" \
            "${run[@]}" -n 2 env SKEIN_WIRE="$2" "$skein" "${job[@]}"
}

modules=
for mpi in openmpi mpich; do
    run=("mpirun.$mpi")
    other=mpich
    if [ $mpi = openmpi ]; then run+=(--oversubscribe); else other=openmpi; fi
    if command -v "mpirun.$mpi" >/dev/null; then with_mpi $mpi $other; else modules="$modules, no mpirun.$mpi"; fi
done
echo "environment: $cases cases, $wrong wrong$modules"
[ $wrong = 0 ]
