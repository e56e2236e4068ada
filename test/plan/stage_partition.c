/* stage_partition.c - the partition of a chain of layers is the best of all partitions, which are
 * written out here: random chains of up to 10 layers, with and without memory limits, replication,
 * links and two levels; and VGG-16 on four V100, whose published partition is three replicas of the
 * first layers and one rank with the rest.
 *
 *     plan_stage_partition [SEED [COUNT]]     seed 1; 4000 chains */
#include "plan/stage_partition.h"
#include "base/rng.h"
#include "lib/check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LAYERS = 10, RANKS = 6 };
enum { BLOCK_2 = 10, BLOCK_3 = 17, BLOCK_4 = 24 }; /* layers of VGG-16 to the end of each */

/* --- all partitions, one after the other --- */

typedef struct search {
    const sk_partition_in *in;
    int end, units, level;
    sk_partition_stage v[RANKS];
    double best, spread;
} search;

static double best_of_units(const sk_partition_in *in, int level, int from, int end);

static double stage_seconds(const search *s, int place)
{
    const sk_partition_in *in = s->in;
    const sk_partition_stage *x = &s->v[place];
    double seconds = 0, weights = 0, rate = in->level[s->level].rate;
    for (int i = x->from; i < x->end; i++) {
        seconds += in->layers[i].seconds;
        weights += in->layers[i].weights;
    }
    if (s->level) seconds = best_of_units(in, s->level - 1, x->from, x->end);
    if (rate > 0) seconds = fmax(seconds, 2.0 * (x->ranks - 1) / x->ranks * weights / rate);
    return seconds / x->ranks + (in->extra_seconds ? in->extra_seconds[place] : 0);
}

static bool stage_fits(const search *s, int n, int place)
{
    const sk_partition_in *in = s->in;
    const sk_partition_stage *x = &s->v[place];
    int ranks = 0;
    double bytes = in->extra_bytes ? in->extra_bytes[place] : 0;
    for (int i = place; i < n; i++) ranks += s->v[i].ranks;
    double flight = ceil((double)ranks / x->ranks);
    if (in->n_micro) flight = fmin(flight, in->n_micro);
    if (in->flight) flight = in->flight[place];
    for (int i = x->from; i < x->end; i++)
        bytes += in->layers[i].stored + flight * in->layers[i].saved;
    return in->memory <= 0 || bytes <= in->memory;
}

static void judge(search *s, int n)
{
    double slowest = 0, spread = 0, rate = s->in->level[s->level].rate;
    for (int k = 0; k < n; k++) {
        const sk_partition_stage *x = &s->v[k];
        double seconds = stage_seconds(s, k);
        if (!stage_fits(s, n, k)) return;
        slowest = fmax(slowest, seconds);
        spread += seconds * seconds * x->ranks;
        if (rate > 0 && x->end && x->end < s->end)
            slowest = fmax(slowest, 2 * s->in->layers[x->end - 1].passed / rate);
    }
    if (slowest < s->best * (1 - 1e-9)) s->spread = INFINITY;
    if (slowest < s->best) s->best = slowest;
    if (slowest <= s->best * (1 + 1e-9)) s->spread = fmin(s->spread, spread);
}

static void all(search *s, int n, int from, int left)
{
    if (!left && from == s->end) judge(s, n);
    if (!left) return;
    for (int r = 1; r <= (s->in->replicate ? left : 1); r++)
        for (int end = from + s->in->replicate; end <= s->end; end++) {
            s->v[n] = (sk_partition_stage){from, end, r};
            all(s, n + 1, end, left - r);
        }
}

static search best_of_all(const sk_partition_in *in, int level, int from, int end)
{
    search s = {.in = in, .end = end, .level = level, .best = INFINITY, .spread = INFINITY};
    s.units = in->level[level].n;
    all(&s, 0, from, s.units);
    return s;
}

static double best_of_units(const sk_partition_in *in, int level, int from, int end)
{
    return best_of_all(in, level, from, end).best;
}

/* --- random chains --- */

typedef struct chain {
    sk_chain_layer layer[LAYERS];
    double seconds[RANKS], bytes[RANKS], flight[RANKS];
    sk_partition_in in;
} chain;

