/* libFuzzer target: generation_config.json and config.json of a model directory, one behind the
 * other (fuzz_halves): the ids that end a text. */
#include "lib/fuzz.h"
#include "train/companions.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    sk_arena a = {0};
    sk_companions c;
    sk_text generation, config;
    int64_t ids[SK_MOST_ENDS];
    if (!fuzz_halves(data, n, &generation, &config)) return 0;
    fuzz_file("generation_config.json", generation.s, generation.n);
    fuzz_file("config.json", config.s, config.n);
    sk_status st = sk_companions_read(&a, fuzz_dir(), &c);
    fuzz_refused(st, SK_EDATA);
    if (!st) {
        int found = sk_companions_ends(&c, ids);
        sk_assert(found >= 0 && found <= SK_MOST_ENDS);
    }
    sk_arena_end(&a);
    return 0;
}
