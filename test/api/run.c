/* run.c - skein.h: runs of models by name, on threads and on processes.
 * Losses and weights are those of `skein train` to the last bit; tensors go in and out whole under
 * any layout; mistakes are answered, not punished.  Output: "api_run: N checks, N bad". */
#include "skein.h" /* first, so that it is seen to need nothing before it */

#include "api/running.h"
#include "lib/check.h"
#include "lib/fake_gpu.h"
#include "lib/fake_nccl.h"

#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { STEPS = 4, BATCH = 4, SEQ = 16, IDS = 256, MOST = 12 };

static char dir[] = "/tmp/skein-api-run-XXXXXX";
static int times; /* trainings by the command, each in a folder of its own */

#define WORDS(...) \
    (int)(sizeof((const char *[]){__VA_ARGS__}) / sizeof(char *)), (const char *[]) { __VA_ARGS__ }

static skein_program *compiled(int n, const char *const words[])
{
    skein_job *job = NULL;
    skein_program *p = NULL;
    check(!skein_job_open(NULL, n, words, &job));
    check(job && !skein_compile(job, NULL, &p));
    skein_job_close(job); /* the program keeps it */
    return p;
}

static skein_program *tiny(const char *layout, const char *more)
{
    char text[256];
    snprintf(text, sizeof text, "layout=%s", layout);
    return compiled(WORDS("model=tiny", "train.batch=4", "train.seq=16", "train.threads=1",
                          "optim.warmup=1", text, more));
}

/* --- all weights of a run --- */

typedef struct weights {
    int n;
    float *v[256];
    skein_shape shape[256];
} weights;

static void read_all(skein_run *run, weights *w)
{
    w->n = skein_run_tensors(run);
    check(w->n > 10 && w->n <= 256);
    for (int i = 0; i < w->n; i++) {
        w->shape[i].size = sizeof w->shape[i];
        check(!skein_run_tensor(run, i, &w->shape[i]));
        w->shape[i].name = strdup(w->shape[i].name); /* which is the run's */
        w->v[i] = malloc((size_t)w->shape[i].elements * sizeof(float));
        check(!skein_run_read(run, w->shape[i].name, w->v[i], w->shape[i].elements));
    }
}

static void forget(weights *w)
{
    for (int i = 0; i < w->n; i++) free(w->v[i]), free((char *)w->shape[i].name);
}

/* Names may come in another order: stages keep other layers first. */
static int at_name(const weights *w, const char *name)
{
    for (int i = 0; i < w->n; i++)
        if (!strcmp(w->shape[i].name, name)) return i;
    return -1;
}

static bool same_weights(const weights *a, const weights *b)
{
    bool same = a->n == b->n;
    for (int i = 0; i < a->n && same; i++) {
        int k = at_name(b, a->shape[i].name);
        same = k >= 0 && a->shape[i].elements == b->shape[k].elements &&
               !memcmp(a->v[i], b->v[k], (size_t)a->shape[i].elements * sizeof(float));
    }
    return same;
}

/* --- the same losses as the command --- */

static int commanded(const char *layout, const char *more, char losses[STEPS][32])
{
    char lay[256], run[256], line[512];
    snprintf(lay, sizeof lay, "layout=%s", layout);
    snprintf(run, sizeof run, "run=%s/%d", dir, ++times);
    int out = dup(1);
    check(freopen("/dev/null", "w", stdout) != NULL);
    int code =
        sk_command(WORDS("train", "model=tiny", "data.train=example/one_file.c", "train.batch=4",
                         "train.seq=16", "train.threads=1", "train.steps=4", "val.every=0",
                         "sample.every=0", "--launch=thread", lay, run, more));
    fflush(stdout);
    dup2(out, 1);
    close(out);
    check(!code);
    snprintf(line, sizeof line, "%s/metrics.jsonl", run + 4);
    FILE *f = fopen(line, "r");
    int n = 0;
    while (f && n < STEPS && fgets(line, sizeof line, f)) {
        const char *at = strstr(line, "\"loss\":");
        if (at && sscanf(at + 7, "%31[^,}]", losses[n]) == 1) n++;
    }
    if (f) fclose(f);
    return n;
}

