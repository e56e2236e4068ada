/* normalize.c - see normalize.h. */
#include "data/normalize.h"
#include "data/data_files.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

/* --- reading --- */

static sk_status add(sk_arena *a, const char *path, sk_norm *out, sk_norm_kind kind,
                     const char *from, const char *to)
{
    if (out->n == SK_NORM_STEPS)
        return sk_fail(SK_EDATA, "%s: normalizer has more than %d steps", path, SK_NORM_STEPS);
    out->step[out->n++] =
        (sk_norm_step){kind, {sk_strdup(a, from), strlen(from)}, {sk_strdup(a, to), strlen(to)}};
    return SK_OK;
}

static sk_status read_replace(sk_arena *a, const char *path, json_t *j, sk_norm *out)
{
    json_t *pattern = json_object_get(j, "pattern");
    const char *from = sk_json_text(pattern, "String");
    SK_TRY(sk_json_only(path, "normalizer Replace", j, "type pattern content"));
    if (!*from || !json_is_string(json_object_get(j, "content")))
        return sk_fail(SK_EDATA,
                       "%s: normalizer Replace needs pattern {\"String\": ...} of at least one "
                       "character and content; other patterns are not supported",
                       path);
    return add(a, path, out, SK_NORM_REPLACE, from, sk_json_text(j, "content"));
}

static sk_status read_one(sk_arena *a, const char *path, json_t *j, sk_norm *out)
{
    const char *type = sk_json_text(j, "type");
    if (!strcmp(type, "NFC")) {
        SK_TRY(sk_json_only(path, "normalizer NFC", j, "type"));
        return add(a, path, out, SK_NORM_NFC, "", "");
    }
    if (!strcmp(type, "Replace")) return read_replace(a, path, j, out);
    if (!strcmp(type, "Prepend")) {
        SK_TRY(sk_json_only(path, "normalizer Prepend", j, "type prepend"));
        return add(a, path, out, SK_NORM_PREPEND, "", sk_json_text(j, "prepend"));
    }
    return sk_fail(SK_EDATA,
                   "%s: normalizer \"%.40s\" is not supported; needed: NFC, Prepend, Replace or a "
                   "Sequence of them",
                   path, type);
}

sk_status sk_norm_read(sk_arena *a, const char *path, json_t *normalizer, sk_norm *out)
{
    size_t i;
    json_t *one, *list = json_object_get(normalizer, "normalizers");
    if (!normalizer || json_is_null(normalizer)) return SK_OK;
    if (strcmp(sk_json_text(normalizer, "type"), "Sequence"))
        return read_one(a, path, normalizer, out);
    SK_TRY(sk_json_only(path, "normalizer Sequence", normalizer, "type normalizers"));
    if (!json_is_array(list))
        return sk_fail(SK_EDATA, "%s: normalizer Sequence has no list \"normalizers\"", path);
    json_array_foreach(list, i, one) SK_TRY(read_one(a, path, one, out));
    return SK_OK;
}

/* --- applying --- */

sk_text sk_norm_prepend(sk_arena *a, sk_text text, sk_text head)
{
    char *s = sk_alloc(a, head.n + text.n + 1);
    memcpy(s, head.s, head.n);
    memcpy(s + head.n, text.s, text.n);
    return (sk_text){s, head.n + text.n};
}

/* The result has at most `most` bytes, or it is refused. */
static sk_status replace(sk_arena *a, sk_text text, sk_text from, sk_text to, size_t most,
                         sk_text *out)
{
    const char *end = text.s + text.n;
    size_t found = 0;
    for (const char *s = text.s; (s = memmem(s, (size_t)(end - s), from.s, from.n)); s += from.n)
        found++;
    *out = text;
    if (!found) return SK_OK;
    size_t n = text.n - found * from.n + found * to.n;
    if (n > most)
        return sk_fail(SK_EDATA, "tokenizer: the normalizer makes %zu bytes of text from %zu", n,
                       text.n);
    char *at = sk_alloc(a, n + 1);
    *out = (sk_text){at, n};
    for (const char *s = text.s, *hit;; s = hit + from.n) {
        hit = memmem(s, (size_t)(end - s), from.s, from.n);
        size_t keep = (size_t)((hit ? hit : end) - s);
        memcpy(at, s, keep);
        at += keep;
        if (!hit) return SK_OK;
        memcpy(at, to.s, to.n);
        at += to.n;
    }
}

