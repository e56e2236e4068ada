/* sweep_fit.c - scaling laws over the jobs of a sweep: points, the law, and what it predicts.
 *
 * N are all parameters of the model, D the tokens that were trained on.  Of jobs that have both in
 * common the best counts: a law is about models that were trained well. */
#include "cli/sweep.h"
#include "plan/scaling_law.h"
#include "train/setup.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { DRAWS = 200, DRAW_SEED = 1, MOST_WORDS = 64 };

typedef struct fit {
    sk_sweep *s;
    sk_law_point *p;
    const char **label; /* of each point */
    int n;
    sk_law law, *draws;
    int n_draws;
    double at[2];      /* N and D of the prediction */
    bool asked;        /* for one */
    sk_law_point held; /* the job of that size, which the law is not fitted to; loss 0: none */
    sk_table t;
} fit;

/* ---- points */

static sk_status count_params(const sk_job *job, double *out)
{
    sk_arena a = {0};
    sk_setup *setup = sk_new(&a, sk_setup);
    sk_status st = sk_setup_layout(&a, job, setup);
    if (!st) *out = (double)setup->n_params;
    sk_arena_end(&a);
    return st;
}

static bool smaller(const sk_law_point *x, const sk_law_point *y)
{
    return x->n != y->n ? x->n < y->n : x->d < y->d;
}

/* By size, small ones first. */
static void insert(fit *f, sk_law_point p, const char *label)
{
    int k = f->n++;
    for (; k && smaller(&p, &f->p[k - 1]); k--) {
        f->p[k] = f->p[k - 1];
        f->label[k] = f->label[k - 1];
    }
    f->p[k] = p;
    f->label[k] = label;
}

/* Groups come with the best first: a later one with the same N and D is worse. */
static sk_status collect(fit *f, const sk_sweep_groups *g)
{
    f->p = sk_many(f->s->arena, sk_law_point, g->n + 1);
    f->label = sk_many(f->s->arena, const char *, g->n + 1);
    for (int i = 0; i < g->n; i++) {
        const sk_sweep_group *x = &g->v[i];
        sk_law_point p = {.d = x->tokens, .loss = sk_sweep_score(g, i)};
        int k = 0;
        if (!x->n_done || !isfinite(p.loss)) continue;
        SK_TRY(count_params(x->v[0]->job, &p.n));
        while (k < f->n && (f->p[k].n != p.n || f->p[k].d != p.d)) k++;
        if (k == f->n) insert(f, p, sk_sweep_label(f->s, x->v[0], -1));
    }
    return SK_OK;
}

/* Parameters, tokens, or both: what the points differ in. */
static sk_law_kind kind_of(const fit *f)
{
    bool n = false, d = false;
    for (int i = 1; i < f->n; i++) {
        n |= f->p[i].n != f->p[0].n;
        d |= f->p[i].d != f->p[0].d;
    }
    return n && d ? SK_LAW_ND : d ? SK_LAW_D : SK_LAW_N;
}

static sk_status show_points(const fit *f)
{
    static const char *const head[] = {"params", "tokens",  "6ND", "loss",
                                       "fitted", "off_pct", "keys"};
    sk_arena *a = f->s->arena;
    sk_table t = {.arena = a, .head = head, .n_cols = 7};
    for (int i = 0; i < f->n; i++) {
        const sk_law_point *p = &f->p[i];
        double fitted = sk_law_loss(&f->law, p->n, p->d);
        const char *cells[] = {sk_print(a, "%.0f", p->n),
                               sk_print(a, "%.0f", p->d),
                               sk_print(a, "%.4g", 6 * p->n * p->d),
                               sk_print(a, "%.6g", p->loss),
                               sk_print(a, "%.6g", fitted),
                               sk_print(a, "%.2f", 100 * (fitted / p->loss - 1)),
                               f->label[i]};
        sk_table_add(&t, cells);
    }
    return sk_table_print(&t, NULL, stdout);
}

/* ---- numbers with an interval */

static int ascending(const void *x, const void *y)
{
    double p = *(const double *)x, q = *(const double *)y;
    return (p > q) - (p < q);
}

typedef double quantity(const sk_law *l, const double *at);

