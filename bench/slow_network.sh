#!/bin/bash
# slow_network.sh [-r RATES] [-w WAYS] [-s STEPS] [-l LOSS] [-n SEEDS] [-k KEYS] [-d MS] [-c WORDS] [-o DIR] - training
# over a slow network: time to a loss, and bytes, by what ranks send each other.
#
#   bench/slow_network.sh                                   all ways at four rates, two seeds: an hour
#   bench/slow_network.sh -r 50mbit -w 'dp=4;dp=4 sync=local:4' -s 48 -n 1     a look, about a minute
#   bench/slow_network.sh -r 200mbit -c '--choice --sizes 4Ki,64Ki,1Mi'          collectives instead of training
#   bench/slow_network.sh -k 'model=nano train.batch=16' -l 2.2 -s 400          another job
#   bench/slow_network.sh -p RUNS.csv -l 2.6                                the table of runs.csv of several calls
#
# What is learnt does not depend on how fast a link is: every way is trained once for each seed, by four ranks of this host or, with -g, on
# its GPU, and timed at every rate with a few steps of seed 1, whose losses must be near those of the training: within
# 1e-3 of them.  How near they are is printed; it should be 0 where both were made on one kind of processor.
#
# Makes four network namespaces, each a host with one rank, and a fifth with the bridge between them; a
# link is a pair of veths, shaped by tbf in both directions.  The ranks are started by Open MPI, whose daemons go
# into the namespaces instead of through ssh, and talk TCP.  No interface is made outside of these namespaces and
# none inside leads out of them, so that no packet leaves the machine.  Namespaces, processes and files
# are gone when the script ends, also by a signal.  Needs root, iproute2 and Open MPI; ends with 77 where
# something of this is missing, with 1 if a run fails.
#
#   -r  rates of a link in words of tc, with commas (50mbit,200mbit,1gbit,10gbit); empty: only trains, for -i of another call
#   -w  layouts of four ranks, with semicolons; behind a bar keys of the job: "dp=4 | optim.name=onebit-adam optim.freeze_step=16"
#   -s  steps of a training (200)
#   -t  steps that are timed, at least; of replicas a whole number of intervals is (5)
#   -l  the validation loss that is to be reached (2.6)
#   -n  number of seeds (2)
#   -k  keys of the job, over the usual ones: a GPT-2 of 0.46 M parameters on the King James Bible
#   -g  train so many at once on the GPU of this host, f32, four ranks each; what is timed is on the CPU
#   -i  a folder with metrics.jsonl of all trainings, as -o left it; nothing is trained
#   -d  milliseconds that a packet takes more on its way out of a host; needs netem in the kernel (0)
#   -c  runs skein bench coll with these words at every rate, and nothing else; --cluster @ is the machine of the rate, links fitted
#   -f  words of skein bench coll --fit instead of the usual ones, such as '--sizes 64,1Mi --seconds 0.1'; no: nothing is
#       fitted, and a link is what the rate says.  Usually sizes go up to what a link carries in about 80 ms, and to 8 MiB; with -c from 64 B to 256 KiB
#   -o  a folder for runs.csv, table.md, picture.svg, and metrics.jsonl of every run; it must be new or empty
#
# Prints a Markdown table, means over the seeds, and behind it the CSV, a line for each run:
#
#   steps_to, seconds_to  to the loss, steps interpolated between validations; seconds are those of so many timed steps.  An
#                         optimizer with steps of another kind at first (optim.freeze_step) is timed with three of them
#   step_ms               mean of the timed steps but the first
#   floor_ms              bytes_counted at the rate of the link
#   simulated_ms          skein simulate, on a machine that has this network as collectives find it (skein bench coll --fit, at
#                         every rate, before the ways) and the speed of a rank, measured once: operations and bytes of memory a second
#   bytes_counted         tx_bytes of a host's interface in a timed step, mean of the four, with the headers of packets (of
#                         large ones once: the kernel cuts them into frames where it shapes them).  What start and end
#                         send is taken off, as a run of one step has it
#   frame_bytes           the same at the shaper, with the headers of all frames
#   bytes_predicted       sent_bytes of skein simulate, by host: payload only
#   final_loss            of the last validation; that of replicas is of the mean of their weights
set -eu
cd "$(dirname "$0")/.."
skein=$(realpath "${SKEIN:-build/release/skein}")
rates=50mbit,200mbit,1gbit,10gbit steps=200 timed=5 loss=2.6 seeds=2 more='' delay=0 out='' colls='' rows='' gpu=0 from='' fit='--op allreduce --algorithm direct,ring,halving_doubling --sizes @ --seconds 0.1'
ways='dp=4;dp=4 grads=f16;dp=4 grads=int8;dp=4 grads=int4 feedback;dp=4 sync=local:4;dp=4 sync=local:16'
ways="$ways;dp=4 sync=diloco:16;dp=4 sync=diloco:50;dp=4 sync=stream:16"
usage() { sed -n '2,/^set -eu/{/^#/!d;s/^# \{0,1\}//;p}' "$0"; }
fail() { echo "slow_network.sh: $2" >&2; exit "$1"; }
while getopts r:w:s:t:l:n:k:g:i:d:c:f:o:p:h o; do
    case $o in
    r) rates=$OPTARG ;;
    w) ways=$OPTARG ;;
    s) steps=$OPTARG ;;
    t) timed=$OPTARG ;;
    l) loss=$OPTARG ;;
    n) seeds=$OPTARG ;;
    k) more=$OPTARG ;;
    g) gpu=$OPTARG ;;
    i) from=$(realpath "$OPTARG") ;;
    d) delay=$OPTARG ;;
    c) colls=$OPTARG ;;
    f) fit=$OPTARG ;;
    o) out=$OPTARG ;;
    p) rows=$OPTARG ;;
    h) usage; exit 0 ;;
    *) usage >&2; exit 64 ;;
    esac
