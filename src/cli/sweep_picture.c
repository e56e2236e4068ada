/* sweep_picture.c - loss against the key with the most values, on a terminal or as SVG.
 *
 * Points are groups: means over seeds.  Points that agree in all other keys are one series, with a
 * letter or colour of its own; if there are too many of these, as with --random, all are one. */
#include "cli/sweep.h"
#include "base/file_io.h"
#include "cli/picture.h"

#include <math.h>
#include <string.h>

enum { WIDE = 60, HIGH = 14, MOST_SERIES = SK_SHEET_COLOURS };

typedef struct dot {
    double x, y, sd;
    int series;
    const char *label;
} dot;

typedef struct plot {
    const sk_sweep *s;
    int axis;
    const char *of; /* what y is */
    dot *v;
    int n;
    const char *series[MOST_SERIES];
    int n_series;
    bool log_x, lines;     /* lines: points of a series differ in the key alone */
    double x0, x1, y0, y1; /* ends */
} plot;

/* ---- what is drawn */

static bool number_of(const sk_sweep_job *j, int axis, double *x)
{
    return sk_read_real(j->values[axis], x) && isfinite(*x);
}

/* Different numbers that the key has among the groups; 0: one of them is no number. */
static int n_numbers(const sk_sweep_groups *g, int axis)
{
    int n = 0;
    for (int i = 0; i < g->n; i++) {
        int k = 0;
        double x;
        if (!number_of(g->v[i].v[0], axis, &x)) return 0;
        while (k < i && strcmp(g->v[k].v[0]->values[axis], g->v[i].v[0]->values[axis])) k++;
        n += k == i;
    }
    return n;
}

static int choose_axis(const sk_sweep *s, const sk_sweep_groups *g)
{
    int best = -1, most = 1, seeds = sk_sweep_axis(s, "train.seed");
    for (int i = 0; i < s->axes.n; i++) {
        int n = i == seeds ? 0 : n_numbers(g, i);
        if (n > most) most = n, best = i;
    }
    return best;
}

static int series_of(plot *p, const char *label)
{
    for (int i = 0; i < p->n_series; i++)
        if (!strcmp(p->series[i], label)) return i;
    if (p->n_series == MOST_SERIES) return -1;
    p->series[p->n_series] = label;
    return p->n_series++;
}

static void set_ends(plot *p)
{
    p->x0 = p->y0 = INFINITY;
    p->x1 = p->y1 = -INFINITY;
    for (int i = 0; i < p->n; i++) {
        p->x0 = fmin(p->x0, p->v[i].x), p->x1 = fmax(p->x1, p->v[i].x);
        p->y0 = fmin(p->y0, p->v[i].y), p->y1 = fmax(p->y1, p->v[i].y);
    }
    p->log_x = p->x0 > 0 && p->x1 >= 8 * p->x0;
}

/* False: no key has two numbers among jobs that are done. */
static bool make(sk_sweep *s, const sk_sweep_groups *g, plot *p)
{
    bool apart = true;
    *p = (plot){.s = s, .axis = choose_axis(s, g), .of = g->by_val ? "val" : "loss"};
    if (p->axis < 0) return false;
    p->v = sk_many(s->arena, dot, g->n);
    for (int i = 0; i < s->jobs.n; i++) /* series in the order of the command line */
        series_of(p, sk_sweep_label(s, &s->jobs.v[i], p->axis));
    for (int i = 0; i < g->n; i++) {
        dot d = {.y = sk_sweep_score(g, i), .sd = g->by_val ? g->v[i].val_sd : g->v[i].loss_sd};
        if (!isfinite(d.y) || !number_of(g->v[i].v[0], p->axis, &d.x)) continue;
        d.label = sk_sweep_label(s, g->v[i].v[0], p->axis);
        d.series = series_of(p, d.label);
        apart &= d.series >= 0;
        p->v[p->n++] = d;
    }
    p->lines = apart && 2 * p->n_series <= p->n;
    if (!p->lines) {
        for (int i = 0; i < p->n; i++) p->v[i].series = 0;
        p->n_series = 1;
        p->series[0] = "";
    }
    set_ends(p);
    return p->n > 1 && p->x1 > p->x0;
}

static double place_x(const plot *p, double x) /* 0 to 1 */
{
    if (p->log_x) return log(x / p->x0) / log(p->x1 / p->x0);
    return (x - p->x0) / (p->x1 - p->x0);
}

static double place_y(const plot *p, double y)
{
    return p->y1 > p->y0 ? (y - p->y0) / (p->y1 - p->y0) : 0.5;
}

/* ---- on a terminal */

void sk_sweep_draw(sk_sweep *s, const sk_sweep_groups *g, FILE *to)
{
    plot p;
    char cell[HIGH][WIDE + 1];
    if (!make(s, g, &p)) return;
    for (int r = 0; r < HIGH; r++) memset(cell[r], ' ', WIDE), cell[r][WIDE] = 0;
    for (int i = 0; i < p.n; i++) {
        int c = (int)lround(place_x(&p, p.v[i].x) * (WIDE - 1));
        int r = (int)lround((1 - place_y(&p, p.v[i].y)) * (HIGH - 1));
        char mark = p.n_series == 1 ? '*' : (char)('a' + p.v[i].series), *at = &cell[r][c];
        *at = *at == ' ' || *at == mark ? mark : '+';
    }
    fprintf(to, "\n%s against %s%s\n", p.of, s->axes.v[p.axis].key,
            p.log_x ? " (logarithmic)" : "");
    for (int r = 0; r < HIGH; r++) {
        const char *y = r && r < HIGH - 1 ? "" : sk_print(s->arena, "%.4f", r ? p.y0 : p.y1);
        int end = WIDE;
        while (end && cell[r][end - 1] == ' ') end--;
        fprintf(to, "%10s |%.*s\n", y, end, cell[r]);
    }
    const char *left = sk_print(s->arena, "%.6g", p.x0), *right = sk_print(s->arena, "%.6g", p.x1);
    fprintf(to, "%10s +%.*s\n%11s%s%*s\n", "", WIDE,
            "------------------------------------------------------------", "", left,
            WIDE + 1 - (int)strlen(left), right);
    for (int i = 0; i < p.n_series && p.n_series > 1; i++)
        fprintf(to, "%10s %c  %s\n", "", 'a' + i, p.series[i]);
}

