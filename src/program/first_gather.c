/* first_gather.c - the pass that serves later gathers of a weight from a second copy (ZeRO++, hpZ).
 *
 * `lower` gathers a sharded weight over all ranks of the shard axis wherever a layer of a task
 * reads it (call.param_set).  With a second copy, the first gather of a weight in a training step
 * leaves a part of the result on each rank of the small group that keeps the copy together
 * (program.near).  A later gather of the same weight reads these parts, and its call runs in the
 * small group alone.  What is encoded stays encoded in the copy: it is not encoded again.
 *
 * Of the weights of one set some may be gathered for the first time and others not.  The call of
 * the set is then split into two: calls over all ranks start first, those in the small group after
 * them.  A validation step does not keep copies. */
#include "coll/segment.h"
#include "program/lowering.h"

#include <string.h>

typedef struct gathers {
    sk_lowering *e;
    sk_program *p;
    int *copy;     /* by parameter: this rank's part of its second copy, or -1 */
    char *dropped; /* by buffer: encoded weights that nobody sends any more */
    struct {
        sk_inst *v;
        int n, cap;
    } later; /* starts in the small group, of the current set */
} gathers;

/* This rank's part of the second copy, taken where the gather ends. */
static void leave_part(gathers *x, int call, const sk_call_seg *s)
{
    const sk_group *near = &x->p->groups[x->p->near];
    const sk_buffer whole = x->p->bufs.v[s->dst];
    sk_extent box = whole.box;
    sk_grid grid = sk_box_grid(&box, 0);
    sk_rows mine = sk_cut_rows(box.size[0], &grid, near->me, near->n);
    box.at[0] += mine.at;
    box.size[0] = mine.n;
    const char *name = sk_print(x->p->arena, "%s.copy", whole.name);
    int copy = sk_lower_buffer(x->e, name, NULL, SK_WIRE, whole.type, box);
    x->copy[s->param - 1] = copy;
    sk_lower_then(x->e, call, (sk_then){.act = SK_DO_SLICE, .from = s->dst, .to = copy});
}

static void add_seg(gathers *x, int call, const sk_call_seg *s, const sk_call_plan *of)
{
    sk_lower_seg(x->e, call, s->src, s->dst, s->outer, s->n, s->inner);
    sk_call_plan *c = &x->p->calls.v[call];
    c->segs[c->n_segs - 1] = *s;
    for (int i = 0; i < of->n_then; i++)
        if (of->then[i].from == s->dst) sk_lower_then(x->e, call, of->then[i]);
}

/* A call like this one, without segments. */
static int like(gathers *x, const sk_call_plan *of, int group)
{
    int call = sk_lower_call(x->e, of->kind, of->reduce, of->type, group, of->what);
    x->p->calls.v[call].flies = of->flies;
    x->p->calls.v[call].param_set = of->param_set;
    return call;
}

/* Splits a call: the first gathers of the step stay, the others go to the small group. */
static void divide(gathers *x, const sk_inst *start, int *first, int *near)
{
    const sk_call_plan of = x->p->calls.v[start->call];
    *first = *near = -1;
    for (int i = 0; i < of.n_segs; i++) {
        sk_call_seg s = of.segs[i];
        sk_assert(s.param);
        bool again = x->copy[s.param - 1] >= 0;
        int *call = again ? near : first;
        if (*call < 0) *call = like(x, &of, again ? x->p->near : of.group);
        if (again) {
            if (x->p->bufs.v[s.src].type == SK_U8) x->dropped[s.src] = 1;
            s.src = x->copy[s.param - 1];
        }
        add_seg(x, *call, &s, &of);
        if (!again) leave_part(x, *call, &s);
    }
}

static void end_set(gathers *x)
{
    for (int i = 0; i < x->later.n; i++) *sk_push(x->e->tmp, &x->p->insts) = x->later.v[i];
    x->later.n = 0;
}

static void one_start(gathers *x, sk_inst in)
{
    int first, near;
    divide(x, &in, &first, &near);
    in.call = first;
    if (first >= 0) *sk_push(x->e->tmp, &x->p->insts) = in;
    in.call = near;
    if (near >= 0) *sk_push(x->e->tmp, &x->later) = in;
}

static int set_of(const sk_program *p, const sk_inst *in)
{
    return in->act == SK_DO_START ? p->calls.v[in->call].param_set : 0;
}

/* Encoding a weight whose copy is encoded already. */
static void drop_encoders(gathers *x)
{
    int kept = 0;
    for (int pc = 0; pc < x->p->insts.n; pc++) {
        const sk_inst *in = &x->p->insts.v[pc];
        if (in->act == SK_DO_ENCODE && x->dropped[in->out[0]]) continue;
        x->p->insts.v[kept++] = *in;
    }
    x->p->insts.n = kept;
}

sk_status sk_find_first_gathers(sk_lowering *e)
{
    sk_program *p = e->p;
    if (!p->near) return SK_OK;
    gathers x = {.e = e, .p = p};
    int n_insts = p->insts.n, n_train = p->n_train, set = 0;
    x.copy = sk_many(e->tmp, int, p->params.n + 1);
    memset(x.copy, -1, sizeof *x.copy * (size_t)p->params.n);
    x.dropped = sk_many(e->tmp, char, p->bufs.n + 1);
    sk_inst *old = sk_grow(e->tmp, NULL, 0, sizeof *old * (size_t)(n_insts + 1));
    memcpy(old, p->insts.v, sizeof *old * (size_t)n_insts);
    p->insts.n = 0;
    for (int pc = 0; pc < n_train; pc++) {
        if (set_of(p, &old[pc]) != set) end_set(&x);
        set = set_of(p, &old[pc]);
        if (set) one_start(&x, old[pc]);
        else *sk_push(e->tmp, &p->insts) = old[pc];
    }
    end_set(&x);
    drop_encoders(&x);
    p->n_train = p->insts.n;
    for (int pc = n_train; pc < n_insts; pc++) *sk_push(e->tmp, &p->insts) = old[pc];
    return SK_OK;
}
