/* handles.h - what the objects of include/skein.h are made of; private to api/.
 *
 * An object lies in an arena of its own, which ends with it.  Objects that others
 * lean on are counted: a program holds its job, a job its graph, a run its
 * program, so that a caller may close them in any order.
 *
 * Public names begin with skein_, names of the inside with sk_: the two never meet
 * in one symbol table, and libskein.so exports the first kind (cmake/skein.map). */
#ifndef SK_API_HANDLES_H
#define SK_API_HANDLES_H

#include "base/arena.h"
#include "base/entry.h"
#include "base/status.h"
#include "comm/comm.h"
#include "skein.h"
#include "train/setup.h"

#include <stdatomic.h>

/* --- arguments (api_argument.c) --- */

/* For functions of skein.h, which return int.  The caller left out something that must be there:
 * "skein_run_feed: input is NULL".  And SK_TRY for them. */
#define SK_NEED(thing)                                                                    \
    do {                                                                                  \
        if (!(thing)) return (int)sk_fail(SK_EUSAGE, "%s: " #thing " is NULL", __func__); \
    } while (0)
#define SK_TELL(call)                                \
    do {                                             \
        sk_status st_ = (call);                      \
        if (st_) return (int)sk_trail(st_, SK_HERE); \
    } while (0)

/* A struct of the caller's begins with its size.  It gets as much of ours as it has room for; what
 * it has beyond ours becomes 0. */
sk_status sk_struct_to_caller(const char *who, void *out, const void *ours, size_t bytes);
/* The other way: ours gets what the caller's struct has, and 0 beyond it.  What we do not know must
 * be 0. */
sk_status sk_struct_from_caller(const char *who, const void *in, void *ours, size_t bytes);

/* A box of a dense tensor of `full` sizes, to or from dense memory of its own, from type to type.
 */
typedef struct sk_box_move {
    int n;
    const int64_t *full, *at, *size;
    void *whole, *shard;
    sk_dtype whole_type, shard_type;
    bool out; /* from the shard to the whole */
} sk_box_move;
void sk_box_copy(const sk_box_move *m);

/* --- a graph (api_graph.c): a list of what was called, which is called again for every layout,
 * because ops write themselves otherwise where a layout splits them --- */

typedef enum sk_record_of {
    SK_OF_INPUT,
    SK_OF_PARAM,
    SK_OF_OP,
    SK_OF_ENTROPY,
    SK_OF_LOSS
} sk_record_of;

struct skein_tensor {
    skein_graph *graph;
    int record, result; /* which result of which record */
    sk_dtype type;
};

typedef struct sk_build_record {
    sk_record_of of;
    const char *name, *letters, *dims, *where;
    const sk_op *op;
    sk_dtype type;
    double init, attr[SK_MAX_ATTR];
    int layer;
    const skein_tensor *in[SK_MAX_IN];
    skein_tensor *out[SK_MAX_OUT];
} sk_build_record;

struct skein_graph {
    sk_arena arena;
    atomic_int refs;
    const char *name;
    sk_status status; /* the first mistake */
    char why[512];
    bool used; /* by a job: it does not change any more */
    bool lost; /* it has a loss */
    int64_t sizes[128];
    int layer;
    struct {
        sk_build_record *v;
        int n, cap;
    } records;
};

void sk_graph_hold(skein_graph *g);
void sk_graph_replay(sk_graph *g, void *graph); /* for sk_job.build */

/* --- a job, a layout, programs (api_job.c, api_program.c) --- */

struct skein_job {
    sk_arena arena;
    atomic_int refs;
    skein_graph *graph; /* NULL: a model by name */
    sk_job job;
};
void sk_job_hold(skein_job *job);

struct skein_layout {
    sk_arena arena;
    sk_layout layout;
    const char *text;
};

struct skein_program {
    sk_arena arena;
    atomic_int refs;
    skein_job *from;
    sk_job job; /* of it, with the layout */
    bool all;   /* the programs of all ranks: it can run */
    bool data;  /* setup has data.train */
    sk_setup setup;
};
void sk_program_hold(skein_program *p);

/* --- ranks (api_ranks.c): n of them, as threads or as processes, each of which does a task --- */

typedef sk_status sk_rank_task(void *ctx, int rank);

typedef struct sk_ranks {
    sk_heaps *heaps;
    int n;
    bool processes;
    struct sk_rank_slot *v;
} sk_ranks;

/* Some may have been started when it fails: sk_ranks_end() is due in any case. */
sk_status sk_ranks_start(sk_arena *a, sk_heaps *h, int n, bool processes, sk_rank_task *task,
                         void *ctx, sk_ranks *out);
/* Looks for ranks that are over, without waiting.  The death of a process is reported in the
 * control block. */
void sk_ranks_poll(sk_ranks *r);
bool sk_rank_over(const sk_ranks *r, int rank);
/* Waits for all.  Processes that are still there `grace` seconds after a failure are killed. */
void sk_ranks_end(sk_ranks *r, double grace);
/* The failure that the control block reports, as this thread's error; SK_OK: there is none. */
sk_status sk_heaps_failure(const sk_heaps *h);

#endif
