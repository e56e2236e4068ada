/* restore.c - reading checkpoints: verified chunks, intersected boxes.
 *
 * A requested box intersects stored boxes of its tensor; each intersection is a job.  Jobs
 * go in file order, and bytes pass through one buffer of one chunk whose CRC
 * was checked, so that memory stays at 4 MiB and most files are read once, in
 * order.  Stored boxes are disjoint (the manifest's reader proved it), so an
 * asked box is complete exactly when the meetings' volumes add up to its own. */
#include "base/hash.h"
#include "tensor/safetensors.h"
#include "tensor/strict.h"
#include "train/checkpoint.h"

#include <inttypes.h>
#include <libgen.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The newest is found by its name, so a name must not lie. */
static sk_status same_step(sk_arena *a, const sk_ckpt *c)
{
    int64_t step = -1;
    const char *name = basename(sk_strdup(a, c->path));
    if (!sk_ckpt_step(name, &step) || step == c->state.step) return SK_OK;
    return sk_fail(SK_EDATA,
                   "%s holds step %lld: it was renamed, or copied there; it must be %s%010" PRId64
                   ", or no name of a step",
                   c->path, (long long)c->state.step, "step-", c->state.step);
}

sk_status sk_ckpt_read(sk_arena *a, const char *path, sk_ckpt *out)
{
    int dir = -1;
    sk_text text;
    sk_ckpt c = {.path = sk_strdup(a, path)};
    char *where = sk_print(a, "%s/MANIFEST.json", path);
    SK_TRY(sk_strict_dir(path, &dir));
    sk_arena scratch = {0};
    sk_status status =
        sk_strict_read(&scratch, dir, "MANIFEST.json", where, SK_MANIFEST_BYTES, &text);
    if (!status) status = sk_manifest_parse(a, where, text, true, &c);
    sk_arena_end(&scratch);
    close(dir);
    if (!status) status = same_step(a, &c);
    if (status) return sk_trail(status, SK_HERE);
    *out = c;
    return SK_OK;
}

/* ---- bytes of the files, one verified chunk at a time ---- */

typedef struct reader {
    const sk_ckpt *c;
    int dir, fd, file;
    int64_t chunk;      /* the one in buf; -1 none */
    unsigned char *buf; /* SK_ST_CHUNK bytes */
} reader;

static sk_status reader_open(reader *r, const sk_ckpt *c, sk_arena *a)
{
    *r = (reader){.c = c, .dir = -1, .fd = -1, .file = -1, .chunk = -1};
    r->buf = sk_alloc(a, SK_ST_CHUNK);
    SK_TRY(sk_strict_dir(c->path, &r->dir));
    return SK_OK;
}

static void reader_close(reader *r)
{
    if (r->fd >= 0) close(r->fd);
    if (r->dir >= 0) close(r->dir);
}

static sk_status reader_file(reader *r, int file)
{
    const sk_ckpt_file *f = &r->c->files.v[file];
    int64_t size = 0;
    if (r->file == file) return SK_OK;
    if (r->fd >= 0) close(r->fd);
    r->fd = r->file = -1;
    r->chunk = -1;
    SK_TRY(sk_strict_open(r->dir, f->name, f->name, &r->fd, &size));
    r->file = file;
    if (size != f->bytes)
        return sk_fail(SK_EDATA, "%s/%s has %lld bytes, the manifest says %lld", r->c->path,
                       f->name, (long long)size, (long long)f->bytes);
    return SK_OK;
}

