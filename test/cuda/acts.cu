/* What the engine itself does on a GPU, and the GPU halves of optimizers and codecs, against the
 * CPU: several sizes and types, aligned and one element off.
 *
 * As in parts.cu all data of a case lie in one pool, written from an image on the host that is
 * NaN where there is nothing, and read back whole: bytes changed outside of the results are found.
 * Every case runs twice and must give the same bits.  Copies, packed results and codes must have
 * the bits of the CPU, but that what is no number may be another one where it is decoded; numbers
 * may be off by 1e-5 of 1 + |x|, narrow ones by their own rounding too; and state that is rounded
 * stochastically differs only where the last bit of f32 differs, which one in a thousand elements
 * may.  The only argument is a seed. */
#include "base/entry.h"
#include "base/exact.h"
#include "base/rng.h"
#include "base/strings.h"
#include "kernel/codec_kernel.h"
#include "device/device.h"
#include "lib/go_on.h"
#include "lib/on_gpu.h"
#include "run/gpu/inst_kernels.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_WARM = 5, N_TIMED = 51, TIMED = 40000000, LARGE = 3000000 };

static uint64_t seed = 1;
static int n_checks, n_bad;
static const sk_dtype floats[] = {SK_F32, SK_BF16, SK_F16};

typedef struct gpu {
    sk_device *d;
    sk_stream *s;
    sk_event *from, *to;
    sk_launch l;
} gpu;

/* The pool of a case: image[i] is what base[i] is before a run, back[i] what it is after it. */
typedef struct world {
    const gpu *g;
    const char *what;
    char *image, *back, *again, *base;
    size_t used, bytes;
} world;

static void bad(const world *w, const char *why)
{
    n_bad++;
    tell("%s: %s", w->what, why);
}

static void check(const world *w, bool right, const char *why)
{
    n_checks++;
    if (!right) bad(w, why);
}

static sk_status world_open(const gpu *g, size_t bytes, world *w)
{
    memset(w, 0, sizeof *w);
    w->g = g, w->bytes = w->used = bytes, w->what = "";
    w->image = (char *)malloc(3 * bytes);
    sk_assert(w->image);
    w->back = w->image + bytes, w->again = w->back + bytes;
    return sk_pool_open(g->d, bytes, (void **)&w->base);
}

static void world_close(world *w)
{
    sk_pool_close(w->g->d, w->base);
    free(w->image);
}

static void world_clear(world *w, const char *what)
{
    memset(w->image, 0xff, w->used); /* behind it nothing was written yet */
    w->what = what, w->used = 0;
}

/* A place for n elements, `shift` of them behind a line of 256 bytes. */
static size_t place(world *w, int64_t n, sk_dtype type, int shift)
{
    size_t at = w->used + 256 + (size_t)shift * sk_dtype_size(type);
    w->used = (at + (size_t)n * sk_dtype_size(type) + 511) / 256 * 256;
    sk_assert(w->used <= w->bytes);
    return at;
}

static size_t drawn(world *w, int64_t n, sk_dtype type, int shift, uint64_t stream, double scale)
{
    size_t at = place(w, n, type, shift);
    for (int64_t i = 0; i < n; i++) {
        double x = scale * (2 * sk_rng_uniform(seed, stream, (uint64_t)i) - 1);
        if (type > SK_F16) x = floor(100 * fabs(x));
        sk_convert(w->image + at + (size_t)i * sk_dtype_size(type), type, &x, SK_F64, 1);
    }
    return at;
}

template <typename F> static sk_status once(world *w, char *back, F launch)
{
    const gpu *g = w->g;
    SK_TRY(sk_device_copy(g->d, w->base, w->image, w->used, g->s));
    SK_TRY(launch());
    SK_TRY(sk_device_copy(g->d, back, w->base, w->used, g->s));
    return sk_stream_sync(g->d, g->s);
}

template <typename F> static sk_status twice(world *w, F launch)
{
    SK_TRY(once(w, w->back, launch));
    SK_TRY(once(w, w->again, launch));
    check(w, !memcmp(w->back, w->again, w->used), "the second run gave other bits");
    return SK_OK;
}

static double value(const void *p, sk_dtype type, int64_t i)
{
    double x;
    sk_convert(&x, SK_F64, (const char *)p + (size_t)i * sk_dtype_size(type), type, 1);
    return x;
}

/* The worst difference of n numbers in `back` from `want`, which has them in f32; then they are
 * made as in the image, so that untouched() can look at all that is left. */
static double off(world *w, size_t at, sk_dtype type, const float *want, int64_t n)
{
    double half = type == SK_BF16 ? 0x1p-8 : type == SK_F16 ? 0x1p-11 : 0, worst = 0;
    for (int64_t i = 0; i < n; i++) {
        double x = value(w->back + at, type, i), y = (double)want[i];
        double d = x == y ? 0 : (fabs(x - y) - half * fabs(y)) / (1 + fabs(y));
        if (!(d <= worst)) worst = isnan(d) ? INFINITY : d;
    }
    size_t bytes = (size_t)n * sk_dtype_size(type);
    memcpy(w->back + at, w->image + at, bytes);
    return worst;
}

/* State that was rounded stochastically: the part of the elements that differ, 1 if one does by
 * more than one unit in the last place.  Where a small difference of large numbers is left, the
 * last bits of f32 are several units of it: 1e-6 is allowed beside. */
static double off_by_lot(world *w, size_t at, const uint16_t *want, int64_t n)
{
    int64_t differ = 0, far = 0;
    for (int64_t i = 0; i < n; i++) {
        double x = value(w->back + at, SK_BF16, i), y = (double)sk_from_bf16(want[i]);
        differ += x != y;
        far += !(fabs(x - y) <= 0x1p-7 * fmax(fabs(x), fabs(y)) + 1e-6);
    }
    memcpy(w->back + at, w->image + at, 2 * (size_t)n);
    return far || !n ? (double)(far > 0) : differ <= 3 ? 0 : (double)differ / (double)n;
}

/* Blocks of 8 bits: likewise, 1 if an element differs by more than the distance of two numbers of
 * the map, which is at most as large as either but for the smallest of them. */
static double off_by_code(world *w, size_t at, sk_q8 map, const float *want, int64_t n)
{
    int64_t differ = 0, far = 0;
    float *have = (float *)malloc((size_t)n * 4 + 4);
    sk_q8_decode(map, w->back + at, n, 0, have, n);
    for (int64_t i = 0; i < n; i++) {
        double x = (double)have[i], y = (double)want[i], d = fabs(x - y);
        differ += d > 1e-5 * fmax(fabs(x), fabs(y));
        far += !(d <= fmax(fabs(x), fabs(y)) * 0.75 + 2e-6);
    }
    free(have);
    memcpy(w->back + at, w->image + at, (size_t)sk_q8_bytes(n));
    return far || !n ? (double)(far > 0) : differ <= 3 ? 0 : (double)differ / (double)n;
}

static void untouched(const world *w)
{
    check(w, !memcmp(w->back, w->image, w->used), "bytes outside of the results were changed");
}

static uint64_t draw(uint64_t stream, uint64_t i, uint64_t below)
{
    return sk_rng(seed, stream, i).a % below;
}

/* ---- boxes */

/* A whole of n dims and a part of it, drawn; the last dim now and then cut and large. */
static void draw_boxes(uint64_t i, sk_view *whole, sk_view *part)
{
    int n = (int)draw(1, i, SK_MAX_DIM + 1);
    whole->n = part->n = n;
    for (int d = 0; d < n; d++) {
        uint64_t k = 100 * i + (uint64_t)d;
        int64_t full = (int64_t)(d == n - 1 ? 1 + draw(2, k, 300) : 1 + draw(2, k, 7));
        int64_t low = draw(3, k, 2) ? 0 : (int64_t)draw(4, k, (uint64_t)full);
        int64_t size = draw(5, k, 2) ? full - low : (int64_t)draw(6, k, (uint64_t)(full - low) + 1);
        if (d == n - 1 && draw(7, k, 2)) low = low / 16 * 16, size = size / 16 * 16;
        whole->size[d] = full, whole->at[d] = 3, whole->full[d] = part->full[d] = full + 5;
        part->size[d] = size, part->at[d] = 3 + low;
    }
    sk_view_dense(whole);
    sk_view_dense(part);
}

/* Where element i of the part lies in the whole. */
static int64_t in_whole(const sk_view *part, const sk_view *whole, int64_t i)
{
    int64_t at = 0;
    for (int d = part->n - 1; d >= 0; d--) {
        at += (part->at[d] - whole->at[d] + i % part->size[d]) * whole->step[d];
        i /= part->size[d];
    }
    return at;
}

static sk_status boxes(world *w, uint64_t i)
{
    static const sk_dtype types[] = {SK_U8, SK_BF16, SK_F32, SK_I64};
    sk_view whole = {}, part = {};
    draw_boxes(i, &whole, &part);
    whole.type = part.type = types[draw(8, i, 4)];
    bool out = i % 2;
    size_t size = sk_dtype_size(part.type);
    world_clear(w, out ? "slice" : "paste");
    size_t a = drawn(w, sk_count(&whole), whole.type, (int)draw(9, i, 2), 1, 1);
    size_t b = drawn(w, sk_count(&part), part.type, (int)draw(10, i, 2), 2, 1);
    whole.data = w->base + a, part.data = w->base + b;
    const sk_inst_kernels *acts = sk_inst_kernels_find();
    SK_TRY(twice(w, [&]() {
        return out ? acts->slice(&whole, &part, w->g->s) : acts->paste(&part, &whole, w->g->s);
    }));
    for (int64_t k = 0; k < sk_count(&part); k++) {
        char *x = w->image + a + (size_t)in_whole(&part, &whole, k) * size;
        char *y = w->image + b + (size_t)k * size;
        memcpy(out ? y : x, out ? x : y, size);
    }
    untouched(w);
    return SK_OK;
}

