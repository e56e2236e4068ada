/* program.h - the centre: one straight-line program per rank.
 *
 * Everything above writes it, everything below reads it: run executes it,
 * simulate prices it, verify proves it, explain prints it.  A program is open
 * data in one arena: buffers with fixed offsets in one heap, and instructions
 * that name buffers.  It holds two sections over the same memory: [0, n_train)
 * is a training step, [n_train, n) a validation step (forward only).  [n_train, n_mean) runs once
 * before validations: it takes the mean of weights that replicas have of their own, and gathers
 * weights of which updates leave only shards.
 *
 * Invariants, each checked by verify and broken by a test:
 *   P1  the members of a group make the same calls on it, in the same order and updates
 *   P2  every send has its receive: same pair, order, tag and bytes
 *   P3  there is no deadlock
 *   P4  buffers that live at the same time do not overlap
 *   P5  every buffer is written before it is read, in every update in which it is read
 *   P6  every buffer lies inside the heap, and every call moves what its buffers hold
 *   P7  while a collective or a message is in flight, no instruction uses its buffers
 *   P8  every node runs once a micro-batch, all its parts in order, clones in the backward pass;
 *       and the optimizer makes every pass over every parameter once, after the sums are known; or,
 *       with asynchronous updates, once an update, in their order; averages of weights take in each
 *       parameter once, behind its last update, and a validation step reads them in its place
 *   P9  weights that ranks share in one memory have the same offset on all of them; only the
 *       optimizer writes them, each rank its own shard, after a call that no rank enters before its
 *       last read; and they are read again after a call that all enter after their last write
 *   P10 an instruction works in one memory: the device's, or the optimizer in the host's; a copy
 *       goes from one memory to another, and each that is started is waited for in its section
 *   P11 instructions of one launch on a GPU may be executed together: no instruction between them
 *       uses what they write or writes what they read
 *
 * Attributes: passes ask nothing about each other; what one must know of another is written here,
 * in sk_plan (lowering.h) or in the saved set (saved.h), by the passes named first, for those
 * behind the arrow.
 *   node.region      sk_plan.region_of: it runs in slices        regions -> lower, overlap, tiles
 *   node.half        sk_plan.weight_half                         split-backward -> lower, saved
 *   tensor.wide      sk_plan.wide: inside a region, never whole  regions -> recompute, slices
 *   saved.form       sk_saved.form: as made, a shard, signs, zeros, gathered
 *                                                                saved -> lower
 *   inst.region      instructions that run in slices together    lower -> slices
 *   inst.ring        the axis of the ring of its operands        lower -> ring
 *   inst.unit        instructions that stay together             lower, overlap -> overlap, buckets
 *   inst.parts       1: not split  ring, overlap, slices, tiles -> those behind; offload, verify
 *   inst.param       of ADD: the gradient, or what is a leaf of it  lower -> accumulate
 *   call.by_rows     may be split along the batch                lower -> overlap
 *   call.flies       how long it may be in flight                lower, overlap, first-gather,
 *                                                                buckets, passes of words -> waits
 *   call.then        instructions that follow its wait           lower, first-gather -> waits
 *   call.param_set   the weights of a layer that it gathers      lower -> first-gather,
 *                                                                passes of words
 *   param.home       sk_layout.home: where kinds of data live    words -> params, tiles, offload
 *
 * Every call has its algorithm from the compiler (coll/choose.h), so that ranks cannot
 * disagree about it: members of a group see the same bytes, hosts and costs. */
#ifndef SK_PROGRAM_PROGRAM_H
#define SK_PROGRAM_PROGRAM_H

#include "coll/links.h"
#include "coll/pins.h"
#include "coll/codec.h"
#include "graph/graph.h"
#include "layout/layout.h"
#include "kernel/optim.h"
#include "program/pipeline_schedule.h"
#include "tensor/q8_format.h"

typedef enum sk_kind {
    SK_WEIGHTS,
    SK_GRADS,
    SK_OPTIM,
    SK_ACTS, /* activations and their gradients */
    SK_WIRE, /* gathered weights, tables of calls, sums */
    SK_SCRATCH,
    SK_HOSTED, /* what lives in the host's memory instead of the device's, of all kinds */
    SK_N_KINDS
} sk_kind;
extern const char *const sk_kind_names[SK_N_KINDS];

