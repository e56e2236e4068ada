/* verify.c - sk_verify accepts what the compiler makes and rejects what is broken.
 *
 * Programs of several models and layouts are compiled; then one thing is broken
 * on one rank, drawn by a seed: calls swapped, an instruction lost, a buffer
 * moved.  Every mutant must be rejected with a sentence.  Changes that would do
 * no harm (swapping two equal calls, losing a result that nobody reads) are not
 * drawn.
 *
 *     program_verify [SEED [COUNT]]      default: seed 1, 200 mutants */
#include "lib/ranks.h"

#include "base/rng.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t seed, drawn;

static int n_classed; /* mutants that had another rank of their class */
static int pick(int n) { return n > 0 ? (int)(sk_rng(seed, 0, drawn++).a % (uint64_t)n) : 0; }

enum {
    TIE = 1,
    GPU = 2,
    EMA = 4,
    KFAC = 8 /* with factors in every second update */
};           /* GPU: sequences so long that launches need a workspace of their
                own */
static const struct {
    const char *model, *layout;
    unsigned what;
} cases[] = {
    {"gpt2", "dp=2", TIE},
    {"gpt2", "tp=2", TIE},
    {"gpt2", "pp=2 micro=3", TIE},
    {"llama", "pp=3 micro=4 schedule=gpipe", 0},
    {"llama", "dp=2 zero=1", 0},
    {"mlp", "dp=2 zero=2 micro=2", 0},
    {"llama", "dp=3 zero=3", TIE},
    {"gpt2", "pp=2 dp=2 tp=2 zero=3 micro=2", TIE},
    {"llama", "tp=2 dp=2 zero=1 micro=2 order: tp dp", 0},
    {"gpt2", "mesh a=2 z=2; split b over a; split h f over z; micro 2", TIE},
    {"gpt2", "dp=2 replica", TIE},
    {"llama", "tp=2 dp=3 zero=2 micro=2 replica", 0},
    {"llama", "pp=2 dp=2 zero=2 micro=5 schedule=pipedream", 0},
    {"mlp", "pp=3 micro=5 schedule=pipedream-2bw", 0},
    {"llama", "pp=2 tp=2 micro=4 schedule=pb", 0},
    {"llama", "tp=2 sp overlap=3", 0},
    {"llama", "dp=2 zero=3 micro=2 offload=all:file", 0},
    {"gpt2", "tp=2 micro=2 offload=all", TIE},
    {"llama", "dp=2 zero=1 offload=state:file+acts", 0},
    {"llama", "dp=4 zero=3 weights=int8 grads=int4 feedback copy=2", TIE},
    {"gpt2", "dp=2 grads=int8 feedback", 0},
    {"gpt2", "dp=2 micro=2", TIE | GPU},
    {"llama", "pp=2 tp=2 micro=2 recompute=full", GPU},
    {"gpt2", "pp=2 dp=5 zero=1", TIE},
    {"llama", "dp=5 tp=3 zero=2 micro=2 replica", 0},
    {"gpt2", "dp=2 zero=1", TIE | EMA},
    {"llama", "dp=2 tp=2 zero=3 micro=2", EMA},
    {"llama", "tp=2 offload=state", EMA},
    {"gpt2", "dp=2 tp=2 zero=1 micro=2", KFAC},
    {"mlp", "dp=3", KFAC},
    {"gpt2", "pp=2 dp=3 tp=2 zero=1 reduce=adasum", TIE},
    {"llama", "dp=2 tp=2 reduce=adasum", 0},
    {"llama", "dp=2 cp=2 zero=1:dp+cp", 0},
};
enum { N_CASES = sizeof cases / sizeof *cases };

typedef struct world {
    sk_arena arena;
    sk_graph graph;
    sk_program **p;
    int n;
} world;

static sk_status compile(world *w, int i)
{
    static sk_trial t; /* plans point at its groups */
    t = (sk_trial){
        .batch = 5, .seq = 4, .layout = cases[i].layout, .bucket_bytes = 1024, .clip = 1};
    t.model = sk_model_find(cases[i].model);
    t.hyper = t.model->usual;
    t.hyper.hidden_size = 12;
    t.hyper.num_hidden_layers = 3;
    t.hyper.num_attention_heads = 3;
    t.hyper.num_key_value_heads = 3;
    t.hyper.intermediate_size = 10;
    t.hyper.vocab_size = 17;
    t.hyper.input_size = 7;
    t.hyper.max_position_embeddings = 8;
    t.hyper.tie_word_embeddings = cases[i].what & TIE;
    t.ema = cases[i].what & EMA ? 0.9 : 0;
    if (cases[i].what & KFAC) {
        t.optim = "kfac";
        t.knobs[0] = (struct sk_trial_knob){"factor_interval", 2};
        sk_trial_groups(&t);
    }
    if (cases[i].what & GPU) {
        t.gpu = true;
        t.dtype = SK_BF16;
        t.batch = 64;
        t.seq = t.hyper.max_position_embeddings = 2048;
        t.hyper.hidden_size = 24;
    }
    *w = (world){0};
    return sk_trial_compile(&w->arena, &t, &w->graph, &w->p, &w->n);
}

