/* gpu.h - the GPU backend of a run: its state, and what its files share.  Private to run/gpu/.
 *
 * The device's part of the planned memory is one pool on the GPU, at the offsets of the plan.  The
 * heap of the rank has addresses at the same offsets (comm/comm.h, ghost): kept buffers appear
 * there when the host has to see them, for initial values and checkpoints.  Buffers that the plan
 * places in the memory of the host lie in the heap, pinned: gpu_offload.h.
 *
 * A step has three parts.  The host writes the batches and a few scalars (sk_step_scalars) to
 * pinned memory.  It issues the instructions to streams, without waiting.  It waits for the end and
 * reads the loss.  From the second step on the second part is one call: the launches of a step were
 * captured as a CUDA graph.
 *
 *     gpu_backend.c   open, close, kept buffers between host and device: the table sk_backend_gpu
 *     gpu_memory.c    the pool, pinned memory, events; which kernels the instructions have
 *     gpu_tables.c    the shards of parameters and gradients that kernels read from the device
 *     gpu_launches.c  one launch for several instructions; the search for algorithms
 *     gpu_issue.c     one instruction to its stream
 *     gpu_section.c   a step: batches, capture and replay, waiting, times */
#ifndef SK_RUN_GPU_H
#define SK_RUN_GPU_H

#include "kernel/codec_kernel.h"
#include "device/device.h"
#include "kernel/kernel_launch.h"
#include "program/fuse.h"
#include "run/gpu/comm_streams.h"
#include "run/gpu/gpu_offload.h"
#include "run/gpu/inst_kernels.h"
#include "run/run_state.h"

/* A section of the program: captured when it has run once. */
typedef struct sk_gpu_section {
    int runs;
    sk_device_graph *graph;
} sk_gpu_section;

typedef struct sk_gpu sk_gpu;
struct sk_gpu {
    sk_device *d;
    sk_stream *compute;
    char *base; /* of the pool */
    sk_launch launch;
    sk_step_scalars *scalars;    /* on the device */
    sk_step_scalars *told;       /* pinned: what the host writes before a step and reads after it */
    const sk_inst_kernels *inst; /* of instructions that are no ops */
    const sk_optim_kernel *optim[SK_MAX_PARAM_GROUPS]; /* by group of parameters; NULL: none here */
    const sk_kernel **kernels;                         /* by instruction: of ops */
    sk_variant *variant;            /* by instruction: which of its kernels the launch takes */
    const sk_codec_kernel **codecs; /* by instruction: of ENCODE and DECODE */
    sk_feedback_reset_job *resets;  /* the error feedback of all parameters; the last is empty */
    sk_comm_streams *streams;       /* collectives and messages; NULL: there are none */
    sk_offload *offload;            /* what is offloaded from the GPU; NULL: nothing */
    bool shown;                     /* kept buffers lie at the host's addresses too */
    int64_t both;                   /* bytes of initial values there */
    sk_fused **fused;               /* by instruction: a launch for several, where it stands */
    bool *inside;                   /* by instruction: it is part of such a launch */
    char *stage;                    /* pinned: the batches of a section */
    int64_t *stage_at;              /* by instruction: of loads */
    int64_t stage_bytes;
    char *ahead;            /* batches of the next training step, read while this one runs */
    int64_t ahead_batch;    /* which step's; -1: none */
    sk_update_job *updates; /* by instruction: the launch of UPDATE or AHEAD that stands there; no
                               pieces: it is part of another one */
    sk_stats_job stats;     /* pieces and chunks of all gradients */
    sk_norm_piece *grads;   /* the tables of these two, as they are written to the device */
    sk_update *pieces;
    int n_pieces;
    sk_gpu_section sections[5]; /* a training step; a validation step; the mean of replicas; a
                                   training step with the gradient of all replicas; one in which
                                   ranks send nothing */
    sk_event **marks;           /* by instruction and one before: for traces; NULL: none */
    sk_event **waits;           /* [2 * instruction] that waits for others: before, after */
    int64_t pool, left[2];      /* bytes of the pool; bytes left free before it and after it */
    int *at;                    /* by instruction: the one at whose place its launch is */
    const char **names;         /* by instruction: of a launch for several, there; or NULL */
};

static inline void *sk_gpu_data(const sk_run *r, int buf)
{
    return r->gpu->base + r->p->bufs.v[buf].offset;
}

static inline int64_t sk_gpu_count(const sk_run *r, int buf) /* elements */
{
    const sk_buffer *b = &r->p->bufs.v[buf];
    return b->bytes / (int64_t)sk_dtype_size(b->type);
}

/* SKEIN_TIMES=1: a line to stderr for each part of the start.  Returns the time now. */
double sk_gpu_lap(const char *what, double since);

/* gpu_memory.c: refuses with a sentence what the GPU backend cannot execute. */
sk_status sk_gpu_open_memory(sk_arena *a, sk_run *r);
sk_status sk_gpu_usage_now(sk_run *r, sk_gpu_usage *out);

/* gpu_tables.c */
void sk_gpu_make_tables(sk_arena *a, sk_run *r);
sk_status sk_gpu_write_tables(sk_run *r); /* to the device */

/* gpu_launches.c */
sk_launch sk_gpu_launch(const sk_run *r, int pc); /* stream and workspace of an instruction */
sk_status sk_gpu_prepare(sk_arena *a, sk_run *r);

/* gpu_issue.c */
sk_status sk_gpu_issue(sk_run *r, int pc);

/* gpu_section.c */
sk_status sk_gpu_execute(sk_run *r, int from, int to);
sk_status sk_gpu_watch(sk_run *r); /* the host waits for the GPU: are the other ranks well? */
void sk_gpu_hide(sk_run *r);       /* gives the host's pages of the device's addresses back */

#endif