static sk_status gathers(world *w, int64_t unit, int64_t units, int64_t from_step, int64_t to_step)
{
    world_clear(w, "gather");
    size_t a = drawn(w, from_step * units + unit, SK_U8, 0, 1, 2);
    size_t b = drawn(w, to_step * units + unit, SK_U8, 0, 2, 2);
    SK_TRY(twice(w, [&]() {
        return sk_inst_kernels_find()->gather(w->base + b, to_step, w->base + a, from_step, unit,
                                              units, w->g->s);
    }));
    for (int64_t i = 0; i < units; i++)
        memcpy(w->image + b + i * to_step, w->image + a + i * from_step, (size_t)unit);
    untouched(w);
    return SK_OK;
}

/* ---- element by element */

static sk_status adds(world *w, sk_dtype type, int64_t n, int shift)
{
    world_clear(w, "add");
    size_t a = drawn(w, n, type, shift, 1, 1), b = drawn(w, n, type, shift, 2, 1);
    float *want = (float *)malloc((size_t)n * 4 + 4);
    for (int64_t i = 0; i < n; i++)
        want[i] = (float)value(w->image + a, type, i) + (float)value(w->image + b, type, i);
    SK_TRY(twice(w, [&]() {
        return sk_inst_kernels_find()->add(w->base + a, w->base + b, n, type, w->g->s);
    }));
    check(w, off(w, a, type, want, n) <= 1e-6, "a sum is off");
    untouched(w);
    free(want);
    return SK_OK;
}

static sk_status converts(world *w, sk_dtype to, sk_dtype from, int64_t n, int shift)
{
    world_clear(w, "convert");
    size_t a = drawn(w, n, from, shift, 1, 1), b = drawn(w, n, to, shift, 2, 1);
    SK_TRY(twice(w, [&]() {
        return sk_inst_kernels_find()->convert(w->base + b, to, w->base + a, from, n, w->g->s);
    }));
    sk_convert(w->image + b, to, w->image + a, from, n);
    untouched(w);
    return SK_OK;
}

static sk_status keeps(world *w, sk_dtype from, int64_t n, int shift, int32_t skip)
{
    world_clear(w, "keep");
    size_t a = drawn(w, n, from, shift, 1, 1), b = drawn(w, n, SK_F32, shift, 2, 1);
    size_t s = drawn(w, 1, SK_I32, 0, 3, 1);
    memcpy(w->image + s, &skip, sizeof skip);
    SK_TRY(twice(w, [&]() {
        return sk_inst_kernels_find()->keep((float *)(w->base + b), w->base + a, from, n,
                                            (const int32_t *)(w->base + s), w->g->s);
    }));
    if (!skip) sk_convert(w->image + b, SK_F32, w->image + a, from, n);
    untouched(w);
    return SK_OK;
}

static sk_status copies(const gpu *g)
{
    static const int64_t sizes[] = {0, 1, 767, 768, 16385, LARGE};
    world w;
    SK_TRY(world_open(g, (size_t)64 << 20, &w));
    for (uint64_t i = 0; i < 400; i++) SK_TRY(boxes(&w, i));
    SK_TRY(gathers(&w, 1536, 100, 4096, 1536));
    SK_TRY(gathers(&w, 24, 1000, 24, 40));
    SK_TRY(gathers(&w, 7, 1000, 9, 11));
    SK_TRY(gathers(&w, 4096, 0, 4096, 4096));
    SK_TRY(gathers(&w, 4096, 300, 4096, 4096));
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++)
        for (int shift = 0; shift < 2; shift++)
            for (int a = 0; a < 3; a++) {
                SK_TRY(adds(&w, floats[a], sizes[k], shift));
                SK_TRY(keeps(&w, floats[a], sizes[k], shift, (int32_t)k % 2));
                for (int b = 0; b < 3; b++)
                    SK_TRY(converts(&w, floats[a], floats[b], sizes[k], shift));
            }
    for (int a = 0; a < SK_N_DTYPES; a++)
        for (int b = 0; b < SK_N_DTYPES; b++)
            if (b != SK_U8) SK_TRY(converts(&w, (sk_dtype)b, (sk_dtype)a, 1000, 0));
    world_close(&w);
    return SK_OK;
}

/* ---- STATS and CLIP */

typedef struct stat_case {
    world *w;
    sk_norm_piece *v;
    int n;
    int64_t chunks;
    double squares;
} stat_case;

static size_t piece(stat_case *c, int64_t n, sk_dtype type, int shift, bool counts)
{
    size_t at = drawn(c->w, n, type, shift, (uint64_t)c->n, 1);
    c->v[c->n++] = sk_norm_piece{c->w->base + at, n, c->chunks, type, counts};
    c->chunks += sk_update_chunks(n);
    for (int64_t i = 0; counts && i < n; i++) {
        double x = value(c->w->image + at, type, i);
        c->squares += x * x;
    }
    return at;
}

/* poison: 1, of a piece that does not count; 2, the capacity was short */
static sk_status stats(world *w, int n_pieces, int poison)
{
    static const int64_t sizes[] = {1, 767, 0, 768, 16385, 8192, 100000};
    sk_norm_piece v[700];
    stat_case c = {w, v, 0, 0, 0};
    world_clear(w, "stats");
    for (int i = 0; i < n_pieces; i++) {
        size_t at = piece(&c, i ? sizes[i % 7] : (int64_t)LARGE, floats[i % 3], i % 2, i % 5 != 3);
        float inf = INFINITY;
        if (poison == 1 && i == 3) sk_convert(w->image + at, floats[i % 3], &inf, SK_F32, 1);
    }
    size_t table = place(w, 100 * n_pieces, SK_U8, 0), out = place(w, 9, SK_F64, 0);
    size_t sum = place(w, 2, SK_F32, 0), full = place(w, 1, SK_I32, 0);
    memcpy(w->image + table, v, (size_t)n_pieces * sizeof *v);
    float sums[] = {12.5f, 700};
    memcpy(w->image + sum, sums, sizeof sums);
    int32_t short_of = poison == 2;
    memcpy(w->image + full, &short_of, 4);
    sk_stats_job j = {(sk_norm_piece *)(w->base + table), n_pieces, c.chunks,
                      (double *)(w->base + out), 9};
    j.sum[0] = (float *)(w->base + sum), j.sum[2] = j.sum[0] + 1;
    j.n_sums = 3, j.full = (int32_t *)(w->base + full);
    SK_TRY(twice(w, [&]() { return sk_inst_kernels_find()->stats(&j, &w->g->l); }));
    double have[9], want[9] = {0, 12.5, 0, 700};
    memcpy(have, w->back + out, sizeof have);
    check(w, !memcmp(have + 1, want + 1, 8 * sizeof *have), "sums are wrong");
    if (poison == 1 && n_pieces > 3) check(w, isnan(have[0]), "infinity was not seen");
    else if (poison == 2) check(w, isinf(have[0]), "a short capacity was not seen");
    else check(w, fabs(have[0] - c.squares) <= 1e-6 * c.squares, "the norm is off");
    memcpy(w->back + out, w->image + out, sizeof have);
    memset(w->image + full, 0, 4);
    untouched(w);
    return SK_OK;
}

/* Squares are added to what is there. */
static sk_status sumsq(world *w, int64_t n, sk_dtype type, int shift)
{
    world_clear(w, "sumsq");
    size_t at = drawn(w, n, type, shift, 1, 1), out = place(w, 1, SK_F64, 0);
    double before = 2.5, want = before, have;
    memcpy(w->image + out, &before, sizeof before);
    for (int64_t i = 0; i < n; i++)
        want += value(w->image + at, type, i) * value(w->image + at, type, i);
    SK_TRY(twice(w, [&]() {
        return sk_inst_kernels_find()->sumsq(w->base + out, w->base + at, type, n, false, &w->g->l);
    }));
    memcpy(&have, w->back + out, sizeof have);
    check(w, fabs(have - want) <= 1e-6 * want, "the sum of squares is off");
    memcpy(w->back + out, w->image + out, sizeof have);
    untouched(w);
    return SK_OK;
}

/* In canonical order to limbs, exactly. */
static sk_status sumsq_exact(world *w, int64_t n, sk_dtype type, int shift)
{
    world_clear(w, "sumsq, exact");
    size_t at = drawn(w, n, type, shift, 1, 1), out = place(w, SK_EXACT_LIMBS, SK_I64, 0);
    sk_exact before = {}, want, have;
    float one = 2.5f;
    sk_exact_add_squares(&before, &one, 1);
    memcpy(w->image + out, &before, sizeof before);
    want = before;
    for (int64_t i = 0; i < n; i++) {
        float x = (float)value(w->image + at, type, i);
        sk_exact_add_squares(&want, &x, 1);
    }
    SK_TRY(twice(w, [&]() {
        return sk_inst_kernels_find()->sumsq(w->base + out, w->base + at, type, n, true, &w->g->l);
    }));
    memcpy(&have, w->back + out, sizeof have);
    check(w, sk_exact_value(&have) == sk_exact_value(&want), "the exact sum of squares is off");
    memcpy(w->back + out, w->image + out, sizeof have);
    untouched(w);
    return SK_OK;
}

