/* libFuzzer target: sweep.json, the words of a sweep; what is accepted is a list of texts. */
#include "cli/sweep.h"
#include "lib/fuzz.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    sk_arena a = {0};
    char **words = NULL;
    int n_words = 0;
    fuzz_file("sweep.json", data, n);
    sk_status st = sk_sweep_recall(&a, "sweep", fuzz_dir(), &words, &n_words);
    fuzz_refused(st, SK_EDATA);
    for (int i = 0; !st && i < n_words; i++) sk_assert(strlen(words[i]) <= n);
    sk_arena_end(&a);
    return 0;
}
