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
#include "device/disk.h"
#include "run/aside.h"
#include "run/code.h"
#include "run/deadline.h"
#include "run/order.h"
#include "run/pack.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
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
    sk_disk *disk;          /* the file tier, or NULL */
    sk_aside *copier;       /* NULL: nothing is copied */
    sk_aside *updater;      /* NULL: the optimizer is not late */
    struct far_job *deeds;  /* by instruction that is done beside the rank */
    double *squares;        /* [param][thread]: of gradients outside of the device */
    double patience;        /* seconds */
    double waited, copied, uncovered;
    int64_t wire_then;     /* bytes that had left before the section began */
    float scale;           /* for gradients: 1 / tokens, times clipping */
    double lr, loss_scale; /* loss_scale: of gradients, so that narrow ones do not vanish */
    int64_t step, shift;   /* as in sk_step_in */
    int64_t batch;         /* the step whose data are read */
    bool validation, skip;
    bool pending; /* the step before left gradients for a late optimizer */
    bool full;    /* more elements were not 0 than there was room for: run/pack.h */
    sk_step_out out;
    double partial[SK_TEAM_MOST][SK_MAX_SUM];
    sk_exact exact[SK_TEAM_MOST];
    sk_fixed fixed[SK_TEAM_MOST][SK_MAX_SUM];
};

/* An instruction, for those who see only a pointer. */
typedef struct far_job {
    sk_run *r;
    const sk_inst *in;
} far_job;

static far_job *deed_of(sk_run *r, const sk_inst *in)
{
    far_job *j = &r->deeds[in - r->p->insts.v];
    *j = (far_job){r, in};
    return j;
}

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
    r->deeds = sk_many(a, far_job, p->n_copies || p->late ? p->insts.n : 1);
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
    r->patience = r->opts.timeout_s > 0 ? r->opts.timeout_s : patience(r);
    if (r->opts.alone) return SK_OK;
    sk_comm_opts o = {.rank = p->rank,
                      .groups = p->groups,
                      .n_groups = p->n_groups,
                      .timeout_s = r->patience,
                      .wire = r->opts.wire,
                      .host_of = r->opts.host_of,
                      .where = r->opts.where,
                      .where_ctx = r->opts.where_ctx};
    o.team = r->team;
    return sk_comm_open(r->heaps, &o, &r->comm);
}

/* Other memories, and the thread that copies between them. */
static sk_status open_tiers(sk_run *r)
{
    const sk_program *p = r->p;
    const char *dir = r->opts.scratch ? r->opts.scratch : getenv("TMPDIR");
    if (p->file_bytes)
        SK_TRY(sk_disk_open(dir && *dir ? dir : "/tmp", p->file_bytes,
                            r->base + p->kind_at[SK_HOSTED], &r->disk));
    if (p->n_copies) SK_TRY(sk_aside_open(p->n_copies, &r->copier));
    return p->late ? sk_aside_open(p->params.n, &r->updater) : SK_OK;
}

static sk_status open_rest(sk_run *r)
{
    SK_TRY(open_comm(r));
    SK_TRY(open_tiers(r));
    return r->opts.alone ? SK_OK : handshake(r);
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
    r->sent_then = sk_many(a, int64_t, p->n_ranks);
    if (o->trace) {
        r->times = sk_many(a, double, 2 * p->insts.n);
        r->moving = sk_many(a, double, 2 * p->insts.n);
        r->began = sk_many(a, double, p->calls.n);
    }
    lay_tables(r);
    prepare_args(r, a);
    find_places(r, a);
    r->squares = sk_many(a, double, (int64_t)p->params.n * p->threads + 1);
    sk_status st = open_rest(r);
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
    sk_aside_close(r->copier);
    sk_aside_close(r->updater);
    sk_disk_close(r->disk);
    r->team = NULL;
    r->comm = NULL;
    r->copier = r->updater = NULL;
    r->disk = NULL;
}

const sk_program *sk_run_program(const sk_run *r) { return r->p; }

static char *tier_of(const sk_run *r, int buf)
{
    return r->p->bufs.v[buf].tier == SK_FILE ? sk_disk_map(r->disk) : r->base;
}