/* Parts of the average by its definition: a sum of weights by powers of the decay over theirs. */
static sk_status averages(world *w, int64_t n, int64_t updates, int shift, bool skip)
{
    double decay = 0.999, sum = 0, newest = 0;
    world_clear(w, "average");
    size_t to = drawn(w, n, SK_F32, shift, 1, 1), from = drawn(w, n, SK_F32, shift, 2, 1);
    size_t at = place(w, sizeof(sk_step_scalars), SK_U8, 0);
    sk_step_scalars pulse = {};
    pulse.updates = updates, pulse.skip = pulse.hold = skip;
    memcpy(w->image + at, &pulse, sizeof pulse);
    for (int64_t i = 0; i <= updates; i++) sum = decay * sum + 1;
    newest = 1 / sum;
    float *want = (float *)malloc((size_t)n * 4 + 4);
    for (int64_t i = 0; i < n; i++) {
        double x = value(w->image + to, SK_F32, i), y = value(w->image + from, SK_F32, i);
        want[i] = (float)(skip ? x : (1 - newest) * x + newest * y);
    }
    SK_TRY(twice(w, [&]() {
        return sk_inst_kernels_find()->average((float *)(w->base + to), (float *)(w->base + from),
                                               n, decay, (sk_step_scalars *)(w->base + at),
                                               w->g->s);
    }));
    check(w, off(w, to, SK_F32, want, n) <= (skip ? 0 : 1e-6), "the average is off");
    free(want);
    untouched(w);
    return SK_OK;
}

/* One step's numbers as run/cpu/grad_norm.c has them. */
static sk_step_scalars clipped(const sk_clip_job *j, const double *s, sk_step_scalars p)
{
    double tokens = s[2] > 0 ? s[2] : 1;
    p.loss = s[1] / tokens, p.tokens = s[2], p.aux = s[3] / tokens, p.drops = s[4];
    p.norm = sqrt(s[0]) / tokens / p.loss_scale;
    p.finite = isfinite(p.loss) && isfinite(p.norm);
    p.again = j->train && ((j->no_drops && p.drops > 0) || (j->no_full && !isfinite(p.norm)));
    if (!j->train) return p;
    double factor = j->clip > 0 ? j->clip / (p.norm + 1e-6) : 1;
    p.scale = (float)((factor < 1 ? factor : 1) / tokens / p.loss_scale);
    if (j->scale > 0) p.norm *= tokens * (double)j->scale;
    p.finite = isfinite(p.loss) && isfinite(p.norm);
    p.skip = !j->alone && (p.skip || !p.finite || p.again); /* another phase of it was bad */
    p.hold = p.skip || p.phase + 1 < j->phases;
    return p;
}

static bool near(double a, double b)
{
    return a == b || (isnan(a) && isnan(b)) || fabs(a - b) <= 1e-12 * fabs(b);
}

static sk_status clips(world *w, unsigned bits)
{
    static const double norms[] = {1e6, 3, NAN, INFINITY};
    double s[] = {norms[bits & 3], bits & 4 ? NAN : 70, bits & 8 ? 0.0 : 20, 3,
                  bits & 16 ? 1.0 : 0};
    sk_clip_job j = {NULL, 4, !(bits & 32), bits & 64 ? 0.25f : 0, bits & 128 ? 0.5 : 0};
    j.no_drops = bits & 256, j.no_full = bits & 512, j.alone = bits & 1024;
    sk_step_scalars p = {}, q;
    p.loss_scale = 8, p.lr = 3, p.updates = 7, p.skip = bits >> 11 & 1, p.scale = 9;
    world_clear(w, "clip");
    size_t sums = place(w, 5, SK_F64, 0), pulse = place(w, sizeof p, SK_U8, 0);
    memcpy(w->image + sums, s, sizeof s);
    memcpy(w->image + pulse, &p, sizeof p);
    j.sums = (double *)(w->base + sums), j.pulse = (sk_step_scalars *)(w->base + pulse);
    SK_TRY(once(w, w->back, [&]() { return sk_inst_kernels_find()->clip(&j, &w->g->l); }));
    memcpy(&q, w->back + pulse, sizeof q);
    p = clipped(&j, s, p);
    check(w, near(q.loss, p.loss) && near(q.tokens, p.tokens) && near(q.aux, p.aux), "sums");
    check(w, near(q.drops, p.drops) && near(q.norm, p.norm), "norm or drops");
    check(w, q.scale == p.scale && q.finite == p.finite && q.again == p.again, "scale or words");
    check(w, q.skip == p.skip && q.hold == p.hold && q.lr == 3 && q.updates == 7,
          "skip, or what is not CLIP's");
    return SK_OK;
}

/* Of replicas: scale and clipping by the sums of one, loss and norm by those of all. */
static sk_status clips_replicas(world *w)
{
    double one[] = {9, 70, 20, 3, 0}, all[] = {52, 300, 80, 12, 0};
    sk_clip_job j = {NULL, 4, true, 0, 0.05};
    sk_step_scalars p = {}, q;
    p.loss_scale = 1;
    world_clear(w, "clip of replicas");
    size_t sums = place(w, 5, SK_F64, 0), more = place(w, 5, SK_F64, 0),
           pulse = place(w, sizeof p, SK_U8, 0);
    memcpy(w->image + sums, one, sizeof one);
    memcpy(w->image + more, all, sizeof all);
    memcpy(w->image + pulse, &p, sizeof p);
    j.sums = (double *)(w->base + sums), j.all = (double *)(w->base + more), j.replicas = 4;
    j.phases = 1, j.pulse = (sk_step_scalars *)(w->base + pulse);
    SK_TRY(once(w, w->back, [&]() { return sk_inst_kernels_find()->clip(&j, &w->g->l); }));
    memcpy(&q, w->back + pulse, sizeof q);
    check(w, near(q.loss, 300.0 / 80) && near(q.norm, sqrt(4 * 52.0) / 80), "report of all");
    check(w, fabs((double)q.scale * 20 * (3.0 / 20 + 1e-6) / 0.05 - 1) < 1e-6, "scale of one");
    return SK_OK;
}

/* ---- COMBINE */

static sk_status combines(world *w, int64_t n, int shift)
{
    sk_combine_job j = {{4, 3, {{0.5f, -1.25f, 2, 0}, {0, 1, 0.25f, -3}, {1, 1, 1, 1}}}, {}, {}, n};
    size_t at[4];
    world_clear(w, "combine");
    for (int k = 0; k < 4; k++) {
        at[k] = drawn(w, n, SK_F32, shift, 1 + k, 1);
        j.in[k] = (float *)(w->base + at[k]);
    }
    for (int o = 0; o < 3; o++) j.out[o] = (float *)(w->base + at[o]); /* in place */
    float *want[3];
    for (int o = 0; o < 3; o++) {
        want[o] = (float *)malloc(sizeof(float) * (size_t)(n + 1));
        for (int64_t i = 0; i < n; i++) {
            double sum = 0;
            for (int k = 0; k < 4; k++)
                sum += (double)j.by.by[o][k] * value(w->image + at[k], SK_F32, i);
            want[o][i] = (float)sum;
        }
    }
    SK_TRY(once(w, w->back, [&]() { return sk_inst_kernels_find()->combine(&j, w->g->s); }));
    for (int o = 0; o < 3; o++) {
        check(w, off(w, at[o], SK_F32, want[o], n) <= 1e-5, "a combination is off");
        free(want[o]);
    }
    return SK_OK;
}

/* ---- PACK */

/* As run/cpu/pack_bits.c; tells whether all fit. */
static bool packed(const char *data, char *to, sk_dtype type, int64_t n, int64_t capacity)
{
    size_t size = sk_dtype_size(type);
    char *values = to + (n + 511) / 512 * 64;
    int64_t at = 0;
    memset(to, 0, (size_t)((n + 63) / 64 * 8));
    for (int64_t i = 0; i < n; i++) {
        uint32_t raw = 0;
        memcpy(&raw, data + (size_t)i * size, size);
        if (capacity ? !raw : !(value(data, type, i) > 0)) continue;
        to[i / 8] = (char)(to[i / 8] | 1 << i % 8);
        if (capacity && at < capacity) memcpy(values + (size_t)at * size, &raw, size);
        at++;
    }
    return !capacity || at <= capacity;
}

static void unpacked(char *data, const char *from, sk_dtype type, int64_t n, int64_t capacity)
{
    size_t size = sk_dtype_size(type);
    const char *values = from + (n + 511) / 512 * 64;
    const float one = 1;
    int64_t at = 0;
    for (int64_t i = 0; i < n; i++) {
        memset(data + (size_t)i * size, 0, size);
        if (!(from[i / 8] >> i % 8 & 1)) continue;
        if (!capacity) sk_convert(data + (size_t)i * size, type, &one, SK_F32, 1);
        else if (at < capacity) memcpy(data + (size_t)i * size, values + (size_t)at * size, size);
        at++;
    }
}

