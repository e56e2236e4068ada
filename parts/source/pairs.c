/* pairs.c - prompts with completions in JSON lines, {"prompt": "...", "completion": "..."}: a file,
 * also packed (.gz).
 *
 * Prompt and completion are one text, closed by the tokenizer's end of text, or by a newline if it
 * has none.  The loss counts what a model should learn to say: tokens of completions and their ends
 * weigh 1, those of prompts 0.  So "weights" is an input of this source's own: a byte a token, read
 * where the target of a place is, one token later. */
#include "base/strings.h"
#include "data/data.h"
#include "data/data_files.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

enum { PEEK = 1 << 16, MOST = 1 << 30 }; /* bytes of the first line; tokens */

typedef struct pile {
    sk_arena *arena;
    struct {
        int32_t *v;
        int n, cap;
    } ids;
    struct {
        uint8_t *v; /* by token: does it count? */
        int n, cap;
    } counts;
    const sk_tokenizer *tokenizer;
} pile;

static bool knows(const char *what)
{
    char head[PEEK + 1];
    if (!sk_is_file(what)) return false;
    head[sk_data_peek(what, head, PEEK)] = 0;
    const char *line = head + (strncmp(head, "\xef\xbb\xbf", 3) ? 0 : 3); /* a byte order mark */
    head[strcspn(head, "\n")] = 0;
    return *line == '{' && strstr(line, "\"prompt\"") && strstr(line, "\"completion\"");
}

static sk_status add(pile *p, const int32_t *ids, int64_t n, bool counts)
{
    if (p->ids.n + n > MOST)
        return sk_fail(SK_EDATA, "data: over %d tokens; give token files (.bin) instead", MOST);
    for (int64_t i = 0; i < n; i++) {
        *sk_push(p->arena, &p->ids) = ids[i];
        *sk_push(p->arena, &p->counts) = counts;
    }
    return SK_OK;
}

static sk_status add_bytes(pile *p, const char *s, size_t n, bool counts)
{
    for (size_t i = 0; i < n; i++) SK_TRY(add(p, &(int32_t){(uint8_t)s[i]}, 1, counts));
    return SK_OK;
}

static sk_status add_prompt(pile *p, sk_arena *a, sk_text t)
{
    int32_t *ids = NULL;
    int64_t n = 0;
    int n_begin = 0;
    if (sk_tokenizer_is_byte(p->tokenizer)) return add_bytes(p, t.s, t.n, false);
    const int32_t *begin = sk_tokenizer_begin(p->tokenizer, &n_begin);
    SK_TRY(add(p, begin, n_begin, false));
    SK_TRY(sk_tokenizer_encode(p->tokenizer, a, t.s, t.n, &ids, &n));
    return add(p, ids, n, false);
}

/* A document without its beginning. */
static sk_status add_completion(pile *p, sk_arena *a, sk_text t)
{
    int32_t *ids = NULL;
    int64_t n = 0;
    int begin = 0;
    if (!*sk_tokenizer_end(p->tokenizer)) {
        char *closed = memcpy(sk_alloc(a, t.n + 1), t.s, t.n);
        closed[t.n++] = '\n';
        t.s = closed;
    }
    if (sk_tokenizer_is_byte(p->tokenizer)) return add_bytes(p, t.s, t.n, true);
    SK_TRY(sk_tokenizer_documents(p->tokenizer, a, &t, 1, true, &ids, &n));
    sk_tokenizer_begin(p->tokenizer, &begin);
    return add(p, ids + begin, n - begin, true);
}

static sk_text text_of(const json_t *s)
{
    return (sk_text){json_string_value(s), json_string_length(s)};
}

