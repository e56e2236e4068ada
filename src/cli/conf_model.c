/* conf_model.c - the key `model`: a preset, a directory with config.json, or names of sizes.
 *
 * Whatever is said, it starts from whole sizes (a preset, a directory, or an
 * architecture's usual ones) and changes some.  Two sizes follow others unless
 * they are given too: key heads that were as many as heads, and a hidden layer
 * that was four times the width. */
#include "cli/setting.h"
#include "data/read.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MAX_CONFIG = 1 << 20, MAX_NAMES = 128 };

static const struct number {
    const char *name;
    size_t at;
    enum { WHOLE, REAL, YES_NO } kind;
} numbers[] = {
    {"hidden_size", offsetof(sk_hyper, hidden_size), WHOLE},
    {"num_hidden_layers", offsetof(sk_hyper, num_hidden_layers), WHOLE},
    {"num_attention_heads", offsetof(sk_hyper, num_attention_heads), WHOLE},
    {"num_key_value_heads", offsetof(sk_hyper, num_key_value_heads), WHOLE},
    {"intermediate_size", offsetof(sk_hyper, intermediate_size), WHOLE},
    {"vocab_size", offsetof(sk_hyper, vocab_size), WHOLE},
    {"max_position_embeddings", offsetof(sk_hyper, max_position_embeddings), WHOLE},
    {"input_size", offsetof(sk_hyper, input_size), WHOLE},
    {"rope_theta", offsetof(sk_hyper, rope_theta), REAL},
    {"norm_eps", offsetof(sk_hyper, norm_eps), REAL},
    {"dropout", offsetof(sk_hyper, dropout), REAL},
    {"initializer_range", offsetof(sk_hyper, initializer_range), REAL},
    {"tie_word_embeddings", offsetof(sk_hyper, tie_word_embeddings), YES_NO},
    {"num_local_experts", offsetof(sk_hyper, num_local_experts), WHOLE},
    {"num_experts_per_tok", offsetof(sk_hyper, num_experts_per_tok), WHOLE},
    {"n_shared_experts", offsetof(sk_hyper, n_shared_experts), WHOLE},
    {"expert_groups", offsetof(sk_hyper, expert_groups), WHOLE},
    {"capacity_factor", offsetof(sk_hyper, capacity_factor), REAL},
    {"router_aux_loss_coef", offsetof(sk_hyper, router_aux_loss_coef), REAL},
    {"router_bias_update_speed", offsetof(sk_hyper, router_bias_update_speed), REAL},
};
enum { N_NUMBERS = sizeof numbers / sizeof *numbers };

const char *sk_conf_model_name(int i)
{
    static const char *const others[] = {"arch", "preset", "name", "weights"};
    if (i < N_NUMBERS) return numbers[i].name;
    return i < N_NUMBERS + 4 ? others[i - N_NUMBERS] : NULL;
}

static int64_t *whole_at(sk_hyper *h, int i) { return (int64_t *)((char *)h + numbers[i].at); }
static double *real_at(sk_hyper *h, int i) { return (double *)((char *)h + numbers[i].at); }
static bool *flag_at(sk_hyper *h, int i) { return (bool *)((char *)h + numbers[i].at); }

/* Did a whole number change between two sets of sizes? */
static bool whole_changed(sk_hyper *x, sk_hyper *y)
{
    for (int i = 0; i < N_NUMBERS; i++)
        if (numbers[i].kind == WHOLE && *whole_at(x, i) != *whole_at(y, i)) return true;
    return false;
}

/* Set a size under the family's own name or the general one; false if it is neither, or if the
 * value cannot be one. */
static bool set_number(const sk_model *m, sk_hyper *h, const char *name, double x)
{
    int i = 0;
    sk_hyper was = *h;
    if (!isfinite(x) || fabs(x) > 1e15) return false;
    if (m->hf_key && m->hf_key(h, name, x)) {
        if (x == floor(x) || !whole_changed(&was, h)) return true;
        *h = was;
        return false;
    }
    while (i < N_NUMBERS && strcmp(numbers[i].name, name)) i++;
    if (i == N_NUMBERS || (numbers[i].kind == WHOLE && x != floor(x))) return false;
    if (numbers[i].kind == WHOLE) *whole_at(h, i) = (int64_t)x;
    else if (numbers[i].kind == REAL) *real_at(h, i) = x;
    else *flag_at(h, i) = x != 0;
    return true;
}

