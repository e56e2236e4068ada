#!/bin/bash
# hosts.sh - whoever starts the ranks, and on however many hosts: the same bits.
#
# One job of four ranks is trained by skein's own launcher: that is the reference.  Then as
# threads, in torchrun's environment, with SKEIN_RANK, and under mpirun of each MPI that is here,
# on one host and on hosts that SKEIN_HOST plays: every loss to the last digit and the final model
# byte for byte.  Other layouts over two hosts against themselves on one; a pinned ring, which may
# round differently; SIGTERM to mpirun or to a rank of any host, which saves, and --resume under
# another launcher.
set -eu
cd "$(dirname "$0")/../.."
skein=$(realpath "${SKEIN:-build/release/skein}")
[ -x "$skein" ] || { echo "there is no $skein"; exit 77; }
build=$(dirname "$skein")
temp=$(mktemp -d)
pids=()
clean() {
    [ ${#pids[@]} = 0 ] || kill -KILL "${pids[@]}" 2>/dev/null || true
    rm -rf "$temp"
}
trap clean EXIT
cp example/one_file.c "$temp/text"
cd "$temp"
unset SKEIN_HOST SKEIN_WIRE SKEIN_JOB SKEIN_RANK SKEIN_RANKS RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_mpi_yield_when_idle=1
export OMPI_MCA_orte_tmpdir_base=$temp # a folder of its own: of two mpiruns in one the first to end takes it away
export ASAN_OPTIONS=${ASAN_OPTIONS:-}:detect_leaks=0 # what an MPI leaks is not ours to find

limit=100 steps=1000
if grep -q __tsan_init "$skein"; then limit=400 steps=150; fi
# Threads divide the sums inside a kernel, and alone on a host a rank would get more of them.
job=(model=tiny data.train=text data.tokenizer=byte train.steps=20 train.batch=8 train.seq=32
    train.threads=1 optim.warmup=5 val.every=0 sample.every=0 log.every=0)
ways=0

fail() {
    echo "$*"
    exit 1
}

# ---- ways to start four ranks; the words of the command line are in $words

by_self() { timeout $limit "$skein" "${words[@]}"; }
by_thread() { timeout $limit "$skein" "${words[@]}" --launch thread; }

# Four processes, rank 3 first; exit code: the first that is not 0.
by_hand() { # function that sets the environment of rank $1
    local r rc=0 one
    pids=()
    for r in 3 2 1 0; do
        ("$1" "$r" && exec timeout $limit "$skein" "${words[@]}") &
        pids+=($!)
    done
    for one in "${pids[@]}"; do wait "$one" || rc=$?; done
    pids=()
    return $rc
}

as_torchrun() {
    export RANK=$1 WORLD_SIZE=4 LOCAL_RANK=$1 MASTER_ADDR=localhost MASTER_PORT=$((20000 + $$ % 10000))
}
as_skein() { export SKEIN_RANK=$1 SKEIN_RANKS=4 SKEIN_JOB=hosts-$$; }
by_torchrun() { by_hand as_torchrun; }
by_skein() { by_hand as_skein; }

# The command of an MPI in $command: one host without a name, or the hosts of ranks 0 to 3.
mpirun() { # openmpi or mpich, hosts
    local mpi=$1 host
    shift
    command=(timeout "$limit" "mpirun.$mpi")
    [ "$mpi" = mpich ] || command+=(--oversubscribe --bind-to none)
    if [ $# = 0 ]; then
        command+=(-n 4 "$skein" "${words[@]}")
        return
    fi
    for host; do
        command+=(-n 1)
        if [ "$mpi" = mpich ]; then command+=(-env SKEIN_HOST "$host"); else command+=(-x SKEIN_HOST="$host"); fi
        command+=("$skein" "${words[@]}" :)
    done
    unset 'command[-1]'
}
by_openmpi() { mpirun openmpi "$@"; "${command[@]}"; }
by_mpich() { mpirun mpich "$@"; "${command[@]}"; }

# ---- runs and what is compared

train() { # run, way and its words in quotes, more words of the job
    local run=$1 way=$2 rc=0
    shift 2
    words=(train "${job[@]}" run="$run" "$@")
    # shellcheck disable=SC2086  # words
    by_$way >"$run.out" 2>"$run.err" </dev/null || rc=$?
    [ $rc = 0 ] || { cat "$run.out" "$run.err"; fail "$way, $*: exit code $rc"; }
}

losses() { sed -nE 's/.*"step":([0-9]+),"loss":([^,]+),"grad_norm":([^,]+),.*/\1 \2 \3/p' "$1/metrics.jsonl"; }

same() { # run, its reference, how it is called
    [ "$(losses "$2" | wc -l)" -ge 20 ] || fail "$2: no losses"
    diff <(losses "$2") <(losses "$1") >other || { head -n 6 other; fail "$3: other losses"; }
    cmp "$2/final/model.safetensors" "$1/final/model.safetensors" || fail "$3: another model"
    ways=$((ways + 1))
}

equal() { # way and its words in quotes, reference, more words of the job
    local way=$1 ref=$2
    shift 2
    rm -rf way
    train way "$way" "$@"
    same way "$ref" "$way, $*"
}

near() { # run, reference, how it is called: every loss within 1e-5
    paste -d ' ' <(losses "$2") <(losses "$1") | awk '
        { d = $5 / $2 - 1; d = d < 0 ? -d : d; if (d > worst) worst = d }
        $1 != $4 || !(d < 1e-5) { wrong = 1 }
        END { exit wrong || NR != 20 }' || fail "$3: other losses"
}

# ---- a signal to the launcher in the middle; somebody else goes on

long=(train.steps="$steps" layout=dp=4)
export OMPI_MCA_odls_base_sigkill_timeout=4 # s from the SIGTERM of Open MPI to its SIGKILL: 1 is usual

told() { grep -c '^skein: stopped after step [0-9]*, everything is saved' "$1.err"; }

# A rank of the run `stop` on a host.
rank_on() {
    local p
    for p in $(pgrep -f run=stop); do
        [ "$(readlink "/proc/$p/cwd")" = "$temp" ] || continue
        if tr '\0' '\n' <"/proc/$p/environ" | grep -qx "SKEIN_HOST=$1"; then echo "$p"; return; fi
    done 2>/dev/null
    return 1
}

# Run, process, signal, exit codes, how often the report is told, the host of the rank that has the
# signal ("": the process has it): after SIGTERM Open MPI listens no more and gives its own code;
# Hydra, asked to pass a signal on, loses every third job's code.
stop() {
    local rc=0 to=$2
    until [ "$(losses "$1" 2>/dev/null | wc -l)" -ge 10 ]; do
        kill -0 "$2" 2>/dev/null || { cat "$1.out" "$1.err"; fail "$1: it ended too early"; }
        sleep 0.02
    done
    [ -z "$6" ] || to=$(rank_on "$6") || fail "no rank is on host $6"
    kill "-$3" "$to"
    wait "$2" || rc=$?
    pids=()
    case " $4 " in *" $rc "*) ;; *) cat "$1.out" "$1.err"; fail "SIG$3: exit code $rc, $4 is needed" ;; esac
    [ "$5" = any ] || [ "$(told "$1")" = "$5" ] || { cat "$1.err"; fail "SIG$3: not one report"; }
    compgen -G "$1/ckpt/step-*" >/dev/null || { cat "$1.out" "$1.err"; fail "SIG$3: nothing saved"; }
}

stopped() { # openmpi, mpich or self; the signal; the way to go on; a host (see stop)
    local codes=75 reports=1 host=${4:-}
    case $1:$2$host in openmpi:TERM) codes=1 reports=any ;; mpich:*) codes="75 0" ;; esac
    rm -rf stop
    words=(train "${job[@]}" "${long[@]}" run=stop)
    command=("$skein" "${words[@]}")
    [ "$1" = self ] || mpirun "$1" a a b b
    [ "$1" = self ] || command=("${command[@]:2}") # without timeout: the signal is for mpirun
    "${command[@]}" >stop.out 2>stop.err </dev/null &
    pids=($!)
    stop stop $! "$2" "$codes" $reports "$host"
    train stop "$3" "${long[@]}" --resume
    same stop long "stopped under $1 by SIG$2 ${host:+to host $host}, resumed by $3"
}

