/* gpu.c - a rank's instructions, given to the streams of a GPU. */
#include "run/gpu/gpu.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/strings.h"
#include "kernel/codec_kernel.h"
#include "device/device.h"
#include "kernel/kernel_launch.h"
#include "run/gpu/inst_kernels.h"
#include "run/gpu/gpu_offload.h"
#include "run/batch.h"
#include "program/fuse.h"
#include "run/gpu/comm_streams.h"
#include "run/gpu/gpu_support.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGE = 4096 };

/* A section of the program: recorded when it has run once. */
typedef struct section {
    int runs;
    sk_device_graph *tape;
} section;

struct sk_gpu {
    sk_device *d;
    sk_stream *compute;
    char *base; /* of the pool */
    sk_launch launch;
    sk_step_scalars *pulse, *told; /* on the device; pinned, what the host writes and reads */
    const sk_inst_kernels *acts;
    const sk_optim_kernel *optim;
    const sk_kernel **kernels;      /* by instruction: of ops */
    sk_variant *took;               /* likewise: which of its kernels the launch takes */
    const sk_codec_kernel **codecs; /* by instruction: of ENCODE and DECODE */
    sk_feedback_reset_job *forget;  /* what is owed, some at a time; the last has none */
    sk_comm_streams *sides;         /* what is exchanged with others; NULL: nothing */
    sk_offload *away;               /* what lives outside of the GPU; NULL: nothing */
    bool shown;                     /* what is kept lies at the host's addresses too */
    int64_t both;                   /* bytes of first values there */
    sk_fused **fused;               /* by instruction: where a launch is for several */
    bool *gone;                     /* by instruction: it is part of one */
    char *stage;                    /* pinned: the batches of a section */
    int64_t *stage_at;              /* by instruction: of loads */
    int64_t stage_bytes;
    char *ahead;            /* the batches of the next training step, read while this one runs */
    int64_t ahead_batch;    /* which they are; -1: none */
    sk_update_job *updates; /* by instruction: of the first UPDATE or AHEAD of several; else no
                               pieces */
    sk_stats_job stats;     /* pieces and chunks: those of all gradients */
    sk_norm_piece *grads;   /* the tables of these two, as they go to the device */
    sk_update *pieces;
    int n_pieces;
    section sections[2];   /* a training step; a validation step */
    sk_event **marks;      /* by instruction and one before: for traces; NULL: none */
    sk_event **waits;      /* [2 * instruction] of those that wait for others: before, after */
    int64_t pool, left[2]; /* bytes asked for; what was left before it and after it */
    int *at;               /* by instruction: the one whose place its launch has */
    const char **names;    /* by instruction: of a launch for several, there; or NULL */
};

/* SKEIN_TIMES=1: what the start is made of, a line to stderr each.  Returns the time now. */
static double lap(const char *what, double since)
{
    const char *on = getenv("SKEIN_TIMES");
    double now = sk_now();
    if (on && *on == '1' && now - since > 1e-3)
        fprintf(stderr, "start     %7.1f ms  %s\n", 1e3 * (now - since), what);
    return now;
}

char *sk_gpu_base(const sk_gpu *g) { return g->base; }

static void *on_device(const sk_run *r, int buf) { return r->gpu->base + r->p->bufs.v[buf].offset; }

static int64_t count_of(const sk_run *r, int buf)
{
    const sk_buffer *b = &r->p->bufs.v[buf];
    return b->bytes / (int64_t)sk_dtype_size(b->type);
}

/* --- opening --- */

static sk_status refuse(const sk_run *r, int pc, const char *what)
{
    sk_arena a = {0};
    sk_status st = sk_fail(SK_ECONF, "device=cuda: %s (instruction %d: %s)", what, pc,
                           sk_inst_print(r->p, pc, &a));
    sk_arena_end(&a);
    return st;
}

/* Weights are foreseen where they and the state are. */
static sk_status check_ahead(const sk_run *r, const sk_gpu *g, int pc)
{
    const sk_inst *in = &r->p->insts.v[pc];
    bool away = r->p->bufs.v[in->out[0]].tier;
    for (int i = 0; i < SK_MAX_IN; i++) away |= in->in[i] >= 0 && r->p->bufs.v[in->in[i]].tier;
    if (away)
        return refuse(r, pc,
                      "weights are not foreseen from what lives outside of the GPU; leave "
                      "out offload=");
    if (!g->optim || !g->optim->ahead)
        return sk_fail(SK_ECONF, "device=cuda: the GPU half of optimizer '%s' foresees nothing",
                       r->p->optim->name);
    return SK_OK;
}

