/* acts.h - what the engine itself does on a GPU: everything in a program that is not an op.
 *
 * src/run/acts.cu fills one sk_acts, and the executor (run/gpu.c) calls it; libskein asks for it
 * weakly, like for all of skein_cuda.  As with ops, a call puts work into a stream and returns;
 * nothing waits, nothing is allocated, and sums are taken in a fixed order.
 *
 * Numbers that differ from step to step are in the pulse, on the device, so that a recorded step
 * can be played again: the host writes the first half of it before a step, and CLIP the second,
 * which updates read.  Between them the host is not asked. */
#ifndef SK_RUN_ACTS_H
#define SK_RUN_ACTS_H

#include "graph/graph.h"
#include "graph/kernel.h"
#include "program/optim.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sk_pulse {
    uint64_t step;   /* what kernels draw random numbers by: sk_launch.step points here */
    int64_t updates; /* of the optimizer before this step */
    double lr, loss_scale;
    int32_t full;                          /* by PACK: something found no room; the host writes 0 */
    double loss, tokens, aux, drops, norm; /* by CLIP, as in sk_step_out; norm is grad_norm */
    float scale; /* for gradients: mean, clipped, without the loss scale */
    int32_t finite, again;
    int32_t skip; /* no update is to be made */
} sk_pulse;

/* Pieces of all sizes are gone through in chunks, one block of threads each. */
enum { SK_CHUNK = 16384 };
static inline int64_t sk_update_chunks(int64_t n) { return (n + SK_CHUNK - 1) / SK_CHUNK; }

/* One gradient, as STATS sees it. */
typedef struct sk_norm_piece {
    const void *data;
    int64_t n;
    int64_t chunk; /* its first one */
    sk_dtype type;
    bool counts; /* in the norm; if not, it is only looked at for what is not finite */
} sk_norm_piece;

typedef struct sk_stats_job {
    const sk_norm_piece *pieces; /* on the device */
    int n_pieces;
    int64_t chunks;              /* of all pieces */
    double *out;                 /* on the device: norm squared, then n_sums sums */
    int64_t out_n;               /* numbers there; those that nobody fills become 0 */
    const float *sum[SK_N_SUMS]; /* on the device, scalars; NULL: not counted here */
    int n_sums;
    const int32_t *full; /* on the device: not 0 makes the norm infinite; or NULL */
} sk_stats_job;

typedef struct sk_clip_job {
    const double *sums; /* what STATS left, added over all ranks */
    int n_sums;
    bool train;  /* a training step: decide on scale and skip */
    float scale; /* over 0: updates were made already, with this factor; see run/optimize.c */
    double clip; /* 0: none */
    bool no_drops, no_full, alone; /* as in sk_run_opts */
    sk_pulse *pulse;
} sk_clip_job;

/* One piece of a parameter in one pass of an optimizer, in a table on the device. */
typedef struct sk_update {
    int64_t n;
    int64_t chunk; /* its first one */
    float *param;  /* the master, or the weights where they are f32 */
    const void *grad;
    void *state[SK_MAX_STATE];
    void *narrow; /* the weights where a master is kept: written by the last pass; or NULL */
    sk_dtype grad_type, state_type, narrow_type;
    int delay, update;    /* as in sk_inst: count, update */
    float scale;          /* over 0: instead of pulse->scale, and / loss_scale */
    float decay;          /* of this piece */
    float nudge;          /* not 0: a step of this size against the sign of the gradient instead */
    bool owner;           /* sums of this piece count */
    const double *before; /* sums of the pass before, [SK_MAX_SUM]; or NULL */
    double *after;        /* where sums of this pass go; or NULL */
    uint64_t name;        /* hash of the tensor's name: by it and the place lots are drawn */
    sk_view shape;        /* of the piece; data means nothing */
} sk_update;

/* One pass over several pieces at once. */
typedef struct sk_update_job {
    const sk_update *pieces; /* on the device */
    int n_pieces;
    int64_t chunks; /* of all pieces */
    sk_dtype grad_type, state_type, narrow_type; /* of all pieces; narrow SK_F32: there are none */
    bool sums;                                   /* this pass leaves sums in pieces[i].after */
    float knob[SK_MAX_KNOB]; /* as sk_optim.knobs names them; lr and decay are elsewhere */
    uint64_t seed;           /* of lots */
    const sk_pulse *pulse;
} sk_update_job;

/* The GPU half of an optimizer: parts/optim/NAME.cu defines sk_optim_kernel_NAME.  Passes do what
 * those of parts/optim/NAME.c do, also nudge and narrow, and nothing if pulse->skip (but narrow).
 */
typedef struct sk_optim_kernel {
    const char *optim;
    sk_status (*pass[SK_MAX_PASS + 1])(const sk_update_job *j, const sk_launch *l);
    sk_status (*ahead)(const sk_update_job *j, const sk_launch *l); /* where the optimizer has it */
} sk_optim_kernel;

extern const sk_optim_kernel *const sk_optim_kernel_parts[];
const sk_optim_kernel *sk_optim_kernel_find(const char *optim); /* NULL: none */

typedef struct sk_acts {
    /* to = the part of from that the box of `to` says; the box of `from` in `to` = from.  Bytes
     * are copied: any type. */
    sk_status (*slice)(const sk_view *from, const sk_view *to, void *stream);
    sk_status (*paste)(const sk_view *from, const sk_view *to, void *stream);
    sk_status (*add)(void *to, const void *from, int64_t n, sk_dtype type, void *stream);
    sk_status (*convert)(void *to, sk_dtype to_type, const void *from, sk_dtype type, int64_t n,
                         void *stream);
    sk_status (*stats)(const sk_stats_job *j, const sk_launch *l);
    sk_status (*clip)(const sk_clip_job *j, const sk_launch *l);
    sk_status (*pack)(const void *data, char *packed, sk_dtype type, int64_t n, int64_t room,
                      int32_t *full, const sk_launch *l); /* *full = 1 where room was short */
    sk_status (*unpack)(void *data, const char *packed, sk_dtype type, int64_t n, int64_t room,
                        const sk_launch *l);
    /* `units` blocks of `unit` bytes, every `from_step` and `to_step` bytes apart: what a
     * collective needs before it and behind it, where a piece does not lie in one run. */
    sk_status (*gather)(void *to, int64_t to_step, const void *from, int64_t from_step,
                        int64_t unit, int64_t units, void *stream);
} sk_acts;

extern const sk_acts sk_acts_cuda;
const sk_acts *sk_acts_find(void); /* NULL: skein_cuda is not linked */

#ifdef __cplusplus
}
#endif

#endif
