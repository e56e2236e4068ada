#!/bin/bash
# train_rundir.sh - the directory of a run: whose files, who may read them, what is never lost.
#
# Each case says which exit code must come out and which words the story must have, and then looks
# at the files.
set -eu
cd "$(dirname "$0")/.."
skein=$(realpath "${SKEIN:-build/release/skein}")
[ -x "$skein" ] || { echo "there is no $skein"; exit 77; }
temp=$(mktemp -d)
trap 'rm -rf "$temp"' EXIT
cp example/one_file.c "$temp/text"
cd "$temp"

cases=0 wrong=0
job=(model=tiny data.train=text train.steps=4 train.batch=4 train.seq=32 sample.every=0 val.every=0 log.every=0)

bad() {
    echo "$*"
    wrong=$((wrong + 1))
}

# Code, words that the story must have (a|b: both), command
case_of() {
    local want=$1 words=$2 rc=0 word
    shift 2
    cases=$((cases + 1))
    timeout 60 "$@" >out 2>err </dev/null || rc=$?
    [ $rc = "$want" ] || bad "$*: exit code $rc, $want is needed: $(tail -n 3 out err)"
    [ "$want" = 0 ] || [ "$(grep -c '^skein: ' err)" = 1 ] || bad "$*: not one story: $(cat err)"
    IFS='|' read -r -a list <<<"$words"
    for word in "${list[@]}"; do
        grep -qF -- "$word" out err || bad "$*: '$word' is not said: $(cat out err)"
    done
}
train() { case_of "$1" "$2" "$skein" train "${job[@]}" "${@:3}"; }

# ---- the umask says who may read
for mask in 022 027 077; do
    (umask $mask && "$skein" train "${job[@]}" -n 2 run=mask$mask >out 2>err) || bad "umask $mask: $(cat err)"
    other=$(find mask$mask -type d ! -perm $(printf %o $((0777 & ~mask))) -o -type f ! -perm $(printf %o $((0666 & ~mask))))
    cases=$((cases + 1))
    [ -z "$other" ] || bad "umask $mask: $(ls -ld $other)"
done

# ---- ulimit -f: a file at its limit is told, not a signal
# shellcheck disable=SC2016  # the inner shell's
case_of 74 "File too large|ulimit -f" bash -c 'ulimit -f 100; exec "$@"' limit "$skein" train "${job[@]}" run=limit
# shellcheck disable=SC2016
case_of 74 "File too large" bash -c 'ulimit -f 100; exec "$@"' limit "$skein" export mask022 exported
[ ! -e exported ] || bad "ulimit -f: half a model was published"

echo "$cases cases, $wrong wrong"
[ $wrong = 0 ]
