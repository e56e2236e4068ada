/* cudnn_sdpa.h - causal attention by cuDNN, on hosts that have it.
 *
 * cuDNN is opened when the first plan is asked for, not linked: without it, with SKEIN_CUDNN=0,
 * or for a shape it has no engine for, sk_sdpa_plan() says no and the caller uses kernels of its
 * own.  SKEIN_CUDNN may also be the path of a library.
 *
 * Operands lie as parts/op/attention.c has them: queries, keys and values packed as
 * [b, t, h, r + 2, d], y as [b, t, h, r, d], lse as [b, h, r, t] in f32, the natural logarithm;
 * bf16 or f16; aligned to 16 bytes.  A call may become several plans' worth of work, one after the
 * other: with r > 1 it goes one sequence at a time or one group of heads at a time, whichever are
 * fewer, as heads of packed groups have no single stride; and the deterministic gradient keeps a
 * square of t x t for every head it has under way, so that it goes by as many heads as the
 * workspace has space for.
 *
 * SKEIN_SDPA_FORM=1 takes another gradient, which adds up dq by atomics: faster, and not the same
 * bits in every run.  It is there to be measured. */
#ifndef SK_KERNEL_CUDNN_SDPA_H
#define SK_KERNEL_CUDNN_SDPA_H

#include "base/status.h"
#include "tensor/dtype.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sk_sdpa_shape {
    sk_dtype type;
    int64_t b, t, h, r, d;
    bool backward;
} sk_sdpa_shape;

typedef struct sk_sdpa_data { /* on the device */
    const void *qkv, *dy;     /* dy and dqkv: only backward */
    void *y, *dqkv;
    float *lse; /* backward reads y and lse */
} sk_sdpa_data;

typedef struct sk_sdpa_plan sk_sdpa_plan;

/* The plan for this shape on the current device that needs at most `most` bytes of workspace: made
 * when first asked for, which takes up to a second, and kept for the life of the process.  NULL:
 * there is none, and sk_sdpa_reason() says why. */
sk_sdpa_plan *sk_sdpa_find(const sk_sdpa_shape *s, size_t most);
const char *sk_sdpa_reason(const sk_sdpa_shape *s);
size_t sk_sdpa_workspace(const sk_sdpa_plan *p); /* bytes of scratch */

/* Puts the work into the stream.  `workspace` is aligned to 256 bytes. */
sk_status sk_sdpa_run(sk_sdpa_plan *p, const sk_sdpa_data *data, char *workspace, void *stream);

#ifdef __cplusplus
}
#endif

#endif
