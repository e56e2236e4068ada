/* Attention with split time: queries in pieces, keys in blocks that come in any order, time dealt
 * in zigzag; all against plain attention on the whole, which itself meets the textbook here.
 *
 * Results start as NaN and pieces are cut at random places, empty ones among them. */
#include "base/rng.h"
#include "base/zigzag.h"
#include "graph/graph.h"
#include "lib/check.h"
#include "kernel/causal_attention.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

typedef struct shape {
    int64_t b, t, h, r, d;
    int p;       /* ranks that time is dealt to */
    double loud; /* queries are drawn from (-loud, loud) */
} shape;

typedef struct part { /* [at, at + n) of time */
    int64_t at, n;
} part;

static sk_arena arena;
static uint64_t drawn;

static double draw(void) { return sk_rng_uniform(7, 1, drawn++); }

static real *nans(int64_t n)
{
    real *x = sk_many(&arena, real, n + 1);
    memset(x, 0xff, (size_t)n * sizeof(real));
    return x;
}

static real *noise(int64_t n, double size)
{
    real *x = nans(n);
    for (int64_t i = 0; i < n; i++) x[i] = (real)(size * (2 * draw() - 1));
    return x;
}

/* ---- tensors of [outer][time][inner], cut and put together along time */

typedef struct rect {
    int64_t outer, time, inner;
} rect;

static real *cut(const real *x, rect r, part p)
{
    real *y = nans(r.outer * p.n * r.inner);
    for (int64_t o = 0; o < r.outer; o++)
        memcpy(y + o * p.n * r.inner, x + (o * r.time + p.at) * r.inner,
               (size_t)(p.n * r.inner) * sizeof(real));
    return y;
}

static void paste(real *x, rect r, part p, const real *y)
{
    for (int64_t o = 0; o < r.outer; o++)
        memcpy(x + (o * r.time + p.at) * r.inner, y + o * p.n * r.inner,
               (size_t)(p.n * r.inner) * sizeof(real));
}

/* From the order of positions to the order in which they are stored. */
static real *deal(const real *x, rect r, int p)
{
    real *y = nans(r.outer * r.time * r.inner);
    for (int64_t o = 0; o < r.outer; o++)
        for (int64_t i = 0; i < r.time; i++)
            memcpy(y + (o * r.time + i) * r.inner,
                   x + (o * r.time + sk_zigzag(i, r.time, p)) * r.inner,
                   (size_t)r.inner * sizeof(real));
    return y;
}

static rect of_x(shape s) { return (rect){s.b, s.t, s.h * (s.r + 2) * s.d}; }
static rect of_y(shape s) { return (rect){s.b, s.t, s.h * s.r * s.d}; }
static rect of_kv(shape s) { return (rect){s.b, s.t, s.h * 2 * s.d}; }
static rect of_lse(shape s) { return (rect){s.b * s.h * s.r, s.t, 1}; }
static int64_t count(rect r) { return r.outer * r.time * r.inner; }

static void same(const real *got, const real *want, int64_t n, double slack, const char *what)
{
    checks++;
    for (int64_t i = 0; i < n; i++) {
        double g = (double)got[i], w = (double)want[i];
        if (g == w || fabs(g - w) <= slack * (1 + fabs(w))) continue;
        bad++;
        printf("%s: element %" PRId64 " of %" PRId64 " is %.9g, %.9g is right\n", what, i, n, g, w);
        return;
    }
}

/* ---- calling ops */

static sk_view view(const real *x, shape s, int64_t slots, part p)
{
    sk_view v = {.data = (void *)(uintptr_t)x,
                 .type = SK_F32,
                 .n = 5,
                 .size = {s.b, p.n, s.h, slots, s.d},
                 .at = {0, p.at, 0, 0, 0},
                 .full = {s.b, s.t, s.h, slots, s.d}};
    sk_view_dense(&v);
    return v;
}

static sk_view view_lse(const real *x, shape s, part p)
{
    sk_view v = {.data = (void *)(uintptr_t)x,
                 .type = SK_F32,
                 .n = 4,
                 .size = {s.b, s.h, s.r, p.n},
                 .at = {0, 0, 0, p.at},
                 .full = {s.b, s.h, s.r, s.t}};
    sk_view_dense(&v);
    return v;
}

