/* hf.c - Hugging Face model directories.
 *
 * Everything rests on `place`: how one tensor of a file lies in one logical
 * tensor.  Both have the same letters, so an element's offset in either is a
 * sum of coordinate times step, and copying is counting through the letters in
 * the order of the file with two steps per letter. */
#include "train/hf.h"
#include "tensor/safetensors.h"
#include "tensor/strict.h"
#include "train/checkpoint.h"
#include "train/folder.h"
#include "train/hf_config.h"
#include "train/checksums.h"

#include <errno.h>
#include <fcntl.h>
#include <float.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { WINDOW = 1 << 20, RUN = 1 << 15, INDEX_BYTES = 16 << 20, MOST_FILES = 4096 };
static const char one_file[] = "model.safetensors", index_file[] = "model.safetensors.index.json";

typedef struct place {
    sk_hf e;
    const sk_hf_shape *s;
    int n, n_order, n_shape;
    int order[SK_SHARD_DIM];                        /* our dims, in the order of the file */
    int64_t from[SK_SHARD_DIM], size[SK_SHARD_DIM]; /* per dim of ours: what the file holds */
    int64_t step[SK_SHARD_DIM];                     /* per dim of ours: in elements of the file */
    int64_t shape[SK_ST_DIM];
    const char *file; /* where it was found; NULL: not needed */
    const char *seen; /* by sk_hf_check(): the file that has it */
} place;

typedef struct places {
    place *v;
    int n, cap;
} places;

/* ---- how a tensor of a file lies in ours ---- */

sk_hf_shape *sk_hf_shapes(sk_arena *a, const sk_graph *g, int *n)
{
    sk_hf_shape *out = sk_many(a, sk_hf_shape, g->tensors.n);
    *n = 0;
    for (int i = 0; i < g->tensors.n; i++) {
        const sk_tensor *t = g->tensors.v[i];
        if (t->role != SK_PARAM) continue;
        sk_hf_shape *s = &out[(*n)++];
        *s = (sk_hf_shape){.name = t->name, .letters = t->letters};
        for (int d = 0; t->letters[d]; d++)
            s->full[d] = g->size[(unsigned char)t->letters[d] & 127];
    }
    return out;
}

sk_status sk_hf_shapes_of(sk_arena *a, const sk_model *m, const sk_hyper *h, sk_hf_shape **out,
                          int *n)
{
    sk_graph *g = sk_new(a, sk_graph);
    SK_TRY(sk_model_check(m->name, m, h));
    sk_graph_init(g, a);
    sk_graph_size(g, 'b', 1);
    sk_graph_size(g, 't', 1);
    m->build(g, h, SK_TRAIN);
    SK_TRY(sk_graph_status(g));
    *out = sk_hf_shapes(a, g, n);
    return SK_OK;
}

/* Read `dims`: which of our letters make up each dim of the file. */
static sk_status read_dims(place *p)
{
    bool seen[SK_SHARD_DIM] = {0};
    p->n_shape = *p->e.dims != 0;
    p->shape[0] = 1;
    for (const char *c = p->e.dims; *c; c++) {
        if (*c == ',') {
            if (p->n_shape == SK_ST_DIM) return sk_fail(SK_EBUG, "%s: too many dims", p->e.dims);
            p->shape[p->n_shape++] = 1;
            continue;
        }
        const char *at = strchr(p->s->letters, *c);
        int d = at ? (int)(at - p->s->letters) : -1;
        if (d < 0 || seen[d])
            return sk_fail(SK_EBUG, "the model puts '%s' (%s) into a file as '%s': letter '%c'",
                           p->e.name, p->s->letters, p->e.dims, *c);
        seen[d] = true;
        p->order[p->n_order++] = d;
        p->shape[p->n_shape - 1] *= p->size[d];
    }
    for (int d = 0; d < p->n; d++)
        if (!seen[d] && p->size[d] != 1)
            return sk_fail(SK_EBUG, "the model puts '%s' (%s) into a file as '%s', without '%c'",
                           p->e.name, p->s->letters, p->e.dims, p->s->letters[d]);
    return SK_OK;
}

static int by_name(const void *x, const void *y)
{
    const sk_hf_shape *const *a = x, *const *b = y;
    return strcmp((*a)->name, (*b)->name);
}

