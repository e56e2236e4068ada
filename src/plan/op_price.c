/* op_price.c - how long kernels take.
 *
 * A product is cut into tiles, and each multiprocessor works on one of them at a time: what counts
 * is the number of rounds, not of flops.  A tile of fewer elements reads more bytes for each flop,
 * so it runs at a part of the speed; a sum may be split among several tiles, at the price of their
 * partial sums in memory.  The fastest choice is taken, as libraries do.  Where products were
 * measured, the form is corrected by what they took, weighted by how near they are.
 *
 * Attention has rates by width of a head, and needs keys to come up to them.  With its scores in
 * memory it is four or seven kernels: products, and passes over the scores. */
#include "plan/machine.h"

#include <math.h>

/* --- products --- */

typedef struct tile {
    double m, n, speed;
} tile;

static const tile tiles[] = {
    {256, 128, 1}, {128, 256, 1}, {128, 128, 0.93}, {128, 64, 0.8}, {64, 128, 0.8}, {64, 64, 0.65},
};
enum { N_TILES = sizeof tiles / sizeof *tiles, MOST_SPLIT = 16 };

static double rate_of(const sk_machine *m, sk_dtype type, bool fp8)
{
    const sk_kernel_rates *r = &m->kernels;
    double rate = type == SK_F32 && r->flops_f32 > 0 ? r->flops_f32 : m->flops;
    if (fp8 && r->flops_fp8 > 0) rate = r->flops_fp8;
    return r->sustained > 0 ? r->sustained * rate : rate;
}

static double seconds_by(const sk_machine *m, const tile *t, const sk_kernel_shape *s, double rate,
                         int split)
{
    double k = (double)s->k / split, each = rate / m->kernels.sms * t->speed;
    double rounds =
        (double)s->batch * split * ceil((double)s->m / t->m) * ceil((double)s->n / t->n);
    double sums = 16.0 * (double)s->batch * (double)s->m * (double)s->n; /* written, read in f32 */
    rounds = ceil(rounds / m->kernels.sms);
    return rounds * 2 * t->m * t->n * (k + m->kernels.ramp) / each +
           (split > 1 ? split * sums / 2 / m->memory_rate : 0);
}

static double by_tiles(const sk_machine *m, const sk_kernel_shape *s, double rate)
{
    double best = INFINITY;
    for (int i = 0; i < N_TILES; i++)
        for (int split = 1; split <= MOST_SPLIT && split * 128 <= s->k + 128; split *= 2)
            best = fmin(best, seconds_by(m, &tiles[i], s, rate, split));
    return best;
}

static double by_form(const sk_machine *m, const sk_kernel_shape *s, int threads)
{
    double rate = rate_of(m, s->type, s->fp8) * (m->per_thread ? threads : 1);
    double flops = 2.0 * (double)s->batch * (double)s->m * (double)s->n * (double)s->k;
    bool tiled = m->kernels.sms && s->m > 1 && s->n > 1; /* of vectors: a pass over their bytes */
    return tiled ? by_tiles(m, s, rate) : flops / rate;
}

static double apart(double a, double b) /* octaves, squared */
{
    double d = log2(fmax(a, 1) / fmax(b, 1));
    return d * d;
}

typedef struct near_product {
    const sk_product_rate *p;
    double apart;
} near_product;

enum { NEAREST = 16 };

static int farthest(const near_product v[NEAREST])
{
    int at = 0;
    for (int i = 1; i < NEAREST; i++)
        if (v[i].apart > v[at].apart) at = i;
    return at;
}

/* The measured products of this type that are nearest, in no order; how many. */
static int nearest(const sk_machine *m, const sk_kernel_shape *s, near_product out[NEAREST])
{
    int n = 0;
    for (int i = 0; i < m->kernels.n_products; i++) {
        const sk_product_rate *p = &m->kernels.product[i];
        if (p->type != s->type || p->fp8 != s->fp8) continue;
        double d = apart((double)s->m, p->m) + apart((double)s->n, p->n) +
                   apart((double)s->k, p->k) + apart((double)s->batch, p->batch);
        int at = n < NEAREST ? n++ : farthest(out);
        if (n == NEAREST && out[at].p && out[at].apart <= d) continue;
        out[at] = (near_product){p, d};
    }
    return n;
}

/* What measured products took over what the form says of them: the mean of logarithms, each by one
 * over its distance squared. */
static double correction(const sk_machine *m, const sk_kernel_shape *s, int threads)
{
    double sum = 0, weights = 0;
    near_product v[NEAREST] = {{NULL, 0}};
    int n = nearest(m, s, v);
    for (int i = 0; i < n; i++) {
        const sk_product_rate *p = v[i].p;
        sk_kernel_shape like = {.type = p->type, .fp8 = p->fp8, .batch = (int64_t)p->batch};
        like.m = (int64_t)p->m, like.n = (int64_t)p->n, like.k = (int64_t)p->k;
        double rate = p->rate * (m->per_thread ? threads : 1);
        double ratio = 2 * p->batch * p->m * p->n * p->k / rate / by_form(m, &like, threads);
        double w = 1 / (v[i].apart * v[i].apart + 1e-6);
        sum += w * log(ratio);
        weights += w;
    }
    return weights > 0 ? exp(sum / weights) : 1;
}

