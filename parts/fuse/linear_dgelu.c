/* linear_dgelu.c - the gradient that comes back through a product, that of GELU before it, and that
 * of the bias before that: its sum over the rows.
 *
 * Only where linear_gelu kept what GELU was taken of, with its bias: operand 1 of the gradient has
 * no address then.  The result may lie where that was kept: an element is read before it is
 * written, by the same thread. */
#include "graph/product.h"
#include "run/fuse.h"

enum { NEAR = 3 };

/* The letters that are summed come first, and all others stay, in their order. */
static bool sums_rows(const sk_args *s, int64_t n)
{
    const sk_view *x = &s->in[0], *y = &s->out[0];
    if (s->add & 1 || y->type != x->type || sk_count(y) != n || y->n < 1 || y->n >= x->n)
        return false;
    for (int d = 0; d < y->n; d++)
        if (y->size[d] != x->size[x->n - y->n + d]) return false;
    return true;
}

/* `sum` may be NULL. */
static bool product(const sk_args *y, const sk_args *a, const sk_args *sum, sk_product *p)
{
    if (y->add & 1 || a->add & 1 || a->in[1].data || y->out[0].type == SK_F32 ||
        !sk_contract_product(y, p))
        return false;
    if (p->batch != 1 || p->d.ld != p->n || p->n % 8) return false;
    if (a->in[0].type != p->d.type || a->out[0].type != p->d.type) return false;
    p->d.data = a->out[0].data;
    p->aux = p->d;
    p->aux.data = a->in[0].data;
    p->after = sum ? SK_AFTER_DGELU_BGRAD : SK_AFTER_DGELU;
    if (!sum) return true;
    p->bias = (sk_lt_matrix){.data = sum->out[0].data, .type = p->d.type};
    return sums_rows(sum, p->n);
}

static bool match(const sk_fuse_site *s, int pc, sk_fuse_set *x)
{
    sk_product p = {0};
    const sk_inst *v = s->p->insts.v;
    int at = sk_fuse_is(s, pc, "contract") ? sk_fuse_only_reader(s, pc, 0, "bias_gelu_grad") : -1;
    if (at < 0 || v[at].in[2] != v[pc].out[0]) return false;
    if (!product(&s->args[pc], &s->args[at], NULL, &p)) return false;
    int sum = sk_fuse_next(s, at, "sum", 0, v[at].out[0], NEAR);
    *x = (sk_fuse_set){.n = 2, .pcs = {pc, at, sum}, .silent = {1}};
    if (sum >= 0 && product(&s->args[pc], &s->args[at], &s->args[sum], &p)) x->n = 3;
    return true;
}

static sk_status launch(const sk_args *const *a, int n, const sk_launch *l)
{
    static const char *const ops[] = {"contract", "bias_gelu_grad", "sum"};
    sk_product p = {0};
    bool ran = false;
    if (product(a[0], a[1], n > 2 ? a[2] : NULL, &p)) SK_TRY(sk_product_run(&p, l, &ran));
    return ran ? SK_OK : sk_fuse_singly(ops, a, n, l);
}

static sk_status prepare(const sk_args *const *a, int n, const sk_launch *l)
{
    sk_product p = {0};
    bool found = false;
    if (product(a[0], a[1], n > 2 ? a[2] : NULL, &p)) SK_TRY(sk_product_prepare(&p, l, &found));
    if (found) return SK_OK;
    const sk_kernel *k = sk_kernel_find("contract");
    return k->prepare ? k->prepare(a[0], l) : SK_OK;
}

const sk_fuse sk_fuse_linear_dgelu = {
    "linear_dgelu", "a product, GELU's gradient at what was kept, and the bias's",
    match,          launch,
    prepare,        NULL};
