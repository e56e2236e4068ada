/* ranks.c - for tests: compile a model under a layout, run it on threads, keep the losses. */
#include "graph/extra.h"
#include "lib/ranks.h"

#include "base/hash.h"
#include "base/rng.h"
#include "program/class_program.h"
#include "program/param_groups.h"
#include "train/fault.h"
#include "train/noise_scale.h"
#include "train/replica_notes.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

sk_trial sk_trial_small(const char *model, const char *layout)
{
    sk_trial t = {.model = sk_model_find(model), .layout = layout, .batch = 8, .seq = 12};
    t.hyper = t.model->usual;
    t.hyper.hidden_size = 16;
    t.hyper.num_hidden_layers = 4;
    t.hyper.num_attention_heads = t.hyper.num_key_value_heads = 2;
    t.hyper.intermediate_size = 24;
    t.hyper.vocab_size = 23;
    t.hyper.input_size = 9;
    t.hyper.max_position_embeddings = 12;
    t.hyper.num_local_experts = 4;
    t.hyper.num_experts_per_tok = 2;
    t.hyper.embd_pdrop = t.hyper.resid_pdrop = 0.1;
    t.hyper.tie_word_embeddings = false;
    t.steps = 3;
    return t;
}

static const sk_optim *optim_of(const sk_trial *t)
{
    return t->own_optim ? t->own_optim : sk_optim_find(t->optim ? t->optim : "adamw");
}

struct asks { /* for has_factors */
    const sk_trial *t;
    const sk_graph *g;
};

/* Extras that were asked for, and those of an optimizer with Kronecker factors. */
static unsigned extras_of(const sk_trial *t)
{
    bool factors = optim_of(t)->factors;
    for (int i = 0; i < t->n_groups; i++) factors |= t->groups[i].optim->factors;
    return t->extras | (factors ? 1u << SK_EXTRA_KRON_A | 1u << SK_EXTRA_KRON_G : 0);
}

/* Parameters whose optimizer asks for Kronecker factors, as src/train/setup.c has it. */
static bool has_factors(const void *ctx, const sk_tensor *x)
{
    const struct asks *k = ctx;
    const sk_trial *t = k->t;
    int group = sk_param_group_asked(k->g, x, t->groups, t->n_groups);
    return (group ? t->groups[group - 1].optim : optim_of(t))->factors;
}

sk_status sk_trial_graph(sk_arena *a, const sk_trial *t, sk_graph *g)
{
    sk_layout l;
    SK_TRY(sk_layout_read(t->layout ? t->layout : "dp=1", 0, &l));
    sk_graph_init(g, a);
    sk_layout_expect(&l, g);
    sk_graph_size(g, 'b', t->batch);
    sk_graph_size(g, 't', t->seq);
    g->label_smoothing = t->smoothing;
    g->z_loss = t->z_loss;
    t->model->build(g, &t->hyper, SK_TRAIN);
    g->extras = extras_of(t);
    g->norms_by = t->norms_by;
    struct asks asks = {t, g};
    if (!(t->extras & (1u << SK_EXTRA_KRON_A |
                       1u << SK_EXTRA_KRON_G))) { /* else they are made of all, and travel whole */
        g->factors_of = has_factors;
        g->factors_ctx = &asks;
    }
    sk_graph_grad(g);
    g->factors_of = NULL;
    sk_graph_store(g, t->dtype);
    return sk_graph_status(g);
}

static void numbers_of(const sk_trial *t, const sk_optim *o, double *v);

