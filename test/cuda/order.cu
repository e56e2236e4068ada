/* order.cu - canonical order in the engine's own work on a GPU: sums over members as coll/call.h's
 * tree goes, squares without rounding, the loss by cells, updates that do not see where a piece was
 * cut.  All to the bit.  Exit code 77: there is no GPU. */
#include "base/entry.h"
#include "base/exact.h"
#include "base/fixed.h"
#include "base/rng.h"
#include "device/device.h"
#include "lib/on_gpu.h"
#include "run/gpu/inst_kernels.h"
#include "run/ordered_sums.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int n_checks, n_bad;

typedef struct gpu {
    sk_device *d;
    sk_stream *s;
    sk_launch l;
    char *base; /* of the pool that cases take from */
    size_t used;
} gpu;

enum { POOL = 64 << 20 };

static void check(bool right, const char *what, int64_t i)
{
    n_checks++;
    if (right) return;
    n_bad++;
    tell("%s (%lld) is wrong", what, (long long)i);
}

/* Bytes to the device, `shift` of them behind a line of 256. */
static sk_status put(gpu *g, const void *from, size_t bytes, int shift, void *at)
{
    char *to = g->base + g->used + shift;
    g->used += (bytes + (size_t)shift + 511) / 256 * 256;
    sk_assert(g->used <= POOL);
    memcpy(at, &to, sizeof to);
    return sk_device_copy(g->d, to, from, bytes, g->s);
}

static sk_status get(gpu *g, void *to, const void *from, size_t bytes)
{
    SK_TRY(sk_device_copy(g->d, to, from, bytes, g->s));
    return sk_stream_sync(g->d, g->s);
}

static float drawn(uint64_t stream, int64_t i)
{
    double u = sk_rng_uniform(1, stream, (uint64_t)i);
    return (float)ldexp(2 * u - 1, (int)(i * 7 % 40) - 30);
}

/* ---- a sum over members */

template <typename T> static T branch(const T *x, int n)
{
    int left = 1;
    if (n == 1) return *x;
    while (2 * left < n) left *= 2;
    return branch(x, left) + branch(x + left, n - left);
}

template <typename T> static sk_status members(gpu *g, int p, sk_dtype type, bool mean)
{
    enum { N = 1001, MOST = 17 };
    static T x[MOST][N + 7], got[N];
    for (int k = 0; k < p; k++)
        for (int i = 0; i < N + 7; i++) x[k][i] = (T)drawn((uint64_t)k, i);
    for (int me = 0; me < p; me += 1 + p / 3) {
        sk_tree_job j = {};
        char *terms, *mine;
        g->used = 0;
        SK_TRY(put(g, x, sizeof x, 0, &terms));
        SK_TRY(put(g, x[me], sizeof x[me], (int)sizeof(T), &mine));
        SK_TRY(sk_device_zero(g->d, terms + me * (int64_t)sizeof x[0], sizeof x[0], g->s));
        j.to = mine, j.mine = mine; /* in place */
        j.terms = terms, j.step = sizeof x[0], j.me = me, j.members = p;
        j.n = N, j.type = type, j.mean = mean;
        SK_TRY(sk_inst_kernels_find()->tree(&j, g->s));
        SK_TRY(get(g, got, mine, sizeof got));
        bool same = true;
        for (int i = 0; i < N; i++) {
            T all[MOST], want;
            for (int k = 0; k < p; k++) all[k] = x[k][i];
            want = branch(all, p);
            if (mean) want /= (T)p;
            same = same && !memcmp(&want, &got[i], sizeof want);
        }
        check(same, type == SK_F32 ? "a sum of f32 over members" : "a sum of f64 over members", p);
    }
    return SK_OK;
}

/* ---- squares, the loss, the norm */

enum { PIECES = 5 };

static sk_status lay_pieces(gpu *g, bool poison, sk_norm_piece *v, int64_t *chunks, sk_exact *want)
{
    static const int64_t sizes[PIECES] = {1, 40000, 0, 8192, 100003};
    *chunks = 0;
    for (int k = 0; k < PIECES; k++) {
        float *x = (float *)malloc((size_t)sizes[k] * sizeof *x + 1);
        for (int64_t i = 0; i < sizes[k]; i++)
            x[i] = i % 11 ? drawn((uint64_t)k, i) : i % 3 ? 1e-42f : 3e38f;
        if (poison && k == 1) x[17] = NAN, x[18] = -INFINITY;
        v[k] = sk_norm_piece{NULL, sizes[k], *chunks, SK_F32, k != 3};
        SK_TRY(put(g, x, (size_t)sizes[k] * sizeof *x, k % 2 * 4, &v[k].data));
        SK_TRY(sk_stream_sync(g->d, g->s));
        if (k != 3) sk_exact_add_squares(want, x, sizes[k]);
        *chunks += sk_update_chunks(sizes[k]);
        free(x);
    }
    return SK_OK;
}

