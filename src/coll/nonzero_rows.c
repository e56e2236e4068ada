/* nonzero_rows.c - rows that are not zeros, with their numbers. */
#include "coll/nonzero_rows.h"

#include "coll/codec_select.h"

#include <string.h>

enum { WIDE = 4 };

sk_codec sk_nonzero_rows(int64_t unit, int64_t room)
{
    return (sk_codec){.name = "rows", .doc = "rows that are not zeros", .unit = unit, .room = room};
}

int64_t sk_nonzero_rows_bytes(const sk_codec *c)
{
    return WIDE + c->room * (WIDE + c->unit * (int64_t)sizeof(float));
}

static float *values(const sk_codec *c, uint8_t *code)
{
    return (float *)(void *)(code + WIDE + c->room * WIDE);
}

/* A number that is not finite, and -0, are no zeros. */
static bool empty(const sk_codec *c, const sk_code_row *r, int64_t row)
{
    float x[SK_CODEC_RUN];
    uint32_t any = 0;
    for (int64_t at = 0, n; at < c->unit && !any; at += n) {
        n = c->unit - at < SK_CODEC_RUN ? c->unit - at : SK_CODEC_RUN;
        r->read(r->of, row * c->unit + at, n, x);
        for (int64_t i = 0; i < n; i++) {
            uint32_t bits;
            memcpy(&bits, &x[i], sizeof bits);
            any |= bits;
        }
    }
    return !any;
}

void sk_nonzero_rows_put(const sk_codec *c, const sk_code_row *r, uint8_t *to)
{
    int64_t sent = 0;
    for (int64_t row = 0; row < r->n / c->unit; row++) {
        if (empty(c, r, row)) continue;
        sk_assert(sent < c->room);
        sk_index_put(to + WIDE, WIDE, sent, row);
        r->read(r->of, row * c->unit, c->unit, values(c, to) + sent++ * c->unit);
    }
    sk_index_put(to, WIDE, 0, sent);
    memset(to + WIDE + sent * WIDE, 0, (size_t)((c->room - sent) * WIDE));
}

void sk_nonzero_rows_get(const sk_codec *c, const uint8_t *from, int64_t at, int64_t n, float *to)
{
    int64_t sent = sk_index_get(from, WIDE, 0);
    const uint8_t *rows = from + WIDE, *value = rows + c->room * WIDE;
    if (sent > c->room) sent = c->room;
    memset(to, 0, (size_t)n * sizeof *to);
    for (int64_t i = sk_index_find(rows, WIDE, sent, at / c->unit); i < sent; i++) {
        int64_t first = sk_index_get(rows, WIDE, i) * c->unit - at, skip = first < 0 ? -first : 0;
        int64_t end = first + c->unit < n ? first + c->unit : n;
        if (first >= n) return;
        if (end > first + skip)
            memcpy(to + first + skip, value + (i * c->unit + skip) * (int64_t)sizeof *to,
                   (size_t)(end - first - skip) * sizeof *to);
    }
}
