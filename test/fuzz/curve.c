/* libFuzzer target: metrics.jsonl as the curves of a run.  Any bytes are a run, with steps that
 * count upwards from nothing said before, and a target that is reached is reached within it. */
#include "lib/fuzz.h"
#include "train/metrics_read.h"

#include <math.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    sk_arena a = {0};
    sk_curve c;
    sk_curve_point p;
    sk_assert(!sk_curve_read(&a, fuzz_file("metrics.jsonl", data, n), &c));
    for (int i = 0; i < c.train.n; i++) {
        sk_assert(c.train.v[i].step >= 1 && isfinite(c.train.v[i].tokens));
        sk_assert(i == 0 || c.train.v[i].seconds >= c.train.v[i - 1].seconds);
    }
    for (int val = 0; val < 2; val++)
        if (sk_curve_reach(&c, val, 2.5, &p))
            sk_assert(isfinite(p.tokens) && isfinite(p.seconds) && p.seconds >= 0);
    (void)sk_curve_loss(&c);
    (void)sk_curve_val(&c);
    sk_arena_end(&a);
    return 0;
}
