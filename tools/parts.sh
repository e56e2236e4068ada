#!/bin/sh
# parts.sh OUT KIND FILE...      the table of one folder: sk_KIND_parts[]
# parts.sh OUT --kinds FILE...   the table of all kinds: sk_kinds[]
#
# A part is parts/KIND/NAME.c and defines `const sk_KIND sk_KIND_NAME`; tables are
# in the order of names and end with NULL.  GPU halves have no folder of their own: those of ops,
# parts/op/NAME.cu, are of the kind `kernel`, those of another KIND of the kind `KIND_kernel`;
# where a folder has only .cu files, they are its parts.  A symbol that does not match its file
# fails at link time: that is the point.  The header of a kind is the one in src/
# that declares its table, so a new kind needs no line here either.  OUT is
# rewritten only when its text changes.  Run from the root of the repository.
set -eu
export LC_ALL=C
out=$1 what=$2
shift 2

# The header that declares the array $1, as an #include line; empty if none does.
header() { grep -rlF --include='*.h' "$1[]" src | sort | head -n 1 | sed 's|^src/\(.*\)|#include "\1"|'; }

symbol() { # parts/op/add.c -> sk_op_add, parts/op/add.cu -> sk_kernel_add, parts/optim/sgd.cu -> sk_optim_kernel_sgd
    s=${1#parts/}
    k=${s%%/*}
    case $s in
    op/*.cu) k=kernel ;;
    *.cu) ! ls "parts/$k"/*.c >/dev/null 2>&1 || k=${k}_kernel ;;
    esac
    s=${s##*/}
    echo "sk_${k}_${s%.*}"
}

table() { # kind files: the declarations and the array
    kind=$1
    shift
    for f; do echo "extern const sk_$kind $(symbol "$f");"; done
    echo "const sk_$kind *const sk_${kind}_parts[] = {"
    for f; do echo "    &$(symbol "$f"),"; done
    echo "    NULL,"
    echo "};"
}

kinds() { # files: one array of untyped pointers per kind, then the array of kinds
    names=$(for f; do f=${f#parts/}; echo "${f%%/*}"; done | sort -u)
    for kind in $names; do header "sk_${kind}_parts"; done | sort -u
    for f; do
        k=${f#parts/}
        echo "extern const sk_${k%%/*} $(symbol "$f");"
    done
    for kind in $names; do
        echo "static const void *const ${kind}_parts[] = {"
        for f; do case $f in "parts/$kind/"*) echo "    &$(symbol "$f")," ;; esac done
        echo "    NULL,"
        echo "};"
    done
    echo "const sk_part_kind sk_kinds[] = {"
    for kind in $names; do echo "    {\"$kind\", ${kind}_parts},"; done
    echo "    {NULL, NULL},"
    echo "};"
}

write() {
    echo "/* made by tools/parts.sh: do not edit */"
    echo "#include <stddef.h>"
    if [ "$what" = --kinds ]; then array=sk_kinds; else array=sk_${what}_parts; fi
    head=$(header "$array")
    if [ -z "$head" ]; then
        [ $# -eq 0 ] || [ "$what" = --kinds ] ||
            { echo "parts.sh: no header in src/ declares ${array}[]" >&2; exit 1; }
        echo "/* no header in src/ declares ${array}[] */"
    elif [ "$what" = --kinds ]; then
        echo "$head"
        kinds "$@"
    else
        echo "$head"
        table "$what" "$@"
    fi
}

write "$@" >"$out.new"
if cmp -s "$out.new" "$out"; then rm "$out.new"; else mv "$out.new" "$out"; fi
