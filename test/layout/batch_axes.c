/* batch_axes.c - gradients summed over several axes of the batch: what moves, and the bits.
 *
 * Over all ranks an all-reduce of S bytes moves 2 (N - 1) S, whatever axes make up N; two
 * all-reduces one after the other would move more.  In canonical order weights have the bits of
 * one axis. */
#include "lib/check.h"
#include "lib/ranks.h"

static const char *const two = "mesh hosts=3 dp=2; split b over hosts; split b over dp";
static const char *const square = "mesh hosts=2 dp=2; split b over hosts; split b over dp";
static const char *const three =
    "mesh r=2 hosts=2 dp=2; split b over r; split b over hosts; split b over dp";

static sk_trial trial(const char *layout)
{
    sk_trial t = sk_trial_small("gpt2", layout);
    t.batch = 24;
    t.steps = 3;
    t.hyper.embd_pdrop = t.hyper.resid_pdrop = 0;
    return t;
}

/* Bytes of gradients that move along each axis, over all ranks, and those of all parameters. */
static int64_t moved(const char *layout, int64_t *along, int *n)
{
    sk_arena a = {0};
    sk_graph g;
    sk_program **p = NULL;
    int64_t all = 0;
    sk_trial t = trial(layout);
    sk_status st = sk_trial_compile(&a, &t, &g, &p, n);
    check(!st);
    if (st) return 0;
    for (int i = 0; i < g.tensors.n; i++) {
        const sk_tensor *x = g.tensors.v[i];
        int64_t count = 1;
        for (const char *c = x->letters; *c; c++) count *= g.size[(int)*c];
        if (x->role == SK_PARAM) all += count * (int64_t)sk_dtype_size(x->type);
    }
    for (int r = 0; r < *n; r++)
        for (int i = 0; i < p[r]->n_train; i++) {
            const sk_inst *in = &p[r]->insts.v[i];
            int group = in->call >= 0 ? p[r]->calls.v[in->call].group : p[r]->world;
            if (group != p[r]->world) along[group] += in->wire;
        }
    sk_arena_end(&a);
    return all;
}

static void bytes(void)
{
    int64_t x[SK_MAX_AXES] = {0}, y[SK_MAX_AXES] = {0}, z[SK_MAX_AXES] = {0};
    int n = 0;
    char text[160];
    int64_t s = moved(two, x, &n);
    printf("two axes: S %lld, along hosts %lld, along dp %lld\n", (long long)s, (long long)x[0],
           (long long)x[1]);
    check(n == 6 && x[0] == 4 * s && x[1] == 6 * s); /* 2 (N - 1) S */
    s = moved(three, y, &n);
    check(n == 8 && y[0] == 2 * s && y[1] == 4 * s && y[2] == 8 * s);
    snprintf(text, sizeof text, "%s; canonical order", square); /* the finest axis first */
    s = moved(text, z, &n);
    check(n == 4 && z[0] == 4 * s && z[1] == 2 * s);
}

static uint64_t digest(const char *layout)
{
    sk_trial t = trial(layout);
    check(!sk_trial_run(&t));
    return t.digest;
}

static void bits(void)
{
    char text[160];
    snprintf(text, sizeof text, "%s; canonical order", two);
    check(digest(text) == digest("dp=6; canonical order"));
    snprintf(text, sizeof text, "%s; canonical order", square);
    check(digest(text) == digest("dp=4; canonical order"));
    snprintf(text, sizeof text, "%s; canonical order", three);
    check(digest(text) == digest("dp=8; canonical order"));
    check(digest(text) == digest("dp=1; canonical order"));
}

int main(void)
{
    bytes();
    bits();
    printf("batch_axes: %d checks, %d bad\n", checks, bad);
    return bad != 0;
}
