/* twins.c - the gradients of two weights that read the same, such as gate and up of a SwiGLU.
 *
 *     contract + contract
 *
 * A GPU makes a product a wave of tiles at a time, and the last wave of a small product leaves
 * many of its processors idle.  In a batch of two, the tiles of the second go there. */
#include "kernel/product.h"
#include "program/fuse.h"

enum { NEAR = 4, ALIGN = 16 };
static const int64_t MANY = 32 << 20; /* results whose waves are so many that the last is nothing */

static bool like(const sk_lt_matrix *x, const sk_lt_matrix *y)
{
    return x->type == y->type && x->turned == y->turned && x->ld == y->ld;
}

/* From the matrix of the first to that of the second. */
static bool step(sk_lt_matrix *x, const sk_lt_matrix *y)
{
    int64_t bytes = (char *)y->data - (char *)x->data;
    x->step = bytes / (int64_t)sk_dtype_size(x->type);
    return bytes >= 0 && bytes % ALIGN == 0;
}

/* Both as a batch; the one whose result lies lower is the first of it. */
static bool product(const sk_args *first, const sk_args *second, sk_product *p)
{
    bool turn = second->out[0].data < first->out[0].data;
    sk_product q = {0};
    if (!sk_contract_product(turn ? second : first, p)) return false;
    if (!sk_contract_product(turn ? first : second, &q)) return false;
    if (p->batch != 1 || q.batch != 1 || p->m != q.m || p->n != q.n || p->k != q.k) return false;
    if (!like(&p->a, &q.a) || !like(&p->b, &q.b) || !like(&p->d, &q.d) || p->beta != q.beta)
        return false;
    p->batch = 2;
    return p->m <= MANY / p->n && step(&p->a, &q.a) && step(&p->b, &q.b) && step(&p->d, &q.d);
}

static bool is_gradient(const sk_fuse_site *s, int pc)
{
    return s->p->bufs.v[s->p->insts.v[pc].out[0]].kind == SK_GRADS;
}

static bool match(const sk_fuse_site *s, int pc, sk_fuse_set *x)
{
    sk_product p = {0};
    if (!sk_fuse_is(s, pc, "contract") || !is_gradient(s, pc)) return false;
    for (int i = 0; i < 2; i++) {
        int at = sk_fuse_next(s, pc, "contract", i, s->p->insts.v[pc].in[i], NEAR);
        if (at < 0 || !is_gradient(s, at) || !product(&s->args[pc], &s->args[at], &p)) continue;
        *x = (sk_fuse_set){.n = 2, .pcs = {pc, at}};
        return true;
    }
    return false;
}

static sk_status launch(const sk_args *const *a, int n, const sk_launch *l)
{
    static const char *const ops[] = {"contract", "contract"};
    sk_product p = {0};
    bool ran = false;
    if (product(a[0], a[1], &p)) SK_TRY(sk_product_run(&p, l, &ran));
    return ran ? SK_OK : sk_fuse_singly(ops, a, n, l);
}

static sk_status prepare(const sk_args *const *a, int n, const sk_launch *l, sk_variant *took)
{
    sk_product p = {0};
    bool found = false;
    if (product(a[0], a[1], &p)) SK_TRY(sk_product_prepare(&p, l, &found));
    if (found) took->name = "cuBLASLt";
    for (int i = 0; i < n && !found; i++) SK_TRY(sk_fuse_prepare("contract", a[i], l, took));
    return SK_OK;
}

const sk_fuse sk_fuse_twins = {
    "twins", "gradients of two weights that read the same", match, launch, prepare, NULL};
