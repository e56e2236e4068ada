/* tokenizer.c - the byte tokenizer, and reading tokenizer.json.
 *
 * The file comes from outside: it may be anything.  Sizes are capped, every id
 * is checked, and what skein cannot reproduce exactly (word suffixes, dropout,
 * another model than BPE, a key that it does not know) is refused with its name
 * rather than approximated. */
#include "data/data.h"
#include "base/strings.h"
#include "data/bpe.h"
#include "data/data_files.h"
#include "data/pre_tokenizer.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_FILE = 64 << 20,
    MAX_IDS = 2 << 20,
    MAX_MERGES = 2 << 20,
    MAX_ADDED = 1 << 14,
    MOST_UNUSED = 1 << 12, /* ids, and four for every token */
    MAX_FRAME = 16,
    MAX_PIECE = 1 << 12, /* bytes of one token */
    LAST_SIGN = 324      /* GPT-2 writes the 256 bytes with characters below U+0144 */
};

struct sk_tokenizer {
    const char *path;
    bool bytes; /* id = byte: no tables are needed */
    sk_text json;
    sk_bpe bpe;
    sk_text *shown; /* bytes of each id in a text */
    sk_frame frame; /* of the post-processor's template */
    const char *end;
    int32_t end_id;
};

#define FOUR(x)    (char)(x), (char)((x) + 1), (char)((x) + 2), (char)((x) + 3)
#define SIXTEEN(x) FOUR(x), FOUR((x) + 4), FOUR((x) + 8), FOUR((x) + 12)
#define QUARTER(x) SIXTEEN(x), SIXTEEN((x) + 16), SIXTEEN((x) + 32), SIXTEEN((x) + 48)
static const char every[256] = {QUARTER(0), QUARTER(64), QUARTER(128), QUARTER(192)};

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

/* All ids are checked here, before tables are made: vocab is 1 + the highest.  Ids that are not
 * used take room too, so there may not be many more of them than tokens. */
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

static sk_text read_piece(sk_tokenizer *t, sk_arena *a, const int16_t byte_of[LAST_SIGN],
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
    if (!b->bytes && byte >= 0) t->shown[id] = (sk_text){&every[byte], 1};
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

static sk_status read_vocab(sk_tokenizer *t, sk_arena *a, json_t *vocab, bool fallback)
{
    const char *name;
    json_t *v;
    int sign_of[256];
    int16_t byte_of[LAST_SIGN];
    sk_bpe *b = &t->bpe;
    bool runs = b->space.n && b->cut == SK_CUT_NONE;
    alphabet(sign_of, byte_of);
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

static sk_status read_added(sk_tokenizer *t, sk_arena *a, json_t *vocab, json_t *added)
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
    if (json_is_string(m) ? strchr(++y, ' ') != NULL : json_array_size(m) != 2) return false;
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
        b->pairs[sk_bpe_slot(b, key)] = (sk_pair){key, (int32_t)rank, both};
    }
    return SK_OK;
}

/* --- the post-processor: ids before and after a document --- */

static sk_status read_special(sk_tokenizer *t, sk_arena *a, json_t *ids, int32_t **to, int *n)
{
    size_t i;
    json_t *v;
    if (!json_array_size(ids)) return wrong(t, "post_processor: a special token without \"ids\"");
    if (!*to) *to = sk_many(a, int32_t, MAX_FRAME);
    json_array_foreach(ids, i, v)
    {
        json_int_t id = json_is_integer(v) ? json_integer_value(v) : -1;
        if (id < 0 || id >= t->bpe.vocab || *n == MAX_FRAME)
            return sk_fail(SK_EDATA, "%s: post_processor: id %lld; %d at most, below %lld", t->path,
                           (long long)id, MAX_FRAME, (long long)t->bpe.vocab);
        (*to)[(*n)++] = (int32_t)id;
    }
    return SK_OK;
}

static sk_status read_template(sk_tokenizer *t, sk_arena *a, json_t *p)
{
    size_t i;
    bool seen = false;
    sk_frame *f = &t->frame;
    json_t *v, *single = json_object_get(p, "single");
    SK_TRY(sk_json_only(t->path, "post_processor TemplateProcessing", p,
                        "type single pair special_tokens"));
    json_array_foreach(single, i, v)
    {
        const char *id = sk_json_text(json_object_get(v, "SpecialToken"), "id");
        json_t *known = json_object_get(json_object_get(p, "special_tokens"), id);
        bool text = !strcmp(sk_json_text(json_object_get(v, "Sequence"), "id"), "A");
        if (text && seen) return wrong(t, "post_processor: the template has the text twice");
        if (text) seen = true;
        else if (seen)
            SK_TRY(read_special(t, a, json_object_get(known, "ids"), &f->after, &f->n_after));
        else SK_TRY(read_special(t, a, json_object_get(known, "ids"), &f->before, &f->n_before));
    }
    return seen ? SK_OK : wrong(t, "post_processor: \"single\" of the template has no text");
}

static sk_status read_post(sk_tokenizer *t, sk_arena *a, json_t *p)
{
    size_t i;
    json_t *one, *list = json_object_get(p, "processors");
    const char *type = sk_json_text(p, "type");
    if (!p || json_is_null(p) || !strcmp(type, "ByteLevel")) return SK_OK; /* moves offsets only */
    if (!strcmp(type, "TemplateProcessing") && !t->frame.n_before && !t->frame.n_after)
        return read_template(t, a, p);
    if (strcmp(type, "Sequence") || !json_is_array(list))
        return sk_fail(SK_EDATA,
                       "%s: post_processor \"%.40s\" is not supported; needed: one "
                       "TemplateProcessing, ByteLevel or a Sequence of them",
                       t->path, type);
    json_array_foreach(list, i, one)
    {
        if (!strcmp(sk_json_text(one, "type"), "Sequence"))
            return wrong(t, "post_processor: a Sequence in a Sequence is not supported");
        SK_TRY(read_post(t, a, one));
    }
    return SK_OK;
}