typedef struct sk_buffer {
    const char *name;
    const sk_tensor *tensor; /* NULL: the engine's own */
    sk_kind kind;
    sk_dtype type;
    sk_q8 q8; /* optimizer state in blocks of 8 bits: its map; then type is SK_U8 */
    sk_extent box;
    int64_t bytes;          /* of the shard; memory is allocated in lines of 64 */
    int64_t offset;         /* in the heap, or in the file */
    int first, last;        /* instructions between which it lives; kept buffers: always */
    sk_placement placement; /* the memory that has it; the host's is a region of the heap */
    bool keep;              /* from step to step */
    bool common;            /* shared with the ranks along the shard axis: sk_layout.replica */
    bool zero;  /* must be zero before the first step (optimizer state, memories); new heaps are */
    bool tile;  /* a part that is fetched alone, of an offloaded buffer */
    bool joins; /* has the memory of a larger one, which other steps need: counted there */
    int within; /* a part of this buffer, or -1 */
    int64_t part_at; /* bytes from its start */
} sk_buffer;

/* What an instruction does: act_table.h has a row for each. */
typedef enum sk_act {
#define SK_ACT(act, ...) SK_DO_##act,
#include "program/act_table.h"
#undef SK_ACT
    SK_N_ACTS
} sk_act;

enum { SK_SENT_ALL = -1 };
/* UPDATE: where in[] has the scalars of the optimizer, behind weights, totals and state. */
enum { SK_MAX_OPERANDS = 8, SK_IN_SCALARS = SK_MAX_OPERANDS - 1 };

/* Steps of an optimizer that come in several kinds: sk_optim.step_kind, with its numbers. */
typedef struct sk_step_kinds {
    const sk_optim *optim;
    double knob[SK_MAX_KNOB], share[SK_STEP_KINDS];
} sk_step_kinds;

/* An instruction of a synchronisation of replicas runs in steps s with s % steps == at, from `from`
 * on; steps 0: in every step.  With `until` it runs in steps before that one; with `by` in steps of
 * one of these kinds (bits).  Steps are counted alike by all replicas, updates are not. */
typedef struct sk_step_due {
    int steps, at;
    int64_t from, until;
    const sk_step_kinds *by;
    unsigned kinds;
} sk_step_due;

typedef struct sk_inst {
    sk_act act;
    const sk_node
        *node; /* OP; ADD of a gradient to its sum, with param, from grad_targets.c to accumulate.c
                */
    int in[SK_MAX_OPERANDS], out[SK_MAX_OUT]; /* buffers; -1 ends the list */
    unsigned add;                             /* bit o: out[o] is added to */
    int micro, layer;
    sk_phase phase;
    sk_task_kind work; /* of the task it belongs to */
    int task;          /* which of its section; -1: none, it stands before or behind all */
    int unit;          /* instructions that stay together have the same number */
    bool background;   /* UPDATE: with the gradient of the step before, in the background;
                          AVERAGE: of weights that such an update has changed */
    int part, parts; /* OP: of a node that runs in parts: steps of a ring, overlap chunks, slices or
                        tiles; 1: it is not split */
    bool mean;       /* of the section that averages the weights of replicas */
    int region;      /* consecutive instructions with the same number run in slices together; 0:
                        none */
    int ring;        /* OP: the axis of the ring over which operands travel; -1: none */
    int call;        /* START, WAIT */
    int workspace;   /* OP: buffer of scratch, where a GPU needs more than SK_WORKSPACE; else -1 */
    int copy;        /* COPY, COPIED: which */
    int peer;        /* SEND, RECV, SENT: rank */
    int64_t tag;     /* SEND, RECV: what it is */
    int64_t sent;    /* SENT: how many messages; SK_SENT_ALL: all so far (before messages.c) */
    int64_t values;  /* PACK, UNPACK: elements that there is space for */
    int64_t pieces;  /* DECODE, PRODUCTS, ADASUM: how many are summed, multiplied, joined */
    int param, pass; /* UPDATE, AHEAD; param: ADD of a gradient too, as node, SUMSQ, AVERAGE */
    int delay;       /* UPDATE, AHEAD: updates between the weights that are read and this */
    bool training;   /* STATS, CLIP: with gradients */
    bool held;       /* ENCODE: of numbers that are not scaled, behind CLIP; the error stays as it
                        is where state of the optimizer does */
    bool adds_error; /* ENCODE: of a sum; the error is added to the error so far */
    int term;        /* ENCODE: 1 + which term of the sum it is, for random bits; 0: the sum */
    uint64_t stream; /* ENCODE, DECODE: of the tensor, for random bits */
    int update;      /* UPDATE, AHEAD: how many precede it in the step */
    float scale;     /* UPDATE, CLIP: of gradients; 0: as the sums say */
    int every;       /* over 1: it runs in the first update of the optimizer and in every so many
                        after it (matrix_ops.c, update_intervals.c); what it makes only KEEP carries out
                        of there */
    sk_step_due sync;                 /* steps in which it runs (replica_sync.c) */
    const sk_codec *codec;            /* ENCODE, DECODE */
    const struct sk_combine *combine; /* COMBINE */
    int64_t together; /* CLIP: before this step replicas are synchronous: program.replicas_from */
    double flops;
    sk_kernel_shape shape; /* OP: what it is priced by */
    int64_t
        wire; /* bytes that leave this rank: of its list, or by the closed form of the collective */
} sk_inst;

