/* Attention on a GPU: our own kernels and cuDNN's, each against the CPU in f32, and against the
 * clock.
 *
 * test/cuda/parts.cu takes the ops through small and odd shapes; here are shapes that go through
 * tensor cores, where probabilities are rounded to bf16 on the way: errors are norms of the
 * difference over norms of the truth, and 1 % is too much.  Every result is made twice and must
 * have the same bits, but for cuDNN's form 1, which promises nothing; cuDNN's are also recorded and
 * played.  Where cuDNN has no plan, the reason is told and nothing is bad: it need not be there.
 *
 * The second table is times of large shapes, also with less workspace for cuDNN's gradient, which
 * then goes in more calls. */
#include "base/rng.h"
#include "kernel/cuda/cudnn_sdpa.h"
#include "kernel/cuda/flash.h"
#include "graph/graph.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <vector>

enum { N_TIMED = 11 };

static int n_checks, n_bad;
static cudaStream_t stream;
static cudaEvent_t from_event, to_event;

static void must(cudaError_t e, const char *what)
{
    if (!e) return;
    printf("%s: %s\n", what, cudaGetErrorString(e));
    exit(1);
}

static void must(sk_status st, const char *what)
{
    if (!st) return;
    printf("%s: %s\n", what, sk_error());
    exit(1);
}

typedef struct sizes {
    int64_t b, t, h, r, d;
    int64_t x() const { return b * t * h * (r + 2) * d; }
    int64_t y() const { return b * t * h * r * d; }
    int64_t rows() const { return b * t * h * r; }
} sizes;

/* Everything of one attention on the device, in the type that is tried. */
typedef struct place {
    sk_dtype type;
    void *x, *y, *dy, *dx;
    float *lse;
    char *workspace;
    size_t workspace_bytes;
} place;

static void *on_device(size_t bytes)
{
    void *p = NULL;
    must(cudaMalloc(&p, bytes ? bytes : 1), "cudaMalloc");
    return p;
}

static place make_place(const sizes *s, sk_dtype type, size_t workspace)
{
    size_t e = sk_dtype_size(type);
    place p = {type, on_device(e * (size_t)s->x()), on_device(e * (size_t)s->y()),
               on_device(e * (size_t)s->y()), on_device(e * (size_t)s->x())};
    p.lse = (float *)on_device(4 * (size_t)s->rows());
    p.workspace = (char *)on_device(workspace);
    p.workspace_bytes = workspace;
    must(cudaMemsetAsync(p.x, 0, e * (size_t)s->x(), stream), "cudaMemsetAsync");
    must(cudaMemsetAsync(p.y, 0, e * (size_t)s->y(), stream), "cudaMemsetAsync");
    must(cudaMemsetAsync(p.dy, 0, e * (size_t)s->y(), stream), "cudaMemsetAsync");
    must(cudaMemsetAsync(p.lse, 0, 4 * (size_t)s->rows(), stream), "cudaMemsetAsync");
    return p;
}

static void drop_place(place *p)
{
    void *all[] = {p->x, p->y, p->dy, p->dx, p->lse, p->workspace};
    for (void *x : all) must(cudaFree(x), "cudaFree");
}

/* ---- the three that are compared; a way returns false where there is none */

typedef struct way {
    const char *name;
    bool cudnn;
    int form;
    size_t workspace; /* the most that cuDNN gets; 0: all there is */
} way;

static sk_flash own_args(const sizes *s, const place *p)
{
    sk_flash f = {};
    sk_view x = {p->x, p->type, 5, {s->b, s->t, s->h, s->r + 2, s->d}}, dx = x;
    dx.data = p->dx;
    f.op = "attention";
    sk_flash_packed(&f, &x);
    f.time = sk_times{0, s->t, 0, s->t, s->t, 0};
    f.q = p->x, f.k = sk_flash_at(&x, s->r * s->d), f.v = sk_flash_at(&x, (s->r + 1) * s->d);
    f.y = p->y, f.lse = sk_any{p->lse, SK_F32}, f.dy = p->dy;
    f.dq = p->dx, f.dk = sk_flash_at(&dx, s->r * s->d), f.dv = sk_flash_at(&dx, (s->r + 1) * s->d);
    return f;
}

