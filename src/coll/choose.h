/* choose.h - which algorithm a collective call gets, and what it costs.
 *
 * The compiler asks once for every call and freezes the answer in the program: it
 * depends on kind, bytes, members, their hosts and the numbers below, all alike on
 * all ranks, so ranks cannot disagree and nothing is tuned while running.
 *
 *     one host      directly in the heaps (-1): the floor, and any list is dearer, but for streams
 *                   of what is known to be sparse
 *     several       the cheapest list that can do it and sums in tree order (any_order: in any)
 *     pinned        that one, or an error that names those that can
 *
 * A list costs, with S the bytes of the whole vector:
 *
 *     rounds alpha + messages each + sent S beta + summed S gamma
 *
 * (Hockney 1994; `each` is the o of LogP, Culler et al. 1993: the time of a core that
 * every message takes from its sender and its receiver).  rounds, sent and summed
 * are the closed forms of the algorithm (algorithm.h).  How many messages there are, and
 * what share of all leaves the host, is counted in the lists of a few members (the first or the
 * root, the last of the first host, the last; the dearest counts), when hosts are equal and hold
 * neighbours; otherwise everything counts as leaving.
 *
 * Where m members of other hosts send to one in the same round, their streams share its link and
 * get in each other's way (incast of TCP, Phanishayee et al. 2008): beta between hosts counts
 * 1 + incast log2 m times, m the mean over the rounds of a list.
 *
 * That is asked of vectors of more than SK_LOGGP_MEMBERS members.  The lists of fewer are played
 * message by message (coll/loggp.h), with alpha for L, `each` for o and beta for G.
 *
 * Where the links of a topology file are known (coll/links.h), a round costs what its slowest link
 * does (coll/link_price.c), and any order of sums may be chosen unless it is to be canonical.
 *
 * In the heaps, n members on c cores:
 *
 *     latency(n) + S sum max(1, n / c)                     n S up to `cache`
 *     latency(n) + S max(sum max(1, n / c), n sum_far)     from `far` on; a power of n S between
 *
 * with `sum` for all-reduce and `copy` for what only moves; reduce-scatter and reduce
 * write a share of 1/n, gather and scatter move a share of 1/n.  latency(n) is
 * tiny + (n - 2) member while every member has a core, n crowded when not. */
#ifndef SK_COLL_CHOOSE_H
#define SK_COLL_CHOOSE_H

#include "coll/algorithm.h"

enum {
    SK_BUILTIN = -1,   /* directly in the heaps */
    SK_NO_CHOICE = -2, /* nothing can do it */
    SK_PIN_NONE = 0    /* a pin is this, SK_BUILTIN, or 1 + an index in sk_coll_parts */
};

typedef struct sk_link {
    double alpha, beta, each; /* seconds; seconds per byte; seconds per message */
    double incast;            /* how much dearer a byte is when two send to one at a time */
    double gap;   /* seconds between two messages of a link: g of LogGP (coll/loggp.h) */
    double burst; /* bytes that an idle link takes at once, as of a token bucket */
} sk_link;

typedef struct sk_shm_cost {  /* seconds, seconds per byte; tiny 0: heaps are not known */
    double tiny;              /* a call of a few bytes between two */
    double member;            /* more for each further member */
    double crowded;           /* for each member, when there are more than cores */
    double sum, copy;         /* one core, in cache */
    double sum_far, copy_far; /* all cores together, out of it */
} sk_shm_cost;

/* No pointers in it: rank 0's copy is sent to all. */
typedef struct sk_costs {
    sk_link inside, between; /* two ranks of one host; of two */
    double gamma;            /* seconds per byte that is added */
    sk_shm_cost shm;
    int64_t cache;  /* bytes of all members that are near */
    int64_t far;    /* and from which on they are all far */
    int64_t cores;  /* of a host */
    char host[192]; /* where it was measured (sk_host_mark); empty: a preset */
} sk_costs;

