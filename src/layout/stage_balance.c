/* stage_balance.c - see stage_balance.h. */
#include "layout/stage_balance.h"
#include "base/strings.h"

#include <stdio.h>
#include <string.h>

static int even(const sk_graph *g, int n_chunks, int layer)
{
    int blocks = g->n_layers - 2, block = layer - 1;
    if (blocks < 1) return layer * n_chunks / (g->n_layers ? g->n_layers : 1);
    if (block < 0) block = 0;
    if (block >= blocks) block = blocks - 1;
    for (int s = 0; s < n_chunks; s++) {
        int64_t from, to;
        sk_cut(blocks, s, n_chunks, &from, &to);
        if (block >= from && block < to) return s;
    }
    return n_chunks - 1;
}

/* --- by cost --- */

static sk_view not_split(const sk_graph *g, const sk_tensor *t, const char *letters)
{
    sk_view v = {.type = t->type, .n = (int)strlen(letters)};
    for (int d = 0; d < v.n; d++) v.size[d] = v.full[d] = g->size[(int)letters[d] & 127];
    sk_view_dense(&v);
    return v;
}

static double node_cost(const sk_graph *g, const sk_node *n)
{
    sk_args a = {.n_in = n->n_in, .n_out = n->n_out, .dims = n->dims, .of = 1};
    for (int i = 0; i < n->n_in; i++) a.in[i] = not_split(g, n->in[i], n->letters_in[i]);
    for (int o = 0; o < n->n_out; o++) a.out[o] = not_split(g, n->out[o], n->letters_out[o]);
    memcpy(a.attr, n->attr, sizeof a.attr);
    return sk_op_flops(n->op, &a);
}

/* How many chunks are needed if none may cost more than `most`. */
static int chunks_under(const double *cost, int n, double most, int *chunk_of)
{
    double sum = 0;
    int chunk = 0;
    for (int i = 0; i < n; i++) {
        if (sum > 0 && sum + cost[i] > most) {
            chunk++;
            sum = 0;
        }
        sum += cost[i];
        chunk_of[i] = chunk;
    }
    return chunk + 1;
}

/* The least `most`, by bisection. */
static void balanced(const double *cost, int n, int n_chunks, int *chunk_of)
{
    double lo = 0, hi = 0;
    for (int i = 0; i < n; i++) {
        if (cost[i] > lo) lo = cost[i];
        hi += cost[i];
    }
    if (chunks_under(cost, n, lo, chunk_of) <= n_chunks) return;
    for (int k = 0; k < 100; k++) {
        double mid = lo + (hi - lo) / 2;
        if (chunks_under(cost, n, mid, chunk_of) <= n_chunks) hi = mid;
        else lo = mid;
    }
    chunks_under(cost, n, hi, chunk_of);
}

/* --- as a list says --- */

/* "8x14" or "7": how often, and how many blocks each time.  false: it is no such text. */
static bool read_run(const char *text, size_t n, int64_t *blocks, int64_t *times)
{
    char one[32];
    *times = 1;
    if (n >= sizeof one) return false;
    snprintf(one, sizeof one, "%.*s", (int)n, text);
    char *x = strchr(one, 'x');
    if (x) *x++ = 0;
    bool fine = sk_read_int(one, blocks) && (!x || sk_read_int(x, times));
    return fine && *blocks >= 0 && *blocks <= INT16_MAX && *times >= 1;
}

int sk_layers_read(const char *text, int *blocks, int most)
{
    int n = 0;
    for (const char *at = text;; at++) {
        size_t len = strcspn(at, "+");
        int64_t each, times;
        if (!read_run(at, len, &each, &times) || times > most - n) return 0;
        while (times--) blocks[n++] = (int)each;
        at += len;
        if (!*at) return n;
    }
}

bool sk_layers_print(const int *blocks, int n, char to[SK_LAYERS_TEXT])
{
    size_t len = 0;
    for (int i = 0, times; i < n; i += times) {
        for (times = 1; i + times < n && blocks[i + times] == blocks[i];) times++;
        len += (size_t)snprintf(to + len, SK_LAYERS_TEXT - len, times > 1 ? "%s%dx%d" : "%s%d",
                                i ? "+" : "", blocks[i], times);
        if (len >= SK_LAYERS_TEXT) return false;
    }
    return true;
}

static void listed(sk_arena *a, const sk_graph *g, const char *text, int n_chunks, int *chunk_of)
{
    int *blocks = sk_many(a, int, n_chunks), layer = 1;
    int n = sk_layers_read(text, blocks, n_chunks);
    sk_assert(n == n_chunks); /* parts/word/layers.c has counted them, and their sum */
    for (int c = 0; c < n; c++)
        for (int k = 0; k < blocks[c]; k++) chunk_of[layer++] = c;
    sk_assert(layer == g->n_layers - 1);
    chunk_of[layer] = n_chunks - 1;
}

int *sk_stages_assign(sk_arena *a, const sk_graph *g, const sk_layout *l, int n_chunks)
{
    int *chunk_of = sk_many(a, int, g->n_layers + 1);
    double *cost = sk_many(a, double, g->n_layers + 1);
    if (*l->layers) {
        listed(a, g, l->layers, n_chunks, chunk_of);
        return chunk_of;
    }
    if (!l->balance) {
        for (int i = 0; i < g->n_layers; i++) chunk_of[i] = even(g, n_chunks, i);
        return chunk_of;
    }
    for (int i = 0; i < g->nodes.n; i++) cost[g->nodes.v[i]->layer] += node_cost(g, g->nodes.v[i]);
    balanced(cost, g->n_layers, n_chunks, chunk_of);
    for (int i = 0; i < g->n_layers; i++) sk_assert(chunk_of[i] >= 0 && chunk_of[i] < n_chunks);
    return chunk_of;
}
