/* setup.c - from a job to its graph, layout and optimizer. */
#include "train/setup.h"
#include "graph/extra.h"
#include "train/backward_outputs.h"
#include "program/param_groups.h"
#include "base/threads.h"
#include "base/strings.h"
#include "layout/stage_balance.h"
#include "train/auto_layers.h"
#include "train/auto_layout.h"
#include "train/batch_schedule.h"
#include "train/budget_choice.h"
#include "train/host.h"
#include "train/layout_cause.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static sk_view full_view(const sk_graph *g, const char *letters)
{
    sk_view v = {.n = (int)strlen(letters)};
    for (int d = 0; d < v.n; d++) v.size[d] = v.full[d] = g->size[(int)letters[d] & 127];
    sk_view_dense(&v);
    return v;
}

/* Is a node there for loss and gradients, not only for what the backward pass tells besides
 * (K-FAC's factors, train.backward)?  read, by tensor: such a node reads it. */
static bool is_of_model(const sk_node *n, const bool *read)
{
    bool of = n->phase == SK_FORWARD;
    for (int o = 0; o < n->n_out; o++)
        of |= read[n->out[o]->id] || (n->into[o] && n->into[o]->role != SK_EXTRA);
    return of;
}

/* Model flops, as of MFU: forward and backward pass, without optimizer and extras. */
static double graph_flops(sk_arena *arena, const sk_graph *g)
{
    double sum = 0;
    bool *read = sk_many(arena, bool, g->tensors.n + 1);
    for (int i = g->nodes.n; i-- > 0;) {
        const sk_node *n = g->nodes.v[i];
        if (!is_of_model(n, read)) continue;
        for (int k = 0; k < n->n_in; k++) read[n->in[k]->id] = true;
        sk_args a = {.n_in = n->n_in, .n_out = n->n_out, .dims = n->dims, .of = 1};
        for (int k = 0; k < n->n_in; k++) a.in[k] = full_view(g, n->letters_in[k]);
        for (int k = 0; k < n->n_out; k++) a.out[k] = full_view(g, n->letters_out[k]);
        memcpy(a.attr, n->attr, sizeof a.attr);
        sum += sk_op_flops(n->op, &a);
    }
    return sum;
}

/* The choices that could be dropped: slots of every layer with a router. */
static double count_choices(const sk_graph *g)
{
    double sum = 0;
    for (int i = 0; i < g->nodes.n; i++) {
        sk_view slots = full_view(g, g->nodes.v[i]->letters_in[0]);
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
                       "train.matmul is fp8 and train.dtype %s: products of 8 bits need operands "
                       "of 16 bits; train.dtype=bf16 is needed, or f16",
                       sk_dtype_name(job->dtype));
    if (!sk_graph_fp8(&s->graph))
        return sk_fail(SK_ECONF,
                       "train.matmul is fp8, and model %s has no products with weights of blocks; "
                       "leave it out",
                       job->model_name);
    return SK_OK;
}

/* Parameters whose optimizer asks for Kronecker factors. */
static bool has_factors(const void *ctx, const sk_tensor *t)
{
    const sk_setup *s = ctx;
    const sk_job *job = s->job;
    int group = sk_param_group_asked(&s->graph, t, job->group, job->n_groups);
    return (group ? job->group[group - 1].optim : s->optim)->factors;
}

static void ask_factors(sk_setup *s)
{
    bool any = s->optim->factors;
    for (int i = 0; i < s->job->n_groups; i++) any |= s->job->group[i].optim->factors;
    if (!any || s->graph.extras >> SK_EXTRA_KRON_A & 1) return; /* train.backward: of all */
    s->graph.extras |= 1u << SK_EXTRA_KRON_A | 1u << SK_EXTRA_KRON_G;
    s->graph.factors_of = has_factors;
    s->graph.factors_ctx = s;
}

/* Label smoothing and z-loss belong to a cross-entropy. */
static sk_status check_loss(const sk_setup *s)
{
    const sk_job *job = s->job;
    if (s->graph.cross_entropy || (job->label_smoothing == 0 && job->z_loss == 0)) return SK_OK;
    return sk_fail(SK_ECONF,
                   "%s is %g, and the loss of model %s is not a cross-entropy; leave it out",
                   job->z_loss != 0 ? "train.z_loss" : "train.label_smoothing",
                   job->z_loss != 0 ? job->z_loss : job->label_smoothing, job->model_name);
}