/* The model that the command saved, loaded by a run: its parameters have the bits of ours. */
static void same_model(const weights *mine, const char *layout, const char *more)
{
    char model[128], lay[256];
    skein_run *run = NULL;
    int n = 0;
    snprintf(model, sizeof model, "model=%s/%d/final", dir, times);
    snprintf(lay, sizeof lay, "layout=%s", layout);
    skein_program *p =
        compiled(WORDS(model, "train.batch=4", "train.seq=16", "train.threads=1", lay, more));
    check(!skein_run_open(p, 0, &run));
    for (int i = 0; i < mine->n; i++) {
        if (strstr(mine->shape[i].name, ".adamw.")) continue;
        float *x = malloc((size_t)mine->shape[i].elements * sizeof *x);
        check(!skein_run_read(run, mine->shape[i].name, x, mine->shape[i].elements));
        check(!memcmp(x, mine->v[i], (size_t)mine->shape[i].elements * sizeof *x));
        free(x);
        n++;
    }
    check(n > 5 && n < mine->n);
    skein_run_close(run);
    skein_program_close(p);
}

static void same_as_train(const char *layout, const char *more, int flags)
{
    char want[STEPS][32] = {{0}}, got[32], lay[256];
    skein_run *run = NULL;
    weights w;
    check(commanded(layout, more, want) == STEPS);
    snprintf(lay, sizeof lay, "layout=%s", layout);
    skein_program *p =
        compiled(WORDS("model=tiny", "data.train=example/one_file.c", "train.batch=4",
                       "train.seq=16", "train.threads=1", "train.steps=4", lay, more));
    check(!skein_run_open(p, SKEIN_DATA | flags, &run));
    for (int i = 0; run && i < STEPS; i++) {
        skein_step s = {.size = sizeof s};
        check(!skein_run_step(run, &s) && s.step == i + 1 && !s.skipped);
        snprintf(got, sizeof got, "%.9g", s.loss);
        check(!strcmp(got, want[i]));
        check(s.tokens == BATCH * SEQ && s.seconds > 0 && s.lr > 0 && s.norm > 0);
    }
    read_all(run, &w);
    skein_run_close(run);
    skein_program_close(p);
    same_model(&w, layout, more);
    forget(&w);
}

/* --- fed by hand --- */

static void batch_of(int64_t step, int32_t *tokens, int32_t *targets)
{
    for (int i = 0; i < BATCH * SEQ; i++) {
        tokens[i] = (int32_t)((i * 7 + step * 31 + i * i) % IDS);
        targets[i] = (int32_t)((i * 7 + step * 31 + 5) % IDS);
    }
}

static void feed(skein_run *run, int64_t step)
{
    int32_t tokens[BATCH * SEQ], targets[BATCH * SEQ];
    batch_of(step, tokens, targets);
    check(!skein_run_feed(run, "tokens", tokens, BATCH * SEQ));
    check(!skein_run_feed(run, "targets", targets, BATCH * SEQ));
}

static int after(skein_run *run, const skein_step *s, void *ctx)
{
    double *loss = ctx;
    loss[s->step - 1] = s->loss;
    feed(run, s->step);
    return s->step == 3;
}

static double valid_loss(skein_run *run)
{
    double loss = 0;
    feed(run, 99);
    check(!skein_run_validate(run, &loss));
    return loss;
}

/* Three steps; the callback stops before the fourth. */
static skein_run *three_steps(const char *layout, const char *more, int flags, double *loss)
{
    skein_program *p = tiny(layout, more);
    skein_run *run = NULL;
    check(!skein_run_open(p, flags, &run));
    skein_program_close(p); /* the run keeps it */
    feed(run, 0);
    fails((sk_status)skein_run_steps(run, 9, after, loss), SK_ESTOP, "after step 3");
    return run;
}

/* In canonical order the layout changes no bit, so what ranks keep must be one whole. */
static void layouts(void)
{
    const char *const others[] = {"tp=2", "dp=2 zero=3", "pp=2 micro=2", "cp=2"};
    double first[MOST] = {0}, loss[MOST] = {0};
    weights a, b;
    skein_run *one = three_steps("dp=1", "order=canonical", 0, first);
    read_all(one, &a);
    double valid = valid_loss(one);
    skein_run_close(one); /* its threads are over before others are forked */
    for (int k = 0; k < 4; k++) {
        skein_run *run =
            three_steps(others[k], "order=canonical", k == 1 ? SKEIN_PROCESSES : 0, loss);
        read_all(run, &b);
        check(same_weights(&a, &b));
        check(!memcmp(first, loss, 3 * sizeof *loss));
        check(valid_loss(run) == valid);
        forget(&b);
        skein_run_close(run);
    }
    forget(&a);
}