/* `shapes` are sorted by name. */
static sk_status resolve(place *p, const sk_hf_shape **shapes, int n_shapes)
{
    const sk_hf_shape key = {.name = p->e.name}, *const at = &key;
    const sk_hf_shape **found = bsearch(&at, shapes, (size_t)n_shapes, sizeof *shapes, by_name);
    p->s = found ? *found : NULL;
    if (!p->s)
        return sk_fail(SK_EBUG, "the model lists '%s' for Hugging Face and has no such tensor",
                       p->e.name);
    p->n = (int)strlen(p->s->letters);
    sk_assert(p->n <= SK_SHARD_DIM);
    for (int d = 0; d < p->n; d++) {
        bool cut = p->e.slice && p->s->letters[d] == p->e.slice;
        p->from[d] = cut ? p->e.from : 0;
        p->size[d] = cut ? p->e.to - p->e.from : p->s->full[d];
        if (p->from[d] < 0 || p->size[d] < 1 || p->from[d] + p->size[d] > p->s->full[d])
            return sk_fail(SK_EBUG, "the model cuts '%c' of '%s' to [%lld, %lld) of %lld",
                           p->e.slice, p->e.name, (long long)p->e.from, (long long)p->e.to,
                           (long long)p->s->full[d]);
    }
    SK_TRY(read_dims(p));
    int64_t step = 1;
    for (int k = p->n_order - 1; k >= 0; k--)
        p->step[p->order[k]] = step, step *= p->size[p->order[k]];
    return SK_OK;
}

static int64_t volume(const int64_t *size, int n)
{
    int64_t v = 1;
    for (int d = 0; d < n; d++) v *= size[d];
    return v;
}

/* Two parts of one tensor must be cut along the same letter and not meet; together they must be
 * all of it.  The parts of a tensor lie together in `all`, sorted by tensor. */
static sk_status check_parts(place *const *all, int n)
{
    const place *first = all[0];
    int64_t sum = 0;
    for (int i = 0; i < n; i++) {
        const place *p = all[i];
        sum += volume(p->size, p->n);
        for (int k = 0; k < i; k++) {
            const place *q = all[k];
            bool apart = p->e.slice && p->e.slice == q->e.slice &&
                         (q->e.to <= p->e.from || p->e.to <= q->e.from);
            if (!apart)
                return sk_fail(SK_EBUG, "the model takes parts of '%s' from both '%s' and '%s'",
                               p->e.name, q->e.file_name, p->e.file_name);
        }
    }
    if (sum != volume(first->s->full, first->n))
        return sk_fail(SK_EBUG, "the model's Hugging Face list has %lld of %lld elements of '%s'",
                       (long long)sum, (long long)volume(first->s->full, first->n), first->e.name);
    return SK_OK;
}

static int by_tensor(const void *x, const void *y)
{
    const place *a = *(place *const *)x, *b = *(place *const *)y;
    if (a->s != b->s) return strcmp(a->s->name, b->s->name);
    return (a > b) - (a < b);
}

static sk_status check_cover(sk_arena *a, const places *all)
{
    place **sorted = sk_many(a, place *, all->n);
    for (int i = 0; i < all->n; i++) sorted[i] = &all->v[i];
    qsort(sorted, (size_t)all->n, sizeof *sorted, by_tensor);
    for (int from = 0, to; from < all->n; from = to) {
        for (to = from + 1; to < all->n && sorted[to]->s == sorted[from]->s;) to++;
        SK_TRY(check_parts(sorted + from, to - from));
    }
    return SK_OK;
}

static sk_status list(sk_arena *a, const sk_model *m, const sk_hyper *h, const sk_hf_shape *shapes,
                      int n_shapes, places *out)
{
    sk_hf e = {0};
    if (!m->hf) return sk_fail(SK_ECONF, "the model '%s' has no Hugging Face form", m->name);
    const sk_hf_shape **sorted = sk_many(a, const sk_hf_shape *, n_shapes);
    for (int i = 0; i < n_shapes; i++) sorted[i] = &shapes[i];
    qsort(sorted, (size_t)n_shapes, sizeof *sorted, by_name);
    for (int i = 0; m->hf(a, h, i, &e); i++) {
        place *p = sk_push(a, out);
        p->e = e;
        SK_TRY(resolve(p, sorted, n_shapes));
    }
    return check_cover(a, out);
}

/* ---- finding tensors in files ---- */

/* The k-th spelling of a name: as listed, without its base prefix, with one; NULL past the end. */
static const char *spelling(const char *name, int k, char buf[SK_ST_NAME + 16])
{
    static const char *const prefix[] = {"transformer.", "model."};
    if (k == 0) return name;
    for (int i = 0; k == 1 && i < 2; i++)
        if (!strncmp(name, prefix[i], strlen(prefix[i]))) return name + strlen(prefix[i]);
    if (k > 3) return NULL;
    snprintf(buf, SK_ST_NAME + 16, "%s%.*s", k == 1 ? "" : prefix[k - 2], SK_ST_NAME, name);
    return buf;
}

