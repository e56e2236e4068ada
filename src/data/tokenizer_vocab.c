/* tokenizer_vocab.c - vocabulary, added tokens and merges of tokenizer.json. */
#include "data/tokenizer_tables.h"
#include "data/bpe.h"
#include "data/data.h"
#include "data/json.h"
#include "data/normalize.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_IDS = 2 << 20,
    MAX_MERGES = 2 << 20,
    MAX_ADDED = 1 << 14,
    MOST_UNUSED = 1 << 12 /* ids, and four for every token */
};

#define FOUR(x)    (char)(x), (char)((x) + 1), (char)((x) + 2), (char)((x) + 3)
#define SIXTEEN(x) FOUR(x), FOUR((x) + 4), FOUR((x) + 8), FOUR((x) + 12)
#define QUARTER(x) SIXTEEN(x), SIXTEEN((x) + 16), SIXTEEN((x) + 32), SIXTEEN((x) + 48)
const char sk_every_byte[256] = {QUARTER(0), QUARTER(64), QUARTER(128), QUARTER(192)};

static bool prints(int byte)
{
    return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
}

void sk_byte_alphabet(int sign_of[256], int16_t byte_of[SK_LAST_SIGN])
{
    int extra = 256;
    for (int i = 0; i < SK_LAST_SIGN; i++) byte_of[i] = -1;
    for (int b = 0; b < 256; b++) {
        sign_of[b] = prints(b) ? b : extra++;
        byte_of[sign_of[b]] = (int16_t)b;
    }
}

/* A vocabulary word to the bytes it means; `out` has room for n.  False if it is not spelled in
 * the alphabet: such a word is kept as it is written, and no text leads to it. */
static bool meaning(const int16_t byte_of[SK_LAST_SIGN], const char *s, size_t n, char *out,
                    size_t *m)
{
    *m = 0;
    for (size_t i = 0; i < n; i++) {
        int c = (uint8_t)s[i];
        if (c >= 0x80) c = c < 0xe0 ? (c & 0x1f) << 6 | ((uint8_t)s[++i] & 0x3f) : SK_LAST_SIGN;
        if (c >= SK_LAST_SIGN || byte_of[c] < 0) break;
        out[(*m)++] = (char)byte_of[c];
        if (i + 1 == n) return true;
    }
    memcpy(out, s, *m = n);
    return false;
}

/* Can this be a token? */
static sk_status fits(const sk_tokenizer *t, const char *name, size_t n, json_t *id)
{
    int64_t i = json_is_integer(id) ? json_integer_value(id) : -1;
    if (i < 0 || i >= MAX_IDS || !n || n > SK_MAX_PIECE)
        return sk_fail(
            SK_EDATA,
            "%s: token \"%.40s\" has %zu bytes and id %lld; needed are 1 to %d bytes and "
            "a whole number from 0 to %d",
            t->path, name, n, (long long)i, SK_MAX_PIECE, MAX_IDS - 1);
    return SK_OK;
}

sk_status sk_vocab_count(sk_tokenizer *t, json_t *vocab, json_t *added)
{
    const char *name;
    json_t *v;
    size_t i;
    json_int_t top = -1;
    if (json_object_size(vocab) > MAX_IDS || json_array_size(added) > MAX_ADDED)
        return sk_fail(SK_EDATA, "%s: %zu tokens and %zu added ones; at most %d and %d are read",
                       t->path, json_object_size(vocab), json_array_size(added), MAX_IDS,
                       MAX_ADDED);
    json_object_foreach(vocab, name, v)
    {
        SK_TRY(fits(t, name, strlen(name), v));
        if (json_integer_value(v) > top) top = json_integer_value(v);
    }
    json_array_foreach(added, i, v)
    {
        json_t *text = json_object_get(v, "content"), *id = json_object_get(v, "id");
        if (!json_is_string(text))
            return sk_tokenizer_wrong(t, "an added token without \"content\"");
        SK_TRY(fits(t, json_string_value(text), json_string_length(text), id));
        if (json_integer_value(id) > top) top = json_integer_value(id);
    }
    if (top < 0) return sk_tokenizer_wrong(t, "the vocabulary is empty");
    size_t n = json_object_size(vocab) + json_array_size(added);
    if ((size_t)top > 4 * n + MOST_UNUSED)
        return sk_fail(SK_EDATA, "%s: the highest id is %lld, but there are %zu tokens", t->path,
                       (long long)top, n);
    t->bpe.vocab = top + 1;
    return SK_OK;
}

/* The bytes that a piece of characters means: spaces for their sign. */
static sk_text shown(const sk_bpe *b, sk_arena *a, sk_text piece)
{
    sk_text out = piece;
    if (b->space.n && !sk_norm_replace(a, piece, b->space, (sk_text){" ", 1}, &out)) return out;
    return piece;
}

