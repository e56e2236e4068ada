/* op_rows.c - kernels that move bytes, as they were measured.
 *
 * A row has the seconds of a whole launch.  Between two rows of a name and type seconds follow a
 * power of the bytes; above the largest the rate stays, as memory's does; below the smallest they
 * fall to `overhead`, which an empty kernel takes.  What was measured in another type has the rows
 * of that one, and a name that was not measured those of `any`, plain copies. */
#include "plan/machine.h"

#include <math.h>
#include <string.h>

typedef struct around { /* the rows next to some bytes */
    const sk_measured_op *below, *above;
} around;

static around find(const sk_machine *m, const char *name, const sk_dtype *type, double bytes)
{
    around a = {NULL, NULL};
    for (int i = 0; i < m->kernels.n_ops; i++) {
        const sk_measured_op *o = &m->kernels.op[i];
        if (strcmp(o->name, name) || (type && o->type != *type)) continue;
        if (o->bytes <= bytes && (!a.below || o->bytes > a.below->bytes)) a.below = o;
        if (o->bytes >= bytes && (!a.above || o->bytes < a.above->bytes)) a.above = o;
    }
    return a;
}

static double seconds_of(const sk_machine *m, around a, double bytes)
{
    const sk_measured_op *lo = a.below, *hi = a.above;
    double empty = m->overhead;
    if (!hi) return lo->seconds * bytes / lo->bytes;
    if (!lo) return fmin(empty, hi->seconds) + fmax(hi->seconds - empty, 0) * bytes / hi->bytes;
    if (hi->bytes <= lo->bytes) return lo->seconds;
    double share = log(bytes / lo->bytes) / log(hi->bytes / lo->bytes);
    return lo->seconds * pow(hi->seconds / lo->seconds, share);
}

double sk_machine_op(const sk_machine *m, const char *name, sk_dtype type, int64_t bytes,
                     int threads)
{
    double b = fmax((double)bytes, 1);
    if (!m->kernels.n_ops || m->unit) return -1;
    around a = find(m, name, &type, b);
    if (!a.below && !a.above) a = find(m, name, NULL, b);
    if (!a.below && !a.above) a = find(m, "any", NULL, b);
    if (!a.below && !a.above) return -1;
    double more = m->engine.stream > 0 ? m->engine.stream : 1;
    return more * seconds_of(m, a, b) / (m->per_thread ? threads : 1);
}
