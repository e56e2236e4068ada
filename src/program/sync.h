/* sync.h - how replicas agree on their weights, as a part: parts/sync/NAME.c defines
 * `const sk_sync sk_sync_NAME`.
 *
 * Data parallelism sums gradients in every step, so that all ranks along an axis have the same
 * weights.  Where the layout says `sync=NAME:H`, ranks along the axis are replicas: each computes
 * the gradient of its part of the batch, with the mean over its own tokens, clips it by its own
 * norm and updates weights of its own.  Every H steps the replicas synchronise, by one all-reduce
 * behind the update.  Inside of a replica every other axis works as always.
 *
 * What an all-reduce brings is the mean over replicas of what each sends.  A part without .outer
 * sends its weights and takes the mean for them (Local SGD).  A part with .outer keeps the weights
 * of the last synchronisation (the anchor), sends the difference, and makes a step of its own with
 * the mean, the outer gradient (DiLoCo). */
#ifndef SK_PROGRAM_SYNC_H
#define SK_PROGRAM_SYNC_H

#include "base/strings.h"
#include "kernel/combine.h"
#include "kernel/optim.h"
#include "layout/layout.h"

/* What a step of a synchronisation reads, each element of a shard in f32, and what it writes. */
enum { SK_OUTER_WEIGHT, SK_OUTER_MEAN, SK_OUTER_ANCHOR, SK_OUTER_MOMENTUM };
enum { SK_OUTER_TO_WEIGHT, SK_OUTER_TO_ANCHOR, SK_OUTER_TO_MOMENTUM };
typedef struct sk_outer_step {
    float weight[SK_COMBINE_IN], anchor[SK_COMBINE_IN], momentum[SK_COMBINE_IN];
} sk_outer_step;

typedef enum sk_sync_kind {
    SK_SYNC_STEPS,  /* every H steps */
    SK_SYNC_BACKUP, /* a step commits without the last B gradients: no replicas (timed_sync.c) */
    SK_SYNC_STALE   /* each rank updates, at most S steps ahead of the slowest: no replicas */
} sk_sync_kind;

typedef struct sk_sync {
    const char *name, *doc;
    sk_sync_kind kind;
    int usual;  /* H, B or S, where it is not said; 0: it must be */
    bool pairs; /* replicas synchronise with one partner at a time, who changes */
    bool after; /* "H@STEP": the first steps are synchronous */
    /* Numbers, as sync=NAME:H:lr=0.7; sk_knob.name, usual, least, most, whole and doc count. */
    sk_knob knobs[SK_MAX_SYNC_KNOB + 1];
    /* NULL: weights become their mean.  Else what replicas send is the anchor less the weights, and
     * this says what becomes of weight, anchor and momentum: each a sum of (weight, mean of what
     * was sent, anchor, momentum) times the numbers that it fills in, which are zeros before. */
    void (*outer)(const double *knob, int replicas, sk_outer_step *to);
    bool momentum; /* there is one */
    /* NULL, or: a parameter belongs to one of so many fragments, by its layer; each is synchronised
     * at a time of its own, and travels while the step computes. */
    int (*fragments)(const double *knob);
    sk_alias alias[2]; /* what other programs call it; a value of sync, "elastic:10" */
} sk_sync;

enum { SK_SYNC_MEANT = 32 };

extern const sk_sync *const sk_sync_parts[];
const sk_sync *sk_sync_find(const char *name);
/* How a way is said that is called so here or elsewhere, with a number: "easgd" is "elastic:10".
 * False: there is none. */
bool sk_sync_meant(const char *name, char to[SK_SYNC_MEANT]);
const char *sk_sync_timed_name(const sk_layout *l);      /* of the way in which time decides */
const sk_sync *sk_sync_of(const sk_layout *l, int axis); /* NULL: it has no replicas */

/* Partners of n replicas: how many rounds there are until they repeat, and the partner of replica i
 * in one of them; -1: none.  For powers of two the bits of i flip in turn, so that after all rounds
 * each replica has met, through others, everybody; else neighbours on one and on the other side. */
int sk_partner_rounds(int n);
int sk_partner(int n, int round, int i);

#endif
