/* factors_sent.c - what K-FAC sends: halves of symmetric factors, in every n-th update.
 *
 * Factors that travel packed leave the bits of those that travel whole (asked for by
 * train.backward, which sends them so) and of one rank, on nine layouts.  The elements of calls are
 * those of the closed form: n (n / 2 + 1) numbers of a factor of n rows instead of n n.  With
 * factor_interval, all that touches a factor is of these updates, its calls and the gathers of
 * activations that only it needs as well, and steps between them move as many bytes less as the
 * program says. */
#include "graph/extra.h"
#include "lib/check.h"
#include "lib/fake_gpu.h"
#include "lib/fake_nccl.h"
#include "lib/ranks.h"
#include "program/acts.h"

#include <math.h>
#include <pthread.h>

enum { WHOLE = 1u << SK_EXTRA_KRON_A | 1u << SK_EXTRA_KRON_G };

static sk_trial trial(const char *model, const char *layout, int every)
{
    sk_trial t = sk_trial_small(model, layout);
    t.hyper.num_hidden_layers = 2;
    t.hyper.embd_pdrop = t.hyper.resid_pdrop = 0;
    t.optim = "kfac";
    t.lr = 0.003;
    t.steps = 5;
    t.knobs[0] = (struct sk_trial_knob){"interval", 2};
    t.knobs[1] = (struct sk_trial_knob){"damping", 1e-2};
    t.knobs[2] = (struct sk_trial_knob){"factor_interval", every};
    sk_trial_groups(&t);
    return t;
}

static bool ran(sk_trial *t)
{
    sk_status st = sk_trial_run(t);
    if (st) printf("%s: %s\n", t->layout, sk_error());
    check(!st);
    return !st;
}

/* --- bits --- */

static const char *const layouts[] = {"dp=2; canonical order",
                                      "dp=3 zero=1; canonical order",
                                      "dp=2 zero=2; canonical order",
                                      "dp=2 zero=3 micro=2; canonical order",
                                      "tp=2 dp=2; canonical order",
                                      "tp=2 dp=2 zero=3 sp; canonical order",
                                      "ep=2 zero=1; canonical order",
                                      "pp=2 dp=2 micro=2; canonical order",
                                      "cp=2 dp=2 zero=1; canonical order"};

static void same_bits(const char *model, int every, bool gpu)
{
    sk_trial one = trial(model, "dp=1; canonical order", every);
    one.gpu = gpu;
    if (!ran(&one)) return;
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        sk_trial half = trial(model, layouts[i], every), whole = half;
        half.gpu = whole.gpu = gpu;
        whole.extras = WHOLE;
        if (!ran(&half) || !ran(&whole)) continue;
        if (half.digest != whole.digest || half.digest != one.digest)
            printf("%s, every %d: %s: other bits\n", model, every, layouts[i]);
        check(half.digest == whole.digest && half.digest == one.digest);
    }
}

/* The largest relative distance of losses. */
static double apart(const sk_trial *a, const sk_trial *b)
{
    double most = 0;
    for (int i = 0; i < a->steps; i++)
        most = fmax(most, fabs(a->loss[i] - b->loss[i]) / b->loss[i]);
    return most;
}

/* Weights of 16 bits: factors are f32 in any precision.  Near, not equal: there is no canonical
 * order of 16 bits, a product of a BLAS need not be symmetric to the bit, and only one of its
 * halves travels.  Another damping is further away. */
static void narrow(const char *layout)
{
    sk_trial half = trial("gpt2", layout, 2);
    half.dtype = SK_BF16;
    sk_trial whole = half, other = half;
    whole.extras = WHOLE;
    other.knobs[1].value = 1;
    sk_trial_groups(&other);
    if (!ran(&half) || !ran(&whole) || !ran(&other)) return;
    double near = apart(&half, &whole), far = apart(&other, &whole);
    if (near > far / 2)
        printf("bf16: %s: %g apart, %g with a hundred times the damping\n", layout, near, far);
    check(near <= far / 2);
}

/* --- elements --- */

static int64_t half_of(int64_t n) { return n * (n / 2 + 1); }
static int64_t whole_of(int64_t n) { return n * n; }

/* Of both factors of all matrices. */
static int64_t want_elements(const sk_program *p, int64_t (*of)(int64_t n))
{
    int64_t sum = 0;
    for (int i = 0; i < p->params.n; i++) {
        const sk_extent *box = &p->bufs.v[p->params.v[i].stored].box;
        int64_t n = 1;
        for (int d = 0; d < box->n; d++) n *= box->full[d];
        if (sk_param_matrix_update(&p->params.v[i])) sum += of(box->full[0]) + of(n / box->full[0]);
    }
    return sum;
}

typedef struct traffic {
    int64_t elements[SK_N_COLLS];
    int calls;
} traffic;

static bool is_factor(const sk_program *p, int buf)
{
    const sk_tensor *t = p->bufs.v[buf].tensor;
    return t && t->role == SK_EXTRA;
}

/* Of factors alone, by kind. */
static traffic traffic_of(const sk_program *p)
{
    traffic t = {0};
    for (int i = 0; i < p->calls.n; i++) {
        const sk_call_plan *c = &p->calls.v[i];
        for (int s = 0; s < c->n_segs; s++)
            if (is_factor(p, c->segs[s].src))
                t.elements[c->kind] += c->segs[s].outer * c->segs[s].n * c->segs[s].inner;
        t.calls += is_factor(p, c->segs[0].src);
    }
    return t;
}

