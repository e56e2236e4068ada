/* optim.h - an optimizer is a few passes over a shard of one parameter.
 *
 * A parameter may be replicated or sharded over many ranks; the optimizer must not care.  Each pass
 * sees this rank's shard and may return sums; the engine adds them over the ranks that hold the
 * other shards and gives the totals to the next pass.  So LARS, LAMB and NovoGrad, which need the
 * norm of a parameter, are written as if all of it were here, and every ZeRO stage is only a
 * different way of sharding.  A pass may be called for several parts of a shard by several threads:
 * it must treat elements alike.
 *
 * The optimizer declares its numbers (knobs) with their defaults, ranges and help; their values
 * reach the passes by index, on the CPU and on a GPU:
 *
 *     enum { LR, RHO };
 *     .knobs = {SK_LR(0.1), {"rho", 0.04, .least = 0, .most = 1, .doc = "curvature"}},
 *     ... p->knob[RHO] ...          $ skein train optim.name=NAME optim.rho=0.1
 *
 * Numbers that are kept for a parameter as a whole (the second moment of NovoGrad) are `scalars`,
 * which `settle` changes between the passes.
 *
 * An optimizer that sees whole matrices (Muon) has two passes and `whole`: the first pass leaves a
 * direction in the state behind its own, `whole` says what becomes of the matrix as operations on
 * it, and the second pass takes the step.  One with sums has a pass before these two that leaves
 * them, which both get.  The engine brings the matrix together, wherever it is
 * cut, writes the operations into the program, and gives each shard its part of the result; so
 * they run on the CPU and on a GPU, and are planned, priced and verified like those of the model:
 *
 *     static int matrix(sk_matrix *w)
 *     {
 *         int x = sk_matrix_op(w, "unit", "rc->rc", .in = {0}, .attr = {1e-7});  0 is the direction
 *         int gram = sk_matrix_op(w, "contract", "rc,Rc->rR", .in = {x, x});
 *         return sk_matrix_op(w, "contract", "rR,Rc->rc", .in = {gram, x});     x x' x
 *     }
 *
 * Such an optimizer may keep state of any shape for a matrix (Shampoo's factors, Adafactor's row
 * and column averages).  It exists on the ranks that do the work of the matrix, in f32; checkpoints
 * hold it as a logical tensor.  Expensive operations may run once in many updates:
 *
 *     int l = w->state(w, "l", "rR");                    0 before the first update
 *     w->keep(w, l, sk_matrix_op(w, "ema", "rR,rR->rR", .in = {l, gram}, .attr = {0.99}));
 *     w->every(w, 10);
 *     w->keep(w, root, sk_matrix_op(w, "inv_root", "rR->rR", .in = {l}, .attr = {4, 1e-6}));
 *     w->every(w, 1);
 *
 * Where a matrix is cut over ranks, the engine may leave it so (sk_matrix.cut): it asks for the
 * operations once with `cut`, and takes them if they need no more than a part of that side, which
 * is so for operations of two operands whose terms have one letter of the side at most.  Sums over
 * it are added over the ranks.  "dot" and "unit_by" divide by a norm in this way.
 *
 * A state has a number as results have, and its content is the one at that place of the program:
 * new behind its `keep`.  Results of operations between every(n) and every(1) cannot be used
 * elsewhere; they are kept in a state.
 *
 * An optimizer may have ranks send a state, encoded, in place of gradients (1-bit Adam): `sends`.
 * Up to the step that a knob says its first passes see the gradient of all ranks, as always.  From
 * then on ranks along dp sum no gradients; other passes run: the first leaves in that state this
 * rank's term of a sum, made of its own gradient, and the next sees the sum over the ranks as one
 * more array behind the state (program/sent_state.c):
 *
 *     .sends = 1 + M, .sent_as = "sign", .n_first = 1, .first_steps = 1 + WARMUP,
 *     .pass = {all_of_it, term, step},
 *     term:  m[i] = p->share * (b1 * m[i] + (1 - b1) * grad[i] * scale)      share: 1 / ranks
 *     step:  m[i] = p->state[2][i], ...
 *
 * Passes from the second on of such a step may have sums of their own (1-bit LAMB).  Where steps of
 * three kinds alternate (0/1 Adam), `step_kind` says which a step is, by its number alone: one with
 * the gradient of all ranks, one in which ranks send, or one in which each rank goes on with its
 * own gradient and nothing is sent; from pass n_first + n_sent on passes are of the last kind. */
