/* sensitivity.c - each number of the machine a tenth larger and smaller, and what the step makes of
 * it.  The one that shortens it the most is the binding constraint. */
#include "cli/vary.h"
#include "base/strings.h"

#include <math.h>
#include <stdlib.h>

enum { MOST_NUMBERS = 128 };
static const double TENTH = 0.1, NOTHING = 1e-9; /* of the step: no change */

typedef struct effect {
    const char *name;
    double value, better, worse; /* of the machine; seconds of the step */
} effect;

/* The step with so many times the number; 0: no machine has that. */
static sk_status scaled(const sk_job *job, const sk_machine *m, const char *name, double by,
                        double *seconds)
{
    sk_arena tmp = {0};
    sk_vary_step step = {0};
    sk_machine *other = sk_new(&tmp, sk_machine);
    sk_job *its = sk_new(&tmp, sk_job);
    *other = *m;
    other->topology.jitter.draws = 0;
    *its = *job;
    if (job->machine) its->machine = other;
    sk_status st = sk_machine_scale(other, name, by);
    *seconds = 0;
    if (!st) {
        st = sk_vary_step_of(&tmp, its, other, &step);
        *seconds = step.seconds;
    } else st = SK_OK;
    sk_arena_end(&tmp);
    return st;
}

static int by_gain(const void *x, const void *y)
{
    const effect *a = x, *b = y;
    return a->better < b->better ? -1 : a->better > b->better;
}

/* Numbers that change the step; `sustained` may not be larger than 1, so an end may be missing. */
static sk_status find(const sk_job *job, const sk_machine *m, double step, effect *v, int *n)
{
    for (int i = 0; sk_machine_number_name(i) && *n < MOST_NUMBERS; i++) {
        effect e = {.name = sk_machine_number_name(i)};
        double more, less;
        bool whole = false;
        sk_machine_number(m, e.name, &e.value, &whole);
        if (whole || e.value == 0) continue;
        SK_TRY(scaled(job, m, e.name, 1 + TENTH, &more));
        SK_TRY(scaled(job, m, e.name, 1 - TENTH, &less));
        if (more == 0) more = step;
        if (less == 0) less = step;
        e.better = fmin(fmin(more, less), step), e.worse = fmax(fmax(more, less), step);
        if (e.worse - e.better > NOTHING * step) v[(*n)++] = e;
    }
    qsort(v, (size_t)*n, sizeof *v, by_gain);
    return SK_OK;
}

static void say(const sk_vary_step *s, const effect *v, int n)
{
    printf("step      %.6g s\n", s->seconds);
    if (!s->fits) printf("bound     memory: it does not fit\n\n");
    else if (n)
        printf("bound     %s: 10 %% better, and the step is %.2f %% shorter\n\n", v[0].name,
               100 * (1 - v[0].better / s->seconds));
}

sk_status sk_sensitivity_print(sk_arena *a, const sk_job *job, const sk_machine *machine,
                               const char *format)
{
    static const char *const head[] = {"number",  "value",      "better_s",
                                       "worse_s", "better_pct", "worse_pct"};
    sk_table t = {.arena = a, .head = head, .n_cols = 6};
    effect *v = sk_many(a, effect, MOST_NUMBERS);
    sk_vary_step step;
    int n = 0;
    SK_TRY(sk_vary_step_of(a, job, machine, &step));
    SK_TRY(find(job, machine, step.seconds, v, &n));
    if (!format) say(&step, v, n);
    for (int i = 0; i < n; i++) {
        double better = v[i].better, worse = v[i].worse;
        const char *cells[] = {v[i].name,
                               sk_print(a, "%.6g", v[i].value),
                               sk_print(a, "%.9g", better),
                               sk_print(a, "%.9g", worse),
                               sk_print(a, "%.3f", 100 * (better / step.seconds - 1)),
                               sk_print(a, "%.3f", 100 * (worse / step.seconds - 1))};
        sk_table_add(&t, cells);
    }
    return sk_table_print(&t, format, stdout);
}
