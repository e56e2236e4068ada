/* setup.h - from a job to everything a run needs: data, graph, layout, the program of each rank.
 *
 * All of it is made once, in the launcher, before the ranks start; they inherit
 * it.  sk_setup_program() needs no data and no device, so `explain` and `plan`
 * call it alone; sk_setup_data() opens what the job trains on and checks it against the
 * model.  Programs are verified (sk_verify) before anything runs. */
#ifndef SK_TRAIN_SETUP_H
#define SK_TRAIN_SETUP_H

#include "base/strings.h"
#include "data/data.h"
#include "program/program.h"
#include "run/run.h"
#include "train/job.h"

typedef struct sk_setup {
    sk_arena *arena;
    const sk_job *job;
    /* sk_setup_program */
    sk_graph graph;
    sk_layout layout;
    const sk_optim *optim;
    int n_ranks, n_micro, threads; /* threads of each rank */
    bool threads_omp;              /* the environment says them: OMP_NUM_THREADS */
    int cores;                     /* of this host */
    int n_here;                    /* ranks that share them, on the host that has the most */
    sk_pins pins;                  /* comm.algorithm */
    const sk_links *links;         /* comm.links; NULL: none */
    const sk_graph_plan *plan;     /* what all ranks' programs share */
    /* Ranks with equal numbers have equal instructions and buffers (sk_shapes, sk_classes). */
    int n_classes, *class_of, *first_of; /* first_of[class]: its first rank, which is compiled */
    /* By rank.  `all`: its own.  Without: NULL where the class has one already.  sk_setup_run: its
     * own, or that of its class; see sk_setup_own_program. */
    sk_program **programs;
    int64_t n_params;
    double shown_rate; /* sk_setup_shown_rate of the job */
    bool has_momentum; /* of a parameter, for schedules that set it (SK_KNOB_MOMENTUM) */
    double choices;    /* of experts, by all tokens and layers of a step; 0: there are no experts */
    double flops; /* of the model for one step: its graph, forward and backward, counted once for
                     each gradient that the optimizer takes */
    /* sk_setup_data */
    sk_tokenizer *tokenizer; /* NULL: the data are not text */
    sk_store data;           /* data.train, whole */
    sk_store train, val;
    sk_feed feed, val_feed;
    bool has_val;
    const char *val_note; /* why there is none although it is wanted, or little of it; NULL: none */
    sk_id_check ids[2];   /* of `data`, and of validation data of their own: sk_setup_check */
    struct sk_relayout *relayout; /* train/relayout.h: job->relayout; NULL: the layout stays */
    /* train/fallback.h; NULL: not needed */
    struct sk_setup *fallback;
    sk_program **runs; /* of a fallback: what sk_run_open gets, by rank */
} sk_setup;

/* `all`: a program for every rank, verified together; else one for each class, which costs the
 * same for two ranks as for sixteen thousand.  A job whose layout changes needs all: the bytes of
 * its moves are each rank's own. */
sk_status sk_setup_program(sk_arena *a, const sk_job *job, bool all, sk_setup *out);
/* After sk_setup_layout(): the programs of a job that has more than one for a rank (train.relayout,
 * train.dropless, words with a fallback), refused as a run would refuse them; else nothing. */
sk_status sk_setup_second_programs(sk_setup *s);
/* For a run: a program for each class (sk_classes), verified as those of all ranks.  A rank then
 * makes its own with sk_setup_own_program, which proves that it is the one that was verified: what
 * a job of n ranks compiles before it starts does not grow with n.  A job that needs all, has all.
 */
sk_status sk_setup_run(sk_arena *a, const sk_job *job, sk_setup *out);
/* In the arena of the rank, by the rank itself: ranks may be threads. */
sk_status sk_setup_own_program(const sk_setup *s, sk_arena *a, int rank, const sk_program **out);
/* The same without programs: graph, layout, optimizer, micro-batches; and how to compile them. */
sk_status sk_setup_layout(sk_arena *a, const sk_job *job, sk_setup *out);
sk_compile_opts sk_setup_opts(const sk_setup *s);
bool sk_setup_on_gpu(const sk_job *job); /* device=cuda, cuda:1 */
/* Ranks that each take a part of every micro-batch; `batch` is the letter of its rows. */
int64_t sk_batch_shards(const sk_layout *l, char batch);
/* The optimizer of this name; else the error says which is near. */
sk_status sk_setup_optim(const char *name, const sk_optim **out);
sk_knobs sk_setup_knobs(const sk_job *job); /* for sk_run_opts */
/* The learning rates of so many steps; 0: not known yet. */
sk_status sk_setup_rates(const sk_job *job, int64_t steps, sk_lr_schedule *out);
/* Are there the validations that val.stop_loss, val.stop_accuracy and train.steps=0 go by?  As far
 * as keys and model tell; sk_setup_data asks again, of the data. */
sk_status sk_setup_validations(const sk_setup *s);
sk_status sk_setup_data(sk_setup *s);
/* Are the ids of the data those of the model?  The first call is quick (sk_id_check_begin); the
 * others look at the rest, for some seconds each.  One process does this, not each rank. */
sk_status sk_setup_check(sk_setup *s);
sk_status sk_setup_check_more(sk_setup *s, double seconds);
sk_status sk_setup_compile(sk_setup *s, int rank, sk_program **out); /* compile that one too */
/* The program of a rank, or that of its class. */
const sk_program *sk_setup_program_of(const sk_setup *s, int rank);
/* An input of the graph, with the samples of training `shift` places further (sk_feed.shift). */
sk_status sk_setup_fill_shifted(const sk_setup *s, int64_t shift, const char *input,
                                const sk_extent *box, int64_t step, bool validation, void *to);
/* For sk_run_opts.fill; ctx is the sk_setup. */
sk_status sk_setup_fill(void *ctx, const char *input, sk_dtype type, const sk_extent *box,
                        int64_t step, bool validation, void *to);

/* timed_fits.c: what cannot be where time decides whose gradients count. */
sk_status sk_setup_check_timed(const sk_setup *s);
/* group_checks.c: groups that cannot be are refused; what else is to be told of them
 * (train/idle.h); sk_setup.shown_rate and has_momentum. */
sk_status sk_setup_check_groups(const sk_setup *s);
void sk_setup_group_warnings(sk_out *o, const sk_setup *s);
/* The rate that is reported, over the one of optim.lr: that of the first group of `job` that has
 * parameters in this graph; without groups 1. */
double sk_setup_shown_rate(const sk_graph *g, const sk_job *job);
bool sk_setup_uses_lr(const sk_setup *s); /* would another optim.lr be another training? */
bool sk_setup_has_momentum(const sk_setup *s);
/* What a schedule with asynchronous updates does not go with beside what its programs refuse. */
sk_status sk_setup_check_async(const sk_setup *s);

/* optim_text.c: the optimizer and its groups in a line, for people. */
char *sk_optim_text(sk_arena *a, const sk_setup *s);

#endif
