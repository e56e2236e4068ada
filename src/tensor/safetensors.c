/* safetensors.c - strict reading and streamed writing of tensor files. */
#include "tensor/safetensors.h"
#include "base/hash.h"
#include "tensor/strict.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- types ---- */

/* Every whole-byte type of the format. */
static const struct {
    const char *name;
    sk_dtype type;
    int64_t width;
} types[] = {{"F32", SK_F32, 4},
             {"BF16", SK_BF16, 2},
             {"F16", SK_F16, 2},
             {"F64", SK_F64, 8},
             {"I32", SK_I32, 4},
             {"I64", SK_I64, 8},
             {"U8", SK_U8, 1},
             {"BOOL", SK_N_DTYPES, 1},
             {"I8", SK_N_DTYPES, 1},
             {"F8_E5M2", SK_N_DTYPES, 1},
             {"F8_E4M3", SK_N_DTYPES, 1},
             {"F8_E8M0", SK_N_DTYPES, 1},
             {"I16", SK_N_DTYPES, 2},
             {"U16", SK_N_DTYPES, 2},
             {"U32", SK_N_DTYPES, 4},
             {"U64", SK_N_DTYPES, 8},
             {"C64", SK_N_DTYPES, 8}};
enum { N_TYPES = sizeof types / sizeof *types };

static int type_find(const char *name)
{
    for (int i = 0; i < N_TYPES; i++)
        if (!strcmp(types[i].name, name)) return i;
    return -1;
}

/* Bytes of a tensor; false if a size is negative or the product does not fit. */
static bool measure(const int64_t *size, int n, int64_t width, int64_t *bytes)
{
    *bytes = width;
    for (int i = 0; i < n; i++)
        if (size[i] < 0 || __builtin_mul_overflow(*bytes, size[i], bytes)) return false;
    return true;
}

/* ---- reading the header ---- */

static bool whole_numbers(const json_t *list, int most, int64_t *to, int *n)
{
    size_t count = json_array_size(list); /* 0 if it is no array */
    if (!json_is_array(list) || count > (size_t)most) return false;
    for (size_t i = 0; i < count; i++) {
        const json_t *x = json_array_get(list, i);
        if (!json_is_integer(x) || json_integer_value(x) < 0) return false;
        to[i] = json_integer_value(x);
    }
    *n = (int)count;
    return true;
}

static sk_status read_tensor(const char *where, const char *key, const json_t *entry,
                             int64_t data_bytes, sk_st_tensor *t)
{
    int64_t offsets[2], bytes = 0;
    int two = 0;
    const sk_shown shown = sk_strict_show(key);
    const char *dtype = json_string_value(json_object_get(entry, "dtype"));
    if (!sk_strict_label(key, SK_ST_NAME))
        return sk_fail(SK_EDATA,
                       "%s: the tensor name '%s' is empty, over %d bytes or has control characters",
                       where, shown.s, SK_ST_NAME);
    if (!dtype || json_object_size(entry) != 3)
        return sk_fail(SK_EDATA, "%s: '%s' needs exactly dtype, shape and data_offsets", where,
                       shown.s);
    int k = type_find(dtype);
    if (k < 0)
        return sk_fail(SK_EDATA, "%s: '%s' has the unknown dtype '%s'", where, shown.s,
                       sk_strict_show(dtype).s);
    if (!whole_numbers(json_object_get(entry, "shape"), SK_ST_DIM, t->size, &t->n))
        return sk_fail(SK_EDATA, "%s: the shape of '%s' is not a list of at most %d whole numbers",
                       where, shown.s, SK_ST_DIM);
    if (!whole_numbers(json_object_get(entry, "data_offsets"), 2, offsets, &two) || two != 2)
        return sk_fail(SK_EDATA, "%s: data_offsets of '%s' are not two whole numbers", where,
                       shown.s);
    if (offsets[0] > offsets[1] || offsets[1] > data_bytes)
        return sk_fail(SK_EDATA, "%s: '%s' is said to lie in bytes %lld to %lld of %lld", where,
                       shown.s, (long long)offsets[0], (long long)offsets[1],
                       (long long)data_bytes);
    if (!measure(t->size, t->n, types[k].width, &bytes))
        return sk_fail(SK_EDATA, "%s: the size of '%s' does not fit in 63 bits", where, shown.s);
    if (bytes != offsets[1] - offsets[0])
        return sk_fail(SK_EDATA, "%s: '%s' has %lld bytes by its shape, %lld by its offsets", where,
                       shown.s, (long long)bytes, (long long)(offsets[1] - offsets[0]));
    t->type = types[k].type;
    t->dtype = types[k].name;
    t->begin = offsets[0];
    t->end = offsets[1];
    return SK_OK;
}

