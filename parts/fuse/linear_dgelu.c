/* linear_dgelu.c - the gradient of a product, and that of the GELU before it.
 *
 * Only where linear_gelu stored the input of GELU, with its bias: operand 1 of the gradient has no
 * address then.  The result must not overlap that input: cuBLASLt reads it while it writes
 * (gradients of GPT-2 came out 8 % too short).  With the sum over the rows, which is the bias's
 * gradient, in the same epilogue it took twice as long. */
#include "kernel/product.h"
#include "program/fuse.h"

static bool product(const sk_args *y, const sk_args *a, sk_product *p)
{
    if (y->add & 1 || a->add & 1 || a->in[1].data || y->out[0].type == SK_F32 ||
        !sk_contract_product(y, p))
        return false;
    if (p->batch != 1 || p->d.ld != p->n || p->n % 8) return false;
    if (a->in[0].type != p->d.type || a->out[0].type != p->d.type) return false;
    if (a->in[0].data == a->out[0].data) return false;
    p->d.data = a->out[0].data;
    p->aux = p->d;
    p->aux.data = a->in[0].data;
    p->after = SK_AFTER_DGELU;
    return true;
}

static bool match(const sk_fuse_site *s, int pc, sk_fuse_set *x)
{
    sk_product p = {0};
    int at = sk_fuse_is(s, pc, "contract") ? sk_fuse_only_reader(s, pc, 0, "bias_gelu_grad") : -1;
    if (at < 0 || s->p->insts.v[at].in[2] != s->p->insts.v[pc].out[0]) return false;
    if (!product(&s->args[pc], &s->args[at], &p)) return false;
    *x = (sk_fuse_set){.n = 2, .pcs = {pc, at}, .silent = {1}};
    return true;
}

static sk_status launch(const sk_args *const *a, int n, const sk_launch *l)
{
    static const char *const ops[] = {"contract", "bias_gelu_grad"};
    sk_product p = {0};
    bool ran = false;
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

const sk_fuse sk_fuse_linear_dgelu = {
    "linear_dgelu", "a product, and GELU's gradient at what was kept",
    match,          launch,
    prepare,        NULL};
