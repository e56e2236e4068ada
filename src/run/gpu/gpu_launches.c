/* gpu_launches.c - launches for one or several instructions, and the search for their algorithms.
 */
#include "base/clock.h"
#include "run/gpu/gpu.h"

#include <pthread.h>

/* Some instructions have a workspace of their own.  Its size does not depend on its alignment,
 * since cuDNN chooses a plan by the size. */
sk_launch sk_gpu_launch(const sk_run *r, int pc)
{
    const sk_gpu *g = r->gpu;
    sk_launch l = g->launch;
    int buf = r->p->insts.v[pc].workspace;
    if (buf < 0) return l;
    int64_t at = r->p->bufs.v[buf].offset, skip = -at & (SK_WORKSPACE_ALIGN - 1);
    l.workspace = g->base + at + skip;
    l.workspace_bytes = (size_t)(r->p->bufs.v[buf].bytes - SK_WORKSPACE_ALIGN);
    return l;
}

static sk_status prepare_one(sk_run *r, int pc)
{
    const sk_gpu *g = r->gpu;
    const sk_fused *f = g->fused[pc];
    const sk_kernel *k = g->inside[pc] ? NULL : g->kernels[pc];
    sk_launch l = sk_gpu_launch(r, pc);
    sk_assert(!f || sk_launch_of(r->p, pc)); /* the program plans every fusion */
    sk_variant *took = &g->variant[pc];
    if (f && f->by->prepare) SK_TRY(f->by->prepare(f->args, f->n, &l, took));
    else if (k && k->prepare) SK_TRY(k->prepare(&r->args[pc], &l, took));
    if (!took->name) took->name = "own";
    return SK_OK;
}

static const char *update_name(const sk_program *p, int pc)
{
    return p->params.v[p->insts.v[pc].param].optim->name;
}

/* At whose place each instruction is launched. */
static void place_launches(sk_arena *a, sk_run *r)
{
    sk_gpu *g = r->gpu;
    g->at = sk_many(a, int, r->p->insts.n);
    g->names = sk_many(a, const char *, r->p->insts.n);
    for (int pc = 0; pc < r->p->insts.n; pc++) {
        const sk_launch_plan *l = sk_launch_of(r->p, pc);
        g->at[pc] = l ? l->at : pc;
        if (l && l->at == pc) g->names[pc] = l->by ? l->by->name : update_name(r->p, pc);
    }
}

/* The part of the preparation that needs only the host (sk_kernel.early) has a thread of its own.
 */
typedef struct helper {
    sk_run *r;
    pthread_t thread;
    bool begun;
} helper;

static void early_one(const sk_run *r, int pc)
{
    const sk_gpu *g = r->gpu;
    const sk_kernel *k = g->inside[pc] ? NULL : g->kernels[pc];
    sk_launch l = sk_gpu_launch(r, pc);
    if (k && k->early) k->early(&r->args[pc], &l);
}

static void *prepare_early(void *ctx)
{
    const helper *h = ctx;
    if (sk_device_enter(h->r->gpu->d)) return NULL; /* then prepare() does it */
    for (int pc = 0; pc < h->r->p->insts.n; pc++) early_one(h->r, pc);
    return NULL;
}

static sk_status prepare_some(sk_run *r, bool early)
{
    const sk_gpu *g = r->gpu;
    for (int pc = 0; pc < r->p->insts.n; pc++) {
        double at = sk_now();
        if (!g->kernels[pc] || (g->kernels[pc]->early != NULL) != early) continue;
        SK_TRY(prepare_one(r, pc));
        sk_gpu_lap(g->fused[pc] ? g->fused[pc]->by->name : g->kernels[pc]->op, at);
    }
    return SK_OK;
}

static sk_status prepare_all(sk_run *r)
{
    helper h = {.r = r};
    h.begun = !pthread_create(&h.thread, NULL, prepare_early, &h);
    sk_status st = prepare_some(r, false);
    if (h.begun) pthread_join(h.thread, NULL);
    return st ? st : prepare_some(r, true);
}

sk_status sk_gpu_prepare(sk_arena *a, sk_run *r)
{
    sk_gpu *g = r->gpu;
    sk_gpu_make_tables(a, r);
    SK_TRY(sk_gpu_write_tables(r));
    g->fused = sk_many(a, sk_fused *, r->p->insts.n);
    g->inside = sk_many(a, bool, r->p->insts.n);
    sk_fuse_open(a, r->p, r->args, g->fused, g->inside);
    g->variant = sk_many(a, sk_variant, r->p->insts.n);
    place_launches(a, r);
    SK_TRY(g->inst->noise(g->base, r->p->kind_at[SK_SCRATCH], g->compute));
    SK_TRY(prepare_all(r));
    return sk_stream_sync(g->d, g->compute);
}