static sk_status reader_chunk(reader *r, int file, int64_t chunk)
{
    SK_TRY(reader_file(r, file));
    if (r->chunk == chunk) return SK_OK;
    const sk_ckpt_file *f = &r->c->files.v[file];
    int64_t at = chunk * SK_ST_CHUNK, left = f->bytes - at;
    size_t n = (size_t)(left < SK_ST_CHUNK ? left : SK_ST_CHUNK);
    r->chunk = -1;
    SK_TRY(sk_file_pread(r->fd, f->name, r->buf, n, at));
    uint32_t crc = sk_crc32c(0, r->buf, n);
    if (crc != f->crc[chunk])
        return sk_fail(SK_EDATA,
                       "%s/%s is damaged in bytes %lld to %lld: the sum is %08" PRIx32
                       ", the manifest says %08" PRIx32,
                       r->c->path, f->name, (long long)at, (long long)(at + (int64_t)n), crc,
                       f->crc[chunk]);
    r->chunk = chunk;
    return SK_OK;
}

static sk_status reader_get(reader *r, int file, int64_t at, size_t n, void *to)
{
    char *p = to;
    while (n) {
        SK_TRY(reader_chunk(r, file, at / SK_ST_CHUNK));
        size_t from = (size_t)(at % SK_ST_CHUNK), in_chunk = SK_ST_CHUNK - from,
               k = n < in_chunk ? n : in_chunk;
        memcpy(p, r->buf + from, k);
        p += k, n -= k, at += (int64_t)k;
    }
    return SK_OK;
}

/* ---- jobs ---- */

typedef struct job {
    bool add; /* to what is there */
    const sk_ckpt_tensor *t;
    const sk_ckpt_box *from, *stored; /* stored: as the manifest has it; from may be moved */
    const sk_tensor_shard *to;
    int64_t at[SK_SHARD_DIM], size[SK_SHARD_DIM]; /* where they meet, in the logical tensor */
} job;

typedef struct jobs {
    job *v;
    int n, cap;
} jobs;

static int64_t volume(const int64_t *size, int n)
{
    int64_t v = 1;
    for (int d = 0; d < n; d++) v *= size[d];
    return v;
}

static bool meet(job *j, int n)
{
    for (int d = 0; d < n; d++) {
        int64_t a = j->from->at[d], b = j->to->at[d];
        int64_t a_end = a + j->from->size[d], b_end = b + j->to->size[d];
        j->at[d] = a > b ? a : b;
        j->size[d] = (a_end < b_end ? a_end : b_end) - j->at[d];
        if (j->size[d] <= 0) return false;
    }
    return true;
}

static bool real_type(sk_dtype t)
{
    return t == SK_F32 || t == SK_BF16 || t == SK_F16 || t == SK_F64;
}

static sk_status same_tensor(sk_arena *a, const sk_ckpt *c, const sk_ckpt_tensor *t,
                             const sk_tensor_shard *b)
{
    if (!t)
        return sk_fail(SK_EDATA,
                       "%s holds no tensor '%s': it was written by another model, or with another "
                       "optim.name",
                       c->path, b->name);
    if (t->n != b->n || memcmp(t->full, b->full, sizeof *t->full * (size_t)t->n))
        return sk_fail(SK_EDATA,
                       "%s: '%s' has sizes %s, needed %s: it was written by another model", c->path,
                       b->name, sk_sizes_print(a, t->full, t->n), sk_sizes_print(a, b->full, b->n));
    if (t->type != b->type && !(real_type(t->type) && real_type(b->type)))
        return sk_fail(SK_EDATA, "%s: '%s' is %s, needed %s", c->path, b->name,
                       sk_dtype_name(t->type), sk_dtype_name(b->type));
    return SK_OK;
}

