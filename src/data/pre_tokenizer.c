/* pre_tokenizer.c - see pre_tokenizer.h. */
#include "data/pre_tokenizer.h"
#include "base/strings.h"
#include "data/data_files.h"

#include <string.h>

enum { MAX_EXPR = 1 << 12 };
#define SPACE "\\p{Z}\\x{9}-\\x{d}\\x{85}" /* White_Space, within [ ] */

/* GPT-2's own expression, with \s and \p as in Unicode. */
static const char gpt2_split[] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+"
                                 "|\\s+(?!\\S)|\\s+";

/* Hugging Face matches with Oniguruma, in its Ruby syntax.  The same expression for PCRE2, whose \s
 * has U+180E as well; or the first place of one that PCRE2 does not read in the same way (\w, \b,
 * anchors, scripts, nested classes, "{1,3}+", ...), or that is too rare to be sure of. */
static const char *translate(const char *s, sk_out *to)
{
    bool inside = false; /* [ ... ] */
    while (*s) {
        const char *here = s;
        if (*s == '\\') {
            char c = s[1], small = (char)(c | 32);
            bool word = small >= 'a' && small <= 'z';
            size_t n = small == 'p' ? strcspn(s, "}") + 1 : 2; /* \p{L}, \p{^Lu} */
            if (!c || (c >= '0' && c <= '9') || (word && !strchr("pPsSdDrnt", c))) return here;
            if (small == 'p' && (s[2] != '{' || n < 5 || n - (s[3] == '^') > 6)) return here;
            if (c == 'S' && inside) return here;
            s += n;
            if (small != 's') sk_out_add(to, "%.*s", (int)n, here);
            else if (inside) sk_out_add(to, "%s", SPACE);
            else sk_out_add(to, "[%s" SPACE "]", c == 'S' ? "^" : "");
            continue;
        }
        if (inside) {
            if (*s == '[' || (s[0] == '&' && s[1] == '&')) return here;
            inside = *s != ']';
        } else if (*s == '[') {
            inside = true;
            if (s[1] == '^') s++;
            if (s[1] == ']') return here;
        } else if (*s == '{') {
            s += strcspn(s, "}");
            if (!*s || s[1] == '+') return here;
        } else if (*s == '^' || *s == '$' || (*s == '(' && s[1] == '*')) return here;
        else if (*s == '(' && s[1] == '?' && !strchr(":=!<", s[2]) && strncmp(s + 2, "i:", 2))
            return here;
        sk_out_add(to, "%.*s", (int)(++s - here), here);
    }
    return NULL;
}

static sk_status add_split(sk_arena *a, const char *path, sk_bpe *b, const char *expr, bool literal)
{
    int error = 0;
    PCRE2_SIZE at = 0;
    PCRE2_UCHAR why[128] = "";
    sk_out ours = {.arena = a};
    if (b->n_splits == SK_BPE_SPLITS || strlen(expr) > MAX_EXPR || !*expr)
        return sk_fail(SK_EDATA, "%s: pre_tokenizer: too many, too long or empty expressions",
                       path);
    const char *bad = literal ? NULL : translate(expr, &ours);
    if (bad)
        return sk_fail(SK_EDATA,
                       "%s: split expression, character %zu: \"%.8s\" does not mean the same in "
                       "PCRE2 as in Oniguruma and is not supported",
                       path, (size_t)(bad - expr), bad);
    if (!literal) expr = ours.s;
    pcre2_compile_context *c = pcre2_compile_context_create(sk_bpe_memory(a));
    sk_assert(c);
    pcre2_code *code = pcre2_compile((PCRE2_SPTR)expr, PCRE2_ZERO_TERMINATED,
                                     literal ? PCRE2_UTF | PCRE2_LITERAL
                                             : PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C,
                                     &error, &at, c);
    if (!code) {
        pcre2_get_error_message(error, why, sizeof why);
        return sk_fail(SK_EDATA, "%s: split expression, character %zu: %s", path, (size_t)at,
                       (const char *)why);
    }
    pcre2_jit_compile(code, PCRE2_JIT_COMPLETE); /* without JIT it is only slower */
    b->split[b->n_splits++] = code;
    return SK_OK;
}

static sk_status byte_level(sk_arena *a, const char *path, json_t *p, sk_bpe *b)
{
    bool prefix = false, regex = true;
    SK_TRY(sk_json_only(path, "pre_tokenizer ByteLevel", p,
                        "type add_prefix_space trim_offsets use_regex"));
    SK_TRY(sk_json_flag(path, p, "add_prefix_space", &prefix));
    SK_TRY(sk_json_flag(path, p, "use_regex", &regex));
    if (prefix)
        return sk_fail(SK_EDATA, "%s: pre_tokenizer: add_prefix_space is not supported", path);
    b->bytes = true;
    return regex ? add_split(a, path, b, gpt2_split, false) : SK_OK;
}