/* Weights of one run become those of another, under another layout and in another type. */
static void carried(const char *layout, const char *more, double within)
{
    double loss[MOST] = {0}, zero[4] = {0};
    weights w;
    skein_run *from = three_steps("dp=2 zero=1", "order=canonical", 0, loss), *to = NULL;
    skein_program *p = tiny(layout, more);
    read_all(from, &w);
    check(!skein_run_open(p, 0, &to));
    double before = valid_loss(to);
    for (int i = 0; i < w.n; i++)
        check(!skein_run_write(to, w.shape[i].name, w.v[i], w.shape[i].elements));
    double now = valid_loss(to), want = valid_loss(from);
    check(fabs(now - want) <= within && before != now);
    for (int i = 0; i < w.n; i++) { /* and out again as they went in */
        float *x = malloc((size_t)w.shape[i].elements * sizeof *x);
        check(!skein_run_read(to, w.shape[i].name, x, w.shape[i].elements));
        check(!memcmp(x, w.v[i], (size_t)w.shape[i].elements * sizeof *x));
        free(x);
    }
    fails((sk_status)skein_run_write(to, w.shape[0].name, (float *)(void *)zero, 1), SK_EUSAGE,
          "elements");
    skein_run_close(from);
    skein_run_close(to);
    skein_program_close(p);
    forget(&w);
}

/* Owners' shards make up every tensor once. */
static void shards(void)
{
    double loss[MOST] = {0};
    skein_run *run = three_steps("dp=2 tp=2 zero=1", "order=fast", 0, loss);
    int64_t owned = 0, all = 0;
    skein_shape s = {.size = sizeof s};
    for (int i = 0; i < skein_run_tensors(run); i++) {
        check(!skein_run_tensor(run, i, &s));
        all += s.elements;
    }
    for (int r = 0; r < 4; r++)
        for (int i = 0; i < skein_run_shards(run, r); i++) {
            skein_shard p = {.size = sizeof p};
            check(!skein_run_shard(run, r, i, &p) && p.data && p.type == SKEIN_F32);
            int64_t n = p.owner;
            for (int d = 0; d < p.n_dims; d++) n *= p.count[d];
            owned += n;
        }
    for (int r = 0; r < 4; r++) { /* what was planned is what is mapped */
        skein_memory m = {.size = sizeof m};
        check(!skein_program_memory(run->program, r, &m));
        check(m.total + m.host == sk_heap_own(run->heaps, r) && m.weights > 0 && m.optimizer > 0);
    }
    check(owned == all && skein_run_shards(run, 4) == -1 && skein_run_shards(run, -1) == -1);
    skein_shard p = {.size = sizeof p};
    fails((sk_status)skein_run_shard(run, 9, 0, &p), SK_EUSAGE, "rank 9");
    skein_run_close(run);
}

/* State in blocks of 8 bits has no address; it is read and written as f32, and comes back as it was
 * written, since its numbers are those of codes. */
static void blocks(void)
{
    double loss[MOST] = {0};
    weights w, again;
    int hidden = 0, shown = 0;
    skein_run *run = three_steps("dp=2 zero=1", "optim.state=int8", 0, loss);
    read_all(run, &w);
    for (int i = 0; i < w.n; i++)
        check(!skein_run_write(run, w.shape[i].name, w.v[i], w.shape[i].elements));
    read_all(run, &again);
    for (int i = 0; i < w.n; i++)
        check(!memcmp(w.v[i], again.v[i], (size_t)w.shape[i].elements * sizeof(float)));
    for (int i = 0; i < skein_run_shards(run, 1); i++) {
        skein_shard p = {.size = sizeof p};
        check(!skein_run_shard(run, 1, i, &p) && p.type == SKEIN_F32);
        hidden += !p.data, shown += p.data != NULL;
    }
    check(hidden > 0 && shown > hidden);
    skein_run_close(run);
    forget(&w);
    forget(&again);
}

/* --- mistakes --- */

