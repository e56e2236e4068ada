/* graph.c - skein.h: models written by the caller, layouts, plans.
 * A graph that says what parts/model/mlp.c says gives its losses to the bit, under any layout; what
 * cannot be built is a sentence; random calls never end the process.
 * Output: "api_graph: N checks, N bad". */
#include "skein.h"

#include "lib/check.h"

#include <math.h>

enum { BATCH = 6, IN = 9, HIDDEN = 8, CLASSES = 5, STEPS = 3 };

#define WORDS(...) \
    (int)(sizeof((const char *[]){__VA_ARGS__}) / sizeof(char *)), (const char *[]) { __VA_ARGS__ }

/* --- one model, said twice --- */

static skein_tensor *dense(skein_graph *g, int i, char from, char to, double size, skein_tensor *x)
{
    char letters[3] = {from, to}, dims[16], name[2][32];
    skein_graph_layer(g, i + 1);
    snprintf(name[0], sizeof name[0], "layers.%d.w", i);
    snprintf(name[1], sizeof name[1], "layers.%d.b", i);
    snprintf(dims, sizeof dims, "b%c,%s->b%c", from, letters, to);
    skein_tensor *w = skein_param(g, name[0], letters, sqrt(2.0 / size));
    skein_tensor *b = skein_param(g, name[1], letters + 1, SKEIN_ZEROS);
    skein_tensor *y = skein_contract(g, dims, x, w);
    snprintf(dims, sizeof dims, "b%c,%c->b%c", to, to, to);
    skein_tensor *const in[] = {y, b};
    if (to == 'v') return skein_apply(g, "bias", dims, 2, in, 0, NULL);
    return skein_apply(g, "bias_gelu", NULL, 2, in, 0, NULL);
}

static skein_graph *mlp(void)
{
    skein_graph *g = NULL;
    check(!skein_graph_open("my-mlp", &g));
    skein_graph_size(g, 'x', IN);
    skein_graph_size(g, 'v', CLASSES);
    skein_graph_size(g, 'f', HIDDEN);
    skein_graph_size(g, 'g', HIDDEN);
    skein_tensor *x = skein_input(g, "pixels", "bx", SKEIN_F32);
    x = dense(g, 0, 'x', 'f', IN, x);
    x = dense(g, 1, 'f', 'g', HIDDEN, x);
    x = dense(g, 2, 'g', 'v', HIDDEN, x);
    skein_cross_entropy(g, x, skein_input(g, "targets", "b", SKEIN_I32),
                        skein_input(g, "weights", "b", SKEIN_F32));
    check(!skein_graph_status(g));
    return g;
}

static void feed(skein_run *run, int step)
{
    float x[BATCH * IN];
    int32_t y[BATCH];
    for (int i = 0; i < BATCH * IN; i++) x[i] = (float)((i * 37 + step * 11) % 64) / 64;
    for (int i = 0; i < BATCH; i++) y[i] = (i + step) % CLASSES;
    check(!skein_run_feed(run, "pixels", x, BATCH * IN));
    check(!skein_run_feed(run, "targets", y, BATCH));
}

static void losses(skein_job *job, const char *layout, int flags, double *out)
{
    skein_layout *l = NULL;
    skein_program *p = NULL;
    skein_run *run = NULL;
    check(!skein_layout_read(layout, 0, &l));
    check(!skein_compile(job, l, &p));
    skein_layout_close(l);
    check(!skein_run_open(p, flags, &run));
    for (int i = 0; run && i < STEPS; i++) {
        skein_step s = {.size = sizeof s};
        feed(run, i);
        check(!skein_run_step(run, &s));
        out[i] = s.loss;
    }
    skein_run_close(run);
    skein_program_close(p);
}

static void said_twice(void)
{
    skein_job *theirs = NULL, *mine = NULL;
    skein_graph *g = mlp();
    double a[STEPS] = {0}, b[STEPS] = {0};
    const char *const layouts[] = {"dp=1", "dp=2", "tp=2", "pp=2 micro=2"};
    check(!skein_job_open(NULL,
                          WORDS("model.arch=mlp", "model.input_size=9", "model.hidden_size=8",
                                "model.num_hidden_layers=2", "model.vocab_size=5", "train.batch=6",
                                "order=canonical", "train.threads=1"),
                          &theirs));
    check(!skein_job_open(g, WORDS("train.batch=6", "order=canonical", "train.threads=1"), &mine));
    skein_graph_close(g); /* the job keeps it */
    losses(theirs, "dp=1", 0, a);
    for (int k = 0; k < 4; k++) {
        losses(mine, layouts[k], k == 2 ? SKEIN_PROCESSES : 0, b);
        check(!memcmp(a, b, sizeof a) && a[STEPS - 1] < a[0] + 1 && a[0] > 1);
    }
    skein_job_close(theirs);
    skein_job_close(mine);
}

