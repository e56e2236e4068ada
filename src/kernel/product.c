/* product.c - how a contraction becomes products of matrices; see product.h. */
#include "kernel/product.h"

#include <limits.h>

static void note(sk_letters *all, char name, const sk_view *v, int who, int dim)
{
    int i = 0;
    while (i < all->n && all->v[i].name != name) i++;
    sk_assert(i < SK_MAX_LETTER && dim < SK_MAX_DIM);

    if (i == all->n) all->v[all->n++] = (sk_letter){.name = name, .view = v, .dim = dim};
    all->v[i].size = v->size[dim];
    all->v[i].step[who] = v->step[dim];
    all->v[i].in[who] = true;
}

void sk_letters_read(const sk_args *a, sk_letters *all)
{
    const sk_view *view[3] = {&a->in[0], &a->in[1], &a->out[0]};
    int who = SK_A, dim = 0;
    all->n = 0;
    for (const char *p = a->dims; *p; p++) {
        if (*p == ',') who = SK_B, dim = 0;
        else if (*p == '>') who = SK_OUT, dim = 0;
        else if (*p != '-' && *p != '!' && *p != '^') note(all, *p, view[who], who, dim++);
    }
}

static int kind(const sk_letter *l)
{
    if (!l->in[SK_OUT]) return SK_SUMMED;
    return l->in[SK_A] && l->in[SK_B] ? SK_BATCH : l->in[SK_B] ? SK_COLS : SK_ROWS;
}

void sk_letters_sort(const sk_letters *all, sk_letters by_kind[SK_N_ROLES])
{
    for (int i = 0; i < SK_N_ROLES; i++) by_kind[i].n = 0;
    for (int i = 0; i < all->n; i++) {
        sk_letters *to = &by_kind[kind(&all->v[i])];
        to->v[to->n++] = all->v[i];
    }
}

int64_t sk_letters_count(const sk_letters *l)
{
    int64_t n = 1;
    for (int i = 0; i < l->n; i++) n *= l->v[i].size;
    return n;
}

bool sk_letters_merge(const sk_letters *l, sk_letter *one)
{
    int64_t weight = INT64_MAX;
    int left = 0;
    for (int i = 0; i < l->n; i++) left += l->v[i].size > 1;
    *one = (sk_letter){.size = sk_letters_count(l)};
    if (one->size <= 1) return true;
    for (;;) { /* outermost first: by falling step */
        const sk_letter *next = NULL;
        int64_t best = 0;
        for (int i = 0; i < l->n; i++) {
            int64_t w = l->v[i].step[SK_A] + l->v[i].step[SK_B] + l->v[i].step[SK_OUT];
            if (l->v[i].size > 1 && w < weight && w > best) next = &l->v[i], best = w;
        }
        if (!next) return !left; /* two of one weight: neither is inside the other */
        left--;
        for (int w = 0; w < 3 && weight != INT64_MAX; w++)
            if (one->step[w] != next->step[w] * next->size) return false;
        weight = best;
        for (int w = 0; w < 3; w++) one->step[w] = next->step[w];
    }
}

static bool as_matrix(int64_t rows, int64_t cols, int64_t row_step, int64_t col_step, sk_stored *m)
{
    if (cols <= 1 || col_step == 1) *m = (sk_stored){false, rows <= 1 ? cols : row_step};
    else if (rows <= 1 || row_step == 1) *m = (sk_stored){true, col_step};
    else return false;
    if (m->ld < 1) m->ld = rows <= 1 || cols <= 1 ? 1 : 0;
    return m->ld >= (m->turned ? rows : cols) && m->ld <= INT_MAX;
}