/* --- tools --- */

static void lose(sk_program *p, int pc)
{
    memmove(&p->insts.v[pc], &p->insts.v[pc + 1],
            sizeof *p->insts.v * (size_t)(p->insts.n - pc - 1));
    p->insts.n--;
    if (pc < p->n_train) p->n_train--;
}

static void copy_after(sk_program *p, int pc)
{
    sk_inst in = p->insts.v[pc];
    (void)sk_push(p->arena, &p->insts);
    memmove(&p->insts.v[pc + 1], &p->insts.v[pc],
            sizeof *p->insts.v * (size_t)(p->insts.n - pc - 1));
    p->insts.v[pc] = in;
    if (pc < p->n_train) p->n_train++;
}

static void swap(sk_program *p, int a, int b)
{
    sk_inst keep = p->insts.v[a];
    p->insts.v[a] = p->insts.v[b];
    p->insts.v[b] = keep;
}

/* A random instruction of this kind, or -1. */
static int find(const sk_program *p, sk_act act)
{
    int from = pick(p->insts.n);
    for (int i = 0; i < p->insts.n; i++) {
        int pc = (from + i) % p->insts.n;
        if (p->insts.v[pc].act == act) return pc;
    }
    return -1;
}

static sk_group *group_of(const sk_program *p, int pc)
{
    return &p->groups[p->calls.v[p->insts.v[pc].call].group];
}

/* A random start of a call among several ranks, or -1. */
static int find_call(const sk_program *p)
{
    for (int i = 0; i < 50; i++) {
        int pc = find(p, SK_DO_START);
        if (pc >= 0 && group_of(p, pc)->n > 1) return pc;
    }
    return -1;
}

static int root(const sk_program *p, int buf)
{
    while (p->bufs.v[buf].within >= 0) buf = p->bufs.v[buf].within;
    return buf;
}

static bool reads(const sk_program *p, const sk_inst *in, int buf)
{
    for (int i = 0; i < SK_MAX_OPERANDS; i++)
        if (in->in[i] >= 0 && root(p, in->in[i]) == buf) return true;
    for (int o = 0; o < SK_MAX_OUT; o++)
        if (in->add >> o & 1 && in->out[o] == buf) return true;
    const sk_call_plan *c = in->act == SK_DO_START ? &p->calls.v[in->call] : NULL;
    for (int s = 0; c && s < c->n_segs; s++)
        if (root(p, c->segs[s].src) == buf) return true;
    return false;
}

static bool writes(const sk_program *p, const sk_inst *in, int buf)
{
    for (int o = 0; o < SK_MAX_OUT; o++)
        if (in->out[o] >= 0 && p->bufs.v[in->out[o]].bytes && root(p, in->out[o]) == buf)
            return true;
    const sk_call_plan *c = in->act == SK_DO_WAIT ? &p->calls.v[in->call] : NULL;
    for (int s = 0; c && s < c->n_segs; s++)
        if (root(p, c->segs[s].dst) == buf) return true;
    return false;
}

/* --- mutations: true if something was broken --- */

static bool same_calls(const sk_call_plan *a, const sk_call_plan *b)
{
    bool same = a->kind == b->kind && a->n_segs == b->n_segs && !strcmp(a->what, b->what);
    for (int s = 0; same && s < a->n_segs; s++) same = a->segs[s].n == b->segs[s].n;
    return same;
}

static bool swap_calls(sk_program *p)
{
    int a = find_call(p);
    for (int b = a + 1; a >= 0 && b < p->insts.n; b++) {
        if ((a < p->n_train) != (b < p->n_train) || p->insts.v[b].act != SK_DO_START) continue;
        int x = p->insts.v[a].call, y = p->insts.v[b].call;
        if (p->calls.v[x].group != p->calls.v[y].group) continue;
        if (same_calls(&p->calls.v[x], &p->calls.v[y])) return false;
        for (int i = 0; i < p->insts.n; i++)
            if (p->insts.v[i].call == x) p->insts.v[i].call = y;
            else if (p->insts.v[i].call == y) p->insts.v[i].call = x;
        return true;
    }
    return false;
}

static bool lose_act(sk_program *p, sk_act act)
{
    int pc = find(p, act);
    if (pc >= 0) lose(p, pc);
    return pc >= 0;
}