/* Parts of a sum: stored part k of n goes to part k*m/n of the m there are now, and is added. */
static sk_status plan_parts(sk_arena *a, const sk_ckpt *c, const sk_tensor_shard *b, int64_t need,
                            jobs *all)
{
    const sk_ckpt_tensor *t = sk_manifest_find(c, b->name);
    sk_ckpt_tensor like;
    int64_t have = 0, parts = 0;
    sk_assert(b->size[0] == 1 && b->type == SK_F32);
    memset(b->data, 0, (size_t)need * sizeof(float));
    if (!t) return SK_OK;
    like = *t;
    like.full[0] = b->full[0];
    SK_TRY(same_tensor(a, c, &like, b));
    for (int64_t k = 0; k < t->full[0]; k++) {
        if (k * b->full[0] / t->full[0] != b->at[0]) continue;
        parts++;
        for (int i = 0; i < t->boxes.n; i++) {
            sk_ckpt_box *from = sk_new(a, sk_ckpt_box);
            *from = t->boxes.v[i];
            from->at[0] += b->at[0] - k; /* as if it were this part */
            job j = {.add = true, .t = t, .from = from, .stored = &t->boxes.v[i], .to = b};
            if (!meet(&j, t->n)) continue;
            *(job *)sk_push(a, all) = j;
            have += volume(j.size, t->n);
        }
    }
    if (have != parts * need)
        return sk_fail(SK_EDATA, "%s: %lld of %lld elements of '%s' are there", c->path,
                       (long long)have, (long long)(parts * need), b->name);
    return SK_OK;
}

/* Does it begin as the mean over the replicas that are stored?  Which tensor these are, or NULL. */
static const sk_ckpt_tensor *replicas_of(sk_arena *a, const sk_ckpt *c, const sk_tensor_shard *b)
{
    if (b->parts) return NULL;
    const sk_ckpt_tensor *t =
        sk_manifest_find(c, b->each ? b->name : sk_print(a, "%s" SK_REPLICA_SUFFIX, b->name));
    if (!t || t->n < 1 ||
        (b->each ? t->full[0] == b->full[0] : sk_manifest_find(c, b->name) != NULL))
        return NULL;
    return t;
}

const sk_ckpt_tensor *sk_ckpt_source(sk_arena *a, const sk_ckpt *c, const sk_tensor_shard *b)
{
    const sk_ckpt_tensor *t = sk_manifest_find(c, b->name);
    if (!t && b->each) t = sk_manifest_find(c, b->each);
    return t ? t : replicas_of(a, c, b);
}

/* The jobs that fill one box; their volumes must add up to it. */
static sk_status plan_box(sk_arena *a, const sk_ckpt *c, const sk_tensor_shard *b, jobs *all)
{
    int64_t need = 0, have = 0;
    sk_assert(b->n <= SK_SHARD_DIM && sk_manifest_count(b->size, b->n, &need));
    for (int d = 0; d < b->n; d++)
        sk_assert(b->at[d] >= 0 && b->at[d] <= b->full[d] && b->size[d] <= b->full[d] - b->at[d]);
    if (!need) return SK_OK;
    if (b->parts) return plan_parts(a, c, b, need, all);
    const sk_ckpt_tensor *t = sk_manifest_find(c, b->name);
    if (!t && b->each) {
        sk_tensor_shard *one = sk_new(a, sk_tensor_shard);
        *one = sk_shard_each(b);
        return plan_box(a, c, one, all);
    }
    if (!t && b->may_lack) {
        memset(b->data, 0, (size_t)need * sk_dtype_size(b->type));
        return SK_OK;
    }
    SK_TRY(same_tensor(a, c, t, b));
    for (int i = 0; i < t->boxes.n; i++) {
        job j = {.t = t, .from = &t->boxes.v[i], .stored = &t->boxes.v[i], .to = b};
        if (!meet(&j, t->n)) continue;
        *(job *)sk_push(a, all) = j;
        have += volume(j.size, t->n);
    }
    if (have != need)
        return sk_fail(SK_EDATA, "%s: %lld of %lld elements of '%s' are there", c->path,
                       (long long)have, (long long)need, b->name);
    return SK_OK;
}

static int file_order(const void *x, const void *y)
{
    const sk_ckpt_box *a = ((const job *)x)->from, *b = ((const job *)y)->from;
    if (a->file != b->file) return a->file < b->file ? -1 : 1;
    return (a->begin > b->begin) - (a->begin < b->begin);
}

