/* manifest.c - writing and reading what a checkpoint says about itself. */
#include "train/manifest.h"
#include "base/hash.h"
#include "base/strings.h"
#include "tensor/safetensors.h"
#include "tensor/strict.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char first_line[] = "{\"format\":\"skein-checkpoint\",\"major\":";
enum { CHECK_LINE = 27 }; /* bytes of "check":"crc32c:01234567"} and a newline */

/* ---- the fields of the state, for both directions ---- */

typedef struct field {
    const char *name;
    size_t at;
    int64_t least, most; /* least: of a whole manifest; of a rank's own 0 */
} field;

#define MOST INT64_C(1000000000000)

#define STATE(x, least, most)                       \
    {                                               \
#x, offsetof(sk_ckpt_state, x), least, most \
    }
static const field state_fields[] = {
    STATE(step, 0, SK_CKPT_STEPS), STATE(tokens, 0, INT64_MAX / 2), STATE(ranks, 1, SK_CKPT_RANKS),
    STATE(generation, 1, SK_CKPT_GENERATIONS), STATE(time, 0, MOST)};
#define COUNT(x) (sizeof(x) / sizeof *(x))

static void put_fields(sk_out *o, const sk_ckpt_state *s)
{
    for (size_t i = 0; i < COUNT(state_fields); i++)
        sk_out_add(o, ",\"%s\":%" PRId64, state_fields[i].name,
                   *(const int64_t *)(const void *)((const char *)s + state_fields[i].at));
}

static void put_hyper(sk_out *o, const sk_hyper *h)
{
    const sk_model *m = sk_model_find(h->arch);
    const sk_field *f;
    for (int i = 0; (f = sk_model_field(m, i)); i++) {
        sk_out_add(o, ",\"%s\":", f->name);
        if (f->kind == SK_FIELD_TEXT) sk_strict_quote(o, sk_field_print(f, h).s);
        else if (!isfinite(sk_field_number(f, h))) sk_out_add(o, "0");
        else sk_out_add(o, "%s", sk_field_print(f, h).s);
    }
}

static sk_status bad_field(const char *where, const char *name, const json_t *x, const char *need)
{
    if (!x) return sk_fail(SK_EDATA, "%s: %s is missing; %s is needed", where, name, need);
    char *text = json_dumps(x, JSON_ENCODE_ANY | JSON_COMPACT);
    sk_fail(SK_EDATA, "%s: %s is %s; %s is needed", where, name,
            sk_strict_show(text ? text : "?").s, need);
    free(text);
    return SK_EDATA;
}

static sk_status get_fields(sk_arena *a, const char *where, const json_t *from, bool whole,
                            sk_ckpt_state *s)
{
    for (size_t i = 0; i < COUNT(state_fields); i++) {
        const field *f = &state_fields[i];
        const json_t *x = json_object_get(from, f->name);
        int64_t n = json_integer_value(x), least = whole ? f->least : 0;
        if (!json_is_integer(x) || n < least || n > f->most)
            return bad_field(
                where, f->name, x,
                sk_print(a, "a whole number from %" PRId64 " to %" PRId64, least, f->most));
        *(int64_t *)(void *)((char *)s + f->at) = n;
    }
    return SK_OK;
}

/* A field that is not there was not known to the version that wrote it, and is 0. */
static sk_status get_hyper(const char *where, const json_t *from, sk_hyper *h)
{
    const sk_model *m = sk_model_find(h->arch);
    const sk_field *f;
    for (int i = 0; (f = sk_model_field(m, i)); i++) {
        const json_t *x = json_object_get(from, f->name);
        bool ok = !x;
        if (json_is_string(x)) ok = sk_field_set_text(f, h, json_string_value(x));
        if (json_is_boolean(x) && f->kind == SK_FIELD_BOOL)
            ok = sk_field_set_number(f, h, json_is_true(x));
        if (json_is_number(x) && f->kind != SK_FIELD_BOOL)
            ok = (f->own || json_number_value(x) >= 0) &&
                 sk_field_set_number(f, h, json_number_value(x));
        if (!ok) return bad_field(where, f->name, x, "another value");
    }
    return SK_OK;
}

/* ---- writing ---- */

static void put_text(sk_out *o, const char *name, const char *s)
{
    sk_out_add(o, ",\n\"%s\":", name);
    sk_strict_quote(o, s ? s : "");
}

