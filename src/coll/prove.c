/* prove.c - the step lists of all members walked together, without data.
 *
 * Members go from round to round.  On entering one, a member posts its messages; a
 * message happens when both its ends are posted, and is a copy of values: which
 * members' contributions, of which chunk, added in which shape.  When the last one of
 * a round has happened its copies and sums are done, and the member goes on.  That
 * is how lists are executed, with the least buffering: a sender waits for its
 * receiver, so whatever could wait for ever does so here.
 *
 * The order in which members are walked does not matter, because what a round
 * sends is not written in it, and what it receives is not read by its messages.
 * Both are checked by stamps on places.  A place is a piece of memory: DST may be SRC.
 */
#include "coll/prove_walk.h"

static bool reads_from(const sk_step *s)
{
    return s->act == SK_STEP_SEND || s->act > SK_STEP_RECV_SUM;
}
static bool reads_with(const sk_step *s)
{
    return s->act == SK_STEP_RECV_SUM || s->act > SK_STEP_COPY;
}

/* --- one step alone: is it possible at all? --- */

static sk_status check_cell(const sk_proof_walk *w, const sk_proof_member *m, const sk_step *s,
                            sk_cell c)
{
    int have = c.space <= SK_TMP ? sk_proof_space_cells(m, c.space) : -1;
    if (have < 0 || c.at < 0 || c.at > have - s->n)
        return sk_proof_wrong(w, m, s, "%d cells from %s on, and there are %d", s->n,
                              SK_PROOF_SHOW(c), have);
    if (c.space == SK_TMP || sk_kind_blocks(w->kind)) return SK_OK;
    const sk_kind_row *row = &sk_kind_rows[w->kind];
    bool one = (c.space == SK_SRC ? row->src : row->dst) == SK_OPERAND_PART;
    if (s->chunk != (one ? m->me : c.at))
        return sk_proof_wrong(w, m, s, "%s is not for this chunk", SK_PROOF_SHOW(c));
    return SK_OK;
}

static bool astride(sk_cell a, sk_cell b, int n)
{
    return a.space == b.space && a.at != b.at && a.at < b.at + n && b.at < a.at + n;
}

static sk_status check_tree(const sk_proof_walk *w, const sk_proof_member *m, const sk_step *s)
{
    if (s->n != 1 || s->k < 1 || s->k > SK_PROVE_MOST || s->own >= s->k)
        return sk_proof_wrong(w, m, s, "%d cells, %d operands, own is number %d", s->n, s->k,
                              s->own);
    for (int j = 0; j < s->k; j++) {
        if (j != s->own) SK_TRY(check_cell(w, m, s, sk_cell_at(s->from, j)));
    }
    return s->own >= 0 ? check_cell(w, m, s, s->with) : SK_OK;
}

static sk_status check_step(const sk_proof_walk *w, const sk_proof_member *m, const sk_step *s)
{
    if (s->act < 0 || s->act >= SK_N_STEP_ACTS) return sk_proof_wrong(w, m, NULL, "no such act");
    if (s->n < 1 || s->chunk < 0 || s->chunk > w->cells - s->n)
        return sk_proof_wrong(w, m, s, "%d chunks of %d", s->n, w->cells);
    if (sk_proof_is_message(s) && (s->peer < 0 || s->peer >= w->n || s->peer == m->me))
        return sk_proof_wrong(w, m, s, "no such peer");
    bool writes = s->act != SK_STEP_SEND;
    if (writes && s->into.space == SK_SRC) return sk_proof_wrong(w, m, s, "SRC is written");
    if (writes) SK_TRY(check_cell(w, m, s, s->into));
    if (s->act == SK_STEP_TREE) return check_tree(w, m, s);
    if (reads_from(s)) SK_TRY(check_cell(w, m, s, s->from));
    if (reads_with(s)) SK_TRY(check_cell(w, m, s, s->with));
    if ((writes && reads_from(s) && astride(s->into, s->from, s->n)) ||
        (writes && reads_with(s) && astride(s->into, s->with, s->n)))
        return sk_proof_wrong(w, m, s, "operands overlap");
    return SK_OK;
}

