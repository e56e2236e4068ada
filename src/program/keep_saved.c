/* keep_saved.c - applies the saved set: after a task is written, tensors that no record names are
 * no longer available (saved.h). */
#include "program/lowering.h"

bool sk_is_saved_as(const sk_lowering *e, const sk_tensor *t, sk_form form)
{
    const sk_saved_set *all = &e->plan.saved;
    for (int i = all->first[t->id] - 1; i >= 0; i = all->v[i].next)
        if (all->v[i].form == form) return true;
    return false;
}

/* The place of a task among those of this stage, or -1. */
static int place_of(const sk_lowering *e, sk_task t, int micro)
{
    return e->task_at[(micro * e->sp->n_chunks + t.chunk) * SK_N_WORKS + (int)t.work] - 1;
}

static void index_tasks(sk_lowering *e)
{
    const sk_tasks *mine = &e->tasks[e->p->stage];
    e->task_at = sk_many(e->tmp, int, e->plan.n_listed * e->sp->n_chunks * SK_N_WORKS + 1);
    for (int i = 0; i < mine->n; i++) {
        sk_task t = mine->v[i];
        e->task_at[(t.micro * e->sp->n_chunks + t.chunk) * SK_N_WORKS + (int)t.work] = i + 1;
    }
}

/* The buffer that the record names; or the tensor as made, if overlap chunks of this micro-batch
 * brought it in another form or an empty shard was not packed. */
static void mark(sk_lowering *e, const sk_tensor *t, const sk_saved *r)
{
    sk_at_hand *hand = e->hand[t->id * e->plan.n_listed + e->at.micro], *h;
    sk_state now;
    bool packed = r->form == SK_SIGNS || r->form == SK_ZEROS;
    if (packed && e->packed[t->id * e->plan.n_listed + e->at.micro]) return;
    if (packed || sk_lower_find(e, t, &r->state) < 0) {
        int buf = sk_lower_source(e, t, &now);
        sk_assert(buf >= 0); /* what is read later is available */
    } else now = r->state;
    for (h = hand; !sk_state_equal(&h->state, &now);) h = h->next;
    h->saved = true;
}

/* Records from tasks that are written to tasks that are not. */
static void keep(sk_lowering *e, const sk_tensor *t)
{
    const sk_saved_set *all = &e->plan.saved;
    if (t->role == SK_PARAM || t->role == SK_MEMORY) return;
    sk_at_hand **at = &e->hand[t->id * e->plan.n_listed + e->at.micro];
    for (sk_at_hand *h = *at; h; h = h->next) h->saved = false;
    for (int i = all->first[t->id] - 1; i >= 0; i = all->v[i].next) {
        int from = place_of(e, all->v[i].from, e->at.micro);
        int to = place_of(e, all->v[i].to, e->at.micro);
        if (from >= 0 && from <= e->at.task && to > e->at.task) mark(e, t, &all->v[i]);
    }
    while (*at)
        if ((*at)->saved) at = &(*at)->next;
        else *at = (*at)->next;
}

void sk_keep_saved(sk_lowering *e, sk_task t)
{
    const sk_ints *nodes = &e->plan.of_chunk[2 * t.chunk + (t.work != SK_WORK_F)];
    if (!e->task_at) index_tasks(e);
    for (int i = 0; i < nodes->n; i++) {
        const sk_node *n = e->g->nodes.v[nodes->v[i]];
        for (int k = 0; k < n->n_in; k++) keep(e, n->in[k]);
        for (int o = 0; o < n->n_out; o++) keep(e, n->out[o]);
    }
}