static void add_run(float *to, const char *from, sk_dtype type, int64_t n)
{
    float x[256];
    for (int64_t i = 0, k; i < n; i += k) {
        k = n - i < 256 ? n - i : 256;
        sk_convert(x, SK_F32, from + i * (int64_t)sk_dtype_size(type), type, k);
        for (int64_t m = 0; m < k; m++) to[i + m] += x[m];
    }
}

/* Elements from a byte of a file to a place in memory, converted on the way. */
static sk_status copy_run(reader *r, const job *j, int64_t from, char *to, int64_t n)
{
    _Alignas(16) char part[32768];
    int64_t width = (int64_t)sk_dtype_size(j->t->type), most = (int64_t)sizeof part / width;
    if (j->t->type == j->to->type && !j->add)
        return reader_get(r, j->from->file, from, (size_t)(n * width), to);
    for (int64_t k = 0; n; n -= k, from += k * width) {
        k = n < most ? n : most;
        SK_TRY(reader_get(r, j->from->file, from, (size_t)(k * width), part));
        if (j->add) add_run((float *)(void *)to, part, j->t->type, k);
        else sk_convert(to, j->to->type, part, j->t->type, k);
        to += k * (int64_t)sk_dtype_size(j->to->type);
    }
    return SK_OK;
}

/* Position of the element `i` (counted from the meeting's corner) in a dense box. */
static int64_t position(const job *j, const int64_t *i, const int64_t *at, const int64_t *size)
{
    int64_t p = 0;
    for (int d = 0; d < j->t->n; d++) p = p * size[d] + j->at[d] + i[d] - at[d];
    return p;
}

/* Trailing dims that are whole in both boxes make one run; the others are counted through. */
static sk_status copy_job(reader *r, const job *j)
{
    int n = j->t->n, outer = n;
    int64_t run = 1, i[SK_SHARD_DIM] = {0};
    bool whole = true;
    while (outer && whole) {
        outer--;
        run *= j->size[outer];
        whole = j->size[outer] == j->from->size[outer] && j->size[outer] == j->to->size[outer];
    }
    for (;;) {
        int64_t from = position(j, i, j->from->at, j->from->size);
        int64_t to = position(j, i, j->to->at, j->to->size);
        SK_TRY(copy_run(r, j, j->from->begin + from * (int64_t)sk_dtype_size(j->t->type),
                        (char *)j->to->data + to * (int64_t)sk_dtype_size(j->to->type), run));
        int d = outer - 1;
        while (d >= 0 && ++i[d] == j->size[d]) i[d--] = 0;
        if (d < 0) return SK_OK;
    }
}

/* ---- a manifest and the headers of its files ---- */

/* The shards' own headers must say what the manifest says: other tools read only those, and a
 * manifest that somebody edited would put one tensor's bytes into another. */
static sk_status verify_box(sk_arena *a, const sk_ckpt_tensor *t, const sk_ckpt_box *b,
                            const sk_st *st)
{
    const char *key = sk_manifest_key(a, t, b);
    const sk_st_tensor *found = sk_st_find(st, key);
    bool same =
        found && found->type == t->type && found->n == t->n && st->data + found->begin == b->begin;
    for (int d = 0; same && d < t->n; d++) same = found->size[d] == b->size[d];
    if (!same)
        return sk_fail(SK_EDATA, "%s: '%s' is not where the manifest says", st->where,
                       sk_strict_show(key).s);
    return SK_OK;
}

