/* hf_save.c - a model as a Hugging Face directory, which appears at once. */
#include "train/hf_place.h"
#include "kernel/optim.h"
#include "tensor/safetensors.h"
#include "train/checkpoint.h"
#include "train/checksums.h"
#include "train/folder.h"
#include "train/hf.h"
#include "train/hf_config.h"

#include <errno.h>
#include <fcntl.h>
#include <float.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Is it there, once or for each replica? */
static bool has(sk_arena *a, const sk_ckpt *c, const char *name)
{
    sk_tensor_shard asked = {.name = name};
    return sk_ckpt_source(a, c, &asked) != NULL;
}

/* The name of the average of a tensor, if the checkpoint has one: by the engine or by an optimizer
 * (sk_param_own_average). */
static const char *average_of(sk_arena *a, const sk_ckpt *c, const char *tensor)
{
    const char *name = sk_print(a, "%s.ema", tensor);
    if (has(a, c, name)) return name;
    for (const sk_optim *const *o = sk_optim_parts; *o; o++) {
        if (!(*o)->average) continue;
        name = sk_print(a, "%s.%s.%s", tensor, (*o)->name, (*o)->state[(*o)->average - 1]);
        if (has(a, c, name)) return name;
    }
    return tensor;
}

bool sk_hf_ckpt_averages(const sk_ckpt *c)
{
    sk_arena a = {0};
    bool any = false;
    for (int i = 0; i < c->tensors.n && !any; i++) {
        const char *name = c->tensors.v[i].name, *end = strstr(name, SK_REPLICA_SUFFIX);
        if (end && !end[strlen(SK_REPLICA_SUFFIX)])
            name = sk_print(&a, "%.*s", (int)(end - name), name);
        any = average_of(&a, c, name) != name;
    }
    sk_arena_end(&a);
    return any;
}

sk_status sk_hf_from_ckpt(void *ctx, sk_tensor_shard *whole)
{
    return whole->data ? sk_ckpt_fill(ctx, whole, 1) : SK_OK;
}

sk_status sk_hf_averages_from_ckpt(void *ctx, sk_tensor_shard *whole)
{
    if (!whole->data) return SK_OK;
    sk_arena a = {0};
    sk_tensor_shard from = *whole;
    from.name = average_of(&a, ctx, whole->name);
    sk_status st = sk_ckpt_fill(ctx, &from, 1);
    sk_arena_end(&a);
    return st;
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
    sk_arena whole_arena; /* for that one */
    char *out;            /* SK_HF_WINDOW bytes on their way to the file */
    int64_t used;
} saver;

static sk_status flush(saver *s)
{
    int64_t n = s->used;
    s->used = 0;
    return sk_st_write(&s->w, s->out, (size_t)n);
}

/* Have the logical tensor of this place in memory; slices of one follow each other. */
static sk_status hold(saver *s, const sk_hf_place *p)
{
    if (s->held && !strcmp(s->held, p->e.name)) return SK_OK;
    sk_arena_end(&s->whole_arena);
    s->held = p->e.name;
    s->whole = (sk_tensor_shard){.name = p->e.name, .type = SK_F32, .n = p->n};
    for (int d = 0; d < p->n; d++) s->whole.full[d] = s->whole.size[d] = p->s->full[d];
    SK_TRY(s->read(s->ctx, &s->whole));
    if (s->whole.data) return SK_OK; /* lent */
    s->whole.data = sk_many(&s->whole_arena, real, sk_hf_volume(p->s->full, p->n));
    return s->read(s->ctx, &s->whole);
}

static sk_status save_run(saver *s, int64_t from, int64_t step, int64_t n)
{
    const real *x = s->whole.data;
    real tmp[2048];
    int64_t width = (int64_t)sk_dtype_size(s->type), k;
    for (; n; n -= k, from += k * step) {
        k = n < 2048 ? n : 2048;
        if (s->used + k * width > SK_HF_WINDOW) SK_TRY(flush(s));
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

static sk_status save_place(saver *s, const sk_hf_place *p)
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

static sk_status save_places(saver *s, const sk_hf_places *all)
{
    for (int i = 0; i < all->n; i++) SK_TRY(save_place(s, &all->v[i]));
    return flush(s);
}

static sk_status save_weights(saver *s, int dir, const sk_hf_places *all)
{
    sk_arena *a = s->arena;
    static const sk_st_pair meta = {"format", "pt"};
    sk_st_tensor *t = sk_many(a, sk_st_tensor, all->n);
    for (int i = 0; i < all->n; i++) {
        const sk_hf_place *p = &all->v[i];
        t[i] = (sk_st_tensor){.name = p->e.file_name, .type = s->type, .n = p->n_shape};
        memcpy(t[i].size, p->shape, sizeof p->shape);
    }
    s->out = sk_alloc(a, SK_HF_WINDOW);
    SK_TRY(sk_st_create(a, dir, sk_hf_one_file, 0666, t, all->n, &meta, 1, &s->w));
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
    const sk_ckpt_file weights = {sk_hf_one_file, s->w.bytes, s->w.n_crc, s->w.crc};
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
                           const sk_hf_places *all)
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

static sk_status no_place(const char *dir, int error)
{
    bool full = error == ENOSPC || error == EDQUOT;
    return sk_fail(full ? SK_EIO : SK_ECREATE, "cannot make the folder %s: %s", dir,
                   strerror(error));
}

static sk_status save(saver *s, const char *dir, const sk_hf_places *all)
{
    char *name = NULL;
    int parent = -1;
    SK_TRY(sk_checksums_replaceable(dir)); /* before the work */
    SK_TRY(open_parent(s->arena, dir, &name, &parent));
    char *tmp = sk_print(s->arena, "%s.tmp-%016" PRIx64, name, sk_folder_nonce());
    sk_status status =
        mkdirat(parent, tmp, 0777) ? no_place(dir, errno) : save_into(s, parent, tmp, name, all);
    close(parent);
    if (status == SK_EIO) /* of a file, by its name alone: a full disk, most of all */
        return sk_fail(SK_EIO, "%s was not saved: %s", dir, sk_strdup(s->arena, sk_error_line()));
    return status ? sk_trail(status, SK_HERE) : SK_OK;
}

sk_status sk_hf_save(const char *dir, const sk_model *m, const sk_hyper *h,
                     const sk_hf_shape *shapes, int n_shapes, sk_dtype type, sk_hf_reader *read,
                     void *ctx, const sk_companions *with)
{
    sk_arena a = {0};
    sk_hf_places all = {0};
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
    sk_status status = sk_hf_list_places(&a, m, h, shapes, n_shapes, &all);
    if (!status) status = save(&s, dir, &all);
    sk_arena_end(&s.whole_arena);
    sk_arena_end(&a);
    return status ? sk_trail(status, SK_HERE) : SK_OK;
}
