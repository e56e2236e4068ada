/* libFuzzer target: MANIFEST.json of a checkpoint.  Its last line, which has the sum of the rest,
 * is written anew, so that what lies behind that sum is reached.  What is accepted, printed and
 * read again, is the same. */
#include "base/strings.h"
#include "lib/fuzz.h"
#include "train/model_export.h"
#include "train/manifest.h"

#include <string.h>

static sk_text seal(sk_arena *a, const uint8_t *data, size_t n)
{
    sk_out o = {.arena = a};
    char *text = fuzz_text(a, data, n), *last = strstr(text, "\"check\":");
    if (last) *last = 0;
    sk_out_add(&o, "%s", text);
    sk_manifest_seal(&o);
    return (sk_text){o.s, o.n};
}

static void again(sk_arena *a, const sk_ckpt *c)
{
    sk_ckpt same = {.path = "fuzz"};
    sk_extra extra;
    const char *text = sk_manifest_print(a, c);
    sk_assert(!sk_manifest_parse(a, "again", (sk_text){text, strlen(text)}, true, &same));
    sk_assert(!strcmp(text, sk_manifest_print(a, &same)));
    for (int i = 0; i < c->tensors.n; i++) {
        const sk_ckpt_tensor *t = &c->tensors.v[i];
        sk_assert(sk_manifest_find(c, t->name) == t);
        for (int k = 0; k < t->boxes.n; k++) sk_assert(*sk_manifest_key(a, t, &t->boxes.v[k]));
    }
    fuzz_refused(sk_extra_read(a, "fuzz", c->state.extra, c->state.step, &extra), SK_EDATA);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    sk_arena a = {0};
    sk_ckpt c = {.path = "fuzz"}, part = {.path = "fuzz"};
    sk_text raw = {fuzz_text(&a, data, n), n}, text = seal(&a, data, n);
    fuzz_refused(sk_manifest_parse(&a, "raw", raw, true, &part), SK_EDATA);
    fuzz_refused(sk_manifest_parse(&a, "part", text, false, &part), SK_EDATA);
    sk_status st = sk_manifest_parse(&a, "fuzz", text, true, &c);
    fuzz_refused(st, SK_EDATA);
    if (!st) again(&a, &c);
    sk_arena_end(&a);
    return 0;
}