typedef struct sk_call_seg {
    int src, dst; /* buffers */
    int64_t outer, n, inner;
    sk_grid cut;  /* deterministic order: the n rows as reduction blocks */
    sk_swap swap; /* all-to-all that re-splits a tensor: from one dim to another, see coll/call.h */
    int64_t mid, n2;
    sk_grid cut2;
    int param; /* of a gather of weights: 1 + the parameter; 0: none.  Written by param_gathers.c,
                  read by first_gather.c */
} sk_call_seg;

/* How long a call may stay in flight: not at all, until the end of its task, or until the tasks of
 * the step end.  Listings say flight=none, task, step. */
typedef enum sk_flies { SK_FLIES_NOT, SK_FLIES_IN_TASK, SK_FLIES_ON } sk_flies;

typedef struct sk_then { /* an instruction that follows the wait for a call */
    sk_act act;
    int from, to; /* buffers */
    int64_t pieces;
    const sk_codec *codec;
    uint64_t stream; /* of the tensor, for random bits */
} sk_then;

typedef struct sk_call_plan {
    sk_coll_kind kind;
    sk_reduce reduce;
    sk_dtype type;
    int group, n_segs;
    sk_call_seg *segs;
    const char *what; /* "grads h.3.qkv.w ..": for people */
    int64_t table_at; /* offset of its sk_coll_call in the heap */
    int64_t elements; /* of all segments */
    int algorithm;    /* index in sk_coll_parts, or SK_BUILTIN; known at its start */
    uint64_t degrees; /* of its rounds; 0: the usual ones */
    int64_t rows;     /* most rows that are not zero in what a member gives, where streams are used;
                         0: not known.  Written with the call */
    double fill;      /* and their share of all rows, or what is expected of it; 0: dense */
    int64_t streamed; /* bytes of streams that are expected to leave each member; 0: there are none.
                         Written with the algorithm */
    const int64_t *sent; /* by member, the bytes that its list sends; NULL: closed forms hold.
                            Written with the algorithm */
    int root;            /* of kinds that have one: a member */
    int workspace;       /* buffer of scratch from start to wait, or -1 */
    int64_t workspace_bytes;
    bool common;    /* all-gather of shared memory: members only synchronise */
    bool ordered;   /* deterministic order: a sum by the tree of coll/call.h, on any device */
    sk_flies flies; /* written with the call, read by waits.c */
    bool by_rows;   /* the only call of a reshard, and it does not touch the batch dim: it can be
                       split along the batch */
    int param_set;  /* calls that gather the weights of a layer together: 1 + the layer; 0: it is no
                       such call.  Written by param_gathers.c, read by first_gather.c */
    sk_then *then;  /* written by codec_calls.c and first_gather.c; instructions behind the wait, by
                     * waits.c
                     */
    int n_then;
} sk_call_plan;

/* Instructions that a GPU executes in one launch: those that a part of parts/fuse joins, launched
 * in the place of the last; or consecutive updates of the optimizer, in the place of the first.
 * Written by launches.c; the executor issues them and decides nothing. */
enum { SK_MOST_FUSED = 8 };
typedef struct sk_launch_plan {
    const struct sk_fuse *by; /* NULL: updates */
    int at, n;
    int pcs[SK_MOST_FUSED];         /* of fused ones, in their order */
    unsigned silent[SK_MOST_FUSED]; /* bit o: output o is not written, for only these read it */
} sk_launch_plan;

