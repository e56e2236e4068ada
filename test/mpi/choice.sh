#!/bin/bash
# choice.sh - skein bench coll --choice on several hosts chooses by rank 0's machine file.  That of rank 1 names other links, by
# which another algorithm is the cheapest: ranks that choose by their own would not time the same points.
set -eu
export ASAN_OPTIONS=${ASAN_OPTIONS:-}:detect_leaks=0 # what an MPI leaks is not ours to find
export TSAN_OPTIONS=${TSAN_OPTIONS:-}:detect_deadlocks=0:ignore_noninstrumented_modules=1 # nor what it locks
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_mpi_yield_when_idle=1
build=$(dirname "$SKEIN")
temp=$(mktemp -d)
trap 'rm -rf "$temp"' EXIT
export OMPI_MCA_orte_tmpdir_base=$temp # a folder of its own: of two mpiruns in one the first to end takes it away
fail() { echo "mpi_choice: $1"; exit 1; }
run=$(command -v mpirun.openmpi || command -v mpirun || true)
if [ ! -e "$build/skein_openmpi.so" ] || [ -z "$run" ]; then
    echo "mpi_choice: the module openmpi was not built, or its mpirun is missing"
    exit 77
fi

machine() { # rank, alpha_between, each_between, rate_between
    mkdir -p "$temp/config$1/skein"
    printf 'like: cpu\nalpha_between: %s\neach_between: %s\nrate_between: %s\n' "$2" "$3" "$4" >"$temp/config$1/skein/machine.txt"
}
cat >"$temp/rank" <<'END'
#!/bin/sh
# FOLDER SKEIN: one rank, on a host of its own and with a machine file of its own
export XDG_CONFIG_HOME=$1/config$((OMPI_COMM_WORLD_RANK > 0)) SKEIN_HOST=host$OMPI_COMM_WORLD_RANK
exec "$2" bench coll --choice --op allreduce --sizes 4Ki --seconds 0.01 -o csv
END
chmod +x "$temp/rank"
choice() { # ranks: chosen and predicted_us
    timeout 100 "$run" -n "$1" "$temp/rank" "$temp" "$SKEIN" >"$temp/out" 2>"$temp/err" || fail "$(cat "$temp/out" "$temp/err")"
    awk -F, 'NR == 2 { print $5, $7 }' "$temp/out"
}

machine 0 1 0 1e12 # rounds are dear
machine 1 1 0 1e12
few=$(choice 4)
machine 0 1e-9 0 1 # bytes are
machine 1 1e-9 0 1
bytes=$(choice 4)
machine 1 1 0 1e12
[ "${few% *}" != "${bytes% *}" ] || fail "$few is chosen by either machine: the test needs two that differ"
[ "${few%:*}" != "$few" ] || fail "$few: where rounds are dear one round of all members is needed, by degrees"
mixed=$(choice 4)
[ "$mixed" = "$bytes" ] || fail "rank 0 alone would choose and predict $bytes, with other ranks' files it is $mixed"
echo "mpi_choice: by rank 0's machine: $bytes, not $few"