static void jobs(void)
{
    skein_job *job = NULL;
    skein_program *p = NULL;
    fails((sk_status)skein_job_open(NULL, 1, NULL, &job), SK_EUSAGE, "words");
    fails((sk_status)skein_job_open(NULL, -1, NULL, &job), SK_EUSAGE, "words");
    fails((sk_status)skein_job_open(NULL, 0, NULL, NULL), SK_EUSAGE, "out is NULL");
    fails((sk_status)skein_job_open(NULL, WORDS("model=tiny", NULL), &job), SK_EUSAGE, "word 1");
    fails((sk_status)skein_job_open(NULL, WORDS("modle=tiny"), &job), SK_EUSAGE, "model");
    fails((sk_status)skein_job_open(NULL, WORDS("--help"), &job), SK_EUSAGE, "--help");
    fails((sk_status)skein_job_open(NULL, WORDS("model=tniy"), &job), SK_EUSAGE, "tiny");
    check(!job);
    fails((sk_status)skein_plan(NULL, NULL, &p), SK_EUSAGE, "job is NULL");
    check(!skein_job_open(NULL, WORDS("model=tiny", "layout=dq=2"), &job));
    fails((sk_status)skein_compile(job, NULL, &p), SK_ECONF, "dp");
    check(!p);
    skein_job_close(job);
    skein_job_close(NULL);
}

static void runs(void)
{
    skein_run *run = NULL;
    skein_program *p = tiny("dp=2", "order=fast");
    int32_t ids[BATCH * SEQ] = {0};
    double loss = 0;
    skein_step s = {0};
    fails((sk_status)skein_run_open(NULL, 0, &run), SK_EUSAGE, "p is NULL");
    fails((sk_status)skein_run_open(p, 64, &run), SK_EUSAGE, "flags");
    check(!skein_run_open(p, 0, &run));
    fails((sk_status)skein_run_step(run, NULL), SK_EUSAGE, "tokens");
    fails((sk_status)skein_run_feed(run, "token", ids, BATCH * SEQ), SK_EUSAGE, "token");
    fails((sk_status)skein_run_feed(run, "tokens", ids, 3), SK_EUSAGE, "64");
    fails((sk_status)skein_run_feed(run, NULL, ids, 3), SK_EUSAGE, "NULL");
    fails((sk_status)skein_run_feed(NULL, "tokens", ids, 3), SK_EUSAGE, "NULL");
    ids[5] = IDS;
    fails((sk_status)skein_run_feed(run, "tokens", ids, BATCH * SEQ), SK_EDATA, "element 5 is 256");
    ids[5] = INT32_MIN;
    fails((sk_status)skein_run_feed(run, "pos", ids, BATCH * SEQ), SK_EDATA, "positions from 0");
    feed(run, 0);
    fails((sk_status)skein_run_step(run, &s), SK_EUSAGE, "sizeof");
    s.size = 24; /* of an older header: it gets as much as it has room for */
    check(!skein_run_step(run, &s) && s.step == 1 && s.loss > 1 && s.norm == 0);
    fails((sk_status)skein_run_step(run, NULL), SK_EUSAGE, "not fed");
    fails((sk_status)skein_run_read(run, "no-such", (float *)(void *)ids, 3), SK_EUSAGE, "no-such");
    fails((sk_status)skein_run_tensor(run, 999, NULL), SK_EUSAGE, "NULL");
    fails((sk_status)skein_run_rate(run, NAN), SK_EUSAGE, "rate");
    fails((sk_status)skein_run_steps(run, -1, NULL, NULL), SK_EUSAGE, "steps");
    fails((sk_status)skein_run_validate(run, NULL), SK_EUSAGE, "NULL");
    fails((sk_status)skein_run_validate(run, &loss), SK_EUSAGE, "not fed");
    check(!skein_run_rate(run, 0));
    feed(run, 1);
    s.size = sizeof s;
    check(!skein_run_step(run, &s) && s.lr == 0 && s.step == 2);
    skein_run *again = NULL; /* two at once of one program */
    check(!skein_run_open(p, 0, &again));
    feed(again, 0);
    check(!skein_run_step(again, &s) && s.step == 1);
    skein_run_close(run);
    skein_program_close(p);
    feed(again, 1);
    check(!skein_run_step(again, &s) && s.step == 2);
    skein_run_close(again);
    skein_run_close(NULL);
    check(skein_run_tensors(NULL) == 0 && skein_program_ranks(NULL) == 0);
}

