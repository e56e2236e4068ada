#!/bin/sh
# paths.sh - files that pages and comments name are there.
#
# Read are all of a page (.md) and of a CMake file, and the comments of code and scripts.  A name is
# a path from the root (src/run/run.c), from src/ or parts/ (run/run.h), or the end of one (run.c);
# in a comment of src/ the last kind is a file of the same room, as includes name their room.  A *
# and words in capitals (parts/op/NAME.c) stand for anything.  A source file whose first line names
# a file names itself.  A page may show a file that is not there: "/* NAME - ..." begins it.
set -eu
cd "$(dirname "$0")/.."
# Files of others; globs that may find nothing.
others="llm.c stdint.h utf8proc.h example/*.md example/*/*.md"
# shellcheck disable=SC2016  # the dollars are awk's
find . \( -name .git -o -path ./build -o -path ./runs \) -prune -o -type f -print |
    sed 's|^\./||' | sort | awk -v others="$others" '
    function bad(text) { print file ":" line ": " text; wrong = 1 }
    function matches(name,   i) {
        gsub(/\./, "[.]", name)
        gsub(/[A-Z][A-Z]+|\*/, ".*", name)
        for (i = 1; i <= n; i++)
            if (all[i] ~ ("(^|/)" name "$")) return 1
        return 0
    }
    function judge(name,   end) {
        end = name
        sub(/.*\//, "", end)
        if (name in exempt || end in shown) return
        named++
        if (name ~ /[A-Z][A-Z]|\*/ ? !matches(name) : !(name in ends)) bad("there is no " name)
        else if (room && name in ends && name !~ /\// && !((room, name) in in_room) && !(name in header))
            bad(name " is in another room: name it too")
    }
    function look(text,   after, name) {
        gsub(/\$\{CMAKE_SOURCE_DIR\}\//, " ", text)
        while (match(text, /[A-Za-z0-9_.*$<>{}~"\\\/-]+\.(c|h|cu|sh|awk|cmake|md)/)) {
            name = substr(text, RSTART, RLENGTH)
            after = substr(text, RSTART + RLENGTH, 1)
            text = substr(text, RSTART + RLENGTH)
            sub(/^\*\*|^"/, "", name)
            if (after ~ /[A-Za-z0-9_*\/-]/ || name ~ /[$<>{}~"\\]|^[.\/*-]/) continue
            if (name ~ /\.md$/ && name !~ /^(doc|bench|example)\//) continue
            judge(name)
        }
    }
    # The comments of one line of C.
    function comment(text,   out, at) {
        for (out = ""; text != "";) {
            if (!open) {
                if (!(at = index(text, "/*"))) break
                text = substr(text, at + 2)
                open = 1
            }
            if (!(at = index(text, "*/"))) { out = out " " text; break }
            out = out " " substr(text, 1, at - 1)
            text = substr(text, at + 2)
            open = 0
        }
        return out
    }
    function first_line(text,   self) {
        if (!match(text, /^\/\* [a-z0-9_]+\.(c|h|cu) - /)) return
        self = substr(text, 4, RLENGTH - 6)
        if (file !~ ("/" self "$")) bad("calls itself " self)
    }
    function read_file(path, kind,   text, part, i, count, lines) {
        file = path; open = 0; count = 0
        split("", shown)
        room = split(path, part, "/") > 2 && part[1] == "src" ? part[2] : ""
        while ((getline text <path) > 0) lines[++count] = text
        close(path)
        for (i = 1; kind == "page" && i <= count; i++)
            if (match(lines[i], /\/\* [a-z0-9_]+\.(c|h) - /)) shown[substr(lines[i], RSTART + 3, RLENGTH - 6)]
        for (line = 1; line <= count; line++) {
            text = lines[line]
            if (kind == "code" && line == 1) first_line(text)
            if (kind == "code") look(comment(text))
            else if (kind == "page") look(text)
            else if (match(text, /(^|[ \t])#[ \t]/)) look(substr(text, RSTART))
        }
    }
    BEGIN { split(others, other, " "); for (i in other) exempt[other[i]] }
    {
        all[++n] = $0
        split($0, part, "/")
        name = $0
        ends[name]
        while (sub(/^[^\/]*\//, "", name)) ends[name]
        sub(/.*\//, "", name)
        if (part[1] == "src") in_room[part[2], name]
        if (part[1] == "include") header[name]
    }
    END {
        for (i = 1; i <= n; i++)
            if (all[i] ~ /\.md$|\.cmake$|CMakeLists.txt$|CMakePresets.json$/ && all[i] != "CHANGELOG.md") read_file(all[i], "page")
            else if (all[i] ~ /\.(c|h|cu)$/) read_file(all[i], "code")
            else if (all[i] ~ /\.(sh|awk|yaml)$|^(check|start)$/) read_file(all[i], "script")
        if (!wrong) print named " names of files, all are there"
        exit wrong
    }'