/* <0x0A>: byte 10, in capitals; -1: no byte. */
static int byte_of_piece(const char *s, size_t n)
{
    static const char hex[] = "0123456789ABCDEF";
    if (n != 6 || memcmp(s, "<0x", 3) || s[5] != '>') return -1;
    const char *hi = memchr(hex, s[3], 16), *lo = memchr(hex, s[4], 16);
    return hi && lo ? (int)(hi - hex) << 4 | (int)(lo - hex) : -1;
}

static sk_text read_piece(sk_tokenizer *t, sk_arena *a, const int16_t byte_of[SK_LAST_SIGN],
                          bool fallback, const char *name, int32_t id)
{
    sk_bpe *b = &t->bpe;
    size_t n = strlen(name), m = n;
    char *bytes = sk_alloc(a, n + 1);
    bool spelled = !b->bytes || meaning(byte_of, name, n, bytes, &m);
    sk_text piece = {b->bytes ? bytes : memcpy(bytes, name, n), m};
    int byte = b->bytes || !fallback ? -1 : byte_of_piece(name, n);
    if (b->bytes && spelled && m == 1) byte = (uint8_t)bytes[0];
    if (byte >= 0) b->byte_id[byte] = id;
    b->pieces[id] = piece;
    t->shown[id] = b->bytes ? piece : shown(b, a, piece);
    if (!b->bytes && byte >= 0) t->shown[id] = (sk_text){&sk_every_byte[byte], 1};
    if (spelled) b->words[sk_bpe_word(b, piece.s, piece.n)] = id;
    return piece;
}

/* Is there something other than the sign of a space before one? */
static bool space_inside(const sk_bpe *b, sk_text s)
{
    size_t n = b->space.n;
    while (s.n >= n && !memcmp(s.s, b->space.s, n)) s.s += n, s.n -= n;
    return s.n && memmem(s.s, s.n, b->space.s, n);
}

static void make_words(sk_bpe *b, sk_arena *a)
{
    uint64_t slots = 2;
    while (slots < 2 * (uint64_t)b->vocab) slots *= 2;
    b->words = sk_many(a, int32_t, slots);
    b->word_mask = slots - 1;
    for (uint64_t i = 0; i < slots; i++) b->words[i] = -1;
}

sk_status sk_vocab_read(sk_tokenizer *t, sk_arena *a, json_t *vocab, bool fallback)
{
    const char *name;
    json_t *v;
    int sign_of[256];
    int16_t byte_of[SK_LAST_SIGN];
    sk_bpe *b = &t->bpe;
    bool runs = b->space.n && b->cut == SK_CUT_NONE;
    sk_byte_alphabet(sign_of, byte_of);
    b->pieces = sk_many(a, sk_text, b->vocab);
    t->shown = sk_many(a, sk_text, b->vocab);
    make_words(b, a);
    for (int i = 0; i < 256; i++) b->byte_id[i] = -1;
    json_object_foreach(vocab, name, v)
    {
        int32_t id = (int32_t)json_integer_value(v);
        if (b->pieces[id].s)
            return sk_fail(SK_EDATA, "%s: id %d is given twice, the second time to \"%.40s\"",
                           t->path, id, name);
        sk_text piece = read_piece(t, a, byte_of, fallback, name, id);
        runs = runs && !space_inside(b, piece);
    }
    /* No merge reaches over the start of a run of spaces: words can end there.  The ids are the
     * same, and a text of many words costs less than one long word. */
    if (runs && b->words[sk_bpe_word(b, b->space.s, b->space.n)] >= 0) b->cut = SK_CUT_RUNS;
    return SK_OK;
}

static int longest_first(const void *x, const void *y)
{
    const sk_added *p = x, *q = y;
    if (p->text.n != q->text.n) return p->text.n < q->text.n ? 1 : -1;
    return memcmp(p->text.s, q->text.s, p->text.n);
}

static void end_of_text(sk_tokenizer *t, const char *s, int32_t id)
{
    static const char *const ends[] = {"<|endoftext|>", "<|end_of_text|>", "</s>"};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (!strcmp(s, ends[i])) t->end = s, t->end_id = id;
}

/* Hugging Face's library reads the ids of added tokens, but gives them anew: that of the
 * vocabulary, or the next.  Files in which the two differ are refused. */
static sk_status same_id(sk_tokenizer *t, json_t *vocab, const char *name, int32_t id, int32_t *top)
{
    json_t *known = json_object_get(vocab, name);
    int32_t n = (int32_t)json_object_size(vocab), next = *top >= n ? *top + 1 : n;
    int32_t want = known ? (int32_t)json_integer_value(known) : next;
    if (id != want)
        return sk_fail(SK_EDATA, "%s: added token \"%.40s\" has id %d, but %s %d", t->path, name,
                       id, known ? "the vocabulary gives it" : "the next that is free is", want);
    if (!known && t->bpe.pieces[id].s)
        return sk_fail(SK_EDATA, "%s: id %d is given twice, the second time to \"%.40s\"", t->path,
                       id, name);
    if (id > *top) *top = id;
    return SK_OK;
}

