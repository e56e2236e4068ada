/* conf_paste.c - the keys of a config.json, pasted below `model:` of a file, or given as the file.
 *
 * A `model` with a model_type is such a config: it is handed to the one reader of
 * config.json (train/hf_config.h), which understands or refuses every key, and what
 * is left out means what transformers means by it.  YAML and JSON are alike here:
 * settings are texts, so what reads as a number, true, false or null becomes that. */
#include "cli/setting.h"
#include "base/file_io.h"
#include "data/data_files.h"
#include "tensor/strict.h"
#include "train/hf_config.h"

#include <jansson.h>
#include <math.h>
#include <string.h>

/* Keys of ours, which stand beside the pasted ones. */
static bool is_ours(const char *name)
{
    static const char *const ours[] = {"arch", "preset", "name", "weights"};
    for (int i = 0; i < 4; i++)
        if (!strcmp(name, ours[i])) return true;
    return false;
}

bool sk_conf_pasted(const sk_settings *own, const sk_setting *s)
{
    const sk_setting *type = sk_setting_find(own, "model.model_type");
    bool based = sk_setting_find(own, "model") || sk_setting_find(own, "model.preset");
    if (!type || !type->file || based || strncmp(s->key, "model.", strlen("model."))) return false;
    return s->file && !strcmp(s->file, type->file) && !is_ours(s->key + strlen("model."));
}

static json_t *scalar(const char *text)
{
    double x = 0;
    if (!*text) return json_null();
    if (!strcmp(text, "true") || !strcmp(text, "false")) return json_boolean(*text == 't');
    bool number = strspn(text, "0123456789+-.eE") == strlen(text) && sk_read_real(text, &x);
    if (number && x == floor(x) && fabs(x) < 1e15) return json_integer((json_int_t)x);
    return number ? json_real(x) : json_string(text);
}

/* A list is one text with an item a line. */
static json_t *value(const char *key, const char *text)
{
    if (!strchr(text, '\n') && strcmp(key, "layer_types")) return scalar(text);
    json_t *list = json_array();
    for (const char *p = text; *p;) {
        size_t n = strcspn(p, "\n");
        json_array_append_new(list, json_stringn(p, n));
        p += n + (p[n] != 0);
    }
    return list;
}

/* rope_scaling.factor: a member of the object rope_scaling. */
static void put(sk_arena *a, json_t *root, const char *key, const char *text)
{
    const char *dot = strchr(key, '.');
    if (!dot) {
        json_object_set_new(root, key, value(key, text));
        return;
    }
    const char *object = sk_print(a, "%.*s", (int)(dot - key), key);
    json_t *inner = json_object_get(root, object);
    if (!json_is_object(inner)) {
        inner = json_object();
        json_object_set_new(root, object, inner);
    }
    put(a, inner, dot + 1, text);
}

sk_status sk_conf_paste(sk_arena *a, const sk_settings *own, sk_job *job)
{
    const char *where = NULL;
    json_t *root = json_object();
    for (int i = 0; i < own->n; i++) {
        const sk_setting *s = &own->v[i];
        if (!sk_conf_pasted(own, s)) continue;
        where = s->file;
        put(a, root, s->key + strlen("model."), s->value);
    }
    sk_assert(where);
    sk_status st = sk_hf_config_of(where, root, &job->model, &job->hyper);
    json_decref(root);
    return st ? sk_trail(st, SK_HERE) : SK_OK;
}

/* ---- the file itself */

sk_status sk_conf_is_paste(sk_arena *a, const char *path, const char *text, size_t n, bool *out)
{
    static const sk_strict limits = {.depth = 16, .objects = 10000, .values = 100000};
    json_t *root = NULL;
    *out = false;
    if (!sk_ends_with(path, ".json")) return SK_OK;
    if (!sk_strict_json(path, text, n, &limits, &root))
        *out = json_is_string(json_object_get(root, "model_type"));
    json_decref(root);
    if (!*out) return SK_OK; /* the reader of YAML says what is wrong, if anything is */
    const char *slash = strrchr(path, '/');
    const char *dir = slash ? sk_print(a, "%.*s", (int)(slash - path), path) : ".";
    if (!sk_data_has(dir, "model.safetensors") && !sk_data_has(dir, "model.safetensors.index.json"))
        return SK_OK;
    return sk_fail(SK_EUSAGE,
                   "command line: %s is the config of a model in the same directory; use model=%s "
                   "to train it, or model=%s model.weights= for its sizes alone",
                   path, dir, dir);
}
