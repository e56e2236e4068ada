/* grad_norm.c - the norm of all gradients, the sums of a step, and clipping, on the host. */
#include "run/cpu/optimize.h"
#include "run/ordered_sums.h"

#include <math.h>
#include <string.h>

static double squares(const real *x, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i += 4096) {
        int64_t end = i + 4096 < n ? i + 4096 : n;
        real part = 0;
#pragma omp simd reduction(+ : part)
        for (int64_t k = i; k < end; k++) part += x[k] * x[k];
        sum += (double)part;
    }
    return sum;
}

/* Every element counts once, at its owner, or on every rank for itself; bias updates of routers are
 * no gradients of the loss. */
static bool in_norm(const sk_run *r, const sk_param_plan *q)
{
    return (q->owner || sk_layout_timed(&r->p->layout)) && q->tensor->bias_update == 0;
}

void sk_see_part(const sk_run *r, int buf, int part, int of, sk_see_elements *f, void *ctx)
{
    const sk_buffer *b = &r->p->bufs.v[buf];
    size_t size = sk_dtype_size(b->type);
    const char *data = sk_run_data(r, buf);
    int64_t n = b->bytes / (int64_t)size, at = n * part / of, end = n * (part + 1) / of, m;
    real wide[SK_BLOCK];
    if (b->type == SK_F32) f(ctx, (const real *)(const void *)data + at, end - at);
    for (; b->type != SK_F32 && at < end; at += m) {
        m = end - at < SK_BLOCK ? end - at : SK_BLOCK;
        sk_convert(wide, SK_F32, data + (size_t)at * size, b->type, m);
        f(ctx, wide, m);
    }
}

static void see_finite(void *ctx, const real *x, int64_t n)
{
    real bad = 0;
#pragma omp simd reduction(+ : bad)
    for (int64_t i = 0; i < n; i++) bad += x[i] * 0;
    *(double *)ctx += (double)bad;
}

static void see_squares(void *ctx, const real *x, int64_t n) { *(double *)ctx += squares(x, n); }
static void see_exactly(void *ctx, const real *x, int64_t n) { sk_exact_add_squares(ctx, x, n); }

/* Offloaded gradients were summed before, by SQUARES. */
static void norm_part(void *ctx, int part, int of)
{
    sk_run *r = ctx;
    double *sum = &r->partial[part][0];
    *sum = 0;
    for (int i = 0; i < r->p->params.n; i++) {
        const sk_param_plan *q = &r->p->params.v[i];
        double *one = &r->squares[i * of + part];
        if (!in_norm(r, q)) continue;
        if (!r->p->bufs.v[q->grad_shard].placement) {
            *one = 0;
            sk_see_part(r, q->grad_shard, part, of, see_squares, one);
        }
        *sum += *one;
    }
}

static void exact_part(void *ctx, int part, int of)
{
    sk_run *r = ctx;
    for (int i = 0; i < r->p->params.n; i++) {
        const sk_param_plan *q = &r->p->params.v[i];
        if (in_norm(r, q) && !r->p->bufs.v[q->grad_shard].placement)
            sk_see_part(r, q->grad_shard, part, of, see_exactly, &r->exact[part]);
    }
}

static void offloaded_part(void *ctx, int part, int of)
{
    const sk_bound_inst *j = ctx;
    sk_run *r = j->r;
    double *one = &r->squares[j->in->param * of + part];
    *one = 0;
    if (!in_norm(r, &r->p->params.v[j->in->param]))
        sk_see_part(r, j->in->in[0], part, of, see_finite, one);
    else if (r->p->layout.canonical)
        sk_see_part(r, j->in->in[0], part, of, see_exactly, &r->exact[part]);
    else sk_see_part(r, j->in->in[0], part, of, see_squares, one);
}

/* Copies of gradients that another rank counts.  This rank updates its own copy of the weights with
 * them, so if they are not finite here alone, all ranks must know. */
static void copies_part(void *ctx, int part, int of)
{
    sk_run *r = ctx;
    r->partial[part][1] = 0;
    for (int i = 0; i < r->p->params.n; i++) {
        const sk_param_plan *q = &r->p->params.v[i];
        if (in_norm(r, q) || q->tensor->bias_update != 0) continue;
        if (r->p->bufs.v[q->grad_shard].placement) r->partial[part][1] += r->squares[i * of + part];
        else sk_see_part(r, q->grad_shard, part, of, see_finite, &r->partial[part][1]);
    }
}

