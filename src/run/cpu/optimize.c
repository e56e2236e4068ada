/* optimize.c - the end of a step: sums over gradients, clipping, the optimizer's passes. */
#include "base/clock.h"
#include "base/hash.h"
#include "base/rng.h"
#include "run/run_state.h"
#include "run/ordered_sums.h"

#include <math.h>
#include <string.h>

enum { SMALL = 1 << 14 }; /* smaller pieces are not worth the team */

/* --- sums and clipping --- */

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

/* Every element once, and only of gradients of the loss. */
static bool in_norm(const sk_param_plan *q) { return q->owner && q->tensor->bias_update == 0; }

/* Elements of a buffer as f32, some at a time. */
typedef void see(void *ctx, const real *x, int64_t n);
static void see_part(const sk_run *r, int buf, int part, int of, see *f, void *ctx)
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

/* Gradients outside of the device were seen before, by SQUARES. */
static void norm_part(void *ctx, int part, int of)
{
    sk_run *r = ctx;
    double *sum = &r->partial[part][0];
    *sum = 0;
    for (int i = 0; i < r->p->params.n; i++) {
        const sk_param_plan *q = &r->p->params.v[i];
        double *one = &r->squares[i * of + part];
        if (!in_norm(q)) continue;
        if (!r->p->bufs.v[q->grad_shard].tier) {
            *one = 0;
            see_part(r, q->grad_shard, part, of, see_squares, one);
        }
        *sum += *one;
    }
}

static void exact_part(void *ctx, int part, int of)
{
    sk_run *r = ctx;
    for (int i = 0; i < r->p->params.n; i++) {
        const sk_param_plan *q = &r->p->params.v[i];
        if (in_norm(q) && !r->p->bufs.v[q->grad_shard].tier)
            see_part(r, q->grad_shard, part, of, see_exactly, &r->exact[part]);
    }
}

static void far_part(void *ctx, int part, int of)
{
    const sk_bound_inst *j = ctx;
    sk_run *r = j->r;
    double *one = &r->squares[j->in->param * of + part];
    *one = 0;
    if (!in_norm(&r->p->params.v[j->in->param]))
        see_part(r, j->in->in[0], part, of, see_finite, one);
    else if (r->p->layout.canonical)
        see_part(r, j->in->in[0], part, of, see_exactly, &r->exact[part]);
    else see_part(r, j->in->in[0], part, of, see_squares, one);
}

/* What another rank counts is here too, and this rank updates its own copy: a number that is not
 * finite here alone must be seen by all. */
static void copies_part(void *ctx, int part, int of)
{
    sk_run *r = ctx;
    r->partial[part][1] = 0;
    for (int i = 0; i < r->p->params.n; i++) {
        const sk_param_plan *q = &r->p->params.v[i];
        if (in_norm(q) || q->tensor->bias_update != 0) continue;
        if (r->p->bufs.v[q->grad_shard].tier) r->partial[part][1] += r->squares[i * of + part];
        else see_part(r, q->grad_shard, part, of, see_finite, &r->partial[part][1]);
    }
}

/* 0, or NaN. */
static double copies(sk_run *r)
{
    double bad = 0;
    sk_threads_run(r->team, copies_part, r);
    for (int i = 0; i < r->p->threads; i++) bad += r->partial[i][1];
    return bad;
}

void sk_do_squares(sk_run *r, const sk_inst *in)
{
    sk_threads_run(r->team, far_part, &(sk_bound_inst){r, in});
}

double sk_offloaded_squares(const sk_run *r)
{
    double sum = 0;
    for (int i = 0; i < r->p->params.n; i++) {
        const sk_param_plan *q = &r->p->params.v[i];
        if (q->tensor->bias_update != 0 || !r->p->bufs.v[q->grad_shard].tier) continue;
        for (int t = 0; t < r->p->threads; t++) sum += r->squares[i * r->p->threads + t];
    }
    return sum;
}

static void squares_exactly(sk_run *r, int buf)
{
    sk_exact sum = {0};
    sk_threads_run(r->team, exact_part, r);
    for (int i = 0; i < r->p->threads; i++) {
        sk_exact_merge(&sum, &r->exact[i]);
        r->exact[i] = (sk_exact){0};
    }
    memcpy(sk_run_data(r, buf), sum.limb, sizeof sum.limb);
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
        for (int i = 0; sum->counts && i < sum->n; i++) {
            double x = (double)*(real *)sk_run_data(r, sum->buf[i]);
            if (!sum->cell) s[SK_STAT_SUMS + w] = x;
            else if (sum->cell[i] >= 0) s[SK_STAT_SUMS + p->n_sums + sum->cell[i]] = x;
        }
    }
}