done
table() { # runs.csv
    echo "| way | rate | steps to $loss | seconds to $loss | × plain | ms a step | floor ms | simulated ÷ measured | bytes a step and host | predicted | final loss |"
    echo "| --- | --- | --: | --: | --: | --: | --: | --: | --: | --: | --: |"
    awk -F, '
        $1 != "way" {
            k = $1 "," $2
            if (!(k in n)) order[++m] = k
            n[k]++
            if ($5 != "-") { hit[k]++; to[k] += $5; sec[k] += $6 }
            ms[k] += $7; fl[k] += $8; sim[k] += $9; by[k] += $10; pre[k] += $12; last[k] += $13; squares[k] += $13 * $13
        }
        END {
            for (i = 1; i <= m; i++) {
                k = order[i]; split(k, w, ",")
                if (!(w[2] in plain)) plain[w[2]] = hit[k] == n[k] ? sec[k] / n[k] : 0
                # a mean over some of the seeds would flatter: all reach the loss, or it says how many
                if (hit[k] == n[k]) {
                    a = sprintf("%.0f", to[k] / n[k]); b = sprintf("%.1f", sec[k] / n[k])
                    c = plain[w[2]] ? sprintf("%.2f", plain[w[2]] * n[k] / sec[k]) : "–"
                } else { a = (hit[k] + 0) " of " n[k] " seeds"; b = c = "–" }
                mean = last[k] / n[k]
                sd = n[k] > 1 && squares[k] > n[k] * mean ^ 2 ? sqrt((squares[k] - n[k] * mean ^ 2) / (n[k] - 1)) : 0
                gsub(/ *\| */, ", ", w[1])
                printf "| `%s` | %s | %s | %s | %s | %.1f | %.1f | %.2f | %.0f | %.0f | %.3f ± %.3f |\n", w[1], w[2], a, b, c,
                    ms[k] / n[k], fl[k] / n[k], sim[k] / ms[k], by[k] / n[k], pre[k] / n[k], mean, sd
            }
        }' "$1"
}

