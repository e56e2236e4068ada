/* verify_work.c - P8: nothing is left out and nothing is done twice: nodes, updates, encodings,
 * joins of gradients. */
#include "program/acts.h"

#include <inttypes.h>
#include <string.h>

static sk_status nodes_run(const sk_program *p, int from, int to, bool backward, sk_arena *a)
{
    const sk_graph *g = p->expanded;
    int *runs = sk_many(a, int, g->nodes.n + 1), *next = sk_many(a, int, g->nodes.n + 1);
    for (int pc = from; pc < to; pc++) {
        const sk_inst *in = &p->insts.v[pc];
        if (in->act != SK_DO_OP) continue;
        if (in->node->id == SK_NO_NODE) continue;
        if (in->part != next[in->node->id])
            return sk_fail(SK_EBUG, "P8: rank %d: '%s' runs part %d of %d, not %d", p->rank,
                           in->node->out[0]->name, in->part, in->parts, next[in->node->id]);
        next[in->node->id] = (in->part + 1) % in->parts;
        if (in->node->phase != in->phase)
            return sk_fail(SK_EBUG, "P8: rank %d: instruction %d makes '%s' in the wrong phase",
                           p->rank, pc, in->node->out[0]->name);
        runs[in->node->id] += in->part + 1 == in->parts;
    }
    for (int i = 0; i < g->nodes.n; i++) {
        bool here = p->spread.stage[i] == p->stage;
        const sk_node *n = g->nodes.v[i];
        bool due = backward ? !sk_node_validates(g, n) : n->phase == SK_FORWARD;
        int want = here && due ? p->n_micro : 0;
        if (runs[i] != want)
            return sk_fail(SK_EBUG, "P8: rank %d: '%s' is made %d times in %d micro-batches",
                           p->rank, n->out[0]->name, runs[i], want);
    }
    return SK_OK;
}

static int passes_of(const sk_param_plan *q)
{
    int n = 0;
    if (q->tensor->bias_update != 0) return 1;
    while (q->optim && q->optim->pass[n]) n++;
    return n;
}

static sk_status updated_once(const sk_program *p, sk_arena *a)
{
    int *passes = sk_many(a, int, p->params.n + 1);
    bool clipped = false;
    for (int pc = 0; pc < p->insts.n; pc++) {
        const sk_inst *in = &p->insts.v[pc];
        clipped |= in->act == SK_DO_CLIP;
        if (in->act != SK_DO_UPDATE) continue;
        int k = passes[in->param]++, n_passes = passes_of(&p->params.v[in->param]);
        if (clipped != (in->scale == 0) || pc >= p->n_train || in->pass != k % n_passes ||
            in->update != k / n_passes)
            return sk_fail(SK_EBUG, "P8: rank %d: pass %d over '%s' is out of order", p->rank,
                           in->pass, p->params.v[in->param].tensor->name);
    }
    for (int i = 0; i < p->params.n; i++) {
        int want = p->n_updates * passes_of(&p->params.v[i]);
        if (passes[i] != want)
            return sk_fail(SK_EBUG, "P8: rank %d: '%s' gets %d passes of the optimizer, not %d",
                           p->rank, p->params.v[i].tensor->name, passes[i], want);
    }
    return SK_OK;
}

/* The average of a parameter takes it in once, behind its last update. */
static sk_status averaged_once(const sk_program *p, sk_arena *a)
{
    int *times = sk_many(a, int, p->params.n + 1);
    for (int pc = 0; pc < p->insts.n; pc++) {
        const sk_inst *in = &p->insts.v[pc];
        if (in->act == SK_DO_AVERAGE) times[in->param] += pc < p->n_train;
        if (in->act != SK_DO_UPDATE || !times[in->param]) continue;
        return sk_fail(SK_EBUG, "P8: rank %d: '%s' is updated behind its average", p->rank,
                       p->params.v[in->param].tensor->name);
    }
    for (int i = 0; i < p->params.n; i++)
        if (times[i] != (p->params.v[i].ema >= 0))
            return sk_fail(SK_EBUG, "P8: rank %d: '%s' is averaged %d times", p->rank,
                           p->params.v[i].tensor->name, times[i]);
    return SK_OK;
}

/* A validation step reads averages, not the weights themselves. */
static sk_status averages_read(const sk_program *p)
{
    for (int pc = p->n_train; pc < p->insts.n; pc++) {
        const sk_inst *in = &p->insts.v[pc];
        for (int i = 0; in->act == SK_DO_OP && i < in->node->n_in; i++) {
            const sk_buffer *b = &p->bufs.v[sk_buffer_root(p, in->in[i])];
            if (b->kind != SK_WEIGHTS) continue;
            for (int k = 0; k < p->params.n; k++)
                if (b->tensor == p->params.v[k].tensor && sk_param_average(&p->params.v[k]) >= 0)
                    return sk_fail(SK_EBUG,
                                   "P8: rank %d: instruction %d of validation reads '%s' itself, "
                                   "not its average",
                                   p->rank, pc, b->name);
        }
    }
    return SK_OK;
}

