/* attention_cache.c - attention of new tokens to all that came before, for generating text.
 *
 * Keys and values of the new tokens are written into the memory at their
 * positions (an input that the op changes in place); then each new query attends
 * to the positions up to its own.  A token whose position is outside of the
 * memory is padding: nothing is stored and its result is zero.  Reading the
 * memory once per query is all the cost when few tokens come at a time. */
#include "graph/graph.h"
#include "kernel/cpu/vecmath.h"

/* Where one head group lies: steps are from one time or position to the next. */
typedef struct group {
    const real *x;
    const int32_t *pos;
    real *memory, *y;
    int64_t time, positions, queries, d, step_x, step_memory, step_y;
} group;

static group group_at(const sk_args *a, int64_t i)
{
    const sk_view *x = &a->in[0], *m = &a->in[1];
    int64_t time = x->size[1], heads = x->size[2], slots = x->size[3], d = x->size[4];
    int64_t b = i / heads, h = i % heads, r = slots - 2;
    return (group){
        .x = (const real *)x->data + (b * time * heads + h) * slots * d,
        .pos = (const int32_t *)a->in[2].data + b * time,
        .memory = (real *)m->data + (b * m->size[1] * heads + h) * 2 * d,
        .y = (real *)a->out[0].data + (b * time * heads + h) * r * d,
        .time = time,
        .positions = m->size[1],
        .queries = r,
        .d = d,
        .step_x = heads * slots * d,
        .step_memory = heads * 2 * d,
        .step_y = heads * r * d,
    };
}

static bool outside(const group *g, int64_t t)
{
    return g->pos[t] < 0 || g->pos[t] >= g->positions;
}

static void remember(const group *g)
{
    for (int64_t t = 0; t < g->time; t++)
        if (!outside(g, t))
            memcpy(g->memory + g->pos[t] * g->step_memory, g->x + t * g->step_x + g->queries * g->d,
                   (size_t)(2 * g->d) * sizeof(real));
}

/* Scores of one query against positions [0, n), as exponentials; returns their sum. */
static real weigh(const group *g, const real *q, int64_t n, real *p)
{
    real scale = (real)(1 / sqrt((double)g->d)), top = (real)-INFINITY, sum = 0;
    for (int64_t i = 0; i < n; i++) {
        const real *k = g->memory + i * g->step_memory;
        real dot = 0;
#pragma omp simd reduction(+ : dot)
        for (int64_t c = 0; c < g->d; c++) dot += q[c] * k[c];
        p[i] = dot * scale;
        top = p[i] > top ? p[i] : top;
    }
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++) {
        p[i] = sk_exp(p[i] - top);
        sum += p[i];
    }
    return sum;
}

static void attend(const group *g, int64_t t, real *p)
{
    for (int64_t j = 0; j < g->queries; j++) {
        real *y = g->y + t * g->step_y + j * g->d;
        memset(y, 0, (size_t)g->d * sizeof(real));
        if (outside(g, t)) continue;
        int64_t n = g->pos[t] + 1;
        real part = 1 / weigh(g, g->x + t * g->step_x + j * g->d, n, p);
        for (int64_t i = 0; i < n; i++) {
            const real *v = g->memory + i * g->step_memory + g->d;
            real w = p[i] * part;
#pragma omp simd
            for (int64_t c = 0; c < g->d; c++) y[c] += w * v[c];
        }
    }
}

static void cpu(const sk_args *a)
{
    int64_t from, to;
    sk_share(a, a->in[0].size[0] * a->in[0].size[2], &from, &to);
    for (int64_t i = from; i < to; i++) {
        group g = group_at(a, i);
        remember(&g);
        for (int64_t t = 0; t < g.time; t++) attend(&g, t, a->scratch);
    }
}

static void infer(sk_graph *g, const sk_node *n)
{
    int64_t slots = g->size[(int)n->letters_in[0][3] & 127];
    int64_t kinds = g->size[(int)n->letters_in[1][3] & 127];
    if (kinds != 2)
        sk_graph_fail(g, SK_ECONF,
                      "attention_cache: the memory holds %d things per head; a key and a value are "
                      "needed (%s)",
                      (int)kinds, n->where);
    sk_graph_size(g, n->letters_out[0][3], slots - 2);
}

static size_t scratch(const sk_args *a) { return (size_t)a->in[1].size[1] * sizeof(real); }

/* As if every query met a full memory. */
static double flops(const sk_args *a)
{
    return 4 * (double)sk_count(&a->out[0]) * (double)a->in[1].size[1];
}

static const sk_sample samples[] = {
    {.in = {"b2t3h2s3d4", "b2n5h2z2d4", "b2t3%5"}},
    {.in = {"b3t1h3s5d7", "b3n9h3z2d7", "b3t1%9"}},
    {.in = {0}},
};

const sk_op sk_op_attention_cache = {
    .name = "attention_cache",
    .doc = "attention of new tokens to a memory of keys and values, which it extends",
    .dims = "bt!hs!d!,bn!hz!d!,bt!->bthr!d",
    .n_in = 3,
    .types = "xxi>x",
    .changes = 2,
    .infer = infer,
    .flops = flops,
    .scratch = scratch,
    .cpu = cpu,
    .samples = samples,
};
