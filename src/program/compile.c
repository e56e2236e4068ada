/* compile.c - model + layout -> the program of one rank, by passes.
 *
 * The tables below are the compiler: passes run in this order, each in a file of its own.  The
 * first ones decide about nodes and tensors, `lower` writes instructions, and those behind it
 * rewrite the list.  `skein explain --pass NAME` prints the program after any of them.  Passes that
 * ask nothing about the rank run once for a layout (sk_plan_graph), and the compilations of all
 * ranks share what they decide.
 *
 *     chunks before propagate        partial sums are settled where a stage ends
 *     regions after propagate        states say whether the batch is cut alike
 *     recompute after regions        what exists in slices only is recomputed
 *     split-backward after both      regions and clones move nodes between the halves
 *     pieces, packed after those     what is recomputed is not saved, in pieces or in fewer bits
 *     saved after all of them        who reads what in which task; gathered weights of params
 *     params after edges             stages that share a weight are those that read it
 *     ring, overlap, slices, tiles   each takes ops that are still whole, and splits them
 *     weight stash after lower       who reads which version of a weight is known
 *     first gather after lower       the order of gathers in a step is known
 *     accumulate after weight stash  behind an update a sum begins anew
 *     noise before buckets           a gradient is measured before it is reduced
 *     first write, buckets           first and last writes of a step are known
 *     messages after lower           all that is sent is known, on all stages
 *     waits after lower              a wait stands where a buffer is first touched
 *     algorithms after waits         the workspace of a call lives from start to wait
 *     offload after waits            a stay on the device ends where a call is waited for
 *     numbering after all of them    the order in which buffers were created is of no importance
 *                                    (offload, which goes by numbers, begins with it too)
 *     memory after numbering         lives are known
 *     launches after memory          the proof compares places */
#include "base/threads.h"
#include "base/strings.h"
#include "layout/word.h"
#include "program/lowering.h"
#include "program/pass.h"

#include <string.h>

const sk_optim *sk_optim_find(const char *name)
{
    for (const sk_optim *const *o = sk_optim_parts; *o; o++)
        if (!strcmp((*o)->name, name)) return *o;
    return NULL;
}

/* Words of a layout that are valid, but not with this model, schedule, device or dtype. */
static sk_status goes_together(sk_lowering *e)
{
    const sk_schedule *s = sk_schedule_find(e->l->schedule);
    sk_word_ask ask = {.layout = e->l,
                       .graph = e->g,
                       .optim = e->opts->optim,
                       .async = s && s->async,
                       .late = e->opts->optim && e->opts->late,
                       .gpu = e->p->gpu};
    for (int i = 0; i < e->g->tensors.n && ask.dtype == SK_F32; i++) {
        const sk_tensor *t = e->g->tensors.v[i];
        if (t->role == SK_PARAM && sk_narrow(t)) ask.dtype = t->type;
    }
    SK_TRY(sk_check_sent(e));
    return sk_layout_fits(&ask);
}

static sk_status count_flops(sk_lowering *e)
{
    const sk_program *p = e->p;
    for (int i = 0; i < p->insts.n; i++) {
        sk_inst *in = &p->insts.v[i];
        if (in->act != SK_DO_OP) continue;
        sk_args args;
        sk_inst_args(p, in, NULL, &args);
        in->flops = sk_op_flops(in->node->op, &args);
        in->shape.type = args.in[0].type;
        if (in->node->op->shape) in->node->op->shape(&args, &in->shape);
    }
    return SK_OK;
}

static sk_status place_waits(sk_lowering *e)
{
    sk_place_waits(e->p, e->tmp);
    return SK_OK;
}

static sk_status number(sk_lowering *e)
{
    sk_number(e->p);
    return SK_OK;
}

static sk_status plan_memory(sk_lowering *e)
{
    sk_plan_memory(e->p);
    return SK_OK;
}

typedef struct station {
    const char *name, *doc;
    sk_status (*run)(sk_lowering *e);
} station;

