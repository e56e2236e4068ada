#!/bin/sh
# layers.sh - includes only go down.
#
# src/LAYERS lists the rooms from the ground up; the kinds of parts stand on the
# line of the room they serve and may lean on it and on what is below.  Every
# include in quotes names a room ("ROOM/FILE.h"), and nothing in src/ names a part:
# the engine does not know what is on the shelves.  include/skein.h is the one
# header without a room: everyone above may speak it, so it may include nothing.  Folders inside
# of a room ("run/gpu/fabric.h") belong to that room.
set -eu
cd "$(dirname "$0")/.."
# shellcheck disable=SC2016  # the dollars are awk's
find src parts -name '*.[ch]' -o -name '*.cu' | sort | xargs awk '
    function bad(text) { print FILENAME ":" FNR ": " text; wrong = 1 }
    FILENAME == "src/LAYERS" {
        for (i = 1; i <= NF; i++) level[$i] = FNR
        next
    }
    FNR == 1 {
        files++
        split(FILENAME, path, "/")
        room = path[2]
        if (!(room in level)) bad("room " room " is not in src/LAYERS")
    }
    /^[ \t]*#[ \t]*include[ \t]*"/ {
        split($0, quoted, "\"")
        if (quoted[2] == "skein.h") next
        if (quoted[2] !~ /\//) { bad("include \"" quoted[2] "\" does not name its room"); next }
        split(quoted[2], part, "/")
        need = part[1]
        if (need == "parts" || need == "..") bad(room " must not include " quoted[2])
        else if (!(need in level)) bad(need " is not a room of src/LAYERS")
        else if (level[need] > level[room]) bad(room " must not lean on " need)
    }
    END {
        if (!wrong) print files " files, includes only go down"
        exit wrong
    }' src/LAYERS
