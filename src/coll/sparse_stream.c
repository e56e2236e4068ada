/* sparse_stream.c - packing and unpacking of index-value streams.
 *
 * Everything that comes from outside is checked before it is used: kind, count, length, and that
 * row numbers rise and exist.  Numbers and values are moved with memcpy, because behind an odd
 * number of 4-byte indices a double is not aligned. */
#include "coll/sparse_stream.h"
#include "coll/sum_kernels.h"

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

int64_t sk_stream_room(sk_dtype type, int64_t n, int64_t row, int64_t most)
{
    rows r = cut(type, n, row);
    bool dense = most > r.n || most >= r.all / (r.index + r.bytes) + 1;
    return SK_STREAM_HEAD + (dense ? r.all : body(&r, most, false));
}

int64_t sk_stream_pack(sk_dtype type, const void *x, int64_t n, int64_t row, void *to)
{
    return sk_stream_pack_into(type, x, n, row, to, INT64_MAX);
}

int64_t sk_stream_pack_into(sk_dtype type, const void *x, int64_t n, int64_t row, void *to,
                            int64_t room)
{
    rows r = cut(type, n, row);
    int64_t count = full_rows(&r, x);
    head h = {count < 0 ? SK_STREAM_DENSE : SK_STREAM_ROWS, 0, count < 0 ? n : count};
    char *at = to;
    bool last = count > 0 && !empty((const char *)x + (r.n - 1) * r.bytes, r.last);
    if (SK_STREAM_HEAD + (count < 0 ? r.all : body(&r, count, last)) > room) return -1;
    memcpy(at, &h, sizeof h);
    if (count >= 0) return put_rows(&r, x, count, at + sizeof h) - at;
    if (r.all) memcpy(at + sizeof h, x, (size_t)r.all);
    return SK_STREAM_HEAD + r.all;
}

/* Is there as much as the head says?  For rows this makes sure that the indices can be read.  What
 * is behind the vector is not looked at. */
static sk_status fits(const rows *r, const head *h, const char *body_at, int64_t left, int64_t n,
                      int64_t *bytes)
{
    *bytes = r->all;
    if (h->kind > SK_STREAM_ROWS || h->zero)
        return sk_fail(SK_EPEER, "stream: a message of kind %u.%u, 0 (dense) or 1 (rows) is needed",
                       h->kind, h->zero);
    if (h->kind == SK_STREAM_DENSE && (h->count != n || left < r->all))
        return sk_fail(SK_EPEER, "stream: %lld dense values in %lld bytes, %lld in %lld are needed",
                       (long long)h->count, (long long)left, (long long)n, (long long)r->all);
    if (h->kind == SK_STREAM_DENSE) return SK_OK;
    if (h->count < 0 || h->count > r->n || left < h->count * r->index)
        return sk_fail(SK_EPEER, "stream: %lld rows in %lld bytes, the vector has %lld rows",
                       (long long)h->count, (long long)left, (long long)r->n);
    bool last = h->count && get_index(body_at + (h->count - 1) * r->index, r) == r->n - 1;
    *bytes = body(r, h->count, last);
    if (left < *bytes)
        return sk_fail(SK_EPEER, "stream: %lld rows in %lld bytes, they need %lld",
                       (long long)h->count, (long long)left, (long long)*bytes);
    return SK_OK;
}

static sk_status begin(const rows *r, const char *from, int64_t left, int64_t n, head *h,
                       int64_t *bytes)
{
    if (left < SK_STREAM_HEAD)
        return sk_fail(SK_EPEER, "stream: a message of %lld bytes, the head alone has %d",
                       (long long)left, SK_STREAM_HEAD);
    memcpy(h, from, sizeof *h);
    SK_TRY(fits(r, h, from + SK_STREAM_HEAD, left - SK_STREAM_HEAD, n, bytes));
    *bytes += SK_STREAM_HEAD;
    return SK_OK;
}

static sk_status in_order(const rows *r, int64_t k, int64_t i, int64_t next)
{
    if (i >= next && i < r->n) return SK_OK;
    return sk_fail(SK_EPEER, "stream: entry %lld is row %lld, one in %lld .. %lld is due",
                   (long long)k, (long long)i, (long long)next, (long long)r->n - 1);
}