#ifndef SK_KERNEL_OPTIM_H
#define SK_KERNEL_OPTIM_H

#include "tensor/dtype.h"

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { SK_MAX_STATE = 5, SK_MAX_SUM = 4, SK_MAX_KNOB = 12, SK_MAX_PASS = 5, SK_MAX_SCALAR = 4 };
enum { SK_ROUNDED_STATES = 4 };   /* states kept in bf16 at most: random bits go by it */
enum { SK_MAX_MATRIX_STATE = 8 }; /* states of whole matrices */

typedef struct sk_piece {
    int64_t n;
    real *param;
    const real *grad;          /* of the loss sum */
    real *state[SK_MAX_STATE]; /* zero before step 1 */
    float scale;               /* grad[i] * scale is the gradient of the mean loss, clipped */
    float knob[SK_MAX_KNOB];   /* in the order of sk_optim.knobs */
    int64_t step;              /* of the optimizer; counts from 1 */
    int64_t warmup;            /* updates in which the rate rose from lr / warmup to lr; 0: none */
    int delay;                 /* updates since the weights that this gradient is of; usually 0 */
    double norm;               /* of all gradients of the mean loss, before clipping */
    double sum[SK_MAX_SUM];    /* totals of the pass before; returned by this pass */
    int64_t elements;          /* of the parameter, wherever they are */
    int pass;                  /* which of sk_optim.pass: for settle */
    float *scalar;             /* sk_optim.scalars of the parameter; only settle writes them */
    float share;               /* with sk_optim.sends: 1 / the ranks that send */
} sk_piece;

/* Kinds of steps of an optimizer whose ranks send a state. */
enum { SK_STEP_DENSE, SK_STEP_SENT, SK_STEP_LOCAL, SK_STEP_KINDS };

/* What the engine does with a knob beside handing its value on. */
typedef enum sk_knob_role {
    SK_KNOB_PLAIN,
    SK_KNOB_LR,       /* the rate of the step, by optim.schedule */
    SK_KNOB_DECAY,    /* 0 for parameters that do not decay; one knob has it at most */
    SK_KNOB_MOMENTUM, /* over 0: replaced in a step whose schedule has one: sk_step_in.momentum */
} sk_knob_role;

/* A number of an optimizer.  It becomes the key `optim.KEY`; help, config.yaml and the ranges that
 * are checked come from here.  Neighbours with one key are a list: `optim.betas: [0.9, 0.95]`.
 * Optimizers that share a key give it one doc and one range, which the macros below do. */
typedef struct sk_knob {
    const char *name;
    double usual;       /* the default */
    double least, most; /* both included */
    const char *doc;    /* for help */
    const char *key;    /* NULL: the name */
    bool whole;         /* takes whole numbers only; from 0 to 1 it is a switch */
    bool fewer;         /* in a list: numbers at its end may be left out, and are 0 */
    const char *words;  /* NULL, or: the value is one of these, the first is 0 */
    const char *over;   /* NULL, or the knob of the part that this one may not be below */
    const char *only;   /* NULL, or "base=sgd": used only if that knob of the part has this word */
    const char *unless; /* NULL, or: has no effect where that knob of the part is over 0 */
    bool at_step;       /* of a schedule: the rate drops at this step; 0: at none */
    bool longest_side;  /* of matrices: one with a longer side has no preconditioner there */
    bool base; /* words are names of optimizers: the one that is chosen has the defaults of all
                  knobs that it shares with this optimizer, by name */
    sk_knob_role role;
} sk_knob;

/* clang-format off */
#define SK_BELOW_ONE (1 - 0x1p-53)
#define SK_LR(x) {.name = "lr", .usual = x, .role = SK_KNOB_LR} /* optim.lr: cli/conf.c */
#define SK_BETAS_IF(x, y, when) \
    {.name = "beta1", .usual = x, .most = SK_BELOW_ONE, .doc = "decay rates of the two moments", \
     .key = "betas", .only = when, .role = SK_KNOB_MOMENTUM}, \
    {.name = "beta2", .usual = y, .most = SK_BELOW_ONE, .key = "betas", .only = when}