static sk_status check_list(const sk_proof_walk *w, const sk_proof_member *m)
{
    const sk_steps *l = m->list;
    if (l->cells != w->cells)
        return sk_proof_wrong(w, m, NULL, "%d cells, not %d", l->cells, w->cells);
    for (int i = 0; i < l->list.n; i++) {
        SK_TRY(check_step(w, m, &l->list.v[i]));
        if (i && l->list.v[i].round < l->list.v[i - 1].round)
            return sk_proof_wrong(w, m, &l->list.v[i], "rounds go back");
    }
    return SK_OK;
}

/* --- one round of one member: who touches what --- */

static sk_status mark_send(const sk_proof_walk *w, sk_proof_member *m, const sk_step *s, int now)
{
    for (int j = 0; j < s->n; j++) {
        sk_proof_place *p = sk_proof_place_of(w, m, sk_cell_at(s->from, j));
        if (p->got == now) return sk_proof_wrong(w, m, s, "the round receives into what it sends");
        p->sent = now;
    }
    return SK_OK;
}

static sk_status mark_recv(const sk_proof_walk *w, sk_proof_member *m, const sk_step *s, int now)
{
    for (int j = 0; j < s->n; j++) {
        sk_proof_place *p = sk_proof_place_of(w, m, sk_cell_at(s->into, j));
        sk_proof_place *with =
            s->act == SK_STEP_RECV_SUM ? sk_proof_place_of(w, m, sk_cell_at(s->with, j)) : NULL;
        if (p->sent == now) return sk_proof_wrong(w, m, s, "the round receives into what it sends");
        if (p->got == now || p->used == now || (with && with->got == now))
            return sk_proof_wrong(w, m, s, "another receive of the round uses the same cell");
        if (with) with->used = now;
        p->got = now;
    }
    return SK_OK;
}

static sk_status mark_round(const sk_proof_walk *w, sk_proof_member *m)
{
    const sk_step *v = m->list->list.v;
    int now = v[m->from].round + 1;
    for (int i = m->from; i < m->to; i++) {
        if (v[i].act == SK_STEP_SEND) SK_TRY(mark_send(w, m, &v[i], now));
        else if (sk_proof_is_message(&v[i])) SK_TRY(mark_recv(w, m, &v[i], now));
    }
    return SK_OK;
}

/* --- copies and sums --- */

static sk_status sum_tree(const sk_proof_walk *w, const sk_proof_member *m, const sk_step *s,
                          const sk_proof_value *v, int n, sk_proof_value *out)
{
    sk_proof_value a, b;
    *out = v[0];
    if (n == 1) return SK_OK;
    int half = 1 << sk_log_floor(n - 1);
    SK_TRY(sum_tree(w, m, s, v, half, &a));
    SK_TRY(sum_tree(w, m, s, v + half, n - half, &b));
    return sk_proof_sum(w, m, s, a, b, out);
}

static sk_status do_tree(const sk_proof_walk *w, const sk_proof_member *m, const sk_step *s,
                         sk_proof_value *out)
{
    sk_proof_value v[SK_PROVE_MOST];
    for (int j = 0; j < s->k; j++) {
        sk_cell c = j == s->own ? s->with : sk_cell_at(s->from, j);
        SK_TRY(sk_proof_read(w, m, s, c, s->chunk, &v[j]));
    }
    return sum_tree(w, m, s, v, s->k, out);
}

