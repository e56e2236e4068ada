/* companions.h - the files of a model directory that training does not change.
 *
 * What a model's tokens mean to others: the settings of its tokenizer, its special tokens, its chat
 * template, how text is drawn from it, and in config.json the ids that begin and end a text.  skein
 * understands little of that and carries all of it on: from the directory a run began with to the
 * one it leaves.
 *
 *     sk_companions c;
 *     SK_TRY(sk_companions_for(&arena, tokenizer, model_dir, &c));     what a new run takes along
 *     SK_TRY(sk_companions_keep(&arena, run, &c));                     RUN/tokenizer/
 *     SK_TRY(sk_companions_read(&arena, "RUN/tokenizer", &c));         later, the first may be gone
 *
 * Only files of a fixed list are read, none larger than it can need; links to plain files are
 * followed, for a Hugging Face cache holds nothing else.  One change is made:
 * generation_config.json loses its max_length, of which transformers 5 warns at every call. */
#ifndef SK_TRAIN_COMPANIONS_H
#define SK_TRAIN_COMPANIONS_H

#include "base/file_io.h"

enum { SK_N_COMPANIONS = 6, SK_N_TOKEN_IDS = 3, SK_MOST_ENDS = 64 };

typedef struct sk_companions {
    const char *tokenizer_json;      /* NULL: none; who has a tokenizer sets it */
    sk_text text[SK_N_COMPANIONS];   /* s NULL: not there; the last is generation_config.json */
    const char *ids[SK_N_TOKEN_IDS]; /* bos, eos and pad as JSON: "2", "[1, 2]", "null"; or NULL */
} sk_companions;

/* Is it the name of one of these files? */
bool sk_companions_name(const char *file);
/* The first file, or key of config.json, in which both are not alike; NULL: none. */
const char *sk_companions_differ(sk_arena *a, const sk_companions *x, const sk_companions *y);

/* Those of a directory; none is there is no error.  tokenizer_json is left NULL. */
sk_status sk_companions_read(sk_arena *a, const char *dir, sk_companions *out);

/* Those of a run: texts lie beside its tokenizer ("byte", a file or a directory; it may be gone),
 * ids there too or else in the directory of its weights ("": none). */
sk_status sk_companions_for(sk_arena *a, const char *tokenizer, const char *model_dir,
                            sk_companions *out);

/* Into a directory that is open and has none of them, with `config`, the text of config.json, that
 * gets the ids. */
sk_status sk_companions_write(sk_arena *a, int dir, const sk_companions *c, const char *config);

/* RUN/tokenizer/, which appears at once with sums of its files (checksums.h), in the place of an
 * older one that skein wrote; none if there is nothing to keep.  Of somebody else's: SK_ECREATE. */
sk_status sk_companions_keep(sk_arena *a, const char *run, const sk_companions *c);
/* The tokenizer that was named, or what a run kept of it (NULL: nothing) if that is gone. */
const char *sk_companions_tokenizer(sk_arena *a, const char *tokenizer, const char *kept);

/* Ids that end a text, by config.json and generation_config.json; returns how many. */
int sk_companions_ends(const sk_companions *c, int64_t ids[SK_MOST_ENDS]);

#endif