/* In canonical order the optimizer is always the GPU's: the host's rounds otherwise. */
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

/* What is done on a GPU; the rest is a sentence. */
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
    g->acts = sk_inst_kernels_find();
    g->kernels = sk_many(a, const sk_kernel *, r->p->insts.n);
    g->codecs = sk_many(a, const sk_codec_kernel *, r->p->insts.n);
    if (r->p->optim) g->optim = sk_optim_kernel_find(r->p->optim->name);
    if (r->p->optim && !g->optim)
        return sk_fail(SK_ECONF, "device=cuda: the optimizer '%s' has no GPU half",
                       r->p->optim->name);
    for (int pc = 0; pc < r->p->insts.n; pc++) SK_TRY(check_inst(r, g, pc));
    return SK_OK;
}

/* Batches lie one behind the other: two loads of a step never share a place. */
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

/* Of two runs over one heap the second has its memory in the pool of the first. */
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
    if (f.available < bytes && r->opts.no_room)
        return r->opts.no_room(r->opts.no_room_ctx, r->p, sk_device_name(g->d), f.available);
    SK_TRY(sk_pool_open(g->d, (size_t)bytes, &base));
    SK_TRY(sk_device_look(g->d, &f));
    g->left[1] = f.available;
    g->pool = bytes;
    g->base = base;
    return SK_OK;
}

sk_status sk_gpu_look(sk_gpu *g, sk_gpu_usage *out)
{
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
    g->pulse = (sk_step_scalars *)(void *)(g->base + p->kind_at[SK_SCRATCH]);
    g->launch = (sk_launch){.stream = g->compute,
                            .workspace = g->base + sk_room_at(p),
                            .workspace_bytes = SK_WORKSPACE,
                            .step = &g->pulse->step};
    return open_stage(a, r, g);
}

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

/* How long the computing stream stands still for others is measured in every step. */
static sk_status open_waits(sk_arena *a, sk_run *r, sk_gpu *g)
{
    g->waits = sk_many(a, sk_event *, 2 * r->p->insts.n);
    for (int pc = 0; pc < r->p->insts.n; pc++)
        for (int k = 0; k < 2 && waits(&r->p->insts.v[pc]); k++)
            SK_TRY(sk_event_open(g->d, &g->waits[2 * pc + k]));
    return SK_OK;
}

/* "cuda" alone: the ranks of a host take its GPUs in turn. */
static const char *device_of(sk_arena *a, const sk_run *r)
{
    const char *name = r->opts.device ? r->opts.device : "cuda";
    int n = sk_device_count("cuda"), before = 0;
    if (strchr(name, ':') || n < 1) return name;
    for (int k = 0; k < r->p->rank; k++) before += sk_heap_base(r->heaps, k) != NULL;
    return sk_print(a, "%s:%d", name, before % n);
}

static sk_status open_all(sk_arena *a, sk_run *r, sk_gpu *g)
{
    double at = sk_now();
    SK_TRY(sk_device_open(device_of(a, r), &g->d));
    at = lap("the device is opened", at);
    SK_TRY(find_kernels(a, r, g));
    SK_TRY(sk_stream_open(g->d, &g->compute));
    SK_TRY(open_memory(a, r, g));
    SK_TRY(open_waits(a, r, g));
    SK_TRY(sk_offload_open(a, r, g->d, g->compute, g->base, g->pulse, &g->away));
    SK_TRY(open_marks(a, r, g));
    lap("its memory is taken", at);
    return SK_OK;
}

sk_status sk_gpu_open(sk_arena *a, sk_run *r, sk_gpu **out)
{
    if (r->opts.alone)
        return sk_fail(SK_ECONF,
                       "device=cuda: a program for a GPU cannot be measured instruction by "
                       "instruction, without the others; use device=cpu to measure a "
                       "layout, or skein bench step to time it");
    sk_gpu *g = sk_new(a, sk_gpu);
    *out = g; /* closed with the run, also after a failure */
    SK_TRY(open_all(a, r, g));
    return SK_OK;
}

sk_status sk_gpu_meet(sk_arena *a, sk_run *r)
{
    sk_gpu *g = r->gpu;
    SK_TRY(sk_comm_streams_open(a, r, g->d, g->compute, g->base, &g->launch, &g->sides));
    return sk_device_zero(g->d, g->base, (size_t)r->p->kind_at[SK_SCRATCH], g->compute);
}

