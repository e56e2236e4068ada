/* linear_gelu.c - a product, its bias and GELU, in the product's own epilogue.
 *
 * Where the backward pass needs the input of GELU, the epilogue stores that too, with the bias
 * added; so the ops that read it there get operand 1, the bias, without an address: nothing is left
 * to add.  Not in f32, where results must match the ops alone. */
#include "kernel/product.h"
#include "program/fuse.h"

enum { MOST = 4 };

static bool product(const sk_args *y, const sk_args *a, bool keeps, sk_product *p)
{
    const sk_view *b = &a->in[1];
    if (y->add & 1 || a->add & 1 || y->out[0].type == SK_F32 || !sk_contract_product(y, p))
        return false;
    if (p->batch != 1 || p->d.ld != p->n || p->n % 8 || !b->data) return false;
    if (sk_count(b) != p->n || b->type != p->d.type || a->out[0].type != p->d.type) return false;
    p->aux = p->d; /* where the product itself would be */
    p->d.data = a->out[0].data;
    p->after = keeps ? SK_AFTER_GELU_AUX_BIAS : SK_AFTER_GELU_BIAS;
    p->bias.data = b->data;
    p->bias.type = p->d.type;
    return true;
}

/* All who read the product take the same bias; the first is the GELU of the forward pass. */
static int readers(const sk_fuse_site *s, int pc, int *at)
{
    int n = sk_fuse_readers(s, pc, 0, at, MOST), y = s->p->insts.v[pc].out[0];
    if (n < 1 || n > MOST || !sk_fuse_is(s, at[0], "bias_gelu")) return 0;
    for (int i = 0; i < n; i++) {
        const sk_inst *in = &s->p->insts.v[at[i]];
        if (in->in[0] != y || in->in[1] != s->p->insts.v[at[0]].in[1]) return 0;
        if (!sk_fuse_is(s, at[i], "bias_gelu") && !sk_fuse_is(s, at[i], "bias_gelu_grad")) return 0;
    }
    return n;
}

static bool match(const sk_fuse_site *s, int pc, sk_fuse_set *x)
{
    int at[MOST];
    sk_product p = {0};
    int n = sk_fuse_is(s, pc, "contract") ? readers(s, pc, at) : 0;
    if (!n || !product(&s->args[pc], &s->args[at[0]], n > 1, &p)) return false;
    *x = (sk_fuse_set){.n = 2, .pcs = {pc, at[0]}, .silent = {n == 1}};
    return true;
}

/* Those who come later; the pair's own bias stays, and tells whether there is such a one. */
static void settle(const sk_fuse_site *s, const sk_fuse_set *x)
{
    int at[MOST], m = sk_fuse_readers(s, x->pcs[0], 0, at, MOST);
    for (int i = 1; i < m; i++) s->args[at[i]].in[1].data = NULL;
    s->args[x->pcs[0]].attr[SK_MAX_ATTR - 1] = m > 1; /* contract has no attributes of its own */
}

static bool keeps(const sk_args *const *a) { return a[0]->attr[SK_MAX_ATTR - 1] != 0; }

/* Without an algorithm: the product, its bias in place, and GELU of that. */
static sk_status singly(const sk_args *const *a, const sk_launch *l)
{
    sk_args bias = *a[1], gelu = *a[1];
    bias.out[0] = a[0]->out[0];
    gelu.in[1].data = NULL;
    SK_TRY(sk_kernel_find("contract")->launch(a[0], l));
    SK_TRY(sk_kernel_find("bias")->launch(&bias, l));
    return sk_kernel_find("bias_gelu")->launch(&gelu, l);
}

static sk_status launch(const sk_args *const *a, int n, const sk_launch *l)
{
    sk_product p = {0};
    bool ran = false;
    (void)n;
    if (product(a[0], a[1], keeps(a), &p)) SK_TRY(sk_product_run(&p, l, &ran));
    return ran ? SK_OK : singly(a, l);
}

static sk_status prepare(const sk_args *const *a, int n, const sk_launch *l, sk_variant *took)
{
    sk_product p = {0};
    bool found = false;
    (void)n;
    if (product(a[0], a[1], keeps(a), &p)) SK_TRY(sk_product_prepare(&p, l, &found));
    if (found) took->name = "cuBLASLt";
    return found ? SK_OK : sk_fuse_prepare("contract", a[0], l, took);
}

const sk_fuse sk_fuse_linear_gelu = {
    "linear_gelu", "a product, its bias and GELU", match, launch, prepare, settle};
