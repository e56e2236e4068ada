/* topology.h - what of a machine is not alike everywhere, as lines of its file.
 *
 *     slow: 3@1.2, 8-15@1.05, host2@1.1     these ranks, or all of these hosts, take 1.2 times as
 *                                           long for their work (`skein simulate --slow`)
 *     unlike: 3 flops 5e14                  host 3 has another number than the machine
 *     unlike: 4-7 rate_between 24e9         so do hosts 4 to 7; a line for each number
 *
 *     jitter: 0.02,0.001@1.5                work takes a random factor in every step
 * (step_jitter.h;
 *                                           `--jitter`)
 *
 * Factors of several entries of `slow` multiply; of two lines `unlike` about a number the last one
 * holds.  A call moves at the rates of its slowest member's host.
 *
 * Hosts are connected by one of these networks; without, a rank's link to other hosts
 * (alpha_between, rate_between) is all there is between them:
 *
 *     level: 32 over 2 alpha 2e-6      fat tree: switches of 32 hosts, whose uplinks carry half of
 *     level: 512 over 4                what their hosts can send; above them pods of 512 hosts.
 *                                      Up to 4 lines, from below; each alpha is for what leaves
 *     rails: 8 hosts 32 over 2         each host has 8 network cards, each with its own switch
 *                                      for 32 hosts (0: for all); what changes rails goes over
 *                                      the uplinks
 *     torus: 16x16x16 rate 45e9 alpha 5e-7
 *                                      links of this rate in each direction between hosts that
 *                                      are neighbours; alpha is for each link
 *     dragonfly: 4x16 rate 100e9 global 50e9 alpha 5e-7
 *                                      routers with 4 hosts; groups of 16 routers, all of them
 *                                      linked (rate), as are all groups (global)
 *
 * `rate` of a level or of rails is what a switch's uplinks carry together, instead of `over`, which
 * is 1 if it is not said.  Hosts are numbered from leaf to leaf; of a torus the last number goes
 * fastest.  routes.h has the links and the ways through them, network.h who shares them. */
#ifndef SK_PLAN_TOPOLOGY_H
#define SK_PLAN_TOPOLOGY_H

#include "base/status.h"
#include "base/strings.h"

enum { SK_MOST_UNLIKE = 32, SK_MOST_LEVELS = 4, SK_MOST_DIMS = 6 };

typedef struct sk_level { /* switches that hosts, or the rails of hosts, are behind */
    int hosts;            /* 0: all */
    int rails;            /* 0: no rails */
    double over, rate, alpha;
} sk_level;

typedef struct sk_torus {
    int n, size[SK_MOST_DIMS]; /* n 0: none */
    double rate, alpha;
} sk_torus;

typedef struct sk_dragonfly {
    int hosts, routers; /* of a router; of a group; 0: none */
    double rate, global, alpha;
} sk_dragonfly;

typedef struct sk_unlike {
    bool ranks;      /* first to last are ranks; else hosts */
    bool said;       /* on the command line: there must be such ranks */
    int first, last; /* both included */
    char number[16]; /* of the machine, which is `value` there; empty: work takes so many times as
                        long */
    double value;
} sk_unlike;

typedef struct sk_jitter {
    double sigma;        /* of the logarithm of a rank's factor in a step */
    double tail, factor; /* in this part of all steps of a rank, so many times as long */
    int draws;           /* steps to simulate; 0: there is no jitter */
} sk_jitter;

typedef struct sk_topology { /* zeros: all alike */
    int n_levels;
    sk_level level[SK_MOST_LEVELS];
    sk_torus torus;
    sk_dragonfly dragonfly;
    int n_unlike;
    sk_unlike unlike[SK_MOST_UNLIKE];
    sk_jitter jitter;
} sk_topology;

/* A line of a machine's file; false: the value is wrong, or there are too many. */
bool sk_topology_set(sk_topology *t, const char *key, const char *value);
const char *sk_topology_needed(const char *key); /* what the line says, for an error */
void sk_topology_write(sk_out *o, const sk_topology *t, const char *key); /* all its lines */
/* Refuses lines that do not go together. */
sk_status sk_topology_check(const sk_topology *t, const char *path);
/* --slow "3@1.2,host2@1.1" */
sk_status sk_topology_slow(sk_topology *t, const char *text);
/* --jitter "0.02,0.001@1.5" --draws 200; draws NULL: as many */
sk_status sk_topology_jitter(sk_topology *t, const char *text, const char *draws);

#endif