static bool lose_recv(sk_program *p) { return lose_act(p, SK_DO_RECV); }
static bool lose_send(sk_program *p) { return lose_act(p, SK_DO_SEND); }
static bool lose_wait(sk_program *p) { return lose_act(p, SK_DO_WAIT); }
static bool lose_start(sk_program *p) { return lose_act(p, SK_DO_START); }
static bool lose_update(sk_program *p) { return lose_act(p, SK_DO_UPDATE); }
static bool lose_average(sk_program *p) { return lose_act(p, SK_DO_AVERAGE); }
static bool lose_stats(sk_program *p) { return lose_act(p, SK_DO_STATS); }
static bool lose_encode(sk_program *p) { return lose_act(p, SK_DO_ENCODE); }
static bool lose_decode(sk_program *p) { return lose_act(p, SK_DO_DECODE); }
static bool lose_products(sk_program *p) { return lose_act(p, SK_DO_PRODUCTS); }
static bool lose_adasum(sk_program *p) { return lose_act(p, SK_DO_ADASUM); }
static bool lose_op(sk_program *p) { return lose_act(p, SK_DO_OP); }

/* The last wait of a section for what went to a rank: an earlier one may be made good by it. */
static bool lose_sent(sk_program *p)
{
    int pc = find(p, SK_DO_SENT), end = pc < p->n_train ? p->n_train : p->insts.n;
    for (int k = pc + 1; pc >= 0 && k < end; k++)
        if (p->insts.v[k].act == SK_DO_SENT && p->insts.v[k].peer == p->insts.v[pc].peer) pc = k;
    if (pc >= 0) lose(p, pc);
    return pc >= 0;
}

static bool twice(sk_program *p, sk_act act)
{
    int pc = find(p, act);
    if (pc >= 0) copy_after(p, pc);
    return pc >= 0;
}

static bool update_twice(sk_program *p) { return twice(p, SK_DO_UPDATE); }
static bool average_twice(sk_program *p) { return twice(p, SK_DO_AVERAGE); }
static bool decode_twice(sk_program *p) { return twice(p, SK_DO_DECODE); }
static bool adasum_twice(sk_program *p) { return twice(p, SK_DO_ADASUM); }
static bool op_twice(sk_program *p) { return twice(p, SK_DO_OP); }

/* Before the updates: the instruction at the end of the step goes to the first of them. */
static bool average_early(sk_program *p)
{
    int update = -1, pc = find(p, SK_DO_AVERAGE);
    for (int i = 0; i < p->n_train && update < 0 && pc >= 0; i++)
        if (p->insts.v[i].act == SK_DO_UPDATE && p->insts.v[i].param == p->insts.v[pc].param)
            update = i;
    if (update < 0) return false;
    sk_inst in = p->insts.v[pc];
    memmove(&p->insts.v[update + 1], &p->insts.v[update], sizeof in * (size_t)(pc - update));
    p->insts.v[update] = in;
    return true;
}

/* Validation reads the weights of the training step. */
static bool average_unread(sk_program *p)
{
    for (int pc = p->n_train; pc < p->insts.n; pc++)
        for (int i = 0; p->insts.v[pc].act == SK_DO_OP && i < SK_MAX_OPERANDS; i++)
            for (int k = 0; k < p->params.n; k++) {
                const sk_param_plan *q = &p->params.v[k];
                int buf = p->insts.v[pc].in[i];
                if (q->ema < 0 || buf < 0 || p->bufs.v[buf].tensor != q->tensor) continue;
                if (p->bufs.v[buf].bytes != p->bufs.v[q->stored].bytes) continue;
                p->insts.v[pc].in[i] = q->stored;
                return true;
            }
    return false;
}

static bool gathers_lazy(const sk_program *p, const sk_inst *in)
{
    if (in->act != SK_DO_START && in->act != SK_DO_WAIT) return false;
    for (int k = 0; k < p->params.n; k++)
        if (p->params.v[k].lazy && p->calls.v[in->call].segs[0].dst == p->params.v[k].stored)
            return true;
    return false;
}

/* Kernels of this rank read what the last update of other ranks has left in its memory. */
static bool gather_lost(sk_program *p)
{
    for (int pc = 0; pc < p->n_train; pc++) {
        int call = p->insts.v[pc].call;
        if (!gathers_lazy(p, &p->insts.v[pc])) continue;
        while (p->insts.v[pc].act != SK_DO_WAIT || p->insts.v[pc].call != call) pc++;
        lose(p, pc);
        while (p->insts.v[pc].act != SK_DO_START || p->insts.v[pc].call != call) pc--;
        lose(p, pc);
        return true;
    }
    return false;
}

