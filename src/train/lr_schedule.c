/* lr_schedule.c - the learning rate of a step. */
#include "train/lr_schedule.h"
#include "base/strings.h"

#include <math.h>
#include <string.h>

static const char *const names[] = {"constant", "cosine", "linear"}; /* as sk_lr_kind */
enum { N = sizeof names / sizeof *names };

sk_status sk_lr_find(const char *name, sk_lr_kind *out)
{
    for (int i = 0; i < N; i++) {
        if (strcmp(names[i], name)) continue;
        *out = (sk_lr_kind)i;
        return SK_OK;
    }
    const char *near = sk_nearest(name, names, N);
    return sk_fail(SK_ECONF,
                   "optim.schedule '%s' is unknown%s%s%s; there are constant, cosine and linear",
                   name, near ? " (did you mean '" : "", near ? near : "", near ? "'?)" : "");
}

double sk_lr_at(const sk_lr_schedule *r, int64_t step)
{
    sk_assert(step >= 0);
    if (step < r->warmup) return r->lr * (double)(step + 1) / (double)r->warmup;
    if (r->kind == SK_LR_CONSTANT || !r->steps) return r->lr;
    if (step >= r->steps) return r->min_lr;
    double way = (double)(step - r->warmup) / (double)(r->steps - r->warmup);
    double left = r->kind == SK_LR_LINEAR ? 1 - way : 0.5 * (1 + cos(3.14159265358979323846 * way));
    return r->min_lr + (r->lr - r->min_lr) * left;
}
