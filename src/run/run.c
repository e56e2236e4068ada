/* run.c - one rank walks its instructions.
 *
 * One flat switch.  Kernels run on the rank's thread team; arguments were worked
 * out when the run was opened.  Waiting for others is told apart from work, so
 * that "exposed communication" is a measurement and not a guess. */
#include "run/run.h"
#include "base/clock.h"
#include "base/exact.h"
#include "base/hash.h"
#include "base/proc.h"
#include "base/rng.h"
#include "base/team.h"
#include "base/zigzag.h"
#include "device/blas.h"
#include "run/code.h"
#include "run/deadline.h"
#include "run/order.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    SMALL = 1 << 14, /* smaller pieces are not worth the team */
    BLOCK = 1024     /* elements that are widened at a time */
};

struct sk_run {
    const sk_program *p;
    sk_heaps *heaps;
    sk_line *line;
    sk_comm *comm;
    sk_team *team;
    sk_run_opts opts;
    char *base;
    sk_args *args;          /* by instruction; only SK_DO_OP's are filled */
    int64_t *sent_then;     /* by rank: messages sent to it before the section began */
    int *place;             /* param -> its place among all parameters of the graph */
    double *times, *moving; /* [2 * instruction]: when it ran; when its bytes moved */
    double *began;          /* by call: when it was announced */
    double waited;
    int64_t wire_then;     /* bytes that had left before the section began */
    float scale;           /* for gradients: 1 / tokens, times clipping */
    double lr, loss_scale; /* loss_scale: of gradients, so that narrow ones do not vanish */
    int64_t step, shift;   /* as in sk_step_in */
    bool validation, skip;
    sk_step_out out;
    double partial[SK_TEAM_MOST][SK_MAX_SUM];
    sk_exact exact[SK_TEAM_MOST];
    sk_fixed fixed[SK_TEAM_MOST][SK_MAX_SUM];
};

/* --- opening --- */

static void lay_tables(sk_run *r)
{
    const sk_program *p = r->p;
    for (int i = 0; i < p->calls.n; i++) {
        const sk_call_plan *c = &p->calls.v[i];
        sk_coll_call *call = (sk_coll_call *)(void *)(r->base + c->table_at);
        *call = (sk_coll_call){.id = (int64_t)(sk_hash_text(c->what) >> 1),
                               .kind = c->kind,
                               .reduce = c->reduce,
                               .type = c->type,
                               .group = c->group,
                               .n_segs = c->n_segs,
                               .algorithm = c->algorithm,
                               .root = c->root,
                               .common = c->common,
                               .room = c->room < 0 ? 0 : p->bufs.v[c->room].offset,
                               .room_bytes = c->room_bytes};
        for (int s = 0; s < c->n_segs; s++) {
            call->segs[s] = sk_call_shape(&c->segs[s]);
            call->segs[s].src = p->bufs.v[c->segs[s].src].offset;
            call->segs[s].dst = p->bufs.v[c->segs[s].dst].offset;
        }
    }
}

static sk_status other_program(const sk_run *r, int rank, uint64_t theirs, uint64_t mine)
{
    return sk_fail(SK_EPEER,
                   "rank %d runs another program than rank %d (%016llx, %016llx): the "
                   "same model, layout and version of skein are needed everywhere",
                   rank, r->p->rank, (unsigned long long)theirs, (unsigned long long)mine);
}

/* Same model, layout and version everywhere, before the first step. */
static sk_status handshake(sk_run *r)
{
    uint64_t mine = sk_program_hash(r->p), first = mine;
    atomic_store(&r->line->hash, mine);
    atomic_store(&r->line->state, 1);
    SK_TRY(sk_comm_share(r->comm, &first, sizeof first));
    if (first != mine) return other_program(r, 0, first, mine);
    for (int k = 0; k < r->p->n_ranks; k++) {
        uint64_t theirs = atomic_load(&sk_heaps_line(r->heaps, k)->hash);
        if (sk_heap_base(r->heaps, k) && theirs != mine) return other_program(r, k, theirs, mine);
    }
    return SK_OK;
}

static void prepare_args(sk_run *r, sk_arena *a)
{
    const sk_program *p = r->p;
    r->args = sk_many(a, sk_args, p->insts.n);
    for (int i = 0; i < p->insts.n; i++)
        if (p->insts.v[i].act == SK_DO_OP) {
            sk_inst_args(p, &p->insts.v[i], r->base, &r->args[i]);
            r->args[i].seed = r->opts.seed;
        }
}

static void find_places(sk_run *r, sk_arena *a)
{
    const sk_graph *g = r->p->graph;
    r->place = sk_many(a, int, r->p->params.n + 1);
    for (int i = 0; i < r->p->params.n; i++)
        for (int t = 0; t < r->p->params.v[i].tensor->id; t++)
            r->place[i] += g->tensors.v[t]->role == SK_PARAM;
}