if [ -n "$rows" ]; then
    table "$rows"
    exit 0
fi
if [ "$steps" -lt 2 ] || [ "$timed" -lt 2 ]; then fail 64 "-s $steps -t $timed: two steps at least, the first is taken off"; fi
[ -x "$skein" ] || fail 77 "there is no $skein"
network=1
[ -n "$rates" ] || network=0 # trainings of one host
if [ $network = 1 ]; then
    [ "$(id -u)" = 0 ] || fail 77 "network namespaces need root"
    for tool in ip tc unshare mpirun.openmpi; do
        command -v $tool >/dev/null || fail 77 "there is no $tool (packages iproute2, util-linux, openmpi-bin)"
    done
    [ -e "$(dirname "$skein")/skein_openmpi.so" ] || fail 77 "the module openmpi was not built"
fi
if [ -n "$out" ]; then
    mkdir -p "$out"
    out=$(realpath "$out")
    [ -z "$(ls -A "$out")" ] || fail 64 "$out is not empty"
fi

work=$(mktemp -d)
net=skein-slow-$$ # namespaces: $net-0 to $net-3, hosts; $net-lan, the bridge
hosts="0 1 2 3"
job=''
leave() {
    trap '' INT TERM HUP
    local i pid
    [ -z "$job" ] || kill "$job" 2>/dev/null || true
    [ $network = 1 ] || hosts=''
    for i in $hosts ${hosts:+lan}; do
        for pid in $(ip netns pids "$net-$i" 2>/dev/null); do kill -9 "$pid" 2>/dev/null || true; done
        ip netns del "$net-$i" 2>/dev/null || true
    done
    rm -rf "$work"
}
trap leave EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

keys=(model=nano model.hidden_size=128 model.num_hidden_layers=2 model.num_attention_heads=4
    train.batch=8 train.seq=64)
# shellcheck disable=SC2206 # words
keys+=($more)
# A rate that does not depend on the number of steps: a timed run has fewer than a training.
run_keys=(data.train=kjv train.threads=1 optim.lr=0.003 optim.schedule=constant val.every=8 val.batches=8 sample.every=0 log.every=0 ckpt.every=0)
# shellcheck disable=SC2206
run_keys+=($more)

# --- the network

lan() { # once: hosts, bridge and links
    local i
    ip netns add "$net-lan" || fail 77 "no network namespace can be made"
    ip -n "$net-lan" link add name lan type bridge || fail 77 "the kernel has no bridges"
    ip -n "$net-lan" link set lan up
    for i in $hosts; do
        ip netns add "$net-$i"
        ip -n "$net-$i" link set lo up
        ip link add eth0 netns "$net-$i" type veth peer name "port$i" netns "$net-lan"
        ip -n "$net-lan" link set "port$i" master lan up
        ip -n "$net-$i" addr add "10.77.0.$((i + 1))/24" dev eth0
        ip -n "$net-$i" link set eth0 up
    done
}

bits() { # of a rate of tc, per second
    awk -v r="$1" 'BEGIN {
        n = r + 0; u = tolower(r); sub(/^[0-9.]+/, "", u)
        k = u == "kbit" ? 1e3 : u == "mbit" ? 1e6 : u == "gbit" ? 1e9 : 0
        if (n * k <= 0) exit 1
        printf "%.0f\n", n * k
    }' || fail 64 "rate $1: a number and kbit, mbit or gbit"
}

bucket() { # rate
    local burst
    burst=$(($(bits "$1") / 8000))
    echo $((burst < 32768 ? 32768 : burst))
}

