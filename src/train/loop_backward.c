/* loop_backward.c - train.backward after a step: sums for the metrics, and files of tensors.
 *
 *     RUN/backward/step-0000000100.safetensors
 *
 * has logical tensors by the name of the parameter: "h.0.fc.w.variance", and "h.0.fc.w.grad", the
 * gradient; in the units of backward_outputs.h.  Rank 0 writes it: owners send their shards, and
 * all of them are in its memory at once. */
#include "graph/extra.h"
#include "run/run.h"
#include "tensor/safetensors.h"
#include "tensor/strict.h"
#include "train/loop_state.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BACKWARD_TAG = -9 };

/* --- metrics --- */

/* The row of numbers by sample that all parameters have together; NULL: there is none here. */
static const float *totals(sk_loop *l, sk_extra_kind k, int64_t *n)
{
    int i = sk_program_extra(l->own, NULL, (int)k);
    if (i < 0) return NULL;
    int buf = l->own->params.v[i].grad_shard;
    if (sk_run_pull_buffer(l->run, buf)) return NULL;
    *n = l->own->bufs.v[buf].box.size[0];
    return sk_run_data(l->run, buf);
}

static double sum_of(const float *x, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += (double)x[i];
    return sum;
}

static double trace_of(sk_loop *l, sk_extra_kind k, const sk_step_in *in, const sk_step_out *out,
                       bool *measured)
{
    int64_t n = 0;
    const float *x = totals(l, k, &n);
    *measured = x != NULL;
    return x ? sum_of(x, n) * sk_backward_unit((int)k, out->tokens, in->loss_scale) : NAN;
}

void sk_loop_backward_sums(sk_loop *l, const sk_step_in *in, const sk_step_out *out, sk_record *r)
{
    sk_backward_sums *b = &r->backward;
    int64_t n = 0;
    if (!l->own->n_extras) return;
    double unit = sk_backward_unit(SK_EXTRA_NORMS, out->tokens, in->loss_scale);
    const float *x = totals(l, SK_EXTRA_NORMS, &n);
    b->norms = x != NULL;
    for (int64_t i = 0; x && i < n; i++) {
        double norm = sqrt((double)x[i] * unit);
        b->mean += norm / (double)n;
        b->most = fmax(b->most, norm);
        if (isnan(norm)) b->most = norm;
    }
    if (x) b->variance = (double)n * sum_of(x, n) * unit - out->grad_norm * out->grad_norm;
    b->trace = trace_of(l, SK_EXTRA_GGN, in, out, &b->ggn);
    b->trace_mc = trace_of(l, SK_EXTRA_GGN_MC, in, out, &b->ggn_mc);
}

/* --- files --- */

typedef struct pool { /* shards of all ranks; every element of a tensor is in one */
    sk_tensor_shard *v;
    int n, cap;
} pool;

static sk_status send_shards(sk_loop *l)
{
    sk_mark m = sk_arena_mark(&l->arena);
    sk_comm *c = sk_run_comm(l->run);
    sk_tensor_shard *v;
    int *buffer, n;
    sk_program_sum_shards(l->own, l->rank, &l->arena, NULL, &v, &buffer, &n);
    sk_status st = SK_OK;
    for (int i = 0; i < n && !st; i++) {
        int64_t bytes = sk_loop_box_bytes(&v[i]);
        if (!bytes) continue;
        st = sk_run_pull_buffer(l->run, buffer[i]);
        if (!st) st = sk_comm_send(c, 0, BACKWARD_TAG, sk_run_data(l->run, buffer[i]), bytes);
        if (!st) st = sk_comm_sent(c, 0, sk_comm_sends(c, 0));
    }
    sk_arena_back(&l->arena, m);
    return st;
}

static sk_status take_shards(sk_loop *l, int rank, pool *all)
{
    sk_tensor_shard *v;
    int *buffer, n;
    sk_program_sum_shards(rank ? l->s->programs[rank] : l->own, rank, &l->arena, NULL, &v, &buffer,
                          &n);
    for (int i = 0; i < n; i++) {
        int64_t bytes = sk_loop_box_bytes(&v[i]);
        if (!bytes) continue;
        v[i].data = sk_many(&l->arena, char, bytes);
        if (rank) SK_TRY(sk_comm_recv(sk_run_comm(l->run), rank, BACKWARD_TAG, v[i].data, bytes));
        else {
            SK_TRY(sk_run_pull_buffer(l->run, buffer[i]));
            memcpy(v[i].data, sk_run_data(l->run, buffer[i]), (size_t)bytes);
        }
        *(sk_tensor_shard *)sk_push(&l->arena, all) = v[i];
    }
    return SK_OK;
}

/* The element at place i of a shard, as a place in the logical tensor. */
static int64_t place_of(const sk_tensor_shard *b, int64_t i)
{
    int64_t place = 0, step = 1;
    for (int d = b->n - 1; d >= 0; d--) {
        place += (b->at[d] + i % b->size[d]) * step;
        i /= b->size[d];
        step *= b->full[d];
    }
    return place;
}