/* A loss that is a sum of its own: the mean square of what a row is off by. */
static void own_loss(void)
{
    skein_graph *g = NULL;
    skein_job *job = NULL;
    skein_program *p = NULL;
    skein_run *run = NULL;
    float x[BATCH * 2], ones[BATCH];
    double first = 0, last = 0;
    check(!skein_graph_open("line", &g));
    skein_graph_size(g, 'x', 2);
    skein_tensor *in = skein_input(g, "points", "bx", SKEIN_F32);
    skein_tensor *one = skein_input(g, "ones", "b", SKEIN_F32);
    skein_tensor *w = skein_param(g, "w", "x", 0.5);
    skein_tensor *y = skein_contract(g, "bx,x->b", in, w);
    skein_tensor *sum = skein_contract(g, "b,b->", y, y);
    skein_loss(g, sum, skein_contract(g, "b,b->", one, one));
    check(!skein_graph_status(g));
    check(!skein_job_open(g,
                          WORDS("train.batch=6", "optim.name=sgd", "optim.schedule=constant",
                                "optim.warmup=0", "optim.lr=0.1", "layout=dp=3"),
                          &job));
    check(!skein_compile(job, NULL, &p) && !skein_run_open(p, 0, &run));
    for (int i = 0; i < BATCH * 2; i++) x[i] = (float)(i % 5) / 4;
    for (int i = 0; i < BATCH; i++) ones[i] = 1;
    for (int i = 0; run && i < 20; i++) {
        skein_step s = {.size = sizeof s};
        check(!skein_run_feed(run, "points", x, BATCH * 2));
        check(!skein_run_feed(run, "ones", ones, BATCH));
        check(!skein_run_step(run, &s));
        if (!i) first = s.loss;
        last = s.loss;
    }
    check(first > 0 && last < first / 2);
    skein_run_close(run);
    skein_program_close(p);
    skein_job_close(job);
    skein_graph_close(g);
}

/* --- plans --- */

static void plans(void)
{
    skein_job *job = NULL;
    skein_program *p = NULL;
    skein_layout *l = NULL;
    skein_memory m = {.size = sizeof m}, first = {0};
    skein_simulation price = {.size = sizeof price};
    const char *text = NULL, *name = NULL;
    int size = 0;
    check(
        !skein_job_open(NULL, WORDS("model=llama-7b", "train.batch=128", "train.seq=4096"), &job));
    check(!skein_layout_read("dp=16 tp=8 zero=1", 128, &l) && skein_layout_ranks(l) == 128);
    check(!skein_layout_axis(l, 1, &name, &size) && !strcmp(name, "tp") && size == 8);
    check(strstr(skein_layout_text(l), "over tp") != NULL);
    fails((sk_status)skein_layout_axis(l, 2, &name, &size), SK_EUSAGE, "axis 2");
    check(!skein_plan(job, l, &p) && skein_program_ranks(p) == 128);
    check(skein_program_params(p) == 6738415616 && skein_program_flops(p) > 2e16);
    check(!skein_program_memory(p, 0, &m));
    first = m;
    check(m.total == m.weights + m.grads + m.optimizer + m.activations + m.wire + m.scratch);
    check(m.total >> 30 == 59 || m.total >> 30 == 60);
    check(!skein_program_memory(p, 127, &m) && m.weights <= first.weights && m.weights > 0);
    fails((sk_status)skein_program_memory(p, 128, &m), SK_EUSAGE, "rank 128");
    check(!skein_program_text(p, 5, &text) && strstr(text, "all-reduce"));
    check(!skein_program_simulate(p, "h100-8", &price) && price.seconds > 0.1 && price.wire > 0);
    check(fabs(price.busy + price.exposed + price.bubble - price.seconds) < 1e-6 * price.seconds);
    fails((sk_status)skein_program_simulate(p, "no-such-machine", &price), SK_EUSAGE,
          "no-such-machine");
    fails((sk_status)skein_program_simulate(p, NULL, &price), SK_EUSAGE, "machine is NULL");
    skein_program_close(p);
    skein_layout_close(l);
    skein_layout_close(NULL);
    skein_job_close(job);
    l = NULL;
    fails((sk_status)skein_layout_read("dp=2", 3, &l), SK_ECONF, "3");
    fails((sk_status)skein_layout_read(NULL, 3, &l), SK_EUSAGE, "text is NULL");
    fails((sk_status)skein_layout_read("dp=2", -3, &l), SK_EUSAGE, "-3");
    check(!l && skein_layout_ranks(NULL) == 0);
}

/* --- mistakes in a graph --- */

static skein_graph *fresh(void)
{
    skein_graph *g = NULL;
    check(!skein_graph_open("g", &g));
    skein_graph_size(g, 'x', 4);
    skein_graph_size(g, 'f', 4);
    return g;
}

