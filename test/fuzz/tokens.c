/* libFuzzer target: a file of token ids: nanoGPT's or llm.c's.  Where it is accepted, batches can
 * be filled from it, or the id that is too large is named. */
#include "data/data.h"
#include "data/data_files.h"
#include "lib/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    sk_arena a = {0};
    int32_t ids[2][4];
    const char *path = sk_strdup(&a, fuzz_file("a_train.bin", data, n));
    for (int said = 0; said <= 4; said += 2) {
        sk_store s;
        sk_feed f;
        sk_status st =
            sk_store_open_as(&a, path, NULL, false, (sk_data_hint){.id_bytes = said}, &s);
        fuzz_refused(st, SK_EDATA);
        if (st) continue;
        st = sk_store_fit(&s, 1000);
        if (!st) st = sk_feed_open(&f, &s, 4, 2, 1, true);
        for (int64_t step = 0; step < 4 && !st; step++)
            st = sk_feed_fill(&f, step % 2 ? "targets" : "tokens", step, 0, 2, 0, 4, ids);
        fuzz_refused(st, SK_EDATA);
        if (s.map) sk_mapped_close(s.map);
    }
    sk_arena_end(&a);
    return 0;
}
