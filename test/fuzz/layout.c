/* libFuzzer target: the text of a layout, short words and sentences.  What is accepted, printed and
 * read again, is the same layout. */
#include "layout/layout.h"
#include "lib/fuzz.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    sk_arena a = {0};
    sk_layout l, again;
    sk_status st = sk_layout_read(fuzz_text(&a, data, n), 0, &l);
    fuzz_refused(st, SK_ECONF);
    if (!st) {
        const char *text = sk_layout_print(&a, &l);
        sk_assert(sk_mesh_ranks(&l.mesh) > 0);
        sk_assert(*sk_layout_short(&a, &l));
        sk_assert(!sk_layout_read(text, sk_mesh_ranks(&l.mesh), &again));
        sk_assert(!strcmp(text, sk_layout_print(&a, &again)));
    }
    sk_arena_end(&a);
    return 0;
}
