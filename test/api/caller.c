/* caller.c - skein.h: what the caller has set in its thread changes nothing, and is kept.
 * A locale with a decimal comma (made by localedef), rounding upwards, trapped exceptions.
 * Output: "api_caller: N checks, N bad". */
#include "skein.h"

#include "base/entry.h"
#include "lib/check.h"

#include <fenv.h>
#include <locale.h>

static char dir[] = "/tmp/skein-caller-XXXXXX";

/* The loss and the norm after some steps, to the bit. */
static void train(const char *layout, int flags, double out[2])
{
    char data[64];
    snprintf(data, sizeof data, "data.train=%s/text", dir);
    const char *words[] = {"model=tiny",    data,          "train.batch=4",  "train.seq=8",
                           "optim.lr=0.05", "val.every=0", "optim.warmup=0", layout};
    skein_job *job = NULL;
    skein_program *p = NULL;
    skein_run *run = NULL;
    skein_step s = {.size = sizeof s};
    const char *text = NULL;
    check(!skein_job_open(NULL, sizeof words / sizeof *words, words, &job));
    check(job && !skein_compile(job, NULL, &p) && !skein_program_text(p, 0, &text));
    check(p && !skein_run_open(p, SKEIN_DATA | flags, &run));
    for (int i = 0; run && i < 2; i++) check(!skein_run_step(run, &s));
    check(s.lr > 0.01 && s.lr < 0.06);
    out[0] = s.loss;
    out[1] = s.norm;
    skein_run_close(run);
    skein_program_close(p);
    skein_job_close(job);
}

static void same(const double want[2])
{
    double got[2];
    train("layout=dp=2", 0, got);
    check(got[0] == want[0] && got[1] == want[1]);
    train("layout=dp=2", SKEIN_PROCESSES, got);
    check(got[0] == want[0] && got[1] == want[1]);
}

static void command(void)
{
    char data[64], run[64];
    snprintf(data, sizeof data, "data.train=%s/text", dir);
    snprintf(run, sizeof run, "run=%s/run", dir);
    const char *words[] = {"train",          "--launch=thread", "model=tiny",    data,
                           "train.batch=4",  "train.seq=8",     "train.steps=2", run,
                           "sample.every=0", "val.every=0",     "optim.lr=0.5",  "layout=dp=2"};
    fflush(stdout);
    check(!sk_command(sizeof words / sizeof *words, words));
    char line[4096] = "", path[64];
    snprintf(path, sizeof path, "%s/run/metrics.jsonl", dir);
    FILE *f = fopen(path, "r");
    const char *loss = NULL;
    while (f && !loss && fgets(line, sizeof line, f)) loss = strstr(line, "\"loss\":");
    check(loss && loss[strcspn(loss, ".,}")] == '.');
    if (f) fclose(f);
}

/* A locale with a comma; false where there is no localedef. */
static bool comma(void)
{
    char make[256];
    snprintf(make, sizeof make,
             "command -v localedef >/dev/null && localedef -c -i de_DE -f UTF-8 %s/de_DE.UTF-8 "
             ">/dev/null 2>&1; [ -e %s/de_DE.UTF-8/LC_NUMERIC ]",
             dir, dir);
    if (system(make)) return false;
    setenv("LOCPATH", dir, 1);
    return setlocale(LC_ALL, "de_DE.UTF-8") && !strcmp(localeconv()->decimal_point, ",");
}

/* Subnormal numbers are zero between sk_enter and sk_leave, and what the caller has behind it. */
static float tenth(volatile float x) { return x * 0.1f; }

static void subnormal(void)
{
    volatile float least = 0x1p-126f, below = 0x1p-127f;
    check(tenth(least) > 0 && below + 0.0f > 0);
    {
        SK_ENTER;
        check(tenth(least) == 0 && below + 0.0f == 0 && least + 0.0f > 0);
    }
    check(tenth(least) > 0 && below + 0.0f > 0);
}

int main(void)
{
    double want[2];
    char line[256];
    check(mkdtemp(dir) != NULL);
    snprintf(line, sizeof line, "cp example/one_file.c %s/text", dir);
    check(!system(line));
    subnormal();
    train("layout=dp=2", 0, want);
    check(want[0] > 0);
    fesetround(FE_UPWARD);
    same(want);
    check(fegetround() == FE_UPWARD);
    fesetround(FE_TONEAREST);
    feenableexcept(FE_DIVBYZERO | FE_INVALID | FE_OVERFLOW);
    same(want);
    check(fegetexcept() == (FE_DIVBYZERO | FE_INVALID | FE_OVERFLOW));
    fedisableexcept(FE_ALL_EXCEPT);
    bool made = comma();
    if (made) {
        same(want);
        command();
        snprintf(line, sizeof line, "%.1f", 0.5);
        check(!strcmp(line, "0,5"));
    } else printf("no localedef: nothing is known of a decimal comma\n");
    snprintf(line, sizeof line, "rm -rf %s", dir);
    check(!system(line));
    printf("api_caller: %d checks, %d bad\n", checks, bad);
    return bad ? 1 : made ? 0 : 77;
}