static void call(const char *name, sk_args a, shape s, int threads)
{
    const sk_op *op = sk_op_find(name);
    a.n_in = op->n_in;
    a.n_out = sk_op_outs(op);
    a.dims = op->dims;
    a.attr[0] = s.p;
    a.of = threads;
    a.scratch = nans((int64_t)(sk_op_scratch(op, &a) / sizeof(real)));
    for (a.part = 0; a.part < threads; a.part++) sk_op_run_cpu(op, &a);
}

static void unpack(const real *x, shape s, real **q, real **kv)
{
    part all = {0, s.t};
    *q = nans(count(of_y(s)));
    *kv = nans(count(of_kv(s)));
    call("unpack",
         (sk_args){.in = {view(x, s, s.r + 2, all)},
                   .out = {view(*q, s, s.r, all), view(*kv, s, 2, all)}},
         s, 2);
}

typedef struct truth { /* all in stored order */
    real *q, *kv, *y, *lse, *dy, *dq, *dkv;
} truth;

/* Plain attention with positions in order, dealt afterwards. */
static truth plain(shape s)
{
    shape in_order = s;
    part all = {0, s.t};
    real *x = noise(count(of_x(s)), s.loud), *y = nans(count(of_y(s)));
    real *lse = nans(count(of_lse(s))), *dy = noise(count(of_y(s)), 1), *dx = nans(count(of_x(s)));
    truth w = {0};
    in_order.p = 0;
    call("attention",
         (sk_args){.in = {view(x, s, s.r + 2, all)},
                   .out = {view(y, s, s.r, all), view_lse(lse, s, all)}},
         in_order, 1);
    call("attention_grad",
         (sk_args){.in = {view(x, s, s.r + 2, all), view(y, s, s.r, all), view_lse(lse, s, all),
                          view(dy, s, s.r, all)},
                   .out = {view(dx, s, s.r + 2, all)}},
         in_order, 1);
    unpack(deal(x, of_x(s), s.p), s, &w.q, &w.kv);
    unpack(deal(dx, of_x(s), s.p), s, &w.dq, &w.dkv);
    w.y = deal(y, of_y(s), s.p);
    w.dy = deal(dy, of_y(s), s.p);
    w.lse = deal(lse, of_lse(s), s.p);
    return w;
}

static void forward(const truth *w, shape s, part q, part k, real *y, real *lse, unsigned add)
{
    call("attention_kv",
         (sk_args){
             .in = {view(cut(w->q, of_y(s), q), s, s.r, q), view(cut(w->kv, of_kv(s), k), s, 2, k)},
             .out = {view(y, s, s.r, q), view_lse(lse, s, q)},
             .add = add},
         s, 1 + (int)(3 * draw()));
}

static void backward(const truth *w, shape s, part q, part k, real *dq, real *dkv, unsigned add)
{
    call("attention_kv_grad",
         (sk_args){.in = {view(cut(w->q, of_y(s), q), s, s.r, q),
                          view(cut(w->kv, of_kv(s), k), s, 2, k),
                          view(cut(w->y, of_y(s), q), s, s.r, q),
                          view_lse(cut(w->lse, of_lse(s), q), s, q),
                          view(cut(w->dy, of_y(s), q), s, s.r, q)},
                   .out = {view(dq, s, s.r, q), view(dkv, s, 2, k)},
                   .add = add},
         s, 1 + (int)(3 * draw()));
}

/* ---- pieces */

enum { MOST = 5 };

/* n pieces of time, cut anywhere; or as a layout cuts it. */
static void pieces(int64_t time, int n, bool anywhere, part *p)
{
    for (int i = 0; i < n; i++)
        p[i].at = i && anywhere ? (int64_t)((double)(time + 1) * draw()) : time * i / n;
    for (int i = 1; i < n; i++) /* in order */
        for (int k = i; k > 1 && p[k].at < p[k - 1].at; k--) {
            int64_t at = p[k].at;
            p[k].at = p[k - 1].at;
            p[k - 1].at = at;
        }
    for (int i = 0; i < n; i++) p[i].n = (i + 1 < n ? p[i + 1].at : time) - p[i].at;
}