static sk_status make_graph(sk_setup *s)
{
    const sk_job *job = s->job;
    sk_graph_size(&s->graph, 'b', job->batch);
    sk_graph_size(&s->graph, 't', job->seq);
    sk_layout_expect(&s->layout, &s->graph);
    s->graph.label_smoothing = job->label_smoothing;
    s->graph.z_loss = job->z_loss;
    if (job->build) job->build(&s->graph, job->build_ctx);
    else job->model->build(&s->graph, &job->hyper, SK_TRAIN);
    SK_TRY(sk_graph_status(&s->graph));
    SK_TRY(check_loss(s));
    SK_TRY(make_products(s));
    SK_TRY(sk_backward_ask(s->job, &s->graph));
    ask_factors(s);
    sk_graph_grad(&s->graph);
    SK_TRY(sk_graph_status(&s->graph));
    sk_graph_store(&s->graph, job->dtype);
    SK_TRY(sk_layout_suits_model(&s->layout, &s->graph));
    SK_TRY(sk_setup_check_groups(s));
    s->shown_rate = sk_setup_shown_rate(&s->graph, job);
    s->has_momentum = sk_setup_has_momentum(s);
    s->n_params = count_params(&s->graph);
    s->flops =
        graph_flops(s->arena, &s->graph) * sk_optim_phases(s->optim, job->group, job->n_groups);
    s->choices = count_choices(&s->graph);
    return SK_OK;
}

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

/* The number of the layout first; then what train.micro_batch makes necessary; then twice as many
 * as stages, which keeps a pipeline busy 2s / (3s - 1) of the time or more. */
static int choose_micro(const sk_setup *s)
{
    const sk_layout *l = &s->layout;
    int64_t batch = s->job->batch, n = 1;
    if (l->n_micro) return l->n_micro;
    if (s->job->micro_batch > 0) n = micro_needed(s);
    else if (l->stage_axis >= 0) n = 2 * l->mesh.size[l->stage_axis];
    return (int)(n > batch ? batch : n);
}

static bool says_micro(const sk_layout *l) { return l->n_micro != 0; }

/* Two keys for one number. */
static sk_status same_micro(const sk_setup *s)
{
    const sk_job *job = s->job;
    int said = s->layout.n_micro;
    if (!said || !job->micro_batch || micro_needed(s) == said) return SK_OK;
    return sk_fail(SK_ECONF,
                   "train.micro_batch is %lld, which makes %lld micro-batch%s of train.batch=%lld "
                   "over %lld rank%s, and the layout says %s; leave one of them out",
                   (long long)job->micro_batch, (long long)micro_needed(s),
                   micro_needed(s) > 1 ? "es" : "", (long long)job->batch,
                   (long long)sk_batch_shards(&s->layout, s->graph.batch),
                   sk_plural(sk_batch_shards(&s->layout, s->graph.batch)),
                   sk_layout_cause(s->arena, &s->layout, says_micro));
}

/* Ranks that share the cores of a host, where most of them sit. */
static int most_ranks_on_a_host(const sk_setup *s)
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

static sk_status read_pins(sk_setup *s)
{
    const char *axes[SK_MAX_AXES];
    for (int a = 0; a < s->layout.mesh.n; a++) axes[a] = s->layout.mesh.name[a];
    return sk_pins_read("comm.algorithm", s->job->algorithm, axes, s->layout.mesh.n, &s->pins);
}

static sk_status read_links(sk_setup *s)
{
    const sk_job *job = s->job;
    if (!*job->links) return SK_OK;
    if (sk_setup_on_gpu(job))
        return sk_fail(SK_ECONF,
                       "comm.links: %s, and device=%s: between GPUs NCCL finds the topology itself "
                       "(NCCL_TOPO_FILE); leave comm.links out",
                       job->links, job->device);
    return sk_links_read(s->arena, "comm.links", job->links, s->n_ranks, &s->links);
}

/* layers=auto. */
static sk_status choose_layers(sk_setup *s)
{
    sk_machine m;
    if (strcmp(s->layout.layers, SK_LAYERS_AUTO)) return SK_OK;
    SK_TRY(sk_auto_machine(s->arena, s->job, &m));
    return sk_auto_layers(s->job, &m, s->job->budget ? s->job->budget : m.memory, &s->layout);
}

