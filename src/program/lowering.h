/* lowering.h - what the passes that write a program share.  Private to program/. */
#ifndef SK_PROGRAM_LOWERING_H
#define SK_PROGRAM_LOWERING_H

#include "program/program.h"
#include "program/repeats.h"
#include "program/saved.h"
#include "program/stage_set.h"
#include "program/pipeline_schedule.h"

/* A tensor may be available in several states for one micro-batch. */
typedef struct sk_at_hand {
    sk_state state;
    int buf;
    bool saved; /* for a later task */
    struct sk_at_hand *next;
} sk_at_hand;

typedef struct sk_matrix_placement sk_matrix_placement;

typedef struct sk_ints {
    int *v, n, cap;
} sk_ints;

/* Calls that gather over the axes of shards: one for each of two levels and each axis. */
enum { SK_SHARD_LEVELS = 2 };
typedef struct sk_level_calls {
    int call[SK_SHARD_LEVELS][SK_MAX_AXES]; /* 1 + the call; 0: none */
} sk_level_calls;

enum { SK_LANE = SK_COMM_FLIGHT / 2 }; /* messages to one rank that may be in flight */

typedef struct sk_grad_at { /* a gradient to be reduced: as nodes make it, as the optimizer sees it
                             */
    int param, whole, piece;
} sk_grad_at;

typedef struct sk_leaf { /* the gradient that a layer of a task computes, or one node of the layer
                          */
    const sk_node *node;
    sk_grad_at grad;
} sk_leaf;

typedef struct sk_cuts { /* consecutive parts of a buffer */
    int whole, first, n;
} sk_cuts;

/* Nodes of one layer that produce and read results with a letter that only they have (hidden width,
 * vocabulary).  They run in slices of the batch, so that such results never exist as a whole. */
typedef struct sk_region {
    int layer;
    char letter;
    char next;           /* the letter behind the batch, if slices may split it as well; else 0 */
    const sk_tensor *of; /* one of the wide results */
    sk_ints nodes[2];    /* by phase, in the order of the graph */
    sk_ints again;       /* clones that the backward nodes read, recomputed in every slice */
    bool known, bad;     /* while regions are looked for */
    unsigned cut[2];     /* axes that split the batch, and the next letter */
} sk_region;

/* What the passes before `lower` decide about nodes and tensors.  Each member is written by the
 * pass that its heading names and only read afterwards; passes know of each other by these alone.
 * The first members are of all ranks: made once (sk_graph_plan), and const, since the compilations
 * of many ranks read the same arrays.  The others are of this rank's stage. */
typedef struct sk_plan {
    /* chunks */
    const sk_schedule *schedule;
    const int *place; /* by chunk: its stage */
    /* tasks */
    const sk_tasks *tasks[2]; /* of the validation and the training section, by stage */
    int n_listed;             /* micro-batches in them: all, or few (repeats.h) */
    const sk_runs *runs;      /* then, by stage: what the training section has in all */
    /* edges; from `recompute` on the arrays by tensor are copies that have clones too */
    const sk_stages *read_by;      /* tensor id -> set of stages that read it */
    const sk_stages *read_forward; /* the same, of forward nodes alone */
    const unsigned *as_part;       /* tensor id -> axes over which somebody reads a partial sum */
    const sk_state *grad_made;     /* tensor id -> its gradient before any reduction */
    const sk_ints *of_chunk; /* [2 * chunk + phase]: its nodes, in graph order; regions has a copy
                                in which it moves some, recompute one that has clones too */
    const char *crosses;     /* tensor id -> forward nodes of other layers read it */
    const int *stage_of_layer;
    /* codecs */
    const sk_codec *weights_as, *grads_as; /* NULL: as they are */
    const sk_codec *sent_as;               /* of what the optimizer sends; NULL: nothing */
    const sk_codec *changes_as;            /* of what replicas send */
    bool narrow_model;                     /* some weights are narrower than f32 */

    /* regions; recompute adds those of clones */
    struct {
        sk_region *v;
        int n, cap;
    } regions;
    int *region_of; /* by node: 1 + its region; 0: none.  NULL: there are none */
    char *moved;    /* by node: in a region, or written before or after one */
    char *wide;     /* tensor id -> it is inside a region, and never exists as a whole */
    /* recompute, which also adds clones to of_chunk */
    char *recomputed; /* tensor id -> SK_BY_CLONE, SK_BY_BACKWARD; 0: it is not */
    /* split-backward */
    char *weight_half; /* by node: belongs to the weight half of a backward pass */
    /* pieces */
    int *cut_after; /* tensor id -> 1 + the forward node after which only a shard of it is saved; 0:
                       it is not saved.  NULL: the layout does not ask for it */
    /* packed */
    sk_form *packs; /* tensor id -> SK_SIGNS, SK_ZEROS; SK_AS_MADE: it is not packed */
    /* saved */
    sk_saved_set saved;
    /* params */
    int *param_of; /* tensor id -> index in p->params, or -1 */
    sk_ints *uses; /* [2 * layer + phase]: parameters read there */
} sk_plan;