static sk_status do_cell(const sk_proof_walk *w, const sk_proof_member *m, const sk_step *s, int j,
                         sk_proof_value *out)
{
    sk_proof_value with;
    if (s->act == SK_STEP_TREE) return do_tree(w, m, s, out);
    SK_TRY(sk_proof_read(w, m, s, sk_cell_at(s->from, j), s->chunk + j, out));
    if (s->act == SK_STEP_COPY) return SK_OK;
    SK_TRY(sk_proof_read(w, m, s, sk_cell_at(s->with, j), s->chunk + j, &with));
    return sk_proof_sum(w, m, s, *out, with, out);
}

static sk_status do_local(const sk_proof_walk *w, sk_proof_member *m, const sk_step *s)
{
    for (int j = 0; j < s->n; j++) {
        sk_proof_value v;
        sk_cell into = sk_cell_at(s->into, j);
        SK_TRY(do_cell(w, m, s, j, &v));
        if (sk_proof_place_of(w, m, into)->sent == s->round + 1)
            return sk_proof_wrong(w, m, s, "%s is written in the round that sends it",
                                  SK_PROOF_SHOW(into));
        sk_proof_write(w, m, into, v);
    }
    if (s->act == SK_STEP_SUM) m->summed += s->n;
    if (s->act == SK_STEP_TREE) m->summed += s->k - 1;
    return SK_OK;
}

/* --- messages --- */

static double most(double a, double b) { return a > b ? a : b; }

static sk_status deliver(sk_proof_walk *w, sk_proof_member *a, const sk_step *send,
                         sk_proof_member *b, const sk_step *recv)
{
    if (send->chunk != recv->chunk || send->n != recv->n)
        return sk_proof_wrong(w, b, recv, "%d are wanted, but member %d sends %d of chunk %d",
                              recv->n, a->me, send->n, send->chunk);
    for (int j = 0; j < recv->n; j++) {
        sk_proof_value v, with;
        SK_TRY(sk_proof_read(w, a, send, sk_cell_at(send->from, j), send->chunk + j, &v));
        if (recv->act == SK_STEP_RECV_SUM) {
            SK_TRY(sk_proof_read(w, b, recv, sk_cell_at(recv->with, j), recv->chunk + j, &with));
            SK_TRY(sk_proof_sum(w, b, recv, v, with, &v));
            b->summed++;
        }
        sk_proof_write(w, b, sk_cell_at(recv->into, j), v);
    }
    a->end = most(a->end, a->start + 1);
    b->end = most(b->end, most(a->start, b->start) + 1);
    a->out += send->n;
    b->in += recv->n;
    w->messages++;
    return SK_OK;
}

static void happened(sk_proof_walk *w, sk_proof_member *m)
{
    if (!--m->open) w->ready[w->n_ready++] = m->me;
}

static const sk_step *step_of(const sk_proof_member *m, int number)
{
    return &m->list->list.v[number - m->base];
}

/* Its other end may be waiting already; if not, it waits now. */
static sk_status post(sk_proof_walk *w, sk_proof_member *m, int i)
{
    const sk_step *s = &m->list->list.v[i];
    bool sends = s->act == SK_STEP_SEND;
    sk_proof_member *peer = &w->m[s->peer];
    sk_proof_queue *q = &w->pairs[sends ? m->me * w->n + s->peer : s->peer * w->n + m->me];
    int number = q->head - 1;
    bool other = number >= 0 && number >= peer->base && number < peer->base + peer->list->list.n;
    if (!other) {
        int mine = m->base + i;
        if (q->head) w->next[q->tail - 1] = mine + 1;
        else q->head = mine + 1;
        q->tail = mine + 1;
        w->next[mine] = 0;
        return SK_OK;
    }
    q->head = w->next[number];
    if (sends) SK_TRY(deliver(w, m, s, peer, step_of(peer, number)));
    else SK_TRY(deliver(w, peer, step_of(peer, number), m, s));
    happened(w, peer);
    happened(w, m);
    return SK_OK;
}

/* --- the walk --- */

