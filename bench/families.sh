#!/bin/bash
# families.sh [-p] [-r ROUNDS] [-s STEPS] [-n RANKS] [PATTERN] - what simulate says of this host beside
# what happens.
#
#   bench/families.sh -r 3            all families on 16 ranks, about 12 minutes on two cores
#   bench/families.sh -r 1 'zero|ep'  a look at some
#
#   bench/families.sh -p              runs nothing: the bytes that are predicted, a second
#
# Every round runs each family once and asks `skein simulate --cluster here` right after it; the
# table holds medians over the rounds, the ratio that of each round's own: a shared host is faster
# one minute than the next.  Bytes are those that left all ranks in a step: predicted by
# the program, counted in the run.  "Cores" is the time of cores that all ranks took for a step,
# over the number of cores: what a crowded step takes at least, whatever else runs beside it.
# Wants a machine with nothing else on it.  Builds nothing and leaves nothing behind.  Ends with 1
# if bytes differ somewhere.
set -eu
cd "$(dirname "$0")/.."
skein=$(realpath "${SKEIN:-build/release/skein}")
rounds=1 steps=5 ranks=16 predict=0
while getopts pr:s:n: o; do
    case $o in
    p) predict=1 ;;
    r) rounds=$OPTARG ;;
    s) steps=$OPTARG ;;
    n) ranks=$OPTARG ;;
    *) exit 2 ;;
    esac
done
shift $((OPTIND - 1))
pattern=${1:-.}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export XDG_CONFIG_HOME=$work

dense="model=nano model.hidden_size=256 model.num_attention_heads=16 model.num_hidden_layers=16"
dense="$dense train.batch=16 train.seq=64"
experts="model=switch-tiny model.hidden_size=192 model.intermediate_size=768 model.num_attention_heads=4"
experts="$experts model.num_hidden_layers=6 model.num_local_experts=16 train.batch=32 train.seq=64"

# Family, model, layout; N is the number of ranks, H half of it, Q a quarter.
families() {
    cat <<TABLE
dp|dense|dp=N
tp|dense|tp=N
sp|dense|tp=N sp
pp gpipe|dense|pp=N micro=8 schedule=gpipe
pp 1f1b|dense|pp=N micro=8 schedule=1f1b
pp interleaved|dense|pp=Q dp=4 micro=4 schedule=interleaved chunks=2
pp zb-h1|dense|pp=N micro=8 schedule=zb-h1
pp zb-v|dense|pp=H dp=2 micro=8 schedule=zb-v
zero 1|dense|dp=N zero=1
zero 2|dense|dp=N zero=2
zero 3|dense|dp=N zero=3
cp ring|dense|cp=N by=ring
cp exchange|dense|cp=N by=exchange
cp gather|dense|cp=N by=gather
ep|experts|ep=N
dp tp pp|dense|pp=2 dp=2 tp=Q micro=4
dp tp sp zero 1|dense|dp=Q tp=4 sp zero=1
dp cp zero 3|dense|dp=Q cp=4 by=ring zero=3
ep dp|experts|dp=2 ep=H
TABLE
}

families | sed "s/=N/=$ranks/g; s/=H/=$((ranks / 2))/g; s/=Q/=$((ranks / 4))/g" |
    grep -E "^[^|]*($pattern)" >"$work/list"

one() { # model words, layout -> ms, bytes, ms of cores | ms, bytes
    local ran said
    # shellcheck disable=SC2086  # words
    ran=$("$skein" bench step $1 --layout "$2" --steps "$steps" -o csv 2>"$work/err" |
        awk -F, -v cores="$(nproc)" 'NR == 2 { print $4, $NF, $(NF - 1) / cores }')
    # shellcheck disable=SC2086
    said=$("$skein" simulate $1 layout="$2" --cluster here -o csv 2>>"$work/err" |
        awk -F, '$1 == "all" { printf "%.4f %s\n", 1e3 * $5, $12 }')
    if [ -z "$ran" ] || [ -z "$said" ]; then
        cat "$work/err" >&2
        return 1
    fi
    echo "$ran $said"
}

header() {
    echo "| family | layout | bytes predicted | bytes counted | ms predicted | ms measured | predicted ÷ measured | ms of cores |"
    echo "| --- | --- | --: | --: | --: | --: | --: | --: |"
}

if [ $predict = 1 ]; then
    header
    while IFS='|' read -r family model layout; do
        words=$dense
        if [ "$model" = experts ]; then words=$experts; fi
        # shellcheck disable=SC2086  # words
        "$skein" simulate $words layout="$layout" -o csv </dev/null |
            awk -F, -v f="$family" -v l="$layout" '$1 == "all" { printf "| %s | `%s` | %s | - | - | - | - | - |\n", f, l, $12 }'
    done <"$work/list"
    exit 0
fi

"$skein" bench coll --calibrate --seconds 10 >/dev/null
for ((r = 0; r < rounds; r++)); do
    while IFS='|' read -r family model layout; do
        words=$dense
        if [ "$model" = experts ]; then words=$experts; fi
        echo "$family|$layout|$(one "$words" "$layout" </dev/null)" | tr ' ' '~' |
            tr '|' ' ' >>"$work/points"
    done <"$work/list"
done
header
awk '
    function median(list, n,    v, i, j, t) {
        n = split(list, v, " ")
        for (i = 2; i <= n; i++)
            for (j = i; j > 1 && v[j] < v[j - 1]; j--) { t = v[j]; v[j] = v[j - 1]; v[j - 1] = t }
        return (v[int((n + 1) / 2)] + v[int(n / 2) + 1]) / 2
    }
    {
        key = $1 " " $2
        split($3, x, "~")
        if (!(key in ran)) order[++n] = key
        ran[key] = ran[key] " " x[1] + 0
        counted[key] = x[2]
        cores[key] = cores[key] " " x[3] + 0
        said[key] = said[key] " " x[4] + 0
        ratio[key] = ratio[key] " " x[4] / x[1]
        predicted[key] = x[5]
    }
    END {
        for (i = 1; i <= n; i++) {
            split(order[i], k, " ")
            gsub("~", " ", k[1]); gsub("~", " ", k[2])
            a = median(said[order[i]]); b = median(ran[order[i]])
            same = predicted[order[i]] == counted[order[i]]
            bad += !same
            r = median(ratio[order[i]])
            far += r < 0.75 || r > 1.25
            printf "| %s | `%s` | %s | %s%s | %.1f | %.1f | %.2f | %.1f |\n", k[1], k[2],
                predicted[order[i]], counted[order[i]], same ? "" : " (differs)", a, b, r,
                median(cores[order[i]])
        }
        printf "\n%d families; bytes differ in %d, time by more than 25 %% in %d\n", n, bad, far
        exit bad > 0
    }' "$work/points"
