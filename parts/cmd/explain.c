/* explain.c - `skein explain`: the program of a rank, as text. */
#include "base/strings.h"
#include "cli/argv.h"
#include "cli/cmd.h"
#include "layout/word.h"
#include "train/idle.h"
#include "train/relayout.h"

#include <string.h>

static const char usage[] =
    "usage: skein explain [FILE.yaml] [key=value ...] [-n RANKS] [--rank R] [--pass NAME] "
    "[--verify]\n\n"
    "Prints what a rank will do in one step: every instruction with its buffers, shapes, flops,\n"
    "bytes and the line of the model it comes from.  Needs no data and no devices.\n"
    "--pass shows what there is after one pass of the compiler: graph, layout, then\n"
    "those that --pass list names, in their order; program is what runs.\n"
    "--verify proves the programs of all ranks first, as train does.\n"
    "    skein explain model=tiny layout=\"dp=2 tp=2\" --rank 3\n";

static const sk_option options[] = {
    {"rank", "the rank whose program is shown (0)", true},
    {"pass", "how far to compile: list, graph, layout, a pass, or program (default)", true},
    {"verify", "prove the programs of all ranks first (doc/program.md)", false},
    {0},
};

static sk_status unknown(const char *pass)
{
    const char *names[64] = {"list", "graph", "layout", "program"};
    int n = 4;
    for (int i = 0; n < 64 && sk_pass_name(i); i++) names[n++] = sk_pass_name(i);
    const char *near = sk_nearest(pass, names, n);
    return sk_fail(SK_EUSAGE, "command line: --pass %s is unknown%s%s%s; --pass list shows them",
                   pass, near ? " (did you mean '" : "", near ? near : "", near ? "'?)" : "");
}

static void list_passes(void)
{
    for (int i = 0; sk_pass_name(i); i++)
        printf("%2d  %-15s %s\n", i + 1, sk_pass_name(i), sk_pass_doc(i));
}

static bool is_pass(const char *name)
{
    for (int i = 0; sk_pass_name(i); i++)
        if (!strcmp(name, sk_pass_name(i))) return true;
    return false;
}

static sk_status print_program(sk_arena *a, sk_setup *s, int rank)
{
    sk_program *p = s->programs[rank];
    if (!p || p->rank != rank) {
        SK_TRY(sk_setup_compile(s, rank, &p));
        /* its heap has room for the fallback, as that of the first rank of its class */
        if (s->fallback) sk_relayout_grow(p, sk_setup_program_of(s, rank)->heap_bytes);
    }
    if (*s->job->batch_schedule)
        printf("-- with a batch of %lld, the first of train.batch_schedule=\"%s\"\n",
               (long long)s->job->batch, s->job->batch_schedule);
    fputs(sk_program_print(p, a), stdout);
    return SK_OK;
}

static sk_status print_until(sk_arena *a, const sk_setup *s, int rank, const char *pass)
{
    char *text = NULL;
    sk_compile_opts o = sk_setup_opts(s);
    if (!is_pass(pass)) return unknown(pass);
    SK_TRY(sk_compile_until(a, &s->graph, &s->layout, &o, rank, pass, &text));
    fputs(text, stdout);
    return SK_OK;
}

/* The word's pass is to blame if the programs hold without it. */
static sk_status blame(sk_arena *a, const sk_job *job, const sk_setup *s)
{
    const char *why = sk_strdup(a, sk_error_line());
    for (const sk_word *const *w = sk_word_parts; *w; w++) {
        if (!(*w)->pass[0] || !sk_word_on(*w, &s->layout)) continue;
        sk_job *other = sk_new(a, sk_job);
        sk_layout l = s->layout;
        *other = *job;
        sk_word_clear(*w, &l);
        snprintf(other->layout, sizeof other->layout, "%s", sk_layout_print(a, &l));
        if (!sk_setup_program(a, other, true, sk_new(a, sk_setup)))
            return sk_fail(SK_EBUG, "%s; without '%s' the programs hold: it is the word's pass",
                           why, (*w)->name);
    }
    return sk_fail(SK_EBUG, "%s", why);
}

static sk_status set_up(sk_arena *a, const sk_job *job, bool verify, sk_setup *s)
{
    sk_status st = sk_setup_program(a, job, verify, s);
    return st == SK_EBUG && verify ? blame(a, job, s) : st;
}

static sk_status run(sk_arena *a, int argc, char **argv)
{
    sk_job *job = sk_new(a, sk_job);
    sk_setup *s = sk_new(a, sk_setup);
    sk_conf_rest rest = {.options = options};
    int64_t rank = 0;
    SK_TRY(sk_argv_job(a, argc, argv, usage, job, &rest));
    if (rest.help) return SK_OK;
    const char *pass = sk_conf_option(&rest, "pass"), *text = sk_conf_option(&rest, "rank");
    if (!pass) pass = "program";
    if (!strcmp(pass, "list")) {
        if (argc > 2)
            return sk_fail(SK_EUSAGE,
                           "command line: --pass list names the passes of every program; "
                           "leave out the rest");
        list_passes();
        return SK_OK;
    }
    SK_TRY(sk_argv_layout(a, job));
    SK_TRY(set_up(a, job, sk_conf_option(&rest, "verify") != NULL, s));
    SK_TRY(sk_argv_job_stands(s));
    sk_idle_print("skein: warning: ", sk_idle_comm(a, s, job->host_of != NULL), stderr);
    if (text && (!sk_read_int(text, &rank) || rank < 0 || rank >= s->n_ranks))
        return sk_fail(SK_EUSAGE, "command line: --rank is \"%s\"; 0 to %d are there", text,
                       s->n_ranks - 1);
    if (!strcmp(pass, "program")) return print_program(a, s, (int)rank);
    if (!strcmp(pass, "graph")) fputs(sk_graph_print(&s->graph, a), stdout);
    else if (!strcmp(pass, "layout")) fputs(sk_layout_print(a, &s->layout), stdout);
    else return print_until(a, s, (int)rank, pass);
    return SK_OK;
}

const sk_cmd sk_cmd_explain = {
    .name = "explain", .doc = "the program of a rank, as text", .run = run};
