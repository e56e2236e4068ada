/* saved.c - which tensors tasks save for later tasks of the same micro-batch: see saved.h.
 *
 * The pass goes through the tasks of one micro-batch as lower.c will, with states instead of
 * buffers: the operands of a node are available, or they are loaded, received, unpacked, recomputed
 * and resharded to the state that it needs, in which they are available from then on.  If a node
 * reads what an earlier task saved, there is a record.  What overlap chunks gather before its first
 * reader is ignored here: the record is that of its source. */
#include "program/saved.h"
#include "program/lowering.h"

#include <string.h>

const char *const sk_form_names[SK_N_FORMS] = {"as made", "a shard", "signs", "without zeros",
                                               "gathered"};

typedef struct item { /* a tensor that is available in one state */
    sk_state state;
    int buf;   /* items with equal numbers are one buffer */
    int since; /* the task that made it available */
    sk_form form;
    struct item *next;
} item;

typedef struct walk {
    sk_lowering *e;
    sk_arena *tmp;
    item **hand;            /* tensor id -> */
    item **inside, **local; /* the same inside of a region; `local` is NULL outside of one */
    char *opened; /* tensor id -> a result of the current region that nodes outside read */
    int *packed;  /* tensor id -> 1 + the task that packed it */
    sk_task *tasks;
    int at, n_bufs;
} walk;

/* --- available tensors --- */

static item **hand_of(const walk *x, const sk_tensor *t)
{
    return x->local ? &x->local[t->id] : &x->hand[t->id];
}

static item *have(walk *x, const sk_tensor *t, const sk_state *s, int buf)
{
    item *h = sk_new(x->tmp, item), **list = hand_of(x, t);
    *h = (item){.state = *s, .buf = buf < 0 ? x->n_bufs++ : buf, .since = x->at, .next = *list};
    return *list = h;
}

static item *find(const walk *x, const sk_tensor *t, const sk_state *s)
{
    for (item *h = *hand_of(x, t); h; h = h->next)
        if (sk_state_equal(&h->state, s)) return h;
    return NULL;
}

static item *source(const walk *x, const sk_tensor *t)
{
    const sk_state *made = &x->e->sp->made[t->id];
    sk_state settled = sk_state_settled(made), piece;
    item *h = find(x, t, made);
    if (!h) h = find(x, t, &settled);
    for (item *i = h ? NULL : *hand_of(x, t); i && !h; i = i->next)
        if (sk_state_partly_settled(&i->state, made, x->e->l->mesh.n)) h = i;
    if (!h && sk_lower_piece_state(x->e, t, &piece)) h = find(x, t, &piece);
    return h;
}

/* As find_sums() of reshard.c. */
static item *source_with_sums(const walk *x, const sk_tensor *t, const sk_state *want)
{
    int n = x->e->l->mesh.n;
    item *h = source(x, t);
    if (!h || sk_state_has_sums(&h->state, want, n)) return h;
    for (item *i = *hand_of(x, t); i; i = i->next)
        if (sk_state_partly_settled(&i->state, &x->e->sp->made[t->id], n) &&
            sk_state_has_sums(&i->state, want, n))
            return i;
    return h;
}

/* --- records --- */

static bool same_task(sk_task a, sk_task b) { return a.work == b.work && a.chunk == b.chunk; }

static void record(walk *x, const sk_tensor *t, const sk_state *s, sk_form form, int from)
{
    sk_saved_set *all = &x->e->plan.saved;
    sk_task to = x->tasks[x->at];
    for (int i = all->first[t->id] - 1; i >= 0; i = all->v[i].next)
        if (all->v[i].form == form && same_task(all->v[i].to, to) &&
            same_task(all->v[i].from, x->tasks[from]) && sk_state_equal(&all->v[i].state, s))
            return;
    *sk_push(x->e->tmp, all) = (sk_saved){.tensor = t,
                                          .state = *s,
                                          .form = form,
                                          .from = x->tasks[from],
                                          .to = to,
                                          .next = all->first[t->id] - 1};
    all->first[t->id] = all->n;
}

static void use(walk *x, const sk_tensor *t, const item *h)
{
    if (h->since != x->at && !x->local) record(x, t, &h->state, h->form, h->since);
}

/* --- resharding a tensor, see reshard.c --- */

/* A sum over ranks is taken in place, unless a node reads the partial sum; a split or gathered
 * tensor is another buffer.  Returns the buffer that has the wanted state. */
