/* lowering.c - instructions, buffers and calls, one at a time. */
#include "program/lowering.h"
#include "kernel/kernel_launch.h"
#include "program/workspaces.h"
#include "coll/segment.h"

#include <stdio.h>
#include <string.h>

const char *const sk_kind_names[SK_N_KINDS] = {"weights", "grads",   "optimizer", "activations",
                                               "wire",    "scratch", "host"};

int64_t sk_box_count(const sk_extent *b, int from, int to)
{
    int64_t n = 1;
    for (int i = from; i < to; i++) n *= b->size[i];
    return n;
}

int64_t sk_lower_logical(const sk_lowering *e, const sk_tensor *t)
{
    int64_t n = (int64_t)sk_dtype_size(t->type);
    for (const char *p = t->letters; *p; p++) n *= e->g->size[(int)*p & 127];
    return n;
}

int64_t sk_lower_bucket(const sk_lowering *e)
{
    return e->opts->bucket_bytes ? e->opts->bucket_bytes : 8 << 20;
}

sk_inst sk_inst_like(const sk_inst *place, sk_act act)
{
    sk_inst in = {.act = act,
                  .task = place->task,
                  .unit = place->unit,
                  .micro = place->micro,
                  .layer = place->layer,
                  .phase = place->phase,
                  .work = place->work,
                  .region = place->region,
                  .mean = place->mean,
                  .parts = 1,
                  .ring = -1,
                  .call = -1,
                  .workspace = -1,
                  .copy = -1,
                  .peer = -1,
                  .param = -1};
    for (int i = 0; i < SK_MAX_OPERANDS; i++) in.in[i] = -1;
    for (int i = 0; i < SK_MAX_OUT; i++) in.out[i] = -1;
    return in;
}

sk_inst *sk_lower_inst(sk_lowering *e, sk_act act)
{
    const sk_inst place = {.task = e->at.task,
                           .unit = e->at.unit,
                           .micro = e->at.micro,
                           .layer = e->at.layer,
                           .phase = e->at.phase,
                           .work = e->at.work,
                           .region = e->at.region,
                           .mean = e->at.mean};
    sk_inst *in = sk_push(e->tmp, &e->p->insts);
    *in = sk_inst_like(&place, act);
    in->every = e->at.every;
    in->sync = e->at.sync;
    in->held = e->at.held;
    return in;
}

int sk_lower_buffer(sk_lowering *e, const char *name, const sk_tensor *t, sk_kind kind,
                    sk_dtype type, sk_extent box)
{
    sk_buffer *b = sk_push(e->tmp, &e->p->bufs);
    *b = (sk_buffer){.name = name,
                     .tensor = t,
                     .kind = kind,
                     .type = type,
                     .box = box,
                     .within = -1,
                     .first = -1,
                     .last = -1};
    b->bytes = sk_box_count(&box, 0, box.n) * (int64_t)sk_dtype_size(type);
    return e->p->bufs.n - 1;
}

sk_extent sk_lower_box(const sk_lowering *e, const sk_tensor *t, const sk_state *s, int micro)
{
    return sk_shard_of(e->g, e->l, t->letters, s, e->p->coord, micro, e->p->n_micro);
}

int sk_lower_piece(sk_lowering *e, const sk_tensor *t, sk_kind kind, const sk_state *s, int micro)
{
    sk_extent box = sk_lower_box(e, t, s, micro);
    return sk_lower_buffer(e, t->name, t, kind, t->type, box);
}

int sk_lower_part(sk_lowering *e, int whole, int i, int n)
{
    sk_buffer w = e->p->bufs.v[whole];
    sk_extent box = w.box;
    int64_t from, to, row = sk_box_count(&box, 1, box.n) * (int64_t)sk_dtype_size(w.type);
    sk_cut(w.box.size[0], i, n, &from, &to);
    box.at[0] += from;
    box.size[0] = to - from;
    int part = sk_lower_buffer(e, w.name, w.tensor, w.kind, w.type, box);
    e->p->bufs.v[part].within = whole;
    e->p->bufs.v[part].part_at = from * row;
    return part;
}

/* Does the result depend on the order of the reduction? */
static bool sums(sk_reduce reduce, sk_dtype type)
{
    return (reduce == SK_SUM || reduce == SK_MEAN) && (type == SK_F32 || type == SK_F64);
}

int sk_lower_call(sk_lowering *e, sk_coll_kind kind, sk_reduce reduce, sk_dtype type, int group,
                  const char *what)
{
    sk_call_plan *c = sk_push(e->tmp, &e->p->calls);
    *c = (sk_call_plan){.kind = kind,
                        .reduce = reduce,
                        .type = type,
                        .group = group,
                        .what = what,
                        .algorithm = SK_BUILTIN,
                        .workspace = -1,
                        .ordered = e->l->canonical && sk_kind_sums(kind) && sums(reduce, type)};
    return e->p->calls.n - 1;
}

