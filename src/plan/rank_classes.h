/* rank_classes.h - classes of ranks whose steps are equal, so that one of each is simulated.
 *
 * Equal programs are not enough: ranks must also meet equal partners.  Classes
 * are refined until every rank of a class sees, along every axis, the same classes
 * (in the same order along the stages, which messages cross; in any order
 * elsewhere) on hosts of the same pattern, and exchanges messages with ranks of the same
 * classes.  Then by symmetry all ranks of a class do the same things at the same times.
 * Dense layouts on aligned hosts end with a class per stage.  What is not alike on the machine
 * (a slow rank, a degraded link) is a mark of the ranks that it is about: they begin in classes
 * of their own, and refinement finds whom they hold up. */
#ifndef SK_PLAN_RANK_CLASSES_H
#define SK_PLAN_RANK_CLASSES_H

#include "plan/machine.h"
#include "program/program.h"

typedef struct sk_ranks_in {
    const sk_program *const *programs; /* by shape */
    const int *shape_of;               /* by rank */
    const sk_machine *machine;
    const uint64_t *marks; /* by rank: equal for ranks that the machine treats alike; NULL: all */
} sk_ranks_in;

/* class_of[n_ranks] is filled with classes in order of their first rank; returns how many. */
int sk_rank_classes(const sk_ranks_in *in, int *class_of);

#endif