/* Does any asked box hold an element of this place? */
static bool needed(const place *p, const sk_tensor_shard *boxes, int n)
{
    for (int i = 0; i < n; i++) {
        const sk_tensor_shard *b = &boxes[i];
        if (strcmp(b->name, p->e.name)) continue;
        bool meets = true;
        for (int d = 0; d < p->n; d++)
            meets &= b->at[d] < p->from[d] + p->size[d] && p->from[d] < b->at[d] + b->size[d];
        if (meets) return true;
    }
    return false;
}

static sk_status find_in_index(sk_arena *a, const char *dir, const json_t *root, place *p)
{
    char buf[SK_ST_NAME + 16];
    const json_t *map = json_object_get(root, "weight_map");
    const char *file = NULL, *s;
    for (int k = 0; !file && (s = spelling(p->e.file_name, k, buf)); k++)
        file = json_string_value(json_object_get(map, s));
    if (!file)
        return sk_fail(SK_EDATA, "%s/%s knows no tensor '%s', needed for '%s'", dir, index_file,
                       p->e.file_name, p->e.name);
    if (!sk_strict_file(file))
        return sk_fail(SK_EDATA, "%s/%s: '%s' is no plain file name", dir, index_file,
                       sk_strict_show(file).s);
    p->file = sk_strdup(a, file);
    return SK_OK;
}

/* Set the file of every place that is needed. */
static sk_status locate(sk_arena *a, const char *dir, const sk_tensor_shard *boxes, int n,
                        places *all)
{
    struct stat s;
    json_t *root = NULL;
    sk_status status = SK_OK;
    bool one = !lstat(sk_print(a, "%s/%s", dir, one_file), &s); /* a dead link is told as such */
    if (!one && lstat(sk_print(a, "%s/%s", dir, index_file), &s))
        return sk_fail(SK_EDATA, "%s holds neither %s nor %s; pickled .bin files are never read",
                       dir, one_file, index_file);
    if (!one) SK_TRY(sk_hf_json(dir, index_file, INDEX_BYTES, &root));
    for (int i = 0; i < all->n && !status; i++) {
        if (!needed(&all->v[i], boxes, n)) continue;
        if (one) all->v[i].file = one_file;
        else status = find_in_index(a, dir, root, &all->v[i]);
    }
    json_decref(root);
    return status ? sk_trail(status, SK_HERE) : SK_OK;
}

/* The tensor of this name in an open file, in the first spelling that is there; NULL: none. */
static const sk_st_tensor *find_spelled(const sk_st *st, const char *name)
{
    char buf[SK_ST_NAME + 16];
    const sk_st_tensor *t = NULL;
    const char *s;
    for (int k = 0; !t && (s = spelling(name, k, buf)); k++) t = sk_st_find(st, s);
    return t;
}

/* The tensor of an open file, with the right shape. */
static sk_status find_in_file(sk_arena *a, const sk_st *st, const place *p,
                              const sk_st_tensor **out)
{
    const sk_st_tensor *t = find_spelled(st, p->e.file_name);
    if (!t)
        return sk_fail(SK_EDATA, "%s holds no tensor '%s', needed for '%s'", st->where,
                       p->e.file_name, p->e.name);
    if (t->n != p->n_shape || memcmp(t->size, p->shape, sizeof *t->size * (size_t)t->n))
        return sk_fail(SK_EDATA, "%s: '%s' has shape %s, needed %s for '%s': check config.json",
                       st->where, t->name, sk_sizes_print(a, t->size, t->n),
                       sk_sizes_print(a, p->shape, p->n_shape), p->e.name);
    if (t->type != SK_F32 && t->type != SK_BF16 && t->type != SK_F16 && t->type != SK_F64)
        return sk_fail(SK_EDATA, "%s: '%s' is %s, needed F32, BF16, F16 or F64", st->where, t->name,
                       t->dtype);
    *out = t;
    return SK_OK;
}

/* ---- loading ---- */

typedef struct window { /* a stretch of one tensor's bytes */
    const sk_st *st;
    const sk_st_tensor *t;
    char *buf;
    int64_t lo, hi;
} window;