/* Once for all ranks: these ask nothing about the rank, and write to the plan alone. */
static const station for_all[] = {
    {"refusals", "words that do not go with model, schedule, device or dtype", goes_together},
    {"chunks", "layers to chunks, chunks to stages", sk_assign_chunks},
    {"propagate", "sharding propagation: the states of all tensors", sk_propagate_sharding},
    {"tasks", "the order of tasks on every stage", sk_order_tasks},
    {"edges", "who reads a tensor: nodes, phases, stages", sk_find_edges},
    {"codecs", "encodings of weights and gradients on the wire", sk_choose_codecs},
};
enum { N_FOR_ALL = sizeof for_all / sizeof *for_all };

/* For each rank. */
static const station for_one[] = {
    {"regions", "nodes that run in slices of the batch", sk_find_regions},
    {"recompute", "clones of nodes in the backward pass, instead of saved results", sk_recompute},
    {"split-backward", "nodes that only weight gradients wait for", sk_split_backward},
    {"length", "is the program short enough?", sk_check_length},
    {"pieces", "results that are saved in pieces", sk_plan_pieces},
    {"packed", "results that are saved in fewer bits", sk_plan_packed},
    {"params", "weights, gradients, optimizer state: shards and owners", sk_plan_params},
    {"sums", "where loss and counts are added up", sk_plan_sums},
    {"saved", "what tasks leave to later tasks, in which form", sk_find_saved},
    {"lower", "instructions of all tasks, with communication", sk_lower},
    {"ring", "ops whose operands go round an axis, a step for each rank", sk_ring_attention},
    {"overlap", "products in chunks, beside the collectives they wait for", sk_overlap_chunks},
    {"slices", "regions run slice by slice: wide results are never whole", sk_slice_regions},
    {"tiles", "products of weights that come a few rows at a time", sk_weight_tiles},
    {"weight-stash", "versions of weights that change within a step", sk_stash_weights},
    {"first-gather", "later gathers of a weight come from a second copy", sk_find_first_gathers},
    {"accumulate", "gradients of tasks are added up over micro-batches", sk_accumulate},
    {"first-write", "the first contribution to a sum does not add", sk_find_first_writes},
    {"noise", "squares of the gradients of small batches, for train.noise", sk_measure_noise},
    {"buckets", "gradients are reduced when complete, in buckets", sk_fill_buckets},
    {"intervals", "what only some updates need, in these alone", sk_find_intervals},
    {"messages", "order of messages between stages, and their arrival", sk_order_messages},
    {"waits", "where calls are waited for", place_waits},
    {"algorithms", "how collectives are done, and their workspace", sk_choose_algorithms},
    {"offload", "copies from and to other memories", sk_place_offload_copies},
    {"workspaces", "scratch of GPU launches that need much", sk_plan_workspaces},
    {"replicas", "no task waits for another replica; where the mean of replicas ends",
     sk_check_replicas},
    {"numbering", "buffers by first use, calls by start", number},
    {"flops", "operations of each instruction", count_flops},
    {"memory", "the place of every buffer", plan_memory},
    {"launches", "what a GPU does in one launch", sk_join_launches},
};
enum { N_FOR_ONE = sizeof for_one / sizeof *for_one };

static const station *station_at(int i)
{
    if (i < N_FOR_ALL) return &for_all[i];
    return i < N_FOR_ALL + N_FOR_ONE ? &for_one[i - N_FOR_ALL] : NULL;
}

/* A pass in its order: one of the tables, or one that a word brings to run behind it. */
typedef struct step {
    const station *of;
    bool for_all;
    const sk_word *word; /* NULL: the station itself */
    const sk_pass *pass;
} step;

/* The i-th pass to run, those of all words counted; returns false behind the last. */
static bool nth_step(int i, step *out)
{
    const station *s;
    for (int k = 0; (s = station_at(k)); k++) {
        *out = (step){.of = s, .for_all = k < N_FOR_ALL};
        if (i-- == 0) return true;
        for (const sk_word *const *w = sk_word_parts; *w; w++)
            for (int j = 0; j < SK_WORD_PASSES && (*w)->pass[j]; j++) {
                if (strcmp((*w)->pass[j]->station, s->name) != 0) continue;
                *out = (step){s, k < N_FOR_ALL, *w, (*w)->pass[j]};
                if (i-- == 0) return true;
            }
    }
    return false;
}

