/* graph.h - a model as data: tensors whose dims are letters, nodes in the order they were made.
 *
 * Every letter has one size in a graph: b batch, t time, c width, and so on.
 * A graph knows nothing of parallelism.  Builders are sticky: after the first
 * mistake they go on returning harmless tensors, so that a model reads as
 * arithmetic without a check per line.  Ask sk_graph_status() once, at the end.
 *
 *     sk_graph_size(g, 'b', 12);
 *     sk_tensor *x = sk_input(g, "tokens", "bt", SK_I32);
 *     sk_tensor *w = sk_param(g, "wte", "vc", 0.02);
 *     sk_tensor *e = sk_apply(g, "embedding", .in = {w, x})->out[0];
 *
 * Training programs read more than the loss from a graph: `layer` marks where a
 * pipeline may cut (0 = what comes before the first block), `phase` tells
 * forward from backward nodes, and outputs (loss sum, token count) are summed
 * over micro-batches and ranks. */
#ifndef SK_GRAPH_GRAPH_H
#define SK_GRAPH_GRAPH_H

#include "graph/op.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The letters that mean the same in every model; the others are the model's own. */
enum { SK_LETTER_BATCH = 'b', SK_LETTER_TIME = 't', SK_LETTER_EXPERTS = 'e' };

/* The input that seeds the gradient (sk_graph_grad). */
#define SK_LOSS_SCALE "loss_scale"

typedef enum sk_role {
    SK_VALUE,  /* made by a node */
    SK_INPUT,  /* filled from outside for every micro-batch */
    SK_PARAM,  /* trained */
    SK_MEMORY, /* kept from run to run, changed in place by an op (key-value caches) */
    SK_EXTRA,  /* what the backward pass tells besides gradients, a sum (graph/extra.h) */
} sk_role;

typedef enum sk_phase { SK_FORWARD, SK_BACKWARD } sk_phase;

/* What a graph adds up over micro-batches and ranks. */
typedef enum sk_sum_kind {
    SK_SUM_LOSS,   /* of all tokens */
    SK_SUM_WEIGHT, /* of tokens: what the loss is divided by */
    SK_SUM_AUX,    /* auxiliary losses, such as the balance of experts */
    SK_SUM_DROPS,  /* choices of experts that were full */
    SK_SUM_RIGHT,  /* samples of a classifier whose class has the largest logit */
    SK_N_SUMS
} sk_sum_kind;

/* Training steps do without this one: it is made by validations alone. */
static inline bool sk_sum_validates(int which) { return which == SK_SUM_RIGHT; }

struct sk_tensor {
    const char *name;
    char letters[SK_MAX_DIM + 1];
    sk_dtype type;
    sk_role role;
    int id;
    sk_node *from; /* the node that makes it, NULL for inputs and parameters */
    double init;   /* parameters: standard deviation; negative: the constant -init - 1 (so -2 is
                      ones, -1 is zeros) */
    double bias_update;  /* parameters: 0, or the size of a step against the sign of the gradient,
                            which is taken instead of the optimizer's (the bias of a router).  The
                            gradient need not be the loss's, is not divided by tokens, and is no part
                            of the norm */
    int layer;           /* of the node that makes it; parameters: where they were declared */
    const sk_tensor *of; /* extras: the parameter; and sk_extra_kind */
    int extra;
    const sk_tensor *packed; /* symmetric extras: half of it, as it travels (extra.h); NULL: none */
};

enum { SK_NO_NODE = -1 }; /* id of a node that is in no graph: of an optimizer */

struct sk_node {
    const sk_op *op;
    const char *dims;                           /* spelled out: "btc!,c!->btc" */
    char letters_in[SK_MAX_IN][SK_MAX_DIM + 1]; /* the same, taken apart, without '!' */
    char letters_out[SK_MAX_OUT][SK_MAX_DIM + 1];
    char not_split[2 * SK_MAX_DIM * SK_MAX_IN];               /* letters marked '!' */
    uint8_t gathered_in[SK_MAX_IN], gathered_out[SK_MAX_OUT]; /* bit d: that dim is marked '^' */
    sk_tensor *in[SK_MAX_IN], *out[SK_MAX_OUT];
    int n_in, n_out;
    double attr[SK_MAX_ATTR];
    const char *where; /* file:line of the model that made it */
    int id, layer;
    sk_phase phase;
    bool wide;                   /* its results stay in f32 (precision.c) */
    sk_tensor *into[SK_MAX_OUT]; /* output o is a contribution to this parameter's gradient, or to
                                    this output of the graph or extra of its backward half */
};

