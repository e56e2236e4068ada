/* print_plan.c - what the first passes have decided, as text: one line a node, with its chunk and
 * stage, the states of its results, and whether these are saved, and how. */
#include "base/strings.h"
#include "program/lowering.h"

static void print_fate(sk_out *o, const sk_lowering *e, const sk_tensor *t)
{
    if (e->plan.wide && e->plan.wide[t->id]) sk_out_add(o, ", in slices");
    if (e->plan.recomputed && e->plan.recomputed[t->id]) sk_out_add(o, ", recomputed");
    if (e->plan.cut_after && e->plan.cut_after[t->id]) sk_out_add(o, ", saved in pieces");
    if (e->plan.packs && e->plan.packs[t->id]) sk_out_add(o, ", saved in fewer bits");
}

static void print_node(sk_out *o, const sk_lowering *e, const sk_node *n, sk_arena *tmp)
{
    sk_out_add(o, "%5d %c chunk %d stage %d layer %d  %s", n->id,
               n->phase == SK_FORWARD ? 'F' : 'B', e->sp->chunk[n->id], e->sp->stage[n->id],
               n->layer, n->op->name);
    if (sk_is_clone(e, n)) sk_out_add(o, " (recompute)");
    if (e->plan.weight_half && e->plan.weight_half[n->id]) sk_out_add(o, " (weight half)");
    if (e->plan.region_of && e->plan.region_of[n->id])
        sk_out_add(o, " (region %d)", e->plan.region_of[n->id]);
    for (int i = 0; i < n->n_out; i++) {
        const sk_tensor *t = n->into[i] ? n->into[i] : n->out[i];
        const sk_state *s = &e->sp->node[n->id].out[i];
        sk_out_add(o, "%s %s%s \"%s\" %s", i ? ";" : " ->", n->into[i] ? "into " : "", t->name,
                   t->letters, sk_state_print(tmp, &e->l->mesh, t->letters, s));
        if (!n->into[i]) print_fate(o, e, t);
    }
    sk_out_add(o, "\n");
}

static void print_param(sk_out *o, const sk_lowering *e, const sk_param_plan *q, sk_arena *tmp)
{
    const sk_mesh *m = &e->l->mesh;
    sk_out_add(o, "param %s \"%s\" used %s", q->tensor->name, q->tensor->letters,
               sk_state_print(tmp, m, q->tensor->letters, &q->used));
    sk_out_add(o, ", updated %s%s\n", sk_state_print(tmp, m, q->tensor->letters, &q->update),
               q->owner ? ", owner" : "");
}

static void print_task(sk_out *o, const char *before, sk_task t)
{
    sk_out_add(o, "%s%c%d", before, "FBIWU"[t.work], t.chunk);
}

static void print_saved(sk_out *o, const sk_lowering *e, const sk_saved *r, sk_arena *tmp)
{
    sk_out_add(o, "saved %s \"%s\" %s, %s,", r->tensor->name, r->tensor->letters,
               sk_state_print(tmp, &e->l->mesh, r->tensor->letters, &r->state),
               sk_form_names[r->form]);
    print_task(o, " ", r->from);
    print_task(o, " -> ", r->to);
    sk_out_add(o, "\n");
}

/* In the order of a training step: "F0/1" is the forward pass of chunk 0, micro-batch 1. */
static void print_tasks(sk_out *o, int stage, const sk_tasks *t)
{
    if (!t->n) return;
    sk_out_add(o, "tasks of stage %d:", stage);
    for (int i = 0; i < t->n; i++) {
        print_task(o, " ", t->v[i]);
        sk_out_add(o, "/%d", t->v[i].micro);
    }
    sk_out_add(o, "\n");
}

static void print_codec(sk_out *o, const char *what, const sk_codec *c)
{
    if (c) sk_out_add(o, "%s are sent as %s\n", what, c->name);
}

char *sk_lower_print(const sk_lowering *e, sk_arena *a)
{
    sk_arena tmp = {0};
    sk_out o = {.arena = a};
    sk_out_add(&o, "rank %d of %d", e->p->rank, e->p->n_ranks);
    if (!e->sp->n_chunks) { /* before `propagate` */
        if (e->plan.schedule)
            sk_out_add(&o, ", stage %d, schedule %s", e->p->stage, e->plan.schedule->name);
        sk_out_add(&o, "\n");
        return o.s;
    }
    sk_out_add(&o, ", stage %d of %d, %d chunk%s, schedule %s\n", e->p->stage, e->sp->n_stages,
               e->sp->n_chunks, sk_plural(e->sp->n_chunks), e->plan.schedule->name);
    for (int i = 0; i < e->g->nodes.n; i++) print_node(&o, e, e->g->nodes.v[i], &tmp);
    for (int i = 0; i < e->plan.saved.n; i++) print_saved(&o, e, &e->plan.saved.v[i], &tmp);
    for (int i = 0; i < sk_n_grads(e->p); i++) print_param(&o, e, &e->p->params.v[i], &tmp);
    for (int s = 0; e->plan.tasks[true] && s < e->sp->n_stages; s++)
        print_tasks(&o, s, &e->plan.tasks[true][s]);
    print_codec(&o, "weights", e->plan.weights_as);
    print_codec(&o, "gradients", e->plan.grads_as);
    sk_arena_end(&tmp);
    return o.s;
}
