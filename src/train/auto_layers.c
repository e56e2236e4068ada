/* auto_layers.c - what layers and stages of a job cost, and the partition for that. */
#include "train/auto_layers.h"
#include "layout/stage_balance.h"
#include "plan/layer_times.h"
#include "plan/stage_partition.h"
#include "train/setup_simulate.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

enum { MOST_CHUNKS = 1 << 15, WHOLE = 4 }; /* layers a chunk up to which all are compiled */

typedef struct dealing {
    const sk_job *job;
    const sk_machine *machine;
    const sk_layout *layout; /* with equal stages */
    const sk_schedule *schedule;
    int stages, each; /* chunks of a stage */
    int blocks;
} dealing;

typedef struct probe { /* of a program with equal stages */
    int n;             /* layers of the graph, with the first and the last */
    double *seconds;   /* by layer */
    double *bytes;     /* by stage */
} probe;

/* --- what it costs --- */

static sk_status compile(sk_arena *tmp, const dealing *d, int64_t layers, sk_simulated_step *step)
{
    sk_job *job = sk_new(tmp, sk_job);
    sk_setup *s = sk_new(tmp, sk_setup);
    *job = *d->job;
    job->budget = 0;
    if (!job->build) job->hyper.num_hidden_layers = layers;
    snprintf(job->layout, sizeof job->layout, "%s", sk_layout_print(tmp, d->layout));
    SK_TRY(sk_setup_layout(tmp, job, s));
    return sk_setup_trace(tmp, s, d->machine, step);
}

static sk_status take(sk_arena *a, const dealing *d, int64_t layers, probe *out)
{
    sk_arena tmp = {0};
    sk_simulated_step step;
    sk_status st = compile(&tmp, d, layers, &step);
    if (!st) {
        out->n = step.programs[0]->graph->n_layers;
        out->seconds = sk_many(a, double, out->n);
        out->bytes = sk_many(a, double, d->stages);
        sk_layer_times(&step.sim, out->seconds);
    }
    for (int i = 0; !st && i < step.sim.n; i++) {
        double *most = &out->bytes[step.sim.v[i].stage];
        double bytes = (double)sk_device_bytes(step.sim.v[i].program);
        if (bytes > *most) *most = bytes;
    }
    sk_arena_end(&tmp);
    return st;
}

bool sk_job_layers_alike(const sk_job *job)
{
    bool alike = !job->build && job->hyper.num_hidden_layers > 0;
    for (int i = 0; i < SK_MAX_OWN; i++) alike = alike && !job->hyper.own[i].set;
    return alike;
}

/* --- the partition --- */

static double mean_block(const probe *p)
{
    double sum = 0;
    for (int i = 1; i < p->n - 1; i++) sum += p->seconds[i];
    return p->n > 2 ? sum / (p->n - 2) : 0;
}

static int stage_of(const dealing *d, int chunk)
{
    return sk_schedule_place(d->schedule, d->stages, chunk);
}

/* Bytes of a stage of any number of blocks, by its line: saved bytes of a block are 1 and as many
 * micro-batches are in flight as a block has bytes. */
static void add_memory(sk_arena *a, const dealing *d, const probe *one, const probe *two,
                       sk_partition_in *in)
{
    double *extra = sk_many(a, double, d->stages), *flight = sk_many(a, double, d->stages);
    for (int s = 0; s < d->stages; s++) {
        flight[s] = (two->bytes[s] - one->bytes[s]) / d->each;
        if (flight[s] < 0) flight[s] = 0;
        extra[s] = one->bytes[s] - d->each * flight[s];
    }
    in->extra_bytes = extra;
    in->flight = flight;
}

static sk_status partition(sk_arena *a, const dealing *d, const probe *one, const probe *two,
                           int64_t memory, sk_partition *out)
{
    sk_chain_layer *chain = sk_many(a, sk_chain_layer, d->blocks);
    double *extra = sk_many(a, double, d->stages), mean = mean_block(two);
    bool own = two->n - 2 == d->blocks && d->each == 1;
    for (int i = 0; i < d->blocks; i++)
        chain[i] = (sk_chain_layer){.seconds = own ? two->seconds[i + 1] : mean, .saved = 1};
    extra[0] += two->seconds[0];
    extra[stage_of(d, d->stages * d->each - 1)] += two->seconds[two->n - 1];
    sk_partition_in in = {.layers = chain,
                          .n = d->blocks,
                          .level = {{d->stages, 0}},
                          .n_levels = 1,
                          .memory = one ? (double)memory : 0,
                          .extra_seconds = extra};
    if (one) add_memory(a, d, one, two, &in);
    if (!sk_stage_partition(a, &in, out)) return SK_OK;
    in.memory = 0;
    return sk_stage_partition(a, &in, out);
}