#define MISTAKE(words, ...)                                        \
    do {                                                           \
        skein_graph *g = fresh();                                  \
        skein_tensor *x = skein_input(g, "x", "bx", SKEIN_F32);    \
        skein_tensor *ids = skein_input(g, "ids", "b", SKEIN_I32); \
        skein_tensor *w = skein_param(g, "w", "xf", 0.1);          \
        (void)x, (void)ids, (void)w;                               \
        __VA_ARGS__;                                               \
        fails((sk_status)skein_graph_status(g), SK_ECONF, words);  \
        skein_graph_close(g);                                      \
    } while (0)

static void mistakes(void)
{
    skein_graph *other = fresh(), *none = NULL;
    skein_tensor *far = skein_input(other, "x", "bx", SKEIN_F32);
    double attr[1] = {0};
    fails((sk_status)skein_graph_open(NULL, &none), SK_EUSAGE, "name is NULL");
    fails((sk_status)skein_graph_open("", &none), SK_EUSAGE, "0 bytes");
    fails((sk_status)skein_graph_status(NULL), SK_EUSAGE, "g is NULL");
    MISTAKE("contract",
            skein_apply(g, "contrcat", "bx,xf->bf", 2, (skein_tensor *[]){x, w}, 0, NULL));
    MISTAKE("2 operands",
            skein_apply(g, "contract", "bx,xf->bf", 1, (skein_tensor *[]){x}, 0, NULL));
    MISTAKE("operand 1 is NULL", skein_contract(g, "bx,xf->bf", x, NULL));
    MISTAKE("another graph", skein_contract(g, "bx,xf->bf", far, w));
    MISTAKE("ids", skein_contract(g, "b,xf->bf", ids, w));
    MISTAKE("SKEIN_I32", skein_cross_entropy(g, x, x, x));
    MISTAKE("two tensors", skein_param(g, "w", "xf", 0.1));
    MISTAKE("init", skein_param(g, "v", "xf", NAN));
    MISTAKE("letters", skein_param(g, "v", "xfx1", 1));
    MISTAKE("letters", skein_param(g, "v", "abcdefg", 1));
    MISTAKE("no name", skein_param(g, "a b", "x", 1));
    MISTAKE("loss_scale", skein_input(g, "loss_scale", "b", SKEIN_F32));
    MISTAKE("type", skein_input(g, "y", "b", SKEIN_BF16));
    MISTAKE("train.batch", skein_graph_size(g, 'b', 3));
    MISTAKE("another size", skein_graph_size(g, 'x', 3));
    MISTAKE("at least 1", skein_graph_size(g, 'y', 0));
    MISTAKE("character", skein_graph_size(g, '\x80', 1));
    MISTAKE("layer", skein_graph_layer(g, -1));
    MISTAKE("no result 1", skein_result(skein_contract(g, "bx,xf->bf", x, w), 1));
    MISTAKE("numbers",
            skein_apply(g, "contract", "bx,xf->bf", 2, (skein_tensor *[]){x, w}, 99, attr));
    MISTAKE("two losses", skein_loss(g, x, x); skein_loss(g, x, x));
    skein_graph_close(other);
    check(!skein_contract(NULL, "", NULL, NULL) && !skein_input(NULL, "", "", SKEIN_F32));
    skein_graph_size(NULL, 'x', 1);
    skein_graph_layer(NULL, 1);
    skein_loss(NULL, NULL, NULL);
    check(!skein_result(NULL, 0));
}

/* Found when the graph is compiled, because only then sizes are known. */
static void late_mistakes(void)
{
    static const struct {
        const char *dims, *words;
    } cases[] = {{"bx,fx->bf", "contract"},
                 {"bx->bf", "operands"},
                 {"nonsense", "dims"},
                 {"bx,xq->bq", "q"}};
    for (int i = 0; i < 4; i++) {
        skein_job *job = NULL;
        skein_program *p = NULL;
        skein_graph *g = fresh();
        skein_tensor *w = skein_param(g, "w", i == 3 ? "xq" : "xf", 0.1);
        skein_tensor *y = skein_contract(g, cases[i].dims, skein_input(g, "x", "bx", SKEIN_F32), w);
        skein_cross_entropy(g, y, skein_input(g, "t", "b", SKEIN_I32),
                            skein_input(g, "s", "b", SKEIN_F32));
        check(!skein_job_open(g, 0, NULL, &job));
        fails((sk_status)skein_plan(job, NULL, &p), SK_ECONF, cases[i].words);
        skein_input(g, "more", "b", SKEIN_F32);
        fails((sk_status)skein_graph_status(g), SK_ECONF, "cannot change");
        skein_job_close(job);
        skein_graph_close(g);
    }
    skein_job *job = NULL;
    skein_graph *g = mlp();
    fails((sk_status)skein_job_open(g, WORDS("model=tiny"), &job), SK_EUSAGE, "leave it out");
    fails((sk_status)skein_job_open(g, WORDS("model.hidden_size=3"), &job), SK_EUSAGE,
          "leave it out");
    skein_graph_close(g);
    g = fresh();
    fails((sk_status)skein_job_open(g, 0, NULL, &job), SK_ECONF, "no loss");
    skein_graph_close(g);
    check(!job);
}

