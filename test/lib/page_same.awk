# page_same.awk - is what a command said what the page says?  For test/doc/commands.sh.
#
#     awk -v page=PAGE -v first=LINE -v new=FILE [-v renew=1] -f page_same.awk RULES WANT GOT
#
# The two are laid side by side with the fewest differences.  A line "..." of the page is any number
# of lines; with the rule "more" any lines may stand anywhere.  What a rule says varies is the same everywhere; numbers with a point are the same within what
# "within" says.  Prints the lines that differ and exits 1; into NEW goes what the page should
# say: its own line where that is good, else the program's; with renew the program's wherever there is one.

function plain(s,    k) {
    sub(/[ \t\r]+$/, "", s)
    for (k = 1; k <= n_varies; k++) gsub(varies[k], "#", s)
    if (n_varies || more) gsub(/  +/, " ", s)
    return s
}

function near(a, b,    x, y, d, number) {
    number = "[0-9]+\\.[0-9]+(e[-+]?[0-9]+)?"
    while (match(a, number)) {
        x = substr(a, RSTART, RLENGTH)
        d = substr(a, 1, RSTART - 1)
        a = substr(a, RSTART + RLENGTH)
        if (!match(b, number) || d != substr(b, 1, RSTART - 1)) return 0
        y = substr(b, RSTART, RLENGTH)
        b = substr(b, RSTART + RLENGTH)
        d = x - y
        if ((d < 0 ? -d : d) > within * (x > y ? x : y)) return 0
    }
    return a == b
}

function same(i, j) { return p[i] == q[j] || (within && near(p[i], q[j])) }

function change(i, j,    a, b) { # one line for another; less than the loss of a line, least if both begin alike
    a = p[i]
    b = q[j]
    sub(/^ +/, "", a)
    sub(/^ +/, "", b)
    sub(/ .*/, "", a)
    sub(/ .*/, "", b)
    return a == b ? 0.9 : more ? 1.1 : 0.95
}

function least(c, by) { if (c < best) { best = c; how = by } }

function keep(s) { out[++n_out] = s }

# The least cost of laying the first i lines of the page beside the first j of the program, and how.
function lay(    i, j) {
    for (i = 0; i <= n; i++)
        for (j = 0; j <= m; j++) {
            best = i + j ? 1e9 : 0
            if (i && want[i] ~ /^ *\.\.\.$/) {
                least(cost[i - 1, j], "none")
                if (j) least(cost[i, j - 1], "any")
            } else {
                if (i && j && same(i, j)) least(cost[i - 1, j - 1], "same")
                else if (i && j) least(cost[i - 1, j - 1] + change(i, j), "other")
                if (i) least(cost[i - 1, j] + 1, "less")
                if (j && more) least(cost[i, j - 1], "any")
                else if (j) least(cost[i, j - 1] + 1, "more")
            }
            cost[i, j] = best
            way[i, j] = how
        }
}

# The way back: what differs, and what the page should say.
function tell(    i, j, k, w, said) {
    i = n
    j = m
    while (i || j) {
        w = way[i, j]
        if (w == "none" || w == "same") keep(w == "same" && renew ? got[j] : want[i])
        else if (w != "any") {
            said[++k] = page ":" first + i - 1 (w == "more" ? ", behind it\n" : "\n")
            said[k] = said[k] "    page     " (w == "more" ? "nothing" : want[i]) "\n"
            said[k] = said[k] "    program  " (w == "less" ? "nothing" : got[j])
            if (w != "less") keep(got[j])
        }
        if (w != "any" && w != "more") i--
        if (w != "none" && w != "less") j--
    }
    for (; k; k--) print said[k]
}

FILENAME == ARGV[1] {
    if ($1 == "varies") varies[++n_varies] = substr($0, 8)
    if ($1 == "more") more = 1
    if ($1 == "within") within = $2 + 0
    if ($1 == "instead") renew = 0
    next
}
FILENAME == ARGV[2] { want[++n] = $0; p[n] = plain($0); next }
{ got[++m] = $0; q[m] = plain($0) }

END {
    n += 0 # numbers, also when there was no line
    m += 0
    lay()
    tell()
    printf "" >new
    for (i = n_out; i; i--) print out[i] >new
    exit (cost[n, m] > 0)
}
