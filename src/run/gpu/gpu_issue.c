/* gpu_issue.c - one instruction, put on its stream. */
#include "run/cpu/encode.h"
#include "run/gpu/gpu.h"
#include "program/acts.h"

static sk_status load(const sk_run *r, const sk_inst *in, int pc)
{
    const sk_gpu *g = r->gpu;
    return sk_device_copy(g->d, sk_gpu_data(r, in->out[0]), g->stage + g->stage_at[pc],
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
        return (in->act == SK_DO_SLICE ? g->inst->slice : g->inst->paste)(&x, &y, g->compute);
    case SK_DO_ADD:
        return g->inst->add(sk_gpu_data(r, to), sk_gpu_data(r, from), sk_gpu_count(r, to),
                            r->p->bufs.v[to].type, g->compute);
    case SK_DO_KEEP:
        return g->inst->keep(sk_gpu_data(r, to), sk_gpu_data(r, from), r->p->bufs.v[from].type,
                             sk_gpu_count(r, to), &g->scalars->hold, g->compute);
    case SK_DO_NARROW:
        return g->inst->convert(sk_gpu_data(r, to), r->p->bufs.v[to].type, sk_gpu_data(r, from),
                                r->p->bufs.v[from].type, sk_gpu_count(r, to), g->compute);
    case SK_DO_ZERO:
        return sk_device_zero(g->d, sk_gpu_data(r, to), (size_t)r->p->bufs.v[to].bytes, g->compute);
    case SK_DO_PACK:
        return g->inst->pack(sk_gpu_data(r, from), sk_gpu_data(r, to), r->p->bufs.v[from].type,
                             sk_gpu_count(r, from), in->values, &g->scalars->full, &g->launch);
    case SK_DO_UNPACK:
        return g->inst->unpack(sk_gpu_data(r, to), sk_gpu_data(r, from), r->p->bufs.v[to].type,
                               sk_gpu_count(r, to), in->values, &g->launch);
    default:
        return sk_fail(SK_EBUG, "%s has no meaning on a GPU", sk_act_row_of(in)->name);
    }
}

static sk_status code(const sk_run *r, const sk_inst *in, int pc)
{
    const sk_gpu *g = r->gpu;
    bool encode = in->act == SK_DO_ENCODE;
    int x = encode ? in->in[0] : in->out[0], bytes = encode ? in->out[0] : in->in[0];
    int64_t rows = r->p->bufs.v[x].box.size[0];
    bool feedback = encode && in->in[1] >= 0;
    sk_code_job j = {.x = sk_gpu_data(r, x),
                     .type = r->p->bufs.v[x].type,
                     .rows = rows,
                     .row = rows ? sk_gpu_count(r, x) / rows : 0,
                     .code = sk_gpu_data(r, bytes),
                     .bytes = r->p->bufs.v[bytes].box.size[1],
                     .pieces = in->pieces,
                     .error = feedback ? sk_gpu_data(r, in->in[1]) : NULL,
                     .adds = in->adds_error,
                     .loss_scale = in->held ? NULL : &g->scalars->loss_scale,
                     .hold = in->held ? &g->scalars->hold : NULL,
                     .seed = r->opts.seed,
                     .stream = in->stream,
                     .step = &g->scalars->step,
                     .term = in->term,
                     .micro = in->micro,
                     .value = in->codec->value};
    j.first = sk_code_place(&r->p->bufs.v[x].box, &j.place);
    return (encode ? g->codecs[pc]->encode : g->codecs[pc]->decode)(&j, g->compute);
}

/* With order=canonical losses are summed by reduction blocks of the batch, one for each node and
 * micro-batch. */
static sk_status loss_blocks(const sk_run *r, double *to)
{
    const sk_gpu *g = r->gpu;
    for (int w = 0; w < SK_N_SUMS; w++) {
        const sk_sum_plan *s = &r->p->sums[w];
        for (int i = 0; s->counts && s->cell && i < s->n; i++)
            if (s->cell[i] >= 0)
                SK_TRY(g->inst->convert(to + s->cell[i], SK_F64, sk_gpu_data(r, s->buf[i]), SK_F32,
                                        1, g->compute));
    }
    return SK_OK;
}

static sk_status stats(const sk_run *r, const sk_inst *in)
{
    const sk_gpu *g = r->gpu;
    sk_stats_job j = in->training ? g->stats : (sk_stats_job){0};
    j.out = sk_gpu_data(r, in->out[0]);
    j.out_n = sk_gpu_count(r, in->out[0]);
    j.n_sums = r->p->n_sums;
    j.full = &g->scalars->full;
    for (int w = 0; w < SK_N_SUMS; w++) {
        const sk_sum_plan *s = &r->p->sums[w];
        if (sk_sum_made(r->p, w, in->training) && s->n && !s->cell)
            j.sum[w] = sk_gpu_data(r, s->buf[0]);
    }
    if (g->offload && in->training) SK_TRY(sk_offload_squares(g->offload, &j.more));
    if (in->out[1] >= 0) {
        j.exact = sk_gpu_data(r, in->out[1]);
        SK_TRY(sk_device_zero(g->d, j.exact, (size_t)r->p->bufs.v[in->out[1]].bytes, g->compute));
    }
    SK_TRY(g->inst->stats(&j, &g->launch));
    return loss_blocks(r, j.out + SK_STAT_SUMS + r->p->n_sums);
}

