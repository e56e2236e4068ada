/* auto_layout.c - prices of layouts of a job, and the recipes that a search begins at. */
#include "train/auto_layout.h"
#include "base/clock.h"
#include "base/strings.h"
#include "base/threads.h"
#include "train/host.h"
#include "train/setup_simulate.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_STARTS = 64, CHUNK_LAYERS = 4, AUTO_LAYOUTS = 160, KEPT = 512 << 20 };

static const double SEARCHED = 0.85; /* of the time; in the rest the best are priced whole */

/* --- prices --- */

typedef struct pricing {
    const sk_auto_in *in;
} pricing;

/* The job with that layout and so many layers. */
static sk_status price_layers(const pricing *p, const char *text, int64_t layers,
                              sk_priced_layout *out)
{
    sk_arena tmp = {0};
    sk_job *job = sk_new(&tmp, sk_job);
    sk_setup *s = sk_new(&tmp, sk_setup);
    sk_simulated_step step;
    *job = *p->in->job;
    job->ranks = p->in->ranks;
    job->budget = 0;
    job->hyper.num_hidden_layers = layers;
    snprintf(job->layout, sizeof job->layout, "%s", text);
    sk_status st = sk_setup_layout(&tmp, job, s);
    const char *idle = st ? NULL : sk_layout_idle(&tmp, &s->layout);
    if (idle) st = sk_fail(SK_ECONF, "layout: %s", idle);
    if (!st) st = sk_setup_simulate(&tmp, s, p->in->machine, &step);
    if (!st) {
        const sk_simulation *sim = &step.sim;
        out->bytes = step.bytes, out->seconds = sim->seconds;
        out->busy = sim->busy, out->exposed = sim->exposed, out->bubble = sim->bubble;
    }
    sk_arena_end(&tmp);
    return st;
}

static double along(double first, double second, double steps)
{
    return first + steps * (second - first);
}

/* Layers of the smallest program that has every kind of stage; 0: not known. */
static int64_t few_layers(const pricing *p, const char *text)
{
    sk_layout l;
    const sk_job *job = p->in->job;
    bool alike = !job->build && job->hyper.num_hidden_layers > 0;
    for (int i = 0; i < SK_MAX_OWN; i++) alike = alike && !job->hyper.own[i].set;
    if (!alike || sk_layout_read(text, p->in->ranks, &l)) return 0;
    const sk_schedule *schedule = l.stage_axis < 0 ? NULL : sk_schedule_find(l.schedule);
    int stages = l.stage_axis < 0 ? 1 : l.mesh.size[l.stage_axis];
    int chunks = schedule && schedule->chunks ? schedule->chunks : l.chunks;
    return (int64_t)stages * (chunks ? chunks : 1);
}

static sk_status price(void *ctx, const char *text, sk_priced_layout *out)
{
    const pricing *p = ctx;
    int64_t all = p->in->job->hyper.num_hidden_layers, few = few_layers(p, text);
    sk_priced_layout more = *out;
    if (!few || CHUNK_LAYERS * few > all) return price_layers(p, text, all, out);
    SK_TRY(price_layers(p, text, few, out));
    SK_TRY(price_layers(p, text, 2 * few, &more));
    double steps = (double)((all + few - 1) / few - 1);
    out->seconds = along(out->seconds, more.seconds, steps);
    out->busy = along(out->busy, more.busy, steps);
    out->exposed = along(out->exposed, more.exposed, steps);
    out->bubble = along(out->bubble, more.bubble, steps);
    out->bytes = (int64_t)along((double)out->bytes, (double)more.bytes, steps);
    return SK_OK;
}

/* --- recipes --- */

typedef struct starts {
    sk_arena *arena;
    const char *v[MOST_STARTS];
    int n;
} starts;

static void add(starts *s, const char *text)
{
    if (s->n < MOST_STARTS) s->v[s->n++] = text;
}

/* Micro-batches of one sequence each, over so many ranks. */
static int64_t singles(const sk_job *job, int shards)
{
    int64_t n = job->batch / shards;
    return n < 1 ? 1 : n > 1024 ? 1024 : n;
}

/* Tensor parallelism within a host, then stages, then copies. */
static void megatron(starts *s, const sk_auto_in *in, int tp, int pp)
{
    int dp = in->ranks / tp / pp;
    long long micro = (long long)singles(in->job, dp);
    const char *stages = pp > 1 ? sk_print(s->arena, " pp=%d", pp) : "";
    const char *shards = tp > 1 ? sk_print(s->arena, " tp=%d sp", tp) : "";
    const char *copies = dp > 1 ? " zero=1" : "";
    add(s, sk_print(s->arena, "dp=%d%s%s micro=%lld%s", dp, stages, shards, micro, copies));
    add(s, sk_print(s->arena, "dp=%d%s%s micro=%lld%s recompute=full", dp, stages, shards, micro,
                    copies));
}