static bool read_number(const char *s, double *x)
{
    static const char *const yes[] = {"true", "yes", "on"}, *const no[] = {"false", "no", "off"};
    for (int i = 0; i < 3; i++) {
        *x = !strcmp(s, yes[i]);
        if (*x == 1 || !strcmp(s, no[i])) return true;
    }
    return sk_read_real(s, x);
}

/* What config.json may say that our models do not do. */
static sk_status refuse(const char *path, json_t *root)
{
    json_t *rope = json_object_get(root, "rope_scaling"), *dim = json_object_get(root, "head_dim");
    const char *type = json_string_value(json_object_get(rope, "rope_type"));
    double width = json_number_value(json_object_get(root, "hidden_size"));
    double heads = json_number_value(json_object_get(root, "num_attention_heads"));
    if (json_is_object(rope) && (!type || strcmp(type, "default")))
        return sk_fail(SK_ECONF, "%s: rope_scaling \"%s\" is not supported", path,
                       type ? type : "?");
    if (json_is_number(dim) && heads > 0 && json_number_value(dim) * heads != width)
        return sk_fail(SK_ECONF,
                       "%s: head_dim is %g, only hidden_size / num_attention_heads = %g "
                       "is supported",
                       path, json_number_value(dim), width / heads);
    return SK_OK;
}

static sk_status from_json(const char *path, json_t *root, sk_job *job)
{
    const char *key, *type = json_string_value(json_object_get(root, "model_type"));
    json_t *v;
    job->model = type ? sk_model_find(type) : NULL;
    if (!job->model)
        return sk_fail(SK_ECONF, "%s: model_type \"%.40s\" is none of the models here", path,
                       type ? type : "");
    SK_TRY(refuse(path, root));
    job->hyper = job->model->usual;
    json_object_foreach(root, key, v)
    {
        if (json_is_number(v)) set_number(job->model, &job->hyper, key, json_number_value(v));
        if (json_is_boolean(v)) set_number(job->model, &job->hyper, key, json_is_true(v));
    }
    v = json_object_get(json_object_get(root, "rope_parameters"), "rope_theta"); /* since 2025 */
    if (json_is_number(v)) set_number(job->model, &job->hyper, "rope_theta", json_number_value(v));
    return SK_OK;
}

static sk_status from_dir(sk_arena *a, const char *dir, sk_job *job)
{
    sk_text text = {0};
    json_error_t e;
    const char *path = sk_print(a, "%s/config.json", dir);
    if (!sk_is_file(path))
        return sk_fail(SK_ECONF, "model: the directory \"%s\" has no config.json", dir);
    SK_TRY(sk_data_read(a, path, MAX_CONFIG, &text));
    json_t *root = json_loadb(text.s, text.n, JSON_REJECT_DUPLICATES, &e);
    if (!root) return sk_fail(SK_ECONF, "%s:%d:%d: not JSON: %s", path, e.line, e.column, e.text);
    sk_status status = from_json(path, root, job);
    json_decref(root);
    if (status) return sk_trail(status, SK_HERE);
    snprintf(job->model_dir, sizeof job->model_dir, "%s", dir);
    return SK_OK;
}

static sk_status no_model(sk_arena *a, const sk_setting *s, const char *name)
{
    const char *names[MAX_NAMES];
    int n = 0;
    for (const sk_model *const *m = sk_model_parts; *m; m++) {
        if (n < MAX_NAMES && !sk_model_preset((*m)->name, &(sk_hyper){0})) names[n++] = (*m)->name;
        for (const sk_preset *p = (*m)->presets; p && p->name && n < MAX_NAMES; p++)
            names[n++] = p->name;
    }
    sk_out all = {.arena = a};
    for (int i = 0; i < n; i++) sk_out_add(&all, "%s%s", i ? ", " : "", names[i]);
    const char *near = sk_nearest(name, names, n);
    return sk_fail(s ? sk_setting_code(s) : SK_ECONF,
                   "%s: model \"%.80s\" is no preset and no directory%s%s%s; there are: %s",
                   s ? sk_setting_where(a, s, true) : "model", name,
                   near ? " - did you mean \"" : "", near ? near : "", near ? "\"?" : "", all.s);
}

