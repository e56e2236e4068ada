#!/bin/bash
# vary.sh - skein simulate --vary and --sensitivity: rows beside single calls, linear laws, scaling, refusals.
set -eu
cd "$(dirname "$0")/../.."
skein=$(realpath "${SKEIN:-build/release/skein}")
temp=$(mktemp -d)
trap 'rm -rf "$temp"' EXIT
export XDG_CONFIG_HOME=$temp
fail() { echo "$*" && exit 1; }
job="model=llama-tiny train.dtype=bf16 train.batch=16 train.seq=64 train.threads=1"

simulate() { # shellcheck disable=SC2086
    "$skein" simulate $job "$@"
}
single() { # step_s and mem_bytes of one call; "refused" where it is
    simulate "$@" -o csv 2>/dev/null | awk -F, 'NR == 2 { print $5 "," $13; n++ } END { if (!n) print "refused" }'
}
cells() { # columns, arguments: those columns of the rows, by name, with commas
    local names=$1
    shift
    simulate "$@" -o csv >"$temp/csv" || fail "$*: exit code $?"
    awk -F, -v names="$names" '
        NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; n = split(names, name, " "); next }
        { for (i = 1; i <= n; i++) printf "%s%s", $at[name[i]], i < n ? "," : "\n" }' "$temp/csv"
}
line() { cells "$@" | paste -sd ' '; }
same() { # what, two numbers, or a relation of them
    awk -v a="$2" -v b="$3" -v most="${4:-1e-6}" 'BEGIN { d = a / b - 1; exit !(d <= most && d >= -most) }' || fail "$1: $2 and $3"
}

# exposed time by axis: that of the single call, and all of it
read -r all dp tp world < <(cells "exposed_pct exposed_dp_pct exposed_tp_pct exposed_world_pct" layout="dp=2 tp=2" --cluster h100-8 --vary micro=2 | tr , ' ')
same "axes sum up" "$all" "$(awk "BEGIN { print $dp + $tp + $world }")" 1e-3
read -r step one < <(cells "step_s exposed_tp_s" layout="dp=2 tp=2 micro=2" --cluster h100-8 | sed 's/,/ /;q')
same "of the single call" "$tp" "$(awk "BEGIN { print 100 * $one / $step }")" 1e-3
simulate layout="dp=2 tp=2 micro=2" --cluster h100-8 | grep -q "exposed $(printf %.1f "$all") % (dp .* · tp .* · world .*) · bubble" || fail "exposed by axis"

# words of the layout and keys of the job: each row is one call, also a refused one
rows=0 refused=0
while IFS=, read -r tp zero micro batch step bytes; do
    one=$(single -n 4 layout="dp=$((tp > 4 ? 1 : 4 / tp)) tp=$tp micro=$micro zero=$zero" train.batch="$batch" --cluster h100-8)
    [ "$one" = refused ] && [ -z "$step" ] && refused=$((refused + 1))
    [ "$one" = refused ] || [ "$one" = "$step,$bytes" ] || fail "tp=$tp zero=$zero micro=$micro batch=$batch: a row says $step,$bytes and a call $one"
    [ "$one" != refused ] || [ -z "$step" ] || fail "tp=$tp zero=$zero micro=$micro batch=$batch: refused, and a row has $step"
    rows=$((rows + 1))
done < <(cells "tp zero micro batch step_s mem_bytes" -n 4 layout="tp=2 micro=8" --cluster h100-8 --vary tp=1..8,zero=0,3 --vary micro=1,64,batch=16,32)
[ $rows = 32 ] || fail "$rows rows, 4 * 2 * 2 * 2 are needed"
[[ $refused -ge 8 && $refused -lt 32 ]] || fail "$refused of 32 rows are refused: those of 8 ranks at least"
grep -q '^8,0,1,16,,.*8 that ""tp=8' "$temp/csv" || fail "no reason: $(cat "$temp/csv")"

# numbers of the machine are lines of its file
for pair in rate_between=1e9 rate_between=4e9 flops=1e12 memory=1e6 overhead=1e-3; do
    printf 'like: h100-8\nname: h100-8\nranks_per_host: 2\n' >"$temp/base"
    { cat "$temp/base" && echo "${pair/=/: }"; } >"$temp/one"
    row=$(cells "step_s mem_bytes" layout="dp=2 tp=2" --cluster "$temp/base" --vary "$pair")
    [ "$row" = "$(single layout="dp=2 tp=2" --cluster "$temp/one")" ] || fail "$pair: a row says $row"
