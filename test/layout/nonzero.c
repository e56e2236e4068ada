/* nonzero.c - gradients of tables of words summed as the rows that are not zeros: the encoding to
 * the bit, when it is chosen, its bytes by closed form and counted, and results that are those of
 * whole tables. */
#include "lib/check.h"
#include "lib/ranks.h"

#include "base/rng.h"
#include "coll/nonzero_rows.h"

#include <math.h>

/* --- there and back --- */

enum { ROWS = 90, MOST = ROWS * 1500 };
static float x[MOST], y[MOST];
static uint32_t code[MOST + ROWS + 64];

static void read_x(const void *of, int64_t at, int64_t n, float *to)
{
    memcpy(to, (const float *)of + at, (size_t)n * sizeof *to);
}

static void there_and_back(int64_t unit, int64_t every, int64_t room)
{
    sk_codec c = sk_nonzero_rows(unit, room);
    int64_t n = ROWS * unit;
    sk_code_row r = {.n = n, .read = read_x, .of = x};
    for (int64_t i = 0; i < n; i++)
        x[i] = i / unit % every ? 0 : (float)sk_rng_uniform(3, 1, (uint64_t)i) - 0.5F;
    x[0] = -0.0F, x[n - 1] = NAN;
    int64_t bytes = sk_codec_bytes(&c, n);
    check(bytes == 4 + room * (4 + 4 * unit));
    code[bytes / 4] = 0xa5a5a5a5U;
    sk_encode(&c, &r, (uint8_t *)code);
    check(code[bytes / 4] == 0xa5a5a5a5U); /* not a byte more */
    for (int64_t at = 0; at < n; at += SK_CODEC_RUN)
        sk_decode(&c, &r, (const uint8_t *)code, at, n - at < SK_CODEC_RUN ? n - at : SK_CODEC_RUN,
                  y + at);
    check(!memcmp(x, y, (size_t)n * sizeof *x));
}

/* --- in training --- */

enum { WORDS = 600, WIDTH = 16 };

static sk_trial trial(const char *model, const char *layout)
{
    sk_trial t = sk_trial_small(model, layout);
    t.hyper.hidden_size = WIDTH;
    t.hyper.vocab_size = WORDS;
    t.hyper.tie_word_embeddings = false;
    t.hyper.embd_pdrop = t.hyper.resid_pdrop = 0;
    t.batch = 8;
    t.dtype = SK_F32;
    t.steps = 5;
    t.clip = 0;
    return t;
}

static int64_t left[SK_TEST_RANKS], planned[SK_TEST_RANKS], rows[SK_TEST_RANKS];

static void after(const sk_trial *t, const sk_run *run, const sk_program *p, int step)
{
    int64_t gone = sk_comm_bytes_sent(sk_run_comm((sk_run *)run));
    left[p->rank] = step + 1 < t->steps ? gone : gone - left[p->rank];
    planned[p->rank] = rows[p->rank] = 0;
    for (int i = 0; i < p->n_train; i++) {
        const sk_inst *in = &p->insts.v[i];
        planned[p->rank] += in->wire;
        if (in->act == SK_DO_WAIT && strstr(p->calls.v[in->call].what, "rows of grads"))
            rows[p->rank] += in->wire;
    }
}

/* Bytes of rows that leave rank 0: those of its tokens to each of the others. */
static void chosen(const char *layout, int n, const char *dense, double most)
{
    sk_trial a = trial("llama", layout), b = trial("llama", dense);
    a.after = after;
    check(!sk_trial_run(&a) && !sk_trial_run(&b));
    int64_t tokens = a.batch / n * a.seq, want = (n - 1) * (4 + tokens * (4 + 4 * WIDTH));
    int64_t gone = 0, plan = 0;
    for (int r = 0; r < a.n_ranks; r++) gone += left[r], plan += planned[r];
    if (rows[0] != want || gone != plan)
        printf("%s: %lld bytes of rows, %lld are needed; %lld left, %lld planned\n", layout,
               (long long)rows[0], (long long)want, (long long)gone, (long long)plan);
    check(rows[0] == want && gone == plan);
    double off = 0;
    for (int s = 0; s < a.steps; s++) off = fmax(off, fabs(a.loss[s] / b.loss[s] - 1));
    if (!(off <= most) || (most <= 0 && a.digest != b.digest))
        printf("%s: losses %.1e from those of %s\n", layout, off, dense);
    check(off <= most);
    if (most <= 0) check(a.digest == b.digest);
}

static void dense(const char *model, const char *layout, void change(sk_trial *t))
{
    sk_trial t = trial(model, layout);
    t.steps = 1;
    t.after = after;
    if (change) change(&t);
    check(!sk_trial_run(&t));
    if (rows[0]) printf("%s on %s: rows were gathered\n", model, layout);
    check(!rows[0]);
}

static void tied(sk_trial *t) { t->hyper.tie_word_embeddings = true; }
static void few_words(sk_trial *t) { t->hyper.vocab_size = 30; }
static void uneven(sk_trial *t) { t->batch = 7; }

int main(void)
{
    static const int64_t units[] = {1, 3, 64, 1023, 1024, 1025, 1500};
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        there_and_back(units[i], 7, 14);
        there_and_back(units[i], 1, ROWS);
        there_and_back(units[i], 89, 40);
    }
    chosen("dp=2", 2, "dp=2 zero=1", 0); /* a + b has one order */
    chosen("dp=2 micro=2", 2, "dp=2 zero=1 micro=2", 0);
    chosen("dp=4", 4, "dp=1", 1e-5);
    chosen("dp=2 tp=2", 2, "dp=1", 1e-5);
    chosen("pp=2 dp=2 micro=2", 2, "dp=1", 1e-5);
    dense("llama", "dp=2 zero=1", NULL);
    dense("llama", "dp=2 zero=3", NULL);
    dense("llama", "dp=2; canonical order", NULL);
    dense("llama", "dp=2 cp=2", NULL);
    dense("llama", "dp=2 grads=int8", NULL);
    dense("llama", "dp=2", tied);
    dense("llama", "dp=2", few_words);
    dense("llama", "dp=2", uneven);
    dense("mlp", "dp=2", NULL);
    printf("rows that are not zeros: %d checks, %d bad\n", checks, bad);
    return bad > 0;
}