/* Where in the step instructions are being written. */
typedef struct sk_place {
    int task; /* of the section; -1: none */
    int unit; /* instructions of the task that stay together */
    int micro, layer;
    sk_phase phase;
    sk_task_kind work;
    int region;       /* of the instructions that are being written: inst.region */
    int every;        /* the same: inst.every */
    sk_step_due sync; /* the same */
    bool held;        /* the same */
    bool mean;        /* the same */
} sk_place;

struct sk_graph_plan {
    const sk_graph *graph;
    sk_layout layout;
    sk_compile_opts opts;
    int n_micro;
    sk_sharding spread;
    sk_plan plan; /* its first members */
};

/* What `lower` and the passes behind it share. */
typedef struct sk_lowering {
    sk_program *p;
    int *changes;      /* by parameter: what fragments of replicas sent (replica_sync.c); or NULL */
    int *change_parts; /* the same: rows of encoded ones that this rank sums (replica_codec.c) */
    sk_arena *tmp;     /* what only the passes need, and lists of the program while they grow */
    const sk_graph *g; /* the given one; from `recompute` on, with clones */
    const sk_layout *l;
    const sk_compile_opts *opts;
    sk_sharding *sp; /* arrays of the plan; from `recompute` on copies that have clones too */
    sk_plan plan;
    sk_place at;
    bool training;         /* this section makes gradients */
    const sk_tasks *tasks; /* of the section at work, by stage */
    sk_at_hand **hand;     /* [tensor * n_listed + micro] */
    int *task_at; /* [micro][chunk][work] -> 1 + its place in this stage's list; 0: there is none */
    int *packed;  /* [tensor * n_listed + micro]: 1 + the buffer in fewer bits; 0: none */
    char *gathering;         /* by layer: its sharded weights are being gathered */
    sk_level_calls *gathers; /* [layer][width]: calls of that which are not started */
    int gathered_layer;      /* whose weights are gathered; -1: none */
    struct sk_lazy
        *lazy;      /* weights that this step gathers before their first use (lazy_gathers.c) */
    sk_ints layers; /* of the task being written, in its order */
    const sk_matrix_placement
        *matrices;       /* where the work on matrices is done: matrix_placement.c */
    sk_reduce totals_by; /* of the optimizer's totals that are being written: SK_SUM, SK_MAXIMUM */
    int *sums_sent;      /* by parameter: the sum of what ranks sent (sent_state.c); or NULL */
    int noise;           /* buffer that SUMSQ adds to; -1: none */
    int noise_micro;     /* that SUMSQ takes gradients of; in deterministic order of all */
    struct {
        sk_leaf *v;
        int n, cap;
        int *order, n_order; /* by parameter: its place in the order in which gradients are first
                                made, from 1 on; 0: not made yet */
    } leaves; /* gradients of the current layer, where they are reduced in every task */
} sk_lowering;

/* lowering.c */
sk_inst *sk_lower_inst(sk_lowering *e, sk_act act);
int sk_lower_buffer(sk_lowering *e, const char *name, const sk_tensor *t, sk_kind kind,
                    sk_dtype type, sk_extent box);
int sk_lower_piece(sk_lowering *e, const sk_tensor *t, sk_kind kind, const sk_state *s, int micro);
sk_extent sk_lower_box(const sk_lowering *e, const sk_tensor *t, const sk_state *s, int micro);
int sk_lower_part(sk_lowering *e, int whole, int i, int n); /* the i-th of n parts along dim 0 */
int sk_lower_call(sk_lowering *e, sk_coll_kind kind, sk_reduce reduce, sk_dtype type, int group,
                  const char *what);
void sk_lower_seg(sk_lowering *e, int call, int src, int dst, int64_t outer, int64_t n,
                  int64_t inner);
