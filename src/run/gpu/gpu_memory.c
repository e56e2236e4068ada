/* gpu_memory.c - what a run takes when it opens a GPU: the device, its kernels, memory, events. */
#include "base/clock.h"
#include "base/strings.h"
#include "run/gpu/gpu.h"
#include "run/gpu/gpu_support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

double sk_gpu_lap(const char *what, double since)
{
    const char *on = getenv("SKEIN_TIMES");
    double now = sk_now();
    if (on && *on == '1' && now - since > 1e-3)
        fprintf(stderr, "start     %7.1f ms  %s\n", 1e3 * (now - since), what);
    return now;
}

/* --- which instructions the GPU executes --- */

static sk_status refuse(const sk_run *r, int pc, const char *what)
{
    sk_arena a = {0};
    sk_status st = sk_fail(SK_ECONF, "device=cuda: %s (instruction %d: %s)", what, pc,
                           sk_inst_print(r->p, pc, &a));
    sk_arena_end(&a);
    return st;
}

/* Weight prediction (AHEAD) needs weights and state on the GPU. */
static sk_status check_ahead(const sk_run *r, const sk_gpu *g, int pc)
{
    const sk_inst *in = &r->p->insts.v[pc];
    bool offloaded = r->p->bufs.v[in->out[0]].placement;
    for (int i = 0; i < SK_MAX_OPERANDS; i++)
        offloaded |= in->in[i] >= 0 && r->p->bufs.v[in->in[i]].placement;
    if (offloaded)
        return refuse(r, pc,
                      "weights are not foreseen from what lives outside of the GPU; leave "
                      "out offload=");
    const sk_param_plan *q = &r->p->params.v[in->param];
    if (!g->optim[q->group]->ahead)
        return sk_fail(SK_ECONF, "device=cuda: the GPU half of optimizer '%s' foresees nothing",
                       q->optim->name);
    return SK_OK;
}

/* With order=canonical the GPU must execute the optimizer: the host rounds otherwise. */
static sk_status check_order(const sk_run *r, int pc)
{
    const sk_inst *in = &r->p->insts.v[pc];
    bool hosts = sk_offload_does(r->p, in) && in->act != SK_DO_COPY && in->act != SK_DO_COPIED;
    if (!r->p->layout.canonical || !hosts) return SK_OK;
    return refuse(
        r, pc,
        "order=canonical gives the same bits on any layout, and the host would do what "
        "the GPU does, with other roundings; keep weights, gradients and state on the GPU");
}

/* Refuses instructions that the GPU backend does not execute. */
static sk_status check_inst(const sk_run *r, sk_gpu *g, int pc)
{
    const sk_inst *in = &r->p->insts.v[pc];
    SK_TRY(check_order(r, pc));
    if (sk_gpu_supports(r->p, pc)) return refuse(r, pc, sk_error_line());
    switch (in->act) {
    case SK_DO_OP:
        g->kernels[pc] = sk_kernel_find(in->node->op->name);
        if (!g->kernels[pc])
            return sk_fail(SK_ECONF, "device=cuda: the op '%s' has no GPU half; use device=cpu",
                           in->node->op->name);
        return SK_OK;
    case SK_DO_ENCODE:
    case SK_DO_DECODE:
        g->codecs[pc] = sk_codec_kernel_find(in->codec->name);
        if (!g->codecs[pc])
            return sk_fail(SK_ECONF, "device=cuda: the codec '%s' has no GPU half; use device=cpu",
                           in->codec->name);
        return SK_OK;
    case SK_DO_AHEAD:
        return check_ahead(r, g, pc);
    default:
        return SK_OK;
    }
}

static sk_status find_kernels(sk_arena *a, sk_run *r, sk_gpu *g)
{
    g->inst = sk_inst_kernels_find();
    g->kernels = sk_many(a, const sk_kernel *, r->p->insts.n);
    g->codecs = sk_many(a, const sk_codec_kernel *, r->p->insts.n);
    for (int i = 0; r->p->optim && i < r->p->params.n; i++) {
        const sk_param_plan *q = &r->p->params.v[i];
        g->optim[q->group] = sk_optim_kernel_find(q->optim->name);
        if (!g->optim[q->group])
            return sk_fail(SK_ECONF, "device=cuda: the optimizer '%s' has no GPU half",
                           q->optim->name);
    }
    for (int pc = 0; pc < r->p->insts.n; pc++) SK_TRY(check_inst(r, g, pc));
    return SK_OK;
}

/* --- memory --- */

/* Pinned memory for batches: each LOAD of a step has a place of its own. */
static sk_status open_stage(sk_arena *a, sk_run *r, sk_gpu *g)
{
    int64_t at = 0;
    void *base = NULL;
    g->stage_at = sk_many(a, int64_t, r->p->insts.n);
    for (int pc = 0; pc < r->p->insts.n; pc++) {
        if (r->p->insts.v[pc].act != SK_DO_LOAD) continue;
        g->stage_at[pc] = at;
        at += (r->p->bufs.v[r->p->insts.v[pc].out[0]].bytes + 255) / 256 * 256;
    }
    SK_TRY(sk_pinned_open(g->d, (size_t)at, &base));
    g->stage = base;
    g->stage_bytes = at;
    g->ahead = sk_many(a, char, at + 1);
    g->ahead_batch = -1;
    return SK_OK;
}