bool sk_pass_station(const char *name)
{
    bool open = false;
    for (int i = 0; i < (int)(sizeof for_one / sizeof *for_one); i++) {
        open |= !strcmp(for_one[i].name, "lower");
        if (open && !strcmp(for_one[i].name, name)) return true;
        if (!strcmp(for_one[i].name, "buckets")) break;
    }
    return false;
}

static const char *name_of(const step *s)
{
    return !s->word ? s->of->name : s->pass->name ? s->pass->name : s->word->name;
}

static bool another_has(const sk_pass *pass, const char *name)
{
    step s;
    for (int i = 0; nth_step(i, &s); i++)
        if (s.pass != pass && !strcmp(name_of(&s), name)) return true;
    return false;
}

sk_status sk_pass_check(const sk_word *w)
{
    for (int i = 0; i < SK_WORD_PASSES && w->pass[i]; i++) {
        const sk_pass *pass = w->pass[i];
        const char *name = pass->name ? pass->name : w->name;
        if (!pass->doc || !pass->list)
            return sk_fail(SK_EBUG, "the pass %s of the word %s has no .%s", name, w->name,
                           pass->doc ? "list" : "doc");
        if (!pass->station || !sk_pass_station(pass->station))
            return sk_fail(SK_EBUG,
                           "the pass %s of the word %s has the station '%s'; a pass from lower to "
                           "buckets is needed, see skein explain --pass list",
                           name, w->name, pass->station ? pass->station : "");
        if (another_has(pass, name))
            return sk_fail(SK_EBUG,
                           "the pass %s of the word %s has the name of another pass; sk_pass.name "
                           "gives it one of its own",
                           name, w->name);
    }
    return SK_OK;
}

static sk_status check_words(void)
{
    for (const sk_word *const *w = sk_word_parts; *w; w++) SK_TRY(sk_pass_check(*w));
    return SK_OK;
}

const char *sk_pass_name(int i)
{
    step s;
    return nth_step(i, &s) ? name_of(&s) : NULL;
}

const char *sk_pass_doc(int i)
{
    step s;
    return !nth_step(i, &s) ? NULL : s.word ? s.pass->doc : s.of->doc;
}

/* The one to stop behind is of a word that the layout does not say. */
static sk_status did_not_run(const step *s)
{
    return sk_fail(SK_EUSAGE,
                   "the pass '%s' did not run, for the layout does not say '%s'; as in "
                   "layout=\"%s\"",
                   name_of(s), s->word->name, sk_or_empty(s->word->example));
}

/* Those for all ranks or those of one, all or up to `last`. */
static sk_status run_passes(sk_lowering *e, bool all_ranks, const char *last, bool *stopped)
{
    step s;
    for (int i = 0; !*stopped && nth_step(i, &s); i++) {
        if (s.for_all != all_ranks) continue;
        if (!s.word) SK_TRY(s.of->run(e));
        else if (sk_word_on(s.word, e->l)) SK_TRY(s.pass->list(e->p, e->tmp));
        *stopped = last && !strcmp(last, name_of(&s));
        if (*stopped && s.word && !sk_word_on(s.word, e->l)) return did_not_run(&s);
    }
    return SK_OK;
}

static sk_program *new_program(sk_arena *a, const sk_graph *g, const sk_layout *l,
                               const sk_compile_opts *o, int rank)
{
    int threads = o->threads < SK_THREADS_MAX ? o->threads : SK_THREADS_MAX;
    sk_program *p = sk_new(a, sk_program);
    *p = (sk_program){.arena = a,
                      .graph = g,
                      .expanded = g,
                      .layout = *l,
                      .optim = o->optim,
                      .groups_hash = sk_lower_groups_hash(o),
                      .ema = o->optim ? o->ema : 0,
                      .rank = rank,
                      .n_ranks = sk_mesh_ranks(&l->mesh),
                      .threads = threads < 1 ? 1 : threads,
                      .gpu = o->gpu,
                      .logits = -1};
    p->kinds = sk_plan_kinds(a, o);
    sk_own_grads(o, p->kinds, g->batch, &p->layout);
    p->n_micro = o->n_micro ? o->n_micro : l->n_micro ? l->n_micro : 1;
    sk_mesh_coords(&l->mesh, rank, p->coord);
    p->stage = l->stage_axis < 0 ? 0 : p->coord[l->stage_axis];
    return p;
}