/* The sums are known: everybody finds the same loss and norm. */
static void take_sums(sk_run *r, const sk_inst *in)
{
    const double *s = sk_run_data(r, in->in[0]);
    int64_t cells = r->p->bufs.v[in->in[0]].box.size[0] - SK_STAT_SUMS - r->p->n_sums;
    double sum[SK_N_SUMS] = {0};
    memcpy(sum, s + SK_STAT_SUMS, sizeof *sum * (size_t)r->p->n_sums);
    double tokens = sum[SK_SUM_WEIGHT] > 0 ? sum[SK_SUM_WEIGHT] : 1, squares = s[SK_STAT_NORM];
    double loss =
        cells ? sk_tree_sum_blocks(s + SK_STAT_SUMS + r->p->n_sums, (int)cells) : sum[SK_SUM_LOSS];
    if (in->in[1] >= 0) {
        sk_exact acc;
        memcpy(acc.limb, sk_run_data(r, in->in[1]), sizeof acc.limb);
        squares += sk_exact_value(&acc); /* beside copies(): 0 or NaN */
    }
    r->out.loss = loss / tokens;
    r->out.tokens = sum[SK_SUM_WEIGHT];
    r->out.aux = sum[SK_SUM_AUX] / tokens;
    r->out.drops = sum[SK_SUM_DROPS];
    r->out.grad_norm = sqrt(squares) / tokens / r->loss_scale;
    r->out.finite = isfinite(r->out.loss) && isfinite(r->out.grad_norm);
}

/* What a step lost that is not taken has the same faults: all begin anew. */
static void forget_errors(const sk_run *r)
{
    for (int i = 0; i < r->p->params.n; i++) {
        int error = r->p->params.v[i].error;
        if (error >= 0) memset(sk_run_data(r, error), 0, (size_t)r->p->bufs.v[error].bytes);
    }
}

void sk_do_clip(sk_run *r, const sk_inst *in)
{
    double most = r->opts.knobs.clip;
    take_sums(r, in);
    r->out.again = in->training && ((r->opts.no_drops && r->out.drops > 0) ||
                                    (r->opts.no_full && !isfinite(r->out.grad_norm)));
    if (!in->training) return;
    double tokens = r->out.tokens > 0 ? r->out.tokens : 1;
    double factor = most > 0 ? most / (r->out.grad_norm + 1e-6) : 1;
    r->scale = (float)((factor < 1 ? factor : 1) / tokens / r->loss_scale);
    if (in->scale > 0) { /* the updates are made; the norm is of the newest */
        r->out.grad_norm *= tokens * (double)in->scale;
        r->out.finite = isfinite(r->out.loss) && isfinite(r->out.grad_norm);
    }
    r->skip = !r->opts.alone && (!r->out.finite || r->out.again);
    if (r->skip) forget_errors(r);
}

float sk_run_knob(const sk_run *r, int k, bool decays)
{
    sk_knob_role role = r->p->optim->knobs[k].role;
    if (role == SK_KNOB_LR) return (float)r->lr;
    return role == SK_KNOB_DECAY && !decays ? 0 : (float)r->opts.knobs.v[k];
}

float sk_run_decay(const sk_run *r)
{
    for (int k = 0; r->p->optim->knobs[k].name; k++)
        if (r->p->optim->knobs[k].role == SK_KNOB_DECAY) return (float)r->opts.knobs.v[k];
    return 0;
}

typedef struct update_job {
    sk_run *r;
    sk_piece piece; /* its gradient, if it is of f32 */
    const void *grad;
    sk_dtype type; /* of the gradient, and of the weights that are narrower than the master */
    void *narrow;  /* where the result goes too; or NULL */
    uint64_t name; /* of the tensor, hashed */
    void *state[SK_MAX_STATE]; /* narrow, of bf16; NULL: as the piece says */
    sk_view shape;             /* of the piece */
    void (*pass)(sk_piece *p);
} update_job;

static real *widen_state(const update_job *j, int s, int64_t from, int64_t n, real *to)
{
    sk_convert(to, SK_F32, (const uint16_t *)j->state[s] + from, SK_BF16, n);
    return to;
}

/* Up to SK_BLOCK elements that lie together, from logical place `at` on: a draw has the lots of
 * four, and they are drawn apart from the rounding, which is done by vectors then. */
