/* Floats of 8 bits: rounding against a search through all that there are, scales, what overflows,
 * and a contraction in 8 bits against the plain one of rounded operands, bit by bit. */
#include "base/rng.h"
#include "kernel/fp8_product.h"
#include "graph/graph.h"
#include "tensor/fp8_format.h"

#include <stdio.h>
#include <stdlib.h>

static int n_checks, n_bad;

static void expect(bool fine, const char *what, double x, double got)
{
    n_checks++;
    if (fine) return;
    n_bad++;
    if (n_bad < 20) printf("%s: %.9g became %.9g\n", what, x, got);
}

/* By the words of the format: the value of a code, without its sign. */
static double decode(int code, bool e5m2)
{
    int bits = e5m2 ? 2 : 3, bias = e5m2 ? 15 : 7;
    int e = code >> bits, fraction = code & ((1 << bits) - 1);
    return e ? ldexp(1 + ldexp(fraction, -bits), e - bias) : ldexp(fraction, 1 - bias - bits);
}

/* Codes up to the largest number are in the order of their values; of two that are as near, the
 * even one; beyond the largest, the largest. */
static double nearest(double x, bool e5m2)
{
    int best = 0, last = e5m2 ? 0x7b : 0x7e;
    if (x >= decode(last, e5m2)) return decode(last, e5m2);
    for (int c = 1; c <= last; c++) {
        double now = fabs(decode(c, e5m2) - x), then = fabs(decode(best, e5m2) - x);
        if (now < then || (now == then && c % 2 == 0)) best = c;
    }
    return decode(best, e5m2);
}

static void check_round(float x, bool e5m2)
{
    float got = sk_fp8_round(x, e5m2);
    double want = copysign(nearest(fabs((double)x), e5m2), x);
    expect(got == (float)want && !signbit(got) == !signbit(x), e5m2 ? "e5m2" : "e4m3", x, got);
}

static void rounding(bool e5m2)
{
    int last = e5m2 ? 0x7b : 0x7e;
    expect(decode(last, e5m2) == (double)sk_fp8_most(e5m2), "the largest", last, 0);
    for (int c = 0; c <= last; c++) {
        float x = (float)decode(c, e5m2), half = (float)(decode(c + 1, e5m2) + x) / 2;
        const float near[] = {x,    nextafterf(x, INFINITY),    nextafterf(x, 0),
                              half, nextafterf(half, INFINITY), nextafterf(half, 0)};
        for (int i = 0; i < 12; i++) check_round(i % 2 ? -near[i / 2] : near[i / 2], e5m2);
    }
    for (uint64_t i = 0; i < 20000; i++) {
        double u = sk_rng_uniform(1, e5m2, i), v = sk_rng_uniform(2, e5m2, i);
        check_round((float)ldexp(2 * u - 1, (int)(v * 44) - 25), e5m2);
    }
    check_round(1e30F, e5m2);
    check_round(-INFINITY, e5m2);
    expect(isnan(sk_fp8_round(NAN, e5m2)), "NaN", 0, sk_fp8_round(NAN, e5m2));
}

static void scales(bool e5m2)
{
    for (int e = -140; e < 128; e++) {
        float amax = ldexpf(1.37F, e), most = sk_fp8_most(e5m2);
        sk_fp8_scale s = sk_fp8_scale_of(amax, e5m2);
        float x = sk_fp8_round(amax * s.up, e5m2) * s.down;
        expect(isfinite(s.up) && s.up > 0 && s.down > 0, "scale", amax, s.up);
        if (e >= -100) expect(fabsf(x / amax - 1) < 1e-6F, "the largest element", amax, x);
        else expect(x <= amax * 2 && amax * s.up <= most, "a tiny tensor", amax, x);
    }
    sk_fp8_scale zero = sk_fp8_scale_of(0, e5m2), inf = sk_fp8_scale_of(INFINITY, e5m2);
    expect(sk_fp8_round(0 * zero.up, e5m2) * zero.down == 0, "zeros", 0, 0);
    expect(isnan(sk_fp8_round(INFINITY * inf.up, e5m2) * inf.down), "infinity", INFINITY, 0);
    expect(isnan(sk_fp8_round(1 * inf.up, e5m2) * inf.down), "beside infinity", 1, 0);
}

/* ---- contract */

enum { M = 5, K = 37, N = 11 };

static sk_view view(float *data, int64_t rows, int64_t cols)
{
    sk_view v = {.data = data, .type = SK_F32, .n = 2, .size = {rows, cols}, .full = {rows, cols}};
    sk_view_dense(&v);
    return v;
}

static void run(sk_args *a)
{
    const sk_op *op = sk_op_find("contract");
    a->scratch = malloc(op->scratch(a) + 64);
    op->cpu(a);
    free(a->scratch);
}

static void round_all(float *x, int n, bool e5m2)
{
    float most = 0;
    for (int i = 0; i < n; i++) most = fmaxf(most, fabsf(x[i]));
    sk_fp8_scale s = sk_fp8_scale_of(most, e5m2);
    for (int i = 0; i < n; i++) x[i] = sk_fp8_round(x[i] * s.up, e5m2) * s.down;
}

