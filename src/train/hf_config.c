/* hf_config.c - see hf_config.h. */
#include "train/hf_config.h"
#include "kernel/activation.h"
#include "tensor/strict.h"
#include "train/checksums.h"

#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

enum { CONFIG_BYTES = 1 << 20, MOST_FIELDS = 64 };

static const char scaling[] = "rope_scaling";

/* Keys of every model that change no number: names and versions, ids of tokens, how results are
 * returned, how text is generated, labels of other heads. */
static const char *const harmless[] = {"_attn_implementation",
                                       "_attn_implementation_autoset",
                                       "_commit_hash",
                                       "_name_or_path",
                                       "architectures",
                                       "attn_implementation",
                                       "bad_words_ids",
                                       "begin_suppress_tokens",
                                       "bos_token_id",
                                       "chunk_size_feed_forward",
                                       "cls_token_id",
                                       "decoder_start_token_id",
                                       "diversity_penalty",
                                       "do_sample",
                                       "dtype",
                                       "early_stopping",
                                       "encoder_no_repeat_ngram_size",
                                       "eos_token_id",
                                       "exponential_decay_length_penalty",
                                       "finetuning_task",
                                       "forced_bos_token_id",
                                       "forced_eos_token_id",
                                       "gradient_checkpointing",
                                       "id2label",
                                       "is_decoder",
                                       "keys_to_ignore_at_inference",
                                       "label2id",
                                       "length_penalty",
                                       "mask_token_id",
                                       "max_length",
                                       "max_new_tokens",
                                       "max_time",
                                       "min_length",
                                       "model_type",
                                       "no_repeat_ngram_size",
                                       "num_beam_groups",
                                       "num_beams",
                                       "num_labels",
                                       "num_return_sequences",
                                       "output_attentions",
                                       "output_hidden_states",
                                       "output_past",
                                       "output_scores",
                                       "pad_token_id",
                                       "prefix",
                                       "problem_type",
                                       "remove_invalid_values",
                                       "repetition_penalty",
                                       "return_dict",
                                       "return_dict_in_generate",
                                       "sep_token_id",
                                       "suppress_tokens",
                                       "task_specific_params",
                                       "temperature",
                                       "tf_legacy_loss",
                                       "tie_encoder_decoder",
                                       "tokenizer_class",
                                       "top_k",
                                       "top_p",
                                       "torch_dtype",
                                       "torchscript",
                                       "transformers_version",
                                       "typical_p",
                                       "unk_token_id",
                                       "unsloth_fixed",
                                       "unsloth_version",
                                       "use_bfloat16",
                                       "use_cache"};

static const sk_hf_only everywhere[] = {
    {"is_encoder_decoder", "false"},
    {"add_cross_attention", "false"},
    {"cross_attention_hidden_size", ""},
    {"pruned_heads", ""},
    {"quantization_config", ""},
    {"auto_map", ""},
    {"partial_rotary_factor", "1"},
    {"rope_interleaved", "false"},
    {0},
};

/* ---- reading ---- */

typedef struct reader {
    sk_arena *arena;
    const char *where; /* DIR/config.json */
    const sk_model *model;
    sk_hyper hyper;
    struct {
        const sk_field *field;
        const char *key; /* that set it */
    } by[MOST_FIELDS];
    int n_by;
} reader;

sk_status sk_hf_json(const char *dir, const char *name, int64_t most, json_t **out)
{
    static const sk_strict limits = {.depth = 16, .objects = 100000, .values = 2000000};
    sk_arena a = {0};
    sk_text text;
    char *where = sk_print(&a, "%s/%s", dir, name);
    sk_status status = sk_strict_read(&a, AT_FDCWD, where, where, most, &text);
    if (!status) status = sk_strict_json(where, text.s, text.n, &limits, out);
    if (!status && !json_is_object(*out)) {
        json_decref(*out);
        status = sk_fail(SK_EDATA, "%s is no mapping", where);
    }
    sk_arena_end(&a);
    return status ? sk_trail(status, SK_HERE) : SK_OK;
}

