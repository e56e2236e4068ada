/* tokenizer.c - the byte tokenizer; opening a tokenizer, encoding and decoding. */
#include "data/tokenizer_tables.h"
#include "base/strings.h"
#include "data/bpe.h"
#include "data/data.h"
#include "data/data_files.h"

#include <string.h>

enum { MAX_FILE = 64 << 20 };

sk_status sk_tokenizer_open(sk_arena *a, const char *what, sk_tokenizer **out)
{
    sk_tokenizer *t = sk_new(a, sk_tokenizer);
    t->path = sk_strdup(a, what);
    t->end = "";
    t->bytes = !strcmp(what, "byte");
    t->bpe.vocab = 256;
    if (!t->bytes) {
        if (sk_is_dir(what)) t->path = sk_print(a, "%s/tokenizer.json", what);
        if (!sk_is_file(t->path) && sk_is_there(t->path))
            return sk_fail(SK_EDATA,
                           "tokenizer: %s is there and is no plain file, nor a link to one; put "
                           "the tokenizer in its place, or remove it",
                           t->path);
        if (!sk_is_file(t->path))
            return sk_fail(SK_EDATA,
                           "tokenizer: %s is no file; needed: \"byte\", or a file or "
                           "directory with a tokenizer.json",
                           t->path);
        SK_TRY(sk_data_read(a, t->path, MAX_FILE, &t->json));
        SK_TRY(sk_tokenizer_read(t, a));
    }
    *out = t;
    return SK_OK;
}

int64_t sk_tokenizer_vocab(const sk_tokenizer *t) { return t->bpe.vocab; }
bool sk_tokenizer_is_byte(const sk_tokenizer *t) { return t->bytes; }
const char *sk_tokenizer_end(const sk_tokenizer *t) { return t->end; }

const int32_t *sk_tokenizer_begin(const sk_tokenizer *t, int *n)
{
    *n = t->frame.n_before;
    return t->frame.before;
}

sk_status sk_tokenizer_encode(const sk_tokenizer *t, sk_arena *a, const char *text, size_t n,
                              int32_t **ids, int64_t *n_ids)
{
    if (!t->bytes) return sk_bpe_encode(&t->bpe, a, &(sk_text){text, n}, 1, NULL, ids, n_ids);
    *ids = sk_many(a, int32_t, n);
    *n_ids = (int64_t)n;
    for (size_t i = 0; i < n; i++) (*ids)[i] = (uint8_t)text[i];
    return SK_OK;
}

sk_status sk_tokenizer_documents(const sk_tokenizer *t, sk_arena *a, const sk_text *docs, int64_t n,
                                 bool end, int32_t **ids, int64_t *n_ids)
{
    int32_t after[SK_MAX_FRAME + 1];
    sk_frame f = t->frame;
    sk_assert(!t->bytes);
    if (f.n_after) memcpy(after, f.after, sizeof(int32_t) * (size_t)f.n_after);
    if (end && *t->end && !(f.n_after && after[f.n_after - 1] == t->end_id))
        after[f.n_after++] = t->end_id;
    f.after = after;
    return sk_bpe_encode(&t->bpe, a, docs, n, &f, ids, n_ids);
}

const char *sk_tokenizer_piece(const sk_tokenizer *t, int32_t id, size_t *n)
{
    *n = 0;
    if (id < 0 || id >= t->bpe.vocab) return "";
    if (!t->bytes) return *n = t->shown[id].n, *n ? t->shown[id].s : "";
    *n = 1;
    return &sk_every_byte[id];
}

char *sk_tokenizer_json(const sk_tokenizer *t, sk_arena *a)
{
    int sign_of[256];
    int16_t byte_of[SK_LAST_SIGN];
    sk_out o = {.arena = a};
    if (t->json.s) return sk_strdup(a, t->json.s);
    sk_byte_alphabet(sign_of, byte_of);
    sk_out_add(&o, "{\"version\":\"1.0\",\"truncation\":null,\"padding\":null,\"added_tokens\":[],"
                   "\"normalizer\":null,\n"
                   "\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false,"
                   "\"trim_offsets\":true,\"use_regex\":false},\n\"post_processor\":null,\n"
                   "\"decoder\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false,"
                   "\"trim_offsets\":true,\"use_regex\":false},\n"
                   "\"model\":{\"type\":\"BPE\",\"dropout\":null,\"unk_token\":null,"
                   "\"continuing_subword_prefix\":null,\"end_of_word_suffix\":null,"
                   "\"fuse_unk\":false,\"byte_fallback\":false,\"ignore_merges\":false,\n"
                   "\"vocab\":{");
    for (int b = 0; b < 256; b++) {
        int c = sign_of[b];
        const char *slash = c == '"' || c == '\\' ? "\\" : "";
        if (c < 0x80) sk_out_add(&o, "%s\"%s%c\":%d", b ? "," : "", slash, c, b);
        else sk_out_add(&o, "%s\"%c%c\":%d", b ? "," : "", 0xc0 | c >> 6, 0x80 | (c & 0x3f), b);
    }
    sk_out_add(&o, "},\n\"merges\":[]}}\n");
    return o.s;
}