static sk_status packs(world *w, sk_dtype type, int64_t n, int shift, int64_t capacity)
{
    static const double odd[] = {0, NAN, -0.0, INFINITY, -INFINITY, 1e-7, 0, 0};
    size_t size = sk_dtype_size(type);
    int32_t full = 0;
    world_clear(w, "pack");
    size_t a = drawn(w, n, type, shift, 1, 1), b = drawn(w, n, type, shift, 2, 1);
    size_t c = place(w, (n + 511) / 512 * 64 + capacity * (int64_t)size, SK_U8, 0);
    size_t f = place(w, 1, SK_I32, 0);
    memcpy(w->image + f, &full, 4);
    for (int64_t i = 0; i < n; i++)
        if (draw(12, (uint64_t)i, 2))
            sk_convert(w->image + a + (size_t)i * size, type, &odd[draw(13, (uint64_t)i, 8)],
                       SK_F64, 1);
    SK_TRY(twice(w, [&]() {
        const sk_inst_kernels *x = sk_inst_kernels_find();
        SK_TRY(x->pack(w->base + a, w->base + c, type, n, capacity, (int32_t *)(w->base + f),
                       &w->g->l));
        return x->unpack(w->base + b, w->base + c, type, n, capacity, &w->g->l);
    }));
    full = !packed(w->image + a, w->image + c, type, n, capacity);
    memcpy(w->image + f, &full, 4);
    unpacked(w->image + b, w->image + c, type, n, capacity);
    untouched(w);
    return SK_OK;
}

static sk_status sums(const gpu *g)
{
    static const int64_t sizes[] = {0, 1, 63, 65, 512, 16384, 16390, 500001};
    world w;
    SK_TRY(world_open(g, (size_t)96 << 20, &w));
    for (int n = 0; n < 7; n++) SK_TRY(stats(&w, n, n % 3));
    SK_TRY(stats(&w, 40, 0));
    SK_TRY(stats(&w, 600, 0));
    SK_TRY(stats(&w, 600, 1));
    for (int i = 0; i < 12; i++) {
        int64_t n = i < 3 ? (int64_t)LARGE : 8190 * (i / 3) + i % 4;
        SK_TRY(sumsq(&w, n, floats[i % 3], i % 2));
        SK_TRY(sumsq_exact(&w, n, floats[i % 3], i % 2));
    }
    for (int i = 0; i < 16; i++) /* after the first update it is the weights */
        SK_TRY(averages(&w, i < 2 ? (int64_t)LARGE : 4090 * (i / 4) + i % 4, i % 3 ? 50 * i : 0,
                        i % 2, i % 8 == 7));
    for (unsigned bits = 0; bits < 4096; bits++) SK_TRY(clips(&w, bits));
    SK_TRY(clips_replicas(&w));
    for (int i = 0; i < 12; i++) SK_TRY(combines(&w, i < 2 ? (int64_t)LARGE : 4090 * i + i, i % 4));
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++)
        for (int i = 0; i < 18; i++) {
            int64_t n = sizes[k], capacity = i / 6 == 0 ? 0 : i / 6 == 1 ? n / 3 + 1 : n + 5;
            SK_TRY(packs(&w, floats[i % 3], n, i / 3 % 2, capacity));
        }
    world_close(&w);
    return SK_OK;
}

/* ---- codecs */

typedef struct code_case {
    const sk_codec *c;
    const sk_codec_kernel *k;
    sk_dtype type;
    int64_t rows, row, pieces;
    int shift;
    int feed;     /* 1: what was lost is added before; 2: behind; 0: it is not kept */
    bool odd;     /* some numbers are not finite */
    double scale; /* of all numbers */
} code_case;

/* Zeros of both signs, some that stand out, ties, and what is not finite. */
static void spice(world *w, size_t at, const code_case *t)
{
    static const uint32_t odd[] = {0x7f800000u, 0xff800000u, 0x7fc00000u, 0xffc12345u, 0x7fffffffu};
    size_t size = sk_dtype_size(t->type);
    for (int64_t i = 0; i < t->rows * t->row; i++) {
        uint64_t how = draw(20, (uint64_t)i, 40), which = draw(21, (uint64_t)i, 29);
        float x = how == 0   ? 0.0f
                  : how == 1 ? -0.0f
                  : how == 2 ? (float)(30 * t->scale)
                             : (float)(t->scale * ((double)which - 14) / 28);
        if (how > 5) continue;
        if (t->odd && !draw(22, (uint64_t)i, 50)) memcpy(&x, &odd[which % 5], sizeof x);
        sk_convert(w->image + at + (size_t)i * size, t->type, &x, SK_F32, 1);
    }
}

static const uint64_t code_seed = 5, code_stream = 77, code_step = 3;
enum { CODE_FIRST = 1003, CODE_TERM = 2, CODE_MICRO = 1 };

static void read_row(const void *of, int64_t at, int64_t n, float *to)
{
    memcpy(to, (const float *)of + at, (size_t)n * sizeof *to);
}

static sk_code_row code_row(const code_case *t, int64_t row, const float *x)
{
    sk_code_row r = {};
    r.n = t->row, r.first = CODE_FIRST + row * (t->row + 5);
    r.shared = sk_code_shared(code_seed, code_stream, code_step);
    r.own = sk_code_own(r.shared, CODE_TERM, CODE_MICRO);
    r.upscale = !t->feed, r.read = read_row, r.of = x;
    return r;
}

/* As run/cpu/encode.c, row by row. */
static void encoded(const code_case *t, const char *data, float *error, double scale, uint8_t *code)
{
    int64_t bytes = sk_codec_bytes(t->c, t->row);
    size_t size = sk_dtype_size(t->type);
    float *x = (float *)malloc(2 * (size_t)t->row * sizeof *x + 1), *y = x + t->row;
    float by = (float)scale, back = 1 / by;
    for (int64_t r = 0; r < t->rows; r++, code += bytes, error += t->row) {
        sk_convert(x, SK_F32, data + (size_t)(r * t->row) * size, t->type, t->row);
        for (int64_t i = 0; t->feed == 1 && i < t->row; i++) x[i] = fmaf(by, error[i], x[i]);
        sk_code_row of = code_row(t, r, x);
        sk_encode(t->c, &of, code);
        sk_decode(t->c, &of, code, 0, t->row, y);
        for (int64_t i = 0; t->feed && i < t->row; i++)
            error[i] = fmaf(back, x[i] - y[i], t->feed == 2 ? error[i] : 0);
    }
    free(x);
}

static void decoded(const code_case *t, const uint8_t *code, char *data)
{
    int64_t bytes = sk_codec_bytes(t->c, t->row);
    size_t size = sk_dtype_size(t->type);
    float *x = (float *)malloc(2 * (size_t)t->row * sizeof *x + 1), *y = x + t->row;
    for (int64_t r = 0; r < t->rows; r++, code += bytes) {
        sk_code_row of = code_row(t, r, x);
        sk_decode(t->c, &of, code, 0, t->row, x);
        for (int64_t k = 1; k < t->pieces; k++) {
            sk_decode(t->c, &of, code + k * t->rows * bytes, 0, t->row, y);
            for (int64_t i = 0; i < t->row; i++) x[i] += y[i];
        }
        sk_convert(data + (size_t)(r * t->row) * size, t->type, x, SK_F32, t->row);
    }
    free(x);
}

/* Where both have no number, which one does not matter. */
static void agree_on_none(world *w, size_t at, sk_dtype type, int64_t n)
{
    size_t size = sk_dtype_size(type);
    for (int64_t i = 0; i < n; i++, at += size)
        if (isnan(value(w->back + at, type, 0)) && isnan(value(w->image + at, type, 0)))
            memcpy(w->back + at, w->image + at, size);
}

static sk_code_job code_job(const code_case *t)
{
    sk_code_job j = {};
    j.type = t->type, j.rows = t->rows, j.row = t->row;
    j.bytes = sk_codec_bytes(t->c, t->row);
    j.pieces = t->pieces, j.adds = t->feed == 2;
    j.first = CODE_FIRST, j.place = t->row + 5;
    j.seed = code_seed, j.stream = code_stream, j.term = CODE_TERM, j.micro = CODE_MICRO;
    j.value = t->c->value;
    return j;
}

/* Codes without a scale are whole words, and their rows begin at even places. */
static int odd_bytes(const code_case *t)
{
    return t->shift * (t->c->head || t->c->encode_row ? 1 : 2);
}

static sk_status encodes(world *w, const code_case *t)
{
    sk_code_job j = code_job(t);
    int64_t n = t->rows * t->row;
    double scale = 256;
    world_clear(w, t->c->name);
    size_t a = drawn(w, n, t->type, t->shift, 1, t->scale);
    size_t e = drawn(w, n, SK_F32, t->shift, 2, t->scale / 4000);
    size_t b = place(w, t->rows * j.bytes, SK_U8, odd_bytes(t)), s = place(w, 1, SK_F64, 0);
    size_t n_step = place(w, 1, SK_F64, 0);
    memcpy(w->image + s, &scale, sizeof scale);
    memcpy(w->image + n_step, &code_step, sizeof code_step);
    j.step = (const uint64_t *)(w->base + n_step);
    spice(w, a, t);
    j.x = w->base + a, j.code = (uint8_t *)w->base + b;
    j.error = t->feed ? (float *)(w->base + e) : NULL, j.loss_scale = (double *)(w->base + s);
    SK_TRY(twice(w, [&]() { return t->k->encode(&j, w->g->s); }));
    encoded(t, w->image + a, (float *)(w->image + e), scale, (uint8_t *)w->image + b);
    agree_on_none(w, e, SK_F32, n);
    untouched(w);
    return SK_OK;
}

