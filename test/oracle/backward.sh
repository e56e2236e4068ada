#!/bin/bash
# backward.sh - what train.backward tells of a GPT-2 and of a classifier: gradients of samples, norms, second moments,
# variances, Kronecker factors, the diagonal of the Gauss-Newton matrix, against loops of PyTorch's autograd in float64.
set -eu
cd "$(dirname "$0")/../.."
python=/usr/bin/python3
if ! "$python" -c 'import torch' 2>/dev/null; then
    echo "PyTorch is not here: apt-get install --no-install-recommends python3-torch python3-numpy"
    exit 77
fi
"$python" test/oracle/backward.py