static sk_status window_get(window *w, int64_t at, int64_t n, const void **out)
{
    if (at < w->lo || at + n > w->hi) {
        int64_t left = w->t->end - w->t->begin - at;
        w->lo = w->hi = at;
        SK_TRY(sk_st_read(w->st, w->t, at, left < WINDOW ? left : WINDOW, w->buf));
        w->hi = at + (left < WINDOW ? left : WINDOW);
    }
    *out = w->buf + (at - w->lo);
    return SK_OK;
}

static void scatter(char *to, int64_t step, const char *from, int64_t n, size_t width)
{
    for (int64_t i = 0; i < n; i++)
        memcpy(to + i * step * (int64_t)width, from + i * (int64_t)width, width);
}

/* n elements that follow each other in the file, `step` elements apart in the box. */
static sk_status load_run(window *w, const sk_tensor_shard *b, int64_t from, int64_t to,
                          int64_t step, int64_t n)
{
    _Alignas(16) char tmp[RUN * 8 / 16]; /* 16 KiB: at least 2048 elements */
    int64_t in = (int64_t)sk_dtype_size(w->t->type), out = (int64_t)sk_dtype_size(b->type), k;
    int64_t most = step == 1 ? RUN : (int64_t)sizeof tmp / out;
    for (; n; n -= k, from += k, to += k * step) {
        const void *p = NULL;
        char *at = (char *)b->data + to * out;
        k = n < most ? n : most;
        SK_TRY(window_get(w, from * in, k * in, &p));
        sk_convert(step == 1 ? at : tmp, b->type, p, w->t->type, k);
        if (step != 1) scatter(at, step, tmp, k, (size_t)out);
    }
    return SK_OK;
}

/* The elements that a box and a place share, in the order of the file. */
static sk_status load_box(window *w, const place *p, const sk_tensor_shard *b)
{
    int64_t size[SK_SHARD_DIM], step[SK_SHARD_DIM], i[SK_SHARD_DIM] = {0};
    int64_t from = 0, to = 0, dense = 1;
    for (int d = p->n - 1; d >= 0; d--) {
        int64_t lo = p->from[d] > b->at[d] ? p->from[d] : b->at[d];
        int64_t p_end = p->from[d] + p->size[d], b_end = b->at[d] + b->size[d];
        size[d] = (p_end < b_end ? p_end : b_end) - lo;
        if (size[d] <= 0) return SK_OK;
        step[d] = dense, dense *= b->size[d];
        from += (lo - p->from[d]) * p->step[d];
        to += (lo - b->at[d]) * step[d];
    }
    int last = p->n_order ? p->order[p->n_order - 1] : -1;
    for (;;) {
        SK_TRY(load_run(w, b, from, to, last < 0 ? 1 : step[last], last < 0 ? 1 : size[last]));
        int k = p->n_order - 2;
        for (; k >= 0; k--) { /* the next row of the file */
            int d = p->order[k];
            from += p->step[d], to += step[d];
            if (++i[d] < size[d]) break;
            from -= size[d] * p->step[d], to -= size[d] * step[d], i[d] = 0;
        }
        if (k < 0) return SK_OK;
    }
}

static sk_status load_place(sk_arena *a, const sk_st *st, const place *p, char *buf,
                            const sk_tensor_shard *boxes, int n)
{
    window w = {.st = st, .buf = buf};
    SK_TRY(find_in_file(a, st, p, &w.t));
    for (int i = 0; i < n; i++)
        if (!strcmp(boxes[i].name, p->e.name)) SK_TRY(load_box(&w, p, &boxes[i]));
    return SK_OK;
}

/* All places of one file; they are marked as done. */
static sk_status load_file(const char *dir, const char *file, places *all,
                           const sk_tensor_shard *boxes, int n)
{
    sk_arena a = {0};
    sk_st st;
    sk_status status = sk_st_open(&a, sk_print(&a, "%s/%s", dir, file), &st);
    if (!status) {
        char *buf = sk_alloc(&a, WINDOW);
        for (int i = 0; i < all->n && !status; i++) {
            if (!all->v[i].file || strcmp(all->v[i].file, file)) continue;
            status = load_place(&a, &st, &all->v[i], buf, boxes, n);
            all->v[i].file = NULL;
        }
        sk_st_close(&st);
    }
    sk_arena_end(&a);
    return status ? sk_trail(status, SK_HERE) : SK_OK;
}