/* ---- as SVG */

enum { LEFT = 80, TOP = 50, PLOT_WIDE = 560, PLOT_HIGH = 320, LINE = 18 };

static double svg_x(const plot *p, double x) { return LEFT + PLOT_WIDE * place_x(p, x); }
static double svg_y(const plot *p, double y) { return TOP + PLOT_HIGH * (1 - place_y(p, y)); }

static void put_frame(const plot *p, sk_out *o, int high)
{
    const char *key = sk_sheet_text(p->s->arena, p->s->axes.v[p->axis].key, 60);
    sk_out_add(o,
               "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
               "font-family=\"sans-serif\" font-size=\"12\">\n"
               "<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n"
               "<text x=\"%d\" y=\"26\" font-size=\"14\">%s against %s%s</text>\n"
               "<path d=\"M%d %dV%dH%d\" fill=\"none\" stroke=\"#888\"/>\n",
               LEFT + PLOT_WIDE + 40, high, LEFT, p->of, key, p->log_x ? " (logarithmic)" : "",
               LEFT - 8, TOP, TOP + PLOT_HIGH + 8, LEFT + PLOT_WIDE);
    for (int i = 0; i <= 4; i++) {
        double y = p->y0 + (p->y1 - p->y0) * i / 4;
        double x = p->log_x ? p->x0 * pow(p->x1 / p->x0, i / 4.0) : p->x0 + (p->x1 - p->x0) * i / 4;
        sk_out_add(o, "<text x=\"%d\" y=\"%.0f\" text-anchor=\"end\">%.4g</text>\n", LEFT - 14,
                   TOP + PLOT_HIGH * (1 - i / 4.0) + 4, y);
        sk_out_add(o, "<text x=\"%.0f\" y=\"%d\" text-anchor=\"middle\">%.3g</text>\n",
                   LEFT + PLOT_WIDE * i / 4.0, TOP + PLOT_HIGH + 26, x);
    }
}

/* The next point of the series to the right of x; NULL: none.  Points come in no order. */
static const dot *next_dot(const plot *p, int series, double x)
{
    const dot *best = NULL;
    for (int i = 0; i < p->n; i++)
        if (p->v[i].series == series && p->v[i].x > x && (!best || p->v[i].x < best->x))
            best = &p->v[i];
    return best;
}

static void put_series(const plot *p, sk_out *o, int k)
{
    const char *colour = sk_sheet_colours[k];
    const dot *d = next_dot(p, k, -INFINITY);
    sk_out_add(o, "<path d=\"");
    for (const char *pen = "M"; d && p->lines; d = next_dot(p, k, d->x), pen = "L")
        sk_out_add(o, "%s%.1f %.1f", pen, svg_x(p, d->x), svg_y(p, d->y));
    sk_out_add(o, "\" fill=\"none\" stroke=\"%s\" stroke-width=\"1.5\"/>\n", colour);
    for (int i = 0; i < p->n; i++) {
        d = &p->v[i];
        if (d->series != k) continue;
        double x = svg_x(p, d->x), y = svg_y(p, d->y);
        if (isfinite(d->sd))
            sk_out_add(o, "<path d=\"M%.1f %.1fV%.1f\" stroke=\"%s\"/>\n", x,
                       svg_y(p, d->y - d->sd), svg_y(p, d->y + d->sd), colour);
        sk_out_add(o,
                   "<circle class=\"job\" cx=\"%.1f\" cy=\"%.1f\" r=\"4\" fill=\"%s\" "
                   "stroke=\"#222\" stroke-width=\".6\"><title>%.6g: %.6g %s</title></circle>\n",
                   x, y, colour, d->x, d->y, sk_sheet_text(p->s->arena, d->label, 200));
    }
}

sk_status sk_sweep_svg(sk_sweep *s, const sk_sweep_groups *g, const char *path)
{
    plot p;
    sk_out o = {.arena = s->arena};
    if (!make(s, g, &p))
        return sk_fail(SK_EDATA, "sweep: no picture: two jobs that are done, with two numbers of "
                                 "one key, are needed");
    int legend = p.n_series > 1 ? p.n_series : 0, below = TOP + PLOT_HIGH + 56;
    put_frame(&p, &o, below + LINE * legend);
    for (int k = 0; k < p.n_series; k++) put_series(&p, &o, k);
    for (int k = 0; k < legend; k++)
        sk_out_add(&o,
                   "<circle cx=\"%d\" cy=\"%d\" r=\"4\" fill=\"%s\" stroke=\"#222\" "
                   "stroke-width=\".6\"/><text x=\"%d\" y=\"%d\">%s</text>\n",
                   LEFT, below + LINE * k - 8, sk_sheet_colours[k], LEFT + 12, below + LINE * k - 4,
                   sk_sheet_text(s->arena, p.series[k], 90));
    sk_out_add(&o, "</svg>\n");
    return sk_file_replace(path, o.s, o.n);
}
