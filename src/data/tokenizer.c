/* tokenizer.c - the byte tokenizer, and reading tokenizer.json.
 *
 * The file comes from outside: it may be anything.  Sizes are capped, every id
 * is checked, and what skein cannot reproduce exactly (a normalizer, word
 * suffixes, another model than BPE) is refused with its name rather than
 * approximated. */
#include "data/data.h"
#include "base/text.h"
#include "data/bpe.h"
#include "data/read.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_FILE = 64 << 20,
    MAX_IDS = 2 << 20,
    MAX_MERGES = 2 << 20,
    MAX_ADDED = 1 << 14,
    MAX_PIECE = 1 << 12, /* bytes of one token or expression */
    LAST_SIGN = 324      /* GPT-2 writes the 256 bytes with characters below U+0144 */
};

struct sk_tokenizer {
    const char *path;
    bool bytes; /* id = byte: no tables are needed */
    sk_text json;
    sk_bpe bpe;
    const char *end;
};

/* GPT-2's own expression, with \s and \p as in Unicode. */
static const char gpt2_split[] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+"
                                 "|\\s+(?!\\S)|\\s+";

/* GPT-2's visible alphabet: printable bytes stand for themselves, the others for U+0100 on. */
static bool prints(int byte)
{
    return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
}

static void alphabet(int sign_of[256], int16_t byte_of[LAST_SIGN])
{
    int extra = 256;
    for (int i = 0; i < LAST_SIGN; i++) byte_of[i] = -1;
    for (int b = 0; b < 256; b++) {
        sign_of[b] = prints(b) ? b : extra++;
        byte_of[sign_of[b]] = (int16_t)b;
    }
}

/* A vocabulary word to the bytes it means; `out` has room for n.  False if it is not spelled in
 * the alphabet: such a word is kept as it is written, and no text leads to it. */
static bool meaning(const int16_t byte_of[LAST_SIGN], const char *s, size_t n, char *out, size_t *m)
{
    *m = 0;
    for (size_t i = 0; i < n; i++) {
        int c = (uint8_t)s[i];
        if (c >= 0x80) c = c < 0xe0 ? (c & 0x1f) << 6 | ((uint8_t)s[++i] & 0x3f) : LAST_SIGN;
        if (c >= LAST_SIGN || byte_of[c] < 0) break;
        out[(*m)++] = (char)byte_of[c];
        if (i + 1 == n) return true;
    }
    memcpy(out, s, *m = n);
    return false;
}

static sk_status wrong(const sk_tokenizer *t, const char *what)
{
    return sk_fail(SK_EDATA, "%s: %s", t->path, what);
}

/* Can this be a token? */
static sk_status fits(const sk_tokenizer *t, const char *name, size_t n, json_t *id)
{
    int64_t i = json_is_integer(id) ? json_integer_value(id) : -1;
    if (i < 0 || i >= MAX_IDS || !n || n > MAX_PIECE)
        return sk_fail(
            SK_EDATA,
            "%s: token \"%.40s\" has %zu bytes and id %lld; needed are 1 to %d bytes and "
            "a whole number from 0 to %d",
            t->path, name, n, (long long)i, MAX_PIECE, MAX_IDS - 1);
    return SK_OK;
}

/* All ids are checked here, before tables are made: vocab is 1 + the highest. */
static sk_status count(sk_tokenizer *t, json_t *vocab, json_t *added)
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
        if (!json_is_string(text)) return wrong(t, "an added token without \"content\"");
        SK_TRY(fits(t, json_string_value(text), json_string_length(text), id));
        if (json_integer_value(id) > top) top = json_integer_value(id);
    }
    if (top < 0) return wrong(t, "the vocabulary is empty");
    t->bpe.vocab = top + 1;
    return SK_OK;
}

static sk_status read_vocab(sk_tokenizer *t, sk_arena *a, json_t *vocab)
{
    const char *name;
    json_t *v;
    int sign_of[256];
    int16_t byte_of[LAST_SIGN];
    alphabet(sign_of, byte_of);
    t->bpe.pieces = sk_many(a, sk_text, t->bpe.vocab);
    for (int i = 0; i < 256; i++) t->bpe.byte_id[i] = -1;
    json_object_foreach(vocab, name, v)
    {
        size_t n = strlen(name), m = 0;
        int32_t id = (int32_t)json_integer_value(v);
        char *bytes = sk_alloc(a, n + 1);
        if (t->bpe.pieces[id].s)
            return sk_fail(SK_EDATA, "%s: id %d is given twice, the second time to \"%.40s\"",
                           t->path, id, name);
        if (meaning(byte_of, name, n, bytes, &m) && m == 1) t->bpe.byte_id[(uint8_t)bytes[0]] = id;
        t->bpe.pieces[id] = (sk_text){bytes, m};
    }
    return SK_OK;
}

