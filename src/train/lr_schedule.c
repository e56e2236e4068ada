/* lr_schedule.c - the learning rate of a step: warmup, then the job's schedule (parts/lr). */
#include "train/lr_schedule.h"
#include "base/strings.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MOST_NAMES = 64 };

const sk_lr *sk_lr_named(const char *name)
{
    for (const sk_lr *const *p = sk_lr_parts; *p; p++)
        if (!strcmp((*p)->name, name)) return *p;
    return NULL;
}

sk_status sk_lr_find(const char *name, const sk_lr **out)
{
    const char *names[MOST_NAMES];
    int n = 0;
    *out = sk_lr_named(name);
    if (*out) return SK_OK;
    for (; sk_lr_parts[n] && n < MOST_NAMES; n++) names[n] = sk_lr_parts[n]->name;
    const char *near = sk_nearest(name, names, n);
    return sk_fail(SK_ECONF, "optim.schedule '%.80s' is unknown%s%s%s; skein list lr shows all",
                   name, near ? " (did you mean '" : "", near ? near : "", near ? "'?)" : "");
}

double sk_lr_cosine_left(double way) { return 0.5 * (1 + cos(3.14159265358979323846 * way)); }

static sk_lr_now now(const sk_lr_schedule *r, int64_t step)
{
    sk_lr_now n = {.lr = r->lr,
                   .min_lr = r->min_lr,
                   .step = step,
                   .warmup = r->part->rises ? 0 : r->warmup,
                   .steps = r->steps,
                   .knob = r->knob};
    if (n.steps > n.warmup) n.way = (double)(step - n.warmup) / (double)(n.steps - n.warmup);
    return n;
}

double sk_lr_at(const sk_lr_schedule *r, int64_t step)
{
    sk_assert(step >= 0 && r->part);
    sk_lr_now n = now(r, step);
    if (step < n.warmup) return r->lr * (double)(step + 1) / (double)r->warmup;
    if (r->part->to_end && !r->steps) return r->lr;
    if (r->part->to_end && step >= r->steps) return r->min_lr;
    return r->part->rate(&n);
}

int64_t sk_lr_first_fall(const sk_lr_schedule *r)
{
    double before = sk_lr_at(r, 0);
    for (int64_t step = 1; step < r->steps; step++) {
        double rate = sk_lr_at(r, step);
        if (rate < before) return step;
        before = rate;
    }
    return -1;
}

double sk_lr_momentum(const sk_lr_schedule *r, int64_t step)
{
    sk_assert(step >= 0 && r->part);
    sk_lr_now n = now(r, step);
    return r->part->momentum ? r->part->momentum(&n) : 0;
}
