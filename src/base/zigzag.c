/* zigzag.c - see zigzag.h. */
#include "base/zigzag.h"
#include "base/status.h"

#include <stdbool.h>

int64_t sk_zigzag_run(int64_t i, int64_t time, int p, int64_t *n)
{
    sk_assert(i >= 0 && i < time);
    if (p <= 1) {
        *n = time - i;
        return i;
    }
    sk_stretch s = sk_zigzag_stretch(i, time, p);
    *n = (i < s.middle ? s.middle : s.to) - i;
    return sk_zigzag(i, time, p);
}

/* Early chunks up to S(r) took (S(r)+1)/2 positions from the front, late ones S(r)/2 from the back:
 * so position x is early in the shard with index 2x, the one z before the last late in that with
 * 2z+1. */
int64_t sk_zigzag_index(int64_t position, int64_t time, int p)
{
    sk_assert(position >= 0 && position < time);
    if (p <= 1) return position;
    bool early = position < (time + 1) / 2;
    int64_t i = early ? 2 * position : 2 * (time - 1 - position) + 1;
    sk_stretch s = sk_zigzag_stretch(i, time, p);
    return early ? s.from + position - s.early : s.middle + position - s.late;
}
