/* sweep_results.c - final losses of jobs, means over seeds, and the tables of them. */
#include "cli/sweep.h"
#include "base/file_io.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_COLUMNS = 80 };

const char *sk_sweep_number(sk_arena *a, double x)
{
    return isfinite(x) ? sk_print(a, "%.6g", x) : "";
}

double sk_sweep_sd(const double *x, int n, double *mean)
{
    double sum = 0, squares = 0;
    for (int i = 0; i < n; i++) sum += x[i];
    *mean = n ? sum / n : NAN;
    for (int i = 0; i < n; i++) squares += (x[i] - *mean) * (x[i] - *mean);
    return n > 1 ? sqrt(squares / (n - 1)) : NAN;
}

const char *sk_sweep_label(const sk_sweep *s, const sk_sweep_job *j, int but)
{
    sk_out o = {.arena = s->arena};
    int seeds = sk_sweep_axis(s, "train.seed");
    for (int i = 0; i < s->axes.n; i++)
        if (i != but && i != seeds)
            sk_out_add(&o, "%s%s=%s", o.n ? " " : "", sk_sweep_short(s, i), j->values[i]);
    return o.n ? o.s : "";
}

/* ---- groups */

static bool same_group(const sk_sweep *s, const sk_sweep_job *x, const sk_sweep_job *y, int seeds)
{
    for (int i = 0; i < s->axes.n; i++)
        if (i != seeds && strcmp(x->values[i], y->values[i])) return false;
    return true;
}

static void add_to_group(sk_sweep *s, sk_sweep_groups *g, sk_sweep_job *j, int seeds)
{
    int k = 0;
    while (k < g->n && !same_group(s, g->v[k].v[0], j, seeds)) k++;
    if (k == g->n)
        g->v[g->n++] = (sk_sweep_group){.v = sk_many(s->arena, sk_sweep_job *, s->jobs.n)};
    g->v[k].v[g->v[k].n++] = j;
}

static void widen(sk_sweep_span *x, double value, bool first)
{
    if (first || value < x->least) x->least = value;
    if (first || value > x->most) x->most = value;
}

/* Of a job that is not done: how far it came. */
static void set_extent(sk_sweep_group *g)
{
    double seconds = 0, tokens = 0;
    int n = 0;
    for (int i = 0; i < g->n; i++) {
        const sk_sweep_job *j = g->v[i];
        if (g->n_done && !sk_sweep_done(j)) continue;
        const sk_curve_point *end =
            j->curve.train.n ? &j->curve.train.v[j->curve.train.n - 1] : NULL;
        if (!end) continue;
        widen(&g->step_span, (double)end->step, !n);
        widen(&g->token_span, end->tokens, !n);
        tokens += end->tokens;
        seconds += end->seconds;
        n++;
    }
    g->tokens = n ? tokens / n : 0;
    g->seconds = n ? seconds / n : 0;
}

static void set_means(sk_sweep *s, sk_sweep_group *g)
{
    double *loss = sk_many(s->arena, double, g->n), *val = sk_many(s->arena, double, g->n);
    int n = 0;
    for (int i = 0; i < g->n; i++) {
        if (!sk_sweep_done(g->v[i])) continue;
        loss[n] = g->v[i]->loss;
        val[n++] = g->v[i]->val;
    }
    g->n_done = n;
    g->loss_sd = sk_sweep_sd(loss, n, &g->loss);
    g->val_sd = sk_sweep_sd(val, n, &g->val);
    set_extent(g);
}

double sk_sweep_score(const sk_sweep_groups *g, int i)
{
    return g->by_val ? g->v[i].val : g->v[i].loss;
}

static double order_of(const sk_sweep_group *g, bool by_val)
{
    double x = by_val ? g->val : g->loss;
    return isfinite(x) ? x : INFINITY;
}

/* Few groups, and equal ones stay in the order of the command line. */
static void sort(sk_sweep_groups *g)
{
    for (int i = 1; i < g->n; i++) {
        sk_sweep_group x = g->v[i];
        int k = i;
        for (; k && order_of(&g->v[k - 1], g->by_val) > order_of(&x, g->by_val); k--)
            g->v[k] = g->v[k - 1];
        g->v[k] = x;
    }
}

sk_sweep_groups sk_sweep_group_jobs(sk_sweep *s)
{
    sk_sweep_groups g = {.v = sk_many(s->arena, sk_sweep_group, s->jobs.n), .by_val = true};
    int seeds = sk_sweep_axis(s, "train.seed");
    for (int i = 0; i < s->jobs.n; i++) {
        sk_sweep_job *j = &s->jobs.v[i];
        add_to_group(s, &g, j, seeds);
        if (sk_sweep_done(j) && !j->curve.val.n) g.by_val = false;
    }
    for (int i = 0; i < g.n; i++) set_means(s, &g.v[i]);
    sort(&g);
    return g;
}

/* ---- tables */

typedef struct row {
    const char *v[MOST_COLUMNS];
    int n;
} row;

static void put(row *r, const char *cell)
{
    if (r->n < MOST_COLUMNS) r->v[r->n++] = cell;
}

static sk_table make(sk_sweep *s, const row *head)
{
    const char **names = sk_many(s->arena, const char *, head->n);
    memcpy(names, head->v, (size_t)head->n * sizeof *names);
    return (sk_table){.arena = s->arena, .head = names, .n_cols = head->n};
}

