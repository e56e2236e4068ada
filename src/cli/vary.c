/* vary.c - the rows of a what-if table. */
#include "cli/vary.h"
#include "base/strings.h"
#include "cli/picture.h"

#include <math.h>
#include <string.h>

/* --- rows --- */

static void place(const sk_vary *v, int row, int *at)
{
    for (int i = v->n; i-- > 0;) {
        at[i] = row % v->v[i].n;
        row /= v->v[i].n;
    }
}

/* Axes along which some row has exposed time; their names outlive the row's job. */
static void note_axes(sk_vary *v, sk_vary_step *s)
{
    for (int i = 0; i < SK_N_EXPOSED; i++) {
        int k = 0;
        if (s->exposed_by[i] <= 0) s->exposed_name[i] = NULL;
        if (!s->exposed_name[i]) continue;
        while (k < v->n_exposed && strcmp(v->exposed[k], s->exposed_name[i])) k++;
        if (k == SK_VARY_AXES) {
            s->exposed_name[i] = NULL;
            continue;
        }
        if (k == v->n_exposed) v->exposed[v->n_exposed++] = sk_strdup(v->arena, s->exposed_name[i]);
        s->exposed_name[i] = v->exposed[k];
    }
}

static sk_status simulate(sk_vary *v, sk_vary_row *r)
{
    sk_arena tmp = {0};
    sk_job *job = sk_new(&tmp, sk_job);
    sk_machine *m = sk_new(&tmp, sk_machine);
    sk_status st = sk_vary_job(&tmp, v, r, job, m);
    if (!st) st = sk_vary_step_of(&tmp, job, m, &r->step);
    if (!st) note_axes(v, &r->step);
    if (st) r->refused = sk_strdup(v->arena, sk_error_line());
    sk_arena_end(&tmp);
    return st;
}

static double each_rank(const sk_vary_row *r)
{
    return r->step.tokens / r->step.seconds / r->step.ranks;
}

static bool same_line(const sk_vary *v, const sk_vary_row *r, const sk_vary_row *q)
{
    for (int i = 1; i < v->n; i++)
        if (r->at[i] != q->at[i]) return false;
    return true;
}

static void compare(const sk_vary *v, sk_vary_row *r)
{
    const sk_vary_row *first = v->rows;
    while (first->refused || !same_line(v, r, first)) first++;
    r->efficiency = each_rank(r) / each_rank(first);
}

static sk_status fill(sk_vary *v)
{
    sk_status first = SK_OK;
    bool any = false;
    v->rows = sk_many(v->arena, sk_vary_row, v->n_rows);
    for (int i = 0; i < v->n_rows; i++) {
        place(v, i, v->rows[i].at);
        sk_status st = simulate(v, &v->rows[i]);
        any |= !st;
        if (!i) first = st;
    }
    if (!any) return sk_fail(first, "no row has a step; the first: %s", v->rows[0].refused);
    for (int i = 0; i < v->n_rows; i++)
        if (!v->rows[i].refused) compare(v, &v->rows[i]);
    return SK_OK;
}

const char *sk_vary_line(sk_arena *a, const sk_vary *v, const sk_vary_row *r)
{
    sk_out o = {.arena = a};
    for (int i = 1; i < v->n; i++)
        sk_out_add(&o, "%s%s=%s", o.n ? " " : "", v->v[i].name, v->v[i].values[r->at[i]]);
    return sk_or_empty(o.s);
}

/* --- the table --- */

/* What would have to change first: the memory, or where most of the time goes. */
static const char *bound_of(const sk_vary_step *s)
{
    if (!s->fits) return "memory";
    if (s->busy >= fmax(s->exposed, s->bubble)) return "work";
    return s->exposed >= s->bubble ? "communication" : "bubble";
}

static const char *const measures[] = {"ranks",       "step_s",     "tok_s_rank", "mfu",
                                       "exposed_pct", "bubble_pct", "mem_bytes",  "fits",
                                       "bound",       "usd_mtok"};
enum {
    MEASURES = sizeof measures / sizeof *measures,
    COLS = SK_VARY_NAMES + MEASURES + SK_VARY_AXES + 4
};

/* Are ranks one of the names?  Then they are no measure. */
static bool has_ranks(const sk_vary *v)
{
    for (int i = 0; i < v->n; i++)
        if (v->v[i].kind == SK_VARY_RANKS) return true;
    return false;
}

static int head_of(const sk_vary *v, const char **head)
{
    int c = 0;
    for (int i = 0; i < v->n; i++) head[c++] = v->v[i].name;
    for (int i = has_ranks(v); i < MEASURES; i++) head[c++] = measures[i];
    if (v->scaling) head[c++] = "efficiency";
    for (int i = 0; i < v->n_exposed; i++)
        head[c++] = sk_print(v->arena, "exposed_%s_pct", v->exposed[i]);
    if (v->machine->topology.jitter.draws) head[c++] = "step_p50_s", head[c++] = "step_p99_s";
    head[c++] = "refused";
    return c;
}

