/* text.c - plain text and JSON lines: a file, a directory of files or a glob, also packed (.gz).
 *
 * A single plain file is taken as it is.  Where there are several documents
 * (files, or lines of JSON with a "text"), each ends with the tokenizer's end
 * of text, or with a newline if it has none. */
#include "data/data.h"
#include "base/strings.h"
#include "data/data_files.h"
#include "data/format.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

enum { PEEK = 4096, MAX_DOCUMENTS = 1 << 30 };

typedef struct pile { /* documents, one after the other */
    sk_arena *arena;
    char *s;
    size_t n, cap;
    struct {
        size_t *v; /* where each ends */
        int n, cap;
    } documents;
    bool closed; /* the tokenizer has an end of text: no newline is needed */
    bool plain;  /* the user says that all of it is plain text */
} pile;

static bool is_text(const char *path)
{
    char head[PEEK];
    return !sk_ends_with(path, ".bin") && !memchr(head, 0, sk_data_peek(path, head, sizeof head));
}

static bool knows(const char *what)
{
    sk_arena a = {0};
    sk_paths files = {0};
    bool mine = !sk_data_is_tokens(what) && !sk_data_list(&a, what, &files) && files.n &&
                is_text(files.v[0]);
    sk_arena_end(&a);
    return mine;
}

static sk_status append(pile *p, const char *s, size_t n)
{
    if (!n) return SK_OK; /* an empty document may be the first: there is no room yet */
    if ((int64_t)(p->n + n) > SK_DATA_LIMIT)
        return sk_fail(SK_EDATA, "data: over %lld bytes of text; give token files (.bin) instead",
                       (long long)SK_DATA_LIMIT);
    if (p->n + n > p->cap) {
        size_t cap = 2 * (p->n + n) + 4096;
        p->s = sk_grow(p->arena, p->s, p->n, cap);
        p->cap = cap;
    }
    memcpy(p->s + p->n, s, n);
    p->n += n;
    return SK_OK;
}

static sk_status document(pile *p, const char *s, size_t n)
{
    SK_TRY(append(p, s, n));
    if (!p->closed && n && s[n - 1] != '\n') SK_TRY(append(p, "\n", 1));
    if (p->documents.n == MAX_DOCUMENTS)
        return sk_fail(SK_EDATA, "data: over %d documents; give token files (.bin) instead",
                       MAX_DOCUMENTS);
    *sk_push(p->arena, &p->documents) = p->n;
    return SK_OK;
}

static sk_status json_line(pile *p, const char *path, int64_t line, const char *s, size_t n)
{
    json_error_t e;
    json_t *o = json_loadb(s, n, JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES, &e);
    if (!o)
        return sk_fail(SK_EDATA,
                       "%s:%lld:%d: not JSON: %s (a file that is called .jsonl or begins with '{' "
                       "is read as JSON lines, an object with a \"text\" in each; "
                       "data.format=text reads it as plain text)",
                       path, (long long)line, e.column, e.text);
    json_t *text = json_object_get(o, "text");
    sk_status status =
        json_is_string(text)
            ? document(p, json_string_value(text), json_string_length(text))
            : sk_fail(SK_EDATA, "%s:%lld: no \"text\" in this line, a string is needed", path,
                      (long long)line);
    json_decref(o);
    return status ? sk_trail(status, SK_HERE) : SK_OK;
}

static sk_status json_lines(pile *p, const char *path, sk_text t)
{
    int64_t line = 1;
    for (size_t at = 0; at < t.n; line++) {
        const char *end = memchr(t.s + at, '\n', t.n - at);
        size_t n = end ? (size_t)(end - t.s) - at : t.n - at;
        if (strspn(t.s + at, " \t\r") < n) SK_TRY(json_line(p, path, line, t.s + at, n));
        at += n + 1;
    }
    return SK_OK;
}

/* Unpacked, and without the byte order mark that some editors put before UTF-8. */
static sk_status read_text(sk_arena *a, const char *path, sk_text *out)
{
    SK_TRY(sk_data_read(a, path, SK_DATA_LIMIT, out));
    if (out->n >= 3 && !memcmp(out->s, "\xef\xbb\xbf", 3)) out->s += 3, out->n -= 3;
    return SK_OK;
}

/* A table or a packed file, which would be trained on as if it were text. */
static sk_status refuse_foreign(const char *path, bool plain)
{
    const char *foreign = plain ? NULL : sk_format_of(path);
    if (!foreign) return SK_OK;
    return sk_fail(SK_EDATA, "data: %s %s; " SK_FORMATS "; data.format=text trains on its bytes",
                   path, foreign);
}

