/* libFuzzer target: the values of a key of a sweep.  Of a number, a whole number, a list and a text
 * each; what is accepted has values, no two alike, or is a range to draw from. */
#include "cli/sweep.h"
#include "lib/fuzz.h"

#include <string.h>

static void one(const char *key, const char *text)
{
    sk_arena a = {0};
    sk_axis x;
    sk_status st = sk_conf_axis(&a, key, text, &x);
    sk_assert(!st || (st == SK_EUSAGE && *sk_error_line()));
    if (!st) {
        sk_assert(x.n > 0 || x.range);
        for (int i = 0; i < x.n; i++) sk_assert(x.values[i]);
        for (int i = 1; i < x.n; i++) sk_assert(strcmp(x.values[i], x.values[i - 1]));
        if (x.range) sk_assert(*sk_axis_at(&a, &x, 0.5));
    }
    sk_arena_end(&a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    sk_arena a = {0};
    const char *text = fuzz_text(&a, data, n);
    one("optim.lr", text);
    one("train.seed", text);
    one("optim.betas", text);
    one("sample.prompt", text);
    sk_arena_end(&a);
    return 0;
}
