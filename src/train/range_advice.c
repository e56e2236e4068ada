/* range_advice.c - what the curve of a range test says about the learning rate. */
#include "train/range_test.h"

#include <math.h>

#define LEAST_DROP 0.005 /* of the first loss: less is nothing to learn from */
#define REST       0.1   /* of the fall: what is left to fall, or lost again */

/* Points lie evenly on the axis of log rates, so their numbers are its measure.  A line through the
 * points within `reach` of i, near ones weighing more: its height and slope at i. */
static void fit_line(const sk_range_curve *c, int i, int reach, double *height, double *slope)
{
    double w = 0, wx = 0, wxx = 0, wy = 0, wxy = 0;
    for (int k = i - reach; k <= i + reach; k++) {
        if (k < 0 || k >= c->n) continue;
        double x = k - i, weight = 1 - fabs(x) / (reach + 1), y = c->v[k].loss;
        w += weight, wx += weight * x, wxx += weight * x * x;
        wy += weight * y, wxy += weight * x * y;
    }
    double det = w * wxx - wx * wx;
    *slope = det > 0 ? (w * wxy - wx * wy) / det : 0;
    *height = (wy - *slope * wx) / w;
}

/* From the differences of neighbours, which the smoothing has no part in; up to the lowest point,
 * beyond which losses jump about. */
static double noise(const sk_range_curve *c, int lowest)
{
    double squares = 0;
    int n = lowest + 2 < c->n ? lowest + 2 : c->n;
    for (int i = 1; i < n; i++)
        squares += (c->v[i].loss - c->v[i - 1].loss) * (c->v[i].loss - c->v[i - 1].loss);
    return n > 1 ? sqrt(squares / (2.0 * (n - 1))) : 0;
}

/* The first point at which nine tenths of the fall are done.  The lowest point itself says little:
 * where losses stay low over a decade of rates, noise places it. */
static int settled(const sk_range_advice *o)
{
    double most = o->smooth[o->lowest] + REST * (o->smooth[0] - o->smooth[o->lowest]);
    int i = 0;
    while (o->smooth[i] > most) i++;
    return i;
}

/* Behind the lowest point, the first at which a tenth of the fall is lost again; -1: none. */
static int edge(const sk_range_advice *o, int n)
{
    double most = o->smooth[o->lowest] + REST * (o->smooth[0] - o->smooth[o->lowest]);
    for (int i = o->lowest; i < n; i++)
        if (o->smooth[i] > most) return i;
    return -1;
}

/* The test has the settled rate for a step, a training for many: two thirds of it, and at
 * most a third of the lowest point's, above which long trainings diverge.  Where the test
 * diverges, the edge is a limit: gradient descent on a quadratic is stable below 2 / curvature and
 * fastest at 1 / curvature, and the test sees the edge a few steps late, so that a third of it is a
 * rate near the fastest.  The middle of the settled rate and that third is taken, as of ratios, or
 * the limit where the settled point is above it. */
static double suggest(const sk_range_advice *o, const sk_range_curve *c)
{
    double low = c->v[o->settled].lr;
    if (!c->diverged || o->edge < 0) return fmin(low / 1.5, c->v[o->lowest].lr / 3);
    double limit = c->v[o->edge].lr / 3;
    return fmin(limit, sqrt(low * limit));
}

sk_range_advice sk_range_read(sk_arena *a, const sk_range_curve *c)
{
    sk_range_advice o = {.smooth = sk_many(a, double, c->n + 1)};
    double *slope = sk_many(a, double, c->n + 1);
    int reach = c->n / 20 > 2 ? c->n / 20 : 2;
    for (int i = 0; i < c->n; i++) {
        fit_line(c, i, reach, &o.smooth[i], &slope[i]);
        if (o.smooth[i] < o.smooth[o.lowest]) o.lowest = i;
    }
    if (!c->n) return o;
    for (int i = 0; i <= o.lowest; i++)
        if (slope[i] < slope[o.steepest]) o.steepest = i;
    o.noise = noise(c, o.lowest);
    double drop = o.smooth[0] - o.smooth[o.lowest];
    o.falls = drop > 2 * o.noise && drop > LEAST_DROP * fabs(o.smooth[0]) && slope[o.steepest] < 0;
    if (!o.falls) return o;
    o.settled = settled(&o);
    o.edge = edge(&o, c->n);
    o.lr = suggest(&o, c);
    return o;
}