void sk_gpu_stop(sk_gpu *g)
{
    if (g) sk_offload_stop(g->away);
}

sk_status sk_gpu_watch(sk_run *r) { return sk_comm_streams_watch(r->gpu->sides); }

void sk_gpu_close(sk_gpu *g)
{
    if (!g) return;
    sk_comm_streams_close(g->sides);
    sk_device_close(g->d);
}

/* --- tables --- */

static void *sums_at(const sk_run *r, const sk_inst *in, int buf)
{
    int each = r->p->layout.canonical ? 2 * SK_MAX_SUM : SK_MAX_SUM; /* words: sk_fixed has two */
    return buf < 0 ? NULL : (char *)on_device(r, buf) + r->place[in->param] * each * 8;
}

/* AHEAD has the weights in the place of the gradient (kernel/optim_kernel.h). */
static sk_update piece_of(const sk_run *r, const sk_inst *in)
{
    const sk_program *p = r->p;
    const sk_param_plan *q = &p->params.v[in->param];
    bool last = in->act == SK_DO_UPDATE && q->master >= 0 && !p->optim->pass[in->pass + 1];
    sk_update u = {.n = count_of(r, q->shard),
                   .param = on_device(r, in->out[2] >= 0 ? in->out[2] : in->out[0]),
                   .grad = on_device(r, in->in[0]),
                   .narrow = last ? on_device(r, in->out[0]) : NULL,
                   .grad_type = p->bufs.v[in->in[0]].type,
                   .state_type = SK_F32,
                   .narrow_type = last ? p->bufs.v[in->out[0]].type : SK_F32,
                   .delay = in->delay,
                   .update = in->update,
                   .scale = in->scale,
                   .decay = q->decay ? sk_run_decay(r) : 0,
                   .bias_update = (float)q->tensor->bias_update,
                   .owner = q->owner,
                   .before = sums_at(r, in, in->in[1]),
                   .after = sums_at(r, in, in->out[1]),
                   .name = sk_hash_text(q->tensor->name),
                   .shape = sk_buffer_view(p, q->shard, NULL)};
    for (int s = 0; s < q->n_state; s++) {
        u.state[s] = on_device(r, in->in[2 + s]);
        u.state_type = p->bufs.v[in->in[2 + s]].type;
    }
    return u;
}

/* As many as the program says are one launch. */
static int gather_updates(const sk_run *r, int pc, sk_update *to, sk_update_job *job)
{
    const sk_inst *v = r->p->insts.v;
    const sk_launch_plan *l = sk_launch_of(r->p, pc);
    int n = 0;
    *job = (sk_update_job){
        .seed = r->opts.seed, .pulse = r->gpu->pulse, .ordered = r->p->layout.canonical};
    do {
        sk_update u = piece_of(r, &v[pc + n]);
        u.chunk = job->chunks;
        job->chunks += sk_update_chunks(u.n);
        if (!n || job->state_type == SK_F32) job->state_type = u.state_type;
        job->grad_type = u.grad_type;
        job->narrow_type = u.narrow_type;
        job->sums |= u.after != NULL;
        to[n++] = u;
    } while (l && n < l->n);
    job->n_pieces = n;
    for (int k = 0; r->p->optim->knobs[k].name; k++) job->knob[k] = sk_run_knob(r, k, false);
    return n;
}

static bool is_update(const sk_inst *in)
{
    return in->act == SK_DO_UPDATE || in->act == SK_DO_AHEAD;
}

static int count_updates(const sk_program *p)
{
    int n = 0;
    for (int pc = 0; pc < p->insts.n; pc++) n += is_update(&p->insts.v[pc]);
    return n;
}

/* Every element once, and only of gradients of the loss; copies are looked at all the same. */
static int gather_grads(const sk_run *r, sk_norm_piece *to, sk_stats_job *job)
{
    int n = 0;
    for (int i = 0; i < r->p->params.n; i++) {
        const sk_param_plan *q = &r->p->params.v[i];
        if (q->tensor->bias_update != 0 || r->p->bufs.v[q->grad_shard].tier) continue;
        to[n] = (sk_norm_piece){.data = on_device(r, q->grad_shard),
                                .n = count_of(r, q->grad_shard),
                                .type = r->p->bufs.v[q->grad_shard].type,
                                .counts = q->owner,
                                .chunk = job->chunks};
        job->chunks += sk_update_chunks(to[n++].n);
    }
    return n;
}