#define SK_BETAS(x, y) SK_BETAS_IF(x, y, NULL)
#define SK_EPS_IF(x, when) {.name = "eps", .usual = x, .most = 1, \
                            .doc = "added to the denominator", .only = when}
#define SK_EPS(x) SK_EPS_IF(x, NULL)
#define SK_MOMENTUM_IF(x, when) {.name = "momentum", .usual = x, .most = 1, \
                        .doc = "decay rate of the momentum", .only = when, \
                        .role = SK_KNOB_MOMENTUM}
#define SK_MOMENTUM(x) SK_MOMENTUM_IF(x, NULL)
#define SK_DECAY_AS(x, as) {.name = "decay", .usual = x, .most = 1e6, \
                            .doc = "of weights, not of biases and norms", \
                            .key = "weight_decay", .role = as}
#define SK_DECAY(x) SK_DECAY_AS(x, SK_KNOB_DECAY)
#define SK_FREEZE(x) {.name = "freeze_step", .usual = x, .least = 1, .most = 0x1p24, .whole = true, \
                      .doc = "steps before momentum is sent in place of gradients"}
#define SK_MATCH_RMS(x) {.name = "match_rms", .usual = x, .most = 10, \
                         .doc = "RMS of the step, to match AdamW's; 0: the optimizer's own scale"}
#define SK_DAMPING(x) {.name = "damping", .usual = x, .least = 1e-12, .most = 1e6, \
                       .doc = "added to the eigenvalues of a matrix, times their mean or largest"}
#define SK_INTERVAL(x) {.name = "interval", .usual = x, .least = 1, .most = 1e6, .whole = true, \
                        .doc = "updates from one decomposition of a matrix to the next"}
#define SK_FACTOR_INTERVAL(x) {.name = "factor_interval", .usual = x, .least = 1, .most = 1e6, \
                               .whole = true, \
                               .doc = "updates from one Kronecker factor of a matrix to the next"}
#define SK_MAX_SIDE(x) {.name = "max_dim", .usual = x, .most = 1e6, .whole = true, \
                        .longest_side = true, \
                        .doc = "a longer side of a matrix has no preconditioner"}
#define SK_ADAFACTOR \
    {.name = "decay_rate", .usual = 0.8, .most = 1, \
     .doc = "the t-th gradient has the weight t^-decay_rate in averages"}, \
    {.name = "eps1", .usual = 0x1p-23, .least = 1e-18, .most = 1, \
     .doc = "least root of a second moment"}, /* its square is above 0 in f32 */ \
    {.name = "eps2", .usual = 1e-3, .most = 1, .doc = "least RMS of weights that a step goes by"}, \
    {.name = "clip_rms", .usual = 1, .least = 1e-6, .most = 1e6, \
     .doc = "largest RMS of a step before the rate"}
/* clang-format on */

/* The matrix of a parameter, to write operations on.  In dims r, R, S are rows and c, C, D columns;
 * a parameter of several matrices, as of experts, has each of them treated alike. */
typedef struct sk_matrix sk_matrix;
enum { SK_MATRIX_IN = 3, SK_MATRIX_ATTR = 4 };
typedef struct sk_matrix_args {
    int in[SK_MATRIX_IN];
    double attr[SK_MATRIX_ATTR];
} sk_matrix_args;
struct sk_matrix {
    int64_t rows, cols;
    bool rows_out;      /* rows are outputs of the product that reads the parameter, not inputs */
    char cut;           /* 'r', 'c': rows or columns are cut over ranks; 0: the matrix is whole */
    const double *knob; /* in the order of sk_optim.knobs */
    /* Writes an operation of parts/op and returns the number of its result. */
    int (*op)(sk_matrix *w, const char *op, const char *dims, const sk_matrix_args *with);
    /* State with these letters, "rR", "c", "rc" or "" for a number. */
    int (*state)(sk_matrix *w, const char *name, const char *letters);
    void (*keep)(sk_matrix *w, int state, int value);
    /* With sk_optim.factors: K-FAC's factor of the rows, "rR", or of the columns, "cC", of this
     * step, summed over samples; of inputs or of gradients of results, whichever the side is.  -1:
     * there is none, since the side is too long or several products read the parameter.  With
     * sk_optim.factor_interval it is used behind every(that many) alone. */
    int (*factor)(sk_matrix *w, bool rows);
    void (*every)(sk_matrix *w, int updates);
};
#define sk_matrix_op(w, name, dims, ...) (w)->op(w, name, dims, &(sk_matrix_args){__VA_ARGS__})