static sk_status enter(sk_proof_walk *w, sk_proof_member *m)
{
    const sk_step *v = m->list->list.v;
    int n = m->list->list.n;
    m->from = m->to;
    if (m->from == n) return SK_OK;
    m->in = m->out = 0;
    m->open = 1; /* for the entering itself */
    for (; m->to < n && v[m->to].round == v[m->from].round; m->to++)
        m->open += sk_proof_is_message(&v[m->to]);
    SK_TRY(mark_round(w, m));
    for (int i = m->from; i < m->to; i++)
        if (sk_proof_is_message(&v[i])) SK_TRY(post(w, m, i));
    happened(w, m);
    return SK_OK;
}

static sk_status leave(sk_proof_walk *w, sk_proof_member *m)
{
    const sk_step *v = m->list->list.v;
    for (int i = m->from; i < m->to; i++)
        if (!sk_proof_is_message(&v[i])) SK_TRY(do_local(w, m, &v[i]));
    m->sent += most(m->in, m->out);
    m->start = m->end;
    return SK_OK;
}

static sk_status check_waits(const sk_proof_walk *w)
{
    for (int p = 0; p < w->n * w->n; p++) {
        if (!w->pairs[p].head) continue;
        int number = w->pairs[p].head - 1, from = p / w->n, to = p % w->n;
        const sk_proof_member *m = &w->m[from];
        if (number < m->base || number >= m->base + m->list->list.n) m = &w->m[to];
        return sk_proof_wrong(w, m, step_of(m, number), "it waits for ever");
    }
    return SK_OK;
}

static sk_status walk_all(sk_proof_walk *w)
{
    for (int i = 0; i < w->n; i++) SK_TRY(enter(w, &w->m[i]));
    while (w->n_ready) {
        sk_proof_member *m = &w->m[w->ready[--w->n_ready]];
        SK_TRY(leave(w, m));
        SK_TRY(enter(w, m));
    }
    return check_waits(w);
}

/* --- the end --- */

/* What must be in cell `at` of DST: the set of contributions to which chunk. */
static sk_proof_value wanted(const sk_proof_walk *w, int me, int at)
{
    const sk_kind_row *row = &sk_kind_rows[w->kind];
    bool mine = row->dst == SK_OPERAND_PART || row->dst == SK_OPERAND_BLOCKS;
    uint64_t set = sk_kind_sums(w->kind) ? sk_proof_everybody(sk_kind_terms(w->kind, me, w->n))
                   : row->origin == SK_FROM_ROOT ? UINT64_C(1) << w->root
                                                 : UINT64_C(1) << (at % SK_PROVE_MOST);
    return (sk_proof_value){set, 0, mine ? me : at};
}

static sk_status check_end(const sk_proof_walk *w, const sk_proof_member *m)
{
    uint64_t tree = sk_proof_tree_shape(0, sk_kind_terms(w->kind, m->me, w->n));
    for (int at = 0; at < m->n_dst; at++) {
        sk_proof_value is = m->cells[m->n_src + at], want = wanted(w, m->me, at);
        if (is.set != want.set || is.chunk != want.chunk)
            return sk_proof_wrong(
                w, m, NULL, "DST %d ends with contributions %llx to chunk %d, not %llx to chunk %d",
                at, (unsigned long long)is.set, is.chunk, (unsigned long long)want.set, want.chunk);
        bool ordered =
            sk_kind_sums(w->kind) && sk_coll_order(w->coll, &m->list->ask) == SK_ORDER_TREE;
        if (ordered && is.shape != tree)
            return sk_proof_wrong(w, m, NULL, "DST %d is not summed in the order of the tree", at);
    }
    return SK_OK;
}

static void count(const sk_proof_walk *w, sk_proof *out)
{
    *out = (sk_proof){.steps = w->steps, .messages = w->messages};
    for (int i = 0; i < w->n; i++) {
        const sk_proof_member *m = &w->m[i];
        out->cost.rounds = most(out->cost.rounds, m->start);
        out->cost.sent = most(out->cost.sent, m->sent / w->cells);
        out->cost.summed = most(out->cost.summed, m->summed / w->cells);
    }
}

