/* gpu_section.c - a training or validation step on a GPU: batches, issue or replay, waiting. */
#include "base/clock.h"
#include "run/batch.h"
#include "run/gpu/gpu.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGE = 4096 };

static sk_status issue_all(sk_run *r, int from, int to)
{
    const sk_gpu *g = r->gpu;
    if (g->marks) SK_TRY(sk_event_mark(g->d, g->marks[from], g->compute));
    for (int pc = from; pc < to; pc++) {
        sk_event *const *wait = &g->waits[2 * pc];
        if (r->opts.before) r->opts.before(r->opts.before_ctx, r, r->batch, pc);
        if (wait[0]) SK_TRY(sk_event_mark(g->d, wait[0], g->compute));
        sk_status st = sk_run_due(r, &r->p->insts.v[pc]) ? sk_gpu_issue(r, pc) : SK_OK;
        if (st) return sk_trail(st, SK_HERE);
        if (wait[1]) SK_TRY(sk_event_mark(g->d, wait[1], g->compute));
        if (g->marks) SK_TRY(sk_event_mark(g->d, g->marks[pc + 1], g->compute));
    }
    return sk_comm_streams_join(g->streams, r, from, to);
}

/* After a failure the capture must be ended too; the error of that end is not the one to report. */
static sk_status capture(sk_run *r, int from, int to, sk_device_graph **out)
{
    sk_gpu *g = r->gpu;
    char said[2048];
    SK_TRY(sk_device_graph_begin(g->d, g->compute));
    sk_status st = issue_all(r, from, to);
    if (!st) return sk_device_graph_end(g->d, g->compute, out);
    snprintf(said, sizeof said, "%s", sk_error());
    sk_device_graph *part = NULL;
    (void)sk_device_graph_end(g->d, g->compute, &part);
    sk_error_set(said);
    return st;
}

/* Has this step instructions that a CUDA graph cannot have: those of some updates only, and kernels
 * that wait for the device? */
static bool out_of_graph(const sk_run *r, int from, int to)
{
    for (int pc = from; pc < to; pc++) {
        const sk_inst *in = &r->p->insts.v[pc];
        const sk_kernel *k = in->act == SK_DO_OP ? r->gpu->kernels[pc] : NULL;
        if (sk_run_due(r, in) && (sk_inst_interval(in) > 1 || (k && k->waits))) return true;
    }
    return false;
}

/* The first time instructions are issued one by one, so that all kernels are loaded; then they are
 * captured as a CUDA graph, which is launched from there on.  Sections in which the host takes part
 * are issued every time. */
static sk_status launch(sk_run *r, int from, int to)
{
    sk_gpu *g = r->gpu;
    int kind = r->p->kinds ? sk_step_kind(r->p->kinds, r->step) : SK_STEP_SENT;
    int training = sk_run_together(r, r->p->replicas_from) ? 3 : kind == SK_STEP_LOCAL ? 4 : 0;
    sk_gpu_section *s = &g->sections[!from ? training : from == r->p->n_mean ? 1 : 2];
    if (!s->runs++ || r->opts.before || sk_offload_any(r->p, from, to) || out_of_graph(r, from, to))
        return issue_all(r, from, to);
    if (!s->graph) SK_TRY(capture(r, from, to, &s->graph));
    return sk_device_graph_launch(g->d, s->graph, g->compute);
}

/* --- batches and step scalars --- */

/* `data`: only data of the batch; else only the scalars. */
static sk_status read_batches(sk_run *r, int from, int to, bool data, char *stage)
{
    for (int pc = from; pc < to; pc++) {
        const sk_inst *in = &r->p->insts.v[pc];
        if (in->act == SK_DO_LOAD && sk_batch_is_data(r, in) == data)
            SK_TRY(sk_batch_load(r, in, stage + r->gpu->stage_at[pc]));
    }
    return SK_OK;
}

static sk_status fill_stage(sk_run *r, int from, int to)
{
    sk_gpu *g = r->gpu;
    SK_TRY(read_batches(r, from, to, false, g->stage));
    if (from || g->ahead_batch != r->batch) return read_batches(r, from, to, true, g->stage);
    for (int pc = from; pc < to; pc++) {
        const sk_inst *in = &r->p->insts.v[pc];
        if (in->act == SK_DO_LOAD && sk_batch_is_data(r, in))
            memcpy(g->stage + g->stage_at[pc], g->ahead + g->stage_at[pc],
                   (size_t)r->p->bufs.v[in->out[0]].bytes);
    }
    return SK_OK;
}

/* The data of the next step, while the GPU works.  If they cannot be read, that step reports it. */
static void read_ahead(sk_run *r, int from, int to)
{
    sk_gpu *g = r->gpu;
    if (sk_run_first_phase(r)) return;  /* the next section reads this batch again */
    if (from || !r->p->n_train) return; /* sampling: the next input depends on this output */
    r->batch++;
    g->ahead_batch = read_batches(r, from, to, true, g->ahead) ? -1 : r->batch;
    r->batch--;
}