/* What encoding has lost so far, of all parameters. */
static sk_feedback_reset_job *gather_errors(sk_arena *a, const sk_run *r)
{
    int n = 0;
    sk_feedback_reset_job *v =
        sk_many(a, sk_feedback_reset_job, r->p->params.n / SK_FEEDBACK_RESET_MOST + 2);
    for (int i = 0; i < r->p->params.n; i++) {
        int error = r->p->params.v[i].error;
        if (error < 0) continue;
        sk_assert(!r->p->bufs.v[error].tier);
        sk_feedback_reset_job *j = &v[n / SK_FEEDBACK_RESET_MOST];
        j->data[j->n] = on_device(r, error);
        j->count[j->n++] = count_of(r, error);
        n++;
    }
    return v;
}

static void make_tables(sk_arena *a, sk_run *r)
{
    sk_gpu *g = r->gpu;
    const sk_program *p = r->p;
    char *at = g->base + p->kind_at[SK_SCRATCH] + SK_STEP_SCALARS_BYTES;
    g->grads = sk_many(a, sk_norm_piece, p->params.n + 1);
    g->pieces = sk_many(a, sk_update, count_updates(p) + 1);
    g->updates = sk_many(a, sk_update_job, p->insts.n);
    g->stats.n_pieces = p->optim ? gather_grads(r, g->grads, &g->stats) : 0;
    g->stats.pieces = (const sk_norm_piece *)(void *)at;
    at += (size_t)SK_NORM_BYTES * (size_t)p->params.n;
    for (int pc = 0, k = 1; pc < p->insts.n; pc += k, k = 1) {
        if (!is_update(&p->insts.v[pc]) || sk_offload_does(p, &p->insts.v[pc])) continue;
        k = gather_updates(r, pc, g->pieces + g->n_pieces, &g->updates[pc]);
        g->updates[pc].pieces = (const sk_update *)(void *)at + g->n_pieces;
        g->n_pieces += k;
    }
}

sk_status sk_gpu_lay(sk_run *r)
{
    sk_gpu *g = r->gpu;
    char *at = g->base + r->p->kind_at[SK_SCRATCH] + SK_STEP_SCALARS_BYTES;
    SK_TRY(sk_device_copy(g->d, at, g->grads, sizeof *g->grads * (size_t)g->stats.n_pieces,
                          g->compute));
    at += (size_t)SK_NORM_BYTES * (size_t)r->p->params.n;
    SK_TRY(
        sk_device_copy(g->d, at, g->pieces, sizeof *g->pieces * (size_t)g->n_pieces, g->compute));
    return sk_stream_sync(g->d, g->compute);
}

_Static_assert(sizeof(sk_step_scalars) <= SK_STEP_SCALARS_BYTES &&
                   sizeof(sk_update) <= SK_UPDATE_BYTES && sizeof(sk_norm_piece) <= SK_NORM_BYTES,
               "the plan keeps room for these");

/* The launch of an instruction: some have a room of their own.  As large wherever it lies, since
 * cuDNN's plans are made for a size: another one would be another plan. */
static sk_launch launch_of(const sk_run *r, int pc)
{
    const sk_gpu *g = r->gpu;
    sk_launch l = g->launch;
    int room = r->p->insts.v[pc].room;
    if (room < 0) return l;
    int64_t at = r->p->bufs.v[room].offset, skip = -at & (SK_WORKSPACE_ALIGN - 1);
    l.workspace = g->base + at + skip;
    l.workspace_bytes = (size_t)(r->p->bufs.v[room].bytes - SK_WORKSPACE_ALIGN);
    return l;
}

static sk_status prepare_one(sk_run *r, int pc)
{
    const sk_gpu *g = r->gpu;
    const sk_fused *f = g->fused[pc];
    const sk_kernel *k = g->gone[pc] ? NULL : g->kernels[pc];
    sk_launch l = launch_of(r, pc);
    sk_variant *took = &g->took[pc];
    if (f && f->by->prepare) SK_TRY(f->by->prepare(f->args, f->n, &l, took));
    else if (k && k->prepare) SK_TRY(k->prepare(&r->args[pc], &l, took));
    if (!took->name) took->name = "own";
    return SK_OK;
}