static void put_state(sk_out *o, const sk_ckpt_state *s)
{
    sk_out_add(o, "\"state\":{\"seed\":\"%" PRIu64 "\",\"program\":\"%016" PRIx64 "\"", s->seed,
               s->program);
    put_fields(o, s);
    sk_out_add(o, ",\n\"hyper\":{\"arch\":");
    sk_strict_quote(o, s->hyper.arch);
    put_hyper(o, &s->hyper);
    sk_out_add(o, "}");
    put_text(o, "layout", s->layout);
    put_text(o, "config", s->config);
    put_text(o, "extra", s->extra);
    sk_out_add(o, "},\n");
}

static void put_tensor(sk_out *o, const sk_ckpt_tensor *t)
{
    sk_out_add(o, "{\"name\":");
    sk_strict_quote(o, t->name);
    sk_out_add(o, ",\"dtype\":\"%s\",\"full\":[", sk_dtype_name(t->type));
    for (int d = 0; d < t->n; d++) sk_out_add(o, d ? ",%" PRId64 : "%" PRId64, t->full[d]);
    sk_out_add(o, "],\"boxes\":[");
    for (int i = 0; i < t->boxes.n; i++) {
        const sk_ckpt_box *b = &t->boxes.v[i];
        sk_out_add(o, i ? ",[%d,%" PRId64 : "[%d,%" PRId64, b->file, b->begin);
        for (int d = 0; d < t->n; d++) sk_out_add(o, ",%" PRId64, b->at[d]);
        for (int d = 0; d < t->n; d++) sk_out_add(o, ",%" PRId64, b->size[d]);
        sk_out_add(o, "]");
    }
    sk_out_add(o, "]}");
}

void sk_manifest_file_print(sk_out *o, const sk_ckpt_file *f, bool first)
{
    sk_out_add(o, "%s\n{\"name\":\"%s\",\"bytes\":%" PRId64 ",\"crc32c\":\"", first ? "" : ",",
               f->name, f->bytes);
    for (int64_t k = 0; k < f->n_crc; k++) sk_out_add(o, "%08" PRIx32, f->crc[k]);
    sk_out_add(o, "\"}");
}

void sk_manifest_seal(sk_out *o)
{
    sk_out_add(o, "\"check\":\"crc32c:%08" PRIx32 "\"}\n", sk_crc32c(0, o->s, o->n));
}

char *sk_manifest_print(sk_arena *a, const sk_ckpt *c)
{
    sk_out o = {.arena = a};
    sk_out_add(&o, "%s%d,\"minor\":%d,\n", first_line, SK_CKPT_MAJOR, SK_CKPT_MINOR);
    put_state(&o, &c->state);
    sk_out_add(&o, "\"files\":[");
    for (int i = 0; i < c->files.n; i++) sk_manifest_file_print(&o, &c->files.v[i], i == 0);
    sk_out_add(&o, "],\n\"tensors\":[");
    for (int i = 0; i < c->tensors.n; i++) {
        sk_out_add(&o, i ? ",\n" : "\n");
        put_tensor(&o, &c->tensors.v[i]);
    }
    sk_out_add(&o, "],\n");
    sk_manifest_seal(&o);
    return o.s;
}

/* ---- reading ---- */

bool sk_manifest_count(const int64_t *size, int n, int64_t *count)
{
    *count = 1;
    for (int i = 0; i < n; i++)
        if (size[i] < 0 || __builtin_mul_overflow(*count, size[i], count)) return false;
    return true;
}

static bool whole_number(const json_t *list, size_t i, int64_t *to)
{
    const json_t *x = json_array_get(list, i);
    *to = json_integer_value(x);
    return json_is_integer(x) && *to >= 0;
}

sk_status sk_manifest_file_parse(sk_arena *a, const char *where, const json_t *j, sk_ckpt_file *f)
{
    const char *name = json_string_value(json_object_get(j, "name"));
    const char *crc = json_string_value(json_object_get(j, "crc32c"));
    f->bytes = json_integer_value(json_object_get(j, "bytes"));
    if (!name || !sk_strict_file(name))
        return sk_fail(SK_EDATA, "%s: '%s' is no file name that skein writes", where,
                       sk_strict_show(name ? name : "").s);
    f->n_crc = f->bytes / SK_ST_CHUNK + (f->bytes % SK_ST_CHUNK != 0);
    if (f->bytes <= 0 || !crc || strlen(crc) != 8 * (size_t)f->n_crc ||
        strspn(crc, "0123456789abcdef") != strlen(crc))
        return sk_fail(SK_EDATA, "%s: size and checksums of '%s' do not fit together", where, name);
    f->name = sk_strdup(a, name);
    f->crc = sk_many(a, uint32_t, f->n_crc);
    for (int64_t i = 0; i < f->n_crc; i++) {
        char hex[9] = {0};
        memcpy(hex, crc + 8 * i, 8);
        f->crc[i] = (uint32_t)strtoul(hex, NULL, 16);
    }
    return SK_OK;
}