/* The same for a box that the call splits along dim d; the box is that of the unsplit side. */
void sk_lower_rows(sk_lowering *e, int call, int src, int dst, const sk_extent *box, int d);
/* And for an all-to-all: split along `from` before, along `to` afterwards. */
void sk_lower_swap(sk_lowering *e, int call, int src, int dst, const sk_extent *box, int from,
                   int to);
/* The call is complete and starts here; waits.c places its wait. */
void sk_lower_start(sk_lowering *e, int call, sk_flies flies);
void sk_lower_move(sk_lowering *e, sk_act act, int from,
                   int to);                                /* of one operand and one result */
void sk_lower_stand_at(sk_lowering *e, const sk_inst *in); /* writes into its task from now on */
sk_inst sk_inst_like(const sk_inst *in, sk_act act); /* another act of the same task and layer */
sk_grid sk_box_grid(const sk_extent *b, int d);      /* reduction blocks of dim d */
int64_t sk_box_count(const sk_extent *b, int from,
                     int to); /* product of sizes of dims [from, to) */
int64_t sk_lower_logical(const sk_lowering *e, const sk_tensor *t); /* bytes of the whole tensor */
int64_t sk_lower_bucket(const sk_lowering *e);                      /* bytes that fill a bucket */

/* reshard.c: a buffer of the tensor in the wanted state, for the current micro-batch. */
sk_status sk_lower_need(sk_lowering *e, const sk_tensor *t, const sk_state *want, int *buf);
void sk_lower_have(sk_lowering *e, const sk_tensor *t, const sk_state *s, int buf);
int sk_lower_find(sk_lowering *e, const sk_tensor *t,
                  const sk_state *s); /* its buffer, if it is available; else -1 */
/* As it was computed, received or saved. */
int sk_lower_source(sk_lowering *e, const sk_tensor *t, sk_state *now);
/* Can the dim be gathered over the axis: does no axis cut it finer? */
bool sk_lower_finest(const sk_lowering *e, const sk_tensor *t, const sk_state *s, int axis,
                     int dim);
int sk_lower_slice(sk_lowering *e, const sk_tensor *t, const sk_state *to, int src);
bool sk_lower_wanted_partial(const sk_lowering *e, const sk_tensor *t, int axis);
void sk_lower_forget(sk_lowering *e, const sk_tensor *t); /* it is not available any more */
sk_state sk_state_settled(const sk_state *s);             /* partial becomes replicated */
bool sk_state_partly_settled(const sk_state *s, const sk_state *made, int n_axes);
/* Is it a partial sum over all axes over which one is wanted? */
bool sk_state_has_sums(const sk_state *s, const sk_state *want, int n_axes);

/* stage_messages.c: messages between stages. */
int sk_lower_rank_of_stage(const sk_lowering *e, int stage); /* same coordinates otherwise */
int64_t sk_message_tag(const sk_lowering *e, int tensor, int micro);
sk_status sk_lower_send(sk_lowering *e, const sk_tensor *t); /* to all other stages that read it */
sk_status sk_lower_receive(sk_lowering *e, const sk_tensor *t); /* of the current micro-batch */
void sk_lower_post_send(sk_lowering *e, int peer, int64_t tag, int buf); /* send */
void sk_lower_recv(sk_lowering *e, int peer, int64_t tag, int buf);      /* receive */
void sk_lower_wait_sent(sk_lowering *e, int peer); /* until all that was sent has arrived */

/* Stages that read a tensor in the current section. */
const sk_stages *sk_lower_readers(const sk_lowering *e, const sk_tensor *t);

/* send_window.c: widens the window until the section has no deadlock. */
sk_status sk_lower_window(sk_lowering *e, int *window);

/* lower.c: what follows a node whose results are written. */
sk_status sk_lower_made(sk_lowering *e, const sk_node *n);

sk_status sk_lower_short(const sk_lowering *e); /* instructions and buffers are not too many */
/* Is the node written by the task?  Clones are not: they are written where they are read. */
bool sk_lower_in_task(const sk_lowering *e, const sk_node *n, sk_task t);

/* Reshards its operands and writes its instruction. */
sk_status sk_lower_node(sk_lowering *e, const sk_node *n);

/* The same for a clone that a node of the current backward task reads. */
sk_status sk_lower_clone(sk_lowering *e, const sk_node *n);

