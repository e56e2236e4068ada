/* zigzag.c - see zigzag.h. */
#include "base/zigzag.h"
#include "base/status.h"

#include <stdbool.h>

typedef struct stretch {      /* what a rank keeps: stored indices [from, to) */
    int64_t from, middle, to; /* the early ones end at the middle */
    int64_t early, late;      /* positions of the first of each */
} stretch;

/* The rank in whose piece stored index i is. */
static stretch piece_with(int64_t i, int64_t time, int p)
{
    int64_t r = ((i + 1) * p - 1) / time;
    stretch s = {.from = time * r / p, .to = time * (r + 1) / p};
    s.early = (s.from + 1) / 2;
    s.middle = s.from + (s.to + 1) / 2 - s.early;
    s.late = time - s.to / 2;
    return s;
}

int64_t sk_zigzag_run(int64_t i, int64_t time, int p, int64_t *n)
{
    sk_assert(i >= 0 && i < time);
    if (p <= 1) {
        *n = time - i;
        return i;
    }
    stretch s = piece_with(i, time, p);
    *n = (i < s.middle ? s.middle : s.to) - i;
    return i < s.middle ? s.early + i - s.from : s.late + i - s.middle;
}

int64_t sk_zigzag(int64_t i, int64_t time, int p)
{
    int64_t n;
    return sk_zigzag_run(i, time, p, &n);
}

/* Early chunks up to S(r) took (S(r)+1)/2 positions from the front, late ones S(r)/2 from the back:
 * so position x is early in the piece with index 2x, the one z before the last late in that with
 * 2z+1. */
int64_t sk_zigzag_index(int64_t position, int64_t time, int p)
{
    sk_assert(position >= 0 && position < time);
    if (p <= 1) return position;
    bool early = position < (time + 1) / 2;
    stretch s = piece_with(early ? 2 * position : 2 * (time - 1 - position) + 1, time, p);
    return early ? s.from + position - s.early : s.middle + position - s.late;
}
