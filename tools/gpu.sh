#!/bin/sh
# gpu.sh [SEED] [OP...] - are the GPU halves of the ops right, and how fast?
#
# Builds test/cuda/parts.cu with nvcc and gcc alone, without CMake, into build/gpu and runs it:
# for a machine with a GPU that lacks the libraries of a full build.  Only what the pairs need is
# compiled: base, kernel, graph, device, and the ops that have a .cu beside their .c, these a second time in
# float64.  Products on the CPU are OpenBLAS's where it is there, else those of test/lib/plain; where
# its header or library lies in no usual place, say CPATH=... LIBRARY_PATH=... LD_LIBRARY_PATH=...
# ARCH=sm_80 builds for another GPU than the one that is here (without any: sm_90).  Exit code 77:
# no GPU, built and not run.
set -eu
cd "$(dirname "$0")/.."
PATH=$PATH:/usr/local/cuda/bin
CC=${CC:-gcc}
for tool in nvcc "$CC"; do
    command -v "$tool" >/dev/null || { echo "gpu.sh: $tool is not installed"; exit 77; }
done
if [ -z "${ARCH-}" ]; then
    if nvidia-smi -L >/dev/null 2>&1; then ARCH=native; else ARCH=sm_90; fi
fi
out=build/gpu
rm -rf "$out"
mkdir -p "$out/64"

kernels=$(echo parts/op/*.cu)
ops=$(for f in $kernels; do echo "${f%.cu}.c"; done)
# shellcheck disable=SC2086  # lists of files without blanks
{
    tools/parts.sh "$out/kernel_table.c" kernel $kernels
    tools/parts.sh "$out/op_table.c" op $ops
    tools/parts.sh "$out/model_table.c" model
    libs=-lopenblas blas=
    if ! echo '#include <cblas.h>' | $CC -E - >/dev/null 2>&1; then libs='' blas=-Itest/lib/plain; fi
}

# Compile the files $3... into the folder $1 with the command $2, to which -c FILE -o OBJECT is added.
compile() {
    into=$1 command=$2
    shift 2
    for f; do echo "$command -c $f -o $into/$(echo "$f" | tr / _).o"; done |
        xargs -P "$(nproc)" -I '{}' sh -c '{} || exit 255' # 255 stops xargs
}

gcc_flags="-std=c11 -D_GNU_SOURCE -Isrc $blas -O3 -march=x86-64-v3 -ffp-contract=fast \
    -fopenmp-simd -fno-math-errno -fno-trapping-math -Wall -Wextra"
both="src/base/*.c src/tensor/dtype.c src/kernel/*.c src/kernel/cpu/*.c src/graph/*.c"
# shellcheck disable=SC2086
compile "$out" "$CC $gcc_flags" $both src/device/device.c test/lib/cpu_device.c $ops "$out"/*_table.c
# shellcheck disable=SC2086
compile "$out/64" "$CC $gcc_flags -DSK_REAL=double" $both $ops "$out"/op_table.c \
    "$out"/model_table.c
ld -r -o "$out/ops64.o" "$out"/64/*.o # of which only sk_op64_find is seen: cmake/test.cmake
objcopy --redefine-sym sk_op_find=sk_op64_find "$out/ops64.o"
objcopy --keep-global-symbol=sk_op64_find "$out/ops64.o"
# shellcheck disable=SC2086
compile "$out" "nvcc -std=c++17 -Isrc -O3 -arch=$ARCH \
    -Xcompiler=-Wall,-Wextra,-Wno-missing-field-initializers,-fno-exceptions" \
    src/device/*.cu src/kernel/cuda/*.cu $kernels test/cuda/parts.cu
# shellcheck disable=SC2086
nvcc -arch="$ARCH" "$out"/*.o -o "$out/parts_cuda" $libs -lm -lpthread -ldl
echo "built $out/parts_cuda for $ARCH"
exec "$out/parts_cuda" "$@"
