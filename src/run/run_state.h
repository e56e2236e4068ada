/* run_state.h - the state of a run, as the files that execute it see it.  Private to run/. */
#ifndef SK_RUN_RUN_STATE_H
#define SK_RUN_RUN_STATE_H

#include "base/exact.h"
#include "base/threads.h"
#include "device/disk.h"
#include "run/background.h"
#include "run/ordered_sums.h"
#include "run/run.h"

enum { SK_BLOCK = 1024 }; /* elements that are widened at a time */

/* An instruction and its run: the context of a task that gets one pointer. */
typedef struct sk_bound_inst {
    sk_run *r;
    const sk_inst *in;
} sk_bound_inst;

struct sk_run {
    const sk_program *p;
    const struct sk_backend *backend;
    sk_heaps *heaps;
    sk_rank_state *line;
    sk_comm *comm;
    sk_threads *team;
    sk_run_opts opts;
    char *base;             /* of the rank's heap */
    char *device;           /* of the memory that kernels see: the heap, or the pool of a GPU */
    struct sk_gpu *gpu;     /* state of the GPU backend; NULL: another one executes */
    sk_args *args;          /* by instruction; filled for SK_DO_OP only */
    int64_t *sent_then;     /* by rank: messages sent to it before the section began */
    int *place;             /* param -> its index among all parameters of the graph */
    double *times, *moving; /* [2 * instruction]: when it ran; when its bytes moved */
    double reading;         /* seconds of a section in which they were read, after its end */
    double *began;          /* by call: when it was started */
    sk_disk *disk;          /* the file that buffers are offloaded to, or NULL */
    sk_background *copier;  /* copies between memories; NULL: there are none */
    sk_background *updater; /* runs the optimizer one step late; NULL: it is not late */
    sk_threads *helpers;    /* threads of the updater beside r->team; or NULL */
    sk_bound_inst *bound;   /* by instruction that a background worker executes */
    double *squares;        /* [param][thread]: sums of squares of offloaded gradients */
    double timeout_s;       /* longest wait for a peer or a background worker */
    double waited, copied, uncovered;
    int64_t wire_then;     /* bytes that sk_comm had sent before the section began */
    int64_t wire_device;   /* bytes that the device itself sent in this section, or that this rank
                              took from the memory of another one */
    float scale;           /* of gradients: 1 / tokens, times the factor of clipping */
    double momentum;       /* sk_step_in.momentum */
    double lr, loss_scale; /* gradients are multiplied by loss_scale, so that small ones survive */
    int64_t step, shift;   /* as in sk_step_in */
    int phase;             /* of the step: below sk_program.phases */
    int64_t batch;         /* the step whose data are read */
    bool validation, skip; /* skip: this step makes no update */
    bool bad_phase;        /* an earlier phase of this step was not finite */
    bool pending;          /* the step before left gradients for a late optimizer */
    bool full;             /* packed results did not fit: run/cpu/pack_bits.h */
    bool watches, late;    /* sync=backup: looks whether others have made the step; they have */
    unsigned set;          /* the ranks that made this step; 0: all */
    double committed[SK_N_SUMS]; /* the sums of the graph over these */
    int64_t turn[SK_N_TURNS];    /* sync=ssp: of this step */
    int64_t stale_from;          /* the first step of this training; -1: not known yet */
    sk_step_out out;
    double partial[SK_THREADS_MAX][SK_MAX_SUM];
    sk_exact exact[SK_THREADS_MAX];
    sk_fixed fixed[SK_THREADS_MAX][SK_MAX_SUM];
};

/* Do updates wait for another gradient of this step? */
static inline bool sk_run_first_phase(const sk_run *r) { return r->phase + 1 < r->p->phases; }
/* Is state of the optimizer left alone: in a skipped step, or before the last phase? */
static inline bool sk_run_holds(const sk_run *r) { return r->skip || sk_run_first_phase(r); }

/* run.c */
sk_bound_inst *sk_bind_inst(sk_run *r, const sk_inst *in);
char *sk_run_memory(const sk_run *r, int buf); /* the first byte of the memory that it lies in */

/* init.c: does this rank keep the buffer in memory of its own?  Then it has to fill it. */
bool sk_run_keeps(const sk_program *p, int buf);

/* Updates of the optimizer before this step; and does the instruction run in it (inst.every)?  For
 * a measurement of instructions all do. */
static inline int64_t sk_run_updates(const sk_run *r)
{
    return r->step * r->p->n_updates + r->shift;
}
/* Has this step the gradient of all replicas?  `from`: the first that has not. */
static inline bool sk_run_together(const sk_run *r, int64_t from)
{
    return r->p->kinds ? sk_step_kind(r->p->kinds, r->step) == SK_STEP_DENSE && from
                       : r->step < from;
}
static inline bool sk_run_due(const sk_run *r, const sk_inst *in)
{
    return r->opts.alone || (sk_inst_due(in, r->step, sk_run_updates(r)) &&
                             !(sk_inst_once(in) && sk_run_first_phase(r)));
}

#endif