/* The boxes of these jobs, which are in the order of files.  whole: they are all that there are. */
static sk_status check_headers(sk_arena *a, int dir, const sk_ckpt *c, const jobs *all, bool whole)
{
    for (int f = 0, at = 0; f < c->files.n; f++) {
        sk_st st;
        int first = at;
        while (at < all->n && all->v[at].stored->file == f) at++;
        if (at == first && !whole) continue;
        sk_mark mark = sk_arena_mark(a);
        SK_TRY(sk_st_open_at(a, dir, c->files.v[f].name, c->files.v[f].name, 0, &st));
        sk_st_close(&st);
        for (int i = first; i < at; i++) SK_TRY(verify_box(a, all->v[i].t, all->v[i].stored, &st));
        if (whole && at - first != st.n)
            return sk_fail(SK_EDATA, "%s holds %d tensors, the manifest lists %d", st.where, st.n,
                           at - first);
        sk_arena_back(a, mark);
    }
    return SK_OK;
}

static sk_status run_jobs(reader *r, const jobs *all)
{
    for (int i = 0; i < all->n; i++) SK_TRY(copy_job(r, &all->v[i]));
    return SK_OK;
}

static sk_status fill_some(sk_arena *a, const sk_ckpt *c, const sk_tensor_shard *boxes, int n)
{
    reader r;
    jobs all = {0};
    for (int i = 0; i < n; i++)
        if (!boxes[i].q8 && !replicas_of(a, c, &boxes[i])) SK_TRY(plan_box(a, c, &boxes[i], &all));
    if (!all.n) return SK_OK;
    qsort(all.v, (size_t)all.n, sizeof *all.v, file_order);
    sk_status status = reader_open(&r, c, a);
    if (!status) status = check_headers(a, r.dir, c, &all, false);
    if (!status) status = run_jobs(&r, &all);
    reader_close(&r);
    return status ? sk_trail(status, SK_HERE) : SK_OK;
}

/* One after the other, added in their order; `to` has n elements of f32. */
static sk_status fill_mean(sk_arena *a, const sk_ckpt *c, const sk_tensor_shard *b,
                           const sk_ckpt_tensor *t, float *to, int64_t n)
{
    sk_tensor_shard one = sk_shard_each(b), each = one;
    if (t->full[0] < 1)
        return sk_fail(SK_EDATA, "%s: '%s' has no replicas, needed is one at least", c->path,
                       t->name);
    float *x = sk_alloc_n(a, sizeof(float), (size_t)n + 1);
    each.name = t->name;
    each.type = SK_F32;
    each.q8 = SK_Q8_NONE;
    each.data = x;
    each.n = one.n + 1;
    sk_assert(each.n <= SK_SHARD_DIM);
    memmove(each.full + 1, one.full, sizeof *one.full * (size_t)one.n);
    memmove(each.at + 1, one.at, sizeof *one.at * (size_t)one.n);
    memmove(each.size + 1, one.size, sizeof *one.size * (size_t)one.n);
    each.full[0] = t->full[0];
    each.size[0] = 1;
    each.each = b->name; /* it is stored with this number of replicas: never a mean again */
    memset(to, 0, (size_t)n * sizeof *to);
    for (int64_t k = 0; k < t->full[0]; k++) {
        each.at[0] = k;
        SK_TRY(fill_some(a, c, &each, 1));
        sk_mean_add(to, x, n);
    }
    sk_mean_end(to, n, t->full[0]);
    return SK_OK;
}

/* Read as f32, then encoded or rounded: a scale needs all elements of its block, and so does a
 * mean over replicas. */
static sk_status fill_wide(sk_arena *a, const sk_ckpt *c, const sk_tensor_shard *b)
{
    int64_t n = sk_shard_count(b);
    const sk_ckpt_tensor *t = replicas_of(a, c, b);
    sk_tensor_shard wide = *b;
    wide.q8 = SK_Q8_NONE;
    wide.type = SK_F32;
    wide.data = sk_alloc_n(a, sizeof(float), (size_t)n + 1);
    if (t) SK_TRY(fill_mean(a, c, b, t, wide.data, n));
    else SK_TRY(fill_some(a, c, &wide, 1));
    if (b->q8) sk_q8_encode(b->q8, b->data, n, 0, wide.data, n);
    else sk_convert(b->data, b->type, wide.data, SK_F32, n);
    return SK_OK;
}