void sk_trial_options(const sk_trial *t, sk_compile_opts *o)
{
    static _Thread_local double sends[SK_MAX_KNOB]; /* the step from which it does */
    static _Thread_local int host_of[SK_TEST_RANKS];
    for (int r = 0; r < SK_TEST_RANKS; r++) host_of[r] = r * t->hosts / SK_TEST_RANKS;
    const sk_optim *optim = sk_optim_find(t->optim ? t->optim : "adamw");
    if (optim->sends) numbers_of(t, optim, sends);
    *o = (sk_compile_opts){.optim = t->own_optim ? t->own_optim : optim,
                           .knob = optim->sends ? sends : NULL,
                           .groups = t->n_groups ? t->groups : NULL,
                           .n_groups = t->n_groups,
                           .n_micro = t->n_micro,
                           .threads = t->threads ? t->threads : 1,
                           .bucket_bytes = t->bucket_bytes,
                           .validate = true,
                           .state_type = t->state_type,
                           .q8_least = t->q8_least,
                           .late = t->late,
                           .noise = t->noise,
                           .told = t->extras != 0,
                           .matrix_work = t->matrix_work,
                           .ema = t->ema,
                           .gpu = t->gpu,
                           .pins = t->pins,
                           .host_of = t->hosts > 1 ? host_of : NULL,
                           .costs = t->costs};
}

/* As a job of many ranks proves its programs: with one of each class, then each against its own. */
static sk_status verify_classes(sk_program *const *programs, int n)
{
    sk_arena tmp = {0};
    const sk_program **firsts = sk_many(&tmp, const sk_program *, n), *p = programs[0];
    int *class_of = sk_many(&tmp, int, n);
    int classes = 0;
    if (sk_program_stands(p)) classes = sk_classes(p->plan, class_of);
    for (int r = n - 1; r >= 0 && classes > 0; r--) firsts[class_of[r]] = programs[r];
    const sk_program **by_rank = sk_many(&tmp, const sk_program *, n);
    for (int r = 0; r < n && classes > 0; r++) by_rank[r] = firsts[class_of[r]];
    sk_status st = classes > 0 ? sk_verify(by_rank, n) : SK_OK;
    for (int r = 0; r < n && !st && classes > 0; r++) st = sk_verify_rank(programs[r], by_rank[r]);
    sk_arena_end(&tmp);
    return st;
}

sk_status sk_trial_compile(sk_arena *a, const sk_trial *t, sk_graph *g, sk_program ***programs,
                           int *n_ranks)
{
    sk_layout l;
    sk_compile_opts o;
    SK_TRY(sk_layout_read(t->layout, 0, &l));
    SK_TRY(sk_trial_graph(a, t, g));
    sk_trial_options(t, &o);
    *n_ranks = sk_mesh_ranks(&l.mesh);
    *programs = sk_many(a, sk_program *, *n_ranks);
    SK_TRY(sk_plan_graph(a, g, &l, &o, &o.plan));
    for (int r = 0; r < *n_ranks; r++) SK_TRY(sk_compile(a, g, &l, &o, r, &(*programs)[r]));
    SK_TRY(sk_verify((const sk_program *const *)*programs, *n_ranks));
    return verify_classes(*programs, *n_ranks);
}

sk_status sk_trial_fill(void *ctx, const char *input, sk_dtype type, const sk_extent *box,
                        int64_t step, bool validation, void *to)
{
    const sk_trial *t = ctx;
    int64_t cols = box->n > 1 ? box->size[1] : 1, n = 0;
    uint64_t stream = (uint64_t)step * 2 + validation;
    if (t->fail && step == t->fail && !validation && box->at[0])
        return sk_fail(SK_EIO, "data of step %d cannot be read", t->fail);
    for (int64_t r = 0; r < box->size[0]; r++)
        for (int64_t c = 0; c < cols; c++, n++) {
            int64_t row = t->first_row + box->at[0] + r, col = box->n > 1 ? box->at[1] + c : 0;
            bool target = !strcmp(input, "targets");
            uint64_t at = (uint64_t)(row * 100000 + col + target);
            uint64_t x = sk_rng(7, stream, at).a;
            if (!strcmp(input, "pos")) ((int32_t *)to)[n] = (int32_t)col;
            else if (type == SK_I32)
                ((int32_t *)to)[n] = (int32_t)(x % (uint64_t)t->hyper.vocab_size);
            else if (!strcmp(input, "weights")) {
                bool poison =
                    t->poison && !t->poison_grad && step == t->poison && !validation && !row;
                ((real *)to)[n] = poison ? NAN : t->even ? 1 : (real)(0.5 + (double)(x % 8) / 8);
            } else ((real *)to)[n] = (real)((double)(x % 256) / 255);
        }
    return SK_OK;
}