static sk_status make_layout(sk_setup *s)
{
    const sk_job *job = s->job;
    const char *text = job->layout;
    if (!*text) text = sk_print(s->arena, "dp=%lld", job->ranks > 0 ? (long long)job->ranks : 1LL);
    if (!strcmp(text, "auto")) SK_TRY(sk_auto_text(s->arena, job, &text));
    SK_TRY(sk_layout_read(text, (int)job->ranks, &s->layout));
    SK_TRY(choose_layers(s));
    if (s->layout.canonical && !strcmp(job->order, "any"))
        return sk_fail(SK_ECONF, "order is any, and the layout says canonical order; leave one of "
                                 "them out");
    s->layout.canonical |= !strcmp(job->order, "canonical");
    s->n_ranks = sk_mesh_ranks(&s->layout.mesh);
    SK_TRY(same_micro(s));
    s->n_micro = choose_micro(s);
    SK_TRY(read_pins(s));
    SK_TRY(read_links(s));
    sk_host host;
    sk_host_detect(&host);
    s->cores = host.cores;
    s->n_here = most_ranks_on_a_host(s);
    return choose_threads(s, host.cores);
}

sk_status sk_setup_optim(const char *name, const sk_optim **out)
{
    const char *names[128];
    int n = 0;
    *out = sk_optim_find(name);
    if (*out) return SK_OK;
    while (n < 128 && sk_optim_parts[n]) names[n] = sk_optim_parts[n]->name, n++;
    const char *near = sk_nearest(name, names, n);
    return sk_fail(SK_ECONF, "optim.name '%s' is unknown%s%s%s%s%s; skein list optim shows them",
                   name, near ? " (did you mean '" : "", near ? near : "", near ? "', " : "",
                   near ? sk_optim_find(near)->doc : "", near ? "?)" : "");
}

/* An optimizer whose average takes the place of a decaying rate. */
static sk_status check_schedule(const sk_setup *s)
{
    const sk_job *job = s->job;
    for (int g = 0; g <= job->n_groups; g++) {
        const sk_optim *o = g ? job->group[g - 1].optim : s->optim;
        if (o->schedule && strcmp(o->schedule, job->schedule) != 0)
            return sk_fail(SK_ECONF,
                           "optim.schedule is %s, and %s takes no other than %s, for its average "
                           "of weights counts on the rate; optim.schedule=%s is needed",
                           job->schedule, o->name, o->schedule, o->schedule);
    }
    return SK_OK;
}

/* Stages that update asynchronously know neither the global gradient norm nor whether the step will
 * be skipped or run again. */
sk_status sk_setup_check_async(const sk_setup *s)
{
    const sk_schedule *x = sk_schedule_find(s->layout.schedule);
    if (!x || !x->async) return SK_OK;
    if (s->job->clip > 0)
        return sk_fail(SK_ECONF,
                       "optim.clip is %g: clipping needs the global gradient norm, and stages of "
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
                       "layout: %s runs a step again whose results find no room, before its "
                       "update, and stages of schedule %s update in the middle; leave it out, or "
                       "choose a value with which no step is run again",
                       sk_layout_cause(s->arena, &s->layout, sk_layout_may_fill), x->name);
    if (s->job->dropless)
        return sk_fail(SK_ECONF,
                       "train.dropless runs a step again before its update, and stages of schedule "
                       "%s update in the middle; set model.capacity_factor=0, which never drops",
                       x->name);
    return SK_OK;
}

/* With order=canonical the GPU must execute the optimizer: the host rounds otherwise. */
static sk_status check_order(const sk_setup *s)
{
    const sk_placement *home = s->layout.home;
    bool state = home[SK_STATE] && s->optim->n_state;
    bool gpu = !strncmp(s->job->device, "cuda", strlen("cuda"));
    if (!s->layout.canonical || !gpu || !(state || home[SK_GRAD])) return SK_OK;
    return sk_fail(SK_ECONF,
                   "device=cuda: with order=canonical all layouts give the same bits, and with "
                   "offload=%s the host would do work of the GPU, with other roundings; leave it "
                   "out, or take order=fast",
                   sk_offload_kind_names[state ? SK_STATE : SK_GRAD]);
}

/* The batch that optim.lr is for stays the same when the batch changes; no step has a smaller one.
 */
static sk_status check_scales(const sk_job *job)
{
    sk_batch_list l;
    SK_TRY(sk_batch_schedule_read(job, &l));
    for (int i = 0; i < l.n; i++)
        if (l.v[i].batch * job->adascale < job->batch)
            return sk_fail(SK_ECONF,
                           "optim.adascale is %lld, so optim.lr is for a batch of train.batch / "
                           "%lld = %g, and train.batch_schedule has a smaller one, %lld; take a "
                           "larger one, or a larger optim.adascale",
                           (long long)job->adascale, (long long)job->adascale,
                           (double)job->batch / (double)job->adascale, (long long)l.v[i].batch);
    return SK_OK;
}

