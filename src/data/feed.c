/* feed.c - the order of samples, and copying them into a batch.
 *
 * Cost: one permutation (four Philox calls per walk) per row, one pass over the ids. */
#include "data/data.h"
#include "base/rng.h"
#include "data/data_files.h"

#include <stdio.h>
#include <string.h>

/* The permutation of epoch e uses streams SHUFFLE + 4e ... + 3 (one per Feistel round). */
#define SHUFFLE 0x73687566666c6500u

static bool of_tokens(const sk_feed *f) { return f->store.tokens != NULL; }

sk_status sk_feed_open(sk_feed *f, const sk_store *s, int64_t seq, int64_t batch, uint64_t seed,
                       bool shuffle)
{
    if (seq < 1 || batch < 1)
        return sk_fail(SK_ECONF, "data: train.seq is %lld and train.batch %lld; both must be >= 1",
                       (long long)seq, (long long)batch);
    if (s->tokens && s->n_tokens - 1 < seq)
        return sk_fail(SK_EDATA,
                       "data: %s has %lld tokens, a window of train.seq=%lld needs %lld; give more "
                       "data or a smaller train.seq",
                       s->describe, (long long)s->n_tokens, (long long)seq, (long long)seq + 1);
    if (!s->tokens && s->n_rows < 1)
        return sk_fail(SK_EDATA, "data: %s has no samples, at least one is needed", s->describe);
    *f = (sk_feed){.store = *s,
                   .seq = seq,
                   .batch = batch,
                   .seed = seed,
                   .shuffle = shuffle,
                   .n_windows = s->tokens ? (s->n_tokens - 1) / seq : s->n_rows};
    return SK_OK;
}

int64_t sk_feed_window(const sk_feed *f, int64_t step, int64_t row)
{
    sk_assert(f->n_windows > 0 && step >= 0 && row >= 0);
    uint64_t n = (uint64_t)f->n_windows;
    uint64_t at = (uint64_t)(step * f->batch + row + f->shift);
    if (!f->shuffle) return (int64_t)(at % n);
    return (int64_t)sk_rng_permute(f->seed, SHUFFLE + 4 * (at / n), at % n, n);
}

/* n ids from token `at` on; returns the highest, as unsigned: a negative id is a huge one. */
static uint32_t copy(const sk_store *s, int64_t at, int64_t n, int32_t *to)
{
    uint32_t top = 0;
    const uint8_t *from = (const uint8_t *)s->tokens + at * s->token_bytes;
    if (s->token_bytes == 1)
        for (int64_t i = 0; i < n; i++) to[i] = from[i];
    else if (s->token_bytes == 2)
        for (int64_t i = 0; i < n; i++) {
            uint16_t id;
            memcpy(&id, from + 2 * i, 2);
            to[i] = id;
        }
    else memcpy(to, from, 4 * (size_t)n);
    for (int64_t i = 0; i < n; i++) top = (uint32_t)to[i] > top ? (uint32_t)to[i] : top;
    return top;
}

static sk_status outside(const sk_store *s, int64_t at, const int32_t *ids, int64_t n)
{
    int64_t i = 0;
    while (i < n - 1 && (uint32_t)ids[i] < (uint64_t)s->vocab) i++;
    return sk_store_outside(s, at + i, (uint32_t)ids[i]);
}

static sk_status tokens(const sk_feed *f, int64_t shift, int64_t step, int64_t row, int64_t n,
                        int64_t col, int64_t m, int32_t *to)
{
    sk_assert(col >= 0 && m >= 0 && col + m <= f->seq);
    if (f->store.map) SK_TRY(sk_mapped_same(f->store.map));
    for (int64_t i = 0; m && i < n; i++, to += m) {
        int64_t at = sk_feed_window(f, step, row + i) * f->seq + col + shift;
        if (copy(&f->store, at, m, to) >= (uint64_t)f->store.vocab)
            return sk_trail(outside(&f->store, at, to, m), SK_HERE);
    }
    return SK_OK;
}

static sk_status labels(const sk_feed *f, int64_t step, int64_t row, int64_t n, int32_t *to)
{
    for (int64_t i = 0; i < n; i++) {
        int64_t k = sk_feed_window(f, step, row + i);
        to[i] = f->store.labels[k];
        if (to[i] >= f->store.vocab)
            return sk_fail(SK_EDATA, "%s: the label of sample %lld is %d, it must be below %lld",
                           f->store.path, (long long)k, to[i], (long long)f->store.vocab);
    }
    return SK_OK;
}