# ---- everything that one MPI can do

layouts=("tp=2 dp=2" "pp=2 dp=2 zero=1 micro=2"
    "dp=4 zero=3 weights=int8 grads=int4 feedback copy=2")
big=(model=demo layout=dp=4) # longer messages: other algorithms

# Each does all with SKEIN_LONG, else where another MPI is here the one does what the other leaves out.
leaves_out() { # openmpi or mpich, number of what it may leave out
    [ -z "${SKEIN_LONG:-}" ] && command -v mpirun.openmpi >/dev/null && command -v mpirun.mpich >/dev/null &&
        [ "$1" = "$( (($2 % 2)) && echo openmpi || echo mpich)" ]
}

with_mpi() { # openmpi or mpich
    local hosts k n=0
    for hosts in "" "a a a a" "a a b b" "a b a b" "a a a b" "a b c d"; do
        n=$((n + 1))
        [ "$hosts" = "a a b b" ] || ! leaves_out "$1" $n || continue
        equal "$1 $hosts" ref layout=dp=4
        case $hosts:${SKEIN_LONG:-} in "a a b b:"* | *:?*) equal "$1 $hosts" big "${big[@]}" ;; esac
    done
    for k in 0 1 2; do
        leaves_out "$1" $k || equal "$1 a a b b" "layout$k" layout="${layouts[k]}"
    done
    leaves_out "$1" 0 && return
    rm -rf ring
    train ring "$1 a a b b" layout=dp=4 comm.algorithm=ring
    near ring ref "$1, ring"
}

train ref self layout=dp=4
equal thread ref layout=dp=4
equal torchrun ref layout=dp=4
equal skein ref layout=dp=4
train big self "${big[@]}"
for k in 0 1 2; do train "layout$k" self layout="${layouts[k]}"; done
train long self "${long[@]}"

# an MPI was not built for the sanitizer: what it does and locks is not looked at
export TSAN_OPTIONS=${TSAN_OPTIONS:-}:detect_deadlocks=0:ignore_noninstrumented_modules=1
missing=() found=
for mpi in openmpi mpich; do
    if ! command -v "mpirun.$mpi" >/dev/null; then
        missing+=("mpirun.$mpi is not installed")
    elif [ ! -e "$build/skein_$mpi.so" ]; then
        missing+=("skein_$mpi.so was not built")
    else
        found="$found $mpi"
        with_mpi $mpi
    fi
done
stopped self TERM torchrun
case $found in *openmpi*)
    [ -z "${SKEIN_LONG:-}" ] || stopped openmpi TERM self
    [ -z "${SKEIN_LONG:-}" ] || stopped openmpi USR1 torchrun
    stopped openmpi TERM self b
    ;;
esac
case $found in *mpich*)
    [ -z "${SKEIN_LONG:-}" ] || stopped mpich TERM "mpich a b c d"
    stopped mpich USR1 self b
    ;;
esac
case $found in *openmpi*mpich*) stopped mpich INT "openmpi a a a b" ;; esac
text=
for why in "${missing[@]}"; do text="$text; $why"; done
echo "hosts: $ways ways, all bits equal$text"