static bool run(const way *w, const sizes *s, const place *p, bool backward)
{
    sk_launch l = {stream, p->workspace, p->workspace_bytes, NULL};
    if (!w->cudnn) {
        sk_flash f = own_args(s, p);
        must(backward ? sk_flash_backward(&f, &l) : sk_flash_forward(&f, &l), "our own");
        return true;
    }
    sk_sdpa_shape shape = {p->type, s->b, s->t, s->h, s->r, s->d, backward};
    sk_sdpa_data data = {p->x, p->dy, p->y, p->dx, p->lse};
    setenv("SKEIN_SDPA_FORM", w->form ? "1" : "0", 1);
    sk_sdpa_plan *plan = sk_sdpa_find(&shape, w->workspace ? w->workspace : p->workspace_bytes);
    if (!plan) return false;
    must(sk_sdpa_run(plan, &data, p->workspace, stream), "cuDNN");
    return true;
}

static const char *why_not(const way *w, const sizes *s, const place *p, bool backward)
{
    sk_sdpa_shape shape = {p->type, s->b, s->t, s->h, s->r, s->d, backward};
    setenv("SKEIN_SDPA_FORM", w->form ? "1" : "0", 1);
    return sk_sdpa_reason(&shape);
}

static size_t workspace_of(const way *w, const sizes *s, const place *p, bool backward)
{
    sk_sdpa_shape shape = {p->type, s->b, s->t, s->h, s->r, s->d, backward};
    if (!w->cudnn) return backward ? 8 * (size_t)s->rows() : 0;
    setenv("SKEIN_SDPA_FORM", w->form ? "1" : "0", 1);
    return sk_sdpa_workspace(
        sk_sdpa_find(&shape, w->workspace ? w->workspace : p->workspace_bytes));
}

/* ---- against the CPU */

typedef struct truth {
    std::vector<float> x, y, lse, dy, dx;
} truth;

static sk_view view(std::vector<float> &v, int n, int64_t a, int64_t b, int64_t c, int64_t d,
                    int64_t e)
{
    sk_view w = {v.data(), SK_F32, n, {a, b, c, d, e}};
    for (int i = 0; i < n; i++) w.full[i] = w.size[i];
    sk_view_dense(&w);
    return w;
}

/* Rounded to the type and back. */
static void round_to(std::vector<float> &v, sk_dtype type)
{
    std::vector<char> narrow(v.size() * 4);
    sk_convert(narrow.data(), type, v.data(), SK_F32, (int64_t)v.size());
    sk_convert(v.data(), SK_F32, narrow.data(), type, (int64_t)v.size());
}

static void fill(std::vector<float> &v, sk_dtype type, uint64_t what)
{
    const size_t drawn = 1000003; /* of a large one all is made of these */
    for (size_t i = 0; i < v.size(); i++)
        v[i] = i < drawn ? (float)(4 * sk_rng_uniform(3, what, (uint64_t)i) - 2) : v[i - drawn];
    round_to(v, type);
}

