/* setup.c - from a job to everything a run needs. */
#include "train/setup.h"
#include "base/threads.h"
#include "base/strings.h"
#include "program/alike.h"
#include "train/host.h"
#include "plan/budget.h"
#include "train/companions.h"
#include "train/relayout.h"
#include "train/rundir.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- the model's graph --- */

static sk_view whole(const sk_graph *g, const char *letters)
{
    sk_view v = {.n = (int)strlen(letters)};
    for (int d = 0; d < v.n; d++) v.size[d] = v.full[d] = g->size[(int)letters[d] & 127];
    sk_view_dense(&v);
    return v;
}

static double graph_flops(const sk_graph *g)
{
    double sum = 0;
    for (int i = 0; i < g->nodes.n; i++) {
        const sk_node *n = g->nodes.v[i];
        sk_args a = {.n_in = n->n_in, .n_out = n->n_out, .dims = n->dims, .of = 1};
        for (int k = 0; k < n->n_in; k++) a.in[k] = whole(g, n->letters_in[k]);
        for (int k = 0; k < n->n_out; k++) a.out[k] = whole(g, n->letters_out[k]);
        memcpy(a.attr, n->attr, sizeof a.attr);
        sum += sk_op_flops(n->op, &a);
    }
    return sum;
}

/* What drops are counted of: the slots of every layer that routes. */
static double count_choices(const sk_graph *g)
{
    double sum = 0;
    for (int i = 0; i < g->nodes.n; i++) {
        sk_view slots = whole(g, g->nodes.v[i]->letters_in[0]);
        if (g->drops && g->nodes.v[i]->into[0] == g->drops) sum += (double)sk_count(&slots);
    }
    return sum;
}

static int64_t count_params(const sk_graph *g)
{
    int64_t sum = 0;
    for (int i = 0; i < g->tensors.n; i++) {
        sk_shape s = sk_tensor_shape(g, g->tensors.v[i]);
        int64_t n = g->tensors.v[i]->role == SK_PARAM;
        for (int d = 0; d < s.n; d++) n *= s.d[d];
        sum += n;
    }
    return sum;
}

/* Before the gradient. */
static sk_status make_products(sk_setup *s)
{
    const sk_job *job = s->job;
    if (strcmp(job->matmul, "fp8")) return SK_OK;
    if (job->dtype != SK_BF16 && job->dtype != SK_F16)
        return sk_fail(SK_ECONF,
                       "train.matmul is fp8 and train.dtype %s: what is kept more exactly than 16 "
                       "bits would be lost in products of 8; train.dtype=bf16 is needed, or f16",
                       sk_dtype_name(job->dtype));
    if (!sk_graph_fp8(&s->graph))
        return sk_fail(SK_ECONF,
                       "train.matmul is fp8, and model %s has no products of weights inside of "
                       "blocks; leave it out",
                       job->model_name);
    return SK_OK;
}

static sk_status make_graph(sk_setup *s)
{
    const sk_job *job = s->job;
    sk_graph_size(&s->graph, 'b', job->batch);
    sk_graph_size(&s->graph, 't', job->seq);
    sk_layout_expect(&s->layout, &s->graph);
    if (job->build) job->build(&s->graph, job->build_ctx);
    else job->model->build(&s->graph, &job->hyper, SK_TRAIN);
    SK_TRY(sk_graph_status(&s->graph));
    SK_TRY(make_products(s));
    sk_graph_grad(&s->graph);
    SK_TRY(sk_graph_status(&s->graph));
    sk_graph_store(&s->graph, job->dtype);
    SK_TRY(sk_layout_suits_model(&s->layout, &s->graph));
    s->n_params = count_params(&s->graph);
    s->flops = graph_flops(&s->graph);
    s->choices = count_choices(&s->graph);
    return SK_OK;
}

/* --- the layout --- */

int64_t sk_batch_shards(const sk_layout *l, char batch)
{
    int64_t n = 1;
    for (int i = 0; i < l->mesh.n; i++)
        if (sk_layout_splits(l, i, batch)) n *= l->mesh.size[i];
    return n;
}

/* What train.micro_batch makes necessary. */
static int64_t micro_needed(const sk_setup *s)
{
    int64_t at_once = s->job->micro_batch * sk_batch_shards(&s->layout, s->graph.batch);
    int64_t n = (s->job->batch + at_once - 1) / at_once;
    return n > s->job->batch ? s->job->batch : n;
}

/* The layout's own word first; then what train.micro_batch makes necessary; then twice as many as
 * stages, which keeps a pipeline busy 2s / (3s - 1) of the time or more. */