/* Every box must be a tensor of the table with its sizes, and one that the model lists. */
static sk_status check_boxes(sk_arena *a, const places *all, const sk_tensor_shard *boxes, int n)
{
    for (int i = 0; i < n; i++) {
        const sk_tensor_shard *b = &boxes[i];
        const place *p = NULL;
        for (int k = 0; k < all->n && !p; k++)
            if (!strcmp(all->v[k].e.name, b->name)) p = &all->v[k];
        if (!p) return sk_fail(SK_EDATA, "a Hugging Face directory has nothing for '%s'", b->name);
        if (b->n != p->n || memcmp(b->full, p->s->full, sizeof *b->full * (size_t)b->n))
            return sk_fail(SK_EBUG, "'%s' has sizes %s and %s", b->name,
                           sk_sizes_print(a, b->full, b->n), sk_sizes_print(a, p->s->full, p->n));
    }
    return SK_OK;
}

static sk_status load(sk_arena *a, const char *dir, places *all, const sk_tensor_shard *boxes,
                      int n)
{
    SK_TRY(check_boxes(a, all, boxes, n));
    SK_TRY(locate(a, dir, boxes, n, all));
    for (int i = 0; i < all->n; i++)
        if (all->v[i].file) SK_TRY(load_file(dir, all->v[i].file, all, boxes, n));
    return SK_OK;
}

sk_status sk_hf_load(const char *dir, const sk_model *m, const sk_hyper *h,
                     const sk_hf_shape *shapes, int n_shapes, const sk_tensor_shard *boxes, int n)
{
    sk_arena a = {0};
    places all = {0};
    sk_status status = list(&a, m, h, shapes, n_shapes, &all);
    if (!status) status = load(&a, dir, &all, boxes, n);
    sk_arena_end(&a);
    return status ? sk_trail(status, SK_HERE) : SK_OK;
}

/* ---- is every tensor of the files used? ---- */

typedef struct files {
    const char **v;
    int n, cap;
} files;

/* What the index says lies in a file is there. */
static sk_status check_index(const char *dir, const json_t *map, const char *file, const sk_st *st)
{
    const char *name;
    json_t *at;
    json_object_foreach((json_t *)map, name, at)
    {
        if (!strcmp(json_string_value(at), file) && !sk_st_find(st, name))
            return sk_fail(SK_EDATA, "%s/%s says that '%s' lies in %s, which has no such tensor",
                           dir, index_file, sk_strict_show(name).s, file);
    }
    return SK_OK;
}

static sk_status list_files(sk_arena *a, const char *dir, json_t **index, files *out)
{
    struct stat s;
    json_t *root = NULL, *file;
    const char *name;
    sk_status status = SK_OK;
    if (!lstat(sk_print(a, "%s/%s", dir, one_file), &s)) {
        *sk_push(a, out) = one_file;
        return SK_OK;
    }
    if (lstat(sk_print(a, "%s/%s", dir, index_file), &s))
        return sk_fail(SK_EDATA, "%s holds neither %s nor %s; pickled .bin files are never read",
                       dir, one_file, index_file);
    SK_TRY(sk_hf_json(dir, index_file, INDEX_BYTES, &root));
    json_object_foreach(json_object_get(root, "weight_map"), name, file)
    {
        const char *s1 = json_string_value(file);
        bool known = false;
        for (int i = 0; s1 && i < out->n && !known; i++) known = !strcmp(out->v[i], s1);
        if (known) continue;
        if (!s1 || !sk_strict_file(s1) || out->n == MOST_FILES) {
            status = sk_fail(SK_EDATA, "%s/%s: '%s' lies in no plain file, or there are over %d",
                             dir, index_file, sk_strict_show(name).s, MOST_FILES);
            break;
        }
        *sk_push(a, out) = sk_strdup(a, s1);
    }
    *index = root;
    return status;
}

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), k = strlen(end);
    return n >= k && !strcmp(s + n - k, end);
}

typedef struct checker {
    const char *dir;
    const sk_model *model;
    const sk_hyper *hyper;
    places *all;
    const files *files;
    json_t *index; /* NULL: there is one file */
} checker;

static sk_status open_file(const checker *c, sk_arena *a, const char *file, sk_st *st)
{
    return sk_st_open(a, sk_print(a, "%s/%s", c->dir, file), st);
}

/* Both tensors have the same bytes. */
static sk_status compare(sk_arena *a, const sk_st *x, const sk_st_tensor *t, const sk_st *y,
                         const sk_st_tensor *u, bool *same)
{
    char *p = sk_alloc(a, 2 * (size_t)WINDOW), *q = p + WINDOW;
    int64_t bytes = t->end - t->begin;
    *same = t->n == u->n && t->type == u->type && bytes == u->end - u->begin &&
            !memcmp(t->size, u->size, sizeof *t->size * (size_t)t->n);
    for (int64_t at = 0; *same && at < bytes; at += WINDOW) {
        int64_t n = bytes - at < WINDOW ? bytes - at : WINDOW;
        SK_TRY(sk_st_read(x, t, at, n, p));
        SK_TRY(sk_st_read(y, u, at, n, q));
        *same = !memcmp(p, q, (size_t)n);
    }
    return SK_OK;
}

