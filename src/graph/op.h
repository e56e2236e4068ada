/* op.h - what skein must know about an operation, in one struct.
 *
 * `dims` names every dimension of every operand with a letter, as in
 *
 *     "mk,kn->mn"           matrix product
 *     "*c!,c!->*c"          a norm over c, any dims before it
 *     "vc,bt->btc"          embedding: rows of the first, chosen by the second
 *     "*->*"                element by element, any shape
 *
 * Operands that share a letter are split together along it.  A letter that does
 * not reach an output is summed away: split along it, that output is a partial
 * sum (or maximum, with SK_OP_MAX) and layout/ adds the reduction.  '!' behind a
 * letter keeps it whole on every rank.  A letter that stands only in an output
 * is new there: its size comes from `infer` or from the call.  '*' stands for
 * the dims that are left over in the first operand that has it.  This one line
 * is the whole sharding rule.
 *
 * Kernels see pieces.  A view carries the piece's sizes, its strides, where it
 * starts in the logical tensor (`at`) and the logical sizes (`full`), so that an
 * embedding knows which rows it owns and dropout draws by logical index.  Pieces
 * may be empty.  Views are dense (last dim has step 1).  A kernel is called once
 * per thread of the team with (part, of) and does its share; outputs whose bit is
 * set in `add` are added to instead of written (only ops with SK_OP_ADDS).
 *
 * '^' behind a letter of one operand keeps that operand whole while the others are split along the
 * letter: "bthrd,bt^hzd->bthrd" is attention of my queries over all keys.  In a result it
 * says that each rank makes all of it, and only a part of the sum.
 *
 * In canonical order a sum over letters is taken in the order of base/reduction_blocks.h: the first
 * missing letter (as the dims line reads) goes by cells, the others one element after the other
 * inside.  sk_view_reduction_blocks() says where the cells of a piece end; in fast order a piece is
 * one cell.
 *
 * `samples` are shapes worth trying.  test/parts/op.c takes every op through
 * shapes, gradient against central differences in float64, split against whole
 * along every letter, threads against one, add against write, and every dtype;
 * an op needs no test of its own to get these. */
#ifndef SK_GRAPH_OP_H
#define SK_GRAPH_OP_H

#include "base/arena.h"
#include "base/reduction_blocks.h"
#include "base/status.h"
#include "base/zigzag.h"
#include "tensor/dtype.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { SK_MAX_DIM = 6, SK_MAX_IN = 6, SK_MAX_OUT = 3, SK_MAX_ATTR = 6 };

typedef struct sk_tensor sk_tensor;
typedef struct sk_node sk_node;
typedef struct sk_graph sk_graph;

typedef struct sk_shape {
    int n;
    int64_t d[SK_MAX_DIM];
} sk_shape;

typedef struct sk_view {
    void *data;
    sk_dtype type;
    int n;                      /* dims */
    int64_t size[SK_MAX_DIM];   /* of this piece */
    int64_t step[SK_MAX_DIM];   /* elements between neighbours along a dim */
    int64_t at[SK_MAX_DIM];     /* where the piece starts in the logical tensor */
    int64_t full[SK_MAX_DIM];   /* logical sizes */
    uint8_t cells[SK_MAX_DIM];  /* of the logical dim, in canonical order; 0 in fast order */
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
    bool validation;       /* dropout passes on what it gets */
} sk_args;

enum {
    SK_OP_LINEAR = 1, /* partial sums in all inputs give a partial sum */
    SK_OP_ADDS = 2,   /* can add to its outputs */
    SK_OP_MAX = 4,    /* missing letters are reduced by maximum, not by sum */
    SK_OP_SUM = 8,    /* this is the sum of two tensors; autodiff uses it to join gradients */
    SK_OP_HEAVY = 16, /* long enough to hide what moves: run in turns where the layout overlaps */
    SK_OP_CHEAP = 32, /* made again for the backward pass rather than kept */
    SK_OP_RECOMPUTE = 64, /* the same, where the layout says "recompute selective" */
    SK_OP_EXACT = 128,    /* decides on small differences: reads and makes f32 in any precision */
    SK_OP_ZEROS = 256     /* many elements of its results are 0 */
};

typedef struct sk_sample {
    const char *in[SK_MAX_IN]; /* "b2t3c8"; "b2t3%10" for i32 in [0, 10) */
    const char *dims;          /* NULL: the op's own */
    const char *fresh;         /* sizes of letters new in the output: "v10" */
    double attr[SK_MAX_ATTR];
    bool positive; /* inputs drawn from (0.5, 1.5) instead of (-1, 1) */
    bool coarse;   /* operands are rounded by what is in a piece: pieces and gradients agree with
                      the whole only roughly */
} sk_sample;

