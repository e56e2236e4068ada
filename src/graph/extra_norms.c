/* extra_norms.c - squared norms of the gradients of single samples, without these gradients.
 *
 * The gradient of a sample is often a sum over its rows (tokens) of outer products (sk_outer): of
 * inputs x_t and gradients g_t for the weight of a product; of the unit vector of an id and g_t for
 * a table.  Then
 *
 *     |sum_t x_t g_t'|^2 = sum_ts (x_t x_s) (g_t g_s)
 *
 * takes two Gram matrices of T x T numbers instead of a gradient for each sample ("ghost norms":
 * Li, Tramer, Liang, Hashimoto, ICLR 2022).  A parameter that several nodes read, as tied words,
 * has the norm of a sum: the inner products of all pairs of readers, each made in the same way.
 *
 * The cheaper way is taken, by operations and bytes; sizes are logical, so that it is the same on
 * all layouts.  A Gram matrix is made as soon as its operands are there: what is kept until the
 * last reader of a parameter is small, and the gradient of logits is not among it. */
#include "base/strings.h"
#include "graph/extra.h"

#include <stdio.h>
#include <string.h>

/* Operations in the time of one byte from or to memory: an H200 does 100 to 160 in bf16, a core of
 * a CPU about 10, where both ways take nearly the same time. */
static const double flops_a_byte = 64;

typedef struct reader {
    const sk_node *y;
    int operand;
    sk_outer o;         /* side: NULL until the gradient of the result is there */
    bool late[2], came; /* late: that side is this gradient */
    char letters[2][SK_MAX_DIM + 1];
    char own[2][SK_MAX_DIM + 1]; /* letters of the parameter that this side alone has */
} reader;

struct sk_gram {
    const sk_tensor *param;
    char rows[SK_MAX_DIM + 1], each[SK_MAX_DIM + 1]; /* each: letters that both sides have */
    reader *v;
    int n, came;
    sk_tensor *(*of)[2]; /* Gram matrices of readers p <= q at p * n + q */
    sk_tensor *sum;
};

/* --- letters --- */

/* Letters of `of` that are in `in`, or, with `not`, are not. */
static void letters_of(const char *of, const char *in, bool not, char out[SK_MAX_DIM + 1])
{
    int n = 0;
    for (; *of; of++)
        if ((strchr(in, *of) == NULL) == not ) out[n++] = *of;
    out[n] = 0;
}

static double size_of(const sk_graph *g, const char *letters)
{
    double n = 1;
    for (; *letters; letters++) n *= (double)g->size[(int)*letters & 127];
    return n;
}

static bool same_letters(const char *a, const char *b)
{
    return strlen(a) == strlen(b) && strspn(a, b) == strlen(a);
}

/* --- readers of a parameter --- */

static void rows_of(const sk_graph *g, const sk_gram *m, const char *letters,
                    char out[SK_MAX_DIM + 1])
{
    const char batch[] = {g->batch, 0};
    char all[SK_MAX_DIM + 1];
    letters_of(letters, m->param->letters, true, all);
    letters_of(all, batch, true, out);
}

static bool read_sides(const sk_graph *g, sk_gram *m, reader *r)
{
    char rows[2][SK_MAX_DIM + 1];
    for (int s = 0; s < 2; s++) {
        const sk_tensor *t = r->o.side[s];
        const char ids[] = {s ? 0 : r->o.ids, 0};
        r->late[s] = !t;
        snprintf(r->letters[s], sizeof r->letters[s], "%s", t ? t->letters : r->y->letters_out[0]);
        letters_of(m->param->letters, *ids ? ids : r->letters[s], false, r->own[s]);
        rows_of(g, m, r->letters[s], rows[s]);
        if (!strchr(r->letters[s], g->batch)) return false;
    }
    char each[SK_MAX_DIM + 1], own[SK_MAX_DIM + 1];
    letters_of(r->own[0], r->own[1], false, each);
    for (int s = 0; s < 2; s++) {
        letters_of(r->own[s], each, true, own);
        memcpy(r->own[s], own, sizeof own);
    }
    bool first = r == m->v;
    if (first) memcpy(m->rows, rows[0], sizeof m->rows), memcpy(m->each, each, sizeof each);
    return !strcmp(rows[0], m->rows) && !strcmp(rows[1], m->rows) && !strcmp(each, m->each);
}

/* Of all readers, those whose ids come last: in a pair of two the ids are the second one's. */
static void list_readers(const sk_graph *g, sk_gram *m, bool ids)
{
    for (int k = 0; k < g->nodes.n; k++) {
        const sk_node *y = g->nodes.v[k];
        for (int i = 0; i < y->n_in && y->phase == SK_FORWARD; i++) {
            reader r = {.y = y, .operand = i};
            if (y->in[i] != m->param || !y->op->extra || !y->op->extra->outer) continue;
            y->op->extra->outer(y, i, &r.o);
            if ((r.o.ids != 0) == ids) m->v[m->n++] = r;
        }
    }
}

/* Side k of every reader has the same letters of the parameter; with ids, dense operands are in the
 * order that pick_ids wants. */
static bool agree(const sk_graph *g, const sk_gram *m, reader *r)
{
    const reader *first = m->v;
    if (r->o.ids &&
        (*m->each || r->letters[0][0] != g->batch || strcmp(r->letters[0] + 1, m->rows)))
        return false;
    for (int s = 0; s < 2; s++)
        if (!same_letters(r->own[s], first->own[s])) return false;
    if (!r->o.ids || first->o.ids) return true;
    char wanted[2 * SK_MAX_DIM];
    snprintf(wanted, sizeof wanted, "%c%s%c", g->batch, m->rows, r->o.ids);
    return !strcmp(first->letters[0], wanted);
}