typedef struct rank_job {
    sk_trial *t;
    const sk_program *p;
    sk_heaps *heaps;
    sk_status status;
    char message[512];
    uint64_t digest, extra_digest;
    double extra_sum[SK_N_EXTRAS];
    int64_t elements;
    sk_replica_note told[SK_TEST_STEPS];
    pthread_t thread;
} rank_job;

/* --- weights, element by element --- */

static int64_t box_count(const sk_tensor_shard *b)
{
    int64_t n = 1;
    for (int d = 0; d < b->n; d++) n *= b->size[d];
    return n;
}

/* Where element i of a box lies in the logical tensor. */
static uint64_t place_of(const sk_tensor_shard *b, int64_t i)
{
    int64_t place = 0, step = 1;
    for (int d = b->n - 1; d >= 0; d--) {
        place += (b->at[d] + i % b->size[d]) * step;
        i /= b->size[d];
        step *= b->full[d];
    }
    return (uint64_t)place;
}

static pthread_mutex_t looking = PTHREAD_MUTEX_INITIALIZER;

static void digest(rank_job *j, const sk_run *run, sk_arena *a)
{
    sk_tensor_shard *boxes;
    int n;
    sk_run_shards(run, a, &boxes, &n);
    for (int k = 0; k < n; k++) {
        uint64_t name = sk_hash_text(boxes[k].name);
        size_t bytes = sk_dtype_size(boxes[k].type);
        int64_t count = boxes[k].mine ? box_count(&boxes[k]) : 0;
        float x;
        for (int64_t i = 0; i < count; i++) {
            const char *at = (const char *)boxes[k].data + (size_t)i * bytes;
            if (boxes[k].q8) sk_shard_read(&boxes[k], i, &x, 1), at = (const char *)&x;
            uint64_t bits = sk_hash(name, at, bytes);
            j->digest += sk_rng(bits, 0, place_of(&boxes[k], i)).a;
        }
        j->elements += count;
        if (!j->t->look || !boxes[k].mine) continue;
        pthread_mutex_lock(&looking);
        j->t->look(j->t->look_ctx, &boxes[k]);
        pthread_mutex_unlock(&looking);
    }
}

/* The same for extras, which no checkpoint has. */
static sk_status digest_extras(rank_job *j, sk_run *run, sk_arena *a)
{
    sk_tensor_shard *v;
    int *buffer, n;
    if (!j->p->n_extras) return SK_OK;
    sk_program_sum_shards(j->p, j->p->rank, a, NULL, &v, &buffer, &n);
    int first = n - j->p->n_extras;
    for (int k = first; k < n; k++) {
        int kind = j->p->params.v[j->p->params.n + k - first].tensor->extra;
        if (!(j->t->extras >> kind & 1))
            continue; /* of an optimizer: half of it, or not this step */
        SK_TRY(sk_run_pull_buffer(run, buffer[k]));
        const float *x = sk_run_data(run, buffer[k]);
        for (int64_t i = 0; v[k].mine && i < box_count(&v[k]); i++) {
            uint64_t bits = sk_hash(sk_hash_text(v[k].name), &x[i], sizeof *x);
            j->extra_digest += sk_rng(bits, 0, place_of(&v[k], i)).a;
            j->extra_sum[kind] += fabs((double)x[i]);
        }
    }
    return SK_OK;
}

