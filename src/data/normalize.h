/* normalize.h - the normalizer of tokenizer.json: NFC, Prepend, Replace (a string by another), or
 * a Sequence of these.  Bytes that are no UTF-8 pass through unchanged.
 *
 * NFC is done by utf8proc, which is opened when a text needs it: most texts in European languages
 * and Chinese have only characters that are in NFC already. */
#ifndef SK_DATA_NORMALIZE_H
#define SK_DATA_NORMALIZE_H

#include "base/file_io.h"
#include "data/json.h"

enum { SK_NORM_STEPS = 8 };

typedef enum sk_norm_kind { SK_NORM_NFC, SK_NORM_PREPEND, SK_NORM_REPLACE } sk_norm_kind;

typedef struct sk_norm_step {
    sk_norm_kind kind;
    sk_text from, to; /* Replace has both, Prepend only `to` */
} sk_norm_step;

typedef struct sk_norm {
    sk_norm_step step[SK_NORM_STEPS];
    int n;
} sk_norm;

sk_status sk_norm_read(sk_arena *a, const char *path, json_t *normalizer, sk_norm *out);
/* Text that needs no change is not copied. */
sk_status sk_norm_apply(const sk_norm *norm, sk_arena *a, sk_text text, sk_text *out);
/* One step: for pre-tokenizers that change the text. */
sk_status sk_norm_replace(sk_arena *a, sk_text text, sk_text from, sk_text to, sk_text *out);
sk_text sk_norm_prepend(sk_arena *a, sk_text text, sk_text head);

#endif
