/* layout_search.c - a search finds the best of all layouts of made-up machines, stays the same with
 * other threads, keeps to its memory and its limits, and is never worse than where it began. */
#include "plan/layout_search.h"
#include "base/clock.h"
#include "base/rng.h"
#include "layout/layout.h"
#include "lib/check.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

enum { MACHINES = 20, RANKS = 24 };

/* What a made-up machine is: weights of each way to share the work. */
typedef struct machine {
    double work, sends[3], bubble, launch;
    int refused_tp; /* sizes of tp that are refused, and multiples */
    double slow;    /* seconds that a price takes */
    int64_t lazy;   /* what needs more bytes is not timed, unless that is asked for; 0: all is */
} machine;

static int size_of(const sk_layout *l, const char *name)
{
    int a = sk_mesh_axis(&l->mesh, name);
    return a < 0 ? 1 : l->mesh.size[a];
}

/* Work over ranks, what axes send, a bubble, and a launch for each micro-batch. */
static sk_status price(void *ctx, const char *text, bool timed, sk_priced_layout *out)
{
    const machine *m = ctx;
    sk_layout l;
    out->untimed = false;
    if (m->slow > 0) usleep((unsigned)(m->slow * 1e6));
    SK_TRY(sk_layout_read(text, RANKS, &l));
    int dp = size_of(&l, "dp"), tp = size_of(&l, "tp"), pp = size_of(&l, "pp");
    int others = size_of(&l, "cp") * size_of(&l, "ep") * size_of(&l, "tp2");
    int micro = l.n_micro ? l.n_micro : 1;
    if (others > 1 || tp % m->refused_tp == 0) return sk_fail(SK_ECONF, "no such layout");
    double again = *l.recompute ? 1.3 : 1;
    out->exposed = m->sends[0] * (dp - 1) + m->sends[1] * (tp - 1) + m->sends[2] * (pp - 1);
    out->bubble = m->bubble * (pp - 1) / micro;
    out->busy = again * m->work + m->launch * micro;
    out->seconds = out->busy + out->exposed + out->bubble;
    out->bytes =
        (int64_t)((l.shard ? 100.0 / dp : 100.0) / tp / pp + (*l.recompute ? 5 : 40.0 / micro));
    out->insts = 1;
    if (timed || !m->lazy || out->bytes <= m->lazy) return SK_OK;
    out->untimed = true;
    out->seconds = INFINITY;
    return SK_OK;
}

static machine draw(uint64_t seed)
{
    machine m = {.refused_tp = seed % 3 ? 8 : 3};
    double *x[] = {&m.work, &m.sends[0], &m.sends[1], &m.sends[2], &m.bubble, &m.launch};
    static const double most[] = {10, 0.2, 0.5, 0.3, 4, 0.1};
    for (int i = 0; i < 6; i++) *x[i] = most[i] * sk_rng_uniform(seed, 0, (uint64_t)i);
    return m;
}

/* The best of all sizes, micro-batches, recomputation and sharding. */
static double best_of_all(machine *m, int64_t memory)
{
    static const char *const again[] = {"", " recompute=full"}, *const shards[] = {"", " zero=1"};
    double best = INFINITY;
    for (int dp = 1; dp <= RANKS; dp++)
        for (int tp = 1; tp <= RANKS / dp; tp++) {
            if (RANKS % (dp * tp)) continue;
            for (int micro = 1; micro <= 64; micro++)
                for (int k = 0; k < 4; k++) {
                    char text[SK_SEARCH_TEXT];
                    sk_priced_layout x = {.bytes = 0};
                    snprintf(text, sizeof text, "dp=%d tp=%d pp=%d micro=%d%s%s", dp, tp,
                             RANKS / dp / tp, micro, again[k & 1], shards[k / 2]);
                    if (!price(m, text, true, &x) && (!memory || x.bytes <= memory))
                        best = fmin(best, x.seconds);
                }
        }
    return best;
}

static const char *const starts[] = {"dp=24", "dp=24 zero=1"};

static sk_search_in search_of(machine *m, int64_t memory, int threads)
{
    return (sk_search_in){.ranks = RANKS,
                          .memory = memory,
                          .starts = starts,
                          .n_starts = 2,
                          .most = 1500,
                          .threads = threads,
                          .seed = 1,
                          .price = price,
                          .ctx = m};
}