static int reshard(walk *x, const sk_tensor *t, const item *from, const sk_state *want)
{
    const sk_lowering *e = x->e;
    sk_state now = from->state;
    int buf = from->buf, sums = 0;
    for (int a = 0; a < e->l->mesh.n; a++)
        sums += now.how[a] == SK_PARTIAL && want->how[a] != SK_PARTIAL;
    for (int k = e->l->mesh.n - 1; k >= 0; k--) {
        int a = sk_layout_cutter(e->l, 0, k);
        bool partial = now.how[a] == SK_PARTIAL || now.how[a] == SK_PARTIAL_MAX;
        bool whole = want->how[a] == SK_REPLICATE || now.how[a] == SK_PARTIAL_MAX ||
                     (e->l->canonical && sums > 1 && want->how[a] == SK_SPLIT);
        if (!partial || !whole) continue;
        if (sk_lower_wanted_partial(e, t, a)) buf = x->n_bufs++;
        now.how[a] = SK_REPLICATE;
        for (item *h = *hand_of(x, t); h; h = h->next)
            if (h->buf == buf) h->state.how[a] = SK_REPLICATE;
    }
    return sk_state_equal(&now, want) ? buf : x->n_bufs++;
}

static void node(walk *x, const sk_node *n);
static void region(walk *x, const sk_node *n);

static bool in_region(const walk *x, const sk_node *n)
{
    return x->e->plan.region_of && x->e->plan.region_of[n->id];
}

static bool unpack(walk *x, const sk_tensor *t)
{
    const sk_state *made = &x->e->sp->made[t->id];
    if (!x->packed[t->id] || x->tasks[x->at].work == SK_WORK_F) return false;
    record(x, t, made, x->e->plan.packs[t->id], x->packed[t->id] - 1);
    have(x, t, made, -1);
    return true;
}

static void make(walk *x, const sk_tensor *t)
{
    sk_state settled = sk_state_settled(&x->e->sp->made[t->id]);
    if (sk_is_clone(x->e, t->from))
        in_region(x, t->from) && !x->local ? region(x, t->from) : node(x, t->from);
    else if (!unpack(x, t)) have(x, t, &settled, -1); /* received */
}

static void need(walk *x, const sk_tensor *t, const sk_state *want)
{
    item *h;
    if (t->role == SK_PARAM || t->role == SK_MEMORY) return;
    if (x->local && !x->e->plan.wide[t->id] && !x->opened[t->id]) { /* made outside */
        x->local = NULL;
        need(x, t, want);
        x->local = x->inside;
        return;
    }
    if ((h = find(x, t, want))) {
        use(x, t, h);
        return;
    }
    if (t->role == SK_INPUT) {
        have(x, t, want, -1);
        return;
    }
    if (!source(x, t)) make(x, t);
    h = source_with_sums(x, t, want);
    sk_assert(h);
    use(x, t, h);
    int buf = reshard(x, t, h, want);
    have(x, t, want, buf)->form = buf == h->buf ? h->form : SK_GATHERED;
}

/* --- nodes, see lower.c and batch_slices.c --- */

static void send(walk *x, const sk_node *n)
{
    for (int o = 0; o < n->n_out; o++) {
        const sk_tensor *t = n->out[o];
        sk_state settled = sk_state_settled(&x->e->sp->made[t->id]);
        if (!n->into[o] && sk_stages_others(&x->e->plan.read_by[t->id], x->e->p->stage))
            need(x, t, &settled);
    }
}

static void node(walk *x, const sk_node *n)
{
    const sk_node_sharding *s = &x->e->sp->node[n->id];
    for (int i = 0; i < n->n_in; i++) need(x, n->in[i], &s->in[i]);
    for (int o = 0; o < n->n_out; o++)
        if (!n->into[o]) have(x, n->out[o], &s->out[o], -1);
    if (!x->local) send(x, n);
}

static void bring(walk *x, const sk_node *first, const sk_ints *nodes)
{
    const sk_lowering *e = x->e;
    for (int i = 0; i < nodes->n; i++) {
        const sk_node *n = e->g->nodes.v[nodes->v[i]];
        for (int k = 0; k < n->n_in; k++)
            if (sk_lower_brought(e, first, n->in[k])) need(x, n->in[k], &e->sp->node[n->id].in[k]);
    }
}

static void open_results(walk *x, const sk_ints *nodes, bool open)
{
    for (int i = 0; i < nodes->n; i++) {
        const sk_node *n = x->e->g->nodes.v[nodes->v[i]];
        for (int o = 0; o < n->n_out; o++)
            x->opened[n->out[o]->id] = open && !n->into[o] && !x->e->plan.wide[n->out[o]->id];
    }
}