/* All ranks of this host share its cores. */
static double patience(const sk_run *r)
{
    int here = 0;
    for (int k = 0; k < r->p->n_ranks; k++) here += sk_heap_base(r->heaps, k) != NULL;
    return sk_deadline(r->p, sk_proc_cores(), here);
}

static sk_status open_comm(sk_run *r)
{
    const sk_program *p = r->p;
    r->team = sk_team_open(p->threads);
    if (r->opts.alone) return SK_OK;
    sk_comm_opts o = {.rank = p->rank,
                      .groups = p->groups,
                      .n_groups = p->n_groups,
                      .timeout_s = r->opts.timeout_s > 0 ? r->opts.timeout_s : patience(r),
                      .wire = r->opts.wire,
                      .host_of = r->opts.host_of,
                      .where = r->opts.where,
                      .where_ctx = r->opts.where_ctx};
    o.team = r->team;
    return sk_comm_open(r->heaps, &o, &r->comm);
}

sk_status sk_run_open(sk_arena *a, const sk_program *p, sk_heaps *h, const sk_run_opts *o,
                      sk_run **out)
{
    sk_run *r = sk_new(a, sk_run);
    r->p = p;
    r->heaps = h;
    r->opts = *o;
    r->loss_scale = 1;
    int seat = o->alone ? o->seat : p->rank;
    r->line = sk_heaps_line(h, seat);
    r->base = sk_heap_base(h, seat);
    if (sk_heap_bytes(h, seat) < p->heap_bytes)
        return sk_fail(SK_EBUG, "rank %d: the heap has %lld bytes, the plan %lld", p->rank,
                       (long long)sk_heap_bytes(h, seat), (long long)p->heap_bytes);
    sk_blas_reserve(p->threads);
    atomic_store(&r->line->pid, (long long)getpid());
    atomic_store(&r->line->step, -1);
    atomic_store(&r->line->waits_for, -1);
    SK_TRY(open_comm(r));
    r->sent_then = sk_many(a, int64_t, p->n_ranks);
    if (o->trace) {
        r->times = sk_many(a, double, 2 * p->insts.n);
        r->moving = sk_many(a, double, 2 * p->insts.n);
        r->began = sk_many(a, double, p->calls.n);
    }
    lay_tables(r);
    prepare_args(r, a);
    find_places(r, a);
    sk_status st = o->alone ? SK_OK : handshake(r);
    if (st) {
        sk_run_close(r);
        return sk_trail(st, SK_HERE);
    }
    *out = r;
    return SK_OK;
}

void sk_run_close(sk_run *r)
{
    if (r->team) sk_team_close(r->team);
    if (r->comm) sk_comm_close(r->comm);
    r->team = NULL;
    r->comm = NULL;
}

void *sk_run_data(const sk_run *r, int buf) { return r->base + r->p->bufs.v[buf].offset; }
sk_status sk_run_barrier(sk_run *r) { return sk_comm_barrier(r->comm); }
sk_comm *sk_run_comm(sk_run *r) { return r->comm; }
double *sk_run_times(sk_run *r) { return r->times; }
double *sk_run_moving(sk_run *r) { return r->moving; }

/* Others may read my messages and tables until all have met. */
sk_status sk_run_switch(sk_run *from, sk_run *to)
{
    for (int k = 0; k < from->p->n_ranks; k++)
        if (k != from->p->rank) SK_TRY(sk_comm_sent(from->comm, k, sk_comm_sends(from->comm, k)));
    SK_TRY(sk_comm_barrier(from->comm));
    lay_tables(to);
    return SK_OK;
}

/* --- initial values --- */

/* Is the buffer in memory of this rank's own, for it to fill?  What it has in common with its twin
 * is there when the twin has filled it, and all have met. */
static bool keeps(const sk_program *p, int buf)
{
    return p->twin == p->rank || !p->bufs.v[buf].common;
}

typedef struct init_job {
    const sk_tensor *t;
    sk_view v;
    uint64_t key;
    real std;
} init_job;

static uint32_t mix(uint32_t x) /* Murmur's last steps: every bit of x reaches every bit */
{
    x = (x ^ x >> 16) * 0x85EBCA6Bu;
    x = (x ^ x >> 13) * 0xC2B2AE35u;
    return x ^ x >> 16;
}

/* Near enough to normal, and cheap: the sum of four 16-bit numbers (Irwin-Hall), scaled to unit
 * deviation.  Plain 32-bit arithmetic that the compiler vectorises: a large model's weights are
 * drawn faster than their pages can be touched. */