/* Of two runs over one heap the second one uses the pool of the first. */
static sk_status open_pool(const sk_run *r, sk_gpu *g, int64_t bytes)
{
    sk_device_facts f;
    void *base = NULL;
    const sk_gpu *first = r->opts.beside ? r->opts.beside->gpu : NULL;
    if (first) {
        sk_assert(first->pool >= bytes);
        g->base = first->base;
        g->pool = first->pool;
        memcpy(g->left, first->left, sizeof g->left);
        return SK_OK;
    }
    SK_TRY(sk_device_look(g->d, &f));
    g->left[0] = f.available;
    if (f.available < bytes && r->opts.no_memory)
        return r->opts.no_memory(r->opts.no_memory_ctx, r->p, sk_device_name(g->d), f.available);
    SK_TRY(sk_pool_open(g->d, (size_t)bytes, &base));
    SK_TRY(sk_device_look(g->d, &f));
    g->left[1] = f.available;
    g->pool = bytes;
    g->base = base;
    return SK_OK;
}

sk_status sk_gpu_usage_now(sk_run *r, sk_gpu_usage *out)
{
    const sk_gpu *g = r->gpu;
    sk_device_facts f;
    SK_TRY(sk_device_look(g->d, &f));
    *out = (sk_gpu_usage){.name = sk_device_name(g->d),
                          .facts = f,
                          .pool = g->pool,
                          .before = f.bytes - g->left[0],
                          .taken = g->left[0] - g->left[1],
                          .since = g->left[1] - f.available};
    return SK_OK;
}

static sk_status open_memory(sk_arena *a, sk_run *r, sk_gpu *g)
{
    const sk_program *p = r->p;
    void *told = NULL;
    SK_TRY(open_pool(r, g, sk_device_bytes(p)));
    SK_TRY(sk_device_zero(g->d, g->base, (size_t)sk_device_bytes(p), g->compute));
    SK_TRY(sk_pinned_open(g->d, sizeof *g->told, &told));
    g->told = told;
    *g->told = (sk_step_scalars){0};
    g->scalars = (sk_step_scalars *)(void *)(g->base + p->kind_at[SK_SCRATCH]);
    g->launch = (sk_launch){.stream = g->compute,
                            .workspace = g->base + sk_workspace_at(p),
                            .workspace_bytes = SK_WORKSPACE,
                            .step = &g->scalars->step,
                            .updates = &g->scalars->updates};
    return open_stage(a, r, g);
}

/* --- events --- */

static sk_status open_marks(sk_arena *a, sk_run *r, sk_gpu *g)
{
    if (!r->times) return SK_OK;
    g->marks = sk_many(a, sk_event *, r->p->insts.n + 1);
    for (int i = 0; i <= r->p->insts.n; i++) SK_TRY(sk_event_open(g->d, &g->marks[i]));
    return SK_OK;
}

static bool waits(const sk_inst *in)
{
    return in->act == SK_DO_WAIT || in->act == SK_DO_RECV || in->act == SK_DO_SENT;
}

/* How long the compute stream waits for other ranks is measured in every step. */
static sk_status open_waits(sk_arena *a, sk_run *r, sk_gpu *g)
{
    g->waits = sk_many(a, sk_event *, 2 * r->p->insts.n);
    for (int pc = 0; pc < r->p->insts.n; pc++)
        for (int k = 0; k < 2 && waits(&r->p->insts.v[pc]); k++)
            SK_TRY(sk_event_open(g->d, &g->waits[2 * pc + k]));
    return SK_OK;
}

/* --- the device --- */

/* "cuda" alone: the ranks of a host take its GPUs in turn. */
static const char *device_of(sk_arena *a, const sk_run *r)
{
    const char *name = r->opts.device ? r->opts.device : "cuda";
    int n = sk_device_count("cuda"), before = 0;
    if (strchr(name, ':') || n < 1) return name;
    for (int k = 0; k < r->p->rank; k++) before += sk_heap_base(r->heaps, k) != NULL;
    return sk_print(a, "%s:%d", name, before % n);
}

sk_status sk_gpu_open_memory(sk_arena *a, sk_run *r)
{
    sk_gpu *g = r->gpu;
    double at = sk_now();
    SK_TRY(sk_device_open(device_of(a, r), &g->d));
    at = sk_gpu_lap("the device is opened", at);
    SK_TRY(find_kernels(a, r, g));
    SK_TRY(sk_stream_open(g->d, &g->compute));
    SK_TRY(open_memory(a, r, g));
    SK_TRY(open_waits(a, r, g));
    SK_TRY(sk_offload_open(a, r, g->d, g->compute, g->base, g->scalars, &g->offload));
    SK_TRY(open_marks(a, r, g));
    sk_gpu_lap("its memory is taken", at);
    return SK_OK;
}