/* What does not go evenly into the chunks of a stage is in its first ones: the last of all has the
 * head. */
static void to_chunks(const dealing *d, const sk_partition *p, int *blocks)
{
    for (int c = 0; c < d->stages * d->each; c++) {
        int s = stage_of(d, c), all = p->v[s].end - p->v[s].from;
        blocks[c] = all / d->each + (c / d->stages < all % d->each);
    }
}

static sk_status choose(sk_arena *a, const dealing *d, int64_t memory, char to[SK_LAYERS_TEXT])
{
    probe one = {0}, two = {0};
    sk_partition p;
    int chunks = d->stages * d->each;
    bool few = sk_job_layers_alike(d->job) && WHOLE * chunks <= d->blocks;
    if (few) SK_TRY(take(a, d, chunks, &one));
    SK_TRY(take(a, d, few ? 2 * chunks : d->blocks, &two));
    dealing whole = *d;
    if (!few) whole.blocks = two.n - 2;
    if (whole.blocks < 1)
        return sk_fail(SK_ECONF, "layout: layers=auto: the model has no layers "
                                 "between its first and its last; leave it out");
    int *blocks = sk_many(a, int, chunks);
    SK_TRY(partition(a, &whole, few ? &one : NULL, &two, memory, &p));
    to_chunks(&whole, &p, blocks);
    if (sk_layers_print(blocks, chunks, to)) return SK_OK;
    return sk_fail(SK_ECONF,
                   "layout: layers=auto: the numbers of %d chunks need more than the %d characters "
                   "of a list; fewer chunks are needed, or leave it out",
                   chunks, SK_LAYERS_TEXT - 1);
}

sk_status sk_auto_layers(const sk_job *job, const sk_machine *m, int64_t memory, sk_layout *l)
{
    sk_arena a = {0};
    sk_layout even = *l;
    *even.layers = 0;
    dealing d = {.job = job,
                 .machine = m,
                 .layout = &even,
                 .schedule = sk_schedule_find(l->schedule),
                 .stages = l->stage_axis < 0 ? 1 : l->mesh.size[l->stage_axis],
                 .each = sk_schedule_chunks(l),
                 .blocks = (int)job->hyper.num_hidden_layers};
    sk_status st = d.schedule
                       ? choose(&a, &d, memory, l->layers)
                       : sk_fail(SK_ECONF, "layout: no schedule is called '%s'", l->schedule);
    sk_arena_end(&a);
    return st;
}

/* --- texts --- */

bool sk_layers_say(const char *text, const char *layers, char *to, size_t room)
{
    static const char word[] = "layers=";
    const char *at = strstr(text, word);
    sk_assert(at);
    at += strlen(word);
    return snprintf(to, room, "%.*s%s%s", (int)(at - text), text, layers, at + strcspn(at, " ")) <
           (int)room;
}

int sk_layers_least(const char *layers)
{
    sk_arena a = {0};
    int *blocks = sk_many(&a, int, MOST_CHUNKS), least = INT_MAX;
    int n = sk_layers_read(layers, blocks, MOST_CHUNKS);
    for (int i = 0; i < n; i++)
        if (blocks[i] < least) least = blocks[i];
    sk_arena_end(&a);
    return least;
}

int64_t sk_layers_shrink(const char *layers, int least, char to[SK_LAYERS_TEXT])
{
    sk_arena a = {0};
    int *blocks = sk_many(&a, int, MOST_CHUNKS), now = sk_layers_least(layers);
    int n = sk_layers_read(layers, blocks, MOST_CHUNKS);
    int64_t sum = 0;
    for (int i = 0; i < n; i++) sum += blocks[i] -= now - least;
    bool fits = sk_layers_print(blocks, n, to);
    sk_assert(fits);
    sk_arena_end(&a);
    return sum;
}
