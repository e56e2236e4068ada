/* budget.c - options to run a layout in less memory: those that are not compiled would not fit.
 *
 * Every option is compiled here once more.  Of those that were compiled the bytes are equal; those
 * that were not need no less than `kept`, which is more than there is; the least is the least of
 * all.  With enough memory for an option its seconds are the same as with enough for all. */
#include "lib/check.h"
#include "lib/ranks.h"

#include "plan/budget.h"
#include "plan/simulator.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const char *const layouts[] = {"dp=4", "dp=2 tp=2 zero=1", "pp=2 dp=2 micro=2",
                                      "tp=4", "dp=4 micro=12",    "dp=2 zero=2 recompute=none"};
static int n_known, n_options;

typedef struct job {
    sk_arena arena;
    sk_trial t;
    sk_graph g;
    sk_layout l;
    sk_machine m;
    sk_compile_opts o;
    sk_budget_in in;
} job;

static sk_status open_job(job *x, const char *layout)
{
    *x = (job){.t = {.layout = layout, .batch = 96, .seq = 16, .optim = "adamw"}};
    x->t.model = sk_model_preset("llama-tiny", &x->t.hyper);
    SK_TRY(sk_layout_read(layout, 0, &x->l));
    SK_TRY(sk_trial_graph(&x->arena, &x->t, &x->g));
    SK_TRY(sk_machine_read(&x->arena, "h100-8", &x->m));
    sk_trial_options(&x->t, &x->o);
    x->o.listed = true;
    x->in = (sk_budget_in){.graph = &x->g,
                           .layout = &x->l,
                           .opts = &x->o,
                           .machine = &x->m,
                           .bytes = INT64_MAX,
                           .may_offload = true};
    return SK_OK;
}

/* -1: refused. */
static int64_t bytes_of(const job *x, const sk_layout *l)
{
    const sk_program *const *programs = NULL;
    sk_arena tmp = {0};
    int *shape_of = NULL;
    int64_t most = -1;
    sk_status st = sk_simulate_compile(&tmp, &x->g, l, &x->o, &programs, &shape_of);
    for (int r = 0; !st && r < sk_mesh_ranks(&l->mesh); r++) {
        int64_t bytes = sk_device_bytes(programs[shape_of[r]]);
        if (bytes > most) most = bytes;
    }
    sk_arena_end(&tmp);
    return most;
}

static int64_t compare(const job *x, const sk_budget_option *v, int n)
{
    int64_t least = INT64_MAX;
    for (int i = 0; i < n; i++) {
        int64_t bytes = bytes_of(x, &v[i].layout);
        if (bytes < 0) {
            check(v[i].at_least); /* that it is refused was not found out */
            continue;
        }
        check(v[i].at_least ? v[i].kept > x->in.bytes && v[i].kept <= bytes : v[i].bytes == bytes);
        check(isfinite(v[i].seconds) == (bytes <= x->in.bytes));
        if (bytes < least) least = bytes;
        n_known += v[i].at_least;
        n_options++;
    }
    return least;
}

/* The seconds of an option among others, -1: it is not there. */
static double seconds_in(const sk_budget_option *v, int n, const sk_layout *l)
{
    for (int i = 0; i < n; i++)
        if (v[i].layout.shard == l->shard && v[i].layout.slices == l->slices &&
            v[i].layout.recompute_blocks == l->recompute_blocks &&
            !strcmp(v[i].layout.recompute, l->recompute))
            return v[i].seconds;
    return -1;
}

static void one(const char *layout)
{
    job x;
    sk_budget_option *all = NULL, *some = NULL;
    const sk_budget_option *least;
    int n = 0, m = 0;
    if (open_job(&x, layout) || sk_budget_options(&x.arena, &x.in, &all, &n)) {
        printf("'%s': %s\n", layout, sk_error());
        check(false);
        return;
    }
    check(n > 1);
    for (int part = 0; part < 5; part++) {
        x.in.bytes = part ? all[(n - 1) * part / 4].bytes : 1;
        check(!sk_budget_options(&x.arena, &x.in, &some, &m));
        int64_t bytes = compare(&x, some, m);
        for (int i = 0; part && i < m; i++)
            check(some[i].bytes > x.in.bytes ||
                  some[i].seconds == seconds_in(all, n, &some[i].layout));
        check(!sk_budget_least(&x.in, some, m, &least) && least->bytes == bytes);
    }
    sk_arena_end(&x.arena);
}

int main(void)
{
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) one(layouts[i]);
    check(n_known > n_options / 10 && n_known < n_options);
    printf("%d options, %d known before they were compiled; %d checks, %d wrong\n", n_options,
           n_known, checks, bad);
    return bad != 0;
}