/* A head that repeats the embedding to which the model ties it. */
static sk_status check_tied(const checker *c, const sk_st *st, const sk_st_tensor *t, bool *same)
{
    sk_arena a = {0};
    sk_status status = SK_OK;
    const sk_hf_tie *tie = &c->model->hf_tie;
    *same = false;
    if (!tie->name || !c->hyper->tie_word_embeddings || strcmp(t->name, tie->name)) return SK_OK;
    for (int i = 0; i < c->files->n && !status && !*same; i++) {
        sk_st other;
        status = open_file(c, &a, c->files->v[i], &other);
        if (status) break;
        const sk_st_tensor *u = find_spelled(&other, tie->same_as);
        if (u) status = compare(&a, st, t, &other, u, same);
        sk_st_close(&other);
    }
    sk_arena_end(&a);
    if (!status && !*same)
        status = sk_fail(SK_EDATA,
                         "%s: '%s' is not equal to '%s', though config.json says "
                         "tie_word_embeddings; with \"tie_word_embeddings\": false both are used",
                         st->where, t->name, tie->same_as);
    return status ? sk_trail(status, SK_HERE) : SK_OK;
}

static sk_status check_unused(const checker *c, const sk_st *st, const sk_st_tensor *t)
{
    bool known = false;
    for (const char *const *b = c->model->hf_buffers; b && *b; b++) known |= ends_with(t->name, *b);
    if (!known) SK_TRY(check_tied(c, st, t, &known));
    if (known) return SK_OK;
    return sk_fail(SK_EDATA,
                   "%s holds a tensor '%s' that a %s with this config.json has no use for: skein "
                   "would compute something else without it",
                   st->where, sk_strict_show(t->name).s, c->model->name);
}

static sk_status check_file(const checker *c, const char *file)
{
    sk_arena a = {0};
    sk_st st;
    sk_status status = open_file(c, &a, file, &st);
    if (!status) {
        bool *used = sk_many(&a, bool, st.n);
        for (int i = 0; i < c->all->n && !status; i++) {
            place *p = &c->all->v[i];
            const sk_st_tensor *t = find_spelled(&st, p->e.file_name);
            if (!t) continue;
            used[t - st.tensor] = true;
            if (p->seen)
                status = sk_fail(SK_EDATA, "%s: '%s' lies in %s too", st.where, t->name, p->seen);
            p->seen = file;
        }
        for (int i = 0; i < st.n && !status; i++)
            if (!used[i]) status = check_unused(c, &st, &st.tensor[i]);
        const json_t *map = json_object_get(c->index, "weight_map");
        if (!status && map) status = check_index(c->dir, map, file, &st);
        sk_st_close(&st);
    }
    sk_arena_end(&a);
    return status ? sk_trail(status, SK_HERE) : SK_OK;
}

sk_status sk_hf_check(const char *dir, const sk_model *m, const sk_hyper *h,
                      const sk_hf_shape *shapes, int n_shapes)
{
    sk_arena a = {0};
    places all = {0};
    files names = {0};
    checker c = {.dir = dir, .model = m, .hyper = h, .all = &all, .files = &names};
    sk_status status = list(&a, m, h, shapes, n_shapes, &all);
    if (!status) status = list_files(&a, dir, &c.index, &names);
    for (int i = 0; i < names.n && !status; i++) status = check_file(&c, names.v[i]);
    json_decref(c.index);
    sk_arena_end(&a);
    return status ? sk_trail(status, SK_HERE) : SK_OK;
}

/* ---- saving ---- */

static sk_status check_shapes(sk_arena *a, const sk_ckpt *c, const sk_hf_shape *shapes, int n)
{
    for (int i = 0; i < n; i++) {
        const sk_ckpt_tensor *t = sk_manifest_find(c, shapes[i].name);
        int dims = (int)strlen(shapes[i].letters);
        if (!t)
            return sk_fail(SK_EDATA, "%s: its model has a parameter '%s', its tensors do not",
                           c->path, shapes[i].name);
        if (t->n != dims || memcmp(t->full, shapes[i].full, sizeof *t->full * (size_t)dims))
            return sk_fail(
                SK_EDATA, "%s: '%s' has sizes %s, the sizes of its model (hyper) make %s", c->path,
                t->name, sk_sizes_print(a, t->full, t->n), sk_sizes_print(a, shapes[i].full, dims));
    }
    return SK_OK;
}