static real draw(uint64_t key, uint64_t index)
{
    uint32_t high = (uint32_t)(index >> 32) * 0x9E3779B1u ^ (uint32_t)(key >> 32);
    uint32_t x = mix((uint32_t)index * 0x9E3779B1u ^ (uint32_t)key), y = mix(x ^ high);
    int32_t sum = (int32_t)((x & 0xffff) + (x >> 16) + (y & 0xffff) + (y >> 16));
    return (real)(sum - 131070) * (real)2.6429e-5; /* sqrt(3) / 65536 */
}

static void init_some(const init_job *j, uint64_t from, real *x, int64_t n)
{
    if (j->t->init < 0)
        for (int64_t k = 0; k < n; k++) x[k] = (real)(-j->t->init - 1);
    else
        for (int64_t k = 0; k < n; k++) x[k] = j->std * draw(j->key, from + (uint64_t)k);
}

static void init_rows(void *ctx, int part, int of)
{
    init_job *j = ctx;
    const sk_view *v = &j->v;
    int64_t row = v->n ? v->size[v->n - 1] : 1, n = row ? sk_count(v) / row : 0, m;
    size_t size = sk_dtype_size(v->type);
    real wide[BLOCK];
    for (int64_t i = n * part / of; i < n * (part + 1) / of; i++) {
        uint64_t from = (uint64_t)sk_logical(v, i * row);
        char *to = (char *)v->data + (size_t)(i * row) * size;
        if (v->type == SK_F32) init_some(j, from, (real *)(void *)to, row);
        for (int64_t k = 0; v->type != SK_F32 && k < row; k += m) {
            m = row - k < BLOCK ? row - k : BLOCK;
            init_some(j, from + (uint64_t)k, wide, m);
            sk_convert(to + (size_t)k * size, v->type, wide, SK_F32, m);
        }
    }
}

static void init_buffer(sk_run *r, const sk_tensor *t, int buf, uint64_t seed)
{
    init_job j = {.t = t, .v = sk_buffer_view(r->p, buf, r->base), .std = (real)t->init};
    j.key = sk_rng(seed, sk_hash_text(t->name), 0).a;
    sk_team_run(r->team, init_rows, &j);
}

void sk_run_init(sk_run *r, uint64_t seed)
{
    const sk_program *p = r->p;
    for (int i = 0; i < p->params.n; i++) {
        const sk_param_plan *q = &p->params.v[i];
        if (keeps(p, q->stored)) init_buffer(r, q->tensor, q->stored, seed);
        if (q->master >= 0) init_buffer(r, q->tensor, q->master, seed);
    }
}

/* --- instructions --- */

typedef struct op_job {
    const sk_op *op;
    const sk_args *args;
    const sk_args *narrow; /* as they are kept, where kernels see them wider */
    char *scratch;
    int64_t each;
} op_job;

static void widen_part(void *ctx, int part, int of)
{
    op_job *j = ctx;
    sk_op_widen(j->narrow, j->args, part, of);
}

static void narrow_part(void *ctx, int part, int of)
{
    op_job *j = ctx;
    sk_op_narrowed(j->narrow, j->args, part, of);
}

static void op_part(void *ctx, int part, int of)
{
    op_job *j = ctx;
    sk_args a = *j->args;
    a.part = part;
    a.of = of;
    a.scratch = j->scratch + part * j->each;
    sk_op_run_cpu(j->op, &a);
}

static void run_op(sk_run *r, int pc)
{
    sk_args *a = &r->args[pc];
    a->stream = (uint64_t)r->step;
    a->validation = r->validation;
    char *room = r->base + r->p->kind_at[SK_SCRATCH];
    op_job j = {.op = r->p->insts.v[pc].node->op,
                .args = a,
                .scratch = room + r->p->stage_bytes,
                .each = r->p->scratch_per_thread};
    if (!sk_op_stage(a)) {
        sk_team_run(r->team, op_part, &j);
        return;
    }
    sk_args wide = sk_op_widened(a, room);
    j.narrow = a;
    j.args = &wide;
    sk_team_run(r->team, widen_part, &j);
    sk_team_run(r->team, op_part, &j);
    sk_team_run(r->team, narrow_part, &j);
}

/* Places of a letter that is dealt in zigzag: row by row, the runs that lie together.  The letter
 * is the last one of every input that has it. */
