/* sweep_study.c - steps, tokens and seconds to a target loss; against the batch size, if that
 * is among the keys.
 *
 * For each batch size the best of the other keys counts, as in Shallue et al. 2019: a learning rate
 * that is right for one batch size is wrong for another.  Between neighbouring batch sizes
 *
 *     gain = log(steps before / steps) / log(batch / batch before)
 *
 * is 1 where a larger batch pays fully, and 0 where it does not lower the steps any more.  The law
 * of McCandlish et al. 2018 through all of them (plan/batch_law.h) has the critical batch.  Beside
 * it stands the gradient noise scale that the runs measured, which their model takes it for. */
#include "cli/sweep.h"
#include "plan/batch_law.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { DRAWS = 1000, DRAW_SEED = 1 };

#define PERFECT 0.8
#define NO_MORE 0.2

typedef struct entry {
    const sk_sweep_group *g;
    double batch;
    int n, reached;
    double steps, steps_sd, tokens, seconds; /* means over seeds; NAN: not all reached it */
    bool bound;                              /* one was there at its first validation: at most */
    double noise;                            /* scale until the target; NAN: not measured */
} entry;

static int ascending(const void *x, const void *y)
{
    double p = *(const double *)x, q = *(const double *)y;
    return (p > q) - (p < q);
}

static double median(double *x, int n)
{
    qsort(x, (size_t)n, sizeof *x, ascending);
    return !n ? NAN : n % 2 ? x[n / 2] : (x[n / 2 - 1] + x[n / 2]) / 2;
}

/* The scale grows as the loss falls: the median over the steps that the target took. */
static double noise_until(sk_sweep *s, const sk_curve *c, int64_t step)
{
    double *x = sk_many(s->arena, double, c->train.n + 1);
    int n = 0;
    for (int i = 0; i < c->train.n; i++)
        if (c->train.v[i].step <= step && isfinite(c->train.v[i].noise))
            x[n++] = c->train.v[i].noise;
    return median(x, n);
}

static entry measure(sk_sweep *s, const sk_sweep_group *g, bool by_val, double target)
{
    entry e = {.g = g,
               .n = g->n,
               .steps = NAN,
               .steps_sd = NAN,
               .tokens = NAN,
               .seconds = NAN,
               .noise = NAN};
    double *steps = sk_many(s->arena, double, g->n), tokens = 0, seconds = 0, noise = 0;
    for (int i = 0; i < g->n; i++) {
        sk_curve_point p;
        if (!sk_curve_reach(&g->v[i]->curve, by_val, target, &p)) continue;
        steps[e.reached++] = (double)p.step;
        e.bound |= by_val && g->v[i]->curve.val.v[0].loss <= target;
        tokens += p.tokens;
        seconds += p.seconds;
        noise += noise_until(s, &g->v[i]->curve, p.step);
    }
    if (g->v[0]->job) e.batch = (double)g->v[0]->job->batch;
    if (!e.reached || e.reached < e.n) return e;
    e.steps_sd = sk_sweep_sd(steps, e.n, &e.steps);
    e.tokens = tokens / e.n;
    e.seconds = seconds / e.n;
    e.noise = noise / e.n;
    return e;
}

static bool before(const entry *x, const entry *y)
{
    if (isfinite(x->steps) != isfinite(y->steps)) return isfinite(x->steps);
    return x->steps < y->steps;
}

static void sort(entry *v, int n, bool by_batch)
{
    for (int i = 1; i < n; i++) {
        entry x = v[i];
        int k = i;
        for (; k && (by_batch ? x.batch < v[k - 1].batch : before(&x, &v[k - 1])); k--)
            v[k] = v[k - 1];
        v[k] = x;
    }
}

/* The best entry of each batch size, by batch size. */
static int keep_best(entry *v, int n)
{
    int kept = 0;
    for (int i = 0; i < n; i++) {
        int k = 0;
        while (k < kept && v[k].batch != v[i].batch) k++;
        if (k == kept) v[kept++] = v[i];
        else if (before(&v[i], &v[k])) v[k] = v[i];
    }
    sort(v, kept, true);
    return kept;
}

static const char *word_of(double gain)
{
    return gain >= PERFECT ? "perfect" : gain >= NO_MORE ? "diminishing" : "none";
}

/* Against the batch size before it that reached the target. */
static double gain_of(const entry *v, int i)
{
    for (int k = i; k-- > 0;)
        if (isfinite(v[k].steps) && isfinite(v[i].steps) && !v[k].bound && !v[i].bound)
            return log(v[k].steps / v[i].steps) / log(v[i].batch / v[k].batch);
    return NAN;
}

static void add_row(sk_sweep *s, sk_table *t, const entry *v, int i, int batch)
{
    sk_arena *a = s->arena;
    const entry *e = &v[i];
    double gain = batch < 0 ? NAN : gain_of(v, i);
    const char *label = sk_sweep_label(s, e->g->v[0], batch), *most = e->bound ? "<= " : "";
    const char *cells[] = {
        sk_print(a, "%.0f", e->batch),
        *label ? label : "-",
        sk_print(a, "%d/%d", e->reached, e->n),
        isfinite(e->steps) ? sk_print(a, "%s%.6g", most, e->steps) : "",
        sk_sweep_number(a, e->steps_sd),
        isfinite(e->tokens) ? sk_print(a, "%s%.0f", most, e->tokens) : "",
        isfinite(e->seconds) ? sk_print(a, "%s%.3f", most, e->seconds) : "",
        isfinite(gain) ? sk_print(a, "%.2f", gain) : "",
        !isfinite(e->steps) ? "not reached"
        : isfinite(gain)    ? word_of(gain)
                            : "",
        isfinite(e->noise) ? sk_print(a, "%.4g", e->noise) : "",
    };
    sk_table_add(t, batch < 0 ? cells + 1 : cells);
}

