/* auto_layout.c - prices of layouts of a job, and the recipes that a search begins at. */
#include "train/auto_layout.h"
#include "base/clock.h"
#include "base/strings.h"
#include "base/threads.h"
#include "layout/stage_balance.h"
#include "layout/word.h"
#include "train/auto_layers.h"
#include "train/host.h"
#include "train/setup_simulate.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MOST_STARTS = 64,
    CHUNK_LAYERS = 4,
    MANY_STAGES = 4,
    MOST_INSTS = 1 << 20,
    AUTO_LAYOUTS = 160,
    KEPT = 512 << 20
};

static const double SEARCHED = 0.85; /* of the time; in the rest the best are priced whole */

/* --- prices --- */

typedef struct pricing {
    const sk_auto_in *in;
} pricing;

/* Is there a tensor that the axis cuts otherwise than dp would?  Without experts ep cuts none. */
static bool has_use(const sk_graph *g, const char *letters)
{
    bool other = false;
    if (!strchr(letters, g->batch) || !letters[1]) return true;
    for (const char *x = letters; *x; x++) other |= *x != g->batch && sk_words_letter(g, *x);
    return other;
}

static sk_status all_have_use(const sk_setup *s)
{
    const sk_layout *l = &s->layout;
    for (int a = 0; a < l->mesh.n; a++)
        if (!has_use(&s->graph, l->split[a]))
            return sk_fail(SK_ECONF, "layout: of this model '%s' cuts the batch alone, as dp does",
                           l->mesh.name[a]);
    return SK_OK;
}

/* The job with that layout and so many layers. */
static sk_status set_up(const pricing *p, sk_arena *a, const char *text, int64_t layers,
                        sk_setup **out)
{
    sk_job *job = sk_new(a, sk_job);
    sk_setup *s = *out = sk_new(a, sk_setup);
    *job = *p->in->job;
    job->ranks = p->in->ranks;
    job->budget = 0;
    job->hyper.num_hidden_layers = layers;
    snprintf(job->layout, sizeof job->layout, "%s", text);
    SK_TRY(sk_setup_layout(a, job, s));
    const char *idle = sk_layout_idle(a, &s->layout);
    if (idle) return sk_fail(SK_ECONF, "layout: %s", idle);
    if (s->n_micro > 1 && s->n_micro * sk_batch_shards(&s->layout, s->graph.batch) > job->batch)
        return sk_fail(SK_ECONF, "layout: micro-batches have less than one sequence for each rank");
    return all_have_use(s);
}

static int64_t insts_of(const sk_simulated_step *step)
{
    int64_t sum = 0;
    const sk_program *last = NULL;
    for (int i = 0; i < step->sim.n; i++) {
        if (step->sim.v[i].program != last) sum += step->sim.v[i].program->insts.n;
        last = step->sim.v[i].program;
    }
    return sum;
}

static sk_status price_layers(const pricing *p, const char *text, int64_t layers,
                              sk_priced_layout *out)
{
    sk_arena tmp = {0};
    sk_setup *s;
    sk_simulated_step step;
    sk_status st = set_up(p, &tmp, text, layers, &s);
    if (!st) st = sk_setup_simulate(&tmp, s, p->in->machine, &step);
    if (!st) {
        const sk_simulation *sim = &step.sim;
        out->bytes = step.bytes, out->seconds = sim->seconds;
        out->busy = sim->busy, out->exposed = sim->exposed, out->bubble = sim->bubble;
        out->insts += insts_of(&step);
    }
    sk_arena_end(&tmp);
    return st;
}

/* Bytes of rank 0 alone. */
static sk_status weigh_layers(const pricing *p, const char *text, int64_t layers, int64_t *bytes,
                              int64_t *insts)
{
    sk_arena tmp = {0};
    sk_setup *s;
    sk_status st = set_up(p, &tmp, text, layers, &s);
    if (!st) st = sk_setup_first_bytes(&tmp, s, p->in->machine, bytes, insts);
    sk_arena_end(&tmp);
    return st;
}

static double along(double first, double second, double steps)
{
    return first + steps * (second - first);
}

/* Two smaller programs of the same kind of stages, and how often what the second has more is in
 * the whole; steps 0: the first is the whole. */
typedef struct few {
    char text[2][SK_SEARCH_TEXT];
    int64_t layers[2];
    double steps;
    int stages; /* with chunks; 0: not known */
} few;