static int longest_first(const void *x, const void *y)
{
    const sk_added *p = x, *q = y;
    if (p->text.n != q->text.n) return p->text.n < q->text.n ? 1 : -1;
    return p->id < q->id ? -1 : p->id > q->id;
}

static void end_of_text(sk_tokenizer *t, const char *s)
{
    static const char *const ends[] = {"<|endoftext|>", "<|end_of_text|>", "</s>"};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (!strcmp(s, ends[i])) t->end = s;
}

static sk_status read_added(sk_tokenizer *t, sk_arena *a, json_t *added)
{
    json_t *v;
    size_t i;
    sk_bpe *b = &t->bpe;
    b->added = sk_many(a, sk_added, json_array_size(added));
    json_array_foreach(added, i, v)
    {
        json_t *text = json_object_get(v, "content");
        int32_t id = (int32_t)json_integer_value(json_object_get(v, "id"));
        sk_text s = {sk_strdup(a, json_string_value(text)), json_string_length(text)};
        sk_text *p = &b->pieces[id];
        if (p->s && (p->n != s.n || memcmp(p->s, s.s, s.n)))
            return sk_fail(SK_EDATA, "%s: id %d is given twice, the second time to \"%.40s\"",
                           t->path, id, s.s);
        *p = s;
        b->added[b->n_added++] = (sk_added){s, id};
        b->starts[(uint8_t)s.s[0]] = true;
        end_of_text(t, s.s);
    }
    if (b->n_added) qsort(b->added, (size_t)b->n_added, sizeof *b->added, longest_first);
    return SK_OK;
}

/* The two words of a merge: "a b", or ["a", "b"]. */
static bool two_words(json_t *m, char left[MAX_PIECE + 1], char right[MAX_PIECE + 1])
{
    const char *x = json_string_value(json_array_get(m, 0));
    const char *y = json_string_value(json_array_get(m, 1));
    if (json_is_string(m)) {
        x = json_string_value(m);
        y = strchr(x, ' ');
    }
    if (!x || !y) return false;
    size_t n = json_is_string(m) ? (size_t)(y - x) : strlen(x);
    if (json_is_string(m)) y++;
    if (n > MAX_PIECE || strlen(y) > MAX_PIECE) return false;
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

static sk_status read_merges(sk_tokenizer *t, sk_arena *a, json_t *vocab, json_t *merges)
{
    char left[2 * MAX_PIECE + 1], right[MAX_PIECE + 1];
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
        sk_pair *p = &b->pairs[sk_bpe_slot(b, key)];
        if (p->key == SK_NO_PAIR) *p = (sk_pair){key, (int32_t)rank, both};
    }
    return SK_OK;
}

/* A table from bytes to ids, for files whose whole words go before merges. */
static void read_words(sk_tokenizer *t, sk_arena *a)
{
    sk_bpe *b = &t->bpe;
    uint64_t slots = 1;
    while (slots < 2 * (uint64_t)b->vocab) slots *= 2;
    b->words = sk_many(a, int32_t, slots);
    b->word_mask = slots - 1;
    for (uint64_t i = 0; i < slots; i++) b->words[i] = -1;
    for (int32_t id = 0; id < b->vocab; id++)
        if (b->pieces[id].n) b->words[sk_bpe_word(b, b->pieces[id].s, b->pieces[id].n)] = id;
}

