/* Tokenizers of Hugging Face's shapes: ids and texts as its library gives them
 * (test/golden/tokenizer/cases.json, made by make.js beside it), what is refused, documents with
 * BOS, and files with random bytes in them. */
#include "base/file_io.h"
#include "base/rng.h"
#include "base/strings.h"
#include "data/data.h"

#include <dlfcn.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int checks, bad;
static char dir[64] = "/tmp/skein-tok-XXXXXX";
static sk_arena arena;
static bool utf8proc;

static void check_at(int line, bool ok, const char *what)
{
    checks++;
    if (ok) return;
    bad++;
    printf("test/data/tokenizer.c:%d: %s\n  last error: %s\n", line, what, sk_error());
}
#define check(x) check_at(__LINE__, (x), #x)

/* The call fails, and the report holds these words. */
#define refused(call, words) \
    check_at(__LINE__, (call) == SK_EDATA && strstr(sk_error_line(), words), #call " -> " words)

static const char *put(const char *name, const void *data, size_t n)
{
    const char *path = sk_print(&arena, "%s/%s", dir, name);
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(data, 1, n, f) != n || fclose(f)) abort();
    return path;
}

static char *pieces(const sk_tokenizer *t, const int32_t *ids, int64_t n, size_t *len)
{
    char *s = sk_alloc(&arena, (size_t)n * 64 + 1);
    *len = 0;
    for (int64_t i = 0; i < n; i++) {
        size_t m = 0;
        const char *p = sk_tokenizer_piece(t, ids[i], &m);
        memcpy(s + *len, p, m < 64 ? m : 64);
        *len += m;
    }
    return s;
}

/* The library's decoder drops a space at the start; our pieces are those of a stream.  And it reads
 * added tokens as if they were bytes, which gives replacement characters. */
static bool same_text(const char *s, size_t n, json_t *want)
{
    if (strstr(json_string_value(want), "\xef\xbf\xbd")) return true;
    const char *w = json_string_value(want);
    size_t m = json_string_length(want);
    if (n == m + 1 && *s == ' ') s++, n--;
    return n == m && !memcmp(s, w, m);
}

static void golden_case(const char *name, const sk_tokenizer *t, bool nfc, json_t *c)
{
    json_t *text = json_object_get(c, "text"), *want = json_object_get(c, "ids");
    sk_text doc = {json_string_value(text), json_string_length(text)};
    int32_t *ids = NULL;
    int64_t n = 0;
    size_t len = 0;
    sk_status status = sk_tokenizer_documents(t, &arena, &doc, 1, false, &ids, &n);
    if (nfc && !utf8proc && status) { /* never needed for dashes, Chinese or below U+0300 */
        check(status == SK_EDATA && strstr(sk_error_line(), "apt-get install libutf8proc2"));
        check(json_object_get(c, "plain") == NULL);
        return;
    }
    bool ok = !status && n == (int64_t)json_array_size(want);
    for (int64_t i = 0; ok && i < n; i++)
        ok = ids[i] == json_integer_value(json_array_get(want, (size_t)i));
    const char *back = ok ? pieces(t, ids, n, &len) : "";
    ok = ok && same_text(back, len, json_object_get(c, "back"));
    if (!ok) {
        printf("%s: \"%s\" -> ", name, doc.s);
        for (int64_t i = 0; !status && i < n; i++) printf("%d ", ids[i]);
        printf("\"%.*s\"\n  instead of %s\n", (int)len, back, json_dumps(c, JSON_COMPACT));
    }
    check(ok);
}

static json_t *golden(void)
{
    json_error_t e;
    json_t *all = json_load_file("test/golden/tokenizer/cases.json", JSON_ALLOW_NUL, &e);
    if (!all) printf("cases.json:%d: %s\n", e.line, e.text), exit(2);
    return all;
}

/* tokenizer.json of entry i. */
static char *file_of(json_t *all, size_t i)
{
    return json_dumps(json_object_get(json_array_get(all, i), "tokenizer"), JSON_COMPACT);
}

static void golden_ids(json_t *all)
{
    size_t i, k;
    json_t *one, *c;
    json_array_foreach(all, i, one)
    {
        sk_tokenizer *t = NULL;
        const char *name = json_string_value(json_object_get(one, "name"));
        char *json = file_of(all, i);
        check(!sk_tokenizer_open(&arena, put("t.json", json, strlen(json)), &t));
        json_array_foreach(json_object_get(one, "cases"), k, c) if (t)
            golden_case(name, t, !strcmp(name, "qwen2"), c);
        free(json);
    }
    check(i == 7);
}

