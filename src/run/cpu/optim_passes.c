/* optim_passes.c - the passes of an optimizer over the shards of parameters that a rank updates, on
 * the host. */
#include "base/clock.h"
#include "base/hash.h"
#include "base/rng.h"
#include "run/cpu/optimize.h"
#include "run/ordered_sums.h"

#include <math.h>
#include <string.h>

/* Layers are those of the graph: 0 for what comes before the first block, the highest for the head.
 * A tied embedding belongs to the layer that declares it. */
double sk_run_rate(const sk_run *r, const sk_param_plan *q)
{
    double rate = r->opts.knobs.group[q->group].rate, decay = r->opts.knobs.layer_decay;
    return decay > 0 ? rate * pow(decay, r->p->graph->n_layers - 1 - q->tensor->layer) : rate;
}

bool sk_run_cycles(const sk_run *r, const sk_param_plan *q, int k)
{
    return q->optim->knobs[k].role == SK_KNOB_MOMENTUM && r->opts.knobs.group[q->group].v[k] > 0;
}

float sk_run_knob(const sk_run *r, const sk_param_plan *q, int k, bool decays)
{
    sk_knob_role role = q->optim->knobs[k].role;
    if (role == SK_KNOB_LR) return (float)(r->lr * sk_run_rate(r, q));
    if (r->momentum > 0 && sk_run_cycles(r, q, k)) return (float)r->momentum;
    return role == SK_KNOB_DECAY && !decays ? 0 : (float)r->opts.knobs.group[q->group].v[k];
}

float sk_run_decay(const sk_run *r, const sk_param_plan *q)
{
    for (int k = 0; q->optim->knobs[k].name; k++)
        if (q->optim->knobs[k].role == SK_KNOB_DECAY) return sk_run_knob(r, q, k, true);
    return 0;
}

typedef struct update_job {
    sk_run *r;
    sk_piece piece; /* its .grad is used only if that is f32 */
    const void *grad;
    sk_dtype type; /* of the gradient, and of the weights that are narrower than the master */
    void *narrow;  /* the weights in that type, written too; or NULL */
    uint64_t name; /* hash of the name of the tensor */
    void *state[SK_MAX_STATE]; /* state kept in bf16 or in blocks of 8 bits; NULL: f32, as the
                                  piece says */
    sk_q8 q8[SK_MAX_STATE];    /* the map of blocks; 0: bf16 */
    int64_t unit;              /* elements: threads have multiples of it */
    sk_view shape;             /* of the shard */
    unsigned maxima;           /* as in sk_optim */
    void (*pass)(sk_piece *p);
} update_job;

static real *widen_state(const update_job *j, int s, int64_t from, int64_t n, real *to)
{
    if (j->q8[s]) sk_q8_decode(j->q8[s], j->state[s], j->piece.n, from, to, n);
    else sk_convert(to, SK_F32, (const uint16_t *)j->state[s] + from, SK_BF16, n);
    return to;
}

/* Stochastic rounding of up to SK_BLOCK contiguous elements, the first at logical index `at`.  One
 * random number has the bits for four elements.  All are drawn before the rounding, so that the
 * rounding is vectorised. */
static void round_run(uint64_t key, int64_t at, const real *restrict x, uint16_t *restrict to,
                      int64_t n)
{
    uint16_t bits[SK_BLOCK + 8];
    int64_t skip = at % 4;
    for (int64_t i = 0; i < skip + n; i += 4) {
        uint64_t four = sk_rng(key, 0, (uint64_t)(at + i) / 4).a;
        for (int k = 0; k < 4; k++) bits[i + k] = (uint16_t)(four >> 16 * k);
    }
#pragma omp simd
    for (int64_t i = 0; i < n; i++) to[i] = sk_to_bf16_stochastic((float)x[i], bits[skip + i]);
}

/* Stochastic rounding: state that changes by less than half a unit in the last place each time must
 * still move.  Random bits go by logical index, so they are the same on any layout. */
