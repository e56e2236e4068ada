#!/bin/bash
# install.sh - what cmake --install leaves: a tree for the prefix given then, that can be moved.
#
# The program of the tree runs; example/api.c is compiled with nothing but what pkg-config says
# there, and trains; modules are looked for where they were put.
set -eu
export ASAN_OPTIONS=${ASAN_OPTIONS:-}:detect_leaks=0
cd "$(dirname "$0")/.."
skein=$(realpath "${SKEIN:-build/release/skein}")
[ -x "$skein" ] || { echo "there is no $skein"; exit 77; }
command -v cmake >/dev/null || { echo "there is no cmake"; exit 77; }
command -v pkg-config >/dev/null || { echo "there is no pkg-config"; exit 77; }
build=$(dirname "$skein")
read -ra cc <<<"${SKEIN_CC:-cc}"
temp=$(mktemp -d)
trap 'rm -rf "$temp"' EXIT
fail() {
    echo "$*"
    exit 1
}

cmake --install "$build" --prefix "$temp/first" >"$temp/said" || fail "install: $(cat "$temp/said")"
mv "$temp/first" "$temp/moved"
tree=$temp/moved
"$tree/bin/skein" --version >/dev/null || fail "the installed program does not start"

pc=$(find "$tree" -name skein.pc -printf '%h\n')
[ -n "$pc" ] || fail "skein.pc was not installed"
export PKG_CONFIG_PATH=$pc
libs=$(dirname "$pc")
[ "$(realpath "$(pkg-config --variable=libdir skein)")" = "$libs" ] ||
    fail "skein.pc says libdir is $(pkg-config --variable=libdir skein), it is $libs"

# Code, name of the .pc file
compile() {
    read -ra flags <<<"$(pkg-config --cflags --libs "$1")"
    "${cc[@]}" -o "$temp/api" example/api.c "${flags[@]}" || fail "pkg-config $1: example/api.c does not link"
    (cd "$temp" && ./api "$OLDPWD/example/one_file.c" "run-$1" train.steps=3 train.batch=2 train.seq=16 val.every=0 \
        >"said-$1" 2>&1) || fail "pkg-config $1: $(cat "$temp/said-$1")"
}
compile skein
also=
if [ -f "$build/libskein_cuda.a" ]; then
    [ -f "$libs/libskein_cuda.a" ] || fail "libskein_cuda.a was not installed"
    compile skein-cuda
    nm "$temp/api" | grep -q ' [TDRB] sk_device_cuda$' || fail "skein-cuda: the kernels are not in the program"
    also=", with CUDA too"
fi

# Modules: those that were built are there, and this is where the program looks.
for module in "$build"/skein_*.so; do
    [ ! -f "$module" ] || [ -f "$libs/skein/$(basename "$module")" ] || fail "$module was not installed"
done
mkdir -p "$libs/skein"
echo "no module" >"$libs/skein/skein_mpich.so"
said=$(PMI_RANK=0 PMI_SIZE=2 SKEIN_WIRE=mpich "$tree/bin/skein" train 2>&1) && fail "a module that is none was used"
grep -q "skein/skein_mpich.so cannot be loaded" <<<"$said" || fail "the program does not look into $libs/skein: $said"

echo "installed, moved, compiled against and run$also"
