/* batch_schedule.c - sizes of the batch: what is read, when the noise scale changes them, and the
 * rates that go with them. */
#include "train/batch_schedule.h"
#include "lib/check.h"

#include <math.h>

static sk_job job_of(const char *text)
{
    sk_job job = {.batch = 12};
    snprintf(job.batch_schedule, sizeof job.batch_schedule, "%s", text);
    return job;
}

static void lists(void)
{
    sk_batch_list l;
    sk_job job = job_of("0: 32, 100:64 ,\n 300 : 256");
    check(!sk_batch_schedule_begin(&job) && job.batch == 32 && !job.noise);
    check(!sk_batch_schedule_read(&job, &l) && l.n == 3);
    check(l.v[1].from == 100 && l.v[1].batch == 64 && l.v[2].from == 300 && l.v[2].batch == 256);
    job = job_of("7: 5");
    check(!sk_batch_schedule_begin(&job) && job.batch == 12);
    job = job_of("");
    check(!sk_batch_schedule_begin(&job) && !sk_batch_schedule_read(&job, &l) && !l.n);
    job = job_of("noise:8-100");
    check(!sk_batch_schedule_begin(&job) && job.batch == 8 && job.noise == 1);
    check(!sk_batch_schedule_read(&job, &l) && l.n == 4 && l.v[3].batch == 64);
    job = job_of("noise");
    check(!sk_batch_schedule_begin(&job) && !sk_batch_schedule_read(&job, &l));
    check(l.n == 5 && l.v[0].batch == 12 && l.v[4].batch == 192);
}

static void refusals(void)
{
    static const char *const texts[] = {"5",
                                        "5:",
                                        "5: 4,, 6: 8",
                                        "5: 4 6: 8",
                                        "5: 4, 4: 8",
                                        "5: -4",
                                        "5: 0",
                                        "5: 9999999999",
                                        "x",
                                        "noise:",
                                        "noise:8",
                                        "noise:8-",
                                        "noise:0-8",
                                        "noise:8-15",
                                        "noise 8-16",
                                        "noise:8-16x",
                                        "99999999999999999999: 4"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        sk_job job = job_of(texts[i]);
        fails(sk_batch_schedule_begin(&job), SK_ECONF, "train.batch_schedule");
    }
    sk_job job = job_of("");
    snprintf(job.batch_scaling, sizeof job.batch_scaling, "sqrt");
    fails(sk_batch_schedule_begin(&job), SK_ECONF, "optim.batch_scaling is sqrt");
}

static void by_noise(void)
{
    sk_noise_scale x = {.variance = 160, .square = 10, .weight = 0.7}; /* 16 samples */
    check(sk_batch_next(&x, 8, 20, 1, 3) == 2);
    check(sk_batch_next(&x, 8, 19, 1, 3) == 1); /* too early */
    check(sk_batch_next(&x, 8, 20, 2, 3) == 2); /* the largest */
    check(sk_batch_next(&x, 9, 20, 1, 3) == 1);
    check(sk_batch_next(&x, 31, 20, 1, 3) == 1);
    check(sk_batch_next(&x, 32, 20, 1, 3) == 0);
    check(sk_batch_next(&x, 32, 20, 0, 3) == 0); /* the smallest */
    x.weight = 0.5;
    check(sk_batch_next(&x, 8, 20, 1, 3) == 1); /* not known well enough */
    x = (sk_noise_scale){.variance = 160, .square = -1, .weight = 1};
    check(sk_batch_next(&x, 8, 20, 1, 3) == 1); /* not known at all */
}

static void rates(void)
{
    sk_job job = {.batch = 8};
    check(sk_batch_rate(&job, 32) == 1);
    snprintf(job.batch_scaling, sizeof job.batch_scaling, "none");
    check(sk_batch_rate(&job, 32) == 1);
    snprintf(job.batch_scaling, sizeof job.batch_scaling, "linear");
    check(sk_batch_rate(&job, 32) == 4 && sk_batch_rate(&job, 4) == 0.5);
    snprintf(job.batch_scaling, sizeof job.batch_scaling, "sqrt");
    check(sk_batch_rate(&job, 32) == 2 && fabs(sk_batch_rate(&job, 4) - sqrt(0.5)) < 1e-15);
}

int main(void)
{
    lists();
    refusals();
    by_noise();
    rates();
    printf("batch_schedule: %d checks, %d bad\n", checks, bad);
    return bad > 0;
}
