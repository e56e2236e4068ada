/* whole_place.h - where the work on whole matrices is done (whole_place.c).  Private to program/.
 */
#ifndef SK_PROGRAM_WHOLE_PLACE_H
#define SK_PROGRAM_WHOLE_PLACE_H

#include "program/lowering.h"

/* Parameters that are alike: their matrices have one size and are cut alike. */
typedef struct sk_whole_kind {
    sk_param_plan q; /* tensor, group, optim, used and update of the first of them */
    int n;           /* in the graph */
    bool dealt;      /* each matrix has one owner along sk_whole_place.axis */
    int cut;         /* the axis over which the matrix stays cut while it is worked on; -1: it is
                        gathered */
} sk_whole_kind;

struct sk_whole_place {
    sk_whole_kind *v;
    int n, cap;
    int axis;     /* that matrices are dealt along; -1: none */
    int owners;   /* ranks along it that own matrices: the first */
    unsigned far; /* axes whose groups are of several hosts */
};

/* Of all matrices of the graph, alike on all ranks. */
const sk_whole_place *sk_whole_places(const sk_lowering *e, sk_arena *a);
const sk_whole_kind *sk_whole_kind_of(const sk_lowering *e, const sk_param_plan *q);

#endif