typedef struct sk_param_plan {
    const sk_tensor *tensor;
    int group;             /* of sk_compile_opts.groups */
    const sk_optim *optim; /* of that group; NULL: nothing is trained */
    sk_state used, update; /* as kernels see it; as the optimizer sees it (sharded) */
    int stored;            /* buffer that keeps it: used or update state */
    int shard;             /* the shard to update: stored itself or a part of it */
    bool lazy;  /* stored is all of the weight, and between sections only the shard is up to date:
                   a section gathers the rest before its first use (lazy_gathers.c) */
    int master; /* the same in f32, where weights are narrower; or -1 */
    int grad, grad_shard;                  /* accumulated gradient; the part that matches shard */
    int state[SK_MAX_STATE], n_state;      /* of the optimizer; none for the bias of a router.  With
                                              delayed updates the last is the pending gradient */
    int matrix_state[SK_MAX_MATRIX_STATE]; /* of whole matrices, of any shape, on ranks that do
                                              their work; written by matrix_ops.c */
    int n_matrix_state;
    bool keeps_matrix_state; /* this rank writes it to a checkpoint */
    int mean;   /* of the weights (or their average) of replicas, between steps: the buffer of the
                   gradient, in the type of the weights (replica_sync.c); or -1 */
    int anchor; /* the weights of the last synchronisation, alike in all replicas; or -1 */
    int outer_momentum; /* of its steps (sync.h); or -1 */
    int change_error;   /* error feedback of what this replica sends encoded; or -1 */
    int ema;            /* exponential moving average of the weights, in f32 (averaged.c); or -1 */
    int scalars;        /* sk_optim.scalars, one after the other; or -1 */
    bool lead;          /* this rank writes them to a checkpoint */
    int term;           /* which term of the sum this rank's encoded gradient is, from 0 */
    int error;          /* error feedback of the encoded gradient; dim 0: terms of the sum; or -1 */
    int factor;         /* columns x rank, of a gradient of low rank (grad_low_rank.c); or -1 */
    int next_factor;    /* that of the next step, until it is known that this one is taken */
    bool keeps_factor;  /* this rank writes it to a checkpoint */
    bool owner;         /* this rank counts the shard in sums over the logical tensor */
    bool writes;        /* this rank writes sk_param_kept to a checkpoint */
    bool tells;         /* this rank writes the error of its term of the sum */
    bool counts;        /* SUMSQ: this rank counts its gradient before any reduction */
    bool decay;
    int tie_group;         /* group of stages that share it, or -1 */
    const sk_tensor *made; /* extras that travel packed (packed_factors.c): as nodes make it; grad
                              is that, tensor and grad_shard are the packed form.  Else NULL */
    int every;             /* extras: over 1, made in every so many updates only, as inst.every */
} sk_param_plan;

/* A sum of the graph (loss, tokens, ...): scalars that this rank adds to, none if nothing here
 * contributes.  One scalar; for the loss and aux in deterministic order, one for each node that
 * makes a part here and each micro-batch, [node][micro], which is a subtree of that node's sum over
 * the batch and begins at a reduction block. */
typedef struct sk_sum_plan {
    int n, *buf;
    int *cell; /* deterministic order: where it stands among the trees of STATS, -1 where a
                  micro-batch is empty here; else NULL */
    const sk_node **node; /* the same: n / n_micro nodes */
    int tree, trees;      /* the same, alike on all ranks: the first tree, and how many it has */
    bool counts;          /* this rank counts it, not another one that has the same */
} sk_sum_plan;

/* Gradients of small batches beside that of the whole batch (grad_noise.c): the sum over small
 * batches of their part of the batch, and of its square.  Both 0: not measured. */
typedef struct sk_noise {
    double part, square;
} sk_noise;

/* Of STATS; then, in deterministic order, n_trees x n_blocks numbers. */
enum { SK_STAT_NORM, SK_STAT_SUMS };

/* What a layout makes of a graph for all ranks alike: stages, states of tensors, who reads what,
 * tasks.  Made once, by the passes that compile.c says so of, and shared by the compilations of
 * all ranks; it lives as long as their programs. */
typedef struct sk_graph_plan sk_graph_plan;

