/* op.h - what skein must know about an operation, in one struct.
 *
 * `dims` names every dimension of every operand with a letter, as in
 *
 *     "mk,kn->mn"           matrix product
 *     "*c!,c!->*c"          a norm over c, any dims before it
 *     "vc,bt->btc"          embedding: rows of the first, chosen by the second
 *     "*->*"                element by element, any shape
 *
 * This line is the whole sharding rule:
 *
 *     letter    Operands that share a letter are split together along it.  A letter that is missing
 *               in an output is reduced: split along it, that output is a partial sum (or maximum,
 *               with SK_OP_MAX), and layout/ adds the reduction.  A letter that stands only in an
 *               output is new there: its size comes from `infer` or from the call.
 *     '!'       behind a letter: the dim is not split, each rank has all of it.
 *     '^'       behind a letter of one operand: this operand is gathered along the letter while the
 *               others are split.  "bthrd,bt^hzd->bthrd" is attention of a rank's queries over all
 *               keys.  In a result: each rank makes all of it, as a partial sum.
 *     '*'       stands for the dims that are left over in the first operand that has it.
 *
 * Kernels see shards: kernel/args.h.  Outputs may be added to only with SK_OP_ADDS.  In canonical
 * order a sum over several letters goes by the reduction blocks of the first missing letter, as the
 * dims line reads; the other letters go one element after the other inside a block.
 *
 * `samples` are shapes worth trying.  test/parts/op.c takes every op through shapes, gradient
 * against central differences in float64, split against not split along every letter, threads
 * against one, add against write, and every dtype; an op needs no test of its own to get these. */
#ifndef SK_GRAPH_OP_H
#define SK_GRAPH_OP_H

#include "base/arena.h"
#include "base/status.h"
#include "kernel/args.h"
#include "kernel/kernel_shape.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sk_tensor sk_tensor;
typedef struct sk_node sk_node;
typedef struct sk_graph sk_graph;

typedef struct sk_shape {
    int n;
    int64_t d[SK_MAX_DIM];
} sk_shape;

enum {
    SK_OP_LINEAR = 1,     /* partial sums in all inputs give a partial sum */
    SK_OP_ADDS = 2,       /* can add to its outputs */
    SK_OP_MAX = 4,        /* missing letters are reduced by maximum, not by sum */
    SK_OP_SUM = 8,        /* this is the sum of two tensors; autodiff uses it to join gradients */
    SK_OP_HEAVY = 16,     /* long enough to hide communication: `overlap` runs it in chunks */
    SK_OP_CHEAP = 32,     /* its results are recomputed for the backward pass rather than kept */
    SK_OP_RECOMPUTE = 64, /* the same, where the layout says "recompute selective" */
    SK_OP_EXACT = 128,    /* decides on small differences: reads and makes f32 in any precision */
    SK_OP_ZEROS = 256,    /* many elements of its results are 0 */
    SK_OP_FP8 = 512,      /* a product; with attr[0] 1 its operands are rounded to 8 bits */
    SK_OP_ROWS = 1024     /* rows of its result are zeros but for those that input 1 names */
};

typedef struct sk_sample {
    const char *in[SK_MAX_IN]; /* "b2t3c8"; "b2t3%10" for i32 in [0, 10) */
    const char *dims;          /* NULL: the op's own */
    const char *fresh;         /* sizes of letters new in the output: "v10" */
    double attr[SK_MAX_ATTR];
    bool positive; /* inputs drawn from (0.5, 1.5) instead of (-1, 1) */
    bool coarse;   /* operands are rounded by what is in a shard: shards and gradients agree with
                      the result that is not split only roughly */
} sk_sample;

