/* comm.h - how ranks reach each other: one heap per rank, and a wire between hosts.
 *
 * Each rank's planned memory is a heap: a memfd that every rank of the host
 * maps (a plain shared mapping when ranks are threads).  A collective therefore
 * needs no staging: each rank says where in its own heap the operands lie and
 * the ranks of a host read and write each other's heaps directly.  Beside the
 * heaps there is one control block, also shared: the abort word, and the state of each
 * rank.  Nothing has a name and nothing is left behind.  Ranks of
 * other hosts are reached by a wire (comm/wire.h).
 *
 * send announces a buffer, recv copies it out of the sender's heap, sent waits until
 * the receiver has it; messages between two ranks keep their order; at most
 * SK_COMM_FLIGHT are unreceived on one pair.  What goes over a wire needs somebody to
 * look after it: sk_comm_progress() between two pieces of work.  Collectives are one
 * room above: coll/call.h.
 *
 * Waiting: spin, then yield, then sleep; every wait looks at the abort word and
 * at the deadline.  Whoever fails first writes the error report into the control block and
 * raises the abort word; the others return SK_EPEER and stay quiet. */
#ifndef SK_COMM_COMM_H
#define SK_COMM_COMM_H

#include "base/arena.h"
#include "base/status.h"
#include "tensor/dtype.h"

#include <stdatomic.h>

enum {
    SK_COMM_FLIGHT = 64,
    SK_COMM_GROUPS = 256,
    SK_REPORT_BYTES = 2048,
    SK_FLIGHT_RECORDS = 64,
    SK_SMALL_BYTES = 4096
};

typedef struct sk_group {
    int n, me;        /* members; which of them I am */
    const int *ranks; /* in mesh order */
} sk_group;

enum { SK_AT_MEETING = -1 }; /* no instruction: replicas that run apart tell each other numbers */

/* A rank's state in the control block.  Written by the rank alone, read by anyone. */
typedef struct sk_rank_state {
    _Alignas(64) atomic_llong pid;
    atomic_llong step;      /* the step it is in; -1 before the first */
    atomic_llong pc;        /* instruction it is at, or SK_AT_MEETING */
    atomic_llong waits_for; /* rank it waits for; -1: none */
    atomic_llong heartbeat; /* changes whenever it does something */
    atomic_ullong hash;     /* of its program, model and version: compared before step 1 */
    atomic_int state;       /* 0 starting, 1 ready, 2 running, 3 done, 4 failed */
    struct {                /* flight recorder: the last instructions */
        int32_t pc, micro;
        double at;
    } ring[SK_FLIGHT_RECORDS];
    atomic_uint ring_n;
} sk_rank_state;

/* Heaps of a host that begin with the same memory: the first bytes[r] of rank r's, whole pages, are
 * those of rank of[r], who keeps them: of[of[r]] is of[r], and so is its number of bytes.  of NULL:
 * there are none.  The first ghost[r] bytes of rank r's lie on a device of its own: here they are
 * addresses, and memory only where they are touched.  NULL: none do. */
typedef struct sk_heap_aliases {
    const int *of;
    const int64_t *bytes;
    const int64_t *ghost;
} sk_heap_aliases;

typedef struct sk_heaps sk_heaps; /* the mappings of all ranks of this host */
typedef struct sk_comm sk_comm;   /* one rank's end */

/* --- made once, by the launcher, before ranks start --- */

/* bytes[r] of heap for rank r, reserved now so that running out is an error here.  `shared`
 * false: ranks will be threads of this process.  Behind the heaps lie extra_bytes of shared
 * memory for the caller (metrics and the like), see sk_heaps_extra. */
sk_status sk_heaps_open(int n_ranks, const int64_t *bytes, bool shared, size_t extra_bytes,
                        sk_heaps **out);
sk_status sk_heaps_open_aliased(int n_ranks, const int64_t *bytes, sk_heap_aliases aliases,
                                bool shared, size_t extra_bytes, sk_heaps **out);
void sk_heaps_close(sk_heaps *h);
void *sk_heap_base(const sk_heaps *h, int rank);
char *const *sk_heap_bases(const sk_heaps *h);      /* by rank; NULL: on another host */
int64_t sk_heap_bytes(const sk_heaps *h, int rank); /* really mapped for the plan */
int64_t sk_heap_own(const sk_heaps *h,
                    int rank); /* of these, without what another rank keeps for it */
void *sk_heaps_extra(const sk_heaps *h);
sk_rank_state *sk_heaps_rank_state(const sk_heaps *h, int rank);

/* The abort word and the one error report of the job.  First caller wins; returns whether it was
 * me. */
bool sk_heaps_abort(sk_heaps *h, sk_status code, int rank, const char *report);
bool sk_heaps_aborted(const sk_heaps *h, sk_status *code, int *rank, const char **report);
/* Ask all ranks to stop at the next step boundary (Ctrl-C); and has that been asked? */
void sk_heaps_ask_stop(sk_heaps *h);
bool sk_heaps_stop_asked(const sk_heaps *h);

/* --- one rank --- */

typedef struct sk_wire sk_wire; /* comm/wire.h */

typedef struct sk_comm_opts {
    int rank;
    const sk_group *groups; /* numbered alike on all ranks that share them */
    int n_groups;
    double timeout_s;   /* longest any wait may take; 0: no limit */
    sk_wire *wire;      /* to ranks whose heaps are not here; NULL: all are */
    const int *host_of; /* rank -> host; NULL: one host */
    const struct sk_links
        *links;              /* between ranks (coll/links.h); NULL: those of a kind are alike */
    struct sk_threads *team; /* threads of this rank that may help with large calls; NULL: none */
    /* The text of an instruction of a rank, for error reports only; NULL, or returns NULL: the
     * number. */
    const char *(*where)(void *ctx, int rank, int pc);
    void *where_ctx;
} sk_comm_opts;

sk_status sk_comm_open(sk_heaps *h, const sk_comm_opts *o, sk_comm **out);
void sk_comm_close(sk_comm *c);

sk_status sk_comm_progress(sk_comm *c); /* look after what is in flight; nothing to do: one load */

sk_status sk_comm_send(sk_comm *c, int to, int64_t tag, const void *data, int64_t bytes);
sk_status sk_comm_recv(sk_comm *c, int from, int64_t tag, void *data, int64_t bytes);
sk_status sk_comm_sent(sk_comm *c, int to,
                       int64_t count); /* the first `count` sends to it arrived */

/* Bytes that this rank has moved to another's memory so far, counted where they are moved: of a
 * step list and of messages what it handed over, packed or not; in the heaps what it copied, or
 * took for a sum, from one rank's memory to another's (any member may do any share of a call, so
 * that only the sum over ranks says what a call took).  Of a library's own collectives, which
 * nobody can look into, what any way of doing them needs (2S(p-1)/p for an all-reduce). */
int64_t sk_comm_bytes_sent(const sk_comm *c);

int64_t sk_comm_sends(const sk_comm *c, int to); /* how many there were to it so far */

sk_status sk_comm_barrier(sk_comm *c); /* all ranks */

/* For a word now and then, on any number of hosts, at most SK_SMALL_BYTES bytes: rank 0's to all
 * ranks; everybody's to rank 0, where `all` has room for those of n_ranks.  Each takes two
 * barriers. */
sk_status sk_comm_small_bcast(sk_comm *c, void *data, size_t bytes);
sk_status sk_comm_small_gather(sk_comm *c, const void *mine, size_t bytes, void *all);

#endif