typedef struct sk_program {
    sk_arena *arena;
    const sk_graph *graph;    /* as given */
    const sk_graph *expanded; /* with clones of what is recomputed: its nodes are those of
                                 instructions.  The given graph, if there are none */
    sk_layout layout;
    const sk_graph_plan *plan;
    sk_sharding spread;    /* of the plan, or a copy that has clones too */
    const sk_optim *optim; /* of parameters that are in no group; NULL: nothing is trained */
    uint64_t groups_hash;  /* of the parameter groups; 0: there are none */
    int rank, n_ranks, n_micro, stage;
    int coord[SK_MAX_AXES];
    int threads;
    struct {
        sk_inst *v;
        int n, cap;
    } insts;
    int n_train, n_mean; /* n_mean is n_train where validation needs neither means nor gathers */
    struct {
        sk_buffer *v;
        int n, cap;
    } bufs;
    struct {
        sk_call_plan *v;
        int n, cap;
    } calls;
    struct {
        sk_param_plan *v;
        int n, cap;
    } params;
    int n_extras; /* behind the parameters, at params.v[params.n]: extras (graph/extra.h), which
                     have only tensor, used, update, grad, grad_shard, owner, made and every */
    struct {
        int *v; /* kept buffers of SK_MEMORY tensors */
        int n, cap;
    } memories;
    sk_group *groups; /* one per axis, the world, one per set of tied stages, near, pairs */
    int n_groups;
    int world;          /* the group of all */
    int near;           /* of the ranks that keep a second copy of weights together; 0: none */
    int pairs, n_pairs; /* groups of two replicas, one for each round of partners (gossip) */
    int pair_axis;
    sk_sum_plan sums[SK_N_SUMS];
    int n_sums;            /* the graph has these */
    int n_trees, n_blocks; /* of sums in deterministic order; reduction blocks of a tree */
    int n_updates;         /* of every weight in a step */
    int64_t replicas_from; /* replicas have weights of their own from this step on */
    bool apart;            /* from then on a step reports the numbers of its replica alone, which
                              skips it alone: no replica waits for another between synchronisations */
    const sk_step_kinds *kinds; /* of its steps (sent_state.c); NULL: they are alike */
    int phases;                 /* how often a step runs the training section: step_phases.c */
    bool async;                 /* updates happen before the sums of the step are known */
    bool late;  /* delayed updates: the optimizer runs during the next step, on the host */
    int logits; /* of a program for sampling; -1 otherwise */
    int stats;  /* buffer of the sums over all ranks; 0: none */
    sk_noise noise;
    double ema; /* decay of the average of weights; 0: there is none */
    const struct sk_matrix_placement
        *matrices;         /* who works on whole matrices; NULL: there are none */
    uint64_t choices;      /* hash of what algorithms were chosen by; 0: one host, no pin */
    const sk_links *links; /* between ranks, as compiled; NULL: none */
    bool any_order;        /* lists that sum in an order of their own might be chosen */
    int64_t stage_bytes; /* scratch: first an area of all threads, for narrow operands converted to
                            f32 */
    int64_t scratch_per_thread;
    bool gpu; /* the device is a GPU: scratch is laid out for it (memory.c) */
    int64_t kind_at[SK_N_KINDS], kind_bytes[SK_N_KINDS]; /* regions of the heap, without gaps */
    int64_t heap_bytes;                                  /* of addresses */
    int64_t file_bytes;                                  /* of the offload file */
    int64_t bounce_bytes; /* the bounce buffer of the file, first in the host's memory */
    int n_copies;
    struct {
        sk_launch_plan *v;
        int n, cap;
    } launches;
    int *launch_of; /* by instruction: 1 + the launch it is part of; 0: its own.  NULL: the device
                       is no GPU */
    /* Shared weights are the first pages of the heap, which are those of rank `shares_with`.  A
     * rank that shares with another one does not count them: its regions begin behind them. */
    int shares_with;
    int64_t shared_bytes;
    /* Of a program that lists few micro-batches (repeats.h), known from all: bytes of the tables of
     * calls that are not listed, and of transient buffers. */
    int64_t more_tables, transient_bytes;
    int64_t own_bytes; /* heap_bytes less what `shares_with` keeps: what this rank takes */
} sk_program;

/* Who does the work on a whole matrix: chosen by time; all that have it or gather it; one owner;
 * all, on the matrix as it is cut.  What cannot be done as asked is done by all. */
typedef enum sk_matrix_work {
    SK_MATRIX_AUTO,
    SK_MATRIX_BY_ALL,
    SK_MATRIX_BY_OWNER,
    SK_MATRIX_CUT
} sk_matrix_work;
sk_matrix_work sk_matrix_work_find(const char *name); /* auto, all, owner, cut */

