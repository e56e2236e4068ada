/* Every op in parts, by its own samples: values against the definition where there is one below,
 * gradient against central differences, split against whole along every letter that allows it,
 * threads against one, adding against writing, half-width storage, output in an input's memory.
 *
 * Built twice: in float as skein runs, and with SK_REAL=double, where gradients are checked too.
 * Operands are allocated one by one, results start as NaN: a sanitizer sees a step too far, and
 * the comparison an element left out. */
#include "graph/dims.h"
#include "graph/graph.h"
#include "base/rng.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static const bool is64 = sizeof(real) == 8;
static const double COARSE = 0.15; /* 8 bits have 1/16 to 1/8 of an element at most */
static int n_checks, n_bad;

/* ---- memory: one block each, all given back after a sample */

static struct {
    void **v;
    int n, cap;
} blocks;

static void *take(size_t bytes)
{
    if (blocks.n == blocks.cap) {
        blocks.cap = blocks.cap ? 2 * blocks.cap : 64;
        blocks.v = realloc(blocks.v, sizeof *blocks.v * (size_t)blocks.cap);
    }
    void *p = malloc(bytes ? bytes : 1);
    sk_assert(p && blocks.v);
    memset(p, 0xff, bytes); /* NaN in every type */
    return blocks.v[blocks.n++] = p;
}

static void give_back(void)
{
    while (blocks.n) free(blocks.v[--blocks.n]);
}

/* ---- one op on one sample */

typedef struct trial {
    sk_arena arena;
    sk_graph g;
    const sk_op *op;
    const sk_sample *s;
    sk_node *y;
    sk_args given; /* the operands, whole, and the results */
} trial;