sk_status sk_hf_check_ckpt(const sk_ckpt *c)
{
    sk_arena a = {0};
    sk_hf_shape *shapes = NULL;
    int n = 0;
    const sk_model *m = sk_model_find(c->state.hyper.arch);
    if (!m)
        return sk_fail(SK_EDATA, "%s: arch is '%s', a model that this skein does not know", c->path,
                       sk_strict_show(c->state.hyper.arch).s);
    sk_status status = sk_hf_shapes_of(&a, m, &c->state.hyper, &shapes, &n);
    if (status) status = sk_fail(SK_EDATA, "%s: hyper: %s", c->path, sk_error_line());
    if (!status) status = check_shapes(&a, c, shapes, n);
    sk_arena_end(&a);
    return status;
}

sk_status sk_hf_from_ckpt(void *ctx, sk_tensor_shard *whole)
{
    return whole->data ? sk_ckpt_fill(ctx, whole, 1) : SK_OK;
}

typedef struct saver {
    sk_arena *arena;
    const sk_model *model;
    const sk_hyper *hyper;
    const sk_companions *with;
    sk_st_writer w;
    sk_dtype type;
    float most; /* that a number of this type can be */
    sk_hf_reader *read;
    void *ctx;
    const char *held; /* the logical tensor that `whole` holds */
    sk_tensor_shard whole;
    sk_arena room; /* for that one */
    char *out;     /* WINDOW bytes on their way to the file */
    int64_t used;
} saver;

static sk_status flush(saver *s)
{
    int64_t n = s->used;
    s->used = 0;
    return sk_st_write(&s->w, s->out, (size_t)n);
}

/* Have the logical tensor of this place in memory; slices of one follow each other. */
static sk_status hold(saver *s, const place *p)
{
    if (s->held && !strcmp(s->held, p->e.name)) return SK_OK;
    sk_arena_end(&s->room);
    s->held = p->e.name;
    s->whole = (sk_tensor_shard){.name = p->e.name, .type = SK_F32, .n = p->n};
    for (int d = 0; d < p->n; d++) s->whole.full[d] = s->whole.size[d] = p->s->full[d];
    SK_TRY(s->read(s->ctx, &s->whole));
    if (s->whole.data) return SK_OK; /* lent */
    s->whole.data = sk_many(&s->room, real, volume(p->s->full, p->n));
    return s->read(s->ctx, &s->whole);
}

static sk_status save_run(saver *s, int64_t from, int64_t step, int64_t n)
{
    const real *x = s->whole.data;
    real tmp[2048];
    int64_t width = (int64_t)sk_dtype_size(s->type), k;
    for (; n; n -= k, from += k * step) {
        k = n < 2048 ? n : 2048;
        if (s->used + k * width > WINDOW) SK_TRY(flush(s));
        for (int64_t i = 0; i < k; i++) tmp[i] = x[from + i * step];
        for (int64_t i = 0; i < k; i++)
            if (!(fabsf(tmp[i]) <= s->most))
                return sk_fail(SK_ENUM, "'%s' has a number %g; %s holds up to %g", s->whole.name,
                               (double)tmp[i], sk_dtype_name(s->type), (double)s->most);
        sk_convert(s->out + s->used, s->type, tmp, SK_F32, k);
        s->used += k * width;
    }
    return SK_OK;
}

static sk_status save_place(saver *s, const place *p)
{
    int64_t step[SK_SHARD_DIM], i[SK_SHARD_DIM] = {0}, from = 0, dense = 1;
    SK_TRY(hold(s, p));
    for (int d = p->n - 1; d >= 0; d--) {
        step[d] = dense, dense *= p->s->full[d];
        from += p->from[d] * step[d];
    }
    int last = p->n_order ? p->order[p->n_order - 1] : -1;
    for (;;) {
        SK_TRY(save_run(s, from, last < 0 ? 1 : step[last], last < 0 ? 1 : p->size[last]));
        int k = p->n_order - 2;
        for (; k >= 0; k--) {
            int d = p->order[k];
            from += step[d];
            if (++i[d] < p->size[d]) break;
            from -= p->size[d] * step[d], i[d] = 0;
        }
        if (k < 0) return SK_OK;
    }
}

static sk_status save_places(saver *s, const places *all)
{
    for (int i = 0; i < all->n; i++) SK_TRY(save_place(s, &all->v[i]));
    return flush(s);
}

