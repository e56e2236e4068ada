/* sampler.h - text from a model directory, one token at a time.
 *
 *     sk_sampler *s;
 *     SK_TRY(sk_sampler_open("runs/last/final", &opts, &s));
 *     while (n--) { SK_TRY(sk_sampler_next(s, &bytes, &len)); ... }
 *     sk_sampler_close(s);
 *
 * The model is built once more to decode: one sequence, one position, keys and
 * values remembered; its program is that of a single rank and runs in the calling
 * thread.  Draws are numbered, so the same seed gives the same text.  When the
 * model's positions are used up the newer half of the text is read again from
 * position 0, which costs one more pass per token on average.
 *
 * What comes out are bytes, not yet characters: sk_utf8_filter turns them into UTF-8
 * that is safe on a terminal. */
#ifndef SK_TRAIN_SAMPLER_H
#define SK_TRAIN_SAMPLER_H

#include "base/status.h"
#include "base/strings.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct sk_sampler sk_sampler;

typedef struct sk_sampler_opts {
    const char *prompt;
    double temp; /* 0: always the likeliest */
    uint64_t seed;
    int threads;     /* 0: 1 */
    bool ignore_eos; /* go on behind a token that ends a text */
} sk_sampler_opts;

sk_status sk_sampler_open(const char *dir, const sk_sampler_opts *o, sk_sampler **out);
/* The next token's bytes: not NUL-terminated, good until the sampler is closed.  NULL: the text has
 * ended, by a token that config.json or generation_config.json call its end. */
sk_status sk_sampler_next(sk_sampler *s, const char **bytes, size_t *n);
/* The positions of a model whose text had to be cut to them, 0 if all of it was seen. */
int64_t sk_sampler_cut(const sk_sampler *s);
void sk_sampler_close(sk_sampler *s);

/* Bytes to UTF-8: a sequence that is not valid becomes U+FFFD, control characters become spaces,
 * and so does a line break when `one_line` is set. */
typedef struct sk_utf8_filter {
    bool one_line;
    unsigned char held[4];
    int n, need;
} sk_utf8_filter;
void sk_utf8_filter_put(sk_utf8_filter *c, sk_out *o, const char *bytes, size_t n);
void sk_utf8_filter_end(sk_utf8_filter *c, sk_out *o); /* a sequence that was begun and not ended */

#endif
