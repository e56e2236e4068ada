/* cpu_backend.c - the processor of the host executes a program, instruction by instruction.
 *
 * One loop, and a switch on the act of an instruction: one() for ops and copies; exchange() for
 * communication, sk_do_rearrange() for what only moves numbers, optimize() for the end of a step.
 * Kernels run on the threads of the rank; their arguments were computed when the
 * run was opened.  Waiting for other ranks is timed apart from work, so that "exposed
 * communication" is measured and not estimated. */
#include "base/clock.h"
#include "base/hash.h"
#include "run/backend.h"
#include "run/batch.h"
#include "run/cpu/optimize.h"
#include "run/cpu/rearrange.h"
#include "run/timed.h"

#include <string.h>

/* --- opening --- */

static sk_status write_tables(sk_run *r)
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
                               .degrees = c->degrees,
                               .rows = c->rows,
                               .root = c->root,
                               .common = c->common,
                               .workspace = c->workspace < 0 ? 0 : p->bufs.v[c->workspace].offset,
                               .workspace_bytes = c->workspace_bytes};
        for (int s = 0; s < c->n_segs; s++) {
            call->segs[s] = sk_call_shape(&c->segs[s]);
            call->segs[s].src = p->bufs.v[c->segs[s].src].offset;
            call->segs[s].dst = p->bufs.v[c->segs[s].dst].offset;
        }
    }
    return SK_OK;
}

static sk_status open_cpu(sk_arena *a, sk_run *r)
{
    (void)a;
    r->device = r->base;
    return write_tables(r);
}

/* --- ops --- */

typedef struct op_job {
    const sk_op *op;
    const sk_args *args;
    const sk_args *narrow; /* as stored; args are then copies in f32 that the kernel sees */
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
    a->updates = sk_run_updates(r);
    a->validation = r->validation;
    char *scratch = r->base + r->p->kind_at[SK_SCRATCH];
    op_job j = {.op = r->p->insts.v[pc].node->op,
                .args = a,
                .scratch = scratch + r->p->stage_bytes,
                .each = r->p->scratch_per_thread};
    if (!sk_op_stage(a)) {
        sk_threads_run(r->team, op_part, &j);
        return;
    }
    sk_args wide = sk_op_widened(a, scratch);
    j.narrow = a;
    j.args = &wide;
    sk_threads_run(r->team, widen_part, &j);
    sk_threads_run(r->team, op_part, &j);
    sk_threads_run(r->team, narrow_part, &j);
}

/* --- copies between memories --- */

static sk_status copy(void *ctx)
{
    const sk_bound_inst *j = ctx;
    sk_run *r = j->r;
    const sk_buffer *from = &r->p->bufs.v[j->in->in[0]], *to = &r->p->bufs.v[j->in->out[0]];
    if (from->placement == SK_FILE)
        return sk_disk_read(r->disk, r->base + to->offset, from->offset, to->bytes);
    if (to->placement == SK_FILE)
        return sk_disk_write(r->disk, to->offset, r->base + from->offset, from->bytes);
    memcpy(r->base + to->offset, r->base + from->offset, (size_t)to->bytes);
    return SK_OK;
}

static sk_status end_copy(sk_run *r, const sk_inst *in)
{
    double before = sk_now(), *at = r->moving ? &r->moving[2 * (in - r->p->insts.v)] : NULL;
    SK_TRY(sk_background_wait(r->copier, in->copy, r->timeout_s));
    const double *took = sk_background_times(r->copier, in->copy);
    r->uncovered += sk_now() - before;
    r->waited += sk_now() - before;
    r->copied += took[1] - took[0];
    if (at) memcpy(at, took, 2 * sizeof *at);
    return SK_OK;
}

/* --- collectives and messages --- */

/* Bytes to other hosts move from START on, since sk_comm_progress is called after each instruction;
 * those in shared memory move during the wait. */
static void note_moving(sk_run *r, const sk_inst *in, double before)
{
    double over = sk_comm_finished_at(r->comm), *at = &r->moving[2 * (in - r->p->insts.v)];
    if (in->act == SK_DO_START) r->began[in->call] = before;
    if (in->act != SK_DO_WAIT && in->act != SK_DO_RECV) return;
    bool listed = in->act == SK_DO_WAIT && over > 0;
    at[0] = listed ? r->began[in->call] : before;
    at[1] = listed ? over : sk_now();
}