/* Pieces with an even number are encoded numbers, the others any bytes. */
static sk_status decodes(world *w, const code_case *t)
{
    sk_code_job j = code_job(t);
    code_case plain = *t;
    int64_t n = t->rows * t->row, piece = t->rows * j.bytes;
    plain.feed = 0;
    world_clear(w, t->c->name);
    size_t a = drawn(w, n, t->type, t->shift, 1, t->scale);
    size_t b = drawn(w, t->pieces * piece, SK_U8, odd_bytes(t), 2, 2.55);
    size_t n_step = place(w, 1, SK_F64, 0);
    memcpy(w->image + n_step, &code_step, sizeof code_step);
    j.step = (const uint64_t *)(w->base + n_step);
    spice(w, a, t);
    for (int64_t k = 0; k < t->pieces; k += t->c->encode_row ? 1 : 2) /* indices have an order */
        encoded(&plain, w->image + a, NULL, 1, (uint8_t *)w->image + b + k * piece);
    j.x = w->base + a, j.code = (uint8_t *)w->base + b;
    SK_TRY(twice(w, [&]() { return t->k->decode(&j, w->g->s); }));
    decoded(t, (const uint8_t *)w->image + b, w->image + a);
    agree_on_none(w, a, t->type, n);
    untouched(w);
    return SK_OK;
}

static sk_status resets_feedback(world *w, int32_t skip)
{
    static const int64_t sizes[] = {1, 0, 100003, 256};
    sk_feedback_reset_job j = {};
    size_t at[4];
    world_clear(w, "reset_feedback");
    for (int i = 0; i < 4; i++) {
        at[i] = drawn(w, sizes[i], SK_F32, i, (uint64_t)i, 1);
        j.data[i] = (float *)(w->base + at[i]), j.count[i] = sizes[i];
    }
    j.n = 4;
    size_t s = place(w, 1, SK_I32, 0);
    memcpy(w->image + s, &skip, sizeof skip);
    SK_TRY(twice(w, [&]() {
        return sk_inst_kernels_find()->reset_feedback(&j, (int32_t *)(w->base + s), w->g->s);
    }));
    for (int i = 0; i < 4 && skip; i++) memset(w->image + at[i], 0, (size_t)sizes[i] * 4);
    untouched(w);
    return SK_OK;
}

static sk_status codecs(const gpu *g)
{
    static const int64_t sizes[][2] = {{0, 5},     {3, 0},     {1, 1},    {7, 1},   {5, 3},
                                       {3, 63},    {4, 64},    {9, 127},  {9, 128}, {9, 129},
                                       {6, 255},   {6, 256},   {6, 257},  {1, 511}, {33, 768},
                                       {17, 1600}, {40, 2048}, {2, 50307}};
    static const double scales[] = {1, 1e-3, 1e4, 1e-30, 1e36, 1e-38, 1e-40};
    world w;
    uint64_t i = 0;
    SK_TRY(world_open(g, (size_t)16 << 20, &w));
    for (const sk_codec *const *c = sk_codec_parts; *c; c++) {
        const sk_codec_kernel *k = sk_codec_kernel_find((*c)->name);
        if ((*c)->low_rank) continue; /* its work is that of ops */
        if (!k) return sk_fail(SK_EBUG, "codec %s has no GPU half", (*c)->name);
        for (size_t m = 0; m < sizeof sizes / sizeof *sizes; m++)
            for (int how = 0; how < 3 * 2 * 3; how++, i++) {
                sk_codec with = **c;
                with.value = (i % 3 ? 0.07 : 0.5) / (with.value_most > 1 ? 0.1 : 1);
                code_case t = {&with, k, floats[how % 3], sizes[m][0], sizes[m][1]};
                t.shift = how / 3 % 2, t.feed = how / 6;
                t.pieces = 1 + (int64_t)(i % 5), t.odd = i % 4 == 1, t.scale = scales[i % 7];
                SK_TRY(encodes(&w, &t));
                SK_TRY(decodes(&w, &t));
            }
    }
    SK_TRY(resets_feedback(&w, 0));
    SK_TRY(resets_feedback(&w, 1));
    world_close(&w);
    return SK_OK;
}

/* ---- optimizers */

/* One way of keeping numbers, and what is special in a run. */
typedef struct manner {
    sk_dtype grad, state, narrow; /* narrow f32: there is none */
    int shift;
    bool skip, large;
    float scale;
} manner;

/* A piece as the CPU has it, and where it is in the image. */
typedef struct twin {
    sk_update u;
    float *param, *grad, *state[SK_MAX_STATE];
    double sum[SK_MAX_SUM];
    float scalar[SK_MAX_SCALAR];
    size_t at_scalar;
    size_t at_param, at_grad, at_state[SK_MAX_STATE], at_narrow,
        at_sum[SK_MAX_PASS]; /* maxima behind sums */
} twin;

enum { N_PARAMS = 9 };

typedef struct optim_case {
    world *w;
    const sk_optim *o;
    const sk_optim_kernel *k;
    manner m;
    sk_step_scalars pulse;
    twin v[N_PARAMS];
    sk_update_job j;
    size_t table;
    double worst, by_lot;
} optim_case;

/* Shapes: runs of the logical tensor, and pieces that are not; dealt in zigzag, with short rows. */
static sk_view shape_of(int i, bool large)
{
    sk_view v = {};
    static const int64_t runs[] = {1, 767, 768, 16385, 0, 24000};
    v.n = i < 6 ? 1 : 2;
    v.size[0] = i < 6 ? runs[i] : i == 6 ? 130 : i == 7 ? 700 : 40;
    if (large && i == 5) v.size[0] = LARGE;
    v.size[1] = i == 6 ? 129 : i == 7 ? 3 : 256;
    for (int d = 0; d < v.n; d++) v.at[d] = i + d, v.full[d] = 2 * v.size[d] + v.at[d];
    if (i == 8) v.zigzag[0] = 4, v.at[1] = 0, v.full[1] = v.size[1];
    sk_view_dense(&v);
    return v;
}

static size_t keep(world *w, int64_t n, sk_dtype type, int shift, uint64_t stream, double scale,
                   bool positive, float **wide)
{
    size_t at = drawn(w, n, type, shift, stream, scale);
    *wide = (float *)malloc((size_t)n * 4 + 4);
    sk_convert(*wide, SK_F32, w->image + at, type, n);
    for (int64_t i = 0; positive && i < n; i++) (*wide)[i] = fabsf((*wide)[i]);
    if (positive) sk_convert(w->image + at, type, *wide, SK_F32, n);
    return at;
}

/* State of 8 bits: of all shards but 1, which is as f32 as small tensors are. */
static sk_q8 map_of(const optim_case *c, int i, int s)
{
    if (c->m.state != SK_U8 || s >= c->o->n_state || i == 1) return SK_Q8_NONE;
    return c->o->positive >> s & 1 ? SK_Q8_UNSIGNED : SK_Q8_SIGNED;
}

/* State in the image, from what the CPU has. */
static void put_state(const optim_case *c, const twin *t, int s)
{
    char *to = c->w->image + t->at_state[s];
    sk_dtype type = c->m.state == SK_U8 ? SK_F32 : c->m.state;
    if (t->u.q8[s]) sk_q8_encode(t->u.q8[s], to, t->u.n, 0, t->state[s], t->u.n);
    else sk_convert(to, type, t->state[s], SK_F32, t->u.n);
}

static void keep_state(optim_case *c, int i, int s, uint64_t stream)
{
    twin *t = &c->v[i];
    world *w = c->w;
    bool squares = s < c->o->n_state && c->o->positive >> s & 1; /* roots are taken */
    sk_dtype type = c->m.state == SK_U8 ? SK_F32 : c->m.state;
    t->at_state[s] = keep(w, t->u.n, type, c->m.shift, stream, 0.5, squares, &t->state[s]);
    t->u.q8[s] = map_of(c, i, s);
    if (t->u.q8[s]) {
        t->at_state[s] = place(w, sk_q8_bytes(t->u.n), SK_U8, 0);
        put_state(c, t, s);
        sk_q8_decode(t->u.q8[s], w->image + t->at_state[s], t->u.n, 0, t->state[s], t->u.n);
    }
    t->u.state[s] = w->base + t->at_state[s];
}

/* Shard 2 is a router bias, which has no scalars; 3 is another rank's, 6 has a delay, 7 has none of
 * the decay. */
