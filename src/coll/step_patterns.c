/* step_patterns.c - what several algorithms do: direct exchange, and cubes with distance 1 first.
 *
 * In a cube, partners at distance 1 add first, then those at 2, 4 ...: so a
 * partial sum is always that of an aligned block of members, which is the tree's. */
#include "coll/algorithm.h"

/* --- direct --- */

/* Everybody begins with the next one, so that no member is stormed by all at once. */
static int after(const sk_coll_ask *a, int d) { return (a->me + d) % a->n; }
static int before(const sk_coll_ask *a, int d) { return (a->me + a->n - d) % a->n; }

/* My chunk of all others into TMP, by member, and the sum of them. */
static void sum_mine(sk_steps *s, sk_cell into)
{
    const sk_coll_ask *a = &s->ask;
    for (int d = 1; d < a->n; d++) {
        sk_steps_send(s, after(a, d), sk_src(after(a, d)), after(a, d), 1);
        sk_steps_recv(s, before(a, d), sk_tmp(before(a, d)), a->me, 1);
    }
    sk_steps_tree(s, into, sk_tmp(0), a->n, sk_src(a->me), a->me, a->me);
    sk_steps_next(s);
}

static void show_mine(sk_steps *s, sk_cell mine)
{
    const sk_coll_ask *a = &s->ask;
    for (int d = 1; d < a->n; d++) {
        sk_steps_send(s, after(a, d), mine, a->me, 1);
        sk_steps_recv(s, before(a, d), sk_dst(before(a, d)), before(a, d), 1);
    }
    if (mine.space == SK_SRC) sk_steps_copy(s, sk_dst(a->me), mine, a->me, 1);
}

static void swap_all(sk_steps *s)
{
    const sk_coll_ask *a = &s->ask;
    for (int d = 1; d < a->n; d++) {
        sk_steps_send(s, after(a, d), sk_src(after(a, d)), a->me, 1);
        sk_steps_recv(s, before(a, d), sk_dst(before(a, d)), before(a, d), 1);
    }
    sk_steps_copy(s, sk_dst(a->me), sk_src(a->me), a->me, 1);
}

/* gather and reduce: whole chunks come to the root. */
static void to_root(sk_steps *s)
{
    const sk_coll_ask *a = &s->ask;
    bool sums = sk_kind_sums(a->kind);
    int chunk = sums ? 0 : a->me;
    if (sums) s->cells = 1;
    if (a->me != a->root) {
        sk_steps_send(s, a->root, sk_src(0), chunk, 1);
        return;
    }
    for (int d = 1; d < a->n; d++) {
        int peer = before(a, d);
        if (sums) sk_steps_recv(s, peer, sk_tmp(peer), 0, 1);
        else sk_steps_recv(s, peer, sk_dst(peer), peer, 1);
    }
    if (sums) sk_steps_tree(s, sk_dst(0), sk_tmp(0), a->n, sk_src(0), a->me, 0);
    else sk_steps_copy(s, sk_dst(a->me), sk_src(0), a->me, 1);
}

/* broadcast and scatter. */
static void from_root(sk_steps *s)
{
    const sk_coll_ask *a = &s->ask;
    bool cut = sk_kind_cut(a->kind);
    if (!cut) s->cells = 1;
    if (a->me != a->root) {
        sk_steps_recv(s, a->root, sk_dst(0), cut ? a->me : 0, 1);
        return;
    }
    for (int d = 1; d < a->n; d++) {
        int part = cut ? after(a, d) : 0;
        sk_steps_send(s, after(a, d), sk_src(part), part, 1);
    }
    if (cut) sk_steps_copy(s, sk_dst(0), sk_src(a->me), a->me, 1);
}

/* scan: what the members before me have; the tree comes in a round of its own, because in place it
 * writes what is sent. */
static void sum_before(sk_steps *s)
{
    const sk_coll_ask *a = &s->ask;
    s->cells = 1;
    for (int peer = a->me + 1; peer < a->n; peer++) sk_steps_send(s, peer, sk_src(0), 0, 1);
    for (int peer = 0; peer < a->me; peer++) sk_steps_recv(s, peer, sk_tmp(peer), 0, 1);
    sk_steps_next(s);
    if (a->me) sk_steps_tree(s, sk_dst(0), sk_tmp(0), a->me + 1, sk_src(0), a->me, 0);
}