/* By its name or its content: what is called .jsonl is never read as plain text. */
static bool has_lines(const char *path, sk_text t, bool plain)
{
    return t.n && !plain &&
           (t.s[0] == '{' || sk_ends_with(path, ".jsonl") || sk_ends_with(path, ".jsonl.gz"));
}

static sk_status file(pile *p, const char *path)
{
    sk_arena scratch = {0};
    sk_text t = {0};
    sk_status status = is_text(path) ? read_text(&scratch, path, &t)
                                     : sk_fail(SK_EDATA,
                                               "%s is not text, but lies among text files; name "
                                               "the ones to read with a glob",
                                               path);
    if (!status) status = refuse_foreign(path, p->plain);
    if (!status && t.n)
        status = has_lines(path, t, p->plain) ? json_lines(p, path, t) : document(p, t.s, t.n);
    sk_arena_end(&scratch);
    return status ? sk_trail(status, SK_HERE) : SK_OK;
}

/* A directory of several documents is all trained on.  One that has a file for training and one
 * that is kept back from it is not meant so. */
static sk_status refuse_sets(const char *what, const sk_paths *files)
{
    static const char *const others[] = {"val", "valid", "validation", "dev", "eval", "test"};
    const char *train = NULL, *other = NULL;
    for (int i = 0; sk_is_dir(what) && i < files->n; i++) {
        const char *name = sk_base_name(files->v[i]);
        if (sk_data_has_word(name, "train")) train = files->v[i];
        for (size_t k = 0; k < sizeof others / sizeof *others; k++)
            if (sk_data_has_word(name, others[k])) other = files->v[i];
    }
    if (!train || !other || train == other) return SK_OK;
    return sk_fail(SK_EDATA,
                   "data: %s holds %s and %s, and all files of a directory of text are trained on; "
                   "name them: data.train=%s data.val=%s, or a glob",
                   what, sk_base_name(train), sk_base_name(other), train, other);
}

static sk_status open_text(sk_arena *a, const char *what, const sk_tokenizer *t, bool validation,
                           sk_store *out)
{
    sk_arena scratch = {0};
    sk_paths files = {0};
    sk_text one = {0};
    pile p = {.arena = &scratch, .closed = t && *sk_tokenizer_end(t), .plain = out->said_text};
    (void)validation;
    SK_TRY(sk_data_list(a, what, &files));
    SK_TRY(refuse_sets(what, &files));
    if (files.n == 1) SK_TRY(refuse_foreign(files.v[0], p.plain));
    if (files.n == 1) SK_TRY(read_text(a, files.v[0], &one));
    if (files.n != 1 || has_lines(files.v[0], one, p.plain)) {
        sk_status status = SK_OK;
        for (int i = 0; i < files.n && !status; i++) status = file(&p, files.v[i]);
        one = (sk_text){0};
        if (!status && p.n) one = (sk_text){memcpy(sk_alloc(a, p.n + 1), p.s, p.n), p.n};
        if (status) sk_arena_end(&scratch);
        if (status) return sk_trail(status, SK_HERE);
    }
    sk_status status = one.n ? sk_store_text(a, t, one, p.documents.v, p.documents.n, out)
                             : sk_fail(SK_EDATA, "data: \"%s\" holds no text", what);
    sk_arena_end(&scratch);
    if (status) return sk_trail(status, SK_HERE);
    sk_out d = {.arena = a};
    sk_out_add(&d, "%.80s · %s bytes", sk_base_name(what), sk_commas(a, (int64_t)one.n));
    if (out->token_bytes > 1) sk_out_add(&d, " · %s tokens", sk_commas(a, out->n_tokens));
    if (p.documents.n > 1) sk_out_add(&d, " · %s documents", sk_commas(a, p.documents.n));
    sk_out_add(&d, "%s", sk_paths_repeated(a, &files));
    snprintf(out->describe, sizeof out->describe, "%s", d.s);
    return SK_OK;
}

const sk_source sk_source_text = {
    .name = "text",
    .doc = "plain text or JSON lines with a \"text\": file, directory or glob, also .gz",
    .knows = knows,
    .open = open_text,
    .inputs = {{"tokens", "bt", SK_I32, .kind = SK_INPUT_IDS},
               {"targets", "bt", SK_I32, .kind = SK_INPUT_NEXT},
               {"pos", "bt", SK_I32, .kind = SK_INPUT_PLACES},
               {"weights", "bt", SK_F32, .kind = SK_INPUT_ONES, .weighs = true}},
};
