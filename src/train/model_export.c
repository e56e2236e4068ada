/* model_export.c - models as Hugging Face directories. */
#include "train/model_export.h"
#include "base/file_io.h"
#include "data/data_files.h"
#include "run/run.h"
#include "tensor/strict.h"
#include "train/companions.h"
#include "train/hf.h"
#include "train/hf_config.h"
#include "train/rundir.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { MOST_TOKENIZER = 64 << 20 }; /* bytes of a file */

int sk_shards_sort(const sk_graph *g, sk_tensor_shard *boxes, int n)
{
    int n_model = 0;
    for (int i = 0; i < n; i++) {
        if (!sk_graph_find(g, boxes[i].each ? boxes[i].each : boxes[i].name)) continue;
        sk_tensor_shard b = boxes[i];
        memmove(boxes + n_model + 1, boxes + n_model, (size_t)(i - n_model) * sizeof b);
        boxes[n_model++] = b;
    }
    return n_model;
}

/* --- out of the heaps --- */

typedef struct gather {
    sk_tensor_shard *boxes; /* of all ranks, each element once */
    int n;
} gather;

/* The box's dense elements into their places in the whole. */
static void place(const sk_tensor_shard *whole, const sk_tensor_shard *b)
{
    int64_t rows = 1, row = b->n ? b->size[b->n - 1] : 1;
    for (int d = 0; d < b->n - 1; d++) rows *= b->size[d];
    size_t size = sk_dtype_size(b->type);
    for (int64_t i = 0; row && i < rows; i++) {
        int64_t rest = i, to = 0, step = b->n ? b->full[b->n - 1] : 1;
        for (int d = b->n - 2; d >= 0; d--) {
            to += (rest % b->size[d] + b->at[d]) * step;
            rest /= b->size[d];
            step *= b->full[d];
        }
        if (b->n) to += b->at[b->n - 1];
        sk_convert((char *)whole->data + to * (int64_t)sk_dtype_size(whole->type), whole->type,
                   (const char *)b->data + (size_t)(i * row) * size, b->type, row);
    }
}

static int64_t count(const sk_tensor_shard *b)
{
    int64_t n = 1;
    for (int d = 0; d < b->n; d++) n *= b->size[d];
    return n;
}

/* The tensor itself, if one rank has all of it. */
static void lend(const gather *g, sk_tensor_shard *whole)
{
    for (int i = 0; i < g->n && !whole->data; i++)
        if (!strcmp(g->boxes[i].name, whole->name) && g->boxes[i].type == whole->type &&
            count(&g->boxes[i]) == count(whole))
            whole->data = g->boxes[i].data;
}

static sk_status read_heaps(void *ctx, sk_tensor_shard *whole)
{
    const gather *g = ctx;
    int64_t left = count(whole);
    if (!whole->data) {
        lend(g, whole);
        return SK_OK;
    }
    for (int i = 0; i < g->n; i++) {
        if (strcmp(g->boxes[i].name, whole->name)) continue;
        place(whole, &g->boxes[i]);
        left -= count(&g->boxes[i]);
    }
    if (left)
        return sk_fail(SK_EBUG, "export: '%s' lacks %lld elements in the heaps", whole->name,
                       (long long)left);
    return SK_OK;
}

static gather collect(sk_arena *a, const sk_setup *s, sk_tensor_shard *const *boxes, const int *n)
{
    gather g = {0};
    int most = 0;
    for (int r = 0; r < s->n_ranks; r++) most += n[r];
    g.boxes = sk_many(a, sk_tensor_shard, most);
    for (int r = 0; r < s->n_ranks; r++)
        for (int i = 0; i < n[r]; i++)
            if (boxes[r][i].mine && sk_graph_find(&s->graph, boxes[r][i].name))
                g.boxes[g.n++] = boxes[r][i];
    return g;
}

