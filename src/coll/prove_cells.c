/* prove_cells.c - what cells hold while step lists are proved, and what went wrong with them.
 *
 * The shape of a sum is a hash: commutative, as sums are, and of the whole tree. */
#include "coll/prove_walk.h"

#include <stdarg.h>
#include <stdio.h>

static const char *const act_names[SK_N_STEP_ACTS] = {"send", "recv", "recv_sum",
                                                      "copy", "sum",  "tree"};

/* --- what went wrong --- */

sk_status sk_proof_wrong(const sk_proof_walk *w, const sk_proof_member *m, const sk_step *s,
                         const char *fmt, ...)
{
    char what[200];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    if (!s)
        return sk_fail(SK_EBUG, "%s %s on %d: member %d: %s", w->coll->name, sk_coll_names[w->kind],
                       w->n, m->me, what);
    return sk_fail(SK_EBUG, "%s %s on %d: member %d, round %d, %s%s%.0d of chunk %d: %s",
                   w->coll->name, sk_coll_names[w->kind], w->n, m->me, s->round, act_names[s->act],
                   sk_proof_is_message(s) ? " with " : "", sk_proof_is_message(s) ? s->peer : 0,
                   s->chunk, what);
}

const char *sk_proof_cell_name(char *to, size_t n, sk_cell c)
{
    static const char *const names[] = {"SRC", "DST", "TMP"};
    snprintf(to, n, "%s %d", names[c.space], c.at);
    return to;
}

/* --- values --- */

static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return x ^ x >> 31;
}

uint64_t sk_proof_leaf_shape(int i) { return mix((uint64_t)i + 0x9E3779B97F4A7C15u); }

static uint64_t join(uint64_t a, uint64_t b)
{
    uint64_t lo = a < b ? a : b, hi = a < b ? b : a;
    return mix(mix(lo + 0x632BE59BD9B4E019u) + hi);
}

uint64_t sk_proof_tree_shape(int from, int n)
{
    if (n == 1) return sk_proof_leaf_shape(from);
    int half = 1 << sk_log_floor(n - 1);
    return join(sk_proof_tree_shape(from, half), sk_proof_tree_shape(from + half, n - half));
}

uint64_t sk_proof_everybody(int n) { return ~UINT64_C(0) >> (SK_PROVE_MOST - n); }

/* --- cells --- */

static int count_cells(const sk_proof_walk *w, sk_operand has, int me)
{
    return has == SK_OPERAND_PART ? 1 : has == SK_OPERAND_ROOT && me != w->root ? 0 : w->cells;
}

int sk_proof_src_cells(const sk_proof_walk *w, int me)
{
    return count_cells(w, sk_kind_rows[w->kind].src, me);
}

int sk_proof_dst_cells(const sk_proof_walk *w, int me)
{
    return count_cells(w, sk_kind_rows[w->kind].dst, me);
}

int sk_proof_space_cells(const sk_proof_member *m, sk_space space)
{
    return space == SK_SRC ? m->n_src : space == SK_DST ? m->n_dst : m->n_tmp;
}

static int number(const sk_proof_member *m, sk_cell c)
{
    return c.space == SK_SRC   ? c.at
           : c.space == SK_DST ? m->n_src + c.at
                               : m->n_src + m->n_dst + c.at;
}

/* The memory of a cell.  In place DST is SRC; where values cannot differ (all-gather) it may. */
sk_proof_place *sk_proof_place_of(const sk_proof_walk *w, const sk_proof_member *m, sk_cell c)
{
    bool whole = !sk_kind_cut(w->kind), root = m->me == w->root;
    bool one = whole && (root || !sk_kind_rooted(w->kind));
    bool part = sk_kind_rows[w->kind].dst == SK_OPERAND_PART && sk_kind_sums(w->kind);
    if (c.space == SK_DST && one) c.space = SK_SRC;
    if (c.space == SK_DST && part) c = sk_src(m->me);
    return &m->places[number(m, c)];
}

sk_status sk_proof_read(const sk_proof_walk *w, const sk_proof_member *m, const sk_step *s,
                        sk_cell c, int chunk, sk_proof_value *out)
{
    *out = m->cells[number(m, c)];
    if (!out->set)
        return sk_proof_wrong(w, m, s, "%s is read before it is written", SK_PROOF_SHOW(c));
    if (out->chunk != chunk && !sk_kind_blocks(w->kind))
        return sk_proof_wrong(w, m, s, "%s holds chunk %d, not %d", SK_PROOF_SHOW(c), out->chunk,
                              chunk);
    if (c.space == SK_SRC && sk_proof_place_of(w, m, c)->wrote)
        return sk_proof_wrong(w, m, s,
                              "%s is read after its place in DST was written: in place it is gone",
                              SK_PROOF_SHOW(c));
    return SK_OK;
}

void sk_proof_write(const sk_proof_walk *w, sk_proof_member *m, sk_cell c, sk_proof_value v)
{
    m->cells[number(m, c)] = v;
    if (c.space == SK_DST) sk_proof_place_of(w, m, c)->wrote = true;
}

sk_status sk_proof_sum(const sk_proof_walk *w, const sk_proof_member *m, const sk_step *s,
                       sk_proof_value a, sk_proof_value b, sk_proof_value *out)
{
    if (!sk_kind_sums(w->kind)) return sk_proof_wrong(w, m, s, "nothing is to be added");
    if (a.set & b.set)
        return sk_proof_wrong(w, m, s, "the contribution of member %d is added twice",
                              __builtin_ctzll(a.set & b.set));
    *out = (sk_proof_value){a.set | b.set, join(a.shape, b.shape), a.chunk};
    return SK_OK;
}
