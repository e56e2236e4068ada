/* launches.c - the pass that decides which instructions a GPU executes in one launch.
 *
 * It needs no GPU: the proof that instructions may be fused compares offsets in the heap, so the
 * pass runs after the memory plan.  In deterministic order nothing is fused: what can be fused
 * depends on the layout, and so would the bits of the results. */
#include "program/acts.h"
#include "program/lowering.h"
#include "program/fuse.h"

#include <stdint.h>

/* --- consecutive updates --- */

static bool is_update(const sk_program *p, const sk_inst *in)
{
    return (in->act == SK_DO_UPDATE || in->act == SK_DO_AHEAD) &&
           sk_inst_memory(p, in) == SK_DEVICE;
}

typedef struct types {
    sk_dtype grad, narrow, state;
} types;

static types types_of(const sk_program *p, const sk_inst *in)
{
    const sk_param_plan *q = &p->params.v[in->param];
    bool last = in->act == SK_DO_UPDATE && q->master >= 0 && sk_last_pass(p, in);
    types t = {p->bufs.v[in->in[0]].type, last ? p->bufs.v[in->out[0]].type : SK_F32, SK_F32};
    if (q->n_state) t.state = p->bufs.v[in->in[2 + q->n_state - 1]].type;
    if (t.state == SK_U8 && !p->layout.canonical) /* small tensors are f32 among those of 8 bits;
                                                     in deterministic order by their own kernel */
        t.state = SK_F32;
    return t;
}

/* May this update be in the launch of the one before? */
static bool goes_with(const sk_program *p, const sk_inst *a, const sk_inst *b)
{
    if (b->act != a->act || a->pass != b->pass || a->update != b->update || !is_update(p, b))
        return false;
    const sk_param_plan *q = &p->params.v[a->param], *r = &p->params.v[b->param];
    types x = types_of(p, a), y = types_of(p, b);
    bool bias = q->tensor->bias_update != 0 || r->tensor->bias_update != 0;
    if (q->group != r->group) return false; /* other numbers, and maybe another optimizer */
    return x.grad == y.grad && x.narrow == y.narrow && (x.state == y.state || bias);
}

/* How many updates from pc on are one launch. */
static int updates_at(const sk_program *p, int pc, int to)
{
    int n = 0;
    if (!is_update(p, &p->insts.v[pc])) return 0;
    do n++;
    while (pc + n < to && goes_with(p, &p->insts.v[pc], &p->insts.v[pc + n]));
    return n;
}

static void join_updates(sk_program *p, int from, int to)
{
    for (int pc = from, n; pc < to; pc += n ? n : 1) {
        n = updates_at(p, pc, to);
        if (n < 2) continue;
        *sk_push(p->arena, &p->launches) = (sk_launch_plan){.at = pc, .n = n};
        for (int i = 0; i < n; i++) p->launch_of[pc + i] = p->launches.n;
    }
}

/* --- the pass --- */

/* Addresses are compared, never read: any base with the alignment of a device's will do. */
static sk_args *args_of(sk_arena *a, const sk_program *p)
{
    void *base = (void *)(uintptr_t)SK_WORKSPACE;
    sk_args *args = sk_many(a, sk_args, p->insts.n + 1);
    for (int pc = 0; pc < p->insts.n; pc++)
        if (p->insts.v[pc].act == SK_DO_OP) sk_inst_args(p, &p->insts.v[pc], base, &args[pc]);
    return args;
}

sk_status sk_join_launches(sk_lowering *e)
{
    sk_program *p = e->p;
    if (!p->gpu) return SK_OK;
    sk_args *args = args_of(e->tmp, p);
    p->launch_of = sk_many(p->arena, int, p->insts.n + 1);
    if (!p->layout.canonical) {
        sk_fuse_section(p, args, 0, p->n_train);
        sk_fuse_section(p, args, p->n_train, p->insts.n);
    }
    join_updates(p, 0, p->n_train);
    return SK_OK;
}

/* --- what a launch costs --- */

static bool listed(const int *v, int n, int x)
{
    for (int i = 0; i < n; i++)
        if (v[i] == x) return true;
    return false;
}

int64_t sk_ops_bytes(const sk_program *p, const int *pcs, const unsigned *silent, int n)
{
    int seen[SK_MOST_FUSED * (SK_MAX_OPERANDS + SK_MAX_OUT)], k = 0;
    int64_t sum = 0;
    for (int i = 0; i < n; i++) {
        const sk_inst *in = &p->insts.v[pcs[i]];
        for (int o = 0; o < SK_MAX_OUT && in->out[o] >= 0; o++) {
            bool quiet = silent && silent[i] >> o & 1;
            sum += quiet ? 0 : p->bufs.v[in->out[o]].bytes * (in->add >> o & 1 ? 2 : 1);
            seen[k++] = in->out[o];
        }
    }
    for (int i = 0; i < n; i++) {
        const sk_inst *in = &p->insts.v[pcs[i]];
        for (int j = 0; j < SK_MAX_OPERANDS && in->in[j] >= 0; j++) {
            if (listed(seen, k, in->in[j])) continue;
            sum += p->bufs.v[in->in[j]].bytes;
            seen[k++] = in->in[j];
        }
    }
    return sum;
}

int64_t sk_launch_bytes(const sk_program *p, const sk_launch_plan *l)
{
    int64_t sum = 0;
    if (l->by) return sk_ops_bytes(p, l->pcs, l->silent, l->n);
    for (int i = 0; i < l->n; i++) sum += sk_inst_bytes(p, &p->insts.v[l->at + i]);
    return sum;
}

double sk_launch_flops(const sk_program *p, const sk_launch_plan *l)
{
    double sum = 0;
    for (int i = 0; i < l->n; i++) sum += p->insts.v[l->by ? l->pcs[i] : l->at + i].flops;
    return sum;
}

/* --- P11 --- */

static bool updates_fit(const sk_program *p, const sk_launch_plan *l)
{
    int to = l->at < p->n_train ? p->n_train : p->insts.n;
    return l->at >= 0 && l->n > 1 && l->at + l->n <= to && updates_at(p, l->at, to) >= l->n;
}

static sk_status wrong(const sk_program *p, const sk_launch_plan *l)
{
    return sk_fail(SK_EBUG,
                   "P11: rank %d: the launch at instruction %d (%s) joins what may not be joined",
                   p->rank, l->at, l->by ? l->by->name : "updates");
}

sk_status sk_verify_launches(const sk_program *p)
{
    int bad = sk_fuse_unproved(p);
    if (bad >= 0) return wrong(p, &p->launches.v[bad]);
    for (int i = 0; i < p->launches.n; i++) {
        const sk_launch_plan *l = &p->launches.v[i];
        bool good = l->by || updates_fit(p, l);
        for (int k = 0; good && k < l->n; k++)
            good = p->launch_of[l->by ? l->pcs[k] : l->at + k] == i + 1;
        if (!good) return wrong(p, l);
    }
    return SK_OK;
}