/* recompute_choice.c: results that are recomputed in the backward pass instead of saved: by a clone
 * of their node, or by a backward node that computes the same value anyway, if it runs before the
 * reader. */
enum { SK_BY_CLONE = 1, SK_BY_BACKWARD };
sk_status sk_recompute(sk_lowering *e);
bool sk_recomputes_block(const sk_lowering *e, const sk_node *n); /* the node is in such a block */
/* The backward node that computes the same value as a forward one, or NULL
 * (graph/recompute_cheap.c). */
const sk_node *sk_backward_equal(const sk_lowering *e, const sk_node *n);
/* recompute_clones.c */
void sk_clone_recomputed(sk_lowering *e);
static inline bool sk_is_clone(const sk_lowering *e, const sk_node *n)
{
    return n && sk_node_is_clone(e->p, n);
}

/* saved.c, keep_saved.c: what tasks leave to later ones, see saved.h. */
sk_status sk_find_saved(sk_lowering *e);
bool sk_is_saved_as(const sk_lowering *e, const sk_tensor *t, sk_form form);
void sk_keep_saved(sk_lowering *e, sk_task t); /* after a task: what is not saved is gone */

/* saved_pieces.c: results that are saved for the backward pass as shards. */
sk_status sk_plan_pieces(sk_lowering *e);
void sk_lower_pieces(sk_lowering *e, const sk_node *n); /* a forward node is written */
/* Is it gathered only because a shard was saved?  Then its readers are not split into overlap
 * chunks, so that results keep their bits. */
bool sk_lower_kept_piece(const sk_lowering *e, const sk_tensor *t);
bool sk_lower_piece_state(const sk_lowering *e, const sk_tensor *t,
                          sk_state *s); /* false: as made */
/* saved_packed.c: results that are saved in fewer bits. */
sk_status sk_plan_packed(sk_lowering *e);
void sk_lower_pack(sk_lowering *e, const sk_node *n);       /* packs results of the node */
bool sk_lower_unpack(sk_lowering *e, const sk_tensor *t);   /* false: it is not packed */
void sk_lower_unpack_for(sk_lowering *e, const sk_node *n); /* unpacks what the node reads */

/* regions.c: which nodes run in slices of the batch. */
sk_status sk_find_regions(sk_lowering *e);

/* batch_slices.c: all nodes of a region, of this node's phase; and the pass that runs them slice by
 * slice. */
sk_status sk_lower_region(sk_lowering *e, const sk_node *n);
sk_status sk_slice_regions(sk_lowering *e);
/* How many instructions slices add at least, beyond one per node and micro-batch; counting stops at
 * `enough`. */
int64_t sk_lower_regions_insts(sk_lowering *e, int64_t enough);
/* Is an operand of the region with this first node made elsewhere, or in the other phase? */
bool sk_lower_brought(const sk_lowering *e, const sk_node *first, const sk_tensor *t);

/* A call moves elements of one type: f32, narrower and encoded weights have separate calls. */
enum { SK_CODED = 2, SK_WIDTHS };
static inline int sk_narrow(const sk_tensor *t) { return t->type != SK_F32; }

/* codec_calls.c: tensors encoded on their way. */
sk_status sk_choose_codecs(sk_lowering *e);
int sk_lower_code_axis(const sk_lowering *e); /* of encoded gradients; -1: none */
/* The codec for a tensor's rows; NULL: it would not become smaller. */
const sk_codec *sk_lower_weights_as(const sk_lowering *e, const sk_param_plan *q);
const sk_codec *sk_lower_grads_as(const sk_lowering *e, const sk_param_plan *q);
const sk_codec *sk_lower_changes_as(const sk_lowering *e, const sk_param_plan *q);
/* A buffer for `times` as many encoded rows as the buffer has; the same, with the instruction that
 * encodes. */
int sk_lower_code(sk_lowering *e, const sk_codec *c, int buf, int times);
int sk_lower_encode(sk_lowering *e, const sk_codec *c, const sk_param_plan *q, int buf, int error,
                    bool adds);
uint64_t sk_lower_stream(const sk_param_plan *q);           /* of its random bits */
void sk_lower_then(sk_lowering *e, int call, sk_then what); /* after the wait for the call */
void sk_plan_coded(sk_lowering *e, sk_param_plan *q,
                   const sk_stages *stages); /* plans the buffer of error feedback */

