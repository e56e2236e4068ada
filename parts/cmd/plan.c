/* plan.c - `skein plan`: what a layout needs, before anything runs.
 *
 * Compiles one program per class of equal ranks, so that sixteen thousand ranks
 * cost what a few do.  Bytes are those of the memory plan: a run maps exactly as
 * many. */
#include "base/strings.h"
#include "cli/argv.h"
#include "cli/cmd.h"
#include "cli/picture.h"
#include "cli/search_report.h"
#include "plan/peak.h"
#include "plan/price.h"
#include "program/acts.h"
#include "plan/simulator.h"
#include "train/budget_choice.h"
#include "train/host.h"
#include "train/idle.h"
#include "train/relayout.h"
#include "train/setup.h"

#include <limits.h>
#include <string.h>

static const char usage[] =
    "usage: skein plan [FILE.yaml] [key=value ...] [-n RANKS] [--cluster NAME|FILE]\n"
    "                  [--search TIME|LAYOUTS] [-o csv|json|md] [--svg FILE [--tensor NAME]]\n\n"
    "Bytes per rank by kind, flops and bytes on the wire of a step, for each class of ranks with\n"
    "equal programs; with --cluster also whether it fits there, and the predicted time of a\n"
    "step (skein simulate tells more).  --svg draws it: mesh, shards of a parameter, pipeline,\n"
    "memory; without --cluster its time is counted in blocks.  Needs no data and no devices.\n"
    "    skein plan model=gpt2 layout=\"dp=64 tp=8 zero=1\" train.batch=512 --cluster h100-8\n";

static const sk_option options[] = {
    {"cluster", "a machine that skein simulate knows, or its file", true},
    {"search",
     "the fastest layout of -n ranks that fits there, searched for so long (30s) or among so many "
     "(500)",
     true},
    {"o", "csv, json or md instead of text", true},
    {"svg", "draw mesh, shards, pipeline and memory to a file (doc/pictures.md)", true},
    {"tensor", "the parameter whose shards are drawn; default: the largest", true},
    {0},
};

enum { COLS = 5 + SK_HOSTED + 3 + 2 };

static const char *const *columns(sk_arena *a)
{
    static const char *const first[] = {"class", "ranks", "first_rank", "stage", "instructions"};
    static const char *const last[] = {"total_bytes", "flops", "sent_bytes", "host_bytes",
                                       "file_bytes"};
    const char **head = sk_many(a, const char *, COLS);
    memcpy(head, first, sizeof first);
    for (int k = 0; k < SK_HOSTED; k++) head[5 + k] = sk_print(a, "%s_bytes", sk_kind_names[k]);
    memcpy(head + 5 + SK_HOSTED, last, sizeof last);
    return head;
}

static const char *whole(sk_arena *a, int64_t n) { return sk_print(a, "%lld", (long long)n); }

static void add_class(sk_table *t, const sk_setup *s, int rank)
{
    sk_arena *a = t->arena;
    const sk_program *p = s->programs[rank];
    const char *cells[COLS];
    int ranks = 0, c = 0;
    sk_price_rank price;
    sk_price_program(p, s->class_of, &price);
    for (int r = 0; r < s->n_ranks; r++) ranks += s->class_of[r] == s->class_of[rank];
    cells[c++] = whole(a, s->class_of[rank]);
    cells[c++] = whole(a, ranks);
    cells[c++] = whole(a, rank);
    cells[c++] = whole(a, p->stage);
    cells[c++] = whole(a, p->n_train);
    for (int k = 0; k < SK_HOSTED; k++) cells[c++] = whole(a, price.bytes[k]);
    cells[c++] = whole(a, price.total);
    cells[c++] = sk_print(a, "%.6g", price.flops);
    cells[c++] = whole(a, price.wire);
    cells[c++] = whole(a, price.bytes[SK_HOSTED]);
    cells[c++] = whole(a, p->file_bytes);
    sk_table_add(t, cells);
}

/* Published flops follow one of these; MFU means little without saying which. */
static void conventions(const sk_setup *s)
{
    sk_price p;
    if (!s->job->hyper.num_attention_heads) return;
    sk_price_model(&s->graph, &s->job->hyper, &p);
    printf("flops     %.4g causal · %.4g full square · %.4g 6N+12Lsh · %.4g with recomputation\n",
           p.causal, p.full, p.six_n, p.hardware);
}

