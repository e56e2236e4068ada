#!/bin/bash
# optim.sh - optimizers that PyTorch has too: twenty steps end at the same weights, within 1e-5.
# The numbers are those of test/parts/optim.c, on odd sizes, with decay and without.
set -eu
cd "$(dirname "$0")/../.."
python=/usr/bin/python3
part=$(dirname "${SKEIN:-build/release/skein}")/test/parts_optim
if ! "$python" -c 'import torch' 2>/dev/null; then
    echo "PyTorch is not here: apt-get install --no-install-recommends python3-torch python3-numpy"
    exit 77
fi
wrong=0
for name in sgd adamw nadam adagrad rmsprop adamax radam; do
    for decay in 0 1; do
        "$part" print $name $((37 + 964 * decay)) $decay | "$python" test/oracle/optim.py $name || wrong=1
    done
done
exit $wrong
