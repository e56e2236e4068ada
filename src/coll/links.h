/* links.h - links between ranks that differ: the topology file of comm.links.
 *
 *     # from, to, bytes per second
 *     0 1 50e9           both ways
 *     1 > 2 25e9         one way
 *     rest 10e9          all pairs without a line of their own
 *
 * Without `rest` a pair without a line has no link: no list that packs links uses it (Blink, Wang
 * et al. 2020), and other lists pay what the cluster's links cost (coll/choose.h). */
#ifndef SK_COLL_LINKS_H
#define SK_COLL_LINKS_H

#include "base/arena.h"
#include "base/status.h"

#include <stdint.h>

enum { SK_LINKS_MAX = 1024 }; /* ranks: the table has the square of them */

typedef struct sk_links {
    int n;        /* ranks */
    double *rate; /* [n * n] bytes per second from i to j; 0: no link */
} sk_links;

/* key: what the caller named the file in, for the error. */
sk_status sk_links_read(sk_arena *a, const char *key, const char *path, int n_ranks,
                        const sk_links **out);
uint64_t sk_links_hash(uint64_t h, const sk_links *l);

#endif