void sk_lower_seg(sk_lowering *e, int call, int src, int dst, int64_t outer, int64_t n,
                  int64_t inner)
{
    sk_call_plan *c = &e->p->calls.v[call];
    if ((c->n_segs & (c->n_segs - 1)) == 0) /* full at 0, 1, 2, 4, ...: double */
        c->segs = sk_grow(e->p->arena, c->segs, sizeof *c->segs * (size_t)c->n_segs,
                          sizeof *c->segs * (size_t)(c->n_segs ? 2 * c->n_segs : 1));
    c->segs[c->n_segs++] =
        (sk_call_seg){.src = src, .dst = dst, .outer = outer, .n = n, .inner = inner};
    c->elements += outer * n * inner;
}

sk_grid sk_box_grid(const sk_extent *box, int d)
{
    return (sk_grid){.full = box->full[d],
                     .cells = box->cells[d][2],
                     .from = box->cells[d][0],
                     .to = box->cells[d][1]};
}

void sk_lower_rows(sk_lowering *e, int call, int src, int dst, const sk_extent *box, int d)
{
    sk_lower_seg(e, call, src, dst, sk_box_count(box, 0, d), box->size[d],
                 sk_box_count(box, d + 1, box->n));
    sk_call_plan *c = &e->p->calls.v[call];
    c->segs[c->n_segs - 1].cut = sk_box_grid(box, d);
}

void sk_lower_swap(sk_lowering *e, int call, int src, int dst, const sk_extent *box, int from,
                   int to)
{
    int a = from < to ? from : to, b = from < to ? to : from;
    sk_lower_seg(e, call, src, dst, sk_box_count(box, 0, a), box->size[a],
                 sk_box_count(box, b + 1, box->n));
    sk_call_plan *c = &e->p->calls.v[call];
    sk_call_seg *s = &c->segs[c->n_segs - 1];
    c->elements -= s->outer * s->n * s->inner;
    s->swap = from < to ? SK_SWAP_N_N2 : SK_SWAP_N2_N;
    s->cut = sk_box_grid(box, a);
    s->cut2 = sk_box_grid(box, b);
    s->mid = sk_box_count(box, a + 1, b);
    s->n2 = box->size[b];
    const sk_group *g = &e->p->groups[c->group];
    sk_seg shape = sk_call_shape(s);
    c->elements += sk_seg_whole(&shape) / g->n; /* per member, on average */
}

sk_seg sk_call_shape(const sk_call_seg *s)
{
    return (sk_seg){.outer = s->outer,
                    .n = s->n,
                    .inner = s->inner,
                    .cut = s->cut,
                    .swap = s->swap,
                    .mid = s->mid,
                    .n2 = s->n2,
                    .cut2 = s->cut2};
}

int64_t sk_call_bytes(const sk_call_plan *c)
{
    return c->common ? 0 : c->elements * (int64_t)sk_dtype_size(c->type);
}

sk_status sk_plan_workspaces(sk_lowering *e)
{
    for (int pc = 0; e->p->gpu && pc < e->p->insts.n; pc++) {
        int64_t bytes = sk_workspace_launch(e->p, &e->p->insts.v[pc]);
        if (!bytes) continue;
        sk_extent box = {.n = 1, .size = {bytes}, .full = {bytes}};
        e->p->insts.v[pc].workspace =
            sk_lower_buffer(e, "workspace of a launch", NULL, SK_ACTS, SK_U8, box);
    }
    return SK_OK;
}

void sk_lower_move(sk_lowering *e, sk_act act, int from, int to)
{
    sk_inst *in = sk_lower_inst(e, act);
    in->in[0] = from;
    in->out[0] = to;
}

void sk_lower_stand_at(sk_lowering *e, const sk_inst *in)
{
    e->at.task = in->task;
    e->at.unit = in->unit;
    e->at.micro = in->micro;
    e->at.layer = in->layer;
    e->at.phase = in->phase;
    e->at.work = in->work;
    e->at.region = in->region;
}

void sk_lower_start(sk_lowering *e, int call, sk_flies flies)
{
    e->p->calls.v[call].flies = flies;
    sk_lower_inst(e, SK_DO_START)->call = call;
}

void sk_lower_then(sk_lowering *e, int call, sk_then what)
{
    sk_call_plan *c = &e->p->calls.v[call];
    c->then = sk_grow(e->tmp, c->then, sizeof what * (size_t)c->n_then,
                      sizeof what * (size_t)(c->n_then + 1));
    c->then[c->n_then++] = what;
}