static sk_status read_meta(sk_arena *a, const char *where, json_t *meta, sk_st *st)
{
    const char *key;
    json_t *value;
    if (!json_is_object(meta)) return sk_fail(SK_EDATA, "%s: __metadata__ is no mapping", where);
    st->meta = sk_many(a, sk_st_pair, json_object_size(meta));
    json_object_foreach(meta, key, value)
    {
        if (!json_is_string(value))
            return sk_fail(SK_EDATA, "%s: __metadata__ '%s' is no text", where,
                           sk_strict_show(key).s);
        st->meta[st->n_meta++] =
            (sk_st_pair){sk_strdup(a, key), sk_strdup(a, json_string_value(value))};
    }
    return SK_OK;
}

static int by_place(const void *x, const void *y)
{
    const sk_st_tensor *a = x, *b = y;
    if (a->begin != b->begin) return a->begin < b->begin ? -1 : 1;
    if (a->end != b->end) return a->end < b->end ? -1 : 1;
    return strcmp(a->name, b->name); /* several empty ones at one place */
}

static int by_name(const void *x, const void *y)
{
    return strcmp((*(const sk_st_tensor *const *)x)->name, (*(const sk_st_tensor *const *)y)->name);
}

/* In file order each tensor starts where the one before ended, and the last ends the file. */
static sk_status check_cover(const sk_st *st)
{
    int64_t at = 0;
    for (int i = 0; i < st->n; i++) {
        const sk_st_tensor *t = &st->tensor[i];
        if (t->begin != at)
            return sk_fail(SK_EDATA, "%s: '%s' starts at byte %lld, needed %lld: %s", st->where,
                           sk_strict_show(t->name).s, (long long)t->begin, (long long)at,
                           t->begin < at ? "tensors overlap" : "there is a hole");
        at = t->end;
    }
    if (at != st->bytes)
        return sk_fail(SK_EDATA, "%s: the tensors end at byte %lld of %lld: the rest is nobody's",
                       st->where, (long long)at, (long long)st->bytes);
    return SK_OK;
}

static sk_status read_header(sk_arena *a, json_t *root, sk_st *st)
{
    const char *key;
    json_t *value;
    size_t n = json_object_size(root);
    if (!json_is_object(root)) return sk_fail(SK_EDATA, "%s: the header is no mapping", st->where);
    if (n > SK_ST_TENSORS)
        return sk_fail(SK_EDATA, "%s: %zu tensors, at most %d make sense", st->where, n,
                       SK_ST_TENSORS);
    st->tensor = sk_many(a, sk_st_tensor, n);
    json_object_foreach(root, key, value)
    {
        if (!strcmp(key, "__metadata__")) {
            SK_TRY(read_meta(a, st->where, value, st));
            continue;
        }
        sk_st_tensor *t = &st->tensor[st->n++];
        SK_TRY(read_tensor(st->where, key, value, st->bytes, t));
        t->name = sk_strdup(a, key);
    }
    if (st->n) qsort(st->tensor, (size_t)st->n, sizeof *st->tensor, by_place);
    SK_TRY(check_cover(st));
    st->by_name = sk_many(a, const sk_st_tensor *, st->n);
    for (int i = 0; i < st->n; i++) st->by_name[i] = &st->tensor[i];
    if (st->n) qsort(st->by_name, (size_t)st->n, sizeof *st->by_name, by_name);
    return SK_OK;
}

sk_status sk_st_parse(sk_arena *a, const char *where, const char *header, size_t n, int64_t bytes,
                      sk_st *out)
{
    /* The shortest entry has 50 bytes, and 14 values with eight dims in 68. */
    const sk_strict most = {
        .depth = 3, .objects = (int64_t)n / 48 + 2, .values = (int64_t)n / 4 + 8};
    sk_st st = {.where = sk_strdup(a, where), .fd = -1, .bytes = bytes};
    json_t *root = NULL;
    if (!n || header[0] != '{')
        return sk_fail(SK_EDATA, "%s: the header does not start with '{': not safetensors", where);
    SK_TRY(sk_strict_json(where, header, n, &most, &root));
    sk_status status = read_header(a, root, &st);
    json_decref(root);
    if (status) return sk_trail(status, SK_HERE);
    *out = st;
    return SK_OK;
}

static sk_status open_fd(sk_arena *a, int fd, int64_t size, const char *where, int64_t cap,
                         sk_st *out)
{
    uint64_t n = 0;
    if (size < 8)
        return sk_fail(SK_EDATA, "%s has %lld bytes, a safetensors file at least 10", where,
                       (long long)size);
    SK_TRY(sk_file_pread(fd, where, &n, 8, 0));
    n = le64toh(n);
    if (n > (uint64_t)size - 8)
        return sk_fail(SK_EDATA, "%s: a header of %llu bytes in a file of %lld", where,
                       (unsigned long long)n, (long long)size);
    if (n > (uint64_t)cap)
        return sk_fail(SK_EDATA, "%s: a header of %llu bytes, at most %lld are read", where,
                       (unsigned long long)n, (long long)cap);
    sk_arena scratch = {0};
    char *text = sk_alloc(&scratch, (size_t)n + 1);
    sk_status status = sk_file_pread(fd, where, text, (size_t)n, 8);
    if (!status) status = sk_st_parse(a, where, text, (size_t)n, size - 8 - (int64_t)n, out);
    sk_arena_end(&scratch);
    if (status) return sk_trail(status, SK_HERE);
    out->fd = fd;
    out->data = 8 + (int64_t)n;
    return SK_OK;
}