static void fullest(const sk_setup *s, int64_t *most, int64_t *all)
{
    *most = *all = 0;
    for (int r = 0; r < s->n_ranks; r++) {
        int64_t bytes = sk_device_bytes(sk_setup_program_of(s, r));
        *all += sk_setup_program_of(s, r)->own_bytes;
        if (bytes > *most) *most = bytes;
    }
}

/* Of a program for a GPU, the host's memory has what lives there. */
static void fits_here(sk_arena *a, const sk_setup *s, int64_t all)
{
    sk_host h;
    if (sk_setup_program_of(s, 0)->gpu) all = 0;
    for (int r = 0; r < s->n_ranks && sk_setup_program_of(s, r)->gpu; r++)
        all += sk_setup_program_of(s, r)->kind_bytes[SK_HOSTED];
    sk_host_detect(&h);
    printf("here      %s free: %s\n", sk_bytes(a, h.available),
           all > h.available      ? "does not fit on this host"
           : s->n_ranks > h.cores ? "fits; there are more ranks than cores, so it will be slow"
                                  : "fits");
}

/* Where the fullest rank needs the most, and for what. */
static void say_peak(sk_arena *a, const sk_setup *s, int64_t most)
{
    const sk_program *p = NULL;
    sk_peak peak;
    for (int r = 0; r < s->n_ranks && !p; r++)
        if (sk_device_bytes(sk_setup_program_of(s, r)) == most) p = sk_setup_program_of(s, r);
    sk_peak_find(p, &peak);
    if (peak.pc < 0) return;
    const sk_inst *in = &p->insts.v[peak.pc];
    printf("peak      %s of results at instruction %d, %s of %s", sk_bytes(a, peak.live), peak.pc,
           in->act == SK_DO_OP ? in->node->op->name : sk_act_row_of(in)->name,
           in->phase == SK_FORWARD ? "the forward pass" : "the backward pass");
    if (in->micro >= 0 && p->n_micro > 1) printf(", micro-batch %d", in->micro);
    for (int i = 0; i < peak.n; i++)
        printf("%s %s%s %s", i ? " ·" : ":", peak.top[i].name,
               peak.top[i].pieces > 1 ? sk_print(a, " (%d)", peak.top[i].pieces) : "",
               sk_bytes(a, peak.top[i].bytes));
    double lost = (double)(peak.region - peak.live) / (double)peak.region;
    printf(" · packing loses %.1f %%\n", 100 * lost);
}

/* The simulated step, and its machine. */
typedef struct walked {
    sk_machine machine;
    sk_simulation simulated;
} walked;

static sk_status walk(sk_arena *a, const sk_setup *s, const char *where, bool mine, bool trace,
                      walked *out)
{
    const sk_program *const *programs = NULL;
    int *shape_of = NULL;
    SK_TRY(sk_machine_read(a, where, &out->machine));
    sk_compile_opts o = sk_setup_opts(s);
    o.validate = false;
    o.listed = !trace;
    if (!mine) {
        o.host_of = sk_machine_hosts(a, &out->machine, &s->layout, s->n_ranks);
        o.costs = &out->machine.costs;
    }
    SK_TRY(sk_simulate_compile(a, &s->graph, &s->layout, &o, &programs, &shape_of));
    sk_simulate_in in = {.machine = &out->machine,
                         .programs = programs,
                         .shape_of = shape_of,
                         .by_class = true,
                         .trace = trace};
    return sk_simulate(a, &in, &out->simulated);
}

/* On another machine: what fits, and the step. */
static void there(sk_arena *a, const walked *w, int64_t most)
{
    const sk_machine *m = &w->machine;
    const sk_simulation *p = &w->simulated;
    printf("cluster   %s: %s of %s per rank, %s\n", m->name, sk_bytes(a, most),
           m->memory ? sk_bytes(a, m->memory) : "unknown memory",
           m->memory && most > m->memory ? "does not fit" : "fits");
    printf("step      %.4g s predicted · busy %.1f %% · exposed %.1f %% · bubble %.1f %%\n",
           p->seconds, 100 * p->busy / p->seconds, 100 * p->exposed / p->seconds,
           100 * p->bubble / p->seconds);
}

