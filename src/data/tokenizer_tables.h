/* tokenizer_tables.h - a tokenizer, and reading its tables from tokenizer.json.
 *
 *     tokenizer.c        the byte tokenizer; opening, encoding, decoding
 *     tokenizer_json.c   the parts of tokenizer.json: model, post-processor, decoder
 *     tokenizer_vocab.c  vocabulary, added tokens and merges
 *
 * Private to these files; data.h is the interface. */
#ifndef SK_DATA_TOKENIZER_TABLES_H
#define SK_DATA_TOKENIZER_TABLES_H

#include "data/bpe.h"
#include "data/data.h"

#include <jansson.h>

enum {
    SK_MAX_FRAME = 16,     /* ids before, and after, a document */
    SK_MAX_PIECE = 1 << 12 /* bytes of one token */
};

struct sk_tokenizer {
    const char *path;
    bool bytes; /* id = byte: no tables are needed */
    sk_text json;
    sk_bpe bpe;
    sk_text *shown; /* bytes of each id in a text */
    sk_frame frame; /* of the post-processor's template */
    const char *end;
    int32_t end_id;
};

/* tokenizer_vocab.c */
/* GPT-2's alphabet: printable bytes stand for themselves, the other bytes for characters from
 * U+0100 on.  All are below U+0144. */
enum { SK_LAST_SIGN = 324 };
extern const char sk_every_byte[256]; /* [i] is i */
void sk_byte_alphabet(int sign_of[256], int16_t byte_of[SK_LAST_SIGN]);
/* All ids are checked here, before tables are made: the vocabulary is 1 + the highest.  Ids that
 * are not used take memory too, so there may not be many more of them than tokens. */
sk_status sk_vocab_count(sk_tokenizer *t, json_t *vocab, json_t *added);
sk_status sk_vocab_read(sk_tokenizer *t, sk_arena *a, json_t *vocab, bool byte_fallback);
sk_status sk_vocab_added(sk_tokenizer *t, sk_arena *a, json_t *vocab, json_t *added);
sk_status sk_vocab_merges(sk_tokenizer *t, sk_arena *a, json_t *vocab, json_t *merges);

/* tokenizer_json.c: fills the tokenizer from t->json. */
sk_status sk_tokenizer_read(sk_tokenizer *t, sk_arena *a);
/* SK_EDATA: "PATH: what" */
sk_status sk_tokenizer_wrong(const sk_tokenizer *t, const char *what);

#endif
