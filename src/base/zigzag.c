/* zigzag.c - see zigzag.h. */
#include "base/zigzag.h"
#include "base/status.h"

int64_t sk_zigzag_run(int64_t i, int64_t time, int p, int64_t *n)
{
    sk_assert(i >= 0 && i < time);
    if (p <= 1) {
        *n = time - i;
        return i;
    }
    int64_t r = ((i + 1) * p - 1) / time; /* the rank whose piece i is in */
    int64_t from = time * r / p, to = time * (r + 1) / p;
    int64_t early = (from + 1) / 2, middle = from + (to + 1) / 2 - early;
    *n = (i < middle ? middle : to) - i;
    return i < middle ? early + i - from : time - to / 2 + i - middle;
}

int64_t sk_zigzag(int64_t i, int64_t time, int p)
{
    int64_t n;
    return sk_zigzag_run(i, time, p, &n);
}

int64_t sk_zigzag_index(int64_t position, int64_t time, int p)
{
    for (int64_t r = 0; r < p && p > 1; r++) {
        int64_t from = time * r / p, to = time * (r + 1) / p;
        int64_t early = (from + 1) / 2, middle = from + (to + 1) / 2 - early, late = time - to / 2;
        if (position >= early && position < early + middle - from) return from + position - early;
        if (position >= late && position < late + to - middle) return middle + position - late;
    }
    return position;
}