# A bucket of a millisecond, 32 kB at least; queues of 4 MB, so that bursts of collectives are not dropped.
shape() { # rate
    local i burst
    burst=$(bucket "$1")
    for i in $hosts; do
        tc -n "$net-$i" qdisc del dev eth0 root 2>/dev/null || true
        if [ "$delay" = 0 ]; then
            tc -n "$net-$i" qdisc add dev eth0 root handle 10: tbf rate "$1" burst "$burst" limit 4mb
        else
            tc -n "$net-$i" qdisc add dev eth0 root handle 1: netem delay "${delay}ms" limit 100000 ||
                fail 77 "the kernel has no netem: -d $delay is not possible"
            tc -n "$net-$i" qdisc add dev eth0 parent 1:1 handle 10: tbf rate "$1" burst "$burst" limit 4mb
        fi
        tc -n "$net-lan" qdisc replace dev "port$i" root handle 10: tbf rate "$1" burst "$burst" limit 4mb
    done
}

counted() { # TX_BYTES FRAME_BYTES, sums over the hosts
    local i
    for i in $hosts; do
        ip netns exec "$net-$i" cat /sys/class/net/eth0/statistics/tx_bytes
        tc -s -n "$net-$i" qdisc show dev eth0 | awk '/^qdisc tbf/ { on = 1 } on && $1 == "Sent" { print $2; exit }'
    done | awk 'NR % 2 { a += $1; next } { b += $1 } END { printf "%.0f %.0f\n", a, b }'
}

