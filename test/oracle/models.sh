#!/bin/bash
# models.sh - the losses of test/model/dirs.table are those of float64 forward passes by
# PyTorch, written for that (test/oracle/models.py), and by transformers where it is installed.
set -eu
cd "$(dirname "$0")/../.."
python=/usr/bin/python3
make=$(dirname "${SKEIN:-build/release/skein}")/test/model_dirs
has() { "$python" -c "import $1" 2>/dev/null; }
if ! has torch; then
    echo "PyTorch is not here: apt-get install --no-install-recommends python3-torch python3-numpy"
    exit 77
fi
temp=$(mktemp -d)
trap 'rm -rf "$temp"' EXIT
"$make" make "$temp"
if has transformers; then "$python" test/oracle/models.py "$temp" transformers; fi
"$python" test/oracle/models.py "$temp" plain