static void recipes(starts *s, const sk_auto_in *in)
{
    int n = in->ranks, host = in->machine->ranks_per_host;
    add(s, sk_print(s->arena, "dp=%d", n));
    add(s, sk_print(s->arena, "dp=%d zero=1", n));
    add(s, sk_print(s->arena, "dp=%d zero=3", n));
    add(s, sk_print(s->arena, "dp=%d zero=3 recompute=full", n));
    int tp = 1;
    while (tp < 8 && 2 * tp <= host && n % (2 * tp) == 0) tp *= 2;
    for (; tp > 1; tp /= 4)
        for (int pp = 1; pp <= 16 && tp * pp <= n; pp *= 2)
            if (n % (tp * pp) == 0) megatron(s, in, tp, pp);
}

/* --- the search --- */

enum { MOST_WHOLE = SK_SEARCH_BEST + 1 };

typedef struct whole {
    const pricing *p;
    sk_priced_layout *v[MOST_WHOLE];
    sk_status st[MOST_WHOLE];
    int n;
} whole;

static void price_one(void *ctx, int part, int of)
{
    whole *w = ctx;
    int64_t layers = w->p->in->job->hyper.num_hidden_layers;
    for (int i = part; i < w->n; i += of)
        w->st[i] = price_layers(w->p, w->v[i]->text, layers, w->v[i]);
}

static int by_seconds(const void *x, const void *y)
{
    const sk_priced_layout *a = x, *b = y;
    return (a->seconds > b->seconds) - (a->seconds < b->seconds);
}

static bool keeps(const pricing *p, const sk_priced_layout *x)
{
    return x->seconds > 0 && (!p->in->memory || x->bytes <= p->in->memory);
}

/* Few layers may have told the order of the best: now by all of theirs. */
static void price_whole(const pricing *p, int threads, sk_search_out *out)
{
    whole w = {.p = p};
    int kept = 0;
    sk_threads *team = sk_threads_open(threads);
    for (int i = 0; i < out->n_best; i++) w.v[w.n++] = &out->best[i];
    if (out->start.seconds > 0) w.v[w.n++] = &out->start;
    sk_threads_run(team, price_one, &w);
    sk_threads_close(team);
    for (int i = 0; i < w.n; i++)
        if (w.st[i] || !keeps(p, w.v[i])) w.v[i]->seconds = 0;
    for (int i = 0; i < out->n_best; i++)
        if (out->best[i].seconds > 0) out->best[kept++] = out->best[i];
    if (kept < SK_SEARCH_BEST && !kept && out->start.seconds > 0) out->best[kept++] = out->start;
    qsort(out->best, (size_t)kept, sizeof *out->best, by_seconds);
    if (kept && out->start.seconds > 0 && out->start.seconds < out->best[0].seconds)
        out->best[0] = out->start;
    out->n_best = kept;
}

sk_status sk_auto_layout(const sk_auto_in *in, sk_search_out *out)
{
    sk_arena a = {0};
    sk_host host;
    double begin = sk_now();
    pricing p = {in};
    starts s = {.arena = &a};
    sk_arena_reuse(KEPT);
    sk_host_detect(&host);
    if (*in->job->layout && strcmp(in->job->layout, "auto") != 0) add(&s, in->job->layout);
    recipes(&s, in);
    sk_search_in search = {.ranks = in->ranks,
                           .memory = in->memory,
                           .starts = s.v,
                           .n_starts = s.n,
                           .seconds = SEARCHED * in->seconds,
                           .most = in->most,
                           .threads = host.cores > 16 ? 16 : host.cores,
                           .seed = 1,
                           .lossy = in->lossy,
                           .price = price,
                           .ctx = &p};
    sk_status st = sk_layout_search(&search, out);
    if (!st) price_whole(&p, search.threads, out);
    out->seconds = sk_now() - begin;
    sk_arena_end(&a);
    sk_arena_reuse(0);
    return st;
}

/* --- layout=auto --- */

sk_status sk_auto_machine(sk_arena *a, const sk_job *job, sk_machine *out)
{
    if (job->machine) {
        *out = *job->machine;
        return SK_OK;
    }
    SK_TRY(sk_machine_read(a, sk_setup_on_gpu(job) ? "h100-8" : "cpu", out));
    if (job->costs) out->costs = *job->costs;
    return SK_OK;
}

sk_status sk_auto_text(sk_arena *a, const sk_job *job, const char **text)
{
    sk_machine m;
    sk_search_out *found = sk_new(a, sk_search_out);
    SK_TRY(sk_auto_machine(a, job, &m));
    sk_auto_in in = {.job = job,
                     .machine = &m,
                     .ranks = job->ranks > 0 ? (int)job->ranks : 1,
                     .memory = job->budget ? job->budget : m.memory,
                     .most = AUTO_LAYOUTS};
    SK_TRY(sk_auto_layout(&in, found));
    if (!found->n_best)
        return sk_fail(SK_ECONF,
                       "layout=auto: none of %d layouts of %d ranks fits in %s a rank; more ranks "
                       "or a smaller train.batch would help",
                       found->n_priced, in.ranks, sk_bytes(a, in.memory));
    *text = sk_print(a, "%s", found->best[0].text);
    return SK_OK;
}
