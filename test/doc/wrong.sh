#!/bin/bash
# wrong.sh - test/doc/commands.sh is not blind: a page passes, each of its wrong copies fails, and
# --update makes the page out of a wrong copy again.
set -eu
cd "$(dirname "$0")/../.."
temp=$(mktemp -d)
trap 'rm -rf "$temp"' EXIT
n=0

cat >"$temp/good.md" <<'END_OF_PAGE'
# A page

`skein plan model=tiny --svg FILE` is in `doc/pictures.md`.

    $ skein list codec | grep int | tr -s ' '
     int4 4 bits, a scale for 128 elements: 0.516 bytes an element
     int8 8 bits, a scale for 256 elements: 1.008 bytes an element
    $ printf '%s\n' 1 2 3 |
    >     sed 's/2/two/'
    1
    ...
    3

<!-- within: 1e-5 -->
<!-- varies: in [0-9.]+ s$ -->

    $ echo "loss 5.07650 of 12 in $SECONDS.5 s"
    loss 5.07651 of 12 in 99.9 s

<!-- file: numbers -->

```
7 8
```

<!-- output of: while read -r a b; do echo "| $a | $b |"; done <numbers -->

| 7 | 8 |

<!-- more: codecs -->

    $ skein list codec
      bf16 fraction of 7 bits, the range of f32: 2 bytes an element
      fp8        e4m3, a scale for 128 elements: 1.016 bytes an element

<!-- not run: takes days -->

    skein train model=tiny layout="dp=2 zero=1" train.steps=1000000000 -n 2

<!-- works: no word -->
<!-- with: layout=dp=2 -->

    skein plan model=tiny train.batch=4 \
        train.seq=32

<!-- needs: a_program_that_nobody_has -->

    $ a_program_that_nobody_has
    says something
END_OF_PAGE

try() { test/doc/commands.sh "$@" >"$temp/said" 2>&1; }

wrong() { # what, sed script, what must be said
    sed "$2" "$temp/good.md" >"$temp/wrong.md"
    cmp -s "$temp/good.md" "$temp/wrong.md" && { echo "$1: the copy is not another"; exit 1; }
    if try "$temp/wrong.md"; then cat "$temp/said"; echo "not seen: $1"; exit 1; fi
    grep -qF -- "$3" "$temp/said" || { cat "$temp/said"; echo "$1: not said: $3"; exit 1; }
    n=$((n + 1))
}

try "$temp/good.md" || { cat "$temp/said"; echo "the good page fails"; exit 1; }
grep -q "^6 commands run, 0 wrong, 2 not run: 1 needs a_program" "$temp/said" || { cat "$temp/said"; exit 1; }

wrong "a number" 's/0.516/0.517/' "wrong.md:6"
wrong "a line too many" '/^     int8/a\     int9' "program  nothing"
wrong "a line too few" '/^     int8/d' "page     nothing"
wrong "the last line behind any" 's/^    3$/    4/' "program  3"
wrong "a loss" 's/5.07651/5.07661/' "loss 5.07661 of 12"
wrong "a count beside a loss" 's/of 12 in 99/of 13 in 99/' "loss 5.07651 of 13"
wrong "a line among more" 's/e4m3/e5m2/' "page       fp8        e5m2"
wrong "a line that more does not have" '/^      fp8/a\      fp9' "program  nothing"
wrong "more in another order" '/^      bf16/d; /^      fp8/a\      bf16  fraction of 7 bits, the range of f32: 2 bytes an element' "page       "
wrong "an error among more" 's/skein list codec/skein list codec; false/' "exit code 1"
wrong "a file" 's/^7 8/7 9/' "program  | 7 | 9 |"
wrong "a table" 's/^| 7/| 6/' "page     | 6 | 8 |"
wrong "a block that says nothing of itself" '/works:/d; s/^<!-- with.*/<p>/' "neither run nor marked: skein plan"
wrong "a marker with a mistake" 's/not run:/nut run:/' "an unknown marker"
wrong "a marker of nothing" 's/^    skein train.*/Words./' "a marker that no code block follows"
wrong "two markers" '/^    skein train/d' "two kinds of block"
wrong "what does not vary" 's/in \[0-9.\]/at [0-9.]/' "which is said to vary"
wrong "a key of what is not run" 's/train.steps=1000000000/train.stops=1/' "does not know train.stops"
wrong "a layout of what is not run" 's/zero=1" /zero=9" /' "no plan of skein train"
wrong "an option in a sentence" 's/--svg/--swg/' "skein plan does not know --swg"
wrong "a file in a sentence" 's/pictures/picture/' "there is no doc/picture.md"
wrong "a command that fails" 's/train.batch=4/train.botch=4/' "train.botch"

sed 's/0.516/0.517/; /^     int8/d; s/e4m3/e5m2/; s/of 12 in 99/of 13 in 99/; s/^| 7/| 6/' "$temp/good.md" >"$temp/wrong.md"
try --update "$temp/wrong.md" && { echo "an update hides that a page was wrong"; exit 1; }
try "$temp/wrong.md" || { cat "$temp/said"; echo "an updated page fails"; exit 1; }
diff "$temp/good.md" "$temp/wrong.md" >"$temp/said" || true
if [ "$(grep -c '^>' "$temp/said")" != 1 ] || ! grep -q '^> .*loss 5.07650 of 12 in' "$temp/said"; then
    cat "$temp/said"
    echo "an update changed more than what was wrong"
    exit 1
fi
echo "$n wrong pages are seen"
