#!/bin/bash
# budget.sh - a run with a budget stays within it, also with two programs in one heap.
#
# train.dropless has a second program with room for all choices: both must have one layout.  Where
# train.relayout changes layouts two of them meet: what is more than the budget is told.
set -eu
cd "$(dirname "$0")/../.."
skein=$(realpath "${SKEIN:-build/release/skein}")
[ -x "$skein" ] || { echo "there is no $skein"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp example/one_file.c "$work/text"
cd "$work"
export XDG_CONFIG_HOME=$work # no machine but the preset
runs=0

train() { # exit code, budget in KB, then words
    local needed=$1 budget=$2 rc=0
    shift 2
    rm -rf run
    timeout 60 "$skein" train data.train=text data.tokenizer=byte train.batch=8 train.seq=24 \
        train.threads=1 train.steps=4 optim.warmup=2 log.every=0 val.every=0 sample.every=0 run=run \
        budget="${budget}KB" "$@" >out 2>&1 || rc=$?
    [ $rc = "$needed" ] || { cat out; echo "budget=${budget}KB $*: exit code $rc, $needed is needed"; exit 1; }
    runs=$((runs + 1))
    [ $rc = 0 ] || return 0
    awk -F, -v most=$((budget * 1000)) '$2 == "mapped" { n++; if ($4 > most) { print $4, "bytes are mapped"; n = -9 } }
        END { exit n < 1 }' run/memory.csv || { echo "budget=${budget}KB $*"; exit 1; }
    sed -nE 's/.*"step":4,"loss":([-+0-9.e]+).*/\1/p' run/metrics.jsonl >>losses
}

for budget in 1600 1800 1900 2400; do
    train 0 $budget model=switch-tiny layout=dp=2 train.dropless=1 model.capacity_factor=0.5
done
awk 'NR == 1 { first = $1 } { d = $1 - first; if (d > 1e-5 || d < -1e-5) exit bad = 1 }
    END { exit bad || NR != 4 }' losses || { cat losses; echo "other losses"; exit 1; }
train 78 1000 model=switch-tiny layout=dp=2 train.dropless=1 model.capacity_factor=0.5
grep -q 'budget is .* and the smallest of' out || { cat out; exit 1; }
train 0 700 model=tiny layout=dp=2
train 78 200 model=tiny layout="dp=2 zero=2 recompute=none offload=none" # not taken back
grep -q 'the smallest of 6 options needs .* (dp 2 · zero 3 · slices 16)' out || { cat out; exit 1; }
for words in "train.dropless=1 model.capacity_factor=0.5 model=switch-tiny layout=dp=2" "model=tiny layout=dp=2;gist=20" \
    "model=tiny layout=dp=2 train.relayout=2:pp=2;micro=2"; do # such runs cannot offload, and were not asked to
    IFS=' ' read -r -a list <<<"$words"
    train 78 500 "${list[@]//;/ }"
    grep -q 'budget is .* and the smallest of' out || { cat out; exit 1; }
done
change="2: pp=2 micro=4, 3: dp=2 zero=3"
train 0 1200 model=tiny layout=dp=2 train.relayout="$change"
train 78 800 model=tiny layout=dp=2 train.relayout="$change"
grep -q 'budget is .* where the layout changes' out || { cat out; exit 1; }
echo "budget: $runs runs, none maps more"