static sk_status load_dealt(sk_run *r, const sk_buffer *b, char *to)
{
    sk_extent box = b->box;
    int d = box.n - 1;
    int64_t rows = d ? box.size[0] : 1, cols = box.size[d], row_at = box.at[0];
    sk_assert(b->tensor->letters[d] == r->p->graph->dealt && d <= 1);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t k = 0, n = 0; k < cols; k += n) {
            box.at[d] = sk_zigzag_run(b->box.at[d] + k, box.full[d], r->p->graph->zigzag, &n);
            if (n > cols - k) n = cols - k;
            box.size[d] = n;
            if (d) box.at[0] = row_at + i, box.size[0] = 1;
            SK_TRY(r->opts.fill(r->opts.fill_ctx, b->name, b->type, &box, r->step, r->validation,
                                to + (size_t)(i * cols + k) * sk_dtype_size(b->type)));
        }
    return SK_OK;
}

static sk_status load(sk_run *r, const sk_inst *in)
{
    const sk_buffer *b = &r->p->bufs.v[in->out[0]];
    void *to = sk_run_data(r, in->out[0]);
    if (!strcmp(b->name, "loss_scale")) {
        *(real *)to = (real)r->loss_scale;
        return SK_OK;
    }
    if (!b->bytes) return SK_OK;
    if (r->p->graph->dealt && strchr(b->tensor->letters, r->p->graph->dealt))
        return load_dealt(r, b, to);
    return r->opts.fill(r->opts.fill_ctx, b->name, b->type, &b->box, r->step, r->validation, to);
}

/* Copy the part of a box that another box asks for, row by row. */
static void slice(const sk_view *from, const sk_view *to)
{
    size_t size = sk_dtype_size(to->type);
    int64_t row = to->n ? to->size[to->n - 1] : 1, n = row ? sk_count(to) / row : 0;
    for (int64_t i = 0; i < n; i++) {
        int64_t rest = i, at = 0;
        for (int d = to->n - 1; d >= 0; d--) {
            int64_t k = d == to->n - 1 ? 0 : rest % to->size[d];
            if (d < to->n - 1) rest /= to->size[d];
            at += (to->at[d] - from->at[d] + k) * from->step[d];
        }
        memcpy((char *)to->data + (size_t)(i * row) * size,
               (const char *)from->data + (size_t)at * size, (size_t)row * size);
    }
}

typedef struct pair_job {
    void *to;
    const void *from;
    int64_t n;
    sk_dtype type;
} pair_job;

static void add_some(real *restrict to, const real *restrict from, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) to[i] += from[i];
}

static void add_part(void *ctx, int part, int of)
{
    pair_job *j = ctx;
    int64_t at = j->n * part / of, end = j->n * (part + 1) / of, m;
    size_t size = sk_dtype_size(j->type);
    real x[BLOCK], y[BLOCK];
    if (j->type == SK_F32) {
        add_some((real *)j->to + at, (const real *)j->from + at, end - at);
        return;
    }
    for (; at < end; at += m) {
        m = end - at < BLOCK ? end - at : BLOCK;
        char *to = (char *)j->to + (size_t)at * size;
        sk_convert(x, SK_F32, to, j->type, m);
        sk_convert(y, SK_F32, (const char *)j->from + (size_t)at * size, j->type, m);
        add_some(x, y, m);
        sk_convert(to, j->type, x, SK_F32, m);
    }
}

static void add(sk_run *r, const sk_inst *in)
{
    const sk_buffer *b = &r->p->bufs.v[in->out[0]];
    pair_job j = {sk_run_data(r, in->out[0]), sk_run_data(r, in->in[0]),
                  b->bytes / (int64_t)sk_dtype_size(b->type), b->type};
    sk_team_run(r->team, add_part, &j);
}

/* --- sums, clipping, update --- */

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
static bool in_norm(const sk_param_plan *q) { return q->owner && q->tensor->nudge == 0; }

/* Elements of a buffer as f32, some at a time. */
typedef void see(void *ctx, const real *x, int64_t n);
static void see_part(const sk_run *r, int buf, int part, int of, see *f, void *ctx)
{
    const sk_buffer *b = &r->p->bufs.v[buf];
    size_t size = sk_dtype_size(b->type);
    const char *data = sk_run_data(r, buf);
    int64_t n = b->bytes / (int64_t)size, at = n * part / of, end = n * (part + 1) / of, m;
    real wide[BLOCK];
    if (b->type == SK_F32) f(ctx, (const real *)(const void *)data + at, end - at);
    for (; b->type != SK_F32 && at < end; at += m) {
        m = end - at < BLOCK ? end - at : BLOCK;
        sk_convert(wide, SK_F32, data + (size_t)at * size, b->type, m);
        f(ctx, wide, m);
    }
}

static void see_squares(void *ctx, const real *x, int64_t n) { *(double *)ctx += squares(x, n); }
static void see_exactly(void *ctx, const real *x, int64_t n) { sk_exact_add_squares(ctx, x, n); }

