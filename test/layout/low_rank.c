/* low_rank.c - gradients that are summed as factors of low rank (grads=powersgd:R): laws of whole
 * programs.
 *
 * What is sent is a projection of the sum: it has rank R at most, and what is owed is orthogonal to
 * it.  A gradient of no more rank than R is sent to rounding, R that would send more than the
 * gradient sends the gradient, other layouts change nothing but rounding, and bytes are those of
 * the closed form.  That what is sent and what is owed are the gradient, and that bytes that leave
 * ranks are those of the plan, test/layout/codec.c has. */
#include "lib/check.h"
#include "lib/ranks.h"

#include "program/param_groups.h"

#include <math.h>
#include <pthread.h>

static sk_trial trial(const char *model, const char *layout)
{
    sk_trial t = sk_trial_small(model, layout);
    t.hyper.hidden_size = 48;
    t.hyper.num_hidden_layers = 2;
    t.hyper.intermediate_size = 72;
    t.hyper.vocab_size = 40;
    t.hyper.input_size = 20;
    t.hyper.embd_pdrop = t.hyper.resid_pdrop = 0;
    t.hyper.tie_word_embeddings = t.model->usual.tie_word_embeddings;
    t.batch = 12;
    t.steps = 6;
    return t;
}

/* --- gradients of no more rank --- */

static double apart(const sk_trial *a, const sk_trial *b)
{
    double off = 0;
    for (int s = 0; s < a->steps; s++) off = fmax(off, fabs(a->loss[s] / b->loss[s] - 1));
    return off;
}

/* How far the loss after one update is from that of the same layout without factors, with a batch
 * of few rows: so many are the rank of a gradient. */
static double from_plain(const char *layout, const char *words, int64_t rows)
{
    char text[128];
    snprintf(text, sizeof text, "%s %s", layout, words);
    sk_trial a = trial("mlp", layout), b = trial("mlp", text);
    a.batch = b.batch = rows;
    a.optim = b.optim = "sgd";
    a.lr = b.lr = 0.5;
    a.steps = b.steps = 2;
    check(!sk_trial_run(&a) && !sk_trial_run(&b));
    return apart(&b, &a);
}

static void exact(void)
{
    double enough = fmax(from_plain("dp=2", "grads=powersgd:4 feedback", 4),
                         from_plain("dp=2 tp=2 zero=1", "grads=powersgd:6 feedback", 4));
    double less = from_plain("dp=2", "grads=powersgd:2 feedback", 4);
    printf("losses from those without factors: %.1e with enough rank, %.1e with less\n", enough,
           less);
    check(enough < 2e-6 && less > 1e-4);
}

/* Factors that are no smaller than the gradient: it travels as it is, to the bit. */
static void full(void)
{
    sk_trial a = trial("llama", "dp=2"), b = trial("llama", "dp=2 grads=powersgd:1024 feedback");
    check(!sk_trial_run(&a) && !sk_trial_run(&b) && a.digest == b.digest);
}

/* --- a projection --- */

enum { MOST = 64 };
static double sent[MOST][8192], owed[MOST][8192];
static int64_t cols_of[MOST], size_of[MOST];
static pthread_mutex_t looking = PTHREAD_MUTEX_INITIALIZER;

static void look(const sk_trial *t, const sk_run *run, const sk_program *p, int step)
{
    if (step) return;
    (void)t;
    pthread_mutex_lock(&looking);
    for (int i = 0; i < p->params.n; i++) {
        const sk_param_plan *q = &p->params.v[i];
        if (q->factor < 0) continue;
        const sk_buffer *b = &p->bufs.v[q->grad];
        int64_t n = b->bytes / 4;
        const float *grad = sk_run_data(run, q->grad), *rest = sk_run_data(run, q->error);
        sk_assert(i < MOST && n <= 8192);
        size_of[i] = n;
        cols_of[i] = p->bufs.v[q->factor].bytes / 4 /
                     p->bufs.v[q->factor].box.size[p->bufs.v[q->factor].box.n - 1];
        for (int64_t k = 0; k < n; k++) sent[i][k] = grad[k], owed[i][k] += rest[k];
    }
    pthread_mutex_unlock(&looking);
}

static double norm(const double *x, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += x[i] * x[i];
    return sqrt(sum);
}