static void narrow_state(const update_job *j, int s, int64_t from, int64_t n, const real *x)
{
    if (j->q8[s]) {
        sk_q8_encode(j->q8[s], j->state[s], j->piece.n, from, x, n);
        return;
    }
    uint16_t *to = (uint16_t *)j->state[s] + from;
    const sk_view *v = &j->shape;
    int64_t row = v->n ? v->size[v->n - 1] : 1, m;
    uint64_t seed = j->r->opts.seed, stream = (uint64_t)j->piece.step * SK_ROUNDED_STATES;
    uint64_t key = sk_rng(seed, j->name, stream + (uint64_t)s).a;
    for (int64_t i = 0; i < n; i += m) {
        int64_t left = row - (from + i) % row;
        m = n - i < left ? n - i : left;
        if (m > SK_BLOCK) m = SK_BLOCK;
        round_run(key, sk_logical(v, from + i), x + i, to + i, m);
    }
}

/* A total of some elements and that of others. */
static double joined(const update_job *j, int s, double x, double y)
{
    return j->maxima >> s & 1 ? fmax(x, y) : x + y;
}

static bool is_wide(const update_job *j)
{
    bool wide = j->type == SK_F32;
    for (int s = 0; s < SK_MAX_STATE; s++) wide = wide && !j->state[s];
    return wide;
}

/* A pass over n elements from `from` on; gradients and state that are not f32 are converted a block
 * at a time. */
static void pass_over(const update_job *j, const double *totals, int64_t from, int64_t n,
                      double *sum)
{
    real wide[SK_BLOCK], state[SK_MAX_STATE][SK_BLOCK];
    int64_t m = is_wide(j) ? n : SK_BLOCK;
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
        memcpy(p.sum, totals, sizeof p.sum);
        j->pass(&p);
        for (int s = 0; s < SK_MAX_STATE; s++)
            if (j->state[s]) narrow_state(j, s, from, p.n, state[s]);
        for (int s = 0; s < SK_MAX_SUM; s++) sum[s] = joined(j, s, sum[s], p.sum[s]);
    }
}

