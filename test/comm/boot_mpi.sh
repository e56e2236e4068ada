#!/bin/bash
# boot_mpi.sh - ranks that mpirun of Open MPI and of MPICH start find each other.
#
# Four ranks on one host without MPI, on one host and on two with it (SKEIN_HOST plays hosts):
# who is where, who sees whose heap, what is shared.  Then a library that does not belong to the
# launcher, and a forgotten WORLD_SIZE: one error report with the command to use, exit code 78.  What
# srun says needs its daemons and is tested as an environment in boot.c.
set -eu
export ASAN_OPTIONS=${ASAN_OPTIONS:-}:detect_leaks=0 # what an MPI leaks is not ours to find
export TSAN_OPTIONS=${TSAN_OPTIONS:-}:detect_deadlocks=0:ignore_noninstrumented_modules=1 # nor what it locks
cd "$(dirname "$0")/../.."
skein=${SKEIN:-build/release/skein}
join=$(dirname "$skein")/test/comm_boot
[ -x "$join" ] || { echo "there is no $join"; exit 77; }
join=$(realpath "$join")
temp=$(mktemp -d)
trap 'rm -rf "$temp"' EXIT
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_orte_tmpdir_base=$temp # a folder of its own: of two mpiruns in one the first to end takes it away
cases=0 wrong=0

bad() {
    [ ! -s "$temp/out" ] || cat "$temp/out"
    : >"$temp/out" # once
    echo "$*"
    wrong=$((wrong + 1))
}

# Exit code, then a command; its standard output is in $temp/out
try() {
    local want=$1 rc=0
    shift
    cases=$((cases + 1))
    timeout 60 "$@" >"$temp/out" 2>&1 </dev/null || rc=$?
    [ "$want" = "$rc" ] || bad "$*: exit code $rc, $want is needed"
}

# The line of a rank: rank, then the rest
line() { grep -qx "rank $1 of 4 by $mpi, $2, 0 bad" "$temp/out" || bad "no line: rank $1 of 4 by $mpi, $2"; }
word() { grep -qF -- "$1" "$temp/out" || bad "the message lacks: $1"; }

# ranks, host, then the program: one application of mpirun
app() {
    if [ "$mpi" = openmpi ]; then echo -n "$1 -x SKEIN_HOST=$2 $join join"; else echo -n "$1 -env SKEIN_HOST $2 $join join"; fi
}

one_host() { # wire
    for r in 0 1 2 3; do line $r "host 0 of 1, local $r of 4, wire $1, heaps: 0 1 2 3"; done
}

two_hosts() {
    line 0 "host 0 of 2, local 0 of 2, wire $mpi, heaps: 0 $1"
    line "$1" "host 0 of 2, local 1 of 2, wire $mpi, heaps: 0 $1"
    line "$2" "host 1 of 2, local 0 of 2, wire $mpi, heaps: $2 3"
    line 3 "host 1 of 2, local 1 of 2, wire $mpi, heaps: $2 3"
}

with_wire() {
    try 0 "${run[@]}" -n 4 env SKEIN_HOST=here "$join" join
    one_host "$mpi"
    # shellcheck disable=SC2046  # words
    try 0 "${run[@]}" -n $(app 2 a) : -n $(app 2 b)
    two_hosts 1 2
    # shellcheck disable=SC2046
    try 0 "${run[@]}" -n $(app 1 a) : -n $(app 1 b) : -n $(app 1 a) : -n $(app 1 b)
    two_hosts 2 1
    # shellcheck disable=SC2046
    try 0 "${run[@]}" -n $(app 1 a) : -n $(app 1 b) : -n $(app 1 c) : -n $(app 1 d)
    for r in 0 1 2 3; do line $r "host $r of 4, local 0 of 1, wire $mpi, heaps: $r"; done
}

wrong_library() { # the other MPI's name
    try 78 "${run[@]}" -n 2 env "SKEIN_WIRE=$1" "$join" join
    word "$mpi started this process as rank 0 of 2, but the library of module $1"
    word "sees rank 0 of 1"
    word "-n 2 env -u SKEIN_WIRE $join join"
}

did=
for mpi in openmpi mpich; do
    command -v "mpirun.$mpi" >/dev/null || continue
    run=("mpirun.$mpi")
    other=mpich
    if [ $mpi = openmpi ]; then run+=(--oversubscribe); else other=openmpi; fi
    did="$did $mpi"
    try 0 "${run[@]}" -n 4 "$join" join
    one_host none
    try 78 "${run[@]}" -n 2 env RANK=0 WORLD_SIZE=1 "$join" join
    word "$mpi says rank 0 of 2"
    word "-n 2 env -u RANK -u WORLD_SIZE $join join"
    if "$join" has $mpi; then with_wire; else did="$did (no module)"; fi
    if "$join" has $other; then wrong_library $other; fi
done
[ -n "$did" ] || { echo "no mpirun.openmpi and no mpirun.mpich"; exit 77; }
echo "boot:$did, $cases cases, $wrong wrong"
[ $wrong = 0 ]
