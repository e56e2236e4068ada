/* model_average.c - see model_average.h. */
#include "train/model_average.h"
#include "base/file_io.h"
#include "base/strings.h"
#include "train/hf_config.h"
#include "train/model_export.h"
#include "train/rundir.h"

#include <string.h>

/* ---- one model ---- */

static sk_dtype type_of(unsigned types)
{
    if (types == 1U << SK_F32) return SK_F32;
    if (types == 1U << SK_BF16) return SK_BF16;
    return types == 1U << SK_F16 ? SK_F16 : SK_N_DTYPES;
}

/* A mean of weights that nobody asked for looks like any other: an older checkpoint is not taken
 * instead. */
static sk_status find_checkpoint(sk_arena *a, sk_average_of *x)
{
    const char *passed;
    SK_TRY(sk_rundir_checkpoint(a, x->what, &x->path, &passed));
    if (*passed)
        return sk_fail(SK_EDATA,
                       "average: the newest checkpoint of %s, %s; name the one to take: %s is good",
                       x->what, passed, x->path);
    sk_status st = sk_ckpt_verify(x->path, false);
    return st ? sk_fail(st, "average: %s is not usable: %s", x->path, sk_error_line()) : SK_OK;
}

static sk_status open_checkpoint(sk_arena *a, sk_average_of *x)
{
    unsigned types = 0;
    SK_TRY(find_checkpoint(a, x));
    SK_TRY(sk_ckpt_read(a, x->path, &x->ckpt));
    SK_TRY(sk_hf_check_ckpt(&x->ckpt)); /* also: its arch is known */
    x->is_ckpt = true;
    x->averages = !x->training && sk_hf_ckpt_averages(&x->ckpt);
    x->hyper = x->ckpt.state.hyper;
    x->model = sk_model_find(x->hyper.arch);
    SK_TRY(sk_hf_shapes_of(a, x->model, &x->hyper, &x->shapes, &x->n_shapes));
    for (int i = 0; i < x->n_shapes; i++) {
        sk_tensor_shard asked = {.name = x->shapes[i].name};
        types |= 1U << sk_ckpt_source(a, &x->ckpt, &asked)->type; /* there: it was checked */
    }
    x->type = type_of(types);
    return sk_export_checkpoint_tokens(a, &x->ckpt, NULL, &x->with);
}

static sk_status open_directory(sk_arena *a, sk_average_of *x)
{
    unsigned types = 0;
    SK_TRY(sk_hf_config(x->path, &x->model, &x->hyper));
    SK_TRY(sk_hf_shapes_of(a, x->model, &x->hyper, &x->shapes, &x->n_shapes));
    SK_TRY(sk_hf_check(x->path, x->model, &x->hyper, x->shapes, x->n_shapes, sk_all_chunks));
    SK_TRY(sk_hf_types(x->path, x->model, &x->hyper, x->shapes, x->n_shapes, &types));
    x->type = type_of(types);
    return sk_export_model_tokens(a, x->path, "", &x->hyper, &x->with);
}

/* As `skein export` takes it: of a run the newest checkpoint, or final/ if it has none. */
static sk_status open_one(sk_arena *a, sk_average_of *x)
{
    const char *model = sk_rundir_model(a, x->what);
    if (!model || (model != x->what && sk_is_dir(sk_print(a, "%s/ckpt", x->what))))
        return open_checkpoint(a, x);
    x->path = model;
    if (x->training)
        return sk_fail(SK_EUSAGE,
                       "average: --training-weights is for checkpoints, and %s is a model "
                       "directory, which has one kind of weights",
                       model);
    return open_directory(a, x);
}

/* ---- alike ---- */

static sk_status same_tensor(sk_arena *a, const sk_average_of *x, const sk_average_of *y, int i)
{
    const sk_hf_shape *p = i < x->n_shapes ? &x->shapes[i] : NULL;
    const sk_hf_shape *q = i < y->n_shapes ? &y->shapes[i] : NULL;
    if (!p || !q || strcmp(p->name, q->name)) {
        const sk_average_of *has = p ? x : y, *lacks = p ? y : x;
        return sk_fail(SK_ECONF,
                       "average: tensor '%s' of %s is not in %s at that place; models of one "
                       "architecture with the same sizes are needed",
                       p ? p->name : q->name, has->path, lacks->path);
    }
    int n = (int)strlen(p->letters), m = (int)strlen(q->letters);
    if (n == m && !memcmp(p->full, q->full, sizeof *p->full * (size_t)n)) return SK_OK;
    return sk_fail(SK_ECONF, "average: '%s' has sizes %s in %s and %s in %s; the same are needed",
                   p->name, sk_sizes_print(a, p->full, n), x->path, sk_sizes_print(a, q->full, m),
                   y->path);
}

