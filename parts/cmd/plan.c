/* plan.c - `skein plan`: what a layout needs, known before anything runs.
 *
 * Compiles one program per class of equal ranks, so that sixteen thousand ranks
 * cost what a few do.  Bytes are those of the memory plan: a run maps exactly as
 * many. */
#include "base/text.h"
#include "cli/ask.h"
#include "cli/cmd.h"
#include "train/host.h"
#include "train/setup.h"

#include <string.h>

static const char usage[] =
    "usage: skein plan [FILE.yaml] [key=value ...] [-n RANKS] [-o csv|json|md]\n\n"
    "Bytes per rank by kind, flops and bytes on the wire of a step, for each class of ranks with\n"
    "equal programs.  Needs no data and no devices.\n"
    "    skein plan model=gpt2 layout=\"dp=64 tp=8 zero=1\" train.batch=512\n";

static const sk_option options[] = {
    {"o", "csv, json or md instead of text", true},
    {0},
};

enum { COLS = 5 + SK_N_KINDS + 3 };

static const char *const *columns(sk_arena *a)
{
    static const char *const first[] = {"class", "ranks", "first_rank", "stage", "instructions"};
    static const char *const last[] = {"total_bytes", "flops", "sent_bytes"};
    const char **head = sk_many(a, const char *, COLS);
    memcpy(head, first, sizeof first);
    for (int k = 0; k < SK_N_KINDS; k++) head[5 + k] = sk_print(a, "%s_bytes", sk_kind_names[k]);
    memcpy(head + 5 + SK_N_KINDS, last, sizeof last);
    return head;
}

static const char *whole(sk_arena *a, int64_t n) { return sk_print(a, "%lld", (long long)n); }

static void add_class(sk_table *t, const sk_setup *s, int rank)
{
    sk_arena *a = t->arena;
    const sk_program *p = s->programs[rank];
    const char *cells[COLS];
    int ranks = 0, c = 0;
    double flops = 0;
    int64_t wire = 0;
    for (int r = 0; r < s->n_ranks; r++) ranks += s->class_of[r] == s->class_of[rank];
    for (int i = 0; i < p->n_train; i++) {
        flops += p->insts.v[i].flops;
        wire += p->insts.v[i].wire;
    }
    cells[c++] = whole(a, s->class_of[rank]);
    cells[c++] = whole(a, ranks);
    cells[c++] = whole(a, rank);
    cells[c++] = whole(a, p->stage);
    cells[c++] = whole(a, p->n_train);
    for (int k = 0; k < SK_N_KINDS; k++) cells[c++] = whole(a, p->kind_bytes[k]);
    cells[c++] = whole(a, p->heap_bytes);
    cells[c++] = sk_print(a, "%.6g", flops);
    cells[c++] = whole(a, wire);
    sk_table_add(t, cells);
}

/* For people: the same in a few lines above the table. */
static void summary(sk_arena *a, const sk_setup *s)
{
    sk_host h;
    int64_t all = 0, most = 0;
    for (int r = 0; r < s->n_ranks; r++) {
        int64_t bytes = sk_setup_of(s, r)->heap_bytes;
        all += bytes;
        if (bytes > most) most = bytes;
    }
    sk_host_look(&h);
    printf("model     %s · %s parameters · %.4g flop a step\n", s->job->model_name,
           sk_commas(a, s->n_params), s->flops);
    printf("layout    %d ranks = %s · %d micro-batches · %d kinds of rank\n", s->n_ranks,
           sk_layout_short(a, &s->layout), s->n_micro, s->n_classes);
    printf("memory    %s on the fullest rank · %s in all\n", sk_bytes(a, most), sk_bytes(a, all));
    printf("here      %s free: %s\n\n", sk_bytes(a, h.available),
           all > h.available           ? "does not fit on this host"
           : s->n_ranks > SK_MAX_RANKS ? "fits, but one host runs at most 64 ranks"
           : s->n_ranks > h.cores      ? "fits; there are more ranks than cores, so it will be slow"
                                       : "fits");
}

static sk_status run(sk_arena *a, int argc, char **argv)
{
    sk_job *job = sk_new(a, sk_job);
    sk_setup *s = sk_new(a, sk_setup);
    sk_conf_rest rest = {.options = options};
    SK_TRY(sk_ask_job(a, argc, argv, usage, job, &rest));
    if (rest.help) return SK_OK;
    const char *format = sk_conf_option(&rest, "o");
    SK_TRY(sk_setup_program(a, job, false, s));
    sk_table t = {.arena = a, .head = columns(a), .n_cols = COLS};
    for (int r = 0; r < s->n_ranks; r++)
        if (s->programs[r]) add_class(&t, s, r);
    if (!format) summary(a, s);
    return sk_table_print(&t, format, stdout);
}

const sk_cmd sk_cmd_plan = {
    .name = "plan", .doc = "memory, work and traffic of a layout, before running", .run = run};
