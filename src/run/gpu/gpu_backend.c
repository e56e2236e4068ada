/* gpu_backend.c - a GPU executes a program: opening, closing, and what the host sees of it. */
#include "run/backend.h"
#include "run/gpu/gpu.h"

#include <string.h>

static sk_status open_gpu(sk_arena *a, sk_run *r)
{
    if (r->opts.alone)
        return sk_fail(SK_ECONF,
                       "device=cuda: a program for a GPU cannot be measured instruction by "
                       "instruction, without the others; use device=cpu to measure a "
                       "layout, or skein bench step to time it");
    r->gpu = sk_new(a, sk_gpu); /* closed with the run, also after a failure */
    SK_TRY(sk_gpu_open_memory(a, r));
    r->device = r->gpu->base;
    return SK_OK;
}

/* Another run over the same pool (sk_run_opts.beside) writes weights on a stream of its own, which
 * waits for nothing of this one: so the memory is zeroed when this returns. */
static sk_status connect_gpu(sk_arena *a, sk_run *r)
{
    sk_gpu *g = r->gpu;
    if (r->p->late) r->helpers = sk_threads_open(r->p->threads);
    SK_TRY(sk_comm_streams_open(a, r, g->d, g->compute, g->base, &g->launch, &g->streams));
    SK_TRY(sk_device_zero(g->d, g->base, (size_t)r->p->kind_at[SK_SCRATCH], g->compute));
    return sk_stream_sync(g->d, g->compute);
}

static void stop_gpu(sk_run *r)
{
    if (r->gpu) sk_offload_stop(r->gpu->offload);
}

static void close_gpu(sk_run *r)
{
    if (!r->gpu) return;
    sk_comm_streams_close(r->gpu->streams);
    sk_device_close(r->gpu->d);
    r->gpu = NULL;
}

/* --- kept buffers between host and device --- */

/* Kept gradients and buffers of collectives hold nothing of value between steps. */
static bool is_seen(const sk_buffer *b)
{
    return b->keep && b->within < 0 && !b->placement && b->kind != SK_GRADS && b->kind != SK_WIRE;
}

static sk_status move_one(sk_run *r, int buf, bool back)
{
    const sk_buffer *b = &r->p->bufs.v[buf];
    char *here = r->base + b->offset, *there = r->gpu->base + b->offset;
    r->gpu->shown = true;
    return sk_device_copy(r->gpu->d, back ? here : there, back ? there : here, (size_t)b->bytes,
                          r->gpu->compute);
}

/* Of a parameter with master weights only those are saved. */
static bool has_master(const sk_program *p, int buf)
{
    for (int i = 0; i < p->params.n; i++)
        if (p->params.v[i].stored == buf) return p->params.v[i].master >= 0;
    return false;
}

/* A run that offloads is short of host memory: weights that nobody saves stay on the device. */
static sk_status move_kept(sk_run *r, bool back)
{
    for (int i = 0; i < r->p->bufs.n; i++) {
        if (!is_seen(&r->p->bufs.v[i])) continue;
        if (!back || !r->gpu->offload || !has_master(r->p, i)) SK_TRY(move_one(r, i, back));
    }
    return sk_stream_sync(r->gpu->d, r->gpu->compute);
}

static sk_status pull(sk_run *r) { return move_kept(r, true); }
static sk_status push(sk_run *r) { return move_kept(r, false); }

static sk_status write_buffer(const sk_run *r, int buf, const void *data, size_t bytes)
{
    const sk_gpu *g = r->gpu;
    if (r->p->bufs.v[buf].placement) { /* it lies in the memory of the host, or in a file */
        memcpy(sk_run_data(r, buf), data, bytes);
        return SK_OK;
    }
    SK_TRY(sk_device_copy(g->d, sk_gpu_data(r, buf), data, bytes, g->compute));
    return sk_stream_sync(g->d, g->compute);
}

/* At most so many bytes of initial values lie in both memories. */
enum { BOTH = 1 << 30 };

static sk_status push_buffer(sk_run *r, int buf)
{
    sk_gpu *g = r->gpu;
    while (r->p->bufs.v[buf].within >= 0) buf = r->p->bufs.v[buf].within;
    if (r->p->bufs.v[buf].placement) return SK_OK;
    SK_TRY(move_one(r, buf, false));
    SK_TRY(sk_stream_sync(g->d, g->compute));
    g->both += r->p->bufs.v[buf].bytes;
    if (!g->offload || g->both < BOTH) return SK_OK;
    g->both = 0;
    sk_gpu_hide(r);
    return SK_OK;
}

static sk_status pull_buffer(sk_run *r, int buf)
{
    buf = sk_buffer_root(r->p, buf);
    if (r->p->bufs.v[buf].placement) return SK_OK;
    SK_TRY(move_one(r, buf, true));
    return sk_stream_sync(r->gpu->d, r->gpu->compute);
}

/* --- what others ask --- */

static int launch_at(const sk_run *r, int pc) { return r->gpu->at[pc]; }
static const char *const *launch_names(const sk_run *r) { return r->gpu->names; }
static const sk_variant *variant(const sk_run *r, int pc) { return &r->gpu->variant[pc]; }

const sk_backend sk_backend_gpu = {.open = open_gpu,
                                   .prepare = sk_gpu_prepare,
                                   .connect = connect_gpu,
                                   .section = sk_gpu_execute,
                                   .stop = stop_gpu,
                                   .close = close_gpu,
                                   .write_tables = sk_gpu_write_tables,
                                   .push = push,
                                   .pull = pull,
                                   .push_buffer = push_buffer,
                                   .pull_buffer = pull_buffer,
                                   .write = write_buffer,
                                   .launch_at = launch_at,
                                   .launch_names = launch_names,
                                   .variant = variant,
                                   .usage = sk_gpu_usage_now};