static bool wrong_group(sk_program *p)
{
    int pc = find_call(p);
    if (pc < 0) return false;
    int *g = &p->calls.v[p->insts.v[pc].call].group;
    *g = (*g + 1 + pick(p->n_groups)) % (p->n_groups + 1); /* the last does not exist */
    return true;
}

static bool wrong_members(sk_program *p)
{
    int pc = find_call(p);
    if (pc < 0) return false;
    sk_group *g = group_of(p, pc);
    int *ranks = sk_many(p->arena, int, g->n);
    memcpy(ranks, g->ranks, sizeof(int) * (size_t)g->n);
    int i = (g->me + 1) % g->n;
    ranks[i] = (ranks[i] + 1) % p->n_ranks;
    g->ranks = ranks;
    return ranks[i] != p->rank || g->n > 1;
}

static bool wrong_segment(sk_program *p)
{
    int pc = find_call(p);
    if (pc < 0) return false;
    sk_call_plan *c = &p->calls.v[p->insts.v[pc].call];
    c->segs[pick(c->n_segs)].n += pick(2) ? 1 : -1;
    return true;
}

static bool wrong_kind(sk_program *p)
{
    int pc = find_call(p);
    if (pc < 0) return false;
    sk_call_plan *c = &p->calls.v[p->insts.v[pc].call];
    switch (pick(3)) {
    case 0:
        c->kind = (sk_coll_kind)((int)(c->kind + 1) % 3);
        return true;
    case 1:
        c->reduce = c->reduce == SK_SUM ? SK_MAXIMUM : SK_SUM;
        return true;
    default:
        c->type = c->type == SK_F32 ? SK_I32 : SK_F32;
        return true;
    }
}

static bool wrong_tag(sk_program *p)
{
    int pc = find(p, pick(2) ? SK_DO_SEND : SK_DO_RECV);
    if (pc >= 0) p->insts.v[pc].tag++;
    return pc >= 0;
}

static bool wrong_bytes(sk_program *p)
{
    int pc = find(p, SK_DO_RECV);
    if (pc < 0 || !p->bufs.v[p->insts.v[pc].out[0]].bytes) return false;
    p->bufs.v[p->insts.v[pc].out[0]].bytes -= 4;
    return true;
}

static bool wrong_peer(sk_program *p)
{
    int pc = find(p, pick(2) ? SK_DO_SEND : SK_DO_RECV);
    if (pc < 0) return false;
    p->insts.v[pc].peer = pick(2) ? (p->insts.v[pc].peer + 1) % p->n_ranks : p->n_ranks;
    return true;
}

static int some_buffer(const sk_program *p, bool transient)
{
    for (int i = 0; i < 100; i++) {
        int b = pick(p->bufs.n);
        const sk_buffer *x = &p->bufs.v[b];
        if (x->bytes && x->within < 0 && x->first >= 0 && !(transient && x->keep)) return b;
    }
    return -1;
}

static bool onto_live(sk_program *p)
{
    for (int i = 0; i < 100; i++) {
        int a = some_buffer(p, true), b = some_buffer(p, false);
        if (a < 0 || b < 0 || a == b) continue;
        sk_buffer *x = &p->bufs.v[a], *y = &p->bufs.v[b];
        if (!y->keep && (y->first >= x->last || x->first >= y->last)) continue;
        x->offset = y->offset;
        return true;
    }
    return false;
}

static bool off_heap(sk_program *p)
{
    int b = some_buffer(p, false);
    if (b < 0) return false;
    p->bufs.v[b].offset = pick(2) ? p->heap_bytes - p->bufs.v[b].bytes + 4 : -64;
    return true;
}

static bool part_astray(sk_program *p)
{
    for (int i = 0; i < p->bufs.n; i++) {
        sk_buffer *b = &p->bufs.v[i];
        if (b->within < 0 || !b->bytes) continue;
        b->offset += p->bufs.v[b->within].bytes;
        return true;
    }
    return false;
}

static bool table_astray(sk_program *p)
{
    int pc = find(p, SK_DO_START), b = some_buffer(p, false);
    if (pc < 0 || b < 0) return false;
    p->calls.v[p->insts.v[pc].call].table_at = pick(2) ? p->bufs.v[b].offset : p->heap_bytes - 8;
    return true;
}

