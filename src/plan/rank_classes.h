/* rank_classes.h - classes of ranks whose steps are equal, so that one of each is simulated.
 *
 * Equal programs are not enough: ranks must also meet equal partners.  Classes
 * are refined until every rank of a class sees, along every axis, the same classes
 * (in the same order along the stages, which messages cross; in any order
 * elsewhere) on hosts of the same pattern.  Then by symmetry all ranks of a class
 * do the same things at the same times.  Dense layouts on aligned hosts end with
 * a class per stage. */
#ifndef SK_PLAN_RANK_CLASSES_H
#define SK_PLAN_RANK_CLASSES_H

#include "layout/layout.h"
#include "plan/machine.h"

/* class_of[n_ranks] is filled with classes in order of their first rank; returns how many. */
int sk_rank_classes(const sk_layout *l, const int *shape_of, const sk_machine *m, int *class_of);

#endif
