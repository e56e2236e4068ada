/* libFuzzer target: Megatron's x.idx and x.bin, one behind the other (fuzz_halves). */
#include "data/data.h"
#include "data/data_files.h"
#include "lib/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    sk_arena a = {0};
    sk_text index, ids;
    sk_store s;
    char digest[SK_DIGEST];
    if (!fuzz_halves(data, n, &index, &ids)) return 0;
    fuzz_file("x.bin", ids.s, ids.n);
    sk_status st = sk_store_open(&a, fuzz_file("x.idx", index.s, index.n), NULL, false, &s);
    fuzz_refused(st, SK_ECONF); /* not an index: it may be a text */
    if (!st) sk_store_digest(&s, digest);
    if (!st && s.map) sk_mapped_close(s.map);
    sk_arena_end(&a);
    return 0;
}