static void fractions(const sk_feed *f, int64_t step, int64_t row, int64_t n, int64_t col,
                      int64_t m, float *to)
{
    sk_assert(col >= 0 && m >= 0 && col + m <= f->store.row_size);
    for (int64_t i = 0; i < n; i++, to += m) {
        const uint8_t *from =
            f->store.rows + sk_feed_window(f, step, row + i) * f->store.row_size + col;
        for (int64_t j = 0; j < m; j++) to[j] = (float)from[j] / 255;
    }
}

/* ---- inputs */

static void places(const sk_feed_box *b, int32_t *to)
{
    for (int64_t i = 0; i < b->n * b->m; i++) to[i] = (int32_t)(b->col + i % b->m);
}

static void ones(const sk_feed_box *b, float *to)
{
    for (int64_t i = 0; i < b->n * b->m; i++) to[i] = 1;
}

const sk_feed_input *sk_store_input(const sk_store *s, const char *name)
{
    for (const sk_feed_input *i = s->inputs; i && i->name; i++)
        if (!strcmp(i->name, name)) return i;
    return NULL;
}

const sk_feed_input *sk_source_input(const char *name, sk_dtype type, int dims)
{
    for (const sk_source *const *s = sk_source_parts; *s; s++)
        for (const sk_feed_input *i = (*s)->inputs; i->name; i++)
            if (!strcmp(i->name, name) && i->type == type && (int)strlen(i->letters) == dims)
                return i;
    return NULL;
}

static sk_status no_input(const sk_store *s, const char *who, const char *name)
{
    char names[256] = "";
    size_t n = 0;
    for (const sk_feed_input *i = s->inputs; i && i->name && n < sizeof names; i++)
        n += (size_t)snprintf(names + n, sizeof names - n, "%s%s", n ? ", " : "", i->name);
    return sk_fail(SK_ECONF, "%s reads \"%s\", and %s has none: it has %s", who, name, s->describe,
                   n ? names : "no inputs");
}

sk_status sk_store_offers(const sk_store *s, const char *who, const char *name, const char *letters,
                          sk_dtype type, int64_t size)
{
    const sk_feed_input *i = sk_store_input(s, name);
    if (!i) return sk_trail(no_input(s, who, name), SK_HERE);
    if (strcmp(i->letters, letters) || i->type != type)
        return sk_fail(SK_ECONF, "%s reads \"%s\" as %s of %s, and %s has it as %s of %s", who,
                       name, sk_dtype_name(type), letters, s->describe, sk_dtype_name(i->type),
                       i->letters);
    if (i->kind == SK_INPUT_BYTES && s->row_size != size)
        return sk_fail(SK_ECONF, "%s has %lld numbers per row, %s reads %lld as \"%s\"", s->path,
                       (long long)s->row_size, who, (long long)size, name);
    return SK_OK;
}

int64_t sk_feed_place(const sk_feed *f, int64_t step, int64_t row, int64_t col)
{
    int64_t window = sk_feed_window(f, step, row);
    return f->store.first + (of_tokens(f) ? window * f->seq + col : window);
}

/* Samples that only fill up the last batch of a feed with an end do not count. */
static void clear_padding(const sk_feed *f, const sk_feed_box *b, float *to)
{
    int64_t first = f->end - b->step * f->batch - b->row - f->shift;
    for (int64_t i = first > 0 ? first : 0; i < b->n; i++)
        memset(to + i * b->m, 0, sizeof *to * (size_t)b->m);
}

static sk_status fill(const sk_feed *f, const sk_feed_input *in, sk_feed_box b, void *to)
{
    switch (in->kind) {
    case SK_INPUT_IDS:
    case SK_INPUT_NEXT:
        return tokens(f, in->kind == SK_INPUT_NEXT, b.step, b.row, b.n, b.col, b.m, to);
    case SK_INPUT_LABELS:
        return labels(f, b.step, b.row, b.n, to);
    case SK_INPUT_OWN:
        return in->fill(f, &b, to);
    case SK_INPUT_PLACES:
        places(&b, to);
        break;
    case SK_INPUT_ONES:
        ones(&b, to);
        break;
    case SK_INPUT_BYTES:
        fractions(f, b.step, b.row, b.n, b.col, b.m, to);
        break;
    }
    return SK_OK;
}

sk_status sk_feed_fill(const sk_feed *f, const char *input, int64_t step, int64_t row, int64_t n,
                       int64_t col, int64_t m, void *to)
{
    sk_feed_box b = {step, row, n, col, m};
    const sk_feed_input *in = sk_store_input(&f->store, input);
    sk_assert(step >= 0 && row >= 0 && n >= 0);
    if (!in) return sk_trail(no_input(&f->store, "the model", input), SK_HERE);
    SK_TRY(fill(f, in, b, to));
    if (in->weighs && f->end > 0) clear_padding(f, &b, to);
    return SK_OK;
}
