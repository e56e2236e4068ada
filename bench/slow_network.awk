# slow_network.awk - runs.csv of slow_network.sh as a picture: seconds to the loss over the rate of a link,
# both axes logarithmic, a line for each way, the mean of its seeds.  A way that did not reach the loss with
# every seed has no point at that rate.
#
#     awk -v loss=2.6 -f bench/slow_network.awk runs.csv >picture.svg
BEGIN {
    FS = ","
    left = 70; top = 40; wide = 520; high = 380
    split("#1f77b4 #ff7f0e #2ca02c #d62728 #9467bd #8c564b #e377c2 #7f7f7f #bcbd22 #17becf #000000 #aa5500", color, " ")
}
function bits(rate,    unit) {
    unit = rate
    sub(/^[0-9.]+/, "", unit)
    return rate * (unit == "kbit" ? 1e3 : unit == "mbit" ? 1e6 : 1e9)
}
function x_of(b) { return left + wide * (most > least ? log(b / least) / log(most / least) : 0.5) }
function y_of(s) { return top + high * (log(high_s / s) / log(high_s / low_s)) }
function text(x, y, anchor, what) {
    printf "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">%s</text>\n", x, y, anchor, what
}
NR > 1 {
    if (!($1 in way)) { way[$1] = ++n_ways; name[n_ways] = $1 }
    if (!($2 in at)) { at[$2] = ++n_rates; rate[n_rates] = $2 }
    k = $1 SUBSEP $2
    runs[k]++
    if ($6 != "-") { hits[k]++; sum[k] += $6 }
}
END {
    for (r = 1; r <= n_rates; r++) {
        b = bits(rate[r])
        if (r == 1 || b < least) least = b
        if (r == 1 || b > most) most = b
    }
    for (k in hits) {
        if (hits[k] < runs[k]) continue
        mean[k] = sum[k] / hits[k]
        if (!low_s || mean[k] < low_s) low_s = mean[k]
        if (mean[k] > high_s) high_s = mean[k]
    }
    if (!low_s) { print "slow_network.awk: no way reached the loss" >"/dev/stderr"; exit 1 }
    low_s /= 1.3; high_s *= 1.3
    printf "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" font-family=\"sans-serif\" font-size=\"12\">\n", left + wide + 250, top + high + 60
    print "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>"
    text(left, top - 18, "start", "seconds to a validation loss of " loss ", by the rate of a link")
    for (p = -3; p < 6; p++)
        for (m = 1; m < 10; m += m == 1 ? 1 : 3) {
            s = m * 10 ^ p
            if (s < low_s || s > high_s) continue
            printf "<path d=\"M%d %.1fh%d\" stroke=\"#ddd\"/>\n", left, y_of(s), wide
            text(left - 8, y_of(s) + 4, "end", s)
        }
    for (r = 1; r <= n_rates; r++) text(x_of(bits(rate[r])), top + high + 20, "middle", rate[r])
    printf "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"none\" stroke=\"#888\"/>\n", left, top, wide, high
    for (w = 1; w <= n_ways; w++) {
        points = ""
        for (r = 1; r <= n_rates; r++) {
            k = name[w] SUBSEP rate[r]
            if (!(k in mean)) continue
            points = points sprintf("%s%.1f %.1f", points ? "L" : "M", x_of(bits(rate[r])), y_of(mean[k]))
            printf "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\" fill=\"%s\"/>\n", x_of(bits(rate[r])), y_of(mean[k]), color[(w - 1) % 12 + 1]
        }
        if (points) printf "<path d=\"%s\" fill=\"none\" stroke=\"%s\" stroke-width=\"2\"/>\n", points, color[(w - 1) % 12 + 1]
        printf "<rect x=\"%d\" y=\"%d\" width=\"14\" height=\"4\" fill=\"%s\"/>\n", left + wide + 15, top + 18 * w - 6, color[(w - 1) % 12 + 1]
        text(left + wide + 36, top + 18 * w, "start", name[w] (points ? "" : " (not reached)"))
    }
    print "</svg>"
}