/* The largest entry of sent' owed, beside the norms. */
static double overlap(const double *x, const double *y, int64_t rows, int64_t cols)
{
    double most = 0;
    for (int64_t a = 0; a < cols; a++)
        for (int64_t b = 0; b < cols; b++) {
            double sum = 0;
            for (int64_t r = 0; r < rows; r++) sum += x[r * cols + a] * y[r * cols + b];
            most = fmax(most, fabs(sum));
        }
    return most / (norm(x, rows * cols) * norm(y, rows * cols) + 1e-300);
}

/* Rows that are left once `rank` of them, the largest of the rest each, are taken out of all: the
 * norm of what is left. */
static double beyond(double *x, int64_t rows, int64_t cols, int rank)
{
    double all = norm(x, rows * cols);
    for (int k = 0; k < rank; k++) {
        int64_t top = 0;
        for (int64_t r = 1; r < rows; r++)
            if (norm(x + r * cols, cols) > norm(x + top * cols, cols)) top = r;
        double unit[8192], size = norm(x + top * cols, cols);
        for (int64_t c = 0; c < cols; c++) unit[c] = size > 0 ? x[top * cols + c] / size : 0;
        for (int64_t r = 0; r < rows; r++) {
            double by = 0;
            for (int64_t c = 0; c < cols; c++) by += x[r * cols + c] * unit[c];
            for (int64_t c = 0; c < cols; c++) x[r * cols + c] -= by * unit[c];
        }
    }
    return norm(x, rows * cols) / (all + 1e-300);
}

static void projection(int rank)
{
    char text[64];
    snprintf(text, sizeof text, "dp=3 grads=powersgd:%d feedback", rank);
    sk_trial t = trial("gpt2", text);
    t.steps = 1;
    t.after = look;
    memset(owed, 0, sizeof owed);
    memset(size_of, 0, sizeof size_of);
    check(!sk_trial_run(&t));
    int n = 0;
    double most = 0, left = 0, share = 1;
    for (int i = 0; i < MOST; i++) {
        if (!size_of[i]) continue;
        int64_t rows = size_of[i] / cols_of[i];
        share = fmin(share, norm(sent[i], size_of[i]) / (norm(owed[i], size_of[i]) + 1e-300));
        most = fmax(most, overlap(sent[i], owed[i], rows, cols_of[i]));
        left = fmax(left, beyond(sent[i], rows, cols_of[i], rank));
        n++;
    }
    printf("rank %d, %d gradients: sent and owed overlap by %.1e, rank beyond %.1e, sent is over "
           "%.2f of owed\n",
           rank, n, most / 3, left, share);
    check(n > 8 && most < 1e-5 && left < 1e-5 && share > 0.05);
}

/* --- other layouts --- */

static void alike(const char *model, const char *first, const char *second, int64_t batch)
{
    sk_trial a = trial(model, first), b = trial(model, second);
    a.batch = b.batch = batch;
    sk_status x = sk_trial_run(&a), y = sk_trial_run(&b);
    if (x || y) printf("%s on %s and %s: %s\n", model, first, second, sk_error());
    check(!x && !y);
    double off = apart(&b, &a);
    if (off > 1e-4) printf("%s: losses of %s and %s are %.1e apart\n", model, first, second, off);
    check(off < 1e-4);
}

static void layouts(void)
{
    static const char *const models[] = {"gpt2", "llama"};
    for (int m = 0; m < 2; m++) {
        alike(models[m], "dp=2 grads=powersgd:2 feedback", "dp=2 tp=2 grads=powersgd:2 feedback",
              12);
        alike(models[m], "dp=2 grads=powersgd:2 feedback",
              "pp=2 dp=2 micro=3 grads=powersgd:2 feedback", 12);
        alike(models[m], "dp=2 micro=2 grads=powersgd:3 feedback",
              "dp=2 cp=2 zero=1 grads=powersgd:3 feedback", 12);
        alike(models[m], "dp=3 grads=powersgd:2 feedback", "dp=4 zero=1 grads=powersgd:2 feedback",
              12);
        alike(models[m], "dp=2 grads=powersgd:2 feedback",
              "mesh hosts=2 dp=2; split b over hosts; split b over dp; encode gradients as "
              "powersgd:2 with feedback",
              12);
    }
    alike("mixtral", "dp=2 grads=powersgd:2 feedback", "dp=2 tp=2 grads=powersgd:2 feedback", 12);
}