/* Micro-batches are tried as powers of two, so that the best number may lie between. */
static void finds_the_best(void)
{
    int exact = 0;
    double worst = 1;
    for (uint64_t seed = 1; seed <= MACHINES; seed++)
        for (int64_t memory = 0; memory <= 30; memory += 15) {
            machine m = draw(seed);
            sk_search_out one, four;
            sk_search_in in = search_of(&m, memory, 1);
            double best = best_of_all(&m, memory);
            check(!sk_layout_search(&in, &one) && one.n_best > 0);
            m.lazy = memory;
            check(!sk_layout_search(&in, &four) && four.best[0].seconds <= 1.05 * best);
            m.lazy = 0;
            in.threads = 4;
            check(!sk_layout_search(&in, &four) && !strcmp(one.best[0].text, four.best[0].text));
            check(one.n_priced == four.n_priced && one.n_refused == four.n_refused);
            check(!memory || one.best[0].bytes <= memory);
            check(one.start.seconds <= 0 || one.best[0].seconds <= one.start.seconds);
            for (int i = 1; i < one.n_best; i++)
                check(one.best[i].seconds >= one.best[i - 1].seconds);
            worst = fmax(worst, one.best[0].seconds / best);
            exact += one.best[0].seconds < best * 1.0002;
        }
    printf("of %d searches %d found the best of all, the others came within %.1f %%\n",
           3 * MACHINES, exact, 100 * (worst - 1));
    check(worst < 1.05 && exact >= 2 * MACHINES);
}

static void keeps_to_its_limits(void)
{
    machine m = draw(3);
    sk_search_out out;
    sk_search_in in = search_of(&m, 0, 1);
    in.most = 10;
    check(!sk_layout_search(&in, &out) && out.n_priced + out.n_refused == 10 && !out.ended);
    in.most = 0;
    check(!sk_layout_search(&in, &out) && out.ended); /* by itself */
    m.slow = 0.01;
    in.seconds = 0.2;
    double begin = sk_now();
    check(!sk_layout_search(&in, &out) && !out.ended && sk_now() - begin < 5);
    check(out.n_priced >= 2 && out.n_priced <= 40);
}

static void nothing_fits(void)
{
    machine m = draw(4);
    sk_search_out out;
    sk_search_in in = search_of(&m, 1, 2);
    check(!sk_layout_search(&in, &out) && !out.n_best && out.n_over == out.n_priced);
    check(out.least.bytes > 1 && out.least.text[0] && out.start.seconds <= 0);
    m.refused_tp = 1;
    check(sk_layout_search(&in, &out) == SK_ECONF && strstr(sk_error_line(), "no such layout"));
    static const char *const odd[] = {"dp=24 hurry"};
    in.starts = odd, in.n_starts = 1;
    check(sk_layout_search(&in, &out) == SK_ECONF && strstr(sk_error_line(), "'hurry'"));
}

/* Hints are priced behind the starts: the best may be one of them, `start` is none. */
static void takes_hints(void)
{
    static const char *const hints[] = {"dp=6 pp=4 micro=8 zero=1", "dp=12 pp=2 micro=16"};
    machine m = {.work = 10, .sends = {0.2, 0.5, 0.01}, .bubble = 0.1, .refused_tp = 8};
    sk_search_in in = search_of(&m, 0, 1);
    sk_priced_layout hint = {.seconds = 0}, start = {.seconds = 0};
    sk_search_out out;
    in.hints = hints;
    in.n_hints = 2;
    in.most = 4; /* starts and hints, and nothing else */
    check(!price(&m, hints[0], true, &hint) && !price(&m, starts[0], true, &start));
    check(!sk_layout_search(&in, &out) && out.n_best > 0);
    check(!strcmp(out.best[0].text, hints[0]) && out.best[0].seconds == hint.seconds);
    check(!strcmp(out.start.text, starts[0]) && out.start.seconds == start.seconds);
    check(hint.seconds < start.seconds);
}

int main(void)
{
    finds_the_best();
    keeps_to_its_limits();
    nothing_fits();
    takes_hints();
    printf("%d checks, %d wrong\n", checks, bad);
    return bad != 0;
}
