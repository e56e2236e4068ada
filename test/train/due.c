/* When things are due, and bytes made safe for a terminal. */
#include "base/rng.h"
#include "train/loop.h"
#include "train/save_interval.h"
#include "train/sampler.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static int checks, bad;

static void near(const char *what, double got, double want)
{
    checks++;
    if (fabs(got - want) <= 1e-12 * (1 + fabs(want))) return;
    bad++;
    printf("%s is %.17g, expected %.17g\n", what, got, want);
}

static int times(int64_t every, int64_t n, int64_t steps)
{
    int due = 0;
    for (int64_t done = 1; done <= steps; done++) due += sk_loop_due(every, n, done, steps);
    return due;
}

static void dues(void)
{
    near("never", times(0, 4, 100), 0);
    near("every 10 of 100, the end apart", times(10, 0, 100), 9);
    near("four times", times(-1, 4, 100), 3);
    near("four times in 7 steps", times(-1, 4, 7), 3);
    near("four times in 2 steps", times(-1, 4, 2), 1);
    near("steps not known", sk_loop_due(-1, 4, 5, 0), 0);
    near("a quarter of 100 is step 25", sk_loop_due(-1, 4, 25, 100), 1);
}

/* A run of `hours` whose saves stall it for `stall` seconds, give or take a half. */
typedef struct paced {
    int saves;
    double longest; /* seconds between the beginnings of two saves, or the start and the first */
    double cost;    /* part of the time */
} paced;

static paced run_for(double hours, double step, double stall, uint64_t seed)
{
    sk_save_interval p = {.every = 600, .began = 1e6, .last = 1e6};
    paced out = {0};
    double now = p.began, from = now;
    for (uint64_t i = 0; now < p.began + 3600 * hours; i++) {
        bool save = now + step >= sk_save_interval_next(&p); /* as the loop decides, a step ahead */
        now += step;
        if (!save) continue;
        double took = stall * (0.5 + sk_rng_uniform(seed, 1, i));
        if (now - from > out.longest) out.longest = now - from;
        from = now;
        sk_save_interval_saved(&p, now += took, took);
        out.saves++;
    }
    out.cost = p.spent / (now - p.began);
    return out;
}

static void at_most(const char *what, double got, double most)
{
    checks++;
    if (got <= most) return;
    bad++;
    printf("%s is %.17g, at most %.17g is allowed\n", what, got, most);
}

static void paces(void)
{
    paced fast = run_for(10, 0.5, 0.2, 1), slow = run_for(100, 0.5, 20, 2);
    paced coarse = run_for(10, 250, 0.2, 3);
    near("saves of a small model in ten hours", fast.saves, 59);
    at_most("time between them", fast.longest, 601);
    at_most("what they cost", fast.cost, 0.0005);
    at_most("what saves of 20 s cost", slow.cost, 0.0101);
    at_most("they are not given up: time between them", slow.longest, 20000);
    at_most("a save comes at most a step late", coarse.longest, 600 + 250 + 1);
    for (uint64_t s = 0; s < 20; s++)
        at_most("what saves of 60 s cost in 100 hours", run_for(100, 1, 60, s).cost, 0.0103);
    sk_save_interval never = {0};
    at_most("no clock, no save", 1e300, sk_save_interval_next(&never));
}

static void clean(const char *bytes, bool one_line, const char *want)
{
    sk_arena a = {0};
    sk_out whole = {.arena = &a}, single = {.arena = &a};
    sk_utf8_filter c = {.one_line = one_line}, d = c;
    sk_utf8_filter_put(&c, &whole, bytes, strlen(bytes));
    sk_utf8_filter_end(&c, &whole);
    for (const char *p = bytes; *p; p++) sk_utf8_filter_put(&d, &single, p, 1); /* cut anywhere */
    sk_utf8_filter_end(&d, &single);
    checks++;
    if (strcmp(whole.s ? whole.s : "", want) || strcmp(single.s ? single.s : "", want))
        bad++, printf("bytes came out as '%s' and '%s', expected '%s'\n", whole.s, single.s, want);
    sk_arena_end(&a);
}

#define NO "\xEF\xBF\xBD"
static void texts(void)
{
    clean("plain\ttext\n", false, "plain\ttext\n");
    clean("two\nlines", true, "two lines");
    clean("\x1b[31mred", false, " [31mred");
    clean("na\xC3\xAFve \xE2\x82\xAC \xF0\x9F\x98\x80", false,
          "na\xC3\xAFve \xE2\x82\xAC \xF0\x9F\x98\x80");
    clean("cut \xE2\x82", false, "cut " NO);
    clean("\xFF\x80", false, NO NO);
    clean("\xC0\xAF", false, NO NO);        /* overlong '/' */
    clean("\xE0\x80\xAF", false, NO NO NO); /* overlong in three */
    clean("\xED\xA0\x80", false, NO NO NO); /* a surrogate */
    clean("\xC3z", false, NO "z");
    clean("\xC2\x9B"
          "31m",
          false, " 31m"); /* a control sequence in one character */
}

int main(void)
{
    dues();
    paces();
    texts();
    printf("%d checks, %d wrong\n", checks, bad);
    return bad ? 1 : 0;
}
