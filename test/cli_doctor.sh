#!/bin/bash
# cli_doctor.sh - skein doctor says what is there, and how fast a core is, twice the same; which cuDNN
# is used, hints at a newer one, and takes none by itself.
set -eu
cd "$(dirname "$0")/.."
skein=$(realpath "${SKEIN:-build/release/skein}")
temp=$(mktemp -d)
trap 'rm -rf "$temp"' EXIT
fail() { echo "$*" && exit 1; }

# Data are there if they can be opened, not if their name is known.
fashion="not found"
[ ! -e /usr/share/datasets/fashion-mnist/train-images-idx3-ubyte.gz ] || fashion=there
"$skein" doctor | grep -q "^data fashion-mnist *$fashion " || fail "fashion-mnist is $fashion: $("$skein" doctor)"
PATH=$temp "$skein" doctor | grep -q '^data kjv *not found .*apt-get install bible-kjv' || fail "kjv without bible"

# One core does what one core can, and the same when asked again: three asks, of which two within
# 5 %, since a machine may have something else to do.  All cores have no more than so many cores.
rate() { sed -nE "s/^peak of $2 *([0-9.]+) GFLOP.*/\1/p" <<<"$1"; }
one=() all=()
for _ in 1 2 3; do
    said=$(OPENBLAS_NUM_THREADS=8 "$skein" doctor)
    one+=("$(rate "$said" "a core")") all+=("$(rate "$said" "[0-9]+ cores")")
done
cores=$(sed -nE 's/^cores *([0-9]+) .*/\1/p' <<<"$said")
awk -v a="${one[0]}" -v b="${one[1]}" -v c="${one[2]}" 'function near(x, y) { return x > 0 && x / y < 1.05 && y / x < 1.05 }
    BEGIN { exit !(near(a, b) || near(b, c) || near(a, c)) }' || fail "peaks of a core: ${one[*]}"
[ "$cores" = 1 ] || awk -v n="$cores" -v one="${one[*]}" -v all="${all[2]}" '
    BEGIN { for (i = split(one, v, " "); i; i--) if (v[i] > most) most = v[i]
            exit !(all > 0.2 * n * most && all < 1.1 * n * most) }' || fail "peak of $cores cores: ${all[*]}, of one ${one[*]}"

"$skein" doctor | grep -q '^cuDNN' || { echo "doctor: data, peak of a core ${one[*]} GFLOP/s; built without CUDA"; exit 0; }

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