/* What only skein train can do is refused, with its key. */
static void refused(void)
{
    const char *const words[] = {"train.nonfinite=rollback", "train.time=5", "resume=auto"};
    for (int i = 0; i < 3; i++) {
        skein_run *run = NULL;
        skein_program *p = tiny("dp=1", words[i]);
        fails((sk_status)skein_run_open(p, 0, &run), SK_ECONF,
              i == 1 ? "train.time"
              : i    ? "resume"
                     : "rollback");
        skein_program_close(p);
    }
    skein_job *job = NULL;
    skein_program *p = NULL;
    skein_run *run = NULL;
    check(!skein_job_open(NULL, WORDS("model=tiny", "data.train=/no/such/file"), &job));
    check(!skein_plan(job, NULL, &p));
    fails((sk_status)skein_run_open(p, 0, &run), SK_EUSAGE, "skein_compile");
    skein_program_close(p);
    check(!skein_compile(job, NULL, &p));
    check(skein_run_open(p, SKEIN_DATA, &run) && strstr(sk_error_line(), "/no/such/file"));
    skein_program_close(p);
    skein_job_close(job);
}

/* --- a rank that dies --- */

static int child(void)
{
    char path[64], text[256] = "";
    int pid = 0;
    snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
    FILE *f = fopen(path, "r");
    if (f && fgets(text, sizeof text, f)) pid = atoi(text);
    if (f) fclose(f);
    return pid;
}

/* ignored: the caller does not want to hear of its children. */
static void death(bool ignored)
{
    const char *words = "died"; /* the caller says so, or the rank that waits for it */
    double loss[MOST] = {0};
    float x[4];
    signal(SIGCHLD, ignored ? SIG_IGN : SIG_DFL);
    skein_run *run = three_steps("dp=2", "order=fast", SKEIN_PROCESSES, loss);
    int pid = child();
    if (pid > 0) {
        kill(pid, SIGKILL);
        feed(run, 4);
        fails((sk_status)skein_run_step(run, NULL), SK_EPEER, words);
        fails((sk_status)skein_run_step(run, NULL), SK_EPEER, words); /* it stays so */
        check(skein_run_read(run, "wte", x, 4) != 0);
    }
    skein_run_close(run);
    check(child() == 0 && waitpid(-1, NULL, WNOHANG) == -1);        /* nobody is left */
    run = three_steps("dp=2", "order=fast", SKEIN_PROCESSES, loss); /* and all is well again */
    skein_run_close(run);
    signal(SIGCHLD, SIG_DFL);
}

/* The caller is killed: its ranks find out by themselves.  They become children of this process. */
static void orphans(void)
{
    int ready[2], gone = 0;
    char word = 0;
    check(!pipe(ready) && !prctl(PR_SET_CHILD_SUBREAPER, 1));
    fflush(NULL);
    pid_t caller = fork();
    if (!caller) {
        double loss[MOST] = {0};
        skein_run *run = three_steps("dp=2", "order=fast", SKEIN_PROCESSES, loss);
        if (run && write(ready[1], "r", 1) == 1) pause();
        _exit(1);
    }
    check(read(ready[0], &word, 1) == 1);
    kill(caller, SIGKILL);
    for (int i = 0; i < 300 && gone < 3; i++) {
        while (waitpid(-1, NULL, WNOHANG) > 0) gone++;
        if (gone < 3) nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
    }
    check(gone == 3); /* it and two ranks */
    prctl(PR_SET_CHILD_SUBREAPER, 0);
    close(ready[0]);
    close(ready[1]);
}

int main(void)
{
    check(mkdtemp(dir) != NULL);
    char version[32];
    snprintf(version, sizeof version, "%d.%d.%d", SKEIN_VERSION_MAJOR, SKEIN_VERSION_MINOR,
             SKEIN_VERSION_PATCH);
    check(!strcmp(sk_version(), SKEIN_VERSION) && !strcmp(version, SKEIN_VERSION));
    check(skein_api() == SKEIN_API);
    same_as_train("dp=2", "train.dtype=f32", 0);
    same_as_train("dp=2 tp=2 zero=1", "train.dtype=bf16", SKEIN_PROCESSES);
    same_as_train("pp=2 micro=2", "train.dtype=f16", 0);
    layouts();
    carried("tp=2", "order=canonical", 0);
    carried("dp=2 zero=3", "train.dtype=bf16", 0.05);
    blocks();
    shards();
    sk_fake_gpu(0); /* "cuda" of this program from here on */
    sk_fake_nccl();
    carried("dp=2 zero=1", "device=cuda", 1e-4);
    jobs();
    runs();
    refused();
    death(false);
    death(true);
    orphans();
    char line[64];
    snprintf(line, sizeof line, "rm -rf %s", dir);
    check(!system(line));
    printf("api_run: %d checks, %d bad\n", checks, bad);
    return bad != 0;
}