typedef struct sk_optim {
    const char *name, *doc;
    int n_state, n_sums;
    const char *state[SK_MAX_STATE]; /* names of the state tensors: "m", "v" */
    sk_knob knobs[SK_MAX_KNOB + 1];
    void (*pass[SK_MAX_PASS + 1])(sk_piece *p); /* NULL ends the list */
    /* Names of numbers that are kept once a parameter, f32, zero before step 1.  settle, called
     * once between the first two passes, changes them by the totals of the first: the same totals
     * on every rank that has a shard, so the same numbers.  It sees no elements. */
    const char *scalars[SK_MAX_SCALAR + 1];
    void (*settle)(sk_piece *p);
    unsigned settles; /* 0, or bits: the passes in front of which settle is called instead */
    unsigned maxima;  /* bits: totals that are the largest of all elements, and 0 at least, instead
                         of a sum */
    unsigned silent;  /* bits: passes that leave no totals; the last of a step never does */
    /* NULL, or: for matrices only.  Returns the number of the result. */
    int (*matrix)(sk_matrix *w);
    bool factors; /* with matrix: the backward pass leaves Kronecker factors of the matrices */
    int factor_interval; /* 0, or: 1 + the knob that says in every how many updates it does */
    bool every_matrix;   /* with matrix: takes the output projection and embeddings as well */
    bool exact; /* with matrix: operations are in f32 in any precision, and passes keep no state */
    /* 0, or: 1 + the state that validation, samples and exported models read in place of the
     * weights.  It begins as a copy of them, and is always f32, as all state of this optimizer. */
    int average;
    const char
        *schedule;    /* NULL, or: the only schedule of the rate that it takes, and its default */
    const char *rest; /* with matrix, needed: the optimizer of parameters that are no matrices */
    /* NULL, or: a step takes two gradients of its batch.  Before the second this makes of param, a
     * copy, the weights that it is taken at, from the first, which is not clipped; it has no state.
     * Passes see only the second.  See program/step_phases.c. */
    void (*perturb)(sk_piece *p);
    /* NULL, or: makes of param, a copy, what it will probably be `delay` updates later.  Forward
     * passes whose gradients come late in a pipeline read that. */
    void (*ahead)(sk_piece *p);
    /* 0, or: 1 + the state that is sent in place of gradients, encoded by the codec sent_as; how
     * many passes make the steps before that; 1 + the knob that says how many steps these are. */
    int sends, n_first, first_steps;
    const char *sent_as;
    /* NULL, or instead of first_steps: the kind of a step, SK_STEP_DENSE .., counted from 1 on; the
     * first is dense.  kind_shares: which part of all steps, in the long run, each kind is. n_sent:
     * how many passes a step has in which ranks send.  These come from whole numbers among the
     * knobs, and groups must agree in them. */
    int (*step_kind)(const double *knob, int64_t step);
    void (*kind_shares)(const double *knob, double share[SK_STEP_KINDS]);
    int n_sent;
    unsigned positive;   /* bits: states that are never negative, as second moments */
    sk_dtype state_type; /* that state is kept in unless optim.state says otherwise; SK_F32 */
} sk_optim;

/* Types of state: SK_F32, SK_BF16, or SK_U8: in blocks of 8 bits (tensor/q8_format.h), but for
 * small tensors.  SK_STATE_AUTO: as each optimizer says.  By name: f32, bf16, int8, auto. */
#define SK_STATE_AUTO ((sk_dtype)SK_N_DTYPES)
const char *sk_state_type_name(sk_dtype t);
bool sk_state_type_find(const char *name, sk_dtype *out);

/* Arrays that passes see of a shard as `state`: the state, and a direction or a sum between the
 * passes. */