/* params.c: where parameters are stored. */
sk_status sk_plan_params(sk_lowering *e);
sk_state sk_update_state(const sk_lowering *e, const sk_tensor *t); /* as the optimizer sees it */
bool sk_lower_is_cut(const sk_lowering *e, const sk_param_plan *q); /* the optimizer sees a shard */
/* A buffer that is kept beside a parameter, sharded as the optimizer sees it. */
int sk_lower_kept_state(sk_lowering *e, const char *name, const sk_param_plan *q, sk_dtype type);
/* Is this rank, of those of the stages that have a shard in state s, the first? */
bool sk_lower_first(const sk_lowering *e, const sk_state *s, const sk_stages *stages);
bool sk_lower_per_task(const sk_lowering *e); /* gradients are reduced task by task */
bool sk_lower_sharded(const sk_lowering *e, sk_shard level); /* over more than one rank */
/* The buffers of a sum that nodes contribute to: the gradient of a parameter, or an extra. */
void sk_plan_sum(sk_lowering *e, sk_param_plan *q, const char *name);

/* rank_groups.c: the group of the stages that share a parameter, -1: none; all groups. */
int sk_plan_tie_group(sk_lowering *e, const sk_stages *set, sk_stages *sets, int *n_sets);
void sk_plan_rank_groups(sk_lowering *e, const sk_stages *sets, int n_sets);

/* param_extras.c: extras of the backward pass. */
sk_status sk_plan_extras(sk_lowering *e);

/* shard_levels.c: the axes over which the optimizer sees finer shards than kernels, the finest
 * first; returns how many.  Where there are two, what a rank has between them is a part of the
 * whole buffer.  Adds a weight to calls that gather it; starts those of a level, the finest is 0.
 */
int sk_lower_levels(const sk_lowering *e, const sk_param_plan *q, int axis[SK_SHARD_LEVELS]);
int sk_lower_between(sk_lowering *e, const sk_param_plan *q, int whole);
void sk_lower_join_levels(sk_lowering *e, sk_level_calls *c, const sk_param_plan *q, int shard,
                          int whole, int set, const char *what);
void sk_lower_start_level(sk_lowering *e, sk_level_calls *c, int level, sk_flies flies);

/* param_gathers.c: sharded weights are gathered for one layer of one task. */
void sk_plan_gathers(sk_lowering *e);
int sk_lower_gathered(sk_lowering *e, int param); /* the buffer that has it as kernels see it */
void sk_lower_close_layer(sk_lowering *e);

/* lazy_gathers.c: is a parameter gathered where a step first reads it; where a training section
 * begins; a parameter is about to be read. */
bool sk_lower_is_lazy(const sk_lowering *e, const sk_param_plan *q);
void sk_lower_lazy_begin(sk_lowering *e);
void sk_lower_lazy(sk_lowering *e, int param);

/* weight_stash.c: weights that change within a step; a pass behind `lower`. */
sk_status sk_lower_async(sk_lowering *e); /* may the stages of this layout update asynchronously? */
/* Does the backward pass read the version of the weights that the current forward task reads? */
bool sk_lower_same_weights(const sk_lowering *e);
sk_status sk_stash_weights(sk_lowering *e);

/* grad_targets.c: where gradients go. */
int sk_lower_grad_target(sk_lowering *e, int param, const sk_node *n, const sk_state *made);
void sk_lower_task_end(sk_lowering *e);
void sk_lower_grads_end(sk_lowering *e);

/* grad_noise.c: may small batches be measured, and the number that they are added up in; gradients
 * of a task that are about to be reduced; and the pass for those that are not reduced there. */
sk_status sk_noise_begin(sk_lowering *e);
void sk_noise_leaves(sk_lowering *e, const sk_grad_at *v, int n);
sk_status sk_measure_noise(sk_lowering *e);

/* update.c: sums, clipping, the optimizer, and the gather of updated weights. */
void sk_lower_update(sk_lowering *e);
void sk_lower_update_task(sk_lowering *e, sk_task t); /* of a stage that updates asynchronously */
sk_inst *sk_lower_pass(sk_lowering *e, int param, int pass);
void sk_lower_whole_weights(sk_lowering *e);     /* gathers the shards that were updated */
void sk_lower_validated_weights(sk_lowering *e); /* and, before validations, lazy ones */
void sk_lower_report(sk_lowering *e);
sk_status sk_lower_late(sk_lowering *e); /* starts the delayed updates of the step before */