sk_status sk_export_boxes(sk_arena *a, const sk_setup *s, sk_tensor_shard *const *boxes,
                          const int *n_boxes, const char *tokens, const char *dir)
{
    int n = 0;
    sk_companions with;
    gather g = collect(a, s, boxes, n_boxes);
    sk_hf_shape *shapes = sk_hf_shapes(a, &s->graph, &n);
    SK_TRY(sk_companions_read(a, tokens, &with));
    with.tokenizer_json = s->tokenizer ? sk_tokenizer_json(s->tokenizer, a) : NULL;
    return sk_hf_save(dir, s->job->model, &s->job->hyper, shapes, n, SK_F32, read_heaps, &g, &with);
}

/* --- out of a checkpoint --- */

/* Ids that the model does not have would make text that it cannot read. */
static sk_status fits_vocab(const char *tokenizer, const sk_tokenizer *t, const sk_hyper *h)
{
    int64_t n = t ? sk_tokenizer_vocab(t) : 0;
    if (n <= h->vocab_size) return SK_OK;
    return sk_fail(SK_ECONF,
                   "tokenizer '%s' has %lld ids, the model's vocab_size is %lld; name the one that "
                   "it was trained with",
                   tokenizer, (long long)n, (long long)h->vocab_size);
}

/* The tokenizer that was asked for, or that of the run, and what goes with it. */
sk_status sk_export_checkpoint_tokens(sk_arena *a, const sk_ckpt *c, const char *tokenizer,
                                      sk_companions *out)
{
    const char *kept = tokenizer ? NULL : sk_rundir_tokenizer(a, c->path);
    sk_tokenizer *t = NULL;
    if (!tokenizer)
        tokenizer = sk_companions_tokenizer(a, sk_extra_tokenizer(c->state.extra), kept);
    if (*tokenizer) SK_TRY(sk_tokenizer_open(a, tokenizer, &t));
    SK_TRY(fits_vocab(tokenizer, t, &c->state.hyper));
    if (kept) SK_TRY(sk_companions_read(a, kept, out));
    else SK_TRY(sk_companions_for(a, tokenizer, "", out));
    out->tokenizer_json = t ? sk_tokenizer_json(t, a) : NULL;
    return SK_OK;
}

sk_status sk_export_checkpoint(sk_arena *a, const sk_ckpt *c, const char *tokenizer, sk_dtype type,
                               bool averages, const char *dir)
{
    const sk_model *m = sk_model_find(c->state.hyper.arch);
    sk_companions with;
    sk_hf_shape *shapes = NULL;
    int n = 0;
    if (!m)
        return sk_fail(SK_EDATA, "%s: it holds a model '%s', which this skein does not know",
                       c->path, c->state.hyper.arch);
    SK_TRY(sk_hf_shapes_of(a, m, &c->state.hyper, &shapes, &n));
    SK_TRY(sk_export_checkpoint_tokens(a, c, tokenizer, &with));
    sk_hf_reader *read = averages ? sk_hf_averages_from_ckpt : sk_hf_from_ckpt;
    return sk_hf_save(dir, m, &c->state.hyper, shapes, n, type, read, (void *)c, &with);
}

/* --- out of a model directory --- */

typedef struct directory {
    const char *path;
    const sk_model *model;
    const sk_hyper *hyper;
    sk_hf_shape *shapes;
    int n_shapes;
} directory;

static sk_status read_directory(void *ctx, sk_tensor_shard *whole)
{
    const directory *d = ctx;
    if (!whole->data) return SK_OK; /* it lends nothing */
    return sk_hf_load(d->path, d->model, d->hyper, d->shapes, d->n_shapes, whole, 1);
}

sk_status sk_export_apart(const char *from, const char *to)
{
    struct stat x, y;
    if (stat(from, &x) || stat(to, &y) || x.st_dev != y.st_dev || x.st_ino != y.st_ino)
        return SK_OK;
    return sk_fail(SK_ECREATE, "%s and %s are one directory; choose another to write to", from, to);
}