static int choose_micro(const sk_setup *s)
{
    const sk_layout *l = &s->layout;
    int64_t batch = s->job->batch, n = 1;
    if (l->n_micro) return l->n_micro;
    if (s->job->micro_batch > 0) n = micro_needed(s);
    else if (l->stage_axis >= 0) n = 2 * l->mesh.size[l->stage_axis];
    return (int)(n > batch ? batch : n);
}

/* Two keys for one number. */
static sk_status same_micro(const sk_setup *s)
{
    const sk_job *job = s->job;
    int said = s->layout.n_micro;
    if (!said || !job->micro_batch || micro_needed(s) == said) return SK_OK;
    return sk_fail(SK_ECONF,
                   "train.micro_batch is %lld, which makes %lld micro-batches of train.batch=%lld "
                   "over %lld rank%s, and the layout says micro=%d; leave one of them out",
                   (long long)job->micro_batch, (long long)micro_needed(s), (long long)job->batch,
                   (long long)sk_batch_shards(&s->layout, s->graph.batch),
                   sk_batch_shards(&s->layout, s->graph.batch) > 1 ? "s" : "", said);
}

/* Ranks that share the cores of a host, where most of them sit. */
static int most_on_a_host(const sk_setup *s)
{
    const int *host_of = s->job->host_of;
    int most = 0;
    if (!host_of || s->n_ranks != s->job->ranks) return s->n_ranks;
    for (int r = 0; r < s->n_ranks; r++) {
        int here = 0;
        for (int q = 0; q < s->n_ranks; q++) here += host_of[q] == host_of[r];
        if (here > most) most = here;
    }
    return most;
}

/* The key first; then OMP_NUM_THREADS, as in other programs ("4", or "4,2" for nested teams, of
 * which there are none here); then this rank's share of the cores. */
static sk_status choose_threads(sk_setup *s, int cores)
{
    const char *said = getenv("OMP_NUM_THREADS");
    int64_t n = s->job->threads, share = cores / s->n_here;
    s->threads_omp = !n && said && *said;
    if (s->threads_omp) {
        char first[32];
        snprintf(first, sizeof first, "%.*s", (int)strcspn(said, ","), said);
        if (!sk_read_int(first, &n) || n < 1)
            return sk_fail(SK_ECONF,
                           "environment: OMP_NUM_THREADS is \"%.40s\"; a whole number from 1 on is "
                           "needed, or train.threads=N",
                           said);
    }
    if (!n) n = share > 1 ? share : 1;
    s->threads = (int)(n > SK_THREADS_MAX ? SK_THREADS_MAX : n);
    return SK_OK;
}

static bool on_gpu(const sk_job *job) { return !strncmp(job->device, "cuda", 4); }

static sk_status make_layout(sk_setup *s)
{
    const sk_job *job = s->job;
    const char *text = job->layout;
    if (!*text) text = sk_print(s->arena, "dp=%lld", job->ranks > 0 ? (long long)job->ranks : 1LL);
    SK_TRY(sk_layout_read(text, (int)job->ranks, &s->layout));
    s->layout.canonical |= !strcmp(job->order, "canonical");
    s->n_ranks = sk_mesh_ranks(&s->layout.mesh);
    SK_TRY(same_micro(s));
    s->n_micro = choose_micro(s);
    SK_TRY(sk_pin_find(job->algorithm, &s->pin));
    sk_host host;
    sk_host_detect(&host);
    s->cores = host.cores;
    s->n_here = most_on_a_host(s);
    return choose_threads(s, host.cores);
}

/* --- programs --- */

static sk_status find_optim(sk_setup *s)
{
    const char *names[32];
    int n = 0;
    s->optim = sk_optim_find(s->job->optim_name);
    if (s->optim) return SK_OK;
    while (n < 32 && sk_optim_parts[n]) names[n] = sk_optim_parts[n]->name, n++;
    const char *near = sk_nearest(s->job->optim_name, names, n);
    return sk_fail(SK_ECONF, "optim.name '%s' is unknown%s%s%s; skein list optim shows them",
                   s->job->optim_name, near ? " (did you mean '" : "", near ? near : "",
                   near ? "'?)" : "");
}

sk_compile_opts sk_setup_opts(const sk_setup *s)
{
    return (sk_compile_opts){.optim = s->optim,
                             .n_micro = s->n_micro,
                             .threads = s->threads,
                             .validate = s->job->val_every != 0,
                             .host_of = s->job->host_of,
                             .costs = s->job->costs,
                             .pin = s->pin,
                             .state_type = s->job->state_dtype,
                             .late = s->job->late,
                             .gpu = on_gpu(s->job)};
}

