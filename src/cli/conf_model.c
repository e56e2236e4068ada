/* conf_model.c - the key `model`: a preset, a directory with config.json, or names of sizes.
 *
 * Whatever is said, it starts from whole sizes (a preset, a directory, or an
 * architecture's usual ones) and changes some.  Two sizes follow others unless
 * they are given too: key heads that were as many as heads, and a hidden layer
 * that was four times the width. */
#include "cli/setting.h"
#include "data/data_files.h"
#include "kernel/activation.h"
#include "train/hf_config.h"

#include <stdio.h>
#include <string.h>

enum { MAX_NAMES = 128 };

/* The i-th field that some model has of its own. */
static const sk_field *own_field(int i, const sk_model **of)
{
    for (const sk_model *const *m = sk_model_parts; *m; m++)
        for (const sk_field *f = (*m)->own; f && f->name; f++)
            if (!i--) return *of = *m, f;
    return NULL;
}

const char *sk_conf_model_name(int i)
{
    static const char *const others[] = {"arch", "preset", "name", "weights", "dropout"};
    enum { N_OTHERS = sizeof others / sizeof *others };
    const sk_model *m;
    int n = 0;
    while (sk_hyper_fields[n].name) n++;
    if (i < n + N_OTHERS) return i < n ? sk_hyper_fields[i].name : others[i - n];
    const sk_field *f = own_field(i - n - N_OTHERS, &m);
    return f ? f->name : NULL;
}

void sk_conf_model_help(sk_out *o)
{
    const sk_model *m;
    const sk_field *f;
    for (int i = 0; sk_conf_model_name(i); i++) {
        const char *name = sk_conf_model_name(i), *key = sk_print(o->arena, "model.%s", name);
        int k = 0;
        while ((f = own_field(k, &m)) && strcmp(f->name, name)) k++;
        if (!f) sk_out_add(o, "  %s\n", key);
        else
            sk_conf_help_line(
                o, key, f->doc,
                sk_print(o->arena, "%s %s", m->name, sk_field_print(f, &(sk_hyper){0}).s));
    }
}

static bool read_number(const char *s, double *x)
{
    static const char *const yes[] = {"true", "yes", "on"}, *const no[] = {"false", "no", "off"};
    for (int i = 0; i < 3; i++) {
        *x = !strcmp(s, yes[i]);
        if (*x == 1 || !strcmp(s, no[i])) return true;
    }
    if (!strcmp(s, "null") || !strcmp(s, "~")) return *x = 0, true;
    return sk_read_real(s, x);
}

/* ---- where the sizes start from */

