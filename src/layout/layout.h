/* layout.h - how one model is sharded over many ranks, as data.
 *
 * A mesh has named axes, slowest first; a rank is a point in it.  A layout says
 * which letters are split over which axis, over which axis parameters, gradients
 * or optimizer state are sharded, and over which axis the layers are pipelined.
 *
 *     dp=2 tp=2 pp=2 zero=3 micro=8 schedule=1f1b order: pp dp tp
 *
 * and the long form, one sentence a line (or separated by ';'), mean the same:
 *
 *     mesh pp=2 dp=2 tp=2
 *     split b over dp
 *     split h f v over tp
 *     shard params over dp
 *     stages over pp schedule 1f1b micro 8
 *
 * Each word is a part, parts/word/NAME.c (word.h); `skein list word` shows all of them, both forms.
 *
 * Axis names are the user's.  Sizes need not divide: shard i of n over p ranks
 * is [n*i/p, n*(i+1)/p), and may be empty. */
#ifndef SK_LAYOUT_LAYOUT_H
#define SK_LAYOUT_LAYOUT_H

#include "base/arena.h"
#include "base/status.h"
#include "graph/graph.h"

enum {
    SK_MAX_AXES = 8,
    SK_AXIS_NAME = 16,
    SK_SCHEDULE_NAME = 128,
    SK_CODEC_NAME = 24,
    SK_SYNC_NAME = 16,
    SK_SYNC_PLAIN = 24,
    SK_LAYERS_TEXT = 112,
    SK_MAX_SYNC_KNOB = 4,
    SK_MOST_WORDS = 64 /* of the table in word.h */
};

typedef struct sk_mesh {
    int n;
    char name[SK_MAX_AXES][SK_AXIS_NAME];
    int size[SK_MAX_AXES];
} sk_mesh;

typedef enum sk_shard { SK_SHARD_NONE, SK_SHARD_STATE, SK_SHARD_GRADS, SK_SHARD_PARAMS } sk_shard;

/* Where a letter is split and an op needs a gathered operand along it (attention: all keys): gather
 * the operand; or exchange the split for one along another letter and back (Ulysses); or pass the
 * shards round a ring and work on one after the other (ring attention). */
typedef enum sk_by { SK_BY_GATHER, SK_BY_EXCHANGE, SK_BY_RING } sk_by;

/* Where data is placed, the device first; and the kinds of data that may be offloaded. */
typedef enum sk_placement { SK_DEVICE, SK_HOST, SK_FILE, SK_N_PLACEMENTS } sk_placement;
typedef enum sk_offload_kind {
    SK_STATE,
    SK_PARAMS,
    SK_GRAD,
    SK_KEPT,
    SK_N_OFFLOAD_KINDS
} sk_offload_kind;
extern const char *const sk_placement_names[SK_N_PLACEMENTS],
    *const sk_offload_kind_names[SK_N_OFFLOAD_KINDS];

/* The first step whose learning rate is below that of the step before: train/setup.c knows it. */
enum { SK_SYNC_AT_DECAY = -1 };

/* How replicas along an axis synchronise (program/sync.h), as "diloco:50:lr=0.7". */
typedef struct sk_axis_sync {
    char name[SK_SYNC_NAME]; /* of a part of parts/sync; empty: gradients are summed every step */
    int every;               /* steps from one synchronisation to the next */
    int64_t from;            /* steps that are synchronous before that; or SK_SYNC_AT_DECAY */
    double knob[SK_MAX_SYNC_KNOB]; /* in the order of the part's */
    char codec[SK_CODEC_NAME];     /* of what replicas send; empty: f32 */
    bool feedback;                 /* error feedback of that codec */
    /* The name is empty, and all ranks have the same weights or learn them from each other: */
    int backup; /* a step commits without the last so many gradients */
    int stale;  /* 1 + how many steps a rank may be ahead of the slowest; SK_ANY_STALENESS; 0: none
                 */
    char plain[SK_SYNC_PLAIN]; /* what was said and is the plain program, as "local:1"; or empty */
} sk_axis_sync;
enum { SK_ANY_STALENESS = -1 };