static sk_status save_weights(saver *s, int dir, const places *all)
{
    sk_arena *a = s->arena;
    static const sk_st_pair meta = {"format", "pt"};
    sk_st_tensor *t = sk_many(a, sk_st_tensor, all->n);
    for (int i = 0; i < all->n; i++) {
        const place *p = &all->v[i];
        t[i] = (sk_st_tensor){.name = p->e.file_name, .type = s->type, .n = p->n_shape};
        memcpy(t[i].size, p->shape, sizeof p->shape);
    }
    s->out = sk_alloc(a, WINDOW);
    SK_TRY(sk_st_create(a, dir, one_file, 0666, t, all->n, &meta, 1, &s->w));
    sk_status status = save_places(s, all);
    if (status) sk_st_drop(&s->w);
    else status = sk_st_finish(&s->w);
    return status ? sk_trail(status, SK_HERE) : SK_OK;
}

static sk_status save_texts(saver *s, int dir)
{
    char *config = sk_hf_config_print(s->arena, s->model, s->hyper, s->type);
    return sk_companions_write(s->arena, dir, s->with, config);
}

static sk_status save_sums(const saver *s, int dir)
{
    const sk_ckpt_file weights = {one_file, s->w.bytes, s->w.n_crc, s->w.crc};
    return sk_checksums_write(dir, &weights, 1);
}

/* Open the parent of `dir`; *name is its last part. */
static sk_status open_parent(sk_arena *a, const char *dir, char **name, int *fd)
{
    char *path = sk_strdup(a, dir);
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/') path[--n] = 0;
    char *slash = strrchr(path, '/');
    *name = slash ? slash + 1 : path;
    if (slash) *slash = 0;
    const char *parent = !slash ? "." : slash == path ? "/" : path;
    if (!**name || !strcmp(*name, ".") || !strcmp(*name, ".."))
        return sk_fail(SK_ECREATE, "'%s' is no name for a model directory", dir);
    SK_TRY(sk_dir_make(parent));
    *fd = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (*fd < 0) return sk_fail(SK_EIO, "%s: %s", parent, strerror(errno));
    return SK_OK;
}

/* Everything into `tmp`, then `tmp` to `name`. */
static sk_status save_into(saver *s, int parent, const char *tmp, const char *name,
                           const places *all)
{
    bool old = false;
    int fd = openat(parent, tmp, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) return sk_fail(SK_EIO, "%s: %s", tmp, strerror(errno));
    sk_status status = save_texts(s, fd);
    if (!status) status = save_weights(s, fd, all);
    if (!status) status = save_sums(s, fd);
    if (!status && fsync(fd)) status = sk_fail(SK_EIO, "%s: fsync: %s", tmp, strerror(errno));
    close(fd);
    if (!status) status = sk_folder_publish(parent, tmp, name, &old);
    if ((status == SK_OK) == old)
        sk_folder_sweep(parent, tmp); /* what failed, or what was replaced */
    return status ? sk_trail(status, SK_HERE) : SK_OK;
}

static sk_status save(saver *s, const char *dir, const places *all)
{
    char *name = NULL;
    int parent = -1;
    SK_TRY(sk_checksums_replaceable(dir)); /* before the work */
    SK_TRY(open_parent(s->arena, dir, &name, &parent));
    char *tmp = sk_print(s->arena, "%s.tmp-%016" PRIx64, name, sk_folder_nonce());
    sk_status status = mkdirat(parent, tmp, 0777)
                           ? sk_fail(SK_EIO, "making %s: %s", tmp, strerror(errno))
                           : save_into(s, parent, tmp, name, all);
    close(parent);
    return status ? sk_trail(status, SK_HERE) : SK_OK;
}

sk_status sk_hf_save(const char *dir, const sk_model *m, const sk_hyper *h,
                     const sk_hf_shape *shapes, int n_shapes, sk_dtype type, sk_hf_reader *read,
                     void *ctx, const sk_companions *with)
{
    sk_arena a = {0};
    places all = {0};
    saver s = {.arena = &a,
               .model = m,
               .hyper = h,
               .with = with,
               .type = type,
               .most = type == SK_F16    ? 65504.0F
                       : type == SK_BF16 ? 0x1.FEp127F
                                         : FLT_MAX,
               .read = read,
               .ctx = ctx};
    sk_status status = list(&a, m, h, shapes, n_shapes, &all);
    if (!status) status = save(&s, dir, &all);
    sk_arena_end(&s.room);
    sk_arena_end(&a);
    return status ? sk_trail(status, SK_HERE) : SK_OK;
}
