/* bpe.h - BPE (Sennrich et al. 2016): the tokenizer of GPT-2 and its many heirs, whose symbols are
 * bytes, and of the Llama 2 family, whose symbols are characters in the manner of sentencepiece.
 *
 * Text is cut at added tokens, normalized, cut into words, and in each word neighbours are merged,
 * the earliest learned pair first.  tokenizer.c, normalize.c and pre_tokenizer.c read these tables
 * from tokenizer.json; bpe.c only uses them.  Words are remembered during a call, so that running
 * text costs little more than the cutting; a word of n bytes costs O(n log n) whatever it holds. */
#ifndef SK_DATA_BPE_H
#define SK_DATA_BPE_H

#define PCRE2_CODE_UNIT_WIDTH 8
#include "base/file_io.h"
#include "data/normalize.h"

#include <pcre2.h>

enum { SK_BPE_SPLITS = 8, SK_BPE_WORD = 1 << 24 };

typedef struct sk_pair {
    uint64_t key; /* left id << 32 | right id; SK_NO_PAIR: an empty slot */
    int32_t rank, id;
} sk_pair;
#define SK_NO_PAIR UINT64_MAX

typedef struct sk_added {
    sk_text text; /* as it is searched */
    int32_t id;
    const char *flag; /* of the file, one that is not supported: text that has the token is refused;
                         NULL: none */
} sk_added;

typedef struct sk_added_set {
    sk_added *v; /* longest first */
    int n;
    bool starts[256]; /* first bytes */
} sk_added_set;

/* Metaspace: where the sign of a space goes before text that does not begin with it. */
typedef enum sk_prepend { SK_PREPEND_NEVER, SK_PREPEND_FIRST, SK_PREPEND_ALWAYS } sk_prepend;
/* Cut words before each sign of a space, or before each that follows something else. */
typedef enum sk_cut { SK_CUT_NONE, SK_CUT_RUNS, SK_CUT_EACH } sk_cut;

typedef struct sk_bpe {
    int64_t vocab;
    bool bytes;           /* symbols are bytes, else characters */
    sk_text *pieces;      /* what each id matches; empty for ids that are not used */
    int32_t byte_id[256]; /* of a byte, or what it falls back to; -1: none */
    int32_t unk;          /* characters: what has no id; -1: refused */
    bool fuse_unk;
    sk_pair *pairs; /* open addressing, mask + 1 slots */
    uint64_t mask;
    int32_t *words; /* text -> id of the vocabulary */
    uint64_t word_mask;
    bool ignore_merges;    /* a whole word of the vocabulary goes before merges */
    sk_added_set added[2]; /* searched in text as it is, and when normalized */
    sk_norm norm;          /* between the two */
    bool metaspace;        /* then: spaces become `space`, which may go first */
    sk_text space;         /* the sign of a space ("▁"); empty: a space is a space */
    sk_prepend prepend;
    pcre2_code *split[SK_BPE_SPLITS]; /* applied one after the other */
    bool split_all[SK_BPE_SPLITS];    /* must match all of the text */
    int n_splits;
    sk_cut cut;
} sk_bpe;

/* Ids that go around each document: of the post-processor's template, and the end of text. */
typedef struct sk_frame {
    int32_t *before, *after;
    int n_before, n_after;
} sk_frame;

uint64_t sk_bpe_slot(const sk_bpe *b, uint64_t key); /* where a pair is, or would go */
uint64_t sk_bpe_word(const sk_bpe *b, const char *s, size_t n);
/* The ids of documents, one after the other; the frame may be NULL. */
sk_status sk_bpe_encode(const sk_bpe *b, sk_arena *a, const sk_text *docs, int64_t n_docs,
                        const sk_frame *frame, int32_t **ids, int64_t *n_ids);
/* For PCRE2: memory from an arena; never given back alone. */
pcre2_general_context *sk_bpe_memory(sk_arena *a);

#endif