static sk_status add_split(sk_tokenizer *t, sk_arena *a, const char *expr, bool literal)
{
    int error = 0;
    PCRE2_SIZE at = 0;
    PCRE2_UCHAR why[128] = "";
    if (t->bpe.n_splits == SK_BPE_SPLITS || strlen(expr) > MAX_PIECE)
        return wrong(t, "too many or too long split expressions");
    pcre2_compile_context *c = pcre2_compile_context_create(sk_bpe_memory(a));
    sk_assert(c);
    pcre2_code *code = pcre2_compile((PCRE2_SPTR)expr, PCRE2_ZERO_TERMINATED,
                                     literal ? PCRE2_UTF | PCRE2_LITERAL
                                             : PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C,
                                     &error, &at, c);
    if (!code) {
        pcre2_get_error_message(error, why, sizeof why);
        return sk_fail(SK_EDATA, "%s: split expression, character %zu: %s", t->path, (size_t)at,
                       (const char *)why);
    }
    pcre2_jit_compile(code, PCRE2_JIT_COMPLETE); /* without JIT it is only slower */
    t->bpe.split[t->bpe.n_splits++] = code;
    return SK_OK;
}

static const char *text_of(json_t *object, const char *key)
{
    const char *s = json_string_value(json_object_get(object, key));
    return s ? s : "";
}

/* One pre-tokenizer that is no sequence. */
static sk_status read_split(sk_tokenizer *t, sk_arena *a, json_t *p)
{
    const char *type = text_of(p, "type");
    if (!strcmp(type, "ByteLevel")) {
        if (json_is_true(json_object_get(p, "add_prefix_space")))
            return wrong(t, "pre_tokenizer: add_prefix_space is not supported");
        if (json_is_false(json_object_get(p, "use_regex"))) return SK_OK;
        return add_split(t, a, gpt2_split, false);
    }
    if (!strcmp(type, "Digits"))
        return add_split(
            t, a, json_is_true(json_object_get(p, "individual_digits")) ? "\\p{N}" : "\\p{N}+",
            false);
    if (!strcmp(type, "Split")) {
        json_t *pattern = json_object_get(p, "pattern");
        const char *how = text_of(p, "behavior");
        bool invert = json_is_true(json_object_get(p, "invert"));
        /* "Removed" and inverted: matches are kept.  What the expression leaves out would be
         * lost text; here it is kept as a word of its own. */
        if (strcmp(how, "Isolated") && !(invert && !strcmp(how, "Removed")))
            return sk_fail(SK_EDATA,
                           "%s: pre_tokenizer: Split with behavior \"%.40s\" is not "
                           "supported, only Isolated",
                           t->path, how);
        if (json_is_string(json_object_get(pattern, "String")))
            return add_split(t, a, text_of(pattern, "String"), true);
        return add_split(t, a, text_of(pattern, "Regex"), false);
    }
    return sk_fail(SK_EDATA,
                   "%s: pre_tokenizer \"%.40s\" is not supported; needed: ByteLevel, Split, "
                   "Digits or a Sequence of them",
                   t->path, type);
}

static sk_status read_splits(sk_tokenizer *t, sk_arena *a, json_t *p)
{
    size_t i;
    json_t *one;
    if (strcmp(text_of(p, "type"), "Sequence")) return read_split(t, a, p);
    json_array_foreach(json_object_get(p, "pretokenizers"), i, one) SK_TRY(read_split(t, a, one));
    return SK_OK;
}

static bool absent(json_t *v)
{
    return !v || json_is_null(v) || json_is_false(v) ||
           (json_is_string(v) && !json_string_length(v));
}

/* What would change ids and is not done here. */
static sk_status refuse(const sk_tokenizer *t, json_t *root, json_t *model)
{
    static const char *const never[] = {"byte_fallback", "continuing_subword_prefix",
                                        "end_of_word_suffix", "dropout"};
    const char *type = text_of(model, "type");
    if (*type && strcmp(type, "BPE"))
        return sk_fail(SK_EDATA, "%s: model \"%.40s\" is not supported, only byte-level BPE",
                       t->path, type);
    if (!absent(json_object_get(root, "normalizer")))
        return sk_fail(SK_EDATA, "%s: normalizer \"%.40s\" is not supported", t->path,
                       text_of(json_object_get(root, "normalizer"), "type"));
    for (size_t i = 0; i < sizeof never / sizeof *never; i++)
        if (!absent(json_object_get(model, never[i])))
            return sk_fail(SK_EDATA, "%s: model.%s is not supported", t->path, never[i]);
    return SK_OK;
}

