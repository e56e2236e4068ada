/* stream_terms.c - a walk through the lists of all members that counts contributions. */
#include "coll/stream_terms.h"

enum { SPACES = 3 };

typedef struct queue { /* contributions in each message of one member to another */
    int *v;
    int n, cap, taken;
} queue;

typedef struct member {
    const sk_steps *list;
    int *cell[SPACES]; /* contributions in each cell */
    int *terms;        /* of each step */
    int lo, hi;        /* the round at hand; its sends are in the queues */
} member;

typedef struct terms_walk {
    sk_arena *arena;
    member *m;
    queue *queues; /* [n * n], from and to */
    int n;
} terms_walk;

static int *cell_of(member *m, sk_cell c, int more) { return &m->cell[c.space][c.at + more]; }

static bool receives(const sk_step *s)
{
    return s->act == SK_STEP_RECV || s->act == SK_STEP_RECV_SUM;
}

static void enter(terms_walk *w, int me)
{
    member *m = &w->m[me];
    const sk_steps *l = m->list;
    for (m->lo = m->hi; m->hi < l->list.n; m->hi++) {
        const sk_step *s = &l->list.v[m->hi];
        if (s->round != l->list.v[m->lo].round) break;
        if (s->act != SK_STEP_SEND) continue;
        int most = 0;
        for (int j = 0; j < s->n; j++)
            if (*cell_of(m, s->from, j) > most) most = *cell_of(m, s->from, j);
        *(int *)sk_push(w->arena, &w->queues[me * w->n + s->peer]) = m->terms[m->hi] = most;
    }
}

/* Have all messages of the round been sent? */
static bool all_came(const terms_walk *w, int me)
{
    const member *m = &w->m[me];
    for (int i = m->lo; i < m->hi; i++) {
        const sk_step *s = &m->list->list.v[i];
        int need = 0;
        for (int j = m->lo; j <= i; j++)
            need += receives(&m->list->list.v[j]) && m->list->list.v[j].peer == s->peer;
        const queue *q = &w->queues[s->peer * w->n + me];
        if (receives(s) && q->n - q->taken < need) return false;
    }
    return true;
}

static void take(terms_walk *w, int me, const sk_step *s)
{
    member *m = &w->m[me];
    queue *q = &w->queues[s->peer * w->n + me];
    int came = q->v[q->taken++];
    for (int j = 0; j < s->n; j++)
        *cell_of(m, s->into, j) = came + (s->act == SK_STEP_RECV_SUM ? *cell_of(m, s->with, j) : 0);
}

static void work(member *m, const sk_step *s)
{
    if (s->act == SK_STEP_TREE) {
        int sum = *cell_of(m, s->with, 0);
        for (int j = 0; j < s->k; j++) sum += j == s->own ? 0 : *cell_of(m, s->from, j);
        *cell_of(m, s->into, 0) = sum;
        return;
    }
    for (int j = 0; j < s->n; j++)
        *cell_of(m, s->into, j) =
            *cell_of(m, s->from, j) + (s->act == SK_STEP_SUM ? *cell_of(m, s->with, j) : 0);
}

/* The round at hand ends and the next one begins; false: a message is still to be sent. */
static bool pass(terms_walk *w, int me)
{
    member *m = &w->m[me];
    if (m->lo == m->list->list.n || !all_came(w, me)) return false;
    for (int i = m->lo; i < m->hi; i++) {
        const sk_step *s = &m->list->list.v[i];
        if (receives(s)) take(w, me, s);
        else if (s->act != SK_STEP_SEND) work(m, s);
    }
    enter(w, me);
    return true;
}

static void place(terms_walk *w, int me, const sk_steps *list, int *terms)
{
    member *m = &w->m[me];
    const sk_kind_row *row = &sk_kind_rows[list->ask.kind];
    int count[SPACES] = {list->cells, list->cells, list->tmp_cells};
    m->list = list;
    m->terms = terms;
    for (int space = 0; space < SPACES; space++) {
        m->cell[space] = sk_many(w->arena, int, count[space] + 1);
        bool given = space == SK_SRC || (space == SK_DST && row->copied);
        for (int i = 0; given && i < count[space]; i++) m->cell[space][i] = 1;
    }
}

void sk_stream_terms(sk_arena *a, const sk_steps *lists, int n, int **terms)
{
    terms_walk w = {a, sk_many(a, member, n), sk_many(a, queue, (int64_t)n * n), n};
    for (int me = 0; me < n; me++) {
        terms[me] = sk_many(a, int, lists[me].list.n + 1);
        place(&w, me, &lists[me], terms[me]);
    }
    for (int me = 0; me < n; me++) enter(&w, me);
    for (bool moves = true; moves;) {
        moves = false;
        for (int me = 0; me < n; me++)
            while (pass(&w, me)) moves = true;
    }
    for (int me = 0; me < n; me++) sk_assert(w.m[me].lo == lists[me].list.n);
}
