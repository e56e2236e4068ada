#!/bin/bash
# matrix.sh - the matrix of collectives (test/comm/matrix.c) over every MPI module that was
# built, with each rank on a host of its own.  Uneven numbers of ranks too; more with SKEIN_LONG.
set -eu
export ASAN_OPTIONS=${ASAN_OPTIONS:-}:detect_leaks=0 # what an MPI leaks is not ours to find
export TSAN_OPTIONS=${TSAN_OPTIONS:-}:detect_deadlocks=0:ignore_noninstrumented_modules=1 # nor what it locks
build=$(dirname "$SKEIN")
program=$build/test/comm_matrix
ranks="2 3 4 5"
[ -n "${SKEIN_LONG:-}" ] && ranks="$ranks 8"
[ -x "$program" ] || { echo "mpi_matrix: $program is not built"; exit 77; }

export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_mpi_yield_when_idle=1
temp=$(mktemp -d)
trap 'rm -rf "$temp"' EXIT
log=$temp/log
export OMPI_MCA_orte_tmpdir_base=$temp # a folder of its own: of two mpiruns in one the first to end takes it away
runs=0 cases=0
for name in openmpi mpich; do
    run=$(command -v "mpirun.$name" || command -v mpirun || true)
    if [ ! -e "$build/skein_$name.so" ] || [ -z "$run" ]; then continue; fi
    for n in $ranks; do
        if ! timeout 100 "$run" -n "$n" "$program" "$name" >"$log" 2>&1 ||
            ! grep -q '^matrix: [1-9][0-9]* cases, 0 wrong$' "$log"; then
            cat "$log"
            echo "mpi_matrix: $name with $n ranks failed"
            exit 1
        fi
        runs=$((runs + 1))
        cases=$((cases + $(sed -n 's/^matrix: \([0-9]*\) .*/\1/p' "$log")))
    done
done
[ "$runs" -gt 0 ] || { echo "mpi_matrix: no MPI module was built, or its mpirun is missing"; exit 77; }
echo "mpi_matrix: $runs runs, $cases cases, 0 wrong"
