#!/bin/bash
# bucket.sh - comm.bucket: a gradient joins the bucket that is open, and a bucket is reduced as soon
# as it has so many bytes.
#
# With buckets of one byte the listing has one call for each gradient, in the order in which they
# are complete.  These sizes say which calls any other size of bucket gives; explain must list
# them, simulate must price them, and a training has the same losses with all of them.
set -eu
cd "$(dirname "$0")/../.."
skein=$(realpath "${SKEIN:-build/release/skein}")
temp=$(mktemp -d)
trap 'rm -rf "$temp"' EXIT
cd "$temp"
cases=0
fail() { echo "$*" && exit 1; }

calls() { # layout, bytes: a line for each call of gradients, the elements
    "$skein" explain model=tiny layout="$1" comm.bucket="$2" |
        sed -nE 's/.*start +#.* over dp: grads from .*, ([0-9]+) x f32.*/\1/p'
}

predicted() { # bytes, of the calls in the file one
    awk -v bucket="$1" '{ sum += $1 } 4 * sum >= bucket { print sum; sum = 0 } END { if (sum) print sum }' one
}

for layout in dp=2 "dp=2 zero=1" "dp=2 micro=2"; do
    calls "$layout" 1 >one
    [ "$(wc -l <one)" = 28 ] || fail "$layout: $(wc -l <one) calls of one gradient each, 28 are needed"
    for bytes in 100 4000 32768 50000 100000 8388608; do
        cases=$((cases + 1))
        calls "$layout" $bytes >many
        predicted $bytes >want
        diff want many >/dev/null || fail "$layout, $bytes bytes: calls of $(tr '\n' ' ' <many)elements, and not of $(tr '\n' ' ' <want)"
    done
done
[ "$(calls dp=2 32KiB)" = "$(calls dp=2 32768)" ] || fail "32KiB is not 32768"
[ "$(wc -l <many)" = 1 ] || fail "8 MiB are more than the model has, and there are $(wc -l <many) calls"

step_s() { "$skein" simulate --cluster cpu model=tiny layout=dp=2 comm.bucket="$1" -o csv 2>said | sed -n 2p | cut -d, -f5; }
awk -v small="$(step_s 1)" -v large="$(step_s 8MiB)" 'BEGIN { exit !(small > 0 && large > 0 && small != large) }' ||
    fail "simulate has one price for 28 calls and for one: $(step_s 1) and $(step_s 8MiB)"

for bytes in 1 25MiB; do
    "$skein" train model=tiny layout=dp=2 -n 2 train.steps=3 train.batch=4 run="run$bytes" comm.bucket=$bytes >said 2>&1 || fail "$(cat said)"
    sed -nE 's/.*"loss":([^,]*),.*/\1/p' "run$bytes/metrics.jsonl" >"losses$bytes"
done
[ -s losses1 ] || fail "no losses: $(head -n 2 run1/metrics.jsonl)"
diff losses1 losses25MiB || fail "losses depend on comm.bucket"
grep -q 26214400 run25MiB/config.yaml || fail "config.yaml has no comm.bucket"

for wrong in 0 -1 5x ""; do
    code=0
    "$skein" plan model=tiny layout=dp=2 comm.bucket="$wrong" >said 2>&1 || code=$?
    [ $code = 64 ] || fail "comm.bucket=$wrong: exit code $code: $(cat said)"
    grep -q "comm.bucket" said || fail "comm.bucket=$wrong: $(cat said)"
done
echo "buckets: $cases cases"