/* The tokenizer that was asked for, or that of the directory as it is, also one that skein cannot
 * read. */
sk_status sk_export_model_tokens(sk_arena *a, const char *from, const char *tokenizer,
                                 const sk_hyper *hyper, sk_companions *out)
{
    const char *own = sk_print(a, "%s/tokenizer.json", from);
    sk_tokenizer *t = NULL;
    sk_text text = {0};
    SK_TRY(sk_companions_for(a, *tokenizer ? tokenizer : from, from, out));
    if (*tokenizer) {
        SK_TRY(sk_tokenizer_open(a, tokenizer, &t));
        SK_TRY(fits_vocab(tokenizer, t, hyper));
        out->tokenizer_json = sk_tokenizer_json(t, a);
    } else if (sk_is_there(own)) {
        SK_TRY(sk_data_read(a, own, MOST_TOKENIZER, &text));
        out->tokenizer_json = sk_print(a, "%.*s", (int)text.n, text.s);
    }
    return SK_OK;
}

sk_status sk_export_model(sk_arena *a, const char *from, const char *tokenizer, sk_dtype type,
                          const char *dir, sk_hyper *hyper)
{
    sk_companions with;
    directory d = {.path = from, .hyper = hyper};
    SK_TRY(sk_export_apart(from, dir));
    SK_TRY(sk_hf_config(from, &d.model, hyper));
    SK_TRY(sk_hf_shapes_of(a, d.model, hyper, &d.shapes, &d.n_shapes));
    SK_TRY(sk_hf_check(from, d.model, hyper, d.shapes, d.n_shapes, sk_all_chunks));
    SK_TRY(sk_export_model_tokens(a, from, tokenizer, hyper, &with));
    return sk_hf_save(dir, d.model, hyper, d.shapes, d.n_shapes, type, read_directory, &d, &with);
}

/* --- extra --- */

/* Averages of train.noise, and how far the schedule is; nothing if they are not measured. */
static const char *print_noise(sk_arena *a, const sk_extra *x)
{
    const sk_noise_scale *n = &x->noise;
    if (!(n->weight > 0)) return "";
    return sk_print(a, "noise=%.17g,%.17g,%.17g progress=%.17g ", n->variance, n->square, n->weight,
                    x->progress);
}

static bool read_noise(const char *s, sk_noise_scale *n)
{
    int end = 0;
    return sscanf(s, "%lf,%lf,%lf%n", &n->variance, &n->square, &n->weight, &end) == 3 && !s[end] &&
           isfinite(n->variance) && isfinite(n->square) && n->weight > 0 && n->weight <= 1;
}

static const char *print_val(sk_arena *a, const sk_validation *v)
{
    if (!v->step || !isfinite(v->loss)) return "";
    return sk_print(a, "val=%.17g,%.17g ", v->loss, isfinite(v->accuracy) ? v->accuracy : -1);
}

static bool read_val(const char *s, int64_t step, sk_validation *v)
{
    int end = 0;
    v->step = step;
    return sscanf(s, "%lf,%lf%n", &v->loss, &v->accuracy, &end) == 2 && !s[end] &&
           isfinite(v->loss) && isfinite(v->accuracy);
}

char *sk_extra_print(sk_arena *a, const sk_extra *x)
{
    return sk_print(
        a,
        "steps=%lld updates=%lld scale=%.17g good=%lld skipped=%lld left=%s pending=%d "
        "%s%sowed=%d data=%s batch=%lld seq=%lld windows=%lld order=%s samples=%lld changed=%lld "
        "tokenizer=%s",
        (long long)x->steps, (long long)x->updates, x->scale, (long long)x->good,
        (long long)x->skipped, sk_skipped_batches_print(a, &x->skipped_batches), x->pending,
        print_noise(a, x), print_val(a, &x->val), x->owed, x->data ? x->data : "",
        (long long)x->batch, (long long)x->seq, (long long)x->windows, x->order ? x->order : "",
        (long long)x->next.samples, (long long)x->next.changed, x->tokenizer ? x->tokenizer : "");
}

