#!/bin/bash
# cli_doctor.sh - skein doctor says which cuDNN is used, hints at a newer one, and takes none by itself.
set -eu
cd "$(dirname "$0")/.."
skein=$(realpath "${SKEIN:-build/release/skein}")
temp=$(mktemp -d)
trap 'rm -rf "$temp"' EXIT
fail() { echo "$*" && exit 1; }
"$skein" doctor | grep -q '^cuDNN' || { echo "built without CUDA"; exit 77; }

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
echo "doctor: cuDNN"
