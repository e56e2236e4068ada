/* skip.c - skip connections and tied weights that jump over stages.
 *
 * A U of plain layers: what the k-th layer of the way down makes is added again on the k-th of the
 * way up, stages later, and both use the same weight, transposed.  Every layout and schedule
 * must give the losses and norms of one rank, and in canonical order its bits. */
#include "model/blocks.h"
#include "lib/check.h"
#include "lib/ranks.h"

#include <math.h>
#include <stdio.h>

enum { DOWN = 4 };

static void build(sk_graph *g, const sk_hyper *h, sk_mode mode)
{
    sk_tensor *way[DOWN], *w[DOWN];
    (void)mode;
    sk_graph_size(g, 'x', h->input_size);
    sk_graph_size(g, 'f', h->hidden_size);
    sk_graph_size(g, 'g', h->hidden_size);
    sk_graph_size(g, 'v', h->vocab_size);
    g->layer = 1;
    sk_tensor *y = sk_contract(g, "bx,xf->bf", sk_input(g, "pixels", "bx", SK_F32),
                               sk_param_f(g, "xf", 0.3, "in.w"));
    for (int i = 0; i < DOWN; i++) {
        g->layer++;
        w[i] = sk_param_f(g, "fg", 0.3, "both.%d.w", i);
        way[i] = y;
        y = sk_apply(g, "relu", .in = {sk_contract(g, "bf,fg->bg", y, w[i])})->out[0];
        y = sk_contract(g, "bg,gf->bf", y, sk_param_f(g, "gf", 0.3, "down.%d.w", i));
    }
    for (int i = DOWN - 1; i >= 0; i--) {
        g->layer++;
        y = sk_apply(g, "add", .in = {y, way[i]})->out[0];
        y = sk_apply(g, "relu", .in = {sk_contract(g, "bf,fg->bg", y, w[i])})->out[0];
        y = sk_contract(g, "bg,gf->bf", y, sk_param_f(g, "gf", 0.3, "up.%d.w", i));
    }
    g->layer++;
    y = sk_contract(g, "bf,fv->bv", y, sk_param_f(g, "fv", 0.3, "out.w"));
    sk_cross_entropy(g, y, sk_input(g, "targets", "b", SK_I32),
                     sk_input(g, "weights", "b", SK_F32));
}

static const sk_model u_net = {.name = "u", .build = build};

static sk_trial trial(const char *layout)
{
    return (sk_trial){.model = &u_net,
                      .hyper = {.input_size = 9, .hidden_size = 10, .vocab_size = 5},
                      .batch = 13,
                      .seq = 1,
                      .steps = 4,
                      .clip = 0.5,
                      .layout = layout};
}

static void near(const char *layout, const sk_trial *one)
{
    sk_trial t = trial(layout);
    double off = 0;
    check(!sk_trial_run(&t));
    for (int s = 0; s < t.steps; s++)
        off =
            fmax(off, fmax(fabs(t.loss[s] / one->loss[s] - 1), fabs(t.norm[s] / one->norm[s] - 1)));
    if (!(off < 1e-5)) printf("%s: off by %.1e\n", layout, off);
    check(off < 1e-5);
}

int main(void)
{
    static const char *const schedules[] = {"gpipe", "1f1b",   "interleaved", "zb-h1",     "zb-h2",
                                            "zb-v",  "v-half", "v-min",       "dualpipe-v"};
    static const char *const more[] = {"", "dp=2 zero=3", "tp=2", "dp=2 zero=2 balance"};
    enum { N = sizeof schedules / sizeof *schedules, M = sizeof more / sizeof *more };
    sk_trial one = trial("dp=1"), same = trial("dp=1; canonical order");
    int runs = 0;
    char text[128];
    check(!sk_trial_run(&one) && !sk_trial_run(&same));
    for (int s = 0; s < N; s++)
        for (int m = 0; m < M; m++, runs++) {
            const char *chunks = s == 2 ? "chunks=2" : "";
            snprintf(text, sizeof text, "pp=%d micro=%d schedule=%s %s %s", s % 2 ? 3 : 5, 2 + m,
                     schedules[s], chunks, more[m]);
            near(text, &one);
            snprintf(text, sizeof text, "pp=4 micro=4 schedule=%s %s %s; canonical order",
                     schedules[s], chunks, more[m]);
            sk_trial t = trial(text);
            check(!sk_trial_run(&t));
            if (t.digest != same.digest) printf("%s: other bits\n", text);
            check(t.digest == same.digest && t.elements == same.elements);
        }
    printf("skip: %d layouts, %d checks, %d bad\n", 2 * runs, checks, bad);
    return bad > 0;
}