/* --- the decoder: pieces are shown as the model's kind has them, so it must be of that kind --- */

static sk_status read_decoder(const sk_tokenizer *t, json_t *p, bool inside)
{
    static const char *const parts[] = {"Replace", "ByteFallback", "Fuse", "Strip", "Metaspace"};
    size_t i;
    json_t *one, *list = json_object_get(p, "decoders");
    const char *type = sk_json_text(p, "type");
    bool bytes = t->bpe.bytes;
    if (!inside && (!p || json_is_null(p))) return SK_OK;
    if (bytes && !strcmp(type, "ByteLevel")) return SK_OK;
    for (i = 0; !bytes && i < sizeof parts / sizeof *parts; i++)
        if (!strcmp(type, parts[i])) return SK_OK;
    if (bytes || inside || strcmp(type, "Sequence") || !json_is_array(list))
        return sk_fail(SK_EDATA, "%s: decoder \"%.40s\" does not belong to a BPE of %s; needed: %s",
                       t->path, type, bytes ? "bytes" : "characters",
                       bytes ? "ByteLevel, or null"
                             : "Metaspace, null, or a Sequence of Replace, ByteFallback, Fuse, "
                               "Strip and Metaspace");
    json_array_foreach(list, i, one) SK_TRY(read_decoder(t, one, true));
    return SK_OK;
}

static bool absent(json_t *v)
{
    return !v || json_is_null(v) || json_is_false(v) ||
           (json_is_string(v) && !json_string_length(v)) ||
           (json_is_real(v) && json_real_value(v) == 0);
}

/* What would change ids and is not done here. */
static sk_status refuse(const sk_tokenizer *t, json_t *root, json_t *model)
{
    static const char *const never[] = {"continuing_subword_prefix", "end_of_word_suffix",
                                        "dropout"};
    const char *type = sk_json_text(model, "type");
    /* truncation and padding are for batches of one length; transformers ignores them as well */
    SK_TRY(sk_json_only(t->path, "the file", root,
                        "version truncation padding added_tokens normalizer pre_tokenizer "
                        "post_processor decoder model"));
    const char *version = sk_json_text(root, "version");
    if (*version && strcmp(version, "1.0"))
        return sk_fail(SK_EDATA, "%s: version %.20s, only 1.0 is known", t->path, version);
    if (*type && strcmp(type, "BPE"))
        return sk_fail(SK_EDATA, "%s: model \"%.40s\" is not supported, only BPE", t->path, type);
    SK_TRY(sk_json_only(t->path, "model", model,
                        "type dropout unk_token continuing_subword_prefix end_of_word_suffix "
                        "fuse_unk byte_fallback ignore_merges vocab merges"));
    for (size_t i = 0; i < sizeof never / sizeof *never; i++)
        if (!absent(json_object_get(model, never[i])))
            return sk_fail(SK_EDATA, "%s: model.%s is not supported", t->path, never[i]);
    return SK_OK;
}

/* Before the vocabulary: how text is prepared. */
static sk_status read_steps(sk_tokenizer *t, sk_arena *a, json_t *root)
{
    sk_bpe *b = &t->bpe;
    SK_TRY(sk_pre_tokenizer_read(a, t->path, json_object_get(root, "pre_tokenizer"), b));
    SK_TRY(sk_norm_read(a, t->path, json_object_get(root, "normalizer"), &b->norm));
    for (int i = 0; i < b->norm.n && !b->bytes && !b->metaspace; i++) {
        const sk_norm_step *s = &b->norm.step[i];
        bool spaces = s->kind == SK_NORM_REPLACE && s->from.n == 1 && s->from.s[0] == ' ';
        if (spaces && s->to.n && sk_utf8_length(s->to.s) == s->to.n) b->space = s->to;
    }
    return SK_OK;
}

static sk_status read_model(sk_tokenizer *t, sk_arena *a, json_t *model)
{
    sk_bpe *b = &t->bpe;
    bool fallback = false;
    json_t *vocab = json_object_get(model, "vocab");
    json_t *unk = json_object_get(vocab, sk_json_text(model, "unk_token"));
    SK_TRY(sk_json_flag(t->path, model, "fuse_unk", &b->fuse_unk));
    SK_TRY(sk_json_flag(t->path, model, "byte_fallback", &fallback));
    SK_TRY(sk_json_flag(t->path, model, "ignore_merges", &b->ignore_merges));
    b->unk = unk ? (int32_t)json_integer_value(unk) : -1;
    SK_TRY(read_vocab(t, a, vocab, fallback));
    return read_merges(t, a, vocab, json_object_get(model, "merges"));
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
    SK_TRY(read_steps(t, a, root));
    SK_TRY(read_model(t, a, model));
    SK_TRY(read_added(t, a, vocab, added));
    SK_TRY(read_post(t, a, json_object_get(root, "post_processor")));
    SK_TRY(read_decoder(t, json_object_get(root, "decoder"), false));
    t->bytes = t->bpe.bytes && t->bpe.vocab == 256 && !json_array_size(merges) &&
               !json_array_size(added) && !t->bpe.norm.n && !t->frame.n_before && !t->frame.n_after;
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
        SK_TRY(read_json(t, a));
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
    int32_t after[MAX_FRAME + 1];
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
