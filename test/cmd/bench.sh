#!/bin/bash
# bench.sh - skein bench coll: every collective and algorithm comes out right and in form.
#
# Times are not judged, only that they are numbers in order.  Wrong command lines have reports, a
# calibrated machine is one that every command can read.
# shellcheck disable=SC2015  # fail ends the script
set -eu
skein=$(realpath "${SKEIN:-build/release/skein}")
[ -x "$skein" ] || { echo "there is no $skein"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
export XDG_CONFIG_HOME=$work/config
points=0 reports=0

fail() {
    echo "bench: $*"
    exit 1
}

# Rows wanted, then the words of `skein bench coll`.
coll() {
    local rows=$1
    shift
    timeout 100 "$skein" bench coll --seconds 0.002 -o csv "$@" >out.csv 2>err || fail "$*: $(cat err)"
    [ "$(head -n 1 out.csv)" = "op,bytes,ranks,algorithm,us_median,us_p10,us_p90,algbw_gbs,busbw_gbs,predicted_us,wrong" ] ||
        fail "$*: columns: $(head -n 1 out.csv)"
    awk -F, -v rows="$rows" '
        NR > 1 && !(NF == 11 && $5 > 0 && $6 <= $5 && $5 <= $7 && $8 >= 0 && $11 == 0) {
            print "bad row: " $0
            bad = 1
        }
        END {
            if (rows && NR - 1 != rows) { print NR - 1 " rows, " rows " are needed"; bad = 1 }
            exit bad
        }' out.csv || fail "$*"
    points=$((points + $(wc -l <out.csv) - 1))
}

# Words that the report must have, then the words of the command.
report() {
    local rc=0 words=$1 word
    shift
    "$skein" bench coll "$@" >out 2>err || rc=$?
    [ $rc = 64 ] || fail "$*: exit code $rc, 64 is needed: $(cat err)"
    IFS='|' read -r -a list <<<"$words"
    for word in "${list[@]}"; do
        grep -qF -- "$word" err || fail "$*: the report lacks '$word': $(cat err)"
    done
    reports=$((reports + 1))
}

all=allreduce,reduce_scatter,allgather,broadcast,reduce,gather,scatter,alltoall,alltoallv,scan
[ -z "${SKEIN_LONG:-}" ] || coll 30 --op $all --sizes 4,1000,64Ki -n 2
coll 30 --op $all --sizes 4,1000,64Ki -n 3
coll 10 --op $all --sizes 1Mi -n 1
coll 7 --op bcast --sizes 4..16Ki -n 2
grep -q '^broadcast,16384,2,shm,' out.csv || fail "bcast: $(cat out.csv)"
coll 3 --sizes 4..16,1Mi -n 5
coll 10 --op $all --sizes 4Ki -n 3 --fresh
for n in ${SKEIN_LONG:+3} 4; do
    coll 0 --op $all --sizes 4,4000 --algorithm all -n "$n"
    for name in shm ring direct; do
        grep -q ",$n,$name," out.csv || fail "--algorithm all has no $name"
    done
done
coll 2 --sizes 64 --algorithm ring,direct -n 4
coll 3 --sizes 64 --op all-reduce --algorithm butterfly:2x2,sparse:2x2,butterfly -n 4
for name in butterfly:2x2 sparse:2x2 butterfly; do
    grep -q "^allreduce,64,4,$name," out.csv || fail "$name: $(cat out.csv)"
done
coll 1 --sizes 64 --op reduce-scatter -n 2
"$skein" coll ring --op all-reduce -n 3 >out || fail "skein coll --op all-reduce"
grep -q '^allreduce on 3 ranks: proved' out || fail "skein coll --op all-reduce: $(cat out)"

report "did you mean ring?|direct|shm" --algorithm rng
report "ring takes no degrees|butterfly" --algorithm ring:2x2 -n 4
report "cannot do allreduce on 4 ranks|those that can:" --algorithm butterfly:3x3 -n 4
report "cannot do broadcast|those that can:|shm" --algorithm ring --op broadcast
report "--op allreduc|did you mean allreduce?|alltoallv" --op allreduc
report '--sizes has "6"' --sizes 4,6
report '--sizes has "64..4"' --sizes 64..4
report '-n is "0"' -n 0
report '--seconds is "-1"' --seconds -1
report 'one word too many' machine.txt
for words in --fit --calibrate; do # before anything is measured
    report "$work is a directory|$work/machine.txt" --seconds 60 $words "$work"
done

# The choice beside the best of all that fit: on one host the heaps, and no best is slower than the choice.
"$skein" bench coll --choice --op allreduce,allgather --sizes 64,64Ki -n 2 --seconds 0.02 -o csv >out.csv 2>err ||
    fail "choice: $(cat err)"
[ "$(head -n 1 out.csv)" = "op,bytes,ranks,hosts,chosen,chosen_us,predicted_us,best,best_us,ratio,noise,fastest,fastest_us,pair_chosen_us,pair_best_us" ] ||
    fail "choice: $(head -n 1 out.csv)"
awk -F, 'NR > 1 && !($5 == "shm" && $6 >= $9 && $9 >= $13 && $13 > 0 && $10 >= 1 && $11 == 0 && $10 - $14 / $15 < 0.1 && $14 / $15 - $10 < 0.1) { exit 1 } END { exit NR != 5 }' out.csv ||
    fail "choice: $(cat out.csv)"
grep -q '^chosen / best: median [0-9.]*, worst [0-9.]*, within 5 % in [0-4] of 4, off by more than noise in [0-4]$' err || fail "choice: $(cat err)"
report '--choice times all algorithms that fit; leave out --algorithm' --choice --algorithm ring

# What is fitted is in the file, with its error.
"$skein" bench coll --fit fitted.txt --op allreduce --sizes 64,16Ki --algorithm direct,ring,halving_doubling -n 2 --seconds 0.001 -o csv >out.csv 2>err ||
    fail "fit: $(cat err)"
grep -q '^# .*links fitted to times by skein bench coll --fit, off by [0-9.]* % in the median' fitted.txt || fail "fit: $(cat fitted.txt)"
off=$(sed -n 's/^LogGP: .* off by \([0-9.]*\) % in the median.*/\1/p' err)
[ "$(awk -v off="$off" 'BEGIN { print (off > 50) }')" = "$(grep -c 'warning: LogGP is off' err)" ] || fail "fit: $(cat err)"

"$skein" bench coll --calibrate machine.txt --seconds 0.5 -o csv >out.csv 2>err || fail "calibrate: $(cat err)"
grep -q '^shm_tiny,' out.csv || fail "calibrate: $(cat out.csv)"
grep -q 'written to machine.txt' err || fail "calibrate: $(cat err)"
coll 2 --sizes 4,1Mi --cluster machine.txt
awk -F, 'NR > 1 && !($10 > 0) { exit 1 }' out.csv || fail "no prediction: $(cat out.csv)"
machine() { # words of the sentence, lines behind "like: cpu"
    local rc=0
    printf 'like: cpu\n%b' "$2" >bad.txt
    "$skein" bench coll --cluster bad.txt >out 2>err || rc=$?
    [ $rc = 78 ] || fail "a machine: exit code $rc: $(cat err)"
    grep -qF -- "$1" err || fail "a machine: $(cat err)"
    reports=$((reports + 1))
}
machine "bad.txt:2: 'like: h100-8' must be the first line" 'like: h100-8\n'
machine "cores is '2.5'; a whole number from 1" 'cores: 2.5\n'
machine "'far' is 1024 and 'cache' 1073741824" 'cache: 1Gi\nfar: 1Ki\n'
[ ! -e config ] || fail "calibrating to a file wrote elsewhere too"
"$skein" bench coll --calibrate --seconds 0.5 >out 2>err || fail "calibrate: $(cat err)"
[ -s config/skein/machine.txt ] || fail "calibrate wrote nothing: $(cat out)"
coll 1 --sizes 4

# Where the time of a step goes: shares of ops and what is between them are the whole.
for words in --ops --shapes "--ops -n 2"; do
    # shellcheck disable=SC2086
    "$skein" bench step model=demo $words --steps 2 -o csv >out.csv 2>err || fail "$words: $(cat err)"
    [ "$(head -n 1 out.csv)" = "layout,op,kernel,launches,ms,share_pct,us_each,tflops,gb_s" ] || fail "$words: $(cat out.csv)"
    grep -q '^dp=[12],contract' out.csv || fail "$words: $(cat out.csv)"
    awk -F, '!/not traced/ && NR > 1 { sum += $6 } END { exit !(sum > 98 && sum < 102) }' out.csv || fail "$words: $(cat out.csv)"
done

# Bytes are counted where they are moved: rows of zeros that `sparse` leaves out do not count, and what other
# ways send twice does.  The closed form is that of the plan.  (Five samples for four ranks: a table goes as a whole.)
sent() { # words of `skein bench step`
    "$skein" bench step model=tiny model.vocab_size=4000 model.tie_word_embeddings=false train.batch=5 train.seq=8 \
        --layout dp=4 --steps 1 "$@" -o csv 2>err | awk -F, 'NR == 2 { print $NF }'
}
planned() { # rows of either table, which are as many
    "$skein" plan model=tiny model.vocab_size="$1" model.tie_word_embeddings=false train.batch=5 train.seq=8 layout=dp=4 -o csv |
        awk -F, 'NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i } NR > 1 { sum += $at["ranks"] * $at["sent_bytes"] } END { print sum }'
}
plan=$(planned 4000) half=$(planned 2000)
direct=$(sent comm.algorithm=direct) sparse=$(sent comm.algorithm=sparse) twice=$(sent comm.algorithm=recursive_doubling)
heaps=$(sent)
# Half of the rows of both tables are as many bytes as all of the words' table, whose rows are zeros but for 40 samples at most.
awk -v plan="$plan" -v half="$half" -v direct="$direct" -v sparse="$sparse" -v twice="$twice" -v heaps="$heaps" 'BEGIN {
    left = (plan - sparse) / (plan - half)
    exit !(direct == plan && heaps >= plan && heaps < 1.001 * plan && left > 0.75 && left < 1 && twice > 1.3 * plan)
}' || fail "bytes: plan $plan, heaps $heaps, direct $direct, sparse $sparse, recursive_doubling $twice: $(cat err)"

