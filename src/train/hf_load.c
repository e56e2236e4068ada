/* hf_load.c - weights of a Hugging Face directory into boxes. */
#include "train/hf_place.h"
#include "tensor/safetensors.h"
#include "tensor/strict.h"
#include "train/hf.h"
#include "train/hf_config.h"

#include <fcntl.h>
#include <jansson.h>
#include <string.h>
#include <sys/stat.h>

enum { RUN = 1 << 15 };

/* Does any asked box hold an element of this place? */
static bool needed(const sk_hf_place *p, const sk_tensor_shard *boxes, int n)
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

static sk_status find_in_index(sk_arena *a, const char *dir, const json_t *root, sk_hf_place *p)
{
    char buf[SK_ST_NAME + 16];
    const json_t *map = json_object_get(root, "weight_map");
    const char *file = NULL, *s;
    for (int k = 0; !file && (s = sk_hf_spelling(p->e.file_name, k, buf)); k++)
        file = json_string_value(json_object_get(map, s));
    if (!file)
        return sk_fail(SK_EDATA, "%s/%s knows no tensor '%s', needed for '%s'", dir,
                       sk_hf_index_file, p->e.file_name, p->e.name);
    if (!sk_strict_file(file))
        return sk_fail(SK_EDATA, "%s/%s: '%s' is no plain file name", dir, sk_hf_index_file,
                       sk_strict_show(file).s);
    p->file = sk_strdup(a, file);
    return SK_OK;
}

/* Set the file of every place that is needed. */
static sk_status locate(sk_arena *a, const char *dir, const sk_tensor_shard *boxes, int n,
                        sk_hf_places *all)
{
    struct stat s;
    json_t *root = NULL;
    sk_status status = SK_OK;
    bool one =
        !lstat(sk_print(a, "%s/%s", dir, sk_hf_one_file), &s); /* a dead link is told as such */
    if (!one && lstat(sk_print(a, "%s/%s", dir, sk_hf_index_file), &s))
        return sk_fail(SK_EDATA, "%s holds neither %s nor %s; pickled .bin files are never read",
                       dir, sk_hf_one_file, sk_hf_index_file);
    if (!one) SK_TRY(sk_hf_json(dir, sk_hf_index_file, SK_HF_INDEX_BYTES, &root));
    for (int i = 0; i < all->n && !status; i++) {
        if (!needed(&all->v[i], boxes, n)) continue;
        if (one) all->v[i].file = sk_hf_one_file;
        else status = find_in_index(a, dir, root, &all->v[i]);
    }
    json_decref(root);
    return status ? sk_trail(status, SK_HERE) : SK_OK;
}

/* The tensor of an open file, with the right shape. */
static sk_status find_in_file(sk_arena *a, const sk_st *st, const sk_hf_place *p,
                              const sk_st_tensor **out)
{
    const sk_st_tensor *t = sk_hf_find_spelled(st, p->e.file_name);
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
        SK_TRY(sk_st_read(w->st, w->t, at, left < SK_HF_WINDOW ? left : SK_HF_WINDOW, w->buf));
        w->hi = at + (left < SK_HF_WINDOW ? left : SK_HF_WINDOW);
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
static sk_status load_box(window *w, const sk_hf_place *p, const sk_tensor_shard *b)
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

static sk_status load_place(sk_arena *a, const sk_st *st, const sk_hf_place *p, char *buf,
                            const sk_tensor_shard *boxes, int n)
{
    window w = {.st = st, .buf = buf};
    SK_TRY(find_in_file(a, st, p, &w.t));
    for (int i = 0; i < n; i++)
        if (!strcmp(boxes[i].name, p->e.name)) SK_TRY(load_box(&w, p, &boxes[i]));
    return SK_OK;
}

/* All places of one file; they are marked as done. */
static sk_status load_file(const char *dir, const char *file, sk_hf_places *all,
                           const sk_tensor_shard *boxes, int n)
{
    sk_arena a = {0};
    sk_st st;
    sk_status status = sk_st_open(&a, sk_print(&a, "%s/%s", dir, file), &st);
    if (!status) {
        char *buf = sk_alloc(&a, SK_HF_WINDOW);
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
static sk_status check_boxes(sk_arena *a, const sk_hf_places *all, const sk_tensor_shard *boxes,
                             int n)
{
    for (int i = 0; i < n; i++) {
        const sk_tensor_shard *b = &boxes[i];
        const sk_hf_place *p = NULL;
        for (int k = 0; k < all->n && !p; k++)
            if (!strcmp(all->v[k].e.name, b->name)) p = &all->v[k];
        if (!p) return sk_fail(SK_EDATA, "a Hugging Face directory has nothing for '%s'", b->name);
        if (b->n != p->n || memcmp(b->full, p->s->full, sizeof *b->full * (size_t)b->n))
            return sk_fail(SK_EBUG, "'%s' has sizes %s and %s", b->name,
                           sk_sizes_print(a, b->full, b->n), sk_sizes_print(a, p->s->full, p->n));
    }
    return SK_OK;
}

static sk_status load(sk_arena *a, const char *dir, sk_hf_places *all, const sk_tensor_shard *boxes,
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
    sk_hf_places all = {0};
    sk_status status = sk_hf_list_places(&a, m, h, shapes, n_shapes, &all);
    if (!status) status = load(&a, dir, &all, boxes, n);
    sk_arena_end(&a);
    return status ? sk_trail(status, SK_HERE) : SK_OK;
}
