#!/bin/bash
# plan_svg.sh - the picture of a plan is well-formed and says what the plan says.
#
# Tasks are counted against the schedule and, for a schedule from a file, compared one by one;
# the bubble is that of skein simulate; bytes are those of -o csv, and the line of the peak is one
# of skein explain; pieces and their ranks cover the mesh; thousands of ranks stay under a megabyte.
set -eu
skein=$(realpath "${SKEIN:-build/release/skein}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
checks=0
small=(model=tiny model.num_hidden_layers=8 train.batch=16 train.seq=16)

bad() {
    echo "plan --svg: $*"
    exit 1
}

same() { # what, found, needed
    [ "$2" = "$3" ] || bad "$1: found '$2', needed '$3'"
    checks=$((checks + 1))
}

# Tags open and close in order, attributes have their quotes, no bare & or < is left: what a parser
# of XML asks for, for the little that the picture uses.  A real parser too where there is one.
well_formed() {
    awk '
        { text = text $0 "\n" }
        function no(why) { print "not well-formed: " why; wrong = 1; exit 1 }
        END {
            if (wrong) exit 1
            while ((at = index(text, "<")) > 0) {
                before = substr(text, 1, at - 1)
                gsub(/&(amp|lt|gt|quot);/, "", before)
                if (before ~ /&/) no("a bare & in " before)
                text = substr(text, at + 1)
                end = index(text, ">")
                tag = substr(text, 1, end - 1)
                text = substr(text, end + 1)
                name = tag
                sub(/[ \/].*/, "", name)
                if (tag ~ /^\//) {
                    if (open[n--] != substr(tag, 2)) no("</" substr(tag, 2) "> closes another one")
                    continue
                }
                rest = substr(tag, length(name) + 1)
                if (rest !~ /^( [a-zA-Z-]+="[^"<]*")*\/?$/) no("<" tag ">")
                if (tag !~ /\/$/) open[++n] = name
                tags++
            }
            if (n) no(open[n] " stays open")
            if (tags < 50) no("only " tags " tags")
        }' "$1" || exit 1
    if command -v xmllint >/dev/null; then xmllint --noout "$1" || bad "xmllint does not like it"; fi
    ! grep -qi '<script\|javascript:\|onload' "$1" || bad "there is a script in it"
    head -n 1 "$1" | grep -q '^<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ' || bad "no viewBox"
    [ "$(wc -c <"$1")" -lt 1000000 ] || bad "$1 has $(wc -c <"$1") bytes"
    checks=$((checks + 1))
}

plan() { # words; makes a.svg and a.csv
    rm -f a.svg
    "$skein" plan "$@" --svg a.svg -o csv >a.csv || bad "skein plan $*"
    well_formed a.svg
}

column() { # name, class
    awk -F, -v name="$1" -v class="$2" '
        NR == 1 { for (i = 1; i <= NF; i++) if ($i == name) c = i; next }
        $1 == class { print $c }' a.csv
}

attribute() { sed -n "s/.*<g class=\"memory\".* data-$1=\"\([0-9]*\)\".*/\1/p" a.svg; }

commas() { # 1234567 -> 1,234,567
    awk -v n="$1" 'BEGIN { s = n ""; while (length(s) > 3) { out = "," substr(s, length(s) - 2) out
        s = substr(s, 1, length(s) - 3) } print s out }'
}

# Every chart of memory: its heap is the plan's, its peak is not above, the sentence adds up.
memory() { # ranks
    local class heap peak of ranks=0 n=0
    paste -d' ' <(attribute class) <(attribute heap) <(attribute peak) <(attribute ranks) >charts
    while read -r class heap peak of; do
        same "heap of class $class" "$heap" "$(column total_bytes "$class")"
        if [ "$peak" -gt "$heap" ] || [ "$peak" -le $((heap / 2)) ]; then bad "peak $peak of heap $heap"; fi
        grep -q "heap $(commas "$heap") B = peak $(commas "$peak") B + packing loss $(commas \
            $((heap - peak))) B" a.svg || bad "class $class: the sentence does not add up"
        ranks=$((ranks + of)) n=$((n + 1))
    done <charts
    [ "$n" -gt 0 ] || bad "no charts of memory"
    same "ranks of all charts" "$ranks" "$1"
}

tasks() { grep -c '<rect class="task ' a.svg; }
row() { # stage: the names of its tasks, in the order of time
    sed -n "/<g class=\"row\" data-stage=\"$1\"/,/<\/g>/p" a.svg |
        sed -n 's/.*class="task .*<title>\([FBIW][0-9.]*\):.*/\1/p' | tr '\n' ' '
}

# --- tasks: stages x chunks x micro-batches x (F and B, or F, I and W)

while read -r n layout; do
    plan "${small[@]}" layout="$layout"
    same "tasks of $layout" "$(tasks)" "$n"
    memory "$(awk -F, 'NR > 1 { n += $2 } END { print n }' a.csv)"
    bubble=$("$skein" simulate "${small[@]}" layout="$layout" --cluster unit -o csv |
        awk -F, '$1 == "all" { printf "%.1f", 100 * $8 / $5 }')
    grep -q ", bubble $bubble %" a.svg || bad "bubble of $layout is $bubble %, not in the title"
