/* outputs.c - skein.h: outputs of the backward pass after a step of a run.
 *
 * Squared norms of samples against runs of single samples, whose norm is the caller's; the other
 * outputs against one another; on layouts, as threads and as processes, in f16, on GPUs that are
 * none.  Mistakes are answered with a sentence.  Output: "api_outputs: N checks, N bad". */
#include "skein.h" /* first, so that it is seen to need nothing before it */

#include "lib/check.h"
#include "lib/fake_gpu.h"
#include "lib/fake_nccl.h"

#include <math.h>
#include <stdlib.h>

enum { BATCH = 4, SEQ = 16, IDS = 256 };

static float expected[BATCH]; /* squared norms, of single samples */

static skein_run *opened(const char *layout, const char *batch, const char *backward,
                         const char *more, int flags)
{
    char lay[128], out[128];
    snprintf(lay, sizeof lay, "layout=%s", layout);
    snprintf(out, sizeof out, "train.backward=%s", backward);
    const char *words[] = {"model=tiny",
                           "train.seq=16",
                           "train.threads=1",
                           "optim.lr=0",
                           "optim.warmup=0",
                           batch,
                           lay,
                           out,
                           more};
    skein_job *job = NULL;
    skein_program *p = NULL;
    skein_run *run = NULL;
    check(!skein_job_open(NULL, 9, words, &job));
    check(job && !skein_compile(job, NULL, &p));
    check(p && !skein_run_open(p, flags, &run));
    skein_job_close(job);
    skein_program_close(p);
    if (!run) printf("%s: %s\n", layout, sk_error_line());
    return run;
}

/* Rows of the batch, from the first one on. */
static skein_step stepped(skein_run *run, int first, int rows)
{
    int32_t tokens[BATCH * SEQ], targets[BATCH * SEQ];
    skein_step s = {.size = sizeof s};
    for (int i = 0; i < rows * SEQ; i++) {
        int k = first * SEQ + i;
        tokens[i] = (k * 7 + k * k / 3) % IDS % 19; /* some come twice in a row */
        targets[i] = (k * 5 + 11) % IDS;
    }
    check(!skein_run_feed(run, "tokens", tokens, rows * SEQ));
    check(!skein_run_feed(run, "targets", targets, rows * SEQ));
    check(!skein_run_step(run, &s) && !s.skipped);
    return s;
}

/* The norm of a single sample is over its own tokens; in the batch it is over those of all. */
static void single_samples(void)
{
    skein_run *run = opened("dp=1", "train.batch=1", "", "optim.clip=0", 0);
    for (int r = 0; run && r < BATCH; r++) {
        double norm = stepped(run, r, 1).norm / BATCH;
        expected[r] = (float)(norm * norm);
        check(norm > 0);
    }
    check(skein_run_outputs(run) == 0);
    skein_run_close(run);
}

static bool near(double x, double y, double most, double tolerance)
{
    return fabs(x - y) <= tolerance * most;
}

static void norms(const char *layout, const char *more, int flags, double tolerance)
{
    float got[BATCH] = {0};
    bool same = true;
    skein_run *run = opened(layout, "train.batch=4", "norms", more, flags);
    if (!run) return;
    stepped(run, 0, BATCH);
    check(!skein_run_read_output(run, "norms", got, BATCH));
    for (int r = 0; r < BATCH; r++)
        same &= near((double)got[r], (double)expected[r], (double)expected[r], tolerance);
    if (!same) printf("%s: %g is not %g\n", layout, (double)got[0], (double)expected[0]);
    check(same);
    skein_run_close(run);
}

/* --- outputs against one another --- */

static float *whole(skein_run *run, const char *name, const char *kind, int64_t *n)
{
    char text[160];
    snprintf(text, sizeof text, "%s%s", name, kind);
    for (int i = 0; i < skein_run_outputs(run); i++) {
        skein_shape s = {.size = sizeof s};
        check(!skein_run_output(run, i, &s));
        if (strcmp(s.name, text)) continue;
        float *x = malloc((size_t)s.elements * sizeof *x);
        check(!skein_run_read_output(run, text, x, s.elements));
        *n = s.elements;
        return x;
    }
    printf("no output '%s'\n", text);
    check(false);
    return NULL;
}

static void one_parameter(skein_run *run, const char *name, float total[BATCH])
{
    int64_t n = 0, all = 0, rows = 0;
    float *grad = whole(run, name, ".grad", &n), *each = whole(run, name, ".gradients", &all);
    float *square = whole(run, name, ".second_moment", &n);
    float *variance = whole(run, name, ".variance", &n), *norm = whole(run, name, ".norms", &rows);
    double most = 1e-30, found[BATCH] = {0};
    bool same = grad && each && square && variance && norm && all == n * BATCH && rows == BATCH;
    for (int64_t i = 0; same && i < n; i++) most = fmax(most, (double)square[i]);
    for (int64_t i = 0; same && i < n; i++) {
        double sum = 0, squares = 0;
        for (int r = 0; r < BATCH; r++) {
            double x = (double)each[r * n + i];
            sum += x, squares += x * x, found[r] += x * x;
        }
        same = near(sum, (double)grad[i], sqrt(most), 1e-4) &&
               near(squares, (double)square[i], most, 1e-4) &&
               near(BATCH * squares - sum * sum, (double)variance[i], BATCH * most, 1e-4);
    }
    for (int r = 0; same && r < BATCH; r++) {
        same = near(found[r], (double)norm[r], found[r] + 1e-30, 1e-3);
        total[r] += norm[r];
    }
    if (!same) printf("%s: its outputs differ\n", name);
    check(same);
    free(grad), free(each), free(square), free(variance), free(norm);
}

