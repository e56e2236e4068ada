/* fp8_product.c - where the copies of a contraction in 8 bits lie; see fp8_product.h. */
#include "kernel/fp8_product.h"

enum { STEP = 16 }; /* tensor cores want sizes that are multiples of it */

static size_t lines(size_t n) { return (n + SK_FP8_LINE - 1) / SK_FP8_LINE * SK_FP8_LINE; }

/* The product that the contraction would be in the types that it is given.  Without addresses, as
 * in a plan, all is aligned. */
static bool as_product(const sk_args *a, sk_product *p)
{
    sk_args plain = *a;
    plain.attr[0] = 0;
    return sk_contract_product(&plain, p) && p->m % STEP == 0 && p->n % STEP == 0 &&
           p->batch <= UINT16_MAX && (uintptr_t)p->d.data % STEP == 0;
}

/* Bytes of the copy of a contraction's operand. */
static size_t copy_bytes(const sk_args *a, const sk_fp8_plan *f, int i)
{
    const sk_product *p = &f->p;
    if (!f->eight) return (size_t)sk_count(&a->in[i]) * sk_dtype_size(f->type);
    return (size_t)(p->batch * ((i == 0) != p->crossed ? p->m : p->n) * f->k);
}

void sk_fp8_plan_of(const sk_args *a, bool wide, sk_fp8_plan *out)
{
    *out = (sk_fp8_plan){.parts = SK_FP8_LINE};
    sk_assert(a->n_in == 2 && a->n_out == 1);

    out->eight = !wide && as_product(a, &out->p);
    out->type = a->out[0].type == SK_F16 ? SK_F16 : SK_BF16;
    if (out->eight) out->k = (out->p.k + STEP - 1) / STEP * STEP;
    out->bytes = lines(out->parts + 2 * SK_FP8_PARTS * sizeof(float));
    for (int i = 0; i < 2; i++) {
        out->at[i] = out->bytes;
        out->bytes += lines(copy_bytes(a, out, i));
    }
}

size_t sk_fp8_workspace(const sk_args *a)
{
    sk_fp8_plan f, wide;
    if (!sk_fp8_is(a) || !sk_count(&a->out[0])) return 0;
    sk_fp8_plan_of(a, false, &f);
    sk_fp8_plan_of(a, true, &wide);
    return f.bytes > wide.bytes ? f.bytes : wide.bytes;
}

static sk_lt_matrix copy_of(const sk_args *a, const sk_fp8_plan *f, char *workspace, int i,
                            int64_t rows)
{
    return (sk_lt_matrix){.data = workspace + f->at[i],
                          .type = SK_U8,
                          .e5m2 = sk_fp8_gradient(a, i),
                          .ld = f->k,
                          .step = rows * f->k};
}

sk_product sk_fp8_product(const sk_args *a, const sk_fp8_plan *f, char *workspace)
{
    sk_product p = f->p;
    const float *down = (const float *)(const void *)workspace + SK_FP8_DOWN;
    int first = p.crossed;
    p.k = f->k;
    p.a = copy_of(a, f, workspace, first, p.m);
    p.b = copy_of(a, f, workspace, !first, p.n);
    p.b.turned = true;
    p.a_scale = down + SK_FP8_SLOT * first;
    p.b_scale = down + SK_FP8_SLOT * !first;
    return p;
}
