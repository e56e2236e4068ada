/* libFuzzer target: config.json of a Hugging Face directory.  What is accepted, printed and read
 * again, is the same model; its tensors can be listed. */
#include "lib/fuzz.h"
#include "train/hf_config.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    sk_arena a = {0};
    const sk_model *m = NULL, *same = NULL;
    sk_hyper h, again;
    fuzz_file("config.json", data, n);
    sk_status st = sk_hf_config(fuzz_dir(), &m, &h);
    fuzz_refused(st, SK_EDATA);
    if (!st) {
        const char *text = sk_hf_config_print(&a, m, &h, SK_F32);
        fuzz_file("config.json", text, strlen(text));
        sk_assert(!sk_hf_config(fuzz_dir(), &same, &again) && same == m);
        sk_assert(!strcmp(text, sk_hf_config_print(&a, same, &again, SK_F32)));
    }
    sk_arena_end(&a);
    return 0;
}
