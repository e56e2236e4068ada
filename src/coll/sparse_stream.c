/* sparse_stream.c - packing and unpacking of index-value streams.
 *
 * Everything that comes from outside is checked before it is used: kind, count, length, and that
 * row numbers rise and exist.  Numbers and values are moved with memcpy, because behind an odd
 * number of 4-byte indices a double is not aligned. */
#include "coll/sparse_stream.h"

typedef struct head {
    uint32_t kind, zero; /* zero: must be */
    int64_t count;       /* dense: values; rows: how many */
} head;
_Static_assert(sizeof(head) == SK_STREAM_HEAD, "the head has no holes");

typedef struct rows { /* how a vector is cut */
    int64_t n;        /* rows */
    int64_t bytes;    /* of a row */
    int64_t last;     /* of the last one */
    int64_t all;      /* of the vector */
    int64_t index;    /* of a row number */
} rows;

static rows cut(sk_dtype type, int64_t n, int64_t row)
{
    sk_assert(n >= 0 && row > 0);
    int64_t size = (int64_t)sk_dtype_size(type), k = n / row + (n % row > 0);
    return (rows){.n = k,
                  .bytes = k > 1 ? row * size : n * size,
                  .last = k ? (n - (k - 1) * row) * size : 0,
                  .all = n * size,
                  .index = k < INT64_C(1) << 32 ? 4 : 8};
}

static inline int64_t width(const rows *r, int64_t i) { return i == r->n - 1 ? r->last : r->bytes; }

static inline bool zero8(const char *p)
{
    uint64_t u;
    memcpy(&u, p, 8);
    return !u;
}

static inline bool zero4(const char *p)
{
    uint32_t u;
    memcpy(&u, p, 4);
    return !u;
}

/* Rows of one value are common (the largest entries of a gradient), so 4 bytes have their own
 * way. */
static inline bool empty(const char *p, int64_t bytes)
{
    if (bytes == 4) return zero4(p);
    for (; bytes >= 8; p += 8, bytes -= 8)
        if (!zero8(p)) return false;
    for (; bytes > 0; p++, bytes--)
        if (*p) return false;
    return true;
}

/* Bytes behind the head of a stream of `count` rows, the last row of the vector among them or
 * not. */
static int64_t body(const rows *r, int64_t count, bool last)
{
    return count * (r->index + r->bytes) - (last ? r->bytes - r->last : 0);
}

/* Rows that are not zero; stops counting where dense is as short, and returns -1. */
static int64_t full_rows(const rows *r, const char *x)
{
    int64_t count = 0, most = r->all / (r->index + r->bytes) + 1;
    for (int64_t i = 0; i < r->n; i++) {
        count += !empty(x + i * r->bytes, width(r, i));
        if (count > most) return -1;
    }
    bool last = r->n && !empty(x + (r->n - 1) * r->bytes, r->last);
    return body(r, count, last) < r->all ? count : -1;
}

static inline void put_index(char *to, const rows *r, int64_t i)
{
    uint32_t u = (uint32_t)i;
    if (r->index == 4) memcpy(to, &u, 4);
    else memcpy(to, &i, 8);
}

static inline int64_t get_index(const char *from, const rows *r)
{
    uint32_t u;
    int64_t i;
    if (r->index == 4) return memcpy(&u, from, 4), (int64_t)u;
    return memcpy(&i, from, 8), i;
}

/* Returns the end of what it wrote. */
static char *put_rows(const rows *r, const char *x, int64_t count, char *to)
{
    char *value = to + count * r->index;
    for (int64_t i = 0; i < r->n; i++) {
        const char *p = x + i * r->bytes;
        int64_t w = width(r, i);
        if (empty(p, w)) continue;
        put_index(to, r, i);
        memcpy(value, p, (size_t)w);
        to += r->index;
        value += w;
    }
    return value;
}

int64_t sk_stream_most(sk_dtype type, int64_t n, int64_t row)
{
    return SK_STREAM_HEAD + cut(type, n, row).all;
}

int64_t sk_stream_pack(sk_dtype type, const void *x, int64_t n, int64_t row, void *to)
{
    rows r = cut(type, n, row);
    int64_t count = full_rows(&r, x);
    head h = {count < 0 ? SK_STREAM_DENSE : SK_STREAM_ROWS, 0, count < 0 ? n : count};
    char *at = to;
    memcpy(at, &h, sizeof h);
    if (count >= 0) return put_rows(&r, x, count, at + sizeof h) - at;
    if (r.all) memcpy(at + sizeof h, x, (size_t)r.all);
    return SK_STREAM_HEAD + r.all;
}

/* Is the length what the head says?  For rows this makes sure that the indices can be read. */
static sk_status fits(const rows *r, const head *h, const char *body_at, int64_t left, int64_t n)
{
    if (h->kind > SK_STREAM_ROWS || h->zero)
        return sk_fail(SK_EPEER, "stream: a message of kind %u.%u, 0 (dense) or 1 (rows) is needed",
                       h->kind, h->zero);
    if (h->kind == SK_STREAM_DENSE && (h->count != n || left != r->all))
        return sk_fail(SK_EPEER, "stream: %lld dense values in %lld bytes, %lld in %lld are needed",
                       (long long)h->count, (long long)left, (long long)n, (long long)r->all);
    if (h->kind == SK_STREAM_DENSE) return SK_OK;
    if (h->count < 0 || h->count > r->n || left < h->count * r->index)
        return sk_fail(SK_EPEER, "stream: %lld rows in %lld bytes, the vector has %lld rows",
                       (long long)h->count, (long long)left, (long long)r->n);
    bool last = h->count && get_index(body_at + (h->count - 1) * r->index, r) == r->n - 1;
    if (left != body(r, h->count, last))
        return sk_fail(SK_EPEER, "stream: %lld rows in %lld bytes, they need %lld",
                       (long long)h->count, (long long)left, (long long)body(r, h->count, last));
    return SK_OK;
}

static sk_status get_rows(const rows *r, int64_t count, const char *from, char *x)
{
    const char *value = from + count * r->index;
    int64_t next = 0; /* first row that is not written yet */
    for (int64_t k = 0; k < count; k++, from += r->index) {
        int64_t i = get_index(from, r);
        if (i < next || i >= r->n)
            return sk_fail(SK_EPEER, "stream: entry %lld is row %lld, one in %lld .. %lld is due",
                           (long long)k, (long long)i, (long long)next, (long long)r->n - 1);
        memset(x + next * r->bytes, 0, (size_t)((i - next) * r->bytes));
        memcpy(x + i * r->bytes, value, (size_t)width(r, i));
        value += width(r, i);
        next = i + 1;
    }
    if (next < r->n) memset(x + next * r->bytes, 0, (size_t)(r->all - next * r->bytes));
    return SK_OK;
}

sk_status sk_stream_unpack(sk_dtype type, const void *from, int64_t bytes, void *x, int64_t n,
                           int64_t row)
{
    rows r = cut(type, n, row);
    const char *at = from;
    head h;
    if (bytes < SK_STREAM_HEAD)
        return sk_fail(SK_EPEER, "stream: a message of %lld bytes, the head alone has %d",
                       (long long)bytes, SK_STREAM_HEAD);
    memcpy(&h, at, sizeof h);
    at += sizeof h;
    SK_TRY(fits(&r, &h, at, bytes - SK_STREAM_HEAD, n));
    if (h.kind == SK_STREAM_ROWS) return get_rows(&r, h.count, at, x);
    if (r.all) memcpy(x, at, (size_t)r.all);
    return SK_OK;
}