/* The file of entry i with `from` replaced by `to` at its first place. */
static sk_status changed(json_t *all, size_t i, const char *from, const char *to, sk_tokenizer **t)
{
    char *json = file_of(all, i), *at = strstr(json, from);
    if (!at) printf("no %s in entry %zu\n", from, i), abort();
    char *s = sk_print(&arena, "%.*s%s%s", (int)(at - json), json, to, at + strlen(from));
    free(json);
    return sk_tokenizer_open(&arena, put("c.json", s, strlen(s)), t);
}

/* Replacements that make 16 of each letter, again and again: not of a token, not of a text. */
static void growth(void)
{
    static const char step[] = "{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"},\"content\":"
                               "\"aaaaaaaaaaaaaaaa\"}";
    sk_tokenizer *t = NULL;
    sk_out o = {.arena = &arena};
    int32_t *ids = NULL;
    int64_t n = 0;
    for (int normalized = 0; normalized < 2; normalized++) {
        o.n = 0;
        sk_out_add(&o, "{\"added_tokens\":[{\"id\":1,\"content\":\"ba\",\"normalized\":%s}],",
                   normalized ? "true" : "false");
        sk_out_add(&o, "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[%s", step);
        for (int i = 1; i < 7; i++) sk_out_add(&o, ",%s", step);
        sk_out_add(&o, "]},\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]}}");
        sk_status st = sk_tokenizer_open(&arena, put("c.json", o.s, o.n), &t);
        if (!st) st = sk_tokenizer_encode(t, &arena, "a", 1, &ids, &n);
        refused(st, "the normalizer makes ");
    }
}

static void refusals(json_t *all)
{
    sk_tokenizer *t = NULL;
    enum { QWEN2, LLAMA3, LLAMA2, OLD, MISTRAL };
    refused(changed(all, QWEN2, "{\"type\":\"NFC\"}", "{\"type\":\"NFKC\"}", &t), "\"NFKC\"");
    refused(changed(all, QWEN2, "{\"type\":\"NFC\"}", "{\"type\":\"NFC\",\"x\":1}", &t), "\"x\"");
    refused(changed(all, QWEN2, "\"version\":", "\"post\":1,\"version\":", &t), "\"post\"");
    refused(changed(all, QWEN2, "\"1.0\"", "\"2.0\"", &t), "version 2.0");
    refused(changed(all, QWEN2, "\"dropout\":null", "\"dropout\":0.1", &t), "model.dropout");
    refused(changed(all, QWEN2, "\"fuse_unk\":", "\"fuse_unc\":", &t), "\"fuse_unc\"");
    refused(changed(all, QWEN2, "\"ignore_merges\":false", "\"ignore_merges\":1", &t),
            "ignore_merges must be true or false");
    refused(changed(all, QWEN2, "\\\\s+(?!", "\\\\w+(?!", &t), "\"\\w+(?!");
    refused(changed(all, QWEN2, "\\\\p{N}|", "\\\\p{N}{1,3}+|", &t), "{1,3}+");
    refused(changed(all, QWEN2, "\\\\p{N}|", "\\\\p{Greek}|", &t), "Greek");
    refused(changed(all, QWEN2, "\\\\p{N}|", "^a|", &t), "\"^a|");
    refused(changed(all, QWEN2, "\"Isolated\"", "\"MergedWithNext\"", &t), "MergedWithNext");
    refused(changed(all, QWEN2, "\"id\":317", "\"id\":318", &t), "the next that is free is 317");
    refused(changed(all, LLAMA2, "\"id\":2,", "\"id\":1,", &t), "the vocabulary gives it 2");
    refused(changed(all, QWEN2, "\"vocab\":{", "\"vocab\":{\"zz\":2000000,", &t),
            "the highest id is 2000000, but there are ");
    refused(changed(all, LLAMA2, "{\"String\":\" \"}", "{\"Regex\":\" \"}", &t), "Replace needs");
    refused(changed(all, LLAMA2, "[{\"SpecialToken\"",
                    "[{\"Sequence\":{\"id\":\"A\"}},{\"Special\"", &t),
            "post_processor");
    refused(changed(all, LLAMA2, "\"ids\":[1]", "\"ids\":[9999]", &t), "id 9999");
    refused(changed(all, LLAMA2, "\"TemplateProcessing\"", "\"BertProcessing\"", &t),
            "post_processor \"BertProcessing\"");
    refused(changed(all, MISTRAL, "\"first\"", "\"last\"", &t), "prepend_scheme \"last\"");
    refused(changed(all, MISTRAL, "\"replacement\":\"\xe2\x96\x81\"", "\"replacement\":\"ab\"", &t),
            "replacement is no character");
    /* a flag matters only where its token is in the text */
    check(!changed(all, MISTRAL, "\"lstrip\":false", "\"lstrip\":true", &t));
    check(!sk_tokenizer_encode(t, &arena, "the", 3, &(int32_t *){0}, &(int64_t){0}));
    refused(sk_tokenizer_encode(t, &arena, "the <s>", 7, &(int32_t *){0}, &(int64_t){0}),
            "\"<s>\" (at byte 4), an added token with lstrip");
    /* inverted and "Removed": what matches is kept */
    check(!changed(all, QWEN2, "\"Isolated\",\"invert\":false", "\"Removed\",\"invert\":true", &t));
    check(!sk_tokenizer_encode(t, &arena, "the low", 7, &(int32_t *){0}, &(int64_t){0}));
    check(!changed(all, MISTRAL, "\"unk_token\":\"<unk>\"", "\"unk_token\":null", &t));
    check(!sk_tokenizer_encode(t, &arena, "z\xff", 2, &(int32_t *){0}, &(int64_t){0}));
    check(!changed(all, MISTRAL,
                   "\"unk_token\":\"<unk>\",\"continuing_subword_prefix\":null,"
                   "\"end_of_word_suffix\":null,\"fuse_unk\":true,"
                   "\"byte_fallback\":true",
                   "\"unk_token\":null", &t));
    refused(sk_tokenizer_encode(t, &arena, "the z", 5, &(int32_t *){0}, &(int64_t){0}),
            "\"z\" (in the text from byte 0 on) has no id");
}

