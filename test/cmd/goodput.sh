#!/bin/bash
# goodput.sh - skein goodput: the bytes of its checkpoints are those that train writes, its numbers follow from each other and from
# the published table, a scheduler can read its layouts, and what cannot be is refused by its name.
# shellcheck source=test/lib/runs.sh
. "$(dirname "$0")/../lib/runs.sh"
subcommand=goodput
job=(model=tiny data.train=text train.batch=8 train.seq=32 train.steps=2 sample.every=0 val.every=0 log.every=0)

goodput() { # words: the table is in table
    timeout 60 "$skein" goodput "$@" -o csv >table 2>said || { cat said; fail "goodput $*: exit code $?"; }
}

cell() { # column, row (1): of the table
    awk -F, -v name="$1" -v row="${2-1}" 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == name) at = i } NR == row + 1 { print $at }' table
}

holds() { # condition of awk on numbers a b c, those, what it is
    awk -v a="$2" -v b="${3-0}" -v c="${4-0}" "BEGIN { exit !($1) }" || { cat table; fail "not so: $1, with $2 ${3-} ${4-}"; }
    checks=$((checks + 1))
}

# ---- the bytes of tensors in a checkpoint, in all and of the rank with the most; a header says its own length
written() { # checkpoint directory
    for f in "$1"/*.safetensors; do
        rank=${f##*-}
        echo "${rank%%.*} $(($(stat -c %s "$f") - 8 - $(od -An -t u8 -N 8 "$f")))"
    done | awk '{ all += $2; of[$1] += $2 } END { for (r in of) if (of[r] > most) most = of[r]; printf "%d %d\n", all, most }'
}
printf 'like: cpu\nfile_rate: 1000\n' >slow # bytes per second of each rank: seconds say bytes
same_bytes() { # words
    rm -rf run
    train run "$@" ckpt.every=1
    goodput "${job[@]}" "$@" --mtbf 1000 --cluster slow
    read -r all most < <(written run/ckpt/step-0000000002)
    [ "$(cell checkpoint_bytes)" = "$all" ] || fail "$*: $(cell checkpoint_bytes) bytes planned, $all written"
    holds 'b - 1000 * a < 1e-5 * b && 1000 * a - b < 1e-5 * b' "$(cell checkpoint_s)" "$most"
}
same_bytes layout=dp=1
same_bytes layout="dp=3 zero=3" train.dtype=bf16
same_bytes layout="dp=2 tp=2 pp=2 zero=1 micro=2" optim.ema=0.99 train.dtype=bf16
same_bytes layout="dp=4 sync=diloco:2"
same_bytes layout="dp=2 grads=topk:0.1 feedback" optim.name=adam8bit
same_bytes layout=dp=2 optim.name=shampoo

# ---- 16,384 GPUs that fail every 1.8 hours, with a stall of 1 s, 10 s and 60 s: 97.2 % at 114 s, to first order
clock=(--cluster slow --checkpoint 1 --detect 10 --restart 60)
timeout 60 "$skein" goodput "${job[@]}" layout=dp=1 --mtbf 1.8 "${clock[@]}" >said
said "^interval 113 s: ckpt.every=[0-9]+ · to first order 114 s, goodput 97.16 %\$"
said '^failures one in 108 min · of a GPU in 108 min · noticed in 10 s · restart 60 s · a failed host is replaced at once$'
goodput "${job[@]}" layout=dp=1 --mtbf 1.8 "${clock[@]}"
holds 'a > 0.971 && a < 0.973' "$(cell goodput)"
holds 'a * b < 114.1 && a * b > 113' "$(cell every)" "$(awk -v i="$(cell interval_s)" -v e="$(cell every)" 'BEGIN { print i / e }')"
cp table before
goodput "${job[@]}" layout=dp=1 --mtbf 1.8 "${clock[@]}"
cmp -s table before || fail "another table the second time"
# A checkpoint after every step and none: neither is better, as one that the user says is not.
for every in 1 1000000000; do
    timeout 60 "$skein" goodput "${job[@]}" layout=dp=1 --mtbf 1.8 "${clock[@]}" ckpt.every=$every >said
    said "^as it is goodput 0.[0-9]+ % with ckpt.every=$every\$"
done

# ---- a failure is rarer with fewer GPUs; hosts count too
printf 'like: h100-8\nranks_per_host: 2\nmtbf: 100\nprice: 3\nwatts: 500\nidle_watts: 100\n' >ours
goodput "${job[@]}" layout=dp=4 --cluster ours
holds 'a == 25 * 3600' "$(cell mtbf_s)"
goodput "${job[@]}" layout=dp=4 --cluster ours --host-mtbf 50
holds 'a == 3600 / (4 / 100 + 2 / 50)' "$(cell mtbf_s)"
goodput "${job[@]}" layout=dp=4 --cluster h100-8
holds 'a > 45600000 && a < 45620000' "$(cell mtbf_s)" # 54 days of 16,384 GPUs, 419 failures, on 4

# ---- dollars and joules are those of the time: all hosts are paid, those that do not train take less power
goodput "${job[@]}" layout=dp=4 --cluster ours --repair 10 --spares 3 --elastic no
holds 'c / (3 * (4 + 3 * 2) / 3600 * 1e6 / a) - 1 < 1e-3' "$(cell tok_s)" 0 "$(cell usd_mtok)"
holds 'c > (4 * 500 + 5 * 100) * 1e6 / a && c < (4 * 500 + 6.01 * 100) * 1e6 / a * 1.001' "$(cell tok_s)" 0 "$(cell joule_mtok)"
[ "$(wc -l <table)" = 2 ] || fail "more than one row"

# ---- spares, elastic restarts, preemptible hosts
goodput "${job[@]}" layout=dp=16 --cluster ours --repair 10 --preemptible-price 1 --preemptible-mtbf 30
[ "$(cut -d, -f4,5 table | tr '\n' ' ')" = "offer,elastic on-demand,no on-demand,yes preemptible,no preemptible,yes " ] || fail "rows: $(cat table)"
holds 'a < b && b < 1' "$(cell goodput 1)" "$(cell goodput 2)"
holds 'a < b && b < c' "$(cell goodput 3)" "$(cell goodput 4)" "$(cell goodput 2)"
holds 'a > b' "$(cell every 1)" "$(cell every 3)"
rigid=$(cell goodput 1)
goodput "${job[@]}" layout=dp=16 --cluster ours --repair 10 --spares 6
holds 'a > b && c - a < 1e-2' "$(cell goodput 1)" "$rigid" "$(cell goodput 2)"

# ---- a table for a scheduler: rows follow from each other, and a layout of a row has its number of ranks
goodput "${job[@]}" layout="dp=2 tp=2 zero=1" --cluster ours --gpus 2..16 --jobs 4
[ "$(cut -d, -f1 table | tr '\n' ' ')" = "gpus 2 4 8 16 " ] || fail "rows: $(cat table)"
best=$(awk -F, 'NR > 1 && $14 > most { most = $14 } END { print most }' table)
for row in 1 2 3 4; do
    holds 'b / a / 4 / c < 1.001 && b / a / 4 / c > 0.999' "$(cell tok_s $row)" "$best" "$(cell rho $row)"
    "$skein" plan "${job[@]}" layout="$(cell layout $row)" -n "$(cell gpus $row)" -o csv >planned 2>&1 || fail "row $row: $(cell layout $row)"
done
holds '2 * c / (b - a) > 0.999 && 2 * c / (b - a) < 1.001' "$(cell tok_s 1)" "$(cell tok_s 2)" "$(cell gain_tok_s 2)"
step=$(cell step_s 2)
goodput "${job[@]}" layout="dp=2 tp=2 zero=1" --cluster ours
[ "$(cell step_s)" = "$step" ] || fail "another step on 4 GPUs: $(cell step_s), $step"
"$skein" simulate "${job[@]}" layout="dp=2 tp=2 zero=1" --cluster ours -o csv 2>/dev/null >simulated
holds 'a / b < 1.00001 && a / b > 0.99999' "$step" "$(awk -F, 'NR == 2 { print $5 }' simulated)"
goodput "${job[@]}" layout="tp=2" --cluster ours --gpus 2,6,10
[ "$(cut -d, -f1 table | tr '\n' ' ')" = "gpus 2 6 10 " ] || fail "rows: $(cat table)"
sed 's/ranks_per_host: 2/ranks_per_host: 8/' ours >one # backup workers are on one host
goodput "${job[@]}" layout="dp=4 sync=backup:2" --cluster one --gpus 1..8 # not on 2
[ "$(cut -d, -f1 table | tr '\n' ' ')" = "gpus 1 4 8 " ] || fail "rows: $(cat table)"
grep -q '^skein: note: not on 2 GPUs: layout: sync=backup:2 drops' said || fail "note: $(cat said)"

# ---- forms
"$skein" goodput "${job[@]}" layout=dp=2 --cluster ours -o json 2>/dev/null | grep -q '"gpus": 2, "layout": "mesh dp=2' || fail "json"
"$skein" goodput "${job[@]}" layout=dp=2 --cluster ours -o md 2>/dev/null | head -n 1 | grep -q '^| gpus | layout |' || fail "md"

# ---- it fails more often than it can save
timeout 60 "$skein" goodput "${job[@]}" --mtbf 1e-5 --cluster slow --checkpoint 60 >said
said '^warning 2 steps do not end within 100000 failures$'

# ---- refused
refused 64 'nothing says how often b200-8 fails: --mtbf HOURS' "${job[@]}" --cluster b200-8
for wrong in 0 -1 nan inf x; do refused 64 "--mtbf is \"$wrong\"; a number above 0 is needed" "${job[@]}" --mtbf $wrong; done
refused 64 '--detect is "-1"; a number of 0 or more is needed' "${job[@]}" --mtbf 9 --detect -1
refused 64 '--spares is "1.5"; a whole number from 0' "${job[@]}" --mtbf 9 --repair 1 --spares 1.5
refused 64 'without --repair HOURS a failed host is replaced at once, and --spares' "${job[@]}" --mtbf 9 --spares 1
refused 64 'without --repair HOURS a failed host is replaced at once, and --elastic' "${job[@]}" --mtbf 9 --elastic yes
refused 64 '--elastic is "maybe"; yes or no' "${job[@]}" --mtbf 9 --elastic maybe
refused 64 '--preemptible-mtbf is missing' "${job[@]}" --mtbf 9 --preemptible-price 1
refused 64 '--idle-watts without --watts' "${job[@]}" --mtbf 9 --idle-watts 1
refused 64 '--jobs is for rho' "${job[@]}" --mtbf 9 --jobs 2
refused 64 '--write-rate has nothing to do' "${job[@]}" --mtbf 9 --write-rate 1e9 --checkpoint 1 --restart 1
refused 64 'machine unit counts blocks' "${job[@]}" --mtbf 9 --cluster unit
refused 64 'unknown option "mtfb" - did you mean "mtbf"?' "${job[@]}" --mtfb 9
for wrong in 0..4 4..1 4,4 1,x 1..2000000; do refused 64 "--gpus is \"$wrong\"; a range is needed" "${job[@]}" --mtbf 9 --gpus $wrong; done
refused 64 '--gpus has 5; a replica of the layout takes 2, so multiples of that are needed, as 6' "${job[@]}" layout="dp=2 tp=2" --mtbf 9 --gpus 2,5
refused 64 'a replica of the layout takes 2, and no multiple' "${job[@]}" layout=tp=2 --mtbf 9 --gpus 1..1
refused 78 "no axis of 'mesh y=2; split h f v over y' splits the batch alone" "${job[@]}" layout="mesh y=2; split h f v over y" --mtbf 9 --gpus 2..4
refused 78 "add 'feedback'" "${job[@]}" layout="dp=2 grads=topk:0.01" --mtbf 9 --gpus 2..4
printf 'like: h100-8\nmtbf: never\n' >wrong
refused 78 "wrong:2: mtbf is 'never'; a number from 1e-06 to 1e+30, or 0 is needed" "${job[@]}" --cluster wrong

echo "goodput: $checks checks"