/* Numbers that no shape shows: an epsilon, the base of angles.  One line of config.json each. */
static sk_status same_config(sk_arena *a, const sk_average_of *x, const sk_average_of *y)
{
    const char *p = sk_hf_config_print(a, x->model, &x->hyper, SK_F32);
    const char *q = sk_hf_config_print(a, y->model, &y->hyper, SK_F32);
    while (*p && *q) {
        size_t n = strcspn(p, "\n"), m = strcspn(q, "\n");
        size_t in = strspn(p, " "), to = strspn(q, " ");
        if (n != m || strncmp(p, q, n))
            return sk_fail(SK_ECONF,
                           "average: config.json would say %.*s for %s and %.*s for %s; models "
                           "that compute the same are needed",
                           (int)(n - in), p + in, x->path, (int)(m - to), q + to, y->path);
        p += n + (p[n] != 0);
        q += m + (q[m] != 0);
    }
    return SK_OK;
}

static sk_status same_model(sk_arena *a, const sk_average_of *x, const sk_average_of *y)
{
    int most = x->n_shapes > y->n_shapes ? x->n_shapes : y->n_shapes;
    if (x->model != y->model)
        return sk_fail(SK_ECONF,
                       "average: %s is a %s and %s a %s, and its first tensor is '%s' beside '%s'; "
                       "one architecture is needed",
                       x->path, x->model->name, y->path, y->model->name, x->shapes[0].name,
                       y->shapes[0].name);
    for (int i = 0; i < most; i++) SK_TRY(same_tensor(a, x, y, i));
    SK_TRY(same_config(a, x, y));
    const char *file = sk_companions_differ(a, &x->with, &y->with);
    if (!file) return SK_OK;
    return sk_fail(SK_ECONF, "average: %s of %s and %s differ; models of one tokenizer are needed",
                   file, x->path, y->path);
}

sk_status sk_average_open(sk_arena *a, sk_average_of *v, int n)
{
    for (int i = 0; i < n; i++) {
        SK_TRY(open_one(a, &v[i]));
        if (i) SK_TRY(same_model(a, &v[0], &v[i]));
    }
    return SK_OK;
}

sk_status sk_average_type(const sk_average_of *v, int n, sk_dtype *type)
{
    for (int i = 0; i < n; i++)
        if (v[i].type == SK_N_DTYPES || v[i].type != v[0].type)
            return sk_fail(SK_EUSAGE,
                           "average: the tensors of %s%s%s are not all f32, all bf16 or all f16; "
                           "say the type of the average: --dtype f32",
                           v[0].path, i ? " and " : "", i ? v[i].path : "");
    *type = v[0].type;
    return SK_OK;
}

/* ---- the mean ---- */

typedef struct mean {
    const sk_average_of *v;
    int n;
    double weights; /* the sum */
} mean;

static sk_status read_one(const sk_average_of *x, sk_tensor_shard *to)
{
    if (x->is_ckpt) {
        sk_hf_reader *read = x->averages ? sk_hf_averages_from_ckpt : sk_hf_from_ckpt;
        return read((void *)&x->ckpt, to);
    }
    return sk_hf_load(x->path, x->model, &x->hyper, x->shapes, x->n_shapes, to, 1);
}

static int64_t count(const sk_tensor_shard *x)
{
    int64_t n = 1;
    for (int d = 0; d < x->n; d++) n *= x->full[d];
    return n;
}

static sk_status add_up(const mean *m, sk_tensor_shard *whole, double *sum, int64_t n)
{
    real *x = whole->data;
    for (int i = 0; i < m->n; i++) {
        double w = m->v[i].weight;
        if (!(w > 0)) continue;
        SK_TRY(read_one(&m->v[i], whole));
        for (int64_t k = 0; k < n; k++) sum[k] += w * (double)x[k];
    }
    for (int64_t k = 0; k < n; k++) x[k] = (real)(sum[k] / m->weights);
    return SK_OK;
}

static sk_status read_mean(void *ctx, sk_tensor_shard *whole)
{
    if (!whole->data) return SK_OK; /* nothing is lent */
    sk_arena a = {0};
    int64_t n = count(whole);
    sk_status st = add_up(ctx, whole, sk_many(&a, double, n), n);
    sk_arena_end(&a);
    return st;
}

sk_status sk_average_save(const sk_average_of *v, int n, sk_dtype type, const char *dir)
{
    mean m = {.v = v, .n = n};
    for (int i = 0; i < n; i++) {
        SK_TRY(sk_export_apart(v[i].path, dir));
        m.weights += v[i].weight;
    }
    return sk_hf_save(dir, v->model, &v->hyper, v->shapes, v->n_shapes, type, read_mean, &m,
                      &v->with);
}
