#!/bin/bash
# start_targets.sh - ./start builds the program and nothing that it does not run: no tests, no oracle in
# float64, no examples.
set -eu
cd "$(dirname "$0")/../.."
build=$(dirname "$(realpath "${SKEIN:-build/release/skein}")")
[ -f "$build/build.ninja" ] || { echo "no $build/build.ninja"; exit 77; }
grep -q '^if ! build release skein_program; then' start || { echo "start builds something else"; exit 1; }
ninja -C "$build" -t commands skein_program >/dev/null || { echo "there is no target skein_program"; exit 1; }
more=$(ninja -C "$build" -t commands skein_program | grep -cE 'CMakeFiles/(test_|skein64|skein_testlib|skein_fake|bench_|example_)' || true)
[ "$more" = 0 ] || { echo "$more commands are not of the program"; exit 1; }
echo "$(ninja -C "$build" -t commands skein_program | wc -l) of $(ninja -C "$build" -t commands all | wc -l) commands"