static truth make_truth(const sizes *s, sk_dtype type)
{
    truth t;
    sk_args f = {}, g = {};
    t.x.resize((size_t)s->x()), t.dx.resize((size_t)s->x());
    t.y.resize((size_t)s->y()), t.dy.resize((size_t)s->y()), t.lse.resize((size_t)s->rows());
    fill(t.x, type, 1), fill(t.dy, type, 2);
    f.n_in = 1, f.n_out = 2, f.of = 1;
    f.in[0] = view(t.x, 5, s->b, s->t, s->h, s->r + 2, s->d);
    f.out[0] = view(t.y, 5, s->b, s->t, s->h, s->r, s->d);
    f.out[1] = view(t.lse, 4, s->b, s->h, s->r, s->t, 1);
    std::vector<char> scratch(sk_op_scratch(sk_op_find("attention"), &f) + 1);
    f.scratch = scratch.data();
    sk_op_run_cpu(sk_op_find("attention"), &f);
    std::vector<float> y = t.y;
    round_to(y, type); /* as the gradient will see it */
    g.n_in = 4, g.n_out = 1, g.of = 1;
    g.in[0] = f.in[0], g.in[1] = view(y, 5, s->b, s->t, s->h, s->r, s->d), g.in[2] = f.out[1];
    g.in[3] = view(t.dy, 5, s->b, s->t, s->h, s->r, s->d);
    g.out[0] = view(t.dx, 5, s->b, s->t, s->h, s->r + 2, s->d);
    scratch.resize(sk_op_scratch(sk_op_find("attention_grad"), &g) + 1);
    g.scratch = scratch.data();
    sk_op_run_cpu(sk_op_find("attention_grad"), &g);
    return t;
}

static void put(void *to, sk_dtype type, const std::vector<float> &v)
{
    std::vector<char> bytes(v.size() * sk_dtype_size(type));
    sk_convert(bytes.data(), type, v.data(), SK_F32, (int64_t)v.size());
    must(cudaMemcpyAsync(to, bytes.data(), bytes.size(), cudaMemcpyHostToDevice, stream),
         "cudaMemcpyAsync");
    must(cudaStreamSynchronize(stream), "a copy");
}

static std::vector<char> take(const void *from, size_t bytes)
{
    std::vector<char> v(bytes);
    must(cudaMemcpyAsync(v.data(), from, bytes, cudaMemcpyDeviceToHost, stream), "cudaMemcpyAsync");
    must(cudaStreamSynchronize(stream), "a kernel");
    return v;
}

/* Norm of the difference over the norm; of slots [low, high) of `slots` if there are such. */
static double error(const std::vector<char> &have, sk_dtype type, const std::vector<float> &want,
                    int64_t d, int64_t slots, int64_t low, int64_t high)
{
    std::vector<float> x(want.size());
    double diff = 0, all = 0;
    sk_convert(x.data(), SK_F32, have.data(), type, (int64_t)x.size());
    for (size_t i = 0; i < x.size(); i++) {
        int64_t slot = (int64_t)i / d % slots;
        if (slot < low || slot >= high) continue;
        diff += ((double)x[i] - want[i]) * ((double)x[i] - want[i]);
        all += (double)want[i] * want[i];
    }
    return sqrt(diff / all);
}

static void judge(bool good, const char *what)
{
    n_checks++;
    if (good) return;
    n_bad++;
    printf("   BAD: %s\n", what);
}

/* Recorded and played: the same bits as when called? */
static void record(const way *w, const sizes *s, const place *p, bool backward, const void *out,
                   const std::vector<char> &want)
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    must(cudaMemsetAsync((void *)out, 0xff, want.size(), stream), "cudaMemsetAsync");
    must(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "begin of a recording");
    run(w, s, p, backward);
    must(cudaStreamEndCapture(stream, &graph), "end of a recording");
    must(cudaGraphInstantiate(&exec, graph, 0), "cudaGraphInstantiate");
    must(cudaGraphLaunch(exec, stream), "cudaGraphLaunch");
    if (!w->form) judge(take(out, want.size()) == want, "played, it gave other bits");
    must(cudaGraphExecDestroy(exec), "cudaGraphExecDestroy");
    must(cudaGraphDestroy(graph), "cudaGraphDestroy");
}