static void shuffle(part *p, int n)
{
    for (int i = n - 1; i > 0; i--) {
        int k = (int)((i + 1) * draw());
        part x = p[i];
        p[i] = p[k];
        p[k] = x;
    }
}

/* Every piece of the queries meets the keys block by block. */
static void ring(const truth *w, shape s, const part *q, int n_q, part *k, int n_k, double slack)
{
    real *y = nans(count(of_y(s))), *lse = nans(count(of_lse(s)));
    real *dq = nans(count(of_y(s))), *dkv = nans(count(of_kv(s)));
    for (int i = 0; i < n_q; i++) {
        real *my = nans(s.b * q[i].n * s.h * s.r * s.d), *my_lse = nans(s.b * s.h * s.r * q[i].n);
        real *my_dq = nans(s.b * q[i].n * s.h * s.r * s.d);
        shuffle(k, n_k);
        for (int j = 0; j < n_k; j++) {
            real *piece = cut(dkv, of_kv(s), k[j]);
            forward(w, s, q[i], k[j], my, my_lse, j ? 3 : 0);
            backward(w, s, q[i], k[j], my_dq, piece, (j ? 1u : 0) | (i ? 2u : 0));
            paste(dkv, of_kv(s), k[j], piece);
        }
        paste(y, of_y(s), q[i], my);
        paste(lse, of_lse(s), q[i], my_lse);
        paste(dq, of_y(s), q[i], my_dq);
    }
    same(y, w->y, count(of_y(s)), slack, "y");
    same(lse, w->lse, count(of_lse(s)), slack, "lse");
    double terms = fmax(4, s.loud); /* of gradients: keys and queries, which may cancel */
    same(dq, w->dq, count(of_y(s)), terms * slack, "dq");
    same(dkv, w->dkv, count(of_kv(s)), terms * slack, "dkv");
}

static const shape shapes[] = {
    {2, 8, 2, 1, 4, 0, 1},   {1, 13, 3, 3, 5, 0, 1}, {2, 67, 1, 2, 3, 0, 1},
    {1, 200, 2, 1, 8, 0, 1}, {1, 16, 2, 1, 4, 2, 1}, {1, 13, 1, 2, 5, 3, 1},
    {1, 150, 2, 1, 4, 4, 1}, {2, 5, 1, 1, 2, 7, 1},  {1, 260, 1, 2, 8, 2, 1},
    {1, 1, 1, 1, 1, 3, 1},
};

static void all_rings(void)
{
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        shape s = shapes[i];
        truth w = plain(s);
        part q[MOST], k[MOST];
        for (int n_q = 1; n_q <= MOST; n_q++)
            for (int n_k = 1; n_k <= MOST; n_k++) {
                pieces(s.t, n_q, n_q % 2, q);
                pieces(s.t, n_k, n_k % 2, k);
                ring(&w, s, q, n_q, k, n_k, 1e-6);
            }
        sk_arena_end(&arena);
        arena = (sk_arena){0};
    }
}

/* Scores of thousands: one key takes all, and no exponential overflows.  The first block may be
 * one that nobody sees. */
static void loud(void)
{
    shape s = {1, 96, 1, 1, 16, 2, 60};
    truth w = plain(s);
    part q[MOST], k[MOST];
    for (int n = 1; n <= MOST; n++) {
        pieces(s.t, n, true, q);
        pieces(s.t, n, true, k);
        ring(&w, s, q, n, k, n, 1e-3);
    }
}

/* ---- against the textbook, in double */

static double score(const truth *w, shape s, int64_t b, int64_t i, int64_t h, int64_t j, int64_t k)
{
    const real *q = w->q + (((b * s.t + i) * s.h + h) * s.r + j) * s.d;
    const real *key = w->kv + ((b * s.t + k) * s.h + h) * 2 * s.d;
    double dot = 0;
    for (int64_t c = 0; c < s.d; c++) dot += (double)q[c] * (double)key[c];
    return dot / sqrt((double)s.d);
}

