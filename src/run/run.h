/* run.h - executing one rank's program over its heap.
 *
 * The rank's planned memory is its heap (comm/comm.h); sk_run_open lays the
 * tables of calls into it, starts the rank's thread team and makes the rank's
 * end of the communication.  After that nothing is allocated: a step walks the
 * instructions once.  Learning rate, seed and step are inputs, so that nothing
 * is ever recompiled for them.  The last instructions are kept in the flight
 * ring on the rank's line of the board. */
#ifndef SK_RUN_RUN_H
#define SK_RUN_RUN_H

#include "comm/comm.h"
#include "device/device.h"
#include "program/program.h"
#include "tensor/tensor_shard.h"

typedef struct sk_run sk_run;

/* Fill one input of the graph for the piece `box`, dense: i32 or f32 as the tensor says.  Rows
 * (the batch letter) count within the global batch of the step. */
typedef sk_status sk_fill(void *ctx, const char *input, sk_dtype type, const sk_extent *box,
                          int64_t step, bool validation, void *to);

typedef struct sk_knobs {
    double v[SK_MAX_KNOB]; /* in the order of sk_optim.knobs; the rate comes with each step */
    double clip;           /* the largest norm of all gradients; 0: any */
} sk_knobs;

typedef struct sk_run_opts {
    sk_fill *fill;
    void *fill_ctx;
    uint64_t seed;
    sk_knobs knobs;
    double timeout_s;   /* longest wait for a peer; 0: 60 */
    bool trace;         /* keep times of every instruction of the last step: sk_run_times */
    sk_wire *wire;      /* to ranks of other hosts; NULL: there are none */
    const int *host_of; /* rank -> host; NULL: one host */
    const char *(*where)(void *ctx, int rank, int pc); /* an instruction of any rank, for stories */
    void *where_ctx;
    /* No other rank runs: waits and messages move nothing, synthetic data stands for what other
     * ranks would have sent, and the heap is that of `slot`.  For measuring (plan/profile.h). */
    bool alone;
    int slot;
    const char *device; /* of a program for a GPU: "cuda:0" */
    /* The GPU has `free` bytes, less than the program needs: a story; NULL: a short one. */
    sk_status (*no_room)(void *ctx, const sk_program *p, const char *device, int64_t free);
    void *no_room_ctx;
    /* Another run of this rank over the same heap, which is closed after this one; or NULL.  On a
     * GPU both have one pool: see sk_run_switch. */
    const sk_run *beside;
    const char *scratch; /* folder of the file tier; NULL: $TMPDIR, or /tmp */
    bool no_drops; /* a training step in which a choice found no room updates nothing: out.again */
    bool no_full;  /* the same of results that were packed (program/pack.c) and found no room */
    /* NULL, or: called before every instruction of a step that reads `batch`.  For tests, which
     * break things here. */
    void (*before)(void *ctx, const sk_run *r, int64_t batch, int pc);
    void *before_ctx;
} sk_run_opts;

typedef struct sk_step_in {
    int64_t step; /* from 0 */
    double lr;
    int64_t shift; /* updates made before, less those of `step` steps of this program; mostly 0 */
    double loss_scale; /* that gradients are multiplied by on their way; 0: 1 */
    int64_t ahead;     /* its data are those of a step so many later: batches were left out */
} sk_step_in;

typedef struct sk_step_out {
    double loss;              /* mean over the tokens of the global step */
    double tokens;            /* sum of token weights */
    double grad_norm;         /* of the mean loss, before clipping */
    double aux;               /* mean auxiliary loss (of routers), not part of loss */
    double drops;             /* choices of experts that found no room */
    double seconds, waited;   /* this rank's step; of which waiting for others or moving bytes */
    double copied, uncovered; /* seconds of copies between memories; of which this rank waited */
    int64_t wire; /* bytes that this rank moved to others, counted: sk_comm_bytes_sent */
    bool finite;  /* loss and norm are numbers; if not, no update was made, on any rank */
    bool again;   /* no_drops, no_full, and there were some: no update was made, on any rank */
} sk_step_out;

/* Opens this rank's end; compares program hashes with all ranks before it returns. */
sk_status sk_run_open(sk_arena *a, const sk_program *p, sk_heaps *h, const sk_run_opts *o,
                      sk_run **out);
void sk_run_close(sk_run *r);