/* Results that nodes outside read are available as the region left them, reduced over ranks or not.
 */
static void close_results(walk *x, const sk_ints *nodes)
{
    for (int i = 0; i < nodes->n; i++) {
        const sk_node *n = x->e->g->nodes.v[nodes->v[i]];
        for (int o = 0; o < n->n_out; o++) {
            const item *made = x->inside[n->out[o]->id];
            if (!x->opened[n->out[o]->id]) continue;
            while (made->next) made = made->next;
            have(x, n->out[o], &made->state, -1);
        }
    }
}

static void forget(walk *x, const sk_ints *nodes)
{
    for (int i = 0; i < nodes->n; i++) {
        const sk_node *n = x->e->g->nodes.v[nodes->v[i]];
        for (int k = 0; k < n->n_in; k++) x->inside[n->in[k]->id] = NULL;
        for (int o = 0; o < n->n_out; o++) x->inside[n->out[o]->id] = NULL;
    }
}

/* All nodes of a region, of this node's phase; one slice stands for all. */
static void region(walk *x, const sk_node *n)
{
    const sk_lowering *e = x->e;
    const sk_region *r = &e->plan.regions.v[e->plan.region_of[n->id] - 1];
    const sk_ints *nodes = &r->nodes[n->phase];
    if (n->phase == SK_BACKWARD) bring(x, n, &r->again);
    bring(x, n, nodes);
    open_results(x, nodes, true);
    forget(x, nodes);
    forget(x, &r->again);
    x->local = x->inside;
    for (int i = 0; i < nodes->n; i++) node(x, e->g->nodes.v[nodes->v[i]]);
    x->local = NULL;
    close_results(x, nodes);
    open_results(x, nodes, false);
    for (int i = 0; i < nodes->n; i++) send(x, e->g->nodes.v[nodes->v[i]]);
}

/* --- tensors that forms replace, see saved_pieces.c and saved_packed.c --- */

static bool wider(const sk_state *s, const sk_state *than)
{
    for (int a = 0; a < SK_MAX_AXES; a++)
        if (s->how[a] == SK_REPLICATE && than->how[a] == SK_SPLIT) return true;
    return false;
}

static void cut(walk *x, const sk_tensor *t)
{
    sk_state piece;
    bool cuts = sk_lower_piece_state(x->e, t, &piece);
    const item *h = source(x, t);
    sk_state settled = h ? sk_state_settled(&h->state) : piece;
    if (!h || !sk_state_equal(&h->state, &settled)) return;
    if (cuts && !find(x, t, &piece)) have(x, t, &piece, -1)->form = SK_PIECE;
    for (item **at = hand_of(x, t); *at;)
        if (wider(&(*at)->state, &piece)) *at = (*at)->next;
        else at = &(*at)->next;
}

static void behind_forward(walk *x, const sk_node *n)
{
    const int *after = x->e->plan.cut_after;
    for (int k = 0; after && k < n->n_in; k++)
        if (after[n->in[k]->id] == n->id + 1) cut(x, n->in[k]);
    for (int o = 0; after && o < n->n_out; o++)
        if (after[n->out[o]->id] == n->id + 1) cut(x, n->out[o]);
    for (int o = 0; o < n->n_out; o++) {
        const sk_tensor *t = n->out[o];
        if (x->e->plan.packs[t->id] && find(x, t, &x->e->sp->made[t->id]))
            x->packed[t->id] = 1 + x->at;
    }
}

static void trim(walk *x, const sk_tensor *t)
{
    item *h = source(x, t), **list = hand_of(x, t);
    if (t->role != SK_VALUE || !h) return;
    *list = h;
    h->next = NULL;
}

static void end_task(walk *x, const sk_ints *nodes)
{
    bool forward = x->tasks[x->at].work == SK_WORK_F;
    for (int i = 0; i < nodes->n; i++) {
        const sk_node *n = x->e->g->nodes.v[nodes->v[i]];
        bool block = forward && sk_recomputes_block(x->e, n);
        for (int k = 0; k < n->n_in && block; k++) trim(x, n->in[k]);
        for (int k = 0; k < n->n_in; k++)
            if (x->packed[n->in[k]->id]) *hand_of(x, n->in[k]) = NULL;
        for (int o = 0; o < n->n_out; o++)
            if (x->packed[n->out[o]->id]) *hand_of(x, n->out[o]) = NULL;
    }
}

