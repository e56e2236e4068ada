/* libFuzzer target: a file of plain text or JSON lines, packed or not. */
#include "data/data.h"
#include "data/data_files.h"
#include "lib/fuzz.h"

#include <string.h>

static void open_as(sk_arena *a, const char *path, const sk_tokenizer *t, sk_data_hint said)
{
    sk_store s;
    sk_status st = sk_store_open_as(a, path, t, false, said, &s);
    fuzz_refused(st, SK_EDATA);
    if (!st && s.map) sk_mapped_close(s.map);
    if (!st && !s.ready_made && s.tokens) { /* no images, no ids */
        const char *text = s.tokens;
        sk_assert(s.n_tokens > 0 && s.token_bytes == 1 && s.vocab == 256);
        sk_assert(memchr(text, text[s.n_tokens - 1], (size_t)s.n_tokens));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    sk_arena a = {0};
    sk_tokenizer *t = NULL;
    const char *path = sk_strdup(&a, fuzz_file("a.txt", data, n));
    sk_assert(!sk_tokenizer_open(&a, "byte", &t));
    open_as(&a, path, t, (sk_data_hint){0});
    open_as(&a, path, t, (sk_data_hint){.text = true});
    sk_arena_end(&a);
    return 0;
}