typedef struct sk_compile_opts {
    const sk_optim *optim; /* of the rest, if there are groups; NULL: forward only */
    const double *knob;    /* of that optimizer, in the order of its knobs; NULL: the usual */
    const sk_param_group *groups; /* the first that a parameter matches counts, from 1 on: group 0
                                     is the rest; NULL: all are in group 0 */
    int n_groups;
    int n_micro;           /* 0: from the layout, or 1 */
    int threads;           /* per rank */
    int64_t bucket_bytes;  /* gradients are reduced in buckets of about this size; 0: 8 MiB */
    bool validate;         /* add the validation section */
    const int *host_of;    /* rank -> host; NULL: one host */
    const sk_costs *costs; /* to choose algorithms by; NULL: the preset */
    const sk_links *links; /* between ranks; NULL: those of a kind are alike */
    bool any_order;        /* sums between hosts may go in an order of a list's own */
    sk_pins pins;          /* algorithms that are not chosen by cost */
    sk_dtype state_type;   /* of the optimizer's state (kernel/optim.h); 0 is f32 */
    int64_t q8_least;      /* of fewer elements int8 state is f32; 0: SK_Q8_LEAST */
    bool late;             /* a step's update runs beside the next step (ZeRO-Offload) */
    bool all_told; /* each step ends with sums over all replicas, and all skip it together; else
                      only where the loss scale moves (sk_program.apart) */
    bool noise;    /* measure gradients of small batches (grad_noise.c) */
    bool told;     /* the user reads what the backward pass tells: train.backward */
    sk_matrix_work matrix_work; /* optim.work */
    double ema;                 /* below 1: keep an average of the weights (averaged.c); 0: none */
    bool gpu;                   /* the device is a GPU */
    bool listed; /* list few micro-batches of many (repeats.h): to simulate and plan, not to run */
    const sk_graph_plan *plan; /* of the same graph, layout and options; NULL: made for this rank */
} sk_compile_opts;

/* Scratch of a GPU: the scalars of a step; tables of updates and of gradients, of this many bytes
 * each; the workspace of launches. */
enum { SK_MOST_INSTS = 1 << 20 }; /* of a rank that runs: the loops over tasks are unrolled */
enum { SK_STEP_SCALARS_BYTES = 4096, SK_UPDATE_BYTES = 512, SK_NORM_BYTES = 64 };

/* Device memory that a rank takes; the rest of its memory is the host's. */
static inline int64_t sk_device_bytes(const sk_program *p)
{
    return p->own_bytes - p->kind_bytes[SK_HOSTED];
}

int64_t sk_scratch_bytes(const sk_program *p);
int64_t sk_workspace_at(const sk_program *p); /* gpu: where the workspace begins in the heap */

/* For many ranks: the plan that they share, to be given to sk_compile in its options. */
sk_status sk_plan_graph(sk_arena *a, const sk_graph *g, const sk_layout *l,
                        const sk_compile_opts *o, const sk_graph_plan **out);

/* The program of one rank.  The graph has its gradient already when optim is given. */
sk_status sk_compile(sk_arena *a, const sk_graph *g, const sk_layout *l, const sk_compile_opts *o,
                     int rank, sk_program **out);

/* The passes of the compiler, in order; NULL behind the last.  And the program after one of them,
 * as text. */
const char *sk_pass_name(int i);
const char *sk_pass_doc(int i);
sk_status sk_compile_until(sk_arena *a, const sk_graph *g, const sk_layout *l,
                           const sk_compile_opts *o, int rank, const char *last, char **text);

/* Ranks with equal numbers have the same program but for their coordinates.  class_of[n_ranks]
 * is filled; returns how many classes there are, or -1 if there are over 1024. */
int sk_classes(const sk_graph_plan *plan, int *class_of);
/* The same, but for who owns a shard: ranks with equal numbers have equal instructions and buffers.
 * Enough to price a program, and fewer. */
int sk_shapes(const sk_graph_plan *plan, int *shape_of);
sk_status sk_too_many_shapes(const sk_graph_plan *plan); /* the refusal, where that returned -1 */

/* The axis that a group lies along; -1: all ranks. */
static inline int sk_group_axis(const sk_program *p, int group)
{
    if (group < p->layout.mesh.n) return group;
    if (group == p->world) return -1;
    if (p->near && group == p->near) return p->layout.shard_axis;
    if (p->n_pairs && group >= p->pairs) return p->pair_axis;
    return p->layout.stage_axis;
}

/* Elements of the logical tensor that a box is cut from. */
static inline int64_t sk_box_all(const sk_extent *b)
{
    int64_t n = 1;
    for (int d = 0; d < b->n; d++) n *= b->full[d];
    return n;
}

const char *sk_group_name(const sk_program *p, int group); /* for people: "dp", "all" */

/* What the heaps of these programs are opened with: bytes[n] is filled.  As for sk_verify, a
 * program may stand for another rank of its class. */