/* Who is part of whose launch. */
static void place_launches(sk_arena *a, sk_run *r)
{
    sk_gpu *g = r->gpu;
    g->at = sk_many(a, int, r->p->insts.n);
    g->names = sk_many(a, const char *, r->p->insts.n);
    for (int pc = 0; pc < r->p->insts.n; pc++) {
        const sk_launch_plan *l = sk_launch_of(r->p, pc);
        g->at[pc] = l ? l->at : pc;
        if (l && l->at == pc) g->names[pc] = l->by ? l->by->name : r->p->optim->name;
    }
}

int sk_gpu_at(const sk_run *r, int pc) { return r->gpu->at[pc]; }
const char *const *sk_gpu_names(const sk_run *r) { return r->gpu->names; }
const sk_variant *sk_gpu_took(const sk_run *r, int pc) { return &r->gpu->took[pc]; }

/* What needs the host alone, on a thread of its own. */
typedef struct helper {
    sk_run *r;
    pthread_t thread;
    bool begun;
} helper;

static void early_one(const sk_run *r, int pc)
{
    const sk_gpu *g = r->gpu;
    const sk_kernel *k = g->gone[pc] ? NULL : g->kernels[pc];
    sk_launch l = launch_of(r, pc);
    if (k && k->early) k->early(&r->args[pc], &l);
}

static void *prepare_early(void *ctx)
{
    const helper *h = ctx;
    if (sk_device_enter(h->r->gpu->d)) return NULL; /* then it is done in its turn */
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
        lap(g->fused[pc] ? g->fused[pc]->by->name : g->kernels[pc]->op, at);
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
    make_tables(a, r);
    SK_TRY(sk_gpu_lay(r));
    g->forget = gather_errors(a, r);
    g->fused = sk_many(a, sk_fused *, r->p->insts.n);
    g->gone = sk_many(a, bool, r->p->insts.n);
    sk_fuse_open(a, r->p, r->args, g->fused, g->gone);
    g->took = sk_many(a, sk_variant, r->p->insts.n);
    place_launches(a, r);
    SK_TRY(g->acts->noise(g->base, r->p->kind_at[SK_SCRATCH], g->compute));
    SK_TRY(prepare_all(r));
    return sk_stream_sync(g->d, g->compute);
}

/* --- instructions --- */

static sk_status load(const sk_run *r, const sk_inst *in, int pc)
{
    const sk_gpu *g = r->gpu;
    return sk_device_copy(g->d, on_device(r, in->out[0]), g->stage + g->stage_at[pc],
                          (size_t)r->p->bufs.v[in->out[0]].bytes, g->compute);
}

static sk_status rearrange(const sk_run *r, const sk_inst *in)
{
    const sk_gpu *g = r->gpu;
    int from = in->in[0], to = in->out[0];
    sk_view x, y;
    switch (in->act) {
    case SK_DO_SLICE:
    case SK_DO_PASTE:
        x = sk_buffer_view(r->p, from, g->base);
        y = sk_buffer_view(r->p, to, g->base);
        return (in->act == SK_DO_SLICE ? g->acts->slice : g->acts->paste)(&x, &y, g->compute);
    case SK_DO_ADD:
        return g->acts->add(on_device(r, to), on_device(r, from), count_of(r, to),
                            r->p->bufs.v[to].type, g->compute);
    case SK_DO_ZERO:
        return sk_device_zero(g->d, on_device(r, to), (size_t)r->p->bufs.v[to].bytes, g->compute);
    case SK_DO_PACK:
        return g->acts->pack(on_device(r, from), on_device(r, to), r->p->bufs.v[from].type,
                             count_of(r, from), in->values, &g->pulse->full, &g->launch);
    default:
        return g->acts->unpack(on_device(r, to), on_device(r, from), r->p->bufs.v[to].type,
                               count_of(r, to), in->values, &g->launch);
    }
}

static sk_status code(const sk_run *r, const sk_inst *in, int pc)
{
    const sk_gpu *g = r->gpu;
    bool encode = in->act == SK_DO_ENCODE;
    int x = encode ? in->in[0] : in->out[0], bytes = encode ? in->out[0] : in->in[0];
    int64_t rows = r->p->bufs.v[x].box.size[0];
    bool feedback = encode && in->in[1] >= 0;
    sk_code_job j = {.x = on_device(r, x),
                     .type = r->p->bufs.v[x].type,
                     .rows = rows,
                     .row = rows ? count_of(r, x) / rows : 0,
                     .code = on_device(r, bytes),
                     .bytes = r->p->bufs.v[bytes].box.size[1],
                     .pieces = in->pieces,
                     .error = feedback ? on_device(r, in->in[1]) : NULL,
                     .adds = in->adds_error,
                     .loss_scale = &g->pulse->loss_scale};
    return (encode ? g->codecs[pc]->encode : g->codecs[pc]->decode)(&j, g->compute);
}