static void perturb(const sk_trial *t, const sk_run *run, sk_arena *a)
{
    sk_tensor_shard *boxes;
    int n;
    sk_run_shards(run, a, &boxes, &n);
    for (int k = 0; k < n && t->perturb > 0; k++)
        for (int64_t i = 0; i < box_count(&boxes[k]) && !boxes[k].q8; i++) { /* blocks are 0 */
            double u = sk_rng_uniform((uint64_t)t->perturb_seed, sk_hash_text(boxes[k].name),
                                      place_of(&boxes[k], i));
            ((real *)boxes[k].data)[i] *= (real)(1 + t->perturb * (2 * u - 1));
        }
}

/* --- a rank --- */

static void poison_grad(void *ctx, const sk_run *r, int64_t batch, int pc)
{
    const sk_trial *t = ctx;
    const sk_program *p = sk_run_program(r);
    const float bad = NAN;
    char one[8];
    int buf = -1;
    if (batch != t->poison || p->rank != t->poison_grad - 1 || pc >= p->n_train) return;
    if (pc != sk_fault_at(p, t->poison_first, &buf) || buf < 0) return;
    sk_convert(one, p->bufs.v[buf].type, &bad, SK_F32, 1);
    sk_assert(!sk_run_poke(r, buf, one, sk_dtype_size(p->bufs.v[buf].type)));
}

/* The numbers of one optimizer. */
static void numbers_of(const sk_trial *t, const sk_optim *o, double *v)
{
    static const struct sk_trial_knob all[] = {{"beta1", 0.9},    {"beta2", 0.95}, {"eps", 1e-8},
                                               {"decay", 0.1},    {"rho", 0.5},    {"trust", 1},
                                               {"compensate", 0}, {"predict", 0},  {0}};
    for (int i = 0; o->knobs[i].name; i++) {
        v[i] = o->knobs[i].usual;
        for (const struct sk_trial_knob *p = all; p->name; p++)
            if (!strcmp(p->name, o->knobs[i].name)) v[i] = p->value;
        for (const struct sk_trial_knob *p = t->knobs; p->name; p++)
            if (!strcmp(p->name, o->knobs[i].name)) v[i] = p->value;
    }
}

static void add_group(sk_trial *t, const char *match, const char *name, double rate)
{
    sk_param_group *g = &t->groups[t->n_groups++];
    *g = (sk_param_group){.optim = sk_optim_find(name), .rate = rate};
    snprintf(g->match, sizeof g->match, "%s", match);
    numbers_of(t, g->optim, g->knob);
}

/* As src/cli/conf_groups.c has it. */
void sk_trial_groups(sk_trial *t)
{
    const sk_optim *o = t->own_optim ? t->own_optim : sk_optim_find(t->optim ? t->optim : "adamw");
    t->n_groups = 0;
    if (t->first) add_group(t, "*.0.*", o->name, 0.5);
    if (t->first && o->matrix) {
        t->groups[0].matrices = true;
        add_group(t, "*.0.*", o->rest, 0.5);
        t->groups[1].half = true;
    }
    if (t->matrix) add_group(t, t->all_kron ? "rest" : "matrix", t->matrix, 0.5);
    else if (o->matrix) add_group(t, o->every_matrix ? "rest" : "matrix", o->name, 1);
    if (!t->matrix && o->every_matrix) t->groups[t->n_groups - 1].matrices = true;
    if (o->matrix) add_group(t, "rest", o->rest, 1);
}

sk_knobs sk_trial_knobs(const sk_trial *t, const sk_optim *o)
{
    sk_knobs k = {.clip = t->clip, .warmup = t->warmup, .layer_decay = t->layer_decay};
    k.group[0].rate = 1;
    numbers_of(t, o, k.group[0].v);
    for (int i = 0; i < t->n_groups; i++) {
        k.group[i + 1].rate = t->groups[i].rate;
        memcpy(k.group[i + 1].v, t->groups[i].knob, sizeof t->groups[i].knob);
    }
    return k;
}