static inline int sk_optim_arrays(const sk_optim *o)
{
    return o->n_state + (o->matrix || o->sends);
}

/* The kind of the steps in which a pass runs; is it the last of such a step; does it leave totals;
 * is settle called in front of it? */
static inline int sk_optim_kind(const sk_optim *o, int pass)
{
    if (!o->sends || pass < o->n_first) return SK_STEP_DENSE;
    return o->n_sent && pass >= o->n_first + o->n_sent ? SK_STEP_LOCAL : SK_STEP_SENT;
}
static inline bool sk_optim_last(const sk_optim *o, int pass)
{
    return !o->pass[pass + 1] || sk_optim_kind(o, pass) != sk_optim_kind(o, pass + 1);
}
static inline bool sk_optim_totals(const sk_optim *o, int pass)
{
    return o->n_sums && !sk_optim_last(o, pass) && !(o->silent >> pass & 1);
}
static inline bool sk_optim_settles(const sk_optim *o, int pass)
{
    return o->settle && (o->settles ? o->settles >> pass & 1 : pass == 1);
}

static inline int sk_optim_scalars(const sk_optim *o)
{
    int n = 0;
    while (o->scalars[n]) n++;
    return n;
}

/* Parameters that are updated alike: an optimizer with numbers and a rate of its own. */
enum { SK_MAX_PARAM_GROUPS = 8, SK_GROUP_MATCH = 64 };
typedef struct sk_param_group {
    char match[SK_GROUP_MATCH]; /* a class (program/param_groups.c) or a pattern of names */
    const sk_optim *optim;
    double rate; /* times the rate of the step */
    double knob[SK_MAX_KNOB];
    bool says_lr;    /* a rate is said of this group, so optim.lr alone does not change it */
    bool says_decay; /* weight_decay is said of this group: where it has only vectors, they decay */
    bool matrices;   /* of what matches, only matrices that the optimizer takes by itself: of class
                        matrix, or with every_matrix of the others, too */
    bool half;       /* the second of two that were said as one: the rest of what matches */
    char alone[32];  /* of one of such two: a number that is said, and only its optimizer has */
} sk_param_group;

/* The passes of optimizers that leave the rest to `whole` and keep no state of elements: the
 * direction is the gradient; the step is taken, with decoupled decay.  Their first knobs are the
 * rate and the decay.  kernel/cuda/shared_passes.h has the GPU halves of these and the next. */
enum { SK_WHOLE_LR, SK_WHOLE_DECAY };
void sk_pass_gradient(sk_piece *p);
void sk_pass_step(sk_piece *p);

/* Steps that several optimizers take: of Adam with decoupled decay, whose states are the two
 * moments, and of SGD with momentum and coupled decay.  Their knobs are in this order. */
enum { SK_ADAMW_LR, SK_ADAMW_BETA1, SK_ADAMW_BETA2, SK_ADAMW_EPS, SK_ADAMW_DECAY };
enum { SK_SGD_LR, SK_SGD_MOMENTUM, SK_SGD_DECAY };
void sk_pass_adamw(sk_piece *p);
void sk_pass_sgd(sk_piece *p);

/* How often a step with these optimizers runs the training section: 2 if one perturbs weights. */
int sk_optim_phases(const sk_optim *rest, const sk_param_group *groups, int n_groups);

extern const sk_optim *const sk_optim_parts[]; /* every file in parts/optim; NULL ends it */
const sk_optim *sk_optim_find(const char *name);
const char *sk_knob_key(const sk_knob *k); /* "betas": without the section */
/* The first knob of this optimizer under a key, NULL if there is none; how many knobs the list that
 * begins with it has. */
const sk_knob *sk_optim_key(const sk_optim *o, const char *key);
int sk_knob_list(const sk_knob *first);
/* Is a knob of this list used, with these numbers?  See sk_knob.only. */
bool sk_knob_used(const sk_knob *knobs, const sk_knob *k, const double *numbers);
/* The default of the i-th knob beside these numbers: see sk_knob.base. */
double sk_knob_usual(const sk_optim *o, int i, const double *numbers);
/* Which of the optimizer's knobs has this name; -1: none. */
int sk_optim_knob(const sk_optim *o, const char *name);

#ifdef __cplusplus
}
#endif

#endif