static void twin_open(optim_case *c, int i)
{
    twin *t = &c->v[i];
    sk_update *u = &t->u;
    const manner *m = &c->m;
    world *w = c->w;
    uint64_t stream = 100 + 10 * (uint64_t)i;
    u->shape = shape_of(i, m->large);
    u->n = sk_count(&u->shape);
    u->chunk = c->j.chunks;
    c->j.chunks += sk_update_chunks(u->n);
    u->grad_type = m->grad, u->state_type = m->state, u->narrow_type = m->narrow;
    u->delay = i == 6 ? 3 : 0, u->update = i % 2, u->scale = m->scale;
    u->rate = i == 5 ? 0.5 : 1;
    u->decay = i == 7 ? 0 : 0.1f, u->bias_update = i == 2 ? 0.01f : 0, u->owner = i != 3;
    u->name = 77 + (uint64_t)i;
    t->at_param = keep(w, u->n, SK_F32, m->shift, stream, 1, false, &t->param);
    t->at_grad = keep(w, u->n, m->grad, m->shift, stream + 1, 1, false, &t->grad);
    for (int s = 0; s < sk_optim_arrays(c->o); s++) keep_state(c, i, s, stream + 2 + (uint64_t)s);
    t->at_narrow = place(w, u->n, m->narrow, m->shift);
    for (int k = 0; k < SK_MAX_PASS; k++) t->at_sum[k] = place(w, 2 * SK_MAX_SUM, SK_F64, 0);
    u->elements = 3 * u->n + 1;
    t->at_scalar = place(w, SK_MAX_SCALAR, SK_F32, 0);
    for (int s = 0; s < SK_MAX_SCALAR; s++) t->scalar[s] = (float)(0.25 * (i + s + 1));
    if (c->o->scalars[0] && u->bias_update == 0) u->scalar = (float *)(w->base + t->at_scalar);
    u->param = (float *)(w->base + t->at_param);
    u->grad = w->base + t->at_grad;
}

static void twin_close(twin *t)
{
    free(t->param);
    free(t->grad);
    for (int s = 0; s < SK_MAX_STATE; s++) free(t->state[s]);
}

/* What optim_passes.c does with narrow state after a pass; x becomes what is kept. */
static void narrow_state(const optim_case *c, const twin *t, int s, int64_t step)
{
    uint64_t key = sk_rng(11, t->u.name, (uint64_t)step * SK_ROUNDED_STATES + (uint64_t)s).a;
    char *blocks = (char *)malloc((size_t)sk_q8_bytes(t->u.n) + 1);
    if (t->u.q8[s]) {
        sk_q8_encode(t->u.q8[s], blocks, t->u.n, 0, t->state[s], t->u.n);
        sk_q8_decode(t->u.q8[s], blocks, t->u.n, 0, t->state[s], t->u.n);
    }
    free(blocks);
    for (int64_t i = 0; c->m.state == SK_BF16 && i < t->u.n; i++) {
        uint64_t at = (uint64_t)sk_logical(&t->u.shape, i);
        uint64_t lots = sk_rng(key, 0, at / 4).a;
        t->state[s][i] =
            sk_from_bf16(sk_to_bf16_stochastic(t->state[s][i], (uint32_t)(lots >> 16 * (at % 4))));
    }
}

static sk_piece piece_of(const optim_case *c, const twin *t)
{
    const sk_update *u = &t->u;
    sk_piece p = {u->n, t->param, t->grad};
    memcpy(p.state, t->state, sizeof p.state);
    p.scale = u->scale > 0 ? u->scale / (float)c->pulse.loss_scale : c->pulse.scale;
    p.step = c->pulse.updates + u->update + 1;
    p.delay = u->delay;
    p.warmup = c->j.warmup;
    p.share = c->j.share;
    p.elements = u->elements;
    p.norm = c->pulse.norm;
    for (int k = 0; c->o->knobs[k].name; k++) {
        sk_knob_role role = c->o->knobs[k].role;
        bool cycled = c->pulse.momentum > 0 && role == SK_KNOB_MOMENTUM;
        p.knob[k] = role == SK_KNOB_LR      ? (float)(c->pulse.lr * u->rate)
                    : role == SK_KNOB_DECAY ? u->decay
                    : cycled                ? (float)c->pulse.momentum
                                            : c->j.knob[k];
    }
    return p;
}

/* Does the pass get totals of the one before? */
static bool has_totals(const optim_case *c, int pass)
{
    return pass && sk_optim_totals(c->o, pass - 1);
}

static void twin_pass(const optim_case *c, twin *t, int pass)
{
    const sk_update *u = &t->u;
    if (c->m.skip && !(u->scale > 0)) return;
    for (int64_t i = 0; u->bias_update != 0 && !pass && i < u->n; i++)
        t->param[i] -= t->grad[i] > 0 ? u->bias_update : t->grad[i] < 0 ? -u->bias_update : 0;
    if (u->bias_update != 0) return;
    sk_piece p = piece_of(c, t);
    if (has_totals(c, pass)) memcpy(p.sum, t->sum, sizeof p.sum); /* else they are 0 */
    p.scalar = t->scalar;
    p.pass = pass;
    if (sk_optim_settles(c->o, pass)) c->o->settle(&p);
    c->o->pass[pass](&p);
    memcpy(t->sum, p.sum, sizeof p.sum);
    for (int s = 0; s < sk_optim_arrays(c->o); s++) narrow_state(c, t, s, p.step);
}

static void see(optim_case *c, double d, double by_lot)
{
    if (d > c->worst) c->worst = d;
    if (by_lot > c->by_lot) c->by_lot = by_lot;
}

/* Everything of a piece against the CPU's. */
static void twin_compare(optim_case *c, twin *t)
{
    world *w = c->w;
    int64_t n = t->u.n;
    uint16_t *kept = (uint16_t *)malloc((size_t)n * 2 + 2);
    see(c, off(w, t->at_param, SK_F32, t->param, n), 0);
    if (t->u.scalar) see(c, off(w, t->at_scalar, SK_F32, t->scalar, SK_MAX_SCALAR), 0);
    if (c->m.narrow != SK_F32) see(c, off(w, t->at_narrow, c->m.narrow, t->param, n), 0);
    for (int s = 0; s < sk_optim_arrays(c->o); s++) {
        for (int64_t i = 0; i < n; i++) kept[i] = sk_to_bf16(t->state[s][i]);
        if (t->u.q8[s]) see(c, 0, off_by_code(w, t->at_state[s], t->u.q8[s], t->state[s], n));
        else if (c->m.state == SK_BF16) see(c, 0, off_by_lot(w, t->at_state[s], kept, n));
        else see(c, off(w, t->at_state[s], SK_F32, t->state[s], n), 0);
    }
    free(kept);
}

/* The sums of a piece that another rank counts are 0; here the next pass has them all the same. */
static void twin_sums(optim_case *c, twin *t, size_t at)
{
    double have[2 * SK_MAX_SUM];
    memcpy(have, c->w->back + at, sizeof have);
    for (int s = 0; s < SK_MAX_SUM; s++) {
        double want = t->u.owner && t->u.bias_update == 0 && t->u.n ? t->sum[s] : 0;
        bool most = c->o->maxima >> s & 1;
        see(c, fabs(have[most ? SK_MAX_SUM + s : s] - want) / (1 + fabs(want)), 0);
    }
    memcpy(c->w->back + at, c->w->image + at, sizeof have);
}

/* Pass by pass, each from what the CPU has: else differences of one would be seen in the next. */
static sk_status optim_pass(optim_case *c, int pass)
{
    world *w = c->w;
    sk_update table[N_PARAMS];
    bool last = sk_optim_last(c->o, pass), adds_up = sk_optim_totals(c->o, pass);
    bool has = has_totals(c, pass);
    c->j.sums = adds_up, c->j.maxima = c->o->maxima;
    for (int i = 0; i < N_PARAMS; i++) {
        twin *t = &c->v[i];
        sk_update *u = &t->u;
        u->narrow = last && c->m.narrow != SK_F32 ? w->base + t->at_narrow : NULL;
        u->after = adds_up ? (double *)(w->base + t->at_sum[pass]) : NULL;
        u->before = has ? (double *)(w->base + t->at_sum[pass - 1]) : NULL;
        u->after_most = adds_up && c->o->maxima ? (double *)u->after + SK_MAX_SUM : NULL;
        u->before_most = has && c->o->maxima ? (const double *)u->before + SK_MAX_SUM : NULL;
        for (int half = 0; has && half < 2; half++)
            memcpy(w->image + t->at_sum[pass - 1] + half * sizeof t->sum, t->sum, sizeof t->sum);
        sk_convert(w->image + t->at_param, SK_F32, t->param, SK_F32, u->n);
        for (int s = 0; s < sk_optim_arrays(c->o); s++) put_state(c, t, s);
        memcpy(w->image + t->at_scalar, t->scalar, sizeof t->scalar);
        table[i] = *u;
        if (pass && u->bias_update != 0)
            table[i].n = 0; /* a bias is updated once: the chunks stay, and are empty */
    }
    memcpy(w->image + c->table, table, sizeof table);
    SK_TRY(twice(w, [&]() { return c->k->pass[pass](&c->j, &w->g->l); }));
    for (int i = 0; i < N_PARAMS; i++) {
        twin *t = &c->v[i];
        twin_pass(c, t, pass);
        if (adds_up && (!c->m.skip || c->m.scale > 0)) twin_sums(c, t, t->at_sum[pass]);
        if (pass && t->u.bias_update != 0) continue;
        if (last) {
            twin_compare(c, t);
            continue;
        }
        sk_dtype narrow = c->m.narrow;
        c->m.narrow = SK_F32; /* not written yet */
        twin_compare(c, t);
        c->m.narrow = narrow;
    }
    untouched(w);
    return SK_OK;
}

