/* Canonical order, op by op: the same bits however the operands are cut and however many threads.
 *
 * Every op of parts, by its own samples, is cut along every letter that it lets be cut, into 2 to 5
 * parts as base/cells.h deals them.  Results that have the letter must be the slices of the whole;
 * those that have summed it away, added up in the order of comm.h's tree, must be the whole.  A
 * result whose first missing letter is another one is not cut there by the engine: such
 * cases are counted as left out.  The whole itself must be what fast order gives, to rounding.
 * Operands start at odd addresses, each at another, so that bits which depend on where vectors
 * begin show up; some numbers are -0, which a sum with a part of nothing would turn into 0.
 * Samples that are coarse are left out: a piece has a scale of its own. */
#include "graph/dims.h"
#include "graph/graph.h"
#include "base/rng.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

enum { MOST_PARTS = 5 };

typedef struct trial {
    sk_arena arena;
    sk_graph g;
    const sk_op *op;
    const sk_sample *s;
    sk_node *y;
    sk_args given; /* operands and canonical results, whole */
} trial;

static int n_cases, n_wrong, n_left_out, n_turns;

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
        v.cells[i] = (uint8_t)sk_cells(s.d[i], cells);
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
    for (int i = 0; i < n->n_in; i++) far |= n->far_in[i];
    for (int o = 0; o < n->n_out; o++) far |= n->far_out[o];
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

static void run(trial *t, sk_args *a, int threads)
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

/* Canonical order changes only the rounding. */
static void near_fast(trial *t)
{
    sk_args a = fresh(t);
    for (int i = 0; i < a.n_in; i++) memset(a.in[i].cells, 0, sizeof a.in[i].cells);
    for (int o = 0; o < a.n_out; o++) memset(a.out[o].cells, 0, sizeof a.out[o].cells);
    run(t, &a, 1);
    for (int o = 0; o < a.n_out; o++) {
        const float *g = t->given.out[o].data, *w = a.out[o].data;
        n_cases++;
        for (int64_t i = 0; i < sk_count(&a.out[o]); i++) {
            if (g[i] == w[i] || fabsf(g[i] - w[i]) <= 3e-5f * (1 + fabsf(w[i]))) continue;
            complain(t, "element %" PRId64 " is %g, in fast order %g", i, (double)g[i],
                     (double)w[i]);
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
        (sk_args){.n_in = y->n_in, .n_out = y->n_out, .dims = y->dims, .seed = 11, .stream = 5};
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
            if (cut_dim(y->letters_out[o], y->far_out[o], *p) < 0) return *p;
    return 0;
}

/* Add parts up in part 0, in the order of comm.h's tree. */
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
                                         o < 0 ? y->far_in[i] : y->far_out[o], letter);
        if (d >= 0) to = o < 0 ? a.in[i].cells[d] : a.out[o].cells[d];
    }
    sk_tree_cut(&from, &to, k, n);
    for (int i = 0; i < y->n_in; i++)
        a.in[i] =
            slice(t, &t->given.in[i], cut_dim(y->letters_in[i], y->far_in[i], letter), from, to);
    for (int o = 0; o < y->n_out; o++) {
        int d = cut_dim(y->letters_out[o], y->far_out[o], letter);
        a.out[o] = want[o] = slice(t, &t->given.out[o], d, from, to);
        place(t, &a.out[o]);
    }
    run(t, &a, 1 + k % 3);
    snprintf(what, sizeof what, "part %d of %d along %c", k, n, letter);
    for (int o = 0; o < y->n_out; o++) {
        results[o] = a.out[o];
        if (cut_dim(y->letters_out[o], y->far_out[o], letter) >= 0)
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
        if (cut_dim(y->letters_out[o], y->far_out[o], letter) >= 0) continue;
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
            if (strchr(seen, *p) || strchr(y->whole, *p) || far_somewhere(y, *p)) continue;
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
        near_fast(&t);
        cuts(&t);
        threads(&t);
        if (op->flags & SK_OP_ADDS) adding(&t);
        for (int i = 0; i < op->n_in; i++)
            if (op->reuse >> i & 1) reuse(&t, i);
    }
    sk_arena_end(&t.arena);
}

int main(void)
{
    for (const sk_op *const *op = sk_op_parts; *op; op++)
        for (const sk_sample *s = (*op)->samples; s->in[0]; s++)
            for (int cells = 4; cells <= SK_MOST_CELLS && !s->coarse; cells *= 4)
                one_sample(*op, s, cells);
    printf(
        "op_canonical: %d cases, %d wrong (%d results left out: the engine does not cut there)\n",
        n_cases, n_wrong, n_left_out);
    return n_wrong != 0;
}