static void few_listed(const char *text, const char *layers, few *out)
{
    char list[SK_LAYERS_TEXT];
    int least = sk_layers_least(layers);
    few f = {.stages = out->stages, .steps = least - 1};
    if (least < CHUNK_LAYERS) return;
    for (int i = 0; i < 2; i++) {
        f.layers[i] = sk_layers_shrink(layers, i + 1, list);
        if (!sk_layers_say(text, list, f.text[i], SK_SEARCH_TEXT)) return;
    }
    *out = f;
}

static void few_layers(const pricing *p, const char *text, few *out)
{
    sk_layout l;
    int64_t all = p->in->job->hyper.num_hidden_layers, n = 1;
    *out = (few){.layers = {all}};
    snprintf(out->text[0], SK_SEARCH_TEXT, "%s", text);
    if (!sk_job_layers_alike(p->in->job) || sk_layout_read(text, p->in->ranks, &l)) return;
    if (l.stage_axis >= 0) n = (int64_t)l.mesh.size[l.stage_axis] * sk_schedule_chunks(&l);
    out->stages = (int)n;
    if (*l.layers) few_listed(text, l.layers, out);
    if (*l.layers || CHUNK_LAYERS * n > all) return;
    for (int i = 0; i < 2; i++) {
        snprintf(out->text[i], SK_SEARCH_TEXT, "%s", text);
        out->layers[i] = (i + 1) * n;
    }
    out->steps = (double)((all + n - 1) / n - 1);
}

/* layers=auto becomes numbers, of the job's machine. */
static sk_status settle(const pricing *p, const char *text, char to[SK_SEARCH_TEXT])
{
    sk_layout l;
    snprintf(to, SK_SEARCH_TEXT, "%s", text);
    SK_TRY(sk_layout_read(text, p->in->ranks, &l));
    if (strcmp(l.layers, SK_LAYERS_AUTO)) return SK_OK;
    sk_job job = *p->in->job;
    job.ranks = p->in->ranks;
    SK_TRY(sk_auto_layers(&job, p->in->machine, p->in->memory, &l));
    if (sk_layers_say(text, l.layers, to, SK_SEARCH_TEXT)) return SK_OK;
    return sk_fail(SK_ECONF, "layout: %s layers=%s is longer than %d characters", text, l.layers,
                   SK_SEARCH_TEXT - 1);
}

/* Of many stages the first mostly shows that a layout does not fit, or that its programs would be
 * too long; all others need not be compiled then. */
static sk_status weigh_first(const pricing *p, const few *f, sk_priced_layout *out)
{
    int64_t bytes = 0, more = 0;
    SK_TRY(weigh_layers(p, f->text[0], f->layers[0], &bytes, &out->insts));
    if (out->insts > MOST_INSTS / f->stages)
        return sk_fail(SK_ECONF, "layout: its programs have more than %d instructions", MOST_INSTS);
    if (!p->in->memory) return SK_OK;
    if (f->steps > 0) {
        SK_TRY(weigh_layers(p, f->text[1], f->layers[1], &more, &out->insts));
        bytes = (int64_t)along((double)bytes, (double)more, f->steps);
    }
    out->bytes = bytes;
    out->untimed = bytes > p->in->memory;
    return SK_OK;
}

static sk_status price(void *ctx, const char *text, bool timed, sk_priced_layout *out)
{
    const pricing *p = ctx;
    char said[SK_SEARCH_TEXT];
    few f;
    sk_priced_layout more = {0};
    out->insts = 0, out->untimed = false;
    SK_TRY(settle(p, text, said));
    few_layers(p, said, &f);
    if (!timed && f.stages >= MANY_STAGES) SK_TRY(weigh_first(p, &f, out));
    if (out->untimed) return SK_OK;
    SK_TRY(price_layers(p, f.text[0], f.layers[0], out));
    out->whole = f.steps <= 0 && !strcmp(said, text); /* else its text is still to become numbers */
    if (f.steps <= 0) return SK_OK;
    SK_TRY(price_layers(p, f.text[1], f.layers[1], &more));
    out->insts += more.insts;
    out->seconds = along(out->seconds, more.seconds, f.steps);
    out->busy = along(out->busy, more.busy, f.steps);
    out->exposed = along(out->exposed, more.exposed, f.steps);
    out->bubble = along(out->bubble, more.bubble, f.steps);
    out->bytes = (int64_t)along((double)out->bytes, (double)more.bytes, f.steps);
    return SK_OK;
}

sk_status sk_auto_price(const sk_auto_in *in, const char *text, sk_priced_layout *out)
{
    pricing p = {in};
    *out = (sk_priced_layout){.seconds = 0};
    return price(&p, text, true, out);
}

/* --- recipes --- */