done
[ "$(line fits layout=dp=2 --cluster h100-8 --vary memory=1e6,1e9)" = "no yes" ] || fail "a megabyte holds it"
[ "$(cells bound layout=dp=2 --cluster h100-8 --vary memory=1e6)" = memory ] || fail "the memory does not bind"

# laws: twice everything that computes, half the step; twice the price, twice the dollars; a slow network halves
printf 'flops: 1e9\nmemory_rate: 1e18\nrate_inside: 1e18\nrate_between: 1e18\nranks_per_host: 2\noverhead: 0\n' >"$temp/compute"
printf 'flops: 1e21\nmemory_rate: 1e18\nrate_inside: 1e18\nrate_between: 1e3\nranks_per_host: 1\noverhead: 0\n' >"$temp/network"
read -r a b c < <(line step_s layout=dp=1 --cluster "$temp/compute" --vary flops=1x..4x)
same "twice the flops" "$(awk "BEGIN { print $a / $b }")" 2
same "four times the flops" "$(awk "BEGIN { print $a / $c }")" 4
read -r a b < <(line step_s layout=dp=2 --cluster "$temp/network" --vary nic=0.5x,1x)
same "half the network" "$(awk "BEGIN { print $a / $b }")" 2 1e-4
[ "$(cells bound layout=dp=2 --cluster "$temp/network" --vary nic=1x)" = communication ] || fail "the network does not bind"
read -r step a b < <(cells "usd_mtok step_s" layout=dp=2 --vary price=1,2 | awk -F, '{ u[NR] = $1; s = $2 } END { print s, u[1], u[2] }')
same "dollars" "$a" "$(awk "BEGIN { print $step * 2 / 3600 / 1024 * 1e6 }")" 1e-3
same "twice the price" "$(awk "BEGIN { print $b / $a }")" 2 1e-3

# scaling: strong keeps the batch, weak lets it grow; without a price of communication both are perfect
while IFS=, read -r ranks step efficiency; do
    [ "$step,$efficiency" = "$(single layout=dp="$ranks" train.batch=$((16 * ranks)) --cluster "$temp/compute" | cut -d, -f1),1" ] ||
        fail "weak, $ranks ranks: $step, efficiency $efficiency"
done < <(cells "ranks step_s efficiency" layout=dp=1 --cluster "$temp/compute" --vary ranks=1..4 --scaling weak)
read -r a b c < <(line efficiency layout=dp=1 --cluster h100-8 --vary dp=1..4 --scaling strong)
awk "BEGIN { exit !($a == 1 && $b < 1 && $c < $b) }" || fail "strong: efficiencies $a $b $c"

# micro-batches of so many samples; words without values
[ "$(line step_s layout="dp=2 micro=4" --vary mbs=2,4)" = "$(line step_s layout=dp=2 --vary micro=4,2)" ] || fail "mbs"
[ "$(line step_s layout="tp=2 sp" --cluster h100-8 --vary sp=yes,no)" = \
    "$(single layout="tp=2 sp" --cluster h100-8 | cut -d, -f1) $(single layout="tp=2" --cluster h100-8 | cut -d, -f1)" ] || fail "sp=yes,no"
[ "$(cells step_s layout="mesh dp=2; split b over dp" --vary dp=4)" = "$(single layout=dp=4 | cut -d, -f1)" ] || fail "a mesh in sentences"

# the picture: a dot for each row that has a step, a line for each choice of the others
simulate layout=dp=1 --cluster h100-8 --vary ranks=1..8,nic=0.5x,1x,tp=1,16 --scaling strong --svg "$temp/svg" >/dev/null
python3 - "$temp/svg" <<'END' || fail "the picture"
import sys, xml.dom.minidom as dom
svg = dom.parse(sys.argv[1])
dots = [c for c in svg.getElementsByTagName("circle") if c.getAttribute("class") == "row"]
lines = svg.getElementsByTagName("polyline")
assert len(dots) == 4 * 2, len(dots)
assert all(90 <= float(d.getAttribute("cy")) <= 480 for d in dots)
assert len(lines) == 2 * 4, len(lines)
END

# sensitivities: a machine of flops alone has one number
simulate layout=dp=1 --cluster "$temp/compute" --sensitivity >"$temp/said"
grep -q '^bound     flops: 10 % better, and the step is 9.09 % shorter' "$temp/said" || fail "sensitivity: $(cat "$temp/said")"
[ "$(grep -c '^[a-z_]*  *[0-9]' "$temp/said")" = 2 ] || fail "more than flops matters: $(cat "$temp/said")"
cells "number better_pct worse_pct" layout=dp=2 --cluster "$temp/network" --sensitivity >"$temp/said"
[ "$(head -1 "$temp/said")" = rate_between,-9.091,11.111 ] || fail "sensitivity: $(cat "$temp/said")"