/* In canonical order the loss goes by cells of the batch, one a micro-batch. */
static sk_status cells(const sk_run *r, double *to)
{
    const sk_gpu *g = r->gpu;
    for (int w = 0; w < SK_N_SUMS; w++) {
        const sk_sum_plan *s = &r->p->sums[w];
        for (int i = 0; s->counts && s->cell && i < s->n; i++)
            if (s->cell[i] >= 0)
                SK_TRY(g->acts->convert(to + s->cell[i], SK_F64, on_device(r, s->buf[i]), SK_F32, 1,
                                        g->compute));
    }
    return SK_OK;
}

static sk_status stats(const sk_run *r, const sk_inst *in)
{
    const sk_gpu *g = r->gpu;
    sk_stats_job j = in->training ? g->stats : (sk_stats_job){0};
    j.out = on_device(r, in->out[0]);
    j.out_n = count_of(r, in->out[0]);
    j.n_sums = r->p->n_sums;
    j.full = &g->pulse->full;
    for (int w = 0; w < SK_N_SUMS; w++) {
        const sk_sum_plan *s = &r->p->sums[w];
        if (s->counts && s->n && !s->cell) j.sum[w] = on_device(r, s->buf[0]);
    }
    if (g->away && in->training) SK_TRY(sk_offload_squares(g->away, &j.more));
    if (in->out[1] >= 0) {
        j.exact = on_device(r, in->out[1]);
        SK_TRY(sk_device_zero(g->d, j.exact, (size_t)r->p->bufs.v[in->out[1]].bytes, g->compute));
    }
    SK_TRY(g->acts->stats(&j, &g->launch));
    return cells(r, j.out + SK_STAT_SUMS + r->p->n_sums);
}

static sk_status clip(const sk_run *r, const sk_inst *in)
{
    const sk_gpu *g = r->gpu;
    sk_clip_job j = {.sums = on_device(r, in->in[0]),
                     .n_sums = r->p->n_sums,
                     .exact = in->in[1] < 0 ? NULL : on_device(r, in->in[1]),
                     .cells = (int)(count_of(r, in->in[0]) - SK_STAT_SUMS - r->p->n_sums),
                     .train = in->training,
                     .scale = in->scale,
                     .clip = r->opts.knobs.clip,
                     .no_drops = r->opts.no_drops,
                     .no_full = r->opts.no_full,
                     .alone = r->opts.alone,
                     .pulse = g->pulse};
    SK_TRY(g->acts->clip(&j, &g->launch));
    for (const sk_feedback_reset_job *f = g->forget; in->training && f->n; f++)
        SK_TRY(g->acts->forget(f, &g->pulse->skip, g->compute));
    return g->away && in->training ? sk_offload_clipped(g->away) : SK_OK;
}

static sk_status compute(sk_run *r, int pc)
{
    const sk_gpu *g = r->gpu;
    const sk_fused *f = g->fused[pc];
    sk_launch l = launch_of(r, pc);
    r->args[pc].validation = r->validation;
    if (f) return f->by->launch(f->args, f->n, &l);
    if (g->gone[pc]) return SK_OK;
    return g->kernels[pc]->launch(&r->args[pc], &l);
}

static sk_status issue(sk_run *r, int pc)
{
    const sk_gpu *g = r->gpu;
    const sk_inst *in = &r->p->insts.v[pc];
    if (g->away && sk_offload_does(r->p, in)) return sk_offload_issue(g->away, pc);
    if (g->away && in->act == SK_DO_START) SK_TRY(sk_offload_start(g->away, in));
    switch (in->act) {
    case SK_DO_LOAD:
        return load(r, in, pc);
    case SK_DO_OP:
        return compute(r, pc);
    case SK_DO_START:
    case SK_DO_WAIT:
    case SK_DO_SEND:
    case SK_DO_RECV:
    case SK_DO_SENT:
        return sk_comm_streams_issue(g->sides, pc);
    case SK_DO_STATS:
        return stats(r, in);
    case SK_DO_CLIP:
        return clip(r, in);
    case SK_DO_UPDATE:
        if (!g->updates[pc].n_pieces) return SK_OK; /* went with one before */
        return g->optim->pass[in->pass](&g->updates[pc], &g->launch);
    case SK_DO_AHEAD:
        return g->updates[pc].n_pieces ? g->optim->ahead(&g->updates[pc], &g->launch) : SK_OK;
    case SK_DO_ENCODE:
    case SK_DO_DECODE:
        return code(r, in, pc);
    default:
        return rearrange(r, in);
    }
}