static void together(const char *layout, int flags)
{
    float total[BATCH] = {0}, got[BATCH];
    skein_run *run = opened(layout, "train.batch=4", "norms,second_moment,variance,gradients",
                            "optim.clip=1", flags);
    if (!run) return;
    stepped(run, 0, BATCH);
    for (int i = 0; i < skein_run_tensors(run); i++) {
        skein_shape s = {.size = sizeof s};
        check(!skein_run_tensor(run, i, &s));
        if (!strstr(s.name, ".adamw.")) one_parameter(run, s.name, total);
    }
    check(!skein_run_read_output(run, "norms", got, BATCH));
    for (int r = 0; r < BATCH; r++)
        check(near((double)got[r], (double)total[r], (double)total[r], 1e-5));
    skein_run_close(run);
}

/* Factors are symmetric, diagonals not negative. */
static void curvature(const char *layout)
{
    int64_t n = 0, k = 0;
    skein_run *run = opened(layout, "train.batch=4", "kron, diag_ggn_mc", "optim.clip=1", 0);
    if (!run) return;
    stepped(run, 0, BATCH);
    float *a = whole(run, "h.0.fc.w", ".kron_a", &n),
          *d = whole(run, "h.0.fc.w", ".diag_ggn_mc", &k);
    int side = (int)(sqrt((double)n) + 0.5);
    bool good = a && d && side * side == n;
    for (int i = 0; good && i < n; i++)
        good = near((double)a[i], (double)a[i % side * side + i / side], 1, 1e-5);
    for (int i = 0; good && i < k; i++) good = d[i] >= 0;
    for (int i = 0; good && i < side; i++) good = a[i * side + i] > 0;
    check(good);
    free(a), free(d);
    skein_run_close(run);
}

/* --- mistakes --- */

static void answers(int st, int code, const char *part)
{
    if (st != code || !strstr(sk_error_line(), part)) printf("%d: %s\n", st, sk_error_line());
    check(st == code && strstr(sk_error_line(), part));
}

static void mistakes(void)
{
    float x[BATCH];
    skein_shape s = {.size = sizeof s};
    skein_job *job = NULL;
    skein_program *p = NULL;
    const char *words[] = {"model=tiny", "train.backward=norm"};
    if (!skein_job_open(NULL, 2, words, &job)) skein_compile(job, NULL, &p);
    answers(p ? 0 : SKEIN_ECONF, SKEIN_ECONF, "did you mean \"norms\"?");
    skein_job_close(job);

    skein_run *run = opened("dp=2", "train.batch=4", "norms", "optim.clip=1", 0);
    answers(skein_run_read_output(run, "norms", x, BATCH), SKEIN_EUSAGE, "none was done");
    stepped(run, 0, BATCH);
    answers(skein_run_read_output(NULL, "norms", x, BATCH), SKEIN_EUSAGE, "r is NULL");
    answers(skein_run_read_output(run, NULL, x, BATCH), SKEIN_EUSAGE, "name is NULL");
    answers(skein_run_read_output(run, "norms", NULL, BATCH), SKEIN_EUSAGE, "to is NULL");
    answers(skein_run_read_output(run, "norms", x, 3), SKEIN_EUSAGE, "has 4 elements, not 3");
    answers(skein_run_read_output(run, "norm", x, BATCH), SKEIN_EUSAGE, "no output 'norm'");
    answers(skein_run_read_output(run, "wte.variance", x, BATCH), SKEIN_EUSAGE,
            "train.backward is \"norms\", which must name it");
    answers(skein_run_output(run, 100000, &s), SKEIN_EUSAGE, "output 100000; there are ");
    answers(skein_run_output(run, -1, &s), SKEIN_EUSAGE, "output -1");
    answers(skein_run_output(run, 0, NULL), SKEIN_EUSAGE, "out is NULL");
    s.size = 0;
    answers(skein_run_output(run, 0, &s), SKEIN_EUSAGE, "sizeof");
    check(skein_run_outputs(NULL) == 0);
    check(!skein_run_read_output(run, "norms", x, BATCH) && x[0] > 0);
    skein_run_close(run);

    run = opened("dp=1", "train.batch=4", "", "optim.clip=1", 0);
    stepped(run, 0, BATCH);
    answers(skein_run_read_output(run, "norms", x, BATCH), SKEIN_EUSAGE, "train.backward is \"\"");
    skein_run_close(run);
}

int main(void)
{
    static const char *const layouts[] = {"dp=1",
                                          "dp=2 zero=1",
                                          "dp=4 zero=3",
                                          "tp=2",
                                          "cp=2",
                                          "pp=2 micro=2",
                                          "dp=2 tp=2 micro=2 zero=2"};
    single_samples();
    for (int i = 0; i < (int)(sizeof layouts / sizeof *layouts); i++) {
        norms(layouts[i], "optim.clip=1", 0, 1e-4);
        together(layouts[i], i % 2 ? SKEIN_PROCESSES : 0);
        curvature(layouts[i]);
    }
    norms("dp=2 zero=1", "optim.clip=0", SKEIN_PROCESSES, 1e-4);
    norms("dp=2", "train.dtype=f16", 0, 3e-2); /* the loss scale is taken out */
    mistakes();
    sk_fake_gpu(0); /* "cuda" of this program from here on */
    sk_fake_nccl();
    norms("dp=2 zero=1", "device=cuda", 0, 1e-4);
    printf("api_outputs: %d checks, %d bad\n", checks, bad);
    return bad != 0;
}