static sk_status make_plan(sk_arena *a, const sk_graph *g, const sk_layout *l,
                           const sk_compile_opts *o, const char *last, bool *stopped,
                           const sk_graph_plan **out)
{
    SK_TRY(sk_graph_status(g));
    SK_TRY(check_words());
    sk_graph_plan *plan = sk_new(a, sk_graph_plan);
    sk_program *p = new_program(a, g, l, o, 0); /* of any rank: for what ranks have in common */
    *plan = (sk_graph_plan){.graph = g, .layout = p->layout, .opts = *o, .n_micro = p->n_micro};
    sk_lowering e = {.p = p, .tmp = a, .g = g, .l = &plan->layout, .opts = o, .sp = &plan->spread};
    SK_TRY(run_passes(&e, true, last, stopped));
    plan->plan = e.plan;
    *out = plan;
    return SK_OK;
}

sk_status sk_plan_graph(sk_arena *a, const sk_graph *g, const sk_layout *l,
                        const sk_compile_opts *o, const sk_graph_plan **out)
{
    bool stopped = false;
    return make_plan(a, g, l, o, NULL, &stopped, out);
}

static bool is_of(const sk_graph_plan *plan, const sk_graph *g, const sk_compile_opts *o,
                  int n_micro)
{
    return plan->graph == g && plan->opts.optim == o->optim && plan->opts.groups == o->groups &&
           plan->opts.n_groups == o->n_groups && plan->n_micro == n_micro &&
           plan->opts.validate == o->validate && plan->opts.gpu == o->gpu &&
           plan->opts.ema == o->ema && plan->opts.matrix_work == o->matrix_work;
}

/* Lists that grew beside what is given up, at the lengths they have now. */
#define FIX(arena, list)                                                            \
    ((list)->v = sk_grow((arena), (list)->v, sizeof *(list)->v * (size_t)(list)->n, \
                         sizeof *(list)->v * (size_t)((list)->cap = (list)->n)))

static sk_status compile(sk_arena *a, const sk_graph *g, const sk_layout *l,
                         const sk_compile_opts *o, int rank, const char *last, sk_program **out,
                         char **text)
{
    const sk_graph_plan *plan = o->plan;
    bool stopped = false;
    if (!plan) SK_TRY(make_plan(a, g, l, o, last, &stopped, &plan));
    sk_program *p = new_program(a, g, l, o, rank);
    sk_assert(is_of(plan, g, o, p->n_micro));
    p->plan = plan;
    p->spread = plan->spread;
    sk_arena tmp = {0};
    sk_lowering e = {.p = p,
                     .tmp = &tmp,
                     .g = g,
                     .l = &p->layout,
                     .opts = o,
                     .sp = &p->spread,
                     .plan = plan->plan,
                     .at = {.task = -1},
                     .gathered_layer = -1,
                     .noise = -1};
    sk_status st = run_passes(&e, false, last, &stopped);
    if (!st && last && !stopped) st = sk_fail(SK_EUSAGE, "no pass is called '%s'", last);
    FIX(a, &p->insts);
    FIX(a, &p->bufs);
    FIX(a, &p->calls);
    if (!st && text) *text = p->insts.n ? sk_program_print_marks(p, a) : sk_lower_print(&e, a);
    sk_arena_end(&tmp);
    *out = p;
    return st ? sk_trail(st, SK_HERE) : SK_OK;
}

sk_status sk_compile(sk_arena *a, const sk_graph *g, const sk_layout *l, const sk_compile_opts *o,
                     int rank, sk_program **out)
{
    return compile(a, g, l, o, rank, NULL, out, NULL);
}

sk_status sk_compile_until(sk_arena *a, const sk_graph *g, const sk_layout *l,
                           const sk_compile_opts *o, int rank, const char *last, char **text)
{
    sk_program *p;
    sk_compile_opts own = *o;
    own.plan = NULL; /* the last pass may be one of those that make the plan */
    return compile(a, g, l, &own, rank, last, &p, text);
}
