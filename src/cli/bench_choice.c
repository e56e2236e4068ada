/* bench_choice.c - a table of choices and what they cost by the clock. */
#include "cli/bench_choice.h"
#include "base/strings.h"
#include "cli/argv.h"
#include "coll/execute.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const columns[] = {
    "op",   "bytes",   "ranks", "hosts",   "chosen",     "chosen_us",      "predicted_us",
    "best", "best_us", "ratio", "fastest", "fastest_us", "pair_chosen_us", "pair_best_us"};
enum { COLS = sizeof columns / sizeof *columns };

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double sk_choice_median(double *v, int n)
{
    qsort(v, (size_t)n, sizeof *v, by_size);
    return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

/* Of a point, over its turns. */
static double took(const sk_choice_times *t, int point)
{
    double v[SK_CHOICE_TURNS];
    for (int i = 0; i < SK_CHOICE_TURNS; i++) v[i] = t->time[i * t->n + point].median;
    return sk_choice_median(v, SK_CHOICE_TURNS);
}

static bool alike(const sk_coll_spec *x, const sk_coll_spec *y)
{
    return x->kind == y->kind && x->bytes == y->bytes;
}

static bool may_choose(const sk_coll_spec *s, bool any_order)
{
    return s->algorithm == SK_BUILTIN ||
           sk_chosen_by_itself(sk_coll_parts[s->algorithm],
                               &(sk_coll_ask){.kind = s->kind, .any_order = any_order}, SK_SUM);
}

static sk_choice_row look(sk_arena *a, const sk_choice_times *t, int first)
{
    const sk_coll_spec *s = &t->spec[first];
    sk_choice_row r = {.chosen = -1, .best = -1, .fastest = -1};
    sk_coll_ask ask;
    int *ranks = sk_many(a, int, s->n_ranks);
    for (int i = 0; i < s->n_ranks; i++) ranks[i] = i;
    sk_coll_ask_for(s->kind, ranks, s->n_ranks, 0, 0, t->host_of, NULL, &ask);
    ask.any_order = t->any_order;
    r.hosts = sk_hosts_count(ranks, s->n_ranks, t->host_of);
    int chosen = sk_choose(t->costs, &ask, r.hosts, SK_SUM, s->bytes, &r.predicted);
    for (int i = first; i < t->n; i++) {
        if (!alike(&t->spec[i], s)) continue;
        double us = took(t, i);
        if (t->spec[i].algorithm == chosen) r.chosen = i;
        if (r.fastest < 0 || us < took(t, r.fastest)) r.fastest = i;
        if (may_choose(&t->spec[i], t->any_order) && (r.best < 0 || us < took(t, r.best)))
            r.best = i;
    }
    return r;
}

static void add_row(sk_table *out, const sk_choice_times *t, const sk_choice_row *r)
{
    sk_arena *a = out->arena;
    const sk_coll_spec *s = &t->spec[r->chosen];
    const char *cells[COLS] = {sk_coll_names[s->kind],
                               sk_print(a, "%lld", (long long)s->bytes),
                               sk_print(a, "%d", s->n_ranks),
                               sk_print(a, "%d", r->hosts),
                               sk_algorithm_name(s->algorithm),
                               sk_print(a, "%.2f", 1e6 * took(t, r->chosen)),
                               sk_print(a, "%.2f", 1e6 * r->predicted),
                               sk_algorithm_name(t->spec[r->best].algorithm),
                               sk_print(a, "%.2f", 1e6 * took(t, r->best)),
                               sk_print(a, "%.3f", r->ratio),
                               sk_algorithm_name(t->spec[r->fastest].algorithm),
                               sk_print(a, "%.2f", 1e6 * took(t, r->fastest)),
                               sk_print(a, "%.2f", 1e6 * r->pair[0]),
                               sk_print(a, "%.2f", 1e6 * r->pair[1])};
    sk_table_add(out, cells);
}

void sk_choice_pair(sk_choice_row *r, double (*turn)[2])
{
    double ratio[SK_CHOICE_TURNS];
    for (int i = 0; i < SK_CHOICE_TURNS; i++) ratio[i] = turn[i][0] / turn[i][1];
    r->ratio = sk_choice_median(ratio, SK_CHOICE_TURNS);
    for (int i = 0; i < SK_CHOICE_TURNS; i++)
        if (turn[i][0] / turn[i][1] <= r->ratio && turn[i][0] / turn[i][1] >= r->ratio)
            memcpy(r->pair, turn[i], sizeof r->pair);
}

int sk_choice_rows(sk_arena *a, const sk_choice_times *t, sk_choice_row **rows)
{
    int n = 0;
    *rows = sk_many(a, sk_choice_row, t->n + 1);
    for (int i = 0; i < t->n; i++) {
        int before = 0;
        while (before < i && !alike(&t->spec[before], &t->spec[i])) before++;
        if (before < i) continue;
        sk_choice_row r = look(a, t, i);
        if (r.chosen < 0) continue;
        r.pair[0] = took(t, r.chosen);
        r.pair[1] = took(t, r.best);
        r.ratio = r.pair[0] / r.pair[1];
        (*rows)[n++] = r;
    }
    return n;
}

sk_status sk_choice_show(sk_arena *a, const sk_choice_times *t, const sk_choice_row *rows, int n,
                         const char *format)
{
    sk_table out = {.arena = a, .head = columns, .n_cols = COLS};
    double *ratios = sk_many(a, double, n + 1);
    int near = 0;
    for (int i = 0; i < n; i++) {
        ratios[i] = rows[i].ratio;
        near += ratios[i] <= 1.05;
        add_row(&out, t, &rows[i]);
    }
    SK_TRY(sk_table_print(&out, format, stdout));
    if (!n)
        return sk_fail(SK_EUSAGE,
                       "bench: no algorithm is chosen by itself for these ranks and kinds");
    double middle = sk_choice_median(ratios, n);
    fprintf(format ? stderr : stdout,
            "chosen / best: median %.3f, worst %.3f, within 5 %% in %d of %d\n", middle,
            ratios[n - 1], near, n);
    return SK_OK;
}
