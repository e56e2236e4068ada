/* scale.c - the scale of gradients: halved, doubled, at its ends; and when a run gives up. */
#include "lib/check.h"
#include "train/model_export.h"
#include "train/loss_scale.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static int forgiven(sk_loss_scale *s, int most)
{
    int n = 0;
    while (n < most && sk_loss_scale_step(s, 1, false)) n++;
    return n;
}

static void begins(void)
{
    check(sk_loss_scale_begin(SK_F16, SK_STOP, 512).value == 128);
    check(sk_loss_scale_begin(SK_F16, SK_STOP, 1000).value ==
          64); /* a power of two: nothing is rounded */
    check(sk_loss_scale_begin(SK_F16, SK_STOP, 0).value == 65536);
    check(sk_loss_scale_begin(SK_F16, SK_STOP, 1 << 22).value == 1.0 / 64);
    check(sk_loss_scale_begin(SK_BF16, SK_SKIP, 512).value == 1);
    check(sk_loss_scale_begin(SK_F32, SK_STOP, 512).value == 1);
}

static void halves_and_doubles(void)
{
    sk_loss_scale s = sk_loss_scale_begin(SK_F16, SK_STOP, 512);
    check(sk_loss_scale_step(&s, 1, false) && s.value == 64 && s.skips == 1);
    for (int i = 0; i < SK_LOSS_SCALE_GROWTH - 1; i++) check(sk_loss_scale_step(&s, 1, true));
    check(s.value == 64 && s.skips == 0);
    check(sk_loss_scale_step(&s, 1, false) &&
          s.value == 32); /* the count of good ones begins anew */
    for (int i = 0; i < SK_LOSS_SCALE_GROWTH - 1; i++) check(sk_loss_scale_step(&s, 1, true));
    check(s.value == 32);
    check(sk_loss_scale_step(&s, 1, true) && s.value == 64 && s.good == 0);
}

static void ends(void)
{
    sk_loss_scale s = sk_loss_scale_begin(SK_F16, SK_STOP, 1);
    for (int i = 0; i < 40 * SK_LOSS_SCALE_GROWTH; i++) sk_loss_scale_step(&s, 1, true);
    check(s.value == ldexp(1, 30));
    for (int i = 0; i < 70; i++) { /* never many in a row */
        check(sk_loss_scale_step(&s, 1, false) == (i < 60));
        sk_loss_scale_step(&s, 1, true);
    }
    check(s.value == ldexp(1, -30));
}

static void gives_up(void)
{
    sk_loss_scale f16 = sk_loss_scale_begin(SK_F16, SK_STOP, 1),
                  stop = sk_loss_scale_begin(SK_BF16, SK_STOP, 1),
                  skip = sk_loss_scale_begin(SK_BF16, SK_SKIP, 1);
    check(forgiven(&f16, 100) == SK_LOSS_SCALE_SKIPS);
    check(forgiven(&stop, 100) == 0 && stop.value == 1);
    check(forgiven(&skip, 100) == SK_LOSS_SCALE_SKIPS && skip.value == 1);
    for (int i = 0; i < 2 * SK_LOSS_SCALE_GROWTH; i++) check(sk_loss_scale_step(&skip, 1, true));
    check(skip.value == 1);
}

/* A loss that is no number is not for the scale to mend; a gradient that overflows is. */
static void goes_back(void)
{
    sk_loss_scale f16 = sk_loss_scale_begin(SK_F16, SK_ROLLBACK, 1),
                  f32 = sk_loss_scale_begin(SK_F32, SK_ROLLBACK, 1);
    check(sk_nonfinite_find("rollback") == SK_ROLLBACK && sk_nonfinite_find("skip") == SK_SKIP);
    check(sk_nonfinite_find("stop") == SK_STOP);
    check(!sk_loss_scale_step(&f32, 1, false) && !sk_loss_scale_step(&f32, NAN, false) &&
          !f32.skipped);
    check(!sk_loss_scale_step(&f16, INFINITY, false) && f16.value == 65536 && !f16.skipped);
    check(sk_loss_scale_step(&f16, 1, false) && f16.value == 32768 && f16.skipped == 1);
    check(sk_loss_scale_step(&f16, 1, true) && f16.skipped == 1);
}

/* Which batch a step reads, against the list walked one by one. */
static void left_out(void)
{
    sk_arena a = {0};
    sk_skipped_batches l = {0};
    check(sk_batch_of_step(&l, 7) == 7 && !*sk_skipped_batches_print(&a, &l));
    check(sk_skipped_batches_add(&l, 7) && sk_skipped_batches_add(&l, 3) &&
          sk_skipped_batches_add(&l, 4) && sk_skipped_batches_add(&l, 4));
    check(l.n == 3 && !strcmp(sk_skipped_batches_print(&a, &l), "3,4,7"));
    for (int64_t batch = 0, step = 0; batch < 20; batch++) {
        if (batch == 3 || batch == 4 || batch == 7) continue;
        check(sk_batch_of_step(&l, step++) == batch);
    }
    char *extra =
        sk_extra_print(&a, &(sk_extra){.skipped = 5, .skipped_batches = l, .tokenizer = "left=1"});
    sk_extra x;
    check(!sk_extra_read(&a, "here", extra, 9, &x) && x.skipped == 5 && x.skipped_batches.n == 3);
    check(!memcmp(x.skipped_batches.v, l.v, 3 * sizeof *l.v) && !strcmp(x.tokenizer, "left=1"));
    check(!strcmp(sk_extra_tokenizer(extra), "left=1") && x.updates == 0 && !*x.data);
    check(!sk_extra_read(&a, "here", "steps=3 updates=4 tokenizer=a tokenizer=b", 9, &x));
    check(x.steps == 3 && x.updates == 4 && !x.skipped && !x.skipped_batches.n &&
          !x.pending); /* an older one */
    check(!strcmp(x.tokenizer, "a tokenizer=b"));
    check(!sk_extra_read(&a, "here", "", 9, &x) && x.updates == 9 && !*x.tokenizer);
    check(!x.batch && !x.seq && !x.windows && !*x.order);
    extra =
        sk_extra_print(&a, &(sk_extra){.batch = 4, .seq = 32, .windows = 99, .order = "shuffle"});
    check(!sk_extra_read(&a, "here", extra, 9, &x) && x.batch == 4 && x.seq == 32);
    check(x.windows == 99 && !strcmp(x.order, "shuffle"));
    check(!sk_extra_read(&a, "here", "later=word data=5:00ab", 9, &x) && !strcmp(x.data, "5:00ab"));
    static const char *const wrong[] = {"updates=-7",
                                        "updates=9223372036854775807",
                                        "steps=",
                                        "steps=1e3",
                                        "scale=nan",
                                        "scale=inf",
                                        "scale=-1",
                                        "left=3,",
                                        "left=4,3",
                                        "left=,",
                                        "left=3;4",
                                        "pending=2",
                                        "good=99999999999999999999"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        check(sk_extra_read(&a, "here", wrong[i], 9, &x) == SK_EDATA);
    for (int i = 0; i < SK_SKIPPED_MOST - 3; i++) check(sk_skipped_batches_add(&l, 100 + 2 * i));
    check(!sk_skipped_batches_add(&l, 101) && sk_skipped_batches_add(&l, 100));
    sk_arena_end(&a);
}

int main(void)
{
    goes_back();
    left_out();
    begins();
    halves_and_doubles();
    ends();
    gives_up();
    printf("scale: %d checks, %d bad\n", checks, bad);
    return bad > 0;
}