/* A row: the value of the law, and 95 % of its draws. */
static void add(fit *f, const char *name, quantity *of, const double *at)
{
    sk_arena *a = f->s->arena;
    double *x = sk_many(a, double, f->n_draws + 1);
    bool known = 2 * f->n_draws > DRAWS; /* or most sets of points have no law at all */
    for (int i = 0; i < f->n_draws; i++) x[i] = of(&f->draws[i], at);
    qsort(x, (size_t)f->n_draws, sizeof *x, ascending);
    int cut = f->n_draws / 40;
    const char *cells[] = {name, sk_print(a, "%.5g", of(&f->law, at)),
                           known ? sk_print(a, "%.5g", x[cut]) : "",
                           known ? sk_print(a, "%.5g", x[f->n_draws - 1 - cut]) : ""};
    sk_table_add(&f->t, cells);
}

static double get_e(const sk_law *l, const double *at) { return (void)at, l->e; }
static double get_a(const sk_law *l, const double *at) { return (void)at, l->a; }
static double get_alpha(const sk_law *l, const double *at) { return (void)at, l->alpha; }
static double get_b(const sk_law *l, const double *at) { return (void)at, l->b; }
static double get_beta(const sk_law *l, const double *at) { return (void)at, l->beta; }
static double get_share(const sk_law *l, const double *at)
{
    return (void)at, l->beta / (l->alpha + l->beta);
}
static double get_loss(const sk_law *l, const double *at) { return sk_law_loss(l, at[0], at[1]); }

static double best_n(const sk_law *l, const double *at)
{
    double n, d;
    sk_law_optimum(l, at[0], &n, &d);
    return n;
}
static double best_d(const sk_law *l, const double *at) { return at[0] / 6 / best_n(l, at); }
static double best_loss(const sk_law *l, const double *at)
{
    return sk_law_loss(l, best_n(l, at), best_d(l, at));
}

static void add_law(fit *f)
{
    add(f, "E", get_e, NULL);
    if (f->law.kind != SK_LAW_D) add(f, "A", get_a, NULL);
    if (f->law.kind != SK_LAW_D) add(f, "alpha", get_alpha, NULL);
    if (f->law.kind != SK_LAW_N) add(f, "B", get_b, NULL);
    if (f->law.kind != SK_LAW_N) add(f, "beta", get_beta, NULL);
    if (f->law.kind == SK_LAW_ND) add(f, "N grows with 6ND to the", get_share, NULL);
}

/* ---- predictions */

/* Words over those of the best job. */
static sk_status predict_words(fit *f, const sk_sweep_groups *g, const char *text, double at[2])
{
    char *rest = sk_strdup(f->s->arena, text), *word, *words[MOST_WORDS];
    sk_job *job = sk_new(f->s->arena, sk_job);
    int n = 0;
    while ((word = strsep(&rest, " ")))
        if (*word && n < MOST_WORDS) words[n++] = word;
    SK_TRY(sk_sweep_load(f->s, g->v[0].v[0]->values, n, words, job));
    SK_TRY(count_params(job, &at[0]));
    at[1] = (double)job->steps * (double)job->batch * (double)job->seq;
    return SK_OK;
}

/* A law of one of the two says nothing about other values of the other. */
static sk_status within(const fit *f, const double at[2])
{
    const double held[2] = {f->p[0].n, f->p[0].d};
    static const char *const of[] = {"parameters", "tokens"};
    int k = f->law.kind == SK_LAW_N ? 1 : 0;
    if (f->law.kind == SK_LAW_ND || at[k] == held[k]) return SK_OK;
    return sk_fail(SK_EUSAGE,
                   "sweep: all jobs have %.0f %s, and the law says nothing about %.0f; jobs with "
                   "several numbers of %s are needed",
                   held[k], of[k], at[k], of[k]);
}

/* Where the prediction is asked for.  A job that is there already is taken out of the points: it
 * tells how good the law of the others is. */
static sk_status aim(fit *f, const sk_sweep_groups *g, const sk_sweep_predict *p)
{
    int k = 0;
    f->asked = p->words || p->params > 0 || p->tokens > 0;
    if (!f->asked || !f->n) return SK_OK;
    f->at[0] = p->params > 0 ? p->params : f->p[0].n;
    f->at[1] = p->tokens > 0 ? p->tokens : f->p[0].d;
    if (p->words) SK_TRY(predict_words(f, g, p->words, f->at));
    while (k < f->n && (f->p[k].n != f->at[0] || f->p[k].d != f->at[1])) k++;
    if (k == f->n) return SK_OK;
    f->held = f->p[k];
    for (f->n--; k < f->n; k++) {
        f->p[k] = f->p[k + 1];
        f->label[k] = f->label[k + 1];
    }
    return SK_OK;
}