static sk_status digits(sk_arena *a, const char *path, json_t *p, sk_bpe *b)
{
    bool each = false;
    SK_TRY(sk_json_only(path, "pre_tokenizer Digits", p, "type individual_digits"));
    SK_TRY(sk_json_flag(path, p, "individual_digits", &each));
    return add_split(a, path, b, each ? "\\p{N}" : "\\p{N}+", false);
}

static sk_status split(sk_arena *a, const char *path, json_t *p, sk_bpe *b)
{
    json_t *pattern = json_object_get(p, "pattern");
    const char *how = sk_json_text(p, "behavior");
    bool invert = false;
    SK_TRY(sk_json_only(path, "pre_tokenizer Split", p, "type pattern behavior invert"));
    SK_TRY(sk_json_flag(path, p, "invert", &invert));
    /* "Removed" and inverted: matches are kept, and there must be nothing else. */
    bool removed = invert && !strcmp(how, "Removed");
    if (strcmp(how, "Isolated") && !removed)
        return sk_fail(SK_EDATA,
                       "%s: pre_tokenizer: Split with behavior \"%.40s\" is not "
                       "supported, only Isolated",
                       path, how);
    bool literal = json_is_string(json_object_get(pattern, "String"));
    SK_TRY(add_split(a, path, b, sk_json_text(pattern, literal ? "String" : "Regex"), literal));
    b->split_all[b->n_splits - 1] = removed;
    return SK_OK;
}

static sk_status metaspace(sk_arena *a, const char *path, json_t *p, sk_bpe *b)
{
    static const char *const schemes[] = {"never", "first", "always"};
    const char *sign = sk_json_text(p, "replacement"), *scheme = sk_json_text(p, "prepend_scheme");
    bool each = true, prefix = true;
    SK_TRY(sk_json_only(path, "pre_tokenizer Metaspace", p,
                        "type replacement prepend_scheme split add_prefix_space str_rep"));
    SK_TRY(sk_json_flag(path, p, "split", &each));
    SK_TRY(sk_json_flag(path, p, "add_prefix_space", &prefix));
    if (!*scheme) scheme = "always";
    for (int i = 0; i < 3; i++)
        if (!strcmp(scheme, schemes[i])) b->prepend = (sk_prepend)i, scheme = "";
    if (*scheme || (!prefix && b->prepend))
        return sk_fail(SK_EDATA,
                       "%s: pre_tokenizer Metaspace: prepend_scheme \"%.40s\" and add_prefix_space "
                       "%s; needed: always, first or never, and never without add_prefix_space",
                       path, sk_json_text(p, "prepend_scheme"), prefix ? "true" : "false");
    if (sk_utf8_length(sign) != strlen(sign) || !*sign)
        return sk_fail(SK_EDATA, "%s: pre_tokenizer Metaspace: replacement is no character", path);
    b->metaspace = true;
    b->space = (sk_text){sk_strdup(a, sign), strlen(sign)};
    b->cut = each ? SK_CUT_EACH : SK_CUT_NONE;
    return SK_OK;
}

/* One pre-tokenizer that is no sequence.  ByteLevel rewrites the text and is the last. */
static sk_status read_one(sk_arena *a, const char *path, json_t *p, sk_bpe *b)
{
    const char *type = sk_json_text(p, "type");
    if (b->bytes || b->metaspace || (b->n_splits && !strcmp(type, "Metaspace")))
        return sk_fail(SK_EDATA,
                       "%s: pre_tokenizer \"%.40s\" after another is not supported; ByteLevel "
                       "must be the last, Metaspace the only one",
                       path, type);
    if (!strcmp(type, "ByteLevel")) return byte_level(a, path, p, b);
    if (!strcmp(type, "Digits")) return digits(a, path, p, b);
    if (!strcmp(type, "Split")) return split(a, path, p, b);
    if (!strcmp(type, "Metaspace")) return metaspace(a, path, p, b);
    return sk_fail(SK_EDATA,
                   "%s: pre_tokenizer \"%.40s\" is not supported; needed: ByteLevel, Split, "
                   "Digits, Metaspace or a Sequence of them",
                   path, type);
}

sk_status sk_pre_tokenizer_read(sk_arena *a, const char *path, json_t *pre_tokenizer, sk_bpe *b)
{
    size_t i;
    json_t *one, *list = json_object_get(pre_tokenizer, "pretokenizers");
    if (!pre_tokenizer || json_is_null(pre_tokenizer)) return SK_OK;
    if (strcmp(sk_json_text(pre_tokenizer, "type"), "Sequence"))
        return read_one(a, path, pre_tokenizer, b);
    SK_TRY(sk_json_only(path, "pre_tokenizer Sequence", pre_tokenizer, "type pretokenizers"));
    if (!json_is_array(list))
        return sk_fail(SK_EDATA, "%s: pre_tokenizer Sequence has no list \"pretokenizers\"", path);
    json_array_foreach(list, i, one) SK_TRY(read_one(a, path, one, b));
    return SK_OK;
}
