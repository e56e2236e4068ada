#!/bin/bash
# straggler.sh [-w WAYS] [-n RANKS] [-s STEPS] [-c RUNS] [-k KEYS] [-f PERCENT] - what one slow rank costs.
#
#   bench/straggler.sh                                       the usual ways, three ranks: some minutes
#   bench/straggler.sh -w 'dp=2;dp=2 sync=local:8' -n 2 -s 50 -c 1         a look
#
# Trains with every way as it is and with the last rank slowed: a cgroup gives the rank PERCENT of the processor
# time that it takes alone.  Runs of all ways take turns, and medians are printed.  The ranks are started by Open MPI, since
# it tells a rank its number before skein starts.  Needs root, cgroups (v1 or v2) with the controller cpu and
# Open MPI; ends with 77 where something of this is missing, with 1 if a run fails.
#
#   -w  layouts, with semicolons: any words
#   -n  ranks (3)
#   -s  steps of every run (60)
#   -c  runs of every way, slowed and not (3)
#   -k  keys of the job, over the usual ones: a GPT-2 of 0.46 M parameters on the King James Bible
#   -f  per cent of its processor time that the slow rank gets (33)
#
# Prints a Markdown table: milliseconds of a step, the mean of a run without its first step, the median of runs, without and with the slow rank, their
# ratio, and the loss of the last validation with it.
set -eu
cd "$(dirname "$0")/.."
skein=$(realpath "${SKEIN:-build/release/skein}")
ranks=3 steps=60 count=3 more='' percent=33
ways='dp=3;dp=3 sync=backup:1;dp=3 sync=ssp:3;dp=3 sync=ssp:inf;dp=3 sync=local:8;dp=3 sync=elastic:8;dp=3 sync=gossip'
usage() { sed -n '2,/^set -eu/{/^#/!d;s/^# \{0,1\}//;p}' "$0"; }
fail() { echo "straggler.sh: $2" >&2; exit "$1"; }
while getopts w:n:s:c:k:f:h o; do
    case $o in
    w) ways=$OPTARG ;;
    n) ranks=$OPTARG ;;
    s) steps=$OPTARG ;;
    c) count=$OPTARG ;;
    k) more=$OPTARG ;;
    f) percent=$OPTARG ;;
    h) usage; exit 0 ;;
    *) usage >&2; exit 64 ;;
    esac
done
[ "$steps" -ge 2 ] || fail 64 "-s $steps: two steps at least"
[ "$(id -u)" = 0 ] || fail 77 "cgroups need root"
command -v mpirun.openmpi >/dev/null || fail 77 "there is no mpirun.openmpi (package openmpi-bin)"
[ -x "$skein" ] || fail 77 "there is no $skein"

work=$(mktemp -d)
group=''
leave() {
    trap '' INT TERM HUP
    [ -z "$group" ] || rmdir "$group" 2>/dev/null || true
    rm -rf "$work"
}
trap leave EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# A group whose processes get so many microseconds of every 10 ms.
if [ -d /sys/fs/cgroup/cpu ]; then
    group=/sys/fs/cgroup/cpu/skein-straggler-$$
    mkdir "$group" 2>/dev/null || fail 77 "no cgroup can be made"
    limit() { echo 10000 >"$group/cpu.cfs_period_us" && echo "$1" >"$group/cpu.cfs_quota_us"; }
elif grep -qw cpu /sys/fs/cgroup/cgroup.subtree_control 2>/dev/null; then
    group=/sys/fs/cgroup/skein-straggler-$$
    mkdir "$group" 2>/dev/null || fail 77 "no cgroup can be made"
    limit() { echo "$1 10000" >"$group/cpu.max"; }
else
    fail 77 "there is no cgroup controller cpu"
fi

cat >"$work/rank" <<END
#!/bin/sh
if [ "\$SLOW" = 1 ] && [ "\$OMPI_COMM_WORLD_RANK" = $((ranks - 1)) ]; then echo \$\$ >"$group/cgroup.procs"; fi
exec "\$@"
END
chmod +x "$work/rank"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
keys=(model=nano model.hidden_size=128 model.num_hidden_layers=2 model.num_attention_heads=4 train.batch=$((4 * ranks))
    train.seq=64 data.train=kjv train.threads=1 optim.lr=0.003 val.every="$steps" val.batches=8 sample.every=0
    log.every=0 ckpt.every=0)
# shellcheck disable=SC2206 # words
keys+=($more)

train() { # way, slow or not, number of the run: a line of runs.csv
    rm -rf "$work/run"
    SLOW=$2 mpirun.openmpi -n "$ranks" --oversubscribe --bind-to none --mca mpi_yield_when_idle 1 "$work/rank" "$skein" \
        train "${keys[@]}" layout="$1" train.steps="$steps" train.seed="$3" run="$work/run" >"$work/log" 2>&1 </dev/null ||
        { tail -n 20 "$work/log" >&2; fail 1 "layout $1: the run failed"; }
    sed -nE '/"step":1,/d; s/.*"ms":([0-9.e+]+).*/\1/p' "$work/run/metrics.jsonl" | sort -g |
        awk -v way="$1" -v slow="$2" -v OFS=, -v loss="$(sed -nE 's/.*"val_loss":([0-9.]+).*/\1/p' "$work/run/metrics.jsonl" | tail -n 1)" \
            '{ sum += $1 } END { print way, slow, sum / NR, loss }' >>"$work/runs.csv"
    tail -n 1 "$work/runs.csv" >&2
}

# The processor time that a rank takes alone is a part of a core, where ranks share cores.
share() {
    local each=$((10000 * $(nproc) / ranks))
    [ "$each" -le 10000 ] || each=10000
    echo $((each * percent / 100))
}
limit "$(share)" || fail 77 "the cgroup takes no limit"
IFS=';' read -ra list <<<"$ways"
for run in $(seq "$count"); do
    for way in "${list[@]}"; do
        for slow in 0 1; do train "$way" $slow "$run"; done
    done
done

echo "| way | ms a step | with a slow rank | ratio | loss with it |"
echo "| --- | --: | --: | --: | --: |"
for way in "${list[@]}"; do
    for slow in 0 1; do
        awk -F, -v way="$way" -v slow=$slow '$1 == way && $2 == slow { print $3, $4 }' "$work/runs.csv" | sort -g |
            awk '{ x[NR] = $1; loss += $2 } END { print (x[int((NR + 1) / 2)] + x[int(NR / 2) + 1]) / 2, loss / NR }'
    done | awk -v way="$way" 'NR == 1 { plain = $1; next } { printf "| `%s` | %.1f | %.1f | %.2f | %.3f |\n", way, plain, $1, $1 / plain, $2 }'
done