/* A preset, a directory or an architecture, by name. */
static sk_status from_name(sk_arena *a, const sk_setting *s, const char *name, sk_job *job)
{
    job->model = sk_model_preset(name, &job->hyper);
    const char *shown = sk_base_name(name);
    if (!job->model && sk_is_dir(name)) SK_TRY(from_dir(a, name, job));
    if (!job->model && (job->model = sk_model_find(name))) job->hyper = job->model->usual;
    if (!job->model) return sk_trail(no_model(a, s, name), SK_HERE);
    snprintf(job->model_name, sizeof job->model_name, "%.*s", SK_NAME - 1, shown);
    return SK_OK;
}

/* Where the sizes start from. */
static sk_status start(sk_arena *a, const sk_settings *s, sk_job *job)
{
    const sk_setting *name = sk_setting_find(s, "model"), *arch = sk_setting_find(s, "model.arch");
    const sk_setting *base = sk_setting_find(s, "model.preset");
    if (!base) base = name;
    if (!arch) arch = sk_setting_find(s, "model.model_type");
    if (base || !arch) return from_name(a, base, base ? base->value : "nano", job);
    job->model = sk_model_find(arch->value);
    if (!job->model) return sk_trail(no_model(a, arch, arch->value), SK_HERE);
    job->hyper = job->model->usual;
    snprintf(job->model_name, sizeof job->model_name, "%.*s", SK_NAME - 1, arch->value);
    return SK_OK;
}

static sk_status text_field(sk_arena *a, const sk_setting *s, char *to, size_t size)
{
    if (strlen(s->value) >= size)
        return sk_fail(sk_setting_code(s), "%s: %s has %zu bytes, at most %zu fit",
                       sk_setting_where(a, s, true), s->key, strlen(s->value), size - 1);
    memset(to, 0, size);
    memcpy(to, s->value, strlen(s->value));
    return SK_OK;
}

/* One `model.x`. */
static sk_status change(sk_arena *a, const sk_setting *s, sk_job *job)
{
    const char *name = s->key + strlen("model.");
    double x = 0;
    if (!strcmp(name, "preset")) return SK_OK;
    if (!strcmp(name, "name")) return text_field(a, s, job->model_name, sizeof job->model_name);
    if (!strcmp(name, "weights")) return text_field(a, s, job->model_dir, sizeof job->model_dir);
    if (!strcmp(name, "arch") || !strcmp(name, "model_type")) {
        if (!strcmp(s->value, job->model->name)) return SK_OK;
        return sk_fail(sk_setting_code(s), "%s: %s is \"%.40s\", but the sizes are those of a %s",
                       sk_setting_where(a, s, true), s->key, s->value, job->model->name);
    }
    if (!read_number(s->value, &x))
        return sk_fail(sk_setting_code(s), "%s: %s is \"%.40s\"; a number is needed",
                       sk_setting_where(a, s, true), s->key, s->value);
    sk_hyper probe = job->hyper;
    if (set_number(job->model, &job->hyper, name, x)) return SK_OK;
    if (set_number(job->model, &probe, name, 1))
        return sk_fail(sk_setting_code(s), "%s: %s is %s; a whole number is needed",
                       sk_setting_where(a, s, true), s->key, s->value);
    return sk_fail(sk_setting_code(s), "%s: unknown key \"%.80s\" of a %s%s",
                   sk_setting_where(a, s, false), s->key, job->model->name,
                   sk_conf_hint(a, s->key, NULL));
}

/* Does any setting, under whatever name, give the number at `at`? */
static bool given(const sk_settings *own, const sk_model *m, size_t at)
{
    for (int i = 0; i < own->n; i++) {
        sk_hyper probe = {0};
        if (own->v[i].key[5] == '.') set_number(m, &probe, own->v[i].key + 6, 7);
        if (*(int64_t *)((char *)&probe + at)) return true;
    }
    return false;
}

