/* explain.c - `skein explain`: the program of a rank, as text. */
#include "base/text.h"
#include "cli/ask.h"
#include "cli/cmd.h"
#include "train/setup.h"

#include <string.h>

static const char usage[] =
    "usage: skein explain [FILE.yaml] [key=value ...] [-n RANKS] [--rank R] [--pass NAME]\n\n"
    "Prints what a rank will do in one step: every instruction with its buffers, shapes, flops,\n"
    "bytes and the line of the model it comes from.  Needs no data and no devices.\n"
    "    skein explain model=tiny layout=\"dp=2 tp=2\" --rank 3\n";

static const sk_option options[] = {
    {"rank", "whose program; 0 if not said", true},
    {"pass", "graph, layout or program (usual): how far to compile", true},
    {0},
};

static sk_status run(sk_arena *a, int argc, char **argv)
{
    sk_job *job = sk_new(a, sk_job);
    sk_setup *s = sk_new(a, sk_setup);
    sk_conf_rest rest = {.options = options};
    int64_t rank = 0;
    SK_TRY(sk_ask_job(a, argc, argv, usage, job, &rest));
    if (rest.help) return SK_OK;
    const char *pass = sk_conf_option(&rest, "pass"), *text = sk_conf_option(&rest, "rank");
    SK_TRY(sk_setup_program(a, job, false, s));
    if (text && (!sk_read_int(text, &rank) || rank < 0 || rank >= s->n_ranks))
        return sk_fail(SK_EUSAGE, "command line: --rank is \"%s\"; 0 to %d are there", text,
                       s->n_ranks - 1);
    if (!pass || !strcmp(pass, "program")) {
        sk_program *p = s->programs[rank];
        if (!p) SK_TRY(sk_setup_one(s, (int)rank, &p));
        fputs(sk_program_print(p, a), stdout);
    } else if (!strcmp(pass, "graph")) fputs(sk_graph_print(&s->graph, a), stdout);
    else if (!strcmp(pass, "layout")) fputs(sk_layout_print(a, &s->layout), stdout);
    else
        return sk_fail(SK_EUSAGE,
                       "command line: --pass %s is unknown; there are graph, layout and "
                       "program",
                       pass);
    return SK_OK;
}

const sk_cmd sk_cmd_explain = {
    .name = "explain", .doc = "the program of a rank, as text", .run = run};
