/* square_matrices.h - for tests of ops on square symmetric matrices (kernel/eigen.h): matrices of
 * kinds that are hard for them, a call of an op, and what holds of all these ops. */
#ifndef SK_TEST_SQUARE_MATRICES_H
#define SK_TEST_SQUARE_MATRICES_H

#include "base/rng.h"
#include "graph/graph.h"
#include "lib/check.h"

#include <math.h>

static sk_arena arena;

typedef enum kind { FULL, DEFICIENT, ZERO, DIAGONAL, ONES, IDENTITY, TINY, HUGE_ONE } kind;
enum { KINDS = HUGE_ONE + 1 };

static inline double draw(int64_t i, int64_t j)
{
    return sk_rng_uniform(3, (uint64_t)i, (uint64_t)j);
}

/* B B' / n with B of n x rank: positive semi-definite. */
static inline float *product(int64_t n, int64_t rank, double scale)
{
    float *x = sk_many(&arena, float, n *n);
    double *b = sk_many(&arena, double, n *rank + 1);
    for (int64_t i = 0; i < n * rank; i++) b[i] = 2 * draw(i / rank, i % rank) - 1;
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j <= i; j++) {
            double sum = 0;
            for (int64_t k = 0; k < rank; k++) sum += b[i * rank + k] * b[j * rank + k];
            x[i * n + j] = x[j * n + i] = (float)(scale * sum / (double)n);
        }
    return x;
}

static inline float *matrix(kind what, int64_t n)
{
    if (what == FULL) return product(n, 2 * n, 1);
    if (what == DEFICIENT) return product(n, n / 3 + 1, 1);
    if (what == TINY) return product(n, n, 1e-36);
    if (what == HUGE_ONE) return product(n, n, 1e37);
    float *x = sk_many(&arena, float, n *n);
    for (int64_t i = 0; i < n * n; i++) {
        int64_t r = i / n, c = i % n;
        x[i] = what == ONES             ? 1
               : r != c || what == ZERO ? 0
               : what == IDENTITY       ? 1
                                        : (float)draw(r, c);
    }
    return x;
}

static inline double at(const float *x, int64_t n, int64_t i, int64_t j) /* of the lower triangle */
{
    return (double)(i >= j ? x[i * n + j] : x[j * n + i]);
}

static inline void view(sk_view *v, void *data, int64_t batch, int64_t n, bool canonical)
{
    *v = (sk_view){.data = data, .type = SK_F32, .n = 3, .size = {batch, n, n}};
    memcpy(v->full, v->size, sizeof v->full);
    for (int d = 0; d < 3; d++) v->cells[d] = canonical;
    sk_view_dense(v);
}

typedef struct call {
    const char *op;
    int64_t batch, n;
    double attr[3];
    bool canonical;
    int threads;
} call;

static inline float *run(call c, const float *x)
{
    float *y = sk_many(&arena, float, c.batch *c.n *c.n + 1);
    const sk_op *op = sk_op_find(c.op);
    sk_args a = {.n_in = 1, .n_out = 1, .dims = "em!n!->emn", .of = c.threads};
    memcpy(a.attr, c.attr, sizeof c.attr);
    memset(y, 0xff, (size_t)(c.batch * c.n * c.n) * sizeof *y);
    view(&a.in[0], (void *)(uintptr_t)x, c.batch, c.n, c.canonical);
    view(&a.out[0], y, c.batch, c.n, c.canonical);
    a.scratch = sk_alloc(&arena, sk_op_scratch(op, &a));
    for (a.part = 0; a.part < a.of; a.part++) sk_op_run_cpu(op, &a);
    return y;
}

static inline bool all(const float *x, int64_t n, bool nan)
{
    for (int64_t i = 0; i < n; i++)
        if (nan ? !isnan(x[i]) : !isfinite(x[i])) return false;
    return true;
}

/* A bad matrix spoils its own result and no other.  c: op, attr and order. */
static inline void not_finite(call c, float what)
{
    enum { N = 9 };
    float *x = sk_many(&arena, float, 3 * N * N);
    for (int k = 0; k < 3; k++) memcpy(x + k * N * N, matrix(FULL, N), N * N * sizeof *x);
    x[N * N + 5 * N + 2] = what;
    c.batch = 3, c.n = N, c.threads = 2;
    float *y = run(c, x);
    check(all(y, N * N, false) && all(y + N * N, N * N, true) && all(y + 2 * N * N, N * N, false));
}

/* The same bits with 1 and many threads.  c: op and attr. */
static inline void threads(call c)
{
    enum { N = 33, BATCH = 7 };
    size_t bytes = sizeof(float) * N * N * BATCH;
    float *x = sk_many(&arena, float, N *N *BATCH);
    for (int64_t i = 0; i < N * N * BATCH; i++) x[i] = (float)draw(99, i);
    c.batch = BATCH, c.n = N, c.threads = 1, c.canonical = true;
    float *one = run(c, x);
    for (c.threads = 2; c.threads <= 9; c.threads++) check(!memcmp(one, run(c, x), bytes));
}

#endif
