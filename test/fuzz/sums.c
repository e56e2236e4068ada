/* libFuzzer target: checksums.json beside the files of a model.  Its last line, which has the sum
 * of the rest, is written anew. */
#include "base/strings.h"
#include "lib/fuzz.h"
#include "train/manifest.h"
#include "train/checksums.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    sk_arena a = {0};
    sk_out o = {.arena = &a};
    bool good = false;
    char *text = fuzz_text(&a, data, n), *last = strstr(text, "\"check\":");
    if (last) *last = 0;
    fuzz_file("model.safetensors", "weights", 7);
    fuzz_file("config.json", "{}", 2);
    sk_out_add(&o, "%s", text);
    sk_manifest_seal(&o);
    fuzz_file(SK_CHECKSUMS_FILE, o.s, o.n);
    fuzz_refused(sk_checksums_verify(fuzz_dir(), NULL, &good), SK_EIO);
    fuzz_refused(sk_checksums_verify(fuzz_dir(), "config.json", &good), SK_EIO);
    fuzz_refused(sk_checksums_replaceable(fuzz_dir()), SK_ECREATE);
    sk_arena_end(&a);
    return 0;
}