/* --- the beginning --- */

static void fill(const sk_proof_walk *w, sk_proof_member *m)
{
    for (int i = 0; i < m->n_src; i++) {
        int chunk = sk_kind_rows[w->kind].src == SK_OPERAND_PART ? m->me : i;
        m->cells[i] = (sk_proof_value){UINT64_C(1) << m->me, sk_proof_leaf_shape(m->me), chunk};
    }
    if (sk_kind_rows[w->kind].copied && sk_kind_gives(w->kind, m->me == w->root))
        for (int i = 0; i < m->n_dst; i++) m->cells[m->n_src + i] = m->cells[i];
}

static void place_member(sk_arena *a, sk_proof_walk *w, int me, const sk_steps *list)
{
    sk_proof_member *m = &w->m[me];
    m->list = list;
    m->me = me;
    m->base = (int)w->steps;
    m->n_src = sk_proof_src_cells(w, me);
    m->n_dst = sk_proof_dst_cells(w, me);
    m->n_tmp = list->tmp_cells;
    int n = m->n_src + m->n_dst + m->n_tmp;
    m->cells = sk_many(a, sk_proof_value, n);
    m->places = sk_many(a, sk_proof_place, n);
    fill(w, m);
    w->steps += list->list.n;
}

static sk_status prove(sk_arena *a, sk_proof_walk *w, const sk_steps *lists, sk_proof *out)
{
    for (int i = 0; i < w->n; i++) place_member(a, w, i, &lists[i]);
    w->pairs = sk_many(a, sk_proof_queue, w->n * w->n);
    w->next = sk_many(a, int, w->steps);
    for (int i = 0; i < w->n; i++) SK_TRY(check_list(w, &w->m[i]));
    SK_TRY(walk_all(w));
    for (int i = 0; i < w->n; i++) SK_TRY(check_end(w, &w->m[i]));
    count(w, out);
    return SK_OK;
}

sk_status sk_prove(const sk_coll *c, const sk_steps *lists, int n, sk_proof *out)
{
    if (n < 1 || n > SK_PROVE_MOST)
        return sk_fail(SK_EUSAGE, "prove: %d members; lists are proved on 1 to %d", n,
                       SK_PROVE_MOST);
    sk_arena *a = lists->arena;
    sk_mark mark = sk_arena_mark(a);
    sk_proof_walk *w = sk_new(a, sk_proof_walk);
    w->coll = c;
    w->kind = lists->ask.kind;
    w->n = n;
    w->root = lists->ask.root;
    w->cells = lists->cells;
    sk_status st = prove(a, w, lists, out);
    sk_arena_back(a, mark);
    return st ? sk_trail(st, SK_HERE) : SK_OK;
}

sk_status sk_prove_coll(sk_arena *arena, const sk_coll *c, const sk_coll_ask *a, sk_proof *out)
{
    if (a->n > SK_PROVE_MOST) return sk_prove(c, NULL, a->n, out);
    if (!sk_coll_can(c, a))
        return sk_fail(SK_EUSAGE, "%s does no %s on %d members", c->name, sk_coll_names[a->kind],
                       a->n);
    if (!c->build) return sk_fail(SK_EUSAGE, "%s has no list to prove", c->name);
    sk_mark mark = sk_arena_mark(arena);
    sk_steps *lists = sk_many(arena, sk_steps, a->n);
    sk_coll_ask one = *a;
    for (one.me = 0; one.me < a->n; one.me++) sk_steps_build(c, &one, arena, &lists[one.me]);
    sk_status st = sk_prove(c, lists, a->n, out);
    sk_arena_back(arena, mark);
    return st ? sk_trail(st, SK_HERE) : SK_OK;
}
