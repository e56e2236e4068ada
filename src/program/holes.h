/* holes.h - the free memory of a plan: what is taken comes from the smallest hole that has the
 * room, or from behind the last. */
#ifndef SK_PROGRAM_HOLES_H
#define SK_PROGRAM_HOLES_H

#include "base/arena.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct sk_hole {
    int64_t at, size;
} sk_hole;

typedef struct sk_holes { /* sorted by address; no two touch each other */
    sk_arena *arena;
    sk_hole *v;
    int n, cap;
    int64_t top; /* the highest end so far */
} sk_holes;

int64_t sk_holes_take(sk_holes *h, int64_t size); /* 0 bytes: at 0 */
void sk_holes_give(sk_holes *h, int64_t at, int64_t size);

#endif