static void complain(const trial *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void complain(const trial *t, const char *fmt, ...)
{
    va_list ap;
    n_bad++;
    printf("%s", t->op->name);
    for (int i = 0; i < t->op->n_in; i++) printf("%s%s", i ? ", " : " of ", t->s->in[i]);
    printf(" %s: ", t->y ? t->y->dims : "");
    va_start(ap, fmt);
    vprintf(fmt, ap);
    va_end(ap);
    printf("\n");
}

static double value(const sk_view *v, int64_t i)
{
    double x;
    sk_convert(&x, SK_F64, (char *)v->data + (size_t)i * sk_dtype_size(v->type), v->type, 1);
    return x;
}

static void put(const sk_view *v, int64_t i, double x)
{
    sk_convert((char *)v->data + (size_t)i * sk_dtype_size(v->type), v->type, &x, SK_F64, 1);
}

/* Compare got with want, up to `slack` of the value and of 1. */
static void compare(const trial *t, const sk_view *got, const sk_view *want, double slack,
                    const char *what)
{
    int64_t n = sk_count(want);
    n_checks++;
    for (int64_t i = 0; i < n; i++) {
        double g = value(got, i), w = value(want, i);
        if (g == w || fabs(g - w) <= slack * (1 + fabs(w))) continue;
        complain(t, "%s: element %" PRId64 " of %" PRId64 " is %.9g, %.9g is right", what, i, n, g,
                 w);
        return;
    }
}

/* Compare every step-th element of what was rounded to 8 bits in between: all of them together. */
static void compare_coarse(const trial *t, const sk_view *got, const sk_view *want, int64_t step,
                           const char *what)
{
    double off = 0, all = 0;
    n_checks++;
    for (int64_t i = 0; i < sk_count(want); i += step) {
        double g = value(got, i), w = value(want, i);
        off += (g - w) * (g - w);
        all += w * w;
    }
    if (!(off <= COARSE * COARSE * all))
        complain(t, "%s: off by %.3g of the result", what, sqrt(off / all));
}

static double rounding(void) { return is64 ? 1e-11 : 3e-5; }

static sk_view view_of(const sk_graph *g, const sk_tensor *x, sk_dtype type)
{
    sk_shape s = sk_tensor_shape(g, x);
    sk_view v = {.type = type, .n = s.n};
    for (int i = 0; i < s.n; i++) v.size[i] = v.full[i] = s.d[i];
    sk_view_dense(&v);
    v.data = take((size_t)sk_count(&v) * sk_dtype_size(type));
    return v;
}

static sk_view copy_of(const sk_view *v)
{
    sk_view c = *v;
    size_t bytes = (size_t)sk_count(v) * sk_dtype_size(v->type);
    c.data = take(bytes);
    memcpy(c.data, v->data, bytes);
    return c;
}

/* A fresh start: the sample's operands, results of NaN. */
static sk_args fresh(const trial *t)
{
    sk_args a = t->given;
    for (int i = 0; i < a.n_in; i++) a.in[i] = copy_of(&t->given.in[i]);
    for (int o = 0; o < a.n_out; o++)
        a.out[o].data = take((size_t)sk_count(&a.out[o]) * sk_dtype_size(a.out[o].type));
    return a;
}

static void run(const sk_op *op, sk_args *a, int threads)
{
    a->scratch = take(sk_op_scratch(op, a));
    for (int part = 0; part < threads; part++) {
        a->part = part;
        a->of = threads;
        sk_op_run_cpu(op, a);
    }
}

static sk_args args_of(const sk_node *n)
{
    sk_args a = {.n_in = n->n_in, .n_out = n->n_out, .dims = n->dims, .seed = 11, .stream = 5};
    memcpy(a.attr, n->attr, sizeof a.attr);
    return a;
}

static void fill(const sk_view *v, const char *text, bool positive, uint64_t stream)
{
    const char *range = strchr(text, '%');
    int64_t n = sk_count(v);
    for (int64_t i = 0; i < n; i++) {
        double u = sk_rng_uniform(1, stream, (uint64_t)i);
        put(v, i, range ? floor(u * atof(range + 1)) : positive ? 0.5 + u : 2 * u - 1);
    }
}

static bool build(trial *t, const sk_op *op, const sk_sample *s)
{
    sk_call call = {.dims = s->dims};
    char letters[SK_MAX_DIM + 1];
    int64_t size[SK_MAX_DIM];
    *t = (trial){.op = op, .s = s};
    sk_graph_init(&t->g, &t->arena);
    memcpy(call.attr, s->attr, sizeof call.attr);
    if (s->fresh && sk_dims_sample(s->fresh, letters, size)) sk_graph_size(&t->g, *letters, *size);
    for (int i = 0; i < op->n_in; i++) {
        sk_assert(sk_dims_sample(s->in[i], letters, size));
        for (int k = 0; letters[k]; k++) sk_graph_size(&t->g, letters[k], size[k]);
        call.in[i] = sk_input(&t->g, sk_print(&t->arena, "x%d", i), letters,
                              strchr(s->in[i], '%') ? SK_I32 : SK_F32);
    }
    sk_node *y = sk_apply_at(&t->g, SK_HERE, op->name, call);
    n_checks++;
    if (sk_graph_status(&t->g)) {
        complain(t, "%s", sk_error_line());
        return false;
    }
    t->y = y;
    t->given = args_of(y);
    for (int i = 0; i < y->n_in; i++) {
        t->given.in[i] = view_of(&t->g, y->in[i], y->in[i]->type);
        fill(&t->given.in[i], s->in[i], s->positive, (uint64_t)i);
    }
    for (int o = 0; o < y->n_out; o++) t->given.out[o] = view_of(&t->g, y->out[o], SK_F32);
    sk_args a = fresh(t);
    run(op, &a, 1);
    memcpy(t->given.out, a.out, sizeof a.out);
    return true;
}

/* ---- values against definitions: result 0 at one place, written as in a textbook */

static double in(const trial *t, int i, int64_t at) { return value(&t->given.in[i], at); }
static int64_t size_of(const trial *t, char letter) { return t->g.size[(int)letter]; }

static double gelu(const trial *t, int64_t i)
{
    double z = in(t, 0, i) + in(t, 1, i % size_of(t, 'f'));
    return 0.5 * z * (1 + tanh(sqrt(2 / acos(-1)) * (z + 0.044715 * z * z * z)));
}

static double swiglu(const trial *t, int64_t i)
{
    double x = in(t, 0, i);
    return x / (1 + exp(-x)) * in(t, 1, i);
}

static double layernorm(const trial *t, int64_t i)
{
    int64_t n = size_of(t, 'c'), c = i % n;
    double mean = 0, var = 0;
    for (int64_t k = 0; k < n; k++) mean += in(t, 0, i - c + k) / (double)n;
    for (int64_t k = 0; k < n; k++) var += pow(in(t, 0, i - c + k) - mean, 2) / (double)n;
    return (in(t, 0, i) - mean) / sqrt(var + t->s->attr[0]) * in(t, 1, c) + in(t, 2, c);
}

static double softmax(const trial *t, int64_t i)
{
    int64_t n = size_of(t, 's'), s = i % n;
    int64_t sees = t->s->attr[1] != 0 ? i / n % size_of(t, 't') + 1 : n;
    double sum = 0;
    for (int64_t k = 0; k < sees; k++) sum += exp(t->s->attr[0] * in(t, 0, i - s + k));
    return s < sees ? exp(t->s->attr[0] * in(t, 0, i)) / sum : 0;
}

static double same(const trial *t, int64_t i) { return in(t, 0, i); }

static double rmsnorm(const trial *t, int64_t i)
{
    int64_t n = size_of(t, 'c'), c = i % n;
    double square = 0;
    for (int64_t k = 0; k < n; k++) square += pow(in(t, 0, i - c + k), 2) / (double)n;
    return in(t, 0, i) / sqrt(square + t->s->attr[0]) * in(t, 1, c);
}

static double embedding(const trial *t, int64_t i)
{
    int64_t n = size_of(t, 'c');
    return in(t, 0, (int64_t)in(t, 1, i / n) * n + i % n);
}

/* Products over all letters whose output part is i; `sum` has one operand. */
static double einsum(const trial *t, int64_t i)
{
    char letters[3 * SK_MAX_DIM + 1] = "";
    int64_t at[128] = {0}, total = 1;
    double sum = 0;
    const sk_node *y = t->y;
    for (int k = (int)strlen(y->letters_out[0]) - 1; k >= 0; k--) {
        at[(int)y->letters_out[0][k]] = i % size_of(t, y->letters_out[0][k]);
        i /= size_of(t, y->letters_out[0][k]);
    }
    for (int o = 0; o < y->n_in; o++)
        for (const char *p = y->letters_in[o]; *p; p++)
            if (!strchr(letters, *p) && !strchr(y->letters_out[0], *p))
                letters[strlen(letters)] = *p, total *= size_of(t, *p);
    for (int64_t c = 0; c < total; c++) {
        double term = 1;
        int64_t rest = c;
        for (const char *p = letters; *p; p++) {
            at[(int)*p] = rest % size_of(t, *p);
            rest /= size_of(t, *p);
        }
        for (int o = 0; o < y->n_in; o++) {
            int64_t where = 0;
            for (const char *p = y->letters_in[o]; *p; p++)
                where = where * size_of(t, *p) + at[(int)*p];
            term *= in(t, o, where);
        }
        sum += term;
    }
    return sum;
}

/* The frequency of a pair: transformers' default, linear and llama3. */
static double turning(const double *attr, double pair, double d)
{
    double f = pow(attr[0], -2.0 * pair / d), wave = 2 * acos(-1) / f;
    if (attr[5] == 0) return attr[2] == 0 ? f : f / attr[2];
    double longest = attr[5] / attr[3], shortest = attr[5] / attr[4];
    double smooth = (attr[5] / wave - attr[3]) / (attr[4] - attr[3]);
    if (wave < shortest) return f;
    return wave > longest ? f / attr[2] : (1 - smooth) * f / attr[2] + smooth * f;
}

static double rope(const trial *t, int64_t i)
{
    int64_t d = size_of(t, 'd'), s = size_of(t, 's'), e = i % d, half = d / 2, pair = e % half;
    double angle = t->s->attr[1] * in(t, 1, i / (d * s * size_of(t, 'h'))) *
                   turning(t->s->attr, (double)pair, (double)d);
    double other = e < half ? -in(t, 0, i + half) : in(t, 0, i - half);
    if (i / d % s == s - 1) return in(t, 0, i);
    return in(t, 0, i) * cos(angle) + other * sin(angle);
}

static double scale_queries(const trial *t, int64_t i)
{
    int64_t d = size_of(t, 'd'), s = size_of(t, 's');
    return i / d % s < s - 2 ? t->s->attr[0] * in(t, 0, i) : in(t, 0, i);
}

/* Softmax over [0, n) of q.k / sqrt(d), applied to v; k and v of position p start at place[p] in
 * operand from[p], and v lies d further. */
static double attend(const trial *t, int64_t q, int64_t n, const int64_t *place, const int *from,
                     int64_t e)
{
    int64_t d = size_of(t, 'd');
    double top = 0, bottom = 0;
    for (int64_t p = 0; p < n; p++) {
        double dot = 0;
        for (int64_t c = 0; c < d; c++) dot += in(t, 0, q + c) * in(t, from[p], place[p] + c);
        double w = exp(dot / sqrt((double)d));
        top += w * in(t, from[p], place[p] + d + e);
        bottom += w;
    }
    return top / bottom;
}

typedef struct place5 {
    int64_t b, t, h, j, e;
} place5;

static place5 unravel(const trial *t, int64_t i)
{
    int64_t d = size_of(t, 'd'), r = size_of(t, 'r'), h = size_of(t, 'h'), n = size_of(t, 't');
    return (place5){i / (d * r * h * n), i / (d * r * h) % n, i / (d * r) % h, i / d % r, i % d};
}

static double attention(const trial *t, int64_t i)
{
    int64_t d = size_of(t, 'd'), s = size_of(t, 's'), h = size_of(t, 'h'), n = size_of(t, 't');
    int64_t place[128];
    int from[128] = {0};
    place5 y = unravel(t, i);
    for (int64_t p = 0; p <= y.t; p++) place[p] = (((y.b * n + p) * h + y.h) * s + s - 2) * d;
    return attend(t, (((y.b * n + y.t) * h + y.h) * s + y.j) * d, y.t + 1, place, from, y.e);
}

static double attention_cache(const trial *t, int64_t i)
{
    int64_t d = size_of(t, 'd'), s = size_of(t, 's'), h = size_of(t, 'h'), n = size_of(t, 't');
    int64_t place[128], pos = (int64_t)in(t, 2, i / (d * (s - 2) * h));
    int from[128];
    place5 y = unravel(t, i);
    for (int64_t p = 0; p <= pos; p++) {
        from[p] = 1;
        place[p] = ((y.b * size_of(t, 'n') + p) * h + y.h) * 2 * d;
        for (int64_t k = 0; k < n; k++) /* a new token stands there: the last one counts */
            if ((int64_t)in(t, 2, y.b * n + k) == p)
                from[p] = 0, place[p] = (((y.b * n + k) * h + y.h) * s + s - 2) * d;
    }
    return attend(t, (((y.b * n + y.t) * h + y.h) * s + y.j) * d, pos + 1, place, from, y.e);
}

static double xent_loss(const trial *t, int64_t i)
{
    double sum = 0;
    for (int64_t k = 0; k < sk_count(&t->given.in[0]); k++) {
        double lse = in(t, 0, k) + log(in(t, 1, k));
        sum += in(t, 3, k) * (lse - in(t, 2, k) + t->s->attr[0] * lse * lse);
    }
    return i ? 0 : sum;
}

static double xent_terms(const trial *t, int64_t i)
{
    double sum = 0;
    int64_t n = size_of(t, 'v');
    for (int64_t k = 0; k < n; k++) sum += exp(in(t, 0, i * n + k) - in(t, 1, i));
    return sum;
}

/* Slots beyond the last expert count for nobody. */
static double load(const trial *t, int64_t i)
{
    double mine = 0, all = 0;
    int64_t experts = size_of(t, 'e'), room = (int64_t)t->s->attr[0];
    for (int64_t k = 0; k < sk_count(&t->given.in[0]); k++) {
        int64_t e = (int64_t)in(t, 0, k) / room;
        mine += e == i;
        all += e < experts;
    }
    return (double)experts * mine - all;
}

static const struct {
    const char *op;
    double (*at)(const trial *t, int64_t i);
} definitions[] = {
    {"attention", attention}, {"attention_cache", attention_cache},
    {"bias_gelu", gelu},      {"contract", einsum},
    {"embedding", embedding}, {"layernorm", layernorm},
    {"load", load},           {"mul", einsum},
    {"rename", same},         {"rmsnorm", rmsnorm},
    {"rope", rope},           {"scale_queries", scale_queries},
    {"softmax", softmax},     {"spread", einsum},
    {"sum", einsum},          {"swiglu", swiglu},
    {"xent_loss", xent_loss}, {"xent_terms", xent_terms},
};

static void definition(const trial *t)
{
    for (size_t k = 0; k < sizeof definitions / sizeof *definitions; k++) {
        if (strcmp(definitions[k].op, t->op->name)) continue;
        sk_view want = copy_of(&t->given.out[0]);
        for (int64_t i = 0; i < sk_count(&want); i++) put(&want, i, definitions[k].at(t, i));
        if (t->s->coarse) compare_coarse(t, &t->given.out[0], &want, 1, "the definition");
        else compare(t, &t->given.out[0], &want, rounding(), "the definition");
    }
}

/* ---- gradient against central differences */

static double measure(const trial *t, const sk_args *x, const sk_view *dy)
{
    sk_args a = *x;
    double sum = 0;
    for (int o = 0; o < a.n_out; o++) a.out[o] = copy_of(&t->given.out[o]);
    run(t->op, &a, 1);
    for (int o = 0; o < a.n_out; o++)
        for (int64_t i = 0; dy[o].data && i < sk_count(&dy[o]); i++)
            sum += value(&dy[o], i) * value(&a.out[o], i);
    return sum;
}

static void differences(const trial *t, int i, const sk_view *dx, const sk_view *dy)
{
    sk_args a = fresh(t);
    sk_view want = copy_of(dx);
    const char *what =
        i ? i > 1 ? "gradient by operand 2" : "gradient by operand 1" : "gradient by operand 0";
    const double h = 1e-5;
    if (t->s->coarse) a.attr[0] = 0; /* steps have no slope: that of the same without them */
    int64_t n = sk_count(dx), step = n / 60 + 1; /* at most 60 elements of each operand */
    for (int64_t k = 0; k < n; k += step) {
        double x = value(&a.in[i], k);
        put(&a.in[i], k, x + h);
        double up = measure(t, &a, dy);
        put(&a.in[i], k, x - h);
        put(&want, k, (up - measure(t, &a, dy)) / (2 * h));
        put(&a.in[i], k, x);
    }
    if (t->s->coarse) compare_coarse(t, dx, &want, step, what);
    else compare(t, dx, &want, 1e-7, what);
}

/* Results that are only notes for the gradient (f32 beside a result of any type) take none. */
static bool flows(const sk_op *op, int o) { return !o || op->stats & 1 || !(op->stats >> o & 1); }

static void run_nodes(sk_graph *g, int from, sk_view *v)
{
    for (int k = from; k < g->nodes.n; k++) {
        const sk_node *n = g->nodes.v[k];
        sk_args a = args_of(n);
        for (int i = 0; i < n->n_in; i++) a.in[i] = v[n->in[i]->id];
        for (int o = 0; o < n->n_out; o++)
            a.out[o] = v[n->out[o]->id] = view_of(g, n->out[o], SK_F32);
        run(n->op, &a, 1);
    }
}

static void gradient(trial *t)
{
    sk_tensor *dy[SK_MAX_OUT] = {0}, *dx[SK_MAX_IN] = {0};
    sk_view v[64] = {{0}}, dy_view[SK_MAX_OUT] = {{0}};
    sk_node *y = t->y;
    int first = t->g.nodes.n;
    for (int i = 0; i < y->n_in; i++) v[y->in[i]->id] = t->given.in[i];
    for (int o = 0; o < y->n_out; o++) {
        v[y->out[o]->id] = t->given.out[o];
        if (!flows(t->op, o)) continue;
        dy[o] = sk_input(&t->g, "dy", y->letters_out[o], SK_F32);
        v[dy[o]->id] = dy_view[o] = view_of(&t->g, dy[o], SK_F32);
        fill(&dy_view[o], "", false, (uint64_t)(100 + o));
    }
    t->op->grad(&t->g, y, dy, dx);
    n_checks++;
    if (sk_graph_status(&t->g) || t->g.tensors.n > 64) {
        complain(t, "gradient: %s", sk_error_line());
        return;
    }
    run_nodes(&t->g, first, v);
    for (int i = 0; i < y->n_in; i++) {
        if (!dx[i]) continue;
        n_checks++;
        if (strcmp(dx[i]->letters, y->letters_in[i]))
            complain(t, "gradient by operand %d has the dims \"%s\"", i, dx[i]->letters);
        else differences(t, i, &v[dx[i]->id], dy_view);
    }
}

/* ---- split against whole */

static sk_view cut(const sk_view *v, const char *letters, char letter, int64_t from, int64_t to)
{
    const char *place = strchr(letters, letter);
    if (!place) return copy_of(v);
    int k = (int)(place - letters);
    sk_view p = *v;
    size_t inner = (size_t)sk_span(v, k + 1, v->n) * sk_dtype_size(v->type);
    size_t mine = inner * (size_t)(to - from), all = inner * (size_t)v->size[k];
    p.at[k] = from;
    p.size[k] = to - from;
    sk_view_dense(&p);
    p.data = take((size_t)sk_span(v, 0, k) * mine);
    for (int64_t o = 0; o < sk_span(v, 0, k); o++)
        memcpy((char *)p.data + (size_t)o * mine,
               (char *)v->data + (size_t)o * all + (size_t)from * inner, mine);
    return p;
}

static void join(const sk_view *sum, const sk_view *part, bool largest)
{
    for (int64_t i = 0; i < sk_count(sum); i++) {
        double a = value(sum, i), b = value(part, i);
        put(sum, i, largest ? fmax(a, b) : a + b);
    }
}

/* The letters an operand is cut along: those marked '^' it keeps whole, as '.' here. */
static const char *torn(const char *letters, uint8_t far, char out[SK_MAX_DIM + 1])
{
    int k = 0;
    for (; letters[k]; k++) out[k] = far >> k & 1 ? '.' : letters[k];
    out[k] = 0;
    return out;
}

/* A piece has a scale of its own. */
static void compare_split(const trial *t, const sk_view *got, const sk_view *want, const char *what)
{
    if (t->s->coarse) compare_coarse(t, got, want, 1, what);
    else compare(t, got, want, rounding(), what);
}

static void split(const trial *t, char letter, const int64_t *at, int pieces)
{
    const sk_node *y = t->y;
    sk_view sum[SK_MAX_OUT];
    char what[32], near_in[SK_MAX_DIM + 1], near_out[SK_MAX_OUT][SK_MAX_DIM + 1];
    snprintf(what, sizeof what, "%d pieces along %c", pieces, letter);
    for (int o = 0; o < y->n_out; o++) {
        torn(y->letters_out[o], y->gathered_out[o], near_out[o]);
        sum[o] = copy_of(&t->given.out[o]);
        for (int64_t i = 0; i < sk_count(&sum[o]); i++)
            put(&sum[o], i, t->op->flags & SK_OP_MAX ? -INFINITY : 0);
    }
    for (int p = 0; p < pieces; p++) {
        sk_args a = t->given;
        sk_view want[SK_MAX_OUT];
        for (int i = 0; i < y->n_in; i++)
            a.in[i] = cut(&t->given.in[i], torn(y->letters_in[i], y->gathered_in[i], near_in),
                          letter, at[p], at[p + 1]);
        for (int o = 0; o < y->n_out; o++) {
            want[o] = cut(&t->given.out[o], near_out[o], letter, at[p], at[p + 1]);
            a.out[o] = want[o];
            a.out[o].data = take((size_t)sk_count(&want[o]) * sizeof(real));
        }
        run(t->op, &a, 1 + p);
        for (int o = 0; o < y->n_out; o++)
            if (strchr(near_out[o], letter)) compare_split(t, &a.out[o], &want[o], what);
            else join(&sum[o], &a.out[o], t->op->flags & SK_OP_MAX);
    }
    for (int o = 0; o < y->n_out; o++)
        if (!strchr(near_out[o], letter)) compare_split(t, &sum[o], &t->given.out[o], what);
}

static void splits(const trial *t)
{
    const sk_node *y = t->y;
    char seen[128] = "";
    for (int i = 0; i < y->n_in + y->n_out; i++) {
        const char *p = i < y->n_in ? y->letters_in[i] : y->letters_out[i - y->n_in];
        for (; *p; p++) {
            if (strchr(seen, *p) || strchr(y->not_split, *p)) continue;
            seen[strlen(seen)] = *p;
            int64_t n = size_of(t, *p);
            split(t, *p, (int64_t[]){0, (n + 2) / 3, n}, 2);
            split(t, *p, (int64_t[]){0, n / 2, n / 2, n}, 3); /* one is empty */
        }
    }
}

/* ---- threads, adding, types, memory */

static void threads(const trial *t)
{
    for (int n = 2; n <= 5; n += 3) {
        sk_args a = fresh(t);
        run(t->op, &a, n);
        for (int o = 0; o < a.n_out; o++)
            compare(t, &a.out[o], &t->given.out[o], rounding(), "several threads");
    }
}

static void adding(const trial *t)
{
    for (unsigned bits = 1; bits < 1u << t->y->n_out; bits++) {
        sk_args a = fresh(t);
        sk_view want[SK_MAX_OUT];
        a.add = bits;
        for (int o = 0; o < a.n_out; o++) {
            want[o] = copy_of(&t->given.out[o]);
            if (!(bits >> o & 1)) continue;
            fill(&a.out[o], "", false, (uint64_t)(200 + o));
            join(&want[o], &a.out[o], false);
        }
        run(t->op, &a, 2);
        for (int o = 0; o < a.n_out; o++)
            compare(t, &a.out[o], &want[o], rounding(), "adding to what is there");
    }
}

/* Half-width operands, against the same values in `real`: only the result is rounded. */
static void narrow(const trial *t, sk_dtype type, double slack)
{
    sk_args a = fresh(t), b = fresh(t);
    for (int i = 0; i < a.n_in; i++) {
        if (a.in[i].type != SK_F32) continue;
        int64_t n = sk_count(&a.in[i]);
        a.in[i].type = type;
        a.in[i].data = take((size_t)n * sk_dtype_size(type));
        sk_convert(a.in[i].data, type, b.in[i].data, SK_F32, n);
        sk_convert(b.in[i].data, SK_F32, a.in[i].data, type, n);
    }
    for (int o = 0; o < a.n_out; o++) {
        a.out[o].type = t->op->stats >> o & 1 ? SK_F32 : type;
        a.out[o].data = take((size_t)sk_count(&a.out[o]) * sk_dtype_size(a.out[o].type));
    }
    run(t->op, &a, 2);
    run(t->op, &b, 1);
    for (int o = 0; o < a.n_out; o++) compare(t, &a.out[o], &b.out[o], slack, sk_dtype_name(type));
    for (int i = 0; i < a.n_in; i++)
        if (t->op->changes >> i & 1)
            compare(t, &a.in[i], &b.in[i], slack, "an operand that it changes, narrow");
}

static void reuse(const trial *t, int i)
{
    for (int n = 1; n <= 3; n += 2) {
        sk_args a = fresh(t);
        a.out[0].data = a.in[i].data;
        run(t->op, &a, n);
        for (int o = 0; o < a.n_out; o++)
            compare(t, &a.out[o], &t->given.out[o], rounding(), "result in an operand's memory");
    }
}

static void one_sample(const sk_op *op, const sk_sample *s)
{
    trial t;
    if (build(&t, op, s)) {
        definition(&t);
        splits(&t);
        threads(&t);
        if (op->flags & SK_OP_ADDS) adding(&t);
        narrow(&t, SK_BF16, 0x1p-8);
        narrow(&t, SK_F16, 0x1p-10);
        for (int i = 0; i < op->n_in; i++)
            if (op->reuse >> i & 1) reuse(&t, i);
        if (op->grad && is64) gradient(&t);
    }
    give_back();
    sk_arena_end(&t.arena);
}

/* ---- several ops together */

/* A two-layer language model with tied weights: here the gradients of the cross-entropy's parts,
 * and of a parameter used twice, must come together. */
static double smoothing, z_loss; /* of its loss */

/* The loss of logits by its definition: (1 - e) nll + e / V sum of -log p + z (log sum exp)^2. */
static double plain_loss(const sk_view *logits, const sk_view *target, const sk_view *weight)
{
    int64_t n = logits->size[logits->n - 1];
    double loss = 0;
    for (int64_t r = 0; r < sk_count(target); r++) {
        double all = 0, even = 0;
        for (int64_t k = 0; k < n; k++) all += exp(value(logits, r * n + k));
        for (int64_t k = 0; k < n; k++) even += log(all) - value(logits, r * n + k);
        double own = log(all) - value(logits, r * n + (int64_t)value(target, r));
        loss += value(weight, r) * ((1 - smoothing) * own + smoothing / (double)n * even +
                                    z_loss * log(all) * log(all));
    }
    return loss;
}

static double tiny_model(sk_graph *g, sk_view *v, sk_tensor **w, bool backward)
{
    sk_graph_size(g, 'b', 2);
    sk_graph_size(g, 't', 3);
    sk_graph_size(g, 'c', 4);
    sk_graph_size(g, 'v', 7);
    sk_tensor *ids = sk_input(g, "tokens", "bt", SK_I32), *to = sk_input(g, "to", "bt", SK_I32);
    sk_tensor *weights = sk_input(g, "weights", "bt", SK_F32);
    *w = sk_param(g, "w", "vc", 1);
    sk_tensor *x = sk_apply(g, "embedding", .in = {*w, ids})->out[0];
    sk_tensor *l = sk_contract(g, "btc,vc->btv", x, *w);
    sk_tensor *m = sk_apply(g, "row_max", .in = {l})->out[0];
    sk_node *s = sk_apply(g, "xent_terms", .in = {l, m, to}, .attr = {smoothing});
    sk_node *loss =
        sk_apply(g, "xent_loss", .in = {m, s->out[0], s->out[1], weights}, .attr = {z_loss});
    g->loss = loss->out[0];
    g->weight = loss->out[1];
    if (backward) sk_graph_grad(g);
    sk_tensor *given[] = {ids, to, weights, *w};
    static const char *const range[] = {"%7", "%7", "", ""};
    for (int i = 0; i < 4; i++) {
        if (v[given[i]->id].data) continue;
        v[given[i]->id] = view_of(g, given[i], given[i]->type);
        fill(&v[given[i]->id], range[i], i == 2, (uint64_t)(300 + i));
    }
    for (int i = 0; i < g->tensors.n; i++)
        if (!strcmp(g->tensors.v[i]->name, "loss_scale"))
            v[i] = view_of(g, g->tensors.v[i], SK_F32), put(&v[i], 0, 1);
    run_nodes(g, 0, v);
    double have = value(&v[g->loss->id], 0);
    double want = plain_loss(&v[l->id], &v[to->id], &v[weights->id]);
    n_checks++;
    if (!(fabs(have - want) <= (is64 ? 1e-12 : 1e-5) * fabs(want))) n_bad++;
    if (!(fabs(have - want) <= (is64 ? 1e-12 : 1e-5) * fabs(want)))
        printf("the loss with smoothing %g and z-loss %g is %.15g, %.15g is right\n", smoothing,
               z_loss, have, want);
    return have;
}

static void together(double e, double z)
{
    smoothing = e, z_loss = z;
    static const sk_op whole = {.name = "tied model"};
    static const sk_sample none = {.in = {0}};
    trial t = {.op = &whole, .s = &none};
    sk_view v[64] = {{0}}, again[64] = {{0}};
    sk_tensor *w;
    sk_graph_init(&t.g, &t.arena);
    tiny_model(&t.g, v, &w, true);
    if (sk_graph_status(&t.g)) complain(&t, "%s", sk_error_line());
    sk_view got = view_of(&t.g, w, SK_F32), want = copy_of(&got);
    for (int64_t i = 0; i < sk_count(&got); i++) put(&got, i, 0);
    for (int k = 0; k < t.g.nodes.n; k++)
        for (int o = 0; o < t.g.nodes.v[k]->n_out; o++)
            if (t.g.nodes.v[k]->into[o] == w) join(&got, &v[t.g.nodes.v[k]->out[o]->id], false);
    memcpy(again, v, sizeof v);
    for (int64_t i = 0; i < sk_count(&got); i++) {
        double x = value(&v[w->id], i), h = is64 ? 1e-5 : 1e-2, loss[2];
        for (int side = 0; side < 2; side++) {
            sk_graph g;
            sk_tensor *same;
            sk_graph_init(&g, &t.arena);
            put(&v[w->id], i, side ? x + h : x - h);
            loss[side] = tiny_model(&g, again, &same, false);
        }
        put(&v[w->id], i, x);
        put(&want, i, (loss[1] - loss[0]) / (2 * h));
    }
    compare(&t, &got, &want, is64 ? 1e-7 : 2e-3, "gradient");
    give_back();
    sk_arena_end(&t.arena);
}

/* Calls that must be refused with a sentence. */
static void refusals(void)
{
    static const struct {
        const char *op, *dims, *x, *y;
    } wrong[] = {
        {"bias", "bt,b->bt", "bt", "b"},
        {"bias", "bt,t->tb", "bt", "t"},
        {"sum", "bt->c", "bt", NULL},
        {"spread", "bt->bc", "bt", NULL},
        {"rope", NULL, "bthsd", "bt"},      /* d is 5 */
        {"attention", NULL, "bthcd", NULL}, /* c is 2 */
        {"contract", "bt,tc->bx", "bt", "tc"},
        {"add", NULL, "bt", "tb"},
        {"act", NULL, "bt", NULL},              /* none */
        {"act_grad", NULL, "bt", "bt"},         /* none */
        {"dispatch", NULL, "bth", "bts"},       /* no experts */
        {"load", "bt->s", "bt", NULL},          /* no room */
        {"scale_queries", NULL, "bthcd", NULL}, /* c is 2 */
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        sk_arena arena = {0};
        sk_graph g;
        sk_call call = {.dims = wrong[i].dims};
        sk_graph_init(&g, &arena);
        for (const char *p = "bthsd"; *p; p++) sk_graph_size(&g, *p, *p == 'd' ? 5 : 3);
        sk_graph_size(&g, 'c', 2);
        call.in[0] = sk_input(&g, "x", wrong[i].x, SK_F32);
        if (wrong[i].y) call.in[1] = sk_input(&g, "y", wrong[i].y, SK_F32);
        sk_apply_at(&g, SK_HERE, wrong[i].op, call);
        n_checks++;
        if (g.status != SK_ECONF)
            n_bad++, printf("%s of %s was not refused\n", wrong[i].op, wrong[i].x);
        sk_arena_end(&arena);
    }
}

/* Numbers of a call that are out of range. */
static void wrong_numbers(void)
{
    static const struct {
        const char *op, *x;
        double attr[2];
    } wrong[] = {{"dropout", "bt", {2, 0}},   {"dropout", "bt", {-0.1, 0}},
                 {"dropout", "bt", {NAN, 0}}, {"dropout", "bt", {0.5, 1e300}},
                 {"route", "bth", {NAN, 1}},  {"route", "bth", {1, INFINITY}},
                 {"route", "bth", {1, NAN}},  {"act", "bt", {1e300, 0}}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        sk_arena arena = {0};
        sk_graph g;
        sk_call call = {0};
        sk_graph_init(&g, &arena);
        for (const char *p = "bth"; *p; p++) sk_graph_size(&g, *p, 3);
        call.in[0] = sk_input(&g, "x", wrong[i].x, SK_F32);
        memcpy(call.attr, wrong[i].attr, sizeof wrong[i].attr);
        sk_apply_at(&g, SK_HERE, wrong[i].op, call);
        n_checks++;
        if (g.status != SK_ECONF)
            n_bad++,
                printf("%s with %g %g was not refused\n", wrong[i].op, call.attr[0], call.attr[1]);
        sk_arena_end(&arena);
    }
}

int main(void)
{
    int n_ops = 0;
    for (const sk_op *const *op = sk_op_parts; *op; op++, n_ops++) {
        int n = 0;
        for (const sk_sample *s = (*op)->samples; s->in[0]; s++, n++) one_sample(*op, s);
        if (n < 2) n_bad++, printf("%s has fewer than two samples\n", (*op)->name);
    }
    together(0, 0);
    together(0.1, 0);
    together(0, 0.3);
    together(0.2, 1e-4);
    refusals();
    wrong_numbers();
    free(blocks.v);
    printf("op: %d ops, %d checks, %d bad\n", n_ops, n_checks, n_bad);
    return n_bad != 0;
}