/* The instruction that first writes a buffer which is read later. */
static bool lose_writer(sk_program *p)
{
    int b = some_buffer(p, false), first = -1, read = -1;
    if (b < 0 || (p->bufs.v[b].keep && (p->bufs.v[b].zero || p->bufs.v[b].kind == SK_WEIGHTS ||
                                        p->bufs.v[b].kind == SK_OPTIM)))
        return false;
    for (int pc = 0; pc < p->insts.n && first < 0; pc++)
        if (writes(p, &p->insts.v[pc], b)) first = pc;
    int end = first < p->n_train ? p->n_train : p->insts.n;
    for (int pc = first + 1; first >= 0 && pc < end && read < 0; pc++)
        if (reads(p, &p->insts.v[pc], b)) read = pc;
    bool counted = false;
    for (int w = 0; w < SK_N_SUMS; w++)
        counted |= p->sums[w].counts && p->sums[w].n && p->sums[w].buf[0] == b;
    if (first < 0 || (read < 0 && !counted)) return false;
    lose(p, first);
    return true;
}

/* A call that starts before its operand is complete. */
static bool start_early(sk_program *p)
{
    int pc = find_call(p);
    for (int k = pc - 1; pc >= 0 && k >= 0; k--) {
        const sk_call_plan *c = &p->calls.v[p->insts.v[pc].call];
        for (int s = 0; s < c->n_segs; s++)
            if (writes(p, &p->insts.v[k], root(p, c->segs[s].src))) {
                for (int i = pc; i > k; i--) swap(p, i, i - 1);
                return true;
            }
    }
    return false;
}

/* A result of a call that is read before it is there. */
static bool wait_late(sk_program *p)
{
    int pc = find(p, SK_DO_WAIT);
    if (pc < 0) return false;
    const sk_call_plan *c = &p->calls.v[p->insts.v[pc].call];
    int end = pc < p->n_train ? p->n_train : p->insts.n;
    for (int k = pc + 1; k < end; k++)
        for (int s = 0; s < c->n_segs; s++)
            if (c->segs[s].n && reads(p, &p->insts.v[k], root(p, c->segs[s].dst))) {
                for (int i = pc; i < k; i++) swap(p, i, i + 1);
                return true;
            }
    return false;
}

/* --- memories --- */

static bool lose_copy(sk_program *p) { return lose_act(p, SK_DO_COPY); }
static bool lose_copied(sk_program *p) { return lose_act(p, SK_DO_COPIED); }

/* A copy that is read before it is there. */
static bool copied_late(sk_program *p)
{
    int pc = find(p, SK_DO_COPIED);
    int end = pc < p->n_train ? p->n_train : p->insts.n;
    for (int k = pc + 1; pc >= 0 && k < end; k++)
        if (reads(p, &p->insts.v[k], root(p, p->insts.v[pc].out[0]))) {
            for (int i = pc; i < k; i++) swap(p, i, i + 1);
            return true;
        }
    return false;
}

/* What goes home before it is complete. */
static bool copy_early(sk_program *p)
{
    int pc = find(p, SK_DO_COPY);
    for (int k = pc - 1; k >= 0; k--) {
        const sk_inst *in = &p->insts.v[k];
        if (in->copy >= 0 || !writes(p, in, root(p, p->insts.v[pc].in[0]))) continue;
        for (int i = pc; i > k; i--) swap(p, i, i - 1);
        return true;
    }
    return false;
}

/* An operation on what lies in another memory. */
static bool wrong_memory(sk_program *p)
{
    int op = find(p, SK_DO_OP), from = pick(p->bufs.n);
    for (int i = 0; op >= 0 && i < p->bufs.n; i++) {
        int b = (from + i) % p->bufs.n;
        if (!p->bufs.v[b].placement || !p->bufs.v[b].keep || p->bufs.v[b].kind != SK_WEIGHTS)
            continue;
        p->insts.v[op].in[0] = b;
        return true;
    }
    return false;
}

static bool other_copy(sk_program *p)
{
    int a = find(p, SK_DO_COPIED), b = find(p, SK_DO_COPIED);
    if (a < 0 || p->insts.v[a].copy == p->insts.v[b].copy) return false;
    p->insts.v[a].copy = p->insts.v[b].copy;
    return true;
}

/* --- parts of a node --- */

/* A random operation that is neither the first nor the last part of its node, or -1. */
static int middle_part(const sk_program *p)
{
    for (int i = 0; i < 500; i++) {
        int pc = pick(p->insts.n);
        const sk_inst *in = &p->insts.v[pc];
        if (in->act == SK_DO_OP && in->part && in->part + 1 < in->parts) return pc;
    }
    return -1;
}

static bool lose_part(sk_program *p)
{
    int pc = middle_part(p);
    if (pc >= 0) lose(p, pc);
    return pc >= 0;
}

/* A part writes what the part before it writes. */
static bool wrong_part(sk_program *p)
{
    int pc = middle_part(p), *out = pc < 0 ? NULL : &p->insts.v[pc].out[0];
    if (!out || p->bufs.v[*out].within < 0) return false;
    --*out;
    return true;
}

/* --- weights that ranks have in common --- */