/* One box: inside its tensor, and its bytes inside its file. */
static bool read_box(const json_t *j, const sk_ckpt *c, const sk_ckpt_tensor *t, sk_ckpt_box *b)
{
    int64_t file = 0, bytes = 0, end = 0;
    size_t n = (size_t)t->n;
    if (json_array_size(j) != 2 + 2 * n || !whole_number(j, 0, &file) ||
        !whole_number(j, 1, &b->begin) || file >= c->files.n)
        return false;
    b->file = (int)file;
    for (size_t d = 0; d < n; d++) {
        if (!whole_number(j, 2 + d, &b->at[d]) || !whole_number(j, 2 + n + d, &b->size[d]) ||
            b->size[d] == 0 || __builtin_add_overflow(b->at[d], b->size[d], &end) ||
            end > t->full[d])
            return false;
    }
    return sk_manifest_count(b->size, t->n, &bytes) &&
           !__builtin_mul_overflow(bytes, (int64_t)sk_dtype_size(t->type), &bytes) &&
           !__builtin_add_overflow(b->begin, bytes, &end) && end <= c->files.v[file].bytes;
}

static sk_status read_tensor(sk_arena *a, const char *where, const json_t *j, const sk_ckpt *c,
                             sk_ckpt_tensor *t)
{
    const char *name = json_string_value(json_object_get(j, "name"));
    const char *dtype = json_string_value(json_object_get(j, "dtype"));
    const json_t *full = json_object_get(j, "full"), *boxes = json_object_get(j, "boxes");
    int64_t count = 0;
    if (!name || !sk_strict_label(name, SK_ST_NAME) || !dtype || !sk_dtype_find(dtype, &t->type) ||
        !json_is_array(full) || json_array_size(full) > SK_SHARD_DIM || !json_is_array(boxes))
        return sk_fail(SK_EDATA, "%s: '%s' is not described as a tensor", where,
                       sk_strict_show(name ? name : "").s);
    t->name = sk_strdup(a, name);
    t->n = (int)json_array_size(full);
    bool good = true;
    for (size_t d = 0; d < (size_t)t->n; d++) good &= whole_number(full, d, &t->full[d]);
    if (!good || !sk_manifest_count(t->full, t->n, &count))
        return sk_fail(SK_EDATA, "%s: the sizes of '%s' are not those of a tensor", where, name);
    t->boxes.n = t->boxes.cap = (int)json_array_size(boxes);
    t->boxes.v = sk_many(a, sk_ckpt_box, t->boxes.n);
    for (int i = 0; i < t->boxes.n; i++)
        if (!read_box(json_array_get(boxes, (size_t)i), c, t, &t->boxes.v[i]))
            return sk_fail(SK_EDATA, "%s: shard %d of '%s' lies outside of its tensor or its file",
                           where, i, name);
    return SK_OK;
}

static sk_status get_text(sk_arena *a, const char *where, const json_t *j, const char *name,
                          const char **to)
{
    const json_t *x = json_object_get(j, name);
    if (!json_is_string(x)) return bad_field(where, name, x, "a text");
    *to = sk_strdup(a, json_string_value(x));
    return SK_OK;
}

/* A number of 64 bits is a text: JSON has no such numbers. */
static sk_status get_bits(const char *where, const json_t *j, const char *name, int base,
                          uint64_t *to)
{
    const json_t *x = json_object_get(j, name);
    const char *s = json_string_value(x);
    char *end = NULL;
    errno = 0;
    if (s && strspn(s, base == 10 ? "0123456789" : "0123456789abcdef") == strlen(s))
        *to = strtoull(s, &end, base);
    if (!end || end == s || errno)
        return sk_fail(SK_EDATA, "%s: %s is '%s'; 64 bits in digits of base %d are needed", where,
                       name, sk_strict_show(s ? s : "").s, base);
    return SK_OK;
}