/* Of a small server with plain Ethernet: good enough to choose by, not to predict by. */
#define SK_COSTS_PRESET                                                               \
    {                                                                                 \
        .inside = {.alpha = 0.4e-6, .beta = 1 / 8e9, .each = 0.2e-6},                 \
        .between = {.alpha = 30e-6, .beta = 1 / 1.1e9, .each = 2e-6, .incast = 0.35}, \
        .gamma = 1 / 10e9,                                                            \
        .shm = {.tiny = 0.5e-6,                                                       \
                .member = 0.15e-6,                                                    \
                .crowded = 3e-6,                                                      \
                .sum = 1 / 8e9,                                                       \
                .copy = 1 / 8e9,                                                      \
                .sum_far = 1 / 16e9,                                                  \
                .copy_far = 1 / 16e9},                                                \
        .cache = 32 << 20, .far = 128 << 20, .cores = 8                               \
    }
extern const sk_costs sk_costs_preset;

/* cpu model, cores, last cache and kernel of this host in one line. */
void sk_host_mark(char *to, size_t n);

double sk_shm_price(const sk_costs *c, sk_coll_kind kind, int n, int64_t bytes);
/* Seconds of one call; hosts: on how many the members of ask sit.  INFINITY: has no price. */
double sk_call_price(const sk_costs *c, int algorithm, const sk_coll_ask *ask, int hosts,
                     int64_t bytes);
/* The same by the closed form, for any number of members; of a list that has a price. */
double sk_closed_price(const sk_costs *c, int algorithm, const sk_coll_ask *ask, int hosts,
                       int64_t bytes);
/* Members of a host that are next to each other; 1 if it is not known who sits where. */
int sk_members_here(const sk_coll_ask *ask, int hosts);

/* May it be taken without being asked for?  It must keep the order of sums and say what it costs;
 * one that packs is for what is known to be sparse (ask->fill).  Whether it keeps the order may
 * depend on the ask's degrees. */
bool sk_chosen_by_itself(const sk_coll *a, const sk_coll_ask *ask, sk_reduce reduce);
/* An index in sk_coll_parts, SK_BUILTIN or SK_NO_CHOICE; the degrees that it takes are written into
 * the ask.  seconds may be NULL.
 *
 * Prices compared are those of calls one after the other, which find a bucket (sk_link.burst) as
 * the last one left it (sk_loggp.steady); closed forms take it for empty.  How full it is depends
 * on the calls before.  Few rounds that send more bytes win some rounds' latency where it is full,
 * and lose the time of these bytes where it is not, which is more. */
int sk_choose(const sk_costs *c, sk_coll_ask *ask, int hosts, sk_reduce reduce, int64_t bytes,
              double *seconds);
/* What sk_choose() compares beside the heaps: every algorithm, and degrees of it (0: the usual
 * ones), that may be chosen by itself. */
typedef void sk_candidate(void *ctx, int algorithm, uint64_t degrees);
void sk_candidates(const sk_coll_ask *ask, int hosts, sk_reduce reduce, sk_candidate *visit,
                   void *ctx);
/* sk_choose() with a pin, whose degrees are the ask's, and with an error where there is no choice.
 */
sk_status sk_choose_call(const sk_costs *c, int pin, sk_coll_ask *ask, int hosts, sk_reduce reduce,
                         int64_t bytes, int *algorithm);

/* Can it run without a wire, among ranks of one host?  A library's own collective cannot. */
sk_status sk_choose_wired(const sk_coll *c, bool wire);
/* "" and "auto": SK_PIN_NONE; "butterfly:4x2" has degrees.  key: what the caller named it in, for
 * the error */
sk_status sk_pin_find(const char *key, const char *name, int *pin, uint64_t *degrees);
const char *sk_algorithm_name(int algorithm); /* SK_BUILTIN: the part of the heaps */

/* On how many hosts these ranks sit; host_of NULL: one. */
int sk_hosts_count(const int *ranks, int n, const int *host_of);

#endif