/* replica_sync.c: replicas agree on their weights, in some steps: what is kept for it of a
 * parameter, what begins a step, what follows its update. */
void sk_plan_replica(sk_lowering *e, sk_param_plan *q);
void sk_lower_replica_begin(sk_lowering *e);
/* timed_sync.c: time decides what ranks along the axis learn from each other; the gradients of the
 * first ranks become those of all members; what does not go with that is refused. */
bool sk_is_timed(const sk_lowering *e, int axis);
void sk_lower_commit(sk_lowering *e);
void sk_lower_pull(sk_lowering *e); /* the newest weights, where a step and its update begin */
void sk_lower_push(sk_lowering *e);
sk_status sk_check_timed(const sk_lowering *e);
int64_t sk_timed_wire(const sk_program *p, const sk_inst *in); /* bytes from memories of others */
void sk_lower_replica_sync(sk_lowering *e);
void sk_lower_replica_mean(sk_lowering *e); /* before validation: the mean of their weights */
int sk_pair_axis(const sk_layout *l);
int sk_outer_axis(const sk_layout *l); /* whose synchronisation has an outer step; -1: none */
void sk_lower_replica_middle(sk_lowering *e); /* halfway through the tasks */
/* replica_codec.c: what replicas send, encoded.  Changes of the parameters of a list begin to be
 * summed, each rank some of the rows; and the sums come to all. */
void sk_plan_change_error(sk_lowering *e, sk_param_plan *q);
void sk_lower_sum_changes(sk_lowering *e, const int *params, int n, sk_flies flies);
void sk_lower_share_changes(sk_lowering *e, const int *params, int n, sk_flies flies);
int64_t sk_replicas_from(const sk_layout *l); /* the first step that is not synchronous */
bool sk_replicas_apart(const sk_lowering *e); /* sk_program.apart */
sk_status sk_check_replicas(sk_lowering *e);

/* averaged.c: averages of weights.  Can they be had; does the current section read the average of
 * a parameter in its place; the shard of that, in the type of the weights; the end of a step. */
sk_status sk_averages_fit(const sk_lowering *e);
sk_status sk_averages_not_async(const sk_lowering *e);
bool sk_lower_averaged(const sk_lowering *e, const sk_param_plan *q);
int sk_lower_average(sk_lowering *e, int param);
void sk_lower_averages(sk_lowering *e);
bool sk_lower_is_late(const sk_lowering *e, int param); /* its updates are delayed: update.c */

enum { SK_FILE_PAGE = 4096 };

/* offload_copies.c: copies from and to other memories, around the instructions that are written. */
/* Ranks along an axis that matrices are distributed to; with stages, programs that this may make.
 */
enum { SK_MOST_OWNERS = 64, SK_OWNER_PROGRAMS = 128 };
/* matrix_update.c: updates by optimizers that see whole matrices. */
sk_status sk_matrix_fits(const sk_lowering *e, const sk_param_plan *q);
/* sums: what the first pass of optimizers with sums left, for the passes around a matrix. */
void sk_lower_matrix_updates(sk_lowering *e, int sums);
/* param_groups.c: the group of a parameter, 0 for the rest, and its optimizer. */
int sk_lower_group(const sk_lowering *e, const sk_tensor *t);
const sk_optim *sk_lower_optim(const sk_lowering *e, const sk_tensor *t);
/* Biases and weights of norms do not decay, but in a group of nothing else that says weight_decay.
 */
void sk_lower_decaying_vectors(sk_lowering *e);
/* state_blocks.c: the type of a parameter's optimizer state, and of directions of whole matrices;
 * state number s becomes blocks of 8 bits if its type is SK_U8. */
sk_dtype sk_lower_state_type(const sk_lowering *e, const sk_param_plan *q);
sk_dtype sk_lower_direction_type(const sk_lowering *e);
sk_status sk_lower_blocks(sk_lowering *e, const sk_param_plan *q, int s);
uint64_t sk_lower_groups_hash(const sk_compile_opts *o);
bool sk_lower_hosted(const sk_lowering *e, const sk_tensor *t); /* its optimizer runs on the host */
sk_status sk_place_offload_copies(sk_lowering *e);

/* lowering.c: a launch on a GPU that needs more workspace than the common one has a buffer for it.
 */
sk_status sk_plan_workspaces(sk_lowering *e);