static void one_row(const truth *w, shape s, int64_t b, int64_t i, int64_t h, int64_t j, real *y)
{
    double sum = 0;
    for (int64_t c = 0; c < s.d; c++) {
        double top = 0;
        sum = 0;
        for (int64_t k = 0; k < s.t; k++) {
            if (sk_zigzag(k, s.t, s.p) > sk_zigzag(i, s.t, s.p)) continue;
            double p = exp(score(w, s, b, i, h, j, k));
            top += p * (double)w->kv[((b * s.t + k) * s.h + h) * 2 * s.d + s.d + c];
            sum += p;
        }
        y[c] = (real)(top / sum);
    }
}

static void textbook(void)
{
    for (size_t n = 0; n < sizeof shapes / sizeof *shapes; n++) {
        shape s = shapes[n];
        truth w = plain(s);
        real *y = nans(count(of_y(s)));
        for (int64_t i = 0; i < s.b * s.t * s.h * s.r; i++)
            one_row(&w, s, i / s.r / s.h / s.t, i / s.r / s.h % s.t, i / s.r % s.h, i % s.r,
                    y + i * s.d);
        same(w.y, y, count(of_y(s)), 1e-6, "attention by the textbook");
    }
}

/* ---- blocks of the future */

static void future(void)
{
    shape s = {1, 20, 2, 1, 4, 0, 1};
    truth w = plain(s);
    part q = {0, 10}, past = {0, 10}, later = {10, 10}, none = {20, 0};
    int64_t n = 10 * s.h * s.d, n_lse = 10 * s.h;
    real *y = nans(n), *lse = nans(n_lse), *zero = noise(n, 0), *was, *was_lse, *dq = nans(n);
    real *dkv = nans(2 * n);
    forward(&w, s, q, later, y, lse, 0);
    same(y, zero, n, 0, "y of queries that see nothing");
    for (int64_t i = 0; i < n_lse; i++) check(lse[i] == (real)-INFINITY);
    forward(&w, s, q, none, y, lse, 3);
    forward(&w, s, q, past, y, lse, 3);
    was = cut(y, (rect){1, n, 1}, (part){0, n});
    was_lse = cut(lse, (rect){1, n_lse, 1}, (part){0, n_lse});
    same(y, cut(w.y, of_y(s), q), n, 1e-6, "y after a block of the future");
    forward(&w, s, q, later, y, lse, 3);
    forward(&w, s, q, none, y, lse, 3);
    check(!memcmp(y, was, (size_t)n * sizeof(real)));
    check(!memcmp(lse, was_lse, (size_t)n_lse * sizeof(real)));
    backward(&w, s, q, later, dq, dkv, 0);
    same(dq, zero, n, 0, "dq of queries that see nothing");
    same(dkv, noise(2 * n, 0), 2 * n, 0, "dkv of keys that nobody sees");
    for (int64_t i = 0; i < count(of_lse(s)); i++) w.lse[i] = (real)-INFINITY;
    backward(&w, s, q, past, dq, dkv, 0);
    same(dq, zero, n, 0, "dq of queries without a sum");
}

/* What a thread computes does not depend on how many there are. */
static void threads(void)
{
    shape s = {1, 150, 3, 2, 8, 2, 1};
    truth w = plain(s);
    part all = {0, s.t};
    real *y[4], *lse = nans(count(of_lse(s)));
    for (int n = 1; n < 4; n++) {
        y[n] = nans(count(of_y(s)));
        call("attention_kv",
             (sk_args){.in = {view(w.q, s, s.r, all), view(w.kv, s, 2, all)},
                       .out = {view(y[n], s, s.r, all), view_lse(lse, s, all)}},
             s, n);
        check(!memcmp(y[1], y[n], (size_t)count(of_y(s)) * sizeof(real)));
    }
}

/* ---- the deal */

