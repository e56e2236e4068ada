# page_read.awk - takes a page of Markdown apart, for test/doc/commands.sh, whose head is the manual.
#
#     awk -v dir=DIR -f page_read.awk PAGE
#
# Into DIR: said.N and want.N, a command and its output; rule.N, how to compare them; file.N, a block that
# is saved; list, what there is, a line each with tabs between: kind, N, line of the page, first and
# last line of the output, and a value (needs, the file's name, a reason); wrong, what is wrong with
# the page itself; inline, commands and files within sentences.  Kinds: run, works (the output is not shown), table,
# skip, file, test, text.

function wrong(at, what) { print at ": " what >(dir "/wrong") }

function item(kind, at, first, last, value) {
    print kind "\t" n "\t" at "\t" first "\t" last "\t" value >(dir "/list")
}

function marker(text,    key, value) {
    sub(/^<!-- */, "", text)
    sub(/ *-->.*$/, "", text)
    key = value = text
    sub(/:.*/, "", key)
    sub(/^[^:]*: */, "", value)
    if (key !~ /^(needs|not run|instead|with|works|output of|varies|within|more|file|test|text)$/ || text !~ /^[^:]+: *./) {
        wrong(NR, "an unknown marker: " text)
    } else if (key == "varies") {
        varies[++n_varies] = value
    } else {
        mark[key] = value
    }
    marked = NR
}

function forget(    k) {
    if (marked && !taken) wrong(marked, "a marker that no code block follows")
    for (k in mark) delete mark[k]
    n_varies = marked = taken = 0
}

# A code block: lines 1 to n_block, the first of them is line begin of the page.
function block(    i, kind, kinds) {
    if (!n_block) return
    taken = 1
    kind = "run"
    for (i in mark)
        if (i ~ /^(not run|works|output of|file|test|text)$/) { kind = i == "not run" ? "skip" : i; kinds++ }
    if (kinds > 1) wrong(begin, "two kinds of block are said to be here")
    if (kind == "output of") {
        table()
    } else if (kind == "file" || kind == "test" || kind == "text") {
        n++
        item(kind, begin, 0, 0, mark[kind])
        if (kind == "file")
            for (i = 1; i <= n_block; i++) print line[i] >(dir "/file." n)
        if (n_varies) wrong(begin, "what varies is said of a block without commands")
    } else if (line[1] !~ /^\$ / && kind == "run") {
        wrong(begin, "a code block that is neither run nor marked: " line[1])
    } else {
        commands(kind)
    }
    n_block = blanks = 0
    forget()
}

function table(    i) {
    n++
    print mark["output of"] >(dir "/said." n)
    for (i = 1; i <= n_block; i++) print line[i] >(dir "/want." n)
    rules()
    item("table", begin, begin, begin + n_block - 1, mark["needs"])
}

# Where its output is not shown a command needs no "$ ", and is a line, with those that go on after a backslash.
function begins(i, kind) {
    return i == 1 || line[i] ~ /^\$ / || (kind == "works" && line[i - 1] !~ /\\$/)
}

function commands(kind,    i, said, out, at, first) {
    for (i = 1; i <= n_block; i++) {
        if (begins(i, kind)) {
            if (said) item(kind, at, first, begin + i - 2, value_of(kind))
            said = dir "/said." (++n)
            want = dir "/want." n
            printf "" >want
            rules()
            at = begin + i - 1
            first = at + 1
            out = 0
            print ("instead" in mark) ? mark["instead"] : command(line[i]) >said
        } else if (line[i] ~ /^> / && !out && !("instead" in mark)) {
            print substr(line[i], 3) >said
            first = begin + i
        } else if (kind == "works" || (kind == "skip" && line[1] !~ /^\$ /)) {
            print command(line[i]) >said
        } else {
            out = 1
            print line[i] >want
        }
    }
    item(kind, at, first, begin + n_block - 1, value_of(kind))
}

# A line of a command, with what "with" adds at its end.
function command(s) {
    sub(/^\$ /, "", s)
    return s ("with" in mark && s !~ /\\$/ ? " " mark["with"] : "")
}

function value_of(kind) { return kind == "skip" ? mark["not run"] : mark["needs"] }

function rules(    i, k, seen) {
    printf "" >(dir "/rule." n)
    for (k = 1; k <= n_varies; k++) {
        seen = 0
        for (i = 1; i <= n_block; i++) seen = seen || line[i] ~ varies[k]
        if (!seen) wrong(begin, "nothing here is like /" varies[k] "/, which is said to vary")
        print "varies " varies[k] >(dir "/rule." n)
    }
    if ("instead" in mark) print "instead" >(dir "/rule." n)
    if ("more" in mark) print "more" >(dir "/rule." n)
    if ("within" in mark) print "within " mark["within"] >(dir "/rule." n)
}

# Within sentences, between backquotes: commands, which begin with skein, and files of the tree.
function paragraph(    span) {
    while (match(prose, /`[^`]*`/)) {
        span = substr(prose, RSTART + 1, RLENGTH - 2)
        prose = substr(prose, RSTART + RLENGTH)
        gsub(/\\\|/, "|", span)
        if (span ~ /^skein [a-z]/ || span ~ /^(src|parts|test|tools|doc|example|bench|module|cmake|include)\/[a-z0-9_.\/-]+$/)
            print from "\t" span >(dir "/inline")
    }
    prose = ""
}

BEGIN { printf "" >(dir "/list"); printf "" >(dir "/wrong"); printf "" >(dir "/inline") }

fenced && /^```/ { fenced = 0; block(); next }
fenced { line[++n_block] = $0; next }
/^```/ { block(); paragraph(); fenced = 1; begin = NR + 1; next }

/^\|/ && ("output of" in mark) {
    if (!n_block) begin = NR
    line[++n_block] = $0
    next
}
/^    / && (n_block || blank) {
    paragraph()
    if (!n_block) begin = NR
    for (; n_block && blanks; blanks--) line[++n_block] = ""
    line[++n_block] = substr($0, 5)
    blanks = 0
    next
}
/^[ \t]*$/ { blanks++; blank = 1; paragraph(); next }
{ block(); blanks = 0 }
/^<!--/ { paragraph(); if (taken) forget(); marker($0); blank = 1; next }
{
    if (marked) forget()
    blank = /^#/
    if (prose == "") from = NR
    prose = prose (prose == "" ? "" : " ") $0
}
END { block(); paragraph(); forget() }