static void round_run(uint64_t key, int64_t at, const real *restrict x, uint16_t *restrict to,
                      int64_t n)
{
    uint16_t lots[SK_BLOCK + 8];
    int64_t skip = at % 4;
    for (int64_t i = 0; i < skip + n; i += 4) {
        uint64_t four = sk_rng(key, 0, (uint64_t)(at + i) / 4).a;
        for (int k = 0; k < 4; k++) lots[i + k] = (uint16_t)(four >> 16 * k);
    }
#pragma omp simd
    for (int64_t i = 0; i < n; i++) to[i] = sk_to_bf16_stochastic((float)x[i], lots[skip + i]);
}

/* Rounded by lot: what changes by less than half a step each time must not stand still.  Lots go by
 * logical place, so they fall alike on any layout. */
static void narrow_state(const update_job *j, int s, int64_t from, int64_t n, const real *x)
{
    uint16_t *to = (uint16_t *)j->state[s] + from;
    const sk_view *v = &j->shape;
    int64_t row = v->n ? v->size[v->n - 1] : 1, m;
    uint64_t seed = j->r->opts.seed, stream = (uint64_t)j->piece.step * SK_MAX_STATE;
    uint64_t key = sk_rng(seed, j->name, stream + (uint64_t)s).a;
    for (int64_t i = 0; i < n; i += m) {
        int64_t left = row - (from + i) % row;
        m = n - i < left ? n - i : left;
        if (m > SK_BLOCK) m = SK_BLOCK;
        round_run(key, sk_logical(v, from + i), x + i, to + i, m);
    }
}

/* A pass over n elements from `from` on; narrow gradients are widened some at a time. */
static void pass_over(const update_job *j, const double *totals, int64_t from, int64_t n,
                      double *sum)
{
    real wide[SK_BLOCK], state[SK_MAX_STATE][SK_BLOCK];
    int64_t m = j->type == SK_F32 && !j->state[0] ? n : SK_BLOCK;
    memset(sum, 0, sizeof j->piece.sum);
    for (int64_t end = from + n; from < end; from += m) {
        sk_piece p = j->piece;
        p.n = end - from < m ? end - from : m;
        p.param += from;
        p.grad = j->type == SK_F32 ? p.grad + from : wide;
        if (j->type != SK_F32)
            sk_convert(wide, SK_F32, (const char *)j->grad + (size_t)from * sk_dtype_size(j->type),
                       j->type, p.n);
        for (int s = 0; s < SK_MAX_STATE; s++)
            if (j->state[s]) p.state[s] = widen_state(j, s, from, p.n, state[s]);
            else if (p.state[s]) p.state[s] += from;
        if (totals) memcpy(p.sum, totals, sizeof p.sum);
        else memset(p.sum, 0, sizeof p.sum);
        j->pass(&p);
        for (int s = 0; s < SK_MAX_STATE; s++)
            if (j->state[s]) narrow_state(j, s, from, p.n, state[s]);
        for (int s = 0; s < SK_MAX_SUM; s++) sum[s] += p.sum[s];
    }
}

/* This thread's elements. */
static void update_share(const update_job *j, int part, int of, int64_t *from, int64_t *to)
{
    *from = j->piece.n * part / of / 16 * 16;
    *to = part + 1 == of ? j->piece.n : j->piece.n * (part + 1) / of / 16 * 16;
}

static void narrow_master(void *ctx, int part, int of)
{
    const update_job *j = ctx;
    int64_t from, to;
    update_share(j, part, of, &from, &to);
    sk_convert((char *)j->narrow + (size_t)from * sk_dtype_size(j->type), j->type,
               j->piece.param + from, SK_F32, to - from);
}

static void update_part(void *ctx, int part, int of)
{
    update_job *j = ctx;
    int64_t from, to;
    update_share(j, part, of, &from, &to);
    pass_over(j, j->piece.sum, from, to - from, j->r->partial[part]);
    if (j->narrow) narrow_master(ctx, part, of);
}

/* The sums of the parameter at hand in a buffer that has a place for every parameter. */
static double *sums_of(const sk_run *r, const sk_inst *in, int buf)
{
    return (double *)sk_run_data(r, buf) + r->place[in->param] * SK_MAX_SUM;
}

static sk_fixed *fixed_of(const sk_run *r, const sk_inst *in, int buf)
{
    return (sk_fixed *)sk_run_data(r, buf) + r->place[in->param] * SK_MAX_SUM;
}