sk_status sk_st_open_at(sk_arena *a, int dir, const char *name, const char *where,
                        int64_t header_cap, sk_st *out)
{
    int fd = -1;
    int64_t size = 0;
    if (header_cap <= 0) header_cap = SK_ST_HEADER;
    if (header_cap > SK_ST_HEADER_MOST) header_cap = SK_ST_HEADER_MOST;
    SK_TRY(sk_strict_open(dir, name, where, &fd, &size));
    sk_status status = open_fd(a, fd, size, where, header_cap, out);
    if (status) {
        close(fd);
        return sk_trail(status, SK_HERE);
    }
    return SK_OK;
}

sk_status sk_st_open(sk_arena *a, const char *path, sk_st *out)
{
    return sk_st_open_at(a, AT_FDCWD, path, path, 0, out);
}

void sk_st_close(sk_st *st)
{
    if (st->fd >= 0) close(st->fd);
    st->fd = -1;
}

const sk_st_tensor *sk_st_find(const sk_st *st, const char *name)
{
    int lo = 0, hi = st->n;
    while (lo < hi) {
        int mid = lo + (hi - lo) / 2, c = strcmp(st->by_name[mid]->name, name);
        if (!c) return st->by_name[mid];
        if (c < 0) lo = mid + 1;
        else hi = mid;
    }
    return NULL;
}

sk_status sk_st_read(const sk_st *st, const sk_st_tensor *t, int64_t at, int64_t n, void *to)
{
    int64_t bytes = t->end - t->begin;
    sk_assert(at >= 0 && n >= 0 && at <= bytes && n <= bytes - at);
    return sk_file_pread(st->fd, st->where, to, (size_t)n, st->data + t->begin + at);
}

/* ---- writing ---- */

/* Give each tensor its place; *bytes is the size of the data. */
static sk_status place(const char *where, sk_st_tensor *t, int n, int64_t *bytes)
{
    *bytes = 0;
    for (int i = 0; i < n; i++) {
        int64_t size = 0;
        sk_assert(t[i].type < SK_N_DTYPES && t[i].n <= SK_ST_DIM);
        t[i].dtype = sk_dtype_st_name(t[i].type);
        t[i].begin = *bytes;
        if (!sk_strict_label(t[i].name, SK_ST_NAME) || !strcmp(t[i].name, "__metadata__"))
            return sk_fail(SK_EDATA, "%s: a tensor cannot be called '%s'", where,
                           sk_strict_show(t[i].name).s);
        if (!measure(t[i].size, t[i].n, types[type_find(t[i].dtype)].width, &size) ||
            __builtin_add_overflow(*bytes, size, bytes))
            return sk_fail(SK_EDATA, "%s: the size of '%s' does not fit in 63 bits", where,
                           sk_strict_show(t[i].name).s);
        t[i].end = *bytes;
    }
    return SK_OK;
}

static sk_status unique(sk_arena *scratch, const char *where, const sk_st_tensor *t, int n)
{
    const sk_st_tensor **sorted = sk_many(scratch, const sk_st_tensor *, n);
    for (int i = 0; i < n; i++) sorted[i] = &t[i];
    if (n) qsort(sorted, (size_t)n, sizeof *sorted, by_name);
    for (int i = 1; i < n; i++)
        if (!strcmp(sorted[i - 1]->name, sorted[i]->name))
            return sk_fail(SK_EDATA, "%s: two tensors are called '%s'", where,
                           sk_strict_show(sorted[i]->name).s);
    return SK_OK;
}

