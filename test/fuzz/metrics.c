/* libFuzzer target: metrics.jsonl of a run that is resumed after step 5.  Lines of later steps go
 * into a file beside it, and nothing is lost. */
#include "lib/fuzz.h"
#include "train/metrics.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    sk_arena a = {0};
    sk_metrics m;
    sk_text kept = {0}, rest = {0};
    const char *path = sk_strdup(&a, fuzz_file("metrics.jsonl", data, n));
    const char *aside = sk_print(&a, "%s.1", path);
    unlink(aside);
    sk_assert(!sk_metrics_open(&m, path, 0, 5));
    sk_metrics_close(&m);
    sk_assert(m.n_again >= 0 && isfinite(m.again_s) && m.again_s >= 0);
    sk_assert(!sk_file_read(&a, path, &kept));
    if (kept.n < n) sk_assert(!sk_file_read(&a, aside, &rest));
    sk_assert(kept.n + rest.n == n);
    sk_assert(!kept.n || !memcmp(kept.s, data, kept.n));
    sk_assert(!rest.n || !memcmp(rest.s, data + kept.n, rest.n));
    sk_arena_end(&a);
    return 0;
}