/* The logical tensor in f32, multiplied by `unit`; NULL: no rank has any of it. */
static float *whole(sk_arena *a, const pool *all, const char *name, int64_t count, double unit)
{
    float *y = NULL, x;
    for (int k = 0; k < all->n; k++) {
        const sk_tensor_shard *b = &all->v[k];
        int64_t n = sk_loop_box_bytes(b) / (int64_t)sk_dtype_size(b->type);
        if (strcmp(b->name, name)) continue;
        if (!y) y = sk_many(a, float, count);
        for (int64_t i = 0; i < n; i++) {
            sk_convert(&x, SK_F32, (const char *)b->data + (size_t)i * sk_dtype_size(b->type),
                       b->type, 1);
            y[place_of(b, i)] = (float)((double)x * unit);
        }
    }
    return y;
}

typedef struct file { /* tensors in the making */
    sk_loop *l;
    const pool *all;
    double weight, scale;
    sk_st_tensor *t;
    float **data;
    int n;
} file;

static int64_t count_of(const sk_graph *g, const sk_tensor *t)
{
    int64_t n = 1;
    for (const char *p = t->letters; *p; p++) n *= g->size[(int)*p & 127];
    return n;
}

/* In units; NULL: no rank has any of it. */
static float *value_of(const file *f, const sk_backward_output *o)
{
    sk_arena *a = &f->l->arena;
    int64_t n = count_of(&f->l->s->graph, o->like);
    float *x = whole(a, f->all, o->sum, n, sk_backward_unit(o->kind, f->weight, f->scale));
    if (!x || !o->grad) return x;
    float *g = whole(a, f->all, o->grad, n, sk_backward_unit(-1, f->weight, f->scale));
    if (g) sk_backward_variance(x, g, n, f->l->s->job->batch);
    return g ? x : NULL;
}

static void put(file *f, const sk_backward_output *o)
{
    sk_shape s = sk_tensor_shape(&f->l->s->graph, o->like);
    float *data = value_of(f, o);
    if (!data) return;
    sk_st_tensor *t = &f->t[f->n];
    *t = (sk_st_tensor){.name = o->name, .type = SK_F32, .n = s.n};
    memcpy(t->size, s.d, sizeof *t->size * (size_t)s.n);
    f->data[f->n++] = data;
}

static sk_status write_file(file *f, int dir, const char *name)
{
    sk_st_writer w;
    char *step = sk_print(&f->l->arena, "%lld", (long long)f->l->done);
    sk_st_pair meta[] = {{"format", "skein"}, {"step", step}};
    const char *tmp = "unfinished.safetensors";
    unlinkat(dir, tmp, 0);
    SK_TRY(sk_st_create(&f->l->arena, dir, tmp, 0666, f->t, f->n, meta, 2, &w));
    sk_status st = SK_OK;
    for (int i = 0; i < f->n && !st; i++)
        st = sk_st_write(&w, f->data[i], (size_t)(f->t[i].end - f->t[i].begin));
    if (st) sk_st_drop(&w);
    else st = sk_st_finish(&w);
    if (!st && renameat(dir, tmp, dir, name)) st = sk_fail(SK_EIO, "%s", strerror(errno));
    return st;
}

static sk_status make_file(file *f)
{
    sk_arena *a = &f->l->arena;
    const char *path = sk_print(a, "%s/backward", f->l->t->dir);
    sk_backward_output *v;
    int dir, n = sk_backward_list(a, f->l->s->job, &f->l->s->graph, &v);
    f->t = sk_many(a, sk_st_tensor, n + 1);
    f->data = sk_many(a, float *, n + 1);
    for (int i = 0; i < n; i++) put(f, &v[i]);
    const char *name = sk_print(a, "step-%010lld.safetensors", (long long)f->l->done);
    if (mkdir(path, 0777) && errno != EEXIST)
        return sk_fail(SK_EIO, "cannot make the folder %s: %s", path, strerror(errno));
    sk_status st = sk_strict_dir(path, &dir);
    if (!st) {
        st = write_file(f, dir, name);
        close(dir);
    }
    if (!st) return SK_OK;
    return sk_fail(SK_EIO, "train.backward: %s/%s was not written: %s", path, name,
                   sk_strdup(a, sk_error_line()));
}

/* A file that was asked for and cannot be written ends the training. */
static sk_status collect(sk_loop *l, const sk_step_in *in, const sk_step_out *out)
{
    pool all = {0};
    file f = {.l = l, .all = &all, .weight = out->tokens, .scale = in->loss_scale};
    sk_mark m = sk_arena_mark(&l->arena);
    sk_status st = SK_OK;
    for (int r = 0; r < l->s->n_ranks && !st; r++) st = take_shards(l, r, &all);
    if (!st) st = make_file(&f);
    sk_arena_back(&l->arena, m);
    return st;
}

sk_status sk_loop_backward_file(sk_loop *l, const sk_step_in *in, const sk_step_out *out)
{
    int64_t every = l->s->job->backward_every;
    if (!every || l->done % every || !out->finite) return SK_OK;
    return l->rank ? send_shards(l) : collect(l, in, out);
}