sk_heap_aliases sk_program_shared(sk_arena *a, const sk_program *const *programs, int n,
                                  int64_t *bytes);
/* Of a packed buffer: bytes of the bits of n elements, in whole lines; the values follow. */
static inline int64_t sk_pack_bits(int64_t n) { return (n + 511) / 512 * 64; }
/* Is it updated as a whole matrix?  Then passes have one operand behind the state: the direction
 * that the first leaves, the step that the second takes. */
static inline bool sk_param_matrix_update(const sk_param_plan *q)
{
    return q->optim && q->optim->matrix && q->tensor->bias_update == 0;
}
/* Of how many steps an instruction runs in one, and that as a part of steps; does it run in this
 * step, after so many updates; and its bytes on the wire, of `bytes` where it runs, in a step on
 * average. */
static inline int sk_inst_interval(const sk_inst *in)
{
    return (in->every > 1 ? in->every : 1) * (in->sync.steps > 1 ? in->sync.steps : 1);
}
static inline double sk_inst_share(const sk_inst *in)
{
    double share = in->sync.by ? 0 : 1; /* of the steps that go on for ever */
    for (int k = 0; in->sync.by && k < SK_STEP_KINDS; k++)
        if (in->sync.kinds >> k & 1) share += in->sync.by->share[k];
    return in->sync.until ? 0 : share / sk_inst_interval(in);
}
/* The kind of a step, from 0 on, of an optimizer that has kinds. */
static inline int sk_step_kind(const sk_step_kinds *k, int64_t step)
{
    return k->optim->step_kind(k->knob, step + 1);
}
static inline bool sk_inst_due(const sk_inst *in, int64_t step, int64_t updates)
{
    return (in->every < 2 || updates % in->every == 0) &&
           (in->sync.steps < 2 || step % in->sync.steps == in->sync.at) && step >= in->sync.from &&
           (!in->sync.until || step < in->sync.until) &&
           (!in->sync.by || in->sync.kinds >> sk_step_kind(in->sync.by, step) & 1);
}
/* In a step of several phases (step_phases.c), does only the last run it?  Replicas synchronise
 * once a step. */
static inline bool sk_inst_once(const sk_inst *in) { return in->sync.steps > 0; }
static inline double sk_inst_average(const sk_inst *in, int64_t bytes)
{
    return in->sync.by || in->sync.until ? (double)bytes * sk_inst_share(in)
                                         : (double)bytes / sk_inst_interval(in);
}
/* Do both run in the same steps and updates? */
static inline bool sk_insts_due_alike(const sk_inst *a, const sk_inst *b)
{
    return a->every == b->every && a->sync.steps == b->sync.steps && a->sync.at == b->sync.at &&
           a->sync.from == b->sync.from && a->sync.until == b->sync.until &&
           !a->sync.by == !b->sync.by && a->sync.kinds == b->sync.kinds;
}
/* The buffer of the weights that is up to date between sections, and its state. */
static inline int sk_param_kept(const sk_param_plan *q) { return q->lazy ? q->shard : q->stored; }
static inline const sk_state *sk_param_kept_state(const sk_program *p, const sk_param_plan *q)
{
    return q->lazy || p->layout.shard == SK_SHARD_PARAMS ? &q->update : &q->used;
}
/* An average of the weights that this rank keeps, sharded as optimizer state is; or -1. */
static inline int sk_param_own_average(const sk_param_plan *q)
{
    if (q->ema >= 0) return q->ema;
    return q->optim && q->optim->average && q->n_state ? q->state[q->optim->average - 1] : -1;
}
/* The buffer that validation reads in place of the weights: that average, or with replicas the
 * mean of theirs, in the type of gradients; or -1. */