/* --- closed form --- */

/* Elements that an all-reduce over dp moves: of factors, or of gradients as they are. */
static int64_t closed(const sk_graph *g, int64_t rank)
{
    int64_t sum = 0;
    for (int i = 0; i < g->tensors.n; i++) {
        const sk_tensor *t = g->tensors.v[i];
        char roles[SK_MAX_DIM + 1];
        int64_t rows = 1, cols = 1, several = 1;
        if (t->role != SK_PARAM) continue;
        bool matrix = sk_param_matrix(g, t, roles);
        for (int d = 0; t->letters[d]; d++) {
            char role = !matrix ? (d ? '2' : '1') : roles[d];
            *(role == '0' ? &several : role == '1' ? &rows : &cols) *= g->size[(int)t->letters[d]];
        }
        int64_t factors = rank * (rows + cols);
        bool dense = !t->letters[1] || factors >= rows * cols;
        sum += several * (dense ? rows * cols : factors);
    }
    return sum;
}

static void bytes(const char *model, const char *words, int64_t rank, int64_t n)
{
    sk_arena a = {0};
    sk_graph g;
    sk_program **p = NULL;
    int ranks = 0;
    char text[128];
    int64_t found = 0, state = 0;
    snprintf(text, sizeof text, "dp=%d grads=powersgd:%d feedback %s", (int)n, (int)rank, words);
    sk_trial t = trial(model, text);
    check(!sk_trial_compile(&a, &t, &g, &p, &ranks) && ranks == n);
    for (int r = 0; r < ranks; r++)
        for (int i = 0; i < p[r]->n_train; i++) {
            const sk_inst *in = &p[r]->insts.v[i];
            if (in->call >= 0 && p[r]->calls.v[in->call].group != p[r]->world) found += in->wire;
        }
    for (int i = 0; i < p[0]->params.n; i++)
        if (p[0]->params.v[i].factor >= 0) state += p[0]->bufs.v[p[0]->params.v[i].factor].bytes;
    int64_t want = 2 * (n - 1) * 4 * closed(&g, rank);
    printf("%s, dp=%d, rank %d: %lld bytes from all ranks, %lld of a right factor kept\n", model,
           (int)n, (int)rank, (long long)found, (long long)state);
    if (found != want) printf("%s: %lld bytes are right\n", text, (long long)want);
    check(found == want && state > 0);
    sk_arena_end(&a);
}

/* --- refusals --- */

static sk_status try(const char *layout)
{
    sk_trial t = trial("llama", layout);
    t.steps = 1;
    return sk_trial_run(&t);
}

static void error_messages(void)
{
    fails(try("dp=2 grads=powersgd:4"), SK_ECONF, "add 'feedback'");
    fails(try("dp=2 grads=powersgd feedback"), SK_ECONF, "a whole number from 1 to 1024");
    fails(try("dp=2 grads=powersgd:0 feedback"), SK_ECONF, "a whole number from 1 to 1024");
    fails(try("dp=2 grads=powersgd:1.5 feedback"), SK_ECONF, "a whole number from 1 to 1024");
    fails(try("dp=2 zero=2 grads=powersgd:4 feedback"), SK_ECONF, "zero=1 goes with it");
    fails(try("dp=2 zero=3 weights=powersgd:4"), SK_ECONF, "is for gradients");
    fails(try("pp=2 dp=2 micro=4 schedule=pipedream grads=powersgd:4 feedback"), SK_ECONF,
          "within a step");
    sk_trial t = trial("llama", "dp=2 grads=powersgd:4 feedback");
    t.dtype = SK_F16;
    fails(sk_trial_run(&t), SK_ECONF, "train.dtype=bf16");
}

int main(void)
{
    exact();
    full();
    projection(1);
    projection(4);
    layouts();
    bytes("gpt2", "", 2, 3);
    bytes("llama", "micro=2", 4, 2);
    bytes("mixtral", "", 1, 4);
    error_messages();
    printf("gradients of low rank: %d checks, %d bad\n", checks, bad);
    return bad > 0;
}