static sk_status statistics(gpu *g, bool poison)
{
    sk_norm_piece v[PIECES];
    sk_exact want = {}, zero = {}, got;
    double cells[8] = {1, 0x1p-24, 3, 0x1p-22, 5, 0x1p-25, 7, 8}, sums[4 + 8] = {0}, none[16] = {0};
    sk_step_scalars pulse = {};
    sk_stats_job j = {};
    sk_clip_job c = {};
    g->used = 0;
    SK_TRY(lay_pieces(g, poison, v, &j.chunks, &want));
    SK_TRY(put(g, v, sizeof v, 0, &j.pieces));
    SK_TRY(put(g, &zero, sizeof zero, 0, &j.exact));
    SK_TRY(put(g, none, sizeof none, 0, &j.out));
    j.n_pieces = PIECES, j.out_n = 12, j.n_sums = 3;
    SK_TRY(sk_inst_kernels_find()->stats(&j, &g->l));
    SK_TRY(get(g, sums, j.out, sizeof sums));
    SK_TRY(get(g, &got, j.exact, sizeof got));
    check(!memcmp(&sums[0], &none[0], sizeof *sums), "the norm without what counts", poison);
    sk_exact tidy = got;
    sk_exact_carry(&tidy);
    check(!memcmp(&tidy, &want, sizeof want), "the exact sum of squares", poison);
    sums[2] = 4;
    memcpy(sums + 4, cells, sizeof cells);
    pulse.loss_scale = 1;
    SK_TRY(put(g, sums, sizeof sums, 0, &c.sums));
    SK_TRY(put(g, &pulse, sizeof pulse, 0, &c.pulse));
    c.n_sums = 3, c.exact = j.exact, c.of[SK_SUM_LOSS].trees = 1, c.n_blocks = 8, c.train = true;
    SK_TRY(sk_inst_kernels_find()->clip(&c, &g->l));
    SK_TRY(get(g, &pulse, c.pulse, sizeof pulse));
    double norm = sqrt(sk_exact_value(&want)) / 4, loss = sk_tree_sum_blocks(cells, 8) / 4;
    check(pulse.norm == norm || (poison && isnan(pulse.norm)), "the norm", poison);
    check(pulse.loss == loss && pulse.skip == poison, "the loss", poison);
    return SK_OK;
}

/* ---- updates: a piece as a whole, and in two, which begin at other places */

typedef struct tensor {
    float *param, *grad, *state[SK_MAX_STATE]; /* on the device */
    sk_fixed *sums[SK_MAX_PASS];
    double *most[SK_MAX_PASS];
    float *scalar;
} tensor;

enum { SIZE = 20011 };

static sk_status lay(gpu *g, const sk_optim *o, int64_t from, int64_t n, int shift, tensor *t)
{
    float *x = (float *)malloc((size_t)n * sizeof *x);
    sk_fixed none[SK_MAX_SUM] = {};
    void **at[2 + SK_MAX_STATE] = {(void **)&t->param, (void **)&t->grad};
    for (int s = 0; s < sk_optim_arrays(o); s++) at[2 + s] = (void **)&t->state[s];
    for (int k = 0; k < 2 + sk_optim_arrays(o); k++) {
        for (int64_t i = 0; i < n; i++) {
            x[i] = (float)(2 * sk_rng_uniform(3, (uint64_t)k, (uint64_t)(from + i)) - 1);
            if (k > 1) x[i] = fabsf(x[i]);
        }
        SK_TRY(put(g, x, (size_t)n * sizeof *x, shift, at[k]));
        SK_TRY(sk_stream_sync(g->d, g->s));
    }
    const float ones[SK_MAX_SCALAR] = {1, 1, 1, 1};
    for (int k = 0; k < SK_MAX_PASS; k++) {
        SK_TRY(put(g, none, sizeof none, 0, &t->sums[k]));
        SK_TRY(put(g, none, sizeof(double) * SK_MAX_SUM, 0, &t->most[k]));
    }
    SK_TRY(put(g, ones, sizeof ones, 0, &t->scalar));
    free(x);
    return SK_OK;
}

static sk_update update_of(const sk_optim *o, const tensor *t, int64_t n, int pass)
{
    sk_update u = {};
    u.n = n, u.param = t->param, u.grad = t->grad;
    for (int s = 0; s < sk_optim_arrays(o); s++) u.state[s] = t->state[s];
    u.grad_type = u.state_type = u.narrow_type = SK_F32;
    u.decay = 0.1f, u.owner = true;
    if (pass && sk_optim_totals(o, pass - 1)) u.before = t->sums[pass - 1];
    if (u.before && o->maxima) u.before_most = t->most[pass - 1];
    if (sk_optim_totals(o, pass)) u.after = t->sums[pass];
    if (u.after && o->maxima) u.after_most = t->most[pass];
    u.elements = SIZE;
    u.scalar = o->scalars[0] ? t->scalar : NULL;
    u.shape.n = 1, u.shape.size[0] = u.shape.full[0] = n;
    sk_view_dense(&u.shape);
    return u;
}