static const char tokenizer_word[] = "tokenizer=";

/* The tokenizer is the last word, and may have blanks in it. */
const char *sk_extra_tokenizer(const char *extra)
{
    const char *at = extra;
    while (*at && strncmp(at, tokenizer_word, sizeof tokenizer_word - 1)) {
        at += strcspn(at, " ");
        at += strspn(at, " ");
    }
    return *at ? at + sizeof tokenizer_word - 1 : "";
}

static bool read_whole(const char *s, int64_t *to)
{
    int64_t x = 0;
    size_t n = strspn(s, "0123456789");
    if (!n || s[n] || n > 15) return false;
    for (; *s; s++) x = 10 * x + (*s - '0');
    *to = x;
    return true;
}

static bool read_scale(const char *s, double *to)
{
    char *end;
    *to = strtod(s, &end);
    return end != s && !*end && *to >= 0 && *to <= 1e12; /* 0: not said */
}

static bool read_bit(const char *s, bool *to)
{
    *to = !strcmp(s, "1");
    return *to || !strcmp(s, "0");
}

/* One word; one that is not known is a later version's. */
static bool read_word(sk_arena *a, const char *key, const char *value, int64_t step, sk_extra *x)
{
    if (!strcmp(key, "steps")) return read_whole(value, &x->steps);
    if (!strcmp(key, "updates")) return read_whole(value, &x->updates);
    if (!strcmp(key, "good")) return read_whole(value, &x->good);
    if (!strcmp(key, "skipped")) return read_whole(value, &x->skipped);
    if (!strcmp(key, "batch")) return read_whole(value, &x->batch);
    if (!strcmp(key, "seq")) return read_whole(value, &x->seq);
    if (!strcmp(key, "windows")) return read_whole(value, &x->windows);
    if (!strcmp(key, "samples")) return read_whole(value, &x->next.samples);
    if (!strcmp(key, "changed")) return read_whole(value, &x->next.changed);
    if (!strcmp(key, "order")) x->order = sk_strdup(a, value);
    if (!strcmp(key, "progress")) return read_scale(value, &x->progress);
    if (!strcmp(key, "noise")) return read_noise(value, &x->noise);
    if (!strcmp(key, "scale")) return read_scale(value, &x->scale);
    if (!strcmp(key, "left")) return sk_skipped_batches_read(value, &x->skipped_batches);
    if (!strcmp(key, "data")) x->data = sk_strdup(a, value);
    if (!strcmp(key, "val")) return read_val(value, step, &x->val);
    if (!strcmp(key, "owed")) return read_bit(value, &x->owed);
    if (!strcmp(key, "pending")) return read_bit(value, &x->pending);
    return true;
}

sk_status sk_extra_read(sk_arena *a, const char *where, const char *text, int64_t step,
                        sk_extra *out)
{
    sk_extra x = {.updates = step,
                  .next.samples = -1,
                  .data = "",
                  .order = "",
                  .tokenizer = sk_extra_tokenizer(text)};
    for (size_t n; *text && strncmp(text, tokenizer_word, sizeof tokenizer_word - 1); text += n) {
        n = strcspn(text, " ");
        char *word = sk_print(a, "%.*s", (int)n, text), *equals = strchr(word, '=');
        n += strspn(text + n, " ");
        if (!equals)
            return sk_fail(SK_EDATA, "%s: its extra says '%s', which is no KEY=VALUE", where,
                           sk_strict_show(word).s);
        *equals = 0;
        if (!read_word(a, word, equals + 1, step, &x))
            return sk_fail(SK_EDATA, "%s: its extra says %s=%s, which cannot be", where, word,
                           sk_strict_show(equals + 1).s);
    }
    *out = x;
    return SK_OK;
}