static sk_status read_one_added(sk_tokenizer *t, sk_arena *a, json_t *v, int32_t id)
{
    static const char *const flags[] = {"single_word", "lstrip", "rstrip"};
    sk_bpe *b = &t->bpe;
    json_t *content = json_object_get(v, "content");
    sk_text s = {sk_strdup(a, json_string_value(content)), json_string_length(content)};
    sk_added one = {s, id, NULL};
    bool normalized = false;
    SK_TRY(sk_json_only(t->path, "an added token", v,
                        "id content single_word lstrip rstrip normalized special"));
    for (int i = 0; i < 3; i++) {
        bool on = false;
        SK_TRY(sk_json_flag(t->path, v, flags[i], &on));
        if (on) one.flag = flags[i];
    }
    SK_TRY(sk_json_flag(t->path, v, "normalized", &normalized));
    if (normalized) SK_TRY(sk_norm_apply(&b->norm, a, s, &one.text));
    sk_added_set *set = &b->added[normalized];
    if (one.text.n) {
        set->v[set->n++] = one;
        set->starts[(uint8_t)one.text.s[0]] = true;
    }
    b->pieces[id] = s;
    t->shown[id] = b->bytes ? one.text : shown(b, a, one.text); /* with a space that it takes */
    end_of_text(t, s.s, id);
    return SK_OK;
}

sk_status sk_vocab_added(sk_tokenizer *t, sk_arena *a, json_t *vocab, json_t *added)
{
    json_t *v;
    size_t i;
    int32_t top = -1;
    for (int k = 0; k < 2; k++) t->bpe.added[k].v = sk_many(a, sk_added, json_array_size(added));
    json_array_foreach(added, i, v)
    {
        int32_t id = (int32_t)json_integer_value(json_object_get(v, "id"));
        SK_TRY(same_id(t, vocab, sk_json_text(v, "content"), id, &top));
        SK_TRY(read_one_added(t, a, v, id));
    }
    for (int k = 0; k < 2; k++) {
        sk_added_set *set = &t->bpe.added[k];
        if (set->n) qsort(set->v, (size_t)set->n, sizeof *set->v, longest_first);
        for (int j = 1; j < set->n; j++)
            if (!longest_first(&set->v[j - 1], &set->v[j]))
                return sk_fail(SK_EDATA, "%s: added token \"%.40s\" is given twice", t->path,
                               set->v[j].text.s);
    }
    return SK_OK;
}

/* The two words of a merge: "a b", or ["a", "b"]. */
static bool two_words(json_t *m, char left[SK_MAX_PIECE + 1], char right[SK_MAX_PIECE + 1])
{
    const char *x = json_string_value(json_array_get(m, 0));
    const char *y = json_string_value(json_array_get(m, 1));
    if (json_is_string(m)) {
        x = json_string_value(m);
        y = strchr(x, ' ');
    }
    if (!x || !y) return false;
    size_t n = json_is_string(m) ? (size_t)(y - x) : strlen(x);
    if (json_is_string(m) ? strchr(++y, ' ') != NULL : json_array_size(m) != 2) return false;
    if (n > SK_MAX_PIECE || strlen(y) > SK_MAX_PIECE) return false;
    memcpy(left, x, n);
    left[n] = 0;
    memcpy(right, y, strlen(y) + 1);
    return true;
}

static int32_t id_of(json_t *vocab, const char *word)
{
    json_t *v = json_object_get(vocab, word);
    return v ? (int32_t)json_integer_value(v) : -1;
}

sk_status sk_vocab_merges(sk_tokenizer *t, sk_arena *a, json_t *vocab, json_t *merges)
{
    char left[2 * SK_MAX_PIECE + 1], right[SK_MAX_PIECE + 1];
    json_t *m;
    size_t rank, n = json_array_size(merges);
    sk_bpe *b = &t->bpe;
    if (n > MAX_MERGES)
        return sk_fail(SK_EDATA, "%s: %zu merges; at most %d are read", t->path, n, MAX_MERGES);
    for (b->mask = 2; b->mask < 2 * n; b->mask *= 2) continue;
    b->pairs = sk_many(a, sk_pair, b->mask);
    for (uint64_t i = 0; i < b->mask; i++) b->pairs[i].key = SK_NO_PAIR;
    b->mask--;
    json_array_foreach(merges, rank, m)
    {
        int32_t x = -1, y = -1, both = -1;
        if (two_words(m, left, right)) {
            x = id_of(vocab, left), y = id_of(vocab, right);
            both = id_of(vocab, strcat(left, right));
        }
        if (x < 0 || y < 0 || both < 0)
            return sk_fail(SK_EDATA,
                           "%s: merge %zu does not join two words of the vocabulary into a third",
                           t->path, rank);
        uint64_t key = (uint64_t)x << 32 | (uint32_t)y;
        b->pairs[sk_bpe_slot(b, key)] = (sk_pair){key, (int32_t)rank, both};
    }
    return SK_OK;
}