bool sk_matmul_plan(const sk_letters by_kind[SK_N_ROLES], sk_matmul *p)
{
    return sk_letters_merge(&by_kind[SK_ROWS], &p->m) &&
           sk_letters_merge(&by_kind[SK_COLS], &p->n) &&
           sk_letters_merge(&by_kind[SK_SUMMED], &p->k) && p->m.size <= INT_MAX &&
           p->n.size <= INT_MAX && p->k.size <= INT_MAX &&
           as_matrix(p->m.size, p->k.size, p->m.step[SK_A], p->k.step[SK_A], &p->a) &&
           as_matrix(p->k.size, p->n.size, p->k.step[SK_B], p->n.step[SK_B], &p->b) &&
           as_matrix(p->m.size, p->n.size, p->m.step[SK_OUT], p->n.step[SK_OUT], &p->out);
}

/* ---- as products for cuBLASLt */

/* Types that go together, no canonical order, and operands as they are. */
static bool plain(const sk_args *a)
{
    sk_dtype type = a->in[0].type, to = a->out[0].type;
    if (a->attr[0] != 0) return false;
    for (int i = 0; i < 2; i++)
        for (int d = 0; d < a->in[i].n; d++)
            if (a->in[i].cells[d]) return false;
    return (type == SK_F32 || type == SK_BF16 || type == SK_F16) && a->in[1].type == type &&
           (to == type || to == SK_F32);
}

/* All of the batch as one dim, or the longest letter of it; the others are to be walked. */
static void split_batch(const sk_letters *batch, sk_letter *inner, sk_letters *outer)
{
    int longest = 0;
    outer->n = 0;
    if (sk_letters_merge(batch, inner)) return;
    for (int i = 1; i < batch->n; i++)
        if (batch->v[i].size > batch->v[longest].size) longest = i;
    *inner = batch->v[longest];
    for (int i = 0; i < batch->n; i++)
        if (i != longest) outer->v[outer->n++] = batch->v[i];
}

/* A result that is stored column by column is the product of b and a, both turned. */
static void cross(sk_product *p)
{
    sk_lt_matrix a = p->a;
    int64_t m = p->m;
    p->a = p->b, p->b = a;
    p->m = p->n, p->n = m;
    p->a.turned = !p->a.turned;
    p->b.turned = !p->b.turned;
    p->d.turned = false;
    p->crossed = true;
}

static sk_lt_matrix operand(const sk_view *v, const sk_stored *s, int64_t step)
{
    return (sk_lt_matrix){
        .data = v->data, .type = v->type, .turned = s->turned, .ld = s->ld, .step = step};
}

bool sk_contract_products(const sk_args *a, sk_product *out, sk_letters *outer)
{
    sk_letters all, by_kind[SK_N_ROLES];
    sk_letter batch;
    sk_matmul p;
    if (!plain(a) || !sk_count(&a->out[0])) return false;
    sk_letters_read(a, &all);
    sk_letters_sort(&all, by_kind);
    if (!sk_matmul_plan(by_kind, &p) || !p.k.size) return false;
    split_batch(&by_kind[SK_BATCH], &batch, outer);
    if (batch.size > INT_MAX) return false;
    *out = (sk_product){.m = p.m.size, .n = p.n.size, .k = p.k.size, .batch = batch.size};
    out->a = operand(&a->in[0], &p.a, batch.step[SK_A]);
    out->b = operand(&a->in[1], &p.b, batch.step[SK_B]);
    out->d = operand(&a->out[0], &p.out, batch.step[SK_OUT]);
    out->alpha = 1;
    out->beta = (float)(a->add & 1);
    if (out->d.turned) cross(out);
    return true;
}

bool sk_contract_product(const sk_args *a, sk_product *out)
{
    sk_letters outer;
    return sk_contract_products(a, out, &outer) && sk_letters_count(&outer) == 1;
}

static void *further(const sk_lt_matrix *x, int64_t n)
{
    return (char *)x->data + n * (int64_t)sk_dtype_size(x->type);
}

sk_product sk_product_at(const sk_product *p, const int64_t at[3])
{
    sk_product q = *p;
    sk_assert(p->m > 0 && p->n > 0 && p->k > 0);
    q.a.data = further(&p->a, at[p->crossed ? SK_B : SK_A]);
    q.b.data = further(&p->b, at[p->crossed ? SK_A : SK_B]);
    q.d.data = further(&p->d, at[SK_OUT]);
    return q;
}