/* What is stored may lack it: then it is read as another tensor, be that stored once or for each
 * replica. */
static sk_tensor_shard as_stored(sk_arena *a, const sk_ckpt *c, const sk_tensor_shard *b)
{
    sk_tensor_shard to = *b;
    if (!b->like || b->parts || sk_ckpt_source(a, c, b)) return to;
    to.name = b->each ? sk_print(a, "%s" SK_REPLICA_SUFFIX, b->like) : b->like;
    if (b->each) to.each = b->like;
    to.like = NULL;
    return to;
}

static sk_status fill(sk_arena *a, const sk_ckpt *c, const sk_tensor_shard *asked, int n)
{
    sk_tensor_shard *boxes = sk_many(a, sk_tensor_shard, n + 1);
    for (int i = 0; i < n; i++) boxes[i] = as_stored(a, c, &asked[i]);
    SK_TRY(fill_some(a, c, boxes, n));
    for (int i = 0; i < n; i++) {
        if (!boxes[i].q8 && !replicas_of(a, c, &boxes[i])) continue;
        sk_arena one = {0};
        sk_status status = fill_wide(&one, c, &boxes[i]);
        sk_arena_end(&one);
        if (status) return sk_trail(status, SK_HERE);
    }
    return SK_OK;
}

sk_status sk_ckpt_fill(const sk_ckpt *c, const sk_tensor_shard *boxes, int n)
{
    sk_arena a = {0};
    sk_status status = fill(&a, c, boxes, n);
    sk_arena_end(&a);
    return status ? sk_trail(status, SK_HERE) : SK_OK;
}

sk_status sk_ckpt_load(const char *path, const sk_tensor_shard *boxes, int n)
{
    sk_arena a = {0};
    sk_ckpt c;
    sk_status status = sk_ckpt_read(&a, path, &c);
    if (!status) status = fill(&a, &c, boxes, n);
    sk_arena_end(&a);
    return status ? sk_trail(status, SK_HERE) : SK_OK;
}

/* ---- verifying ---- */

static int job_file(const void *x, const void *y)
{
    int a = ((const job *)x)->stored->file, b = ((const job *)y)->stored->file;
    return (a > b) - (a < b);
}

/* Every box of the manifest, by file. */
static void list_boxes(sk_arena *a, const sk_ckpt *c, jobs *all)
{
    for (int i = 0; i < c->tensors.n; i++)
        for (int k = 0; k < c->tensors.v[i].boxes.n; k++)
            *(job *)sk_push(a, all) =
                (job){.t = &c->tensors.v[i], .stored = &c->tensors.v[i].boxes.v[k]};
    if (all->n) qsort(all->v, (size_t)all->n, sizeof *all->v, job_file);
}

static sk_status verify_headers(sk_arena *a, int dir, const sk_ckpt *c)
{
    jobs all = {0};
    list_boxes(a, c, &all);
    return check_headers(a, dir, c, &all, true);
}

static sk_status verify_files(sk_arena *a, reader *r, bool deep)
{
    for (int f = 0; f < r->c->files.n; f++) {
        SK_TRY(reader_file(r, f));
        for (int64_t k = 0; deep && k < r->c->files.v[f].n_crc; k++) SK_TRY(reader_chunk(r, f, k));
    }
    return verify_headers(a, r->dir, r->c);
}

sk_status sk_ckpt_verify(const char *path, bool deep)
{
    sk_arena a = {0};
    sk_ckpt c;
    reader r;
    sk_status status = sk_ckpt_read(&a, path, &c);
    if (!status) {
        status = reader_open(&r, &c, &a);
        if (!status) status = verify_files(&a, &r, deep);
        reader_close(&r);
    }
    sk_arena_end(&a);
    return status ? sk_trail(status, SK_HERE) : SK_OK;
}