/* Sizes that follow others; `was` is what they started from. */
static void follow(const sk_settings *own, const sk_model *m, const sk_hyper *was, sk_hyper *h)
{
    bool keys = was->num_key_value_heads && was->num_key_value_heads != was->num_attention_heads;
    if (!keys && !given(own, m, offsetof(sk_hyper, num_key_value_heads)))
        h->num_key_value_heads = h->num_attention_heads;
    bool four = was->hidden_size && was->intermediate_size == 4 * was->hidden_size;
    if (four && !given(own, m, offsetof(sk_hyper, intermediate_size)))
        h->intermediate_size = 4 * h->hidden_size;
}

static sk_status check(const sk_job *job)
{
    sk_hyper h = job->hyper;
    for (int i = 0; i < N_NUMBERS; i++) {
        bool whole = numbers[i].kind == WHOLE;
        double x = whole ? (double)*whole_at(&h, i) : numbers[i].kind == REAL ? *real_at(&h, i) : 0;
        double least = !strcmp(numbers[i].name, "hidden_size") ||
                       !strcmp(numbers[i].name, "num_hidden_layers") ||
                       !strcmp(numbers[i].name, "vocab_size");
        double most =
            !strcmp(numbers[i].name, "num_hidden_layers") ? 1e4 : 1e10; /* all written out */
        if (x < least || (whole && x > most))
            return sk_fail(SK_ECONF, "model %s: %s is %g; needed is %g to %g", job->model_name,
                           numbers[i].name, x, least, most);
    }
    int64_t heads = h.num_attention_heads, keys = h.num_key_value_heads;
    if (heads && h.hidden_size % heads)
        return sk_fail(SK_ECONF,
                       "model %s: hidden_size is %lld; it must be a multiple of "
                       "num_attention_heads, which is %lld",
                       job->model_name, (long long)h.hidden_size, (long long)heads);
    if (heads && (!keys || heads % keys))
        return sk_fail(SK_ECONF,
                       "model %s: num_attention_heads is %lld; it must be a multiple of "
                       "num_key_value_heads, which is %lld",
                       job->model_name, (long long)heads, (long long)keys);
    if (h.dropout >= 1)
        return sk_fail(SK_ECONF, "model %s: dropout is %g; it must be below 1", job->model_name,
                       h.dropout);
    return SK_OK;
}

sk_status sk_conf_model(sk_arena *a, const sk_settings *all, sk_job *job)
{
    sk_settings own = {0};
    for (int i = 0; i < all->n; i++) {
        const sk_setting *s = &all->v[i];
        if (!strcmp(s->key, "model")) own.n = 0; /* a new start: what was said before is void */
        if (!strcmp(s->key, "model") || !strncmp(s->key, "model.", 6)) *sk_push(a, &own) = *s;
    }
    SK_TRY(start(a, &own, job));
    sk_hyper was = job->hyper;
    for (int i = 0; i < own.n; i++)
        if (own.v[i].key[5] == '.') SK_TRY(change(a, &own.v[i], job));
    follow(&own, job->model, &was, &job->hyper);
    snprintf(job->hyper.arch, sizeof job->hyper.arch, "%s", job->model->name);
    return check(job);
}

void sk_conf_model_print(sk_out *o, const sk_job *job)
{
    sk_hyper h = job->hyper;
    sk_out_add(o, "model:\n  arch: %s\n  name: %s\n", sk_conf_quote(o->arena, job->model->name),
               sk_conf_quote(o->arena, job->model_name));
    if (*job->model_dir) sk_out_add(o, "  weights: %s\n", sk_conf_quote(o->arena, job->model_dir));
    for (int i = 0; i < N_NUMBERS; i++) {
        sk_out_add(o, "  %s: ", numbers[i].name);
        if (numbers[i].kind == WHOLE) sk_out_add(o, "%lld\n", (long long)*whole_at(&h, i));
        else if (numbers[i].kind == REAL)
            sk_out_add(o, "%s\n", sk_conf_real(o->arena, *real_at(&h, i)));
        else sk_out_add(o, "%s\n", *flag_at(&h, i) ? "true" : "false");
    }
}