/* Does an encoded buffer have the rows of the other, as many times as it says? */
static sk_status code_fits(const sk_program *p, int pc)
{
    const sk_inst *in = &p->insts.v[pc];
    bool to = in->act == SK_DO_ENCODE;
    const sk_buffer *x = &p->bufs.v[to ? in->in[0] : in->out[0]];
    const sk_buffer *code = &p->bufs.v[to ? in->out[0] : in->in[0]];
    int64_t rows = x->box.size[0], all = x->bytes / (int64_t)sk_dtype_size(x->type);
    int64_t row = rows ? all / rows : 0, times = to ? 1 : in->pieces;
    bool fits = in->codec && code->bytes == times * rows * sk_codec_bytes(in->codec, row);
    if (in->in[1] >= 0)
        fits &=
            p->bufs.v[in->in[1]].bytes == all * (int64_t)sizeof(float) && in->in[1] == in->out[1];
    if (fits) return SK_OK;
    return sk_fail(SK_EBUG,
                   "P6: rank %d: instruction %d (%s): '%s' has %" PRId64 " bytes for %" PRId64
                   " times %" PRId64 " rows of %" PRId64 " elements",
                   p->rank, pc, sk_act_row_of(in)->name, code->name, code->bytes, times, rows, row);
}

/* And what was received encoded is decoded, or travels on along another axis (coded_sums.c). */
static sk_status codes_fit(const sk_program *p, sk_arena *a)
{
    char *decoded = sk_many(a, char, p->bufs.n + 1);
    for (int pc = 0; pc < p->insts.n; pc++) {
        sk_act act = p->insts.v[pc].act;
        if (act != SK_DO_ENCODE && act != SK_DO_DECODE) continue;
        SK_TRY(code_fits(p, pc));
        if (act == SK_DO_DECODE) decoded[p->insts.v[pc].in[0]]++;
    }
    char *sent = sk_many(a, char, p->bufs.n + 1);
    for (int i = 0; i < p->calls.n; i++)
        for (int s = 0; p->calls.v[i].type == SK_U8 && s < p->calls.v[i].n_segs; s++)
            if (p->calls.v[i].segs[s].src != p->calls.v[i].segs[s].dst)
                sent[p->calls.v[i].segs[s].src] = 1;
    for (int i = 0; i < p->calls.n; i++)
        for (int s = 0; p->calls.v[i].type == SK_U8 && s < p->calls.v[i].n_segs; s++)
            if (!(sent[p->calls.v[i].segs[s].dst] && !decoded[p->calls.v[i].segs[s].dst]) &&
                decoded[p->calls.v[i].segs[s].dst] != 1)
                return sk_fail(SK_EBUG,
                               "P8: rank %d: '%s' comes by call %d and is decoded %d times",
                               p->rank, p->bufs.v[p->calls.v[i].segs[s].dst].name, i,
                               decoded[p->calls.v[i].segs[s].dst]);
    return SK_OK;
}

/* Does a join of gradients have the rows of all ranks, and products of all pairs? */
static sk_status join_fits(const sk_program *p, int pc)
{
    const sk_inst *in = &p->insts.v[pc];
    bool joins = in->act == SK_DO_ADASUM;
    const sk_buffer *all = &p->bufs.v[in->in[0]];
    const sk_buffer *products = &p->bufs.v[joins ? in->in[1] : in->out[0]];
    int64_t n = in->pieces, axis = sk_layout_adasum(&p->layout);
    bool fits = axis >= 0 && n == p->layout.mesh.size[axis] &&
                products->bytes == n * (n + 1) / 2 * (int64_t)sizeof(double);
    if (joins) fits &= all->bytes == n * p->bufs.v[in->out[0]].bytes;
    if (fits) return SK_OK;
    return sk_fail(SK_EBUG,
                   "P6: rank %d: instruction %d (%s): %" PRId64 " gradients, and '%s' has %" PRId64
                   " bytes, '%s' %" PRId64,
                   p->rank, pc, sk_act_row_of(in)->name, n, all->name, all->bytes, products->name,
                   products->bytes);
}

/* Gradients of all ranks are multiplied once and then joined once. */
static sk_status joins_fit(const sk_program *p, sk_arena *a)
{
    int *products = sk_many(a, int, p->bufs.n + 1), *joins = sk_many(a, int, p->bufs.n + 1);
    for (int pc = 0; pc < p->insts.n; pc++) {
        const sk_inst *in = &p->insts.v[pc];
        if (in->act != SK_DO_PRODUCTS && in->act != SK_DO_ADASUM) continue;
        SK_TRY(join_fits(p, pc));
        (in->act == SK_DO_PRODUCTS ? products : joins)[in->in[0]]++;
    }
    for (int i = 0; i < p->bufs.n; i++)
        if (products[i] > 1 || joins[i] != products[i])
            return sk_fail(SK_EBUG, "P8: rank %d: '%s' is multiplied %d times and joined %d times",
                           p->rank, p->bufs.v[i].name, products[i], joins[i]);
    return SK_OK;
}

static sk_status all_work(const sk_program *p, sk_arena *a)
{
    SK_TRY(codes_fit(p, a));
    SK_TRY(joins_fit(p, a));
    if (p->n_train) SK_TRY(nodes_run(p, 0, p->n_train, true, a));
    if (p->n_mean < p->insts.n) SK_TRY(nodes_run(p, p->n_mean, p->insts.n, false, a));
    SK_TRY(averaged_once(p, a));
    if (p->n_train) SK_TRY(averages_read(p));
    return updated_once(p, a);
}

sk_status sk_verify_work(const sk_program *p)
{
    sk_arena tmp = {0};
    sk_status st = all_work(p, &tmp);
    sk_arena_end(&tmp);
    return st;
}
