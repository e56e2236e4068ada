#!/bin/bash
# commands.sh - pages show what the program does: their commands are run, their outputs compared.
#
#     test/doc/commands.sh [--update | --renew] [PAGE ...]      all pages, if none is named
#
# In an indented block "$ " begins a command, "> " goes on with it, and what follows, up to the next
# command or the end of the block, is its output, errors included.  Commands of a page share one
# shell, in a directory with the tree's folders but with runs of its own, and two cores (the scratch
# that is planned goes by threads, and these by cores).  What they print has to be what the page
# says, to the last digit.  A line "..." of the page stands for any lines.  Where more is to be said
# of a block, comments of HTML in front of it do, which no reader sees:
#
#     <!-- varies: REGEX -->      what this extended regular expression finds is the same as anything else
#                                 that it finds (times, pids); blanks are then counted as one
#     <!-- within: 1e-5 -->       numbers with a point may be off by this, relatively (sums in another order)
#     <!-- more: WHAT -->         lines that the page does not have may be printed anywhere, because a new part (WHAT)
#                                 prints them; blanks are then counted as one, since columns grow wider
#     <!-- instead: COMMAND -->   this is run in its place, because the shown one takes long, or builds
#     <!-- with: WORDS -->        and these words behind the command, for the same reason
#     <!-- works: WHAT -->        commands, one a line, whose output is not shown: they must exit with 0
#     <!-- output of: COMMAND --> in front of a table, which is what it prints
#     <!-- needs: WORD, ... -->   not run without: long (SKEIN_LONG=1, ./check --all), cuda, a program, or /a/file
#     <!-- not run: REASON -->    not run
#     <!-- file: NAME -->         a file that commands of the page use
#     <!-- test: FILE -->         this test reads the block from the page
#     <!-- text: WHAT -->         neither command nor output
#
# A code block that has neither commands nor such a comment is a failure: nothing gets by unseen.  Of
# commands that are not run, and of those within sentences (`skein ...`), options and keys must be
# known, and whole ones must have a plan; files that are named must be there.  A command that is the
# last cell of a table row is run as well: it is a training, and every loss must be that of one rank,
# to 1e-5.
#
# --update writes what was got into the pages; lines that were right stay as they are.  --renew also
# writes over what only varies: times of a quiet machine.  Look at the difference before a commit.
set -eu
cd "$(dirname "$0")/../.."
skein=$(realpath "${SKEIN:-build/release/skein}")
[ -x "$skein" ] || { echo "there is no $skein"; exit 77; }
export SKEIN=$skein PATH=${skein%/*}:$PATH LC_ALL=C.UTF-8
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export SKEIN_CC=${SKEIN_CC:-gcc -std=c11 -D_GNU_SOURCE}
tree=$PWD
cores=$(awk '/^Cpus_allowed_list/ {
    n = split($2, part, ",")
    for (i = 1; i <= n; i++) {
        split(part[i] "-" part[i], to, "-")
        for (c = to[1] + 0; c <= to[2] && k < 2; c++) printf "%s%d", k++ ? "," : "", c
    } }' /proc/self/status)
temp=$(mktemp -d)
trap 'rm -rf "$temp"' EXIT
export XDG_CONFIG_HOME=$temp/config XDG_CACHE_HOME=$temp/cache # what was measured here before is not in the pages
update=0 renew=0 limit=270
ran=0 bad=0 skipped=0

tell() { # page:line, what
    bad=$((bad + 1))
    printf '%s: %s\n' "$1" "$2"
}

fresh() { # a directory that looks like the tree
    rm -rf "$temp/site" && mkdir "$temp/site"
    for f in "$tree"/*; do
        case ${f##*/} in runs | build) ;; *) ln -s "$f" "$temp/site/" ;; esac
    done
    mkdir "$temp/site/build" && ln -s "${skein%/*}" "$temp/site/build/release"
}

# ---- what is not run is at least understood

options() { # command: its help, kept
    [ -e "$temp/help.$1" ] || "$skein" "$1" --help >"$temp/help.$1" 2>&1 || return 1
}

