/* inst_kernels.h - the GPU kernels of instructions that are no ops.
 *
 * inst_kernels.cu fills one sk_inst_kernels; libskein refers to it weakly, as to all of skein_cuda.
 * As with ops, a call puts work on a stream and returns: nothing waits, nothing is allocated, and
 * sums are taken in a fixed order.  Updates are in kernel/optim_kernel.h, and so are the step
 * scalars and the chunks that shards are cut into. */
#ifndef SK_RUN_INST_KERNELS_H
#define SK_RUN_INST_KERNELS_H

#include "graph/graph.h"
#include "kernel/combine.h"
#include "kernel/optim_kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One gradient, as STATS reads it. */
typedef struct sk_norm_piece {
    const void *data;
    int64_t n;
    int64_t chunk; /* the number of its first chunk among those of all shards, as in sk_update */
    sk_dtype type;
    bool counts; /* in the norm; if not, it is only checked for values that are not finite */
} sk_norm_piece;

typedef struct sk_stats_job {
    const sk_norm_piece *pieces; /* on the device */
    int n_pieces;
    int64_t chunks;              /* of all shards */
    double *out;                 /* on the device: norm squared, then n_sums sums */
    int64_t out_n;               /* numbers there; those that are not filled become 0 */
    const float *sum[SK_N_SUMS]; /* on the device, scalars; NULL: not counted here */
    int n_sums;
    int32_t *full; /* on the device, or NULL: set by pack(); makes the norm infinite, and is reset
                      to 0 */
    const double *more; /* on the device, or NULL: added to the norm squared */
    int64_t *exact; /* on the device, zeroed, or NULL.  order=canonical: the squares of shards that
                       count are added here (base/exact.h), and the norm has only what is not
                       finite of the others */
} sk_stats_job;

typedef struct sk_clip_job {
    const double *sums; /* what STATS left, added over all ranks */
    int n_sums;
    bool train;  /* a training step: decide on scale and skip */
    float scale; /* over 0: updates were made already, with this factor; see run/cpu/grad_norm.c */
    double clip; /* 0: none */
    int phases;  /* of a step: gradients of the last are clipped */
    bool no_drops, no_full, alone; /* as in sk_run_opts */
    sk_step_scalars *pulse;        /* on the device: factor for gradients, skip, loss, norm */
    const int64_t *exact;          /* squares that are to be added, as STATS left them; or NULL */
    struct {
        int tree, trees;
    } of[SK_N_SUMS]; /* order=canonical: a sum's trees, behind the sums; none: it is one of these */
    int n_blocks;    /* of a tree */
    const double *small;        /* what sumsq() left, added over all ranks; or NULL */
    const int64_t *small_exact; /* the same in order=canonical */
    const double *all;          /* with replicas: sums of all of them; else NULL */
    const int64_t *exact_all;
    double replicas;
    int64_t together; /* before this step each replica has the gradient of all */
    bool apart;       /* from then on a step reports its own sums, not those of all */
} sk_clip_job;

typedef struct sk_combine_job { /* buffers on the device */
    sk_combine by;
    const float *in[SK_COMBINE_IN];
    float *out[SK_COMBINE_OUT];
    int64_t n;
} sk_combine_job;

/* The error feedback of up to so many parameters: kernel arguments of one launch. */
enum { SK_FEEDBACK_RESET_MOST = 128 };
typedef struct sk_feedback_reset_job {
    int n;
    float *data[SK_FEEDBACK_RESET_MOST]; /* on the device */
    int64_t count[SK_FEEDBACK_RESET_MOST];
} sk_feedback_reset_job;

/* A sum over members in the order of coll/call.h's tree: of f32 or f64. */
typedef struct sk_tree_job {
    void *to;          /* may be `mine` */
    const void *mine;  /* what this member has */
    const char *terms; /* what the others have: member k's at terms + k * step */
    int64_t step;      /* bytes from one member's operand to the next */
    int me, members;   /* fewer than 2^20 */
    int64_t n;         /* elements */
    sk_dtype type;
    bool mean; /* divided by the number of members */
} sk_tree_job;

typedef struct sk_inst_kernels {
    /* slice: `to` is the part of `from` that its box says.  paste: `from` is written to its box in
     * `to`.  Bytes are copied: any type. */
    sk_status (*slice)(const sk_view *from, const sk_view *to, void *stream);
    sk_status (*paste)(const sk_view *from, const sk_view *to, void *stream);
    sk_status (*add)(void *to, const void *from, int64_t n, sk_dtype type, void *stream);
    sk_status (*tree)(const sk_tree_job *j, void *stream);
    sk_status (*convert)(void *to, sk_dtype to_type, const void *from, sk_dtype type, int64_t n,
                         void *stream);
    /* to = from, as f32, unless *skip, on the device, is set. */
    sk_status (*keep)(float *to, const void *from, sk_dtype type, int64_t n, const int32_t *skip,
                      void *stream);
    /* Small numbers of both signs, whether they are read as bf16 or as f32.  Algorithms are timed
     * on them, because zeros are faster than real data. */
    sk_status (*noise)(void *to, int64_t bytes, void *stream);
    sk_status (*stats)(const sk_stats_job *j, const sk_launch *l);
    sk_status (*clip)(const sk_clip_job *j, const sk_launch *l);
    /* *sum += the squares of n elements. */
    sk_status (*sumsq)(void *sum, const void *data, sk_dtype type, int64_t n, bool exact,
                       const sk_launch *l);
    sk_status (*pack)(const void *data, char *packed, sk_dtype type, int64_t n, int64_t capacity,
                      int32_t *full, const sk_launch *l); /* *full = 1 if values did not fit */
    sk_status (*unpack)(void *data, const char *packed, sk_dtype type, int64_t n, int64_t capacity,
                        const sk_launch *l);
    /* `units` blocks of `unit` bytes, every `from_step` and `to_step` bytes apart: what
     * collectives need before and after them, where data is not contiguous. */
    sk_status (*gather)(void *to, int64_t to_step, const void *from, int64_t from_step,
                        int64_t unit, int64_t units, void *stream);
    /* After CLIP: if *skip, on the device, is set, the error feedback becomes 0. */
    sk_status (*reset_feedback)(const sk_feedback_reset_job *j, const int32_t *skip, void *stream);
    /* The exponential moving average `to` takes in the weights `from`; not if pulse->hold. */
    sk_status (*average)(float *to, const float *from, int64_t n, double decay,
                         const sk_step_scalars *pulse, void *stream);
    /* COMBINE: n elements of each operand, as kernel/combine.h says. */
    sk_status (*combine)(const sk_combine_job *j, void *stream);
} sk_inst_kernels;

extern const sk_inst_kernels sk_inst_kernels_cuda;
const sk_inst_kernels *sk_inst_kernels_find(void); /* NULL: skein_cuda is not linked */
/* Do add, pack and unpack take elements of this type? */
sk_status sk_inst_kernel_takes(const char *what, sk_dtype type);

#ifdef __cplusplus
}
#endif

#endif