/* Header text, padded with spaces so that the data starts on a cache line. */
static sk_out header(sk_arena *scratch, const sk_st_tensor *t, int n, const sk_st_pair *meta,
                     int n_meta)
{
    sk_out o = {.arena = scratch};
    const char *comma = "";
    sk_out_add(&o, "{");
    for (int i = 0; i < n_meta; i++) {
        sk_out_add(&o, i ? "," : "\"__metadata__\":{");
        sk_strict_quote(&o, meta[i].key);
        sk_out_add(&o, ":");
        sk_strict_quote(&o, meta[i].value);
        if (i == n_meta - 1) sk_out_add(&o, "}"), comma = ",";
    }
    for (int i = 0; i < n; i++, comma = ",") {
        sk_out_add(&o, "%s", comma);
        sk_strict_quote(&o, t[i].name);
        sk_out_add(&o, ":{\"dtype\":\"%s\",\"shape\":[", t[i].dtype);
        for (int d = 0; d < t[i].n; d++)
            sk_out_add(&o, d ? ",%lld" : "%lld", (long long)t[i].size[d]);
        sk_out_add(&o, "],\"data_offsets\":[%lld,%lld]}", (long long)t[i].begin,
                   (long long)t[i].end);
    }
    sk_out_add(&o, "}");
    sk_out_add(&o, "%*s", (int)(63 - (o.n + 8 + 63) % 64), "");
    return o;
}

static sk_status reserve(sk_st_writer *w)
{
    int e;
    do e = posix_fallocate(w->fd, 0, (off_t)w->bytes);
    while (e == EINTR);
    if (e)
        return sk_fail(SK_EIO, "%s: no space for %lld bytes: %s", w->where, (long long)w->bytes,
                       strerror(e));
    return SK_OK;
}

static sk_status start(sk_arena *a, sk_st_writer *w, const char *text, size_t n, int64_t data_bytes)
{
    uint64_t length = htole64((uint64_t)n);
    w->data = 8 + (int64_t)n;
    if (__builtin_add_overflow(w->data, data_bytes, &w->bytes) || n > SK_ST_HEADER)
        return sk_fail(SK_EDATA, "%s: too much for one file", w->where);
    w->crc = sk_many(a, uint32_t, w->bytes / SK_ST_CHUNK + 1);
    SK_TRY(reserve(w));
    SK_TRY(sk_st_write(w, &length, sizeof length));
    SK_TRY(sk_st_write(w, text, n));
    return SK_OK;
}

sk_status sk_st_create(sk_arena *a, int dir, const char *name, mode_t mode, sk_st_tensor *t, int n,
                       const sk_st_pair *meta, int n_meta, sk_st_writer *out)
{
    sk_st_writer w = {.where = sk_strdup(a, name), .name = sk_strdup(a, name), .dir = dir};
    sk_arena scratch = {0};
    int64_t bytes = 0;
    sk_status status = place(w.where, t, n, &bytes);
    if (!status) status = unique(&scratch, w.where, t, n);
    if (!status) {
        sk_out text = header(&scratch, t, n, meta, n_meta);
        w.fd = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode);
        if (w.fd < 0) status = sk_fail(SK_EIO, "cannot create %s: %s", name, strerror(errno));
        else if ((status = start(a, &w, text.s, text.n, bytes))) sk_st_drop(&w);
    }
    sk_arena_end(&scratch);
    if (status) return sk_trail(status, SK_HERE);
    *out = w;
    return SK_OK;
}

/* Checksum the next n bytes, chunk by chunk. */
static void sum(sk_st_writer *w, const char *p, size_t n)
{
    int64_t at = w->at;
    while (n) {
        size_t in_chunk = (size_t)(SK_ST_CHUNK - at % SK_ST_CHUNK), k = n < in_chunk ? n : in_chunk;
        uint32_t *crc = &w->crc[at / SK_ST_CHUNK];
        *crc = sk_crc32c(*crc, p, k);
        p += k, n -= k, at += (int64_t)k;
    }
}

sk_status sk_st_write(sk_st_writer *w, const void *data, size_t n)
{
    const char *p = data;
    sk_assert((int64_t)n <= w->bytes - w->at);
    sum(w, p, n);
    while (n) {
        ssize_t put = pwrite(w->fd, p, n < 1 << 30 ? n : 1 << 30, (off_t)w->at);
        if (put < 0 && errno == EINTR) continue;
        if (put <= 0)
            return sk_fail(SK_EIO, "%s: writing: %s", w->where,
                           put ? strerror(errno) : "no space left");
        p += put, n -= (size_t)put, w->at += put;
    }
    return SK_OK;
}

/* After a failed fsync the kernel may have dropped the pages: the file is lost, never retried. */
sk_status sk_st_finish(sk_st_writer *w)
{
    sk_assert(w->at == w->bytes);
    w->n_crc = (w->bytes + SK_ST_CHUNK - 1) / SK_ST_CHUNK;
    sk_status status = SK_OK;
    if (fsync(w->fd)) status = sk_fail(SK_EIO, "%s: fsync: %s", w->where, strerror(errno));
    if (close(w->fd) && !status)
        status = sk_fail(SK_EIO, "%s: close: %s", w->where, strerror(errno));
    w->fd = -1;
    if (status) unlinkat(w->dir, w->name, 0);
    return status;
}

void sk_st_drop(sk_st_writer *w)
{
    if (w->fd >= 0) close(w->fd);
    w->fd = -1;
    unlinkat(w->dir, w->name, 0);
}