static sk_status issue_all(sk_run *r, int from, int to)
{
    const sk_gpu *g = r->gpu;
    if (g->marks) SK_TRY(sk_event_mark(g->d, g->marks[from], g->compute));
    for (int pc = from; pc < to; pc++) {
        sk_event *const *wait = &g->waits[2 * pc];
        if (r->opts.before) r->opts.before(r->opts.before_ctx, r, r->batch, pc);
        if (wait[0]) SK_TRY(sk_event_mark(g->d, wait[0], g->compute));
        sk_status st = issue(r, pc);
        if (st) return sk_trail(st, SK_HERE);
        if (wait[1]) SK_TRY(sk_event_mark(g->d, wait[1], g->compute));
        if (g->marks) SK_TRY(sk_event_mark(g->d, g->marks[pc + 1], g->compute));
    }
    return sk_comm_streams_join(g->sides, from, to);
}

/* After a failure the stream must not stay as it is; what its end says then is not the story. */
static sk_status record(sk_run *r, int from, int to, sk_device_graph **out)
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

/* The first time as it is, so that everything is loaded; then recorded, and played from there on.
 * What the host has a hand in is walked every time. */
static sk_status give(sk_run *r, int from, int to)
{
    sk_gpu *g = r->gpu;
    section *s = &g->sections[from > 0];
    if (!s->runs++ || r->opts.before || sk_offload_any(r->p, from, to))
        return issue_all(r, from, to);
    if (!s->tape) SK_TRY(record(r, from, to, &s->tape));
    return sk_device_graph_launch(g->d, s->tape, g->compute);
}

/* --- a section --- */

/* `data`: what the batch says; otherwise the rest. */
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

/* While the GPU works.  What cannot be read is told when its step comes. */
static void read_ahead(sk_run *r, int from, int to)
{
    sk_gpu *g = r->gpu;
    if (from || !r->p->n_train) return; /* what is sampled depends on what came before */
    r->batch++;
    g->ahead_batch = read_batches(r, from, to, true, g->ahead) ? -1 : r->batch;
    r->batch--;
}

static void tell(const sk_run *r)
{
    *r->gpu->told = (sk_step_scalars){.step = (uint64_t)r->step,
                                      .updates = r->step * r->p->n_updates + r->shift,
                                      .lr = r->lr,
                                      .loss_scale = r->loss_scale};
}

