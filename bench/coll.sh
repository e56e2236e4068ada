#!/bin/bash
# coll.sh [--quick] [--peers DIR] OUT - collectives of skein beside MPI, Gloo and the floor.
#
#   bench/coll.sh OUT                       skein alone, on 2, 4 and 8 ranks, 4 B to 256 MiB
#   bench/coll.sh --peers DIR OUT           and the peers in the same run, about 25 minutes
#   bench/coll.sh --quick --peers DIR OUT   2 ranks, up to 16 MiB, about 3 minutes
#
# Wants a machine with nothing else on it.  Writes OUT/CONTENDER.RANKS.COLLECTIVE.ROUND.csv and
# OUT/table.md, and prints the table.  OUT must be empty or new.  Everything of one collective and
# rank count runs in turn, one at a time, so that a ratio compares neighbours in time.  Where every
# rank has a core, sizes up to 64 KiB go round twice more: on a shared host the distance between
# two virtual cores changes every few seconds, and with it small calls by a factor of three.
#
# DIR holds what there is of these programs; one that is missing is left out:
#
#   mpi_coll.openmpi  LABEL MAX_BYTES COLLECTIVE SECONDS   under mpirun.openmpi, twice: ob1 and UCX
#   mpi_coll.mpich    the same                             under mpirun.mpich
#   gloo_coll         RANKS MAX_BYTES COLLECTIVES SECONDS  starts its ranks itself
#   floor             coll tiny                            the least a collective can cost here
#
# The first three print
#   peer,coll,ranks,bytes,median_us,p10_us,p90_us,samples,batch,algbw,ok,far_median_us,far_samples
# where `far` are samples taken while the two cores shared no cache; the floor prints
#   coll|tiny,COLLECTIVE[.far],ranks,bytes,median_us,value,unit
# Of the two states the one with more samples counts; for the floor the better one.
#
# Peers and skein are timed in batches of calls that find their data in the caches where the last
# call left them.  `floor coll` (4 KiB and more) writes the data anew before each pass, as a
# computation would, so it stands beside a run of skein that does the same (bench coll --fresh);
# the % of floor is of that one.  `floor tiny` (all-reduce of up to 1 KiB) is a batch, like skein's.
#
# In the environment: SEC (seconds a point, 0.1), ROUNDS (1; the best median counts), RANKS, COLLS,
# MAX (bytes), SKEIN (a program to use instead of building one).
set -eu

usage() { sed -n '2,/^set -eu/{/^#/!d;s/^# \{0,1\}//;p}' "$0"; }

quick=0 peers=
while [ $# -gt 0 ]; do
    case $1 in
    -h | --help) usage; exit 0 ;;
    --quick) quick=1 ;;
    --peers) peers=$(realpath "${2:?--peers needs a directory}"); shift ;;
    -*) echo "coll.sh: $1 is unknown; see --help" >&2; exit 64 ;;
    *) break ;;
    esac
    shift
