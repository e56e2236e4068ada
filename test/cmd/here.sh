#!/bin/bash
# here.sh - simulate --cluster here beside a run of the same job: of every family of layouts the
# bytes that were predicted are those that were counted, the work was measured, not priced, and MFU is
# over the same peak.  Seven families, with SKEIN_LONG eighteen.
#
# Times are not judged: other tests run beside this one (bench/families.sh does it).
set -eu
skein=$(realpath "${SKEIN:-build/release/skein}")
[ -x "$skein" ] || { echo "there is no $skein"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
export XDG_CONFIG_HOME=$work/config XDG_CACHE_HOME=$work/cache
families=0

fail() {
    echo "here: $*"
    exit 1
}

# Model, layout.
family() {
    local words=(model="$1" train.batch=8 train.seq=16) ran said
    timeout 100 "$skein" bench step "${words[@]}" --layout "$2" --steps 1 -o csv >ran.csv 2>err ||
        fail "$2: $(cat err)"
    timeout 100 "$skein" simulate "${words[@]}" layout="$2" --cluster here >said 2>err ||
        fail "$2: $(cat err)"
    ran=$(awk -F, 'NR == 2 { print $NF }' ran.csv)
    said=$(awk '$1 == "all" { print $12 }' said)
    if [ "$ran" -le 0 ] || [ "$ran" != "$said" ]; then
        fail "$2: $ran bytes were counted, $said predicted"
    fi
    awk -v ran="$(awk -F, 'NR == 2 { print $3 / $5 }' ran.csv)" '$1 == "all" { whole = $14 / $15 }
        END { exit !(whole > 0 && whole / ran < 1.002 && ran / whole < 1.002) }' said ||
        fail "$2: MFU over two peaks: $(cat ran.csv said)"
    grep -Eq '^work +measured: ([1-9][0-9]*) of \1 programs?' said || fail "$2: not measured: $(cat said)"
    families=$((families + 1))
}

timeout 100 "$skein" bench coll --calibrate --seconds 0.2 >out 2>&1 || fail "$(cat out)"
layouts=("tp=2 sp" "pp=2 micro=4 schedule=1f1b" "dp=4 zero=3" "cp=3 by=exchange"
    "pp=2 dp=2 tp=2 zero=1 micro=2")
if [ -n "${SKEIN_LONG:-}" ]; then
    layouts+=(dp=4 "cp=2 by=ring" tp=4 "pp=2 micro=4 schedule=gpipe" "pp=2 dp=2 micro=4 schedule=zb-h1" "dp=3 zero=1" "dp=4 zero=2"
        "dp=2 tp=2 replica" "cp=2 by=exchange" "cp=2 by=gather" "dp=2 cp=2 by=ring zero=3")
fi
for layout in "${layouts[@]}"; do family tiny "$layout"; done
family switch-tiny ep=2
family mixtral-tiny "dp=2 ep=2"

# What is too long to try is priced, and said so.
timeout 100 "$skein" simulate model=gpt2-xl train.batch=64 train.seq=1024 layout=dp=2 \
    --cluster here >said 2>err || fail "gpt2-xl: $(cat err)"
grep -q 'priced, not measured: 1 of 1 programs' said || fail "gpt2-xl: $(head -n 4 said)"

echo "$families families: bytes counted are those predicted, work measured, MFU over one peak; a large one is priced"
