/* picture_vary.c - the step, or with --scaling the rate of the job, against the first name of a
 * what-if table: a line for each choice of the others, values at equal distances. */
#include "cli/vary.h"
#include "cli/picture.h"

#include <math.h>
#include <string.h>

enum { LEFT = 90, RIGHT = SK_SHEET_WIDE - 30, TOP = 90, BOTTOM = 480, TICKS = 5 };

typedef struct plot {
    const sk_vary *v;
    sk_sheet sheet;
    int n_lines;
    double high;
} plot;

static const sk_vary_row *row_of(const plot *p, int line, int x)
{
    return &p->v->rows[x * p->n_lines + line];
}

static double rate(const sk_vary_step *s) { return s->tokens / s->seconds; }

static double height(const plot *p, const sk_vary_row *r)
{
    return p->v->scaling ? rate(&r->step) : r->step.seconds;
}

/* With the ideal of scaling, which may lie above. */
static double highest(const plot *p, const sk_vary_row *r)
{
    double y = height(p, r);
    return p->v->scaling ? y / fmin(r->efficiency, 1) : y;
}

static double across(const plot *p, int x)
{
    int n = p->v->v[0].n;
    return LEFT + 20 + (RIGHT - LEFT - 40) * (n > 1 ? (double)x / (n - 1) : 0.5);
}

static double down(const plot *p, double y) { return BOTTOM - (BOTTOM - TOP) * y / p->high; }

static void frame(plot *p)
{
    sk_out *o = &p->sheet.out;
    const sk_variable *x = &p->v->v[0];
    for (int i = 0; i <= TICKS; i++) {
        double y = p->high * i / TICKS;
        sk_out_add(o,
                   "<line class=\"line\" x1=\"%d\" y1=\"%.1f\" x2=\"%d\" y2=\"%.1f\" "
                   "stroke-opacity=\".35\"/><text x=\"%d\" y=\"%.1f\" "
                   "text-anchor=\"end\">%.4g</text>\n",
                   LEFT, down(p, y), RIGHT, down(p, y), LEFT - 8, down(p, y) + 4, y);
    }
    for (int i = 0; i < x->n; i++)
        sk_out_add(o, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%s</text>\n", across(p, i),
                   BOTTOM + 18, sk_sheet_text(p->sheet.arena, x->values[i], 20));
}

/* Where every rank does as much as those of the first row of its line. */
static void ideal(plot *p, int line, const char *colour)
{
    sk_out *o = &p->sheet.out;
    sk_out_add(o,
               "<polyline class=\"ideal\" fill=\"none\" stroke=\"%s\" stroke-dasharray=\"4 3\" "
               "points=\"",
               colour);
    for (int x = 0; x < p->v->v[0].n; x++) {
        const sk_vary_row *r = row_of(p, line, x);
        if (r->refused) continue;
        double y = rate(&r->step) / r->efficiency;
        sk_out_add(o, "%.1f,%.1f ", across(p, x), down(p, y));
    }
    sk_out_add(o, "\"/>\n");
}

static void draw_line(plot *p, int line)
{
    const char *colour = sk_sheet_colours[line];
    sk_out *o = &p->sheet.out;
    sk_out_add(o, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"2\" points=\"", colour);
    for (int x = 0; x < p->v->v[0].n; x++)
        if (!row_of(p, line, x)->refused)
            sk_out_add(o, "%.1f,%.1f ", across(p, x), down(p, height(p, row_of(p, line, x))));
    sk_out_add(o, "\"/>\n");
    for (int x = 0; x < p->v->v[0].n; x++) {
        const sk_vary_row *r = row_of(p, line, x);
        if (r->refused) continue;
        sk_out_add(o,
                   "<circle class=\"row\" cx=\"%.1f\" cy=\"%.1f\" r=\"4\" fill=\"%s\" "
                   "stroke=\"%s\" data-y=\"%.9g\"/>\n",
                   across(p, x), down(p, height(p, r)), r->step.fits ? colour : "none",
                   r->step.fits ? "#222" : colour, height(p, r));
    }
    if (p->v->scaling) ideal(p, line, colour);
}

static void keys(plot *p)
{
    int x = SK_SHEET_LEFT;
    p->sheet.y = BOTTOM + 45;
    for (int i = 0; i < p->n_lines && p->n_lines > 1; i++) {
        if (x > RIGHT - 200) p->sheet.y += 18, x = SK_SHEET_LEFT;
        x = sk_sheet_key(&p->sheet, x, sk_sheet_colours[i],
                         sk_vary_line(p->sheet.arena, p->v, row_of(p, i, 0)));
    }
}

sk_status sk_vary_draw(const sk_vary *v, const char *path)
{
    plot p = {.v = v, .sheet = {.arena = v->arena, .out = {.arena = v->arena}}};
    p.n_lines = v->n_rows / v->v[0].n;
    sk_assert(p.n_lines <= SK_SHEET_COLOURS); /* sk_vary_print has refused more */
    for (int i = 0; i < v->n_rows; i++)
        if (!v->rows[i].refused) p.high = fmax(p.high, 1.05 * highest(&p, &v->rows[i]));
    sk_sheet_title(&p.sheet,
                   sk_print(v->arena, "%s · %s against %s", v->job->model_name,
                            v->scaling ? "tokens a second" : "seconds of a step", v->v[0].name));
    sk_sheet_note(&p.sheet, v->scaling ? "dashed: every rank as fast as in the first row; hollow: "
                                         "does not fit; values at equal distances"
                                       : "hollow: does not fit; values at equal distances");
    frame(&p);
    for (int i = 0; i < p.n_lines; i++) draw_line(&p, i);
    keys(&p);
    return sk_sheet_save(&p.sheet, path);
}