done
[ $# = 1 ] || { usage >&2; exit 64; }
mkdir -p "$1"
out=$(realpath "$1")
[ -z "$(ls -A "$out")" ] || { echo "coll.sh: $out is not empty" >&2; exit 64; }
[ -z "$peers" ] || [ -d "$peers" ] || { echo "coll.sh: $peers is no directory" >&2; exit 64; }
cd "$(dirname "$0")/.."

ranks=${RANKS:-2 4 8} sec=${SEC:-0.1} max=${MAX:-$((256 << 20))}
if [ $quick = 1 ]; then ranks=${RANKS:-2} sec=${SEC:-0.02} max=${MAX:-$((16 << 20))}; fi
colls=${COLLS:-allreduce reduce_scatter allgather alltoall broadcast}
rounds=${ROUNDS:-1}
cores=$(nproc)

if [ -z "${SKEIN:-}" ]; then
    # shellcheck source=tools/lib.sh
    . tools/lib.sh
    build release || { tail -n 40 build/release.log >&2; exit 1; }
    SKEIN=$PWD/build/release/skein
fi

# --- who takes part

contenders=(skein)
has() { [ -n "$peers" ] && [ -x "$peers/$1" ]; }
if has floor; then contenders+=(skein-fresh); fi
if has mpi_coll.openmpi && command -v mpirun.openmpi >/dev/null; then
    contenders+=(openmpi-ob1 openmpi-ucx)
fi
if has mpi_coll.mpich && command -v mpirun.mpich >/dev/null; then contenders+=(mpich); fi
if has gloo_coll; then contenders+=(gloo); fi
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

# --- one run: contender, ranks, collective

openmpi() { # ranks, collective, label, options of mpirun
    local n=$1 coll=$2 label=$3 bind=(--bind-to core)
    shift 3
    [ "$n" -le "$cores" ] || bind=(--oversubscribe --bind-to none)
    timeout 240 mpirun.openmpi "$@" -n "$n" "${bind[@]}" "$peers/mpi_coll.openmpi" "$label" \
        "$max" "$coll" "$sec"
}

# With more ranks than cores MPICH spins for whole time slices, milliseconds a call: 1 MiB at
# most then, and no longer than a minute.
mpich() { # ranks, collective
    if [ "$1" -le "$cores" ]; then
        timeout 240 mpirun.mpich -n "$1" -bind-to core "$peers/mpi_coll.mpich" mpich "$max" "$2" "$sec"
    else
        timeout 60 mpirun.mpich -n "$1" "$peers/mpi_coll.mpich" mpich \
            $((max < 1 << 20 ? max : 1 << 20)) "$2" 0.01
    fi
}

gloo() { # ranks, collective
    local coll=$2
    [ "$coll" != allreduce ] || coll=allreduce,allreduce_bcube,allreduce_hd
    timeout 240 "$peers/gloo_coll" "$1" "$max" "$coll" "$sec"
}

contend() { # contender, ranks, collective
    local coll=${3/broadcast/bcast}
    case $1 in
    skein) "$SKEIN" bench coll --op "$3" --sizes "4..$max" -n "$2" --seconds "$sec" -o csv ;;
    skein-fresh)
        "$SKEIN" bench coll --fresh --op "$3" --sizes "4..$max" -n "$2" --seconds "$sec" -o csv
        ;;
    openmpi-ob1) openmpi "$2" "$coll" "$1" --mca pml ob1 ;;
    openmpi-ucx)
        openmpi "$2" "$coll" "$1" --mca pml ucx --mca opal_common_ucx_tls any \
            --mca opal_common_ucx_devices any
        ;;
    mpich) mpich "$2" "$coll" ;;
    gloo) gloo "$2" "$coll" ;;
    esac
}

cut_short=()
turn() { # contender, ranks, collective, round
    local rc=0
    contend "$1" "$2" "$3" >"$out/$1.$2.$3.$4.csv" 2>"$out/log" </dev/null || rc=$?
    [ $rc != 0 ] || return 0
    if [ "${1%-fresh}" = skein ]; then
        cat "$out/log" >&2
        exit 1
    fi
    cut_short+=("$1, $2 ranks, $3")
    echo "$1, $2 ranks, $3: ended with code $rc" >&2
}

floor_at() { # round: the floor cannot be asked for one collective alone
    has floor || return 0
    echo "floor" >&2
    "$peers/floor" coll tiny >"$out/floor.$1.csv"
}

cell() { # ranks, collective, round: everybody once, and where it matters twice more up to 64 KiB
    local who again all=$max
    for who in "${contenders[@]}"; do turn "$who" "$1" "$2" "$3"; done
    [ $quick = 0 ] && [ "$1" -le "$cores" ] || return 0
    max=$((max < 65536 ? max : 65536))
    for again in b c; do
        for who in "${contenders[@]}"; do turn "$who" "$1" "$2" "$3$again"; done
    done
    max=$all
}