/* What the rate of a step is multiplied by: as AdaScale has it from the steps before, which is the
 * same on all ranks, or as another trial had it. */
static double gain_of(sk_trial *t, const sk_noise_scale *noise, int rank, int step)
{
    if (t->adascale <= 1) return t->gain[step] > 0 ? t->gain[step] : 1;
    double gain = sk_noise_gain(noise, (double)t->batch, t->adascale);
    if (!rank) t->gain[step] = gain;
    return gain;
}

/* With sync=backup all ranks are let come: only then there is a result to compare with. */
static unsigned all_come(void *ctx, int64_t step)
{
    const rank_job *j = ctx;
    (void)step;
    return (unsigned)((1ull << j->p->n_ranks) - 1);
}

static sk_status sealed(void *ctx, int64_t step, unsigned set)
{
    sk_assert(set == all_come(ctx, step));
    return SK_OK;
}

static sk_status life(rank_job *j, sk_run **run, sk_arena *a)
{
    sk_trial *t = j->t;
    sk_run_opts o = {.fill = sk_trial_fill,
                     .fill_ctx = t,
                     .seed = 3,
                     .timeout_s = t->timeout_s > 0 ? t->timeout_s : 60,
                     .knobs = sk_trial_knobs(t, j->p->optim)};
    o.commit = (sk_commit_opts){.seal = sealed, .imposed = all_come, .ctx = j};
    if (t->gpu) o.device = "cuda";
    if (t->before) o.before = t->before, o.before_ctx = t;
    if (t->poison_grad) o.before = poison_grad, o.before_ctx = t;
    sk_step_out out = {0};
    int64_t skipped = 0;
    sk_noise_scale noise = {0};
    SK_TRY(sk_run_open(a, j->p, j->heaps, &o, run));
    SK_TRY(sk_run_init(*run, 11));
    if (t->perturb > 0) SK_TRY(sk_run_pull(*run));
    perturb(t, *run, a);
    if (t->perturb > 0) SK_TRY(sk_run_push(*run));
    SK_TRY(sk_run_barrier(*run));
    for (int s = 0; s < t->steps; s++) {
        sk_step_in in = {.step = s,
                         .lr = (t->lr > 0 ? t->lr : 1e-3) * gain_of(t, &noise, j->p->rank, s),
                         .momentum = t->cycle > 0 ? t->cycle + 0.1 * s / t->steps : 0,
                         .loss_scale = t->loss_scale};
        if (t->counts) in.shift = -skipped;
        SK_TRY(sk_run_step(*run, &in, &out));
        skipped += !out.finite;
        if (t->adascale > 1) sk_noise_step(&noise, &j->p->noise, (double)t->batch, &out);
        j->told[s] = sk_replica_note_of(&out);
        if (j->p->rank == 0) t->loss[s] = out.loss, t->norm[s] = out.grad_norm;
        if (j->p->rank == 0) t->small[s] = out.small;
        if (j->p->rank == 0) t->drops += out.drops;
        if (t->after) t->after(t, *run, j->p, s);
    }
    SK_TRY(sk_run_mean(*run));
    SK_TRY(sk_run_validate(*run, 0, &out));
    if (j->p->rank == 0) t->valid = out.loss;
    SK_TRY(sk_run_barrier(*run));
    SK_TRY(sk_run_pull(*run));
    digest(j, *run, a);
    return digest_extras(j, *run, a);
}

static void *rank_main(void *arg)
{
    rank_job *j = arg;
    sk_arena a = {0};
    sk_run *run = NULL;
    j->status = life(j, &run, &a);
    if (j->status) {
        snprintf(j->message, sizeof j->message, "rank %d: %.490s", j->p->rank, sk_error());
        sk_heaps_abort(j->heaps, j->status, j->p->rank, sk_error());
    }
    if (run) sk_run_close(run);
    sk_arena_end(&a);
    return NULL;
}

