/* flash.h - causal attention on a GPU, for the ops that have it: kernel/causal_attention.h's other
 * half.
 *
 * Flash attention (Dao et al. 2022): a block of queries walks over tiles of keys that it sees, and
 * the square of scores is never stored.  The gradient is three kernels and no atomics, for the
 * same bits every time: row sums of dy * y; a block of keys walks over the queries that see it for
 * dk and dv; a block of queries over its keys for dq.  Scores are therefore computed twice, seven
 * products instead of five.
 *
 * There are two of each: bf16 and f16 with d a multiple of 8 up to 128 go through tensor cores
 * (flash_forward.cu, flash_backward.cu), everything else up to d = 256 through f32 arithmetic in
 * f32 tiles (flash_plain.cu), which is the reference for f32.
 *
 * r query heads share a key and a value.  Positions are as in causal_attention.h. */
#ifndef SK_KERNEL_FLASH_H
#define SK_KERNEL_FLASH_H

#include "kernel/cuda/cuda.h"
#include "kernel/causal_attention.h"

typedef struct sk_steps { /* elements from one to the next */
    int64_t batch, group, head, time;
} sk_steps;

typedef struct sk_flash {
    const char *op;
    sk_dtype type;
    int64_t b, h, r, d; /* h groups of r query heads */
    sk_times time;
    const void *q, *k, *v, *dy;
    void *y, *dq, *dk, *dv; /* the gradient reads y and writes the rest, at the steps of q, k, v */
    sk_any lse;             /* [b, h, r, time] */
    sk_steps at_q, at_kv, at_y;
    bool merge;         /* forward: as in sk_attend */
    bool add_q, add_kv; /* backward: dq, and dk and dv, are added to */
} sk_flash;

sk_status sk_flash_forward(const sk_flash *f, const sk_launch *l);
sk_status sk_flash_backward(const sk_flash *f,
                            const sk_launch *l); /* workspace: 8 bytes a row of lse */

/* "flash": through tensor cores; "flash f32": not. */
const char *sk_flash_name(const sk_flash *f);
/* Our own kernels do it, where cuDNN's were wanted and did not. */
void sk_flash_took(const sk_flash *f, const char *why, double slower, sk_variant *took);

/* The kernels that sk_flash_forward() and sk_flash_backward() choose from.  rows: lse and the sum
 * of dy * y of each row. */
sk_status sk_flash_mma_forward(const sk_flash *f, cudaStream_t s);
sk_status sk_flash_mma_backward(const sk_flash *f, const float2 *rows, cudaStream_t s);
sk_status sk_flash_plain_forward(const sk_flash *f, cudaStream_t s);
sk_status sk_flash_plain_backward(const sk_flash *f, const float2 *rows, cudaStream_t s);

/* The packed form of parts/op/attention.c: [b, t, h, r + 2, d]. */
static inline void sk_flash_packed(sk_flash *f, const sk_view *x)
{
    int64_t t = x->size[1], h = x->size[2], s = x->size[3], d = x->size[4], r = s - 2;
    f->type = x->type;
    f->b = x->size[0], f->h = h, f->r = r, f->d = d;
    f->at_q = f->at_kv = sk_steps{t * h * s * d, s * d, d, h * s * d};
    f->at_y = sk_steps{t * h * r * d, r * d, d, h * r * d};
}

/* The forms of parts/op/attention_kv.c: queries [b, t, h, r, d] and keys with values [b, t, h, 2,
 * d]. */
static inline void sk_flash_apart(sk_flash *f, const sk_view *q, const sk_view *kv)
{
    int64_t t = q->size[1], h = q->size[2], r = q->size[3], d = q->size[4];
    f->type = q->type;
    f->b = q->size[0], f->h = h, f->r = r, f->d = d;
    f->at_q = f->at_y = sk_steps{t * h * r * d, r * d, d, h * r * d};
    f->at_kv = sk_steps{kv->size[1] * h * 2 * d, 2 * d, 0, h * 2 * d};
}

static inline void *sk_flash_at(const sk_view *v, int64_t elements)
{
    return (char *)v->data + elements * (int64_t)sk_dtype_size(v->type);
}

#endif
