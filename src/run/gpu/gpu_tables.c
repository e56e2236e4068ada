/* gpu_tables.c - tables that kernels read from the device: the shards of parameters that updates
 * work on, the gradients that STATS sums, and the error feedback that CLIP resets. */
#include "base/hash.h"
#include "run/cpu/optimize.h"
#include "run/gpu/gpu.h"

static void *sums_at(const sk_run *r, const sk_inst *in, int buf)
{
    int each = r->p->layout.canonical ? 2 * SK_MAX_SUM : SK_MAX_SUM; /* words: sk_fixed has two */
    return buf < 0 ? NULL : (char *)sk_gpu_data(r, buf) + r->place[in->param] * each * 8;
}

/* Behind the sums of all parameters (program/update.c). */
static double *most_at(const sk_run *r, const sk_inst *in, int buf)
{
    if (buf < 0 || !r->p->params.v[in->param].optim->maxima) return NULL;
    int64_t words = r->p->bufs.v[buf].bytes / 8, most = words / (r->p->layout.canonical ? 3 : 2);
    return (double *)sk_gpu_data(r, buf) + words - most + r->place[in->param] * SK_MAX_SUM;
}

/* AHEAD has the weights as its first operand, where UPDATE has the gradient
 * (kernel/optim_kernel.h). */
static sk_update piece_of(const sk_run *r, const sk_inst *in)
{
    const sk_program *p = r->p;
    const sk_param_plan *q = &p->params.v[in->param];
    bool last = in->act == SK_DO_UPDATE && q->master >= 0 && sk_last_pass(p, in);
    sk_update u = {.n = sk_gpu_count(r, q->shard),
                   .param = sk_gpu_data(r, in->out[2] >= 0 ? in->out[2] : in->out[0]),
                   .grad = sk_gpu_data(r, in->in[0]),
                   .scalar = q->scalars < 0 || in->act != SK_DO_UPDATE
                                 ? NULL
                                 : sk_gpu_data(r, in->in[SK_IN_SCALARS]),
                   .narrow = last ? sk_gpu_data(r, in->out[0]) : NULL,
                   .grad_type = p->bufs.v[in->in[0]].type,
                   .state_type = SK_F32,
                   .narrow_type = last ? p->bufs.v[in->out[0]].type : SK_F32,
                   .delay = in->delay,
                   .update = in->update,
                   .scale = in->scale,
                   .rate = sk_run_rate(r, q),
                   .decay = q->decay ? sk_run_decay(r, q) : 0,
                   .bias_update = (float)q->tensor->bias_update,
                   .owner = q->owner,
                   .before = sums_at(r, in, in->in[1]),
                   .after = sums_at(r, in, in->out[1]),
                   .elements = sk_box_all(&p->bufs.v[q->shard].box),
                   .before_most = most_at(r, in, in->in[1]),
                   .after_most = most_at(r, in, in->out[1]),
                   .name = sk_hash_text(q->tensor->name),
                   .shape = sk_buffer_view(p, q->shard, NULL)};
    for (int s = 0; s < q->n_state + sk_param_more(q); s++) {
        if (in->in[2 + s] < 0) continue; /* a pass that only leaves sums */
        const sk_buffer *b = &p->bufs.v[in->in[2 + s]];
        u.state[s] = sk_gpu_data(r, in->in[2 + s]);
        u.q8[s] = b->q8;
        if (b->type != SK_F32) u.state_type = b->type;
    }
    return u;
}

/* The updates from pc on that the program puts into one launch; returns how many. */
static int gather_updates(const sk_run *r, int pc, sk_update *to, sk_update_job *job)
{
    const sk_inst *v = r->p->insts.v;
    const sk_launch_plan *l = sk_launch_of(r->p, pc);
    int n = 0;
    *job = (sk_update_job){.seed = r->opts.seed,
                           .pulse = r->gpu->scalars,
                           .ordered = r->p->layout.canonical,
                           .phases = r->p->phases,
                           .share = 1.0f / (float)sk_layout_replicas(&r->p->layout),
                           .warmup = r->opts.knobs.warmup};
    job->maxima = r->p->params.v[v[pc].param].optim->maxima;
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
    const sk_param_plan *q = &r->p->params.v[v[pc].param];
    for (int k = 0; q->optim->knobs[k].name; k++) {
        job->knob[k] = sk_run_knob(r, q, k, false);
        if (sk_run_cycles(r, q, k)) job->momentum |= 1u << k;
    }
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

/* Gradients of the loss.  Those that this rank owns count in the norm; copies are only checked for
 * values that are not finite. */
static int gather_grads(const sk_run *r, sk_norm_piece *to, sk_stats_job *job)
{
    int n = 0;
    for (int i = 0; i < r->p->params.n; i++) {
        const sk_param_plan *q = &r->p->params.v[i];
        if (q->tensor->bias_update != 0 || r->p->bufs.v[q->grad_shard].placement) continue;
        to[n] = (sk_norm_piece){.data = sk_gpu_data(r, q->grad_shard),
                                .n = sk_gpu_count(r, q->grad_shard),
                                .type = r->p->bufs.v[q->grad_shard].type,
                                .counts = q->owner,
                                .chunk = job->chunks};
        job->chunks += sk_update_chunks(to[n++].n);
    }
    return n;
}

/* The error feedback of all parameters. */
static sk_feedback_reset_job *gather_errors(sk_arena *a, const sk_run *r)
{
    int n = 0;
    sk_feedback_reset_job *v =
        sk_many(a, sk_feedback_reset_job, r->p->params.n / SK_FEEDBACK_RESET_MOST + 2);
    for (int i = 0; i < r->p->params.n; i++) {
        int error = r->p->params.v[i].error;
        if (error < 0 || r->p->layout.own_grads) continue;
        sk_assert(!r->p->bufs.v[error].placement);
        sk_feedback_reset_job *j = &v[n / SK_FEEDBACK_RESET_MOST];
        j->data[j->n] = sk_gpu_data(r, error);
        j->count[j->n++] = sk_gpu_count(r, error);
        n++;
    }
    return v;
}

void sk_gpu_make_tables(sk_arena *a, sk_run *r)
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
    g->resets = gather_errors(a, r);
}

sk_status sk_gpu_write_tables(sk_run *r)
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