static int some_common(const sk_program *p)
{
    for (int i = 0; p->shared_bytes && i < 100; i++) {
        int q = pick(p->params.n);
        if (p->bufs.v[p->params.v[q].shard].bytes) return q;
    }
    return -1;
}

static bool other_piece(sk_program *p)
{
    int q = some_common(p);
    if (q < 0) return false;
    sk_buffer *piece = &p->bufs.v[p->params.v[q].shard];
    const sk_buffer *whole = &p->bufs.v[p->params.v[q].stored];
    if (piece->offset > whole->offset) piece->offset -= 4;
    else piece->bytes += piece->bytes < whole->bytes ? 4 : -4;
    return true;
}

static bool whole_updated(sk_program *p)
{
    int pc = p->shared_bytes ? find(p, SK_DO_UPDATE) : -1;
    if (pc < 0) return false;
    p->insts.v[pc].out[0] = p->params.v[p->insts.v[pc].param].stored;
    return true;
}

static bool common_moved(sk_program *p)
{
    int q = some_common(p);
    if (q < 0) return false;
    sk_buffer *whole = &p->bufs.v[p->params.v[q].stored];
    switch (pick(3)) {
    case 0:
        p->shared_bytes += 4096;
        return true;
    case 1:
        whole->common = false;
        return true;
    default:
        whole->offset += 4;
        p->bufs.v[p->params.v[q].shard].offset += 4;
        return true;
    }
}

static bool other_owner(sk_program *p)
{
    if (!p->shared_bytes || p->shares_with == p->rank) return false;
    p->shares_with = pick(2) ? p->n_ranks : (p->shares_with + 1) % p->n_ranks;
    return p->shares_with != p->rank;
}

static bool gather_copies(sk_program *p)
{
    for (int i = 0; i < p->calls.n; i++)
        if (p->calls.v[i].common) return !(p->calls.v[i].common = false);
    return false;
}

/* The last operation that reads these weights before the instruction, or -1. */
static int last_read(const sk_program *p, int buf, int before)
{
    int read = -1;
    for (int pc = 0; pc < before; pc++)
        if (p->insts.v[pc].act == SK_DO_OP && reads(p, &p->insts.v[pc], buf)) read = pc;
    return read;
}

/* Moved right behind the update of what it reads, or the update right behind it. */
static bool together(sk_program *p, bool update_moves)
{
    int update = p->shared_bytes ? find(p, SK_DO_UPDATE) : -1;
    if (update < 0) return false;
    int read = last_read(p, p->params.v[p->insts.v[update].param].stored, update);
    for (int i = read; !update_moves && read >= 0 && i < update; i++) swap(p, i, i + 1);
    for (int i = update; update_moves && read >= 0 && i > read + 1; i--) swap(p, i, i - 1);
    return read >= 0;
}

static bool read_late(sk_program *p) { return together(p, false); }
static bool update_early(sk_program *p) { return together(p, true); }

static bool decode_more(sk_program *p)
{
    int pc = find(p, SK_DO_DECODE);
    if (pc < 0 || !p->bufs.v[p->insts.v[pc].in[0]].bytes) return false;
    p->insts.v[pc].pieces++;
    return true;
}

static bool join_more(sk_program *p)
{
    int pc = find(p, pick(2) ? SK_DO_PRODUCTS : SK_DO_ADASUM);
    if (pc >= 0) p->insts.v[pc].pieces++;
    return pc >= 0;
}

static bool other_codec(sk_program *p)
{
    int pc = find(p, pick(2) ? SK_DO_ENCODE : SK_DO_DECODE);
    if (pc < 0 || !p->bufs.v[p->insts.v[pc].in[0]].bytes) return false;
    p->insts.v[pc].codec = sk_codec_find("f16");
    return true;
}

/* A launch that has a workspace of its own, or NULL. */
static sk_inst *own_workspace(sk_program *p)
{
    int n = 0, at;
    for (int pc = 0; pc < p->insts.n; pc++) n += p->insts.v[pc].workspace >= 0;
    at = pick(n);
    for (int pc = 0; pc < p->insts.n; pc++)
        if (p->insts.v[pc].workspace >= 0 && !at--) return &p->insts.v[pc];
    return NULL;
}

static bool small_workspace(sk_program *p)
{
    const sk_inst *in = own_workspace(p);
    if (in) p->bufs.v[in->workspace].bytes -= 1 + pick(100000);
    return in != NULL;
}

static bool lose_workspace(sk_program *p)
{
    sk_inst *in = own_workspace(p);
    if (in) in->workspace = -1;
    return in != NULL;
}