static double product(const sk_machine *m, const sk_kernel_shape *s, int threads)
{
    double seconds = by_form(m, s, threads);
    return m->kernels.n_products ? seconds * correction(m, s, threads) : seconds;
}

/* --- attention --- */

static double attention_form(const sk_machine *m, const sk_kernel_shape *s, int threads)
{
    double slots = m->per_thread ? threads : 1;
    const sk_kernel_rates *r = &m->kernels;
    bool back = s->kind == SK_KERNEL_ATTENTION_GRAD;
    const sk_attention_rate *a = r->attention, *b = a;
    double width = (double)s->k;
    if (!r->n_widths) return slots * rate_of(m, s->type, false);
    for (int i = 0; i < r->n_widths && b->width < width; i++) a = b, b = &r->attention[i];
    double low = back ? a->backward : a->forward, high = back ? b->backward : b->forward;
    double share = b->width > a->width ? fmin((width - a->width) / (b->width - a->width), 1) : 1;
    double rate = low + (high - low) * share;
    if (m->engine.flash > 0) rate *= m->engine.flash;
    if (m->engine.older && r->older > 0) rate *= r->older;
    if (width < r->attention[0].width) rate *= width / r->attention[0].width;
    return slots * rate * (double)s->n / ((double)s->n + r->attention_ramp);
}

/* By the form, times what measured attention of this type reached of it, as of products. */
static double attention_rate(const sk_machine *m, const sk_kernel_shape *s, int threads)
{
    double sum = 0, weights = 0;
    bool back = s->kind == SK_KERNEL_ATTENTION_GRAD;
    for (int i = 0; i < m->kernels.n_attention_at; i++) {
        const sk_attention_at *p = &m->kernels.attention_at[i];
        if (p->type != s->type) continue;
        sk_kernel_shape like = {.kind = s->kind, .type = p->type, .batch = 1};
        like.m = like.n = (int64_t)p->keys, like.k = (int64_t)p->width;
        double d = apart((double)s->k, p->width) + apart((double)s->n, p->keys);
        double w = 1 / (d * d + 1e-6);
        sum += w * log((back ? p->backward : p->forward) / attention_form(m, &like, 1));
        weights += w;
    }
    return attention_form(m, s, threads) * (weights > 0 ? exp(sum / weights) : 1);
}

/* Bytes of a score in 16 bits, with dropout: written by the product, read and written by softmax
 * and by dropout with its mask, read by the second product; backward likewise, with two results. */
static double scores(const sk_machine *m, const sk_kernel_shape *s, int threads)
{
    bool back = s->kind == SK_KERNEL_ATTENTION_GRAD;
    sk_kernel_shape wide = *s, tall = *s;
    double bytes = (back ? 19.0 : 11.0) * (double)s->batch * (double)s->m * (double)s->n;
    wide.kind = tall.kind = SK_KERNEL_PRODUCT;
    tall.n = s->k, tall.k = s->n;
    double products = product(m, &wide, threads) + product(m, &tall, threads);
    return (back ? 2 : 1) * products + bytes / m->memory_rate;
}

/* --- kernels --- */

double sk_machine_compute(const sk_machine *m, const sk_kernel_shape *s, double flops, int threads)
{
    if (m->unit || flops <= 0) return 0;
    double kept = m->kernels.sustained > 0 ? m->kernels.sustained : 1;
    double rate = kept * (m->per_thread ? m->flops * threads : m->flops);
    switch (s->kind) {
    case SK_KERNEL_PRODUCT:
        return product(m, s, threads);
    case SK_KERNEL_ATTENTION:
    case SK_KERNEL_ATTENTION_GRAD:
        if (m->engine.scores_in_memory) return scores(m, s, threads);
        if (m->kernels.n_widths || m->kernels.n_attention_at)
            return flops / attention_rate(m, s, threads);
        return flops / rate;
    default:
        return flops / rate;
    }
}

double sk_machine_accumulate(const sk_machine *m, int64_t elements)
{
    if (m->unit || m->engine.accumulate <= 0) return 0;
    return m->engine.accumulate * (double)elements / m->memory_rate + m->overhead;
}

double sk_machine_kernel(const sk_machine *m, double compute, int64_t bytes, sk_kernel_kind kind)
{
    double more = kind == SK_KERNEL_STREAM ? m->engine.stream
                  : kind == SK_KERNEL_LOSS ? m->engine.loss
                                           : 1;
    if (more <= 0) more = 1;
    return m->unit ? 0 : fmax(compute, more * (double)bytes / m->memory_rate) + m->overhead;
}