sk_status sk_norm_replace(sk_arena *a, sk_text text, sk_text from, sk_text to, sk_text *out)
{
    return replace(a, text, from, to, (size_t)SK_DATA_LIMIT, out);
}

typedef ptrdiff_t map_fn(const uint8_t *s, ptrdiff_t n, uint8_t **out, int options);
enum { STABLE = 1 << 1, COMPOSE = 1 << 3 }; /* utf8proc.h */

/* The library stays open: it is small, and another text will need it too. */
static map_fn *utf8proc(void)
{
    void *so = dlopen("libutf8proc.so.2", RTLD_NOW | RTLD_LOCAL);
    void *f = so ? dlsym(so, "utf8proc_map") : NULL;
    map_fn *map = NULL;
    memcpy(&map, &f, sizeof map);
    return map;
}

/* Is this the start of a character that composes with no other of its kind: U+4000 to U+9FFF,
 * Hangul from U+AC00 on, U+2010 to U+207F (dashes, quotes), or U+1F000 to U+1FFFF (emoji)? */
static bool inert(const uint8_t *s, size_t n)
{
    if ((s[0] >= 0xe4 && s[0] <= 0xe9) || (s[0] >= 0xeb && s[0] <= 0xed)) return true;
    if (s[0] == 0xf0) return n > 1 && s[1] == 0x9f;
    if (s[0] == 0xea) return n > 1 && s[1] >= 0xb0;
    return s[0] == 0xe2 && n > 2 && (s[1] == 0x81 || (s[1] == 0x80 && s[2] >= 0x90));
}

/* Is the text in NFC for sure?  It is if all is below U+0300 (its first byte is 0xcc) or inert. */
static bool plain(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if ((uint8_t)s[i] >= 0xcc && !inert((const uint8_t *)s + i, n - i)) return false;
    return true;
}

/* Characters that Hugging Face's library, whose tables are those of Unicode 9, leaves alone, and
 * utf8proc moves or composes: marks of later versions, and U+11A7, which utf8proc 2.8 loses.  Text
 * on both sides of one is composed by itself. */
static const uint32_t left_alone[][2] = {
    {0x7fd, 0x7fd},     {0x898, 0x89f},     {0x8ca, 0x8d3},     {0x9fe, 0x9fe},
    {0xc3c, 0xc3c},     {0xd3b, 0xd3c},     {0xeba, 0xeba},     {0x11a7, 0x11a7},
    {0x1715, 0x1715},   {0x1abf, 0x1ace},   {0x1df6, 0x1dfa},   {0xa82c, 0xa82c},
    {0x10d24, 0x10d27}, {0x10eab, 0x10eac}, {0x10efd, 0x10eff}, {0x10f46, 0x10f50},
    {0x10f82, 0x10f85}, {0x11070, 0x11070}, {0x1133b, 0x1133b}, {0x1145e, 0x1145e},
    {0x11839, 0x1183a}, {0x11930, 0x11930}, {0x1193d, 0x1193e}, {0x11943, 0x11943},
    {0x119e0, 0x119e0}, {0x11a34, 0x11a34}, {0x11a47, 0x11a47}, {0x11a99, 0x11a99},
    {0x11d42, 0x11d42}, {0x11d44, 0x11d45}, {0x11d97, 0x11d97}, {0x11f41, 0x11f42},
    {0x16ff0, 0x16ff1}, {0x1e08f, 0x1e08f}, {0x1e130, 0x1e136}, {0x1e2ae, 0x1e2ae},
    {0x1e2ec, 0x1e2ef}, {0x1e4ec, 0x1e4ef}};

