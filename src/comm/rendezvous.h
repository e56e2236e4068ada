/* rendezvous.h - where the ranks of one host meet; private to comm/.
 *
 * The first of them listens at an abstract socket: it has no file, is seen in its
 * network namespace only and is gone with the process.  The others try to
 * connect until it is there, and send a hello.  Only processes of the same user are let in, and
 * only to a socket that the same user opened.  When all have come the name is given up and what
 * remains is one connection from the first to each of the others, for bytes and for descriptors.
 *
 * `until` is the deadline in seconds of sk_now().  Who has waited for SK_RENDEZVOUS_QUIET_S
 * of it calls `late` once, with who is missing: somebody may be waiting for nobody. */
#ifndef SK_COMM_RENDEZVOUS_H
#define SK_COMM_RENDEZVOUS_H

#include "base/arena.h"
#include "base/status.h"

#include <stdint.h>

typedef struct sk_hello { /* what a rank says of itself */
    uint64_t machine;     /* a hash of the machine as processes see it */
    uint64_t host;        /* a hash of SKEIN_HOST; 0: not set */
    int32_t rank, n_ranks;
    int32_t pid, spare;
    uint64_t cores[16]; /* that it may use, a bit each */
} sk_hello;

typedef struct sk_rendezvous sk_rendezvous;
#define SK_RENDEZVOUS_QUIET_S 1.5 /* seconds */
typedef void sk_rendezvous_late(void *ctx, const char *missing);

/* ranks[n]: who comes, of a world of n_ranks; I am number me and the first listens.  hellos[n]:
 * mine is given, the first gets all of them. */
sk_status sk_rendezvous_join(sk_arena *a, const char *name, const int *ranks, int n, int me,
                             sk_hello *hellos, double until, sk_rendezvous_late *late, void *ctx,
                             sk_rendezvous **out);
/* From the first to all others: bytes, and n_fds descriptors (at most 2), which the others own. */
sk_status sk_rendezvous_bcast(sk_rendezvous *d, void *data, size_t bytes, int *fds, int n_fds,
                              double until);
void sk_rendezvous_close(sk_rendezvous *d);

#endif