static void contraction(int gradient)
{
    static float a[M * K], b[K * N], got[M * N], want[M * N];
    for (int i = 0; i < M * K; i++) a[i] = (float)sk_rng_uniform(3, 1, (uint64_t)i) - 0.5F;
    for (int i = 0; i < K * N; i++) b[i] = 1e-6F * (float)sk_rng_uniform(3, 2, (uint64_t)i);
    sk_args x = {.n_in = 2, .n_out = 1, .dims = "mk,kn->mn", .of = 1, .attr = {1, gradient}};
    x.in[0] = view(a, M, K), x.in[1] = view(b, K, N), x.out[0] = view(got, M, N);
    run(&x);
    round_all(a, M * K, gradient == 1);
    round_all(b, K * N, gradient == 2);
    x.attr[0] = x.attr[1] = 0;
    x.out[0].data = want;
    run(&x);
    for (int i = 0; i < M * N; i++) expect(got[i] == want[i], "contract", want[i], got[i]);
}

/* ---- which products are taken so, and their gradients */

static void marks(void)
{
    sk_arena arena = {0};
    sk_graph g;
    sk_graph_init(&g, &arena);
    sk_graph_size(&g, 'b', 2);
    sk_graph_size(&g, 'c', 4);
    sk_graph_size(&g, 'f', 6);
    sk_graph_size(&g, 'v', 7);
    sk_tensor *x = sk_contract(&g, "bv,vc->bc", sk_input(&g, "x", "bv", SK_F32),
                               sk_param(&g, "first", "vc", 1));
    g.layer = 1;
    sk_tensor *y = sk_contract(&g, "bc,cf->bf", x, sk_param(&g, "w", "cf", 1));
    g.layer = 2;
    sk_tensor *z = sk_contract(&g, "bf,fv->bv", y, sk_param(&g, "head", "fv", 1));
    sk_tensor *dy = sk_input(&g, "dy", "bf", SK_F32), *d[SK_MAX_OUT] = {dy}, *dx[SK_MAX_IN] = {0};
    int n = sk_graph_fp8(&g);
    expect(n == 1 && y->from->attr[0] == 1 && y->from->attr[1] == 0, "marked", 1, n);
    expect(x->from->attr[0] == 0 && z->from->attr[0] == 0, "left alone", 0, x->from->attr[0]);
    y->from->op->grad(&g, y->from, d, dx);
    for (int i = 0; i < 2 && !g.status; i++) {
        const sk_node *m = dx[i]->from;
        expect(m->attr[0] == 1 && m->attr[1] > 0 && m->in[(int)m->attr[1] - 1] == dy, "gradient", i,
               m->attr[1]);
    }
    expect(!g.status, "status", 0, g.status);
    sk_arena_end(&arena);
}

/* ---- the workspace of a GPU */

/* cuBLASLt wants each scale on 16 bytes. */
static void scale_places(const sk_args *a)
{
    static _Alignas(SK_FP8_LINE) char workspace[SK_FP8_LINE];
    sk_fp8_plan f;
    sk_args x = *a;
    x.out[0].data = NULL;
    sk_fp8_plan_of(&x, false, &f);
    sk_product p = sk_fp8_product(&x, &f, workspace);
    const char *of_a = (const char *)p.a_scale, *of_b = (const char *)p.b_scale;
    expect((uintptr_t)of_a % 16 == 0 && (uintptr_t)of_b % 16 == 0 && of_a != of_b, "places", 0, 0);
    expect(of_a >= workspace && of_b >= workspace && of_a < workspace + sizeof workspace &&
               of_b < workspace + sizeof workspace,
           "first line", 0, 0);
}

static void workspaces(void)
{
    static const struct {
        int64_t m, k, n;
        bool eight;
    } of[] = {{64, 48, 32, true}, {64, 50, 32, true}, {60, 48, 32, false}, {64, 48, 30, false}};
    for (int i = 0; i < 4; i++) {
        sk_args x = {.n_in = 2, .n_out = 1, .dims = "mk,kn->mn", .of = 1, .attr = {1}};
        sk_fp8_plan f, wide;
        x.in[0] = view(NULL, of[i].m, of[i].k), x.in[1] = view(NULL, of[i].k, of[i].n);
        x.out[0] = view(NULL, of[i].m, of[i].n);
        x.in[0].type = x.in[1].type = x.out[0].type = SK_BF16;
        sk_fp8_plan_of(&x, false, &f);
        sk_fp8_plan_of(&x, true, &wide);
        int64_t k = of[i].eight ? (of[i].k + 15) / 16 * 16 : 2 * of[i].k;
        size_t need = (size_t)((of[i].m + of[i].n) * k);
        expect(f.eight == of[i].eight, "in 8 bits", (double)of[i].m, f.eight);
        expect(sk_fp8_workspace(&x) == wide.bytes && f.bytes % SK_FP8_LINE == 0, "workspace", 0, 0);
        expect(!wide.eight && wide.type == SK_BF16 && wide.bytes >= f.bytes, "either", 0, 0);
        expect(f.bytes >= need && f.bytes < need + 8192, "bytes", (double)need, (double)f.bytes);
        expect(f.at[1] >= f.at[0] + (size_t)(of[i].m * k), "apart", 0, (double)f.at[1]);
        x.out[0].data = (void *)(uintptr_t)2; /* off alignment */
        sk_fp8_plan_of(&x, false, &f);
        expect(!f.eight && f.bytes == wide.bytes, "not aligned", 0, f.eight);
        scale_places(&x);
        x.attr[0] = 0;
        expect(!sk_fp8_workspace(&x), "no workspace", 0, 0);
    }
}

int main(void)
{
    for (int e5m2 = 0; e5m2 < 2; e5m2++) {
        rounding(e5m2);
        scales(e5m2);
    }
    for (int gradient = 0; gradient < 3; gradient++) contraction(gradient);
    marks();
    workspaces();
    printf("fp8: %d checks, %d bad\n", n_checks, n_bad);
    return n_bad != 0;
}