static void one_forward(const way *w, const sizes *s, place *p, const truth *t, double worst)
{
    size_t e = sk_dtype_size(p->type), bytes = e * t->y.size();
    must(cudaMemsetAsync(p->y, 0xff, bytes, stream), "cudaMemsetAsync");
    must(cudaMemsetAsync(p->lse, 0xff, 4 * t->lse.size(), stream), "cudaMemsetAsync");
    if (!run(w, s, p, false)) {
        printf("  %-22s forward: none: %s\n", w->name, why_not(w, s, p, false));
        return;
    }
    std::vector<char> y = take(p->y, bytes), lse = take(p->lse, 4 * t->lse.size());
    double a = error(y, p->type, t->y, s->d, 1, 0, 1), b = error(lse, SK_F32, t->lse, 1, 1, 0, 1);
    printf("  %-22s forward: y %.2e  lse %.2e  workspace %zu\n", w->name, a, b,
           workspace_of(w, s, p, false));
    judge(a <= worst && b <= 1e-4, "too far from the CPU");
    run(w, s, p, false);
    judge(take(p->y, bytes) == y && take(p->lse, 4 * t->lse.size()) == lse,
          "the second run gave other bits");
    record(w, s, p, false, p->y, y);
}

static void one_backward(const way *w, const sizes *s, place *p, const truth *t, double worst)
{
    size_t bytes = sk_dtype_size(p->type) * t->dx.size();
    int64_t r = s->r;
    put(p->y, p->type, t->y);
    put(p->lse, SK_F32, t->lse);
    must(cudaMemsetAsync(p->dx, 0xff, bytes, stream), "cudaMemsetAsync");
    if (!run(w, s, p, true)) {
        printf("  %-22s backward: none: %s\n", w->name, why_not(w, s, p, true));
        return;
    }
    std::vector<char> dx = take(p->dx, bytes);
    double a = error(dx, p->type, t->dx, s->d, r + 2, 0, r);
    double b = error(dx, p->type, t->dx, s->d, r + 2, r, r + 1);
    double c = error(dx, p->type, t->dx, s->d, r + 2, r + 1, r + 2);
    printf("  %-22s backward: dq %.2e  dk %.2e  dv %.2e  workspace %zu\n", w->name, a, b, c,
           workspace_of(w, s, p, true));
    judge(a <= worst && b <= worst && c <= worst, "too far from the CPU");
    bool same = true;
    for (int i = 0; i < 5; i++) {
        run(w, s, p, true);
        same = same && take(p->dx, bytes) == dx;
    }
    if (w->form) printf("  %-22s five more runs gave %s bits\n", "", same ? "the same" : "other");
    else judge(same, "another run gave other bits");
    record(w, s, p, true, p->dx, dx);
}

static void compare(const sizes *s, sk_dtype type)
{
    static const way ways[] = {{"our own", false, 0, 0},
                               {"cuDNN", true, 0, 0},
                               {"cuDNN, little workspace", true, 0, 3 << 20},
                               {"cuDNN, form 1", true, 1, 0}};
    truth t = make_truth(s, type);
    place p = make_place(s, type, (size_t)512 << 20);
    put(p.x, type, t.x);
    put(p.dy, type, t.dy);
    printf("b%lld t%lld h%lld r%lld d%lld %s\n", (long long)s->b, (long long)s->t, (long long)s->h,
           (long long)s->r, (long long)s->d, sk_dtype_name(type));
    for (const way &w : ways) {
        if (w.cudnn && type == SK_F32) continue;
        double worst = type == SK_F32 ? 1e-5 : 1e-2;
        if (w.form == 0 && !w.workspace) one_forward(&w, s, &p, &t, worst);
        one_backward(&w, s, &p, &t, worst);
    }
    fflush(stdout);
    drop_place(&p);
}

/* ---- against the clock */

