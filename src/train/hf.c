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

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { WINDOW = 1 << 20, RUN = 1 << 15, CONFIG_BYTES = 1 << 20, INDEX_BYTES = 16 << 20 };
static const char one_file[] = "model.safetensors", index_file[] = "model.safetensors.index.json";

typedef struct place {
    sk_hf e;
    const sk_hf_shape *s;
    int n, n_order, n_shape;
    int order[SK_PIECE_DIM];                        /* our dims, in the order of the file */
    int64_t from[SK_PIECE_DIM], size[SK_PIECE_DIM]; /* per dim of ours: what the file holds */
    int64_t step[SK_PIECE_DIM];                     /* per dim of ours: in elements of the file */
    int64_t shape[SK_ST_DIM];
    const char *file; /* where it was found; NULL: not needed */
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

/* Read `dims`: which of our letters make up each dim of the file. */
static sk_status read_dims(place *p)
{
    bool seen[SK_PIECE_DIM] = {0};
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

static sk_status resolve(place *p, const sk_hf_shape *shapes, int n_shapes)
{
    for (int i = 0; i < n_shapes && !p->s; i++)
        if (!strcmp(shapes[i].name, p->e.name)) p->s = &shapes[i];
    if (!p->s)
        return sk_fail(SK_EBUG, "the model lists '%s' for Hugging Face and has no such tensor",
                       p->e.name);
    p->n = (int)strlen(p->s->letters);
    sk_assert(p->n <= SK_PIECE_DIM);
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
 * all of it.  Quadratic in the number of tensors, which is thousands at most. */
static sk_status check_cover(const places *all)
{
    for (int i = 0; i < all->n; i++) {
        const place *p = &all->v[i];
        int64_t sum = 0;
        for (int k = 0; k < all->n; k++) {
            const place *q = &all->v[k];
            if (q->s != p->s) continue;
            sum += volume(q->size, q->n);
            bool apart = p->e.slice && p->e.slice == q->e.slice &&
                         (q->e.to <= p->e.from || p->e.to <= q->e.from);
            if (k != i && !apart)
                return sk_fail(SK_EBUG, "the model takes parts of '%s' from both '%s' and '%s'",
                               p->e.name, p->e.file_name, q->e.file_name);
        }
        if (sum != volume(p->s->full, p->n))
            return sk_fail(SK_EBUG,
                           "the model's Hugging Face list has %lld of %lld elements of '%s'",
                           (long long)sum, (long long)volume(p->s->full, p->n), p->e.name);
    }
    return SK_OK;
}

static sk_status list(sk_arena *a, const sk_model *m, const sk_hyper *h, const sk_hf_shape *shapes,
                      int n_shapes, places *out)
{
    sk_hf e = {0};
    if (!m->hf) return sk_fail(SK_ECONF, "the model '%s' has no Hugging Face form", m->name);
    for (int i = 0; m->hf(a, h, i, &e); i++) {
        place *p = sk_push(a, out);
        p->e = e;
        SK_TRY(resolve(p, shapes, n_shapes));
    }
    return check_cover(out);
}

/* ---- config.json ---- */

static sk_status read_json(const char *dir, const char *name, int64_t most, json_t **out)
{
    static const sk_strict limits = {.depth = 16, .objects = 100000, .values = 2000000};
    sk_arena a = {0};
    sk_text text;
    int fd = -1;
    char *where = sk_print(&a, "%s/%s", dir, name);
    sk_status status = sk_strict_dir(dir, &fd);
    if (!status) {
        status = sk_strict_read(&a, fd, name, where, most, &text);
        close(fd);
    }
    if (!status) status = sk_strict_json(where, text.s, text.n, &limits, out);
    if (!status && !json_is_object(*out)) {
        json_decref(*out);
        status = sk_fail(SK_EDATA, "%s is no mapping", where);
    }
    sk_arena_end(&a);
    return status ? sk_trail(status, SK_HERE) : SK_OK;
}

sk_status sk_hf_arch(const char *dir, char arch[32])
{
    json_t *root = NULL;
    SK_TRY(read_json(dir, "config.json", CONFIG_BYTES, &root));
    const char *type = json_string_value(json_object_get(root, "model_type"));
    bool good = type && sk_strict_file(type) && strlen(type) < 32;
    if (good) memcpy(arch, type, strlen(type) + 1);
    json_decref(root);
    return good ? SK_OK : sk_fail(SK_EDATA, "%s/config.json has no model_type", dir);
}

static void give_keys(const sk_model *m, sk_hyper *h, json_t *from)
{
    const char *key;
    json_t *x;
    json_object_foreach(from, key, x)
    {
        if (json_is_number(x)) m->hf_key(h, key, json_number_value(x));
        if (json_is_boolean(x)) m->hf_key(h, key, json_is_true(x));
    }
}

/* Rotary angles that are stretched change the arithmetic: refuse rather than be a bit wrong. */
static sk_status check_rope(const char *dir, const json_t *root)
{
    const json_t *scaling = json_object_get(root, "rope_scaling");
    if (!json_is_object(scaling)) scaling = json_object_get(root, "rope_parameters");
    const char *type = json_string_value(json_object_get(scaling, "rope_type"));
    if (!type) type = json_string_value(json_object_get(scaling, "type"));
    if (!type || !strcmp(type, "default")) return SK_OK;
    return sk_fail(SK_ECONF, "%s/config.json asks for rope scaling '%s', which skein does not have",
                   dir, sk_strict_show(type).s);
}

sk_status sk_hf_config(const char *dir, const sk_model *m, sk_hyper *out)
{
    sk_hyper h = m->usual;
    json_t *root = NULL;
    if (!m->hf_key) return sk_fail(SK_ECONF, "the model '%s' has no Hugging Face form", m->name);
    SK_TRY(read_json(dir, "config.json", CONFIG_BYTES, &root));
    sk_status status = check_rope(dir, root);
    if (!status) {
        give_keys(m, &h, root);
        give_keys(m, &h, json_object_get(root, "rope_parameters"));
        snprintf(h.arch, sizeof h.arch, "%s", m->name);
        *out = h;
    }
    json_decref(root);
    return status ? sk_trail(status, SK_HERE) : SK_OK;
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
static bool needed(const place *p, const sk_box *boxes, int n)
{
    for (int i = 0; i < n; i++) {
        const sk_box *b = &boxes[i];
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
static sk_status locate(sk_arena *a, const char *dir, int fd, const sk_box *boxes, int n,
                        places *all)
{
    struct stat s;
    json_t *root = NULL;
    sk_status status = SK_OK;
    bool one = !fstatat(fd, one_file, &s, AT_SYMLINK_NOFOLLOW);
    if (!one && fstatat(fd, index_file, &s, AT_SYMLINK_NOFOLLOW))
        return sk_fail(SK_EDATA, "%s holds neither %s nor %s; pickled .bin files are never read",
                       dir, one_file, index_file);
    if (!one) SK_TRY(read_json(dir, index_file, INDEX_BYTES, &root));
    for (int i = 0; i < all->n && !status; i++) {
        if (!needed(&all->v[i], boxes, n)) continue;
        if (one) all->v[i].file = one_file;
        else status = find_in_index(a, dir, root, &all->v[i]);
    }
    json_decref(root);
    return status ? sk_trail(status, SK_HERE) : SK_OK;
}

/* The tensor of an open file, with the right shape. */
static sk_status find_in_file(sk_arena *a, const sk_st *st, const place *p,
                              const sk_st_tensor **out)
{
    char buf[SK_ST_NAME + 16];
    const sk_st_tensor *t = NULL;
    const char *s;
    for (int k = 0; !t && (s = spelling(p->e.file_name, k, buf)); k++) t = sk_st_find(st, s);
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
static sk_status load_run(window *w, const sk_box *b, int64_t from, int64_t to, int64_t step,
                          int64_t n)
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
static sk_status load_box(window *w, const place *p, const sk_box *b)
{
    int64_t size[SK_PIECE_DIM], step[SK_PIECE_DIM], i[SK_PIECE_DIM] = {0};
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
                            const sk_box *boxes, int n)
{
    window w = {.st = st, .buf = buf};
    SK_TRY(find_in_file(a, st, p, &w.t));
    for (int i = 0; i < n; i++)
        if (!strcmp(boxes[i].name, p->e.name)) SK_TRY(load_box(&w, p, &boxes[i]));
    return SK_OK;
}

/* All places of one file; they are marked as done. */
static sk_status load_file(const char *dir, int fd, const char *file, places *all,
                           const sk_box *boxes, int n)
{
    sk_arena a = {0};
    sk_st st;
    sk_status status = sk_st_open_at(&a, fd, file, sk_print(&a, "%s/%s", dir, file), 0, &st);
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
static sk_status check_boxes(sk_arena *a, const places *all, const sk_box *boxes, int n)
{
    for (int i = 0; i < n; i++) {
        const sk_box *b = &boxes[i];
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

static sk_status load(sk_arena *a, const char *dir, int fd, places *all, const sk_box *boxes, int n)
{
    SK_TRY(check_boxes(a, all, boxes, n));
    SK_TRY(locate(a, dir, fd, boxes, n, all));
    for (int i = 0; i < all->n; i++)
        if (all->v[i].file) SK_TRY(load_file(dir, fd, all->v[i].file, all, boxes, n));
    return SK_OK;
}

sk_status sk_hf_load(const char *dir, const sk_model *m, const sk_hyper *h,
                     const sk_hf_shape *shapes, int n_shapes, const sk_box *boxes, int n)
{
    sk_arena a = {0};
    places all = {0};
    int fd = -1;
    sk_status status = list(&a, m, h, shapes, n_shapes, &all);
    if (!status) status = sk_strict_dir(dir, &fd);
    if (!status) {
        status = load(&a, dir, fd, &all, boxes, n);
        close(fd);
    }
    sk_arena_end(&a);
    return status ? sk_trail(status, SK_HERE) : SK_OK;
}

/* ---- saving ---- */

sk_status sk_hf_from_ckpt(void *ctx, sk_box *whole)
{
    return whole->data ? sk_ckpt_fill(ctx, whole, 1) : SK_OK;
}

typedef struct saver {
    sk_arena *arena;
    const sk_model *model;
    const sk_hyper *hyper;
    const char *tokenizer;
    sk_st_writer w;
    sk_dtype type;
    sk_hf_reader *read;
    void *ctx;
    const char *held; /* the logical tensor that `whole` holds */
    sk_box whole;
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
    s->whole = (sk_box){.name = p->e.name, .type = SK_F32, .n = p->n};
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
        if (step != 1)
            for (int64_t i = 0; i < k; i++) tmp[i] = x[from + i * step];
        sk_convert(s->out + s->used, s->type, step == 1 ? x + from : tmp, SK_F32, k);
        s->used += k * width;
    }
    return SK_OK;
}

static sk_status save_place(saver *s, const place *p)
{
    int64_t step[SK_PIECE_DIM], i[SK_PIECE_DIM] = {0}, from = 0, dense = 1;
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
    if (!s->model->hf_config)
        return sk_fail(SK_ECONF, "the model '%s' has no config.json", s->model->name);
    char *config = s->model->hf_config(s->arena, s->hyper);
    sk_out gen = {.arena = s->arena};
    sk_out_add(&gen, "{\n  \"_from_model_config\": true");
    if (s->hyper->max_position_embeddings > 0)
        sk_out_add(&gen, ",\n  \"max_length\": %" PRId64, s->hyper->max_position_embeddings);
    sk_out_add(&gen, "\n}\n");
    SK_TRY(sk_folder_write(dir, "config.json", 0666, config, strlen(config)));
    SK_TRY(sk_folder_write(dir, "generation_config.json", 0666, gen.s, gen.n));
    if (s->tokenizer)
        SK_TRY(sk_folder_write(dir, "tokenizer.json", 0666, s->tokenizer, strlen(s->tokenizer)));
    return SK_OK;
}

/* What is there may be replaced only if it is a model that was saved before. */
static sk_status check_target(const char *dir)
{
    static const char *const ours[] = {
        ".", "..", "config.json", "model.safetensors", "tokenizer.json", "generation_config.json"};
    sk_status status = SK_OK;
    struct stat st;
    if (!lstat(dir, &st) && !S_ISDIR(st.st_mode))
        return sk_fail(SK_ECREATE, "%s is there and is not a directory", dir);
    DIR *d = opendir(dir);
    if (!d && errno != ENOENT) return sk_fail(SK_ECREATE, "%s: %s", dir, strerror(errno));
    for (struct dirent *e; d && !status && (e = readdir(d));) {
        bool known = false;
        for (size_t i = 0; i < sizeof ours / sizeof *ours; i++)
            known |= !strcmp(e->d_name, ours[i]);
        if (!known)
            status = sk_fail(SK_ECREATE,
                             "%s holds '%s', which is no file of a saved model: "
                             "choose another directory",
                             dir, sk_strict_show(e->d_name).s);
    }
    if (d) closedir(d);
    return status;
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
    SK_TRY(check_target(dir));
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
                     void *ctx, const char *tokenizer_json)
{
    sk_arena a = {0};
    places all = {0};
    saver s = {.arena = &a,
               .model = m,
               .hyper = h,
               .tokenizer = tokenizer_json,
               .type = type,
               .read = read,
               .ctx = ctx};
    sk_status status = list(&a, m, h, shapes, n_shapes, &all);
    if (!status) status = save(&s, dir, &all);
    sk_arena_end(&s.room);
    sk_arena_end(&a);
    return status ? sk_trail(status, SK_HERE) : SK_OK;
}
