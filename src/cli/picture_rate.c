/* picture_rate.c - the curve of a range test on a sheet. */
#include "cli/picture_rate.h"
#include "cli/picture.h"

#include <math.h>

enum { LEFT = 80, RIGHT = SK_SHEET_WIDE - 30, TOP = 90, BOTTOM = 520, TICKS = 5 };

typedef struct axes {
    sk_sheet *s;
    double from, to;  /* logarithms of rates */
    double low, high; /* losses */
} axes;

static double across(const axes *x, double lr)
{
    return LEFT + (RIGHT - LEFT) * (log10(lr) - x->from) / (x->to - x->from);
}

static double down(const axes *x, double loss)
{
    double y = BOTTOM - (BOTTOM - TOP) * (loss - x->low) / (x->high - x->low);
    return y < TOP ? TOP : y > BOTTOM ? BOTTOM : y; /* what diverges is at the top */
}

/* The first loss and what lies below it fill the picture: a loss that diverges would flatten it. */
static axes measure(sk_sheet *s, const sk_range_curve *c, const sk_range_advice *d)
{
    double low = d->smooth[d->lowest], first = c->v[0].loss;
    axes x = {s, log10(c->v[0].lr), log10(c->v[c->n - 1].lr), low, first};
    for (int i = 0; i <= d->lowest; i++) x.low = fmin(x.low, c->v[i].loss);
    double room = fmax(0.1 * (first - x.low), 1e-6 * (1 + fabs(first)));
    x.low -= room;
    x.high += 2 * room;
    if (x.to <= x.from) x.to = x.from + 1;
    return x;
}

static void decades(const axes *x)
{
    for (int e = (int)ceil(x->from - 1e-9); e <= (int)floor(x->to + 1e-9); e++) {
        double at = across(x, pow(10, e));
        sk_out_add(&x->s->out,
                   "<line class=\"line\" x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%d\" "
                   "stroke-opacity=\".35\"/><text x=\"%.1f\" y=\"%d\" "
                   "text-anchor=\"middle\">1e%d</text>\n",
                   at, TOP, at, BOTTOM, at, BOTTOM + 18, e);
    }
}

static void heights(const axes *x)
{
    for (int i = 0; i <= TICKS; i++) {
        double loss = x->low + (x->high - x->low) * i / TICKS, y = down(x, loss);
        sk_out_add(&x->s->out,
                   "<line class=\"line\" x1=\"%d\" y1=\"%.1f\" x2=\"%d\" y2=\"%.1f\" "
                   "stroke-opacity=\".35\"/><text x=\"%d\" y=\"%.1f\" "
                   "text-anchor=\"end\">%.4g</text>\n",
                   LEFT, y, RIGHT, y, LEFT - 8, y + 4, loss);
    }
}

static void points(const axes *x, const sk_range_curve *c, const double *smooth)
{
    sk_out *o = &x->s->out;
    for (int i = 0; i < c->n; i++)
        sk_out_add(o,
                   "<circle class=\"loss\" cx=\"%.1f\" cy=\"%.1f\" r=\"2.2\" fill=\"%s\" "
                   "data-lr=\"%.9g\" data-loss=\"%.9g\"/>\n",
                   across(x, c->v[i].lr), down(x, c->v[i].loss), sk_sheet_colours[0], c->v[i].lr,
                   c->v[i].loss);
    sk_out_add(o, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"2\" points=\"",
               sk_sheet_colours[3]);
    for (int i = 0; i < c->n; i++)
        sk_out_add(o, "%.1f,%.1f ", across(x, c->v[i].lr), down(x, smooth[i]));
    sk_out_add(o, "\"/>\n");
}

static void mark(const axes *x, double lr, int row, const char *word)
{
    double at = across(x, lr);
    if (at < LEFT || at > RIGHT) return;
    sk_out_add(&x->s->out,
               "<line class=\"line\" x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%d\" "
               "stroke-dasharray=\"4 3\"/><text class=\"mark\" x=\"%.1f\" "
               "y=\"%d\">%s %.3g</text>\n",
               at, TOP, at, BOTTOM, at + 5, TOP + 14 + 16 * row, word, lr);
}

sk_status sk_picture_rate(sk_arena *a, const char *title, const sk_range_curve *c,
                          const sk_range_advice *d, const char *path)
{
    sk_sheet s = {.arena = a, .out = {.arena = a}};
    axes x = measure(&s, c, d);
    sk_sheet_title(&s, title);
    sk_sheet_note(&s, "loss of each step, and smoothed, over the learning rate");
    decades(&x);
    heights(&x);
    points(&x, c, d->smooth);
    if (d->falls) {
        mark(&x, c->v[d->lowest].lr, 0, "lowest");
        mark(&x, c->v[d->steepest].lr, 1, "steepest");
        mark(&x, c->v[d->lowest].lr / 10, 2, "a tenth");
    }
    s.y = BOTTOM + 20;
    return sk_sheet_save(&s, path);
}
