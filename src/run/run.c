/* run.c - one rank walks its instructions.
 *
 * One flat switch.  Kernels run on the rank's thread team; arguments were worked
 * out when the run was opened.  Waiting for others is told apart from work, so
 * that "exposed communication" is a measurement and not a guess. */
#include "base/clock.h"
#include "base/hash.h"
#include "base/proc.h"
#include "device/blas_setup.h"
#include "run/batch.h"
#include "run/cpu/encode.h"
#include "plan/deadline.h"
#include "run/gpu/gpu.h"
#include "run/run_state.h"
#include "run/cpu/pack_bits.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

sk_bound_inst *sk_bind_inst(sk_run *r, const sk_inst *in)
{
    sk_bound_inst *j = &r->deeds[in - r->p->insts.v];
    *j = (sk_bound_inst){r, in};
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
    SK_TRY(sk_comm_small_bcast(r->comm, &first, sizeof first));
    if (first != mine) return other_program(r, 0, first, mine);
    for (int k = 0; k < r->p->n_ranks; k++) {
        uint64_t theirs = atomic_load(&sk_heaps_rank_state(r->heaps, k)->hash);
        if (sk_heap_base(r->heaps, k) && theirs != mine) return other_program(r, k, theirs, mine);
    }
    return SK_OK;
}

