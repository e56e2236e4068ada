/* network.h - what a call or a message of each rank meets between hosts: who shares links with it.
 *
 * Bytes are a fluid, and shares are static: all groups of one axis make their calls together, and
 * so do all ranks of a stage that send to the next (their programs are one).  On every link the
 * bytes of all these groups add up, per byte of the call; a call takes as long as its fullest
 * link.  Calls of different axes do not share: they are not known to fall together, and a share
 * that goes by who is there at the same moment would make the result depend on the order in which
 * ranks are tried, and ranks unequal that are equal by symmetry.
 *
 *     ring pattern    from each host of the group to the next one, all bytes of the call's formula;
 *                     of machines whose `collectives` are not `ring`, split evenly over its members
 *                     there; in a torus half of them go the other way round
 *     all to all      from each member to each other one, 1/(n-1) of the formula's bytes; of groups
 *                     over 65 members 64 distances between members stand for all
 *
 * In a dragonfly the calls of an axis all go straight, or all around, whichever loads the fullest
 * link less.  The latency of a call's hop is the mean over its ways.  Of what that makes of the
 * numbers of links (plan/topology.h) there is a machine for each case, which prices as the usual
 * one does. Private to plan/. */
#ifndef SK_PLAN_NETWORK_H
#define SK_PLAN_NETWORK_H

#include "plan/variants.h"
#include "program/program.h"

typedef enum sk_pattern { SK_PATTERN_RING, SK_PATTERN_PAIRS, SK_N_PATTERNS } sk_pattern;

typedef struct sk_network_in {
    const sk_machine *machine;
    const sk_variants *variants;
    const sk_program *const *programs; /* by shape */
    const int *shape_of;               /* by rank */
    int n_ranks;
} sk_network_in;

typedef struct sk_network {
    bool plain; /* all calls and messages meet the machine itself; tables are empty */
    struct {
        struct sk_network_case {
            sk_machine machine;
            double part; /* of the machine's rate between hosts, that its slowest host has */
        } * v;
        int n, cap;
    } cases; /* the first is the machine itself */
    int **
        groups[SK_N_PATTERNS]; /* by group of the programs and rank: which case; NULL: no such calls
                                */
    struct {
        struct sk_network_shift *v;
        int n, cap;
    } shifts; /* messages, by how far their receiver is */
    const sk_mesh *mesh;
    int n_groups; /* of the programs */
} sk_network;

sk_status sk_network_open(sk_arena *a, const sk_network_in *in, sk_network *out);
/* For a call of this kind in a group of a rank; for a message between two. */
const sk_machine *sk_network_call(const sk_network *n, int group, sk_coll_kind kind, int rank);
const sk_machine *sk_network_message(const sk_network *n, int from, int to);
/* What the rank meets; mixed into a mark (rank_classes.h). */
uint64_t sk_network_mark(const sk_network *n, int rank, uint64_t mark);

/* The ranks of a group that a rank with this program (its own, or one of its shape) is in,
 * ascending; 0: it is in none. */
int sk_network_members(const sk_program *p, int rank, int group, int *ranks);

#endif