static uint32_t code_point(const char *s, size_t n)
{
    uint32_t c = (uint8_t)*s;
    if (n > 1) c &= 0x7fu >> n;
    for (size_t i = 1; i < n; i++) c = c << 6 | ((uint8_t)s[i] & 0x3f);
    return c;
}

static bool is_left_alone(uint32_t c)
{
    const size_t n = sizeof left_alone / sizeof *left_alone;
    for (size_t i = 0; i < n && c >= left_alone[i][0]; i++)
        if (c <= left_alone[i][1]) return true;
    return false;
}

/* The bytes that can be composed: to the end of the line, or to a byte that is no UTF-8 or such a
 * character.  0: there is one here, of *one bytes. */
static size_t stretch(const char *s, size_t n, size_t *one)
{
    size_t i = 0;
    for (; i < n; i += *one) {
        *one = sk_utf8_length(s + i);
        if (*one > n - i || sk_utf8_span(s + i, *one) != *one) {
            *one = 1;
            break;
        }
        if (is_left_alone(code_point(s + i, *one))) break;
        if (s[i] == '\n') return i + 1;
    }
    return i;
}

/* NFC of a line, or a part of it, at `to`, which has room for 3 n bytes (the most that NFC can make
 * of n bytes).  Lines are independent: nothing combines with a newline. */
static sk_status compose(map_fn *map, const char *s, size_t n, char *to, size_t *made)
{
    uint8_t *line = NULL;
    ptrdiff_t m = map((const uint8_t *)s, (ptrdiff_t)n, &line, STABLE | COMPOSE);
    bool ok = m >= 0 && (size_t)m <= 3 * n;
    if (ok) memcpy(to, line, *made = (size_t)m);
    free(line);
    return ok ? SK_OK : sk_fail(SK_EDATA, "tokenizer: utf8proc gives error %lld", (long long)m);
}

static sk_status nfc(sk_arena *a, sk_text text, sk_text *out)
{
    *out = text;
    if (plain(text.s, text.n)) return SK_OK;
    map_fn *map = utf8proc();
    if (!map)
        return sk_fail(SK_EDATA, "tokenizer: normalizer NFC needs libutf8proc.so.2 for this text; "
                                 "apt-get install libutf8proc2");
    size_t n = 0, cap = text.n + text.n / 8 + 1;
    char *to = sk_alloc(a, cap);
    for (size_t i = 0, len; i < text.n; i += len) {
        const char *s = text.s + i;
        size_t one = 1, good = stretch(s, text.n - i, &one);
        len = good ? good : one;
        size_t made = len, need = n + 3 * len + (text.n - i - len);
        if (need > cap) {
            to = sk_grow(a, to, n, 2 * need);
            cap = 2 * need;
        }
        if (!good || plain(s, len)) memcpy(to + n, s, len);
        else SK_TRY(compose(map, s, len, to + n, &made));
        n += made;
    }
    *out = (sk_text){to, n};
    return SK_OK;
}

/* Eight replacements in a row could make gigabytes of a word: the steps together lengthen a text
 * GROWS times at most, and a short one to SHORT bytes. */
sk_status sk_norm_apply(const sk_norm *norm, sk_arena *a, sk_text text, sk_text *out)
{
    enum { GROWS = 64, SHORT = 1 << 16 };
    size_t most = text.n < (size_t)SK_DATA_LIMIT / GROWS ? GROWS * text.n : (size_t)SK_DATA_LIMIT;
    if (most < SHORT) most = SHORT;
    *out = text;
    for (int i = 0; i < norm->n && out->n; i++) {
        const sk_norm_step *s = &norm->step[i];
        if (s->kind == SK_NORM_NFC) SK_TRY(nfc(a, *out, out));
        if (s->kind == SK_NORM_PREPEND) *out = sk_norm_prepend(a, *out, s->to);
        if (s->kind == SK_NORM_REPLACE) SK_TRY(replace(a, *out, s->from, s->to, most, out));
    }
    return SK_OK;
}