static sk_status read_line(pile *p, const char *path, int64_t line, const char *s, size_t n)
{
    json_error_t e;
    sk_arena a = {0};
    json_t *o = json_loadb(s, n, JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES, &e);
    json_t *prompt = json_object_get(o, "prompt"), *text = json_object_get(o, "completion");
    sk_status st = SK_OK;
    if (!o)
        st = sk_fail(SK_EDATA, "%s:%lld:%d: not JSON: %s", path, (long long)line, e.column, e.text);
    else if (!json_is_string(prompt) || !json_is_string(text))
        st = sk_fail(SK_EDATA,
                     "%s:%lld: a \"prompt\" and a \"completion\" are needed in this line, both "
                     "strings",
                     path, (long long)line);
    if (!st) st = add_prompt(p, &a, text_of(prompt));
    if (!st) st = add_completion(p, &a, text_of(text));
    json_decref(o);
    sk_arena_end(&a);
    return st ? sk_trail(st, SK_HERE) : SK_OK;
}

static sk_status read_lines(pile *p, const char *path, sk_text t)
{
    int64_t line = 1;
    for (size_t at = 0; at < t.n; line++) {
        const char *end = memchr(t.s + at, '\n', t.n - at);
        size_t n = end ? (size_t)(end - t.s) - at : t.n - at;
        if (strspn(t.s + at, " \t\r") < n) SK_TRY(read_line(p, path, line, t.s + at, n));
        at += n + 1;
    }
    return SK_OK;
}

static sk_status open_pairs(sk_arena *a, const char *what, const sk_tokenizer *t, bool validation,
                            sk_store *out)
{
    pile p = {.arena = a, .tokenizer = t};
    sk_text text = {0};
    int64_t counted = 0;
    (void)validation;
    if (!t)
        return sk_fail(SK_ECONF,
                       "%s is text, and there is no tokenizer to read it with; "
                       "data.tokenizer=DIRECTORY names one, data.tokenizer=byte trains on bytes",
                       what);
    SK_TRY(sk_data_read(a, what, SK_DATA_LIMIT, &text));
    if (out->said_text) { /* all of it counts */
        snprintf(out->describe, sizeof out->describe, "%.80s · %s bytes", sk_base_name(what),
                 sk_commas(a, (int64_t)text.n));
        return sk_store_text(a, t, text, NULL, 0, out);
    }
    if (text.n >= 3 && !memcmp(text.s, "\xef\xbb\xbf", 3)) text.s += 3, text.n -= 3;
    SK_TRY(read_lines(&p, what, text));
    for (int i = 0; i < p.counts.n; i++) counted += p.counts.v[i];
    out->tokens = p.ids.v, out->n_tokens = p.ids.n, out->token_bytes = 4;
    out->vocab = sk_tokenizer_vocab(t);
    out->own = p.counts.v, out->own_bytes = p.counts.n;
    snprintf(out->describe, sizeof out->describe, "%.80s · %s tokens, %s of them in completions",
             sk_base_name(what), sk_commas(a, out->n_tokens), sk_commas(a, counted));
    return SK_OK;
}

static sk_status weights(const sk_feed *f, const sk_feed_box *b, void *to)
{
    const uint8_t *counts = f->store.own;
    float *x = to;
    for (int64_t i = 0; i < b->n; i++) {
        int64_t at = sk_feed_place(f, b->step, b->row + i, b->col) + 1;
        for (int64_t j = 0; j < b->m; j++) *x++ = counts ? counts[at + j] : 1;
    }
    return SK_OK;
}

const sk_source sk_source_pairs = {
    .name = "pairs",
    .doc = "JSON lines with a \"prompt\" and a \"completion\", whose tokens alone are in the loss; "
           "also .gz",
    .knows = knows,
    .open = open_pairs,
    .inputs = {{"tokens", "bt", SK_I32, .kind = SK_INPUT_IDS},
               {"targets", "bt", SK_I32, .kind = SK_INPUT_NEXT},
               {"pos", "bt", SK_I32, .kind = SK_INPUT_PLACES},
               {"weights", "bt", SK_F32, SK_INPUT_OWN, weights, .weighs = true}},
};