typedef struct sk_layout {
    sk_mesh mesh;
    char split[SK_MAX_AXES][64]; /* letters split over each axis */
    sk_shard shard;              /* ZeRO 0 to 3 */
    int shard_axis;              /* -1: none */
    int shard_second;            /* 1 + a second axis that shards are cut over too; 0: none */
    bool replica;                /* ranks along the shard axis keep their weights in one memory */
    int stage_axis;              /* -1: no pipeline */
    char schedule[SK_SCHEDULE_NAME]; /* of a part, or of a file: it has a '/' then */
    bool schedule_said;              /* the text says it; else it is the default */
    int chunks;                      /* of layers a stage has; 0: not said */
    int n_micro;                     /* micro-batches per step; 0: not said */
    bool balance;                    /* chunks of equal cost instead of equal numbers of layers */
    char layers[SK_LAYERS_TEXT]; /* blocks of each chunk, "7+8x14+7", or "auto" (stage_balance.h);
                                    empty: not said */
    sk_by by[SK_MAX_AXES];       /* how an axis serves gathered operands */
    int prefetch;                /* layers whose sharded weights are gathered in advance */
    sk_placement home[SK_N_OFFLOAD_KINDS]; /* optimizer state, weights, gradients, activations */
    int tiles;                             /* in which offloaded weights come; 0: not cut */
    bool home_said;                        /* the text says it, if only "none" */
    int overlap;                      /* chunks of a product that waits for other ranks; 0: one */
    int slices;                       /* of the batch that wide results are made in; 0: one */
    bool keep;                        /* weights gathered for the forward pass serve the backward */
    char recompute[SK_SCHEDULE_NAME]; /* recomputed for the backward pass: "full", "selective" or
                                      the name of an op; empty: nothing */
    int recompute_blocks;             /* full: the first of each stage; 0: all */
    bool recompute_said;              /* the text says it, if only "none" */
    bool partition;                   /* saved activations are sharded over the axes whose ranks
                                          would all keep the same */
    bool keep_cheap;                  /* results of cheap ops are kept, not recomputed */
    char keep_ops[64];                /* those of these alone: "bias_gelu+layernorm" */
    int gist;                         /* saved activations in fewer bits; below 100 also those with
                                          zeros, with space for so many per cent of their elements;
                                          0: none */
    bool canonical; /* deterministic sums, in the order of base/reduction_blocks.h */
    char weights_as[SK_CODEC_NAME]; /* codec of gathered weights; empty: none */
    char grads_as[SK_CODEC_NAME];   /* codec of gradients that are reduced over the shard axis,
                                        or over the first that splits the batch */
    bool feedback;                  /* error feedback of that codec */
    bool union_sums;                /* and every rank has the sum of all that ranks sent */
    int copy; /* ranks side by side along the shard axis that keep a second copy of gathered weights
                 for the rest of a step, split over them; 0: none */
    sk_axis_sync sync[SK_MAX_AXES]; /* by axis: the replicas along it have weights of their own */
    /* 0, or 1 + the axis whose ranks sum no gradients from a step on, since they send each other a
     * state of the optimizer: the compiler writes it (program/sent_state.c), no text says it */
    int own_grads;
    int64_t own_grads_from;
    bool own_weights; /* from one sending to the next each of them has weights of its own, too */
    bool adasum[SK_MAX_AXES]; /* by axis, one at most: gradients along it are joined by Adasum */
    int own[SK_MOST_WORDS];   /* of words without a member above: sk_word_value() */
} sk_layout;

/* How a layout says what other programs call `word`; NULL: not known. */
const char *sk_layout_alias(const char *word);
/* The same of a value of a word, without the word: "diloco:50". */
const char *sk_layout_value(sk_arena *a, const char *word);

/* n_ranks > 0: the layout must use exactly that many. */
sk_status sk_layout_read(const char *text, int n_ranks, sk_layout *out);
char *sk_layout_print(sk_arena *a, const sk_layout *l); /* the long form */
/* Are activations packed into space that may be too small for some step? */
static inline bool sk_layout_may_fill(const sk_layout *l) { return l->gist > 0 && l->gist < 100; }
char *sk_layout_short(sk_arena *a, const sk_layout *l); /* "dp 2 · tp 2 · zero 3" */
char *sk_layout_title(sk_arena *a, const sk_layout *l); /* "4 ranks = " and that; "1 rank" */

int sk_mesh_ranks(const sk_mesh *m);
void sk_mesh_coords(const sk_mesh *m, int rank, int coord[SK_MAX_AXES]);
int sk_mesh_rank(const sk_mesh *m, const int coord[SK_MAX_AXES]);
int sk_mesh_axis(const sk_mesh *m, const char *name); /* -1: none */
/* Is this one of the axes that state, gradients or weights are sharded over? */
bool sk_layout_shards(const sk_layout *l, int axis);
bool sk_layout_offloads(const sk_layout *l); /* something is placed outside of the device */
bool sk_layout_splits(const sk_layout *l, int axis, char letter);
/* Does the axis split letters other than the batch?  Then ranks along it have replicated results.
 */
bool sk_layout_repeats(const sk_layout *l, int axis);
/* The axis that is the k-th to split dims: the mesh's last axis first.  The batch is split over
 * replicas before all else, so that each has the same samples whatever its own ranks do.  One axis
 * comes last of all: for the batch and for time, an axis that splits other letters too (experts and
 * sequence parallelism: it must be free to exchange one for the other, or to gather it, alone); for
 * other dims, the axis that shards parameters (its shards lie side by side).  letter 0: of another
 * dim. */
