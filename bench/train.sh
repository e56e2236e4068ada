#!/bin/bash
# train.sh [options of ratio.py] - a training step of skein beside PyTorch and the GEMM floor.
#
#   bench/train.sh                                    all of it, about 25 minutes
#   bench/train.sh --rounds 1 --models nano           a look
#   bench/train.sh --only 'GEMMs|skein'               some of it
#
# Wants a machine with nothing else on it.  Prints two markdown tables; what is kept between runs
# lies in build/bench.  PyTorch is Debian's python3-torch (skipped if it is not installed).  Its
# other BLAS libraries are unpacked into build/bench, so that nothing on the system changes.
set -eu
cd "$(dirname "$0")/.."
work=$PWD/build/bench
mkdir -p "$work"

skein=${SKEIN:-$PWD/build/release/skein}
options=()
if [ -x "$skein" ]; then
    options+=(--skein "$skein")
else
    echo "no skein at $skein: without it" >&2
fi

read -r -a blas < <(pkg-config --cflags --libs openblas)
${CC:-cc} -std=c11 -D_GNU_SOURCE -Isrc -O3 bench/gemm.c src/base/threads.c src/base/status.c \
    "${blas[@]}" -lpthread -o "$work/gemm"
options+=(--gemm "$work/gemm")

if [ ! -s "$work/text" ]; then
    if command -v bible >/dev/null; then
        bible -f -l20000 ge1:1-re22:21 >"$work/text"
    else
        find src parts -name '*.c' -exec cat {} + >"$work/text"
    fi
fi
options+=(--text "$work/text")

# The libraries of a package, unpacked, not installed.
unpacked() { # package, folder under usr/lib/TRIPLET
    local folder
    folder=$work/$1/usr/lib/$(${CC:-cc} -print-multiarch)/$2
    if [ ! -e "$folder/libblas.so.3" ]; then
        mkdir -p "$work/$1"
        (cd "$work/$1" && apt-get -qq download "$1" >/dev/null 2>&1 && dpkg -x "$1"_*.deb .) || true
    fi
    [ -e "$folder/libblas.so.3" ] && echo "$folder"
}
if /usr/bin/python3 -c 'import torch' 2>/dev/null; then
    if f=$(unpacked libopenblas0-openmp openblas-openmp); then
        options+=(--blas "OpenBLAS-OpenMP=$f")
    fi
    if f=$(unpacked libblis4-openmp blis-openmp); then options+=(--blas "BLIS=$f"); fi
else
    echo "PyTorch is not installed (python3-torch): without it" >&2
    options+=(--no-torch)
fi
exec /usr/bin/python3 bench/ratio.py "${options[@]}" "$@"