static sk_status read_state(sk_arena *a, const char *where, const json_t *j, bool whole,
                            sk_ckpt_state *s)
{
    const json_t *hyper = json_object_get(j, "hyper");
    const char *arch = "";
    if (!json_is_object(j) || !json_is_integer(json_object_get(j, "step")))
        return sk_fail(SK_EDATA, "%s: there is no state with a step in it", where);
    SK_TRY(get_fields(a, where, j, whole, s));
    SK_TRY(get_text(a, where, hyper, "arch", &arch));
    if (strlen(arch) >= sizeof s->hyper.arch)
        return bad_field(where, "arch", json_object_get(hyper, "arch"), "the name of a model");
    snprintf(s->hyper.arch, sizeof s->hyper.arch, "%s", arch);
    SK_TRY(get_hyper(where, hyper, &s->hyper));
    SK_TRY(get_bits(where, j, "seed", 10, &s->seed));
    SK_TRY(get_bits(where, j, "program", 16, &s->program));
    SK_TRY(get_text(a, where, j, "config", &s->config));
    SK_TRY(get_text(a, where, j, "layout", &s->layout));
    SK_TRY(get_text(a, where, j, "extra", &s->extra));
    return SK_OK;
}

static sk_status read_lists(sk_arena *a, const char *where, const json_t *root, bool whole,
                            sk_ckpt *c)
{
    const json_t *files = json_object_get(root, "files"), *list = json_object_get(root, "tensors");
    if (!json_is_array(files) || !json_is_array(list))
        return sk_fail(SK_EDATA, "%s: the lists of files and tensors are missing", where);
    c->files.n = c->files.cap = (int)json_array_size(files);
    c->files.v = sk_many(a, sk_ckpt_file, c->files.n);
    for (int i = 0; i < c->files.n; i++)
        SK_TRY(sk_manifest_file_parse(a, where, json_array_get(files, (size_t)i), &c->files.v[i]));
    c->tensors.n = c->tensors.cap = (int)json_array_size(list);
    c->tensors.v = sk_many(a, sk_ckpt_tensor, c->tensors.n);
    if (whole && c->state.hyper.num_hidden_layers > c->tensors.n)
        return sk_fail(SK_EDATA, "%s: %lld layers and %d tensors do not go together", where,
                       (long long)c->state.hyper.num_hidden_layers, c->tensors.n);
    for (int i = 0; i < c->tensors.n; i++) {
        sk_ckpt_tensor *t = &c->tensors.v[i];
        SK_TRY(read_tensor(a, where, json_array_get(list, (size_t)i), c, t));
        if (whole && !sk_manifest_covered(t))
            return sk_fail(SK_EDATA, "%s: the shards of '%s' do not cover it exactly once", where,
                           t->name);
    }
    sk_manifest_sort(c);
    for (int i = 1; i < c->tensors.n; i++)
        if (!strcmp(c->tensors.v[i - 1].name, c->tensors.v[i].name))
            return sk_fail(SK_EDATA, "%s: '%s' is listed twice", where, c->tensors.v[i].name);
    return SK_OK;
}

sk_status sk_manifest_sealed(const char *where, sk_text t)
{
    char last[CHECK_LINE + 1];
    if (t.n < CHECK_LINE) return sk_fail(SK_EDATA, "%s is cut short", where);
    uint32_t crc = sk_crc32c(0, t.s, t.n - CHECK_LINE);
    snprintf(last, sizeof last, "\"check\":\"crc32c:%08" PRIx32 "\"}\n", crc);
    if (memcmp(t.s + t.n - CHECK_LINE, last, CHECK_LINE))
        return sk_fail(SK_EDATA, "%s is damaged: its sum is %08" PRIx32 ", it says '%.8s'", where,
                       crc, sk_strict_show(t.s + t.n - 11).s);
    return SK_OK;
}

/* Format, version and checksum, before any parsing. */
static sk_status check_ends(const char *where, sk_text t)
{
    size_t n = sizeof first_line - 1;
    if (t.n < n + CHECK_LINE || memcmp(t.s, first_line, n))
        return sk_fail(SK_EDATA, "%s is no skein checkpoint, or is cut short", where);
    long major = strtol(t.s + n, NULL, 10);
    if (major > SK_CKPT_MAJOR)
        return sk_fail(
            SK_EDATA, "%s has format %ld, this skein reads up to %d: it was written by a newer one",
            where, major, SK_CKPT_MAJOR);
    return sk_manifest_sealed(where, t);
}