int sk_layout_cutter(const sk_layout *l, char letter, int k);
/* The axis over which gradients may be encoded: the shard axis, or the first that splits the batch;
 * -1: none. */
int sk_layout_code_axis(const sk_layout *l, char batch);

/* The axis of more than one rank along which gradients are joined by Adasum (reduce=adasum); -1:
 * there is none. */
int sk_layout_adasum(const sk_layout *l);

/* Do ranks along the axis have weights of their own between synchronisations?  Is there such an
 * axis; how many replicas are there over all such axes, and which is the one at these coordinates?
 */
bool sk_layout_local(const sk_layout *l, int axis);
int64_t sk_layout_local_from(const sk_layout *l, int axis); /* the first step in which they do */
/* Do replicas have the same weights after every step, since only their gradients are their own? */
bool sk_layout_alike(const sk_layout *l);
bool sk_layout_any_local(const sk_layout *l);
int sk_layout_replicas(const sk_layout *l);
int sk_layout_replica_of(const sk_layout *l, const int *coord);

/* The axis of more than one rank along which time decides what a step is made of: whose gradients
 * it commits (sync=backup:B), or the order of updates (sync=ssp:S); -1: there is none. */
int sk_layout_backup(const sk_layout *l);
int sk_layout_stale(const sk_layout *l);
static inline int sk_timed_axis(const sk_layout *l) /* either of them */
{
    return sk_layout_backup(l) >= 0 ? sk_layout_backup(l) : sk_layout_stale(l);
}
static inline bool sk_layout_timed(const sk_layout *l) { return sk_timed_axis(l) >= 0; }

/* Is the letter marked '^': some operand is gathered along it while others are split? */
bool sk_node_gathers(const sk_node *n, char letter);

/* Tells a graph, before a model writes it, which letters will be split and whether results of cheap
 * ops are kept. */
void sk_layout_expect(const sk_layout *l, sk_graph *g);
/* After the model is written: does it have the letters that are split?  Letters that short words
 * imply may be missing as long as their axis has something to do, so that one text serves many
 * models. */
sk_status sk_layout_suits_model(const sk_layout *l, const sk_graph *g);
int sk_letter_reduction_blocks(const sk_graph *g, char letter); /* in canonical order */
/* Words that are valid but have no effect here, and why ("zero=3 has nothing to do: ...; ...");
 * NULL: there are none. */
char *sk_layout_idle(sk_arena *a, const sk_layout *l);

/* --- states: how one tensor is sharded over each axis --- */

typedef enum sk_how { SK_REPLICATE, SK_SPLIT, SK_PARTIAL, SK_PARTIAL_MAX } sk_how;

typedef struct sk_state {
    uint8_t how[SK_MAX_AXES], dim[SK_MAX_AXES]; /* dim: which dim is split */
} sk_state;

bool sk_state_equal(const sk_state *a, const sk_state *b);
/* "b/dp f/tp sum/dp": for people; "whole" if it is replicated over all axes. */
char *sk_state_print(sk_arena *a, const sk_mesh *m, const char *letters, const sk_state *s);

typedef struct sk_extent {
    int n;
    int64_t size[SK_MAX_DIM], at[SK_MAX_DIM], full[SK_MAX_DIM];
    int cells[SK_MAX_DIM][3]; /* canonical order: from which to which reduction block, of how
                                 many */
} sk_extent;

/* The shard of a tensor that a rank has.  Micro-batch `micro` of n_micro splits the batch letter
 * before any axis does but those of replicas; micro < 0 takes all of the batch. */
sk_extent sk_shard_of(const sk_graph *g, const sk_layout *l, const char *letters, const sk_state *s,
                      const int *coord, int micro, int n_micro);
void sk_cut(int64_t n, int i, int p, int64_t *from, int64_t *to);

/* --- sharding propagation: states for every tensor and node of a graph --- */

typedef struct sk_node_sharding {
    sk_state in[SK_MAX_IN], out[SK_MAX_OUT];
    char letter[SK_MAX_AXES]; /* the letter this node is split along, per axis; 0: none */
} sk_node_sharding;

typedef struct sk_sharding {
    sk_node_sharding *node; /* by node id */
    sk_state *made;         /* by tensor id: as produced; parameters: as used */
    int *chunk;             /* by node id: chunk of layers, in the order of the flow */
    int *stage;             /* by node id: the pipeline stage of that chunk */
    int n_stages, n_chunks;
} sk_sharding;

/* All of "parallelism": one pass over the nodes in order.  place[n_chunks]: the stage of each chunk
 * of layers. */
sk_status sk_propagate(sk_arena *a, const sk_graph *g, const sk_layout *l, const int *place,
                       int n_chunks, sk_sharding *out);

#endif