static sk_status clip(const sk_run *r, const sk_inst *in)
{
    const sk_gpu *g = r->gpu;
    sk_clip_job j = {.sums = sk_gpu_data(r, in->in[0]),
                     .n_sums = r->p->n_sums,
                     .exact = in->in[1] < 0 ? NULL : sk_gpu_data(r, in->in[1]),
                     .n_blocks = r->p->n_blocks,
                     .train = in->training,
                     .scale = in->scale,
                     .all = in->in[3] < 0 ? NULL : sk_gpu_data(r, in->in[3]),
                     .exact_all = in->in[4] < 0 ? NULL : sk_gpu_data(r, in->in[4]),
                     .replicas = sk_layout_replicas(&r->p->layout),
                     .together = sk_run_together(r, in->together) ? INT64_MAX : 0,
                     .apart = r->p->apart,
                     .clip = r->opts.knobs.clip,
                     .phases = r->p->phases,
                     .no_drops = r->opts.no_drops,
                     .no_full = r->opts.no_full,
                     .alone = r->opts.alone,
                     .pulse = g->scalars};
    for (int w = 0; w < r->p->n_sums; w++) {
        j.of[w].tree = r->p->sums[w].tree;
        j.of[w].trees = r->p->sums[w].trees;
    }
    if (in->in[2] >= 0 && r->p->layout.canonical) j.small_exact = sk_gpu_data(r, in->in[2]);
    else if (in->in[2] >= 0) j.small = sk_gpu_data(r, in->in[2]);
    SK_TRY(g->inst->clip(&j, &g->launch));
    for (const sk_feedback_reset_job *f = g->resets; in->training && f->n; f++)
        SK_TRY(g->inst->reset_feedback(f, &g->scalars->skip, g->compute));
    return g->offload && in->training ? sk_offload_clipped(g->offload) : SK_OK;
}

static sk_status sumsq(const sk_run *r, const sk_inst *in)
{
    const sk_gpu *g = r->gpu;
    if (!r->p->params.v[in->param].counts) return SK_OK;
    return g->inst->sumsq(sk_gpu_data(r, in->out[0]), sk_gpu_data(r, in->in[0]),
                          r->p->bufs.v[in->in[0]].type, sk_gpu_count(r, in->in[0]),
                          r->p->layout.canonical, &g->launch);
}

static sk_status compute(sk_run *r, int pc)
{
    const sk_gpu *g = r->gpu;
    const sk_fused *f = g->fused[pc];
    sk_launch l = sk_gpu_launch(r, pc);
    r->args[pc].validation = r->validation;
    if (f) return f->by->launch(f->args, f->n, &l);
    if (g->inside[pc]) return SK_OK;
    return g->kernels[pc]->launch(&r->args[pc], &l);
}

static sk_status average(const sk_run *r, const sk_inst *in)
{
    const sk_gpu *g = r->gpu;
    return g->inst->average(sk_gpu_data(r, in->out[0]), sk_gpu_data(r, in->in[0]),
                            sk_gpu_count(r, in->out[0]), r->p->ema, g->scalars, g->compute);
}

static sk_status combine(const sk_run *r, const sk_inst *in)
{
    sk_combine_job j = {.by = *in->combine, .n = sk_gpu_count(r, in->out[0])};
    for (int k = 0; k < j.by.n_in; k++) j.in[k] = sk_gpu_data(r, in->in[k]);
    for (int o = 0; o < j.by.n_out; o++) j.out[o] = sk_gpu_data(r, in->out[o]);
    return r->gpu->inst->combine(&j, r->gpu->compute);
}

static const sk_optim_kernel *optim_of(const sk_run *r, const sk_inst *in)
{
    return r->gpu->optim[r->p->params.v[in->param].group];
}

static sk_status issue_pass(const sk_run *r, const sk_inst *in, const sk_update_job *j)
{
    const sk_optim_kernel *k = optim_of(r, in);
    SK_TRY(k->pass[in->pass](j, &r->gpu->launch));
    bool moves = r->p->params.v[in->param].optim->perturb && sk_last_pass(r->p, in);
    return moves ? k->perturb(j, &r->gpu->launch) : SK_OK;
}

sk_status sk_gpu_issue(sk_run *r, int pc)
{
    const sk_gpu *g = r->gpu;
    const sk_inst *in = &r->p->insts.v[pc];
    if (g->offload && sk_offload_does(r->p, in)) return sk_offload_issue(g->offload, pc);
    if (g->offload && in->act == SK_DO_START) SK_TRY(sk_offload_start(g->offload, in));
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
        return sk_comm_streams_issue(g->streams, pc);
    case SK_DO_STATS:
        return stats(r, in);
    case SK_DO_CLIP:
        return clip(r, in);
    case SK_DO_SUMSQ:
        return sumsq(r, in);
    case SK_DO_UPDATE:
        if (!g->updates[pc].n_pieces) return SK_OK; /* part of an earlier launch */
        return issue_pass(r, in, &g->updates[pc]);
    case SK_DO_AHEAD:
        if (!g->updates[pc].n_pieces) return SK_OK;
        return optim_of(r, in)->ahead(&g->updates[pc], &g->launch);
    case SK_DO_AVERAGE:
        return average(r, in);
    case SK_DO_COMBINE:
        return combine(r, in);
    case SK_DO_ENCODE:
    case SK_DO_DECODE:
        return code(r, in, pc);
    default:
        return rearrange(r, in);
    }
}