/* Chunk by chunk, as the rule is told. */
static void told(int64_t time, int p)
{
    int64_t size = time / (2 * p);
    for (int64_t i = 0; i < time; i++) {
        int64_t slot = i / size, chunk = slot % 2 ? 2 * p - 1 - slot / 2 : slot / 2;
        check(sk_zigzag(i, time, p) == chunk * size + i % size);
    }
}

static void dealt(int64_t time, int p)
{
    char seen[128] = {0};
    for (int64_t i = 0; i < time; i++) {
        int64_t n, pos = sk_zigzag_run(i, time, p, &n);
        check(pos >= 0 && pos < time && !seen[pos] && n >= 1 && i + n <= time);
        check(pos == sk_zigzag(i, time, p));
        check(n == 1 || sk_zigzag(i + 1, time, p) == pos + 1);
        check(sk_zigzag_index(pos, time, p) == i);
        if (pos >= 0 && pos < 128) seen[pos] = 1;
    }
    for (int r = 0; r < p; r++) { /* a piece is two runs, alike to one */
        int64_t from = time * r / p, to = time * (r + 1) / p, n = 0, runs = 0, first = 0;
        for (int64_t i = from; i < to; i += n, runs++) {
            sk_zigzag_run(i, time, p, &n);
            if (!runs) first = n;
        }
        check(runs <= 2 && (runs < 2 || llabs(first - n) <= 1));
    }
}

static void zigzag(void)
{
    for (int p = 1; p <= 9; p++) {
        for (int64_t time = 1; time <= 60; time++) dealt(time, p);
        for (int64_t k = 1; k <= 4; k++) told(2 * p * k, p);
    }
    for (int p = 10; p <= 255; p += 35)
        for (int64_t time = 1; time <= 128; time += 7) dealt(time, p);
    check(sk_zigzag(5, 7, 0) == 5 && sk_zigzag(5, 7, 1) == 5);
    check(sk_zigzag_index(5, 7, 0) == 5 && sk_zigzag_index(5, 7, 1) == 5);
}

/* ---- the work */

static double pairs_by_hand(const sk_times *t)
{
    double sum = 0;
    for (int64_t i = t->q_at; i < t->q_at + t->q_n; i++)
        for (int64_t k = t->k_at; k < t->k_at + t->k_n; k++)
            sum += sk_zigzag(i, t->full, t->deal) >= sk_zigzag(k, t->full, t->deal);
    return sum;
}

static double flops(const char *name, shape s, part q)
{
    const sk_op *op = sk_op_find(name);
    part all = {0, s.t};
    sk_args a = {.in = {view(NULL, s, s.r, q), view(NULL, s, 2, all)}, .attr = {s.p}};
    return sk_op_flops(op, &a);
}

static void work(void)
{
    for (int n = 0; n < 200; n++) {
        part q[2], k[2];
        int64_t time = 1 + (int64_t)(90 * draw());
        pieces(time, 2, true, q);
        pieces(time, 2, true, k);
        sk_times t = {q[1].at, q[1].n, k[0].at, k[0].n, time, (int)(5 * draw())};
        check(sk_attend_pairs(&t) == pairs_by_hand(&t));
    }
    shape s = {2, 64, 3, 2, 8, 4, 1};
    double whole = flops("attention_kv", s, (part){0, 64}), one = 0;
    check(whole == 4.0 * 2 * 3 * 2 * 8 * (64 * 65 / 2));
    for (int r = 0; r < 4; r++) {
        one = flops("attention_kv", s, (part){16 * r, 16});
        check(4 * one == whole); /* every rank has as much to do */
        check(flops("attention_kv_grad", s, (part){16 * r, 16}) == 2.5 * one);
    }
    s.p = 0;
    check(flops("attention_kv", s, (part){48, 16}) > 5 * flops("attention_kv", s, (part){0, 16}));
}

/* ---- in a graph */

static sk_graph graph(double ranks, const char *cut_letters, sk_node **y)
{
    sk_graph g;
    sk_graph_init(&g, &arena);
    for (const char *p = "bthsd"; *p; p++) sk_graph_size(&g, *p, 4);
    snprintf(g.cut, sizeof g.cut, "%s", cut_letters);
    sk_tensor *x = sk_param(&g, "x", "bthsd", 1);
    *y = sk_apply(&g, "attention", .in = {x}, .attr = {ranks});
    return g;
}