typedef struct sk_op {
    const char *name, *doc;
    const char *dims; /* NULL: the node brings its own */
    int n_in, n_out;  /* n_out 0 means 1 */
    unsigned flags;
    /* Element types that a GPU half takes, a letter for each operand, '>', and one for each result:
     * 'x' the type of operand 0, one of f32, bf16 and f16; 'f' any of these; '4' f32; 'i' i32; 's'
     * i32 or any of these.  "xi>f" is embedding_grad.  NULL: 'x' for all.  The CPU half takes every
     * mix: op.c widens what is narrow. */
    const char *types;
    unsigned stats;   /* bit o: output o is f32 whatever the inputs are */
    unsigned signs;   /* bit i: of input i it reads only whether elements are above 0 */
    unsigned reuse;   /* bit i: output 0 may take over the memory of input i */
    unsigned changes; /* bit i: input i is changed in place: a memory (SK_MEMORY) */
    /* Sizes of new letters, from the call; it writes them to the graph (sk_graph_size). */
    void (*infer)(sk_graph *g, const sk_node *n);
    /* The layout splits `letter`, which this op marks '!': write other nodes instead of this one,
     * which can be split along it.  Result o goes to out[o].  attr[0] over 1: the letter that the
     * layout deals in zigzag (base/zigzag.h), also one marked '!', is dealt to so many ranks.
     * NULL: operands are gathered. */
    void (*split)(sk_graph *g, char letter, sk_tensor *const *in, const double *attr,
                  sk_tensor **out);
    /* dy[o] is NULL where no gradient arrives; leave dx[i] NULL where none flows.  A graph whose
     * loss needs the gradient of an op without a rule is refused. */
    void (*grad)(sk_graph *g, sk_node *y, sk_tensor **dy, sk_tensor **dx);
    unsigned no_grad; /* bit o: the rule takes no gradient of output o (statistics, choices) */
    const struct sk_extra_rules *extra; /* what else the backward pass can tell (graph/extra.h) */
    double (*flops)(const sk_args *a);  /* of the shard; NULL: one per element of output 0 */
    void (*shape)(const sk_args *a, sk_kernel_shape *s); /* NULL: a stream */
    size_t (*scratch)(const sk_args *a);                 /* bytes per thread; NULL: none */
    /* Bytes that the GPU half needs beyond SK_WORKSPACE (kernel/kernel_launch.h); NULL: none. */
    size_t (*workspace)(const sk_args *a);
    void (*cpu)(const sk_args *a);
    const sk_sample *samples; /* a sample without inputs ends the list */
} sk_op;

extern const sk_op *const sk_op_parts[]; /* every file in parts/op, by name; NULL ends it */
const sk_op *sk_op_find(const char *name);

static inline int sk_op_outs(const sk_op *op) { return op->n_out ? op->n_out : 1; }

/* The letter of op->types for operand i, or for result i - n_in, of so many operands. */
char sk_op_type(const sk_op *op, int n_in, int i);
/* Does the op's GPU half take operands and results of these types?  SK_OK, or a sentence that names
 * the first that it does not.  In canonical order floats must be f32: sums that are rounded to less
 * before they meet others would depend on where they were cut. */
sk_status sk_op_takes(const sk_op *op, const sk_args *a);

/* Run the CPU kernel of an op for one thread.  Where an operand has a storage type that kernels do
 * not know (bf16, f16), part 0 runs all of it on copies in `real`, and the other threads do
 * nothing. */
void sk_op_run_cpu(const sk_op *op, const sk_args *a);
/* The same in steps, for a team of threads.  Copies of narrow operands lie in one workspace of the
 * team.  Each thread widens its share of what is read (sk_op_widen), runs the kernel on the wide
 * copies (sk_op_widened), and narrows its share of what was written (sk_op_narrowed); a barrier
 * stands between two steps. */
size_t sk_op_stage(const sk_args *a); /* bytes of that workspace; 0: no operand is narrow */
sk_args sk_op_widened(const sk_args *a, char *workspace);
void sk_op_widen(const sk_args *a, const sk_args *wide, int part, int of);
void sk_op_narrowed(const sk_op *op, const sk_args *a, const sk_args *wide, int part, int of);
size_t sk_op_scratch(const sk_op *op, const sk_args *a); /* bytes for one thread, staging too */
double sk_op_flops(const sk_op *op, const sk_args *a);

#ifdef __cplusplus
}
#endif

#endif