/* A value for messages. */
static sk_shown show(const json_t *v)
{
    char *s = json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT);
    sk_shown out = sk_strict_show(s ? s : "?");
    free(s);
    return out;
}

/* A key that is not there, null, {} and [] say nothing. */
static bool is_empty(const json_t *v)
{
    return !v || json_is_null(v) || (json_is_object(v) && !json_object_size(v)) ||
           (json_is_array(v) && !json_array_size(v));
}

/* Is it the one value that a key may have?  NULL: any; "": nothing.  What says nothing is as good
 * as false and 0, not as true and 1. */
static bool is_only(const json_t *v, const char *only)
{
    double x = 0;
    if (!only) return true;
    bool number = sk_read_real(only, &x), none = !strcmp(only, "false") || (number && x == 0);
    if (is_empty(v)) return none || !*only;
    if (json_is_boolean(v)) return !strcmp(only, json_is_true(v) ? "true" : "false");
    if (json_is_number(v)) return number && json_number_value(v) == x;
    return json_is_string(v) && !strcmp(json_string_value(v), only);
}

static sk_status check_activation(const reader *r, const char *key, const char *name)
{
    if (!*name || sk_activation_find(name) > 0) return SK_OK;
    return sk_fail(SK_ECONF, "%s: %s is \"%s\", an activation function that skein does not have",
                   r->where, key, sk_strict_show(name).s);
}

/* null leaves a field to be derived from others, where the class of transformers does that. */
static bool may_be_null(const reader *r, const sk_field *f)
{
    return f->derived || !sk_field_given(f, &r->model->hf_default);
}

/* A size of 0 is no size; of some things there may be none. */
static bool may_be_zero(const sk_field *f) { return f->kind != SK_FIELD_INT || f->none; }

/* Is it a value of this kind?  Then the field has it. */
static bool take(reader *r, const sk_field *f, const json_t *v)
{
    bool text = f->kind == SK_FIELD_TEXT;
    if (json_is_null(v) && may_be_null(r, f))
        return text ? sk_field_set_text(f, &r->hyper, "") : sk_field_set_number(f, &r->hyper, 0);
    if (json_is_string(v) && json_string_length(v))
        return text && sk_field_set_text(f, &r->hyper, json_string_value(v));
    if (json_is_boolean(v))
        return f->kind == SK_FIELD_BOOL && sk_field_set_number(f, &r->hyper, json_is_true(v));
    if (!json_is_number(v) || f->kind == SK_FIELD_BOOL) return false;
    double x = json_number_value(v);
    return (x != 0 || may_be_zero(f)) && sk_field_set_number(f, &r->hyper, x);
}

/* Give one field the value of a key. */
static sk_status set(reader *r, const char *key, const sk_field *f, const json_t *v)
{
    static const char *const kinds[] = {"a whole number", "a number", "true or false", "a name"};
    int i = 0;
    while (i < r->n_by && r->by[i].field != f) i++;
    sk_assert(i < MOST_FIELDS);
    sk_hyper was = r->hyper;
    bool ok = take(r, f, v);
    if (!strcmp(f->name, "hidden_act") && json_is_string(v))
        SK_TRY(check_activation(r, key, json_string_value(v)));
    if (!ok)
        return sk_fail(SK_ECONF, "%s: %s is %s; %s is needed", r->where, key, show(v).s,
                       kinds[f->kind]);
    sk_field_text x = sk_field_print(f, &was), y = sk_field_print(f, &r->hyper);
    if (i < r->n_by && strcmp(r->by[i].key, key) && strcmp(x.s, y.s))
        return sk_fail(SK_ECONF, "%s: %s says %s and %s says %s, which are the same thing",
                       r->where, r->by[i].key, x.s, key, y.s);
    if (i == r->n_by) r->n_by++;
    r->by[i].field = f, r->by[i].key = key;
    return SK_OK;
}

