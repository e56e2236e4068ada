/* bias_grad.c - the gradient of a bias beside that of its weights.
 *
 * Both read the gradient of the layer's result, one summing it over the tokens and one multiplying
 * it with the layer's input, which sums over the tokens too: the product has it in registers. */
#include "graph/product.h"
#include "run/fuse.h"

enum { NEAR = 6 };

/* The letters that are summed come first, and all others stay, in their order. */
static bool sums_rows(const sk_args *s)
{
    const sk_view *x = &s->in[0], *y = &s->out[0];
    if (s->add & 1 || y->n < 1 || y->n >= x->n) return false;
    for (int d = 0; d < y->n; d++)
        if (y->size[d] != x->size[x->n - y->n + d]) return false;
    return true;
}

static bool product(const sk_args *s, const sk_args *w, sk_product *p)
{
    const sk_view *x = &s->in[0], *y = &s->out[0];
    int which = w->in[1].data == x->data;
    if (!sums_rows(s) || x->type == SK_F32 || !sk_contract_product(w, p)) return false;
    if (w->in[which].data != x->data || w->in[0].data == w->in[1].data) return false;
    bool is_a = (which == 1) == p->crossed;
    int64_t n = sk_count(y);
    if (p->batch != 1 || n != (is_a ? p->m : p->n) || n * p->k != sk_count(x)) return false;
    if (y->type != p->d.type || x->type != w->in[which].type) return false;
    p->after = is_a ? SK_AFTER_SUM_A : SK_AFTER_SUM_B;
    p->bias.data = y->data;
    p->bias.type = y->type;
    return true;
}

static bool match(const sk_fuse_site *s, int pc, sk_fuse_set *x)
{
    sk_product p = {0};
    if (!sk_fuse_is(s, pc, "sum")) return false;
    for (int i = 0; i < 2; i++) {
        int at = sk_fuse_next(s, pc, "contract", i, s->p->insts.v[pc].in[0], NEAR);
        if (at < 0 || !product(&s->args[pc], &s->args[at], &p)) continue;
        *x = (sk_fuse_set){.n = 2, .pcs = {pc, at}};
        return true;
    }
    return false;
}

static sk_status launch(const sk_args *const *a, int n, const sk_launch *l)
{
    static const char *const ops[] = {"sum", "contract"};
    sk_product p = {0};
    bool ran = false;
    if (product(a[0], a[1], &p)) SK_TRY(sk_product_run(&p, l, &ran));
    return ran ? SK_OK : sk_fuse_singly(ops, a, n, l);
}

static sk_status prepare(const sk_args *const *a, int n, const sk_launch *l)
{
    sk_product p = {0};
    bool found = false;
    (void)n;
    if (product(a[0], a[1], &p)) SK_TRY(sk_product_prepare(&p, l, &found));
    return found ? SK_OK : sk_kernel_find("contract")->prepare(a[1], l);
}

const sk_fuse sk_fuse_bias_grad = {
    "bias_grad", "the gradient of a bias beside that of its weights", match, launch, prepare, NULL};