/* NaN until written, but for what must begin as zeros.  Of a GPU's heap only the host's part is
 * memory. */
static void poison(const sk_program *p, char *base)
{
    int64_t from = p->gpu ? p->kind_at[SK_HOSTED] : 0;
    memset(base + from, 0xff, (size_t)(p->heap_bytes - from));
    for (int i = 0; i < p->bufs.n; i++) {
        const sk_buffer *b = &p->bufs.v[i];
        if (b->zero && b->placement != SK_FILE && b->offset >= from) /* files begin as zeros */
            memset(base + b->offset, 0, (size_t)b->bytes);
    }
}

/* Replicas that run apart report steps of their own: what all of them would. */
static void join_replicas(sk_trial *t, const rank_job *jobs, int n)
{
    const sk_program *p = jobs[0].p;
    sk_replica_note v[SK_TEST_RANKS];
    for (int s = (int)p->replicas_from; p->apart && s < t->steps; s++) {
        int replicas = 0;
        sk_step_out all = {0};
        for (int r = 0; r < n; r++)
            if (sk_layout_replica_of(&p->layout, jobs[r].p->coord) == replicas)
                v[replicas++] = jobs[r].told[s];
        sk_replica_notes_join(v, replicas, 1, &all);
        t->loss[s] = all.loss;
        t->norm[s] = all.grad_norm;
    }
}

static sk_status run_all(sk_trial *t, sk_arena *a, sk_program **p, int n)
{
    sk_heaps *heaps = NULL;
    rank_job *jobs = sk_many(a, rank_job, n);
    sk_status st = SK_OK;
    sk_heap_aliases aliases = sk_program_shared(a, (const sk_program *const *)p, n, t->heap_bytes);
    SK_TRY(sk_heaps_open_aliased(n, t->heap_bytes, aliases, false, 64, &heaps));
    for (int r = 0; r < n; r++) {
        if (sk_heap_own(heaps, r) != p[r]->own_bytes)
            st = sk_fail(SK_EBUG, "rank %d: plan %lld bytes, mapped %lld", r,
                         (long long)p[r]->own_bytes, (long long)sk_heap_own(heaps, r));
        poison(p[r], sk_heap_base(heaps, r));
        jobs[r] = (rank_job){.t = t, .p = p[r], .heaps = heaps};
    }
    for (int r = 0; r < n && !st; r++) pthread_create(&jobs[r].thread, NULL, rank_main, &jobs[r]);
    for (int r = 0; r < n && !st; r++) {
        pthread_join(jobs[r].thread, NULL);
        t->digest += jobs[r].digest;
        t->extra_digest += jobs[r].extra_digest;
        for (int k = 0; k < SK_N_EXTRAS; k++) t->extra_sum[k] += jobs[r].extra_sum[k];
        t->elements += jobs[r].elements;
    }
    if (!st) join_replicas(t, jobs, n);
    for (int r = 0; r < n && !st; r++)
        if (jobs[r].status && jobs[r].status != SK_EPEER)
            st = sk_fail(jobs[r].status, "%s", jobs[r].message);
    for (int r = 0; r < n && !st; r++)
        if (jobs[r].status) st = sk_fail(jobs[r].status, "%s", jobs[r].message);
    sk_heaps_close(heaps);
    return st;
}

sk_status sk_trial_run(sk_trial *t)
{
    sk_arena a = {0};
    sk_graph g;
    sk_program **p = NULL;
    t->digest = 0, t->elements = 0, t->drops = 0, t->extra_digest = 0;
    memset(t->extra_sum, 0, sizeof t->extra_sum);
    sk_status st = sk_trial_compile(&a, t, &g, &p, &t->n_ranks);
    if (!st) st = run_all(t, &a, p, t->n_ranks);
    sk_arena_end(&a);
    return st;
}