# jitter: a row has the quantiles of the single call; without noise there is none
one=$(simulate layout="dp=2 tp=2" --cluster h100-8 --jitter 0.1 --draws 50 -o csv | awk -F, 'NR == 2 { print $(NF - 1) "," $NF }')
[ "$(cells "step_p50_s step_p99_s" layout="dp=2 tp=2" --cluster h100-8 --jitter 0.1 --draws 50 --vary micro=1)" = "$one" ] || fail "jitter: a row and a call, $one"
read -r a b c < <(cells "step_s step_p50_s step_p99_s" layout="dp=2 tp=2" --cluster h100-8 --jitter 0.1 --vary micro=1 | tr , ' ')
awk "BEGIN { exit !($a < $b && $b < $c) }" || fail "jitter: $a $b $c"
simulate layout=dp=2 --cluster h100-8 --vary dp=2 -o csv | grep -q step_p50_s && fail "jitter without --jitter"

# slow ranks and networks of the machine are those of all rows
plain=$(single layout=dp=2 --cluster "$temp/compute" | cut -d, -f1)
same "a slow rank" "$(awk "BEGIN { print $(cells step_s layout=dp=2 --cluster "$temp/compute" --slow 1@1.5 --vary dp=2) / $plain }")" 1.5
for over in 4 40; do printf 'like: h100-8\nranks_per_host: 1\nlevel: 2 over %d\n' $over >"$temp/over$over"; done
awk "BEGIN { exit !($(cells step_s layout=dp=4 --cluster "$temp/over40" --vary dp=4) > $(cells step_s layout=dp=4 --cluster "$temp/over4" --vary dp=4)) }" ||
    fail "fewer uplinks are no slower"

refused() { # exit code, words of the report, arguments
    local rc=0 code=$1 words=$2
    shift 2
    simulate "$@" >"$temp/said" 2>&1 || rc=$?
    [ $rc = "$code" ] || fail "$*: exit code $rc, $code is needed: $(cat "$temp/said")"
    grep -q -- "$words" "$temp/said" || fail "$*: another report: $(cat "$temp/said")"
}
refused 64 'did you mean "flops_fp8"' --vary flops_fp9=2x
refused 64 "NAME=LIST is needed" --vary tp
refused 64 "a value is empty" --vary tp=1,,2
refused 64 "FROM..TO is needed" --vary tp=8..1
refused 64 "FROM..TO is needed" --vary nic=1..2x
refused 64 "a number is needed, or a factor" --vary flops=fast
refused 64 "factors are for numbers of a machine" --vary tp=2x
refused 64 "has tp twice" --vary tp=1 --vary tp=2
refused 64 "one by one" --vary layout=dp=2
refused 64 "more than 4096 rows" --vary flops=1..1e15,memory_rate=1..1e15,nic=1..1e15
refused 64 "more than 64 values" --vary flops=1..1e21
refused 64 "layout=auto has no words" layout=auto -n 2 --vary tp=2
refused 64 "strong or weak" --vary dp=1..2 --scaling big
refused 64 "says train.batch" --vary batch=1..2 --scaling weak
refused 64 "--svg is about the rows of --vary" --svg "$temp/x"
refused 64 "two tables" --vary dp=2 --sensitivity
refused 64 "not with --vary" --vary dp=2 --cluster here
refused 64 "not with --sensitivity" --sensitivity --trace "$temp/x"
refused 64 "lines are too many" --vary dp=1,nic=1..1e6 --svg "$temp/x"
refused 73 "cannot create the picture" --vary dp=1..2 --svg "$temp/no/x"
refused 78 "no row has a step.*has no 2x" --cluster h100-8 --vary incast_between=2x
refused 78 "no row has a step.*no 'pp=N' to vary" layout="mesh dp=2; split b over dp" --vary pp=2
refused 64 "about the steps of --jitter" --draws 5
refused 64 "a number from 1 to" --jitter 0.1 --draws 0
refused 64 "PROBABILITY@FACTOR" --jitter 0.1,0.1
refused 64 "RANK@FACTOR" --slow 3
refused 78 "rank 4 is not there" layout=dp=4 --slow 4@2
echo "vary: $rows rows are single calls ($refused refused), laws of flops, network, price and scaling hold"
