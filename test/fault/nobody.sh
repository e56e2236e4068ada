#!/bin/bash
# nobody.sh - an ordinary user with next to no /dev/shm trains on four ranks.
#
# Containers give 64 MiB or less of /dev/shm; shared memory here is memfds, which do not count
# there.  Needs root to become nobody and to have a /dev/shm of its own (1 MiB, a namespace).
set -eu
cd "$(dirname "$0")/../.."
skein=$(realpath "${SKEIN:-build/release/skein}")
[ -x "$skein" ] || { echo "there is no $skein"; exit 77; }
[ "$(id -u)" = 0 ] || { echo "only root can become somebody else"; exit 77; }
if ! id nobody >/dev/null 2>&1 || ! command -v setpriv >/dev/null; then
    echo "there is no nobody, or no setpriv"
    exit 77
fi
temp=$(mktemp -d)
trap 'rm -rf "$temp"' EXIT
chmod 755 "$temp"
mkdir "$temp/home"
cp "$skein" "$temp/skein"
cp example/one_file.c "$temp/home/text"
chown -R nobody "$temp/home"

small() { # a command as nobody, with a /dev/shm of 1 MiB
    # shellcheck disable=SC2016  # the inner shell expands
    unshare -m sh -c 'mount -t tmpfs -o size=1m,mode=1777 tmpfs /dev/shm || exit 77
        cd "$1/home" && shift
        exec setpriv --reuid=nobody --clear-groups --no-new-privs env HOME="$PWD" "$@"' \
        sh "$temp" "$@"
}
small true 2>/dev/null || { echo "no mount namespaces here"; exit 77; }

rc=0
small "$temp/skein" train model=tiny data.train=text data.tokenizer=byte train.steps=20 train.batch=4 \
    train.seq=32 sample.every=0 log.every=0 -n 4 layout="dp=2 tp=2" run=run \
    >"$temp/out" 2>"$temp/err" || rc=$?
[ $rc = 0 ] || { cat "$temp/out" "$temp/err"; echo "exit code $rc"; exit 1; }
[ -s "$temp/home/run/final/model.safetensors" ] || { echo "there is no model"; exit 1; }
small sh -c 'dd if=/dev/zero of=/dev/shm/full bs=1k count=2k' >/dev/null 2>&1 &&
    { echo "/dev/shm was not small"; exit 1; }
echo "20 steps on 4 ranks as nobody with a /dev/shm of 1 MiB"