/* stage_assignment.c, edges.c, split_backward.c, sum_plan.c, lower.c: passes, see compile.c. */
sk_status sk_assign_chunks(sk_lowering *e);
sk_status sk_propagate_sharding(sk_lowering *e);
sk_status sk_order_tasks(sk_lowering *e);
void sk_repeats_list(sk_lowering *e, sk_tasks *tasks, sk_runs *of); /* repeats.c */
sk_status sk_find_edges(sk_lowering *e);
sk_status sk_split_backward(sk_lowering *e);
sk_status sk_plan_sums(sk_lowering *e);
sk_status sk_plan_phases(sk_lowering *e);
sk_status sk_check_length(sk_lowering *e);
sk_status sk_lower(sk_lowering *e);

/* print_plan.c: what is decided about nodes and tensors, before there are instructions. */
char *sk_lower_print(const sk_lowering *e, sk_arena *a);

/* coded_sums.c: encoded rows go to their owners along the axis, who decode and sum them. */
typedef struct sk_coded { /* what is encoded, all rows of the sum, this rank's rows of it */
    const sk_param_plan *q;
    const sk_codec *codec;
    int axis, from, whole, part;
    int error;        /* of encoding the sum of these rows, which is added to q->error; or -1 */
    int hop;          /* axes over which `from` was summed before */
    const char *what; /* "momentum"; NULL: it is a gradient */
} sk_coded;
void sk_join_coded(sk_lowering *e, int *call, const sk_coded *x);
/* The sum that every rank along the axis needs: part and error are filled in. */
sk_coded sk_coded_whole(sk_lowering *e, sk_coded x);
void sk_sum_coded(sk_lowering *e, const sk_coded *v, int n);
/* coded_union.c: is it summed as what ranks sent, and over this axis; those of a list that are. */
bool sk_union_sums(const sk_lowering *e, const sk_param_plan *q);
bool sk_union_over(const sk_lowering *e, const sk_param_plan *q, int axis);
void sk_sum_unions(sk_lowering *e, const sk_grad_at *v, int n);
/* Is it summed over this axis of the batch encoded too, behind the one of sk_lower_code_axis()? The
 * sums of such gradients; sharded ones were summed over the shard axis before. */
bool sk_coded_hop(const sk_lowering *e, const sk_param_plan *q, int axis);
void sk_sum_hops(sk_lowering *e, const sk_grad_at *v, int n);

/* sent_state.c: what the optimizer has ranks send in place of gradients.  The axis, into a copy of
 * the layout; may it be; the error feedback of a parameter; the steps in which a pass runs; the sum
 * over ranks, as one more operand of the pass behind it. */
void sk_own_grads(const sk_compile_opts *o, const sk_step_kinds *kinds, char batch, sk_layout *l);
const sk_step_kinds *sk_plan_kinds(sk_arena *a, const sk_compile_opts *o); /* NULL: none */
sk_status sk_check_sent(const sk_lowering *e);
void sk_plan_sent(sk_lowering *e, sk_param_plan *q);
sk_step_due sk_sent_due(const sk_lowering *e, int pass);
/* The steps in which replicas along an axis sum their gradients all the same. */
sk_step_due sk_together_due(const sk_lowering *e, int axis);
void sk_lower_sent(sk_lowering *e);

/* grad_reduce.c: over all axes over which they are partial. */
void sk_reduce_grads(sk_lowering *e, const sk_grad_at *v, int n, sk_flies flies);
void sk_reduce_together(sk_lowering *e); /* what replicas sum before they are on their own */

/* grad_rows.c: is a gradient summed over the axis as its rows that are not zeros; those of a list.
 */
bool sk_grad_rows(const sk_lowering *e, const sk_param_plan *q, int axis, sk_codec *out);
void sk_reduce_grad_rows(sk_lowering *e, const sk_grad_at *v, int n, int axis, sk_flies flies);

/* grad_adasum.c: is the gradient joined by Adasum; does each rank then get its shard alone; and the
 * join of those of a list that are tied between stages, or that are not. */
bool sk_adasum_joins(const sk_lowering *e, const sk_param_plan *q);
bool sk_adasum_scatters(const sk_lowering *e, const sk_param_plan *q);
void sk_join_adasum(sk_lowering *e, const sk_grad_at *v, int n, bool tied);

/* grad_low_rank.c: is the gradient summed as two factors of low rank; what is kept for it; the sum
 * of those of a list that are tied between stages, or that are not; and, where a step is known to
 * be taken, the factors for the next one. */
