#!/bin/bash
# doctor.sh - skein doctor says what is there, and how fast a core is, twice the same; it stores the
# peak, over which all runs of the host take MFU; which cuDNN is used, hints at a newer one, and takes
# none by itself.
set -eu
cd "$(dirname "$0")/../.."
skein=$(realpath "${SKEIN:-build/release/skein}")
temp=$(mktemp -d)
trap 'rm -rf "$temp"' EXIT
export XDG_CACHE_HOME=$temp/cache
fail() { echo "$*" && exit 1; }

# Data are there if they can be opened, not if their name is known.
fashion="not found"
[ ! -e /usr/share/datasets/fashion-mnist/train-images-idx3-ubyte.gz ] || fashion=there
said=$(PATH=$temp "$skein" doctor)
grep -q "^data fashion-mnist *$fashion " <<<"$said" || fail "fashion-mnist is $fashion: $said"
grep -q '^data kjv *not found .*apt-get install bible-kjv' <<<"$said" || fail "kjv without bible: $said"

# One core does what one core can, and the same when asked again: three asks, of which two within
# 5 %, since a machine may have something else to do.  All cores have no more than so many cores.
rate() { sed -nE "s/^peak of $2 *([0-9.]+) GFLOP.*/\1/p" <<<"$1"; }
now() { sed -nE "s/^peak of $2 .* measured now ([0-9.]+);.*/\1/p" <<<"$1"; }
one=() all=() kept=()
rm -rf "$temp/cache"
for i in 1 2 3; do
    said=$(OPENBLAS_NUM_THREADS=8 "$skein" doctor)
    grep -qE "^peak of a core .*stored peak, best of $i measurement" <<<"$said" || fail "ask $i: $said"
    one+=("$(now "$said" "a core")") kept+=("$(rate "$said" "a core")") all+=("$(rate "$said" "[0-9]+ cores")")
done
cores=$(sed -nE 's/^cores *([0-9]+) .*/\1/p' <<<"$said")
awk -v a="${kept[0]}" -v b="${kept[1]}" -v c="${kept[2]}" 'function near(x, y) { return x > 0 && x / y < 1.05 && y / x < 1.05 }
    BEGIN { exit !(near(a, b) || near(b, c) || near(a, c)) }' || fail "peaks of a core: ${kept[*]}"
[ "$cores" = 1 ] || awk -v n="$cores" -v one="${one[*]}" -v all="${all[2]}" '
    BEGIN { for (i = split(one, v, " "); i; i--) if (v[i] > most) most = v[i]
            exit !(all > 0.2 * n * most && all < 1.1 * n * most) }' || fail "peak of $cores cores: ${all[*]}, of one ${one[*]}"
# What is stored is the highest of them.
awk -v kept="${kept[2]}" -v one="${one[*]}" 'BEGIN {
    for (i = split(one, v, " "); i; i--) if (v[i] > most) most = v[i]
    exit kept != most }' || fail "stored ${kept[2]}, measured ${one[*]}"

# MFU of every run and bench is over it: tokens per second of a whole MFU are one number.
printf 'In the beginning God created the heaven and the earth. %.0s' {1..40} >"$temp/text"
whole() { # cache, run: the first step's
    XDG_CACHE_HOME=$1 "$skein" train model=tiny data.train="$temp/text" train.seq=16 train.batch=4 train.steps=2 train.threads=1 val.every=0 \
        sample.every=0 run="$temp/$2" >"$temp/said" 2>&1 || fail "run $2: $(cat "$temp/said")"
    sed -nE '1s/.*"tok_s":([^,]*),"mfu":([^,]*),.*/\1 \2/p' "$temp/$2/metrics.jsonl" | awk '{ print $1 / $2 }'
}
equal() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a > 0 && a / b < 1.01 && b / a < 1.01) }'; } # a few digits are printed
file=$(ls "$temp"/cache/skein/peak-*.txt)
cp "$file" "$temp/kept"
first=$(whole "$temp/cache" a)
equal "$first" "$(whole "$temp/cache" b)" || fail "two runs, two peaks"
cmp -s "$file" "$temp/kept" || fail "a run changed what is stored: $(cat "$file")"
bench=$("$skein" bench step model=tiny train.seq=16 train.batch=4 train.threads=1 layout=dp=1 -o csv | awk -F, 'NR == 2 { print $3 / $5 }')
equal "$first" "$bench" || fail "a run's whole MFU is $first tokens per second, a bench's $bench"