static sk_status read_root(sk_tokenizer *t, sk_arena *a, json_t *root)
{
    json_t *model = json_object_get(root, "model"), *vocab = json_object_get(model, "vocab");
    json_t *merges = json_object_get(model, "merges"),
           *added = json_object_get(root, "added_tokens");
    SK_TRY(refuse(t, root, model));
    if (!json_is_object(vocab) || !json_is_array(merges) || (added && !json_is_array(added)))
        return wrong(t, "needs model.vocab (an object), model.merges and added_tokens (lists)");
    SK_TRY(count(t, vocab, added));
    SK_TRY(read_vocab(t, a, vocab));
    SK_TRY(read_merges(t, a, vocab, merges));
    SK_TRY(read_added(t, a, added));
    SK_TRY(read_splits(t, a, json_object_get(root, "pre_tokenizer")));
    if (json_is_true(json_object_get(model, "ignore_merges"))) read_words(t, a);
    t->bytes = t->bpe.vocab == 256 && !json_array_size(merges) && !t->bpe.n_added;
    for (int i = 0; i < 256; i++) t->bytes = t->bytes && t->bpe.byte_id[i] == i;
    return SK_OK;
}

static sk_status read_json(sk_tokenizer *t, sk_arena *a)
{
    json_error_t e;
    json_t *root = json_loadb(t->json.s, t->json.n, JSON_REJECT_DUPLICATES, &e);
    if (!root)
        return sk_fail(SK_EDATA, "%s:%d:%d: not JSON: %s", t->path, e.line, e.column, e.text);
    sk_status status = read_root(t, a, root);
    json_decref(root);
    return status ? sk_trail(status, SK_HERE) : SK_OK;
}

sk_status sk_tokenizer_open(sk_arena *a, const char *what, sk_tokenizer **out)
{
    sk_tokenizer *t = sk_new(a, sk_tokenizer);
    t->path = sk_strdup(a, what);
    t->end = "";
    t->bytes = !strcmp(what, "byte");
    t->bpe.vocab = 256;
    if (!t->bytes) {
        if (sk_is_dir(what)) t->path = sk_print(a, "%s/tokenizer.json", what);
        if (!sk_is_file(t->path))
            return sk_fail(SK_EDATA,
                           "tokenizer: %s is no file; needed: \"byte\", or a file or "
                           "directory with a tokenizer.json",
                           t->path);
        SK_TRY(sk_data_read(a, t->path, MAX_FILE, &t->json));
        SK_TRY(read_json(t, a));
    }
    *out = t;
    return SK_OK;
}

int64_t sk_tokenizer_vocab(const sk_tokenizer *t) { return t->bpe.vocab; }
bool sk_tokenizer_is_byte(const sk_tokenizer *t) { return t->bytes; }
const char *sk_tokenizer_end(const sk_tokenizer *t) { return t->end; }

sk_status sk_tokenizer_encode(const sk_tokenizer *t, sk_arena *a, const char *text, size_t n,
                              int32_t **ids, int64_t *n_ids)
{
    if (!t->bytes) {
        SK_TRY(sk_bpe_encode(&t->bpe, a, text, n, ids, n_ids));
        return SK_OK;
    }
    *ids = sk_many(a, int32_t, n);
    *n_ids = (int64_t)n;
    for (size_t i = 0; i < n; i++) (*ids)[i] = (uint8_t)text[i];
    return SK_OK;
}

#define FOUR(x)    (char)(x), (char)((x) + 1), (char)((x) + 2), (char)((x) + 3)
#define SIXTEEN(x) FOUR(x), FOUR((x) + 4), FOUR((x) + 8), FOUR((x) + 12)
#define QUARTER(x) SIXTEEN(x), SIXTEEN((x) + 16), SIXTEEN((x) + 32), SIXTEEN((x) + 48)

const char *sk_tokenizer_piece(const sk_tokenizer *t, int32_t id, size_t *n)
{
    static const char every[256] = {QUARTER(0), QUARTER(64), QUARTER(128), QUARTER(192)};
    *n = 0;
    if (id < 0 || id >= t->bpe.vocab) return "";
    if (!t->bytes) return *n = t->bpe.pieces[id].n, *n ? t->bpe.pieces[id].s : "";
    *n = 1;
    return &every[id];
}

char *sk_tokenizer_json(const sk_tokenizer *t, sk_arena *a)
{
    int sign_of[256];
    int16_t byte_of[LAST_SIGN];
    sk_out o = {.arena = a};
    if (t->json.s) return sk_strdup(a, t->json.s);
    alphabet(sign_of, byte_of);
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