static sk_status one_pass(gpu *g, const sk_optim_kernel *k, const tensor *t, const int64_t *n,
                          int pieces, int pass, const sk_step_scalars *pulse)
{
    const sk_optim *o = sk_optim_find(k->optim);
    sk_update u[2];
    sk_update_job j = {};
    for (int i = 0; i < pieces; i++) {
        u[i] = update_of(o, &t[i], n[i], pass);
        u[i].chunk = j.chunks;
        j.chunks += sk_update_chunks(n[i]);
        j.sums |= u[i].after != NULL;
    }
    SK_TRY(put(g, u, sizeof u, 0, &j.pieces));
    j.n_pieces = pieces, j.grad_type = j.state_type = j.narrow_type = SK_F32;
    j.ordered = true, j.pulse = pulse, j.maxima = o->maxima, j.share = 0.25F;
    for (int i = 0; o->knobs[i].name; i++) j.knob[i] = o->knobs[i].usual;
    SK_TRY(k->pass[pass](&j, &g->l));
    return sk_stream_sync(g->d, g->s);
}

/* Between passes the sums of the two meet, as ranks meet. */
static sk_status meet(gpu *g, const tensor *t, int pass, bool *same)
{
    sk_fixed all[3][SK_MAX_SUM];
    for (int i = 0; i < 3; i++) SK_TRY(get(g, all[i], t[i].sums[pass], sizeof all[i]));
    for (int s = 0; s < SK_MAX_SUM; s++) sk_fixed_join(&all[1][s], all[2][s]);
    *same = *same && !memcmp(all[0], all[1], sizeof all[0]);
    double most[3][SK_MAX_SUM];
    for (int i = 0; i < 3; i++) SK_TRY(get(g, most[i], t[i].most[pass], sizeof most[i]));
    for (int s = 0; s < SK_MAX_SUM; s++) most[1][s] = fmax(most[1][s], most[2][s]);
    *same = *same && !memcmp(most[0], most[1], sizeof most[0]);
    for (int i = 1; i < 3; i++)
        SK_TRY(sk_device_copy(g->d, t[i].most[pass], most[1], sizeof most[1], g->s));
    for (int i = 1; i < 3; i++)
        SK_TRY(sk_device_copy(g->d, t[i].sums[pass], all[1], sizeof all[1], g->s));
    return sk_stream_sync(g->d, g->s);
}

static sk_status updates(gpu *g, const sk_optim_kernel *k, int64_t cut)
{
    static float whole[SIZE], parts[SIZE];
    const sk_optim *o = sk_optim_find(k->optim);
    int64_t n[3] = {SIZE, cut, SIZE - cut};
    tensor t[3] = {};
    sk_step_scalars pulse = {}, *there;
    bool same = true;
    g->used = 0;
    pulse.lr = 0.01, pulse.loss_scale = 1, pulse.scale = 0.7f, pulse.updates = 4;
    SK_TRY(put(g, &pulse, sizeof pulse, 0, &there));
    for (int i = 0; i < 3; i++) SK_TRY(lay(g, o, i == 2 ? cut : 0, n[i], i == 2 ? 4 : 0, &t[i]));
    for (int pass = 0; o->pass[pass]; pass++) {
        SK_TRY(one_pass(g, k, t, n, 1, pass, there));
        SK_TRY(one_pass(g, k, t + 1, n + 1, 2, pass, there));
        if (sk_optim_totals(o, pass)) SK_TRY(meet(g, t, pass, &same));
    }
    check(same, "sums of an optimizer", cut);
    for (int s = -1; s < sk_optim_arrays(o); s++) {
        const float *at[3];
        for (int i = 0; i < 3; i++) at[i] = s < 0 ? t[i].param : t[i].state[s];
        SK_TRY(get(g, whole, at[0], sizeof whole));
        SK_TRY(get(g, parts, at[1], (size_t)cut * sizeof *parts));
        SK_TRY(get(g, parts + cut, at[2], (size_t)(SIZE - cut) * sizeof *parts));
        check(!memcmp(whole, parts, sizeof whole), k->optim, cut);
    }
    return SK_OK;
}

static sk_status all(gpu *g)
{
    SK_TRY(sk_stream_open(g->d, &g->s));
    SK_TRY(sk_pool_open(g->d, POOL, (void **)&g->base));
    g->l.stream = g->s, g->l.workspace_bytes = SK_WORKSPACE;
    SK_TRY(sk_pool_open(g->d, SK_WORKSPACE, (void **)&g->l.workspace));
    for (int p = 1; p <= 17; p++) {
        SK_TRY(members<float>(g, p, SK_F32, p % 4 == 3));
        SK_TRY(members<double>(g, p, SK_F64, p % 4 == 1));
    }
    SK_TRY(statistics(g, false));
    SK_TRY(statistics(g, true));
    for (const sk_optim_kernel *const *k = sk_optim_kernel_parts; *k; k++)
        for (int64_t cut = 1; cut < SIZE; cut += 6661) SK_TRY(updates(g, *k, cut));
    return SK_OK;
}

int main(void)
{
    sk_enter(); /* as runs do: subnormal numbers are zero on both sides */
    gpu g = {};
    return on_gpu("order", &g, all, &n_checks, &n_bad);
}