static void see_grads(const sk_run *r, int part, int of, see *f, void *ctx)
{
    for (int i = 0; i < r->p->params.n; i++) {
        const sk_param_plan *q = &r->p->params.v[i];
        if (in_norm(q)) see_part(r, q->grad_shard, part, of, f, ctx);
    }
}

static void norm_part(void *ctx, int part, int of)
{
    sk_run *r = ctx;
    r->partial[part][0] = 0;
    see_grads(r, part, of, see_squares, &r->partial[part][0]);
}

static void exact_part(void *ctx, int part, int of)
{
    sk_run *r = ctx;
    r->exact[part] = (sk_exact){0};
    see_grads(r, part, of, see_exactly, &r->exact[part]);
}

static void squares_exactly(sk_run *r, int buf)
{
    sk_exact sum = {0};
    sk_team_run(r->team, exact_part, r);
    for (int i = 0; i < r->p->threads; i++) sk_exact_merge(&sum, &r->exact[i]);
    memcpy(sk_run_data(r, buf), sum.limb, sizeof sum.limb);
}

static void stats(sk_run *r, const sk_inst *in)
{
    const sk_program *p = r->p;
    double *s = sk_run_data(r, in->out[0]);
    memset(s, 0, (size_t)p->bufs.v[in->out[0]].bytes);
    if (in->out[1] >= 0) squares_exactly(r, in->out[1]);
    else if (in->pass) {
        sk_team_run(r->team, norm_part, r);
        for (int i = 0; i < p->threads; i++) s[SK_STAT_NORM] += r->partial[i][0];
    }
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
        cells ? sk_order_fold(s + SK_STAT_SUMS + r->p->n_sums, (int)cells) : sum[SK_SUM_LOSS];
    if (in->in[1] >= 0) {
        sk_exact acc;
        memcpy(acc.limb, sk_run_data(r, in->in[1]), sizeof acc.limb);
        squares = sk_exact_value(&acc);
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

static void clip(sk_run *r, const sk_inst *in)
{
    double most = r->opts.knobs.clip;
    take_sums(r, in);
    r->out.again = in->pass && r->opts.no_drops && r->out.drops > 0;
    if (!in->pass) return;
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

static float knob(const sk_run *r, const sk_knob *k, bool decays)
{
    const sk_knobs *v = &r->opts.knobs;
    if (!strcmp(k->name, "lr")) return (float)r->lr;
    if (!strcmp(k->name, "beta1")) return (float)v->beta1;
    if (!strcmp(k->name, "beta2")) return (float)v->beta2;
    if (!strcmp(k->name, "eps")) return (float)v->eps;
    if (!strcmp(k->name, "momentum")) return (float)v->momentum;
    if (!strcmp(k->name, "decay")) return decays ? (float)v->decay : 0;
    if (!strcmp(k->name, "compensate")) return (float)v->compensate;
    if (!strcmp(k->name, "predict")) return (float)v->predict;
    return k->usual;
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

/* Rounded by lot: what changes by less than half a step each time must not stand still.  Lots go by
 * logical place, so they fall alike on any layout. */
static void narrow_state(const update_job *j, int s, int64_t from, int64_t n, const real *x)
{
    uint16_t *to = (uint16_t *)j->state[s] + from;
    const sk_view *v = &j->shape;
    int64_t row = v->n ? v->size[v->n - 1] : 1, at = 0, have = -1;
    uint64_t lots = 0, seed = j->r->opts.seed, stream = (uint64_t)j->piece.step * SK_MAX_STATE;
    uint64_t key = sk_rng(seed, j->name, stream + (uint64_t)s).a;
    for (int64_t i = 0; i < n; i++, at++) {
        if (!i || (from + i) % row == 0) at = sk_logical(v, from + i);
        if (at / 4 != have) have = at / 4, lots = sk_rng(key, 0, (uint64_t)have).a;
        to[i] = sk_to_bf16_drawn((float)x[i], (uint32_t)(lots >> 16 * (at % 4)));
    }
}

/* A pass over n elements from `from` on; narrow gradients are widened some at a time. */
static void pass_over(const update_job *j, const double *totals, int64_t from, int64_t n,
                      double *sum)
{
    real wide[BLOCK], state[SK_MAX_STATE][BLOCK];
    int64_t m = j->type == SK_F32 && !j->state[0] ? n : BLOCK;
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

static void update_part(void *ctx, int part, int of)
{
    update_job *j = ctx;
    int64_t all = j->piece.n, from = all * part / of / 16 * 16,
            to = all * (part + 1) / of / 16 * 16;
    if (part + 1 == of) to = all;
    pass_over(j, j->piece.sum, from, to - from, j->r->partial[part]);
    if (j->narrow)
        sk_convert((char *)j->narrow + (size_t)from * sk_dtype_size(j->type), j->type,
                   j->piece.param + from, SK_F32, to - from);
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
    sk_order_cells(&j->shape, part, of, cell_run, &c);
}

static void update_by_cells(sk_run *r, const sk_inst *in, update_job *j)
{
    const sk_param_plan *q = &r->p->params.v[in->param];
    sk_fixed *sums = fixed_of(r, in, in->out[1]);
    sk_team_run(r->team, cell_part, j);
    for (int s = 0; s < SK_MAX_SUM; s++)
        for (int t = 0; t < r->p->threads && q->owner; t++) {
            sums[s].high += r->fixed[t][s].high; /* zeroed before the pass */
            sums[s].low += r->fixed[t][s].low;
        }
}

static sk_piece piece_of(const sk_run *r, const sk_inst *in)
{
    const sk_program *p = r->p;
    const sk_param_plan *q = &p->params.v[in->param];
    const sk_buffer *shard = &p->bufs.v[q->shard];
    sk_piece x = {.n = shard->bytes / (int64_t)sk_dtype_size(shard->type),
                  .param = sk_run_data(r, q->master >= 0 ? q->master : in->out[0]),
                  .grad = sk_run_data(r, q->grad_shard),
                  .scale = in->scale > 0 ? in->scale / (float)r->loss_scale : r->scale,
                  .step = r->step * p->n_updates + r->shift + in->update + 1,
                  .delay = (int)in->count};
    for (int s = 0; s < q->n_state; s++) x.state[s] = sk_run_data(r, q->state[s]);
    for (int k = 0; p->optim->knobs[k].name; k++)
        x.knob[k] = knob(r, &p->optim->knobs[k], q->decay);
    return x;
}

static void look_ahead(sk_run *r, const sk_inst *in)
{
    update_job j = {.r = r, .pass = r->p->optim->ahead, .piece = piece_of(r, in), .type = SK_F32};
    memcpy(j.piece.param, sk_run_data(r, in->in[0]), (size_t)j.piece.n * sizeof(real));
    if (j.piece.n < SMALL) update_part(&j, 0, 1);
    else sk_team_run(r->team, update_part, &j);
}

/* A step of fixed size against the sign of the gradient, whatever the optimizer is. */
static void nudge(const sk_run *r, const sk_param_plan *q)
{
    const real *grad = sk_run_data(r, q->grad_shard);
    real *w = sk_run_data(r, q->shard), step = (real)q->tensor->nudge;
    int64_t n = r->p->bufs.v[q->shard].bytes / (int64_t)sizeof(real);
    for (int64_t i = 0; i < n; i++) w[i] -= grad[i] > 0 ? step : grad[i] < 0 ? -step : 0;
}

static void update(sk_run *r, const sk_inst *in)
{
    const sk_program *p = r->p;
    const sk_param_plan *q = &p->params.v[in->param];
    update_job j = {.r = r, .pass = p->optim->pass[in->pass]};
    if (r->skip) return;
    if (q->tensor->nudge != 0) {
        nudge(r, q);
        return;
    }
    j.piece = piece_of(r, in);
    j.grad = j.piece.grad;
    j.type = p->bufs.v[q->grad_shard].type;
    if (q->master >= 0 && !p->optim->pass[in->pass + 1]) j.narrow = sk_run_data(r, q->shard);
    j.shape = sk_buffer_view(p, q->shard, r->base);
    j.name = sk_hash_text(q->tensor->name);
    for (int s = 0; s < q->n_state; s++)
        if (p->bufs.v[q->state[s]].type != SK_F32) j.state[s] = sk_run_data(r, q->state[s]);
    totals(r, in, j.piece.sum);
    if (in->out[1] >= 0 && p->layout.canonical) {
        update_by_cells(r, in, &j);
        return;
    }
    int parts = j.piece.n < SMALL ? 1 : p->threads;
    if (parts == 1) update_part(&j, 0, 1);
    else sk_team_run(r->team, update_part, &j);
    if (in->out[1] < 0) return;
    double *sums = sums_of(r, in, in->out[1]);
    for (int s = 0; s < SK_MAX_SUM; s++) {
        sums[s] = 0;
        for (int t = 0; t < parts && q->owner; t++) sums[s] += r->partial[t][s];
    }
}

/* --- walking --- */

/* Bytes over a wire move from the start on, by the looks after each instruction; those in the heaps
 * move while it is waited for. */
static void note_moving(sk_run *r, const sk_inst *in, double before)
{
    double over = sk_comm_over(r->comm), *at = &r->moving[2 * (in - r->p->insts.v)];
    if (in->act == SK_DO_START) r->began[in->call] = before;
    if (in->act != SK_DO_WAIT && in->act != SK_DO_RECV) return;
    bool played = in->act == SK_DO_WAIT && over > 0;
    at[0] = played ? r->began[in->call] : before;
    at[1] = played ? over : sk_now();
}

/* What others would have brought: numbers that no kernel is slowed down by, indices of the first.
 */
static void make_up(sk_run *r, int buf)
{
    static const real some[8] = {.03F, -.02F, .05F, -.04F, .01F, .02F, -.05F, -.01F};
    const sk_buffer *b = &r->p->bufs.v[buf];
    real *to = sk_run_data(r, buf);
    if (b->type != SK_F32) memset(to, 0, (size_t)b->bytes);
    else
        for (int64_t i = 0; i < b->bytes / (int64_t)sizeof *to; i++) to[i] = some[i % 8];
}

static void exchange_alone(sk_run *r, const sk_inst *in)
{
    if (in->act == SK_DO_RECV) make_up(r, in->out[0]);
    if (in->act != SK_DO_WAIT) return;
    const sk_call_plan *c = &r->p->calls.v[in->call];
    for (int s = 0; s < c->n_segs; s++)
        if (c->segs[s].dst != c->segs[s].src) make_up(r, c->segs[s].dst);
}

static sk_status exchange(sk_run *r, const sk_inst *in)
{
    const sk_program *p = r->p;
    const sk_coll_call *call =
        in->call < 0 ? NULL : (const void *)(r->base + p->calls.v[in->call].table_at);
    double before = sk_now();
    sk_status st = SK_OK;
    if (r->opts.alone) {
        exchange_alone(r, in);
        return SK_OK;
    }
    switch (in->act) {
    case SK_DO_START:
        st = sk_comm_start(r->comm, call);
        break;
    case SK_DO_WAIT:
        st = sk_comm_wait(r->comm, call);
        break;
    case SK_DO_SEND:
        st = sk_comm_send(r->comm, in->peer, in->tag, sk_run_data(r, in->in[0]),
                          p->bufs.v[in->in[0]].bytes);
        break;
    case SK_DO_RECV:
        st = sk_comm_recv(r->comm, in->peer, in->tag, sk_run_data(r, in->out[0]),
                          p->bufs.v[in->out[0]].bytes);
        break;
    default:
        st = sk_comm_sent(r->comm, in->peer, r->sent_then[in->peer] + in->count);
    }
    r->waited += sk_now() - before;
    if (r->moving) note_moving(r, in, before);
    return st;
}

static sk_status one(sk_run *r, int pc)
{
    const sk_inst *in = &r->p->insts.v[pc];
    switch (in->act) {
    case SK_DO_LOAD:
        return load(r, in);
    case SK_DO_OP:
        run_op(r, pc);
        return SK_OK;
    case SK_DO_SLICE: {
        sk_view from = sk_buffer_view(r->p, in->in[0], r->base);
        sk_view to = sk_buffer_view(r->p, in->out[0], r->base);
        slice(&from, &to);
        return SK_OK;
    }
    case SK_DO_ADD:
        add(r, in);
        return SK_OK;
    case SK_DO_ZERO:
        memset(sk_run_data(r, in->out[0]), 0, (size_t)r->p->bufs.v[in->out[0]].bytes);
        return SK_OK;
    case SK_DO_START:
    case SK_DO_WAIT:
    case SK_DO_SEND:
    case SK_DO_RECV:
    case SK_DO_SENT:
        return exchange(r, in);
    case SK_DO_STATS:
        stats(r, in);
        return SK_OK;
    case SK_DO_CLIP:
        clip(r, in);
        return SK_OK;
    case SK_DO_UPDATE:
        update(r, in);
        return SK_OK;
    case SK_DO_AHEAD:
        look_ahead(r, in);
        return SK_OK;
    case SK_DO_ENCODE:
        sk_run_encode(r->p, in, r->base, (float)r->loss_scale, r->team);
        return SK_OK;
    case SK_DO_DECODE:
        sk_run_decode(r->p, in, r->base, r->team);
        return SK_OK;
    case SK_N_ACTS:
        break;
    }
    return sk_fail(SK_EBUG, "instruction %d has no meaning", pc);
}

/* A note in the flight ring: what a stuck or dead rank was doing. */
static void note(sk_run *r, int pc, double now)
{
    unsigned at = atomic_fetch_add_explicit(&r->line->ring_n, 1, memory_order_relaxed) % SK_RING;
    r->line->ring[at].pc = pc;
    r->line->ring[at].micro = r->p->insts.v[pc].micro;
    r->line->ring[at].at = now;
    atomic_store_explicit(&r->line->pc, pc, memory_order_relaxed);
    atomic_fetch_add_explicit(&r->line->beat, 1, memory_order_relaxed);
}

/* Who measures alone is not to count what others on the core do. */
static double read_clock(const sk_run *r)
{
    return r->opts.alone && r->p->threads == 1 ? sk_worked() : sk_now();
}

static sk_status step_one(sk_run *r, int pc)
{
    double now = read_clock(r);
    note(r, pc, now);
    sk_status st = one(r, pc);
    if (!st && r->comm) st = sk_comm_progress(r->comm); /* a step list in flight goes on here */
    if (st) return sk_trail(st, SK_HERE);
    if (r->times) r->times[2 * pc] = now, r->times[2 * pc + 1] = read_clock(r);
    return SK_OK;
}

static sk_status walk(sk_run *r, int from, int to)
{
    double begin = sk_now();
    r->waited = 0;
    r->skip = false;
    r->wire_then = sk_comm_wire(r->comm);
    for (int k = 0; k < r->p->n_ranks; k++) r->sent_then[k] = sk_comm_sends(r->comm, k);
    atomic_store(&r->line->step, (long long)r->step);
    atomic_store(&r->line->state, 2);
    for (int pc = from; pc < to; pc++) SK_TRY(step_one(r, pc));
    r->out.seconds = sk_now() - begin;
    r->out.waited = r->waited;
    r->out.wire = sk_comm_wire(r->comm) - r->wire_then;
    return SK_OK;
}

sk_status sk_run_step(sk_run *r, const sk_step_in *in, sk_step_out *out)
{
    r->step = in->step;
    r->shift = in->shift;
    r->lr = in->lr;
    r->loss_scale = in->loss_scale > 0 ? in->loss_scale : 1;
    r->validation = false;
    SK_TRY(walk(r, 0, r->p->n_train));
    *out = r->out;
    return SK_OK;
}

static bool waits(sk_act act)
{
    return act == SK_DO_WAIT || act == SK_DO_RECV || act == SK_DO_SENT;
}

sk_status sk_run_turn(sk_run *r, int64_t step, int *pc)
{
    const sk_inst *v = r->p->insts.v;
    sk_assert(r->opts.alone);
    r->step = step;
    r->lr = 0;
    r->validation = r->skip = false;
    for (bool met = false; !met && *pc < r->p->n_train; ++*pc) {
        SK_TRY(step_one(r, *pc));
        met = waits(v[*pc].act);
    }
    return SK_OK;
}

sk_status sk_run_validate(sk_run *r, int64_t step, sk_step_out *out)
{
    r->step = step;
    r->validation = true;
    SK_TRY(walk(r, r->p->n_train, r->p->insts.n));
    *out = r->out;
    return SK_OK;
}

sk_status sk_run_forward(sk_run *r, int64_t step)
{
    r->step = step;
    r->validation = false;
    return walk(r, r->p->n_train, r->p->insts.n);
}

/* --- boxes --- */

static void box_of(const sk_program *p, char *base, int buf, bool mine, sk_box *out)
{
    const sk_buffer *b = &p->bufs.v[buf];
    *out = (sk_box){.name = b->name,
                    .type = b->type,
                    .n = b->box.n,
                    .mine = mine,
                    .data = base ? base + b->offset : NULL};
    memcpy(out->full, b->box.full, sizeof out->full);
    memcpy(out->at, b->box.at, sizeof out->at);
    memcpy(out->size, b->box.size, sizeof out->size);
}

void sk_program_boxes(const sk_program *p, sk_arena *a, void *base, sk_box **boxes, int *n)
{
    int states = p->optim ? p->optim->n_state : 0;
    *boxes = sk_many(a, sk_box, p->params.n * (3 + states));
    *n = 0;
    for (int i = 0; i < p->params.n; i++) {
        const sk_param_plan *q = &p->params.v[i];
        bool wide = q->master >= 0; /* then what is saved is the master, and both are restored */
        if (keeps(p, q->stored)) box_of(p, base, q->stored, q->writes && !wide, &(*boxes)[(*n)++]);
        if (wide) {
            box_of(p, base, q->master, q->owner, &(*boxes)[*n]);
            (*boxes)[(*n)++].name = q->tensor->name;
        }
        for (int s = 0; s < q->n_state; s++)
            box_of(p, base, q->state[s], q->owner, &(*boxes)[(*n)++]);
        if (q->error < 0) continue;
        box_of(p, base, q->error, q->tells, &(*boxes)[*n]);
        (*boxes)[(*n)++].parts = true;
    }
}

void sk_run_boxes(const sk_run *r, sk_arena *a, sk_box **boxes, int *n)
{
    sk_program_boxes(r->p, a, r->base, boxes, n);
}