/* ---- the critical batch */

/* Where steps stop falling. */
static void tell_critical(const sk_batch_law *l, const entry *v, int n, FILE *to)
{
    if (isinf(l->crit))
        fprintf(to, "critical batch: above %.0f; steps fall in proportion to the batch\n",
                v[n - 1].batch);
    else if (!(l->crit > 0))
        fprintf(to, "critical batch: below %.0f; steps do not fall with the batch\n", v[0].batch);
    else {
        fprintf(to, "critical batch: %.4g (steps = %.4g + %.4g / batch)\n", l->crit, l->steps,
                l->samples);
        fprintf(to,
                "  95 %% of %d fits to points with the same spread, %.2g %%: %.4g to %.4g; least "
                "steps %.4g to %.4g\n",
                DRAWS, 100 * l->spread, l->crit_low, l->crit_high, l->steps_low, l->steps_high);
    }
}

static void tell_noise(sk_sweep *s, const sk_batch_law *l, const entry *v, int n, FILE *to)
{
    double *x = sk_many(s->arena, double, n + 1);
    int k = 0;
    for (int i = 0; i < n; i++)
        if (isfinite(v[i].noise)) x[k++] = v[i].noise;
    double scale = median(x, k);
    if (!k) {
        fprintf(to, "noise scale: not measured; train.noise=1 does (it needs parts of a batch: dp, "
                    "micro)\n");
        return;
    }
    fprintf(to, "noise scale: %.4g, the median of %d batch size%s (%.4g to %.4g)", scale, k,
            sk_plural(k), x[0], x[k - 1]);
    if (isfinite(l->crit) && l->crit > 0)
        fprintf(to, "; critical batch / noise scale: %.3g", l->crit / scale);
    fprintf(to, "\n");
}

static void tell_law(sk_sweep *s, const entry *v, int n, FILE *to)
{
    sk_batch_point *p = sk_many(s->arena, sk_batch_point, n + 1);
    sk_batch_law l;
    int k = 0, reached = 0;
    for (int i = 0; i < n; i++) reached += isfinite(v[i].steps);
    for (int i = 0; i < n; i++)
        if (isfinite(v[i].steps) && !v[i].bound) p[k++] = (sk_batch_point){v[i].batch, v[i].steps};
    if (k < 3 && k < reached) {
        fprintf(to, "critical batch: steps of %d batch size%s are known; 3 are needed\n", k,
                sk_plural(k));
        return;
    }
    if (sk_batch_fit(p, k, &l)) {
        fprintf(to, "%s\n", sk_error_line());
        sk_error_set("");
        return;
    }
    sk_batch_intervals(s->arena, p, k, DRAWS, DRAW_SEED, &l);
    tell_critical(&l, v, n, to);
    tell_noise(s, &l, v, n, to);
}

static bool is_measured(const entry *v, int n)
{
    for (int i = 0; i < n; i++)
        if (isfinite(v[i].noise)) return true;
    return false;
}

/* Steps before the first validation are not known. */
static void tell_bounds(const entry *v, int n, bool against, FILE *to)
{
    int k = 0;
    for (int i = 0; i < n; i++) k += v[i].bound;
    if (!k) return;
    fprintf(to,
            "%d of %d row%s %s at the target at the first validation: steps are at most these%s; "
            "lower val.every\n",
            k, n, sk_plural(n), k == 1 ? "is" : "are",
            against ? ", and say nothing of the critical batch" : "");
}

sk_status sk_sweep_study(sk_sweep *s, const sk_sweep_groups *g, double target, const char *format)
{
    static const char *const head[] = {"train.batch", "keys",       "reached", "steps",
                                       "steps_sd",    "tokens",     "seconds", "gain",
                                       "scaling",     "noise_scale"};
    int batch = sk_sweep_axis(s, "train.batch"), n = 0;
    bool against = batch >= 0;
    entry *v = sk_many(s->arena, entry, g->n);
    for (int i = 0; i < g->n; i++)
        if (g->v[i].v[0]->job) v[n++] = measure(s, &g->v[i], g->by_val, target);
    if (against) n = keep_best(v, n);
    else sort(v, n, false);
    int cols = format || is_measured(v, n) ? 10 : 9;
    sk_table t = {
        .arena = s->arena, .head = against ? head : head + 1, .n_cols = against ? cols : 6};
    for (int i = 0; i < n; i++) add_row(s, &t, v, i, batch);
    if (!format)
        printf("\nto %s %g%s\n", g->by_val ? "validation loss" : "training loss", target,
               against ? ", the best keys of each batch size" : "");
    SK_TRY(sk_table_print(&t, format, stdout));
    if (!format) tell_bounds(v, n, against, stdout);
    if (!format && against) tell_law(s, v, n, stdout);
    return SK_OK;
}