static sk_status compile_one(const sk_setup *s, sk_arena *a, int rank, sk_program **out)
{
    sk_compile_opts o = sk_setup_opts(s);
    return sk_compile(a, &s->graph, &s->layout, &o, rank, out);
}

sk_status sk_setup_compile(sk_setup *s, int rank, sk_program **out)
{
    return compile_one(s, s->arena, rank, out);
}

static sk_status compile_all(sk_setup *s)
{
    s->n_classes = s->n_ranks;
    for (int r = 0; r < s->n_ranks; r++) {
        s->class_of[r] = s->first_of[r] = r;
        SK_TRY(sk_setup_compile(s, r, &s->programs[r]));
    }
    return sk_verify((const sk_program *const *)s->programs, s->n_ranks);
}

/* One of each kind: classes are numbered as they appear. */
static sk_status compile_firsts(sk_setup *s)
{
    int made = 0;
    for (int r = 0; r < s->n_ranks && made < s->n_classes; r++) {
        if (s->class_of[r] != made) continue;
        s->first_of[made++] = r;
        SK_TRY(sk_setup_compile(s, r, &s->programs[r]));
    }
    return SK_OK;
}

static sk_status compile_shapes(sk_setup *s)
{
    s->n_classes = sk_shapes(&s->graph, &s->layout, s->n_micro, s->class_of);
    if (s->n_classes >= 0) return compile_firsts(s);
    SK_TRY(sk_setup_compile(s, 0, &s->programs[0])); /* it may know a better story */
    return sk_fail(SK_ECONF, "layout: the ranks have too many different programs");
}

/* With few ranks a class, classes save nothing. */
static sk_status compile_classes(sk_setup *s)
{
    s->n_classes = sk_classes(&s->graph, &s->layout, s->n_micro, s->class_of);
    if (s->n_classes < 0 || 2 * s->n_classes > s->n_ranks) return compile_all(s);
    SK_TRY(compile_firsts(s));
    if (!sk_program_stands(s->programs[0])) return compile_all(s);
    for (int r = 0; r < s->n_ranks; r++) s->programs[r] = s->programs[s->first_of[s->class_of[r]]];
    return sk_verify((const sk_program *const *)s->programs, s->n_ranks);
}

static sk_status compile(sk_setup *s, sk_status (*some)(sk_setup *s))
{
    s->programs = sk_many(s->arena, sk_program *, s->n_ranks);
    s->class_of = sk_many(s->arena, int, s->n_ranks);
    s->first_of = sk_many(s->arena, int, s->n_ranks);
    return some(s);
}

/* Nobody has seen this program so far but as one of its class.  Common weights lie in another
 * rank's memory: then both must be seen. */
static sk_status prove_own(const sk_setup *s, int rank, const sk_program *own)
{
    sk_arena tmp = {0};
    sk_program *twin = NULL;
    SK_TRY(sk_verify_rank(own, s->programs[rank]));
    if (own->twin == rank) return SK_OK;
    sk_status st = compile_one(s, &tmp, own->twin, &twin);
    if (!st) st = sk_verify_pair(own, twin);
    sk_arena_end(&tmp);
    return st;
}

sk_status sk_setup_own_program(const sk_setup *s, sk_arena *a, int rank, const sk_program **out)
{
    sk_program *own = s->programs[rank];
    if (own->rank != rank) {
        SK_TRY(compile_one(s, a, rank, &own));
        SK_TRY(prove_own(s, rank, own));
    }
    *out = own;
    return SK_OK;
}

/* Stages that update on their own know neither the norm of all gradients nor whether, at the end of
 * the step, it shall be taken back. */
static sk_status meets_at_the_end(const sk_setup *s)
{
    const sk_schedule *x = sk_schedule_find(s->layout.schedule);
    if (!x || !x->apart) return SK_OK;
    if (s->job->clip > 0)
        return sk_fail(SK_ECONF,
                       "optim.clip is %g: gradients are clipped by the norm of all, and stages of "
                       "schedule %s update before it is known; optim.clip=0 is needed",
                       s->job->clip, x->name);
    if (s->job->dtype == SK_F16)
        return sk_fail(
            SK_ECONF,
            "train.dtype is f16: a step that overflows is skipped, and stages of schedule "
            "%s update before that is known; train.dtype=bf16 is needed",
            x->name);
    if (sk_layout_may_fill(&s->layout))
        return sk_fail(SK_ECONF,
                       "layout: gist=%d runs a step again whose results find no room, before its "
                       "update, and stages of schedule %s update in the middle; gist without a "
                       "number keeps only signs",
                       s->layout.gist, x->name);
    if (s->job->dropless)
        return sk_fail(SK_ECONF,
                       "train.dropless runs a step again before its update, and stages of schedule "
                       "%s update in the middle; set model.capacity_factor=0, which never drops",
                       x->name);
    return SK_OK;
}

