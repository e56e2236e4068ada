#!/bin/bash
# canonical_cuda.sh - on a GPU: order=canonical ends in the same bytes on any layout, with up to 8 ranks on it.
set -eu
cd "$(dirname "$0")/../.."
skein=${SKEIN:-build/release/skein}
nvidia-smi -L >/dev/null 2>&1 || { echo "there is no GPU here"; exit 77; }
! "$skein" doctor 2>&1 | grep -q "^GPU half  *not in this program" || { echo "this skein was built without CUDA"; exit 77; }
SKEIN=$skein exec test/train/canonical.sh cuda
