/* holes.c - see holes.h. */
#include "program/holes.h"

#include <string.h>

/* The first of the smallest that have the room; -1: none.  Without branches in the first loop,
 * whose outcomes nobody could predict. */
static int best_of(const sk_holes *h, int64_t size)
{
    int64_t least = INT64_MAX;
    int i = 0;
    for (int k = 0; k < h->n; k++) {
        int64_t room = h->v[k].size < size ? INT64_MAX : h->v[k].size;
        least = room < least ? room : least;
    }
    if (least == INT64_MAX) return -1;
    while (h->v[i].size != least) i++;
    return i;
}

int64_t sk_holes_take(sk_holes *h, int64_t size)
{
    if (!size) return 0;
    int best = best_of(h, size);
    if (best < 0) { /* at the end, using the last hole if it reaches there */
        int64_t at = h->top;
        if (h->n && h->v[h->n - 1].at + h->v[h->n - 1].size == h->top) at = h->v[--h->n].at;
        h->top = at + size;
        return at;
    }
    int64_t at = h->v[best].at;
    h->v[best].at += size;
    h->v[best].size -= size;
    if (!h->v[best].size) {
        memmove(&h->v[best], &h->v[best + 1], sizeof(sk_hole) * (size_t)(h->n - best - 1));
        h->n--;
    }
    return at;
}

void sk_holes_give(sk_holes *h, int64_t at, int64_t size)
{
    int i = 0;
    if (!size) return;
    while (i < h->n && h->v[i].at < at) i++;
    bool below = i > 0 && h->v[i - 1].at + h->v[i - 1].size == at;
    bool above = i < h->n && at + size == h->v[i].at;
    if (below && above) {
        h->v[i - 1].size += size + h->v[i].size;
        memmove(&h->v[i], &h->v[i + 1], sizeof(sk_hole) * (size_t)(h->n - i - 1));
        h->n--;
    } else if (below) h->v[i - 1].size += size;
    else if (above) h->v[i].at = at, h->v[i].size += size;
    else {
        (void)sk_push(h->arena, h);
        memmove(&h->v[i + 1], &h->v[i], sizeof(sk_hole) * (size_t)(h->n - 1 - i));
        h->v[i] = (sk_hole){at, size};
    }
}
