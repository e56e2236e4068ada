/* ranks.h - for tests: compile a model under a layout, run it on threads, keep the losses.
 *
 * Beside losses a trial leaves a digest of what was learnt: a sum over all elements of weights and
 * optimizer state, each a hash of its name, logical place and bits.  It does not know who
 * kept an element, so runs that agree to the bit have the same digest on any layout; and an
 * element that has no owner, or two, changes it. */
#ifndef SK_TEST_RANKS_H
#define SK_TEST_RANKS_H

#include "graph/extra.h"
#include "model/model.h"
#include "program/program.h"
#include "run/run.h"

enum { SK_TEST_STEPS = 32, SK_TEST_RANKS = 64 };

typedef struct sk_trial {
    const sk_model *model;
    sk_hyper hyper;
    int64_t batch, seq;
    const char *layout;
    const char *optim;         /* NULL: adamw */
    const sk_optim *own_optim; /* one that is on no shelf */
    const char *matrix;        /* the optimizer of matrices; NULL: as of the others */
    bool first;                /* parameters of layer 0 have half the rate */
    bool all_kron;             /* `matrix`, which needs Kronecker factors, has all that have them */
    sk_param_group groups[4];  /* by sk_trial_groups */
    int n_groups;
    int n_micro; /* 0: the layout's */
    int threads, steps;
    int64_t bucket_bytes;
    double clip;
    double timeout_s; /* longest wait for a peer; 0: 60 */
    double perturb;   /* initial weights are off by up to this part of them */
    int perturb_seed; /* which way: another number, other weights */
    double ema;       /* decay of the average of weights; 0: none */
    bool counts;      /* skipped steps are no updates, as in a training; else all are */
    int64_t warmup;   /* updates; the rate of the trial is the same in all of them */
    double lr;        /* 0: 1e-3 */
    double cycle;     /* over 0: momentum of the first step; it rises from step to step */
    sk_dtype dtype;   /* that results and weights are kept in */
    double loss_scale;
    sk_dtype state_type;        /* of the optimizer */
    int64_t q8_least;           /* as in sk_compile_opts */
    bool late;                  /* updates run beside the next step */
    sk_matrix_work matrix_work; /* who works on whole matrices */
    bool noise;                 /* gradients of small batches are measured */
    double adascale;   /* with noise, over 1: rates are times the gain of AdaScale; 0: of `gain` */
    unsigned extras;   /* of the backward pass: bits of sk_extra_kind */
    int norms_by;      /* sk_norms_by */
    int64_t first_row; /* the data of the batch begin with this row */
    bool gpu;          /* on "cuda", which may be lib/fake_gpu.h's */
    bool fuse;         /* there, launches are joined that can be; and copies */
    int delay_us;      /* take up to so long: both for test/layout/random.c */
    int hosts;         /* of 64 / hosts ranks each, for the compiler alone; 0, 1: one */
    const sk_costs *costs; /* NULL: the preset */
    sk_pins pins;          /* comm.algorithm */
    int poison;      /* the step, from 1 on, in which one row's weight is no number; 0: none */
    int poison_grad; /* then instead one element of a gradient of rank poison_grad - 1 alone: */
    /* sk_run_opts.before, whose ctx is the trial */
    void (*before)(void *ctx, const sk_run *r, int64_t batch, int pc);
    bool even;         /* targets have the same weight, 1 */
    bool poison_first; /* the first that is made, or the last */
    int fail;          /* the step, from 1 on, whose data cannot be read by all; 0: none */
    struct sk_trial_knob {
        const char *name; /* NULL ends them */
        double value;
    } knobs[SK_MAX_KNOB + 1]; /* of the optimizer; others are as sk_trial_knobs says */
    /* Of the training loss, 0: none; and of rates, from layer to layer. */
    double smoothing, z_loss, layer_decay;
    /* NULL, or: gets every piece of weights and state at the end, once, one after the other. */
    void (*look)(void *ctx, const sk_tensor_shard *box);
    void *look_ctx;
    /* Called by every rank after every step; may be NULL. */
    void (*after)(const struct sk_trial *t, const sk_run *run, const sk_program *p, int step);
    /* results */
    double loss[SK_TEST_STEPS], norm[SK_TEST_STEPS], valid;
    double small[SK_TEST_STEPS];   /* with noise: sk_step_out.small */
    double gain[SK_TEST_STEPS];    /* of adascale; without it the rate is times these, 0: not */
    double drops;                  /* choices of experts without room, all steps */
    uint64_t digest;               /* of all weights and optimizer state at the end */
    int64_t elements;              /* that went into it */
    double extra_sum[SK_N_EXTRAS]; /* of the last step: absolute values, by kind */
    uint64_t extra_digest;         /* and all of their bits */
    int64_t heap_bytes[SK_TEST_RANKS];
    int n_ranks;
} sk_trial;

/* A model of four blocks, small and with odd sizes, dropout and words that are not tied: three
 * steps of batches of 8. */
sk_trial sk_trial_small(const char *model, const char *layout);
/* The numbers of an optimizer: as said, or 0.9, 0.95, 1e-8 and a decay of 0.1, without foresight;
 * others so that steps are about as long as AdamW's. */
sk_knobs sk_trial_knobs(const sk_trial *t, const sk_optim *o);
/* Once optim, matrix and knobs are known: fills t->groups.  A trial without groups needs it only if
 * its optimizer is for matrices. */
void sk_trial_groups(sk_trial *t);
/* A graph with its gradient, in the arena. */
sk_status sk_trial_graph(sk_arena *a, const sk_trial *t, sk_graph *g);
/* What the trial says to the compiler. */
void sk_trial_options(const sk_trial *t, sk_compile_opts *o);
/* Programs of all ranks under the trial's layout, verified. */
sk_status sk_trial_compile(sk_arena *a, const sk_trial *t, sk_graph *g, sk_program ***programs,
                           int *n_ranks);
/* Run it: ranks are threads of this process.  Data are made up from (step, row, column). */
sk_status sk_trial_run(sk_trial *t);
/* The data: ids and pixels by logical position, so that every layout sees the same. */
sk_status sk_trial_fill(void *trial, const char *input, sk_dtype type, const sk_extent *box,
                        int64_t step, bool validation, void *to);

#endif