static double draw(uint64_t seed, int number, int i)
{
    return sk_rng_uniform(seed, (uint64_t)number, (uint64_t)i);
}

static void draw_layers(chain *c, uint64_t seed, int number, bool whole)
{
    for (int i = 0; i < LAYERS; i++) {
        double *x[] = {&c->layer[i].seconds, &c->layer[i].weights, &c->layer[i].passed,
                       &c->layer[i].stored, &c->layer[i].saved};
        for (int k = 0; k < 5; k++) {
            double u = draw(seed, number, 100 + 5 * i + k);
            *x[k] = whole ? floor(4 * u) : u; /* whole numbers: many partitions are as good */
        }
    }
    for (int r = 0; r < RANKS; r++) {
        c->seconds[r] = draw(seed, number, 200 + r);
        c->bytes[r] = draw(seed, number, 250 + r);
        c->flight[r] = 1 + floor(4 * draw(seed, number, 300 + r));
    }
}

static chain draw_chain(uint64_t seed, int number)
{
    chain c = {0};
    double u[8];
    for (int i = 0; i < 8; i++) u[i] = draw(seed, number, i);
    draw_layers(&c, seed, number, u[6] < 0.3);
    bool levels = number % 10 == 9;
    c.in = (sk_partition_in){.n = 1 + (int)(LAYERS * u[0]), .replicate = levels || u[1] < 0.5};
    c.in.n_levels = levels ? 2 : 1;
    c.in.level[0].n = 1 + (int)((levels ? 2 : c.in.replicate ? 4 : RANKS) * u[2]);
    c.in.level[1].n = 1 + (int)(3 * u[3]);
    for (int l = 0; l < 2; l++)
        c.in.level[l].rate = u[4] < 0.3 ? 0 : 4 * draw(seed, number, 20 + l);
    if (levels && c.in.n > 6) c.in.n = 6; /* all partitions of all units of all of them */
    if (!levels && u[5] < 0.6) c.in.memory = 12 * draw(seed, number, 30);
    if (u[7] < 0.5) c.in.n_micro = 1 + (int)(4 * u[7]);
    return c;
}

/* What the partition says of itself is what it is. */
static void is_itself(const sk_partition_in *in, const sk_partition *p, double spread)
{
    search s = {.in = in, .end = in->n, .best = INFINITY, .spread = INFINITY};
    int at = 0, ranks = 0;
    for (int i = 0; i < p->n; i++) {
        check(p->v[i].from == at && p->v[i].end >= at);
        at = p->v[i].end;
        ranks += p->v[i].ranks;
        s.v[i] = p->v[i];
    }
    check(at == in->n && ranks == in->level[0].n);
    judge(&s, p->n);
    check(fabs(s.best - p->seconds) <= 1e-9 * p->seconds);
    check(fabs(s.spread - spread) <= 1e-9 * spread + 1e-15);
}

static void one_chain(uint64_t seed, int number, int *fits)
{
    sk_arena a = {0};
    chain c = draw_chain(seed, number);
    sk_partition p;
    c.in.layers = c.layer;
    if (!c.in.replicate && number & 1) c.in.extra_bytes = c.bytes;
    if (!c.in.replicate && number & 2) c.in.flight = c.flight;
    if (!c.in.replicate && number & 4) c.in.extra_seconds = c.seconds;
    search best = best_of_all(&c.in, c.in.n_levels - 1, 0, c.in.n);
    sk_status st = sk_stage_partition(&a, &c.in, &p);
    check((st == SK_OK) == (bool)isfinite(best.best));
    if (!st) check(fabs(p.seconds - best.best) <= 1e-9 * best.best);
    if (!st && c.in.n_levels == 1) is_itself(&c.in, &p, best.spread);
    if (!st && c.in.n_levels > 1) {
        int ranks = 0;
        for (int i = 0; i < p.n; i++) ranks += p.v[i].ranks;
        check(ranks == c.in.level[0].n * c.in.level[1].n && p.v[p.n - 1].end == c.in.n);
    }
    *fits += !st;
    sk_arena_end(&a);
}

/* --- VGG-16 (Simonyan and Zisserman 2014), from its shapes --- */