/* Parameters by the counter RNG, the same numbers on any layout.  Optimizer state is zero because
 * heaps come zeroed.  Weights that ranks have in common are filled by the one that keeps them: a
 * barrier must follow before anybody reads them. */
sk_status sk_run_init(sk_run *r, uint64_t seed);
/* Who fills the boxes of a run pushes them to its device, and who reads them pulls them before; on
 * the CPU they are one. */
sk_status sk_run_push(sk_run *r);
sk_status sk_run_pull(sk_run *r);
sk_status sk_run_step(sk_run *r, const sk_step_in *in, sk_step_out *out);
/* Of a run that is alone: goes on from instruction *pc until one has been passed that waits for
 * others, or the training step is over (*pc is n_train).  Updates happen, at a rate of zero. */
sk_status sk_run_until_wait(sk_run *r, int64_t step, int *pc);
sk_status sk_run_validate(sk_run *r, int64_t step, sk_step_out *out); /* forward only */
/* One forward pass of a program without loss (sampling): instructions of the only section. */
sk_status sk_run_forward(sk_run *r, int64_t step);
void *sk_run_data(const sk_run *r, int buf); /* where a buffer lies */
/* The first bytes of a buffer become these, between two instructions.  For tests. */
sk_status sk_run_poke(const sk_run *r, int buf, const void *data, size_t bytes);
/* SK_DISK_BOUNCE bytes of the heap that are free between steps, if there is a file tier; or NULL.
 */
void *sk_run_bounce(const sk_run *r);
const sk_program *sk_run_program(const sk_run *r);

/* The GPU that a run is on, and what it took of its memory.  What it took is seen in what is left,
 * so others that come and go meanwhile are in it. */
typedef struct sk_gpu_usage {
    const char *name; /* "cuda:0" */
    sk_device_facts facts;
    int64_t pool;   /* bytes of the plan, as asked for */
    int64_t before; /* in use before the pool: the context of this process, and all others */
    int64_t taken;  /* by the pool; the GPU gives whole pages of 2 MiB */
    int64_t since;  /* since then: what libraries and kernels keep for themselves */
} sk_gpu_usage;

bool sk_run_gpu_usage(sk_run *r, sk_gpu_usage *out); /* false: the run is on the CPU, or failed */
sk_status sk_run_barrier(sk_run *r);
/* Two runs of one rank may be open over one heap, if what their programs keep lies at the same
 * places and their groups have different numbers: the one that was opened last may run, until all
 * ranks come here together.  Nothing of `from` is under way afterwards, and `to` may run. */
sk_status sk_run_switch(sk_run *from, sk_run *to);
/* Did the last step leave gradients for an optimizer that is late?  Who fills the boxes anew says
 * what is true of them; at first there are none. */
bool sk_run_pending(const sk_run *r);
void sk_run_set_pending(sk_run *r, bool pending);
sk_comm *sk_run_comm(sk_run *r);  /* this rank's end, for what else ranks tell each other */
double *sk_run_moving(sk_run *r); /* the same for the bytes of waits and receives */
/* [2 * n_train]: start and end of each instruction, or NULL.  On a GPU by its clock; one launch may
 * be for several instructions: it has all of their time, and the others none. */
double *sk_run_times(sk_run *r);
/* By instruction: the name of such a launch (a fusion, an optimizer), or NULL; NULL on the CPU. */
const char *const *sk_run_launch_names(const sk_run *r);
int sk_run_launch_at(const sk_run *r, int pc); /* the instruction at whose place its launch is */
/* Which of its kernels the launch of an op takes: "cuDNN", "own" ..; NULL: there is no launch of
 * its own, or there are no others. */
const char *sk_run_kernel_name(const sk_run *r, int pc);

/* The boxes of parameters and optimizer state that this rank keeps, for checkpoints: names are
 * "wte" and "wte.adamw.m".  `mine` marks the one owner of each element.  Weights that a twin keeps
 * are not among them. */
void sk_run_shards(const sk_run *r, sk_arena *a, sk_tensor_shard **boxes, int *n);
/* The same from a program alone, without data: for planning and conversion. */
void sk_program_shards(const sk_program *p, sk_arena *a, void *base, sk_tensor_shard **boxes,
                       int *n);
/* Of these, the weights, in the order of parameters; p is of any rank of the class of `rank`. */
void sk_program_weight_shards(const sk_program *p, int rank, sk_arena *a, void *base,
                              sk_tensor_shard **boxes, int *n);

#endif