/* Is it one of the keys with one value?  Then it has that one, or is refused. */
static sk_status only(const reader *r, const char *key, const json_t *v, bool *found)
{
    const sk_hf_only *k = NULL;
    for (const sk_hf_only *const *t = r->model->hf_only; t && *t && !k; t++)
        for (const sk_hf_only *o = *t; o->name && !k; o++)
            if (!strcmp(o->name, key)) k = o;
    for (const sk_hf_only *o = everywhere; o->name && !k; o++)
        if (!strcmp(o->name, key)) k = o;
    *found = k != NULL;
    if (!k || is_only(v, k->value)) return SK_OK;
    return sk_fail(SK_ECONF, "%s: %s is %s; skein computes only %s", r->where, key, show(v).s,
                   *k->value ? k->value : "models without it");
}

static bool is_harmless(const char *key)
{
    for (size_t i = 0; i < sizeof harmless / sizeof *harmless; i++)
        if (!strcmp(harmless[i], key)) return true;
    return false;
}

static sk_status one_key(reader *r, const char *key, const json_t *v)
{
    const sk_field *f;
    bool found = false;
    for (int i = 0; (f = sk_model_sets(r->model, key, i)); i++) {
        SK_TRY(set(r, key, f, v));
        found = true;
    }
    if (!found) SK_TRY(only(r, key, v, &found));
    if (found || is_harmless(key)) return SK_OK;
    return sk_fail(SK_ECONF,
                   "%s: skein does not know the key %s (%s) of a %s and may compute something else "
                   "without it; if it changes no number, take it out of config.json",
                   r->where, sk_strict_show(key).s, show(v).s, r->model->name);
}

/* ---- angles ---- */

static sk_status check_theta(const reader *r)
{
    bool has = sk_model_has(r->model, sk_hyper_field("rope_theta"));
    if (!has || r->hyper.rope_theta > 0) return SK_OK;
    return sk_fail(SK_ECONF, "%s: rope_theta is %g; a number above 0 is needed", r->where,
                   r->hyper.rope_theta);
}

static sk_status check_rope(const reader *r, const char *object)
{
    static const char *const types[] = {"", "linear", "llama3"};
    const sk_hyper *h = &r->hyper;
    int i = 0;
    while (i < 3 && strcmp(types[i], h->rope_type)) i++;
    if (i == 3)
        return sk_fail(SK_ECONF,
                       "%s: rope_type of %s is \"%s\"; skein has default, linear and llama3",
                       r->where, object, sk_strict_show(h->rope_type).s);
    if (i >= 1 && !(h->rope_factor >= 1))
        return sk_fail(SK_ECONF, "%s: %s needs a factor of 1 or more for rope_type %s", r->where,
                       object, h->rope_type);
    if (i == 2 && !(h->rope_low_freq_factor > 0 && h->rope_original_positions > 0 &&
                    h->rope_high_freq_factor > h->rope_low_freq_factor))
        return sk_fail(
            SK_ECONF,
            "%s: %s of rope_type llama3 needs low_freq_factor, a larger high_freq_factor "
            "and original_max_position_embeddings",
            r->where, object);
    return SK_OK;
}

/* rope_scaling or rope_parameters: keys of an object, which is read as "rope_scaling.KEY". */
static sk_status rope(reader *r, const char *object, const json_t *v)
{
    static const char *const within[] = {
        "rope_scaling.rope_type", "rope_scaling.factor", "rope_scaling.low_freq_factor",
        "rope_scaling.high_freq_factor", "rope_scaling.original_max_position_embeddings"};
    const char *key;
    json_t *x;
    if (is_empty(v)) return SK_OK;
    if (!json_is_object(v) || !sk_model_sets(r->model, within[0], 0))
        return sk_fail(SK_ECONF, "%s: %s is %s; a %s cannot have it", r->where, object, show(v).s,
                       r->model->name);
    json_object_foreach((json_t *)v, key, x)
    {
        const char *name = !strcmp(key, "rope_theta") ? "rope_theta" : NULL;
        if (!strcmp(key, "type")) name = within[0]; /* before 2024 */
        for (int i = 0; i < 5 && !name; i++)
            if (!strcmp(within[i] + sizeof scaling, key)) name = within[i];
        if (!name) SK_TRY(one_key(r, key, x)); /* known by itself, or refused */
        for (int i = 0; name && sk_model_sets(r->model, name, i); i++)
            SK_TRY(set(r, sk_print(r->arena, "%s.%s", object, key),
                       sk_model_sets(r->model, name, i), x));
    }
    bool typed = json_object_get(v, "rope_type") || json_object_get(v, "type");
    if (!typed && json_object_size(v) > (json_object_get(v, "rope_theta") != NULL))
        return sk_fail(SK_ECONF, "%s: %s is %s, without a rope_type", r->where, object, show(v).s);
    if (!strcmp(r->hyper.rope_type, "default")) memset(r->hyper.rope_type, 0, 8);
    return check_rope(r, object);
}

