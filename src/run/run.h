/* run.h - executing the program of one rank.
 *
 * The planned memory of a rank is its heap (comm/comm.h).  sk_run_open writes the tables of
 * collectives into it, starts the threads of the rank and opens its end of the communication.
 * After that nothing is allocated: a step executes the instructions once.  Learning rate, seed and
 * step are inputs, so nothing is ever recompiled for them.  The last instructions are in the flight
 * recorder (run/flight.h).
 *
 * The host's processor or a GPU executes the program: run/backend.h. */
#ifndef SK_RUN_RUN_H
#define SK_RUN_RUN_H

#include "comm/comm.h"
#include "device/device.h"
#include "program/program.h"
#include "tensor/tensor_shard.h"

typedef struct sk_run sk_run;

/* Fills one input of the graph for the part `box` of it, dense: i32 or f32 as the tensor says. Rows
 * (the batch letter) count within the global batch of the step. */
typedef sk_status sk_fill(void *ctx, const char *input, sk_dtype type, const sk_extent *box,
                          int64_t step, bool validation, void *to);

/* Numbers of the optimizers, by group of parameters (sk_param_plan.group). */
typedef struct sk_knobs {
    struct {
        double v[SK_MAX_KNOB]; /* in the order of sk_optim.knobs; the rate comes with each step */
        double rate;           /* times the rate of the step */
    } group[SK_MAX_PARAM_GROUPS];
    double layer_decay; /* of the rate, from layer to layer down from the head; 0: none */
    double clip;        /* the largest norm of all gradients; 0: any */
    int64_t warmup;     /* updates in which the rate rises, linearly: sk_piece.warmup */
} sk_knobs;

/* With sync=backup:B: which ranks commit a step, told by the one whose gradient completes the set,
 * before anybody acts on it; and as a replay has it (bit r: rank r).  With sync=ssp:S: the turns of
 * a step of this rank (comm/turns.h), told while it has the second; and as a replay has them.  What
 * is imposed may be NULL, or return 0 or false. */
enum { SK_TURN_READ, SK_TURN_UPDATE, SK_N_TURNS };
typedef struct sk_commit_opts {
    sk_status (*seal)(void *ctx, int64_t step, unsigned set);
    unsigned (*imposed)(void *ctx, int64_t step);
    sk_status (*updated)(void *ctx, int64_t step, const int64_t turn[SK_N_TURNS], int64_t ahead);
    bool (*imposed_turns)(void *ctx, int64_t step, int64_t turn[SK_N_TURNS]);
    void *ctx;
} sk_commit_opts;

typedef struct sk_run_opts {
    sk_fill *fill;
    void *fill_ctx;
    uint64_t seed;
    sk_knobs knobs;
    double timeout_s;   /* longest wait for a peer; 0: 60.  plan/deadline.h finds a better one */
    bool trace;         /* keep times of every instruction of the last step: sk_run_times */
    sk_wire *wire;      /* to ranks of other hosts; NULL: there are none */
    const int *host_of; /* rank -> host; NULL: one host */
    const char *(*where)(void *ctx, int rank,
                         int pc); /* an instruction of any rank, for error reports */
    void *where_ctx;
    /* No other rank runs: waits and messages move nothing, synthetic data stands for what other
     * ranks would have sent, and the heap is that of `slot`.  For measuring (plan/profile.h). */
    bool alone;
    int slot;
    const char *device; /* of a program for a GPU: "cuda:0" */
    /* The GPU has `free` bytes, less than the program needs: returns an error with advice.  NULL:
     * a short error is returned. */
    sk_status (*no_memory)(void *ctx, const sk_program *p, const char *device, int64_t free);
    void *no_memory_ctx;
    /* Another run of this rank over the same heap, which is closed after this one; or NULL.  On a
     * GPU both have one pool: see sk_run_switch. */
    const sk_run *beside;
    const char *scratch; /* folder of the file that buffers are offloaded to; NULL: $TMPDIR, /tmp */
    bool no_drops; /* a training step in which experts dropped tokens updates nothing: out.again */
    bool no_full;  /* the same if packed results (program/saved_packed.c) did not fit */
    /* NULL, or: called before every instruction of a step that reads `batch`.  For fault injection
     * by tests. */
    void (*before)(void *ctx, const sk_run *r, int64_t batch, int pc);
    void *before_ctx;
    sk_commit_opts commit;
} sk_run_opts;

