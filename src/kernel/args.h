/* args.h - what a kernel is called with: views of shards, attributes, a thread's share.
 *
 * A kernel works on the shards of one rank.  A view carries the sizes and strides of the shard,
 * where the shard starts in the logical tensor (`at`), and the logical sizes (`full`): so an
 * embedding knows which rows it owns, and dropout draws by logical index.  Shards may be empty.
 * Views are dense: the last dim has step 1.
 *
 * A CPU kernel is called once by each thread of a team with (part, of) and does its share.  Outputs
 * whose bit is set in `add` are added to instead of written.  A GPU kernel gets the same arguments
 * (kernel/kernel_launch.h).
 *
 * In canonical (deterministic) order a sum over a dim is taken by the reduction blocks of
 * base/reduction_blocks.h, so that its bits do not depend on how the dim was split.
 * sk_view_reduction_blocks() says where the blocks of a shard end; in fast order a shard is one
 * block. */
#ifndef SK_KERNEL_ARGS_H
#define SK_KERNEL_ARGS_H

#include "base/reduction_blocks.h"
#include "base/zigzag.h"
#include "tensor/dtype.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { SK_MAX_DIM = 6, SK_MAX_IN = 6, SK_MAX_OUT = 3, SK_MAX_ATTR = 6 };

typedef struct sk_view {
    void *data;
    sk_dtype type;
    int n;                      /* dims */
    int64_t size[SK_MAX_DIM];   /* of this shard */
    int64_t step[SK_MAX_DIM];   /* elements between neighbours along a dim */
    int64_t at[SK_MAX_DIM];     /* where the shard starts in the logical tensor */
    int64_t full[SK_MAX_DIM];   /* logical sizes */
    uint8_t cells[SK_MAX_DIM];  /* reduction blocks of the logical dim; 0 in fast order */
    uint8_t zigzag[SK_MAX_DIM]; /* ranks that the dim is dealt to by base/zigzag.h; 0: in order */
} sk_view;

typedef struct sk_args {
    sk_view in[SK_MAX_IN], out[SK_MAX_OUT];
    int n_in, n_out;
    const char *dims; /* this node's letters, spelled out: "btc,cf->btf" */
    double attr[SK_MAX_ATTR];
    unsigned add;          /* bit o: out[o] += */
    int part, of;          /* this thread of the team */
    void *scratch;         /* this thread's own, as many bytes as .scratch asked for */
    uint64_t seed, stream; /* for ops that draw random numbers */
    int64_t updates;       /* of the optimizer before this step: for ops of its own */
    bool validation;       /* dropout is the identity */
} sk_args;

static inline int64_t sk_count(const sk_view *v)
{
    int64_t n = 1;
    for (int i = 0; i < v->n; i++) n *= v->size[i];
    return n;
}

/* Product of the sizes of dims [from, to). */
static inline int64_t sk_span(const sk_view *v, int from, int to)
{
    int64_t n = 1;
    for (int i = from; i < to; i++) n *= v->size[i];
    return n;
}

/* This thread's share [*from, *to) of n things. */
static inline void sk_share(const sk_args *a, int64_t n, int64_t *from, int64_t *to)
{
    *from = n * a->part / a->of;
    *to = n * (a->part + 1) / a->of;
}

/* Logical index of the element at position i (counted in the shard's own order). */
SK_BOTH int64_t sk_logical(const sk_view *v, int64_t i)
{
    int64_t index = 0, step = 1;
    for (int k = v->n - 1; k >= 0; k--) {
        int64_t at = v->at[k] + i % v->size[k];
        index += (v->zigzag[k] ? sk_zigzag(at, v->full[k], v->zigzag[k]) : at) * step;
        i /= v->size[k];
        step *= v->full[k];
    }
    return index;
}

/* Fill steps for a dense shard of the given sizes. */
void sk_view_dense(sk_view *v);

/* Where the reduction blocks of dim d end in this shard: border[0] = 0 to border[n] = size[d].
 * Returns n, a power of two; 1 in fast order and for an empty shard. */
int sk_view_reduction_blocks(const sk_view *v, int d, int64_t border[SK_REDUCTION_BLOCKS_MAX + 1]);

/* Is this canonical order?  Then every operand that has dims has reduction blocks. */
static inline bool sk_args_canonical(const sk_args *a)
{
    for (int i = 0; i < a->n_in + a->n_out; i++) {
        const sk_view *v = i < a->n_in ? &a->in[i] : &a->out[i - a->n_in];
        for (int d = 0; d < v->n; d++)
            if (v->cells[d]) return true;
    }
    return false;
}

/* Operand i, or result i - n_in. */
static inline const sk_view *sk_args_view(const sk_args *a, int i)
{
    return i < a->n_in ? &a->in[i] : &a->out[i - a->n_in];
}

#ifdef __cplusplus
}
#endif

#endif