/* AdaScale goes by the variance of gradients of parts of the batch. */
static sk_status check_adascale(const sk_job *job)
{
    if (!job->adascale) return SK_OK;
    if (!job->noise)
        return sk_fail(SK_ECONF,
                       "optim.adascale goes by the gradients of parts of the batch, which "
                       "nobody measures; train.noise=1 is needed");
    if (*job->batch_scaling && strcmp(job->batch_scaling, "none") != 0)
        return sk_fail(SK_ECONF,
                       "optim.adascale is %lld and optim.batch_scaling %s: both scale the rate by "
                       "the batch; leave one of them out",
                       (long long)job->adascale, job->batch_scaling);
    if (job->stays_here) return SK_OK; /* a phase: it is the first batch's number */
    if (job->adascale > 1 && job->adascale <= job->batch) return check_scales(job);
    return sk_fail(
        SK_ECONF,
        "optim.adascale is %lld: a number of times that train.batch, %lld, is larger than "
        "the batch that optim.lr is for, from 2 to %lld, is needed",
        (long long)job->adascale, (long long)job->batch, (long long)job->batch);
}

static sk_status check_device(const sk_job *job)
{
    const char *d = job->device;
    size_t n = strlen("cuda:");
    bool numbered = !strncmp(d, "cuda:", n) && d[n] && !d[n + strspn(d + n, "0123456789")];
    if (!*d || !strcmp(d, "cpu") || !strcmp(d, "cuda") || numbered) return SK_OK;
    return sk_fail(SK_ECONF, "device is '%s'; cpu, cuda, or a GPU such as cuda:0 is needed", d);
}

/* sync=postlocal:H@decay: replicas begin with the step whose rate is the first to fall. */
static sk_status place_decay(sk_setup *s)
{
    sk_lr_schedule rates;
    int64_t steps = s->job->time_limit > 0 ? 0 : s->job->steps;
    for (int a = 0; a < s->layout.mesh.n; a++) {
        sk_axis_sync *x = &s->layout.sync[a];
        if (x->from != SK_SYNC_AT_DECAY) continue;
        SK_TRY(sk_setup_rates(s->job, steps, &rates));
        x->from = sk_lr_first_fall(&rates);
        if (x->from > 0) continue;
        if (!steps)
            return sk_fail(SK_ECONF,
                           "layout: sync=%s:%d@decay goes by the learning rate of a number of "
                           "steps, and train.time=%g leaves that open; train.steps=N is needed, or "
                           "a step, as in %s:%d@2000",
                           x->name, x->every, s->job->time_limit, x->name, x->every);
        return sk_fail(
            SK_ECONF,
            "layout: sync=%s:%d@decay begins where the learning rate falls, and with "
            "optim.schedule=%s it never does in %lld steps; say a step, as in %s:%d@%lld",
            x->name, x->every, s->job->schedule, (long long)steps, x->name, x->every,
            (long long)(steps + 1) / 2);
    }
    return SK_OK;
}

sk_status sk_setup_layout(sk_arena *a, const sk_job *job, sk_setup *out)
{
    *out = (sk_setup){.arena = a, .job = job};
    SK_TRY(check_device(job));
    SK_TRY(check_adascale(job));
    SK_TRY(sk_setup_optim(job->optim_name, &out->optim));
    SK_TRY(check_schedule(out));
    sk_graph_init(&out->graph, a);
    SK_TRY(make_layout(out));
    SK_TRY(place_decay(out));
    SK_TRY(check_order(out));
    SK_TRY(sk_setup_check_timed(out));
    SK_TRY(sk_backward_fits(job, &out->layout));
    SK_TRY(make_graph(out));
    return job->budget ? sk_budget_choose(out) : SK_OK;
}

sk_knobs sk_setup_knobs(const sk_job *job)
{
    sk_knobs k = {.clip = job->clip,
                  .warmup = job->warmup,
                  .layer_decay = job->layer_decay < 1 ? job->layer_decay : 0};
    k.group[0].rate = 1;
    memcpy(k.group[0].v, job->knob, sizeof job->knob);
    for (int i = 0; i < job->n_groups; i++) {
        k.group[i + 1].rate = job->group[i].rate;
        memcpy(k.group[i + 1].v, job->group[i].knob, sizeof job->knob);
    }
    return k;
}

sk_status sk_setup_rates(const sk_job *job, int64_t steps, sk_lr_schedule *out)
{
    *out = (sk_lr_schedule){
        .lr = job->lr, .min_lr = job->min_lr, .warmup = job->warmup, .steps = steps};
    memcpy(out->knob, job->lr_knob, sizeof out->knob);
    return sk_lr_find(job->schedule, &out->part);
}