/* ---- the whole file ---- */

/* Of every layer: all positions, or those of the window, whose size limits sequences. */
static sk_status layer_types(const reader *r, const json_t *v)
{
    const json_t *x;
    size_t i;
    if (is_empty(v)) return SK_OK;
    if (!json_is_array(v) || (int64_t)json_array_size(v) != r->hyper.num_hidden_layers)
        return sk_fail(SK_ECONF, "%s: layer_types is no list of %lld names", r->where,
                       (long long)r->hyper.num_hidden_layers);
    json_array_foreach((json_t *)v, i, x)
    {
        const char *type = json_is_string(x) ? json_string_value(x) : "";
        bool slides = !strcmp(type, "sliding_attention") && r->hyper.sliding_window;
        if (!slides && strcmp(type, "full_attention"))
            return sk_fail(SK_ECONF, "%s: layer_types holds %s; skein computes full_attention",
                           r->where, show(x).s);
    }
    return SK_OK;
}

static sk_status keys(reader *r, const json_t *root)
{
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)root, key, v)
    {
        bool angles = !strcmp(key, scaling) || !strcmp(key, "rope_parameters");
        if (angles) SK_TRY(rope(r, key, v));
        else if (strcmp(key, "layer_types")) SK_TRY(one_key(r, key, v));
    }
    SK_TRY(check_theta(r));
    SK_TRY(sk_model_check(r->where, r->model, &r->hyper));
    return layer_types(r, json_object_get(root, "layer_types"));
}

static sk_status read_all(reader *r, const json_t *root)
{
    const char *type = json_string_value(json_object_get(root, "model_type"));
    if (!type) return sk_fail(SK_EDATA, "%s has no model_type", r->where);
    r->model = sk_model_find(type);
    if (!r->model || !r->model->hf)
        return sk_fail(SK_ECONF, "%s: model_type \"%s\" is none of the models here: %s", r->where,
                       sk_strict_show(type).s, "skein list model shows them");
    r->hyper = r->model->hf_default;
    memset(r->hyper.arch, 0, sizeof r->hyper.arch);
    memcpy(r->hyper.arch, r->model->name, strlen(r->model->name));
    return keys(r, root);
}

sk_status sk_hf_config_of(const char *where, const json_t *root, const sk_model **m, sk_hyper *out)
{
    sk_arena a = {0};
    reader r = {.arena = &a, .where = where};
    sk_status status = read_all(&r, root);
    if (!status) *m = r.model, *out = r.hyper;
    sk_arena_end(&a);
    return status ? sk_trail(status, SK_HERE) : SK_OK;
}

sk_status sk_hf_config(const char *dir, const sk_model **m, sk_hyper *out)
{
    sk_arena a = {0};
    json_t *root = NULL;
    SK_TRY(sk_checksums_check_texts(dir));
    sk_status status = sk_hf_json(dir, "config.json", CONFIG_BYTES, &root);
    if (!status) {
        status = sk_hf_config_of(sk_print(&a, "%s/config.json", dir), root, m, out);
        json_decref(root);
    }
    sk_arena_end(&a);
    return status ? sk_trail(status, SK_HERE) : SK_OK;
}

/* ---- writing ---- */