/* It does not fit there: the fastest options that would. */
static sk_status would_fit(sk_arena *a, sk_setup *s, const sk_machine *m, int64_t most)
{
    enum { SAID = 3 };
    sk_budget_option *found = NULL;
    int n = 0, said = 0;
    if (!m->memory || most <= m->memory) return SK_OK;
    SK_TRY(sk_setup_options(s, m, m->memory, &found, &n));
    for (int i = 0; i < n && said < SAID; i++) {
        if (found[i].bytes > m->memory) continue;
        printf("%s %s: %s a rank, %.4g s\n", said++ ? "         " : "would fit",
               sk_layout_short(a, &found[i].layout), sk_bytes(a, found[i].bytes), found[i].seconds);
    }
    if (!said) printf("would fit none of %d options to shard and recompute; take more ranks\n", n);
    return SK_OK;
}

static const int *hosts(sk_arena *a, const sk_setup *s, const sk_machine *m)
{
    if (s->job->host_of || m->ranks_per_host == INT_MAX) return s->job->host_of;
    int *host_of = sk_many(a, int, s->n_ranks);
    for (int r = 0; r < s->n_ranks; r++) host_of[r] = r / m->ranks_per_host;
    return host_of;
}

/* Without a cluster the program is the one a run here has; its time is counted in blocks, or by the
 * preset of this kind of host for models that have none. */
static sk_status draw(sk_arena *a, const sk_setup *s, const sk_conf_rest *rest, walked *w)
{
    if (!sk_conf_option(rest, "cluster")) {
        SK_TRY(walk(a, s, "unit", true, true, w));
        if (w->simulated.seconds <= 0) SK_TRY(walk(a, s, "cpu", true, true, w));
    }
    sk_picture in = {.setup = s,
                     .machine = &w->machine,
                     .simulated = &w->simulated,
                     .host_of = hosts(a, s, &w->machine),
                     .tensor = sk_conf_option(rest, "tensor")};
    return sk_picture_write(a, &in, sk_conf_option(rest, "svg"));
}

static const char *shared(sk_arena *a, const sk_setup *s)
{
    int axis = s->layout.shard_axis;
    if (!sk_setup_program_of(s, 0)->shared_bytes) return "";
    return sk_print(a, " · weights shared by %d ranks of a host", s->layout.mesh.size[axis]);
}

/* Offloaded bytes: host memory and files. */
static void say_outside(sk_arena *a, const sk_setup *s)
{
    int64_t host = 0, file = 0;
    if (!sk_layout_offloads(&s->layout)) return;
    for (int r = 0; r < s->n_ranks; r++) {
        const sk_program *p = sk_setup_program_of(s, r);
        if (p->kind_bytes[SK_HOSTED] > host) host = p->kind_bytes[SK_HOSTED];
        if (p->file_bytes > file) file = p->file_bytes;
    }
    printf("offloaded %s to host memory · %s to a file, each at most per rank\n", sk_bytes(a, host),
           sk_bytes(a, file));
}

/* Bytes that leave the rank in the first step. */
static int64_t sent_first(const sk_program *p)
{
    int64_t wire = 0;
    for (int i = 0; i < p->n_train; i++)
        if (sk_inst_due(&p->insts.v[i], 0, 0))
            wire += p->insts.v[i].wire * (sk_inst_once(&p->insts.v[i]) ? 1 : p->phases);
    return wire;
}

/* The table has the steps that go on for ever; where gradients of whole steps are summed before
 * these, also what that sends: of the rank that sends most then. */
static void say_first_steps(sk_arena *a, const sk_setup *s)
{
    const sk_program *p = s->programs[s->first_of[0]];
    for (int k = 1; k < s->n_classes; k++) {
        const sk_program *q = s->programs[s->first_of[k]];
        if (sent_first(q) > sent_first(p)) p = q;
    }
    sk_price_rank price;
    sk_price_program(p, s->class_of, &price);
    if (p->replicas_from <= 0 || sent_first(p) == price.wire) return;
    printf("sends     %s a rank in step 1, %s on average %s (in the table)\n",
           sk_bytes(a, sent_first(p)), sk_bytes(a, price.wire),
           p->kinds ? "in the long run"
                    : sk_print(a, "from step %lld on", (long long)p->replicas_from + 1));
}

