/* execution.h - a step list that is being executed; private to coll/execute*.c. */
#ifndef SK_COLL_EXECUTION_H
#define SK_COLL_EXECUTION_H

#include "coll/buffer_layout.h"
#include "coll/collectives.h"

/* A message between ranks of one host, in the sender's workspace: EMPTY -sender-> POSTED
 * -receiver-> TAKEN. */
typedef struct sk_note {
    _Alignas(SK_NOTE_BYTES) atomic_int state;
    int apart;         /* cells of SK_TMP that are not in a row */
    int64_t at, bytes; /* in the sender's heap */
} sk_note;
_Static_assert(sizeof(sk_note) == SK_NOTE_BYTES, "the bytes of an outbox are planned");

typedef struct sk_outbox {
    const int *first; /* which notes are for member j; NULL: not seen yet */
    sk_note *notes;
} sk_outbox;

typedef enum sk_step_phase { SK_STEP_NEW, SK_STEP_IN_FLIGHT, SK_STEP_DONE } sk_step_phase;

typedef struct sk_step_state {
    sk_step_phase phase;
    int due;    /* a send: the round before which it must have arrived */
    sk_req req; /* on the wire; -1: a note */
} sk_step_state;

struct sk_execution {
    const sk_compiled_schedule *schedule;
    const sk_coll_call *call;
    const sk_sync *sync; /* of the call: what members agree upon */
    const sk_group_state *group;
    uint64_t number; /* of the call on the group */
    int64_t tag;
    sk_buffer_layout layout;
    char *space[3], *staging; /* where SRC, DST, TMP and the staging buffer lie */
    sk_outbox *box;           /* by member */
    sk_step_state *states;    /* by step */
    const void **terms;       /* of a tree */
    int *out, n_out;          /* sends in flight */
    int64_t *at, *length;     /* chunks; all-to-all-v: bytes in the cells of SRC, DST, TMP */
    int lo, hi;               /* steps of the round at hand */
    bool over;
    int cap_steps, cap_cells, cap_n; /* room in the arrays */
    sk_execution *next;              /* in the list of those that are free */
};

static inline const sk_step *sk_exec_step(const sk_execution *e, int i)
{
    return &e->schedule->steps.list.v[i];
}
static inline char *sk_exec_staging(const sk_execution *e, int i, int skip)
{
    return e->staging + (e->schedule->staging[i] + skip) * e->layout.stride;
}
static inline int sk_exec_rank(const sk_execution *e, int member)
{
    return e->group->group.ranks[member];
}
static inline char *sk_exec_workspace(char *base, const sk_coll_call *call)
{
    return base + (call->workspace + 63) / 64 * 64;
}

/* --- execute_local.c: cells, copies and sums --- */

char *sk_exec_cell(const sk_execution *e, sk_cell c);
/* Are the cells of a step in a row?  Those of TMP are as far apart as the largest chunk is long. */
bool sk_exec_in_a_row(const sk_execution *e, sk_cell c, const sk_step *t);
/* Bytes in a cell of an all-to-all: cells have one size, and what is in them may be shorter. */
int64_t *sk_exec_length(const sk_execution *e, sk_cell c);
bool sk_exec_may_be_short(const sk_execution *e, const sk_step *t);
/* All-to-all-v: notes what came, or was copied. */
void sk_exec_set_length(sk_comm *c, sk_execution *e, sk_cell into, int64_t bytes);
/* into = from, or from + with; `from` is cells in a row, or as far apart as those of TMP. */
void sk_exec_apply(const sk_execution *e, const sk_step *t, const char *from, bool apart,
                   bool sums);
void sk_exec_copy(char *to, const char *from, int64_t bytes);
void sk_exec_local(sk_comm *c, sk_execution *e, const sk_step *t); /* a copy, a sum or a tree */
sk_reduce sk_exec_reduce(const sk_execution *e); /* of a step: a mean is divided in the end */

/* --- execute_stream.c: cells that are streams --- */

/* What the caller gives becomes streams; and what it gets, dense. */
sk_status sk_exec_streams_begin(sk_comm *c, sk_execution *e);
void sk_exec_streams_end(sk_comm *c, sk_execution *e);
/* The streams of the cells of a send: where they lie in a row, and their bytes. */
const char *sk_exec_streams_out(const sk_execution *e, int step, int64_t *bytes);
/* Streams that came. */
sk_status sk_exec_streams_in(sk_comm *c, sk_execution *e, int step, const char *from,
                             int64_t bytes);
void sk_exec_streams_local(sk_execution *e, int step); /* a copy, a sum or a tree */

/* --- execute_message.c: sends and receives --- */

void sk_exec_fill_outbox(sk_comm *c, sk_execution *e);    /* mine, with empty notes */
void sk_exec_announce(sk_comm *c, const sk_execution *e); /* members of this host may look */
/* *done stays false when the wire takes no more. */
sk_status sk_exec_send(sk_comm *c, sk_execution *e, int i, bool *done);
/* *done: it came, and is where it belongs. */
sk_status sk_exec_recv_note(sk_comm *c, sk_execution *e, int i, bool *done);
sk_status sk_exec_recv_wire(sk_comm *c, sk_execution *e, int i, bool *done);
sk_status sk_exec_test_sends(sk_comm *c, sk_execution *e); /* drops those that arrived */

#endif
