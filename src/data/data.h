/* data.h - where samples come from, and in which order.
 *
 * A source part reads one kind of file (by content) into a store of samples.
 * A store answers "sample i" by index, in any process, without state: token
 * stores cut a long stream of ids into windows of seq + 1, image stores hold
 * rows.  The order of samples is a function of (seed, epoch, index) alone, so
 * any rank finds its rows at once and resuming needs no cursor but the step.
 *
 * A source declares the inputs that its samples have: name, letters and type as the graph of a
 * model has them, and what they are made of.  Graph and source meet by these names; nothing between
 * them knows a name. */
#ifndef SK_DATA_DATA_H
#define SK_DATA_DATA_H

#include "base/arena.h"
#include "base/file_io.h"
#include "base/status.h"
#include "tensor/dtype.h"

#include <stdbool.h>
#include <stdint.h>

/* One of the files that a store was joined from. */
typedef struct sk_store_file {
    const char *path;
    int64_t start, at; /* byte `at` of it is byte `start` of all */
} sk_store_file;

/* What the user says about data that do not say it themselves. */
typedef struct sk_data_hint {
    int id_bytes; /* data.dtype, of ids without a header: 2, 4; 0: find out */
    bool text;    /* data.format=text: plain text, whatever it looks like */
} sk_data_hint;

typedef enum sk_input_kind {
    SK_INPUT_IDS,    /* ids of a stream's window */
    SK_INPUT_NEXT,   /* ids one place later */
    SK_INPUT_PLACES, /* 0, 1, 2 ... along the window */
    SK_INPUT_ONES,
    SK_INPUT_BYTES,  /* bytes of a row, as fractions of 255 */
    SK_INPUT_LABELS, /* of rows */
    SK_INPUT_OWN     /* the source fills it */
} sk_input_kind;

/* Rows [row, row + n) and columns [col, col + m) of a step's batch. */
typedef struct sk_feed_box {
    int64_t step, row, n, col, m;
} sk_feed_box;

enum { SK_MAX_INPUTS = 8 };
struct sk_feed;
typedef struct sk_feed_input {
    const char *name;    /* NULL ends the list */
    const char *letters; /* "bt", "bx", "b" */
    sk_dtype type;       /* SK_I32 or SK_F32 */
    sk_input_kind kind;
    /* SK_INPUT_OWN: from store.own, usually by sk_feed_place(); dense, as i32 or f32. */
    sk_status (*fill)(const struct sk_feed *f, const sk_feed_box *box, void *to);
    bool weighs; /* what a place counts in the loss (SK_F32): 0 in samples behind sk_feed.end */
} sk_feed_input;

/* What was read: either a stream of token ids or rows of numbers with labels.  The arrays
 * may be mapped files; they live as long as the arena. */
typedef struct sk_store {
    int64_t n_tokens;
    const void *tokens;
    int token_bytes;          /* 1, 2 or 4; little endian */
    int64_t n_rows, row_size; /* images: n_rows of row_size bytes */
    const uint8_t *rows, *labels;
    int64_t vocab;    /* ids are below this; labels too */
    int said_bytes;   /* for sources, before they open: of ids without a header; 0: find out */
    bool said_text;   /* the same: plain text, whatever it looks like */
    bool assumed;     /* nothing says that token_bytes is right */
    bool ready_made;  /* the ids come from a file, no tokenizer made them */
    bool vocab_loose; /* a token file does not say how many ids there are: vocab is the most its
                         type can hold, see sk_store_fit() */
    const char *path; /* for messages */
    int64_t base;     /* byte of `path`, or of `files` one after the other, where tokens[0] lies;
                         -1: the ids were made here */
    struct sk_store_file *files; /* of several files, in order; NULL: `path` is the one */
    int n_files;
    const sk_feed_input *inputs; /* of the source */
    const void *own;             /* what the source needs for inputs of its own; NULL: nothing */
    int64_t own_bytes;
    int64_t first;               /* tokens or rows that a cut has taken away before the first */
    const struct sk_mapped *map; /* the file under `tokens`, NULL if they are in memory */
    char describe[256];          /* "kjv · 4,404,412 bytes", for the console */
} sk_store;

/* A tokenizer turns text into ids and back: "byte" (id = byte), or the BPE of a Hugging Face
 * tokenizer.json, of bytes (GPT-2, Llama 3, Qwen2, ...) or in the manner of sentencepiece (Llama 2,
 * Mistral), given as file or directory.  Ids are those of Hugging Face's library; a file or text
 * for which they would not be is refused.
 * It lives in the arena and is never changed: any thread may use it. */
typedef struct sk_tokenizer sk_tokenizer;
sk_status sk_tokenizer_open(sk_arena *a, const char *what, sk_tokenizer **out);
int64_t sk_tokenizer_vocab(const sk_tokenizer *t);
/* ids of text, into the arena; the template of the post-processor is not applied */
sk_status sk_tokenizer_encode(const sk_tokenizer *t, sk_arena *a, const char *text, size_t n,
                              int32_t **ids, int64_t *n_ids);
/* ids of documents, one after the other, each within the template (usually a BOS before it) and,
 * with `end`, closed by the end of text; not for a tokenizer that is "byte" */
sk_status sk_tokenizer_documents(const sk_tokenizer *t, sk_arena *a, const sk_text *docs, int64_t n,
                                 bool end, int32_t **ids, int64_t *n_ids);
