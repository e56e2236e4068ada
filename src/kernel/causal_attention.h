/* causal_attention.h - causal attention of one query head, for the ops that have it.
 *
 * Queries and keys are each a shard of the same time, and need not be the same shard: with time
 * split over ranks, queries stay and keys come, all at once or one shard after the other around a
 * ring.  A query sees the keys whose position is not above its own.  Positions are
 * stored indices, or base/zigzag.h's if time was dealt so.
 *
 * The square of scores is never stored: up to SK_ATTEND_ROWS queries with positions in a row meet
 * the keys that the last of them sees, and the rest is skipped (Rabe and Staats 2021,
 * without the split of keys: a row of scores fits a cache).  Keys that lie side by side
 * make one matrix product, in whatever order their positions are.  What a block computes
 * does not depend on how many threads there are. */
#ifndef SK_KERNEL_CAUSAL_ATTENTION_H
#define SK_KERNEL_CAUSAL_ATTENTION_H

#include "tensor/dtype.h"

enum { SK_ATTEND_ROWS = 64 };

typedef struct sk_times { /* stored indices: which queries and which keys are here */
    int64_t q_at, q_n, k_at, k_n, full;
    int deal; /* to so many ranks in zigzag; 0 and 1: not */
} sk_times;

/* Steps are elements from one time to the next; lse has step 1.  Pointers are to the first time
 * that is here. */
typedef struct sk_attend {
    const real *q, *k, *v;
    real *y, *lse; /* lse: logarithm of each query's sum of exponentials */
    int64_t step_q, step_kv, step_y, d;
    sk_times time;
    bool merge; /* y and lse hold the result of other keys, and take in these */
} sk_attend;

typedef struct sk_attend_grad {
    const real *q, *k, *v, *y, *dy, *lse; /* y and lse: over all keys there are */
    real *dq, *dk, *dv;                   /* with the steps of q, k and v; dk and dv are added to */
    int64_t step_q, step_kv, step_y, d;
    sk_times time;
    bool add; /* dq is added to as well */
} sk_attend_grad;

int64_t sk_attend_blocks(const sk_times *t);
/* Block `block` of the queries.  Those that see no key are left alone if merging; otherwise their
 * y is 0 and their lse -infinity. */
void sk_attend_block(const sk_attend *h, int64_t block, real *scratch);
size_t sk_attend_scratch(const sk_times *t, int64_t d); /* bytes */

void sk_attend_grad_head(const sk_attend_grad *h, real *scratch); /* all blocks */
size_t sk_attend_grad_scratch(const sk_times *t);

/* How many (query, key) pairs see each other: the work. */
double sk_attend_pairs(const sk_times *t);

#endif