static inline int sk_param_average(const sk_param_plan *q)
{
    return q->mean >= 0 ? q->mean : sk_param_own_average(q);
}
/* Is this the last pass of the optimizer over the parameter of an update? */
static inline bool sk_last_pass(const sk_program *p, const sk_inst *in)
{
    return sk_optim_last(p->params.v[in->param].optim, in->pass);
}
/* Passes see one more array behind the state: of a whole matrix, or what ranks have sent. */
static inline int sk_param_more(const sk_param_plan *q)
{
    return sk_param_matrix_update(q) || (q->optim && q->optim->sends);
}
/* Sums that contributions of nodes are added to: gradients of parameters, then extras. */
static inline int sk_n_grads(const sk_program *p) { return p->params.n + p->n_extras; }
/* The extra of a parameter, sk_extra_kind `kind`: an index of params.v; -1: this stage has none. */
int sk_program_extra(const sk_program *p, const sk_tensor *param, int kind);
/* Does the node recompute a forward result for the backward pass (recompute_clones.c)? */
static inline bool sk_node_is_clone(const sk_program *p, const sk_node *n)
{
    return n->id >= p->graph->nodes.n;
}
/* The buffer that this one is a part of, if it is one; and where it begins there, in bytes. */
int sk_buffer_root(const sk_program *p, int buf);
/* The engine's own, and no part of a tensor's: it is accessible from all memories. */
bool sk_buffer_own(const sk_program *p, int buf);
int64_t sk_buffer_begin(const sk_program *p, int buf);
/* The launch that an instruction is part of; NULL: it has its own. */
static inline const sk_launch_plan *sk_launch_of(const sk_program *p, int pc)
{
    return p->launch_of && p->launch_of[pc] ? &p->launches.v[p->launch_of[pc] - 1] : NULL;
}
/* Bytes that a launch reads from outside and writes; what stays inside of the launch is free. */
int64_t sk_launch_bytes(const sk_program *p, const sk_launch_plan *l);
int64_t sk_ops_bytes(const sk_program *p, const int *pcs, const unsigned *silent, int n);
double sk_launch_flops(const sk_program *p, const sk_launch_plan *l);
int64_t sk_call_table_bytes(const sk_call_plan *c); /* of what the executor reads in the heap */
int64_t sk_call_bytes(const sk_call_plan *c);       /* that move; 0 for shared memory */
/* What is known of how full a call's streams are, for its price and room. */
void sk_call_fill(const sk_call_plan *c, sk_coll_ask *ask);
/* Bytes that leave member `me` of n (sk_inst.wire of a rank), and all of them. */
int64_t sk_call_wire_of(const sk_call_plan *c, int me, int n);
int64_t sk_call_wire(const sk_call_plan *c, int n);
sk_seg sk_call_shape(const sk_call_seg *s); /* for coll/, without addresses */

/* Prove P1 to P11 for the programs of all ranks.  One sentence on the first that fails.
 * programs[r] may be that of another rank of r's class (sk_classes), which must be in the list at
 * its own rank: then P1 to P3 are proved for all ranks, the rest for the programs that are given.
 * sk_verify_rank, called where rank r compiles its own program, proves that it is the one of its
 * class, and P4 to P11. */
sk_status sk_verify(const sk_program *const *programs, int n_ranks);
sk_status sk_verify_rank(const sk_program *own, const sk_program *of_class);
sk_status sk_verify_one(const sk_program *p);     /* P4 to P11, which need only one program */
sk_status sk_verify_places(const sk_program *p);  /* of these, P6 */
sk_status sk_verify_work(const sk_program *p);    /* of these, P8 */
sk_status sk_verify_offload(const sk_program *p); /* of these, P10 */
sk_status sk_verify_launches(const sk_program *p);
sk_status sk_verify_intervals(const sk_program *p); /* of these, P5 for inst.every */
sk_status sk_verify_shared(const sk_program *p);    /* of these, P9; and what two programs show */
sk_status sk_verify_shared_all(const sk_program *const *programs, int n_ranks);
sk_status sk_verify_pair(const sk_program *p, const sk_program *owner); /* of these, one rank */

/* The view that an instruction's operand stands for; data is base + offset. */
sk_view sk_buffer_view(const sk_program *p, int buf, void *base);
void sk_inst_args(const sk_program *p, const sk_inst *in, void *base, sk_args *out);

/* Listings. */
char *sk_program_print(const sk_program *p, sk_arena *a);
char *sk_program_print_marks(const sk_program *p, sk_arena *a); /* with the attributes above */
char *sk_program_memory(const sk_program *p, sk_arena *a);      /* bytes by kind */
char *sk_program_matrix_work(const sk_program *p, sk_arena *a); /* who works on whole matrices */
/* Is any of them worked on so? */
bool sk_program_matrix_work_is(const sk_program *p, sk_matrix_work asked);
char *sk_inst_print(const sk_program *p, int pc, sk_arena *a); /* one line, no newline */
uint64_t
sk_program_hash(const sk_program *p); /* equal on all ranks: model, layout, version, choices */

/* Does this rank count a sum of the graph in a training step, or in a validation? */
static inline bool sk_sum_made(const sk_program *p, int which, bool training)
{
    return p->sums[which].counts && !(training && sk_sum_validates(which));
}

#endif
