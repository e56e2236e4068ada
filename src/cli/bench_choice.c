/* bench_choice.c - a table of choices and what they cost by the clock. */
#include "cli/bench_choice.h"
#include "base/strings.h"
#include "cli/argv.h"
#include "coll/execute.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const columns[] = {
    "op",      "bytes", "ranks", "hosts",   "chosen",     "chosen_us",      "predicted_us", "best",
    "best_us", "ratio", "noise", "fastest", "fastest_us", "pair_chosen_us", "pair_best_us"};
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

sk_coll_ask sk_choice_ask(sk_arena *a, sk_coll_kind kind, int n, const int *host_of, bool any_order)
{
    sk_coll_ask ask;
    int *ranks = sk_many(a, int, n);
    for (int i = 0; i < n; i++) ranks[i] = i;
    sk_coll_ask_for(kind, ranks, n, 0, 0, host_of, NULL, &ask);
    ask.any_order = any_order;
    return ask;
}

/* What may be timed under either name: a list, and not one of streams. */
static const sk_coll *list_of(const sk_coll_spec *s)
{
    const sk_coll *c = s->algorithm >= 0 ? sk_coll_parts[s->algorithm] : NULL;
    return c && c->build && !c->native && !c->packs ? c : NULL;
}

static bool same_steps(const sk_steps *l, const sk_steps *m)
{
    bool same = l->list.n == m->list.n && l->cells == m->cells;
    for (int i = 0; i < l->list.n && same; i++) {
        const sk_step *s = &l->list.v[i], *t = &m->list.v[i];
        same = s->act == t->act && s->round == t->round && s->peer == t->peer && s->n == t->n &&
               s->chunk == t->chunk;
    }
    return same;
}

bool sk_choice_same(const sk_coll_ask *ask, const sk_coll_spec *x, const sk_coll_spec *y)
{
    const sk_coll *c = list_of(x), *d = list_of(y);
    sk_coll_ask one = *ask, other = *ask;
    one.degrees = x->degrees;
    other.degrees = y->degrees;
    if (x->algorithm == y->algorithm && x->degrees == y->degrees) return true;
    bool same =
        c && d && c->adasum == d->adasum && sk_coll_order(c, &one) == sk_coll_order(d, &other);
    for (int me = 0; me < ask->n && same; me++) {
        sk_arena tmp = {0};
        sk_steps l, m;
        one.me = other.me = me;
        sk_steps_build(c, &one, &tmp, &l);
        sk_steps_build(d, &other, &tmp, &m);
        same = same_steps(&l, &m);
        sk_arena_end(&tmp);
    }
    return same;
}

static bool may_choose(const sk_coll_spec *s, const sk_coll_ask *ask)
{
    sk_coll_ask own = *ask;
    own.degrees = s->degrees;
    return s->algorithm == SK_BUILTIN ||
           sk_chosen_by_itself(sk_coll_parts[s->algorithm], &own, SK_SUM);
}

static sk_choice_row look(sk_arena *a, const sk_choice_times *t, int first)
{
    const sk_coll_spec *s = &t->spec[first];
    sk_choice_row r = {.chosen = -1, .best = -1, .fastest = -1};
    sk_coll_ask ask = sk_choice_ask(a, s->kind, s->n_ranks, t->host_of, t->any_order);
    int *ranks = sk_many(a, int, s->n_ranks);
    for (int i = 0; i < s->n_ranks; i++) ranks[i] = i;
    r.hosts = sk_hosts_count(ranks, s->n_ranks, t->host_of);
    sk_coll_spec chosen = {.algorithm =
                               sk_choose(t->costs, &ask, r.hosts, SK_SUM, s->bytes, &r.predicted)};
    chosen.degrees = ask.degrees;
    for (int i = first; i < t->n; i++) {
        if (!alike(&t->spec[i], s)) continue;
        double us = took(t, i);
        if (r.chosen < 0 && sk_choice_same(&ask, &t->spec[i], &chosen)) r.chosen = i;
        if (r.fastest < 0 || us < took(t, r.fastest)) r.fastest = i;
        if (may_choose(&t->spec[i], &ask) && (r.best < 0 || us < took(t, r.best))) r.best = i;
    }
    return r;
}

const char *sk_spec_name(sk_arena *a, const sk_coll_spec *s)
{
    char degrees[SK_DEGREES_TEXT];
    return sk_print(a, "%s%s", sk_algorithm_name(s->algorithm),
                    sk_degrees_print(s->degrees, degrees));
}

static void add_row(sk_table *out, const sk_choice_times *t, const sk_choice_row *r)
{
    sk_arena *a = out->arena;
    const sk_coll_spec *s = &t->spec[r->chosen];
    const char *cells[COLS] = {sk_coll_names[s->kind],
                               sk_print(a, "%lld", (long long)s->bytes),
                               sk_print(a, "%d", s->n_ranks),
                               sk_print(a, "%d", r->hosts),
                               sk_spec_name(a, s),
                               sk_print(a, "%.2f", 1e6 * took(t, r->chosen)),
                               sk_print(a, "%.2f", 1e6 * r->predicted),
                               sk_spec_name(a, &t->spec[r->best]),
                               sk_print(a, "%.2f", 1e6 * took(t, r->best)),
                               sk_print(a, "%.3f", r->ratio),
                               sk_print(a, "%.3f", r->noise),
                               sk_spec_name(a, &t->spec[r->fastest]),
                               sk_print(a, "%.2f", 1e6 * took(t, r->fastest)),
                               sk_print(a, "%.2f", 1e6 * r->pair[0]),
                               sk_print(a, "%.2f", 1e6 * r->pair[1])};
    sk_table_add(out, cells);
}

void sk_choice_pair(sk_choice_row *r, double (*turn)[3])
{
    double ratio[SK_CHOICE_PAIRS], order[SK_CHOICE_PAIRS], apart[SK_CHOICE_PAIRS];
    for (int i = 0; i < SK_CHOICE_PAIRS; i++) {
        double mean = (turn[i][0] + turn[i][2]) / 2;
        order[i] = ratio[i] = mean / turn[i][1];
        apart[i] = fabs(turn[i][0] - turn[i][2]) / mean;
    }
    r->ratio = sk_choice_median(order, SK_CHOICE_PAIRS);
    r->noise = 2 * sk_choice_median(apart, SK_CHOICE_PAIRS);
    for (int i = 0; i < SK_CHOICE_PAIRS; i++)
        if (ratio[i] <= r->ratio && ratio[i] >= r->ratio) {
            r->pair[0] = (turn[i][0] + turn[i][2]) / 2;
            r->pair[1] = turn[i][1];
        }
}

bool sk_choice_missed(const sk_choice_row *r)
{
    return r->ratio > SK_CHOICE_NEAR && r->ratio - 1 > r->noise;
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
    int near = 0, missed = 0;
    for (int i = 0; i < n; i++) {
        ratios[i] = rows[i].ratio;
        near += ratios[i] <= SK_CHOICE_NEAR;
        missed += sk_choice_missed(&rows[i]);
        add_row(&out, t, &rows[i]);
    }
    SK_TRY(sk_table_print(&out, format, stdout));
    if (!n)
        return sk_fail(SK_EUSAGE,
                       "bench: no algorithm is chosen by itself for these ranks and kinds");
    double middle = sk_choice_median(ratios, n);
    fprintf(format ? stderr : stdout,
            "chosen / best: median %.3f, worst %.3f, within 5 %% in %d of %d, off by more than "
            "noise in "
            "%d\n",
            middle, ratios[n - 1], near, n, missed);
    return SK_OK;
}
