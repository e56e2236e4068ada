/* tokenizer_json.c - tokenizer.json: its model, post-processor and decoder.
 *
 * The file comes from outside: it may be anything.  Sizes are capped, every id is checked, and what
 * skein cannot reproduce exactly (word suffixes, dropout, another model than BPE, a key that it
 * does not know) is refused with its name rather than approximated. */
#include "data/tokenizer_tables.h"
#include "data/bpe.h"
#include "data/data.h"
#include "data/data_files.h"
#include "data/json.h"
#include "data/normalize.h"
#include "data/pre_tokenizer.h"

#include <jansson.h>
#include <string.h>

sk_status sk_tokenizer_wrong(const sk_tokenizer *t, const char *what)
{
    return sk_fail(SK_EDATA, "%s: %s", t->path, what);
}

static sk_status read_special(sk_tokenizer *t, sk_arena *a, json_t *ids, int32_t **to, int *n)
{
    size_t i;
    json_t *v;
    if (!json_array_size(ids))
        return sk_tokenizer_wrong(t, "post_processor: a special token without \"ids\"");
    if (!*to) *to = sk_many(a, int32_t, SK_MAX_FRAME);
    json_array_foreach(ids, i, v)
    {
        json_int_t id = json_is_integer(v) ? json_integer_value(v) : -1;
        if (id < 0 || id >= t->bpe.vocab || *n == SK_MAX_FRAME)
            return sk_fail(SK_EDATA, "%s: post_processor: id %lld; %d at most, below %lld", t->path,
                           (long long)id, SK_MAX_FRAME, (long long)t->bpe.vocab);
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
        if (text && seen)
            return sk_tokenizer_wrong(t, "post_processor: the template has the text twice");
        if (text) seen = true;
        else if (seen)
            SK_TRY(read_special(t, a, json_object_get(known, "ids"), &f->after, &f->n_after));
        else SK_TRY(read_special(t, a, json_object_get(known, "ids"), &f->before, &f->n_before));
    }
    return seen ? SK_OK
                : sk_tokenizer_wrong(t, "post_processor: \"single\" of the template has no text");
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
            return sk_tokenizer_wrong(t,
                                      "post_processor: a Sequence in a Sequence is not supported");
        SK_TRY(read_post(t, a, one));
    }
    return SK_OK;
}

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
    SK_TRY(sk_vocab_read(t, a, vocab, fallback));
    return sk_vocab_merges(t, a, vocab, json_object_get(model, "merges"));
}

static sk_status read_root(sk_tokenizer *t, sk_arena *a, json_t *root)
{
    json_t *model = json_object_get(root, "model"), *vocab = json_object_get(model, "vocab");
    json_t *merges = json_object_get(model, "merges"),
           *added = json_object_get(root, "added_tokens");
    SK_TRY(refuse(t, root, model));
    if (!json_is_object(vocab) || !json_is_array(merges) || (added && !json_is_array(added)))
        return sk_tokenizer_wrong(
            t, "needs model.vocab (an object), model.merges and added_tokens (lists)");
    SK_TRY(sk_vocab_count(t, vocab, added));
    SK_TRY(read_steps(t, a, root));
    SK_TRY(read_model(t, a, model));
    SK_TRY(sk_vocab_added(t, a, vocab, added));
    SK_TRY(read_post(t, a, json_object_get(root, "post_processor")));
    SK_TRY(read_decoder(t, json_object_get(root, "decoder"), false));
    t->bytes = t->bpe.bytes && t->bpe.vocab == 256 && !json_array_size(merges) &&
               !json_array_size(added) && !t->bpe.norm.n && !t->frame.n_before && !t->frame.n_after;
    for (int i = 0; i < 256; i++) t->bytes = t->bytes && t->bpe.byte_id[i] == i;
    return SK_OK;
}

sk_status sk_tokenizer_read(sk_tokenizer *t, sk_arena *a)
{
    json_error_t e;
    json_t *root = json_loadb(t->json.s, t->json.n, JSON_REJECT_DUPLICATES, &e);
    if (!root)
        return sk_fail(SK_EDATA, "%s:%d:%d: not JSON: %s", t->path, e.line, e.column, e.text);
    sk_status status = read_root(t, a, root);
    json_decref(root);
    return status ? sk_trail(status, SK_HERE) : SK_OK;
}
