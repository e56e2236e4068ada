/* range_advice.c - what the curve of a range test says about the learning rate. */
#include "train/range_test.h"

#include <math.h>

#define LEAST_DROP 0.005 /* of the first loss: less is nothing to learn from */

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

/* The steepest point alone misleads in both directions.  In the first steps a language model learns
 * how often words occur, which even a tiny rate does quickly; and close to the lowest point a long
 * training diverges. */
static double suggest(double steepest, double lowest)
{
    return fmax(lowest / 10, fmin(steepest, lowest / 3));
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
    if (o.falls) o.lr = suggest(c->v[o.steepest].lr, c->v[o.lowest].lr);
    return o;
}