/* The elements of one thread. */
static void update_share(const update_job *j, int part, int of, int64_t *from, int64_t *to)
{
    int64_t unit = j->unit ? j->unit : 16;
    *from = j->piece.n * part / of / unit * unit;
    *to = part + 1 == of ? j->piece.n : j->piece.n * (part + 1) / of / unit * unit;
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

/* The sums of this parameter in a buffer that has an entry for every parameter. */
static double *sums_of(const sk_run *r, const sk_inst *in, int buf)
{
    return (double *)sk_run_data(r, buf) + r->place[in->param] * SK_MAX_SUM;
}

static sk_fixed *fixed_of(const sk_run *r, const sk_inst *in, int buf)
{
    return (sk_fixed *)sk_run_data(r, buf) + r->place[in->param] * SK_MAX_SUM;
}

/* Behind the sums of all parameters (program/update.c). */
static double *maxima_of(const sk_run *r, const sk_inst *in, int buf)
{
    int64_t words = r->p->bufs.v[buf].bytes / 8, most = words / (r->p->layout.canonical ? 3 : 2);
    return (double *)sk_run_data(r, buf) + words - most + r->place[in->param] * SK_MAX_SUM;
}

static void totals(const sk_run *r, const sk_inst *in, unsigned maxima, double sum[SK_MAX_SUM])
{
    if (in->in[1] < 0) return;
    for (int s = 0; s < SK_MAX_SUM; s++)
        sum[s] = maxima >> s & 1          ? maxima_of(r, in, in->in[1])[s]
                 : r->p->layout.canonical ? sk_fixed_value(fixed_of(r, in, in->in[1]) + s)
                                          : sums_of(r, in, in->in[1])[s];
}

/* A pass that leaves sums, in deterministic order: summed by reduction blocks. */
typedef struct block_job {
    const update_job *job;
    sk_fixed *total;
    double sum[SK_MAX_SUM], *most;
} block_job;

static void block_run(void *ctx, int64_t from, int64_t n, bool last)
{
    block_job *c = ctx;
    double sum[SK_MAX_SUM];
    pass_over(c->job, c->job->piece.sum, from, n, sum);
    for (int s = 0; s < SK_MAX_SUM; s++) c->sum[s] = joined(c->job, s, c->sum[s], sum[s]);
    if (!last) return;
    for (int s = 0; s < SK_MAX_SUM; s++) {
        if (c->job->maxima >> s & 1) c->most[s] = fmax(c->most[s], c->sum[s]);
        else sk_fixed_add(&c->total[s], c->sum[s]);
    }
    memset(c->sum, 0, sizeof c->sum);
}

static void block_part(void *ctx, int part, int of)
{
    const update_job *j = ctx;
    block_job c = {.job = j, .total = j->r->fixed[part], .most = j->r->partial[part]};
    int64_t from, to;
    memset(c.total, 0, sizeof j->r->fixed[part]);
    memset(c.most, 0, sizeof j->r->partial[part]);
    update_share(j, part, of, &from, &to);
    for (; j->unit && from < to; from += j->unit) /* uncut: program/state_blocks.c */
        block_run(&c, from, to - from < j->unit ? to - from : j->unit, true);
    if (!j->unit) sk_visit_reduction_blocks(&j->shape, part, of, block_run, &c);
}

static void update_by_blocks(sk_run *r, const sk_inst *in, update_job *j)
{
    const sk_param_plan *q = &r->p->params.v[in->param];
    sk_fixed *sums = fixed_of(r, in, in->out[1]);
    sk_threads_run(r->team, block_part, j);
    for (int s = 0; s < SK_MAX_SUM; s++)
        for (int t = 0; t < r->p->threads && q->owner; t++) {
            sk_fixed_join(&sums[s], r->fixed[t][s]); /* zeroed before the pass */
            if (!(j->maxima >> s & 1)) continue;
            double *most = &maxima_of(r, in, in->out[1])[s];
            *most = fmax(*most, r->partial[t][s]);
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
                  .scale = in->background  ? 1 /* PEND has scaled it */
                           : in->scale > 0 ? in->scale / (float)r->loss_scale
                                           : r->scale,
                  /* The next step writes it meanwhile; optimizers that read it update at once. */
                  .norm = in->background ? 0 : r->out.grad_norm,
                  .step = r->step * p->n_updates + r->shift + in->update + !in->background,
                  .warmup = r->opts.knobs.warmup,
                  .delay = in->delay,
                  .pass = in->pass,
                  .elements = sk_box_all(&shard->box),
                  .share = 1.0f / (float)sk_layout_replicas(&p->layout)};
    for (int s = 0; s < q->optim->n_state + sk_param_more(q); s++)
        if (in->in[2 + s] >= 0) x.state[s] = sk_run_data(r, in->in[2 + s]);
    for (int k = 0; q->optim->knobs[k].name; k++) x.knob[k] = sk_run_knob(r, q, k, q->decay);
    return x;
}

static void name_state(const sk_run *r, const sk_inst *in, const sk_param_plan *q, update_job *j)
{
    j->name = sk_hash_text(q->tensor->name);
    for (int s = 0; s < q->n_state + sk_param_more(q); s++) {
        int buf = in->in[2 + s]; /* -1: the gradient of a delayed update is no state here */
        if (buf < 0 || r->p->bufs.v[buf].type == SK_F32) continue;
        j->state[s] = sk_run_data(r, buf);
        j->q8[s] = r->p->bufs.v[buf].q8;
        if (j->q8[s]) j->unit = SK_Q8_BLOCK;
    }
}

typedef struct pend_job {
    real *to;
    float scale; /* 0: the step is skipped */
} pend_job;

void sk_do_predict(sk_run *r, const sk_inst *in)
{
    const sk_param_plan *q = &r->p->params.v[in->param];
    update_job j = {.r = r, .pass = q->optim->ahead, .piece = piece_of(r, in), .type = SK_F32};
    name_state(r, in, q, &j); /* state is only read here: rounded again, it is the same */
    j.shape = sk_buffer_view(r->p, q->shard, r->base);
    memcpy(j.piece.param, sk_run_data(r, in->in[0]), (size_t)j.piece.n * sizeof(real));
    if (j.piece.n < SK_SMALL_PIECE) update_part(&j, 0, 1);
    else sk_threads_run(r->team, update_part, &j);
}

/* The bias update of a router: a step of fixed size against the sign of the gradient, whatever the
 * optimizer is. */
static void bias_update(const sk_run *r, const sk_inst *in, const sk_param_plan *q)
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

/* Executed by the background worker; with r->helpers where the threads of the rank are idle. */
static sk_status update_late(void *ctx)
{
    const sk_bound_inst *f = ctx;
    const sk_run *r = f->r;
    const sk_param_plan *q = &r->p->params.v[f->in->param];
    update_job j = {.r = f->r, .pass = q->optim->pass[0], .piece = piece_of(r, f->in)};
    name_state(r, f->in, q, &j);
    j.type = SK_F32;
    j.shape = sk_buffer_view(r->p, q->master, r->base);
    if (!r->helpers || j.piece.n < SK_SMALL_PIECE) late_part(&j, 0, 1);
    else sk_threads_run(r->helpers, late_part, &j);
    return SK_OK;
}

sk_status sk_do_join(sk_run *r)
{
    double before = sk_now();
    for (int i = 0; i < r->p->params.n; i++)
        SK_TRY(sk_background_wait(r->updater, i, r->timeout_s));
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
    sk_see_part(r, f->in->in[0], part, of, pend_some, &j);
}

void sk_do_pend(sk_run *r, const sk_inst *in)
{
    sk_threads_run(r->team, pend_part, &(sk_bound_inst){r, in});
}

/* The weights as a copy of the master, moved; the master stays. */
static void perturb_part(void *ctx, int part, int of)
{
    const update_job *j = ctx;
    size_t size = sk_dtype_size(j->type);
    real w[SK_BLOCK], g[SK_BLOCK];
    int64_t from, to;
    update_share(j, part, of, &from, &to);
    for (int64_t m; from < to; from += m) {
        m = to - from < SK_BLOCK ? to - from : SK_BLOCK;
        sk_piece p = j->piece;
        memcpy(w, p.param + from, (size_t)m * sizeof *w);
        sk_convert(g, SK_F32, (const char *)j->grad + (size_t)from * size, j->type, m);
        p.n = m, p.param = w, p.grad = g;
        memset(p.state, 0, sizeof p.state);
        j->pass(&p);
        sk_convert((char *)j->narrow + (size_t)from * size, j->type, w, SK_F32, m);
    }
}

/* A pass that changes nothing: the step is skipped, or another gradient is to come.  The weights
 * are copied back to where they live all the same, or moved for that gradient. */
static void pass_without_update(sk_run *r, const sk_param_plan *q, update_job *j)
{
    if (!j->narrow) return;
    j->pass = r->skip || !sk_run_first_phase(r) ? NULL : q->optim->perturb;
    sk_threads_run(r->team, j->pass ? perturb_part : narrow_master, j);
}

static void update(sk_run *r, const sk_inst *in)
{
    const sk_program *p = r->p;
    const sk_param_plan *q = &p->params.v[in->param];
    update_job j = {.r = r, .pass = q->optim->pass[in->pass], .maxima = q->optim->maxima};
    bool last = q->master >= 0 && sk_last_pass(p, in);
    if (q->tensor->bias_update != 0) {
        if (!r->skip && !sk_run_first_phase(r)) bias_update(r, in, q);
        return;
    }
    j.piece = piece_of(r, in);
    j.grad = j.piece.grad;
    j.type = p->bufs.v[in->in[0]].type;
    if (last) j.narrow = sk_run_data(r, in->out[0]);
    if (r->skip || sk_run_first_phase(r)) {
        pass_without_update(r, q, &j);
        return;
    }
    j.shape = sk_buffer_view(p, q->shard, r->base);
    name_state(r, in, q, &j);
    totals(r, in, j.maxima, j.piece.sum);
    if (q->scalars >= 0) j.piece.scalar = sk_run_data(r, in->in[SK_IN_SCALARS]);
    if (q->scalars >= 0 && sk_optim_settles(q->optim, in->pass)) q->optim->settle(&j.piece);
    if (in->out[1] >= 0 && p->layout.canonical) {
        update_by_blocks(r, in, &j);
        return;
    }
    int parts = j.piece.n < SK_SMALL_PIECE ? 1 : p->threads;
    if (parts == 1) update_part(&j, 0, 1);
    else sk_threads_run(r->team, update_part, &j);
    if (in->out[1] < 0) return;
    double *sums = sums_of(r, in, in->out[1]);
    bool counts = q->owner || sk_layout_timed(&p->layout); /* there each rank counts for itself */
    for (int s = 0; s < SK_MAX_SUM; s++) {
        double *to = j.maxima >> s & 1 ? maxima_of(r, in, in->out[1]) : sums;
        to[s] = 0;
        for (int t = 0; t < parts && counts; t++) to[s] = joined(&j, s, to[s], r->partial[t][s]);
    }
}

void sk_do_update(sk_run *r, const sk_inst *in)
{
    if (!in->background) update(r, in);
    else if (r->pending)
        sk_background_begin(r->updater, in->param, update_late, sk_bind_inst(r, in));
}
