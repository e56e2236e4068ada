/* bpe.h - byte-level BPE, the tokenizer of GPT-2 and its many heirs (Sennrich et al. 2016).
 *
 * Text is cut at added tokens, then by regular expressions into words, and in
 * each word neighbours are merged, the earliest learned pair first.  tokenizer.c
 * reads these tables from tokenizer.json; bpe.c only uses them.  Words are
 * remembered during a call, so that running text costs little more than the
 * cutting; a word of n bytes costs O(n log n) whatever it holds. */
#ifndef SK_DATA_BPE_H
#define SK_DATA_BPE_H

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/file.h"

enum { SK_BPE_SPLITS = 8, SK_BPE_WORD = 1 << 24 };

typedef struct sk_pair {
    uint64_t key; /* left id << 32 | right id; SK_NO_PAIR: an empty slot */
    int32_t rank, id;
} sk_pair;
#define SK_NO_PAIR UINT64_MAX

typedef struct sk_added {
    sk_text text;
    int32_t id;
} sk_added;

typedef struct sk_bpe {
    int64_t vocab;
    sk_text *pieces;      /* bytes of each id; empty for ids that are not used */
    int32_t byte_id[256]; /* -1: this vocabulary cannot spell the byte */
    sk_pair *pairs;       /* open addressing, mask + 1 slots */
    uint64_t mask;
    sk_added *added; /* longest first */
    int n_added;
    bool starts[256];                 /* first bytes of added tokens */
    pcre2_code *split[SK_BPE_SPLITS]; /* applied one after the other */
    int n_splits;
    int32_t *words; /* piece bytes -> id, when whole words go before merges; else NULL */
    uint64_t word_mask;
} sk_bpe;

uint64_t sk_bpe_slot(const sk_bpe *b, uint64_t key); /* where a pair is, or would go */
uint64_t sk_bpe_word(const sk_bpe *b, const char *s, size_t n);
sk_status sk_bpe_encode(const sk_bpe *b, sk_arena *a, const char *text, size_t n, int32_t **ids,
                        int64_t *n_ids);
/* For PCRE2: memory from an arena; never given back alone. */
pcre2_general_context *sk_bpe_memory(sk_arena *a);

#endif
