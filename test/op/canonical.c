/* Canonical order, op by op: the same bits however the operands are cut and however many threads.
 *
 * Every op of parts, by its own samples, is cut along every letter that it lets be cut, into 2 to 5
 * parts as base/reduction_blocks.h deals them.  Results that have the letter must be the slices of
 * the whole; those that have summed it away, added up in the order of coll/call.h's tree, must be
 * the whole.  A result whose first missing letter is another one is not cut there by the engine:
 * such cases are counted as left out.  The whole itself must be what fast order gives, to rounding.
 * Operands start at odd addresses, each at another, so that bits which depend on where vectors
 * begin show up; some numbers are -0, which a sum with a part of nothing would turn into 0.
 * Samples that are coarse are left out: a piece has a scale of its own.
 *
 *     op_canonical [cuda [OP...]]
 *
 * cuda: the GPU halves, on operands that start at 256 bytes, and with some larger shapes.  There
 * the whole must be near to what the CPU has in canonical order, and for ops that follow its recipe
 * to the letter the same. */
#include "base/entry.h"
#include "graph/dims.h"
#include "graph/graph.h"
#include "kernel/kernel_launch.h"
#include "base/rng.h"
#include "device/device.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

enum { MOST_PARTS = 5, STEP = 5, ALIGN = 256 };

typedef struct trial {
    sk_arena arena;
    sk_graph g;
    const sk_op *op;
    const sk_sample *s;
    sk_node *y;
    sk_args given; /* operands and canonical results, whole */
} trial;

static int n_cases, n_wrong, n_left_out, n_turns;

static struct {
    sk_device *d; /* NULL: the CPU does all */
    sk_stream *s;
    sk_launch l;
    char *base; /* where operands lie */
    size_t bytes;
} gpu;