/* A decoder belongs to the model's kind: another says that the file is not what it seems. */
static void decoders(json_t *all)
{
#define LEVEL                                                                                 \
    "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,\"use_regex\":" \
    "false}"
#define LAST "\"decoder\":" LEVEL
#define FUSE "{\"type\":\"Fuse\"}"
    static const char back[] = "\"decoder\":{\"type\":\"Sequence\"", list[] = "\"decoders\":";
    sk_tokenizer *t = NULL;
    enum { QWEN2, LLAMA2 = 2, MISTRAL = 4 };
    refused(changed(all, QWEN2, LAST, "\"decoder\":{\"type\":\"WordPiece\"}", &t),
            "decoder \"WordPiece\" does not belong to a BPE of bytes; needed: ByteLevel");
    refused(changed(all, QWEN2, LAST, "\"decoder\":{\"type\":\"Metaspace\"}", &t), "\"Metaspace\"");
    refused(changed(all, QWEN2, LAST, "\"decoder\":{\"type\":\"Sequence\",\"decoders\":[]}", &t),
            "decoder \"Sequence\"");
    refused(changed(all, QWEN2, LAST, "\"decoder\":3", &t), "decoder \"\"");
    check(!changed(all, QWEN2, LAST, "\"decoder\":null", &t));
    refused(changed(all, LLAMA2, FUSE, LEVEL, &t),
            "decoder \"ByteLevel\" does not belong to a BPE of");
    refused(changed(all, LLAMA2, FUSE, "{\"type\":\"Sequence\",\"decoders\":[]}", &t),
            "decoder \"Sequence\"");
    refused(changed(all, LLAMA2, list, "\"decodes\":", &t), "decoder \"Sequence\"");
    refused(changed(all, MISTRAL, back, "\"decoder\":{\"type\":\"CTC\"", &t), "decoder \"CTC\"");
    check(!changed(all, MISTRAL, back, "\"decoder\":{\"type\":\"Metaspace\"", &t));
    check(!changed(all, MISTRAL, FUSE, "{\"type\":\"Metaspace\"}", &t));
}