known() { # help of which command, word of the command line
    local key=${2%%=*}
    case $2 in
    -*=*) key=${key#--} ;;
    -*) grep -qE -- "(^|[ ,[(|])$2([] ,=|)]|\$)" "$temp/help.$1"; return ;;
    *=*) ;;
    *) return 0 ;;
    esac
    case $key in
    model.* | *[!a-z0-9_.]*) return 0 ;;
    esac
    grep -qE -- "^  (--)?$key( |\$)" "$temp/help.$1" "$temp/help.train"
}

judge() { # place, whole or part, words of a command line of skein
    local place=$1 whole=$2 command=$3 word keys=()
    shift 3
    options train
    [ "$command" != help ] || return 0
    options "$command" || { tell "$place" "there is no command skein $command"; return; }
    for word; do
        known "$command" "$word" || tell "$place" "skein $command does not know $word"
        case $word in -*) ;; *=* | *.yaml) keys+=("$word") ;; esac
    done
    case $whole$command in
    wholetrain | wholeplan | wholesimulate | wholeexplain | wholebench)
        (cd "$temp/site" && "$skein" plan "${keys[@]}") >"$temp/said" 2>&1 ||
            tell "$place" "no plan of skein $command $*: $(tail -n 1 "$temp/said")"
        ;;
    esac
}

understood() { # place, whole or part, text of a command
    local text words
    text=$(sed -e ':a' -e '/\\$/{N;s/\\\n */ /;ta}' -e 's/ : / ; /g' <<<"$3")
    while read -r words; do
        case $words in *...*) set -- "$1" part "$3" ;; esac
        set -f
        # shellcheck disable=SC2046  # words of the page, with its quotes
        eval "judge \"$1\" \"$2\" ${words#skein }"
        set +f
    done < <(grep -oE 'skein [a-z]+( +([^] "|;&>#<)'"'"'`[]|"[^"]*")+)*' <<<"$text")
    while read -r words; do
        [ -x "$tree/$words" ] || tell "$1" "there is no $words"
    done < <(grep -oE '^(\./|bench/|tools/|test/)[^ ]+' <<<"$text")
}

met() { # needs: is there all of it?
    local word
    for word in ${1//,/ }; do
        case $word in
        long) [ -n "${SKEIN_LONG:-}" ] ;;
        cuda) "$skein" doctor | grep -qE '^GPU +[0-9]' ;;
        */*) [ -e "$word" ] ;;
        *) command -v "$word" >/dev/null ;;
        esac || return 1
    done
}

# ---- commands in blocks

# Runs the commands of the page in one shell, each with its output in got.N.
act() { # directory, numbers
    local dir=$1
    shift
    cd "$temp/site"
    cat >"$dir/act" <<'EOF'
dir=$1; shift
for i; do
    echo "$i" >"$dir/now"
    . "$dir/said.$i" >"$dir/got.$i" 2>&1 </dev/null
    echo $? >"$dir/code.$i"
done
echo 0 >"$dir/now"
EOF
    timeout -k 5 "$limit" taskset -c "$cores" bash "$dir/act" "$dir" "$@" || true
    cd "$tree"
}

compare() { # page, directory, number, line, first line of the output, kind
    [ -e "$2/got.$3" ] || { tell "$1:$4" "was not reached"; return; }
    ran=$((ran + 1))
    if [ "$6" = works ]; then
        [ "$(cat "$2/code.$3" 2>/dev/null)" = 0 ] || { tell "$1:$4" "\$ $(cat "$2/said.$3")"; tail -n 5 "$2/got.$3"; }
        return
    fi
    # With "more" a message of an error would be one line more.
    if grep -qx more "$2/rule.$3" && [ "$(cat "$2/code.$3" 2>/dev/null)" != 0 ]; then
        tell "$1:$4" "\$ $(head -n 1 "$2/said.$3"): exit code $(cat "$2/code.$3")"
        tail -n 5 "$2/got.$3"
        return
    fi
    if awk -v page="$1" -v first="$5" -v new="$2/new.$3" -v renew=$renew -f test/lib/page_same.awk \
        "$2/rule.$3" "$2/want.$3" "$2/got.$3" >"$2/differs"; then
        [ $renew = 0 ] || cmp -s "$2/want.$3" "$2/new.$3" || echo "$3" >>"$2/stale"
        return
    fi
    tell "$1:$4" "\$ $(head -n 1 "$2/said.$3")"
    cat "$2/differs"
    echo "$3" >>"$2/stale"
}

blocks() { # page
    local page=$1 dir=$temp/page kind i line first value run=()
    rm -rf "$dir" && mkdir "$dir"
    fresh
    awk -v dir="$dir" -f test/lib/page_read.awk "$page"
    while IFS= read -r line; do tell "$page:${line%%:*}" "${line#*: }"; done <"$dir/wrong"
    while IFS=$'\t' read -r kind i line first _ value; do
        case $kind in
        run | works | table) if met "$value"; then run+=("$i"); else skip "$page:$line" "needs $value" "$dir/said.$i"; fi ;;
        skip) skip "$page:$line" "$value" "$dir/said.$i" ;;
        file) cp "$dir/file.$i" "$temp/site/$value" ;;
        test) grep -q "${page##*/}" "$value" || tell "$page:$line" "$value does not read this page" ;;
        esac
    done <"$dir/list"
    [ ${#run[@]} = 0 ] || act "$dir" "${run[@]}"
    while IFS=$'\t' read -r kind i line first _ value; do
        case $kind in run | works | table) met "$value" || continue ;; *) continue ;; esac
        compare "$page" "$dir" "$i" "$line" "$first" "$kind"
        [ "$(cat "$dir/now")" != "$i" ] || { tell "$page:$line" "not over after $limit s"; break; }
    done <"$dir/list"
    while IFS=$'\t' read -r line value; do
        case $value in
        skein*) understood "$page:$line" part "$value" ;;
        *) [ -e "$value" ] || grep -qF "/* ${value##*/} - " "$page" || tell "$page:$line" "there is no $value" ;;
        esac
    done <"$dir/inline"
    [ $update = 0 ] || [ ! -e "$dir/stale" ] || rewrite "$page" "$dir"
}