/* For people: the same in a few lines above the table. */
static sk_status summary(sk_arena *a, sk_setup *s, const walked *cluster, const char *idle)
{
    int64_t all, most;
    fullest(s, &most, &all);
    printf("model     %s · %s parameters · %.4g flop a step\n", s->job->model_name,
           sk_commas(a, s->n_params), s->flops);
    conventions(s);
    printf("layout    %s · %d micro-batch%s · %d class%s of ranks\n",
           sk_layout_title(a, &s->layout), s->n_micro, s->n_micro > 1 ? "es" : "", s->n_classes,
           s->n_classes > 1 ? "es" : "");
    sk_idle_print("warning   ", idle, stdout);
    printf("memory    %s on the fullest rank · %s in all%s\n", sk_bytes(a, most), sk_bytes(a, all),
           shared(a, s));
    say_outside(a, s);
    say_peak(a, s, most);
    if (cluster) there(a, cluster, most);
    else fits_here(a, s, all);
    if (cluster) SK_TRY(would_fit(a, s, &cluster->machine, most));
    say_first_steps(a, s);
    printf("optimizer %s\n", sk_optim_text(a, s));
    printf("%s\n", sk_relayout_print(a, s));
    return SK_OK;
}

/* Instead of a layout's plan: the layouts that a search finds on the cluster. */
static sk_status search(sk_arena *a, const sk_job *job, const sk_conf_rest *rest)
{
    sk_machine m;
    sk_search_out *found = sk_new(a, sk_search_out);
    const char *where = sk_conf_option(rest, "cluster");
    sk_auto_in in = {.job = job, .machine = &m, .ranks = (int)job->ranks};
    SK_TRY(sk_search_limit(sk_conf_option(rest, "search"), &in));
    SK_TRY(where ? sk_machine_read(a, where, &m) : sk_auto_machine(a, job, &m));
    in.memory = job->budget ? job->budget : m.memory;
    SK_TRY(sk_auto_layout(&in, found));
    return sk_search_print(a, &in, found, sk_conf_option(rest, "o"));
}

static sk_status run(sk_arena *a, int argc, char **argv)
{
    sk_job *job = sk_new(a, sk_job);
    sk_setup *s = sk_new(a, sk_setup);
    sk_conf_rest rest = {.options = options};
    SK_TRY(sk_argv_job(a, argc, argv, usage, job, &rest));
    if (rest.help) return SK_OK;
    const char *format = sk_conf_option(&rest, "o"), *cluster = sk_conf_option(&rest, "cluster");
    const char *svg = sk_conf_option(&rest, "svg");
    walked w = {0};
    if (sk_conf_option(&rest, "tensor") && !svg)
        return sk_fail(SK_EUSAGE, "command line: --tensor says what --svg FILE draws; add --svg");
    if (sk_conf_option(&rest, "search")) return search(a, job, &rest);
    if (cluster) {
        sk_machine *m = sk_new(a, sk_machine);
        SK_TRY(sk_machine_read(a, cluster, m));
        job->machine = m;
    }
    SK_TRY(sk_argv_layout(a, job));
    SK_TRY(sk_setup_program(a, job, false, s));
    SK_TRY(sk_argv_job_stands(s));
    sk_table t = {.arena = a, .head = columns(a), .n_cols = COLS};
    for (int r = 0; r < s->n_ranks; r++)
        if (s->programs[r]) add_class(&t, s, r);
    if (cluster && (svg || !format)) SK_TRY(walk(a, s, cluster, false, svg != NULL, &w));
    if (svg) SK_TRY(draw(a, s, &rest, &w));
    bool far = cluster ? s->n_ranks > w.machine.ranks_per_host : job->host_of != NULL;
    const char *idle = sk_idle_plan(a, s, sk_idle_setup(a, s), far);
    if (!format) SK_TRY(summary(a, s, cluster ? &w : NULL, idle));
    else sk_idle_print("skein: warning: ", idle, stderr);
    return sk_table_print(&t, format, stdout);
}

const sk_cmd sk_cmd_plan = {.name = "plan",
                            .doc = "memory, flops and communication of a layout, before running",
                            .run = run};