/* ids that the template puts before a text */
const int32_t *sk_tokenizer_begin(const sk_tokenizer *t, int *n);
/* bytes of one id; not NUL-terminated */
const char *sk_tokenizer_piece(const sk_tokenizer *t, int32_t id, size_t *n);
/* what goes into tokenizer.json of an exported model */
char *sk_tokenizer_json(const sk_tokenizer *t, sk_arena *a);
bool sk_tokenizer_is_byte(const sk_tokenizer *t);
/* the text that ends a document ("<|endoftext|>"), "" if this tokenizer has none */
const char *sk_tokenizer_end(const sk_tokenizer *t);

typedef struct sk_source {
    const char *name, *doc;
    const char *known; /* a name that needs no file ("kjv"); NULL: none */
    /* Does this path or known name look like mine?  Reads as little as possible. */
    bool (*knows)(const char *what);
    sk_status (*open)(sk_arena *a, const char *what, const sk_tokenizer *t, bool validation,
                      sk_store *out);
    sk_feed_input inputs[SK_MAX_INPUTS + 1];
    /* Does it hold validation data beside the training data?  NULL: it never does. */
    bool (*brings_val)(const char *what);
} sk_source;
extern const sk_source *const sk_source_parts[];

/* Open `what` with the first source that knows it; an error naming what was tried if none does. */
sk_status sk_store_open(sk_arena *a, const char *what, const sk_tokenizer *t, bool validation,
                        sk_store *out);
sk_status sk_store_open_as(sk_arena *a, const char *what, const sk_tokenizer *t, bool validation,
                           sk_data_hint said, sk_store *out);
bool sk_store_brings_val(const char *what); /* has its source validation data of its own there? */
/* For sources: a store from text.  A NULL tokenizer cannot read it; the store of "byte" is the
 * text.
 * Document i ends at byte ends[i], where the next begins; an end of text closes each, if the
 * tokenizer has one.  Without documents (0) the text is one, which nothing closes. */
sk_status sk_store_text(sk_arena *a, const sk_tokenizer *t, sk_text text, const size_t *ends,
                        int64_t n_docs, sk_store *out);
/* The input of this name; NULL: the store has none.  The first of any source of this name, type and
 * number of dims: for synthetic data. */
const sk_feed_input *sk_store_input(const sk_store *s, const char *name);
const sk_feed_input *sk_source_input(const char *name, sk_dtype type, int dims);
/* Has the store what `who` ("model nano") reads under this name, of `size` numbers along the last
 * letter?  A sentence if it has not. */
sk_status sk_store_offers(const sk_store *s, const char *who, const char *name, const char *letters,
                          sk_dtype type, int64_t size);
/* Check a store against a model of `vocab` ids: an error if its tokenizer has more. */
sk_status sk_store_fit(sk_store *s, int64_t vocab);
/* What the samples are: their number and a sum, "4404412:1c291ca3".  All bytes are summed up to 256
 * MiB; of more, 4096 blocks of 64 KiB, spread evenly from the first byte to the last. */
enum { SK_DIGEST = 32, SK_DIGEST_BLOCKS = 4096, SK_DIGEST_BLOCK = 64 << 10 };
void sk_store_digest(const sk_store *s, char to[SK_DIGEST]);
/* Is every id of a store below its vocabulary?  (id_check.c)  At the start all ids of 256 MiB are
 * checked, or as many of more, then the rest, for some seconds at a time: done == store->n_tokens
 * says that all were.  An id that is not is SK_EDATA with file, byte and id.  Stores whose ids were
 * made here need no check. */
typedef struct sk_id_check {
    const sk_store *store;
    int64_t first, done; /* ids checked at the start; ids checked from the first on */
} sk_id_check;
sk_status sk_id_check_begin(sk_id_check *c, const sk_store *s);
sk_status sk_id_check_more(sk_id_check *c, double seconds);
/* The error for one that is not, token `at`. */
sk_status sk_store_outside(const sk_store *s, int64_t at, uint32_t id);
/* The last `fraction` of a store (tokens or rows), and the rest. */
void sk_store_cut(const sk_store *s, double fraction, sk_store *head, sk_store *tail);

typedef struct sk_feed { /* a store seen as an endless sequence of global batches */
    sk_store store;
    int64_t seq, batch;
    uint64_t seed;
    bool shuffle;
    int64_t n_windows; /* windows (or rows) per epoch */
    int64_t shift;     /* added to the number of a sample, step * batch + row: the batch changed */
    int64_t end;       /* > 0: samples from this number on fill up the last batch; they weigh 0 */
} sk_feed;

/* Fails if the store is shorter than one window. */
sk_status sk_feed_open(sk_feed *f, const sk_store *s, int64_t seq, int64_t batch, uint64_t seed,
                       bool shuffle);

/* Which window sample `row` of step `step` (from 0) is.  Sequential: window k holds tokens
 * [k*seq, k*seq + seq], step s takes windows s*batch ... s*batch+batch-1, wrapping. */
int64_t sk_feed_window(const sk_feed *f, int64_t step, int64_t row);

/* The token or row of the source, counted from its first one, that column `col` of sample `row`
 * begins with. */
int64_t sk_feed_place(const sk_feed *f, int64_t step, int64_t row, int64_t col);

/* A part of an input of the store for a step, dense, as i32 or f32.  An id outside the vocabulary
 * is an error.  Inputs of one letter have one column. */
sk_status sk_feed_fill(const sk_feed *f, const char *input, int64_t step, int64_t row, int64_t n,
                       int64_t col, int64_t m, void *to);

#endif
