/* routes.h - the links of a network between hosts (topology.h), and ways through them.  Private to
 * plan/.
 *
 * All networks are one thing here: links with a capacity, and for two ranks of different hosts the
 * links that a message passes:
 *
 *     fat tree    up from the switches that the receiver is not behind, down to it; the uplinks of
 * a switch are one link (what goes over them is spread evenly) torus       dimension by dimension,
 * the shorter way round dragonfly   to the router that has the link to the other group, over it, to
 * the other router */
#ifndef SK_PLAN_ROUTES_H
#define SK_PLAN_ROUTES_H

#include "plan/machine.h"

typedef struct sk_routes {
    const sk_topology *t;
    int per_host, hosts;
    double rate; /* of one rank's link to other hosts */
    int n_links; /* 0: there are no shared ones */
    int first[SK_MOST_LEVELS], globals, groups;
    bool around;
} sk_routes;

typedef struct sk_path {
    sk_arena *arena;
    struct sk_path_link {
        int link;
        double part; /* of the bytes */
    } * v;
    int n, cap;
    double alpha; /* seconds more than a message between hosts takes */
} sk_path;

sk_status sk_routes_open(const sk_machine *m, int n_ranks, sk_routes *out);
double sk_routes_capacity(const sk_routes *r, int link); /* bytes per second */
void sk_routes_find(const sk_routes *r, int from, int to, sk_path *path);
/* Which of the network cards of its host, if hosts have rails. */
int sk_routes_rail(const sk_routes *r, int rank);

#endif