static void add_one(fit *f, const char *name, const char *value)
{
    const char *cells[] = {name, value, "", ""};
    sk_table_add(&f->t, cells);
}

static sk_status no_optimum(void)
{
    return sk_fail(SK_EUSAGE,
                   "sweep: --predict-compute needs jobs that differ in parameters and in "
                   "tokens");
}

static sk_status predict(fit *f, const sk_sweep_predict *p)
{
    sk_arena *a = f->s->arena;
    if (p->compute > 0) {
        if (f->law.kind != SK_LAW_ND) return no_optimum();
        add(f, sk_print(a, "N at 6ND=%.4g", p->compute), best_n, &p->compute);
        add(f, sk_print(a, "D at 6ND=%.4g", p->compute), best_d, &p->compute);
        add(f, sk_print(a, "loss at 6ND=%.4g", p->compute), best_loss, &p->compute);
    }
    if (!f->asked) return SK_OK;
    SK_TRY(within(f, f->at));
    add(f, sk_print(a, "loss at N=%.0f D=%.0f", f->at[0], f->at[1]), get_loss, f->at);
    if (!(f->held.loss > 0)) return SK_OK;
    double off = 100 * (sk_law_loss(&f->law, f->at[0], f->at[1]) / f->held.loss - 1);
    add_one(f, "measured there (held out)", sk_print(a, "%.5g", f->held.loss));
    add_one(f, "prediction off by, %", sk_print(a, "%.2f", off));
    return SK_OK;
}

/* Points that the jobs will be, if all of them are done: a law that these are too few for is
 * refused before the first.  Jobs that the clock or a target ends have tokens that are not known
 * yet. */
sk_status sk_sweep_may_fit(sk_sweep *s, const sk_sweep_predict *p)
{
    fit f = {.s = s};
    f.p = sk_many(s->arena, sk_law_point, s->jobs.n + 1);
    f.label = sk_many(s->arena, const char *, s->jobs.n + 1);
    for (int i = 0; i < s->jobs.n; i++) {
        const sk_job *job = s->jobs.v[i].job;
        sk_law_point x = {.loss = 1};
        int k = 0;
        if (!job) continue;
        if (job->time_limit > 0 || *job->batch_schedule || job->stop_loss > 0 ||
            job->stop_accuracy > 0)
            return SK_OK;
        SK_TRY(count_params(job, &x.n));
        x.d = (double)job->steps * (double)job->batch * (double)job->seq;
        while (k < f.n && (f.p[k].n != x.n || f.p[k].d != x.d)) k++;
        if (k == f.n) insert(&f, x, "");
    }
    if (p->compute > 0 && kind_of(&f) != SK_LAW_ND) return no_optimum();
    return sk_law_enough(kind_of(&f), f.p, f.n);
}

static const char *const texts[] = {"loss = E + A / N^alpha", "loss = E + B / D^beta",
                                    "loss = E + A / N^alpha + B / D^beta"};

sk_status sk_sweep_fit(sk_sweep *s, const sk_sweep_groups *g, const sk_sweep_predict *p,
                       const char *format)
{
    static const char *const head[] = {"name", "value", "low", "high"};
    fit f = {.s = s, .t = {.arena = s->arena, .head = head, .n_cols = 4}};
    SK_TRY(collect(&f, g));
    SK_TRY(aim(&f, g, p));
    SK_TRY(sk_law_fit(s->arena, kind_of(&f), f.p, f.n, &f.law));
    f.n_draws = sk_law_draws(s->arena, &f.law, f.p, f.n, DRAWS, DRAW_SEED, &f.draws);
    add_law(&f);
    SK_TRY(predict(&f, p));
    if (!format) {
        printf("\n%s over %d points\n", texts[f.law.kind], f.n);
        SK_TRY(show_points(&f));
        printf("\nlow and high: 95 %% of %d fits to points with the same spread, %.2f %%\n", DRAWS,
               100 * f.law.spread);
    }
    return sk_table_print(&f.t, format, stdout);
}