static void prepare_args(sk_run *r, sk_arena *a)
{
    const sk_program *p = r->p;
    char *base = r->gpu ? sk_gpu_base(r->gpu) : r->base;
    r->args = sk_many(a, sk_args, p->insts.n);
    r->deeds = sk_many(a, sk_bound_inst, p->n_copies || p->late ? p->insts.n : 1);
    for (int i = 0; i < p->insts.n; i++)
        if (p->insts.v[i].act == SK_DO_OP) {
            sk_inst_args(p, &p->insts.v[i], base, &r->args[i]);
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
    r->team = sk_threads_open(p->threads);
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
    if (p->n_copies) SK_TRY(sk_background_open(p->n_copies, &r->copier));
    if (p->late && p->gpu) r->helpers = sk_threads_open(p->threads);
    return p->late ? sk_background_open(p->params.n, &r->updater) : SK_OK;
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
    r->line = sk_heaps_rank_state(h, seat);
    r->base = sk_heap_base(h, seat);
    if (sk_heap_bytes(h, seat) < p->heap_bytes)
        return sk_fail(SK_EBUG, "rank %d: the heap has %lld bytes, the plan %lld", p->rank,
                       (long long)sk_heap_bytes(h, seat), (long long)p->heap_bytes);
    SK_TRY(sk_blas_reserve(p->threads));
    atomic_store(&r->line->pid, (long long)getpid());
    atomic_store(&r->line->step, -1);
    atomic_store(&r->line->waits_for, -1);
    r->sent_then = sk_many(a, int64_t, p->n_ranks);
    if (o->trace) {
        r->times = sk_many(a, double, 2 * p->insts.n);
        r->moving = sk_many(a, double, 2 * p->insts.n);
        r->began = sk_many(a, double, p->calls.n);
    }
    find_places(r, a);
    r->squares = sk_many(a, double, (int64_t)p->params.n * p->threads + 1);
    if (!p->gpu) lay_tables(r);
    sk_status st = p->gpu ? sk_gpu_open(a, r, &r->gpu) : SK_OK;
    if (!st) prepare_args(r, a);
    if (!st && p->gpu) st = sk_gpu_prepare(a, r);
    if (!st) st = open_rest(r);
    if (!st && p->gpu) st = sk_gpu_meet(a, r);
    if (st) {
        sk_run_close(r);
        return sk_trail(st, SK_HERE);
    }
    *out = r;
    return SK_OK;
}

void sk_run_close(sk_run *r)
{
    sk_gpu_stop(r->gpu);
    sk_background_close(r->copier); /* which may speak to the GPU */
    sk_background_close(r->updater);
    if (r->helpers) sk_threads_close(r->helpers);
    sk_gpu_close(r->gpu);
    if (r->team) sk_threads_close(r->team);
    if (r->comm) sk_comm_close(r->comm);
    sk_disk_close(r->disk);
    r->gpu = NULL;
    r->team = r->helpers = NULL;
    r->comm = NULL;
    r->copier = r->updater = NULL;
    r->disk = NULL;
}

const sk_program *sk_run_program(const sk_run *r) { return r->p; }

char *sk_run_tier(const sk_run *r, int buf)
{
    return r->p->bufs.v[buf].tier == SK_FILE ? sk_disk_map(r->disk) : r->base;
}

void *sk_run_data(const sk_run *r, int buf)
{
    return sk_run_tier(r, buf) + r->p->bufs.v[buf].offset;
}
sk_status sk_run_poke(const sk_run *r, int buf, const void *data, size_t bytes)
{
    if (r->gpu && !r->p->bufs.v[buf].tier) return sk_gpu_poke(r, buf, data, bytes);
    memcpy(sk_run_data(r, buf), data, bytes);
    return SK_OK;
}

void *sk_run_bounce(const sk_run *r) { return r->disk ? r->base + r->p->kind_at[SK_HOSTED] : NULL; }

sk_status sk_run_push(sk_run *r) { return r->gpu ? sk_gpu_push(r) : SK_OK; }
sk_status sk_run_pull(sk_run *r) { return r->gpu ? sk_gpu_pull(r) : SK_OK; }

sk_status sk_run_barrier(sk_run *r) { return sk_comm_barrier(r->comm); }
sk_comm *sk_run_comm(sk_run *r) { return r->comm; }
double *sk_run_times(sk_run *r) { return r->times; }
bool sk_run_gpu_usage(sk_run *r, sk_gpu_usage *out) { return r->gpu && !sk_gpu_look(r->gpu, out); }
const char *const *sk_run_launch_names(const sk_run *r) { return r->gpu ? sk_gpu_names(r) : NULL; }
double *sk_run_moving(sk_run *r) { return r->moving; }

/* Others may read my messages and tables until all have met. */
sk_status sk_run_switch(sk_run *from, sk_run *to)
{
    for (int k = 0; k < from->p->n_ranks; k++)
        if (k != from->p->rank) SK_TRY(sk_comm_sent(from->comm, k, sk_comm_sends(from->comm, k)));
    SK_TRY(sk_comm_barrier(from->comm));
    if (to->gpu) return sk_gpu_lay(to);
    lay_tables(to);
    return SK_OK;
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
    sk_op_narrowed(j->op, j->narrow, j->args, part, of);
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
        sk_threads_run(r->team, op_part, &j);
        return;
    }
    sk_args wide = sk_op_widened(a, room);
    j.narrow = a;
    j.args = &wide;
    sk_threads_run(r->team, widen_part, &j);
    sk_threads_run(r->team, op_part, &j);
    sk_threads_run(r->team, narrow_part, &j);
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
    real x[SK_BLOCK], y[SK_BLOCK];
    if (j->type == SK_F32) {
        add_some((real *)j->to + at, (const real *)j->from + at, end - at);
        return;
    }
    for (; at < end; at += m) {
        m = end - at < SK_BLOCK ? end - at : SK_BLOCK;
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
    sk_threads_run(r->team, add_part, &j);
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

/* --- copies between memories --- */

static sk_status copy(void *ctx)
{
    const sk_bound_inst *j = ctx;
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
    SK_TRY(sk_background_wait(r->copier, in->copy, r->patience));
    const double *took = sk_background_times(r->copier, in->copy);
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
    double over = sk_comm_finished_at(r->comm), *at = &r->moving[2 * (in - r->p->insts.v)];
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
        st = sk_comm_sent(r->comm, in->peer, r->sent_then[in->peer] + in->sent);
    }
    r->waited += sk_now() - before;
    if (r->moving) note_moving(r, in, before);
    return st;
}

/* What only moves or changes numbers within the rank; false: it is something else. */
static bool rearrange(sk_run *r, const sk_inst *in)
{
    sk_view from, to;
    switch (in->act) {
    case SK_DO_SLICE:
    case SK_DO_PASTE:
        from = sk_buffer_view(r->p, in->in[0], r->base);
        to = sk_buffer_view(r->p, in->out[0], r->base);
        (in->act == SK_DO_SLICE ? slice : paste)(&from, &to);
        return true;
    case SK_DO_ADD:
        add(r, in);
        return true;
    case SK_DO_ZERO:
        memset(sk_run_data(r, in->out[0]), 0, (size_t)r->p->bufs.v[in->out[0]].bytes);
        return true;
    case SK_DO_PACK:
        r->full |= !sk_pack(r->team, pack_of(r, in->in[0], in->out[0], in->values));
        return true;
    case SK_DO_UNPACK:
        sk_unpack(r->team, pack_of(r, in->out[0], in->in[0], in->values));
        return true;
    case SK_DO_ENCODE:
        sk_run_encode(r->p, in, r->base, (float)r->loss_scale, r->team);
        return true;
    case SK_DO_DECODE:
        sk_run_decode(r->p, in, r->base, r->team);
        return true;
    default:
        return false;
    }
}

/* The end of a step: run/cpu/optimize.c. */
static sk_status optimize(sk_run *r, const sk_inst *in, int pc)
{
    switch (in->act) {
    case SK_DO_STATS:
        sk_do_stats(r, in);
        return SK_OK;
    case SK_DO_CLIP:
        sk_do_clip(r, in);
        return SK_OK;
    case SK_DO_UPDATE:
        sk_do_update(r, in);
        return SK_OK;
    case SK_DO_JOIN:
        return sk_do_join(r);
    case SK_DO_NARROW:
        sk_do_narrow(r, in);
        return SK_OK;
    case SK_DO_PEND:
        sk_do_pend(r, in);
        return SK_OK;
    case SK_DO_AHEAD:
        sk_do_predict(r, in);
        return SK_OK;
    case SK_DO_SQUARES:
        sk_do_squares(r, in);
        return SK_OK;
    default:
        return sk_fail(SK_EBUG, "instruction %d has no meaning", pc);
    }
}

static sk_status one(sk_run *r, int pc)
{
    const sk_inst *in = &r->p->insts.v[pc];
    switch (in->act) {
    case SK_DO_LOAD:
        return sk_batch_load(r, in, sk_run_data(r, in->out[0]));
    case SK_DO_OP:
        run_op(r, pc);
        return SK_OK;
    case SK_DO_START:
    case SK_DO_WAIT:
    case SK_DO_SEND:
    case SK_DO_RECV:
    case SK_DO_SENT:
        return exchange(r, in);
    case SK_DO_COPY:
        sk_background_begin(r->copier, in->copy, copy, sk_bind_inst(r, in));
        return SK_OK;
    case SK_DO_COPIED:
        return end_copy(r, in);
    default:
        return rearrange(r, in) ? SK_OK : optimize(r, in, pc);
    }
}

/* A note in the flight ring: what a stuck or dead rank was doing. */
static void note(sk_run *r, int pc, double now)
{
    unsigned at =
        atomic_fetch_add_explicit(&r->line->ring_n, 1, memory_order_relaxed) % SK_FLIGHT_RECORDS;
    r->line->ring[at].pc = pc;
    r->line->ring[at].micro = r->p->insts.v[pc].micro;
    r->line->ring[at].at = now;
    atomic_store_explicit(&r->line->pc, pc, memory_order_relaxed);
    atomic_fetch_add_explicit(&r->line->heartbeat, 1, memory_order_relaxed);
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
    r->wire_then = sk_comm_bytes_sent(r->comm);
    for (int k = 0; k < r->p->n_ranks; k++) r->sent_then[k] = sk_comm_sends(r->comm, k);
    atomic_store(&r->line->step, (long long)r->step);
    atomic_store(&r->line->state, 2);
    if (r->gpu) SK_TRY(sk_gpu_walk(r, from, to));
    for (int pc = from; !r->gpu && pc < to; pc++) SK_TRY(step_one(r, pc));
    r->out.seconds = sk_now() - begin;
    r->out.waited = r->waited;
    r->out.copied = r->copied;
    r->out.uncovered = r->uncovered;
    r->out.wire = sk_comm_bytes_sent(r->comm) - r->wire_then;
    for (int pc = from; r->gpu && pc < to; pc++) r->out.wire += r->p->insts.v[pc].wire;
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

sk_status sk_run_until_wait(sk_run *r, int64_t step, int *pc)
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
