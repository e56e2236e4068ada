/* topology.h - what of a machine is not alike everywhere, as lines of its file.
 *
 *     slow: 3@1.2, 8-15@1.05, host2@1.1     these ranks, or all of these hosts, take 1.2 times as
 *                                           long for their work (`skein simulate --slow`)
 *     unlike: 3 flops 5e14                  host 3 has another number than the machine
 *     unlike: 4-7 memory_rate 2e12          so do hosts 4 to 7; a line for each number
 *
 * Factors of several entries of `slow` multiply; of two lines `unlike` about a number the last one
 * holds. */
#ifndef SK_PLAN_TOPOLOGY_H
#define SK_PLAN_TOPOLOGY_H

#include "base/status.h"
#include "base/strings.h"

enum { SK_MOST_UNLIKE = 32 };

typedef struct sk_unlike {
    bool ranks;      /* first to last are ranks; else hosts */
    bool said;       /* on the command line: there must be such ranks */
    int first, last; /* both included */
    char number[16]; /* of the machine, which is `value` there; empty: work takes so many times as
                        long */
    double value;
} sk_unlike;

typedef struct sk_topology { /* zeros: all alike */
    int n_unlike;
    sk_unlike unlike[SK_MOST_UNLIKE];
} sk_topology;

/* A line of a machine's file; false: the value is wrong, or there are too many. */
bool sk_topology_set(sk_topology *t, const char *key, const char *value);
const char *sk_topology_needed(const char *key); /* what the line says, for an error */
void sk_topology_write(sk_out *o, const sk_topology *t, const char *key); /* all its lines */
/* --slow "3@1.2,host2@1.1" */
sk_status sk_topology_slow(sk_topology *t, const char *text);

#endif