typedef struct sk_step_in {
    int64_t step; /* from 0 */
    double lr;
    double momentum;   /* over 0: of this step, in place of the optimizer's (SK_KNOB_MOMENTUM) */
    int64_t shift;     /* updates made so far, less `step` times those of a step; mostly 0 */
    double loss_scale; /* gradients are multiplied by it in the backward pass; 0: 1 */
    int64_t ahead;     /* batches that were skipped before: the data are those of step + ahead */
} sk_step_in;

typedef struct sk_step_out {
    double loss;              /* mean over the tokens of the global step */
    double tokens;            /* sum of token weights */
    double grad_norm;         /* of the mean loss, before clipping */
    double small;             /* train.noise: sum over small batches of the squared norm of their
                                 gradient, in the units of grad_norm squared; see sk_noise */
    double aux;               /* mean auxiliary loss (of routers), not part of loss */
    double drops;             /* choices of experts that were dropped for lack of capacity */
    double right;             /* samples of a classifier whose class has the largest logit */
    double seconds, waited;   /* of this rank; of these, waiting for others or moving bytes */
    double copied, uncovered; /* seconds of copies between memories; of these, waited for */
    int64_t wire; /* bytes that this rank moved to others, counted: sk_comm_bytes_sent */
    bool finite;  /* loss and norm are numbers; if not, no update was made, on any rank */
    bool again;   /* no_drops or no_full applied: no update was made, on any rank */
    bool late;    /* others have made the step without this rank: sk_run_catch_up */
    int dropped;  /* ranks without which the step was made */
} sk_step_out;

/* Refuses what only a training can do, which records the choices of time (sync=backup, ssp). */
sk_status sk_run_untimed(const sk_layout *l);
/* All ranks call it together; it compares the hashes of their programs before it returns. */
sk_status sk_run_open(sk_arena *a, const sk_program *p, sk_heaps *h, const sk_run_opts *o,
                      sk_run **out);
void sk_run_close(sk_run *r);

/* Initial values of parameters by the counter RNG: the same numbers on any layout.  Averages begin
 * as copies; other optimizer state is zero because heaps come zeroed.  Weights that ranks share are
 * filled by the rank that keeps them: a barrier must follow before anybody reads them. */
sk_status sk_run_init(sk_run *r, uint64_t seed);
/* After shards of a run were written push copies them to its device; before they are read pull
 * copies them from there.  On the CPU both do nothing. */
sk_status sk_run_push(sk_run *r);
sk_status sk_run_pull(sk_run *r);
/* One kept buffer, which may be of a kind that those leave out: gradients, extras. */
sk_status sk_run_pull_buffer(sk_run *r, int buf);
sk_status sk_run_step(sk_run *r, const sk_step_in *in, sk_step_out *out);
/* After a step that this rank was late for: takes weights and optimizer state from a rank that was
 * not, and fills `missed` with what the steps since then were, this one first; there is room for
 * SK_MOST_MISSED. */
enum { SK_MOST_MISSED = 64 };
sk_status sk_run_catch_up(sk_run *r, sk_step_out *missed, int *n);
/* With sync=ssp: all ranks together take the newest weights; *updates are those of all ranks so
 * far, and *tokens, on rank 0, what no step of it has told yet.  Otherwise it does nothing. */
sk_status sk_run_settle(sk_run *r, int64_t *updates, double *tokens);
/* Of a run that is alone: executes from instruction *pc up to the first one that waits for other
 * ranks, that one included, or to the end of the training step (*pc is n_train).  Updates happen,
 * at a learning rate of zero. */
sk_status sk_run_until_wait(sk_run *r, int64_t step, int *pc);
sk_status sk_run_validate(sk_run *r, int64_t step, sk_step_out *out); /* forward only */
/* Replicas take the mean of their weights, which validation reads until the next step.
 * Without replicas it does nothing. */