/* --- gathered weights --- */

/* Of a layer: weights that are not available are gathered. */
static void weights(walk *x, int layer, sk_phase phase)
{
    const sk_ints *uses = &x->e->plan.uses[2 * layer + (int)phase];
    for (int k = 0; k < uses->n; k++) {
        const sk_param_plan *q = &x->e->p->params.v[uses->v[k]];
        const item *h = x->hand[q->tensor->id];
        if (!sk_lower_is_cut(x->e, q)) continue;
        if (!h) have(x, q->tensor, &q->used, -1);
        else if (h->since != x->at) record(x, q->tensor, &q->used, SK_GATHERED, h->since);
    }
}

/* The forward pass keeps them if the layout says so; a backward task frees them. */
static void give_up_weights(walk *x, int layer, sk_phase phase)
{
    const sk_ints *uses = &x->e->plan.uses[2 * layer + (int)phase];
    for (int k = 0; k < uses->n && (phase == SK_BACKWARD || !x->e->l->keep); k++)
        x->hand[x->e->p->params.v[uses->v[k]].tensor->id] = NULL;
}

/* --- tasks --- */

static void one_node(walk *x, const sk_node *n)
{
    const sk_lowering *e = x->e;
    for (int k = 0; k < n->n_in; k++)
        if (e->plan.packs[n->in[k]->id] && !find(x, n->in[k], &e->sp->made[n->in[k]->id]))
            unpack(x, n->in[k]);
    if (!in_region(x, n)) node(x, n);
    else if (e->plan.regions.v[e->plan.region_of[n->id] - 1].nodes[n->phase].v[0] == n->id)
        region(x, n);
    if (n->phase == SK_FORWARD) behind_forward(x, n);
}

static void one_task(walk *x)
{
    const sk_lowering *e = x->e;
    sk_task t = x->tasks[x->at];
    const sk_ints *nodes = &e->plan.of_chunk[2 * t.chunk + (t.work != SK_WORK_F)];
    bool sharded = e->l->shard == SK_SHARD_PARAMS;
    for (int i = 0; i < nodes->n; i++) {
        const sk_node *n = e->g->nodes.v[nodes->v[i]];
        if (!sk_lower_in_task(e, n, t)) continue;
        if (sharded) weights(x, n->layer, n->phase);
        one_node(x, n);
    }
    for (int i = 0; i < nodes->n && sharded; i++) {
        const sk_node *n = e->g->nodes.v[nodes->v[i]];
        if (sk_lower_in_task(e, n, t)) give_up_weights(x, n->layer, n->phase);
    }
    end_task(x, nodes);
}

typedef struct order { /* the tasks of one micro-batch on this stage, as the schedule has them */
    sk_task *v;
    int n, cap;
} order;

static void walk_tasks(sk_lowering *e, const order *tasks)
{
    sk_arena tmp = {0};
    int all = e->g->tensors.n + 1;
    walk x = {.e = e,
              .tmp = &tmp,
              .hand = sk_many(&tmp, item *, all),
              .inside = sk_many(&tmp, item *, all),
              .opened = sk_many(&tmp, char, all),
              .packed = sk_many(&tmp, int, all),
              .tasks = tasks->v};
    for (x.at = 0; x.at < tasks->n; x.at++) one_task(&x);
    sk_arena_end(&tmp);
}

static order *orders_of(const sk_lowering *e)
{
    const sk_tasks *mine = &e->plan.tasks[true][e->p->stage];
    order *all = sk_many(e->tmp, order, e->plan.n_listed);
    for (int i = 0; i < mine->n; i++)
        if (mine->v[i].work != SK_WORK_U) *sk_push(e->tmp, &all[mine->v[i].micro]) = mine->v[i];
    return all;
}

static bool same_order(const order *a, const order *b)
{
    if (a->n != b->n) return false;
    for (int i = 0; i < a->n; i++)
        if (!same_task(a->v[i], b->v[i])) return false;
    return true;
}

/* Micro-batches whose tasks are in the same order save the same. */
sk_status sk_find_saved(sk_lowering *e)
{
    e->plan.saved.first = sk_many(e->tmp, int, e->g->tensors.n + 1);
    if (!e->opts->optim) return SK_OK;
    const order *all = orders_of(e);
    for (int m = 0; m < e->plan.n_listed; m++) {
        int k = 0;
        while (!same_order(&all[k], &all[m])) k++;
        if (k == m) walk_tasks(e, &all[m]);
    }
    return SK_OK;
}