/* 0, or NaN if a copy is not finite. */
static double copies(sk_run *r)
{
    double bad = 0;
    sk_threads_run(r->team, copies_part, r);
    for (int i = 0; i < r->p->threads; i++) bad += r->partial[i][1];
    return bad;
}

void sk_do_squares(sk_run *r, const sk_inst *in)
{
    sk_threads_run(r->team, offloaded_part, &(sk_bound_inst){r, in});
}

double sk_offloaded_squares(const sk_run *r)
{
    double sum = 0;
    for (int i = 0; i < r->p->params.n; i++) {
        const sk_param_plan *q = &r->p->params.v[i];
        if (q->tensor->bias_update != 0 || !r->p->bufs.v[q->grad_shard].placement) continue;
        for (int t = 0; t < r->p->threads; t++) sum += r->squares[i * r->p->threads + t];
    }
    return sum;
}

/* What threads have added up, to the sum in a buffer. */
static void take_exact(sk_run *r, int buf)
{
    sk_exact sum;
    memcpy(sum.limb, sk_run_data(r, buf), sizeof sum.limb);
    for (int i = 0; i < r->p->threads; i++) {
        sk_exact_merge(&sum, &r->exact[i]);
        r->exact[i] = (sk_exact){0};
    }
    memcpy(sk_run_data(r, buf), sum.limb, sizeof sum.limb);
}

static void squares_exactly(sk_run *r, int buf)
{
    memset(sk_run_data(r, buf), 0, sizeof(sk_exact));
    sk_threads_run(r->team, exact_part, r);
    take_exact(r, buf);
}

static double exact_value(const sk_run *r, int buf)
{
    sk_exact acc;
    memcpy(acc.limb, sk_run_data(r, buf), sizeof acc.limb);
    return sk_exact_value(&acc);
}

void sk_do_stats(sk_run *r, const sk_inst *in)
{
    const sk_program *p = r->p;
    double *s = sk_run_data(r, in->out[0]);
    memset(s, 0, (size_t)p->bufs.v[in->out[0]].bytes);
    if (in->out[1] >= 0) squares_exactly(r, in->out[1]);
    else if (in->training) {
        sk_threads_run(r->team, norm_part, r);
        for (int i = 0; i < p->threads; i++) s[SK_STAT_NORM] += r->partial[i][0];
    }
    if (in->training) s[SK_STAT_NORM] += copies(r);
    if (r->full) s[SK_STAT_NORM] += INFINITY;
    for (int w = 0; w < SK_N_SUMS; w++) {
        const sk_sum_plan *sum = &p->sums[w];
        for (int i = 0; sk_sum_made(p, w, in->training) && i < sum->n; i++) {
            double x = (double)*(real *)sk_run_data(r, sum->buf[i]);
            if (!sum->cell) s[SK_STAT_SUMS + w] = x;
            else if (sum->cell[i] >= 0) s[SK_STAT_SUMS + p->n_sums + sum->cell[i]] = x;
        }
    }
    if (in->training && r->set)
        memcpy(s + SK_STAT_SUMS, r->committed, sizeof *s * (size_t)p->n_sums);
}

static void sumsq_part(void *ctx, int part, int of)
{
    const sk_bound_inst *j = ctx;
    sk_run *r = j->r;
    r->partial[part][0] = 0;
    if (r->p->layout.canonical)
        sk_see_part(r, j->in->in[0], part, of, see_exactly, &r->exact[part]);
    else sk_see_part(r, j->in->in[0], part, of, see_squares, &r->partial[part][0]);
}

void sk_do_sumsq(sk_run *r, const sk_inst *in)
{
    if (!r->p->params.v[in->param].counts) return;
    sk_threads_run(r->team, sumsq_part, &(sk_bound_inst){r, in});
    if (r->p->layout.canonical) {
        take_exact(r, in->out[0]);
        return;
    }
    double *sum = sk_run_data(r, in->out[0]);
    for (int i = 0; i < r->p->threads; i++) *sum += r->partial[i][0];
}

/* In deterministic order an exact number beside what copies() left, 0 or NaN. */
static double squares_of(const sk_run *r, int stats, int exact)
{
    const double *s = sk_run_data(r, stats);
    return s[SK_STAT_NORM] + (exact >= 0 ? exact_value(r, exact) : 0);
}

