/* passes.c - every pass can be printed; and ranks that share a plan (sk_plan_graph) get the program
 * that each of them gets with a plan of its own, whoever is compiled first. */
#include "lib/check.h"
#include "lib/draw.h"

#include "program/program.h"

#include <stdio.h>
#include <string.h>

#define LLAMA "llama layers=4 keys=2 width=4 f=12 v=11 b=8 t=4"

static const char *const layouts[] = {
    "dp=2 tp=2 zero=3 recompute=full",
    "pp=2 tp=2 sp micro=2 schedule=zb-h1 recompute=selective",
    "pp=2 dp=2 micro=4 schedule=zb-v slices=2",
    "pp=2 tp=2 micro=2 slices=2 recompute=full partition",
    "pp=2 micro=4 schedule=pipedream",
};
enum { N_LAYOUTS = sizeof layouts / sizeof *layouts };

typedef struct job {
    sk_graph graph;
    sk_layout layout;
    sk_compile_opts opts;
} job;

static sk_status open_job(sk_arena *a, const char *layout, job *j)
{
    sk_pair pair = {0};
    sk_trial t;
    snprintf(pair.model, sizeof pair.model, "%s", LLAMA);
    snprintf(pair.layout, sizeof pair.layout, "%s", layout);
    SK_TRY(sk_pair_read(&pair, &t));
    SK_TRY(sk_layout_read(t.layout, 0, &j->layout));
    SK_TRY(sk_trial_graph(a, &t, &j->graph));
    sk_trial_options(&t, &j->opts);
    return SK_OK;
}

static void all_print(sk_arena *a, const job *j)
{
    char *text = NULL;
    for (int i = 0; sk_pass_name(i); i++, text = NULL) {
        const char *name = sk_pass_name(i);
        sk_status st = sk_compile_until(a, &j->graph, &j->layout, &j->opts, 0, name, &text);
        bool off = st == SK_EUSAGE && strstr(sk_error_line(), "the layout does not say");
        check(off || !st);
        check(off || (text && *text));
    }
    check(sk_compile_until(a, &j->graph, &j->layout, &j->opts, 0, "hoist", &text) == SK_EUSAGE);
    check(strstr(sk_error_line(), "dp=2 zero=3 hoist") != NULL);
    check(sk_compile_until(a, &j->graph, &j->layout, &j->opts, 0, "no such pass", &text));
}

static void ranks_share(sk_arena *a, const job *j)
{
    sk_compile_opts shared = j->opts;
    int n = sk_mesh_ranks(&j->layout.mesh);
    check(!sk_plan_graph(a, &j->graph, &j->layout, &j->opts, &shared.plan));
    for (int turn = 0; shared.plan && turn < 2 * n; turn++) { /* the last rank first, then again */
        int rank = turn < n ? n - 1 - turn : turn - n;
        sk_program *with = NULL, *alone = NULL;
        sk_arena tmp = {0};
        check(!sk_compile(&tmp, &j->graph, &j->layout, &shared, rank, &with));
        check(!sk_compile(&tmp, &j->graph, &j->layout, &j->opts, rank, &alone));
        check(!strcmp(sk_program_print(with, &tmp), sk_program_print(alone, &tmp)));
        sk_arena_end(&tmp);
    }
}

int main(void)
{
    for (int i = 0; i < N_LAYOUTS; i++) {
        sk_arena a = {0};
        job j;
        sk_status st = open_job(&a, layouts[i], &j);
        if (st) printf("%s: %s\n", layouts[i], sk_error());
        check(!st);
        if (!st) all_print(&a, &j), ranks_share(&a, &j);
        sk_arena_end(&a);
    }
    printf("passes: %d layouts, %d checks, %d bad\n", N_LAYOUTS, checks, bad);
    return bad > 0;
}
