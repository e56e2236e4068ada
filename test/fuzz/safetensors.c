/* libFuzzer target: the bytes of a safetensors file, header length and all.
 *
 * What the reader accepts must hold: sorted, no overlap, no hole, sizes equal to
 * shape x type, every tensor found by its name. */
#include "lib/fuzz.h"
#include "tensor/safetensors.h"

#include <endian.h>
#include <string.h>

static void hold(const sk_st *st)
{
    int64_t at = 0;
    for (int i = 0; i < st->n; i++) {
        const sk_st_tensor *t = &st->tensor[i];
        sk_assert(t->begin == at && t->end >= t->begin && t->n <= SK_ST_DIM);
        sk_assert(sk_st_find(st, t->name) == t);
        int64_t count = 1;
        for (int d = 0; d < t->n; d++)
            sk_assert(!__builtin_mul_overflow(count, t->size[d], &count));
        sk_assert(count ? (t->end - t->begin) % count == 0 : t->end == t->begin);
        at = t->end;
    }
    sk_assert(at == st->bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    uint64_t header = 0;
    sk_arena a = {0};
    sk_st st;
    if (n < 8) return 0;
    memcpy(&header, data, 8);
    header = le64toh(header);
    if (header > n - 8) header %= n - 7; /* keep mutations of the length useful */
    const char *text = (const char *)data + 8;
    sk_status status =
        sk_st_parse(&a, "fuzz", text, (size_t)header, (int64_t)(n - 8 - header), &st);
    fuzz_refused(status, SK_EDATA);
    if (!status) hold(&st);
    status = sk_st_open(&a, fuzz_file("a.safetensors", data, n), &st);
    fuzz_refused(status, SK_EDATA);
    if (!status) {
        hold(&st);
        sk_st_close(&st);
    }
    sk_arena_end(&a);
    return 0;
}
