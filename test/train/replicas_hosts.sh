#!/bin/bash
# replicas_hosts.sh - replicas and Adasum over an MPI, with two hosts that SKEIN_HOST plays (rank r is on host r mod 2): the bytes of
# one host.
#
# Hosts are replicas (Local SGD, DiLoCo with a codec, partners), also with another interval inside of a host; or their gradients,
# summed inside of a host first, are joined by Adasum.  A step that is not finite in one replica is skipped by that one.
# shellcheck source=test/lib/runs.sh
. "$(dirname "$0")/../lib/runs.sh"

mesh="mesh dp=2 hosts=2; split b over hosts; split b over dp;"
keys=(model=tiny data.train=text data.tokenizer=byte train.steps=12 train.batch=8 train.seq=32 optim.warmup=2 ckpt.every=6
    ckpt.keep=0 sample.every=0 log.every=0 val.every=6 train.threads=1) # mpirun binds ranks to cores
over() { # run of one host
    same "$1" "$one"
    [ "$(grep -c grad_norm "$1/metrics.jsonl")" = 12 ] || fail "$1: $(grep -c grad_norm "$1/metrics.jsonl") lines of 12 steps"
    cmp <(sed 's/,"ms".*//' "$1/metrics.jsonl" | grep grad_norm) <(sed 's/,"ms".*//' "$one/metrics.jsonl" | grep grad_norm) ||
        fail "$1: other numbers in metrics.jsonl"
    rm -rf "$1"
}
both() { # name, words
    one=$1
    shift
    job=("${keys[@]}" "$@")
    train "$one"
    two_hosts over
}

both local layout="$mesh synchronize hosts by local:4; canonical order"
both inside layout="$mesh synchronize hosts by local:4; synchronize dp by local:2; canonical order"
both partners layout="dp=4 sync=gossip:2; canonical order"
both diloco layout="$mesh synchronize hosts by diloco:4:codec=q8:feedback"
both stream layout="$mesh synchronize hosts by stream:4; shard state over dp; canonical order"
both adasum layout="$mesh reduce gradients over hosts by adasum"
both adasum_zero layout="$mesh shard state over dp; reduce gradients over hosts by adasum"
both adasum_all layout="dp=4 reduce=adasum"
SKEIN_FAULT=nan:6:1 both bad layout="$mesh synchronize hosts by local:4; canonical order" train.nonfinite=skip
grep -q '"skipped":1' bad/metrics.jsonl || fail "nothing was skipped"
[ -n "$mpis" ] || { echo "no MPI module was built, or its mpirun is missing"; exit 77; }
echo "replicas over hosts: $runs models with the same bytes, by$mpis"