static void put_keys(const sk_sweep *s, row *r, const sk_sweep_job *j, int but)
{
    for (int i = 0; i < s->axes.n; i++)
        if (i != but) put(r, j ? j->values[i] : s->axes.v[i].key);
}

/* "10", or "10..14" of jobs that differ. */
static const char *print_span(sk_arena *a, sk_sweep_span x)
{
    if (x.least == x.most) return sk_print(a, "%.0f", x.most);
    return sk_print(a, "%.0f..%.0f", x.least, x.most);
}

static void put_extent(sk_arena *a, row *r, sk_sweep_span steps, sk_sweep_span tokens,
                       double seconds)
{
    put(r, print_span(a, steps));
    put(r, print_span(a, tokens));
    put(r, sk_print(a, "%.3f", seconds));
}

/* What the group is: done, or what the first job that is not done is. */
static const sk_sweep_job *speaker(const sk_sweep_group *g)
{
    for (int i = 0; i < g->n; i++)
        if (!sk_sweep_done(g->v[i])) return g->v[i];
    return g->v[0];
}

static const char *spread(sk_arena *a, double sd)
{
    return isfinite(sd) ? sk_print(a, "%.2g", sd) : "";
}

static void put_group(sk_sweep *s, const sk_sweep_group *g, int seeds, bool why, row *r)
{
    sk_arena *a = s->arena;
    const sk_sweep_job *says = speaker(g);
    put_keys(s, r, g->v[0], seeds);
    if (seeds >= 0) put(r, sk_print(a, "%d/%d", g->n_done, g->n));
    put(r, sk_sweep_number(a, g->loss));
    if (seeds >= 0) put(r, spread(a, g->loss_sd));
    put(r, sk_sweep_number(a, g->val));
    if (seeds >= 0) put(r, spread(a, g->val_sd));
    put_extent(a, r, g->step_span, g->token_span, g->seconds);
    put(r, sk_sweep_state(says));
    if (why) put(r, says->why);
}

/* Nothing went wrong: no column of reasons. */
static bool has_why(const sk_sweep *s)
{
    for (int i = 0; i < s->jobs.n; i++)
        if (*s->jobs.v[i].why) return true;
    return false;
}

sk_table sk_sweep_table(sk_sweep *s, const sk_sweep_groups *g, bool all)
{
    int seeds = sk_sweep_axis(s, "train.seed");
    bool why = all || has_why(s);
    row head = {.n = 0};
    put_keys(s, &head, NULL, seeds);
    static const char *const one[] = {"loss", "val", "steps", "tokens", "seconds", "state", "why"};
    static const char *const many[] = {"seeds", "loss",   "loss_sd", "val",   "val_sd",
                                       "steps", "tokens", "seconds", "state", "why"};
    for (int i = 0; i < (seeds < 0 ? 7 : 10); i++) put(&head, seeds < 0 ? one[i] : many[i]);
    if (!why) head.n--;
    sk_table t = make(s, &head);
    for (int i = 0; i < g->n; i++) {
        row r = {.n = 0};
        put_group(s, &g->v[i], seeds, why, &r);
        sk_table_add(&t, r.v);
    }
    return t;
}

static void put_job(sk_sweep *s, const sk_sweep_job *j, row *r)
{
    sk_arena *a = s->arena;
    sk_curve_point end =
        j->curve.train.n ? j->curve.train.v[j->curve.train.n - 1] : (sk_curve_point){0};
    double steps = (double)end.step;
    put(r, j->name);
    put_keys(s, r, j, -1);
    put(r, sk_sweep_number(a, j->loss));
    put(r, sk_sweep_number(a, j->val));
    put_extent(a, r, (sk_sweep_span){steps, steps}, (sk_sweep_span){end.tokens, end.tokens},
               end.seconds);
    put(r, sk_sweep_state(j));
    put(r, j->why);
}

sk_status sk_sweep_csv(sk_sweep *s)
{
    static const char *const rest[] = {"loss", "val", "steps", "tokens", "seconds", "state", "why"};
    row head = {.n = 0};
    char *text = NULL;
    size_t n = 0;
    put(&head, "job");
    put_keys(s, &head, NULL, -1);
    for (int i = 0; i < 7; i++) put(&head, rest[i]);
    sk_table t = make(s, &head);
    for (int i = 0; i < s->jobs.n; i++) {
        row r = {.n = 0};
        put_job(s, &s->jobs.v[i], &r);
        sk_table_add(&t, r.v);
    }
    FILE *to = open_memstream(&text, &n);
    if (!to) return sk_fail(SK_EIO, "jobs.csv: %s", strerror(errno));
    sk_status st = sk_table_print(&t, "csv", to);
    if (fclose(to)) st = sk_fail(SK_EIO, "jobs.csv: %s", strerror(errno));
    if (!st) st = sk_file_replace(sk_print(s->arena, "%s/jobs.csv", s->dir), text, n);
    free(text);
    return st;
}

sk_table sk_sweep_plan(sk_sweep *s, bool all)
{
    row head = {.n = 0};
    bool why = all || has_why(s);
    put(&head, "job");
    put_keys(s, &head, NULL, -1);
    put(&head, "state");
    if (why) put(&head, "why");
    sk_table t = make(s, &head);
    for (int i = 0; i < s->jobs.n; i++) {
        const sk_sweep_job *j = &s->jobs.v[i];
        row r = {.n = 0};
        put(&r, j->name);
        put_keys(s, &r, j, -1);
        put(&r, sk_sweep_state(j));
        if (why) put(&r, j->why);
        sk_table_add(&t, r.v);
    }
    return t;
}
