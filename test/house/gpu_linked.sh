#!/bin/bash
# gpu_linked.sh - a program with GPU halves has all of them: libskein names the tables of skein_cuda
# weakly, and one that is left in the archive is found only where a GPU runs it.
set -eu
cd "$(dirname "$0")/../.."
skein=${SKEIN:-build/release/skein}
if ! nm "$skein" | grep -q ' [A-Z] sk_device_cuda$'; then
    echo "the program was built without GPU halves"
    exit 77
fi
# The host as a device is linked into tests alone.
missing=$(nm "$skein" | awk '$1 == "w" && $2 ~ /^sk_/ && $2 != "sk_device_cpu" { print $2 }')
[ -z "$missing" ] || { echo "not linked: $missing"; exit 1; }
echo "tables of skein_cuda: $(nm "$skein" | grep -cE ' sk_(device_cuda|nccl_cuda|inst_kernels_cuda|kernel_parts|optim_kernel_parts|codec_kernel_parts)$') linked"