sk_status sk_run_mean(sk_run *r);
/* One forward pass of a program without loss (sampling): instructions of the only section. */
sk_status sk_run_forward(sk_run *r, int64_t step);
void *sk_run_data(const sk_run *r, int buf); /* where a buffer lies */
/* Overwrites the first bytes of a buffer, between two instructions.  For tests. */
sk_status sk_run_poke(const sk_run *r, int buf, const void *data, size_t bytes);
/* SK_DISK_BOUNCE bytes of the heap that are free between steps, if buffers are offloaded to a file;
 * or NULL. */
void *sk_run_bounce(const sk_run *r);
const sk_program *sk_run_program(const sk_run *r);

/* The GPU of a run, and how much of its memory is used.  All numbers are differences of what is
 * free, so memory that other processes take or give back meanwhile is in them. */
typedef struct sk_gpu_usage {
    const char *name; /* "cuda:0" */
    sk_device_facts facts;
    int64_t pool;   /* bytes of the plan, as asked for */
    int64_t before; /* used before the pool: by the context of this process and by others */
    int64_t taken;  /* by the pool; the GPU gives whole pages of 2 MiB */
    int64_t since;  /* since then: by libraries and kernels */
} sk_gpu_usage;

bool sk_run_gpu_usage(sk_run *r, sk_gpu_usage *out); /* false: not on a GPU, or it failed */
sk_status sk_run_barrier(sk_run *r);
/* Two runs of one rank may be open over one heap if their kept buffers lie at the same offsets and
 * their groups have different numbers.  The one that was opened last may execute steps until all
 * ranks call this together: then nothing of `from` is under way, and `to` may execute. */
sk_status sk_run_switch(sk_run *from, sk_run *to);
/* Did the last step leave gradients for an optimizer that runs a step late?  At first not; after
 * shards are loaded the caller says whether gradients are among them. */
bool sk_run_pending(const sk_run *r);
void sk_run_set_pending(sk_run *r, bool pending);
sk_comm *sk_run_comm(sk_run *r);  /* this rank's end, for other messages between ranks */
double *sk_run_moving(sk_run *r); /* as sk_run_times: when the bytes of WAIT and RECV moved */
/* [2 * n_train]: start and end of each instruction, or NULL.  On a GPU by its clock.  A launch for
 * several instructions counts at one of them; the others take no time. */
double *sk_run_times(sk_run *r);
/* By instruction: the name of such a launch (a fusion, an optimizer), or NULL.  NULL on the CPU. */
const char *const *sk_run_launch_names(const sk_run *r);
int sk_run_launch_at(const sk_run *r, int pc); /* the instruction at whose place its launch is */
/* Which of its kernels the launch of an op takes: "cuDNN", "own" ..; NULL: there is no launch of
 * its own, or there are no others. */
const char *sk_run_kernel_name(const sk_run *r, int pc);

/* The shards of parameters and optimizer state that this rank keeps, for checkpoints: names are
 * "wte" and "wte.adamw.m".  `mine` marks the one owner of each element.  Weights that another rank
 * of the host keeps for this one are not among them. */
void sk_run_shards(const sk_run *r, sk_arena *a, sk_tensor_shard **shards, int *n);
/* The same from a program alone, without data: for planning and conversion. */
void sk_program_shards(const sk_program *p, sk_arena *a, void *base, sk_tensor_shard **shards,
                       int *n);
/* The model, for exports and samples: the weights, in the order of parameters, or the averages in
 * their places (sk_param_own_average), of each replica where replicas differ.  p is the program of
 * any rank of the class of `rank`. */
void sk_program_model_shards(const sk_program *p, int rank, sk_arena *a, void *base,
                             sk_tensor_shard **shards, int *n);
void sk_run_model_shards(const sk_run *r, sk_arena *a, sk_tensor_shard **shards, int *n);
/* The averages alone, by the names of their parameters: who loads weights loads these with them. */
void sk_run_average_shards(const sk_run *r, sk_arena *a, sk_tensor_shard **shards, int *n);

/* Sums of the last step: gradients ("wte.grad") and extras of the backward pass (graph/extra.h), as
 * above; buffer[k] is where shard k lies in p. */
void sk_program_sum_shards(const sk_program *p, int rank, sk_arena *a, void *base,
                           sk_tensor_shard **shards, int **buffer, int *n);

#endif