static sk_status get_rows(const rows *r, int64_t count, const char *from, char *x)
{
    const char *value = from + count * r->index;
    int64_t next = 0; /* first row that is not written yet */
    for (int64_t k = 0; k < count; k++, from += r->index) {
        int64_t i = get_index(from, r);
        SK_TRY(in_order(r, k, i, next));
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
    int64_t used;
    head h;
    SK_TRY(begin(&r, at, bytes, n, &h, &used));
    if (used != bytes)
        return sk_fail(SK_EPEER, "stream: %s in %lld bytes, they need %lld",
                       h.kind == SK_STREAM_ROWS ? "rows" : "dense values", (long long)bytes,
                       (long long)used);
    at += sizeof h;
    if (h.kind == SK_STREAM_ROWS) return get_rows(&r, h.count, at, x);
    if (r.all) memcpy(x, at, (size_t)r.all);
    return SK_OK;
}

/* --- sums --- */

sk_status sk_stream_check(sk_dtype type, const void *from, int64_t left, int64_t n, int64_t row,
                          int64_t *bytes)
{
    rows r = cut(type, n, row);
    const char *at = (const char *)from + SK_STREAM_HEAD;
    head h;
    SK_TRY(begin(&r, from, left, n, &h, bytes));
    for (int64_t k = 0, next = 0; h.kind == SK_STREAM_ROWS && k < h.count; k++, at += r.index) {
        int64_t i = get_index(at, &r);
        SK_TRY(in_order(&r, k, i, next));
        next = i + 1;
    }
    return SK_OK;
}

int64_t sk_stream_bytes(sk_dtype type, const void *from, int64_t n, int64_t row)
{
    rows r = cut(type, n, row);
    const char *at = (const char *)from + SK_STREAM_HEAD;
    head h;
    memcpy(&h, from, sizeof h);
    if (h.kind == SK_STREAM_DENSE) return SK_STREAM_HEAD + r.all;
    bool last = h.count && get_index(at + (h.count - 1) * r.index, &r) == r.n - 1;
    return SK_STREAM_HEAD + body(&r, h.count, last);
}

typedef struct cursor { /* the rows of a stream, one after the other */
    const char *index, *value;
    int64_t left, at; /* rows that are left; the number of the first, or that behind the last row */
    bool dense;
} cursor;

typedef struct merge { /* k streams, row by row */
    rows r;
    int k;
    bool last; /* the last row of the vector was taken */
    cursor v[SK_STREAM_MOST];
    const char *row[SK_STREAM_MOST]; /* what was taken; NULL: zeros */
} merge;

static void open_rows(merge *m, const void *const *from, int k)
{
    m->k = k;
    m->last = false;
    for (int j = 0; j < k; j++) {
        head h;
        memcpy(&h, from[j], sizeof h);
        const char *at = (const char *)from[j] + SK_STREAM_HEAD;
        cursor *c = &m->v[j];
        *c = (cursor){.index = at, .value = at, .left = h.count, .at = m->r.n};
        if (h.kind == SK_STREAM_DENSE) {
            *c = (cursor){.value = at, .left = m->r.n, .at = m->r.n ? 0 : m->r.n, .dense = true};
            continue;
        }
        c->value += h.count * m->r.index;
        if (c->left) c->at = get_index(at, &m->r);
    }
}

/* The number of the next row that one of them has; that behind the last row at the end. */
static int64_t next_row(const merge *m)
{
    int64_t least = m->r.n;
    for (int j = 0; j < m->k; j++)
        if (m->v[j].at < least) least = m->v[j].at;
    return least;
}

static void take_row(merge *m, int64_t i)
{
    m->last |= i == m->r.n - 1;
    for (int j = 0; j < m->k; j++) {
        cursor *c = &m->v[j];
        m->row[j] = NULL;
        if (c->at != i) continue;
        m->row[j] = c->value;
        c->value += width(&m->r, i);
        if (!c->dense) c->index += m->r.index;
        c->at = !--c->left ? m->r.n : c->dense ? i + 1 : get_index(c->index, &m->r);
    }
}

/* Rows wait here until there are enough for a sum. */
typedef struct adder {
    sk_dtype type;
    sk_reduce reduce;
    int64_t size, each, used; /* bytes of an element, for each operand, of them in use */
    char *to;
    _Alignas(32) char part[SK_STREAM_MOST * 64]; /* as far as stack frames of ASan are aligned */
} adder;

static void flush(adder *a, int k)
{
    const void *src[SK_STREAM_MOST];
    void *dst[] = {a->part};
    for (int j = 0; j < k; j++) src[j] = a->part + j * a->each;
    sk_sum(a->type, a->reduce, k, src, 1, dst, a->used / a->size);
    memcpy(a->to, a->part, (size_t)a->used);
    a->to += a->used;
    a->used = 0;
}

static void add_row(adder *a, const merge *m, int64_t bytes)
{
    for (int64_t at = 0, n; at < bytes; at += n) {
        n = bytes - at < a->each - a->used ? bytes - at : a->each - a->used;
        for (int j = 0; j < m->k; j++) {
            char *to = a->part + j * a->each + a->used;
            if (!m->row[j]) memset(to, 0, (size_t)n);
            else if (n == 4) memcpy(to, m->row[j] + at, 4);
            else memcpy(to, m->row[j] + at, (size_t)n);
        }
        a->used += n;
        if (a->used == a->each) flush(a, m->k);
    }
}

static void put_sum(merge *m, adder *a, int64_t count, char *to)
{
    const rows *r = &m->r;
    char *index = to;
    a->to = to + (count < 0 ? 0 : count * r->index);
    for (int64_t i = 0; (i = count < 0 ? i : next_row(m)) < r->n; i++) {
        take_row(m, i);
        if (count >= 0) put_index(index, r, i), index += r->index;
        add_row(a, m, width(r, i));
    }
    if (a->used) flush(a, m->k);
}

int64_t sk_stream_merge(sk_dtype type, sk_reduce reduce, int k, const void *const *from, int64_t n,
                        int64_t row, void *to, int64_t room)
{
    merge m = {.r = cut(type, n, row)};
    adder a = {.type = type,
               .reduce = reduce,
               .size = (int64_t)sk_dtype_size(type),
               .each = SK_STREAM_MOST / k * 64};
    int64_t count = 0;
    sk_assert(k > 0 && k <= SK_STREAM_MOST);
    open_rows(&m, from, k);
    bool dense = false;
    for (int j = 0; j < k; j++) dense |= m.v[j].dense;
    for (int64_t i; !dense && (i = next_row(&m)) < m.r.n;
         dense = body(&m.r, ++count, true) >= m.r.all)
        take_row(&m, i);
    int64_t bytes = body(&m.r, count, m.last);
    if (dense || bytes >= m.r.all) count = -1, bytes = m.r.all;
    if (SK_STREAM_HEAD + bytes > room) return -1;
    head h = {count < 0 ? SK_STREAM_DENSE : SK_STREAM_ROWS, 0, count < 0 ? n : count};
    memcpy(to, &h, sizeof h);
    open_rows(&m, from, k);
    put_sum(&m, &a, count, (char *)to + SK_STREAM_HEAD);
    return SK_STREAM_HEAD + bytes;
}