static int n_nodes(const sk_graph *g, const char *op, double ranks)
{
    int n = 0;
    for (int i = 0; i < g->nodes.n; i++)
        n += !strcmp(g->nodes.v[i]->op->name, op) && g->nodes.v[i]->attr[0] == ranks;
    return n;
}

/* Time dealt to so many ranks by the layout, another letter of attention named before it. */
static void dealt_later(void)
{
    sk_graph g;
    sk_graph_init(&g, &arena);
    for (const char *p = "bthsd"; *p; p++) sk_graph_size(&g, *p, 4);
    snprintf(g.cut, sizeof g.cut, "dt");
    g.dealt = 't';
    g.zigzag = 2;
    sk_apply(&g, "attention", .in = {sk_param(&g, "x", "bthsd", 1)});
    check(!sk_graph_status(&g) && n_nodes(&g, "attention_kv", 2) == 1);
}

static void rewriting(void)
{
    sk_node *y;
    sk_graph g = graph(4, "ht", &y);
    check(!sk_graph_status(&g) && g.nodes.n == 2);
    check(n_nodes(&g, "unpack", 0) == 1 && n_nodes(&g, "attention_kv", 4) == 1);
    check(!strcmp(y->out[0]->letters, "bthrd") && !strcmp(y->out[1]->letters, "bhrt"));
    sk_tensor *m = sk_input(&g, "m", "bthrd", SK_F32);
    g.loss = sk_contract(&g, "bthrd,bthrd->", y->out[0], m);
    sk_graph_grad(&g);
    check(!sk_graph_status(&g));
    check(n_nodes(&g, "unpack_grad", 0) == 1 && n_nodes(&g, "attention_kv_grad", 4) == 1);
    check(g.nodes.v[g.nodes.n - 1]->into[0] == sk_graph_find(&g, "x"));
    g = graph(4, "h", &y);
    check(!sk_graph_status(&g) && g.nodes.n == 1 && n_nodes(&g, "attention", 4) == 1);
    dealt_later();
}

static void error_messages(void)
{
    sk_node *y;
    sk_graph g = graph(-1, "", &y);
    fails(sk_graph_status(&g), SK_ECONF, "dealt to -1 ranks");
    g = graph(NAN, "t", &y);
    fails(sk_graph_status(&g), SK_ECONF, "ranks");
    g = graph(0, "", &y);
    sk_graph_size(&g, 'z', 3);
    sk_graph_size(&g, 'k', 2);
    sk_tensor *q = sk_input(&g, "q", "bthrd", SK_F32), *kv = sk_input(&g, "kv", "bthzd", SK_F32);
    sk_graph h = g;
    sk_apply(&g, "attention_kv", .in = {q, kv});
    fails(sk_graph_status(&g), SK_ECONF, "'kv' holds 3 things per head");
    g = h;
    sk_apply(&g, "attention_kv", .in = {q, sk_input(&g, "kv", "bthkd", SK_F32)}, .attr = {1e9});
    fails(sk_graph_status(&g), SK_ECONF, "dealt to 1e+09 ranks");
    g = h;
    g.dealt = 't';
    g.zigzag = 2;
    sk_apply(&g, "attention_kv", .in = {q, sk_input(&g, "kv", "bthkd", SK_F32)});
    fails(sk_graph_status(&g), SK_ECONF, "deals 't' in zigzag to 2 ranks, and the op is told 0");
    g = h;
    sk_apply(&g, "unpack", .in = {sk_graph_find(&g, "x")});
    fails(sk_graph_status(&g), SK_ECONF, "letter 'z' is 3");
}

int main(void)
{
    zigzag();
    work();
    textbook();
    all_rings();
    loud();
    future();
    threads();
    rewriting();
    error_messages();
    sk_arena_end(&arena);
    printf("attention_kv: %d checks, %d bad\n", checks, bad);
    return bad != 0;
}