/* Synthetic data in place of what other ranks would have sent: numbers that slow no kernel down,
 * and index 0 everywhere. */
static void fill_synthetic(sk_run *r, int buf)
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
    if (in->act == SK_DO_RECV) fill_synthetic(r, in->out[0]);
    if (in->act != SK_DO_WAIT) return;
    const sk_call_plan *c = &r->p->calls.v[in->call];
    for (int s = 0; s < c->n_segs; s++)
        if (c->segs[s].dst != c->segs[s].src) fill_synthetic(r, c->segs[s].dst);
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

/* --- one instruction --- */

/* The end of a step: run/cpu/optimize.h. */
static sk_status optimize(sk_run *r, const sk_inst *in, int pc)
{
    switch (in->act) {
    case SK_DO_STATS:
        sk_do_stats(r, in);
        return SK_OK;
    case SK_DO_COMMIT:
        return r->opts.alone ? SK_OK : sk_do_commit(r);
    case SK_DO_PULL:
        return r->opts.alone ? SK_OK : sk_do_pull(r);
    case SK_DO_PUSH:
        return r->opts.alone ? SK_OK : sk_do_push(r);
    case SK_DO_CLIP:
        sk_do_clip(r, in);
        return SK_OK;
    case SK_DO_UPDATE:
        sk_do_update(r, in);
        return SK_OK;
    case SK_DO_AVERAGE:
        sk_do_average(r, in);
        return SK_OK;
    case SK_DO_COMBINE:
        sk_do_combine(r, in);
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
    case SK_DO_SUMSQ:
        sk_do_sumsq(r, in);
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
        return sk_do_rearrange(r, in) ? SK_OK : optimize(r, in, pc);
    }
}

/* A record for the flight recorder: what a stuck or dead rank was doing. */
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

/* A measurement must not count what other processes do on the same core. */
static double read_clock(const sk_run *r)
{
    return r->opts.alone && r->p->threads == 1 ? sk_worked() : sk_now();
}

static sk_status step_one(sk_run *r, int pc)
{
    double now = read_clock(r);
    note(r, pc, now);
    if (r->opts.before) r->opts.before(r->opts.before_ctx, r, r->batch, pc);
    bool due = sk_run_due(r, &r->p->insts.v[pc]);
    if (!due && r->moving) r->moving[2 * pc] = r->moving[2 * pc + 1] = now;
    sk_status st = due ? one(r, pc) : SK_OK;
    if (!st && r->comm) st = sk_comm_progress(r->comm); /* collectives to other hosts go on here */
    if (st) return sk_trail(st, SK_HERE);
    if (r->times) r->times[2 * pc] = now, r->times[2 * pc + 1] = read_clock(r);
    return SK_OK;
}

static sk_status section(sk_run *r, int from, int to)
{
    for (int pc = from; pc < to && !r->late; pc++) {
        SK_TRY(step_one(r, pc));
        r->late |= r->watches && sk_quorum_over(r->comm, r->step);
    }
    return SK_OK;
}

/* --- the host's addresses are the device's: nothing has to be moved --- */

static sk_status nothing(sk_run *r)
{
    (void)r;
    return SK_OK;
}

static sk_status nothing_opened(sk_arena *a, sk_run *r)
{
    (void)a;
    return nothing(r);
}

static sk_status nothing_pushed(sk_run *r, int buf)
{
    (void)buf;
    return nothing(r);
}

static void nothing_closed(sk_run *r) { (void)r; }

static sk_status write_buffer(const sk_run *r, int buf, const void *data, size_t bytes)
{
    memcpy(sk_run_data(r, buf), data, bytes);
    return SK_OK;
}

const sk_backend sk_backend_cpu = {.open = open_cpu,
                                   .prepare = nothing_opened,
                                   .connect = nothing_opened,
                                   .section = section,
                                   .stop = nothing_closed,
                                   .close = nothing_closed,
                                   .one = step_one,
                                   .write_tables = write_tables,
                                   .push = nothing,
                                   .pull = nothing,
                                   .push_buffer = nothing_pushed,
                                   .write = write_buffer};