static sk_status optim_ahead(optim_case *c)
{
    world *w = c->w;
    sk_update table[N_PARAMS];
    for (int i = 0; i < N_PARAMS; i++) {
        c->v[i].u.narrow = NULL;
        table[i] = c->v[i].u;
        table[i].bias_update = 0;
        sk_convert(w->image + c->v[i].at_param, SK_F32, c->v[i].param, SK_F32, table[i].n);
        for (int s = 0; s < sk_optim_arrays(c->o); s++) put_state(c, &c->v[i], s);
        if (c->m.grad != SK_F32) table[i].grad = NULL;
    }
    memcpy(w->image + c->table, table, sizeof table);
    SK_TRY(twice(w, [&]() { return c->k->ahead(&c->j, &w->g->l); }));
    for (int i = 0; i < N_PARAMS; i++) {
        twin *t = &c->v[i];
        sk_piece p = piece_of(c, t);
        if (c->m.grad == SK_F32 && p.n) memcpy(p.param, p.grad, (size_t)p.n * 4);
        c->o->ahead(&p);
        see(c, off(w, t->at_param, SK_F32, t->param, t->u.n), 0);
    }
    untouched(w);
    return SK_OK;
}

/* Moved weights go to where narrow ones are, which may be f32 here; the master stays. */
static sk_status optim_perturb(optim_case *c)
{
    world *w = c->w;
    sk_update table[N_PARAMS];
    c->j.phases = 2;
    for (int i = 0; i < N_PARAMS; i++) {
        c->v[i].u.narrow = w->base + c->v[i].at_narrow;
        table[i] = c->v[i].u;
        sk_convert(w->image + c->v[i].at_param, SK_F32, c->v[i].param, SK_F32, table[i].n);
        for (int s = 0; s < sk_optim_arrays(c->o); s++)
            sk_convert(w->image + c->v[i].at_state[s], c->m.state, c->v[i].state[s], SK_F32,
                       table[i].n);
    }
    memcpy(w->image + c->table, table, sizeof table);
    SK_TRY(twice(w, [&]() { return c->k->perturb(&c->j, &w->g->l); }));
    for (int i = 0; i < N_PARAMS; i++) {
        twin *t = &c->v[i];
        sk_piece p = piece_of(c, t);
        if (c->m.skip || t->u.bias_update != 0) continue;
        c->o->perturb(&p);
        see(c, off(w, t->at_narrow, c->m.narrow, t->param, t->u.n), 0);
    }
    untouched(w);
    return SK_OK;
}

static void case_open(optim_case *c, world *w, const sk_optim_kernel *k, const manner *m)
{
    memset(c, 0, sizeof *c);
    world_clear(w, k->optim);
    c->w = w, c->k = k, c->o = sk_optim_find(k->optim), c->m = *m;
    c->pulse.updates = 7, c->pulse.lr = 0.01, c->pulse.loss_scale = 4, c->pulse.scale = 0.5f;
    if (c->o->average && m->shift) c->pulse.updates = 0; /* its state begins in the first update */
    c->j.warmup = m->grad == SK_F32 ? 0 : 20;
    c->pulse.skip = m->skip, c->pulse.norm = 0.25;
    if (m->state == SK_F32) c->pulse.momentum = 0.75; /* as a schedule sets it; else the knob's */
    size_t pulse = place(w, sizeof c->pulse, SK_U8, 0);
    memcpy(w->image + pulse, &c->pulse, sizeof c->pulse);
    c->table = place(w, sizeof(sk_update) * N_PARAMS, SK_U8, 0);
    c->j.pulse = (sk_step_scalars *)(w->base + pulse);
    c->j.pieces = (sk_update *)(w->base + c->table);
    c->j.n_pieces = N_PARAMS, c->j.seed = 11, c->j.share = 0.25F;
    c->j.grad_type = m->grad, c->j.state_type = m->state, c->j.narrow_type = m->narrow;
    for (int i = 0; c->o->knobs[i].name; i++) {
        c->j.knob[i] = c->o->knobs[i].usual;
        if (c->o->knobs[i].role == SK_KNOB_MOMENTUM) c->j.momentum |= 1u << i;
    }
    for (int i = 0; i < N_PARAMS; i++) twin_open(c, i);
}

static sk_status one_case(world *w, const sk_optim_kernel *k, const manner *m, double *worst,
                          double *by_lot)
{
    static optim_case c;
    case_open(&c, w, k, m);
    for (int pass = 0; c.o->pass[pass]; pass++) SK_TRY(optim_pass(&c, pass));
    if (c.o->ahead) SK_TRY(optim_ahead(&c));
    if (c.o->perturb && !(m->scale > 0)) SK_TRY(optim_perturb(&c));
    n_checks += 2;
    if (!(c.worst <= 1e-5) || !(c.by_lot <= 1e-3)) {
        n_bad++;
        tell("%s: %s gradients, %s state, %s narrow, %d off, skip %d, scale %g: off by %g, by lot "
             "%g",
             k->optim, sk_dtype_name(m->grad), sk_dtype_name(m->state), sk_dtype_name(m->narrow),
             m->shift, m->skip, (double)m->scale, c.worst, c.by_lot);
    }
    if (c.worst > *worst) *worst = c.worst;
    if (c.by_lot > *by_lot) *by_lot = c.by_lot;
    for (int i = 0; i < N_PARAMS; i++) twin_close(&c.v[i]);
    return SK_OK;
}

static sk_status optimizers(const gpu *g)
{
    world w;
    SK_TRY(world_open(g, (size_t)160 << 20, &w));
    for (const sk_optim_kernel *const *k = sk_optim_kernel_parts; *k; k++) {
        double worst = 0, by_lot = 0;
        if (!sk_optim_find((*k)->optim))
            return sk_fail(SK_EBUG, "%s has a GPU half and no other", (*k)->optim);
        for (int i = 0; i < 3 * 2 * 3 * 2; i++) {
            manner m = {floats[i % 3], floats[i / 3 % 2], floats[i / 6 % 3], i / 18};
            SK_TRY(one_case(&w, *k, &m, &worst, &by_lot));
            m.scale = 0.3f;
            if (i % 5 == 0) SK_TRY(one_case(&w, *k, &m, &worst, &by_lot));
            m.skip = true; /* but not with a scale of its own */
            if (i % 7 == 0) SK_TRY(one_case(&w, *k, &m, &worst, &by_lot));
            m.scale = 0;
            if (i % 2) SK_TRY(one_case(&w, *k, &m, &worst, &by_lot));
        }
        for (int i = 0; i < 3 * 3 * 2 * 2; i++) {
            manner m = {floats[i % 3], SK_U8, floats[i / 3 % 3], i / 9 % 2, i / 18 != 0};
            SK_TRY(one_case(&w, *k, &m, &worst, &by_lot));
        }
        manner m = {SK_BF16, SK_F32, SK_BF16, 0, false, true};
        SK_TRY(one_case(&w, *k, &m, &worst, &by_lot));
        m.state = SK_BF16;
        SK_TRY(one_case(&w, *k, &m, &worst, &by_lot));
        m.state = SK_U8;
        SK_TRY(one_case(&w, *k, &m, &worst, &by_lot));
        printf("%-8s worst difference %8.1e, %8.1e of the lots fell otherwise\n", (*k)->optim,
               worst, by_lot);
        fflush(stdout);
    }
    world_close(&w);
    return SK_OK;
}

/* ---- how fast */

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

template <typename F> static sk_status timed(const gpu *g, const char *what, double bytes, F launch)
{
    double seconds[N_TIMED];
    for (int i = -N_WARM; i < N_TIMED; i++) {
        SK_TRY(sk_event_record(g->d, g->from, g->s));
        SK_TRY(launch());
        SK_TRY(sk_event_record(g->d, g->to, g->s));
        SK_TRY(sk_stream_sync(g->d, g->s));
        if (i >= 0) SK_TRY(sk_event_seconds(g->d, g->from, g->to, &seconds[i]));
    }
    qsort(seconds, N_TIMED, sizeof *seconds, by_size);
    printf("%-32s %8.1f us %8.0f GB/s\n", what, 1e6 * seconds[N_TIMED / 2],
           1e-9 * bytes / seconds[N_TIMED / 2]);
    return SK_OK;
}

/* Parameters as a GPT has them: few that are large, many that are small; all in one pool, whose
 * first bytes are the pulse and the tables. */
typedef struct fast {
    const gpu *g;
    char *base;
    size_t at;
    sk_update v[148];
    sk_norm_piece norm[148];
    int64_t chunks;
} fast;

static void *fast_take(fast *f, int64_t n, size_t size)
{
    void *p = f->base + f->at;
    f->at += ((size_t)n * size + 63) / 64 * 64;
    return p;
}

static void fast_fill(fast *f, sk_dtype state)
{
    f->at = 1 << 20, f->chunks = 0;
    for (int i = 0; i < 148; i++) {
        sk_update *u = &f->v[i];
        memset(u, 0, sizeof *u);
        u->n = i % 2 ? 768 : TIMED / 74 - 768;
        u->chunk = f->chunks;
        f->chunks += sk_update_chunks(u->n);
        u->param = (float *)fast_take(f, u->n, 4);
        u->grad = fast_take(f, u->n, 2);
        for (int s = 0; s < 3; s++) {
            bool blocks = state == SK_U8 && u->n >= SK_Q8_LEAST;
            u->q8[s] = !blocks ? SK_Q8_NONE : s == 1 ? SK_Q8_UNSIGNED : SK_Q8_SIGNED;
            u->state[s] = blocks ? fast_take(f, sk_q8_bytes(u->n), 1)
                                 : fast_take(f, u->n, state == SK_BF16 ? 2 : 4);
        }
        u->narrow = fast_take(f, u->n, 2);
        u->grad_type = u->narrow_type = SK_BF16, u->state_type = state, u->owner = true;
        u->rate = 1;
        u->shape.n = 1, u->shape.size[0] = u->shape.full[0] = u->n;
        u->after = (double *)f->base + 1000 + SK_MAX_SUM * i, u->before = u->after;
        f->norm[i] = sk_norm_piece{u->grad, u->n, u->chunk, SK_BF16, true};
    }
}