static void totals(const sk_run *r, const sk_inst *in, double sum[SK_MAX_SUM])
{
    if (in->in[1] < 0) return;
    for (int s = 0; s < SK_MAX_SUM; s++)
        sum[s] = r->p->layout.canonical ? sk_fixed_value(fixed_of(r, in, in->in[1]) + s)
                                        : sums_of(r, in, in->in[1])[s];
}

/* A pass that leaves sums, in canonical order: run by run, summed by cells. */
typedef struct cell_job {
    const update_job *job;
    sk_fixed *total;
    double cell[SK_MAX_SUM];
} cell_job;

static void cell_run(void *ctx, int64_t from, int64_t n, bool last)
{
    cell_job *c = ctx;
    double sum[SK_MAX_SUM];
    pass_over(c->job, NULL, from, n, sum);
    for (int s = 0; s < SK_MAX_SUM; s++) c->cell[s] += sum[s];
    if (!last) return;
    for (int s = 0; s < SK_MAX_SUM; s++) sk_fixed_add(&c->total[s], c->cell[s]);
    memset(c->cell, 0, sizeof c->cell);
}

static void cell_part(void *ctx, int part, int of)
{
    const update_job *j = ctx;
    cell_job c = {.job = j, .total = j->r->fixed[part]};
    memset(c.total, 0, sizeof j->r->fixed[part]);
    sk_visit_reduction_blocks(&j->shape, part, of, cell_run, &c);
}

static void update_by_cells(sk_run *r, const sk_inst *in, update_job *j)
{
    const sk_param_plan *q = &r->p->params.v[in->param];
    sk_fixed *sums = fixed_of(r, in, in->out[1]);
    sk_threads_run(r->team, cell_part, j);
    for (int s = 0; s < SK_MAX_SUM; s++)
        for (int t = 0; t < r->p->threads && q->owner; t++) {
            sk_fixed_join(&sums[s], r->fixed[t][s]); /* zeroed before the pass */
        }
}

static sk_piece piece_of(const sk_run *r, const sk_inst *in)
{
    const sk_program *p = r->p;
    const sk_param_plan *q = &p->params.v[in->param];
    const sk_buffer *shard = &p->bufs.v[q->shard];
    sk_piece x = {.n = shard->bytes / (int64_t)sk_dtype_size(shard->type),
                  .param = sk_run_data(r, in->out[2] >= 0 ? in->out[2] : in->out[0]),
                  .grad = sk_run_data(r, in->in[0]),
                  .scale = in->beside      ? 1 /* it was scaled before */
                           : in->scale > 0 ? in->scale / (float)r->loss_scale
                                           : r->scale,
                  .step = r->step * p->n_updates + r->shift + in->update + !in->beside,
                  .delay = in->delay};
    for (int s = 0; s < p->optim->n_state; s++) x.state[s] = sk_run_data(r, in->in[2 + s]);
    for (int k = 0; p->optim->knobs[k].name; k++) x.knob[k] = sk_run_knob(r, k, q->decay);
    return x;
}

static void name_state(const sk_run *r, const sk_inst *in, const sk_param_plan *q, update_job *j)
{
    j->name = sk_hash_text(q->tensor->name);
    for (int s = 0; s < q->n_state; s++)
        if (r->p->bufs.v[q->state[s]].type != SK_F32) j->state[s] = sk_run_data(r, in->in[2 + s]);
}

typedef struct pend_job {
    real *to;
    float scale; /* 0: the step is skipped */
} pend_job;

void sk_do_predict(sk_run *r, const sk_inst *in)
{
    const sk_param_plan *q = &r->p->params.v[in->param];
    update_job j = {.r = r, .pass = r->p->optim->ahead, .piece = piece_of(r, in), .type = SK_F32};
    name_state(r, in, q, &j); /* narrow state is only read: what is not changed is not rounded */
    j.shape = sk_buffer_view(r->p, q->shard, r->base);
    memcpy(j.piece.param, sk_run_data(r, in->in[0]), (size_t)j.piece.n * sizeof(real));
    if (j.piece.n < SMALL) update_part(&j, 0, 1);
    else sk_threads_run(r->team, update_part, &j);
}

/* A step of fixed size against the sign of the gradient, whatever the optimizer is. */
static void nudge(const sk_run *r, const sk_inst *in, const sk_param_plan *q)
{
    const real *grad = sk_run_data(r, in->in[0]);
    real *w = sk_run_data(r, in->out[0]), step = (real)q->tensor->bias_update;
    int64_t n = r->p->bufs.v[q->shard].bytes / (int64_t)sizeof(real);
    for (int64_t i = 0; i < n; i++) w[i] -= grad[i] > 0 ? step : grad[i] < 0 ? -step : 0;
}

