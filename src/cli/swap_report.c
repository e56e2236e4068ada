/* swap_report.c - what a swap shows: a row for each model, swap.json. */
#include "cli/swap.h"
#include "base/file_io.h"
#include "tensor/strict.h"

#include <math.h>
#include <string.h>

enum { COLUMNS = 7 };

static const char *const head[COLUMNS] = {"phase",   "model", "batch",   "steps",
                                          "seconds", "val",   "accuracy"};

/* Steps and seconds of a training; 0: it has none. */
static sk_curve_point end_of(const sk_sweep_job *j)
{
    return j->curve.train.n ? j->curve.train.v[j->curve.train.n - 1] : (sk_curve_point){0};
}

static const sk_sweep_job *validation(const sk_swap *w, int i) { return &w->three.jobs.v[i]; }
static double accuracy(const sk_swap *w, int i)
{
    return sk_curve_accuracy(&validation(w, i)->curve);
}

static void add(sk_swap *w, sk_table *t, int i, const char *phase, int64_t batch, double steps,
                double seconds)
{
    sk_arena *a = w->arena;
    double right = accuracy(w, i);
    const char *cells[COLUMNS] = {
        phase,
        sk_print(a, "%s%s", w->dir, validation(w, i)->values[0] + strlen(w->real)),
        batch ? sk_print(a, "%lld", (long long)batch) : "",
        sk_print(a, "%.0f", steps),
        sk_print(a, "%.3f", seconds),
        sk_print(a, "%.5f", validation(w, i)->val),
        isfinite(right) ? sk_print(a, "%.4f", right) : ""};
    sk_table_add(t, cells);
}

/* Steps and seconds of a model are those that it took from the first weights on: workers run beside
 * each other, so the average took phase 1 and the slowest of them. */
sk_table sk_swap_table(sk_swap *w)
{
    sk_table t = {.arena = w->arena, .head = head, .n_cols = COLUMNS};
    const sk_sweep_job *one = &w->one.jobs.v[0];
    sk_curve_point before = end_of(one);
    double steps = 0, seconds = 0;
    add(w, &t, 0, "large", one->job->batch, (double)before.step, before.seconds);
    for (int i = 0; i < w->workers; i++) {
        const sk_sweep_job *j = &w->two.jobs.v[i];
        sk_curve_point end = end_of(j);
        steps = fmax(steps, (double)end.step);
        seconds = fmax(seconds, end.seconds);
        add(w, &t, 1 + i, "small", j->job->batch, (double)(before.step + end.step),
            before.seconds + end.seconds);
    }
    add(w, &t, 1 + w->workers, "average", 0, (double)before.step + steps, before.seconds + seconds);
    return t;
}

/* ---- for people */

static void tell(sk_swap *w, const char *name, double (*of)(const sk_swap *w, int i),
                 const char *format, FILE *to)
{
    double *x = sk_many(w->arena, double, w->workers), mean;
    for (int i = 0; i < w->workers; i++) x[i] = of(w, 1 + i);
    double sd = sk_sweep_sd(x, w->workers, &mean);
    if (!isfinite(mean)) return;
    fprintf(to, "%-9s", name);
    fprintf(to, format, of(w, 0));
    fprintf(to, " after phase 1, ");
    fprintf(to, format, mean);
    if (isfinite(sd)) fprintf(to, " ± %.2g", sd);
    fprintf(to, " mean of workers, ");
    fprintf(to, format, of(w, 1 + w->workers));
    fprintf(to, " average\n");
}

static double loss_of(const sk_swap *w, int i) { return validation(w, i)->val; }

void sk_swap_tell(sk_swap *w, FILE *to)
{
    tell(w, "val", loss_of, "%.5f", to);
    tell(w, "accuracy", accuracy, "%.4f", to);
}

/* ---- swap.json */

static void add_words(sk_out *o, const char *const *words, int n)
{
    for (int i = 0; i < n; i++) {
        if (i) sk_out_add(o, ",\n  ");
        sk_strict_quote(o, words[i]);
    }
}

static void add_rows(sk_out *o, const sk_table *t)
{
    for (int i = 0; i < t->rows.n; i++) {
        sk_out_add(o, "%s{", i ? ",\n  " : "");
        for (int k = 0; k < t->n_cols; k++) {
            const char *x = t->rows.v[i][k];
            sk_out_add(o, "%s\"%s\": ", k ? ", " : "", t->head[k]);
            if (k < 2) sk_strict_quote(o, x);
            else sk_out_add(o, "%s", *x ? x : "null");
        }
        sk_out_add(o, "}");
    }
}

sk_status sk_swap_save(sk_swap *w, const sk_table *rows)
{
    sk_out o = {.arena = w->arena};
    sk_out_add(&o, "{\"format\": \"skein-swap\", \"version\": 1,\n \"words\": [");
    add_words(&o, w->said, w->n_said);
    sk_out_add(&o, "]");
    if (rows) {
        sk_out_add(&o, ",\n \"rows\": [");
        add_rows(&o, rows);
        sk_out_add(&o, "]");
    }
    sk_out_add(&o, "}\n");
    SK_TRY(sk_dir_make(w->dir));
    return sk_file_replace(sk_print(w->arena, "%s/swap.json", w->dir), o.s, o.n);
}
