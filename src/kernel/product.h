/* product.h - how a contraction becomes products of matrices.
 *
 * Letters fall into four kinds: batch (in both operands and in the result), m (first and result),
 * n (second and result), k (summed).  Where the letters of a kind lie in line, they act like one
 * dim; where that holds of m, n and k and each operand has one of its two dims dense, the
 * contraction is a product of matrices, once for each element of the batch.  parts/op/contract.c
 * gives these to BLAS, parts/op/contract.cu to cuBLASLt, and both walk the letters where it is not
 * so.
 *
 * For who joins a contraction with its neighbours on a GPU:
 *
 *     sk_product p;
 *     if (!sk_contract_product(args, &p)) return false;         not one product
 *     p.after = SK_AFTER_BIAS, p.bias = (sk_lt_matrix){.data = b, .type = p.d.type};
 *     SK_TRY(sk_product_run(&p, launch, NULL));
 *
 * p.n are then the last letters of the result, those that a bias has, if sk_count(bias) is p.n;
 * p.a is the second operand if p.crossed. */
#ifndef SK_KERNEL_PRODUCT_H
#define SK_KERNEL_PRODUCT_H

#include "kernel/cuda/cublaslt.h"
#include "kernel/kernel_launch.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { SK_A, SK_B, SK_OUT };                                /* whose */
enum { SK_BATCH, SK_ROWS, SK_COLS, SK_SUMMED, SK_N_ROLES }; /* kinds: batch, m, n, k */
enum { SK_MAX_LETTER = 3 * SK_MAX_DIM };

typedef struct sk_letter {
    char name;
    int64_t size, step[3]; /* elements between neighbours in a, b, out; 0: not there */
    bool in[3];
    const sk_view *view; /* where the dims line names it first */
    int dim;
} sk_letter;

typedef struct sk_letters {
    int n;
    sk_letter v[SK_MAX_LETTER];
} sk_letters;

/* The letters of a contraction in the order of its dims line, and the same by kind. */
void sk_letters_read(const sk_args *a, sk_letters *all);
void sk_letters_sort(const sk_letters *all, sk_letters by_kind[SK_N_ROLES]);
int64_t sk_letters_count(const sk_letters *l); /* of combinations */

/* The offsets in a, b and out of the i-th combination of these letters. */
static inline void sk_letters_locate(const sk_letters *l, int64_t i, int64_t at[3])
{
    at[SK_A] = at[SK_B] = at[SK_OUT] = 0;
    for (int k = l->n - 1; k >= 0; k--) {
        int64_t x = i % l->v[k].size;
        i /= l->v[k].size;
        for (int w = 0; w < 3; w++) at[w] += x * l->v[k].step[w];
    }
}

/* One dim that stands for all letters of a kind; false if they do not lie in line. */
bool sk_letters_merge(const sk_letters *l, sk_letter *one);

typedef struct sk_stored {
    bool turned; /* stored column by column */
    int64_t ld;
} sk_stored;

typedef struct sk_matmul {
    sk_letter m, n, k;
    sk_stored a, b, out;
} sk_matmul;

/* The product of one element of the batch; false if it is none. */
bool sk_matmul_plan(const sk_letters by_kind[SK_N_ROLES], sk_matmul *p);

/* All of it as one sk_product, with beta 1 where the result is added to; false if it takes several
 * or none, if nothing is to be summed, if the types of the operands differ, in canonical order, or
 * in 8 bits (kernel/fp8_product.h): what joins contractions with their neighbours leaves those
 * alone. */
bool sk_contract_product(const sk_args *a, sk_product *out);
/* The same, to be taken once for each combination of the letters in `outer`: sk_product_at(). */
bool sk_contract_products(const sk_args *a, sk_product *out, sk_letters *outer);
/* The product whose operands begin `at` elements further. */
sk_product sk_product_at(const sk_product *p, const int64_t at[3]);

/* *ran, *found: false where there is no algorithm, or skein_cuda is not linked. */
sk_status sk_product_run(const sk_product *p, const sk_launch *l, bool *ran);
sk_status sk_product_prepare(const sk_product *p, const sk_launch *l, bool *found);

#ifdef __cplusplus
}
#endif

#endif