void *sk_run_data(const sk_run *r, int buf) { return tier_of(r, buf) + r->p->bufs.v[buf].offset; }
void *sk_run_bounce(const sk_run *r) { return r->disk ? r->base + r->p->kind_at[SK_HOSTED] : NULL; }

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
    init_job j = {.t = t, .v = sk_buffer_view(r->p, buf, tier_of(r, buf)), .std = (real)t->init};
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
            SK_TRY(r->opts.fill(r->opts.fill_ctx, b->name, b->type, &box, r->batch, r->validation,
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
    return r->opts.fill(r->opts.fill_ctx, b->name, b->type, &b->box, r->batch, r->validation, to);
}

/* Where row i of a part begins in the whole, in elements. */
static int64_t row_at(const sk_view *part, const sk_view *whole, int64_t i)
{
    int64_t at = 0;
    for (int d = part->n - 1; d >= 0; d--) {
        int64_t k = d == part->n - 1 ? 0 : i % part->size[d];
        if (d < part->n - 1) i /= part->size[d];
        at += (part->at[d] - whole->at[d] + k) * whole->step[d];
    }
    return at;
}

static int64_t row_of(const sk_view *v) { return v->n ? v->size[v->n - 1] : 1; }
static int64_t rows_of(const sk_view *v) { return row_of(v) ? sk_count(v) / row_of(v) : 0; }

/* Copy the part of a box that another box asks for, row by row. */
static void slice(const sk_view *from, const sk_view *to)
{
    size_t size = sk_dtype_size(to->type), bytes = (size_t)row_of(to) * size;
    for (int64_t i = 0; i < rows_of(to); i++)
        memcpy((char *)to->data + (size_t)i * bytes,
               (const char *)from->data + (size_t)row_at(to, from, i) * size, bytes);
}

static void paste(const sk_view *from, const sk_view *to)
{
    size_t size = sk_dtype_size(to->type), bytes = (size_t)row_of(from) * size;
    for (int64_t i = 0; i < rows_of(from); i++)
        memcpy((char *)to->data + (size_t)row_at(from, to, i) * size,
               (const char *)from->data + (size_t)i * bytes, bytes);
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

static sk_pack_job pack_of(const sk_run *r, int wide, int packed, int64_t room)
{
    const sk_buffer *b = &r->p->bufs.v[wide];
    return (sk_pack_job){.data = sk_run_data(r, wide),
                         .packed = sk_run_data(r, packed),
                         .type = b->type,
                         .n = b->bytes / (int64_t)sk_dtype_size(b->type),
                         .room = room};
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
    const far_job *j = ctx;
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
        if (in_norm(q) || q->tensor->nudge != 0) continue;
        if (r->p->bufs.v[q->grad_shard].tier) r->partial[part][1] += r->squares[i * of + part];
        else see_part(r, q->grad_shard, part, of, see_finite, &r->partial[part][1]);
    }
}

/* 0, or NaN. */
static double copies(sk_run *r)
{
    double bad = 0;
    sk_team_run(r->team, copies_part, r);
    for (int i = 0; i < r->p->threads; i++) bad += r->partial[i][1];
    return bad;
}

static void squares_exactly(sk_run *r, int buf)
{
    sk_exact sum = {0};
    sk_team_run(r->team, exact_part, r);
    for (int i = 0; i < r->p->threads; i++) {
        sk_exact_merge(&sum, &r->exact[i]);
        r->exact[i] = (sk_exact){0};
    }
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
    if (in->pass) s[SK_STAT_NORM] += copies(r);
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
        cells ? sk_order_fold(s + SK_STAT_SUMS + r->p->n_sums, (int)cells) : sum[SK_SUM_LOSS];
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

static void clip(sk_run *r, const sk_inst *in)
{
    double most = r->opts.knobs.clip;
    take_sums(r, in);
    r->out.again = in->pass && ((r->opts.no_drops && r->out.drops > 0) ||
                                (r->opts.no_full && !isfinite(r->out.grad_norm)));
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
                  .param = sk_run_data(r, in->out[2] >= 0 ? in->out[2] : in->out[0]),
                  .grad = sk_run_data(r, in->in[0]),
                  .scale = in->beside      ? 1 /* it was scaled before */
                           : in->scale > 0 ? in->scale / (float)r->loss_scale
                                           : r->scale,
                  .step = r->step * p->n_updates + r->shift + in->update + !in->beside,
                  .delay = (int)in->count};
    for (int s = 0; s < p->optim->n_state; s++) x.state[s] = sk_run_data(r, in->in[2 + s]);
    for (int k = 0; p->optim->knobs[k].name; k++)
        x.knob[k] = knob(r, &p->optim->knobs[k], q->decay);
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

static void look_ahead(sk_run *r, const sk_inst *in)
{
    update_job j = {.r = r, .pass = r->p->optim->ahead, .piece = piece_of(r, in), .type = SK_F32};
    memcpy(j.piece.param, sk_run_data(r, in->in[0]), (size_t)j.piece.n * sizeof(real));
    if (j.piece.n < SMALL) update_part(&j, 0, 1);
    else sk_team_run(r->team, update_part, &j);
}

/* A step of fixed size against the sign of the gradient, whatever the optimizer is. */
static void nudge(const sk_run *r, const sk_inst *in, const sk_param_plan *q)
{
    const real *grad = sk_run_data(r, in->in[0]);
    real *w = sk_run_data(r, in->out[0]), step = (real)q->tensor->nudge;
    int64_t n = r->p->bufs.v[q->shard].bytes / (int64_t)sizeof(real);
    for (int64_t i = 0; i < n; i++) w[i] -= grad[i] > 0 ? step : grad[i] < 0 ? -step : 0;
}

/* On the thread beside the rank. */
static sk_status update_late(void *ctx)
{
    const far_job *f = ctx;
    const sk_run *r = f->r;
    const sk_param_plan *q = &r->p->params.v[f->in->param];
    update_job j = {.r = f->r, .pass = r->p->optim->pass[0], .piece = piece_of(r, f->in)};
    double sum[SK_MAX_SUM];
    name_state(r, f->in, q, &j);
    j.type = SK_F32;
    j.shape = sk_buffer_view(r->p, q->master, r->base);
    pass_over(&j, j.piece.sum, 0, j.piece.n, sum);
    return SK_OK;
}

static sk_status join(sk_run *r)
{
    double before = sk_now();
    for (int i = 0; i < r->p->params.n; i++) SK_TRY(sk_aside_wait(r->updater, i, r->patience));
    r->waited += sk_now() - before;
    return SK_OK;
}

static void narrow(sk_run *r, const sk_inst *in)
{
    const sk_buffer *b = &r->p->bufs.v[in->out[0]];
    update_job j = {.r = r, .type = b->type, .narrow = sk_run_data(r, in->out[0])};
    j.piece.n = b->bytes / (int64_t)sk_dtype_size(b->type);
    j.piece.param = sk_run_data(r, in->in[0]);
    sk_team_run(r->team, narrow_master, &j);
}

static void pend_some(void *ctx, const real *x, int64_t n)
{
    pend_job *j = ctx;
    for (int64_t i = 0; i < n; i++) j->to[i] = j->scale > 0 ? x[i] * j->scale : 0;
    j->to += n;
}

static void pend_part(void *ctx, int part, int of)
{
    const far_job *f = ctx;
    const sk_run *r = f->r;
    int64_t n = r->p->bufs.v[f->in->out[0]].bytes / (int64_t)sizeof(real);
    pend_job j = {(real *)sk_run_data(r, f->in->out[0]) + n * part / of, r->skip ? 0 : r->scale};
    see_part(r, f->in->in[0], part, of, pend_some, &j);
}

static void update(sk_run *r, const sk_inst *in)
{
    const sk_program *p = r->p;
    const sk_param_plan *q = &p->params.v[in->param];
    update_job j = {.r = r, .pass = p->optim->pass[in->pass]};
    bool last = q->master >= 0 && !p->optim->pass[in->pass + 1];
    if (q->tensor->nudge != 0) {
        if (!r->skip) nudge(r, in, q);
        return;
    }
    j.piece = piece_of(r, in);
    j.grad = j.piece.grad;
    j.type = p->bufs.v[in->in[0]].type;
    if (last) j.narrow = sk_run_data(r, in->out[0]);
    if (r->skip) { /* a copy of the weights goes home all the same */
        if (last) sk_team_run(r->team, narrow_master, &j);
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
    else sk_team_run(r->team, update_part, &j);
    if (in->out[1] < 0) return;
    double *sums = sums_of(r, in, in->out[1]);
    for (int s = 0; s < SK_MAX_SUM; s++) {
        sums[s] = 0;
        for (int t = 0; t < parts && q->owner; t++) sums[s] += r->partial[t][s];
    }
}

/* --- copies between memories --- */

static sk_status copy(void *ctx)
{
    const far_job *j = ctx;
    sk_run *r = j->r;
    const sk_buffer *from = &r->p->bufs.v[j->in->in[0]], *to = &r->p->bufs.v[j->in->out[0]];
    if (from->tier == SK_FILE)
        return sk_disk_read(r->disk, r->base + to->offset, from->offset, to->bytes);
    if (to->tier == SK_FILE)
        return sk_disk_write(r->disk, to->offset, r->base + from->offset, from->bytes);
    memcpy(r->base + to->offset, r->base + from->offset, (size_t)to->bytes);
    return SK_OK;
}

static sk_status end_copy(sk_run *r, const sk_inst *in)
{
    double before = sk_now(), *at = r->moving ? &r->moving[2 * (in - r->p->insts.v)] : NULL;
    SK_TRY(sk_aside_wait(r->copier, in->copy, r->patience));
    const double *took = sk_aside_times(r->copier, in->copy);
    r->uncovered += sk_now() - before;
    r->waited += sk_now() - before;
    r->copied += took[1] - took[0];
    if (at) memcpy(at, took, 2 * sizeof *at);
    return SK_OK;
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
    case SK_DO_PASTE: {
        sk_view from = sk_buffer_view(r->p, in->in[0], r->base);
        sk_view to = sk_buffer_view(r->p, in->out[0], r->base);
        paste(&from, &to);
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
        if (!in->beside) update(r, in);
        else if (r->pending) sk_aside_begin(r->updater, in->param, update_late, deed_of(r, in));
        return SK_OK;
    case SK_DO_JOIN:
        return join(r);
    case SK_DO_NARROW:
        narrow(r, in);
        return SK_OK;
    case SK_DO_PEND:
        sk_team_run(r->team, pend_part, &(far_job){r, in});
        return SK_OK;
    case SK_DO_AHEAD:
        look_ahead(r, in);
        return SK_OK;
    case SK_DO_SQUARES:
        sk_team_run(r->team, far_part, &(far_job){r, in});
        return SK_OK;
    case SK_DO_COPY:
        sk_aside_begin(r->copier, in->copy, copy, deed_of(r, in));
        return SK_OK;
    case SK_DO_COPIED:
        return end_copy(r, in);
    case SK_DO_PACK:
        r->full |= !sk_pack(r->team, pack_of(r, in->in[0], in->out[0], in->count));
        return SK_OK;
    case SK_DO_UNPACK:
        sk_unpack(r->team, pack_of(r, in->out[0], in->in[0], in->count));
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
    if (r->opts.before) r->opts.before(r->opts.before_ctx, r, r->batch, pc);
    sk_status st = one(r, pc);
    if (!st && r->comm) st = sk_comm_progress(r->comm); /* a step list in flight goes on here */
    if (st) return sk_trail(st, SK_HERE);
    if (r->times) r->times[2 * pc] = now, r->times[2 * pc + 1] = read_clock(r);
    return SK_OK;
}

static sk_status walk(sk_run *r, int from, int to)
{
    double begin = sk_now();
    r->waited = r->copied = r->uncovered = 0;
    r->skip = r->full = false;
    if (r->disk) SK_TRY(sk_disk_settle(r->disk));
    r->wire_then = sk_comm_wire(r->comm);
    for (int k = 0; k < r->p->n_ranks; k++) r->sent_then[k] = sk_comm_sends(r->comm, k);
    atomic_store(&r->line->step, (long long)r->step);
    atomic_store(&r->line->state, 2);
    for (int pc = from; pc < to; pc++) SK_TRY(step_one(r, pc));
    r->out.seconds = sk_now() - begin;
    r->out.waited = r->waited;
    r->out.copied = r->copied;
    r->out.uncovered = r->uncovered;
    r->out.wire = sk_comm_wire(r->comm) - r->wire_then;
    return SK_OK;
}

sk_status sk_run_step(sk_run *r, const sk_step_in *in, sk_step_out *out)
{
    r->step = in->step;
    r->batch = in->step + in->ahead;
    r->shift = in->shift;
    r->lr = in->lr;
    r->loss_scale = in->loss_scale > 0 ? in->loss_scale : 1;
    r->validation = false;
    SK_TRY(walk(r, 0, r->p->n_train));
    r->pending = r->p->late && !r->skip;
    *out = r->out;
    return SK_OK;
}

bool sk_run_pending(const sk_run *r) { return r->pending; }
void sk_run_set_pending(sk_run *r, bool pending) { r->pending = pending; }

static bool waits(sk_act act)
{
    return act == SK_DO_WAIT || act == SK_DO_RECV || act == SK_DO_SENT;
}

sk_status sk_run_turn(sk_run *r, int64_t step, int *pc)
{
    const sk_inst *v = r->p->insts.v;
    sk_assert(r->opts.alone);
    r->step = r->batch = step;
    r->lr = 0;
    r->validation = r->skip = false;
    r->pending = true; /* as in most steps */
    for (bool met = false; !met && *pc < r->p->n_train; ++*pc) {
        SK_TRY(step_one(r, *pc));
        met = waits(v[*pc].act);
    }
    return SK_OK;
}

sk_status sk_run_validate(sk_run *r, int64_t step, sk_step_out *out)
{
    r->step = r->batch = step;
    r->validation = true;
    SK_TRY(walk(r, r->p->n_train, r->p->insts.n));
    *out = r->out;
    return SK_OK;
}

sk_status sk_run_forward(sk_run *r, int64_t step)
{
    r->step = r->batch = step;
    r->validation = false;
    return walk(r, r->p->n_train, r->p->insts.n);
}

/* --- boxes --- */

/* What lies in the file is seen by its own rank alone. */
static void box_of(const sk_program *p, char *base, char *file, int buf, bool mine, sk_box *out)
{
    const sk_buffer *b = &p->bufs.v[buf];
    if (b->tier == SK_FILE) base = file;
    *out = (sk_box){.name = b->name,
                    .type = b->type,
                    .n = b->box.n,
                    .mine = mine,
                    .data = base ? base + b->offset : NULL};
    memcpy(out->full, b->box.full, sizeof out->full);
    memcpy(out->at, b->box.at, sizeof out->at);
    memcpy(out->size, b->box.size, sizeof out->size);
}

static void list_boxes(const sk_program *p, sk_arena *a, void *base, void *file, sk_box **boxes,
                       int *n)
{
    *boxes = sk_many(a, sk_box, p->params.n * (3 + SK_MAX_STATE));
    *n = 0;
    for (int i = 0; i < p->params.n; i++) {
        const sk_param_plan *q = &p->params.v[i];
        bool wide = q->master >= 0; /* then what is saved is the master, and both are restored */
        if (keeps(p, q->stored))
            box_of(p, base, file, q->stored, q->writes && !wide, &(*boxes)[(*n)++]);
        if (wide) {
            box_of(p, base, file, q->master, q->owner, &(*boxes)[*n]);
            (*boxes)[(*n)++].name = q->tensor->name;
        }
        for (int s = 0; s < q->n_state; s++)
            box_of(p, base, file, q->state[s], q->owner, &(*boxes)[(*n)++]);
        if (p->late && q->n_state > p->optim->n_state) (*boxes)[*n - 1].may_lack = true;
        if (q->error < 0) continue;
        box_of(p, base, file, q->error, q->tells, &(*boxes)[*n]);
        (*boxes)[(*n)++].parts = true;
    }
}

void sk_program_boxes(const sk_program *p, sk_arena *a, void *base, sk_box **boxes, int *n)
{
    list_boxes(p, a, base, NULL, boxes, n);
}

void sk_run_boxes(const sk_run *r, sk_arena *a, sk_box **boxes, int *n)
{
    list_boxes(r->p, a, r->base, r->disk ? sk_disk_map(r->disk) : NULL, boxes, n);
}