struct sk_graph {
    sk_arena *arena;
    sk_status status; /* first mistake, kept */
    char report[512];
    int64_t size[128]; /* of each letter; 0: unknown */
    char batch;        /* the letter that micro-batches split: SK_LETTER_BATCH */
    char cut[64];      /* letters that a layout will split (sk_op.split) */
    char dealt;        /* a letter whose places are dealt in zigzag (base/zigzag.h), or 0 */
    int zigzag;        /* to so many ranks */
    bool keep_cheap;   /* results of cheap ops are kept for the backward half */
    char keep_ops[64]; /* those of these are: "bias_gelu+layernorm" */
    unsigned extras;   /* bit k: the backward half has extras of sk_extra_kind k (extra.h) */
    int norms_by;      /* sk_norms_by: how norms of single samples are made */
    char copy_of[128]; /* by letter: its copy that is never split (sk_letter_copy), or 0 */
    /* Which parameters have Kronecker factors; NULL: all that can have them. */
    bool (*factors_of)(const void *ctx, const sk_tensor *t);
    const void *factors_ctx;
    int draws;    /* places that draw random numbers, so far: each has a number of its own */
    int layer;    /* given to nodes made from now on */
    int n_layers; /* 1 + the highest layer used */
    sk_phase phase;
    struct {
        sk_node **v;
        int n, cap;
    } nodes;
    struct {
        sk_tensor **v;
        int n, cap;
    } tensors;
    union { /* scalars; see sk_graph_sum */
        sk_tensor *sum[SK_N_SUMS];
        struct {
            sk_tensor *loss, *weight, *aux, *drops, *right;
        };
    };
    sk_tensor *logits; /* for sampling and accuracy; may be NULL */
    /* Of cross-entropies that are made from now on (sk_cross_entropy), and whether one was made. */
    double label_smoothing, z_loss;
    bool cross_entropy;
};

typedef struct sk_call {
    sk_tensor *in[SK_MAX_IN];
    const char *dims; /* NULL: the op's own */
    double attr[SK_MAX_ATTR];
} sk_call;

void sk_graph_init(sk_graph *g, sk_arena *a);
void sk_graph_size(sk_graph *g, char letter, int64_t size); /* a second, other size is an error */
sk_tensor *sk_input(sk_graph *g, const char *name, const char *letters, sk_dtype type);
sk_tensor *sk_param(sk_graph *g, const char *name, const char *letters, double init);
sk_tensor *sk_memory(sk_graph *g, const char *name, const char *letters);
sk_node *sk_apply_at(sk_graph *g, const char *where, const char *op, sk_call call);
#define sk_apply(g, op, ...) sk_apply_at((g), SK_HERE, (op), (sk_call){__VA_ARGS__})
sk_status sk_graph_status(const sk_graph *g);
sk_status sk_graph_fail(sk_graph *g, sk_status code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
sk_tensor *sk_graph_find(const sk_graph *g, const char *name);
/* Is it an input that comes with the data?  Is a sample a sequence: do such inputs have the letter
 * of time? */
bool sk_tensor_is_data(const sk_tensor *t);
bool sk_graph_is_sequences(const sk_graph *g);
sk_shape sk_tensor_shape(const sk_graph *g, const sk_tensor *t);

/* Add a scalar, the result of a forward node of an op with SK_OP_ADDS, to one of the graph's sums.
 * Several nodes may make a part of it, for example one a layer: g->sum[which] is the tensor of the
 * first, and `into` of every one of them is that tensor.  Setting g->loss and g->weight by hand, as
 * sk_cross_entropy does, means the same for one part. */
void sk_graph_sum(sk_graph *g, sk_sum_kind which, sk_tensor *scalar);
/* Does the node run in validations alone: is it there for such a sum? */
bool sk_node_validates(const sk_graph *g, const sk_node *n);

/* Add the backward half: for every parameter that the loss depends on, nodes whose
 * outputs go `into` it.  The gradient is that of the *sums* of the loss and of aux; the program
 * divides by the token count of the whole step.  Its seed is the input SK_LOSS_SCALE. */
void sk_graph_grad(sk_graph *g);

/* Part of the above: results of cheap ops are recomputed for the backward half instead of kept. */
void sk_graph_recompute(sk_graph *g);

/* Store results and weights in a type of 16 bits, with the exceptions of precision.c; after the
 * gradient. */
void sk_graph_store(sk_graph *g, sk_dtype type);

/* Take the products of the blocks' weights in 8 bits (kernel/fp8_product.h): not those of the head,
 * of routers, and of inputs.  Before the gradient, which then is in 8 bits too.  Returns how many.
 */
int sk_graph_fp8(sk_graph *g);

/* A listing, for people and for hashes. */
char *sk_graph_print(const sk_graph *g, sk_arena *a);

/* sugar used by models and by grad functions */
static inline sk_tensor *sk_contract_at(sk_graph *g, const char *where, const char *dims,
                                        sk_tensor *a, sk_tensor *b)
{
    sk_call call = {0};
    call.dims = dims;
    call.in[0] = a;
    call.in[1] = b;
    return sk_apply_at(g, where, "contract", call)->out[0];
}
#define sk_contract(g, dims, a, b) sk_contract_at((g), SK_HERE, (dims), (a), (b))

#ifdef __cplusplus
}
#endif

#endif
