/* pins.h - which algorithm the user wants of which collectives: comm.algorithm.
 *
 *     ring                                    of all calls
 *     all-reduce/dp: ring, all-gather: bruck  of all-reduces over dp, and of all-gathers over any
 *                                             axis; others are chosen by cost
 *     direct, all-reduce/dp: ring             direct of all others
 *     all-reduce: butterfly:4x2               with the degrees of its rounds
 *
 * The narrower entry counts: kind and axis, then kind, then all.  `auto` chooses by cost.  The
 * names of kinds are those of coll/kinds.h, with or without '-' and '_'. */
#ifndef SK_COLL_PINS_H
#define SK_COLL_PINS_H

#include "coll/choose.h"

enum { SK_PIN_AXES = 8 };

typedef struct sk_pins { /* a pin is a number of sk_pin_find() */
    int all;
    uint64_t all_degrees;
    struct {
        int pin, axis[SK_PIN_AXES]; /* over any axis; over that one */
        uint64_t degrees, axis_degrees[SK_PIN_AXES];
        bool said, axis_said[SK_PIN_AXES]; /* an entry, which may be `auto` */
    } kind[SK_N_COLLS];
} sk_pins;

/* axes: the names of the mesh's.  An error names the nearest kind, axis or algorithm. */
sk_status sk_pins_read(const char *key, const char *text, const char *const *axes, int n_axes,
                       sk_pins *out);
/* axis: a number of the mesh's; -1: a group of ranks along none. */
int sk_pins_of(const sk_pins *p, sk_coll_kind kind, int axis);
uint64_t sk_pins_degrees(const sk_pins *p, sk_coll_kind kind, int axis);
bool sk_pins_any(const sk_pins *p);
uint64_t sk_pins_hash(uint64_t h, const sk_pins *p);

#endif
