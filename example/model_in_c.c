/* model_in_c.c - a model written in C and trained under any layout.
 *
 *     example_model_in_c TEXT_FILE [LAYOUT [STEPS]]      example_model_in_c LICENSE "dp=2 zero=3"
 *
 * A small model of text: the next byte, from this one and its place.  The graph says
 * nothing of ranks; the layout does, and it changes no loss beyond rounding.  C and C++. */
#include "skein.h"

#include <stdio.h>
#include <stdlib.h>

enum { EVERY = 20 };

static skein_tensor *two(skein_graph *g, const char *op, skein_tensor *a, skein_tensor *b)
{
    skein_tensor *in[2];
    in[0] = a;
    in[1] = b;
    return skein_apply(g, op, NULL, 2, in, 0, NULL);
}

/* Letters: b sequences, t places in them, v characters, c width, f hidden units. */
static int build(skein_graph **out)
{
    skein_graph *g;
    int st = skein_graph_open("characters", &g);
    if (st) return st;
    skein_graph_size(g, 'v', 256);
    skein_graph_size(g, 'c', 32);
    skein_graph_size(g, 'f', 128);

    skein_tensor *tokens = skein_input(g, "tokens", "bt", SKEIN_I32);
    skein_tensor *pos = skein_input(g, "pos", "bt", SKEIN_I32);
    skein_tensor *x = two(g, "embedding", skein_param(g, "wte", "vc", 0.1), tokens);
    skein_graph_size(g, 'p', 64); /* places: train.seq is at most that */
    x = two(g, "add", x, two(g, "embedding", skein_param(g, "wpe", "pc", 0.02), pos));

    skein_graph_layer(g, 1); /* a pipeline may cut here */
    skein_tensor *w1 = skein_param(g, "w1", "cf", 0.1);
    skein_tensor *b1 = skein_param(g, "b1", "f", SKEIN_ZEROS);
    skein_tensor *h = two(g, "bias_gelu", skein_contract(g, "btc,cf->btf", x, w1), b1);
    x = two(g, "add", x, skein_contract(g, "btf,fc->btc", h, skein_param(g, "w2", "fc", 0.05)));

    skein_graph_layer(g, 2);
    skein_tensor *logits = skein_contract(g, "btc,vc->btv", x, skein_param(g, "head", "vc", 0.1));
    skein_cross_entropy(g, logits, skein_input(g, "targets", "bt", SKEIN_I32),
                        skein_input(g, "weights", "bt", SKEIN_F32));
    st = skein_graph_status(g); /* of the first mistake, if there was one */
    if (st) skein_graph_close(g);
    else *out = g;
    return st;
}

static int show(skein_run *run, const skein_step *s, void *ctx)
{
    (void)run;
    (void)ctx;
    if (s->step == 1 || s->step % EVERY == 0)
        printf("step %3d   loss %.4f   norm %.3f\n", (int)s->step, s->loss, s->norm);
    return s->loss < 2; /* good enough: stop */
}

static int train(skein_job *job, int64_t steps)
{
    skein_program *program = NULL;
    skein_run *run = NULL;
    int st = skein_compile(job, NULL, &program);
    if (!st) st = skein_run_open(program, SKEIN_DATA, &run);
    if (!st)
        printf("%d ranks, %lld parameters\n", skein_program_ranks(program),
               (long long)skein_program_params(program));
    if (!st) st = skein_run_steps(run, steps, show, NULL);
    if (st == SKEIN_ESTOP) st = SKEIN_OK;

    static float head[256 * 32]; /* whole, whichever ranks keep it */
    if (!st) st = skein_run_read(run, "head", head, 256 * 32);
    if (!st) printf("head[0][0] = %.4f\n", (double)head[0]);
    skein_run_close(run);
    skein_program_close(program);
    return st;
}

int main(int argc, char **argv)
{
    char data[1024], layout[1024];
    const char *words[] = {data,
                           layout,
                           "data.tokenizer=byte",
                           "train.batch=16",
                           "train.seq=32",
                           "train.steps=200",
                           "optim.lr=1e-2"};
    skein_graph *graph = NULL;
    skein_job *job = NULL;
    if (argc < 2) return fprintf(stderr, "example_model_in_c TEXT_FILE [LAYOUT [STEPS]]\n"), 64;
    snprintf(data, sizeof data, "data.train=%s", argv[1]);
    snprintf(layout, sizeof layout, "layout=%s", argc > 2 ? argv[2] : "dp=2");
    int st = build(&graph);
    if (!st) st = skein_job_open(graph, (int)(sizeof words / sizeof *words), words, &job);
    if (!st) st = train(job, argc > 3 ? atoi(argv[3]) : 100);
    if (st) fprintf(stderr, "failed (%d): %s\n", st, sk_error_line());
    skein_job_close(job);
    skein_graph_close(graph);
    return st;
}