static void complain(const trial *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void complain(const trial *t, const char *fmt, ...)
{
    va_list ap;
    n_wrong++;
    printf("%s", t->op->name);
    for (int i = 0; i < t->op->n_in; i++) printf("%s%s", i ? ", " : " of ", t->s->in[i]);
    printf(" %s: ", t->y ? t->y->dims : "");
    va_start(ap, fmt);
    vprintf(fmt, ap);
    va_end(ap);
    printf("\n");
}

/* ---- views */

/* Room for a view, filled with NaN. */
static void place(trial *t, sk_view *v)
{
    size_t bytes = (size_t)sk_count(v) * sizeof(float);
    v->data = (char *)sk_alloc(&t->arena, bytes + 64) + 4 * (n_turns++ % 16);
    memset(v->data, 0xff, bytes);
}

static sk_view copy_of(trial *t, const sk_view *v)
{
    sk_view c = *v;
    place(t, &c);
    memcpy(c.data, v->data, (size_t)sk_count(v) * sizeof(float));
    return c;
}

static sk_view view_of(trial *t, const sk_tensor *x, int cells)
{
    sk_shape s = sk_tensor_shape(&t->g, x);
    sk_view v = {.type = x->type == SK_I32 ? SK_I32 : SK_F32, .n = s.n};
    for (int i = 0; i < s.n; i++) {
        v.size[i] = v.full[i] = s.d[i];
        v.cells[i] = (uint8_t)sk_reduction_blocks(s.d[i], cells);
    }
    sk_view_dense(&v);
    place(t, &v);
    return v;
}

static void fill(const sk_view *v, const char *text, bool positive, uint64_t stream)
{
    const char *range = strchr(text, '%');
    for (int64_t i = 0; i < sk_count(v); i++) {
        double u = sk_rng_uniform(1, stream, (uint64_t)i);
        if (v->type == SK_I32) ((int32_t *)v->data)[i] = (int32_t)(u * atof(range + 1));
        else if (positive) ((float *)v->data)[i] = (float)(0.5 + u);
        else ((float *)v->data)[i] = i % 7 == 3 ? -0.0f : (float)(2 * u - 1);
    }
}

/* The engine does not cut along a letter that somebody needs whole: that is no matter of order. */
static bool far_somewhere(const sk_node *n, char letter)
{
    unsigned far = 0;
    for (int i = 0; i < n->n_in; i++) far |= n->gathered_in[i];
    for (int o = 0; o < n->n_out; o++) far |= n->gathered_out[o];
    return far && letter == 't';
}

/* The dim of this operand that is cut with the letter; -1: none.  A dim marked '^' stays whole. */
static int cut_dim(const char *letters, uint8_t far, char letter)
{
    const char *p = strchr(letters, letter);
    return p && !(far >> (p - letters) & 1) ? (int)(p - letters) : -1;
}

/* Cells [from, to) of dim k; the whole for k = -1. */
static sk_view slice(trial *t, const sk_view *v, int k, int from, int to)
{
    if (k < 0) return copy_of(t, v);
    sk_view p = *v;
    int64_t inner = sk_span(v, k + 1, v->n) * (int64_t)sizeof(float);
    p.at[k] = v->full[k] * from / v->cells[k];
    p.size[k] = v->full[k] * to / v->cells[k] - p.at[k];
    sk_view_dense(&p);
    place(t, &p);
    for (int64_t o = 0; o < sk_span(v, 0, k); o++)
        memcpy((char *)p.data + o * p.size[k] * inner,
               (char *)v->data + (o * v->size[k] + p.at[k]) * inner, (size_t)(p.size[k] * inner));
    return p;
}

/* ---- running and comparing */

/* Fresh operands, results of NaN. */
static sk_args fresh(trial *t)
{
    sk_args a = t->given;
    for (int i = 0; i < a.n_in; i++) a.in[i] = copy_of(t, &t->given.in[i]);
    for (int o = 0; o < a.n_out; o++) place(t, &a.out[o]);
    return a;
}

static void run_cpu(trial *t, sk_args *a, int threads)
{
    size_t bytes = sk_op_scratch(t->op, a);
    a->scratch = sk_alloc(&t->arena, bytes + 1);
    for (int part = 0; part < threads; part++) {
        a->part = part;
        a->of = threads;
        memset(a->scratch, 0xff, bytes);
        sk_op_run_cpu(t->op, a);
    }
}

static size_t bytes_of(const sk_view *v) { return (size_t)sk_count(v) * sk_dtype_size(v->type); }

/* A place on the device; what lies in one place on the host does so there. */
static void lay_out(sk_args *a, size_t *bytes)
{
    void *was[SK_MAX_IN];
    for (int i = 0; i < a->n_in + a->n_out; i++) {
        int o = i - a->n_in, at = 0;
        sk_view *v = o < 0 ? &a->in[i] : &a->out[o];
        while (o >= 0 && at < a->n_in && was[at] != v->data) at++;
        if (o < 0) was[i] = v->data;
        if (o >= 0 && at < a->n_in) {
            v->data = a->in[at].data;
            continue;
        }
        v->data = gpu.base + *bytes;
        *bytes += (bytes_of(v) + 2 * ALIGN - 1) / ALIGN * ALIGN;
    }
}

static sk_status more_memory(size_t bytes, size_t room)
{
    if (bytes > gpu.bytes) {
        if (gpu.base) sk_pool_close(gpu.d, gpu.base);
        gpu.bytes = 2 * bytes;
        SK_TRY(sk_pool_open(gpu.d, gpu.bytes, (void **)&gpu.base));
    }
    if (room <= gpu.l.workspace_bytes) return SK_OK;
    gpu.l.workspace_bytes = room;
    return sk_pool_open(gpu.d, room, (void **)&gpu.l.workspace);
}

static sk_status run_there(const trial *t, const sk_args *a)
{
    sk_args there = *a;
    size_t bytes = 0;
    lay_out(&there, &bytes);
    SK_TRY(more_memory(bytes, SK_WORKSPACE + (t->op->workspace ? t->op->workspace(a) : 0)));
    there = *a, bytes = 0;
    lay_out(&there, &bytes);
    for (int i = 0; i < a->n_in; i++)
        SK_TRY(sk_device_copy(gpu.d, there.in[i].data, a->in[i].data, bytes_of(&a->in[i]), gpu.s));
    for (int o = 0; o < a->n_out; o++)
        SK_TRY(
            sk_device_copy(gpu.d, there.out[o].data, a->out[o].data, bytes_of(&a->out[o]), gpu.s));
    SK_TRY(sk_kernel_find(t->op->name)->launch(&there, &gpu.l));
    for (int o = 0; o < a->n_out; o++)
        SK_TRY(
            sk_device_copy(gpu.d, a->out[o].data, there.out[o].data, bytes_of(&a->out[o]), gpu.s));
    return sk_stream_sync(gpu.d, gpu.s);
}

static void run(trial *t, sk_args *a, int threads)
{
    if (!gpu.d) run_cpu(t, a, threads);
    else if (run_there(t, a)) complain(t, "%s", sk_error_line());
}

static void same(const trial *t, const sk_view *got, const sk_view *want, const char *what)
{
    const float *g = got->data, *w = want->data;
    n_cases++;
    for (int64_t i = 0; i < sk_count(want); i++) {
        if (!memcmp(g + i, w + i, sizeof *g)) continue;
        complain(t, "%s: element %" PRId64 " of %" PRId64 " is %a, %a is right", what, i,
                 sk_count(want), (double)g[i], (double)w[i]);
        return;
    }
}

static void all_same(const trial *t, const sk_args *a, const char *what)
{
    for (int o = 0; o < a->n_out; o++) same(t, &a->out[o], &t->given.out[o], what);
}

/* Does the GPU half follow the CPU's recipe to the letter? */
static bool same_as_cpu(const sk_op *op)
{
    static const char *const names[] = {"contract", "sum", "embedding_grad"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(op->name, names[i])) return true;
    return false;
}

/* Canonical order changes only the rounding, and so does the GPU. */
static void near_other(trial *t)
{
    sk_args a = fresh(t);
    const char *who = gpu.d ? "on the CPU" : "in fast order";
    for (int i = 0; i < a.n_in && !gpu.d; i++) memset(a.in[i].cells, 0, sizeof a.in[i].cells);
    for (int o = 0; o < a.n_out && !gpu.d; o++) memset(a.out[o].cells, 0, sizeof a.out[o].cells);
    run_cpu(t, &a, 1);
    for (int o = 0; o < a.n_out && gpu.d && same_as_cpu(t->op); o++)
        same(t, &t->given.out[o], &a.out[o], "against the CPU");
    for (int o = 0; o < a.n_out; o++) {
        const float *g = t->given.out[o].data, *w = a.out[o].data;
        n_cases++;
        for (int64_t i = 0; i < sk_count(&a.out[o]); i++) {
            if (g[i] == w[i] || fabsf(g[i] - w[i]) <= 3e-5f * (1 + fabsf(w[i]))) continue;
            complain(t, "element %" PRId64 " is %g, %s %g", i, (double)g[i], who, (double)w[i]);
            break;
        }
    }
}

/* ---- building */

static void declare(trial *t, sk_call *call)
{
    char letters[SK_MAX_DIM + 1];
    int64_t size[SK_MAX_DIM];
    const sk_sample *s = t->s;
    if (s->fresh) {
        sk_assert(sk_dims_sample(s->fresh, letters, size));
        for (int k = 0; letters[k]; k++) sk_graph_size(&t->g, letters[k], size[k]);
    }
    for (int i = 0; i < t->op->n_in; i++) {
        sk_assert(sk_dims_sample(s->in[i], letters, size));
        for (int k = 0; letters[k]; k++) sk_graph_size(&t->g, letters[k], size[k]);
        call->in[i] = sk_input(&t->g, sk_print(&t->arena, "x%d", i), letters,
                               strchr(s->in[i], '%') ? SK_I32 : SK_F32);
    }
}

static bool build(trial *t, const sk_op *op, const sk_sample *s, int cells)
{
    sk_call call = {.dims = s->dims};
    *t = (trial){.op = op, .s = s};
    sk_graph_init(&t->g, &t->arena);
    memcpy(call.attr, s->attr, sizeof call.attr);
    declare(t, &call);
    sk_node *y = sk_apply_at(&t->g, SK_HERE, op->name, call);
    n_cases++;
    if (sk_graph_status(&t->g)) {
        complain(t, "%s", sk_error_line());
        return false;
    }
    t->y = y;
    t->given =
        (sk_args){.n_in = y->n_in, .n_out = y->n_out, .dims = y->dims, .seed = 11, .stream = STEP};
    memcpy(t->given.attr, y->attr, sizeof y->attr);
    for (int i = 0; i < y->n_in; i++) {
        t->given.in[i] = view_of(t, y->in[i], cells);
        fill(&t->given.in[i], s->in[i], s->positive, (uint64_t)i);
    }
    for (int o = 0; o < y->n_out; o++) t->given.out[o] = view_of(t, y->out[o], cells);
    sk_args a = fresh(t);
    run(t, &a, 1);
    memcpy(t->given.out, a.out, sizeof a.out);
    return true;
}

/* ---- cuts */

/* The letter over whose cells result o is summed: the first of the operands that it lacks. */
static char summed(const sk_node *y, int o)
{
    for (int i = 0; i < y->n_in; i++)
        for (const char *p = y->letters_in[i]; *p; p++)
            if (cut_dim(y->letters_out[o], y->gathered_out[o], *p) < 0) return *p;
    return 0;
}

/* Add parts up in part 0, in the order of coll/call.h's tree. */
static void combine(sk_view *part, int n, bool largest)
{
    int left = 1;
    if (n == 1) return;
    while (2 * left < n) left *= 2;
    combine(part, left, largest);
    combine(part + left, n - left, largest);
    float *x = part->data, *y = part[left].data;
    for (int64_t i = 0; i < sk_count(part); i++)
        x[i] = largest ? y[i] > x[i] ? y[i] : x[i] : x[i] + y[i];
}

/* Part k of n along the letter: run it, and keep its results. */
static void one_part(trial *t, char letter, int k, int n, sk_view *results)
{
    const sk_node *y = t->y;
    sk_args a = t->given;
    sk_view want[SK_MAX_OUT];
    char what[40];
    int from = 0, to = 1;
    for (int i = 0; i < y->n_in + y->n_out; i++) { /* all have the same number of cells */
        int o = i - y->n_in, d = cut_dim(o < 0 ? y->letters_in[i] : y->letters_out[o],
                                         o < 0 ? y->gathered_in[i] : y->gathered_out[o], letter);
        if (d >= 0) to = o < 0 ? a.in[i].cells[d] : a.out[o].cells[d];
    }
    sk_tree_part(&from, &to, k, n);
    for (int i = 0; i < y->n_in; i++)
        a.in[i] = slice(t, &t->given.in[i], cut_dim(y->letters_in[i], y->gathered_in[i], letter),
                        from, to);
    for (int o = 0; o < y->n_out; o++) {
        int d = cut_dim(y->letters_out[o], y->gathered_out[o], letter);
        a.out[o] = want[o] = slice(t, &t->given.out[o], d, from, to);
        place(t, &a.out[o]);
    }
    run(t, &a, 1 + k % 3);
    snprintf(what, sizeof what, "part %d of %d along %c", k, n, letter);
    for (int o = 0; o < y->n_out; o++) {
        results[o] = a.out[o];
        if (cut_dim(y->letters_out[o], y->gathered_out[o], letter) >= 0)
            same(t, &a.out[o], &want[o], what);
    }
}

static void cut(trial *t, char letter, int n)
{
    const sk_node *y = t->y;
    sk_view results[MOST_PARTS][SK_MAX_OUT], part[MOST_PARTS];
    char what[40];
    snprintf(what, sizeof what, "the sum of %d parts along %c", n, letter);
    for (int k = 0; k < n; k++) one_part(t, letter, k, n, results[k]);
    for (int o = 0; o < y->n_out; o++) {
        if (cut_dim(y->letters_out[o], y->gathered_out[o], letter) >= 0) continue;
        if (summed(y, o) != letter && !(t->op->flags & SK_OP_MAX)) {
            n_left_out++;
            continue;
        }
        for (int k = 0; k < n; k++) part[k] = results[k][o];
        combine(part, n, t->op->flags & SK_OP_MAX);
        same(t, part, &t->given.out[o], what);
    }
}

static void cuts(trial *t)
{
    const sk_node *y = t->y;
    char seen[128] = "";
    for (int i = 0; i < y->n_in + y->n_out; i++) {
        const char *p = i < y->n_in ? y->letters_in[i] : y->letters_out[i - y->n_in];
        for (; *p; p++) {
            if (strchr(seen, *p) || strchr(y->not_split, *p) || far_somewhere(y, *p)) continue;
            seen[strlen(seen)] = *p;
            for (int n = 2; n <= MOST_PARTS; n++) cut(t, *p, n);
        }
    }
}

/* ---- threads, adding, memory */

static void threads(trial *t)
{
    for (int n = 1; n <= 3; n += 2) {
        sk_args a = fresh(t);
        run(t, &a, n);
        all_same(t, &a, n == 1 ? "once more" : "three threads");
    }
}

/* To what is there, the finished sum is added: one rounding. */
static void adding(trial *t)
{
    if (far_somewhere(t->y, 't')) return; /* they blend, around a ring */
    for (int n = 1; n <= 3; n += 2) {
        sk_args a = fresh(t);
        sk_view want[SK_MAX_OUT];
        a.add = (1u << a.n_out) - 1;
        for (int o = 0; o < a.n_out; o++) {
            fill(&a.out[o], "", true, (uint64_t)(200 + o));
            want[o] = copy_of(t, &a.out[o]);
            float *w = want[o].data, *y = t->given.out[o].data;
            for (int64_t i = 0; i < sk_count(&want[o]); i++) w[i] += y[i];
        }
        run(t, &a, n);
        for (int o = 0; o < a.n_out; o++) same(t, &a.out[o], &want[o], "adding to what is there");
    }
}

static void reuse(trial *t, int i)
{
    sk_args a = fresh(t);
    a.out[0].data = a.in[i].data;
    run(t, &a, 2);
    all_same(t, &a, "result in an operand's memory");
}

static void one_sample(const sk_op *op, const sk_sample *s, int cells)
{
    trial t;
    if (build(&t, op, s, cells)) {
        near_other(&t);
        cuts(&t);
        threads(&t);
        if (op->flags & SK_OP_ADDS) adding(&t);
        for (int i = 0; i < op->n_in; i++)
            if (op->reuse >> i & 1) reuse(&t, i);
    }
    sk_arena_end(&t.arena);
}

static void one_op(const sk_op *op)
{
    for (const sk_sample *s = op->samples; s->in[0]; s++)
        for (int cells = 4; cells <= SK_REDUCTION_BLOCKS_MAX && !s->coarse; cells *= 4)
            one_sample(op, s, cells);
}

/* ---- on a GPU */

/* Several tiles, strips and rounds of the kernels; widths that are no multiple of anything. */
static const struct {
    const char *op;
    sk_sample s;
} large[] = {
    {"contract", {.in = {"b4t64c96", "c96f160"}, .dims = "btc,cf->btf"}},
    {"contract", {.in = {"b4t64f160", "c96f160"}, .dims = "btf,cf->btc"}},
    {"contract", {.in = {"b4t64c96", "b4t64f160"}, .dims = "btc,btf->cf"}},
    {"contract", {.in = {"b16t150c5", "b16t150f7"}, .dims = "btc,btf->cf"}}, /* few results */
    {"contract", {.in = {"m70k300", "k300n33"}, .dims = "mk,kn->mn"}},
    {"contract", {.in = {"m200k41", "k41n90"}, .dims = "mk,kn->nm"}},
    {"contract", {.in = {"k5000", "k5000"}, .dims = "k,k->"}},
    {"contract", {.in = {"b2h3q70d40", "b2h3k90d40"}, .dims = "bhqd,bhkd->bhqk"}},
    {"contract", {.in = {"m40k6l50", "l50k6n30"}, .dims = "mkl,lkn->mn"}}, /* the odometer's */
    {"sum", {.in = {"b50t60c70"}, .dims = "btc->c"}},
    {"sum", {.in = {"b50t60c70"}, .dims = "btc->bc"}},
    {"rmsnorm_grad_w", {.in = {"b50t60c70", "b50t60", "b50t60c70"}}},
    {"layernorm_grad_w", {.in = {"b50t60c70", "b50t60", "b50t60", "b50t60c70"}}},
    {"layernorm_grad_x", {.in = {"b9t7c640", "c640", "b9t7", "b9t7", "b9t7c640"}}},
    {"embedding_grad",
     {.in = {"b700t33c40", "b700t33%600"}, .dims = "btc,bt->vc", .fresh = "v600"}},
    {"xent_terms", {.in = {"b3t5v5000", "b3t5", "b3t5%5000"}}},
    {"xent_terms_grad", {.in = {"b3t5v5001", "b3t5", "b3t5%5001", "b3t5", "b3t5"}}},
    {"xent_terms", {.in = {"b3t5v5000", "b3t5", "b3t5%5000"}, .attr = {0.1}}},
    {"xent_terms", {.in = {"b3t5v77", "b3t5", "b3t5%77"}, .attr = {0.1}}},
    {"xent_terms_grad", {.in = {"b3t5v5001", "b3t5", "b3t5%5001", "b3t5", "b3t5"}, .attr = {0.1}}},
    {"xent_z_grad", {.in = {"b67t50", "b67t50", "", "b67t50"}, .positive = true, .attr = {0.1}}},
    {"xent_loss", {.in = {"b67t50", "b67t50", "b67t50", "b67t50"}, .positive = true, .attr = {1}}},
    {"xent_loss", {.in = {"b67t50", "b67t50", "b67t50", "b67t50"}, .positive = true}},
    {"softmax", {.in = {"b3t7s1333"}, .attr = {1}}},
    {"softmax_grad", {.in = {"b3t7s1333", "b3t7s1333"}, .attr = {1}}},
    {"swiglu_grad", {.in = {"b3t50f333", "b3t50f333", "b3t50f333"}}},
    {"bias_gelu_grad", {.in = {"b3t50f333", "f333", "b3t50f333"}}},
    {"combine", {.in = {"e16b3x20c300", "b3t40k4%330", "b3t40k4"}}},
    {"balance", {.in = {"b9t200e16"}, .attr = {0.01}}},
    {"balance", {.in = {"b700t100e3"}, .attr = {0.01}}},
    {"attention", {.in = {"b3t150h3s4d40"}}},
    {"attention_grad", {.in = {"b3t150h3s4d40", "b3t150h3r2d40", "b3h3r2t150", "b3t150h3r2d40"}}},
};

static bool asked(const char *op, char **names)
{
    bool any = !*names;
    for (; *names; names++) any = any || !strcmp(op, *names);
    return any;
}

static sk_status open_gpu(void)
{
    static const uint64_t step[2] = {STEP, 0}; /* and updates before it, as ops on the CPU see */
    uint64_t *at;
    SK_TRY(sk_device_open("cuda:0", &gpu.d));
    SK_TRY(sk_stream_open(gpu.d, &gpu.s));
    SK_TRY(sk_pool_open(gpu.d, sizeof step, (void **)&at));
    gpu.l = (sk_launch){.stream = gpu.s, .step = at, .updates = (const int64_t *)at + 1};
    return sk_device_copy(gpu.d, at, step, sizeof step, gpu.s);
}

static void all_on_gpu(char **names)
{
    int n_without = 0;
    for (const sk_op *const *op = sk_op_parts; *op; op++) {
        if (!asked((*op)->name, names)) continue;
        if (sk_kernel_find((*op)->name)) one_op(*op);
        else n_without++, printf("%s has no GPU half\n", (*op)->name);
    }
    for (size_t i = 0; i < sizeof large / sizeof *large; i++)
        for (int cells = 4; cells <= SK_REDUCTION_BLOCKS_MAX && asked(large[i].op, names);
             cells *= 16)
            one_sample(sk_op_find(large[i].op), &large[i].s, cells);
    printf("op_canonical: on a GPU; %d ops have no GPU half\n", n_without);
}

int main(int argc, char **argv)
{
    sk_enter(); /* as runs do: subnormal numbers are zero on both sides */
    bool cuda = argc > 1 && !strcmp(argv[1], "cuda");
    if (cuda) {
        sk_status st = open_gpu();
        if (st) printf("%s\n%s\n", sk_error_line(), st == SK_ECONF ? "no GPU" : "");
        if (st) return st == SK_ECONF ? 77 : 1;
        all_on_gpu(argv + 2);
    } else
        for (const sk_op *const *op = sk_op_parts; *op; op++) one_op(*op);
    printf(
        "op_canonical: %d cases, %d wrong (%d results left out: the engine does not cut there)\n",
        n_cases, n_wrong, n_left_out);
    sk_device_close(gpu.d);
    return n_wrong != 0;
}