static sk_status check_device(const sk_job *job)
{
    const char *d = job->device;
    size_t n = strlen("cuda:");
    bool numbered = !strncmp(d, "cuda:", n) && d[n] && !d[n + strspn(d + n, "0123456789")];
    if (!*d || !strcmp(d, "cpu") || !strcmp(d, "cuda") || numbered) return SK_OK;
    return sk_fail(SK_ECONF, "device is '%s'; cpu, cuda, or a GPU such as cuda:0 is needed", d);
}

sk_status sk_setup_layout(sk_arena *a, const sk_job *job, sk_setup *out)
{
    *out = (sk_setup){.arena = a, .job = job};
    SK_TRY(check_device(job));
    SK_TRY(find_optim(out));
    sk_graph_init(&out->graph, a);
    SK_TRY(make_layout(out));
    SK_TRY(meets_at_the_end(out));
    SK_TRY(make_graph(out));
    return job->budget ? sk_budget_choose(out) : SK_OK;
}

/* With one program that has room for what the other has not. */
static bool has_two(const sk_setup *s)
{
    return s->job->dropless || sk_layout_may_fill(&s->layout);
}

static sk_status add_programs(sk_setup *s, bool all)
{
    all |= *s->job->relayout != 0;
    SK_TRY(compile(s, all ? compile_all : compile_shapes));
    if (has_two(s)) return sk_fallback_plan(s, all);
    return *s->job->relayout ? sk_relayout_plan(s) : SK_OK;
}

sk_status sk_setup_program(sk_arena *a, const sk_job *job, bool all, sk_setup *out)
{
    SK_TRY(sk_setup_layout(a, job, out));
    return add_programs(out, all);
}

enum { MOST_HERE = 1 << 16 }; /* ranks of a run on one host: more threads than most systems have */

/* What moves from layout to layout, and what two programs have in one heap, is each rank's own. */
sk_status sk_setup_run(sk_arena *a, const sk_job *job, sk_setup *out)
{
    SK_TRY(sk_setup_layout(a, job, out));
    if (out->n_here > MOST_HERE)
        return sk_fail(SK_ECONF,
                       "layout: %d ranks would run on one host, where %d can; take fewer ranks or "
                       "more hosts (skein plan and simulate take any number)",
                       out->n_here, MOST_HERE);
    if (*job->relayout || has_two(out)) return add_programs(out, true);
    return compile(out, compile_classes);
}

const sk_program *sk_setup_program_of(const sk_setup *s, int rank)
{
    const sk_program *own = s->programs[rank];
    return own ? own : s->programs[s->first_of[s->class_of[rank]]];
}

/* --- data --- */

static sk_status fits_model(const sk_setup *s, sk_store *store)
{
    const sk_graph *g = &s->graph;
    const char *who = sk_print(s->arena, "model %s", s->job->model_name);
    for (int i = 0; i < g->tensors.n; i++) {
        const sk_tensor *t = g->tensors.v[i];
        if (!sk_tensor_is_data(t)) continue;
        char last = t->letters[0] ? t->letters[strlen(t->letters) - 1] : 0;
        SK_TRY(sk_store_offers(store, who, t->name, t->letters, t->type, g->size[(int)last]));
    }
    return sk_store_fit(store, s->job->hyper.vocab_size);
}

/* Where validation data are; "": the end of the training data. */
static const char *val_of(const sk_job *job)
{
    if (*job->data_val) return job->data_val;
    return sk_store_brings_val(job->data_train) ? job->data_train : "";
}

static sk_status open_stores(sk_setup *s)
{
    const sk_job *job = s->job;
    if (!*job->data_train)
        return sk_fail(SK_ECONF, "data.train is not given; a file, a folder or a known name such "
                                 "as kjv is needed");
    const char *d = job->data_dtype;
    sk_data_hint said = {.id_bytes = !strcmp(d, "uint16")   ? 2
                                     : !strcmp(d, "uint32") ? 4
                                                            : 0,
                         .text = !strcmp(job->data_format, "text")};
    SK_TRY(sk_store_open_as(s->arena, job->data_train, s->tokenizer, false, said, &s->train));
    SK_TRY(fits_model(s, &s->train));
    s->data = s->train;
    const char *val = val_of(job);
    if (*val) {
        SK_TRY(sk_store_open_as(s->arena, val, s->tokenizer, true, said, &s->val));
        SK_TRY(fits_model(s, &s->val));
        s->has_val = true;
    } else if (job->data_val_fraction > 0) {
        sk_store all = s->train;
        sk_store_cut(&all, job->data_val_fraction, &s->train, &s->val);
        s->has_val = true;
    }
    return SK_OK;
}