typedef struct vgg {
    sk_chain_layer layer[64];
    int n;
    double elements; /* that the last layer made, of a batch */
} vgg;

/* A V100 by its data sheet, batch 64 in f32; PipeDream's link of 10 Gbit/s. */
static const double flops = 15.7e12, memory = 900e9, link_rate = 1.25e9, batch = 64;

/* A layer takes the longer of its products and its bytes; backward twice as long as forward. */
static void add(vgg *v, double multiplications, double params, double made)
{
    double work = 2 * batch * multiplications / flops;
    double bytes = 4 * (v->elements + batch * made + params) / memory;
    v->elements = batch * made;
    v->layer[v->n++] = (sk_chain_layer){
        .seconds = 3 * fmax(work, bytes), .weights = 4 * params, .passed = 4 * v->elements};
}

static vgg vgg_16(void)
{
    static const int blocks[5][2] = {{2, 64}, {2, 128}, {3, 256}, {3, 512}, {3, 512}};
    static const double dense[] = {25088, 4096, 4096, 1000};
    vgg v = {.elements = batch * 3 * 224 * 224};
    double side = 224, from = 3;
    for (int b = 0; b < 5; b++, side /= 2) {
        for (int k = 0; k < blocks[b][0]; k++) {
            double to = blocks[b][1], params = 9 * from * to;
            add(&v, params * side * side, params + to, to * side * side);
            add(&v, 0, 0, to * side * side); /* relu */
            from = to;
        }
        add(&v, 0, 0, from * side * side / 4); /* pooled */
    }
    for (int k = 0; k < 3; k++) {
        add(&v, dense[k] * dense[k + 1], (dense[k] + 1) * dense[k + 1], dense[k + 1]);
        if (k < 2) add(&v, 0, 0, dense[k + 1]);
    }
    return v;
}

/* Where the layers of the first two blocks, of 64 and 128 channels, take `slower` times as long. */
static void partition_vgg(sk_arena *a, double slower, sk_partition *p)
{
    vgg v = vgg_16();
    for (int i = 0; i < BLOCK_2; i++) v.layer[i].seconds *= slower;
    sk_partition_in in = {
        .layers = v.layer, .n = v.n, .replicate = true, .level = {{4, link_rate}}, .n_levels = 1};
    check(!sk_stage_partition(a, &in, p));
    check(p->n == 2 && p->v[0].ranks == 3 && p->v[1].ranks == 1);
    printf("VGG-16 on 4 flat ranks, the first two blocks %.1f times as long:", slower);
    for (int i = 0; i < p->n; i++) printf(" (%d,%d)x%d", p->v[i].from, p->v[i].end, p->v[i].ranks);
    printf(", %.1f ms a batch\n", 1e3 * p->seconds);
}

/* Narayanan et al. 2019: the weights of the dense layers are dear to sum, and those of the
 * convolutions are not: three replicas and one.  Their optimizer cuts behind layer 17, the third
 * block, by a profile in which convolutions of few channels are far from the peak; by the data
 * sheet it is the fourth block. */
static void published(void)
{
    sk_arena a = {0};
    sk_partition p;
    vgg v = vgg_16();
    double seconds = 0, weights = 0;
    for (int i = 0; i < v.n; i++) seconds += v.layer[i].seconds, weights += v.layer[i].weights;
    check(fabs(weights / 4 - 138.36e6) < 1e4); /* its parameters, as published */
    double data_parallel = fmax(seconds, 1.5 * weights / link_rate) / 4;
    printf("VGG-16, data parallel: %.1f ms a batch\n", 1e3 * data_parallel);
    partition_vgg(&a, 1, &p);
    check(p.v[0].end == BLOCK_4 && p.seconds < data_parallel);
    partition_vgg(&a, 2, &p);
    check(p.v[0].end == BLOCK_3);
    sk_arena_end(&a);
}

int main(int argc, char **argv)
{
    uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
    int n = argc > 2 ? atoi(argv[2]) : 4000, fits = 0;
    for (int i = 0; i < n; i++) one_chain(seed, i, &fits);
    printf("of %d chains %d fit, each as the best of all partitions\n", n, fits);
    published();
    printf("stage_partition: %d checks, %d bad\n", checks, bad);
    return bad != 0;
}
