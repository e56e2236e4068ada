/* run.c - one rank executes its program: opening, steps, closing.
 *
 * What a device does is behind run/backend.h; here is what every run has: the heap of the rank, its
 * threads and its end of the communication, background workers, and the inputs of a step. */
#include "base/hash.h"
#include "base/clock.h"
#include "device/blas_setup.h"
#include "program/sync.h"
#include "run/backend.h"
#include "run/timed.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DEFAULT_TIMEOUT_S 60.0

sk_bound_inst *sk_bind_inst(sk_run *r, const sk_inst *in)
{
    sk_bound_inst *j = &r->bound[in - r->p->insts.v];
    *j = (sk_bound_inst){r, in};
    return j;
}

/* --- opening --- */

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
    uint64_t mine = sk_program_hash(r->p), first;
    if (sk_layout_timed(&r->p->layout)) mine ^= sk_timed_places(r->p);
    first = mine;
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
    r->args = sk_many(a, sk_args, p->insts.n);
    r->bound = sk_many(a, sk_bound_inst, p->n_copies || p->late ? p->insts.n : 1);
    for (int i = 0; i < p->insts.n; i++)
        if (p->insts.v[i].act == SK_DO_OP) {
            sk_inst_args(p, &p->insts.v[i], r->device, &r->args[i]);
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

static sk_status open_comm(sk_run *r)
{
    const sk_program *p = r->p;
    r->team = sk_threads_open(p->threads);
    if (r->opts.alone) return SK_OK;
    sk_comm_opts o = {.rank = p->rank,
                      .groups = p->groups,
                      .n_groups = p->n_groups,
                      .timeout_s = r->timeout_s,
                      .wire = r->opts.wire,
                      .host_of = r->opts.host_of,
                      .links = p->links,
                      .where = r->opts.where,
                      .where_ctx = r->opts.where_ctx};
    o.team = r->team;
    return sk_comm_open(r->heaps, &o, &r->comm);
}

/* The file that buffers are offloaded to, and the background workers. */
static sk_status open_workers(sk_run *r)
{
    const sk_program *p = r->p;
    const char *dir = r->opts.scratch ? r->opts.scratch : getenv("TMPDIR");
    if (p->file_bytes)
        SK_TRY(sk_disk_open(dir && *dir ? dir : "/tmp", p->file_bytes,
                            r->base + p->kind_at[SK_HOSTED], &r->disk));
    if (p->n_copies) SK_TRY(sk_background_open(p->n_copies, &r->copier));
    return p->late ? sk_background_open(p->params.n, &r->updater) : SK_OK;
}

static sk_status open_all(sk_run *r, sk_arena *a)
{
    SK_TRY(r->backend->open(a, r));
    sk_assert(r->device);
    prepare_args(r, a);
    SK_TRY(r->backend->prepare(a, r));
    SK_TRY(open_comm(r));
    SK_TRY(open_workers(r));
    if (!r->opts.alone) SK_TRY(handshake(r));
    return r->backend->connect(a, r);
}

static void open_tables(sk_run *r, sk_arena *a)
{
    const sk_program *p = r->p;
    r->sent_then = sk_many(a, int64_t, p->n_ranks);
    if (r->opts.trace) {
        r->times = sk_many(a, double, 2 * p->insts.n);
        r->moving = sk_many(a, double, 2 * p->insts.n);
        r->began = sk_many(a, double, p->calls.n);
    }
    find_places(r, a);
    r->squares = sk_many(a, double, (int64_t)p->params.n * p->threads + 1);
}

sk_status sk_run_untimed(const sk_layout *l)
{
    if (!sk_layout_timed(l)) return SK_OK;
    return sk_fail(
        SK_ECONF,
        "layout: sync=%s is for skein train, which records what time decides; leave sync "
        "out",
        sk_sync_timed_name(l));
}

sk_status sk_run_open(sk_arena *a, const sk_program *p, sk_heaps *h, const sk_run_opts *o,
                      sk_run **out)
{
    sk_run *r = sk_new(a, sk_run);
    int slot = o->alone ? o->slot : p->rank;
    r->p = p;
    r->backend = p->gpu ? &sk_backend_gpu : &sk_backend_cpu;
    r->heaps = h;
    r->opts = *o;
    r->loss_scale = 1;
    r->stale_from = -1;
    r->phase = p->phases - 1;
    r->timeout_s = o->timeout_s > 0 ? o->timeout_s : DEFAULT_TIMEOUT_S;
    r->line = sk_heaps_rank_state(h, slot);
    r->base = sk_heap_base(h, slot);
    if (sk_heap_bytes(h, slot) < p->heap_bytes)
        return sk_fail(SK_EBUG, "rank %d: the heap has %lld bytes, the plan %lld", p->rank,
                       (long long)sk_heap_bytes(h, slot), (long long)p->heap_bytes);
    if (!o->alone && !o->commit.seal) SK_TRY(sk_run_untimed(&p->layout));
    SK_TRY(sk_blas_reserve(p->threads));
    atomic_store(&r->line->pid, (long long)getpid());
    atomic_store(&r->line->step, -1);
    atomic_store(&r->line->waits_for, -1);
    open_tables(r, a);
    sk_status st = open_all(r, a);
    if (st) {
        sk_run_close(r);
        return sk_trail(st, SK_HERE);
    }
    *out = r;
    return SK_OK;
}

void sk_run_close(sk_run *r)
{
    r->backend->stop(r);
    sk_background_close(r->copier); /* which may use the GPU */
    sk_background_close(r->updater);
    if (r->helpers) sk_threads_close(r->helpers);
    r->backend->close(r);
    if (r->team) sk_threads_close(r->team);
    if (r->comm) sk_comm_close(r->comm);
    sk_disk_close(r->disk);
    r->team = r->helpers = NULL;
    r->comm = NULL;
    r->copier = r->updater = NULL;
    r->disk = NULL;
}

/* --- buffers --- */

const sk_program *sk_run_program(const sk_run *r) { return r->p; }

char *sk_run_memory(const sk_run *r, int buf)
{
    return r->p->bufs.v[buf].placement == SK_FILE ? sk_disk_map(r->disk) : r->base;
}

void *sk_run_data(const sk_run *r, int buf)
{
    return sk_run_memory(r, buf) + r->p->bufs.v[buf].offset;
}

sk_status sk_run_poke(const sk_run *r, int buf, const void *data, size_t bytes)
{
    return r->backend->write(r, buf, data, bytes);
}

void *sk_run_bounce(const sk_run *r) { return r->disk ? r->base + r->p->kind_at[SK_HOSTED] : NULL; }

sk_status sk_run_push(sk_run *r) { return r->backend->push(r); }
sk_status sk_run_pull(sk_run *r) { return r->backend->pull(r); }
sk_status sk_run_pull_buffer(sk_run *r, int buf)
{
    return r->backend->pull_buffer ? r->backend->pull_buffer(r, buf) : SK_OK;
}

/* --- what others ask --- */

sk_status sk_run_barrier(sk_run *r) { return sk_comm_barrier(r->comm); }
sk_comm *sk_run_comm(sk_run *r) { return r->comm; }
double *sk_run_times(sk_run *r) { return r->times; }
double *sk_run_moving(sk_run *r) { return r->moving; }

bool sk_run_gpu_usage(sk_run *r, sk_gpu_usage *out)
{
    return r->backend->usage && !r->backend->usage(r, out);
}

const char *const *sk_run_launch_names(const sk_run *r)
{
    return r->backend->launch_names ? r->backend->launch_names(r) : NULL;
}

int sk_run_launch_at(const sk_run *r, int pc)
{
    return r->backend->launch_at ? r->backend->launch_at(r, pc) : pc;
}

const char *sk_run_kernel_name(const sk_run *r, int pc)
{
    return r->backend->variant ? r->backend->variant(r, pc)->name : NULL;
}

/* Others may read the messages and tables of this rank until all ranks have met. */
sk_status sk_run_switch(sk_run *from, sk_run *to)
{
    for (int k = 0; k < from->p->n_ranks; k++)
        if (k != from->p->rank) SK_TRY(sk_comm_sent(from->comm, k, sk_comm_sends(from->comm, k)));
    SK_TRY(sk_comm_barrier(from->comm));
    return to->backend->write_tables(to);
}

/* --- steps --- */

static sk_status execute(sk_run *r, int from, int to)
{
    double begin = sk_now();
    sk_assert(0 <= from && from <= to && to <= r->p->insts.n);
    r->waited = r->copied = r->uncovered = r->reading = 0;
    r->wire_device = 0;
    r->skip = r->full = r->late = false;
    r->set = 0;
    if (r->disk) SK_TRY(sk_disk_settle(r->disk));
    r->wire_then = sk_comm_bytes_sent(r->comm);
    for (int k = 0; k < r->p->n_ranks; k++) r->sent_then[k] = sk_comm_sends(r->comm, k);
    atomic_store(&r->line->step, (long long)r->step);
    atomic_store(&r->line->state, 2);
    SK_TRY(r->backend->section(r, from, to));
    r->out.seconds = sk_now() - begin - r->reading;
    r->out.waited = r->waited;
    r->out.copied = r->copied;
    r->out.uncovered = r->uncovered;
    r->out.wire = sk_comm_bytes_sent(r->comm) - r->wire_then + r->wire_device;
    return SK_OK;
}

/* The numbers of a step are those of its first phase, at the weights themselves; where the second
 * is not finite they tell so.  Time and bytes are those of both. */
static void join_phase(sk_step_out *to, const sk_step_out *x)
{
    if (!x->finite) to->loss = x->loss, to->grad_norm = x->grad_norm;
    to->finite &= x->finite;
    to->again = x->again;
    to->seconds += x->seconds;
    to->waited += x->waited;
    to->copied += x->copied;
    to->uncovered += x->uncovered;
    to->wire += x->wire;
}

/* Time decides who makes the step.  A rank that was there shows what it was. */
static sk_status run_timed(sk_run *r, sk_step_out *out)
{
    sk_quorum_begin(r->comm, r->step);
    r->watches = true;
    SK_TRY(execute(r, 0, r->p->n_train));
    r->watches = false;
    r->out.late = r->late;
    r->out.dropped = r->p->n_ranks - __builtin_popcount(r->set);
    *out = r->out;
    if (!r->late) sk_quorum_changed(r->comm, r->step + 1, out, sizeof *out);
    return SK_OK;
}

static sk_status run_stale(sk_run *r, const sk_step_in *in, sk_step_out *out)
{
    sk_stale_begin(r, in);
    SK_TRY(execute(r, 0, r->p->n_train));
    *out = r->out;
    return sk_stale_end(r, out);
}

/* All ranks see the same sums: they end alike.  A replica that skips a step alone goes on, since
 * the last phase is the one that synchronises it with others. */
static sk_status run_phases(sk_run *r, sk_step_out *out)
{
    for (r->phase = 0; r->phase < r->p->phases; r->phase++) {
        r->bad_phase = r->phase && r->skip;
        SK_TRY(execute(r, 0, r->p->n_train));
        if (r->phase) join_phase(out, &r->out);
        else *out = r->out;
        if ((!out->finite || out->again) && !r->p->apart) return SK_OK;
    }
    return SK_OK;
}

sk_status sk_run_step(sk_run *r, const sk_step_in *in, sk_step_out *out)
{
    r->step = in->step;
    r->batch = in->step + in->ahead;
    r->shift = in->shift;
    r->lr = in->lr;
    r->momentum = in->momentum;
    r->loss_scale = in->loss_scale > 0 ? in->loss_scale : 1;
    r->validation = false;
    if (sk_layout_backup(&r->p->layout) >= 0) return run_timed(r, out);
    if (sk_layout_stale(&r->p->layout) >= 0) return run_stale(r, in, out);
    SK_TRY(run_phases(r, out));
    r->pending = r->p->late && !r->skip;
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
    sk_assert(r->opts.alone && r->backend->one);
    r->step = r->batch = step;
    r->lr = r->momentum = 0;
    r->phase = r->p->phases - 1;
    r->validation = r->skip = false;
    r->pending = true; /* as in most steps */
    for (bool met = false; !met && *pc < r->p->n_train; ++*pc) {
        SK_TRY(r->backend->one(r, *pc));
        met = waits(v[*pc].act);
    }
    return SK_OK;
}

sk_status sk_run_validate(sk_run *r, int64_t step, sk_step_out *out)
{
    r->step = r->batch = step;
    r->validation = true;
    SK_TRY(execute(r, r->p->n_mean, r->p->insts.n));
    *out = r->out;
    return SK_OK;
}

sk_status sk_run_mean(sk_run *r)
{
    r->validation = true;
    return r->p->n_mean > r->p->n_train ? execute(r, r->p->n_train, r->p->n_mean) : SK_OK;
}

sk_status sk_run_forward(sk_run *r, int64_t step)
{
    r->step = r->batch = step;
    r->validation = false;
    return execute(r, r->p->n_train, r->p->insts.n);
}
