/* linear_add.c - the fusion `linear`: a product and what is added to it: a bias, a residual,
 * another gradient.
 *
 *     contract + bias                        y + b
 *     contract + residual                    x + y + b
 *     contract + add                         x + y
 *
 * cuBLASLt adds while the result is still in registers, so that nothing is written twice. */
#include "kernel/product.h"
#include "program/fuse.h"

/* What is added to the product: a matrix like the result, or NULL; a bias, or NULL. */
typedef struct addends {
    const sk_view *x, *bias;
} addends;

static addends what(const sk_args *y, const sk_args *a)
{
    const void *from = y->out[0].data;
    if (a->n_in == 3) return (addends){&a->in[0], &a->in[2]};
    if (sk_count(&a->in[1]) < sk_count(&a->in[0])) return (addends){NULL, &a->in[1]};
    return (addends){a->in[0].data == from ? &a->in[1] : &a->in[0], NULL};
}

static bool product(const sk_args *y, const sk_args *a, sk_product *p)
{
    addends w = what(y, a);
    if ((y->add & 1) || (a->add & 1) || !sk_contract_product(y, p)) return false;
    if (p->batch != 1 || p->d.ld != p->n || a->out[0].type != p->d.type) return false;
    if (w.bias && (sk_count(w.bias) != p->n || w.bias->type != p->d.type)) return false;
    if (w.x && w.x->type != p->d.type) return false;
    p->d.data = a->out[0].data;
    if (p->d.data == p->a.data || p->d.data == p->b.data) return false; /* x + W x, over x */
    if (w.bias) {
        p->after = SK_AFTER_BIAS;
        p->bias.data = w.bias->data;
        p->bias.type = p->d.type;
    }
    if (w.x) {
        p->c = p->d;
        p->c.data = w.x->data;
        p->beta = 1;
    }
    return true;
}

/* Operand `in` of the second must be the product, and nobody else may read it. */
static bool match(const sk_fuse_site *s, int pc, sk_fuse_set *x)
{
    static const char *const with[] = {"bias", "residual", "add"};
    sk_product p = {0};
    if (!sk_fuse_is(s, pc, "contract")) return false;
    for (int i = 0; i < 3; i++) {
        int at = sk_fuse_only_reader(s, pc, 0, with[i]), y = s->p->insts.v[pc].out[0];
        if (at < 0) continue;
        const int *in = s->p->insts.v[at].in;
        if (i == 0 ? in[0] != y : i == 1 ? in[1] != y : in[0] == in[1]) continue;
        if (!product(&s->args[pc], &s->args[at], &p)) continue;
        *x = (sk_fuse_set){.n = 2, .pcs = {pc, at}, .silent = {1}};
        return true;
    }
    return false;
}

static sk_status launch(const sk_args *const *a, int n, const sk_launch *l)
{
    sk_product p = {0};
    bool ran = false;
    const char *then = a[1]->n_in == 3                                   ? "residual"
                       : sk_count(&a[1]->in[1]) < sk_count(&a[1]->in[0]) ? "bias"
                                                                         : "add";
    const char *const ops[] = {"contract", then};
    if (product(a[0], a[1], &p)) SK_TRY(sk_product_run(&p, l, &ran));
    return ran ? SK_OK : sk_fuse_singly(ops, a, n, l);
}

static sk_status prepare(const sk_args *const *a, int n, const sk_launch *l, sk_variant *took)
{
    sk_product p = {0};
    bool found = false;
    (void)n;
    if (product(a[0], a[1], &p)) SK_TRY(sk_product_prepare(&p, l, &found));
    if (found) took->name = "cuBLASLt";
    return found ? SK_OK : sk_fuse_prepare("contract", a[0], l, took);
}

const sk_fuse sk_fuse_linear_add = {
    "linear", "a product, and what is added to it", match, launch, prepare, NULL};