# A file that is not right is told and replaced; where nothing can be stored a run says so once.
sed -i 's/^1 [0-9.]*/1 9.9/' "$file"
whole "$temp/cache" c >/dev/null
[ "$(grep -c "^warning .*$file has a wrong sum: the peak is measured again" "$temp/said")" = 1 ] || fail "a bad file: $(cat "$temp/said")"
whole "$temp/cache" d >/dev/null
! grep 'peak' "$temp/said" || fail "the bad file is still there: $(cat "$file")"
if [ -n "${SKEIN_LONG:-}" ]; then
    printf 'skein peak 1, elsewhere, Z80, 1 cores, none\n1 1e+11 3\nsum 00000000\n' >"$file"
    said=$("$skein" doctor)
    grep -q '^peak of a core .*another host or BLAS (skein peak 1, elsewhere.*measured again' <<<"$said" || fail "a foreign file: $said"
fi
touch "$temp/flat"
whole "$temp/flat" e >/dev/null
[ "$(grep -c '^warning .*cannot be stored' "$temp/said")" = 1 ] || fail "no place: $(cat "$temp/said")"
said=$(XDG_CACHE_HOME=$temp/flat "$skein" doctor)
[ "$(grep -c '^peak of .*measured now.*cannot be stored' <<<"$said")" -ge 1 ] || fail "no place: $said"
! grep 'stored peak' <<<"$said" || fail "nothing is stored: $said"

grep -q '^cuDNN' <<<"$said" || { echo "doctor: data, peak of a core ${one[*]} GFLOP/s; built without CUDA"; exit 0; }

# A library that has a version and nothing else, by a part of it as cuDNN has parts: found by name, so
# that of two cuDNN in one process the second would have the parts of the first.
make() { # folder, version
    local to=$temp/$1/lib/python3.99/site-packages/nvidia/cudnn/lib
    mkdir -p "$to"
    echo "unsigned long fake_version(void) { return $2; }" >"$temp/part.c"
    echo "unsigned long fake_version(void); unsigned long cudnnGetVersion(void) { return fake_version(); }" >"$temp/v.c"
    ${CC:-cc} -shared -fPIC -Wl,-soname,libcudnn_graph.so.9 -o "$to/libcudnn_graph.so.9" "$temp/part.c"
    # shellcheck disable=SC2016  # the loader's word
    ${CC:-cc} -shared -fPIC -Wl,-soname,libcudnn.so.9 '-Wl,-rpath,$ORIGIN' -o "$to/libcudnn.so.9" "$temp/v.c" \
        "$to/libcudnn_graph.so.9"
}
command -v "${CC:-cc}" >/dev/null || { echo "no C compiler"; exit 77; }
make new 99900
make newer 99901
make old 90000
file=lib/python3.99/site-packages/nvidia/cudnn/lib/libcudnn.so.9
doctor() { env HOME="$temp/nobody" "$@" "$skein" doctor; }
before=$(doctor | grep '^cuDNN')

for variable in VIRTUAL_ENV CONDA_PREFIX; do
    said=$(doctor "$variable=$temp/new")
    grep -q "^newer cuDNN *9.99.0 .*SKEIN_CUDNN=$temp/new/$file" <<<"$said" || fail "$variable: $said"
    [ "$(grep '^cuDNN' <<<"$said" | tr -s ' ')" = "$(tr -s ' ' <<<"$before")" ] || fail "$variable changed it: $said"
done
said=$(doctor VIRTUAL_ENV="$temp/new" CONDA_PREFIX="$temp/newer")
grep -q "^newer cuDNN *9.99.1" <<<"$said" || fail "not the newest: $said"
if grep -q '^cuDNN *[0-9]' <<<"$before"; then
    doctor VIRTUAL_ENV="$temp/old" | grep '^newer cuDNN.*python3.99' && fail "an older one was told"
fi
doctor VIRTUAL_ENV="$temp/new" SKEIN_CUDNN=0 | grep '^newer cuDNN' && fail "told to who wants none"

# What is named is taken or refused, and nothing else in its place.
said=$(doctor SKEIN_CUDNN="$temp/none/libcudnn.so.9")
grep -q "^cuDNN *not found.*SKEIN_CUDNN=$temp/none" <<<"$said" || fail "a file that is not there: $said"
echo "doctor: data, peak of a core ${one[*]} GFLOP/s, cuDNN"
