/* xent_rows.h - cross-entropy and its gradient on a GPU, in one pass over the logits.
 *
 * What row_max, xent_terms, xent_loss_grad and xent_terms_grad do one after the other, for a
 * vocabulary that is not split:
 *
 *     m = max x,  s = sum of exp(x - m),  t = x[target]                          of each row
 *     dx = exp(x - m) w scale / s, and w scale less at the target
 *
 * With label smoothing e, t = (1 - e) x[target] + e / n sum of x, and (1 - e) w scale are less at
 * the target and e / n w scale everywhere; with a z-loss, the first term of dx has 1 + 2 z (m + log
 * s) as a factor.
 *
 * Logits are read once and gradients are written once, perhaps over the logits: the four ops read
 * them three times.  m, s and t are for xent_loss.  Everything is computed in float and rounded
 * once, as there. */
#ifndef SK_KERNEL_XENT_ROWS_H
#define SK_KERNEL_XENT_ROWS_H

#include "kernel/kernel_launch.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sk_xent_job {
    int64_t rows, n; /* n: columns */
    int64_t at;      /* the word of column 0 */
    sk_dtype type;   /* of logits and gradients: f32, bf16 or f16 */
    const void *logits;
    const int32_t *target; /* a word for each row; outside of the columns: none */
    const float *weight;   /* of each row */
    const float *scale;    /* one number: the gradient of the loss */
    float *m, *s, *t;      /* of each row; each may be NULL */
    float smooth, z;       /* label smoothing and z-loss; 0: none */
    void *dlogits;         /* the logits themselves, or apart from them */
} sk_xent_job;

sk_status sk_xent_rows(const sk_xent_job *j, const sk_launch *l);

#ifdef __cplusplus
}
#endif

#endif
