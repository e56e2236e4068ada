#!/bin/bash
# doc_commands.sh - pages show what the program does: their commands are run.
#
#     test/doc_commands.sh [PAGE ...]        usual: pages whose output is the same on every machine
#
# In an indented block "$ " begins a command, "> " goes on with it, and what follows up to the next
# command or the end of the block is its output, which must be the same.  Commands of a page share one
# shell, in a directory with the tree's folders but with runs of its own.  A command that is the last
# cell of a table row is run too: it is a training, and every loss must be that of one rank, to 1e-5.
set -eu
cd "$(dirname "$0")/.."
skein=$(realpath "${SKEIN:-build/release/skein}")
[ -x "$skein" ] || { echo "there is no $skein"; exit 77; }
export SKEIN=$skein PATH=${skein%/*}:$PATH
tree=$PWD
temp=$(mktemp -d)
trap 'rm -rf "$temp"' EXIT
ran=0 bad=0

fresh() { # a directory that looks like the tree
    rm -rf "$temp/site" && mkdir "$temp/site"
    for f in "$tree"/*; do
        case ${f##*/} in runs | build) ;; *) ln -s "$f" "$temp/site/" ;; esac
    done
    mkdir "$temp/site/build" && ln -s "${skein%/*}" "$temp/site/build/release"
}

# said.N and want.N for each command of a page; prints how many there are.
take() {
    awk -v dir="$1" '
        /^    \$ / { n++; out = 0; said = dir "/said." n; want = dir "/want." n
                     printf "" >want; print substr($0, 7) >said; inside = 1; next }
        /^    > / && inside && !out { print substr($0, 7) >said; next }
        /^    / && inside { out = 1; print substr($0, 5) >want; next }
        { inside = 0 }
        END { print n + 0 }' "$2"
}

# Runs them in one shell, each with its output in got.N.
act() { # directory, number
    (
        set +eu
        cd "$temp/site" || exit
        for ((i = 1; i <= $2; i++)); do
            # shellcheck disable=SC1090  # made just now
            . "$1/said.$i" >"$1/got.$i" 2>&1 </dev/null
        done
    )
}

blocks() { # page
    local dir=$temp/page n
    rm -rf "$dir" && mkdir "$dir"
    fresh
    n=$(take "$dir" "$1")
    act "$dir" "$n"
    for ((i = 1; i <= n; i++)); do
        ran=$((ran + 1))
        sed -i "s/ *$//" "$dir/want.$i" "$dir/got.$i"
        cmp -s "$dir/want.$i" "$dir/got.$i" && continue
        bad=$((bad + 1))
        echo "$1: \$ $(cat "$dir/said.$i")"
        diff "$dir/want.$i" "$dir/got.$i" | sed 's/^</page says   /; s/^>/program says/' || true
    done
}

losses() { # command, file
    rm -rf runs
    (eval "$1 run=runs/x train.threads=1 val.every=0 sample.every=0") >said 2>&1 ||
        { cat said; echo "failed: $1"; return 1; }
    sed -nE 's/.*"loss":([-+0-9.eE]+).*/\1/p' runs/x/metrics.jsonl >"$2"
}

# Losses of the command on one rank, in a file that is made once; prints its name.
alone() {
    local one file
    one=$(echo "$1" | sed -E 's/layout=("[^"]*"|[^ ]+)/layout=dp=1/; s/train.relayout="[^"]*"//')
    file=one.$(echo "$one" | cksum | tr ' ' .)
    [ -e "$file" ] || losses "$one" "$file" >&2 || exit 1
    echo "$file"
}

rows() { # page
    local said one
    fresh
    cd "$temp/site"
    # shellcheck disable=SC2016  # backquotes of Markdown
    sed -nE 's/^\|.*\| *`(skein train [^`]*)` *\|$/\1/p' "$tree/$1" >rows
    while read -r said; do
        ran=$((ran + 1))
        one=$(alone "$said")
        if losses "$said" many && paste -d ' ' "$one" many | awk '
            { d = $2 / $1 - 1; wrong += NF != 2 || !(d < 1e-5 && d > -1e-5) } END { exit wrong || NR < 2 }'; then
            continue
        fi
        echo "$1: not the losses of one rank: $said"
        bad=$((bad + 1))
    done <rows
    cd "$tree"
}

[ $# -gt 0 ] || set -- doc/parallelism.md doc/pipelines.md doc/memory.md doc/codec.md
for page in "$@"; do
    blocks "$page"
    rows "$page"
done
echo "$ran commands of $# pages, $bad say something else"
[ "$ran" -gt 0 ] && [ "$bad" = 0 ]
