/* libFuzzer target: tokenizer.json.  Where it is accepted, the ids of a text are below the number
 * of ids, and each has a piece. */
#include "data/data.h"
#include "lib/fuzz.h"

#include <string.h>

static const char *const texts[] = {"", "In the beginning\n\n  God created 1234 \xe2\x96\x81x",
                                    "<s>a b c</s><|endoftext|>\xf0\x9f\x98\x80\xc3\xa9"};

static void use(const sk_tokenizer *t, const char *text)
{
    sk_arena a = {0};
    int32_t *ids = NULL;
    int64_t n = 0;
    size_t bytes = 0;
    sk_status st = sk_tokenizer_encode(t, &a, text, strlen(text), &ids, &n);
    fuzz_refused(st, SK_EDATA);
    for (int64_t i = 0; !st && i < n; i++) {
        sk_assert(ids[i] >= 0 && ids[i] < sk_tokenizer_vocab(t));
        sk_assert(sk_tokenizer_piece(t, ids[i], &bytes));
    }
    sk_text doc = {text, strlen(text)};
    if (!sk_tokenizer_is_byte(t))
        fuzz_refused(sk_tokenizer_documents(t, &a, &doc, 1, true, &ids, &n), SK_EDATA);
    sk_arena_end(&a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    sk_arena a = {0};
    sk_tokenizer *t = NULL;
    sk_status st = sk_tokenizer_open(&a, fuzz_file("tokenizer.json", data, n), &t);
    fuzz_refused(st, SK_EDATA);
    for (size_t i = 0; !st && i < sizeof texts / sizeof *texts; i++) use(t, texts[i]);
    sk_arena_end(&a);
    return 0;
}
