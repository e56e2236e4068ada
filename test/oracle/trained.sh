#!/bin/bash
# trained.sh - every optimizer of `skein list optim`, schedules and averages in training, against PyTorch in float64
# (test/oracle/trained.py, which also runs where no skein was built).  A minute.
set -eu
cd "$(dirname "$0")/../.."
python=/usr/bin/python3
skein=${SKEIN:-build/release/skein}
if ! "$python" -c 'import torch' 2>/dev/null; then
    echo "PyTorch is not here: apt-get install --no-install-recommends python3-torch python3-numpy"
    exit 77
fi
# None is left out: adafactor-vector goes with adafactor, which gives it what is no matrix.
for name in $("$skein" list optim | awk '{ print $1 }'); do
    grep -q "\"$name\": dict(" test/oracle/trained.py || [ "$name" = adafactor-vector ] ||
        { echo "$name has no case in test/oracle/trained.py: write its reference from the paper" && exit 1; }
done
SKEIN=$skein "$python" test/oracle/trained.py
