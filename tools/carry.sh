#!/bin/sh
# carry.sh DIR [PROGRAM ...] - what a bare machine with a GPU needs to run skein, in one folder.
#
#     tools/carry.sh build/carry
#     tools/carry.sh build/carry build/release/bench_gemm       further programs
#
# Takes build/release/skein (BUILD=... for another build), the tests of the GPU halves
# (test/*_cuda) where they were built, and every library they need that such a machine may lack.
# What belongs to its system or its driver stays out: glibc, the compilers' run time, CUDA.
# DIR/skein is a script that finds the libraries beside itself, wherever the folder was copied to;
# the program is DIR/skein.bin.  The machine needs a glibc at least as new as the one here.
# Empties DIR first, if it is one of ours.  Prints what went in, and its size.  The programs have most of their
# code in common, so packed with a long memory they are a tenth of it:
#
#     tar -C build -c carry | xz -T0 --lzma2=preset=1,dict=128MiB >carry.tar.xz
set -eu
[ $# -ge 1 ] || { echo "usage: tools/carry.sh DIR [PROGRAM ...]" >&2; exit 64; }
dir=$1
shift
root=$(cd "$(dirname "$0")/.." && pwd)
build=${BUILD:-$root/build/release}
[ -x "$build/skein" ] || { echo "carry.sh: no $build/skein; build it first: ./start" >&2; exit 1; }

if grep -qsx 'SKEIN_CUDA_QUICK:BOOL=ON' "$build/CMakeCache.txt"; then
    echo "carry.sh: the kernels of $build were compiled quickly, as ./check does where there is no GPU, and are slow; compile them as they should be: cmake --preset release -DSKEIN_CUDA_QUICK=OFF && cmake --build --preset release" >&2
    exit 1
fi

if [ -e "$dir" ] && [ -n "$(ls -A "$dir")" ] && [ ! -e "$dir/skein.bin" ]; then
    echo "carry.sh: $dir is not empty and has no skein.bin; give an empty folder" >&2
    exit 64
fi
rm -rf "$dir"
mkdir -p "$dir/lib"
dir=$(cd "$dir" && pwd)

# Runs the program of its own name with the libraries beside it.
wrap() { # name
    # shellcheck disable=SC2016  # the dollars are the script's
    printf '%s\n' '#!/bin/sh' 'here=$(dirname "$(readlink -f "$0")")' \
        'LD_LIBRARY_PATH=$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}' 'export LD_LIBRARY_PATH' \
        "exec \"\$here/$1.bin\" \"\$@\"" >"$dir/$1"
    chmod +x "$dir/$1"
}

take() { # program
    name=$(basename "$1")
    cp "$1" "$dir/$name.bin"
    strip -g "$dir/$name.bin"
    wrap "$name"
}

take "$build/skein"
for f in "$build"/test/*_cuda; do
    if [ -x "$f" ]; then take "$f"; fi
done
for f; do take "$f"; done

# Of "libx.so.1 => /path/libx.so.1 (0x...)" the paths; ldd lists what libraries need in turn.
needed() {
    for f in "$dir"/*.bin; do
        ldd "$f" || { echo "carry.sh: ldd cannot read $f" >&2; exit 1; }
    done | awk '
        $2 == "=>" && $3 == "not" { print "carry.sh: " $1 " is not here either" >"/dev/stderr"; next }
        $2 == "=>" && $3 ~ /^\// { print $3 }' | sort -u
}
needed | while read -r lib; do
    name=$(basename "$lib")
    case $name in
    libc.* | libm.* | libmvec.* | libdl.* | librt.* | libpthread.* | libresolv.* | libutil.* | ld-linux*) ;;
    libgcc_s.* | libstdc++.*) ;;
    libcuda.* | libcudart.* | libcublas* | libcudnn* | libnccl* | libnv*) ;;
    *)
        cp -L "$lib" "$dir/lib/$name"
        strip -g "$dir/lib/$name"
        ;;
    esac
done

# It starts from here, with nothing but what is in the folder and the system.
"$dir/skein" list op >/dev/null || { echo "carry.sh: $dir/skein does not start" >&2; exit 1; }
(cd "$dir" && find . -type f -size +4k -exec du -k {} + | sort -rn |
    awk '{ printf "%8.1f MiB  %s\n", $1 / 1024, substr($2, 3) }')
kib=$(du -sk "$dir" | cut -f1)
awk -v k="$kib" -v d="$dir" 'BEGIN { printf "%8.1f MiB  %s\n", k / 1024, d }'