/* Sums are known, of all ranks or of a replica: every rank of these computes the same loss and
 * norm.
 */
static void take_sums(sk_run *r, int stats, int exact)
{
    const double *s = sk_run_data(r, stats);
    const double *trees = s + SK_STAT_SUMS + r->p->n_sums;
    double sum[SK_N_SUMS] = {0};
    memcpy(sum, s + SK_STAT_SUMS, sizeof *sum * (size_t)r->p->n_sums);
    for (int w = 0; w < r->p->n_sums; w++) {
        const sk_sum_plan *x = &r->p->sums[w];
        int n = r->p->n_blocks;
        if (x->trees) sum[w] = sk_tree_sums(trees + (int64_t)x->tree * n, n, x->trees);
    }
    double tokens = sum[SK_SUM_WEIGHT] > 0 ? sum[SK_SUM_WEIGHT] : 1,
           squares = squares_of(r, stats, exact);
    r->out.loss = sum[SK_SUM_LOSS] / tokens;
    r->out.tokens = sum[SK_SUM_WEIGHT];
    r->out.aux = sum[SK_SUM_AUX] / tokens;
    r->out.drops = sum[SK_SUM_DROPS];
    r->out.right = sum[SK_SUM_RIGHT];
    r->out.grad_norm = sqrt(squares) / tokens / r->loss_scale;
    r->out.finite = isfinite(r->out.loss) && isfinite(r->out.grad_norm);
}

static void take_noise(sk_run *r, int noise)
{
    double tokens = r->out.tokens > 0 ? r->out.tokens : 1;
    double unit = tokens * r->loss_scale; /* of grad_norm */
    double small = noise < 0                ? 0
                   : r->p->layout.canonical ? exact_value(r, noise)
                                            : *(double *)sk_run_data(r, noise);
    r->out.small = small / (unit * unit);
}

/* What a step reports is of all replicas; the norm is the root of the mean square of theirs. */
static void report_all(sk_run *r, const sk_inst *in)
{
    if (in->in[3] < 0 || r->p->apart) return;
    take_sums(r, in->in[3], in->in[4]);
    r->out.grad_norm *= sqrt(sk_layout_replicas(&r->p->layout));
}

/* Before replicas have weights of their own, each has the gradient of all. */
static void take_together(sk_run *r, const sk_inst *in)
{
    take_sums(r, in->in[3], in->in[4]);
    double tokens = r->out.tokens > 0 ? r->out.tokens : 1;
    r->out.grad_norm = sqrt(squares_of(r, in->in[0], in->in[1])) / tokens / r->loss_scale;
    r->out.finite = isfinite(r->out.loss) && isfinite(r->out.grad_norm);
}

/* The error feedback of a skipped step is as bad as its gradients: it begins anew.  That of what
 * the optimizer sends is left alone (inst.held). */
static void reset_feedback(const sk_run *r)
{
    for (int i = 0; !r->p->layout.own_grads && i < r->p->params.n; i++) {
        int error = r->p->params.v[i].error;
        if (error >= 0) memset(sk_run_data(r, error), 0, (size_t)r->p->bufs.v[error].bytes);
    }
}

void sk_do_clip(sk_run *r, const sk_inst *in)
{
    double most = sk_run_first_phase(r) ? 0 : r->opts.knobs.clip;
    bool together = sk_run_together(r, in->together);
    if (together) take_together(r, in);
    else take_sums(r, in->in[0], in->in[1]);
    take_noise(r, in->in[2]);
    double tokens = r->out.tokens > 0 ? r->out.tokens : 1;
    double factor = most > 0 ? most / (r->out.grad_norm + 1e-6) : 1;
    if (!together) report_all(r, in);
    r->out.again = in->training && ((r->opts.no_drops && r->out.drops > 0) ||
                                    (r->opts.no_full && !isfinite(r->out.grad_norm)));
    if (!in->training) return;
    r->scale = (float)((factor < 1 ? factor : 1) / tokens / r->loss_scale);
    if (in->scale > 0) { /* updates were made already; the norm is that of the newest */
        r->out.grad_norm *= tokens * (double)in->scale;
        r->out.finite = isfinite(r->out.loss) && isfinite(r->out.grad_norm);
    }
    r->skip = !r->opts.alone && (r->bad_phase || !r->out.finite || r->out.again);
    if (r->skip) reset_feedback(r);
}