static sk_status fast_pass(fast *f, const char *optim, int pass, sk_dtype state, int bytes)
{
    const sk_optim_kernel *k = sk_optim_kernel_find(optim);
    char what[64];
    fast_fill(f, state);
    for (int i = 0; i < 148; i++)
        if (k->pass[pass + 1]) f->v[i].narrow = NULL;
    SK_TRY(sk_device_copy(f->g->d, f->base + 65536, f->v, sizeof f->v, f->g->s));
    sk_update_job j = {(sk_update *)(f->base + 65536), 148, f->chunks, SK_BF16, state, SK_BF16};
    j.sums = k->pass[pass + 1] != NULL;
    const sk_optim *o = sk_optim_find(optim);
    for (int i = 0; o->knobs[i].name; i++) j.knob[i] = o->knobs[i].usual;
    j.pulse = (sk_step_scalars *)f->base;
    snprintf(what, sizeof what, "%s, pass %d, %s state", optim, pass, sk_dtype_name(state));
    return timed(f->g, what, (double)bytes * TIMED, [&]() { return k->pass[pass](&j, &f->g->l); });
}

static sk_status fast_rest(fast *f)
{
    const sk_inst_kernels *a = sk_inst_kernels_find();
    const gpu *g = f->g;
    char *x = f->base + (1 << 20), *y = x + ((size_t)256 << 20);
    int64_t n = 64 << 20;
    SK_TRY(sk_device_copy(g->d, f->base + 524288, f->norm, sizeof f->norm, g->s));
    sk_stats_job j = {(sk_norm_piece *)(f->base + 524288), 148, f->chunks, (double *)f->base + 500,
                      5};
    SK_TRY(timed(g, "stats, bf16", 2.0 * TIMED, [&]() { return a->stats(&j, &g->l); }));
    SK_TRY(
        timed(g, "add, bf16", 6.0 * (double)n, [&]() { return a->add(y, x, n, SK_BF16, g->s); }));
    SK_TRY(timed(g, "convert, bf16 to f32", 6.0 * (double)n,
                 [&]() { return a->convert(y, SK_F32, x, SK_BF16, n, g->s); }));
    SK_TRY(timed(g, "gather, 1,536 of 4,608 bytes", 2.0 * 1536 * 50000,
                 [&]() { return a->gather(y, 1536, x, 4608, 1536, 50000, g->s); }));
    SK_TRY(timed(g, "pack signs, bf16", 2.125 * (double)n,
                 [&]() { return a->pack(x, y, SK_BF16, n, 0, NULL, &g->l); }));
    SK_TRY(timed(g, "unpack signs, bf16", 2.125 * (double)n,
                 [&]() { return a->unpack(x, y, SK_BF16, n, 0, &g->l); }));
    SK_TRY(timed(g, "pack values, bf16, all zero", 2.25 * (double)n, [&]() {
        return a->pack(x, y, SK_BF16, n, n / 4, (int32_t *)f->base + 100, &g->l);
    }));
    return SK_OK;
}

/* 64 Mi gradients of bf16, in rows of whole blocks and in others. */
static sk_status fast_codes(fast *f, const char *codec, int64_t row)
{
    const gpu *g = f->g;
    sk_codec with = *sk_codec_find(codec);
    const sk_codec *c = &with;
    const sk_codec_kernel *k = sk_codec_kernel_find(codec);
    sk_code_job j = {};
    with.value = with.value_most > 1 ? 10 : 0.01;
    char what[64];
    j.type = SK_BF16, j.row = row, j.rows = (64 << 20) / row, j.pieces = 1;
    j.bytes = sk_codec_bytes(c, row);
    j.x = f->base + (1 << 20), j.code = (uint8_t *)j.x + ((size_t)256 << 20);
    j.loss_scale = &((const sk_step_scalars *)f->base)->loss_scale;
    j.step = &((const sk_step_scalars *)f->base)->step, j.place = row;
    double n = (double)(j.rows * row), code = (double)(j.rows * j.bytes);
    snprintf(what, sizeof what, "encode %s, rows of %lld", codec, (long long)row);
    SK_TRY(timed(g, what, 2 * n + code, [&]() { return k->encode(&j, g->s); }));
    snprintf(what, sizeof what, "decode %s, rows of %lld", codec, (long long)row);
    SK_TRY(timed(g, what, 2 * n + code, [&]() { return k->decode(&j, g->s); }));
    j.error = (float *)((char *)j.x + ((size_t)512 << 20));
    snprintf(what, sizeof what, "encode %s, feedback", codec);
    return timed(g, what, 10 * n + code, [&]() { return k->encode(&j, g->s); });
}

static sk_status speed(const gpu *g)
{
    static fast f;
    sk_step_scalars pulse = {};
    pulse.lr = 1e-3, pulse.loss_scale = 1, pulse.scale = 1;
    f.g = g;
    SK_TRY(sk_pool_open(g->d, (size_t)24 * TIMED + (2 << 20), (void **)&f.base));
    char *zero = (char *)calloc(1, (size_t)24 * TIMED);
    sk_assert(zero);
    SK_TRY(sk_device_copy(g->d, f.base, zero, (size_t)24 * TIMED, g->s));
    SK_TRY(sk_device_copy(g->d, f.base, &pulse, sizeof pulse, g->s));
    SK_TRY(sk_stream_sync(g->d, g->s));
    free(zero);
    SK_TRY(fast_pass(&f, "adamw", 0, SK_F32, 28));
    SK_TRY(fast_pass(&f, "adamw", 0, SK_BF16, 20));
    SK_TRY(fast_pass(&f, "adamw", 0, SK_U8, 16));
    SK_TRY(fast_pass(&f, "sgd", 0, SK_F32, 20));
    SK_TRY(fast_pass(&f, "lamb", 0, SK_F32, 26));
    SK_TRY(fast_pass(&f, "lamb", 1, SK_F32, 14));
    SK_TRY(fast_rest(&f));
    for (const sk_codec *const *c = sk_codec_parts; *c; c++) {
        if ((*c)->low_rank) continue;
        SK_TRY(fast_codes(&f, (*c)->name, 2048));
        SK_TRY(fast_codes(&f, (*c)->name, 1600));
    }
    sk_pool_close(g->d, f.base);
    return SK_OK;
}

/* ---- all */

static void refusals(const gpu *g)
{
    sk_update_job j = {};
    const sk_inst_kernels *a = sk_inst_kernels_find();
    world w = {};
    w.what = "refusals";
    j.grad_type = SK_I32;
    for (const sk_optim_kernel *const *k = sk_optim_kernel_parts; *k; k++)
        check(&w, (*k)->pass[0](&j, &g->l) != SK_OK, "i32 gradients were taken");
    check(&w, a->add(NULL, NULL, 1, SK_I32, g->s) != SK_OK, "i32 was added");
    check(&w, a->pack(NULL, NULL, SK_I64, 1, 0, NULL, &g->l) != SK_OK, "i64 was packed");
    check(&w, !sk_optim_kernel_find("nobody"), "nobody was found");
    sk_code_job code = {};
    code.type = SK_I32;
    for (const sk_codec_kernel *const *k = sk_codec_kernel_parts; *k; k++)
        check(&w, (*k)->encode(&code, g->s) != SK_OK, "i32 was encoded");
    check(&w, !sk_codec_kernel_find("int5"), "int5 was found");
}

static sk_status all(gpu *g)
{
    sk_device_facts f;
    SK_TRY(sk_device_look(g->d, &f));
    SK_TRY(sk_stream_open(g->d, &g->s));
    SK_TRY(sk_event_open(g->d, &g->from));
    SK_TRY(sk_event_open(g->d, &g->to));
    g->l.stream = g->s;
    g->l.workspace_bytes = SK_WORKSPACE;
    SK_TRY(sk_pool_open(g->d, g->l.workspace_bytes, (void **)&g->l.workspace));
    printf("%s: %s; seed %llu\n", sk_device_name(g->d), f.model, (unsigned long long)seed);
    refusals(g);
    SK_TRY(go_on(g->d, g->s, copies(g), &n_bad, "copies"));
    SK_TRY(go_on(g->d, g->s, sums(g), &n_bad, "sums"));
    SK_TRY(go_on(g->d, g->s, codecs(g), &n_bad, "codecs"));
    SK_TRY(go_on(g->d, g->s, optimizers(g), &n_bad, "optimizers"));
    return speed(g);
}

int main(int argc, char **argv)
{
    sk_enter(); /* as runs do: subnormal numbers are zero on both sides */
    gpu g = {};
    if (argc > 1) seed = strtoull(argv[1], NULL, 10);
    return on_gpu("acts", &g, all, &n_checks, &n_bad);
}