typedef struct starts {
    sk_arena *arena;
    const char *v[MOST_STARTS], *uneven[MOST_STARTS]; /* uneven: with layers=auto */
    int n, n_uneven;
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
    if (pp > 1 && s->n_uneven < MOST_STARTS)
        s->uneven[s->n_uneven++] = sk_print(s->arena, "%s layers=auto", s->v[s->n - 2]);
}

/* Time over ranks of a host: no move from tensor parallelism with sp leads there, for without tp
 * the word has nothing to do. */
static void contexts(starts *s, const sk_auto_in *in)
{
    int host = in->machine->ranks_per_host;
    for (int cp = 2; cp <= 4 && cp <= host && in->ranks % cp == 0; cp *= 2) {
        int dp = in->ranks / cp;
        add(s, sk_print(s->arena, "dp=%d cp=%d micro=%lld%s", dp, cp,
                        (long long)singles(in->job, dp), dp > 1 ? " zero=1" : ""));
    }
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
    contexts(s, in);
}

/* --- the search --- */

typedef struct whole {
    const pricing *p;
    sk_priced_layout *v[2];
    sk_status st[2];
    int n;
} whole;

static void price_one(void *ctx, int part, int of)
{
    whole *w = ctx;
    int64_t layers = w->p->in->job->hyper.num_hidden_layers;
    for (int i = part; i < w->n; i += of) {
        char said[SK_SEARCH_TEXT];
        w->st[i] = settle(w->p, w->v[i]->text, said);
        if (w->st[i]) continue;
        memcpy(w->v[i]->text, said, sizeof said);
        w->st[i] = price_layers(w->p, said, layers, w->v[i]);
    }
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

/* By all layers; what does not stand by these gets seconds 0. */
static void price_all_layers(const pricing *p, sk_threads *team, sk_priced_layout *x,
                             sk_priced_layout *also)
{
    whole w = {.p = p, .v = {x, also}, .n = also ? 2 : 1};
    sk_threads_run(team, price_one, &w);
    for (int i = 0; i < w.n; i++)
        if (w.st[i] || !keeps(p, w.v[i])) w.v[i]->seconds = 0;
}

/* Out of the list. */
static void take_out(sk_search_out *out, int at)
{
    out->n_best--;
    for (int i = at; i < out->n_best; i++) out->best[i] = out->best[i + 1];
}

/* Few layers may have told the order of the best: the first is priced by all of its layers, until
 * it is one that was, and so is the plain recipe. */
static void price_whole(const pricing *p, sk_threads *team, sk_search_out *out)
{
    sk_priced_layout *start = out->start.seconds > 0 && !out->start.whole ? &out->start : NULL;
    for (; out->n_best && !out->best[0].whole; start = NULL) {
        price_all_layers(p, team, &out->best[0], start);
        out->best[0].whole = true;
        if (out->best[0].seconds <= 0) take_out(out, 0);
        qsort(out->best, (size_t)out->n_best, sizeof *out->best, by_seconds);
    }
    if (out->start.seconds <= 0) return;
    if (!out->n_best) out->n_best = 1, out->best[0] = out->start;
    if (out->start.seconds < out->best[0].seconds) out->best[0] = out->start;
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
                           .hints = s.uneven,
                           .n_hints = s.n_uneven,
                           .seconds = SEARCHED * in->seconds,
                           .most = in->most,
                           .insts = in->insts,
                           .threads = host.cores > 16 ? 16 : host.cores,
                           .seed = 1,
                           .lossy = in->lossy,
                           .price = price,
                           .ctx = &p};
    sk_status st = sk_layout_search(&search, out);
    if (!st) {
        sk_threads *team = sk_threads_open(search.threads);
        price_whole(&p, team, out);
        sk_threads_close(team);
    }
    out->seconds = sk_now() - begin;
    sk_arena_end(&a);
    sk_arena_reuse(0);
    return st;
}

/* --- layout=auto --- */

/* Ranks of the first host: others are taken to have as many. */
static int first_host(const sk_job *job)
{
    int n = 0;
    for (int r = 0; r < job->ranks; r++) n += job->host_of[r] == job->host_of[0];
    return n;
}

sk_status sk_auto_machine(sk_arena *a, const sk_job *job, sk_machine *out)
{
    if (job->machine) {
        *out = *job->machine;
        return SK_OK;
    }
    SK_TRY(sk_machine_read(a, sk_setup_on_gpu(job) ? "h100-8" : "cpu", out));
    if (job->host_of && sk_setup_on_gpu(job)) out->ranks_per_host = first_host(job);
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