static sk_launch_plan *launch(sk_program *p, bool fused)
{
    int n = 0;
    for (int i = 0; i < p->launches.n; i++) n += (p->launches.v[i].by != NULL) == fused;
    n = n ? pick(n) : -1;
    for (int i = 0; i < p->launches.n; i++)
        if ((p->launches.v[i].by != NULL) == fused && !n--) return &p->launches.v[i];
    return NULL;
}

static bool launch_other(sk_program *p)
{
    sk_launch_plan *l = launch(p, true);
    int pc = find(p, SK_DO_OP);
    if (!l || pc < 0 || p->launch_of[pc] == p->launch_of[l->at]) return false;
    l->pcs[0] = pc;
    return true;
}

/* Its result is read by others, and would not be written. */
static bool launch_silent(sk_program *p)
{
    sk_launch_plan *l = launch(p, true);
    if (!l || l->silent[l->n - 1] & 1) return false;
    l->silent[l->n - 1] |= 1;
    return true;
}

static bool launch_more_updates(sk_program *p)
{
    sk_launch_plan *l = launch(p, false);
    if (l) l->n++;
    return l != NULL;
}

/* --- instructions of some updates --- */

static bool call_seldom(sk_program *p) /* other ranks make it as often as before */
{
    int pc = find_call(p);
    if (pc < 0 || pc >= p->n_train) return false;
    for (int i = 0; i < p->n_train; i++)
        if (p->insts.v[i].call == p->insts.v[pc].call) p->insts.v[i].every += 3;
    return true;
}

static bool wait_seldom(sk_program *p)
{
    int pc = find(p, SK_DO_WAIT);
    if (pc < 0 || pc >= p->n_train) return false;
    p->insts.v[pc].every += 3;
    return true;
}

/* A random operation of a training step: of the model's forward pass, or of every second update and
 * none of the graph's. */
static sk_inst *find_op(const sk_program *p, bool of_model)
{
    int from = pick(p->n_train);
    for (int i = 0; i < p->n_train; i++) {
        sk_inst *in = &p->insts.v[(from + i) % p->n_train];
        bool model = in->act == SK_DO_OP && in->node->id != SK_NO_NODE;
        if (of_model ? model && in->phase == SK_FORWARD
                     : in->act == SK_DO_OP && !model && in->every == 2)
            return in;
    }
    return NULL;
}

static bool op_seldom(sk_program *p)
{
    sk_inst *in = find_op(p, true);
    if (in) in->every = 2;
    return in != NULL;
}

static bool op_often(sk_program *p)
{
    sk_inst *in = find_op(p, false);
    if (in) in->every = 0;
    return in != NULL;
}

static const struct {
    const char *name;
    bool (*apply)(sk_program *p);
} kinds[] = {
    {"a launch with an instruction of another", launch_other},
    {"a launch that does not write what others read", launch_silent},
    {"a launch with one update more", launch_more_updates},
    {"two calls swapped", swap_calls},
    {"a receive lost", lose_recv},
    {"a send lost", lose_send},
    {"a wait for arrival lost", lose_sent},
    {"a wait lost", lose_wait},
    {"a start lost", lose_start},
    {"an update lost", lose_update},
    {"the sums lost", lose_stats},
    {"an encoding lost", lose_encode},
    {"a decoding lost", lose_decode},
    {"a decoding made twice", decode_twice},
    {"products lost", lose_products},
    {"a join of gradients lost", lose_adasum},
    {"a join of gradients made twice", adasum_twice},
    {"a join of more gradients", join_more},
    {"one piece more decoded", decode_more},
    {"another codec", other_codec},
    {"an update made twice", update_twice},
    {"an average lost", lose_average},
    {"an average made twice", average_twice},
    {"an average before its update", average_early},
    {"weights validated instead of their average", average_unread},
    {"a gather of updated weights lost", gather_lost},
    {"an operation lost", lose_op},
    {"an operation made twice", op_twice},
    {"a call on another group", wrong_group},
    {"a group with other members", wrong_members},
    {"a segment of another size", wrong_segment},
    {"a call of another kind", wrong_kind},
    {"a launch with too little workspace", small_workspace},
    {"the workspace of a launch lost", lose_workspace},
    {"another tag", wrong_tag},
    {"a message of another size", wrong_bytes},
    {"a message with another rank", wrong_peer},
    {"a buffer moved onto a live one", onto_live},
    {"a buffer outside the heap", off_heap},
    {"a part outside its buffer", part_astray},
    {"a table that overlaps", table_astray},
    {"the first writer of a buffer lost", lose_writer},
    {"a call started before its operand is written", start_early},
    {"a result read before its call ended", wait_late},
    {"a copy lost", lose_copy},
    {"a wait for a copy lost", lose_copied},
    {"a copy read before it is there", copied_late},
    {"a copy begun before its source is written", copy_early},
    {"an operation on another memory", wrong_memory},
    {"a wait for another copy", other_copy},
    {"a part lost", lose_part},
    {"a part that writes another one's rows", wrong_part},
    {"a piece of common weights that is not its own", other_piece},
    {"an update of all common weights", whole_updated},
    {"common weights in another place", common_moved},
    {"common weights of another rank", other_owner},
    {"a gather of common weights that copies", gather_copies},
    {"common weights read after their update", read_late},
    {"an update of common weights that waits for nobody", update_early},
    {"a call in fewer updates than others make it", call_seldom},
    {"a call that is waited for in other updates", wait_seldom},
    {"an operation in fewer updates than its readers", op_seldom},
    {"an operation in more updates than its operands", op_often},
};
enum { N_KINDS = sizeof kinds / sizeof *kinds, N_LAUNCHES = 3 /* these come first */ };