static void write_scalars(const sk_run *r)
{
    *r->gpu->told = (sk_step_scalars){.step = (uint64_t)r->step,
                                      .updates = sk_run_updates(r),
                                      .lr = r->lr,
                                      .phase = r->phase,
                                      .momentum = r->momentum,
                                      .skip = r->bad_phase,
                                      .loss_scale = r->loss_scale};
}

static void read_scalars(sk_run *r)
{
    const sk_step_scalars *t = r->gpu->told;
    r->out.loss = t->loss;
    r->out.tokens = t->tokens;
    r->out.grad_norm = t->norm;
    r->out.small = t->small;
    r->out.aux = t->aux;
    r->out.drops = t->drops;
    r->out.right = t->right;
    r->out.finite = t->finite;
    r->out.again = t->again;
    r->skip = t->skip;
}

static sk_status read_waits(sk_run *r, int from, int to)
{
    const sk_gpu *g = r->gpu;
    for (int pc = from; pc < to; pc++) {
        double seconds = 0;
        if (!g->waits[2 * pc]) continue;
        SK_TRY(sk_event_seconds(g->d, g->waits[2 * pc], g->waits[2 * pc + 1], &seconds));
        r->waited += seconds;
    }
    return SK_OK;
}

/* When each instruction ran by the clock of the GPU, counted from the host's `begin`. */
static sk_status read_marks(sk_run *r, int from, int to, double begin)
{
    const sk_gpu *g = r->gpu;
    if (!g->marks) return SK_OK;
    for (int pc = from; pc < to; pc++) {
        double at[2];
        for (int k = 0; k < 2; k++)
            SK_TRY(sk_event_seconds(g->d, g->marks[from], g->marks[pc + k], &at[k]));
        r->times[2 * pc] = begin + at[0];
        r->times[2 * pc + 1] = begin + at[g->at[pc] == pc]; /* part of another launch: no time */
    }
    return sk_comm_streams_times(g->streams, g->marks[from], r, from, to, begin, r->moving);
}

/* A job of one rank sleeps until the GPU is done; else the host checks whether other ranks are
 * well.
 */
static sk_status await(sk_run *r)
{
    sk_gpu *g = r->gpu;
    for (bool done = !g->streams; !done;) {
        sk_status st = sk_stream_done(g->d, g->compute, &done);
        if (!st && !done) st = sk_comm_streams_watch(g->streams);
        if (st) return sk_trail(st, SK_HERE);
        if (!done) usleep(20);
    }
    return sk_stream_sync(g->d, g->compute);
}

/* A run that offloads is short of host memory: buffers that are on the device need no host pages.
 */
void sk_gpu_hide(sk_run *r)
{
    size_t bytes = (size_t)r->p->kind_at[SK_HOSTED] / PAGE * PAGE;
    if (bytes && madvise(r->base, bytes, MADV_REMOVE)) madvise(r->base, bytes, MADV_DONTNEED);
    r->gpu->shown = false;
}

static sk_status execute(sk_run *r, int from, int to)
{
    sk_gpu *g = r->gpu;
    double begin = sk_now();
    if (g->offload && g->shown) sk_gpu_hide(r);
    SK_TRY(fill_stage(r, from, to));
    sk_gpu_lap("batches are read", begin);
    write_scalars(r);
    if (g->offload) SK_TRY(sk_offload_begin(g->offload));
    SK_TRY(sk_device_copy(g->d, g->scalars, g->told, sizeof *g->told, g->compute));
    SK_TRY(launch(r, from, to));
    SK_TRY(sk_device_copy(g->d, g->told, g->scalars, sizeof *g->told, g->compute));
    read_ahead(r, from, to);
    SK_TRY(await(r));
    sk_gpu_lap("a section is done", begin);
    read_scalars(r);
    atomic_fetch_add_explicit(&r->line->heartbeat, to - from, memory_order_relaxed);
    SK_TRY(read_waits(r, from, to));
    if (g->offload) SK_TRY(sk_offload_end(g->offload, from, to));
    double over = sk_now();
    SK_TRY(read_marks(r, from, to, begin));
    r->reading = sk_now() - over;
    return SK_OK;
}

/* After a failure other ranks do not come to the calls that are under way: they are aborted. */
sk_status sk_gpu_execute(sk_run *r, int from, int to)
{
    sk_status st = execute(r, from, to);
    for (int pc = from; !st && pc < to; pc++)
        if (sk_run_due(r, &r->p->insts.v[pc])) r->wire_device += r->p->insts.v[pc].wire;
    if (!st) return SK_OK;
    sk_comm_streams_abort(r->gpu->streams);
    return sk_trail(st, SK_HERE);
}

sk_status sk_gpu_watch(sk_run *r) { return sk_comm_streams_watch(r->gpu->streams); }