static int by_size(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* Median milliseconds; below 0: there is no such way. */
static double clock_of(const way *w, const sizes *s, const place *p, bool backward)
{
    float ms[N_TIMED];
    if (!run(w, s, p, backward)) return -1;
    for (int i = 0; i < N_TIMED; i++) {
        must(cudaEventRecord(from_event, stream), "cudaEventRecord");
        run(w, s, p, backward);
        must(cudaEventRecord(to_event, stream), "cudaEventRecord");
        must(cudaStreamSynchronize(stream), "a kernel");
        must(cudaEventElapsedTime(&ms[i], from_event, to_event), "cudaEventElapsedTime");
    }
    qsort(ms, N_TIMED, sizeof *ms, by_size);
    return ms[N_TIMED / 2];
}

static void line(const way *w, const sizes *s, const place *p, bool backward)
{
    double pairs = (double)s->t * (double)(s->t + 1) / 2;
    double flops = (backward ? 10 : 4) * pairs * (double)(s->b * s->h * s->r * s->d);
    double ms = clock_of(w, s, p, backward);
    if (ms < 0)
        printf("  %-22s %-8s none: %s\n", w->name, backward ? "backward" : "forward",
               why_not(w, s, p, backward));
    else
        printf("  %-22s %-8s %8.3f ms %7.1f TFLOP/s  workspace %zu\n", w->name,
               backward ? "backward" : "forward", ms, 1e-9 * flops / ms,
               workspace_of(w, s, p, backward));
}

static void race(const sizes *s, sk_dtype type)
{
    static const way ways[] = {{"our own", false, 0, 0},
                               {"cuDNN", true, 0, 0},
                               {"cuDNN, 576 MiB", true, 0, (size_t)576 << 20},
                               {"cuDNN, 256 MiB", true, 0, (size_t)256 << 20},
                               {"cuDNN, 64 MiB", true, 0, (size_t)64 << 20},
                               {"cuDNN, 32 MiB", true, 0, (size_t)32 << 20},
                               {"cuDNN, form 1", true, 1, 0}};
    place p = make_place(s, type, (size_t)9 << 30);
    std::vector<float> some((size_t)s->x()); /* numbers as they are in a model: power matters */
    fill(some, type, 1);
    put(p.x, type, some);
    some.resize((size_t)s->y());
    put(p.dy, type, some);
    printf("b%lld t%lld h%lld r%lld d%lld %s\n", (long long)s->b, (long long)s->t, (long long)s->h,
           (long long)s->r, (long long)s->d, sk_dtype_name(type));
    for (const way &w : ways) {
        if (w.cudnn && type == SK_F32) continue;
        if (!w.form && !w.workspace) line(&w, s, &p, false);
        line(&w, s, &p, true);
    }
    fflush(stdout);
    drop_place(&p);
}

int main(void)
{
    static const sizes small[] = {{2, 128, 2, 1, 64},   {2, 200, 3, 1, 80},  {2, 1024, 12, 1, 64},
                                  {1, 2048, 4, 1, 128}, {2, 512, 2, 4, 128}, {5, 256, 2, 3, 64}};
    static const sizes large[] = {
        {64, 1024, 12, 1, 64}, {16, 1024, 25, 1, 64}, {16, 2048, 16, 1, 128}, {8, 2048, 4, 8, 64},
        {64, 256, 2, 3, 64},   {1, 32768, 4, 1, 64},  {1, 32768, 2, 4, 128}};
    static const sizes wide[] = {{4, 1024, 12, 1, 64}, {2, 2048, 16, 1, 128}};
    int n = 0;
    if (cudaGetDeviceCount(&n) || !n) {
        printf("no GPU\n");
        return 77;
    }
    must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
    must(cudaEventCreate(&from_event), "cudaEventCreate");
    must(cudaEventCreate(&to_event), "cudaEventCreate");
    for (const sizes &s : small) {
        compare(&s, SK_BF16);
        if (s.t < 2048) compare(&s, SK_F16);
        if (s.t < 1024) compare(&s, SK_F32);
    }
    for (const sizes &s : large) race(&s, SK_BF16);
    for (const sizes &s : wide) race(&s, SK_F32);
    printf("attend_cuda: %d checks, %d bad\n", n_checks, n_bad);
    return n_bad != 0;
}