/* --- random calls --- */

static unsigned draw(unsigned n)
{
    static unsigned long long seed = 11;
    seed = seed * 6364136223846793005ull + 1442695040888963407ull;
    return (unsigned)(seed >> 33) % n;
}

/* An op with operands that may fit, and now and then not even in number. */
static skein_tensor *random_op(skein_graph *g, skein_tensor *const *t, int n)
{
    static const struct {
        const char *name;
        int n_in;
    } ops[] = {{"relu", 1},      {"add", 2},       {"mul", 2},      {"bias", 2},
               {"bias_gelu", 2}, {"softmax", 1},   {"rmsnorm", 2},  {"layernorm", 3},
               {"dropout", 1},   {"act", 1},       {"swiglu", 2},   {"embedding", 2},
               {"row_max", 1},   {"attention", 1}, {"contract", 2}, {"sum", 1},
               {"rename", 1},    {"rope", 2},      {"route", 1},    {"dispatch", 2}};
    static const char *const dims[] = {"bf,bf->bf", "bf,fx->bx", "bf,b->f",
                                       "bf->b",     "*->*",      "f!,f->f"};
    unsigned op = draw(3) ? draw(10) : draw(20);
    double attr[2] = {draw(2) ? 0.5 : draw(9), draw(3)};
    skein_tensor *in[6];
    for (int i = 0; i < 6; i++)
        in[i] = draw(4) ? t[4 + draw((unsigned)n - 4)] : t[draw((unsigned)n)];
    if (op >= 3 && op <= 4 && draw(4)) in[1] = t[3];
    if (op == 6 && draw(4)) in[1] = t[3];
    if (op == 7 && draw(4)) in[1] = in[2] = t[3];
    return skein_apply(g, ops[op].name, draw(6) ? NULL : dims[draw(6)],
                       draw(20) ? ops[op].n_in : (int)draw(7), in, (int)draw(3), attr);
}

static void one_step(skein_program *p)
{
    skein_run *run = NULL;
    float x[16] = {0.5f, 1, -1, 2}, ones[4] = {1, 1, 1, 1};
    int32_t ids[4] = {0, 1, 2, 3};
    if (skein_run_open(p, 0, &run)) return;
    check(!skein_run_feed(run, "x", x, 16) && !skein_run_feed(run, "ids", ids, 4));
    check(!skein_run_feed(run, "ones", ones, 4));
    int st = skein_run_step(run, NULL);
    check(!st || st == SK_ENUM);
    skein_run_close(run);
}

static void random_calls(int times)
{
    int built = 0;
    for (int k = 0; k < times; k++) {
        skein_graph *g = fresh();
        skein_job *job = NULL;
        skein_program *p = NULL;
        skein_tensor *t[16] = {0};
        int n = 0;
        t[n++] = skein_input(g, "x", "bx", SKEIN_F32);
        t[n++] = skein_input(g, "ids", "b", SKEIN_I32);
        t[n++] = skein_param(g, "w", "xf", 0.1);
        t[n++] = skein_param(g, "v", "f", 0.1);
        skein_tensor *ones = skein_input(g, "ones", "b", SKEIN_F32);
        t[n++] = skein_contract(g, "bx,xf->bf", t[0], t[2]);
        for (unsigned c = 1 + draw(3); c; c--, n++) t[n] = random_op(g, t, n);
        skein_tensor *sum = skein_contract(g, "bf,bf->", t[n - 1], t[n - 1]);
        skein_loss(g, sum, skein_contract(g, "b,b->", ones, ones));
        if (!skein_job_open(
                g,
                WORDS("train.batch=4", "train.threads=1", draw(2) ? "layout=dp=2" : "layout=tp=2"),
                &job) &&
            !skein_compile(job, NULL, &p)) {
            if (built++ < 100) one_step(p);
        }
        skein_program_close(p);
        skein_job_close(job);
        skein_graph_close(g);
        checks++;
    }
    check(built > times / 10 && built < times);
    printf("%d random graphs, %d could be compiled\n", times, built);
}

int main(void)
{
    said_twice();
    own_loss();
    plans();
    mistakes();
    late_mistakes();
    random_calls(getenv("SKEIN_LONG") ? 20000 : 2000);
    printf("api_graph: %d checks, %d bad\n", checks, bad);
    return bad != 0;
}
