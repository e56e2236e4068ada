/* store.c - finding the source of a name, and stores made from text. */
#include "data/data.h"
#include "base/hash.h"
#include "base/strings.h"
#include "data/data_files.h"
#include "data/format.h"

#include <stdio.h>
#include <string.h>

enum { MAX_KNOWN = 32, BLOCKS = SK_DIGEST_BLOCKS, BLOCK = SK_DIGEST_BLOCK };

/* Why no source could read it: one error for the person who typed the name. */
static sk_status unknown(sk_arena *a, const char *what)
{
    const char *known[MAX_KNOWN];
    int n = 0;
    sk_out names = {.arena = a}, tried = {.arena = a};
    for (const sk_source *const *s = sk_source_parts; *s; s++) {
        sk_out_add(&tried, "%s%s", tried.n ? ", " : "", (*s)->name);
        if (!(*s)->known || n == MAX_KNOWN) continue;
        known[n++] = (*s)->known;
        sk_out_add(&names, "%s%s", names.n ? ", " : "", (*s)->known);
    }
    const char *foreign = sk_is_file(what) ? sk_format_of(what) : NULL;
    if (foreign) return sk_fail(SK_EDATA, "data: %s %s; " SK_FORMATS, what, foreign);
    if (sk_is_file(what))
        return sk_fail(SK_EDATA, "data: \"%s\" holds nothing that a source can read (tried %s)",
                       what, tried.s);
    if (sk_is_dir(what))
        return sk_fail(SK_EDATA, "data: the directory \"%s\" holds no file that a source can read",
                       what);
    if (sk_data_is_glob(what)) return sk_fail(SK_EDATA, "data: no file matches \"%s\"", what);
    const char *near = sk_nearest(what, known, n);
    return sk_fail(SK_EDATA, "data: \"%s\" is no file, directory or known name (%s)%s%s%s", what,
                   names.s, near ? "; did you mean \"" : "", near ? near : "", near ? "\"?" : "");
}

static const sk_source *source_of(const char *what)
{
    for (const sk_source *const *s = sk_source_parts; *s; s++)
        if ((*s)->knows(what)) return *s;
    return NULL;
}

sk_status sk_store_open_as(sk_arena *a, const char *what, const sk_tokenizer *t, bool validation,
                           sk_data_hint said, sk_store *out)
{
    const sk_source *s = source_of(what);
    sk_store store = {
        .base = -1, .path = what, .said_bytes = said.id_bytes, .said_text = said.text};
    if (!s) return sk_trail(unknown(a, what), SK_HERE);
    SK_TRY(s->open(a, what, t, validation, &store));
    store.path = sk_strdup(a, store.path);
    store.inputs = s->inputs;
    *out = store;
    return SK_OK;
}

sk_status sk_store_open(sk_arena *a, const char *what, const sk_tokenizer *t, bool validation,
                        sk_store *out)
{
    return sk_store_open_as(a, what, t, validation, (sk_data_hint){0}, out);
}

bool sk_store_brings_val(const char *what)
{
    const sk_source *s = source_of(what);
    return s && s->brings_val && s->brings_val(what);
}

sk_status sk_store_text(sk_arena *a, const sk_tokenizer *t, sk_text text, const size_t *ends,
                        int64_t n_docs, sk_store *out)
{
    if (!t)
        return sk_fail(SK_ECONF,
                       "%s is text, and there is no tokenizer to read it with, as for a model of "
                       "images, or a directory without tokenizer.json; data.tokenizer=DIRECTORY "
                       "names one, data.tokenizer=byte trains on bytes",
                       out->path ? out->path : "the data");
    out->vocab = sk_tokenizer_vocab(t);
    if (sk_tokenizer_is_byte(t)) {
        out->tokens = text.s, out->n_tokens = (int64_t)text.n, out->token_bytes = 1;
        return SK_OK;
    }
    sk_arena scratch = {0};
    int32_t *ids = NULL;
    int64_t n = n_docs ? n_docs : 1;
    sk_text *docs = sk_many(&scratch, sk_text, n);
    docs[0] = text;
    for (int64_t i = 0; i < n_docs; i++) {
        size_t from = i ? ends[i - 1] : 0;
        docs[i] = (sk_text){text.s + from, ends[i] - from};
    }
    sk_status status =
        sk_tokenizer_documents(t, &scratch, docs, n, n_docs > 0, &ids, &out->n_tokens);
    if (!status) {
        out->token_bytes = out->vocab <= 65536 ? 2 : 4;
        void *to = sk_alloc_n(a, (size_t)out->token_bytes, (size_t)out->n_tokens);
        for (int64_t i = 0; i < out->n_tokens; i++)
            if (out->token_bytes == 2) ((uint16_t *)to)[i] = (uint16_t)ids[i];
            else ((int32_t *)to)[i] = ids[i];
        out->tokens = to;
    }
    sk_arena_end(&scratch);
    return status ? sk_trail(status, SK_HERE) : SK_OK;
}

sk_status sk_store_fit(sk_store *s, int64_t vocab)
{
    if (s->vocab > vocab && !s->vocab_loose)
        return sk_fail(SK_ECONF,
                       "%s has %lld different ids, but the model's vocab_size is %lld; choose "
                       "another data.tokenizer or raise model.vocab_size",
                       s->describe, (long long)s->vocab, (long long)vocab);
    if (s->vocab_loose && s->vocab > vocab) s->vocab = vocab;
    return SK_OK;
}

static uint32_t sum_bytes(uint32_t sum, const void *data, int64_t n)
{
    const char *p = data;
    if (n <= (int64_t)BLOCKS * BLOCK) return sk_crc32c(sum, p, (size_t)n);
    for (int64_t i = 0; i < BLOCKS; i++) /* n / BLOCKS first: no product of two large numbers */
        sum = sk_crc32c(sum, p + (i == BLOCKS - 1 ? n - BLOCK : n / BLOCKS * i), BLOCK);
    return sum;
}

void sk_store_digest(const sk_store *s, char to[SK_DIGEST])
{
    uint32_t sum = 0;
    if (s->tokens) sum = sum_bytes(sum, s->tokens, s->n_tokens * s->token_bytes);
    if (s->rows) sum = sum_bytes(sum, s->rows, s->n_rows * s->row_size);
    if (s->labels) sum = sum_bytes(sum, s->labels, s->n_rows);
    if (s->own) sum = sum_bytes(sum, s->own, s->own_bytes);
    snprintf(to, SK_DIGEST, "%lld:%08x", (long long)(s->tokens ? s->n_tokens : s->n_rows), sum);
}

void sk_store_cut(const sk_store *s, double fraction, sk_store *head, sk_store *tail)
{
    sk_store all = *s; /* head or tail may be s itself */
    int64_t n = all.tokens ? all.n_tokens : all.n_rows;
    double share = (double)n * (fraction < 0 ? 0 : fraction > 1 ? 1 : fraction);
    int64_t cut = n - (int64_t)share;
    *head = *tail = all;
    tail->first += cut;
    if (all.tokens) {
        head->n_tokens = cut;
        tail->n_tokens = n - cut;
        tail->tokens = (const char *)all.tokens + cut * all.token_bytes;
        if (all.base >= 0) tail->base = all.base + cut * all.token_bytes;
        return;
    }
    head->n_rows = cut;
    tail->n_rows = n - cut;
    tail->rows = all.rows + cut * all.row_size;
    tail->labels = all.labels + cut;
}
