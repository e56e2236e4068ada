/* pre_tokenizer.h - the pre_tokenizer of tokenizer.json: how text is cut into words.
 *
 * Byte-level files have ByteLevel, alone or after Split and Digits; files in the manner of
 * sentencepiece have Metaspace, or none at all. */
#ifndef SK_DATA_PRE_TOKENIZER_H
#define SK_DATA_PRE_TOKENIZER_H

#include "data/bpe.h"
#include "data/json.h"

sk_status sk_pre_tokenizer_read(sk_arena *a, const char *path, json_t *pre_tokenizer, sk_bpe *b);

#endif