/* Per cent of the step; a layout without that axis has none. */
static const char *exposed_cell(const sk_vary *v, const sk_vary_step *s, const char *name)
{
    for (int i = 0; i < SK_N_EXPOSED; i++)
        if (s->exposed_name[i] && !strcmp(s->exposed_name[i], name))
            return sk_print(v->arena, "%.4g", 100 * s->exposed_by[i] / s->seconds);
    return "0";
}

static void add_step(const sk_vary *v, const sk_vary_row *r, const char **cell)
{
    sk_arena *a = v->arena;
    const sk_vary_step *s = &r->step;
    if (!has_ranks(v)) *cell++ = sk_print(a, "%d", s->ranks);
    *cell++ = sk_print(a, "%.9g", s->seconds);
    *cell++ = sk_print(a, "%.6g", each_rank(r));
    *cell++ = sk_print(a, "%.4g", s->mfu);
    *cell++ = sk_print(a, "%.4g", 100 * s->exposed / s->seconds);
    *cell++ = sk_print(a, "%.4g", 100 * s->bubble / s->seconds);
    *cell++ = sk_print(a, "%lld", (long long)s->bytes);
    *cell++ = s->fits ? "yes" : "no";
    *cell++ = bound_of(s);
    *cell++ = s->dollars > 0 ? sk_print(a, "%.4g", s->dollars) : "";
    if (v->scaling) *cell++ = sk_print(a, "%.4g", r->efficiency);
    for (int i = 0; i < v->n_exposed; i++) *cell++ = exposed_cell(v, s, v->exposed[i]);
    if (!v->machine->topology.jitter.draws) return;
    *cell++ = sk_print(a, "%.9g", s->jitter.median);
    *cell++ = sk_print(a, "%.9g", s->jitter.p99);
}

static void add_row(const sk_vary *v, sk_table *t, const sk_vary_row *r)
{
    const char *cells[COLS] = {0};
    for (int i = 0; i < v->n; i++) cells[i] = v->v[i].values[r->at[i]];
    if (r->refused) cells[t->n_cols - 1] = r->refused;
    else add_step(v, r, cells + v->n);
    sk_table_add(t, cells);
}

static sk_status table(const sk_vary *v, const char *format)
{
    const char *head[COLS];
    sk_table t = {.arena = v->arena, .head = head, .n_cols = head_of(v, head)};
    for (int i = 0; i < v->n_rows; i++) add_row(v, &t, &v->rows[i]);
    return sk_table_print(&t, format, stdout);
}

/* --- the command --- */

static sk_status read_scaling(sk_vary *v, const char *text)
{
    v->scaling = text != NULL;
    v->weak = text && !strcmp(text, "weak");
    if (text && !v->weak && strcmp(text, "strong"))
        return sk_fail(SK_EUSAGE, "command line: --scaling %.40s; strong or weak is needed", text);
    for (int i = 0; i < v->n; i++)
        if (v->weak && !strcmp(v->v[i].key, "train.batch"))
            return sk_fail(SK_EUSAGE,
                           "command line: --scaling weak says train.batch of each row; "
                           "leave %s out of --vary",
                           v->v[i].name);
    return SK_OK;
}

static sk_status read(sk_vary *v, const sk_conf_rest *rest)
{
    for (int i = 0; i < rest->n_given; i++)
        if (!strcmp(rest->given[i].name, "vary")) SK_TRY(sk_vary_read(v, rest->given[i].value));
    SK_TRY(read_scaling(v, sk_conf_option(rest, "scaling")));
    v->n_rows = 1;
    for (int i = 0; i < v->n; i++) {
        if (v->n_rows * v->v[i].n > SK_VARY_ROWS)
            return sk_fail(SK_EUSAGE,
                           "command line: --vary makes more than %d rows; fewer values are needed",
                           SK_VARY_ROWS);
        v->n_rows *= v->v[i].n;
    }
    return SK_OK;
}

/* Before rows are simulated for minutes. */
static sk_status check_picture(const sk_vary *v, const char *svg)
{
    int lines = v->n_rows / v->v[0].n;
    if (lines > SK_SHEET_COLOURS)
        return sk_fail(SK_EUSAGE,
                       "command line: --svg draws a line for each choice of all names but the "
                       "first, %s; %d lines are too many, at most %d can be told apart",
                       v->v[0].name, lines, SK_SHEET_COLOURS);
    return sk_picture_place(svg);
}

sk_status sk_vary_print(sk_arena *a, int argc, char **argv, const sk_job *job,
                        const sk_machine *machine, const sk_conf_rest *rest)
{
    sk_vary *v = sk_new(a, sk_vary);
    const char *svg = sk_conf_option(rest, "svg");
    *v = (sk_vary){.arena = a,
                   .argc = argc,
                   .argv = argv,
                   .options = rest->options,
                   .job = job,
                   .machine = machine};
    SK_TRY(read(v, rest));
    if (svg) SK_TRY(check_picture(v, svg));
    SK_TRY(fill(v));
    if (svg) SK_TRY(sk_vary_draw(v, svg));
    return table(v, sk_conf_option(rest, "o"));
}
