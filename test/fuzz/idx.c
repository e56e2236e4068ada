/* libFuzzer target: images and labels in IDX files, one behind the other (fuzz_halves), packed or
 * not. */
#include "data/data.h"
#include "lib/fuzz.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    sk_arena a = {0};
    sk_text images, labels;
    sk_store s;
    sk_feed f;
    float row[64];
    if (!fuzz_halves(data, n, &images, &labels)) return 0;
    fuzz_file("t-labels-idx1-ubyte", labels.s, labels.n);
    sk_status st =
        sk_store_open(&a, fuzz_file("t-images-idx3-ubyte", images.s, images.n), NULL, false, &s);
    fuzz_refused(st, SK_EDATA);
    if (!st && s.rows) {
        int64_t m = s.row_size < 64 ? s.row_size : 64;
        sk_assert(!sk_feed_open(&f, &s, 1, 1, 1, true));
        fuzz_refused(sk_feed_fill(&f, "pixels", 0, 0, 1, s.row_size - m, m, row), SK_EDATA);
        fuzz_refused(sk_feed_fill(&f, "targets", 0, 0, 1, 0, 1, row), SK_EDATA);
    }
    sk_arena_end(&a);
    return 0;
}