static bool given(const sk_model *m, const char *field, const sk_hyper *h)
{
    const sk_field *f = sk_model_field_find(m, field);
    return f->own || sk_field_given(f, h) || sk_field_given(f, &m->hf_default);
}

/* A number as transformers 5 wants it, which takes 10000 for an integer and refuses that. */
static const char *real_text(sk_out *o, const char *s)
{
    return strpbrk(s, ".e") ? s : sk_print(o->arena, "%s.0", s);
}

/* `"name": value` of a field; what is not given is null. */
static void put(sk_out *o, const char *name, const sk_field *f, const sk_hyper *h)
{
    bool text = f->kind == SK_FIELD_TEXT, null = !sk_field_given(f, h);
    null = null && !f->own && (text || f->kind == SK_FIELD_INT);
    sk_field_text t = sk_field_print(f, h);
    const char *value = f->kind == SK_FIELD_REAL ? real_text(o, t.s) : t.s;
    if (null) sk_out_add(o, ",\n  \"%s\": null", name);
    else sk_out_add(o, text ? ",\n  \"%s\": \"%s\"" : ",\n  \"%s\": %s", name, value);
}

static void put_rope(sk_out *o, const sk_hf_key *k, const sk_hyper *h)
{
    bool first = true;
    if (!*h->rope_type) return;
    sk_out_add(o, ",\n  \"%s\": {", scaling);
    for (; k->name; k++) {
        const sk_field *f = sk_hyper_field(k->field);
        if (strncmp(k->name, scaling, sizeof scaling - 1) || !sk_field_given(f, h)) continue;
        sk_field_text t = sk_field_print(f, h);
        sk_out_add(o, f->kind == SK_FIELD_TEXT ? "%s\"%s\": \"%s\"" : "%s\"%s\": %s",
                   first ? "" : ", ", k->name + sizeof scaling,
                   f->kind == SK_FIELD_REAL ? real_text(o, t.s) : t.s);
        first = false;
    }
    sk_out_add(o, "}");
}

static void put_keys(sk_out *o, const sk_model *m, const sk_hf_key *table, const sk_hyper *h)
{
    const char *last = "";
    for (const sk_hf_key *k = table; k->name; k++) {
        bool nested = !strncmp(k->name, scaling, sizeof scaling - 1);
        if (!nested && strcmp(k->name, last) && given(m, k->field, h))
            put(o, k->name, sk_model_field_find(m, k->field), h);
        if (nested && strncmp(last, scaling, sizeof scaling - 1)) put_rope(o, table, h);
        last = k->name;
    }
}

char *sk_hf_config_print(sk_arena *a, const sk_model *m, const sk_hyper *h, sk_dtype type)
{
    static const char *const types[] = {
        [SK_F32] = "float32", [SK_BF16] = "bfloat16", [SK_F16] = "float16", [SK_F64] = "float64"};
    sk_out o = {.arena = a};
    sk_out_add(&o, "{\n  \"architectures\": [\"%s\"],\n  \"model_type\": \"%s\"", m->hf_class,
               m->name);
    for (const sk_hf_key *const *t = m->hf_keys; t && *t; t++) put_keys(&o, m, *t, h);
    for (const sk_field *f = m->own; f && f->name; f++)
        if (!strcmp(sk_model_key(m, f->name), f->name)) put(&o, f->name, f, h);
    for (const sk_hf_only *const *t = m->hf_only; t && *t; t++)
        for (const sk_hf_only *k = *t; k->name; k++)
            if (k->value && *k->value) {
                double x;
                bool bare = !strcmp(k->value, "true") || !strcmp(k->value, "false") ||
                            sk_read_real(k->value, &x);
                sk_out_add(&o, bare ? ",\n  \"%s\": %s" : ",\n  \"%s\": \"%s\"", k->name, k->value);
            }
    sk_out_add(&o,
               ",\n  \"bos_token_id\": null,\n  \"eos_token_id\": null,\n"
               "  \"torch_dtype\": \"%s\"\n}\n",
               types[type]);
    return o.s;
}