bool sk_lower_low_rank(const sk_lowering *e, const sk_param_plan *q);
void sk_plan_low_rank(sk_lowering *e, sk_param_plan *q, const sk_stages *stages);
void sk_reduce_low_rank(sk_lowering *e, const sk_grad_at *v, int n, bool tied);
void sk_lower_keep_factors(sk_lowering *e);

/* packed_factors.c: the tensor that an extra is reduced and sent as, itself or its packed form;
 * the packed form of buffer `whole` into `to`, a shard of rows; the matrices of a packed buffer,
 * with the letters "0", rows, columns; and in which updates an extra is made: sk_param_plan.every.
 */
const sk_tensor *sk_extra_sent(const sk_lowering *e, const sk_tensor *t);
void sk_lower_sym_pack(sk_lowering *e, const sk_param_plan *q, int whole, int to);
int sk_lower_sym_unpack(sk_lowering *e, int packed, const sk_tensor *t, const sk_extent *box);
int sk_extra_every(const sk_lowering *e, const sk_tensor *t);
/* update_intervals.c: what only instructions of some updates read is made in these alone. */
sk_status sk_find_intervals(sk_lowering *e);

/* rewrite.c: the list of instructions, rewritten.  `write` writes what replaces old[pc] and perhaps
 * some instructions behind it, and returns the index of the first that it has not consumed. */
typedef int sk_rewriter(void *ctx, const sk_inst *old, int pc);
sk_status sk_rewrite(sk_lowering *e, sk_rewriter *write, void *ctx);

/* split_rows.c: instructions repeated for each chunk of the batch. */
typedef struct sk_part {
    int whole, chunk, buf;
} sk_part;
typedef struct sk_chunks {
    int n;
    int per; /* how many chunks a row of the batch has; 0 or 1: a chunk has one or more rows */
    sk_flies flies;   /* of calls */
    const char *wide; /* of a region, by tensor: it never exists as a whole; else NULL */
    struct {
        sk_part *v;
        int n, cap;
    } parts; /* of buffers, so far */
} sk_chunks;
void sk_split_rows(sk_lowering *e, sk_chunks *x, const sk_inst *v, int n);
/* One of them, for a chunk that is the step-th to be written; and the part of a buffer that a chunk
 * writes. */
void sk_rows_inst(sk_lowering *e, sk_chunks *x, sk_inst in, int chunk, int step);
int sk_rows_part(sk_lowering *e, sk_chunks *x, int whole, int chunk);

/* overlap_chunks.c: products that overlap with the collectives that they wait for. */
sk_status sk_overlap_chunks(sk_lowering *e);

/* ring_attention.c, weight_tiles.c: ops whose operands travel around a ring; products of weights
 * that are fetched in tiles. */
sk_status sk_ring_attention(sk_lowering *e);
int sk_ring_neighbour(const sk_lowering *e, int axis, int delta); /* so many places behind */
sk_status sk_weight_tiles(sk_lowering *e);
/* first_gather.c: later gathers of a weight are served from a second copy. */
sk_status sk_find_first_gathers(sk_lowering *e);

/* accumulate.c, first_write.c, buckets.c: sums over micro-batches; first and last writes. */
sk_status sk_accumulate(sk_lowering *e);
sk_status sk_find_first_writes(sk_lowering *e);
sk_status sk_fill_buckets(sk_lowering *e);

/* messages.c: their order, and when their arrival is waited for. */
sk_status sk_order_messages(sk_lowering *e);

/* waits.c: waits of calls, and the instructions that follow them. */
void sk_place_waits(sk_program *p, sk_arena *tmp);

/* algorithms.c: the algorithms of calls, and their workspace. */
sk_status sk_choose_algorithms(sk_lowering *e);

/* numbering.c: buffers by first use, calls by start. */
void sk_number(sk_program *p);

/* launches.c: which instructions a GPU executes in one launch, once buffers have offsets. */
sk_status sk_join_launches(sk_lowering *e);

/* memory.c: offsets. */
void sk_plan_memory(sk_program *p);
int64_t sk_table_bytes(const sk_call_plan *c);
int64_t sk_memory_lines(int64_t bytes); /* that a buffer takes */
/* May output 0 take the memory of input r, if that is read for the last time? */
bool sk_memory_may_take(const sk_program *p, const sk_inst *in, int r);

#endif
