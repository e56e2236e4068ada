/* emit.c - instructions, buffers and calls, one at a time. */
#include "program/emit.h"

#include <stdio.h>
#include <string.h>

const char *const sk_kind_names[SK_N_KINDS] = {"weights",     "grads", "optimizer",
                                               "activations", "wire",  "scratch"};

int64_t sk_box_count(const sk_extent *b, int from, int to)
{
    int64_t n = 1;
    for (int i = from; i < to; i++) n *= b->size[i];
    return n;
}

int64_t sk_emit_logical(const sk_emit *e, const sk_tensor *t)
{
    int64_t n = (int64_t)sk_dtype_size(t->type);
    for (const char *p = t->letters; *p; p++) n *= e->g->size[(int)*p & 127];
    return n;
}

int64_t sk_emit_bucket(const sk_emit *e)
{
    return e->opts->bucket_bytes ? e->opts->bucket_bytes : 8 << 20;
}

sk_inst *sk_emit_inst(sk_emit *e, sk_act act)
{
    sk_inst *in = sk_push(e->p->arena, &e->p->insts);
    *in = (sk_inst){.act = act,
                    .micro = e->micro,
                    .layer = e->layer,
                    .phase = e->phase,
                    .call = -1,
                    .peer = -1,
                    .param = -1};
    for (int i = 0; i < SK_MAX_IN; i++) in->in[i] = -1;
    for (int i = 0; i < SK_MAX_OUT; i++) in->out[i] = -1;
    return in;
}

int sk_emit_buffer(sk_emit *e, const char *name, const sk_tensor *t, sk_kind kind, sk_dtype type,
                   sk_extent box)
{
    sk_buffer *b = sk_push(e->p->arena, &e->p->bufs);
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

int sk_emit_piece(sk_emit *e, const sk_tensor *t, sk_kind kind, const sk_state *s, int micro)
{
    sk_extent box = sk_piece_of(e->g, e->l, t->letters, s, e->p->coord, micro, e->p->n_micro);
    return sk_emit_buffer(e, t->name, t, kind, t->type, box);
}

int sk_emit_call(sk_emit *e, sk_coll_kind kind, sk_reduce reduce, sk_dtype type, int group,
                 const char *what)
{
    sk_call_plan *c = sk_push(e->p->arena, &e->p->calls);
    *c = (sk_call_plan){.kind = kind, .reduce = reduce, .type = type, .group = group, .what = what};
    return e->p->calls.n - 1;
}

void sk_emit_seg(sk_emit *e, int call, int src, int dst, int64_t outer, int64_t n, int64_t inner)
{
    sk_call_plan *c = &e->p->calls.v[call];
    if ((c->n_segs & (c->n_segs - 1)) == 0) /* full at 0, 1, 2, 4, ...: double */
        c->segs = sk_grow(e->p->arena, c->segs, sizeof *c->segs * (size_t)c->n_segs,
                          sizeof *c->segs * (size_t)(c->n_segs ? 2 * c->n_segs : 1));
    c->segs[c->n_segs++] = (sk_call_seg){src, dst, outer, n, inner};
    c->elements += outer * n * inner;
}

/* Bytes that leave this rank at least: 2S(p-1)/p for an all-reduce, half of it for the others. */
static int64_t least_bytes(const sk_program *p, const sk_call_plan *c)
{
    const sk_group *g = &p->groups[c->group];
    int64_t size = (int64_t)sk_dtype_size(c->type), sum = 0;
    for (int i = 0; i < c->n_segs; i++) {
        const sk_call_seg *s = &c->segs[i];
        int64_t from, to;
        sk_cut(s->n, g->me, g->n, &from, &to);
        int64_t mine = s->outer * (to - from) * s->inner, all = s->outer * s->n * s->inner;
        if (c->kind != SK_ALLGATHER) sum += (all - mine) * size;
        if (c->kind != SK_REDUCE_SCATTER) sum += mine * (g->n - 1) * size;
    }
    return sum;
}

static void touch(sk_emit *e, sk_act act, int call)
{
    sk_inst *in = sk_emit_inst(e, act);
    in->call = call;
    if (act == SK_DO_WAIT) in->wire = least_bytes(e->p, &e->p->calls.v[call]);
}

void sk_emit_start(sk_emit *e, int call) { touch(e, SK_DO_START, call); }

/* Waits keep the order of starts: calls on the same group that are still flying come first. */
void sk_emit_wait(sk_emit *e, int call)
{
    int kept = 0, group = e->p->calls.v[call].group;
    bool past = false;
    for (int i = 0; i < e->flying.n; i++) {
        int c = e->flying.v[i];
        past |= c == call;
        if (past || e->p->calls.v[c].group != group) e->flying.v[kept++] = c;
        else touch(e, SK_DO_WAIT, c);
        kept -= c == call;
    }
    e->flying.n = kept;
    touch(e, SK_DO_WAIT, call);
}
