/* optim_kernel.h - the GPU half of an optimizer.
 *
 * parts/optim/NAME.c is complete alone and is the truth; parts/optim/NAME.cu beside it defines
 *
 *     extern "C" const sk_optim_kernel sk_optim_kernel_NAME = {"NAME", {first, second}};
 *
 * One launch takes one pass over many shards at once, from a table on the device.  Shards are cut
 * into chunks of SK_UPDATE_CHUNK elements, counted through the table: each says which chunk is its
 * first, and a block of threads searches for the shard that its chunk is of.  So 768 elements cost
 * one block and 80 million cost ten thousand, and none of them idles.
 *
 *     for (int i = 0; i < n; chunk += sk_update_chunks(pieces[i++].n)) pieces[i].chunk = chunk;
 *     job.chunks = chunk;
 *
 * Numbers that differ from step to step are the step scalars (sk_step_scalars), on the device, so
 * that a CUDA graph of a step can be launched again: the host writes the first half of them before
 * a step, and CLIP the second, which updates read.  Between these the host does nothing.
 *
 * A pass does what that of parts/optim/NAME.c does, and what run/cpu/optim_passes.c does around it:
 * it takes bias updates, rounds narrow state stochastically, and writes narrow weights; with
 * pulse->skip it only does the last.  Updates with a scale of their own are made before CLIP and
 * are never skipped. */
#ifndef SK_KERNEL_OPTIM_KERNEL_H
#define SK_KERNEL_OPTIM_KERNEL_H

#include "kernel/kernel_launch.h"
#include "kernel/optim.h"
#include "tensor/q8_format.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sk_step_scalars {
    uint64_t step;   /* what kernels draw random numbers by: sk_launch.step points here */
    int64_t updates; /* of the optimizer before this step */
    double lr, loss_scale;
    int32_t phase;   /* of the step: below sk_update_job.phases */
    double momentum; /* over 0: in place of the knobs of sk_update_job.momentum */
    int32_t full;    /* by PACK: some values did not fit; the host writes 0 */
    double loss, tokens, aux, drops, right, norm; /* by CLIP, as in sk_step_out; norm: grad_norm */
    double small;                                 /* likewise */
    float scale; /* for gradients: mean, clipped, without the loss scale */
    int32_t finite, again;
    int32_t skip; /* no update is to be made */
    int32_t hold; /* state is left alone: skip, or a phase of the step before its last */
    double more;  /* by the host before STATS: squares of gradients that it has seen itself */
} sk_step_scalars;

enum { SK_UPDATE_CHUNK = 8192 }; /* elements */

static inline int64_t sk_update_chunks(int64_t n)
{
    return (n + SK_UPDATE_CHUNK - 1) / SK_UPDATE_CHUNK;
}

/* One shard of a parameter in one pass of an optimizer, in a table on the device. */
typedef struct sk_update {
    int64_t n;
    int64_t chunk; /* the first of this shard; the table is in their order */
    float *param;  /* the master, or the weights where they are f32 */
    const void *grad;
    void *state[SK_MAX_STATE];
    float *scalar; /* sk_optim.scalars; or NULL */
    void *narrow;  /* the weights where a master is kept: written by the last pass; or NULL */
    sk_dtype grad_type, state_type, narrow_type; /* SK_U8: each state as q8 says */
    sk_q8 q8[SK_MAX_STATE]; /* map of a state in blocks of 8 bits; 0 among those: f32 */
    int delay, update;      /* as in sk_inst: count, update */
    float scale;            /* over 0: instead of pulse->scale, and / loss_scale */
    double rate;            /* times the rate of the step */
    float decay;            /* of this shard */
    float bias_update;      /* not 0: a step of this size against the sign of the gradient instead
                               (router  bias update) */
    bool owner;             /* sums of this shard count */
    const void *before;     /* sums of the pass before, [SK_MAX_SUM] of double; or NULL */
    void *after;            /* where sums of this pass go; or NULL.  Ordered: of sk_fixed, both */
    const double *before_most; /* maxima (sk_optim.maxima) of both, at their places; or NULL */
    double *after_most;
    int64_t elements; /* as in sk_piece */
    uint64_t name;    /* hash of the tensor's name, for the random bits of stochastic rounding */
    sk_view shape;    /* of the shard; data means nothing */
} sk_update;

/* One pass over several shards at once. */
typedef struct sk_update_job {
    const sk_update *pieces; /* on the device */
    int n_pieces;
    int64_t chunks;                              /* of all shards */
    sk_dtype grad_type, state_type, narrow_type; /* of all shards; narrow SK_F32: there are none;
                                                    state SK_U8: f32 shards are among them */
    bool sums;                                   /* this pass leaves sums in pieces[i].after */
    bool ordered; /* canonical: bits of elements and of sums are the same however shards are cut */
    float knob[SK_MAX_KNOB]; /* as sk_optim.knobs names them; lr and decay are elsewhere */
    unsigned momentum;       /* bits: which of them pulse->momentum replaces */
    uint64_t seed;           /* of stochastic rounding */
    int64_t warmup;          /* as in sk_piece */
    float share;             /* as in sk_piece */
    unsigned maxima;         /* as in sk_optim */
    int phases;              /* of a step: passes act in the last, perturb in those before */
    const sk_step_scalars *pulse;
} sk_update_job;

typedef struct sk_optim_kernel {
    const char *optim;
    sk_status (*pass[SK_MAX_PASS + 1])(const sk_update_job *j, const sk_launch *l);
    /* Where the optimizer has it: param = the weights at `grad` (f32), or those at param if that is
     * NULL, as they will be `delay` updates later; skip or not. */
    sk_status (*ahead)(const sk_update_job *j, const sk_launch *l);
    /* Where the optimizer has it, issued behind the last pass, which has written narrow weights. */
    sk_status (*perturb)(const sk_update_job *j, const sk_launch *l);
} sk_optim_kernel;

extern const sk_optim_kernel *const sk_optim_kernel_parts[]; /* every parts/optim/NAME.cu */

/* The GPU half of the optimizer of this name; NULL if it has none, or skein_cuda is not linked. */
const sk_optim_kernel *sk_optim_kernel_find(const char *optim);

/* Do GPU halves take gradients, state and narrow weights of the job's types? */
sk_status sk_update_takes(const char *optim, const sk_update_job *j);

#ifdef __cplusplus
}
#endif

#endif