void sk_steps_direct(sk_steps *s)
{
    const sk_kind_row *row = &sk_kind_rows[s->ask.kind];
    if (row->src == SK_OPERAND_BLOCKS) swap_all(s);
    else if (row->origin == SK_FROM_FIRST) sum_before(s);
    else if (row->src == SK_OPERAND_ROOT) from_root(s);
    else if (row->dst == SK_OPERAND_ROOT) to_root(s);
    else if (row->dst == SK_OPERAND_PART) sum_mine(s, sk_dst(0));
    else if (row->src == SK_OPERAND_PART) show_mine(s, sk_src(0));
    else {
        sum_mine(s, sk_dst(s->ask.me));
        show_mine(s, sk_dst(s->ask.me));
    }
}

sk_coll_cost sk_price_direct(const sk_coll_ask *a)
{
    const sk_kind_row *row = &sk_kind_rows[a->kind];
    double n = a->n, part = (n - 1) / n;
    bool sums = sk_kind_sums(a->kind);
    if (sk_kind_cut(a->kind)) return (sk_coll_cost){1, part, sums ? part : 0};
    if (row->origin == SK_FROM_FIRST || row->dst == SK_OPERAND_ROOT)
        return (sk_coll_cost){1, n - 1, n - 1};
    return sums ? (sk_coll_cost){2, 2 * part, part} : (sk_coll_cost){1, n - 1, 0};
}

/* --- exchanges of whole sums --- */

void sk_steps_exchange(sk_steps *s, int peer, sk_cell acc, sk_cell into)
{
    sk_steps_send(s, peer, acc, 0, s->cells);
    if (acc.space != SK_SRC || into.space != SK_DST) {
        sk_steps_recv_sum(s, peer, into, acc, 0, s->cells);
        sk_steps_next(s);
        return;
    }
    sk_steps_recv(s, peer, sk_tmp(0), 0, s->cells); /* in place, DST is what the peer reads */
    sk_steps_next(s);
    sk_steps_sum(s, into, acc, sk_tmp(0), 0, s->cells);
    sk_steps_next(s);
}

/* --- cubes --- */

int sk_cube_member(const sk_cube *c, int corner)
{
    return corner < c->fold ? 2 * corner : c->first + corner;
}

int sk_cube_chunk(const sk_cube *c, int corner, int cells)
{
    int back = 0;
    for (int d = 0; d < c->log; d++) back = back << 1 | (corner >> d & 1);
    return back * (cells >> c->log);
}

sk_cube sk_cube_folded(const sk_coll_ask *a)
{
    int log = sk_log_floor(a->n), rest = a->n - (1 << log);
    int corner = a->me >= 2 * rest ? a->me - rest : a->me % 2 ? -1 : a->me / 2;
    return (sk_cube){.log = log, .corner = corner, .first = rest, .fold = rest};
}

void sk_cube_halve(sk_steps *s, const sk_cube *c, sk_cell from, sk_cell into)
{
    int lo = 0, n = s->cells;
    for (int d = 0; d < c->log; d++) {
        n /= 2;
        int peer = sk_cube_member(c, c->corner ^ 1 << d), bit = c->corner >> d & 1;
        int keep = lo + bit * n, give = lo + (1 - bit) * n;
        sk_steps_send(s, peer, sk_cell_at(from, give), give, n);
        sk_steps_recv_sum(s, peer, sk_cell_at(into, keep), sk_cell_at(from, keep), keep, n);
        sk_steps_next(s);
        from = into;
        lo = keep;
    }
}

void sk_cube_double(sk_steps *s, const sk_cube *c, sk_cell in)
{
    int lo = sk_cube_chunk(c, c->corner, s->cells), n = s->cells >> c->log;
    for (int d = c->log - 1; d >= 0; d--) {
        int peer = sk_cube_member(c, c->corner ^ 1 << d), bit = c->corner >> d & 1;
        int theirs = bit ? lo - n : lo + n;
        sk_steps_send(s, peer, sk_cell_at(in, lo), lo, n);
        sk_steps_recv(s, peer, sk_cell_at(in, theirs), theirs, n);
        sk_steps_next(s);
        if (bit) lo = theirs;
        n *= 2;
    }
}
