/* hf_place.c - how the tensors of Hugging Face files lie in the logical tensors of a model. */
#include "train/hf_place.h"
#include "tensor/safetensors.h"
#include "train/hf.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char sk_hf_one_file[] = "model.safetensors";
const char sk_hf_index_file[] = "model.safetensors.index.json";

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
static sk_status read_dims(sk_hf_place *p)
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
static sk_status resolve(sk_hf_place *p, const sk_hf_shape **shapes, int n_shapes)
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

int64_t sk_hf_volume(const int64_t *size, int n)
{
    int64_t v = 1;
    for (int d = 0; d < n; d++) v *= size[d];
    return v;
}

/* Two parts of one tensor must be cut along the same letter and not meet; together they must be
 * all of it.  The parts of a tensor lie together in `all`, sorted by tensor. */
static sk_status check_parts(sk_hf_place *const *all, int n)
{
    const sk_hf_place *first = all[0];
    int64_t sum = 0;
    for (int i = 0; i < n; i++) {
        const sk_hf_place *p = all[i];
        sum += sk_hf_volume(p->size, p->n);
        for (int k = 0; k < i; k++) {
            const sk_hf_place *q = all[k];
            bool apart = p->e.slice && p->e.slice == q->e.slice &&
                         (q->e.to <= p->e.from || p->e.to <= q->e.from);
            if (!apart)
                return sk_fail(SK_EBUG, "the model takes parts of '%s' from both '%s' and '%s'",
                               p->e.name, q->e.file_name, p->e.file_name);
        }
    }
    if (sum != sk_hf_volume(first->s->full, first->n))
        return sk_fail(SK_EBUG, "the model's Hugging Face list has %lld of %lld elements of '%s'",
                       (long long)sum, (long long)sk_hf_volume(first->s->full, first->n),
                       first->e.name);
    return SK_OK;
}

static int by_tensor(const void *x, const void *y)
{
    const sk_hf_place *a = *(sk_hf_place *const *)x, *b = *(sk_hf_place *const *)y;
    if (a->s != b->s) return strcmp(a->s->name, b->s->name);
    return (a > b) - (a < b);
}

static sk_status check_cover(sk_arena *a, const sk_hf_places *all)
{
    sk_hf_place **sorted = sk_many(a, sk_hf_place *, all->n);
    for (int i = 0; i < all->n; i++) sorted[i] = &all->v[i];
    qsort(sorted, (size_t)all->n, sizeof *sorted, by_tensor);
    for (int from = 0, to; from < all->n; from = to) {
        for (to = from + 1; to < all->n && sorted[to]->s == sorted[from]->s;) to++;
        SK_TRY(check_parts(sorted + from, to - from));
    }
    return SK_OK;
}

sk_status sk_hf_list_places(sk_arena *a, const sk_model *m, const sk_hyper *h,
                            const sk_hf_shape *shapes, int n_shapes, sk_hf_places *out)
{
    sk_hf e = {0};
    if (!m->hf) return sk_fail(SK_ECONF, "the model '%s' has no Hugging Face form", m->name);
    const sk_hf_shape **sorted = sk_many(a, const sk_hf_shape *, n_shapes);
    for (int i = 0; i < n_shapes; i++) sorted[i] = &shapes[i];
    qsort(sorted, (size_t)n_shapes, sizeof *sorted, by_name);
    for (int i = 0; m->hf(a, h, i, &e); i++) {
        sk_hf_place *p = sk_push(a, out);
        p->e = e;
        SK_TRY(resolve(p, sorted, n_shapes));
    }
    return check_cover(a, out);
}

const char *sk_hf_spelling(const char *name, int k, char buf[SK_ST_NAME + 16])
{
    static const char *const prefix[] = {"transformer.", "model."};
    if (k == 0) return name;
    for (int i = 0; k == 1 && i < 2; i++)
        if (!strncmp(name, prefix[i], strlen(prefix[i]))) return name + strlen(prefix[i]);
    if (k > 3) return NULL;
    snprintf(buf, SK_ST_NAME + 16, "%s%.*s", k == 1 ? "" : prefix[k - 2], SK_ST_NAME, name);
    return buf;
}

const sk_st_tensor *sk_hf_find_spelled(const sk_st *st, const char *name)
{
    char buf[SK_ST_NAME + 16];
    const sk_st_tensor *t = NULL;
    const char *s;
    for (int k = 0; !t && (s = sk_hf_spelling(name, k, buf)); k++) t = sk_st_find(st, s);
    return t;
}
