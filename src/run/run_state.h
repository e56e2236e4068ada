/* inside.h - a run, as the files that execute it see it.  Private to run/. */
#ifndef SK_RUN_RUN_STATE_H
#define SK_RUN_RUN_STATE_H

#include "base/exact.h"
#include "base/threads.h"
#include "device/disk.h"
#include "run/background.h"
#include "run/ordered_sums.h"
#include "run/run.h"

enum { SK_BLOCK = 1024 }; /* elements that are widened at a time */

/* An instruction, for those who see only a pointer. */
typedef struct sk_bound_inst {
    sk_run *r;
    const sk_inst *in;
} sk_bound_inst;

struct sk_run {
    const sk_program *p;
    sk_heaps *heaps;
    sk_rank_state *line;
    sk_comm *comm;
    sk_threads *team;
    sk_run_opts opts;
    char *base;
    struct sk_gpu *gpu;     /* NULL: the device is the host */
    sk_args *args;          /* by instruction; only SK_DO_OP's are filled */
    int64_t *sent_then;     /* by rank: messages sent to it before the section began */
    int *place;             /* param -> its place among all parameters of the graph */
    double *times, *moving; /* [2 * instruction]: when it ran; when its bytes moved */
    double *began;          /* by call: when it was announced */
    sk_disk *disk;          /* the file tier, or NULL */
    sk_background *copier;  /* NULL: nothing is copied */
    sk_background *updater; /* NULL: the optimizer is not late */
    sk_threads *helpers;    /* of the updater, where a GPU computes; or NULL */
    sk_bound_inst *deeds;   /* by instruction that is done beside the rank */
    double *squares;        /* [param][thread]: of gradients outside of the device */
    double patience;        /* seconds */
    double waited, copied, uncovered;
    int64_t wire_then;     /* bytes that had left before the section began */
    float scale;           /* for gradients: 1 / tokens, times clipping */
    double lr, loss_scale; /* loss_scale: of gradients, so that narrow ones do not vanish */
    int64_t step, shift;   /* as in sk_step_in */
    int64_t batch;         /* the step whose data are read */
    bool validation, skip;
    bool pending; /* the step before left gradients for a late optimizer */
    bool full;    /* more elements were not 0 than there was room for: run/cpu/pack_bits.h */
    sk_step_out out;
    double partial[SK_THREADS_MAX][SK_MAX_SUM];
    sk_exact exact[SK_THREADS_MAX];
    sk_fixed fixed[SK_THREADS_MAX][SK_MAX_SUM];
};

/* run.c */
sk_bound_inst *sk_bind_inst(sk_run *r, const sk_inst *in);
char *sk_run_tier(const sk_run *r, int buf); /* where the buffer's memory begins */

/* init.c: is the buffer in memory of this rank's own, for it to fill? */
bool sk_run_keeps(const sk_program *p, int buf);

/* optimize.c: the end of a step. */
float sk_run_knob(const sk_run *r, int k, bool decays); /* the k-th of the optimizer */
float sk_run_decay(const sk_run *r);                    /* of parameters that decay */
void sk_do_squares(sk_run *r, const sk_inst *in);
double sk_offloaded_squares(const sk_run *r); /* of all that SQUARES has seen in this step */
void sk_do_stats(sk_run *r, const sk_inst *in);
void sk_do_clip(sk_run *r, const sk_inst *in);
void sk_do_update(sk_run *r, const sk_inst *in); /* also beside the rank */
void sk_do_predict(sk_run *r, const sk_inst *in);
sk_status sk_do_join(sk_run *r);
void sk_do_narrow(sk_run *r, const sk_inst *in);
void sk_do_pend(sk_run *r, const sk_inst *in);

#endif
