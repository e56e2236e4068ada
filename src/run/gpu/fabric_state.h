/* fabric_state.h - the communicators of a fabric, and what its files share.  Private to run/gpu/.
 */
#ifndef SK_RUN_FABRIC_STATE_H
#define SK_RUN_FABRIC_STATE_H

#include "device/nccl.h"
#include "run/gpu/fabric.h"
#include "run/gpu/inst_kernels.h"

#include <pthread.h>

typedef struct sk_fabric_comm { /* an NCCL communicator, and what it is for */
    int group;                  /* of the program; -1: of messages */
    int from, to;               /* ranks, of messages */
    int n, me;
    const char *name; /* "group 'dp' (ranks 0 2 4 6)" */
    char id[SK_NCCL_ID];
    bool known; /* the id */
    sk_nccl_comm *handle;
    sk_stream *stream;
    pthread_t ender; /* aborts it */
    bool ending;
    int64_t *mark; /* k + 1 while call k, or the message with tag k, is under way; then negative */
} sk_fabric_comm;

struct sk_fabric {
    const sk_program *p;
    sk_device *d;
    sk_comm *comm;
    const sk_heaps *heaps; /* or NULL */
    const sk_nccl *nccl;
    const sk_inst_kernels *inst;
    double timeout_s;
    struct {
        sk_fabric_comm *v;
        int n, cap;
    } comms;
    int *comm_of;   /* by group: its communicator; -1: none */
    int64_t *words; /* the marks */
    uint64_t seen;  /* a hash of all marks when they last changed */
    double since;   /* when that was */
    double looked;  /* when sk_fabric_watch was last called */
    bool gone;      /* aborted */
};

/* fabric.c: the communicator for messages from one rank to another; -1: there is none. */
int sk_fabric_pair(const sk_fabric *f, int from, int to);

/* fabric_watch.c */
bool sk_fabric_late(const sk_fabric *f, double since); /* longer ago than the timeout? */
/* Another rank failed; its error report is the one that users see. */
bool sk_fabric_others_failed(const sk_fabric *f);
/* Adds the communicator and the call to what NCCL said; SK_OK stays SK_OK. */
sk_status sk_fabric_error(const sk_fabric_comm *r, sk_status st, const char *what);
/* Until a call that was begun is on its stream.  NCCL takes time only for the first of a kind. */
sk_status sk_fabric_settle(const sk_fabric *f, const sk_fabric_comm *r, const char *what);

#endif