typedef struct sk_op {
    const char *name, *doc;
    const char *dims; /* NULL: the node brings its own */
    int n_in, n_out;  /* n_out 0 means 1 */
    unsigned flags;
    /* Element types that a GPU half takes, a letter for each operand, '>', and one for each result:
     * 'x' the type of operand 0, one of f32, bf16 and f16; 'f' any of these; '4' f32; 'i' i32; 's'
     * i32 or any of these.  "xi>f" is embedding_grad.  NULL: 'x' for all.  The CPU half takes every
     * mix, for kernel.c widens what is narrow. */
    const char *types;
    unsigned stats;   /* bit o: output o is f32 whatever the inputs are */
    unsigned signs;   /* bit i: of input i it reads only whether elements are above 0 */
    unsigned reuse;   /* bit i: output 0 may take over the memory of input i */
    unsigned changes; /* bit i: input i is changed in place: a memory (SK_MEMORY) */
    /* Sizes of new letters, from the call; the graph is there to be written (sk_graph_size). */
    void (*infer)(sk_graph *g, const sk_node *n);
    /* Write other nodes instead of this one, which the layout wants to split along `letter` and the
     * op keeps whole: result o goes to out[o].  attr[0]: the letter that the layout deals, one that
     * the op keeps whole too, is dealt in zigzag to so many ranks, if over 1.  NULL: it works on
     * the whole. */
    void (*split)(sk_graph *g, char letter, sk_tensor *const *in, const double *attr,
                  sk_tensor **out);
    /* dy[o] is NULL where no gradient arrives; leave dx[i] NULL where none flows. */
    void (*grad)(sk_graph *g, sk_node *y, sk_tensor **dy, sk_tensor **dx);
    double (*flops)(const sk_args *a);   /* of the whole piece; NULL: one per element of output 0 */
    size_t (*scratch)(const sk_args *a); /* bytes per thread; NULL: none */
    size_t (*room)(
        const sk_args *a); /* bytes of a GPU beyond SK_WORKSPACE (kernel.h); NULL: none */
    void (*cpu)(const sk_args *a);
    const sk_sample *samples; /* a sample without inputs ends the list */
} sk_op;

extern const sk_op *const sk_op_parts[]; /* every file in parts/op, by name; NULL ends it */
const sk_op *sk_op_find(const char *name);

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

static inline int sk_op_outs(const sk_op *op) { return op->n_out ? op->n_out : 1; }

/* Logical index of the element at position i (counted in the piece's own order). */
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

/* Where the cells of dim d end in this piece: border[0] = 0 to border[n] = size[d]; returns n, a
 * power of two.  1 in fast order, and for an empty piece. */
int sk_view_reduction_blocks(const sk_view *v, int d, int64_t border[SK_REDUCTION_BLOCKS_MAX + 1]);

/* Is this canonical order?  Then every operand that has dims has cells. */
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

/* The letter of op->types for operand i, or for result i - n_in, of so many operands. */
char sk_op_type(const sk_op *op, int n_in, int i);
/* Does the op's GPU half take operands and results of these types?  SK_OK, or a sentence that names
 * the first that it does not.  In canonical order floats must be f32: sums that are rounded to less
 * before they meet others would depend on where they were cut. */
sk_status sk_op_takes(const sk_op *op, const sk_args *a);

/* Fill steps for a dense piece of the given sizes. */
void sk_view_dense(sk_view *v);

/* Run one op's CPU kernel for one thread, staging through `real` when an operand has a
 * storage type the kernel does not know (bf16, f16). */
void sk_op_run_cpu(const sk_op *op, const sk_args *a);
/* The same in steps, for a team: operands with a place in a room of all threads instead of their
 * own; each thread widens its share of what is read, runs the kernel on the wide ones, and
 * narrows its share of what was written; all have ended one step before the next begins. */
size_t sk_op_stage(const sk_args *a); /* bytes of that room, once for the team; 0: none is narrow */
sk_args sk_op_widened(const sk_args *a, char *room);
void sk_op_widen(const sk_args *a, const sk_args *wide, int part, int of);
void sk_op_narrowed(const sk_op *op, const sk_args *a, const sk_args *wide, int part, int of);
size_t sk_op_scratch(const sk_op *op, const sk_args *a); /* bytes for one thread, staging too */
double sk_op_flops(const sk_op *op, const sk_args *a);

#ifdef __cplusplus
}
#endif

#endif
