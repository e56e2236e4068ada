/* emit.h - what the passes that write a program share.  Private to program/. */
#ifndef SK_PROGRAM_EMIT_H
#define SK_PROGRAM_EMIT_H

#include "program/program.h"

/* A tensor may be at hand in several states for one micro-batch. */
typedef struct sk_at_hand {
    sk_state state;
    int buf;
    struct sk_at_hand *next;
} sk_at_hand;

typedef struct sk_ints {
    int *v, n, cap;
} sk_ints;

typedef struct sk_emit {
    sk_program *p;
    const sk_graph *g;
    const sk_layout *l;
    const sk_compile_opts *opts;
    sk_spread *sp;
    bool training; /* this section makes gradients */
    int micro;     /* of the task being written */
    sk_phase phase;
    int layer;
    sk_at_hand **hand; /* [tensor * n_micro + micro] */
    int *gathered;     /* by param: sharded ones made whole for the layer at work, or -1 */
    int gathered_layer;
    int *param_of;          /* tensor id -> index in p->params, or -1 */
    int *left;              /* param index -> contributions still to come this step */
    char *begun;            /* param index -> its gradient has been written this step */
    int *full_grad;         /* ZeRO 2, 3: transient whole gradient of the task, by param; -1 */
    int *sends, *last_sent; /* by stage: sends of this section so far; the newest's buffer */
    uint64_t *read_by;      /* tensor id -> set of stages that read it */
    unsigned *as_part;      /* tensor id -> set of axes over which somebody reads a partial sum */
    sk_state *grad_made;    /* tensor id -> its gradient before any reduction */
    int *grad_parts;        /* tensor id -> contributions this stage makes per micro-batch */
    char loss_begun, weight_begun;
    sk_ints ready; /* parameters whose gradients can be reduced */
    int64_t ready_bytes;
    sk_ints flying;   /* calls that were started and not waited for */
    sk_ints *uses;    /* [2 * layer + phase]: parameters read there */
    sk_status failed; /* the first call that no algorithm can do */
} sk_emit;

/* emit.c */
sk_inst *sk_emit_inst(sk_emit *e, sk_act act);
int sk_emit_buffer(sk_emit *e, const char *name, const sk_tensor *t, sk_kind kind, sk_dtype type,
                   sk_extent box);
int sk_emit_piece(sk_emit *e, const sk_tensor *t, sk_kind kind, const sk_state *s, int micro);
int sk_emit_call(sk_emit *e, sk_coll_kind kind, sk_reduce reduce, sk_dtype type, int group,
                 const char *what);
void sk_emit_seg(sk_emit *e, int call, int src, int dst, int64_t outer, int64_t n, int64_t inner);
void sk_emit_start(sk_emit *e, int call); /* its segments are complete: gets its algorithm */
void sk_emit_wait(sk_emit *e, int call);
uint64_t sk_emit_choices(const sk_emit *e); /* what algorithms are chosen by, see sk_program */
int64_t sk_box_count(const sk_extent *b, int from,
                     int to); /* product of sizes of dims [from, to) */
int64_t sk_emit_logical(const sk_emit *e, const sk_tensor *t); /* bytes of the whole tensor */
int64_t sk_emit_bucket(const sk_emit *e);                      /* bytes that fill a bucket */

/* reshard.c: a buffer of the tensor in the wanted state, for the micro-batch at work. */
sk_status sk_emit_need(sk_emit *e, const sk_tensor *t, const sk_state *want, int *buf);
void sk_emit_have(sk_emit *e, const sk_tensor *t, const sk_state *s, int buf);
sk_state sk_state_settled(const sk_state *s); /* partial becomes whole */

/* grads.c: where gradients go. */
sk_status sk_emit_params(sk_emit *e);
int sk_emit_grad_target(sk_emit *e, int param, const sk_state *made, bool *add);
void sk_emit_grad_done(sk_emit *e, int param);
int sk_emit_gathered(sk_emit *e, int param);
void sk_emit_task_end(sk_emit *e);
void sk_emit_grads_end(sk_emit *e);

/* update.c: sums, clipping, the optimizer, and weights made whole again. */
void sk_emit_update(sk_emit *e);
void sk_emit_report(sk_emit *e);

/* memory.c: offsets. */
void sk_plan_memory(sk_program *p);

#endif
