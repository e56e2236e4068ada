/* hf_check.c - is every tensor of a Hugging Face directory, or of a checkpoint, one of its model?
 */
#include "train/hf_place.h"
#include "tensor/safetensors.h"
#include "tensor/strict.h"
#include "train/hf.h"
#include "train/checkpoint.h"
#include "train/hf_config.h"
#include "train/manifest.h"

#include <jansson.h>
#include <string.h>
#include <sys/stat.h>

enum { MOST_FILES = 4096 };

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
                           dir, sk_hf_index_file, sk_strict_show(name).s, file);
    }
    return SK_OK;
}

static sk_status list_files(sk_arena *a, const char *dir, json_t **index, files *out)
{
    struct stat s;
    json_t *root = NULL, *file;
    const char *name;
    sk_status status = SK_OK;
    if (!lstat(sk_print(a, "%s/%s", dir, sk_hf_one_file), &s)) {
        *sk_push(a, out) = sk_hf_one_file;
        return SK_OK;
    }
    if (lstat(sk_print(a, "%s/%s", dir, sk_hf_index_file), &s))
        return sk_fail(SK_EDATA, "%s holds neither %s nor %s; pickled .bin files are never read",
                       dir, sk_hf_one_file, sk_hf_index_file);
    SK_TRY(sk_hf_json(dir, sk_hf_index_file, SK_HF_INDEX_BYTES, &root));
    json_object_foreach(json_object_get(root, "weight_map"), name, file)
    {
        const char *s1 = json_string_value(file);
        bool known = false;
        for (int i = 0; s1 && i < out->n && !known; i++) known = !strcmp(out->v[i], s1);
        if (known) continue;
        if (!s1 || !sk_strict_file(s1) || out->n == MOST_FILES) {
            status = sk_fail(SK_EDATA, "%s/%s: '%s' lies in no plain file, or there are over %d",
                             dir, sk_hf_index_file, sk_strict_show(name).s, MOST_FILES);
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
    sk_hf_places *all;
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
    char *p = sk_alloc(a, 2 * (size_t)SK_HF_WINDOW), *q = p + SK_HF_WINDOW;
    int64_t bytes = t->end - t->begin;
    *same = t->n == u->n && t->type == u->type && bytes == u->end - u->begin &&
            !memcmp(t->size, u->size, sizeof *t->size * (size_t)t->n);
    for (int64_t at = 0; *same && at < bytes; at += SK_HF_WINDOW) {
        int64_t n = bytes - at < SK_HF_WINDOW ? bytes - at : SK_HF_WINDOW;
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
        const sk_st_tensor *u = sk_hf_find_spelled(&other, tie->same_as);
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
            sk_hf_place *p = &c->all->v[i];
            const sk_st_tensor *t = sk_hf_find_spelled(&st, p->e.file_name);
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
                      const sk_hf_shape *shapes, int n_shapes, sk_chunk_share share)
{
    sk_arena a = {0};
    sk_hf_places all = {0};
    files names = {0};
    checker c = {.dir = dir, .model = m, .hyper = h, .all = &all, .files = &names};
    SK_TRY(sk_checksums_check_tensors(dir, share)); /* damage is not a mistake of the model */
    sk_status status = sk_hf_list_places(&a, m, h, shapes, n_shapes, &all);
    if (!status) status = list_files(&a, dir, &c.index, &names);
    for (int i = 0; i < names.n && !status; i++) status = check_file(&c, names.v[i]);
    json_decref(c.index);
    sk_arena_end(&a);
    return status ? sk_trail(status, SK_HERE) : SK_OK;
}

static sk_status types_of_file(const checker *c, const char *file, unsigned *types)
{
    sk_arena a = {0};
    sk_st st;
    sk_status status = open_file(c, &a, file, &st);
    for (int i = 0; i < c->all->n && !status; i++) {
        const sk_st_tensor *t = sk_hf_find_spelled(&st, c->all->v[i].e.file_name);
        if (t) *types |= 1U << t->type;
    }
    if (!status) sk_st_close(&st);
    sk_arena_end(&a);
    return status;
}

sk_status sk_hf_types(const char *dir, const sk_model *m, const sk_hyper *h,
                      const sk_hf_shape *shapes, int n_shapes, unsigned *types)
{
    sk_arena a = {0};
    sk_hf_places all = {0};
    files names = {0};
    checker c = {.dir = dir, .model = m, .hyper = h, .all = &all, .files = &names};
    sk_status status = sk_hf_list_places(&a, m, h, shapes, n_shapes, &all);
    *types = 0;
    if (!status) status = list_files(&a, dir, &c.index, &names);
    for (int i = 0; i < names.n && !status; i++) status = types_of_file(&c, names.v[i], types);
    json_decref(c.index);
    sk_arena_end(&a);
    return status ? sk_trail(status, SK_HERE) : SK_OK;
}

static sk_status check_shapes(sk_arena *a, const sk_ckpt *c, const sk_hf_shape *shapes, int n)
{
    for (int i = 0; i < n; i++) {
        sk_tensor_shard asked = {.name = shapes[i].name};
        const sk_ckpt_tensor *t = sk_ckpt_source(a, c, &asked);
        int dims = (int)strlen(shapes[i].letters);
        if (!t)
            return sk_fail(SK_EDATA, "%s: its model has a parameter '%s', its tensors do not",
                           c->path, shapes[i].name);
        int replicas = strcmp(t->name, shapes[i].name) != 0; /* a dim more */
        if (t->n != dims + replicas ||
            memcmp(t->full + replicas, shapes[i].full, sizeof *t->full * (size_t)dims))
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