done <<'END'
2 dp=1
8 dp=2 micro=4
8 pp=2 micro=2
32 pp=4 micro=4 schedule=gpipe
32 pp=4 dp=2 tp=2 zero=1 micro=4
32 pp=2 micro=4 schedule=interleaved chunks=2
48 pp=4 micro=4 schedule=zb-h1
48 pp=2 micro=4 schedule=zb-v
32 pp=4 dp=2 zero=3 micro=4
8 pp=2 dp=2 tp=2 zero=2 micro=2 replica
END

printf 'F0 F1 B0 F2 B1 B2\nF0 I0 F1 F2 I1 W0 I2 W2 W1\n' >order.txt
plan "${small[@]}" layout="pp=2 micro=3 schedule=./order.txt"
same "stage 0" "$(row 0)" "F0 F1 B0 F2 B1 B2 "
same "stage 1" "$(row 1)" "F0 I0 F1 F2 I1 W0 I2 W2 W1 "

# One stage of 8 blocks: from 0 to 8 forward, to 24 backward.
plan "${small[@]}" layout=dp=1
grep -q '<title>F0: 0 units to 8 units</title>' a.svg || bad "F0 does not end at 8 units"
grep -q '<title>B0: 8 units to 24 units</title>' a.svg || bad "B0 does not end at 24 units"

# --- the line of the peak is one of the program

plan "${small[@]}" layout="dp=2 tp=2"
at=$(attribute at | head -n 1)
line=$(sed -n 's/.*<title>\( *'"$at"' .*\)<\/title>peak: .*/\1/p' a.svg | head -n 1 |
    sed 's/&lt;/</g;s/&gt;/>/g;s/&quot;/"/g;s/&amp;/\&/g')
[ -n "$line" ] || bad "no listing line for the peak at $at"
"$skein" explain "${small[@]}" layout="dp=2 tp=2" | grep -qF -- "$line" || bad "'$line' is not in the program"

# --- pieces: stored over tp, updated over tp and dp; every rank has one of each

plan "${small[@]}" layout="dp=2 tp=3 zero=1" --tensor wte
same "pieces of wte" "$(grep -c 'class="piece ' a.svg)" 9
same "boxes of ranks" "$(grep -c 'class="rank"' a.svg)" 6
sed -n 's/.*class="piece .*<title>.*: ranks* \([0-9 ]*\) (.*/\1/p' a.svg | tr ' ' '\n' | sort -n | uniq -c |
    awk '$1 != 2 || $2 != NR - 1 { bad = 1 } END { exit bad || NR != 6 }' || bad "pieces do not cover the ranks twice"
rows=$("$skein" explain "${small[@]}" layout="dp=2 tp=3 zero=1" --rank 0 | grep -o 'wte\[[0-9]*,' | head -n 1)
same "rows of rank 0" "wte[$(sed -n 's/.*<title>wte\[0:\([0-9]*\), 0:32\]: ranks 0 3 .*/\1/p' a.svg)," "$rows"
plan "${small[@]}" layout="tp=2" --tensor h.3.qkv.w
grep -q 'shards of h.3.qkv.w: ' a.svg || bad "not the tensor that was asked for"

# --- many ranks: a sample, and it says so

plan model=gpt2 layout="pp=4 dp=512 tp=4 zero=1 micro=128" train.batch=65536 --cluster h100-8
grep -q 'a sample: [0-9]* of 8192 ranks' a.svg || bad "a sample of the ranks is not called one"
grep -q 'a sample: the first and the last [0-9.]* % of the step' a.svg || bad "a part of the step is not called one"
grep -q 'a sample: 20 of 2048 down' a.svg || bad "a sample of the pieces is not called one"
grep -q '>host 0<' a.svg || bad "hosts of the cluster are not drawn"
full=$(awk -F, 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == "total_bytes") c = i; next }
                $c > most { most = $c } END { printf "%d", most }' a.csv)
attribute heap | grep -qx "$full" || bad "the fullest rank is not drawn"

# --- names are text: what would be a tag in them is written out

mkdir 'a<b>&"c'
cp order.txt 'a<b>&"c/order.txt'
plan "${small[@]}" layout='pp=2 micro=3 schedule=./a<b>&"c/order.txt'
grep -qF 'pipeline ./a&lt;b&gt;&amp;&quot;c/order.txt' a.svg || bad "a file's name is not written out"

# --- what goes wrong

fails() { # code, words, then options
    local code=$1 words=$2 rc=0
    shift 2
    "$skein" plan "${small[@]}" "$@" >out 2>err || rc=$?
    same "code of $*" "$rc" "$code"
    grep -qF -- "$words" err || bad "$*: '$(cat err)' does not say '$words'"
    [ ! -s out ] || bad "$*: words on standard output beside a failure"
}
fails 73 "cannot create the picture '/nowhere/a.svg'" --svg /nowhere/a.svg
fails 74 "cannot write the picture '/dev/full'" --svg /dev/full
fails 64 'did you mean "h.3.qkv.w"?' --svg b.svg --tensor h.3.qkv.v
fails 64 'none of this name; the first is "wte"' --svg b.svg --tensor zzzzzzzzzzzzzz
fails 64 'a tensor but none of them' --svg b.svg --tensor tokens
fails 64 'add --svg' --tensor wte
[ ! -e b.svg ] || bad "a picture was left behind by a failure"

echo "plan --svg: $checks checks"
[ "$checks" -gt 60 ]