begin=$SECONDS
for round in $(seq "$rounds"); do
    floor_at "$round"
    for coll in $colls; do
        for n in $ranks; do
            echo "round $round of $rounds: $coll on $n ranks, $((SECONDS - begin)) s so far" >&2
            cell "$n" "$coll" "$round"
        done
    done
done
rm -f "$out/log"

# --- the table

table() {
    awk -F, -v colls="$colls" -v ranks="$ranks" -v max="$max" '
    function least(a, key, x) { if (x > 0 && (!(key in a) || x < a[key])) a[key] = x }
    function key(op, n, bytes) {
        sub(/^bcast/, "broadcast", op)
        sub(/^allreduce_.*/, "allreduce", op)
        return op "," n "," bytes
    }
    function us(x) { return x == "" ? "–" : sprintf(x < 10 ? "%.2f" : x < 100 ? "%.1f" : "%.0f", x) }
    function size(b) {
        return b >= 1048576 ? b / 1048576 " MiB" : b >= 1024 ? b / 1024 " KiB" : b " B"
    }
    FNR == 1 { split(FILENAME, path, "/"); file = path[length(path)]; next }
    file ~ /^skein\./ { if ($11 == 0) least(ours, key($1, $3, $2), $5); next }
    file ~ /^skein-fresh\./ { if ($11 == 0) least(fresh, key($1, $3, $2), $5); next }
    file ~ /^floor\./ {
        sub(/\.far$/, "", $2)
        if ($1 == ($4 + 0 < 4096 ? "tiny" : "coll")) least(under, key($2, $3, $4), $5)
        next
    }
    NF == 13 && $11 == 1 { # a line that a time limit cut is shorter
        k = key($2, $3, $4)
        x = $8 + 0 >= $13 + 0 ? $5 : $12
        old = k in best ? best[k] : 0
        least(best, k, x)
        if (best[k] != old) name[k] = $1
    }
    END {
        print "| op | ranks | bytes | skein µs | best peer µs | which | × | fresh µs | floor µs | % of floor |"
        print "| --- | --: | --: | --: | --: | --- | --: | --: | --: | --: |"
        n_ops = split(colls, op, " ")
        n_ranks = split(ranks, rank, " ")
        for (i = 1; i <= n_ops; i++)
            for (j = 1; j <= n_ranks; j++)
                for (b = 4; b <= max; b *= 4) row(key(op[i], rank[j], b), op[i], rank[j], b)
        if (met) {
            printf "\nskein is ahead of the best peer at %d of %d points", won, met
            printf ", %.2f times in the middle (geometric mean), %.2f at worst (%s).\n", \
                   exp(sum / met), worst, where
        }
    }
    function row(k, o, n, b,    x, f, beside) { # what nobody measured is empty, and so 0
        if (!(k in ours)) return
        x = best[k] / ours[k]
        beside = b < 4096 ? ours[k] : fresh[k]
        f = beside ? 100 * under[k] / beside : 0
        printf "| %s | %d | %s | %s | %s | %s | %s | %s | %s | %s |\n", o, n, size(b), us(ours[k]),
               us(best[k]), name[k], x ? sprintf("%.2f", x) : "–", us(fresh[k]), us(under[k]),
               f ? sprintf("%.0f", f) : "–"
        if (!x) return
        met++
        won += x > 1
        sum += log(x)
        if (met == 1 || x < worst) { worst = x; where = o " of " size(b) " on " n " ranks" }
    }' "$out"/*.csv
}

{
    echo "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1), $cores cores;" \
        "${contenders[*]}; SEC=$sec ROUNDS=$rounds, $((SECONDS - begin)) s in all."
    case " ${contenders[*]} " in *" mpich "*)
        echo "MPICH with more ranks than cores: up to 1 MiB only."
        ;;
    esac
    for what in "${cut_short[@]}"; do echo "Ended early: $what."; done
    echo
    table
} >"$out/table.md"
cat "$out/table.md"