/* Found by P9 too, which comes last. */
static bool by_p9(int kind)
{
    bool (*apply)(sk_program * p) = kinds[kind].apply;
    return apply == whole_updated || apply == read_late || apply == update_early;
}

/* Found by P1 too, which comes first. */
static bool by_p5(int kind) { return kinds[kind].apply == gather_lost; }

/* Another rank of the same class, or -1. */
static int like(const world *w, int r)
{
    int class_of[64];
    const sk_program *p = w->p[0];
    if (sk_classes(p->plan, class_of) < 0) return -1;
    for (int i = 1; i < w->n; i++)
        if (class_of[(r + i) % w->n] == class_of[r]) return (r + i) % w->n;
    return -1;
}

/* Is a rank that was taken for another of its class found out, if its own program is broken? */
static bool unmasked(const world *w, int r)
{
    int other = like(w, r);
    if (other < 0) return true;
    n_classed++;
    if (sk_verify_rank(w->p[r], w->p[other]) == SK_EBUG) return true;
    printf("taken for rank %d: ", other);
    return false;
}

enum { N_PROOFS = 11 }; /* P1 to P11 */
static bool refused_by[N_PROOFS + 1];

static int never_refused(void)
{
    int n = 0;
    for (int i = 1; i <= N_PROOFS; i++) n += !refused_by[i];
    return n;
}

/* Breaks one thing; returns 1 if it was found, 0 if missed, -1 if this case has no such thing. */
static int mutant(int kind, int which)
{
    world w;
    if (compile(&w, which)) printf("%s: %s\n", cases[which].layout, sk_error()), exit(1);
    int r = pick(w.n), found = -1;
    if (kind >= N_LAUNCHES) w.p[r]->launches.n = 0; /* their numbers are of the list as it was */
    if (kinds[kind].apply(w.p[r])) {
        bool seen = !by_p9(kind) || sk_verify_shared(w.p[r]) == SK_EBUG;
        seen &= !by_p5(kind) ||
                (sk_verify_one(w.p[r]) == SK_EBUG && !strncmp(sk_error_line(), "P5:", 3));
        seen &= unmasked(&w, r);
        sk_status st = sk_verify((const sk_program *const *)w.p, w.n);
        found = seen && st == SK_EBUG && sk_error_line()[0] == 'P';
        int proof = found ? atoi(sk_error_line() + 1) : 0;
        if (proof <= N_PROOFS) refused_by[proof] = true;
        if (!found)
            printf("missed: %s on rank %d of %s \"%s\" (status %d)\n", kinds[kind].name, r,
                   cases[which].model, cases[which].layout, (int)st);
        else if (getenv("SKEIN_SHOW")) printf("%s: %s\n", kinds[kind].name, sk_error_line());
    }
    sk_arena_end(&w.arena);
    return found;
}

int main(int argc, char **argv)
{
    int want = argc > 2 ? atoi(argv[2]) : 200, made = 0, missed = 0;
    seed = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
    for (int i = 0; i < N_CASES; i++) {
        world w;
        if (compile(&w, i)) {
            printf("not accepted: %s \"%s\": %s\n", cases[i].model, cases[i].layout, sk_error());
            return 1;
        }
        sk_arena_end(&w.arena);
    }
    /* Some are rare (a deadlock: P3), so there are more until each was broken once. */
    for (int i = 0, tries = 0; (made < want || never_refused()) && tries < 100 * want; tries++) {
        int found = mutant(i % N_KINDS, pick(N_CASES));
        if (found < 0) continue;
        made++, i++;
        missed += !found;
    }
    printf("verify: %d programs, %d mutants, %d of them also as one of a class, %d missed\n",
           N_CASES, made, n_classed, missed);
    for (int i = 1; i <= N_PROOFS; i++)
        if (!refused_by[i]) printf("no mutant breaks P%d\n", i);
    return missed != 0 || made < want || !n_classed || never_refused();
}