static void late_part(void *ctx, int part, int of)
{
    const update_job *j = ctx;
    int64_t from, to;
    double sum[SK_MAX_SUM];
    update_share(j, part, of, &from, &to);
    pass_over(j, j->piece.sum, from, to - from, sum);
}

/* On the thread beside the rank; with more where the rank's own have nothing to do. */
static sk_status update_late(void *ctx)
{
    const sk_bound_inst *f = ctx;
    const sk_run *r = f->r;
    const sk_param_plan *q = &r->p->params.v[f->in->param];
    update_job j = {.r = f->r, .pass = r->p->optim->pass[0], .piece = piece_of(r, f->in)};
    name_state(r, f->in, q, &j);
    j.type = SK_F32;
    j.shape = sk_buffer_view(r->p, q->master, r->base);
    if (!r->helpers || j.piece.n < SMALL) late_part(&j, 0, 1);
    else sk_threads_run(r->helpers, late_part, &j);
    return SK_OK;
}

sk_status sk_do_join(sk_run *r)
{
    double before = sk_now();
    for (int i = 0; i < r->p->params.n; i++) SK_TRY(sk_background_wait(r->updater, i, r->patience));
    r->waited += sk_now() - before;
    return SK_OK;
}

void sk_do_narrow(sk_run *r, const sk_inst *in)
{
    const sk_buffer *b = &r->p->bufs.v[in->out[0]];
    update_job j = {.r = r, .type = b->type, .narrow = sk_run_data(r, in->out[0])};
    j.piece.n = b->bytes / (int64_t)sk_dtype_size(b->type);
    j.piece.param = sk_run_data(r, in->in[0]);
    sk_threads_run(r->team, narrow_master, &j);
}

static void pend_some(void *ctx, const real *x, int64_t n)
{
    pend_job *j = ctx;
    for (int64_t i = 0; i < n; i++) j->to[i] = j->scale > 0 ? x[i] * j->scale : 0;
    j->to += n;
}

static void pend_part(void *ctx, int part, int of)
{
    const sk_bound_inst *f = ctx;
    const sk_run *r = f->r;
    int64_t n = r->p->bufs.v[f->in->out[0]].bytes / (int64_t)sizeof(real);
    pend_job j = {(real *)sk_run_data(r, f->in->out[0]) + n * part / of, r->skip ? 0 : r->scale};
    see_part(r, f->in->in[0], part, of, pend_some, &j);
}

void sk_do_pend(sk_run *r, const sk_inst *in)
{
    sk_threads_run(r->team, pend_part, &(sk_bound_inst){r, in});
}

static void update(sk_run *r, const sk_inst *in)
{
    const sk_program *p = r->p;
    const sk_param_plan *q = &p->params.v[in->param];
    update_job j = {.r = r, .pass = p->optim->pass[in->pass]};
    bool last = q->master >= 0 && !p->optim->pass[in->pass + 1];
    if (q->tensor->bias_update != 0) {
        if (!r->skip) nudge(r, in, q);
        return;
    }
    j.piece = piece_of(r, in);
    j.grad = j.piece.grad;
    j.type = p->bufs.v[in->in[0]].type;
    if (last) j.narrow = sk_run_data(r, in->out[0]);
    if (r->skip) { /* a copy of the weights goes home all the same */
        if (last) sk_threads_run(r->team, narrow_master, &j);
        return;
    }
    j.shape = sk_buffer_view(p, q->shard, r->base);
    name_state(r, in, q, &j);
    totals(r, in, j.piece.sum);
    if (in->out[1] >= 0 && p->layout.canonical) {
        update_by_cells(r, in, &j);
        return;
    }
    int parts = j.piece.n < SMALL ? 1 : p->threads;
    if (parts == 1) update_part(&j, 0, 1);
    else sk_threads_run(r->team, update_part, &j);
    if (in->out[1] < 0) return;
    double *sums = sums_of(r, in, in->out[1]);
    for (int s = 0; s < SK_MAX_SUM; s++) {
        sums[s] = 0;
        for (int t = 0; t < parts && q->owner; t++) sums[s] += r->partial[t][s];
    }
}

void sk_do_update(sk_run *r, const sk_inst *in)
{
    if (!in->beside) update(r, in);
    else if (r->pending)
        sk_background_begin(r->updater, in->param, update_late, sk_bind_inst(r, in));
}