/* Documents: BOS before each, the end of text after, and each has its own start. */
static void documents(json_t *all)
{
    sk_tokenizer *t = NULL;
    sk_store s = {0};
    static const char lines[] = "{\"text\":\"the\"}\n{\"text\":\"the\"}";
    int n = 0;
    for (size_t i = 2; i < 5; i++) { /* llama2, the same of old, mistral */
        check(!changed(all, i, "\"version\"", "\"version\"", &t));
        check(!sk_store_open(&arena, put("d.jsonl", lines, sizeof lines - 1), t, false, &s));
        const uint16_t *ids = s.tokens;
        check(s.n_tokens == 6 && ids[0] == 1 && ids[2] == 2 && !memcmp(ids, ids + 3, 6));
        check(*sk_tokenizer_begin(t, &n) == 1 && n == 1);
    }
    check(!sk_store_open(&arena, put("d.txt", "the", 3), t, false, &s) && s.n_tokens == 2);
    static const char pair[] = "{\"prompt\":\"the\",\"completion\":\"the\"}";
    check(!sk_store_open(&arena, put("d.jsonl", pair, sizeof pair - 1), t, false, &s));
    const int32_t *ids = s.tokens; /* BOS, the | the, end of text */
    check(s.n_tokens == 4 && ids[0] == 1 && ids[1] == ids[2] && ids[3] == 2);
    check(!memcmp(s.own, "\0\0\1\1", 4));
}

/* Bytes that are no UTF-8 fall back, too; and so they come back. */
static void any_bytes(json_t *all)
{
    sk_tokenizer *t = NULL;
    int32_t *ids = NULL;
    int64_t n = 0;
    char text[4000];
    for (size_t i = 0; i < 5; i++) {
        size_t from = i < 2 ? 0 : 1, len = 0; /* the space at the start */
        bool exact = i > 0;                   /* NFC changes text */
        for (size_t k = 0; k < sizeof text; k++) {
            text[k] = (char)sk_rng(i, k, 1).a;
            if (!exact && !utf8proc) text[k] &= 0x7f;
        }
        check(!changed(all, i, "\"version\"", "\"version\"", &t));
        check(!sk_tokenizer_encode(t, &arena, text, sizeof text, &ids, &n));
        char *back = pieces(t, ids, n, &len);
        check(!exact || (len == sizeof text + from && !memcmp(back + from, text, sizeof text)));
    }
}

static void mangled(json_t *all)
{
    int opened = 0, tried = 0;
    for (size_t i = 0; i < 7; i++) {
        char *json = file_of(all, i);
        size_t n = strlen(json);
        for (uint64_t k = 0; k < 150; k++) {
            sk_mark mark = sk_arena_mark(&arena);
            sk_tokenizer *t = NULL;
            char *s = memcpy(sk_alloc(&arena, n), json, n);
            for (uint64_t j = 0; j <= k % 3; j++) {
                sk_draw r = sk_rng(i, k, j);
                s[r.a % n] = r.b % 2 ? (char)(r.b >> 8) : "{}[]\",:019el\\"[(r.b >> 8) % 13];
            }
            tried++;
            if (!sk_tokenizer_open(&arena, put("m.json", s, n), &t)) {
                opened++;
                (void)sk_tokenizer_encode(t, &arena, s, 300, &(int32_t *){0}, &(int64_t){0});
            }
            sk_arena_back(&arena, mark);
        }
        free(json);
    }
    check(opened > tried / 50 && opened < tried);
}

int main(void)
{
    if (!mkdtemp(dir)) return 2;
    void *so = dlopen("libutf8proc.so.2", RTLD_NOW | RTLD_LOCAL);
    utf8proc = so != NULL;
    json_t *all = golden();
    golden_ids(all);
    refusals(all);
    growth();
    decoders(all);
    documents(all);
    any_bytes(all);
    mangled(all);
    json_decref(all);
    static const char *const files[] = {"t.json", "c.json", "m.json", "d.jsonl", "d.txt"};
    for (size_t i = 0; i < 5; i++) unlink(sk_print(&arena, "%s/%s", dir, files[i]));
    check(rmdir(dir) == 0);
    sk_arena_end(&arena);
    if (!utf8proc) printf("tokenizer: NFC only of plain texts, libutf8proc2 is not installed\n");
    printf("tokenizer: %d checks, %d bad\n", checks, bad);
    return bad != 0;
}