# Replicas: tokens of all of them, and bytes of whole intervals, as planned; what is not timed is told.
tiny=(model=tiny train.seq=32 train.batch=8 train.threads=1)
"$skein" bench step "${tiny[@]}" --layout dp=4 --layout "dp=4 sync=local:4" --layout "dp=4 sync=local:255" --steps 2 -o csv >out.csv 2>err ||
    fail "replicas: $(cat err)"
"$skein" plan "${tiny[@]}" layout="dp=4 sync=local:4" -o csv >plan.csv
awk -F, 'FILENAME == "plan.csv" { if (FNR == 1) for (i = 1; i <= NF; i++) at[$i] = i; else plan += $at["ranks"] * $at["sent_bytes"]; next }
    FNR > 1 && !($3 * $4 > 255900 && $3 * $4 < 256100 && $8 < 0.01) { exit bad = 1 }
    /local:4,/ && $NF != plan { exit bad = 1 }
    END { exit bad || !plan }' plan.csv out.csv || fail "replicas: $(cat out.csv plan.csv)"
grep -q 'local:255: steps are alike again after 255, and 2 were timed' err || fail "replicas: $(cat err)"
"$skein" bench step "${tiny[@]}" --layout "dp=2 sync=local:4" --ops --steps 2 -o csv >out.csv 2>err || fail "replicas: $(cat err)"
grep -q '"\?(start allreduce)"\?,,0.25,' out.csv || fail "replicas, ops: $(cat out.csv)"
"$skein" bench step "${tiny[@]}" optim.name=onebit-adam --layout dp=2 --steps 2 -o csv >out.csv 2>err || fail "onebit-adam: $(cat err)"
grep -q 'freeze_step is 100000 and steps 4: every step sends gradients' err || fail "onebit-adam: $(cat err)"
kinds() { # what is said of the kinds of steps that were timed, or "", then words of `skein bench step`
    local said=$1
    shift
    "$skein" bench step "${tiny[@]}" --layout dp=2 --steps 8 -o csv "$@" >out.csv 2>err || fail "$*: $(cat err)"
    if [ -n "$said" ]; then grep -qF "of steps 3 to 10, which were timed, $said" err || fail "$*: $(cat err)"
    else ! grep -q 'which were timed' err || fail "$*: $(cat err)"; fi
}
kinds "gradients are sent in 3, momentum in 5, and 0 are local; in the long run these are 0, 100 and 0 % of all" optim.name=onebit-adam optim.freeze_step=5
kinds "" optim.name=onebit-adam optim.freeze_step=2
kinds "" optim.name=adamw