/* A cut too short to hold one window is no validation, not a mistake; a file of one's own is.
 * Either is told if validation is wanted, and so are windows that count more than once. */
static sk_status open_val(sk_setup *s)
{
    const sk_job *job = s->job;
    const sk_store *v = &s->val;
    int64_t n = v->tokens ? v->n_tokens : v->n_rows, need = v->tokens ? job->seq + 1 : 1;
    const char *unit = v->tokens ? "tokens" : "rows";
    if (!*val_of(job) && n < need) {
        s->has_val = false;
        s->val_note = sk_print(s->arena,
                               "no validation: data.val_fraction=%g of the data are %lld %s, and "
                               "%lld are needed%s; give data.val or a larger data.val_fraction",
                               job->data_val_fraction, (long long)n, unit, (long long)need,
                               v->tokens ? " (train.seq and one)" : "");
        return SK_OK;
    }
    SK_TRY(sk_feed_open(&s->val_feed, v, job->seq, job->batch, job->seed, false));
    int64_t rows = (job->val_batches > 0 ? job->val_batches : 1) * job->batch;
    if (s->val_feed.n_windows < rows)
        s->val_note =
            sk_print(s->arena,
                     "validation takes %lld sequences and the data hold %lld (%lld %s): "
                     "some count more than once",
                     (long long)rows, (long long)s->val_feed.n_windows, (long long)n, unit);
    return SK_OK;
}

static sk_status open_data(sk_setup *s)
{
    const sk_job *job = s->job;
    if (sk_graph_is_sequences(&s->graph) && strcmp(job->data_tokenizer, "none")) {
        const char *kept = sk_rundir_resumed_tokenizer(s->arena, job);
        SK_TRY(sk_tokenizer_open(
            s->arena, sk_companions_tokenizer(s->arena, job->data_tokenizer, kept), &s->tokenizer));
        int64_t words = sk_tokenizer_vocab(s->tokenizer);
        if (words > job->hyper.vocab_size)
            return sk_fail(SK_ECONF,
                           "tokenizer '%s' has %lld ids, the model's vocab_size is %lld; set "
                           "model.vocab_size=%lld or more",
                           job->data_tokenizer, (long long)words, (long long)job->hyper.vocab_size,
                           (long long)words);
    }
    SK_TRY(open_stores(s));
    bool shuffle = !strcmp(job->data_order, "shuffle");
    SK_TRY(sk_feed_open(&s->feed, &s->train, job->seq, job->batch, job->seed, shuffle));
    return s->has_val ? open_val(s) : SK_OK;
}

sk_status sk_setup_data(sk_setup *s)
{
    SK_TRY(open_data(s));
    sk_relayout_data(s);
    return SK_OK;
}

sk_status sk_setup_check(sk_setup *s)
{
    SK_TRY(sk_id_check_begin(&s->ids[0], &s->data));
    if (s->has_val && *val_of(s->job)) SK_TRY(sk_id_check_begin(&s->ids[1], &s->val));
    return SK_OK;
}

sk_status sk_setup_check_more(sk_setup *s, double seconds)
{
    for (int i = 0; i < 2; i++) SK_TRY(sk_id_check_more(&s->ids[i], seconds));
    return SK_OK;
}

sk_status sk_setup_fill(void *ctx, const char *input, sk_dtype type, const sk_extent *box,
                        int64_t step, bool validation, void *to)
{
    const sk_setup *s = ctx;
    const sk_feed *f = validation ? &s->val_feed : &s->feed;
    if (!strcmp(input, "loss_scale")) {
        *(float *)to = 1;
        return SK_OK;
    }
    (void)type;
    sk_assert(box->n >= 1 && box->n <= 2);
    bool flat = box->n == 1;
    return sk_feed_fill(f, input, step, box->at[0], box->size[0], flat ? 0 : box->at[1],
                        flat ? 1 : box->size[1], to);
}

sk_knobs sk_setup_knobs(const sk_job *job)
{
    sk_knobs k = {.clip = job->clip};
    memcpy(k.v, job->knob, sizeof k.v);
    return k;
}
