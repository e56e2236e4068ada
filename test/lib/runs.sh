# runs.sh - for scripts that train: . "$(dirname "$0")/../lib/runs.sh"
#
# Finds the program ($skein), and goes into a directory ($temp) that is removed at the end of the script, with a text to train on.
# A script may define `train`, `same` and the others anew.
# shellcheck shell=bash disable=SC2034  # for the scripts
set -eu
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
root=$PWD
skein=$(realpath "${SKEIN:-build/release/skein}")
[ -x "$skein" ] || { echo "there is no $skein"; exit 77; }
temp=$(mktemp -d)
trap 'rm -rf "$temp"' EXIT
cp example/one_file.c "$temp/text"
cd "$temp"
checks=0 runs=0
job=()           # keys of every run
subcommand=train # of refused()

fail() {
    echo "$*"
    exit 1
}

train() { # run directory, then more words; the output is in RUN.out and RUN.err
    local run=$1 rc
    shift
    timeout 100 "$skein" train "${job[@]}" run="$run" "$@" >"$run.out" 2>"$run.err" ||
        { rc=$?; cat "$run.out" "$run.err"; fail "$run: exit code $rc"; }
}

same() { # run directory, the one that it must equal
    runs=$((runs + 1))
    cmp "$1/final/model.safetensors" "$2/final/model.safetensors" || fail "$1: another model"
}

refused() { # exit code, words of the sentence, words behind `skein $subcommand`; the output is in said
    local want=$1 words=$2 rc=0
    shift 2
    timeout 60 "$skein" "$subcommand" "$@" >said 2>&1 || rc=$?
    [ "$rc" = "$want" ] || { cat said; fail "$subcommand $*: exit code $rc, not $want"; }
    grep -qF -- "$words" said || { cat said; fail "$subcommand $*: \"$words\" is not in its sentence"; }
    checks=$((checks + 1))
}

said() { # a line that must be in said, blanks counted as one
    tr -s ' ' <said | sed 's/^ //' | grep -E -- "$1" >/dev/null || { cat said; fail "there is no line $1"; }
    checks=$((checks + 1))
}

# The job on two hosts that SKEIN_HOST plays, once with each MPI that is here: the run is named after it, and then the function
# that is given is called with it.  Sets mpis.
two_hosts() { # function
    local mpi launch rc
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_mpi_yield_when_idle=1
    export OMPI_MCA_orte_tmpdir_base=$temp # a folder of its own: of two mpiruns in one the first to end takes it away
    export ASAN_OPTIONS=${ASAN_OPTIONS:-}:detect_leaks=0 # what an MPI leaks is not ours to find
    cat >rank.sh <<'RANK'
export SKEIN_HOST=h$((${OMPI_COMM_WORLD_RANK:-$PMI_RANK} % 2))
exec "$@"
RANK
    mpis=
    for mpi in openmpi mpich; do
        if ! command -v mpirun.$mpi >/dev/null || [ ! -e "$(dirname "$skein")/skein_$mpi.so" ]; then continue; fi
        launch=(timeout 100 "mpirun.$mpi")
        [ $mpi = mpich ] || launch+=(--oversubscribe --bind-to none)
        "${launch[@]}" -n 4 bash rank.sh "$skein" train "${job[@]}" run=$mpi >$mpi.out 2>&1 </dev/null ||
            { rc=$?; cat $mpi.out; fail "$mpi: exit code $rc"; }
        "$1" $mpi
        mpis="$mpis $mpi"
    done
}