skip() { # place, why, file with the command
    skipped=$((skipped + 1))
    echo "$2" >>"$temp/why"
    echo "$1: not run, $2: $(head -n 1 "$3")"
    understood "$1" whole "$(cat "$3")"
}

rewrite() { # page, directory: the outputs that differ, as they are now
    awk -v dir="$2" '
        FILENAME ~ /stale$/ { stale[$1]; next }
        FILENAME ~ /list$/ { split($0, f, "\t"); if (f[2] in stale) { at[f[4]] = f[2]; to[f[2]] = f[5]; kind[f[2]] = f[1] } next }
        FNR in at { n = at[FNR]; until = to[n]; new = dir "/new." n
                    while ((getline s <new) > 0) print (s == "" || kind[n] == "table" ? "" : "    ") s }
        FNR > until' "$2/stale" "$2/list" "$1" >"$2/page"
    cat "$2/page" >"$1"
    echo "$1: $(wc -l <"$2/stale") outputs written anew"
}

# ---- commands in tables

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
    local said one line path
    path=$(realpath "$1")
    fresh
    cd "$temp/site"
    # shellcheck disable=SC2016  # backquotes of Markdown
    sed -nE '/^\|.*\| *`skein train [^`]*` *\|$/{=;s/^.*\| *`(skein train [^`]*)` *\|$/\1/p}' "$path" >rows
    while read -r line && read -r said; do
        ran=$((ran + 1))
        one=$(alone "$said")
        if losses "$said" many && paste -d ' ' "$one" many | awk '
            { d = $2 / $1 - 1; wrong += NF != 2 || !(d < 1e-5 && d > -1e-5) } END { exit wrong || NR < 2 }'; then
            continue
        fi
        tell "$1:$line" "not the losses of one rank: $said"
    done <rows
    cd "$tree"
}

case ${1-} in
--update) update=1; shift ;;
--renew) update=1 renew=1; shift ;;
esac
[ $# -gt 0 ] || set -- README.md CONTRIBUTING.md doc/*.md bench/*.md
for page; do
    blocks "$page"
    rows "$page"
done
why=$(sort "$temp/why" 2>/dev/null | uniq -c | sed -E 's/^ +/, /' | tr -d '\n')
echo "$ran commands run, $bad wrong, $skipped not run${why:+: ${why#, }}"
[ "$bad" = 0 ]
