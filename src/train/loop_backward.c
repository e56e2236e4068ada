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

enum { BACKWARD_TAG = -9, SUMS_TAG = -32 }; /* less the kind */

/* --- metrics --- */

/* Numbers by sample that all parameters have together.  NULL: nobody has them, or rank 0 does not
 * need them from here. */
typedef struct row {
    const float *x;
    int64_t n;
} row;

/* The first rank that has the row: of the stage that ends the backward pass, which an interleaved
 * schedule, or a stage without layers, puts on another rank than 0.  -1: it was not asked for. */
static int holder_of(const sk_loop *l, sk_extra_kind k)
{
    for (int r = 0; r < l->s->n_ranks; r++)
        if (sk_program_extra(l->s->programs[r], NULL, (int)k) >= 0) return r;
    return -1;
}

/* Rank 0 gets it, from its holder. */
static sk_status read_row(sk_loop *l, sk_extra_kind k, row *to)
{
    int from = holder_of(l, k);
    *to = (row){0};
    if (from < 0 || (l->rank && l->rank != from)) return SK_OK;
    const sk_program *p = from == l->rank ? l->own : l->s->programs[from];
    int buf = p->params.v[sk_program_extra(p, NULL, (int)k)].grad_shard;
    int64_t n = p->bufs.v[buf].box.size[0], bytes = n * (int64_t)sizeof *to->x;
    sk_comm *c = sk_run_comm(l->run);
    if (from != l->rank) {
        float *x = sk_many(&l->arena, float, n);
        SK_TRY(sk_comm_recv(c, from, SUMS_TAG - (int)k, x, bytes));
        *to = (row){x, n};
        return SK_OK;
    }
    SK_TRY(sk_run_pull_buffer(l->run, buf));
    if (!l->rank) *to = (row){sk_run_data(l->run, buf), n};
    if (!l->rank) return SK_OK;
    SK_TRY(sk_comm_send(c, 0, SUMS_TAG - (int)k, sk_run_data(l->run, buf), bytes));
    return sk_comm_sent(c, 0, sk_comm_sends(c, 0));
}

static double sum_of(const row *r)
{
    double sum = 0;
    for (int64_t i = 0; i < r->n; i++) sum += (double)r->x[i];
    return sum;
}

static sk_status read_norms(sk_loop *l, const sk_loop_told *t, sk_backward_sums *b)
{
    double unit = sk_backward_unit(SK_EXTRA_NORMS, t->out.tokens, t->in.loss_scale);
    row r;
    SK_TRY(read_row(l, SK_EXTRA_NORMS, &r));
    b->norms = r.x != NULL;
    for (int64_t i = 0; i < r.n; i++) {
        double norm = sqrt((double)r.x[i] * unit);
        b->mean += norm / (double)r.n;
        b->most = fmax(b->most, norm);
        if (isnan(norm)) b->most = norm;
    }
    if (r.x) b->variance = (double)r.n * sum_of(&r) * unit - t->out.grad_norm * t->out.grad_norm;
    return SK_OK;
}

static sk_status read_trace(sk_loop *l, const sk_loop_told *t, sk_extra_kind k, bool *measured,
                            double *trace)
{
    row r;
    SK_TRY(read_row(l, k, &r));
    *measured = r.x != NULL;
    *trace = r.x ? sum_of(&r) * sk_backward_unit((int)k, t->out.tokens, t->in.loss_scale) : NAN;
    return SK_OK;
}

sk_status sk_loop_backward_sums(sk_loop *l, const sk_loop_told *t, sk_backward_sums *b)
{
    *b = (sk_backward_sums){0};
    if (!*l->s->job->backward) return SK_OK;
    sk_mark m = sk_arena_mark(&l->arena);
    sk_status st = read_norms(l, t, b);
    if (!st) st = read_trace(l, t, SK_EXTRA_GGN, &b->ggn, &b->trace);
    if (!st) st = read_trace(l, t, SK_EXTRA_GGN_MC, &b->ggn_mc, &b->trace_mc);
    sk_arena_back(&l->arena, m);
    return st;
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