static sk_status from_dir(sk_arena *a, const char *dir, sk_job *job)
{
    if (!sk_is_file(sk_print(a, "%s/config.json", dir)))
        return sk_fail(SK_ECONF, "model: the directory \"%s\" has no config.json", dir);
    SK_TRY(sk_hf_config(dir, &job->model, &job->hyper));
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

/* A preset beside a directory of that name: which of them is meant nobody can know.  A run that was
 * called like its preset is no model, unless somebody put a config.json there. */
static sk_status clash(sk_arena *a, const sk_setting *s, const char *name)
{
    bool said = s && !strcmp(s->key, "model"); /* model.preset says itself which it means */
    if (!said || (sk_data_has(name, "config.yaml") && !sk_data_has(name, "config.json")))
        return SK_OK;
    return sk_fail(sk_setting_code(s),
                   "%s: model \"%s\" is a preset, and a directory of that name is here too; use "
                   "model=./%s for the directory, or model=preset:%s",
                   sk_setting_where(a, s, true), name, name, name);
}

/* A preset, an architecture, or a directory, by name: preset:NAME is never a directory, and what
 * has a slash always is. */
static sk_status from_name(sk_arena *a, const sk_setting *s, const char *name, sk_job *job)
{
    bool preset = !strncmp(name, "preset:", strlen("preset:"));
    if (preset) name += strlen("preset:");
    bool dir = !preset && sk_is_dir(name);
    const char *shown = sk_base_name(name);
    job->model = sk_model_preset(name, &job->hyper);
    if (!job->model && (job->model = sk_model_find(name))) job->hyper = job->model->usual;
    if (job->model && dir) SK_TRY(clash(a, s, name));
    if (!job->model && dir) SK_TRY(from_dir(a, name, job));
    if (!job->model && s && sk_is_file(name))
        return sk_fail(sk_setting_code(s),
                       "%s: model \"%s\" is a file; model=DIR is a directory with its weights, and "
                       "a config.json alone is given without model=",
                       sk_setting_where(a, s, true), name);
    if (!job->model) return sk_trail(no_model(a, s, name), SK_HERE);
    snprintf(job->model_name, sizeof job->model_name, "%.*s", SK_NAME - 1, shown);
    return SK_OK;
}

static sk_status start(sk_arena *a, const sk_settings *s, sk_job *job)
{
    const sk_setting *name = sk_setting_find(s, "model"), *arch = sk_setting_find(s, "model.arch");
    const sk_setting *base = sk_setting_find(s, "model.preset");
    if (!base) base = name;
    const sk_setting *type = sk_setting_find(s, "model.model_type");
    bool pasted = type && sk_conf_pasted(s, type);
    if (!arch || pasted) arch = type;
    if (base || !arch) return from_name(a, base, base ? base->value : "nano", job);
    job->model = sk_model_find(arch->value);
    if (!job->model) return sk_trail(no_model(a, arch, arch->value), SK_HERE);
    job->hyper = job->model->usual;
    if (pasted) SK_TRY(sk_conf_paste(a, s, job));
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

/* ---- what is changed */

/* The i-th field that `model.NAME` sets, NULL past the last.  `dropout` sets those of embeddings
 * and residuals. */
static const sk_field *sets(const sk_model *m, const char *name, int i)
{
    static const char *const drops[] = {"resid_pdrop", "embd_pdrop"};
    if (strcmp(name, "dropout")) return sk_model_sets(m, name, i);
    const sk_field *f = i < 2 ? sk_hyper_field(drops[i]) : NULL;
    return f && sk_model_has(m, f) ? f : NULL;
}

static sk_status no_value(sk_arena *a, const sk_setting *s, const char *needed)
{
    return sk_fail(sk_setting_code(s), "%s: %s is \"%.40s\"; %s is needed",
                   sk_setting_where(a, s, true), s->key, s->value, needed);
}

static sk_status set_field(sk_arena *a, const sk_setting *s, const sk_field *f, sk_hyper *h)
{
    static const char *const kinds[] = {"a whole number", "a number", "true or false", "a name"};
    const char *value = strcmp(s->value, "null") ? s->value : "";
    double x = 0;
    if (f->kind == SK_FIELD_TEXT) {
        if (sk_field_set_text(f, h, value)) return SK_OK;
        return sk_trail(no_value(a, s, "a shorter name"), SK_HERE);
    }
    if (f->kind == SK_FIELD_REAL && sk_read_real(value, &x) && !sk_read_plain(value, &x))
        return sk_trail(no_value(a, s, "a number without a unit"), SK_HERE);
    if (!read_number(s->value, &x) || !sk_field_set_number(f, h, x))
        return sk_trail(no_value(a, s, kinds[f->kind]), SK_HERE);
    return SK_OK;
}

/* A field that the model does not have: older configurations hold all of them, with nothing in
 * them, and as many key heads as heads. */
static sk_status foreign(sk_arena *a, const sk_setting *s, const char *name, sk_job *job)
{
    const sk_model *other;
    const sk_field *f = sk_hyper_field(name);
    for (int i = 0; !f && own_field(i, &other); i++)
        if (!strcmp(own_field(i, &other)->name, name)) f = own_field(i, &other);
    double x = 0;
    bool known = f || !strcmp(name, "dropout");
    bool none = known && read_number(s->value, &x) && x == 0;
    if (none || (f && !*s->value)) return SK_OK;
    if (f && !strcmp(name, "num_key_value_heads")) return set_field(a, s, f, &job->hyper);
    return sk_fail(sk_setting_code(s), "%s: %s \"%.80s\" of a %s%s", sk_setting_where(a, s, false),
                   known ? "there is no" : "unknown key", s->key, job->model->name,
                   known ? "" : sk_conf_hint(a, s->key, NULL));
}

/* One `model.x`. */
static sk_status change(sk_arena *a, const sk_setting *s, sk_job *job)
{
    const char *name = s->key + strlen("model.");
    const sk_field *f;
    if (!strcmp(name, "preset")) return SK_OK;
    if (!strcmp(name, "name")) return text_field(a, s, job->model_name, sizeof job->model_name);
    if (!strcmp(name, "weights")) return text_field(a, s, job->model_dir, sizeof job->model_dir);
    if (!strcmp(name, "arch") || !strcmp(name, "model_type")) {
        if (!strcmp(s->value, job->model->name)) return SK_OK;
        return sk_fail(sk_setting_code(s), "%s: %s is \"%.40s\", but the sizes are those of a %s",
                       sk_setting_where(a, s, true), s->key, s->value, job->model->name);
    }
    if (!sets(job->model, name, 0)) return sk_trail(foreign(a, s, name, job), SK_HERE);
    for (int i = 0; (f = sets(job->model, name, i)); i++) SK_TRY(set_field(a, s, f, &job->hyper));
    return SK_OK;
}

/* Does any setting, under whatever name, give this field? */
static bool given(const sk_settings *own, const sk_model *m, const char *field)
{
    const sk_field *f;
    for (int i = 0; i < own->n; i++)
        for (int k = 0; own->v[i].key[5] == '.' && (f = sets(m, own->v[i].key + 6, k)); k++)
            if (!strcmp(f->name, field)) return true;
    return false;
}

/* Sizes that follow others; `was` is what they started from. */
static void follow(const sk_settings *own, const sk_model *m, const sk_hyper *was, sk_hyper *h)
{
    bool keys = was->num_key_value_heads && was->num_key_value_heads != was->num_attention_heads;
    if (!keys && !given(own, m, "num_key_value_heads"))
        h->num_key_value_heads = h->num_attention_heads;
    bool four = was->hidden_size && was->intermediate_size == 4 * was->hidden_size;
    if (four && !given(own, m, "intermediate_size")) h->intermediate_size = 4 * h->hidden_size;
}

static sk_status check(sk_arena *a, const sk_job *job)
{
    const sk_hyper *h = &job->hyper;
    const char *who = sk_print(a, "model %s", job->model_name);
    SK_TRY(sk_model_check(who, job->model, h));
    if (*h->hidden_act && sk_activation_find(h->hidden_act) < 0)
        return sk_fail(SK_ECONF,
                       "%s: hidden_act is \"%s\", an activation function that skein does "
                       "not have",
                       who, h->hidden_act);
    if (*h->rope_type && strcmp(h->rope_type, "linear") && strcmp(h->rope_type, "llama3"))
        return sk_fail(SK_ECONF, "%s: rope_type is \"%s\"; needed is linear or llama3", who,
                       h->rope_type);
    const char *drop = sk_model_key(job->model, "attn_pdrop");
    if (h->attn_pdrop > 0)
        return sk_fail(
            SK_ECONF,
            "%s: %s is %g, and dropout of attention weights is not supported; model.%s=0 "
            "trains without it",
            who, drop, h->attn_pdrop, drop);
    return SK_OK;
}

sk_status sk_conf_model(sk_arena *a, const sk_settings *all, sk_job *job)
{
    sk_settings own = {0};
    for (int i = 0; i < all->n; i++) {
        const sk_setting *s = &all->v[i];
        if (!strcmp(s->key, "model")) own.n = 0; /* a new start: earlier settings do not count */
        if (!strcmp(s->key, "model") || !strncmp(s->key, "model.", 6)) *sk_push(a, &own) = *s;
    }
    SK_TRY(start(a, &own, job));
    sk_hyper was = job->hyper;
    for (int i = 0; i < own.n; i++)
        if (own.v[i].key[5] == '.' && !sk_conf_pasted(&own, &own.v[i]))
            SK_TRY(change(a, &own.v[i], job));
    follow(&own, job->model, &was, &job->hyper);
    snprintf(job->hyper.arch, sizeof job->hyper.arch, "%s", job->model->name);
    return check(a, job);
}

void sk_conf_model_print(sk_out *o, const sk_job *job)
{
    sk_hyper h = job->hyper;
    sk_out_add(o, "model:\n  arch: %s\n  name: %s\n", sk_conf_quote(o->arena, job->model->name),
               sk_conf_quote(o->arena, job->model_name));
    if (*job->model_dir) sk_out_add(o, "  weights: %s\n", sk_conf_quote(o->arena, job->model_dir));
    const sk_field *f;
    for (int i = 0; (f = sk_model_field(job->model, i)); i++) {
        if (!sk_model_has(job->model, f)) continue;
        const char *value = sk_field_print(f, &h).s;
        bool text = f->kind == SK_FIELD_TEXT;
        sk_out_add(o, "  %s: %s\n", f->name, text ? sk_conf_quote(o->arena, value) : value);
    }
}
