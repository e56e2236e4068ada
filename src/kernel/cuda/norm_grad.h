/* norm_grad.h - the gradients of layernorm and rmsnorm on a GPU, each alone or all in one pass.
 *
 * With xhat = (x - mean) * rstd and g = w * dy, row by row
 *
 *     dx = rstd * (g - mean(g) - xhat * mean(g * xhat)) + res      rmsnorm: without the means
 *     dw = sum over rows of dy * xhat,  db = sum over rows of dy,  sum = sum over rows of dx
 *
 * Whatever is not wanted is left NULL: dx, or dw and db.  res, a second gradient of x, may be NULL
 * too, and sum, which is of dx as it was rounded.  dx may lie where x, dy or res lies.  x, w, dy,
 * res and dx are of `type`; the others of any float type.  The workspace holds partial sums of
 * columns: at most 16 MiB, and in canonical order all that there is.  Then rows are worked on one
 * by one, and sums go by the reduction blocks of the first dim of x. */
#ifndef SK_KERNEL_NORM_GRAD_H
#define SK_KERNEL_NORM_GRAD_H

#include "kernel/kernel_launch.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sk_norm_grad_job {
    const char *op; /* for messages */
    int64_t rows, n;
    const sk_view *cells; /* canonical order: the view of x; NULL: fast */
    sk_dtype type;
    const void *x, *w, *dy, *res; /* w may be NULL where dx is */
    void *dx;
    sk_any mean, rstd;                    /* a number a row; mean.data NULL: rmsnorm */
    sk_any dw, db, sum;                   /* n numbers; db.data NULL for rmsnorm */
    bool add_dx, add_dw, add_db, add_sum; /* added to what is there */
} sk_norm_grad_job;

sk_status sk_norm_grad(const sk_norm_grad_job *j, const sk_launch *l);

#ifdef __cplusplus
}
#endif

#endif
