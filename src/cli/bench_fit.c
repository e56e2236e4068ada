/* bench_fit.c - a table of times and of what two fitted models say of them. */
#include "cli/bench_fit.h"
#include "base/strings.h"
#include "cli/argv.h"
#include "cli/bench_choice.h"
#include "coll/choose.h"
#include "plan/price_fit.h"

#include <math.h>
#include <stdlib.h>

static const char *const columns[] = {"op", "bytes",         "ranks",    "algorithm",
                                      "us", "alpha_beta_us", "loggp_us", "start_us"};
enum { COLS = sizeof columns / sizeof *columns };
static const double POOR = 0.5; /* of the times, in the median */

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Sends in the first round of the members' lists, mean. */
static double first_sends(sk_arena *a, const sk_coll_spec *s)
{
    int sends = 0;
    sk_coll_ask ask = {.kind = s->kind, .n = s->n_ranks, .degrees = s->degrees};
    sk_mark mark = sk_arena_mark(a);
    for (ask.me = 0; ask.me < ask.n; ask.me++) {
        sk_steps l;
        sk_steps_build(sk_coll_parts[s->algorithm], &ask, a, &l);
        for (int i = 0; i < l.list.n && l.list.v[i].round == l.list.v[0].round; i++)
            sends += l.list.v[i].act == SK_STEP_SEND;
    }
    sk_arena_back(a, mark);
    return (double)sends / ask.n;
}

/* o: what START takes of a core for each of its messages, median over the points of least bytes. */
static double overhead(sk_arena *a, const sk_fit_times *t)
{
    double *v = sk_many(a, double, t->n + 1);
    int64_t least = t->spec[0].bytes;
    int n = 0;
    for (int i = 0; i < t->n; i++)
        if (t->spec[i].bytes < least) least = t->spec[i].bytes;
    for (int i = 0; i < t->n; i++) {
        double sends = first_sends(a, &t->spec[i]);
        if (t->spec[i].bytes == least && sends > 0) v[n++] = t->time[i].start / sends;
    }
    qsort(v, (size_t)n, sizeof *v, by_size);
    return n ? v[n / 2] : 0;
}

static void add_rows(sk_table *out, const sk_fit_times *t, const sk_fit_point *v, const sk_fit *f,
                     const sk_fit *g)
{
    sk_arena *a = out->arena;
    for (int i = 0; i < t->n; i++) {
        const sk_coll_spec *s = &t->spec[i];
        const char *cells[COLS] = {sk_coll_names[s->kind],
                                   sk_print(a, "%lld", (long long)s->bytes),
                                   sk_print(a, "%d", s->n_ranks),
                                   sk_spec_name(a, s),
                                   sk_print(a, "%.2f", 1e6 * v[i].seconds),
                                   sk_print(a, "%.2f", 1e6 * sk_fit_said(f, false, &v[i])),
                                   sk_print(a, "%.2f", 1e6 * sk_fit_said(g, true, &v[i])),
                                   sk_print(a, "%.2f", 1e6 * t->time[i].start)};
        sk_table_add(out, cells);
    }
}

static void show_error(sk_arena *a, FILE *to, const sk_fit_times *t, const sk_fit *f)
{
    const sk_coll_spec *s = &t->spec[f->worst_at];
    fprintf(to, "; off by %.1f %% in the median, %.1f %% at worst (%s of %lld bytes by %s)\n",
            100 * f->median, 100 * f->worst, sk_coll_names[s->kind], (long long)s->bytes,
            sk_spec_name(a, s));
}

static double over(double x, double y) { return y > 0 ? x / y : 0; }

static void show_numbers(sk_arena *a, FILE *to, const sk_fit_times *t, const sk_fit *f,
                         const sk_fit *g)
{
    const double *x = f->number, *y = g->number;
    fprintf(to, "alpha-beta: alpha %.4g us, each %.4g us, %.4g MB/s, incast %.3g, adds %.4g MB/s",
            1e6 * x[SK_LOGGP_LATENCY], 1e6 * x[SK_LOGGP_OVERHEAD], over(1e-6, x[SK_LOGGP_BYTE]),
            over(x[SK_LOGGP_INCAST], x[SK_LOGGP_BYTE]), over(1e-6, x[SK_LOGGP_SUM]));
    show_error(a, to, t, f);
    fprintf(to,
            "LogGP: L %.4g us, o %.4g us, g %.4g us, 1/G %.4g MB/s, incast %.3g, adds %.4g MB/s",
            1e6 * y[SK_LOGGP_LATENCY], 1e6 * y[SK_LOGGP_OVERHEAD], 1e6 * y[SK_LOGGP_GAP],
            over(1e-6, y[SK_LOGGP_BYTE]), over(y[SK_LOGGP_INCAST], y[SK_LOGGP_BYTE]),
            over(1e-6, y[SK_LOGGP_SUM]));
    show_error(a, to, t, g);
}

/* What the file says of its numbers; where they are poor, so does the command. */
static char *tell_error(sk_arena *a, const sk_fit *g)
{
    char *text = sk_print(a,
                          "links fitted to times by skein bench coll --fit, off by %.1f %% in the "
                          "median and %.1f %% at worst",
                          100 * g->median, 100 * g->worst);
    if (g->median <= POOR) return text;
    fprintf(stderr,
            "skein: warning: LogGP is off by %.1f %% in the median: these times say little about "
            "links; ranks on cores of their own, larger --sizes and more --seconds are needed\n",
            100 * g->median);
    return sk_print(a, "%s: too much to predict by", text);
}

sk_status sk_fit_show(sk_arena *a, const sk_fit_times *t, const char *format, sk_machine *m)
{
    sk_table out = {.arena = a, .head = columns, .n_cols = COLS};
    sk_fit_point *v = sk_many(a, sk_fit_point, t->n + 1);
    sk_fit f, g;
    for (int i = 0; i < t->n; i++)
        v[i] = (sk_fit_point){
            t->spec[i].algorithm,
            {.kind = t->spec[i].kind, .n = t->spec[i].n_ranks, .degrees = t->spec[i].degrees},
            t->spec[i].bytes,
            t->time[i].median,
            t->between ? m->costs.between.burst : 0};
    SK_TRY(sk_fit_alpha_beta(a, v, t->n, &f));
    SK_TRY(sk_fit_loggp(a, v, t->n, overhead(a, t), &g));
    add_rows(&out, t, v, &f, &g);
    SK_TRY(sk_table_print(&out, format, stdout));
    show_numbers(a, format ? stderr : stdout, t, &f, &g);
    const double *y = g.number;
    if (y[SK_LOGGP_BYTE] <= 0)
        return sk_fail(SK_EUSAGE, "bench: times do not grow with bytes, so links have no rate; "
                                  "larger --sizes are needed");
    *(t->between ? &m->costs.between : &m->costs.inside) =
        (sk_link){.alpha = y[SK_LOGGP_LATENCY],
                  .beta = y[SK_LOGGP_BYTE],
                  .each = y[SK_LOGGP_OVERHEAD],
                  .incast = y[SK_LOGGP_INCAST] / y[SK_LOGGP_BYTE],
                  .burst = t->between ? m->costs.between.burst : 0,
                  .gap = y[SK_LOGGP_GAP]};
    if (y[SK_LOGGP_SUM] > 0) m->costs.gamma = y[SK_LOGGP_SUM];
    m->doc = tell_error(a, &g);
    return SK_OK;
}