# A pinned list is planned and simulated with the bytes that are counted, also where members send unlike amounts, or more than the least.
of_all() { awk -F, 'NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; next } { n += $at["ranks"] * $at["sent_bytes"] } END { print n }'; }
lists=0
for n in 3 4; do
    for pin in ring butterfly butterfly:$n circulant direct binomial rabenseifner binary_blocks double_tree hierarchical torus recursive_doubling \
        halving_doubling "all-gather: bruck" "all-gather: circulant" "reduce-scatter: pairwise"; do
        case $n$pin in 3recursive* | 3halving*) continue ;; esac
        layout=dp=$n
        case $pin in all-gather* | reduce-scatter*) layout="dp=$n zero=3" ;; esac
        words=(model=tiny train.seq=32 train.batch=12 train.threads=1 layout="$layout" comm.algorithm="$pin")
        plan=$("$skein" plan "${words[@]}" -o csv 2>err | of_all)
        simulated=$("$skein" simulate "${words[@]}" --cluster cpu -o csv 2>err | grep -E '^(class|all),' | sed 's/^all,[0-9]*/all,1/' | of_all)
        counted=$("$skein" bench step "${words[@]}" --steps 2 -o csv 2>err | awk -F, 'NR == 2 { print $NF }')
        [ "$simulated" = "$counted" ] && [ $((plan - counted)) -le $n ] && [ $((counted - plan)) -le $n ] ||
            fail "$layout by $pin: planned $plan, simulated $simulated, counted $counted: $(cat err)"
        lists=$((lists + 1))
    done
done

# Each process of a launcher would do all of it.
for words in "bench step model=tiny" "bench coll --calibrate no" "simulate model=tiny --cluster here"; do
    rc=0
    # shellcheck disable=SC2086  # words
    OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_LOCAL_RANK=0 OMPI_COMM_WORLD_LOCAL_SIZE=2 "$skein" $words >out 2>err || rc=$?
    [ $rc = 64 ] && grep -q 'openmpi started 2 ranks; skein' err || fail "$words, started twice: $rc, $(cat out err)"
    reports=$((reports + 1))
done
[ ! -e no ] || fail "calibrated under a launcher"

echo "bench: $points points, 0 wrong, $lists lists as planned, $reports reports, 2 calibrated"