# What mpirun takes for ssh: ADDRESS COMMAND.  A host has a name and a folder for files of its own.
cat >"$work/enter" <<END
#!/bin/sh
i=\$((\${1##*.} - 1))
shift
mkdir -p "$work/tmp\$i"
export TMPDIR="$work/tmp\$i"
exec ip netns exec $net-\$i unshare --uts sh -c "hostname node\$i && exec \$*"
END
chmod +x "$work/enter"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export XDG_CONFIG_HOME=$work/config XDG_CACHE_HOME=$work/cache
# shellcheck disable=SC2054 # commas are mpirun's
mpi=(--host 10.77.0.1,10.77.0.2,10.77.0.3,10.77.0.4 -n 4 --map-by node --bind-to none
    --mca plm rsh --mca plm_rsh_agent "$work/enter" --mca oob_tcp_if_include eth0
    --mca pml ob1 --mca btl tcp,self --mca btl_tcp_if_include eth0 --mca mpi_yield_when_idle 1)

# --- one run

bench_coll() { # words
    printf '%q ' exec mpirun.openmpi "${mpi[@]}" "$skein" bench coll "$@" >"$work/command"
    "$work/enter" 10.77.0.1 sh "$work/command" </dev/null &
    job=$!
    wait $job || fail 1 "skein bench coll $* ended with code $?"
    job=''
}

# Two short ones, and as long as calls of a training are: what is short does not tell a rate that processors limit.
# For collectives alone many short ones, since one that was slow would decide between few rounds and many.
fit_sizes() { # rate
    [ -z "$colls" ] || { echo 64,1Ki,4Ki,16Ki,64Ki,256Ki; return; }
    awk -v b="$(bits "$1")" 'BEGIN {
        for (n = 512; n < 8192 && 2 * n * 1024 * 8 / b < 0.09; n *= 2) continue
        printf "64,256Ki,%dKi\n", n
    }'
}

# What the links of a rate are to collectives: alpha, o, g, G and incast, with whatever else runs here.  Ranks choose by it, too.
fit_links() { # rate
    rm -f "$work/links" "$XDG_CONFIG_HOME/skein/machine.txt"
    [ "$fit" != no ] || return 0
    machine "$1"
    # shellcheck disable=SC2086 # words
    bench_coll --fit "$work/fitted" --cluster "$work/machine" ${fit//@/$(fit_sizes "$1")} >"$work/fit.log"
    echo "links at $1:" >&2
    tail -n 2 "$work/fit.log" >&2
    [ -z "$out" ] || cp "$work/fit.log" "$out/links.$1.txt"
    grep -E '^(alpha|rate|each|incast|gap)_between|^add_rate' "$work/fitted" >"$work/links"
    machine "$1"
    mkdir -p "$XDG_CONFIG_HOME/skein"
    cp "$work/machine" "$XDG_CONFIG_HOME/skein/machine.txt"
}

collectives() { # rate
    echo "rate $1"
    fit_links "$1"
    machine "$1"
    # shellcheck disable=SC2086 # words
    bench_coll ${colls//@/$work/machine}
}

train() { # layout, steps, seed, run, more keys: sent, frames: bytes of all hosts, at the interface and the shaper
    local before after rc=0
    before=$(counted)
    printf '%q ' exec mpirun.openmpi "${mpi[@]}" "$skein" train "${keys[@]}" "${run_keys[@]}" layout="$1" \
        train.steps="$2" train.seed="$3" run="$4" "${@:5}" >"$work/command"
    "$work/enter" 10.77.0.1 sh "$work/command" >"$work/log" 2>&1 </dev/null &
    job=$!
    wait $job || rc=$?
    job=''
    if [ $rc != 0 ]; then
        tail -n 20 "$work/log" >&2
        fail 1 "layout $1: the run ended with code $rc"
    fi
    after=$(counted)
    # shellcheck disable=SC2086 # four numbers
    set -- $before $after
    sent=$(($3 - $1)) frames=$(($4 - $2))
}

# A bucket lets bytes through sooner than the rate says only where the rate is what limits a link, and not the processor.
free_burst() { # rate
    local fitted
    fitted=$(sed -n 's/^rate_between: //p' "$work/links" 2>/dev/null || true)
    awk -v b="$(bits "$1")" -v r="${fitted:-0}" -v n="$(bucket "$1")" 'BEGIN { print r && r < 0.75 * b / 8 ? 0 : n }'
}

# Without a fit: the part of a frame of 1,514 bytes that is payload, 1,448 bytes, is what messages get of a rate.
machine() { # rate
    cat >"$work/machine" <<END
like: cpu
flops: $flops
memory_rate: $memory_rate
overhead: $(awk -v f="$flops" 'BEGIN { printf "%.3e", 1e-6 * 8e10 / f }')
name: four hosts at $1
ranks_per_host: 1
burst_between: $(free_burst "$1")
END
    if [ -s "$work/links" ]; then
        cat "$work/links" >>"$work/machine"
        return
    fi
    cat >>"$work/machine" <<END
rate_between: $(awk -v b="$(bits "$1")" 'BEGIN { printf "%.0f", b / 8 * 1448 / 1514 }')
alpha_between: $(awk -v d="$delay" 'BEGIN { print 1e-4 + d / 1e3 }')
END
}

# Two numbers of a rank are measured for simulations: bytes of memory a second, at which four ranks of this host read their
# gradients, and operations a second, from steps of replicas that send nothing.  Ranks that share cores have that part of
# the instructions they would do alone, too (machine).
flops=8e10 memory_rate=1e10
fit_memory() {
    memory_rate=$("$skein" bench step "${keys[@]}" data.train=kjv train.threads=1 -n 4 --layout "dp=4 sync=local:1000" --steps 8 \
        --ops -o csv 2>"$work/ops.log" | awk -F, '$2 == "(stats)" { printf "%.3e\n", 1e9 * $9 }')
    [ -n "$memory_rate" ] || { cat "$work/ops.log" >&2; fail 1 "skein bench step --ops has no line of (stats)"; }
    echo "four ranks of this host read $memory_rate bytes of memory a second each" >&2
}
fit_flops() {
    local measured run="$work/run"
    rm -rf "$run"
    train "dp=4 sync=local:1000" 8 1 "$run" val.every=0
    measured=$(times "$run/metrics.jsonl" 0)
    for _ in 1 2 3; do
        flops=$(echo "$measured $(simulated "dp=4 sync=local:1000" "$1")" | awk -v f="$flops" '{ printf "%.3e", f * $3 / $2 }')
    done
    echo "replicas that send nothing: ${measured#* } ms a step, $(simulated "dp=4 sync=local:1000" "$1" | cut -d' ' -f1) simulated with $flops operations a second" >&2
}

simulated() { # layout, rate, keys: MS BYTES of a host in a step, mean over steps
    machine "$2"
    "$skein" simulate "${keys[@]}" train.threads=1 layout="$1" "${@:3}" --cluster "$work/machine" -o csv |
        awk -F, '$1 == "all" { printf "%.3f %.0f\n", 1e3 * $5, $12 / 4 }'
}

learned() { # metrics.jsonl: STEPS_TO FINAL_LOSS; - where the loss was not reached
    awk -v want="$loss" '
        match($0, /"step":[0-9]+/) { step = substr($0, RSTART + 7, RLENGTH - 7) + 0 }
        match($0, /"val_loss":[0-9.]+/) {
            x = substr($0, RSTART + 11, RLENGTH - 11) + 0
            if (x <= want && !done) {
                part = seen && before > x ? (before - want) / (before - x) : 1
                done = sprintf("%.1f", at + part * (step - at))
            }
            seen = 1; before = x; at = step
        }
        END { printf "%s %.4f\n", done ? done : "-", before }' "$1"
}

times() { # metrics.jsonl, steps of another kind at first: mean MS of these and of the others, without the first step
    awk -v first="$2" '
        match($0, /"step":[0-9]+/) { step = substr($0, RSTART + 7, RLENGTH - 7) + 0 }
        match($0, /"ms":[0-9.e+]+/) {
            k = step <= first
            if (step > 1) { ms[k] += substr($0, RSTART + 5, RLENGTH - 5); n[k]++ }
        }
        END { printf "%.2f %.2f\n", n[1] ? ms[1] / n[1] : 0, ms[0] / n[0] }' "$1"
}

# The largest relative difference of two runs' losses; fails where it is above 1e-3.
compare() { # metrics.jsonl, metrics.jsonl, steps
    awk -v most="$3" '
        match($0, /"step":[0-9]+,"loss":[0-9.e+-]+/) {
            split(substr($0, RSTART, RLENGTH), w, /[:,]/)
            if (w[2] + 0 > most) next
            if (NR == FNR) { loss[w[2]] = w[4]; next }
            n++
            d = loss[w[2]] / w[4] - 1
            if (d < 0) d = -d
            if (d > far) far = d
        }
        END { printf "%d losses, %.1e off at most\n", n, far; exit n < 1 || far > 1e-3 }' "$1" "$2"
}

csv="way,rate,seed,steps,steps_to,seconds_to,step_ms,floor_ms,simulated_ms,bytes_counted,frame_bytes,bytes_predicted,final_loss"
echo "$csv" >"$work/runs.csv"

# Sets layout, own (keys), first and timed_first (steps of another kind, in a training and when timed) and
# count (timed steps) of a way.
read_way() { # way
    local h
    layout=${1%%|*} own=''
    case $1 in *"|"*) own=${1#*|} ;; esac
    h=$(sed -nE 's/.*sync=[a-z]+:([0-9]+).*/\1/p' <<<"$layout")
    first=$(sed -nE 's/.*freeze_step=([0-9]+).*/\1/p' <<<"$own")
    first=${first:-0} timed_first=$((first ? 3 : 0)) h=${h:-1}
    count=$(((timed + h - 1) / h * h + 1 + (first ? 2 : 0)))
}

file_of() { echo "${1//[^a-z0-9]/-}.seed$2.jsonl"; } # way, seed

learn() { # way, seed: a training
    local run
    run=$work/learn/$(file_of "$1" "$2").run
    read_way "$1"
    [ "$gpu" = 0 ] || own="$own device=cuda"
    # shellcheck disable=SC2086 # words
    "$skein" train "${keys[@]}" "${run_keys[@]}" layout="$layout" train.steps="$steps" train.seed="$2" run="$run" $own -n 4 \
        >"$run.log" 2>&1 </dev/null || { tail -n 5 "$run.log" >&2; fail 1 "$1, seed $2: the training failed"; }
    mv "$run/metrics.jsonl" "$work/learn/$(file_of "$1" "$2")"
    rm -rf "$run"
    echo "$1, seed $2: $(learned "$work/learn/$(file_of "$1" "$2")")" >&2
}

learn_all() {
    local way seed
    for way in "${list[@]}"; do
        for seed in $(seq "$seeds"); do
            if [ "$gpu" = 0 ]; then
                learn "$way" "$seed"
                continue
            fi
            while [ "$(jobs -rp | wc -l)" -ge "$gpu" ]; do sleep 0.05; done
            learn "$way" "$seed" &
        done
    done
    wait
}

time_way() { # way, rate: a line of runs.csv for each seed
    local run="$work/run" before_sent before_frames seed begin near
    read_way "$1"
    begin=$((first ? 3 : 1))
    [ "$first" = 0 ] || own="$own optim.freeze_step=3"
    rm -rf "$run"
    # shellcheck disable=SC2086 # words
    train "$layout" "$begin" 1 "$run" val.every=0 $own
    before_sent=$sent before_frames=$frames
    rm -rf "$run"
    # shellcheck disable=SC2086
    train "$layout" "$count" 1 "$run" val.every=0 $own
    near=$(compare "$run/metrics.jsonl" "$learnt/$(file_of "$1" 1)" $((first ? 3 : count))) ||
        fail 1 "$1 at $2: not what the training has: $near"
    echo "$1 at $2: $near" >&2
    for seed in $(seq "$seeds"); do
        # shellcheck disable=SC2086
        echo "$(learned "$learnt/$(file_of "$1" "$seed")") $(times "$run/metrics.jsonl" "$timed_first") $(simulated "$layout" "$2" $own)" |
            awk -v way="$1" -v rate="$2" -v seed="$seed" -v steps="$steps" -v bits="$(bits "$2")" -v n="$((count - begin))" \
                -v sent="$((sent - before_sent))" -v frames="$((frames - before_frames))" -v first="$first" -v OFS=, '{
                bytes = sent / 4 / n
                slow = $1 < first ? $1 : first
                seconds = $1 == "-" ? "-" : sprintf("%.2f", (slow * $3 + ($1 - slow) * $4) / 1000)
                print way, rate, seed, steps, $1, seconds, $4, sprintf("%.2f", bytes * 8e3 / bits), $5,
                    sprintf("%.0f", bytes), sprintf("%.0f", frames / 4 / n), $6, $2
            }' >>"$work/runs.csv"
        tail -n 1 "$work/runs.csv" >&2
    done
}

[ $network = 0 ] || lan
if [ -n "$colls" ]; then
    for rate in ${rates//,/ }; do
        shape "$rate"
        collectives "$rate"
    done
    exit 0
fi
IFS=';' read -ra list <<<"$ways"
for way in "${list[@]}"; do # a way that is wrong is told at once
    read_way "$way"
    # shellcheck disable=SC2086 # words
    simulated "$layout" 1gbit $own >/dev/null
done
learnt=${from:-$work/learn}
mkdir -p "$work/learn"
[ -n "$from" ] || learn_all
for way in "${list[@]}"; do
    for seed in $(seq "$seeds"); do
        [ -s "$learnt/$(file_of "$way" "$seed")" ] || fail 1 "$way, seed $seed: there is no training in $learnt"
        [ -z "$out" ] || cp "$learnt/$(file_of "$way" "$seed")" "$out"
    done
done
[ -n "$rates" ] || exit 0
shape "${rates##*,}"
fit_memory
fit_flops "${rates##*,}"
for rate in ${rates//,/ }; do
    shape "$rate"
    fit_links "$rate"
    for way in "${list[@]}"; do time_way "$way" "$rate"; done
done
table "$work/runs.csv" >"$work/table.md"
if [ -n "$out" ]; then
    cp "$work/table.md" "$work/runs.csv" "$out"
    awk -v loss="$loss" -f bench/slow_network.awk "$work/runs.csv" >"$work/picture.svg" && cp "$work/picture.svg" "$out"
fi
cat "$work/table.md"
echo
cat "$work/runs.csv"