static void cross(reader *r)
{
    reader x = *r;
    for (int s = 0; s < 2; s++) {
        r->o.side[s] = x.o.side[1 - s];
        r->late[s] = x.late[1 - s];
        memcpy(r->letters[s], x.letters[1 - s], sizeof x.letters[0]);
        memcpy(r->own[s], x.own[1 - s], sizeof x.own[0]);
    }
}

/* The sides of readers without ids are turned to those of the last reader, which has ids if one
 * has.
 */
static bool all_fit(const sk_graph *g, sk_gram *m)
{
    bool fit = true;
    for (int k = 0; k < m->n && fit; k++) fit = read_sides(g, m, &m->v[k]);
    const reader *last = &m->v[m->n - 1];
    for (int k = 0; k < m->n && fit; k++)
        if (!m->v[k].o.ids && !same_letters(m->v[k].own[0], last->own[0])) cross(&m->v[k]);
    fit &= 1 + strlen(m->each) + 2 * strlen(m->rows) <= SK_MAX_DIM;
    for (int k = 0; k < m->n && fit; k++) fit = agree(g, m, &m->v[k]);
    return fit;
}

/* --- what it costs --- */

static double gram_cost(const sk_graph *g, const sk_gram *m)
{
    double rows = size_of(g, m->rows), each = size_of(g, m->each), cost = 0;
    for (int p = 0; p < m->n; p++)
        for (int q = p; q < m->n; q++) {
            double k = size_of(g, m->v[q].own[1]); /* ids are compared, not multiplied */
            k += m->v[q].o.ids ? 1 : size_of(g, m->v[q].own[0]);
            cost += rows * rows * each * (2 * k + flops_a_byte * 2 * 2 * sizeof(float));
        }
    return cost;
}

/* Every gradient of samples is written once; sums of two are made, and the last is read. */
static double samples_cost(const sk_graph *g, const sk_gram *m)
{
    double rows = size_of(g, m->rows), all = size_of(g, m->param->letters), cost = 0;
    for (int k = 0; k < m->n; k++)
        cost += m->v[k].o.ids ? rows * size_of(g, m->v[k].own[1]) : 2 * rows * all;
    return cost + flops_a_byte * sizeof(float) * all * (m->n + 3 * (m->n - 1) + 1);
}

sk_gram *sk_gram_plan(sk_graph *g, const sk_tensor *param, int uses)
{
    sk_gram *m = sk_new(g->arena, sk_gram);
    *m = (sk_gram){.param = param, .v = sk_many(g->arena, reader, uses + 1)};
    if (g->norms_by == SK_NORMS_BY_SAMPLES) return NULL;
    list_readers(g, m, false);
    list_readers(g, m, true);
    if (m->n != uses || !all_fit(g, m)) return NULL;
    if (g->norms_by == SK_NORMS_CHEAPER && gram_cost(g, m) > samples_cost(g, m)) return NULL;
    m->of = (sk_tensor * (*)[2]) sk_many(g->arena, sk_tensor *, 2 * m->n * m->n);
    return m;
}

/* --- nodes --- */

static sk_tensor *wide(sk_tensor *t)
{
    t->from->wide = true;
    return t;
}

/* Products of side s of the rows of p with those of q, "bts". */
static sk_tensor *gram(sk_graph *g, const sk_gram *m, const reader *p, const reader *q, int s)
{
    sk_tensor *x = p->o.side[s], *copy = sk_with_copies(g, q->o.side[s], m->rows);
    char copies[SK_MAX_DIM + 1] = "";
    for (int k = 0; m->rows[k] && !g->status; k++) copies[k] = sk_letter_copy(g, m->rows[k]);
    const char *op = s || !q->o.ids ? "contract" : p->o.ids ? "same_ids" : "pick_ids";
    char *dims = sk_print(g->arena, "%s,%s->%c%s%s%s", x->letters, copy->letters, g->batch, m->each,
                          m->rows, copies);
    return wide(sk_read_copied(g, sk_apply(g, op, .in = {x, copy}, .dims = dims)->out[0]));
}

static void add_to(sk_graph *g, sk_gram *m, sk_tensor *x)
{
    m->sum = m->sum ? sk_apply(g, "add", .in = {m->sum, x})->out[0] : x;
}

/* Readers u, whose gradient has come now, and v.  Without that of v: what needs only u's. */
static void pair(sk_graph *g, sk_gram *m, const reader *u, const reader *v)
{
    const reader *p = u < v ? u : v, *q = u < v ? v : u;
    sk_tensor **of = m->of[(p - m->v) * m->n + (q - m->v)];
    for (int s = 0; s < 2 && !g->status; s++)
        if (!of[s] && (v->came || (u->late[s] && !v->late[s]))) of[s] = gram(g, m, p, q, s);
    if (!v->came || g->status) return;
    char *dims = sk_print(g->arena, "%s,%s->%c", of[0]->letters, of[1]->letters, g->batch);
    sk_tensor *dot = wide(sk_contract(g, dims, of[0], of[1]));
    for (int twice = 0; twice < 1 + (p != q) && !g->status; twice++) add_to(g, m, dot);
}

sk_tensor *sk_gram_norms(sk_gram *m, sk_graph *g, const sk_node *y, sk_tensor *const *dy, int i)
{
    reader *u = m->v;
    while (u->y != y || u->operand != i) u++;
    for (int s = 0; s < 2; s++)
        if (u->late[s]) u->o.side[s] = dy[0];
    u->came = true;
    for (int came = 0; came < 2; came++) /* what other stages wait for comes first */
        for (int k = 0; k < m->n && !g->status; k++)
            if (m->v[k].came == came) pair(g, m, u, &m->v[k]);
    return ++m->came == m->n && !g->status ? m->sum : NULL;
}
