#!/bin/bash
# slurm.sh up|down DIR - a Slurm cluster of four nodes, n1 to n4, on this machine, for tests.
#
# munged, slurmctld and four slurmd run as root out of the directory DIR, with keys, ports and
# logs of their own: /etc and a Slurm that is already here are left alone.  `up` prints the line
# that a shell needs; `down` ends the jobs and the daemons and leaves the logs.  Each node offers
# two cores, whatever the machine has.  Exit code 77: it cannot be done here, and why.
#
#     eval "$(tools/slurm.sh up /var/tmp/cluster)"
#     srun -N 4 hostname
#     tools/slurm.sh down /var/tmp/cluster
set -eu
PATH=$PATH:/usr/sbin:/sbin
nodes=4
programs=(munged slurmctld slurmd srun sbatch scancel sinfo squeue)

usage() {
    echo "usage: tools/slurm.sh up|down DIR" >&2
    exit 64
}

cannot() {
    echo "slurm.sh: $*" >&2
    exit 77
}

# ---- up

possible() {
    local program
    [ "$(id -u)" = 0 ] || cannot "only root can start Slurm's daemons"
    for program in "${programs[@]}"; do
        command -v "$program" >/dev/null || cannot "$program is not installed (slurm-wlm, munge)"
    done
    [ ${#dir} -le 80 ] || cannot "$dir is too long for the name of a socket"
    [ ! -e "$dir/pids" ] || cannot "$dir has a cluster already; tools/slurm.sh down $dir ends it"
}

is_free() { ! (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

# The first of some ports in a row that nobody listens to, below those that the kernel gives away.
find_ports() { # how many
    local first i try
    for ((try = 0; try < 100; try++)); do
        first=$((17000 + RANDOM % 14000))
        for ((i = 0; i < $1; i++)); do is_free $((first + i)) || continue 2; done
        echo $first
        return
    done
    cannot "no free ports between 17000 and 31000"
}

# Every task begins with it.  Open MPI's ranks of two nodes, being on one machine, would give two
# segments of shared memory one name, and crash: messages go by TCP.
write_prolog() {
    echo "#!/bin/sh"
    echo 'echo "export OMPI_MCA_btl=^vader"'
}

# TmpFS: or the PMIx plugins of all nodes would make the same directory.  config_overrides: nodes
# may offer cores that the machine does not have.
write_conf() { # first port
    local host
    host=$(hostname -s)
    cat <<CONF
ClusterName=skein
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$1
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$dir/munge.socket
CredType=cred/munge
StateSaveLocation=$dir/state
SlurmdSpoolDir=$dir/spool/%n
TmpFS=$dir/tmp/%n
SlurmctldPidFile=$dir/slurmctld.pid
SlurmdPidFile=$dir/slurmd.%n.pid
SlurmctldLogFile=$dir/log/slurmctld
SlurmdLogFile=$dir/log/%n
ProctrackType=proctrack/pgid
TaskPlugin=task/none
TaskProlog=$dir/prolog
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
PropagateResourceLimits=NONE
ReturnToService=2
MailProg=/bin/true
KillWait=5
NodeName=n[1-$nodes] NodeHostname=$host NodeAddr=127.0.0.1 Port=[$(($1 + 1))-$(($1 + nodes))] CPUs=2 RealMemory=500
PartitionName=test Nodes=n[1-$nodes] Default=YES State=UP
CONF
}

start() { # a daemon that stays in the foreground, and its words
    setsid "$@" >>"$dir/log/$(basename "$1").out" 2>&1 </dev/null &
    echo "$! $1" >>"$dir/pids"
}

wait_for() { # what, seconds, a command that succeeds in the end
    local what=$1 until=$((SECONDS + $2))
    shift 2
    until "$@" >/dev/null 2>&1; do
        if [ $SECONDS -ge $until ]; then
            tail -n 20 "$dir"/log/* >&2
            down
            cannot "$what (all of it: $dir/log)"
        fi
        sleep 0.1
    done
}

all_idle() { [ "$(sinfo -h -N -o '%N %T' | grep -c ' idle$')" = $nodes ]; }

up() {
    local i
    possible
    mkdir -p "$dir"/{state,spool,tmp,log}
    for ((i = 1; i <= nodes; i++)); do mkdir -p "$dir/spool/n$i" "$dir/tmp/n$i"; done
    write_conf "$(find_ports $((nodes + 1)))" >"$SLURM_CONF"
    write_prolog >"$dir/prolog"
    chmod +x "$dir/prolog"
    (umask 077 && head -c 1024 /dev/urandom >"$dir/munge.key")
    # --force: it does not like directories that others cannot read, and this one is root's alone
    start munged --foreground --force --key-file "$dir/munge.key" --socket "$dir/munge.socket" \
        --pid-file "$dir/munge.pid" --log-file "$dir/log/munged" --seed-file "$dir/munge.seed"
    wait_for "munged does not start" 20 test -S "$dir/munge.socket"
    start slurmctld -D
    for ((i = 1; i <= nodes; i++)); do start slurmd -D -N "n$i"; done
    wait_for "not all nodes are idle after 60 s" 60 all_idle
    echo "export SLURM_CONF=$SLURM_CONF"
}

# ---- down

is_ours() { # process, daemon
    [ -r "/proc/$1/cmdline" ] && tr '\0' '\n' <"/proc/$1/cmdline" | head -n 1 | grep -q "$2\$"
}

signal_all() { # signal; how many are still there is in $left
    local pid name
    left=0
    while read -r pid name; do
        is_ours "$pid" "$name" || continue
        left=$((left + 1))
        kill "-$1" "$pid" 2>/dev/null || true
    done < <(tac "$dir/pids") # munged last
}

none_left() {
    signal_all 0
    [ $left = 0 ]
}

end_jobs() {
    local i
    timeout 10 scancel --user=root >/dev/null 2>&1 || return 0
    for ((i = 0; i < 80; i++)); do
        [ -n "$(timeout 5 squeue -h 2>/dev/null)" ] || return 0
        sleep 0.1
    done
}

down() {
    local i
    [ -e "$dir/pids" ] || return 0
    end_jobs
    signal_all TERM
    for ((i = 0; i < 100; i++)); do
        if none_left; then break; fi
        sleep 0.1
    done
    signal_all KILL
    rm -f "$dir/pids"
}

[ $# = 2 ] || usage
dir=$(realpath -m "$2")
export SLURM_CONF=$dir/slurm.conf
case $1 in
up) up ;;
down) down ;;
*) usage ;;
esac
