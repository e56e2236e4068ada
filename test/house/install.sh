#!/bin/bash
# install.sh - what cmake --install leaves: a tree for the prefix given then, that can be moved.
#
# The program of the tree runs; the examples of the library are compiled with nothing but what
# pkg-config says there, as C and as C++, against the shared and the static library, and run; the
# shared one exports what skein.h declares and no more; modules are looked for where they were put.
set -eu
export ASAN_OPTIONS=${ASAN_OPTIONS:-}:detect_leaks=0
cd "$(dirname "$0")/../.."
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

said=$(sed -n 's/^#define SKEIN_VERSION  *"\(.*\)"/\1/p' "$tree/include/skein.h")
[ "$(pkg-config --modversion skein)" = "$said" ] || fail "skein.pc is of version $(pkg-config --modversion skein), skein.h of $said"

# The functions of skein.h, with their version, are what libskein.so exports.
sed 's:/\*.*\*/::' "$tree/include/skein.h" | grep -oE '\b(sk|skein)_[a-z_0-9]+\(' | tr -d '(' |
    grep -vE '^(skein_on_step|skein_rank)$' | sort -u >"$temp/declared"
nm -D --defined-only "$libs/libskein.so" | awk '$2 != "A" { print $3 }' | sort >"$temp/exported"
sed 's/$/@@SKEIN_1/' "$temp/declared" | diff - "$temp/exported" >"$temp/differ" ||
    fail "libskein.so exports (>) other functions than skein.h declares (<): $(cat "$temp/differ")"
[ "$(wc -l <"$temp/declared")" -gt 50 ] || fail "skein.h declares only $(wc -l <"$temp/declared") functions"

link() { # example, name of the .pc file, language
    local flags how=("${cc[@]}")
    read -ra flags <<<"$(pkg-config --cflags --libs "$2")"
    [ "$3" = c ] || how=("${cxx[@]}" -x c++)
    "${how[@]}" "example/$1.c" -x none -o "$temp/$1" "${flags[@]}" "-Wl,-rpath,$libs" ||
        fail "pkg-config $2: example/$1.c does not link as $3"
}
run() { # example, its words
    (cd "$temp" && "./$1" "${@:2}" >said 2>&1) || fail "$*: $(cat "$temp/said")"
}
said() { grep -q "$1" "$temp/said" || fail "$1 is not in: $(cat "$temp/said")"; }

# As C++ the sanitizers of this build are needed too, and nothing else of its flags.
cxx=(c++ -Wall -Wextra -Werror)
for word in "${cc[@]}"; do
    case $word in -fsanitize=*) cxx+=("$word") ;; esac
done
languages=c
command -v c++ >/dev/null && languages="c c++"
try() { # name of the .pc file: the examples, in each language
    for language in $languages; do
        link model_in_c "$1" "$language"
        run model_in_c "$PWD/README.md" "dp=2 zero=1" 3
        said "2 ranks, 26752 parameters" && said "head\[0\]\[0\]"
        link plan_layouts "$1" "$language"
        run plan_layouts llama-1b 64
        said "best on h100-8: [dp]p="
        link collectives "$1" "$language"
        run collectives 3
        said "3 ranks: y = 3.000 x + -2.000, the same bits everywhere"
        run collectives 2 processes
        said "2 ranks: y = 3.000"
    done
    link api "$1" c
    run api "$PWD/example/one_file.c" "run-$1" train.steps=3 train.batch=2 train.seq=16 val.every=0
}
try skein
readelf -d "$temp/api" | grep -q 'NEEDED.*libskein.so.1' || fail "pkg-config skein does not link libskein.so.1"
try skein-static
readelf -d "$temp/api" | grep -q 'NEEDED.*libskein.so' && fail "pkg-config skein-static links libskein.so"
also=
if [ -f "$build/libskein_cuda.a" ]; then
    [ -f "$libs/libskein_cuda.a" ] || fail "libskein_cuda.a was not installed"
    link api skein-cuda c
    run api "$PWD/example/one_file.c" run-skein-cuda train.steps=3 train.batch=2 train.seq=16 val.every=0
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

echo "installed, moved; $(wc -l <"$temp/declared") functions; examples run as ${languages// / and }, shared and static$also"