sk_status sk_manifest_parse(sk_arena *a, const char *where, sk_text text, bool whole, sk_ckpt *out)
{
    /* about a million boxes: 400 MB of tree at the very worst */
    static const sk_strict most = {.depth = 6, .objects = 1 << 20, .values = 8 << 20};
    json_t *root = NULL;
    sk_ckpt c = {.path = out->path};
    if (text.n > SK_MANIFEST_BYTES)
        return sk_fail(SK_EDATA, "%s has %zu bytes, at most %d are read", where, text.n,
                       SK_MANIFEST_BYTES);
    SK_TRY(check_ends(where, text));
    SK_TRY(sk_strict_json(where, text.s, text.n, &most, &root));
    sk_status status = read_state(a, where, json_object_get(root, "state"), whole, &c.state);
    if (!status) status = read_lists(a, where, root, whole, &c);
    json_decref(root);
    if (status) return sk_trail(status, SK_HERE);
    *out = c;
    return SK_OK;
}

/* ---- tensors and their boxes ---- */

static int tensor_order(const void *x, const void *y)
{
    return strcmp(((const sk_ckpt_tensor *)x)->name, ((const sk_ckpt_tensor *)y)->name);
}

void sk_manifest_sort(sk_ckpt *c)
{
    if (c->tensors.n) qsort(c->tensors.v, (size_t)c->tensors.n, sizeof *c->tensors.v, tensor_order);
}

const sk_ckpt_tensor *sk_manifest_find(const sk_ckpt *c, const char *name)
{
    const sk_ckpt_tensor key = {.name = name};
    if (!c->tensors.n) return NULL;
    return bsearch(&key, c->tensors.v, (size_t)c->tensors.n, sizeof key, tensor_order);
}

static int box_order(const void *x, const void *y, void *dim)
{
    int d = *(const int *)dim;
    int64_t a = ((const sk_ckpt_box *)x)->at[d], b = ((const sk_ckpt_box *)y)->at[d];
    return (a > b) - (a < b);
}

static bool overlap(const sk_ckpt_box *x, const sk_ckpt_box *y, int n)
{
    for (int d = 0; d < n; d++)
        if (x->at[d] + x->size[d] <= y->at[d] || y->at[d] + y->size[d] <= x->at[d]) return false;
    return true;
}

/* Sort along the dim with the most different offsets; *best is that dim. */
static void sort_boxes(sk_ckpt_tensor *t, int *best)
{
    int most = -1;
    *best = 0;
    for (int d = 0; d < t->n; d++) {
        int steps = 0;
        qsort_r(t->boxes.v, (size_t)t->boxes.n, sizeof *t->boxes.v, box_order, &d);
        for (int i = 1; i < t->boxes.n; i++)
            steps += t->boxes.v[i].at[d] != t->boxes.v[i - 1].at[d];
        if (steps > most) most = steps, *best = d;
    }
    qsort_r(t->boxes.v, (size_t)t->boxes.n, sizeof *t->boxes.v, box_order, best);
}

/* The volumes add up to the whole and no two boxes meet.  A sweep along the dim that is cut the
 * most: linear when one dim is cut, k * sqrt(k) for a square grid of k boxes. */
bool sk_manifest_covered(sk_ckpt_tensor *t)
{
    int64_t full = 0, sum = 0, one = 0;
    int dim = 0;
    if (!sk_manifest_count(t->full, t->n, &full)) return false;
    for (int i = 0; i < t->boxes.n; i++)
        if (!sk_manifest_count(t->boxes.v[i].size, t->n, &one) ||
            __builtin_add_overflow(sum, one, &sum))
            return false;
    if (sum != full) return false;
    if (t->boxes.n < 2) return true;
    sort_boxes(t, &dim);
    for (int i = 0; i < t->boxes.n; i++) {
        const sk_ckpt_box *b = &t->boxes.v[i];
        int64_t end = b->at[dim] + b->size[dim];
        for (int k = i + 1; k < t->boxes.n && t->boxes.v[k].at[dim] < end; k++)
            if (overlap(b, &t->boxes.v[k], t->n)) return false;
    }
    return true;
}

char *sk_manifest_key(sk_arena *a, const sk_ckpt_tensor *t, const sk_ckpt_box *b)
{
    sk_out o = {.arena = a};
    bool whole = true;
    for (int d = 0; d < t->n; d++) whole &= b->size[d] == t->full[d];
    sk_out_add(&o, "%s", t->name);
    if (whole) return o.s;
    for (int d = 0; d < t->n; d++) sk_out_add(&o, "%c%" PRId64, d ? ',' : '@', b->at[d]);
    for (int d = 0; d < t->n; d++) sk_out_add(&o, "%c%" PRId64, d ? ',' : ':', b->size[d]);
    return o.s;
}