static void closed_form(const char *layout, sk_coll_kind kind, bool packed)
{
    sk_arena a = {0};
    sk_graph g;
    sk_program **p;
    int n = 0;
    sk_trial t = trial("gpt2", layout, 1);
    if (!packed) t.extras = WHOLE;
    check(!sk_trial_compile(&a, &t, &g, &p, &n));
    int64_t want = want_elements(p[0], packed ? half_of : whole_of);
    int64_t got = traffic_of(p[0]).elements[kind];
    if (!packed) /* those of embeddings, too, which no optimizer asked for */
        check(got >= want);
    else {
        if (got != want)
            printf("%s: %lld numbers of factors, not %lld\n", layout, (long long)got,
                   (long long)want);
        check(got == want && got > 0);
    }
    sk_arena_end(&a);
}

/* --- intervals --- */

typedef struct look {
    const sk_program *p;
    bool factor;
} look;

static void see(void *ctx, int *buf, unsigned how)
{
    look *x = ctx;
    (void)how;
    x->factor |= is_factor(x->p, sk_buffer_root(x->p, *buf));
}

/* Everything about factors has the interval; nothing without it is of one update in k. */
static void marked(const char *layout, int k)
{
    sk_arena a = {0};
    sk_graph g;
    sk_program **p;
    int n = 0, factors = 0, gathers = 0;
    sk_trial t = trial("gpt2", layout, k);
    check(!sk_trial_compile(&a, &t, &g, &p, &n));
    for (int r = 0; r < n; r++)
        for (int pc = 0; pc < p[r]->n_train; pc++) {
            const sk_inst *in = &p[r]->insts.v[pc];
            look x = {p[r], false};
            sk_operands(p[r], in, see, &x);
            if (x.factor) check(in->every == k);
            factors += x.factor;
            gathers += !x.factor && in->act == SK_DO_START && in->every == k && in->task >= 0;
            if (!x.factor && in->act == SK_DO_UPDATE) check(!in->every);
        }
    check(factors > 0);
    if (strstr(layout, "tp="))
        check(gathers > 0); /* activations that only products for them read */
    sk_arena_end(&a);
}

static int64_t before[SK_TEST_RANKS], sent[SK_TEST_STEPS], factor_bytes; /* of all ranks */
static pthread_mutex_t counting = PTHREAD_MUTEX_INITIALIZER;

static void see_sent(const sk_trial *t, const sk_run *run, const sk_program *p, int step)
{
    (void)t;
    int64_t now = sk_comm_bytes_sent(sk_run_comm((sk_run *)run));
    pthread_mutex_lock(&counting);
    sent[step] += now - before[p->rank];
    before[p->rank] = now;
    for (int pc = 0; !step && pc < p->n_train; pc++)
        if (p->insts.v[pc].every == 3) factor_bytes += p->insts.v[pc].wire;
    pthread_mutex_unlock(&counting);
}

/* Bytes by step: more in the first and the fourth, and by what was planned. */
static void measured(const char *layout)
{
    sk_trial t = trial("gpt2", layout, 3);
    memset(before, 0, sizeof before);
    memset(sent, 0, sizeof sent);
    factor_bytes = 0;
    t.after = see_sent;
    if (!ran(&t)) return;
    check(sent[1] == sent[2] && sent[2] == sent[4]);
    if (sent[3] - sent[2] != factor_bytes)
        printf("%s: steps with factors send %lld bytes more, not %lld\n", layout,
               (long long)(sent[3] - sent[2]), (long long)factor_bytes);
    check(sent[3] - sent[2] == factor_bytes && factor_bytes > 0);
}

/* A step that is skipped where factors are due makes them again in the next. */
static void skipped(bool gpu)
{
    sk_trial t = trial("gpt2", "dp=2 zero=1", 2);
    t.gpu = gpu;
    t.poison = 2; /* the third */
    t.counts = true;
    if (!ran(&t)) return;
    for (int s = 0; s < t.steps; s++) check(s == 2 || isfinite(t.loss[s]));
    check(isfinite(t.valid));
}

int main(void)
{
    sk_fake_gpu(20);
    sk_fake_nccl();
    for (int every = 1; every < 4; every++) same_bits("gpt2", every, false);
    same_bits("switch", 2, false);
    same_bits("llama", 2, true);
    narrow("dp=2");
    narrow("tp=2 dp=2 zero=1 micro=2");
    closed_form("dp=2", SK_ALLREDUCE, true);
    closed_form("dp=2", SK_ALLREDUCE, false);
    closed_form("dp=4 zero=1", SK_REDUCE_SCATTER, true);
    closed_form("dp=2 zero=3", SK_REDUCE_SCATTER, true);
    marked("dp=2", 4);
    marked("dp=2 zero=1", 4);
    marked("dp=2 tp=2 zero=2 micro=2", 4);
    marked("pp=2 dp=2 micro=2; canonical order", 4);
    measured("dp=2");
    measured("dp=2 zero=1");
    measured("tp=2");
    skipped(false);
    skipped(true);
    printf("factors_sent: %d checks, %d bad\n", checks, bad);
    return bad != 0;
}