static void hear(sk_run *r)
{
    const sk_step_scalars *t = r->gpu->told;
    r->out.loss = t->loss;
    r->out.tokens = t->tokens;
    r->out.grad_norm = t->norm;
    r->out.aux = t->aux;
    r->out.drops = t->drops;
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

/* When each instruction ran, by the GPU's own clock, from where the host began. */
static sk_status read_marks(sk_run *r, int from, int to, double begin)
{
    const sk_gpu *g = r->gpu;
    if (!g->marks) return SK_OK;
    for (int pc = from; pc < to; pc++) {
        double at[2];
        for (int k = 0; k < 2; k++)
            SK_TRY(sk_event_seconds(g->d, g->marks[from], g->marks[pc + k], &at[k]));
        r->times[2 * pc] = begin + at[0];
        r->times[2 * pc + 1] = begin + at[g->at[pc] == pc]; /* part of another's: nothing */
    }
    return sk_comm_streams_times(g->sides, g->marks[from], from, to, begin, r->moving);
}

/* Alone a rank sleeps until the GPU is done; with others it looks whether they are well. */
static sk_status await(sk_run *r)
{
    sk_gpu *g = r->gpu;
    for (bool done = !g->sides; !done;) {
        sk_status st = sk_stream_done(g->d, g->compute, &done);
        if (!st && !done) st = sk_comm_streams_watch(g->sides);
        if (st) return sk_trail(st, SK_HERE);
        if (!done) usleep(20);
    }
    return sk_stream_sync(g->d, g->compute);
}

/* Where memory of the host is short, what lies on the device need not lie here too. */
static void hide(sk_run *r)
{
    size_t bytes = (size_t)r->p->kind_at[SK_HOSTED] / PAGE * PAGE;
    if (bytes && madvise(r->base, bytes, MADV_REMOVE)) madvise(r->base, bytes, MADV_DONTNEED);
    r->gpu->shown = false;
}

static sk_status walk(sk_run *r, int from, int to)
{
    sk_gpu *g = r->gpu;
    double begin = sk_now();
    if (g->away && g->shown) hide(r);
    SK_TRY(fill_stage(r, from, to));
    lap("batches are read", begin);
    tell(r);
    if (g->away) SK_TRY(sk_offload_begin(g->away));
    SK_TRY(sk_device_copy(g->d, g->pulse, g->told, sizeof *g->told, g->compute));
    SK_TRY(give(r, from, to));
    SK_TRY(sk_device_copy(g->d, g->told, g->pulse, sizeof *g->told, g->compute));
    read_ahead(r, from, to);
    SK_TRY(await(r));
    lap("a section is done", begin);
    hear(r);
    atomic_fetch_add_explicit(&r->line->heartbeat, to - from, memory_order_relaxed);
    SK_TRY(read_waits(r, from, to));
    if (g->away) SK_TRY(sk_offload_end(g->away, from, to));
    return read_marks(r, from, to, begin);
}

/* After a failure the other ranks do not come to what is under way: nobody waits for it. */
sk_status sk_gpu_walk(sk_run *r, int from, int to)
{
    sk_status st = walk(r, from, to);
    if (!st) return SK_OK;
    sk_comm_streams_abort(r->gpu->sides);
    return sk_trail(st, SK_HERE);
}

/* --- what the host sees --- */

/* What is kept of gradients and of calls means nothing between steps. */
static bool is_seen(const sk_buffer *b)
{
    return b->keep && b->within < 0 && !b->tier && b->kind != SK_GRADS && b->kind != SK_WIRE;
}

static sk_status move_one(sk_run *r, int buf, bool back)
{
    const sk_buffer *b = &r->p->bufs.v[buf];
    char *here = r->base + b->offset, *there = r->gpu->base + b->offset;
    r->gpu->shown = true;
    return sk_device_copy(r->gpu->d, back ? here : there, back ? there : here, (size_t)b->bytes,
                          r->gpu->compute);
}

/* What is saved is the master. */
static bool has_master(const sk_program *p, int buf)
{
    for (int i = 0; i < p->params.n; i++)
        if (p->params.v[i].stored == buf) return p->params.v[i].master >= 0;
    return false;
}

/* Where the host's memory is short, it is not filled with what nobody saves. */
static sk_status move_kept(sk_run *r, bool back)
{
    for (int i = 0; i < r->p->bufs.n; i++) {
        if (!is_seen(&r->p->bufs.v[i])) continue;
        if (!back || !r->gpu->away || !has_master(r->p, i)) SK_TRY(move_one(r, i, back));
    }
    return sk_stream_sync(r->gpu->d, r->gpu->compute);
}

sk_status sk_gpu_pull(sk_run *r) { return move_kept(r, true); }
sk_status sk_gpu_push(sk_run *r) { return move_kept(r, false); }

sk_status sk_gpu_poke(const sk_run *r, int buf, const void *data, size_t bytes)
{
    const sk_gpu *g = r->gpu;
    SK_TRY(sk_device_copy(g->d, on_device(r, buf), data, bytes, g->compute));
    return sk_stream_sync(g->d, g->compute);
}

/* At most so many bytes of first values lie in both memories. */
enum { BOTH = 1 << 30 };

sk_status sk_gpu_push_one(sk_run *r, int buf)
{
    sk_gpu *g = r->gpu;
    while (r->p->bufs.v[buf].within >= 0) buf = r->p->bufs.v[buf].within;
    if (r->p->bufs.v[buf].tier) return SK_OK;
    SK_TRY(move_one(r, buf, false));
    SK_TRY(sk_stream_sync(g->d, g->compute));
    g->both += r->p->bufs.v[buf].bytes;
    if (!g->away || g->both < BOTH) return SK_OK;
    g->both = 0;
    hide(r);
    return SK_OK;
}
